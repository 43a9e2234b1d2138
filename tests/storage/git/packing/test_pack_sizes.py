"""Small packs whose objects are known to be small before git reads them, which spares receive-pack."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from storage.git.protocol.pack_sizes import MAX_READ_BYTES, has_only_small_objects
from tests.storage.git.protocol.test_transport import EMPTY_PACK
from tests.support.git import hostile_packs
from tests.support.git.git_history import git, make_history
from tests.support.git.hostile_packs import MEGABYTE, PackWriter, copy_delta

MAX_BYTES = 4 * MEGABYTE


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return make_history(tmp_path / "made.git", commits=30).path


def pack_of(path: Path, *options: str) -> bytes:
    """The pack that a client sends, which has the newest commits of master."""
    command = ["git", "pack-objects", "--revs", "--stdout", "-q", "--thin", *options]
    revisions = b"master\n^master~9\n"
    return subprocess.run(command, cwd=path, input=revisions, capture_output=True, check=True).stdout


class TestSizes:
    def test_packs_of_git(self, path: Path) -> None:
        for options in (("--delta-base-offset",), (), ("--depth=0",)):
            pack = pack_of(path, *options)
            assert has_only_small_objects(pack, MAX_BYTES)
            assert not has_only_small_objects(pack, 100)
            for broken in (pack[:-1], pack[:-30], pack + b"x", pack[:60] + b"\xff" + pack[61:], pack[:12] + b"\xff" * 40_000 + pack[-20:]):
                assert not has_only_small_objects(broken, MAX_BYTES)
        assert has_only_small_objects(EMPTY_PACK, MAX_BYTES)
        assert not has_only_small_objects(b"", MAX_BYTES)

    def test_large_objects_and_bases(self) -> None:
        def pack(change: Callable[[PackWriter], object]) -> bytes:
            writer = PackWriter()
            writer.add("blob", b"base" * 100)
            change(writer)
            return writer.pack()

        small, large = copy_delta(400, [(0, 400)] * 3), copy_delta(400, [(0, 400)] * 20_000)
        for change, expected in (
            (lambda writer: writer.add_delta(0, small), True),
            (lambda writer: writer.add_ref_delta("1" * 40, small), True),
            # The result of a delta, its base, one object, all of them, and what the pack declares.
            (lambda writer: writer.add_delta(0, large), False),
            (lambda writer: writer.add_ref_delta("1" * 40, copy_delta(5 * MEGABYTE, [(0, 1)])), False),
            (lambda writer: writer.add_zeros(5 * MEGABYTE), False),
            (lambda writer: [writer.add_zeros(MEGABYTE) for _ in range(5)], False),
            (lambda writer: writer.add("blob", b"more", declared=2), False),
            (lambda writer: writer.add("blob", b"less", declared=20), False),
        ):
            assert has_only_small_objects(pack(change), MAX_BYTES) is expected
        assert not has_only_small_objects(pack(lambda writer: writer.add("blob", bytes(MAX_READ_BYTES), level=0)), MAX_BYTES)

    def test_git_never_unpacks_more(self, tmp_path: Path) -> None:
        """Of packs that are believed, git refuses those that contain something else than they declare."""
        believed = 0
        for seed in range(60):
            pack = hostile_packs.random_pack(seed, max_bytes=8 * MEGABYTE)
            if has_only_small_objects(pack.data, MAX_BYTES):
                folder = tmp_path / f"{seed}.git"
                git(tmp_path, "init", "-q", "--bare", str(folder))
                subprocess.run(["git", "index-pack", "--stdin"], cwd=folder, input=pack.data, capture_output=True, check=False)
                sizes = git(folder, "cat-file", "--batch-all-objects", "--batch-check=%(objectsize)").split()
                assert all(int(size) <= MAX_BYTES for size in sizes), (seed, pack.name)
                believed += bool(sizes)
        assert believed > 3
