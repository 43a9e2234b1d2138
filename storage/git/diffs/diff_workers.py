"""Processes that compute large diffs beside the service, which keeps them for the next diff.

The start of a process takes ten times as long as an ordinary large diff.
"""

import atexit
import os
import subprocess
import sys
from pathlib import Path
from threading import Lock, Timer
from typing import Any

from storage.git.subprocesses import git_command
from storage.git.subprocesses.process_messages import read_message, write_message

MAX_IDLE = 2
"""Processes that wait for the next diff at most; each has some 30 MB, and ends after `diff_process.IDLE_SECONDS`."""
MAX_USES = 200
"""Diffs of one process, so that no memory and no CPU time of its limits adds up."""


class DiffFailed(Exception):
    """The diff was not computed; the message says why."""


class _Worker:
    """One process. Raises OSError if it cannot be started."""

    def __init__(self) -> None:
        self.uses = 0
        self.process = git_command.start_process(
            [sys.executable, "-s", "-m", "storage.git.diffs.diff_process"],
            {**git_command.environment(), "PYTHONPATH": str(Path(__file__).parents[3])},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            may_fork=True,
        )

    def ask(self, request: tuple[str, str, str | None], seconds: float) -> Any:
        """Returns the answer. Raises EOFError or OSError if the process has ended, also because it was killed after `seconds`."""
        assert self.process.stdin is not None and self.process.stdout is not None  # noqa: S101 - pipes above
        self.uses += 1
        timer = Timer(seconds, self.process.kill)
        timer.start()
        try:
            write_message(self.process.stdin, request)
            return read_message(self.process.stdout)
        finally:
            timer.cancel()
            # It may be killing the process now, which must not wait for another diff then.
            timer.join()

    def stop(self) -> None:
        with self.process:
            self.process.kill()


class DiffWorkers:
    """The diff processes of this process. They end with it."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._idle: list[_Worker] = []
        self._of_parent: list[_Worker] = []

    def compute(self, repository: Path, oid: str, old: str | None, *, seconds: float) -> list[tuple[Any, ...]]:
        """Returns the entries, each as the tuple of `FileDiff`'s fields. Raises DiffFailed, also after `seconds`, and OSError."""
        request = (str(repository.absolute()), oid, old)
        while True:
            worker = self._take() or _Worker()
            try:
                return self._use(worker, request, seconds)
            except (EOFError, OSError) as error:
                # One that waited may have ended in this moment, with 0; it had not read the request.
                if worker.uses == 1 or worker.process.returncode != 0:
                    raise DiffFailed(f"its process ended, or took more than {seconds:.0f} s") from error

    def close(self) -> None:
        """Ends the idle processes."""
        while (worker := self._take()) is not None:
            worker.stop()

    def forget(self) -> None:
        """Drops the processes without ending them. For a forked process, whose parent continues to use them."""
        self._lock = Lock()
        # Kept, since a process object that nobody refers to is reported as not waited for.
        self._of_parent, self._idle = [*self._of_parent, *self._idle], []

    def _take(self) -> _Worker | None:
        with self._lock:
            return self._idle.pop() if self._idle else None

    def _use(self, worker: _Worker, request: tuple[str, str, str | None], seconds: float) -> list[tuple[Any, ...]]:
        try:
            done, found = worker.ask(request, seconds)
        except BaseException:
            worker.stop()
            raise
        with self._lock:
            can_wait = worker.process.poll() is None and worker.uses < MAX_USES and len(self._idle) < MAX_IDLE
            if can_wait:
                self._idle.append(worker)
        if not can_wait:
            worker.stop()
        if not done:
            raise DiffFailed(found)
        entries: list[tuple[Any, ...]] = found
        return entries


WORKERS = DiffWorkers()
atexit.register(WORKERS.close)
os.register_at_fork(after_in_child=WORKERS.forget)
