"""Pushes of hostile packs, small to send and large, slow or endless to read: rejected with a reason, or accepted within bounds."""

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from functools import cache
from pathlib import Path
from time import monotonic, thread_time

import pytest

from storage.git.diffs.diff import is_small
from storage.git.protocol import transport as transports
from storage.git.protocol.transport import Transport
from storage.git.repository import Repository
from storage.git.subprocesses.limits import MEGABYTE, ProcessLimits
from storage.git.trees import find_blob, read_blob
from tests.storage.git.protocol.test_transport import (
    NONE,
    OutputBuffer,
    RefRecorder,
    allow_all,
    leftovers,
    push_chunks,
    refs,
    running,
)
from tests.support.git import hostile_packs
from tests.support.git.git_history import git, make_history
from tests.support.git.hostile_packs import HostilePack
from tests.support.waiting import wait_until

REF = "refs/heads/hostile"
LIMITS = ProcessLimits(memory_bytes=256 * MEGABYTE, cpu_seconds=20, file_bytes=256 * MEGABYTE)
LARGEST = 72 * MEGABYTE
GIANT = 65 * MEGABYTE
"""More than git keeps deltas of (`core.bigFileThreshold`)."""
AT_ONCE = """
import asyncio, json, resource, sys
from pathlib import Path
from tests.support.git import hostile_packs
from tests.support.measuring.loop_lag import measure_loop_lag
from tests.storage.git.protocol.test_hostile_packs import limited_transport, push

async def main():
    transport, path, turns, most = limited_transport(max_indexing=2), Path(sys.argv[1]), 0, 0
    packs = [hostile_packs.delta_bomb(), hostile_packs.doubling_chain()] * 2
    async def watch():
        nonlocal turns, most
        while True:
            await asyncio.sleep(0.01)
            turns, most = turns + 1, max(most, transport.indexing.running)
    watching = asyncio.create_task(watch())
    async with measure_loop_lag() as lag:
        results = await asyncio.gather(*(push(transport, path, pack, f"refs/heads/h{number}") for number, pack in enumerate(packs)))
    watching.cancel()
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
    print(json.dumps({"moved": [moved for moved, _ in results], "most": most, "turns": turns, "lag": lag.milliseconds, "peak": peak}))

asyncio.run(main())
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return make_history(tmp_path / "made.git", commits=4).path


def push_body(pack: HostilePack, ref: str = REF) -> list[bytes]:
    """The request of a client with a side band: the list of updates, and the pack in blocks as they come from the network."""
    return [hostile_packs.push_command(pack, ref), *(pack.data[at : at + 65536] for at in range(0, len(pack.data), 65536))]


def limited_transport(**given: object) -> Transport:
    settings = {"max_object_bytes": LARGEST, "push_limits": LIMITS, "fetch_limits": LIMITS, **given}
    return Transport(**settings)  # type: ignore[arg-type]


async def push(transport: Transport, path: Path, pack: HostilePack, ref: str = REF) -> tuple[bool, str]:
    """Whether the ref moved, and what the terminal shows."""
    received, move = OutputBuffer(), RefRecorder()
    await transport.receive_pack(path, push_chunks(*push_body(pack, ref)), received, allow_all, move)
    for update in move.moved:
        git(path, "update-ref", update.ref, update.new or "")
    return bool(move.moved), " ".join(received.text.decode("utf-8", "replace").split())


REJECTED_PACKS: tuple[tuple[Callable[[], HostilePack], str], ...] = (
    (hostile_packs.delta_bomb, "rejected: it needs more than the 256 MB of memory"),
    (hostile_packs.doubling_chain, "rejected: it needs more than the 256 MB of memory"),
    (hostile_packs.many_objects, "rejected: it needs more than the 256 MB of memory"),
    (lambda: hostile_packs.zlib_bomb(80 * MEGABYTE), "has 80 MB when it is unpacked, and one may have 72 MB"),
    (hostile_packs.false_sizes, "bad object"),
    (hostile_packs.false_delta, "delta base offset is out of bound"),
)
ACCEPTED_PACKS: tuple[Callable[[], HostilePack], ...] = (
    hostile_packs.deep_chain,
    hostile_packs.deep_trees,
    hostile_packs.tree_bomb,
    hostile_packs.tag_chain,
    hostile_packs.many_parents,
)
"""Two more are pushed by tests of what is stored of them."""
wide_tree = cache(hostile_packs.wide_tree)
"""Made once, which takes a second."""


class TestHostilePacks:
    @pytest.mark.parametrize(("make_pack", "reason"), REJECTED_PACKS)
    async def test_packs_over_a_limit_are_rejected_with_the_reason(
        self, path: Path, make_pack: Callable[[], HostilePack], reason: str
    ) -> None:
        pack = make_pack()
        before = refs(path)
        started = monotonic()
        moved, shown = await push(limited_transport(), path, pack)
        assert not moved
        assert reason in shown
        assert monotonic() - started < 60
        assert refs(path) == before
        assert (running(), leftovers(path)) == ([], [])

    @pytest.mark.parametrize("make_pack", ACCEPTED_PACKS)
    async def test_packs_within_the_limits_are_accepted(self, path: Path, make_pack: Callable[[], HostilePack]) -> None:
        await self.accept(path, make_pack())

    async def accept(self, path: Path, pack: HostilePack) -> None:
        """Pushes it; a fetch afterwards stays within its limits too."""
        ref = "refs/tags/hostile" if "tag of" in pack.name else REF
        moved, shown = await push(limited_transport(), path, pack, ref)
        assert moved, shown
        assert (running(), leftovers(path)) == ([], [])
        received = OutputBuffer()
        await limited_transport().advertise(transports.GitService.UPLOAD, path, received)
        assert pack.tip is not None and pack.tip.encode() in received.text

    async def test_a_small_file_is_not_stored_as_a_delta_of_a_huge_one(self, path: Path) -> None:
        """Else this process would unpack the huge one to read ten bytes, whatever it knows of their size."""
        pack = hostile_packs.shrunk_giant(GIANT)
        await self.accept(path, pack)
        requested = "%(objectsize) %(deltabase)"
        listed = git(path, "cat-file", "--batch-all-objects", f"--batch-check={requested}")
        assert f"{GIANT} {NONE}" in listed.splitlines()
        assert f"10 {NONE}" in listed.splitlines()
        repository = Repository.open(path)
        found = find_blob(repository, pack.tip or "", "small")
        assert found is not None
        assert read_blob(repository, *found, "small").size == 10
        git(path, "fsck", "--full", "--strict")

    async def test_a_wide_tree_is_not_read_to_know_that_its_diff_is_large(self, path: Path) -> None:
        """To split it holds the interpreter, and every other request with it."""
        pack = wide_tree()
        await self.accept(path, pack)
        repository = Repository.open(path)
        started = thread_time()
        assert not is_small(repository, None, pack.tip or "")
        assert thread_time() - started < 0.1

    async def test_four_bombs_at_once(self, path: Path) -> None:
        """Two are indexed at a time, each within its memory, and the event loop goes on."""
        command = [sys.executable, "-c", AT_ONCE, str(path)]
        done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[4])
        assert done.returncode == 0, done.stderr
        found = json.loads(done.stdout)
        assert found["moved"] == [False] * 4
        assert found["most"] <= 2
        assert found["peak"] < LIMITS.memory_bytes
        # Some hundred on an idle machine; none, were it to wait for a process.
        assert found["turns"] > 20
        assert found["lag"] < 500
        assert leftovers(path) == []

    async def test_too_much_processor_time(self, path: Path) -> None:
        limits = ProcessLimits(memory_bytes=1024 * MEGABYTE, cpu_seconds=1)
        moved, shown = await push(limited_transport(push_limits=limits), path, hostile_packs.delta_bomb(300 * MEGABYTE, 40))
        assert not moved
        assert "rejected: it takes more than the 1 seconds that a git process may run" in shown
        assert leftovers(path) == []

    async def test_too_long_for_its_size(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """A small push does not get the time of a large one."""
        monkeypatch.setattr("storage.git.protocol.process_supervision.INDEXING_SECONDS", 0.5)
        moved, shown = await push(limited_transport(push_limits=ProcessLimits()), path, hostile_packs.delta_bomb(300 * MEGABYTE, 40))
        assert not moved
        assert "rejected: reading it takes more than the 1 seconds that a push of its size may take" in shown
        assert (running(), leftovers(path)) == ([], [])

    async def test_a_file_that_grows_too_large(self, path: Path) -> None:
        limits = ProcessLimits(file_bytes=MEGABYTE)
        moved, shown = await push(limited_transport(push_limits=limits), path, wide_tree())
        assert not moved
        assert "rejected: it makes a file of more than 1 MB" in shown
        assert leftovers(path) == []

    @pytest.mark.parametrize("seed", range(6))
    async def test_random_packs(self, path: Path, seed: int) -> None:
        """As fuzzing does it (scripts/check --fuzz): whatever comes, git ends, and what is left is a sound repository."""
        pack = hostile_packs.random_pack(seed, max_bytes=LARGEST)
        assert pack == hostile_packs.random_pack(seed, max_bytes=LARGEST)
        await push(limited_transport(), path, pack, "refs/tags/hostile")
        assert (running(), leftovers(path)) == ([], [])
        git(path, "fsck", "--connectivity-only")


class TestSlots:
    async def test_a_slow_upload_holds_no_slot(self, path: Path) -> None:
        transport, received, going = limited_transport(max_indexing=1), OutputBuffer(), asyncio.Event()
        pack = hostile_packs.deep_chain(10)
        blocks = push_body(pack)

        async def slowly() -> AsyncIterator[bytes]:
            yield blocks[0]
            yield blocks[1][:100]
            await going.wait()
            yield blocks[1][100:]

        move = RefRecorder()
        slow = asyncio.create_task(transport.receive_pack(path, slowly(), received, allow_all, move))
        await asyncio.sleep(0.2)
        assert transport.indexing.running == 0
        assert (await push(transport, path, pack, "refs/heads/fast"))[0]
        going.set()
        await slow
        assert [update.ref for update in move.moved] == [REF]

    @pytest.mark.parametrize("size", [1, 7, 100_000])
    async def test_over_a_stream_the_end_of_the_pack_waits(self, path: Path, size: int) -> None:
        """A client keeps its side open until it has the report; the checksum shows that the pack is complete."""
        transport, received = limited_transport(max_indexing=1), OutputBuffer()
        pack = hostile_packs.deep_chain(10)
        requested = push_body(pack)[0]

        async def client() -> AsyncIterator[bytes]:
            yield requested
            for at in range(0, len(pack.data), size):
                yield pack.data[at : at + size]
            await wait_until(lambda: b"ok " + REF.encode() in received.text)

        async with transport.indexing.slot():
            move = RefRecorder()
            push_task = asyncio.create_task(transport.receive_pack(path, client(), received, allow_all, move, stateless=False))
            await asyncio.sleep(0.3)
            assert transport.indexing.waiting == 1
            assert move.moved == []
        await push_task
        assert [update.ref for update in move.moved] == [REF]
        assert (transport.indexing.running, transport.indexing.waiting) == (0, 0)


class TestLaunch:
    def test_a_shell_limits_itself_where_a_process_cannot_be_limited(self) -> None:
        shown = "for each in v t f; do ulimit -$each; done"
        limits = ProcessLimits(memory_bytes=512 * MEGABYTE, cpu_seconds=30, file_bytes=3 * MEGABYTE)
        done = subprocess.run(limits.wrap_command(["sh", "-c", shown]), capture_output=True, text=True, check=True)
        assert done.stdout.split() == [str(512 * 1024), "30", str(3 * 2048)]

    def test_arguments_reach_the_program_as_they_are(self) -> None:
        done = subprocess.run(
            ProcessLimits().wrap_command(["printf", "%s|", "a b", "$HOME", "'\";x"]), capture_output=True, text=True, check=True
        )
        assert done.stdout == "a b|$HOME|'\";x|"
