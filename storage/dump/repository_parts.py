"""The objects of repositories as parts of a dump: each pack is a part, and all loose objects of a repository are one.

Objects are immutable and a repack removes none, so a repository that is read after the snapshot has all objects that its rows name. Loose
objects are read first, because a repack moves them into packs and never the other way. If a pack is removed before it is read, others have
its objects: the folder is listed again until all packs of one listing are written.
"""

import contextlib
import hashlib
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, BinaryIO

from storage.dump.dump_format import DamagedDump, Manifest
from storage.dump.dump_reader import DumpMember
from storage.dump.dump_writer import DumpWriter, PartWriter
from storage.git.packing import packs
from storage.git.packing.object_check import ObjectChecksum
from storage.git.packing.pack_checksum import PackChecksum
from storage.git.repositories import Repositories
from storage.git.repository import NotARepository, Repository

KIND = "repositories"
READ_BYTES = 2**20
_PACK = re.compile("pack-[0-9a-f]{40,64}")
_PART = re.compile(rf"{KIND}/([1-9][0-9]*)/(?:{_PACK.pattern}|loose-[0-9a-f]{{16}}|shallow-[0-9a-f]{{16}})")
_OID = re.compile("[0-9a-f]{40,64}")
REFS_STATEMENT = (
    "SELECT projects.id, refs.name, refs.oid FROM projects LEFT JOIN refs ON refs.project_id = projects.id ORDER BY projects.id, refs.id"
)
"""Selects a row for each ref of each project, or one without a ref."""


def read_projects(rows: Iterable[Sequence[Any]]) -> Iterator[tuple[int, dict[str, str]]]:
    """Yields each project's id and the objects of its refs by name, from the rows of REFS_STATEMENT."""
    for project_id, group in groupby(rows, lambda row: row[0]):
        yield project_id, {name: oid for _, name, oid in group if name is not None}


def add_repository(writer: DumpWriter, manifest: Manifest, path: Path, project_id: int) -> None:
    """Adds the objects of the repository at `path`. The manifest gets what is damaged, which is added all the same.

    Raises NotARepository if there is none, or if it is removed meanwhile, OSError.
    """
    if not (path / "objects").is_dir():
        raise NotARepository(f"{path} does not exist")
    prefix = f"{KIND}/{project_id}"
    _add_loose_objects(writer, manifest, prefix, path)
    written = set[str]()
    while missing := sorted(filter(_PACK.fullmatch, packs.list_packs(path) - written)):
        for name in missing:
            if not writer.reuse(f"{prefix}/{name}") and not add_pack(writer, manifest, prefix, packs.folder_of(path) / name):
                break
            written.add(name)
    with contextlib.suppress(FileNotFoundError):
        add_shallow(writer, prefix, (path / packs.SHALLOW).read_bytes())
    if not path.is_dir():
        raise NotARepository(f"{path} was removed")


def describe_missing_objects(path: Path, refs: Mapping[str, str]) -> str | None:
    """Says which of the refs name an object that the repository at `path` lacks, as after the loss of a pack; None if it has them all.

    No row names the packs of a folder, so a lost one is found by what it had. Raises NotARepository.
    """
    repository = Repository.open(path)
    try:
        missing = [name for name, oid in refs.items() if oid not in repository.handle]
    finally:
        repository.handle.free()
    if not missing:
        return None
    more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
    return f"the objects of these refs are missing: {', '.join(missing[:3])}{more}"


def add_shallow(writer: DumpWriter, prefix: str, shallow: bytes) -> None:
    """Adds the file `shallow`."""
    writer.add_chunk(f"{prefix}/{packs.SHALLOW}-{_digest([shallow])}", packs.SHALLOW, shallow)


def project_of(part: str) -> int:
    """Returns the id of the project that a part belongs to. Raises DamagedDump."""
    found = _PART.fullmatch(part)
    if found is None:
        raise DamagedDump(f"the dump has an unknown part {part}")
    return int(found[1])


def restore_member(repositories: Repositories, member: DumpMember) -> None:
    """Writes a file of a repository, which is created with its first one. Raises DamagedDump for an unknown file, OSError."""
    path, name = repositories.path_of(project_of(member.part)), member.part.rpartition("/")[2]
    pack = name if name.startswith("pack-") else None
    if not path.exists():
        Repository.create(path).handle.free()
    if pack and member.name in ("pack", "idx"):
        target = packs.folder_of(path) / f"{pack}.{member.name}"
    elif not pack and member.name == packs.SHALLOW:
        target = path / packs.SHALLOW
    elif not pack and _OID.fullmatch(member.name):
        target = packs.object_path(path, member.name)
    else:
        raise DamagedDump(f"the dump has an unknown file {member.part}/{member.name}")
    write_file(target, member.chunks, mode=0o600 if target.name == packs.SHALLOW else 0o400)


def write_file(target: Path, chunks: Iterable[bytes], mode: int = 0o600) -> None:
    """Writes a new file. It is not synced to disk: the restoration syncs all files at once. Raises OSError."""
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with os.fdopen(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode), "wb") as file:
        for data in chunks:
            file.write(data)


def _add_loose_objects(writer: DumpWriter, manifest: Manifest, prefix: str, repository: Path) -> None:
    ids = sorted(packs.list_loose_objects(repository))
    name = f"{prefix}/loose-{_digest(oid.encode() for oid in ids)}"
    if not ids or writer.reuse(name):
        return
    with writer.add_part(name) as part:
        for oid in ids:
            # A repack has moved it into a pack.
            with contextlib.suppress(FileNotFoundError), packs.object_path(repository, oid).open("rb") as file:
                checksum = ObjectChecksum()
                _copy(part, oid, file, checksum.update)
                if not checksum.matches(oid):
                    _note_damage(manifest, name, oid)


def add_pack(writer: DumpWriter, manifest: Manifest, prefix: str, path: Path) -> bool:
    """Adds the pack at `path`, which has no suffix. Returns False if it does not exist. The manifest gets whether it is damaged."""
    try:
        with (
            path.with_suffix(".idx").open("rb") as index,
            path.with_suffix(".pack").open("rb") as pack,
            writer.add_part(f"{prefix}/{path.name}") as part,
        ):
            # As in the object of a bucket.
            for name, file in (("pack", pack), ("idx", index)):
                checksum = PackChecksum()
                _copy(part, name, file, checksum.update)
                if not checksum.is_complete:
                    _note_damage(manifest, f"{prefix}/{path.name}", f"{path.name}.{name}")
    except FileNotFoundError:
        return False
    return True


def _copy(part: PartWriter, name: str, file: BinaryIO, verify: Callable[[bytes], None]) -> None:
    """Adds a file. Calls `verify` with each block of it, so that no file is read twice."""
    part.begin_file(name, os.fstat(file.fileno()).st_size)
    while data := file.read(READ_BYTES):
        part.write(data)
        verify(data)
    part.end_file()


def _note_damage(manifest: Manifest, part: str, file: str) -> None:
    manifest.note_damage(part, f"projects {project_of(part)}: {file} is damaged: its contents do not match its checksum")


def _digest(parts: Iterable[bytes]) -> str:
    """Identifies immutable files by what they are named, or contain."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part + b"\0")
    return digest.hexdigest()[:16]
