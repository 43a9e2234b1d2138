"""How long work may take. Nearly all of it is done long before its time is over, so one timer serves all that runs."""

import asyncio
from types import TracebackType

NEVER = float("inf")


class Deadline:
    """As `asyncio.timeout`, to be entered with `with`: calls off the task that entered it, and raises TimeoutError, when its time is
    over. `expired` says afterwards whether it was."""

    __slots__ = ("_all", "_cancelling", "_seconds", "expired", "task")

    def __init__(self, among: "Deadlines", seconds: float) -> None:
        self._all = among
        self._seconds = seconds
        self._cancelling = 0
        self.expired = False
        self.task: asyncio.Task[object] | None = None

    def __enter__(self) -> "Deadline":
        task = self.task = asyncio.current_task()
        assert task is not None, "only a task can be called off"  # noqa: S101
        self._cancelling = task.cancelling()
        self._all.begin(self, self._seconds)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self._all.end(self)
        # Who was called off by others too is not late alone.
        if self.expired and self.task is not None and self.task.uncancel() <= self._cancelling and kind is asyncio.CancelledError:
            raise TimeoutError from error


class Deadlines:
    """Those of one process."""

    def __init__(self) -> None:
        self._ends: dict[Deadline, float] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._next = NEVER

    def within(self, seconds: float | None) -> Deadline:
        """The deadline of what may take so long; None: however long it takes."""
        return Deadline(self, NEVER if seconds is None else seconds)

    def begin(self, deadline: Deadline, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            # The timers of another loop have ended with it.
            self._loop, self._next = loop, NEVER
            self._ends.clear()
        self._ends[deadline] = ends = loop.time() + seconds
        if ends < self._next:
            self._wake_at(ends)

    def end(self, deadline: Deadline) -> None:
        self._ends.pop(deadline, None)

    def _wake_at(self, moment: float) -> None:
        self._next = moment
        if self._loop is not None and moment < NEVER:
            self._loop.call_at(moment, self._wake, moment)

    def _wake(self, moment: float) -> None:
        if moment != self._next:
            # An earlier one has come in between.
            return
        for deadline, ends in list(self._ends.items()):
            if ends <= moment and deadline.task is not None:
                del self._ends[deadline]
                deadline.expired = True
                deadline.task.cancel()
        self._wake_at(min(self._ends.values(), default=NEVER))
