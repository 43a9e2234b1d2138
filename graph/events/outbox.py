"""What a process knows of its hooks between operations: who sends, that something waits to be sent, and that nobody listens."""

import time

from graph.events.guard import Guard
from graph.events.sending import Sender
from graph.wake import Wake

UNHEARD_SECONDS = 1.0
"""How long "no hook wants this" is believed, for the sake of hooks that another process made."""


class Outbox:
    def __init__(self, *, allow_local: bool = False) -> None:
        self.sender = Sender(Guard(allow_local=allow_local))
        self._bell = Wake()
        self._unheard: dict[str | None, float] = {}
        self.hook_changes = 0
        """How often hooks were made or enabled."""

    def wake(self) -> None:
        """Says that something waits. To be called after the commit, or who is woken would not see it."""
        self._bell.wake()

    async def woken(self, seconds: float) -> None:
        """Waits to be woken, so long at most."""
        await self._bell.woken(seconds)

    def unheard(self, switch: str | None) -> bool:
        """Whether no hook wanted an event of this switch just now."""
        return time.monotonic() < self._unheard.get(switch, 0.0)

    def nobody_wants(self, switch: str | None, hook_changes: int) -> None:
        """What was read when there had been so many changes of hooks; with one more by now it says nothing."""
        if hook_changes == self.hook_changes:
            self._unheard[switch] = time.monotonic() + UNHEARD_SECONDS

    def hooks_changed(self) -> None:
        """To be called after the commit of a hook that was made or enabled."""
        self.hook_changes += 1
        self._unheard.clear()

    async def close(self) -> None:
        await self.sender.close()
