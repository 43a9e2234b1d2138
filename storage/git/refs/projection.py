"""The refs of a repository as git reads them: one `packed-refs` file, written whole from the database and renamed into place.

Its first line contains the version of the refs that it shows (`Project.refs_version`), as a trait that git ignores. There are no loose
refs and no lock files: writers of one host wait for each other by flock(2) on the repository's folder, which a killed process releases.
"""

import asyncio
import contextlib
import fcntl
import os
import re
import shutil
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from storage.disk_sync import replace_file
from storage.git.refs.ref_names import BRANCHES

_VERSION = re.compile(rb"# pack-refs with: [^\n]*\bforgefront-version-(\d+) ")
_MAX_HEADER_BYTES = 200
LOCK_POLL_SECONDS = 0.005


@dataclass(frozen=True, slots=True)
class RefProjection:
    """All refs of a project at one version. `head` is the branch of HEAD; `refs` are (complete name, object id, peeled id or None)."""

    version: int
    head: str
    refs: Sequence[tuple[str, str, str | None]]

    def render(self) -> bytes:
        """Returns the contents of `packed-refs`, sorted by the bytes of the names (git-pack-refs)."""
        lines = [f"# pack-refs with: peeled fully-peeled sorted forgefront-version-{self.version} \n".encode()]
        for name, oid, peeled in sorted((name.encode(), oid, peeled) for name, oid, peeled in self.refs):
            lines.append(oid.encode() + b" " + name + b"\n")
            if peeled is not None:
                lines.append(b"^" + peeled.encode() + b"\n")
        return b"".join(lines)


def read_version(path: Path) -> int | None:
    """Returns the version that the repository at `path` shows; None if its refs were not written from the database."""
    try:
        with (path / "packed-refs").open("rb") as file:
            match = _VERSION.match(file.read(_MAX_HEADER_BYTES))
    except (FileNotFoundError, NotADirectoryError):
        return None
    return int(match[1]) if match else None


@contextlib.asynccontextmanager
async def lock(path: Path) -> AsyncIterator[None]:
    """Locks the projection of the repository at `path`, in all processes of the host; a killed process releases it. Raises OSError."""
    folder = os.open(path, os.O_RDONLY)
    try:
        while True:
            try:
                fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                await asyncio.sleep(LOCK_POLL_SECONDS)
        yield
    finally:
        os.close(folder)


def write(path: Path, projection: RefProjection) -> None:
    """Writes the refs of the repository at `path`, which the caller has locked. Raises OSError.

    The first projection also removes the loose refs, which the database has adopted; nobody reads the repository before it.
    """
    if read_version(path) is None:
        _remove_all_loose_refs(path)
    replace_file(path / "HEAD", f"ref: {BRANCHES}{projection.head}\n".encode())
    replace_file(path / "packed-refs", projection.render())


def remove_loose_refs(path: Path, adopted: Mapping[str, str]) -> None:
    """Removes the loose refs that have these values, by complete name; others, which were written since, stay."""
    for name, oid in adopted.items():
        with contextlib.suppress(FileNotFoundError, NotADirectoryError, IsADirectoryError):
            if (path / name).read_text("ascii", "replace").strip() == oid:
                (path / name).unlink()


def _remove_all_loose_refs(path: Path) -> None:
    for folder in (path / "refs").iterdir():
        if folder.is_dir():
            shutil.rmtree(folder)
    # Without its folder `refs/` git does not recognize a repository.
    (path / "refs" / "heads").mkdir()
