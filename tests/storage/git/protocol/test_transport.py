"""Fetches and pushes as git processes: bounded, guarded, and ended when their client disconnects."""

import asyncio
import os
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from storage.git.protocol import transport as transport_module
from storage.git.protocol.pack_sizes import MAX_READ_BYTES
from storage.git.protocol.process_slots import FairLimiter, TransportBusy
from storage.git.protocol.push import InvalidPush, PushAuthorizer, PushDecision, PushRule, RefCommand
from storage.git.protocol.transport import HOOKS_FOLDER, GitService, Transport, TransportTimeout
from storage.git.subprocesses.git_command import GitCommandError
from tests.support.git.git_history import git, make_history
from tests.support.servers.child_processes import children_of
from tests.support.waiting import wait_until

EMPTY_PACK = bytes.fromhex("5041434b0000000200000000029d08823bd8a8eab510ad6ac75c823cfd3ed31e")
NONE = "0" * 40


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return make_history(tmp_path / "made.git", commits=6).path


def line(text: bytes) -> bytes:
    return f"{len(text) + 4:04x}".encode() + text


def fetch_request(*updates: tuple[str, str, str], end: bytes = b"0000") -> bytes:
    """The list of updates that a client sends first."""
    lines = [f"{old} {new} {ref}".encode() for old, new, ref in updates]
    return b"".join(line(text + (b"" if index else b"\0 report-status")) for index, text in enumerate(lines)) + end


async def push_chunks(*blocks: bytes) -> AsyncIterator[bytes]:
    for block in blocks:
        await asyncio.sleep(0)
        yield block


async def allow_all(updates: list[RefCommand]) -> list[PushDecision]:
    return [PushDecision(PushRule.ALLOW) for _ in updates]


class RefRecorder:
    """Moves no ref; knows what it was asked to move."""

    def __init__(self, *reasons: str | None) -> None:
        self.moved: list[RefCommand] = []
        self.atomic = False
        self._reasons = reasons

    async def __call__(self, updates: list[RefCommand], atomic: bool) -> list[str | None]:
        self.atomic = atomic
        reasons = list(self._reasons) or [None] * len(updates)
        self.moved += [update for update, reason in zip(updates, reasons, strict=True) if reason is None]
        return reasons


async def receive(
    path: Path, incoming: AsyncIterator[bytes], outgoing: Any, authorize: PushAuthorizer, **settings: Any
) -> list[RefCommand]:
    """Receives a push; returns what it moved. Git itself must not write a ref."""
    before, move = refs(path), RefRecorder()
    await Transport().receive_pack(path, incoming, outgoing, authorize, move, **settings)
    assert refs(path) == before
    return move.moved


class OutputBuffer:
    """What the client was sent."""

    def __init__(self) -> None:
        self.text = b""

    async def __call__(self, block: bytes) -> None:
        self.text += block


def refs(path: Path) -> dict[str, str]:
    lines = git(path, "for-each-ref", "--format=%(refname) %(objectname)").splitlines()
    return {name: oid for name, _, oid in (each.partition(" ") for each in lines)}


def packs(path: Path) -> list[Path]:
    return list(path.glob("objects/pack/*"))


def running() -> list[str]:
    return [command for command in children_of([os.getpid()]).values() if command.startswith("git ")]


def leftovers(path: Path) -> list[Path]:
    """Locks, quarantines, and what packs are written to."""
    return [*path.rglob("*.lock"), *path.glob("objects/tmp_*"), *path.glob("objects/pack/tmp_*"), *path.glob("objects/pack/*.keep")]


