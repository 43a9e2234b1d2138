"""The processes that are measured: the service as `forgefront serve` runs it, `git http-backend`, and servers of any other command."""

import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

ROOT = Path(__file__).parents[2]
SERVER_CORE, OTHER_CORE = 0, 1
EXTERNAL_URL = "http://forge.example"
"""Base of the links in the answers of the service."""
READINESS = "/-/readiness"
START_SECONDS = 60.0
STOP_SECONDS = 30.0
BACKGROUND_STEP, BACKGROUND_SHARE, MAX_BACKGROUND_SECONDS = 1.5, 0.05, 60.0
"""A server that uses at most this share of a core for the seconds of a step has done the background work of its start."""
TICKS = os.sysconf("SC_CLK_TCK")
ProcessStarter = Callable[..., "subprocess.Popen[bytes]"]


class ServerStartError(Exception):
    """A server did not become ready; the message has the end of its log."""


@dataclass(frozen=True)
class MeasuredServer:
    """A running server. With `includes_children`, its CPU time and memory include those of its child processes."""

    name: str
    port: int
    pid: int
    includes_children: bool = False

    def cpu_seconds(self, *, children: bool = False) -> float:
        """CPU seconds since its start, in user and kernel mode; with `children`, also those of its child processes that have ended."""
        if self.includes_children:
            return tree_cpu_seconds(self.pid)
        return _process_cpu_seconds(self.pid) + (_ended_children_cpu_seconds(self.pid) if children else 0.0)

    def wait_until_quiet(self, step_seconds: float, share: float, max_seconds: float) -> float:
        """Waits until it uses at most this share of a core for `step_seconds`, `max_seconds` at most; returns its CPU seconds."""
        used, until = self.cpu_seconds(), time.monotonic() + max_seconds
        while time.monotonic() < until:
            time.sleep(step_seconds)
            before, used = used, self.cpu_seconds()
            if used - before <= share * step_seconds:
                break
        return used

    def memory_mib(self) -> float:
        """Resident memory (VmRSS of proc(5)). Memory that processes share counts for each of them."""
        return sum(map(_memory_mib, [self.pid, *_descendants(self.pid)] if self.includes_children else [self.pid]))


def _memory_mib(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) / 1024


def _descendants(pid: int) -> list[int]:
    children = [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return [*children, *(each for child in children for each in _descendants(child))]


def tree_cpu_seconds(pid: int) -> float:
    """CPU seconds of a process and its descendants since they began; those that have ended are counted by their parent."""
    try:
        own = _process_cpu_seconds(pid) + _ended_children_cpu_seconds(pid)
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        # The process ended while its parent was read.
        return 0.0
    return own + sum(tree_cpu_seconds(int(child)) for child in children)


def _process_cpu_seconds(pid: int) -> float:
    """CPU seconds of all threads of a process, in user and kernel mode. Exact, where proc(5) counts steps of 10 ms. Raises OSError."""
    # The id of the clock, as clock_getcpuclockid(3) makes it.
    return time.clock_gettime((~pid << 3) | 2)


def _ended_children_cpu_seconds(pid: int) -> float:
    # After the name in brackets, which may hold blanks; cutime and cstime are the 16th and 17th fields of proc(5).
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[13:15])) / TICKS


def can_pin() -> bool:
    """Whether servers can have a core of their own: there are two cores, and the command `taskset`."""
    return shutil.which("taskset") is not None and {SERVER_CORE, OTHER_CORE} <= os.sched_getaffinity(0)


def leave_server_core() -> None:
    """Moves this process, and all processes that it starts from now on (wrk, PostgreSQL), to the other core."""
    os.sched_setaffinity(0, {OTHER_CORE})


def wait_for_background_work(servers: Iterable[MeasuredServer]) -> None:
    """Waits until the servers have done the work that follows their start, MAX_BACKGROUND_SECONDS at most for each.

    The service plans the documents that it knows and reads the columnar copy, some 20 seconds at a fifth of a core, which would count as
    the CPU time of the first question.
    """
    for server in servers:
        server.wait_until_quiet(BACKGROUND_STEP, BACKGROUND_SHARE, MAX_BACKGROUND_SECONDS)


@contextmanager
def run_service(
    data: Path,
    database_url: str,
    *,
    pinned: bool,
    workers: int = 1,
    settings: Mapping[str, str] | None = None,
    ready: str = READINESS,
    start: ProcessStarter = subprocess.Popen,
) -> Iterator[MeasuredServer]:
    """Runs the complete service, with authentication, permissions, access log and metrics, in `workers` processes.

    `settings` are further variables of its environment; the server is yielded when the path `ready` answers 200. `start` starts the
    command with these settings of `Popen`. Raises ServerStartError.
    """
    command = [str(Path(sys.executable).with_name("forgefront")), "serve", "--data", str(data), "--host", "127.0.0.1"]
    environment = {"FORGEFRONT_DATABASE_URL": database_url, "FORGEFRONT_EXTERNAL_URL": EXTERNAL_URL, "FORGEFRONT_RATE_LIMIT": "0"}
    environment |= {"FORGEFRONT_WORKERS": str(workers), **(settings or {})}
    port = free_port()
    command += ["--port", str(port)]
    with run_server("ours", command, environment, port, ready, data / "serve.log", pinned=pinned, start=start) as server:
        yield replace(server, includes_children=workers > 1)


@contextmanager
def run_http_backend(root: Path, *, pinned: bool) -> Iterator[MeasuredServer]:
    """Runs plain git over HTTP for the bare repositories in `root`."""
    port = free_port()
    command = [sys.executable, "-m", "benchmarks.peers.git_http_backend", str(root), str(port)]
    with run_server("http-backend", command, {}, port, "/repository.git/HEAD", root / "peer.log", pinned=pinned) as server:
        yield server


@contextmanager
def run_server(
    name: str,
    command: list[str],
    extra_environment: Mapping[str, str],
    port: int,
    ready: str,
    log: Path,
    *,
    pinned: bool,
    start: ProcessStarter = subprocess.Popen,
) -> Iterator[MeasuredServer]:
    """Starts a server by a command, yields it when it answers the path `ready`, and stops it. Raises ServerStartError."""
    pin = ["taskset", "--cpu-list", str(SERVER_CORE)] if pinned else []
    # Without the caller's configuration, so that runs can be compared.
    environment = {key: value for key, value in os.environ.items() if not key.startswith("FORGEFRONT_")}
    # The code of this checkout, even if another one is installed.
    environment["PYTHONPATH"] = str(ROOT)
    with (
        log.open("wb") as log_file,
        start([*pin, *command], cwd=ROOT, env=environment | dict(extra_environment), stdout=log_file, stderr=log_file) as process,
    ):
        try:
            _wait_until_ready(process, f"http://127.0.0.1:{port}{ready}", log)
            # taskset replaces itself, so the process id is the server's.
            yield MeasuredServer(name, port, process.pid)
        finally:
            # Not SIGINT, which processes ignore that a shell starts in the background.
            process.terminate()
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()


def _wait_until_ready(process: subprocess.Popen[bytes], address: str, log: Path) -> None:
    until = time.monotonic() + START_SECONDS
    while True:
        try:
            with urllib.request.urlopen(address, timeout=1):
                return
        except urllib.error.HTTPError as error:
            # The path does not exist or needs a credential, but the server answers.
            if error.code < 500:
                return
            has_exited = False
        except OSError:
            has_exited = process.poll() is not None
        if has_exited or time.monotonic() > until:
            raise ServerStartError(log.read_text(errors="replace")[-2000:])
        time.sleep(0.02)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
