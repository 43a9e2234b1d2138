"""Checks of artifacts and traces: whether every row has its file, and the file its size."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence, Set
from typing import Any, NamedTuple

from sqlalchemy import select
from sqlmodel import col

from forgefront.checks.bucket_check import list_keys
from forgefront.checks.check_report import CheckReport
from forgefront.config import Config
from storage import tables
from storage.database.engine import Database
from storage.objects.folder_store import FolderStore
from storage.objects.object_store import ObjectStore, open_store

PAGE_ROWS = 1_000
MAX_NAMED = 3
"""Builds that a finding names."""
KINDS: tuple[tuple[str, Any], ...] = (("artifacts", tables.Artifact), ("traces", tables.TracePart))


class _NamedObject(NamedTuple):
    """A row that names an object. `size` is in bytes."""

    id: int
    build_id: int
    size: int
    key: str


_Suspect = tuple[_NamedObject, int | None]
"""A row, and the size of its file; None without a file."""


async def check_artifacts(config: Config, database: Database, report: CheckReport) -> None:
    """Reports artifacts and parts of traces without a file, and, in a folder, those whose file has another size."""
    store = open_store(config.artifacts_url, config.artifacts, config.s3_settings)
    where = "the bucket" if store.is_remote else str(config.artifacts)
    total = 0
    try:
        keys = await list_keys(store) if store.is_remote else set()
        for kind, table in KINDS:
            suspects: list[_Suspect] = []
            async for rows in _read_rows(database, table):
                total += len(rows)
                suspects += await _find_suspects(store, keys, rows)
            if suspects and store.is_remote:
                # A file that was stored after the first listing.
                keys |= await list_keys(store)
                suspects = [(row, size) for row, size in suspects if row.key not in keys]
            # A file that was deleted meanwhile is no problem; its row is deleted before it.
            current = await _find_existing(database, table, [row.key for row, _ in suspects])
            _report(kind, where, [(row, size) for row, size in suspects if row.key in current], report)
    except OSError as error:
        remedy = "check FORGEFRONT_ARTIFACTS_URL and FORGEFRONT_S3_*" if store.is_remote else "make the user who runs the service its owner"
        report.add("artifacts", "bucket" if store.is_remote else where, f"it cannot be read: {error}", remedy)
    else:
        report.checked.append(f"{total} artifacts and parts of traces")
    finally:
        await store.close()


async def _find_suspects(store: ObjectStore, keys: Set[str], rows: Sequence[_NamedObject]) -> list[_Suspect]:
    """The rows without a file, or in a folder with one of another size. `keys` are those of a bucket. Raises OSError."""
    sizes: Mapping[str, int | None]
    if isinstance(store, FolderStore):
        sizes = await asyncio.to_thread(_read_sizes, store, rows)
    else:
        sizes = {row.key: row.size if row.key in keys else None for row in rows}
    return [(row, sizes[row.key]) for row in rows if sizes[row.key] != row.size]


def _report(kind: str, where: str, found: Sequence[_Suspect], report: CheckReport) -> None:
    remedy = "restore them from a backup; until then the service cannot send them"
    for is_missing, problem in ((True, "their files do not exist"), (False, "their files have another size than their rows name")):
        builds = sorted({row.build_id for row, size in found if (size is None) is is_missing})
        if builds:
            more = f" and {len(builds) - MAX_NAMED} more" if len(builds) > MAX_NAMED else ""
            named = f"{kind} of build{'s' if len(builds) > 1 else ''} {', '.join(map(str, builds[:MAX_NAMED]))}{more} ({where})"
            report.add("artifacts", named, problem, remedy)


def _read_sizes(store: FolderStore, rows: Sequence[_NamedObject]) -> dict[str, int | None]:
    """The sizes of the files of these rows; None for those that do not exist. Raises OSError."""
    found: dict[str, int | None] = {}
    for row in rows:
        try:
            found[row.key] = store.path_of(row.key).stat().st_size
        except FileNotFoundError:
            found[row.key] = None
    return found


async def _read_rows(database: Database, table: Any) -> AsyncIterator[list[_NamedObject]]:
    """The rows in pages, ordered by id."""
    last_id = 0
    while True:
        columns = (col(table.id), col(table.build_id), col(table.size), col(table.key))
        statement = select(*columns).where(col(table.id) > last_id).order_by(col(table.id)).limit(PAGE_ROWS)
        async with database.read_session() as session:
            rows = [_NamedObject(*row) for row in await session.read(statement)]
        if not rows:
            return
        yield rows
        last_id = rows[-1].id


async def _find_existing(database: Database, table: Any, keys: Sequence[str]) -> set[str]:
    """Those of the keys that rows name."""
    found: set[str] = set()
    for start in range(0, len(keys), PAGE_ROWS):
        async with database.read_session() as session:
            statement = select(col(table.key)).where(col(table.key).in_(keys[start : start + PAGE_ROWS]))
            found |= {key for (key,) in await session.read(statement)}
    return found
