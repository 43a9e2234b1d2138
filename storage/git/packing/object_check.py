"""Verifies the contents of all objects of a repository's folder. A check of connectivity reads commits and trees, but no files."""

import hashlib
import zlib
from collections.abc import Iterator
from pathlib import Path

from storage.git.packing import packs
from storage.git.subprocesses import git_command
from storage.git.subprocesses.git_command import GitCommandError

VERIFY_SECONDS = 3600.0
READ_BYTES = 2**20


def find_damaged_objects(repository: Path) -> Iterator[str]:
    """Yields a line for each pack and each loose object that is damaged. It may run beside pushes and repacks. Raises OSError."""
    for name in sorted(packs.list_packs(repository)):
        index = packs.folder_of(repository.absolute()) / f"{name}.idx"
        try:
            git_command.run(repository, "verify-pack", str(index), seconds=VERIFY_SECONDS)
        except GitCommandError as error:
            # A repack may have removed it meanwhile.
            if index.exists():
                yield f"{name}: {(str(error).splitlines() or ['it is damaged'])[0]}"
    for oid in sorted(packs.list_loose_objects(repository)):
        try:
            is_whole = _is_whole(packs.object_path(repository, oid), oid)
        except FileNotFoundError:
            continue
        if not is_whole:
            yield f"{oid}: its contents do not match its id"


class ObjectChecksum:
    """Verifies a loose object that is read block by block: it unpacks to what its id is the SHA-1 of."""

    def __init__(self) -> None:
        self._unpacker = zlib.decompressobj()
        self._digest = hashlib.sha1(usedforsecurity=False)
        self._is_damaged = False

    def update(self, data: bytes) -> None:
        while not self._is_damaged:
            try:
                piece = self._unpacker.decompress(data, READ_BYTES)
            except zlib.error:
                self._is_damaged = True
                return
            self._digest.update(piece)
            data = self._unpacker.unconsumed_tail
            if not data and len(piece) < READ_BYTES:
                return

    def matches(self, oid: str) -> bool:
        """Whether the object is complete, and the one with this id."""
        return self._unpacker.eof and not self._is_damaged and self._digest.hexdigest() == oid


def _is_whole(path: Path, oid: str) -> bool:
    checksum = ObjectChecksum()
    with path.open("rb") as file:
        while data := file.read(READ_BYTES):
            checksum.update(data)
    return checksum.matches(oid)
