"""Repositories whose packs are in a bucket as parts of a dump. A pack has the same part, whether it is in a folder or in a bucket.

The packs are those of the snapshot, whatever the cache of this host has. A pack that was replaced meanwhile stays in the bucket for a grace
period; after it, the packs that replaced it have its objects.
"""

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from storage.dump import repository_parts
from storage.dump.dump_format import DumpError, Manifest
from storage.dump.dump_writer import DumpWriter
from storage.git.packing import pack_transfer, packs
from storage.git.packing.pack_transfer import PackLost
from storage.git.repository_cache import NO_PACKS, RepositoryCache
from storage.tables.git.packs import Pack

_COLUMNS = ("name", "key", "pack_bytes", "index_bytes", "sha256", "shallow")
STATEMENT = (
    "SELECT projects.id, EXISTS (SELECT 1 FROM refs WHERE refs.project_id = projects.id),"  # noqa: S608 - constants
    f" {', '.join(f'packs.{name}' for name in _COLUMNS)}"
    " FROM projects LEFT JOIN packs ON packs.project_id = projects.id AND packs.removed_at IS NULL ORDER BY projects.id, packs.id"
)
"""Selects a row for each pack of each project, or one without a pack."""


def read_projects(rows: Iterable[Sequence[Any]]) -> Iterator[tuple[int, list[Pack]]]:
    """Yields each project's id and packs from the rows of STATEMENT. Raises DumpError if a repository was not moved to the bucket yet."""
    for (project_id, has_refs), group in groupby(rows, lambda row: (row[0], row[1])):
        found = [Pack(project_id=project_id, **dict(zip(_COLUMNS, row[2:], strict=True))) for row in group if row[2] is not None]
        if has_refs and not found:
            raise DumpError(NO_PACKS.format(project_id))
        yield project_id, found


async def add_repository(writer: DumpWriter, manifest: Manifest, cache: RepositoryCache, project_id: int, stored: Sequence[Pack]) -> None:
    """Adds the packs of a project: from the folder of this host, else from the bucket.

    Raises PackLost, after the others were added, if one is in neither; PacksUnavailable if the bucket cannot be reached; OSError.
    """
    prefix, written, lost = f"{repository_parts.KIND}/{project_id}", set[str](), dict[str, PackLost]()
    current = stored
    while missing := [pack for pack in current if pack.name not in written and pack.key not in lost]:
        for pack in missing:
            try:
                await _add_pack(writer, manifest, prefix, cache, pack)
                written.add(pack.name)
            except PackLost as error:
                lost[pack.key] = error
        if lost:
            current = await cache.list_packs(project_id)
    # A project without packs was deleted.
    for pack in current or stored:
        if pack.name not in written:
            raise lost[pack.key]
    if shallow := pack_transfer.merge_shallow(current):
        repository_parts.add_shallow(writer, prefix, shallow)


async def _add_pack(writer: DumpWriter, manifest: Manifest, prefix: str, cache: RepositoryCache, pack: Pack) -> None:
    if writer.reuse(f"{prefix}/{pack.name}"):
        return
    copy = cache.path_of(pack.project_id)
    if pack_transfer.has_intact(copy, pack) and repository_parts.add_pack(writer, manifest, prefix, packs.folder_of(copy) / pack.name):
        return
    # A damaged object is found before any of it is written. The start of the service removes the folder of a killed process.
    with tempfile.TemporaryDirectory(prefix=".incoming-", dir=cache.root) as folder:
        downloaded = packs.folder_of(Path(folder))
        downloaded.mkdir(parents=True)
        await pack_transfer.download(cache.store, pack, Path(folder))
        repository_parts.add_pack(writer, manifest, prefix, downloaded / pack.name)
