"""Repositories in dumps: packs and loose objects, also while a repack replaces them."""

import io
from collections.abc import Iterator
from pathlib import Path

import pytest

from storage.dump import repository_parts
from storage.dump.dump_format import DamagedDump, Manifest
from storage.dump.dump_reader import DumpMember, DumpReader
from storage.dump.dump_writer import DumpWriter
from storage.git.packing import packs
from storage.git.repositories import Repositories
from storage.git.repository import NotARepository
from tests.storage.dump.test_dump_format import HEAD, LATER_HEAD, read_all
from tests.support.git.git_history import git, make_history


@pytest.fixture
def source(tmp_path: Path) -> Iterator[Repositories]:
    """Project 7 with three packs and some loose objects."""
    repositories = Repositories(tmp_path / "source")
    make_history(tmp_path / "history.git", commits=9)
    repositories.stage(None)
    path = repositories.path_of(7)
    repositories.promote(7, repositories.stage(tmp_path / "history.git"))
    for commit in range(2):
        tip = git(path, "commit-tree", "-p", "HEAD", "-m", f"packed {commit}", "HEAD^{tree}").strip()
        git(path, "update-ref", "HEAD", tip)
        git(path, "repack", "-d", "-q")
    tip = git(path, "commit-tree", "-p", "HEAD", "-m", "loose", "HEAD^{tree}").strip()
    git(path, "update-ref", "HEAD", tip)
    yield repositories
    repositories.close()


def dump(repositories: Repositories, earlier: Manifest | None = None) -> bytes:
    head = LATER_HEAD if earlier else HEAD
    writer = DumpWriter(output := io.BytesIO(), head, earlier)
    manifest = Manifest(head, [], "sqlite", "", parts=writer.parts)
    repository_parts.add_repository(writer, manifest, repositories.path_of(7), 7)
    writer.finish(manifest)
    return output.getvalue()


def restore(folder: Path, dumped: bytes) -> Path:
    repositories = Repositories(folder)
    for member in DumpReader("forge.tar", io.BytesIO(dumped)).members():
        repository_parts.restore_member(repositories, member)
    repositories.close()
    return repositories.path_of(7)


def objects_of(path: Path) -> list[str]:
    return sorted(git(path, "cat-file", "--batch-check", "--batch-all-objects").splitlines())


def parts_of(dumped: bytes) -> list[str]:
    return sorted(name.split("/")[2].split("-")[0] for name in read_all(dumped).parts)


