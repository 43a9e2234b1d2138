"""Imports from hosts that send more than git needs."""

import subprocess
import tracemalloc
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from storage.git.importing.remote_import import RemoteRepository, import_remote
from storage.git.importing.repository_import import report_progress
from storage.git.subprocesses import git_command

LINE = b"x" * 4 * 2**20


class LoudHandler(BaseHTTPRequestHandler):
    """Answers with an error message of one long line, which git prints."""

    def do_GET(self) -> None:
        self.send_response(404)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Content-Length", str(len(LINE)))
        self.end_headers()
        self.wfile.write(LINE)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def loud_host() -> Iterator[int]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), LoudHandler)
    Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield server.server_address[1]
    server.shutdown()
    server.server_close()


@pytest.fixture
def traced() -> Iterator[None]:
    tracemalloc.start()
    yield
    tracemalloc.stop()


def start(script: str) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(["/bin/sh", "-c", script], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def test_an_error_message_of_any_length_takes_bounded_memory(loud_host: int, traced: None, tmp_path: Path) -> None:
    remote = RemoteRepository(f"http://loud.invalid:{loud_host}/a.git", "loud.invalid", loud_host, ["127.0.0.1"])
    with pytest.raises(git_command.GitCommandError, match=r"loud\.invalid"):
        import_remote(remote, tmp_path / "a.git", lambda *_: None)
    assert tracemalloc.get_traced_memory()[1] < len(LINE) // 2


def test_progress_without_line_breaks_takes_bounded_memory(traced: None) -> None:
    with start("head -c 4194304 /dev/zero >&2; printf '\\nReceiving objects: 50%% (1/2)\\nfatal: the end' >&2") as process:
        steps: list[tuple[str, int, int]] = []
        lines = report_progress(process, lambda *step: steps.append(step))
    assert steps == [("receiving objects", 1, 2)]
    assert lines[-1] == b"fatal: the end"
    assert tracemalloc.get_traced_memory()[1] < len(LINE) // 2


def test_communicate_returns_the_beginning_of_the_output_and_the_end_of_the_errors() -> None:
    with start("printf begin; head -c 300000 /dev/zero; head -c 300000 /dev/zero >&2; printf end >&2; exit 3") as process:
        output, errors = git_command.communicate(process, limit=7)
    assert output == b"begin\0\0"
    assert (errors[-4:], len(errors)) == (b"\0end", git_command.MAX_STDERR_BYTES)
    assert process.returncode == 3


def test_an_ipv6_address_is_connected_to(tmp_path: Path) -> None:
    remote = RemoteRepository("http://[::1]:9/a.git", "::1", 9, ["::1"])
    with pytest.raises(git_command.GitCommandError, match="port 9"):
        import_remote(remote, tmp_path / "a.git", lambda *_: None)
