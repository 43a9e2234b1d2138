"""Several server processes on one listening socket, watched by this one.

The parent serves nothing. It starts the workers, starts another for one that dies, hands a stop on to all of them, and sums up nothing
but exit codes. A worker notices that its parent is gone by the end of a pipe, and stops too, so that none is left behind.
"""

import contextlib
import multiprocessing
import os
import shutil
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from types import FrameType

import structlog
from prometheus_client.multiprocess import mark_process_dead

from forgefront import logs
from forgefront.config import Config
from forgefront.server import CLOSING_SECONDS, Build, Ready, serve

FIRST_PAUSE = 1.0
LONGEST_PAUSE = 10.0
"""Between the starts of a worker that keeps dying; doubled each time, back to the first once it was ready."""

_spawn = multiprocessing.get_context("spawn")


def supervise(config: Config, listeners: Sequence[socket.socket], build: Build, on_ready: Ready | None = None) -> None:
    """Runs `config.workers` processes until SIGTERM or SIGINT. Raises SystemExit when the first of them cannot start.

    The first listener is that of HTTP; the others are closed with it, and `build` hands them to the app.
    """
    folder = tempfile.mkdtemp(prefix="forgefront-metrics-")
    os.environ["PROMETHEUS_MULTIPROC_DIR"] = folder
    try:
        _Supervisor(config, listeners, build, on_ready).run()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@dataclass(slots=True)
class _Worker:
    process: SpawnProcess
    pipe: Connection
    ready: bool = False


class _Supervisor:
    def __init__(self, config: Config, listeners: Sequence[socket.socket], build: Build, on_ready: Ready | None) -> None:
        self._config = config
        self._listeners = listeners
        self._build = build
        self._on_ready = on_ready
        self._log = structlog.get_logger()
        self._workers: list[_Worker] = []
        self._starts: list[float] = []
        self._pause = FIRST_PAUSE
        self._was_ready = False
        self._stopping = False
        self._woken, self._waker = os.pipe()

    def run(self) -> None:
        before = {number: signal.signal(number, self._stop) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            for _ in range(self._config.workers):
                self._start()
            while not self._stopping:
                self._watch()
        finally:
            code = self._end_all()
            for number, handler in before.items():
                signal.signal(number, handler)
        if code:
            raise SystemExit(code)

    def _stop(self, number: int, frame: FrameType | None) -> None:
        self._stopping = True
        os.write(self._waker, b"\0")

    def _start(self) -> None:
        ours, theirs = _spawn.Pipe()
        process = _spawn.Process(target=_work, args=(self._config, self._listeners[0], self._build, theirs), name="forgefront-worker")
        process.start()
        theirs.close()
        self._workers.append(_Worker(process, ours))

    def _watch(self) -> None:
        """Waits until something happens, and does what follows."""
        waiting = [worker.pipe for worker in self._workers if not worker.ready]
        soon = min(self._starts, default=None)
        timeout = None if soon is None else max(0.0, soon - time.monotonic())
        happened = wait([self._woken, *waiting, *(worker.process.sentinel for worker in self._workers)], timeout)
        for worker in list(self._workers):
            if worker.pipe in happened and not worker.ready:
                with contextlib.suppress(EOFError, OSError):
                    worker.pipe.recv()
                    worker.ready = True
                    self._pause = FIRST_PAUSE
                    self._tell_ready()
            if worker.process.sentinel in happened and not self._stopping:
                self._bury(worker)
        due = [start for start in self._starts if start <= time.monotonic()]
        if not self._stopping:
            for start in due:
                self._starts.remove(start)
                self._start()

    def _tell_ready(self) -> None:
        if not self._was_ready:
            self._was_ready = True
            if self._on_ready:
                self._on_ready(self._config)

    def _bury(self, worker: _Worker) -> None:
        worker.process.join()
        worker.pipe.close()
        self._workers.remove(worker)
        mark_process_dead(worker.process.pid)  # type: ignore[no-untyped-call]
        if not self._was_ready:
            # It would fail the same way each time; its own line says why.
            self._stopping = True
            self._workers.append(worker)
            return
        self._log.error("a worker ended", process=worker.process.pid, code=worker.process.exitcode)
        self._starts.append(time.monotonic() + self._pause)
        self._pause = min(2 * self._pause, LONGEST_PAUSE)

    def _end_all(self) -> int:
        """Stops all workers; 0 if all of them ended well, or else the code of one that did not."""
        # As long as one process holds them, the kernel takes connections that nobody would answer.
        for listener in self._listeners:
            listener.close()
        for worker in self._workers:
            if worker.process.is_alive():
                worker.process.terminate()
        deadline = time.monotonic() + self._config.stop_timeout + CLOSING_SECONDS + 0.5
        codes = []
        for worker in self._workers:
            worker.process.join(max(0.0, deadline - time.monotonic()))
            if worker.process.exitcode is None:
                worker.process.kill()
                worker.process.join()
            codes.append(worker.process.exitcode or 0)
        # One that was told to stop before it listened to signals ends by the signal, and well.
        bad = [code for code in codes if code not in (0, -signal.SIGTERM)]
        return max(bad[0], 1) if bad else 0


def _work(config: Config, listener: socket.socket, build: Build, parent: Connection) -> None:
    """One worker: serves, says when it is ready, ends when its parent does."""
    logs.configure(config.log_format, config.log_level)

    def follow() -> None:
        with contextlib.suppress(EOFError, OSError):
            parent.recv()
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=follow, daemon=True).start()
    serve(config, listener, build, lambda _: parent.send(True))
