"""Fetches and pushes as git's processes take them: bounded, guarded, and gone with their client."""

import asyncio
import os
import shutil
import subprocess
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from storage.git.program import GitFailed
from storage.git.pushes import BadPush, Push, Rule, Update, Verdict
from storage.git.transport import HOOKS, Service, TooBusy, TooSlow, Transport, Turns
from tests.history import commit_files, git, make_history

EMPTY_PACK = bytes.fromhex("5041434b0000000200000000029d08823bd8a8eab510ad6ac75c823cfd3ed31e")
NONE = "0" * 40


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return make_history(tmp_path / "made.git", commits=6).path


def line(text: bytes) -> bytes:
    return f"{len(text) + 4:04x}".encode() + text


def asked(*updates: tuple[str, str, str], end: bytes = b"0000") -> bytes:
    """The list of updates that a client sends first."""
    lines = [f"{old} {new} {ref}".encode() for old, new, ref in updates]
    return b"".join(line(text + (b"" if index else b"\0 report-status")) for index, text in enumerate(lines)) + end


async def sent(*blocks: bytes) -> AsyncIterator[bytes]:
    for block in blocks:
        await asyncio.sleep(0)
        yield block


async def allow(updates: list[Update]) -> list[Verdict]:
    return [Verdict(Rule.ALLOW) for _ in updates]


class Heard:
    """What the client was sent."""

    def __init__(self) -> None:
        self.text = b""

    async def __call__(self, block: bytes) -> None:
        self.text += block


def refs(path: Path) -> dict[str, str]:
    lines = git(path, "for-each-ref", "--format=%(refname) %(objectname)").splitlines()
    return {name: oid for name, _, oid in (each.partition(" ") for each in lines)}


def running() -> list[str]:
    listed = subprocess.run(["ps", "-o", "args=", "--ppid", str(os.getpid())], capture_output=True, text=True, check=False).stdout
    return [each for each in listed.splitlines() if each.startswith("git ")]


def leftovers(path: Path) -> list[Path]:
    """Locks, quarantines, and what packs are written to."""
    return [*path.rglob("*.lock"), *path.glob("objects/tmp_*"), *path.glob("objects/pack/tmp_*"), *path.glob("objects/pack/*.keep")]


async def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline, "it did not come to pass"
        await asyncio.sleep(0.01)


class TestTurns:
    async def test_never_more_than_the_limit(self) -> None:
        turns, most = Turns(2, longest_queue=100, seconds=5), 0

        async def work() -> None:
            nonlocal most
            async with turns.one():
                most = max(most, turns.running)
                await asyncio.sleep(0.001)

        await asyncio.gather(*(work() for _ in range(30)))
        assert (most, turns.running, turns.waiting) == (2, 0, 0)

    async def test_waits_no_longer_than_it_may(self) -> None:
        turns = Turns(1, longest_queue=100, seconds=0.01)
        async with turns.one():
            with pytest.raises(TooBusy):
                async with turns.one():
                    pass
        async with turns.one():
            assert (turns.running, turns.waiting) == (1, 0)

    async def test_a_full_queue_refuses_at_once(self) -> None:
        turns = Turns(1, longest_queue=1, seconds=60)
        async with turns.one():
            waiting = asyncio.create_task(turns.one().__aenter__())
            await asyncio.sleep(0)
            with pytest.raises(TooBusy):
                async with turns.one():
                    pass
            waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        assert (turns.running, turns.waiting) == (0, 0)


class TestFetching:
    async def test_advertises(self, path: Path) -> None:
        heard = Heard()
        await Transport().advertise(Service.UPLOAD, path, heard)
        assert refs(path)["refs/heads/master"].encode() in heard.text
        assert b" filter" in heard.text
        assert b"allow-tip-sha1-in-want" not in heard.text
        assert b"allow-reachable-sha1-in-want" not in heard.text
        heard = Heard()
        await Transport().advertise(Service.UPLOAD, path, heard, protocol="version=2")
        assert heard.text.startswith(b"000eversion 2\n")

    async def test_no_repository(self, tmp_path: Path) -> None:
        with pytest.raises(GitFailed, match=r"not a git repository|not appear to be"):
            await Transport().advertise(Service.UPLOAD, tmp_path / "none.git", Heard())

    @pytest.mark.parametrize("name", ["config", "HEAD"])
    async def test_settings_of_the_repository_run_nothing(self, path: Path, tmp_path: Path, name: str) -> None:
        """As if somebody got to write its files: hooks there are not ours, and are not run."""
        mark = tmp_path / "ran"
        hook = path / "hooks" / "pre-receive"
        hook.parent.mkdir(exist_ok=True)
        hook.write_text(f"#!/bin/sh\ntouch {mark}\n")
        hook.chmod(0o755)
        oid = refs(path)["refs/heads/master"]
        await Transport().receive_pack(path, sent(asked((NONE, oid, f"refs/heads/{name}")), EMPTY_PACK), Heard(), allow)
        assert not mark.exists()

    async def test_a_process_that_takes_too_long_is_ended(self, path: Path) -> None:
        async def never() -> AsyncIterator[bytes]:
            await asyncio.sleep(60)
            yield b""

        with pytest.raises(TooSlow):
            await Transport(seconds=0.2).upload_pack(path, never(), Heard())
        assert running() == []

    async def test_a_client_that_goes_away(self, path: Path) -> None:
        async def gone() -> AsyncIterator[bytes]:
            yield b"0032want "
            raise ConnectionResetError("gone")

        with pytest.raises(ConnectionResetError):
            await Transport().upload_pack(path, gone(), Heard())
        assert running() == []

    async def test_a_caller_that_gives_up(self, path: Path) -> None:
        async def never() -> AsyncIterator[bytes]:
            await asyncio.sleep(60)
            yield b""

        transport = Transport()
        task = asyncio.create_task(transport.upload_pack(path, never(), Heard()))
        await until(lambda: bool(running()))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (running(), transport.fetching.running) == ([], 0)


