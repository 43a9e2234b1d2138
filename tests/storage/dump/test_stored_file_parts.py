"""Artifacts, traces and uploads in dumps: what is deleted, joined or damaged meanwhile, and both kinds of stores."""

import io
from pathlib import Path
from typing import Any

import pytest

from storage import tables
from storage.dump.dump_format import DamagedDump, Manifest
from storage.dump.dump_reader import DumpMember, DumpReader
from storage.dump.dump_writer import DumpWriter
from storage.dump.stored_file_parts import (
    ARTIFACTS,
    GROUP_ROWS,
    MAX_GROUPED_BYTES,
    TRACES,
    UPLOADS,
    NamedFile,
    StoredFileDump,
    StoredFileRestore,
)
from storage.objects.folder_store import FolderStore
from storage.objects.object_store import new_key
from storage.objects.uploads import UploadStore
from tests.make import DataFactory
from tests.storage.dump.test_dump_format import HEAD, LATER_HEAD


class FileDump:
    """Dumps files of the services of `make`."""

    def __init__(self, make: DataFactory, earlier: Manifest | None = None) -> None:
        self.output = io.BytesIO()
        head = LATER_HEAD if earlier else HEAD
        self.writer = DumpWriter(self.output, head, earlier)
        self.manifest = Manifest(head, [], "sqlite", "", parts=self.writer.parts)
        services = make.services
        self._dump = StoredFileDump(self.writer, self.manifest, services.database, services.objects, services.uploads)
        self.reported: list[int] = []

    async def add(self, table: str, *files: NamedFile) -> None:
        await self._dump.add(table, files, self.reported.append)

    def contents(self) -> dict[str, bytes]:
        """Ends the dump, and returns the contents of its files by name."""
        self.writer.finish(self.manifest)
        return {member.name: member.read() for member in DumpReader("forge.tar", io.BytesIO(self.output.getvalue())).members()}


def named(row: Any, key: str, owner: int = 0, start: int = 0) -> NamedFile:
    return NamedFile(row.id, row.size, key, owner, start)


def files_below(folder: Path) -> list[Path]:
    return list(folder.rglob("*"))


@pytest.fixture
async def build(make: DataFactory) -> tables.Build:
    return await make.build(await make.project(), "a" * 40)


class TestFiles:
    async def test_small_ones_are_grouped(self, make: DataFactory) -> None:
        files, contents = [], {}
        for id, size in ((1, 10), (2, MAX_GROUPED_BYTES + 1), (GROUP_ROWS - 1, 20), (GROUP_ROWS, 30)):
            key = new_key()
            contents[key] = bytes([id]) * size
            await make.services.objects.put_bytes(key, contents[key])
            files.append(NamedFile(id, size, key))
        dump = FileDump(make)
        await dump.add(ARTIFACTS, *files)
        assert dump.contents() == contents
        assert sorted(part.files for part in dump.writer.parts.values()) == [1, 1, 2]
        assert dump.reported == [3, 4]

        later = FileDump(make, dump.manifest)
        await later.add(ARTIFACTS, *files)
        assert later.contents() == {}
        assert later.writer.parts == dump.writer.parts

    async def test_of_uploads(self, make: DataFactory, build: tables.Build) -> None:
        project = await make.project()
        small, large = await make.upload(project, b"small"), await make.upload(project, bytes(MAX_GROUPED_BYTES + 1))
        dump = FileDump(make)
        await dump.add(UPLOADS, *(named(upload, upload.secret, project.id) for upload in (small, large)))
        assert dump.contents() == {f"{project.id}-{small.secret}": b"small", f"{project.id}-{large.secret}": bytes(MAX_GROUPED_BYTES + 1)}