class TestObjects:
    def test_are_all_restored(self, source: Repositories, tmp_path: Path) -> None:
        assert parts_of(dump(source)) == ["loose", "pack", "pack", "pack"]
        restored = restore(tmp_path / "restored", dump(source))
        assert objects_of(restored) == objects_of(source.path_of(7))
        git(restored, "fsck", "--strict", git(source.path_of(7), "rev-parse", "HEAD").strip())

    def test_survive_a_repack_after_the_loose_ones_are_listed(
        self, source: Repositories, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        expected = objects_of(source.path_of(7))
        find = packs.list_loose_objects

        def find_and_repack(repository: Path) -> list[str]:
            found = find(repository)
            assert found
            git(repository, "repack", "-a", "-d", "-q")
            return found

        monkeypatch.setattr(packs, "list_loose_objects", find_and_repack)
        dumped = dump(source)
        assert objects_of(restore(tmp_path / "restored", dumped)) == expected
        assert parts_of(dumped) == ["pack"]

    def test_survive_a_repack_after_the_packs_are_listed(
        self, source: Repositories, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        expected = objects_of(source.path_of(7))
        find, listings = packs.list_packs, []

        def find_and_repack(repository: Path) -> set[str]:
            listings.append(find(repository))
            if len(listings) == 1:
                git(repository, "repack", "-a", "-d", "-q")
            return listings[-1]

        monkeypatch.setattr(packs, "list_packs", find_and_repack)
        assert objects_of(restore(tmp_path / "restored", dump(source))) == expected
        assert [len(listing) for listing in listings] == [3, 1, 1]

    def test_of_a_shallow_repository(self, tmp_path: Path) -> None:
        make_history(tmp_path / "history.git", commits=9)
        git(tmp_path, "clone", "-q", "--bare", "--depth", "2", f"file://{tmp_path}/history.git", "shallow.git")
        repositories = Repositories(tmp_path / "source")
        repositories.root.mkdir()
        repositories.promote(7, repositories.stage(tmp_path / "shallow.git"))
        restored = restore(tmp_path / "restored", dump(repositories))
        repositories.close()
        assert (restored / "shallow").read_bytes() == (repositories.path_of(7) / "shallow").read_bytes()
        tip = git(repositories.path_of(7), "rev-parse", "HEAD").strip()
        assert git(restored, "rev-list", "--count", tip).strip() == "2"

    def test_missing_repository_raises(self, tmp_path: Path) -> None:
        repositories = Repositories(tmp_path)
        with pytest.raises(NotARepository):
            dump(repositories)
        repositories.close()


class TestIncrementalDump:
    def test_has_new_packs_only(self, source: Repositories) -> None:
        first = dump(source)
        git(source.path_of(7), "repack", "-q")
        second = dump(source, read_all(first))
        names = [member.part for member in DumpReader("later.tar", io.BytesIO(second)).members()]
        assert len(set(names)) == 1 and "/pack-" in names[0]
        assert len(second) < len(first)

    def test_of_an_unchanged_repository_is_empty(self, source: Repositories) -> None:
        later = dump(source, read_all(dump(source)))
        assert list(DumpReader("later.tar", io.BytesIO(later)).members()) == []


class TestDamage:
    @pytest.mark.parametrize("file", ["pack", "idx", "loose object"])
    def test_is_noted_until_it_is_repaired(self, source: Repositories, file: str) -> None:
        path = source.path_of(7)
        loose = packs.object_path(path, packs.list_loose_objects(path)[0])
        damaged = loose if file == "loose object" else next(packs.folder_of(path).glob(f"*.{file}"))
        content = damaged.read_bytes()
        damaged.chmod(0o600)
        for damage in (content[: len(content) // 2], content[:40] + bytes([content[40] ^ 1]) + content[41:], b"", content):
            damaged.write_bytes(damage)
            first = dump(source)
            manifest = read_all(first)
            name = loose.parent.name + loose.name if file == "loose object" else damaged.name
            expected = [] if damage == content else [f"projects 7: {name} is damaged: its contents do not match its checksum"]
            assert manifest.notes == expected
            assert len(manifest.damaged) == len(expected)
            # What is damaged is read again by a later dump of the chain, and everything else is not.
            later = dump(source, manifest)
            assert read_all(later).notes == expected
            assert {member.part for member in DumpReader("later.tar", io.BytesIO(later)).members()} == set(manifest.damaged)

        damaged.write_bytes(content[:-1])
        first = dump(source)
        damaged.write_bytes(content)
        later = dump(source, read_all(first))
        assert read_all(later).notes == [] and parts_of(later) == parts_of(first)
        assert [part.dump for part in read_all(later).parts.values()].count(LATER_HEAD.id) == 1


@pytest.mark.parametrize(
    ("part", "name"),
    [
        ("repositories/7/pack-../x", "pack"),
        ("repositories/../pack-" + "a" * 40, "pack"),
        ("repositories/7/pack-" + "a" * 40, "../../config"),
        ("repositories/7/loose-" + "a" * 16, "../hooks"),
        ("repositories/7/shallow-" + "a" * 16, "config"),
        ("repositories/0/loose-" + "a" * 16, "a" * 40),
    ],
)
def test_unknown_files_are_refused(part: str, name: str, tmp_path: Path) -> None:
    repositories = Repositories(tmp_path / "restored")
    with pytest.raises(DamagedDump, match="unknown"):
        repository_parts.restore_member(repositories, DumpMember(part, name, 0, iter(())))
    repositories.close()
