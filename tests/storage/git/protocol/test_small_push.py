"""Small pushes, which are received without receive-pack and answered with its reports."""

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from storage.git.protocol import process_supervision, small_push, transport
from storage.git.protocol.pack_sizes import MAX_READ_BYTES
from storage.git.protocol.push import RefCommand
from storage.git.protocol.transport import Transport
from storage.git.subprocesses.limits import ProcessLimits
from tests.storage.git.protocol.test_transport import (
    EMPTY_PACK,
    NONE,
    OutputBuffer,
    RefRecorder,
    allow_all,
    leftovers,
    line,
    packs,
    push_chunks,
    refs,
)
from tests.support.git.git_history import git, make_history
from tests.support.git.hostile_packs import MEGABYTE, PackWriter, copy_delta

CAPABILITIES = b"report-status-v2 side-band-64k object-format=sha1 agent=git/2.39.5"
PERSON = b"A <a@example.org> 1700000000 +0000"
ABSENT = "1" * 40


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A repository whose path has the characters that separate and quote paths."""
    (tmp_path / 'a:"b').mkdir()
    return make_history(tmp_path / 'a:"b' / "made.git", commits=6).path


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The git commands that were started."""
    commands: list[str] = []

    class RecordedProcess(subprocess.Popen[bytes]):
        def __init__(self, command: list[str], **settings: Any) -> None:
            commands.extend(name for name in ("index-pack", "receive-pack", "rev-list") if name in command)
            super().__init__(command, **settings)

    monkeypatch.setattr(subprocess, "Popen", RecordedProcess)
    yield commands


def request(*updates: tuple[str, str, str], capabilities: bytes = CAPABILITIES) -> bytes:
    lines = [f"{old} {new} {ref}".encode() for old, new, ref in updates]
    return b"".join(line(each + (b"" if index else b"\0 " + capabilities)) for index, each in enumerate(lines)) + b"0000"


async def push(path: Path, *blocks: bytes, move: RefRecorder | None = None, **settings: Any) -> tuple[list[RefCommand], bytes]:
    received, move = OutputBuffer(), move or RefRecorder()
    await Transport(**settings).receive_pack(path, push_chunks(*blocks), received, allow_all, move)
    return move.moved, received.text


def pack_of(path: Path, tip: str, base: str) -> bytes:
    """The thin pack that a client sends."""
    command = ["git", "pack-objects", "--revs", "--stdout", "-q", "--thin", "--delta-base-offset"]
    return subprocess.run(command, cwd=path, input=f"{tip}\n^{base}\n".encode(), capture_output=True, check=True).stdout


def commit_of(tree: str, *parents: str) -> bytes:
    lines = [b"tree " + tree.encode(), *(b"parent " + each.encode() for each in parents), b"author " + PERSON, b"committer " + PERSON]
    return b"\n".join([*lines, b"", b"Change\n"])