class TestConcurrencyLimit:
    async def test_never_more_than_the_limit(self) -> None:
        turns, most = FairLimiter(2, max_waiting=100, seconds=5), 0

        async def work() -> None:
            nonlocal most
            async with turns.slot():
                most = max(most, turns.running)
                await asyncio.sleep(0.001)

        await asyncio.gather(*(work() for _ in range(30)))
        assert (most, turns.running, turns.waiting) == (2, 0, 0)

    async def test_a_requester_leaves_slots_to_others(self) -> None:
        limiter = FairLimiter(8, max_waiting=100, seconds=60)
        may_end, begun = asyncio.Event(), list[str]()

        async def fetch(requester: str) -> None:
            async with limiter.slot(requester):
                begun.append(requester)
                await may_end.wait()

        fetches = [asyncio.create_task(fetch("user 1")) for _ in range(8)]
        fetches += [asyncio.create_task(fetch(requester)) for requester in ("user 2", "anonymous", "user 3")]
        await asyncio.sleep(0)
        assert begun == ["user 1"] * 6 + ["user 2", "anonymous"]
        assert (limiter.running, limiter.waiting) == (8, 3)
        # One who stops waiting is not given a slot, and the next who may hold one gets it.
        fetches[6].cancel()
        fetches[8].cancel()
        await asyncio.gather(fetches[6], fetches[8], return_exceptions=True)
        await asyncio.sleep(0)
        assert begun[8:] == ["user 3"]
        may_end.set()
        await asyncio.gather(*fetches, return_exceptions=True)
        assert begun[9:] == ["user 1"] and (limiter.running, limiter.waiting) == (0, 0)

    async def test_a_turn_that_comes_with_a_cancellation_is_passed_on(self) -> None:
        limiter = FairLimiter(1, max_waiting=100, seconds=60)

        async def wait() -> str:
            async with limiter.slot():
                return "begun"

        async with limiter.slot():
            canceled, other = asyncio.create_task(wait()), asyncio.create_task(wait())
            await asyncio.sleep(0)
        canceled.cancel()
        assert await asyncio.wait_for(other, 5) == "begun"
        assert canceled.cancelled() and (limiter.running, limiter.waiting) == (0, 0)

    async def test_waiting_times_out(self) -> None:
        turns = FairLimiter(1, max_waiting=100, seconds=0.01)
        async with turns.slot():
            with pytest.raises(TransportBusy):
                async with turns.slot():
                    pass
        async with turns.slot():
            assert (turns.running, turns.waiting) == (1, 0)

    async def test_a_full_queue_rejects_immediately(self) -> None:
        turns = FairLimiter(1, max_waiting=1, seconds=60)
        async with turns.slot():
            waiting = asyncio.create_task(turns.slot().__aenter__())
            await asyncio.sleep(0)
            with pytest.raises(TransportBusy):
                async with turns.slot():
                    pass
            waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        assert (turns.running, turns.waiting) == (0, 0)


