"""Time limits of operations. Almost all operations end long before their deadline, so one timer serves all of them."""

import asyncio
from types import TracebackType

NEVER = float("inf")


class Deadline:
    """A context manager like `asyncio.timeout`, entered with `with`: it cancels the task and raises TimeoutError after the deadline.

    `expired` is whether the deadline has passed. `has_committed` is whether the operation has committed a change; it has the whole time
    again from there on, because it can no longer be rejected as too late.
    """

    __slots__ = ("_canceling", "_deadlines", "_seconds", "expired", "has_committed", "task")

    def __init__(self, deadlines: "Deadlines", seconds: float) -> None:
        self._deadlines = deadlines
        self._seconds = seconds
        self._canceling = 0
        self.expired = self.has_committed = False
        self.task: asyncio.Task[object] | None = None

    def __enter__(self) -> "Deadline":
        task = self.task = asyncio.current_task()
        assert task is not None, "a deadline must be entered in a task"  # noqa: S101
        self._canceling = task.cancelling()
        self._deadlines.add(self, self._seconds)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self._deadlines.remove(self)
        # If others have canceled the task too, the cancellation is passed on.
        if self.expired and self.task is not None and self.task.uncancel() <= self._canceling and kind is asyncio.CancelledError:
            raise TimeoutError from error

    async def suspend(self) -> None:
        """Ends the time limit until `restart`, for what must not be canceled. Raises TimeoutError if the deadline has passed."""
        if self.expired:
            # The cancellation may be pending: the next `await` raises it.
            await asyncio.sleep(0)
            raise TimeoutError
        self._deadlines.remove(self)

    def restart(self) -> None:
        """Grants the whole time from now on."""
        self._deadlines.add(self, self._seconds)


class Deadlines:
    """The deadlines of one process."""

    def __init__(self) -> None:
        self._expiries: dict[Deadline, float] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._next_expiry = NEVER

    def within(self, seconds: float | None) -> Deadline:
        """Returns a deadline after `seconds`; None: no limit."""
        return Deadline(self, NEVER if seconds is None else seconds)

    def add(self, deadline: Deadline, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            # The timers of the previous loop ended with it.
            self._loop, self._next_expiry = loop, NEVER
            self._expiries.clear()
        self._expiries[deadline] = expiry = loop.time() + seconds
        if expiry < self._next_expiry:
            self._schedule_timer(expiry)

    def remove(self, deadline: Deadline) -> None:
        self._expiries.pop(deadline, None)

    def _schedule_timer(self, expiry: float) -> None:
        self._next_expiry = expiry
        if self._loop is not None and expiry < NEVER:
            self._loop.call_at(expiry, self._on_timer, expiry)

    def _on_timer(self, expiry: float) -> None:
        if expiry != self._next_expiry:
            # An earlier deadline was added meanwhile.
            return
        for deadline, deadline_expiry in list(self._expiries.items()):
            if deadline_expiry <= expiry and deadline.task is not None:
                del self._expiries[deadline]
                deadline.expired = True
                deadline.task.cancel()
        self._schedule_timer(min(self._expiries.values(), default=NEVER))