class TestSmallPush:
    async def test_needs_at_most_one_process_and_has_the_report_of_receive_pack(
        self, path: Path, tmp_path: Path, started: list[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        client = tmp_path / "client.git"
        git(tmp_path, "clone", "-q", "--bare", str(path), str(client))
        base, tree = refs(path)["refs/heads/master"], git(path, "rev-parse", "master^{tree}")
        new = git(client, "commit-tree", "-p", base, "-m", "New", git(client, "mktree", stdin=f"040000 tree {tree}\tfolder\n".encode()))
        changed, created = (base, new, "refs/heads/master"), (NONE, base, "refs/heads/new")
        removed = (refs(path)["refs/heads/topic"], NONE, "refs/heads/topic")
        for updates, pack, reasons, expected in (
            ([created, removed], EMPTY_PACK, [None, "not\nnow"], []),
            ([removed], b"", [None], []),
            ([changed, created], pack_of(client, new, base), ["no", None], ["index-pack"]),
        ):
            started.clear()
            moved, report = await push(path, request(*updates), pack, move=RefRecorder(*reasons))
            assert started == expected
            assert [each.ref for each in moved] == [ref for (_, _, ref), reason in zip(updates, reasons, strict=True) if reason is None]
            with monkeypatch.context() as patch:
                patch.setattr(small_push, "is_possible", lambda path: False)
                assert await push(path, request(*updates), pack, move=RefRecorder(*reasons)) == (moved, report)
            assert "receive-pack" in started
        assert git(path, "cat-file", "-t", new) == "commit"
        git(path, "fsck", "--strict", "--no-dangling")
        assert leftovers(path) == []

    async def test_broken_packs_leave_nothing(self, path: Path) -> None:
        base, tree = refs(path)["refs/heads/master"], git(path, "rev-parse", "master^{tree}")
        blob = git(path, "hash-object", "-w", "--stdin", stdin=b"data")
        entry = b"100644 %s\0" + bytes.fromhex(blob)
        before = sorted(packs(path))
        for objects, reason in (
            ([("commit", commit_of(ABSENT, base))], "did not receive expected object"),
            ([("commit", commit_of(tree, ABSENT))], "did not receive expected object"),
            ([("commit", commit_of(blob, base))], "expected type tree, found blob"),
            ([("tree", b"100644 file\0" + bytes.fromhex(ABSENT))], "did not receive expected object"),
            ([("tree", entry % b".git")], "hasDotgit"),
            ([("tag", f"object {ABSENT}\ntype commit\ntag x\ntagger ".encode() + PERSON + b"\n\nx\n")], "did not receive expected object"),
            ([("commit", b"tree " + tree.encode() + b"\n\nno author\n")], "missingAuthor"),
            ([(ABSENT, copy_delta(400, [(0, 400)]))], "unresolved delta"),
        ):
            writer, tip = PackWriter(), ABSENT
            for kind, data in objects:
                if kind == ABSENT:
                    writer.add_ref_delta(kind, data)
                else:
                    tip = writer.add(kind, data)
            moved, report = await push(path, request((NONE, tip, "refs/heads/x")), writer.pack())
            assert moved == [], reason
            assert reason.encode() in report
            assert b"unpack index-pack failed\n" in report
            assert b"ng refs/heads/x unpacker error\n" in report
        whole = pack_of(path, base, f"{base}~2")
        moved, report = await push(path, request((NONE, base, "refs/heads/x")), whole[:-1] + bytes([whole[-1] ^ 1]))
        assert moved == []
        assert b"pack is corrupted" in report
        assert sorted(packs(path)) == before
        assert leftovers(path) == []

    async def test_a_ref_to_a_missing_object_does_not_move(self, path: Path) -> None:
        master = refs(path)["refs/heads/master"]
        updates = (NONE, master, "refs/heads/a"), (NONE, ABSENT, "refs/heads/b")
        moved, report = await push(path, request(*updates), EMPTY_PACK)
        assert [each.ref for each in moved] == ["refs/heads/a"]
        assert b"ok refs/heads/a\n" in report
        assert b"ng refs/heads/b missing necessary objects\n" in report
        moved, report = await push(path, request(*updates, capabilities=CAPABILITIES + b" atomic"), EMPTY_PACK)
        assert moved == []
        assert report.count(b"missing necessary objects") == 2

    async def test_limits_end_the_process(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        writer, size = PackWriter(), 16 * MEGABYTE - 1
        writer.add("blob", b"base" * 100)
        writer.add_delta(0, copy_delta(400, [(0, 400)] * (size // 400)))
        for _ in range(100):
            base = writer.last_index
            writer.add_delta(base, copy_delta(size // 400 * 400, [(0, 65_536)] * 200))
        assert len(writer.pack()) < MAX_READ_BYTES
        body = request((NONE, refs(path)["refs/heads/master"], "refs/heads/x")), writer.pack()
        monkeypatch.setattr(process_supervision, "INDEXING_SECONDS", 0.01)
        moved, report = await push(path, *body)
        assert (moved, b"rejected: reading it takes more than the 0 seconds" in report) == ([], True)
        monkeypatch.undo()
        moved, report = await push(path, *body, push_limits=ProcessLimits(memory_bytes=40 * MEGABYTE))
        assert (moved, b"rejected: it needs more than the 40 MB of memory" in report) == ([], True)
        assert leftovers(path) == []

    async def test_an_error_of_the_disk_leaves_nothing(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        base, before = refs(path)["refs/heads/master"], sorted(packs(path))

        def fail(file: Path, target: Path) -> None:
            assert file.suffix == ".pack", "an index is visible before its pack"
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(Path, "rename", fail)
        with pytest.raises(OSError, match="No space left"):
            await push(path, request((NONE, base, "refs/heads/x")), pack_of(path, base, f"{base}~2"))
        assert sorted(packs(path)) == before
        assert leftovers(path) == []

    async def test_other_pushes_are_received_by_receive_pack(self, path: Path, started: list[str]) -> None:
        master = refs(path)["refs/heads/master"]
        created = NONE, master, "refs/heads/x"
        (large := PackWriter()).add_zeros(transport.MAX_DELTA_BYTES + MEGABYTE)
        (long := PackWriter()).add("blob", bytes(MAX_READ_BYTES), level=0)
        bodies: list[tuple[bytes, ...]] = [
            (request(created, capabilities=b"report-status"), EMPTY_PACK),
            (request(created, capabilities=b"side-band-64k"), EMPTY_PACK),
            (line(f"shallow {master}".encode()) + request(created), EMPTY_PACK),
            (request(created), large.pack()),
            (request(created), long.pack()),
        ]
        for body in bodies:
            started.clear()
            moved, _ = await push(path, *body)
            assert (len(moved), started[0]) == (1, "receive-pack")
        (path / "shallow").write_text(f"{master}\n")
        started.clear()
        await push(path, request(created), EMPTY_PACK)
        assert started[0] == "receive-pack"