class TestPushing:
    async def test_moves_refs_and_tells_which(self, path: Path) -> None:
        master, topic = (refs(path)[f"refs/heads/{name}"] for name in ("master", "topic"))
        given = [(NONE, topic, "refs/heads/new"), (topic, NONE, "refs/heads/topic"), (NONE, topic, "refs/tags/master/x")]
        heard = Heard()
        moved = await Transport().receive_pack(path, sent(asked(*given), EMPTY_PACK), heard, allow)
        assert moved == [
            Update("refs/heads/new", None, topic),
            Update("refs/heads/topic", topic, None),
            Update("refs/tags/master/x", None, topic),
        ]
        assert b"ok refs/heads/new" in heard.text
        assert refs(path)["refs/heads/master"] == master

    @pytest.mark.parametrize("size", [1, 3, 7, 1000])
    async def test_comes_in_any_pieces(self, path: Path, size: int) -> None:
        master = refs(path)["refs/heads/master"]
        whole = asked((NONE, master, "refs/heads/a"), (NONE, master, "refs/heads/b")) + EMPTY_PACK
        pieces = [whole[at : at + size] for at in range(0, len(whole), size)]
        moved = await Transport().receive_pack(path, sent(*pieces), Heard(), allow)
        assert [update.ref for update in moved] == ["refs/heads/a", "refs/heads/b"]

    async def test_forward_only(self, path: Path) -> None:
        master = refs(path)["refs/heads/master"]
        later, other = commit_files(path, {"a": b"a"}, master), commit_files(path, {"a": b"b"})

        async def forward(updates: list[Update]) -> list[Verdict]:
            return [Verdict(Rule.FORWARD, "only forward") for _ in updates]

        heard = Heard()
        body = asked((master, other, "refs/heads/master"))
        assert await Transport().receive_pack(path, sent(body, EMPTY_PACK), heard, forward) == []
        assert b"ng refs/heads/master" in heard.text
        # Without a side band the reason is on the error stream; with one the client is told (tests/forgefront/test_git_http.py).
        body = asked((master, later, "refs/heads/master"))
        assert await Transport().receive_pack(path, sent(body, EMPTY_PACK), Heard(), forward) == [
            Update("refs/heads/master", master, later)
        ]

    async def test_a_lie_about_the_old_value_moves_nothing(self, path: Path) -> None:
        master, topic = (refs(path)[f"refs/heads/{name}"] for name in ("master", "topic"))
        base = git(path, "merge-base", master, topic)

        async def forward(updates: list[Update]) -> list[Verdict]:
            return [Verdict(Rule.FORWARD, "only forward") for _ in updates]

        assert base != master
        body = asked((base, topic, "refs/heads/master"))
        assert await Transport().receive_pack(path, sent(body, EMPTY_PACK), Heard(), forward) == []
        assert refs(path)["refs/heads/master"] == master

    async def test_only_what_was_judged_passes(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Should git ever read the list otherwise than we do, the hooks refuse."""
        master = refs(path)["refs/heads/master"]
        read = Push._read_line

        def misread(push: Push, text: bytes) -> None:
            read(push, text.replace(b"refs/heads/evil", b"refs/heads/good"))

        monkeypatch.setattr(Push, "_read_line", misread)
        heard = Heard()
        assert await Transport().receive_pack(path, sent(asked((NONE, master, "refs/heads/evil")), EMPTY_PACK), heard, allow) == []
        assert b"pre-receive hook declined" in heard.text
        assert "refs/heads/evil" not in refs(path)

    async def test_without_a_judgement_nothing_passes(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(Push, "_write", lambda push, judged: None)
        master = refs(path)["refs/heads/master"]
        assert await Transport().receive_pack(path, sent(asked((NONE, master, "refs/heads/x")), EMPTY_PACK), Heard(), allow) == []
        assert "refs/heads/x" not in refs(path)

    def test_hooks_that_cannot_run_are_noticed_at_start(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        shutil.copytree(HOOKS, tmp_path / "hooks")
        monkeypatch.setattr("storage.git.transport.HOOKS", tmp_path / "hooks")
        Transport()
        for name in ("pre-receive", "update", "post-receive"):
            (tmp_path / "hooks" / name).unlink()
            with pytest.raises(PermissionError, match=name):
                Transport()
            shutil.copy2(HOOKS / name, tmp_path / "hooks" / name)

    async def test_a_judge_that_fails_refuses(self, path: Path) -> None:
        async def fail(updates: list[Update]) -> list[Verdict]:
            raise PermissionError("no")

        before, heard = refs(path), Heard()
        with pytest.raises(PermissionError):
            await Transport().receive_pack(path, sent(asked((NONE, before["refs/heads/master"], "refs/heads/x")), EMPTY_PACK), heard, fail)
        assert (refs(path), heard.text) == (before, b"")

    async def test_a_slow_push_is_judged_again(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("storage.git.pushes.RECHECK_SECONDS", 0.0)
        times = 0

        async def once(updates: list[Update]) -> list[Verdict]:
            nonlocal times
            times += 1
            return [Verdict(Rule.ALLOW if times == 1 else Rule.REFUSE, "not any more") for _ in updates]

        before = refs(path)
        body = asked((NONE, before["refs/heads/master"], "refs/heads/x"))
        assert await Transport().receive_pack(path, sent(body, EMPTY_PACK[:10], EMPTY_PACK[10:]), Heard(), once) == []
        assert (times, refs(path)) == (2, before)

    async def test_a_push_that_breaks_off_moves_nothing_and_leaves_nothing(self, path: Path) -> None:
        before = refs(path)

        async def broken() -> AsyncIterator[bytes]:
            yield asked((NONE, before["refs/heads/master"], "refs/heads/x")) + EMPTY_PACK[:20]
            raise ConnectionResetError("gone")

        with pytest.raises(ConnectionResetError):
            await Transport().receive_pack(path, broken(), Heard(), allow)
        assert refs(path) == before
        assert (running(), leftovers(path)) == ([], [])

    async def test_a_client_that_does_not_listen_has_pushed_all_the_same(self, path: Path) -> None:
        async def deaf(block: bytes) -> None:
            raise ConnectionResetError("gone")

        master = refs(path)["refs/heads/master"]
        body = asked((NONE, master, "refs/heads/x"))
        assert await Transport().receive_pack(path, sent(body, EMPTY_PACK), deaf, allow) == [Update("refs/heads/x", None, master)]

    async def test_over_a_stream(self, path: Path) -> None:
        """As over SSH: the refs come first, and the client keeps its side open until it has the report."""
        master = refs(path)["refs/heads/master"]
        heard = Heard()

        async def client() -> AsyncIterator[bytes]:
            await until(lambda: heard.text.endswith(b"0000"))
            yield asked((NONE, master, "refs/heads/x"))
            yield EMPTY_PACK
            await until(lambda: b"ok refs/heads/x" in heard.text)

        moved = await Transport().receive_pack(path, client(), heard, allow, stateless=False)
        assert moved == [Update("refs/heads/x", None, master)]
        assert b"ok refs/heads/x" in heard.text

    @pytest.mark.parametrize(
        "body",
        [
            b"",
            b"hello",
            b"+0a0",
            b"0x1f",
            b"0001",
            b"0003",
            b"000",
            asked((NONE, "f" * 40, "refs/heads/x"), end=b""),
            line(b"push-cert\0") + b"0000",
            line(b"0" * 64 + b" " + b"1" * 64 + b" refs/heads/x\0object-format=sha256") + b"0000",
            line(f"{NONE} {'f' * 40} refs/heads/x y".encode()) + b"0000",
            line(f"{NONE} {'f' * 40} refs/heads/x\ny".encode()) + b"0000",
            line(f"{NONE} {'F' * 40} refs/heads/x".encode()) + b"0000",
        ],
    )
    async def test_what_is_no_list_is_refused(self, path: Path, body: bytes) -> None:
        with pytest.raises(BadPush):
            await Transport().receive_pack(path, sent(body), Heard(), allow)

    async def test_nothing_asked_nothing_done(self, path: Path) -> None:
        assert await Transport().receive_pack(path, sent(b"0000"), Heard(), allow) == []

    async def test_a_list_without_end_is_cut(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("storage.git.pushes.LONGEST_LIST", 1000)
        lines = (line(f"{NONE} {'f' * 40} refs/heads/{number}".encode()) for number in range(100))
        with pytest.raises(BadPush, match="too many"):
            await Transport().receive_pack(path, sent(*lines), Heard(), allow)

    async def test_names_that_are_no_text(self, path: Path) -> None:
        master = refs(path)["refs/heads/master"]
        body = line(f"{NONE} {master} refs/heads/".encode() + b"\xff\xfe\0 report-status") + b"0000"
        heard, before = Heard(), refs(path)
        assert await Transport().receive_pack(path, sent(body, EMPTY_PACK), heard, allow) == []
        assert refs(path) == before
