"""Starts programs of this project by forking a process that has imported them: importing takes two seconds, a fork some milliseconds.

A program runs as with `python -m MODULE`: with its own arguments, environment, folder and output, and to the normal end of an interpreter.
Only what is read from the environment during an import, as PYTHON… variables, is that of the tests. `test_serve.py::test_without_a_demo`
and the tests of promises, which measure starts, start programs as users do.

The processes of a parallel run share one server: its start is the work of ten programs.
"""

import atexit
import fcntl
import gc
import importlib
import json
import os
import runpy
import signal
import socket
import ssl
import struct
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from contextlib import suppress
from functools import cache
from pathlib import Path
from select import select
from typing import Any

from tests.support.reliability_promises import COUNT_SHARE

ROOT = Path(__file__).parents[3]
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
    """The connection to the fork server of this run, which ends with the last connection to it."""
    # The path of a socket has at most a hundred characters.
    path = Path(tempfile.gettempdir()) / f"forgefront-fork-{os.environ.get('PYTEST_XDIST_TESTRUNUID', str(os.getpid()))[:12]}"
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    process = None
    with path.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            connection.connect(str(path))
        except OSError:
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
                # A server that was killed has left it.
                path.unlink(missing_ok=True)
                listener.bind(str(path))
                listener.listen()
                command = [sys.executable, "-m", "tests.support.servers.fork_server", str(listener.fileno())]
                process = subprocess.Popen(command, cwd=ROOT, pass_fds=[listener.fileno()], stdin=subprocess.DEVNULL)
                connection.connect(str(path))

    @atexit.register
    def stop() -> None:
        connection.close()
        if process is not None:
            process.wait()
            path.with_suffix(".lock").unlink()

    return connection


def main() -> None:
    """Forks for each request. Returns to run its program in a process that was forked."""
    listener = socket.socket(fileno=int(sys.argv[1]))
    # Ctrl-C ends the tests, and they end the server.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, _reap)
    for module in PRELOADED_MODULES:
        importlib.import_module(module)
    _prepare()
    gc.collect()
    gc.freeze()
    connections: list[socket.socket] = []
    while request := _receive_request(listener, connections):
        if os.fork() == 0:
            break
        for file in request[1]:
            os.close(file)
    else:
        return
    for connection in (listener, *connections):
        connection.close()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    text, files = request
    stdout, stderr, status = files
    if pid := os.fork():
        _report_exit(pid, status, stdout, stderr)
    os.dup2(stdout, 1)
    os.dup2(stderr, 2)
    for file in files:
        os.close(file)
    _run_program(**json.loads(text))


def _receive_request(listener: socket.socket, connections: list[socket.socket]) -> tuple[bytes, list[int]] | None:
    """The next request and its files; None after the last connection, when the server is no longer to be found."""
    path = listener.getsockname()
    while True:
        for ready in select([listener, *connections], [], [])[0]:
            if ready is listener:
                connections.append(listener.accept()[0])
                continue
            request, files, _, _ = socket.recv_fds(ready, MAX_REQUEST_BYTES, 3)
            if request:
                return request, files
            connections.remove(ready)
            ready.close()
            if not connections:
                Path(path).unlink(missing_ok=True)
                # Who has found it before has connected.
                if not select([listener], [], [], 0)[0]:
                    return None


def _prepare() -> None:
    """Reads the operations of the product, and migrates a database, once for all servers: that is most of what a first start takes."""
    import httpx

    import ci_v1
    import rest_v3
    from forgefront import pages, served_documents
    from forgefront.endpoints import named_queries
    from graph.documents import trusted_documents
    from graph.documents.documents import prepare_document
    from rest_v3.operations import OperationRegistry
    from tests.support import shared_certificates
    from tests.support.database import migrated_databases

    shared_certificates.install()
    # That of webhooks and of clients that name no other, and that of runners.
    httpx.create_ssl_context()
    ssl.create_default_context()
    OperationRegistry.read = staticmethod(cache(OperationRegistry.read))  # type: ignore[method-assign]
    for folder in (rest_v3.OPERATIONS_FOLDER, ci_v1.OPERATIONS_FOLDER):
        registry = OperationRegistry.read(folder, prepare_document)
        for name in registry.names:
            registry.get(name)
    vars(named_queries)["describe_operation"] = cache(named_queries.describe_operation)
    for document in served_documents.built_in_documents():
        named_queries.describe_operation(document.operation.prepared)
    trusted_documents.read_built_in(pages.OPERATIONS_FOLDER)
    migrated_databases.install()
    migrated_databases.migrated_file()


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
    try:
        runpy.run_module(args[0], run_name="__main__", alter_sys=True)
        _exit(0)
    except SystemExit as end:
        if end.code is not None and not isinstance(end.code, int):
            print(end.code, file=sys.stderr)
        _exit(end.code if isinstance(end.code, int) else int(end.code is not None))
    except Exception:
        traceback.print_exc()
        _exit(1)


def _exit(code: int) -> None:
    """Ends this process as an interpreter does, but leaves its memory to the kernel: freeing it object by object takes long."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        # None if the program has no such stream.
        if stream is not None:
            stream.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
