"""Cancellation of work in threads: work that nobody waits for ends at the next object that it reads."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

T = TypeVar("T")

_LOCAL = threading.local()


class WorkCanceled(Exception):
    """The work was canceled; its caller no longer receives the exception."""


class Cancellation:
    """Cancels one piece of work, from another thread."""

    __slots__ = ("_callbacks", "_is_canceled")

    def __init__(self) -> None:
        self._is_canceled = False
        self._callbacks: list[Callable[[], object]] = []

    def cancel(self) -> None:
        self._is_canceled = True
        for callback in list(self._callbacks):
            callback()

    def check(self) -> None:
        if self._is_canceled:
            raise WorkCanceled

    @contextmanager
    def add_callback(self, callback: Callable[[], object]) -> Iterator[None]:
        """Has `cancel` call this within the block. Raises WorkCanceled if it was canceled before."""
        self._callbacks.append(callback)
        try:
            # After it was added, so that a cancellation at the same time either calls it or is found here.
            self.check()
            yield
        finally:
            self._callbacks.remove(callback)

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


async def run_in_thread(work: Callable[..., T], *arguments: Any) -> T:
    """Runs work in a thread of the event loop's pool. When the caller is canceled, the work is canceled too."""
    cancellation = Cancellation()

    def run() -> T:
        with cancellation.activate():
            return work(*arguments)

    try:
        return await asyncio.to_thread(run)
    except asyncio.CancelledError:
        cancellation.cancel()
        raise


@contextmanager
def call_when_canceled(callback: Callable[[], object]) -> Iterator[None]:
    """Has the cancellation of this thread's work, if there is one, call this within the block. Raises WorkCanceled if it was canceled."""
    cancellation: Cancellation | None = getattr(_LOCAL, "cancellation", None)
    if cancellation is None:
        yield
        return
    with cancellation.add_callback(callback):
        yield
