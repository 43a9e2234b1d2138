"""Starts programs of this project by forking a process that has imported them: importing takes two seconds, a fork some milliseconds.

A program runs as with `python -m MODULE`: with its own arguments, environment, folder and output, and to the normal end of an interpreter.
Only what is read from the environment during an import, as PYTHON… variables, is that of the tests. `test_serve.py::test_without_a_demo`
and the tests of promises, which measure starts, start programs as users do.
"""

import atexit
import gc
import importlib
import json
import os
import runpy
import signal
import socket
import struct
import subprocess
import sys
import time
from contextlib import suppress
from functools import cache
from pathlib import Path
from select import select
from typing import Any

from tests.support.reliability_promises import COUNT_SHARE

ROOT = Path(__file__).parents[2]
PRELOADED_MODULES = (
    "alembic.command",
    "forgefront.app",
    "forgefront.commands.runner",
    "forgefront.commands.serve",
    "forgefront.server.http_server",
)
MAX_REQUEST_BYTES = 200_000
NUMBER = struct.Struct("i")


def start_program(*args: object, **settings: Any) -> subprocess.Popen[Any]:
    """Starts `python -m` with these arguments, in the folder of the repository. `settings` are those of `Popen`."""
    return start_interpreter(*args, **settings) if COUNT_SHARE else ForkedProcess(list(map(str, args)), cwd=ROOT, **settings)


def start_interpreter(*args: object, **settings: Any) -> subprocess.Popen[Any]:
    """As `start_program`, but as users start it."""
    return subprocess.Popen([sys.executable, "-m", *map(str, args)], cwd=ROOT, **settings)


class ForkedProcess(subprocess.Popen[Any]):
    """`ForkedProcess([MODULE, …], …)` is `Popen([sys.executable, "-m", MODULE, …], …)`, but forked from the fork server.

    Its parent is a process that writes its pid, and later its exit code, into a pipe.
    """

    def _execute_child(
        self, args: Any, executable: Any, preexec_fn: Any, close_fds: Any, pass_fds: Any, cwd: Any, env: Any, *more: Any
    ) -> None:
        _, _, _, stdout, _, stderr = pipes = more[3:9]
        status, status_of_child = os.pipe()
        try:
            request = {"args": args, "cwd": str(cwd), "env": dict(os.environ if env is None else env)}
            files = [stdout if stdout != -1 else 1, stderr if stderr != -1 else 2, status_of_child]
            socket.send_fds(fork_server(), [json.dumps(request).encode()], files)
        finally:
            os.close(status_of_child)
            self._close_pipe_fds(*pipes)
        self._status = status
        self.pid = self._read_status()
        self._child_created = True

    def _read_status(self) -> int:
        (number,) = NUMBER.unpack(os.read(self._status, NUMBER.size))
        return int(number)

    def poll(self) -> int | None:
        if self.returncode is None and select([self._status], [], [], 0)[0]:
            self.wait()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            if not select([self._status], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
            self.returncode = self._read_status()
            os.close(self._status)
        return self.returncode


@cache
def fork_server() -> socket.socket:
    """The connection to the fork server of this process, which ends when this process does."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        command = [sys.executable, "-m", "tests.support.fork_server", str(theirs.fileno())]
        process = subprocess.Popen(command, cwd=ROOT, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL)

    @atexit.register
    def stop() -> None:
        ours.close()
        process.wait()

    return ours


def main() -> None:
    """Forks for each request. Returns to run its program in a process that was forked."""
    requests = socket.socket(fileno=int(sys.argv[1]))
    # Ctrl-C ends the tests, and they end the server.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, _reap)
    for module in PRELOADED_MODULES:
        importlib.import_module(module)
    _read_operations()
    gc.collect()
    gc.freeze()
    while True:
        request, files, _, _ = socket.recv_fds(requests, MAX_REQUEST_BYTES, 3)
        if not request:
            return
        if os.fork() == 0:
            break
        for file in files:
            os.close(file)
    requests.close()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    stdout, stderr, status = files
    if pid := os.fork():
        _report_exit(pid, status, stdout, stderr)
    os.dup2(stdout, 1)
    os.dup2(stderr, 2)
    for file in files:
        os.close(file)
    _run_program(**json.loads(request))


def _read_operations() -> None:
    """Reads the operations of the product once for all servers: that is most of what creating an application takes."""
    import ci_v1
    import rest_v3
    from forgefront import pages
    from graph.operations import trusted_documents
    from graph.operations.documents import prepare_document
    from rest_v3.operations import OperationRegistry

    OperationRegistry.read = staticmethod(cache(OperationRegistry.read))  # type: ignore[method-assign]
    for folder in (rest_v3.OPERATIONS_FOLDER, ci_v1.OPERATIONS_FOLDER):
        registry = OperationRegistry.read(folder, prepare_document)
        for name in registry.names:
            registry.get(name)
    for folder in (trusted_documents.DASHBOARDS, pages.OPERATIONS_FOLDER):
        trusted_documents.read_built_in(folder)


def _reap(*_: Any) -> None:
    """Waits for the processes that have reported the end of a program: then what it cost counts as what the tests cost."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _report_exit(pid: int, status: int, *others: int) -> None:
    try:
        for file in others:
            os.close(file)
        os.write(status, NUMBER.pack(pid))
        os.write(status, NUMBER.pack(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])))
    finally:
        os._exit(0)


def _run_program(args: list[str], cwd: str, env: dict[str, str]) -> None:
    os.environ.clear()
    os.environ.update(env)
    time.tzset()
    os.chdir(cwd)
    sys.argv = args.copy()
    runpy.run_module(args[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
