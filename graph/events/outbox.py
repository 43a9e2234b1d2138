"""What a process knows of its hooks between operations: who sends, that something waits to be sent, and that nobody listens."""

import time

from graph.events.address_guard import AddressGuard
from graph.events.webhook_sender import WebhookSender
from graph.jobs.wakeup import Wakeup

NO_LISTENER_SECONDS = 1.0
"""How long "no hook wants this" is believed, for the sake of hooks that another process made."""


class Outbox:
    def __init__(self, *, allow_local: bool = False) -> None:
        self.sender = WebhookSender(AddressGuard(allow_local=allow_local))
        self._wakeup = Wakeup()
        self._no_listener_until: dict[str | None, float] = {}
        self.hook_change_count = 0
        """How often hooks were made or enabled."""

    def notify(self) -> None:
        """Says that something waits. To be called after the commit, or who is woken would not see it."""
        self._wakeup.notify()

    async def wait(self, seconds: float) -> None:
        """Waits to be woken, so long at most."""
        await self._wakeup.wait(seconds)

    def has_no_listener(self, switch: str | None) -> bool:
        """Whether no hook wanted an event of this switch just now."""
        return time.monotonic() < self._no_listener_until.get(switch, 0.0)

    def record_no_listener(self, switch: str | None, hook_change_count: int) -> None:
        """What was read when there had been so many changes of hooks; with one more by now it says nothing."""
        if hook_change_count == self.hook_change_count:
            self._no_listener_until[switch] = time.monotonic() + NO_LISTENER_SECONDS

    def record_hook_change(self) -> None:
        """To be called after the commit of a hook that was made or enabled."""
        self.hook_change_count += 1
        self._no_listener_until.clear()

    async def close(self) -> None:
        await self.sender.close()
