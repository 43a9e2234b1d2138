"""Traces and artifacts of imported builds: which are new, and their rows.

The objects are written before the transaction that inserts their rows (graph/rules/builds/stored_objects.py).
"""

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import delete, select
from sqlmodel import col

from graph.context import Context
from graph.errors import NotAllowed, UserError
from graph.rules.builds import stored_objects
from graph.rules.imports.batches import ItemResult, UnknownReference
from graph.rules.imports.instance_imports import lock_running
from graph.rules.imports.item_kinds import ImportOutcome
from storage import tables
from storage.database.statements import bulk_rows
from storage.tables import ImportKind, import_identities
from storage.tables.base import Row


@dataclass(frozen=True, slots=True)
class BuildFile:
    """A trace or an artifact whose object is written. `build_id` is the source's id of its build, `digest` that of `digest_of`."""

    build_id: str
    digest: str
    key: str
    size: int
    filename: str | None = None


FILE_TABLES: dict[ImportKind, type[Row]] = {ImportKind.TRACE: tables.TracePart, ImportKind.ARTIFACT: tables.Artifact}


def digest_of(context: Context, content_hash: "hashlib._Hash", filename: str = "") -> str:
    """A digest of what a file contains and how it is called."""
    return context.services.cipher.derive(f"imported file {filename}\n{content_hash.hexdigest()}")


async def find_unchanged(context: Context, import_id: int, kind: ImportKind, digests: Mapping[str, str]) -> dict[str, int]:
    """The ids of the builds, by their ids in the source, that have the files with these digests."""
    known = await context.tuples(import_identities.of_source_ids(import_id, {kind: digests.keys()}))
    found = {source_id: build_id for _, source_id, build_id, digest in known if digest == digests[source_id]}
    table: Any = FILE_TABLES[kind]
    # A retry or an erasure takes the file away from the build.
    existing = set(await context.all(select(col(table.build_id)).where(col(table.build_id).in_(found.values()))))
    return {source_id: build_id for source_id, build_id in found.items() if build_id in existing}


async def write_files(context: Context, import_id: int, kind: ImportKind, files: Sequence[BuildFile]) -> list[ItemResult]:
    """Make stored objects the files of their builds, in place of earlier ones. Raises Invalid, NotAllowed for the import.

    The objects of files that are skipped are erased after the commit.
    """
    await lock_running(context, import_id)
    named = [file.build_id for file in files]
    statement = import_identities.existing_for_key_share(import_id, ImportKind.BUILD, tables.Build, named)
    ids = dict(map(tuple, await context.tuples(statement)))
    row = tables.Build
    locked = select(row).where(col(row.id).in_(ids.values())).order_by(col(row.id)).with_for_update(key_share=True)
    builds = {build.id: build for build in await context.all(locked)}
    results = [_result_of(file, builds.get(ids.get(file.build_id, 0))) for file in files]
    written = [
        (file, builds[result.database_id])
        for file, result in zip(files, results, strict=True)
        if result.outcome is not ImportOutcome.SKIPPED and result.database_id is not None
    ]
    outdated = await _replace_rows(context, kind, written)
    skipped = [file.key for file, result in zip(files, results, strict=True) if result.outcome is ImportOutcome.SKIPPED]
    stored_objects.erase_after_commit(context, [*outdated.values(), *skipped])
    identities: list[dict[str, Any]] = [
        {"import_id": import_id, "kind": kind, "source_id": file.build_id, "database_id": build.id, "digest": file.digest}
        for file, build in written
    ]
    if identities:
        await context.session.execute(import_identities.upsert(context.services.database.dialect), identities)
    return [replace(result, outcome=ImportOutcome.UPDATED) if result.database_id in outdated else result for result in results]


def _result_of(file: BuildFile, build: tables.Build | None) -> ItemResult:
    error: UserError | None = None
    if build is None:
        error = UnknownReference("buildId", f"{file.build_id} was not imported")
    elif build.current_id is not None or build.erased_at is not None:
        error = NotAllowed("buildId", "The build was erased or superseded.")
    if error is not None:
        return ItemResult.skipped(file.build_id, error)
    return ItemResult(file.build_id, build.id if build is not None else None, ImportOutcome.CREATED, [])


async def _replace_rows(context: Context, kind: ImportKind, written: Collection[tuple[BuildFile, tables.Build]]) -> dict[int, str]:
    """Insert the rows of files, in place of those that their builds have; returns the keys of the objects of these, by build."""
    if not written:
        return {}
    table: Any = FILE_TABLES[kind]
    among = col(table.build_id).in_([build.id for _, build in written])
    outdated = dict(map(tuple, await context.tuples(select(col(table.build_id), col(table.key)).where(among))))
    if outdated:
        await context.session.execute(delete(table).where(among))
    ids = await bulk_rows.allocate_ids(context.session, table, len(written))
    rows = []
    for row_id, (file, build) in zip(ids, written, strict=True):
        columns: dict[str, Any] = {"id": row_id, "build_id": build.id, "key": file.key, "size": file.size}
        if kind is ImportKind.TRACE:
            build.trace_size, build.sealed_trace_end = file.size, None
            columns["start"] = 0
        else:
            created_at = build.finished_at or context.now()
            columns |= {"project_id": build.project_id, "filename": file.filename, "created_at": created_at}
        rows.append(columns)
    await context.session.flush()
    await bulk_rows.insert_rows(context.session, table, rows)
    return outdated
