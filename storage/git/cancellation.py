"""Cancellation of work in threads: work that nobody waits for ends at the next object that it reads."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

_LOCAL = threading.local()


class WorkCanceled(Exception):
    """The work was canceled; its caller no longer receives the exception."""


class Cancellation:
    """Cancels one piece of work, from another thread."""

    __slots__ = ("_is_canceled",)

    def __init__(self) -> None:
        self._is_canceled = False

    def cancel(self) -> None:
        self._is_canceled = True

    def check(self) -> None:
        if self._is_canceled:
            raise WorkCanceled

    @contextmanager
    def activate(self) -> Iterator[None]:
        """Makes this the cancellation of the current thread for the block that does the work."""
        _LOCAL.cancellation = self
        try:
            self.check()
            yield
        finally:
            _LOCAL.cancellation = None


def check_canceled() -> None:
    """Raises WorkCanceled if the work of this thread was canceled."""
    cancellation: Cancellation | None = getattr(_LOCAL, "cancellation", None)
    if cancellation is not None:
        cancellation.check()