class TestFetch:
    async def test_that_is_canceled_again_while_git_ends_leaves_no_task(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        terminate, is_ending, may_end = transport_module.terminate, asyncio.Event(), asyncio.Event()

        async def terminate_slowly(*arguments: Any, **settings: Any) -> None:
            is_ending.set()
            await may_end.wait()
            await terminate(*arguments, **settings)

        async def never_send() -> AsyncIterator[bytes]:
            await asyncio.Event().wait()
            yield b""

        monkeypatch.setattr(transport_module, "terminate", terminate_slowly)
        before = asyncio.all_tasks()
        running = asyncio.create_task(Transport().upload_pack(path, never_send(), OutputBuffer()))
        await wait_until(lambda: len(asyncio.all_tasks() - before) > 1)
        running.cancel()
        await is_ending.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        may_end.set()
        await wait_until(lambda: asyncio.all_tasks() <= before)

    async def test_advertises(self, path: Path) -> None:
        received = OutputBuffer()
        await Transport().advertise(GitService.UPLOAD, path, received)
        assert refs(path)["refs/heads/master"].encode() in received.text
        assert b" filter" in received.text
        assert b"allow-tip-sha1-in-want" not in received.text
        assert b"allow-reachable-sha1-in-want" not in received.text
        received = OutputBuffer()
        await Transport().advertise(GitService.UPLOAD, path, received, protocol="version=2")
        assert received.text.startswith(b"000eversion 2\n")

    async def test_no_repository(self, tmp_path: Path) -> None:
        with pytest.raises(GitCommandError, match=r"not a git repository|not appear to be"):
            await Transport().advertise(GitService.UPLOAD, tmp_path / "none.git", OutputBuffer())

    @pytest.mark.parametrize("name", ["config", "HEAD"])
    async def test_settings_of_the_repository_run_nothing(self, path: Path, tmp_path: Path, name: str) -> None:
        """As if somebody got to write its files: hooks there are not ours, and are not run."""
        mark = tmp_path / "ran"
        hook = path / "hooks" / "pre-receive"
        hook.parent.mkdir(exist_ok=True)
        hook.write_text(f"#!/bin/sh\ntouch {mark}\n")
        hook.chmod(0o755)
        oid = refs(path)["refs/heads/master"]
        await receive(path, push_chunks(fetch_request((NONE, oid, f"refs/heads/{name}")), EMPTY_PACK), OutputBuffer(), allow_all)
        assert not mark.exists()

    async def test_a_process_that_takes_too_long_is_ended(self, path: Path) -> None:
        async def never() -> AsyncIterator[bytes]:
            await asyncio.sleep(60)
            yield b""

        with pytest.raises(TransportTimeout):
            await Transport(seconds=0.2).upload_pack(path, never(), OutputBuffer())
        assert running() == []

    async def test_a_client_disconnect(self, path: Path) -> None:
        async def disconnect() -> AsyncIterator[bytes]:
            yield b"0032want "
            raise ConnectionResetError("gone")

        with pytest.raises(ConnectionResetError):
            await Transport().upload_pack(path, disconnect(), OutputBuffer())
        assert running() == []

    async def test_a_canceled_caller(self, path: Path) -> None:
        async def never() -> AsyncIterator[bytes]:
            await asyncio.sleep(60)
            yield b""

        transport = Transport()
        task = asyncio.create_task(transport.upload_pack(path, never(), OutputBuffer()))
        await wait_until(lambda: bool(running()))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (running(), transport.fetching.running) == ([], 0)

    @pytest.mark.parametrize("waits_for", ["request", "response"])
    async def test_a_slow_client_loses_its_slot_to_others(self, path: Path, monkeypatch: pytest.MonkeyPatch, waits_for: str) -> None:
        monkeypatch.setattr("storage.git.protocol.process_slots.SLOW_CLIENT_SECONDS", 0.3)
        monkeypatch.setattr("storage.git.protocol.process_slots.SLOW_CLIENT_CHECK_SECONDS", 0.05)
        request = line(f"want {refs(path)['refs/heads/master']}\n".encode()) + b"0000" + line(b"done\n")

        async def drip() -> AsyncIterator[bytes]:
            for offset in range(len(request) - 1):
                yield request[offset : offset + 1]
                await asyncio.sleep(1)

        async def take_nothing(block: bytes) -> None:
            await asyncio.sleep(60)

        transport = Transport(max_processes=1)
        if waits_for == "request":
            slow = asyncio.create_task(transport.upload_pack(path, drip(), OutputBuffer()))
        else:
            slow = asyncio.create_task(transport.upload_pack(path, push_chunks(request), take_nothing))
        await asyncio.sleep(0.8)
        assert not slow.done()
        received = OutputBuffer()
        await asyncio.wait_for(transport.upload_pack(path, push_chunks(request), received), 10)
        assert b"PACK" in received.text
        with pytest.raises(TransportTimeout, match="too slow"):
            await slow
        assert (running(), transport.fetching.running) == ([], 0)


class TestPush:
    async def test_updates_refs_and_reports_them(self, path: Path) -> None:
        master, topic = (refs(path)[f"refs/heads/{name}"] for name in ("master", "topic"))
        updates = [(NONE, topic, "refs/heads/new"), (topic, NONE, "refs/heads/topic"), (NONE, topic, "refs/tags/master/x")]
        received = OutputBuffer()
        moved = await receive(path, push_chunks(fetch_request(*updates), EMPTY_PACK), received, allow_all)
        assert moved == [
            RefCommand("refs/heads/new", None, topic),
            RefCommand("refs/heads/topic", topic, None),
            RefCommand("refs/tags/master/x", None, topic),
        ]
        assert b"ok refs/heads/new" in received.text
        assert refs(path)["refs/heads/master"] == master

    @pytest.mark.parametrize("size", [1, 3, 7, 1000])
    async def test_is_read_in_chunks_of_any_size(self, path: Path, size: int) -> None:
        master = refs(path)["refs/heads/master"]
        whole = fetch_request((NONE, master, "refs/heads/a"), (NONE, master, "refs/heads/b")) + EMPTY_PACK
        pieces = [whole[at : at + size] for at in range(0, len(whole), size)]
        moved = await receive(path, push_chunks(*pieces), OutputBuffer(), allow_all)
        assert [update.ref for update in moved] == ["refs/heads/a", "refs/heads/b"]

    @pytest.mark.parametrize("stateless", [True, False])
    async def test_a_slow_client_loses_its_slot_to_others(self, path: Path, monkeypatch: pytest.MonkeyPatch, stateless: bool) -> None:
        monkeypatch.setattr("storage.git.protocol.process_slots.SLOW_CLIENT_SECONDS", 0.4)
        monkeypatch.setattr("storage.git.protocol.process_slots.SLOW_CLIENT_CHECK_SECONDS", 0.05)
        master = refs(path)["refs/heads/master"]

        async def drip() -> AsyncIterator[bytes]:
            yield fetch_request((NONE, master, "refs/heads/slow"))
            # One file of 2**27 bytes in blocks that are not compressed; more of it than a small push has.
            block = b"\0\xff\xff\0\0"
            started = (block + bytes(65_535)) * (MAX_READ_BYTES // 65_535 + 1) + block
            yield b"PACK" + (2).to_bytes(4, "big") + (1).to_bytes(4, "big") + b"\xb0\x80\x80\x80\x04" + b"\x78\x01" + started
            while True:
                await asyncio.sleep(0.1)
                yield b"\0"

        async def push(incoming: AsyncIterator[bytes], move: RefRecorder) -> None:
            await transport.receive_pack(path, incoming, OutputBuffer(), allow_all, move, stateless=stateless)

        transport, moves = Transport(max_processes=1), RefRecorder()
        slow = asyncio.create_task(push(drip(), RefRecorder()))
        await wait_until(lambda: transport.pushing.running == 1)
        await asyncio.sleep(0.8)
        assert not slow.done()
        request = fetch_request((NONE, master, "refs/heads/quick"))
        await asyncio.wait_for(push(push_chunks(request, EMPTY_PACK), moves), 10)
        assert [update.ref for update in moves.moved] == ["refs/heads/quick"]
        with pytest.raises(TransportTimeout, match="too slow"):
            await slow
        assert (running(), transport.pushing.running, leftovers(path)) == ([], 0, [])

    async def test_a_refused_ref_has_its_reason(self, path: Path) -> None:
        master, topic = (refs(path)[f"refs/heads/{name}"] for name in ("master", "topic"))
        body = fetch_request((NONE, master, "refs/heads/a"), (master, topic, "refs/heads/master"))
        received, move = OutputBuffer(), RefRecorder(None, "not\nnow, \x1b and never")
        await Transport().receive_pack(path, push_chunks(body, EMPTY_PACK), received, allow_all, move)
        assert move.moved == [RefCommand("refs/heads/a", None, master)]
        assert b"ok refs/heads/a" in received.text
        assert b"ng refs/heads/master not now, and never" in received.text

    async def test_a_push_that_may_move_nothing_leaves_no_object(self, path: Path) -> None:
        async def refuse(updates: list[RefCommand]) -> list[PushDecision]:
            return [PushDecision(PushRule.REJECT, "no") for _ in updates]

        received, before = OutputBuffer(), packs(path)
        body = fetch_request((NONE, refs(path)["refs/heads/master"], "refs/heads/x"))
        assert await receive(path, push_chunks(body, EMPTY_PACK), received, refuse) == []
        assert b"pre-receive hook declined" in received.text
        assert packs(path) == before

    async def test_atomic_pushes_are_handed_over_as_such(self, path: Path) -> None:
        master = refs(path)["refs/heads/master"]
        for capability, expected in ((b" atomic", True), (b"", False)):
            body = line(f"{NONE} {master} refs/heads/x".encode() + b"\0 report-status" + capability) + b"0000"
            move = RefRecorder()
            await Transport().receive_pack(path, push_chunks(body, EMPTY_PACK), OutputBuffer(), allow_all, move)
            assert (move.atomic, len(move.moved)) == (expected, 1)

    async def test_many_refs(self, path: Path) -> None:
        """More than a pipe holds, in both directions."""
        master = refs(path)["refs/heads/master"]
        updates = [(NONE, master, f"refs/heads/{number:0200d}") for number in range(1000)]
        received = OutputBuffer()
        moved = await receive(path, push_chunks(fetch_request(*updates), EMPTY_PACK), received, allow_all)
        assert [update.ref for update in moved] == [ref for _, _, ref in updates]
        assert received.text.count(b"ok refs/heads/") == 1000

    def test_unusable_hooks_are_detected_at_start(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        shutil.copytree(HOOKS_FOLDER, tmp_path / "hooks")
        monkeypatch.setattr("storage.git.protocol.transport.HOOKS_FOLDER", tmp_path / "hooks")
        Transport()
        for name in ("pre-receive", "proc-receive"):
            (tmp_path / "hooks" / name).unlink()
            with pytest.raises(PermissionError, match=name):
                Transport()
            shutil.copy2(HOOKS_FOLDER / name, tmp_path / "hooks" / name)

    async def test_a_failing_authorization_rejects_the_push(self, path: Path) -> None:
        async def fail(updates: list[RefCommand]) -> list[PushDecision]:
            raise PermissionError("no")

        before, received = refs(path), OutputBuffer()
        with pytest.raises(PermissionError):
            await receive(path, push_chunks(fetch_request((NONE, before["refs/heads/master"], "refs/heads/x")), EMPTY_PACK), received, fail)
        assert (refs(path), received.text) == (before, b"")

    async def test_an_interrupted_push_leaves_nothing(self, path: Path) -> None:
        before = refs(path)

        async def broken() -> AsyncIterator[bytes]:
            yield fetch_request((NONE, before["refs/heads/master"], "refs/heads/x")) + EMPTY_PACK[:20]
            raise ConnectionResetError("gone")

        with pytest.raises(ConnectionResetError):
            await receive(path, broken(), OutputBuffer(), allow_all)
        assert refs(path) == before
        assert (running(), leftovers(path)) == ([], [])

    async def test_a_push_succeeds_without_reading_the_response(self, path: Path) -> None:
        async def deaf(block: bytes) -> None:
            raise ConnectionResetError("gone")

        master = refs(path)["refs/heads/master"]
        body = fetch_request((NONE, master, "refs/heads/x"))
        assert await receive(path, push_chunks(body, EMPTY_PACK), deaf, allow_all) == [RefCommand("refs/heads/x", None, master)]

    async def test_over_a_stream(self, path: Path) -> None:
        """As over SSH: the refs come first, and the client keeps its side open until it has the report."""
        master = refs(path)["refs/heads/master"]
        received = OutputBuffer()

        async def client() -> AsyncIterator[bytes]:
            await wait_until(lambda: received.text.endswith(b"0000"))
            yield fetch_request((NONE, master, "refs/heads/x"))
            yield EMPTY_PACK
            await wait_until(lambda: b"ok refs/heads/x" in received.text)

        moved = await receive(path, client(), received, allow_all, stateless=False)
        assert moved == [RefCommand("refs/heads/x", None, master)]
        assert b"ok refs/heads/x" in received.text

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
            fetch_request((NONE, "f" * 40, "refs/heads/x"), end=b""),
            line(b"push-cert\0") + b"0000",
            line(b"0" * 64 + b" " + b"1" * 64 + b" refs/heads/x\0object-format=sha256") + b"0000",
            line(f"{NONE} {'f' * 40} refs/heads/x y".encode()) + b"0000",
            line(f"{NONE} {'f' * 40} refs/heads/x\ny".encode()) + b"0000",
            line(f"{NONE} {'F' * 40} refs/heads/x".encode()) + b"0000",
        ],
    )
    async def test_an_invalid_command_list_is_rejected(self, path: Path, body: bytes) -> None:
        with pytest.raises(InvalidPush):
            await receive(path, push_chunks(body), OutputBuffer(), allow_all)

    async def test_an_empty_push_does_nothing(self, path: Path) -> None:
        assert await receive(path, push_chunks(b"0000"), OutputBuffer(), allow_all) == []

    async def test_a_list_without_end_is_cut(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("storage.git.protocol.push.MAX_COMMAND_LIST_BYTES", 1000)
        lines = (line(f"{NONE} {'f' * 40} refs/heads/{number}".encode()) for number in range(100))
        with pytest.raises(InvalidPush, match="too many"):
            await receive(path, push_chunks(*lines), OutputBuffer(), allow_all)

    async def test_names_that_are_no_text(self, path: Path) -> None:
        master = refs(path)["refs/heads/master"]
        body = line(f"{NONE} {master} refs/heads/".encode() + b"\xff\xfe\0 report-status") + b"0000"
        moved = await receive(path, push_chunks(body, EMPTY_PACK), OutputBuffer(), allow_all)
        assert moved == [RefCommand("refs/heads/\udcff\udcfe", None, master)]
