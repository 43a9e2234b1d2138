"""The webhook sender of a process, the wake-up of its delivery worker, and a cache of events without subscribed hooks."""

import time

from graph.events.address_guard import AddressGuard
from graph.events.webhook_sender import WebhookSender
from graph.jobs.wakeup import Wakeup

UNSUBSCRIBED_CACHE_SECONDS = 1.0
"""Lifetime of a cached "no hook is subscribed", because another process may create hooks."""


class Outbox:
    """State of webhook delivery that a process shares between operations."""

    def __init__(self, *, allow_local: bool = False) -> None:
        self.sender = WebhookSender(AddressGuard(allow_local=allow_local))
        self._wakeup = Wakeup()
        self._unsubscribed_until: dict[str | None, float] = {}
        self.hook_change_count = 0
        """Number of times that hooks were created or enabled."""

    def notify(self) -> None:
        """Wakes the delivery worker. Call it after the commit, because the worker cannot see the deliveries before."""
        self._wakeup.notify()

    async def wait(self, seconds: float) -> None:
        """Waits for a notification, at most `seconds`."""
        await self._wakeup.wait(seconds)

    def is_unsubscribed(self, switch: str | None) -> bool:
        """Whether it is cached that no hook is subscribed to events of this switch."""
        return time.monotonic() < self._unsubscribed_until.get(switch, 0.0)

    def record_unsubscribed(self, switch: str | None, hook_change_count: int) -> None:
        """Caches that no hook is subscribed, unless hooks have changed since `hook_change_count` was read."""
        if hook_change_count == self.hook_change_count:
            self._unsubscribed_until[switch] = time.monotonic() + UNSUBSCRIBED_CACHE_SECONDS

    def record_hook_change(self) -> None:
        """Clears the cache. Call it after the commit of a created or enabled hook."""
        self.hook_change_count += 1
        self._unsubscribed_until.clear()

    async def close(self) -> None:
        await self.sender.close()
