"""Mirrors of imported repositories, whose git processes end with their caller."""

import asyncio
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest

from forgefront.importing import repository_mirrors
from forgefront.importing.repository_mirrors import CloneFailed, MirrorSource, RepositoryMirrors
from forgefront.importing.source_errors import SourceMissing
from storage.git.cancellation import WorkCanceled
from storage.git.subprocesses import git_command
from tests.support.git.git_history import make_history
from tests.support.waiting import wait_until


@pytest.mark.parametrize("method", ["update", "has_branches"])
async def test_git_ends_with_a_caller_that_is_canceled(method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also git for the credentials that were to be tried next: the end of the program waits for their thread."""
    monkeypatch.setattr(repository_mirrors, "HEAD_SECONDS", 20.0)
    mirrors: Any = RepositoryMirrors(tmp_path, parallel=1)
    mirrors.path_of(7).mkdir()
    work, has_ended, connected, connections = getattr(mirrors, f"_{method}"), threading.Event(), asyncio.Event(), 0

    def work_and_note(*arguments: Any) -> Any:
        try:
            return work(*arguments)
        finally:
            has_ended.set()

    async def never_answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        connected.set()
        await reader.read()
        writer.close()

    setattr(mirrors, f"_{method}", work_and_note)
    server = await asyncio.start_server(never_answer, "127.0.0.1", 0)
    try:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/app.git"
        running = asyncio.create_task(getattr(mirrors, method)(7, MirrorSource(url, ("ada:first", "ada:second"))))
        async with asyncio.timeout(15):
            await connected.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        await wait_until(has_ended.is_set)
        assert connections == 1
    finally:
        server.close()


def test_pipes_are_closed_if_the_caller_is_canceled_when_git_has_just_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    start, started = git_command.start_process, []

    def start_and_note(*arguments: Any, **settings: Any) -> subprocess.Popen[bytes]:
        started.append(start(*arguments, **settings))
        return started[-1]

    def cancel(_: Any) -> None:
        raise WorkCanceled

    monkeypatch.setattr(git_command, "start_process", start_and_note)
    monkeypatch.setattr(repository_mirrors, "call_when_canceled", cancel)
    with pytest.raises(WorkCanceled):
        RepositoryMirrors(tmp_path, parallel=1).uses_lfs(7)

    (process,) = started
    assert process.stdout is not None and process.stderr is not None
    assert (process.stdout.closed, process.stderr.closed) == (True, True)


async def test_a_list_of_refs_beyond_the_limit_is_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = make_history(tmp_path / "source.git", commits=1).path
    monkeypatch.setattr(repository_mirrors, "_protocols_of", lambda _: "file")
    monkeypatch.setattr(repository_mirrors, "MAX_OUTPUT_BYTES", 60)
    with pytest.raises(CloneFailed, match="printed more than 60 bytes"):
        await RepositoryMirrors(tmp_path, parallel=1).update(7, MirrorSource(str(source)))


@pytest.mark.parametrize(
    ("listed", "expected"),
    [(f"{'1' * 40}\tHEAD\n{'1' * 40}\trefs/heads/main\n", True), (f"{'1' * 40}\trefs/tags/refs/heads\n", False), ("", False)],
)
async def test_branches_that_the_server_lists_need_no_process(
    listed: str, expected: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def list_refs(url: str, credentials: str | None) -> str:
        return listed

    monkeypatch.setattr(git_command, "start_process", None)
    mirrors = RepositoryMirrors(tmp_path, parallel=1, list_refs=list_refs)
    assert await mirrors.has_branches(7, MirrorSource("https://old.example/acme/web.wiki.git")) is expected


async def test_of_a_missing_repository_git_says_what_is_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def list_refs(url: str, credentials: str | None) -> str:
        raise SourceMissing(url, "status 404")

    mirrors = RepositoryMirrors(tmp_path, parallel=1, list_refs=list_refs)
    source = MirrorSource("http://127.0.0.1:1/acme/web.git")
    with pytest.raises(CloneFailed, match="fatal: unable to access"):
        await mirrors.update(7, source)
    monkeypatch.setattr(git_command, "start_process", None)
    assert await mirrors.has_branches(7, source) is False