class TestMeanwhile:
    async def test_a_joined_trace_is_read_from_the_joined_object(self, make: DataFactory, build: tables.Build) -> None:
        joined = tables.TracePart(build_id=build.id, start=0, size=11, key=new_key())
        await make.services.objects.put_bytes(joined.key, b"one two six")
        await make.save(joined)
        dump = FileDump(make)
        keys = [new_key() for _ in range(3)]
        parts = [NamedFile(90 + number, 3, key, build.id, number * 4) for number, key in enumerate(keys)]
        await dump.add(TRACES, *parts)
        assert dump.contents() == dict(zip(keys, (b"one", b"two", b"six"), strict=True))
        assert dump.manifest.deleted == {} and dump.manifest.notes == []

    @pytest.mark.parametrize("size", [3, MAX_GROUPED_BYTES + 1])
    async def test_a_deleted_row_is_recorded(self, make: DataFactory, build: tables.Build, size: int) -> None:
        dump = FileDump(make)
        await dump.add(ARTIFACTS, NamedFile(900, size, new_key()))
        await dump.add(TRACES, NamedFile(901, size, new_key(), build.id))
        await dump.add(UPLOADS, NamedFile(902, size, new_key(), build.project_id))
        assert dump.contents() == {} and dump.writer.parts == {}
        assert dump.manifest.deleted == {"artifacts": [900], "trace_parts": [901], "uploads": [902]}
        assert dump.manifest.notes == []

    @pytest.mark.parametrize("size", [3, MAX_GROUPED_BYTES + 1])
    async def test_a_missing_file_is_noted(self, make: DataFactory, build: tables.Build, size: int) -> None:
        artifact = await make.artifact(build, bytes(size))
        await make.services.objects.delete(artifact.key)
        dump = FileDump(make)
        await dump.add(ARTIFACTS, named(artifact, artifact.key))
        assert dump.manifest.deleted == {}
        assert dump.manifest.notes == [f"artifacts {artifact.id}: its file {artifact.key} does not exist"]

    @pytest.mark.parametrize("size", [3, MAX_GROUPED_BYTES + 1])
    async def test_a_short_file_is_noted(self, make: DataFactory, build: tables.Build, size: int) -> None:
        artifact = await make.artifact(build, b"x" * (size - 1), size=size)
        dump = FileDump(make)
        await dump.add(ARTIFACTS, named(artifact, artifact.key))
        assert dump.contents() == {artifact.key: b"x" * (size - 1) + b"\0"}
        assert len(dump.manifest.notes) == 1 and str(artifact.id) in dump.manifest.notes[0]

    @pytest.mark.parametrize("size", [3, MAX_GROUPED_BYTES + 1])
    async def test_a_long_file_is_noted(self, make: DataFactory, build: tables.Build, size: int) -> None:
        artifact = await make.artifact(build, b"x" * (size + 1), size=size)
        dump = FileDump(make)
        await dump.add(ARTIFACTS, named(artifact, artifact.key))
        assert dump.contents() == {artifact.key: b"x" * size}
        assert dump.manifest.notes == [f"artifacts {artifact.id}: its file has {size + 1} bytes, not {size}"]

    @pytest.mark.parametrize("size", [3, MAX_GROUPED_BYTES + 1])
    @pytest.mark.parametrize("damage", ["missing", "short"])
    async def test_a_damaged_file_is_read_again_by_a_later_dump(
        self, make: DataFactory, build: tables.Build, size: int, damage: str
    ) -> None:
        intact = await make.artifact(build, b"y" * size)
        artifact = await make.artifact(await make.build(await make.project(), "b" * 40), b"x" * (size - 1), size=size)
        if damage == "missing":
            await make.services.objects.delete(artifact.key)
        files = [named(row, row.key) for row in (intact, artifact)]
        first = FileDump(make)
        await first.add(ARTIFACTS, *files)
        second = FileDump(make, first.manifest)
        await second.add(ARTIFACTS, *files)
        assert second.manifest.notes == first.manifest.notes != []

        if damage == "short":
            await make.services.objects.delete(artifact.key)
        await make.services.objects.put_bytes(artifact.key, b"x" * size)
        third = FileDump(make, second.manifest)
        await third.add(ARTIFACTS, *files)
        assert third.contents()[artifact.key] == b"x" * size
        assert third.manifest.notes == third.manifest.damaged == []


class TestRestore:
    async def test_into_a_folder(self, tmp_path: Path) -> None:
        objects, uploads = FolderStore(tmp_path / "artifacts"), UploadStore(tmp_path / "uploads")
        restore, key = StoredFileRestore(objects, uploads), new_key()
        await restore.restore_member(DumpMember("artifacts/0-a", key, 3, iter((b"a", b"bc"))))
        await restore.restore_member(DumpMember("uploads/0-a", f"5-{key}", 2, iter((b"de",))))
        assert await objects.read(key) == b"abc"
        with uploads.open(5, key) as file:
            assert file.read() == b"de"

    @pytest.mark.parametrize(
        ("part", "name"),
        [
            ("artifacts/0-a", "../../secret.key"),
            ("artifacts/0-a", "a" * 31),
            ("uploads/0-a", "a" * 32),
            ("uploads/0-a", "5-" + "g" * 32),
            ("unknown/0-a", "a" * 32),
        ],
    )
    async def test_unknown_files_are_refused(self, part: str, name: str, tmp_path: Path) -> None:
        restore = StoredFileRestore(FolderStore(tmp_path / "artifacts"), UploadStore(tmp_path / "uploads"))
        with pytest.raises(DamagedDump, match="unknown file"):
            await restore.restore_member(DumpMember(part, name, 0, iter(())))
        assert files_below(tmp_path) == []
