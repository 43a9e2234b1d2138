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


def _is_whole(path: Path, oid: str) -> bool:
    """Whether a loose object unpacks to what its id is the SHA-1 of."""
    unpacker, digest = zlib.decompressobj(), hashlib.sha1(usedforsecurity=False)
    with path.open("rb") as file:
        while not unpacker.eof:
            data = unpacker.unconsumed_tail or file.read(READ_BYTES)
            try:
                piece = unpacker.decompress(data, READ_BYTES)
            except zlib.error:
                return False
            if not data and not piece:
                return False
            digest.update(piece)
    return digest.hexdigest() == oid
