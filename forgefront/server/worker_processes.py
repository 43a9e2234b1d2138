"""Several server processes on one listening socket, supervised by this one.

The parent serves nothing. It starts the workers, replaces one that dies, forwards a stop to all of them, and combines their exit codes. A
worker detects by the end of a pipe that its parent has died, and stops too, so that none is left behind.
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
from forgefront.server.http_server import CLOSING_SECONDS, AppFactory, ReadyCallback, serve

MIN_RESTART_SECONDS = 1.0
MAX_RESTART_SECONDS = 10.0
"""Seconds between the starts of a worker that keeps dying; doubled each time, back to the first once it was ready."""

_spawn = multiprocessing.get_context("spawn")


def run_workers(config: Config, listeners: Sequence[socket.socket], build: AppFactory, on_ready: ReadyCallback | None = None) -> None:
    """Runs `config.workers` processes until SIGTERM or SIGINT. Raises SystemExit when the first of them cannot start.

    The first listener is that of HTTP; the others are closed with it, and `build` passes them to the app.
    """
    folder = tempfile.mkdtemp(prefix="forgefront-metrics-")
    os.environ["PROMETHEUS_MULTIPROC_DIR"] = folder
    try:
        _WorkerSupervisor(config, listeners, build, on_ready).run()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@dataclass(slots=True)
class _WorkerProcess:
    process: SpawnProcess
    pipe: Connection
    is_ready: bool = False


class _WorkerSupervisor:
    def __init__(self, config: Config, listeners: Sequence[socket.socket], build: AppFactory, on_ready: ReadyCallback | None) -> None:
        self._config = config
        self._listeners = listeners
        self._build = build
        self._on_ready = on_ready
        self._log = structlog.get_logger()
        self._workers: list[_WorkerProcess] = []
        self._scheduled_starts: list[float] = []
        self._restart_seconds = MIN_RESTART_SECONDS
        self._is_ready = False
        self._is_stopping = False
        self._wakeup_read, self._wakeup_write = os.pipe()

    def run(self) -> None:
        before = {number: signal.signal(number, self._stop) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            for _ in range(self._config.workers):
                self._start_worker()
            while not self._is_stopping:
                self._wait_for_event()
        finally:
            code = self._stop_workers()
            for number, handler in before.items():
                signal.signal(number, handler)
        if code:
            raise SystemExit(code)

    def _stop(self, number: int, frame: FrameType | None) -> None:
        self._is_stopping = True
        os.write(self._wakeup_write, b"\0")

    def _start_worker(self) -> None:
        parent_pipe, child_pipe = _spawn.Pipe()
        process = _spawn.Process(
            target=_run_worker,
            # While other workers serve, one that is not ready must take no connections from them.
            args=(self._config, self._listeners[0], self._build, child_pipe, not self._is_ready),
            name="forgefront-worker",
        )
        process.start()
        child_pipe.close()
        self._workers.append(_WorkerProcess(process, parent_pipe))

    def _wait_for_event(self) -> None:
        """Waits for events, and handles them."""
        pending_pipes = [worker.pipe for worker in self._workers if not worker.is_ready]
        next_start = min(self._scheduled_starts, default=None)
        timeout = None if next_start is None else max(0.0, next_start - time.monotonic())
        ready_objects = wait([self._wakeup_read, *pending_pipes, *(worker.process.sentinel for worker in self._workers)], timeout)
        for worker in list(self._workers):
            if worker.pipe in ready_objects and not worker.is_ready:
                with contextlib.suppress(EOFError, OSError):
                    worker.pipe.recv()
                    worker.is_ready = True
                    self._restart_seconds = MIN_RESTART_SECONDS
                    self._notify_ready()
            if worker.process.sentinel in ready_objects and not self._is_stopping:
                self._replace_worker(worker)
        due = [start for start in self._scheduled_starts if start <= time.monotonic()]
        if not self._is_stopping:
            for start in due:
                self._scheduled_starts.remove(start)
                self._start_worker()

    def _notify_ready(self) -> None:
        if not self._is_ready:
            self._is_ready = True
            if self._on_ready:
                self._on_ready(self._config)

    def _replace_worker(self, worker: _WorkerProcess) -> None:
        worker.process.join()
        worker.pipe.close()
        self._workers.remove(worker)
        mark_process_dead(worker.process.pid)  # type: ignore[no-untyped-call]
        if not self._is_ready:
            # It would fail the same way each time; its own log line says why.
            self._is_stopping = True
            self._workers.append(worker)
            return
        self._log.error("worker exited", process=worker.process.pid, code=worker.process.exitcode)
        self._scheduled_starts.append(time.monotonic() + self._restart_seconds)
        self._restart_seconds = min(2 * self._restart_seconds, MAX_RESTART_SECONDS)

    def _stop_workers(self) -> int:
        """Stops all workers; 0 if all of them exited with 0, or else the code of one that did not."""
        # While a process holds them, the kernel accepts connections that nobody would serve.
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
        # A worker that was stopped before it installed its signal handlers ends by the signal, which is fine.
        failures = [code for code in codes if code not in (0, -signal.SIGTERM)]
        return max(failures[0], 1) if failures else 0


def _run_worker(config: Config, listener: socket.socket, build: AppFactory, parent: Connection, accepts_early: bool) -> None:
    """One worker: serves, reports when it is ready, stops when its parent does."""
    logs.configure(config.log_format, config.log_level)

    def stop_with_parent() -> None:
        with contextlib.suppress(EOFError, OSError):
            parent.recv()
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=stop_with_parent, daemon=True).start()
    serve(config, listener, build, lambda _: parent.send(True), accepts_early=accepts_early)
