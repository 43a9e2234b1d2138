"""The packs of a repository's folder: which it has, and packing what is not in a pack yet.

In a folder whose packs are in a bucket, the file `published` names those that are there, a line each. An object is published once a pack
with it is; a pack that is not published is not yet in the bucket, however old it is.
"""

import contextlib
import os
import re
from collections.abc import Collection, Iterable
from pathlib import Path

from storage.disk_sync import replace_file
from storage.git.subprocesses import git_command

PACK_SECONDS = 600.0
ID_BYTES = 20
"""Of the binary form of an object id (SHA-1)."""
SHALLOW = "shallow"
"""The file of a repository that was imported from a shallow one: the commits whose parents it does not have."""
_PUBLISHED = "published"
_OBJECT_COUNT_OFFSET = 8 + 255 * 4
"""The last entry of the table of an index that counts objects by their first byte (gitformat-pack, version 2)."""
_SHARD = re.compile("[0-9a-f]{2}")
_OBJECT = re.compile("[0-9a-f]{38,62}")


def folder_of(repository: Path) -> Path:
    """Returns the folder with the packs of the repository at this path."""
    return repository / "objects" / "pack"


def list_packs(repository: Path) -> set[str]:
    """Returns the names of the packs that have an index, as `pack-0123…`."""
    try:
        names = {path.name for path in folder_of(repository).iterdir()}
    except FileNotFoundError:
        return set()
    return {name.removesuffix(".idx") for name in names if name.endswith(".idx") and name.removesuffix("idx") + "pack" in names}


def list_loose_objects(repository: Path) -> list[str]:
    """Returns the ids of the objects that have files of their own."""
    try:
        shards = [path for path in (repository / "objects").iterdir() if _SHARD.fullmatch(path.name)]
    except FileNotFoundError:
        return []
    found = []
    for shard in shards:
        # A repack removes folders that have become empty.
        with contextlib.suppress(FileNotFoundError):
            found += [shard.name + path.name for path in shard.iterdir() if _OBJECT.fullmatch(path.name)]
    return found


def object_path(repository: Path, oid: str) -> Path:
    """Returns the file that an object has while it is in no pack."""
    return repository / "objects" / oid[:2] / oid[2:]


def pack_loose_objects(repository: Path) -> None:
    """Moves the objects with files of their own into one pack. Raises GitCommandError, OSError (ENOSPC)."""
    ids = list_loose_objects(repository)
    if not ids:
        return
    stdin = "".join(f"{oid}\n" for oid in ids).encode()
    target = str(folder_of(repository.absolute()) / "pack")
    git_command.run(repository, "-c", "safe.directory=*", "pack-objects", "--quiet", target, stdin=stdin, seconds=PACK_SECONDS)
    for oid in ids:
        object_path(repository, oid).unlink(missing_ok=True)


def count_objects(repository: Path, name: str) -> int:
    """Returns the number of objects of a pack, from its index. Raises OSError."""
    with (folder_of(repository) / f"{name}.idx").open("rb") as file:
        file.seek(_OBJECT_COUNT_OFFSET)
        return int.from_bytes(file.read(4))


def read_published(repository: Path) -> set[str]:
    """Returns the names of the packs that are, or were, in the bucket."""
    try:
        return set((repository / _PUBLISHED).read_text("ascii").split())
    except FileNotFoundError:
        return set()


def write_published(repository: Path, names: Iterable[str]) -> None:
    """Replaces the list of published packs. The caller has locked it. Raises OSError."""
    replace_file(repository / _PUBLISHED, "".join(f"{name}\n" for name in sorted(names)).encode("ascii"))


def has_unpublished(repository: Path) -> bool:
    """Whether the folder has objects that are not in the bucket."""
    # Loose objects first: a repack moves them into packs, never the other way.
    return bool(list_loose_objects(repository) or list_packs(repository) - read_published(repository))


def remove_packs(repository: Path, names: Collection[str]) -> None:
    """Deletes packs, their indexes last written first, so that none is found without its pack."""
    for name in names:
        for path in (folder_of(repository) / f"{name}.idx", *folder_of(repository).glob(f"{name}.*")):
            path.unlink(missing_ok=True)


def size_of(repository: Path) -> int:
    """Returns the bytes of the packs. Files that disappear meanwhile do not count."""
    total = 0
    try:
        with os.scandir(folder_of(repository)) as entries:
            for entry in entries:
                try:
                    total += entry.stat().st_size
                except FileNotFoundError:
                    continue
    except FileNotFoundError:
        return 0
    return total
