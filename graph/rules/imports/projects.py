"""Imported projects, each with an empty repository, into which `repositories.py` imports the source's.

Empty repositories are made in folders of no project before the transaction begins, so that no writer waits for the disk; the transaction
renames them (`graph/rules/projects/projects.py` has the reasons).
"""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sqlalchemy import select
from sqlmodel import col

from graph.context import Context
from graph.errors import Required
from graph.rules import validation
from graph.rules.imports import instance_imports
from graph.rules.imports.batches import Batch, ItemResult, UnknownReference, digest_of, write_items
from graph.rules.imports.item_kinds import CREATED_AT, TIMES, ImportField, ImportOutcome, ItemKind, UniqueKey, key_of, reference
from graph.rules.projects import projects
from graph.rules.settings import validate_url
from storage import tables
from storage.database.statements import bulk_rows
from storage.git.refs import projection
from storage.git.refs.projection import RefProjection
from storage.git.refs.ref_names import DEFAULT_HEAD
from storage.tables import ImportKind, Visibility, import_identities


def _validate_description(field: str, value: str) -> str | None:
    return validation.validate_string(field, value) or None


FIELDS: dict[str, ImportField] = {
    "namespace_id": reference(ImportKind.NAMESPACE),
    "creator_id": reference(ImportKind.USER, is_required=False),
    "forked_from_id": reference(ImportKind.PROJECT, is_required=False),
    "name": ImportField(validate=validation.validate_project_name, is_required=True),
    "path": ImportField(validate=validation.validate_project_path, is_required=True),
    "description": ImportField(validate=_validate_description),
    "visibility": ImportField(column="visibility_level", default=int(Visibility.PRIVATE), validate=lambda _, value: int(value)),
    "default_branch": ImportField(
        column="unborn_branch", is_initial=True, default=DEFAULT_HEAD, validate=lambda _, value: projects.validate_branch_name(value)
    ),
    **{name: ImportField(default=True) for name in projects.FEATURE_COLUMNS},
    "archived": ImportField(default=False),
    "avatar_url": ImportField(validate=validate_url),
    "tag_list": ImportField(default=[], validate=lambda _, value: projects.validate_tags(value)),
    "last_activity_at": ImportField(),
    **TIMES,
}


async def _prepare(batch: Batch) -> None:
    paths = {str(path).lower() for item in batch.open_items if (path := item.values.get("namespace_path"))}
    row = tables.Namespace
    statement = select(col(row.path_key), col(row.id)).where(col(row.path_key).in_(paths))
    found: dict[str, int] = dict(await batch.context.tuples(statement)) if paths else {}
    for item in batch.open_items:
        columns, path = item.columns, item.values.get("namespace_path")
        if path and item.values.get("namespace_id") is None:
            columns["namespace_id"] = found.get(path.lower())
        if columns["namespace_id"] is None:
            item.skip(UnknownReference("namespacePath", f"there is no namespace {path}") if path else Required("namespaceId"))
            continue
        columns["path_key"] = columns["path"].lower()
        columns["last_activity_at"] = columns["last_activity_at"] or columns["updated_at"] or item.initial["created_at"]


async def _link_forks(batch: Batch) -> None:
    """Link the forks of projects of the same batch, which had no ids when the references were looked up."""
    ids = {item.key: item.row_id for item in batch.items if item.row_id is not None and item.outcome is not ImportOutcome.SKIPPED}
    linked: dict[int, dict[str, Any]] = {}
    for item in batch.written_items:
        source_id = ids.get(str(item.values.get("forked_from_id")))
        if item.columns["forked_from_id"] is None and source_id is not None and source_id != item.row_id:
            item.columns["forked_from_id"] = source_id
            item.errors = [error for error in item.errors if error.field != "forkedFromId"]
            item.digest = digest_of(batch, item)
            linked[item.row_id or 0] = {"forked_from_id": source_id}
    await bulk_rows.update_rows(batch.context.session, tables.Project, linked)


async def import_projects(context: Context, import_id: int, items: Sequence[Mapping[str, Any]]) -> list[ItemResult]:
    """Import projects. Raises Forbidden, LimitExceeded, Invalid, NotAllowed, Unavailable."""
    await instance_imports.require_batch(context, items)
    keys = {str(values["source_id"]) for values in items}
    async with context.read_only() as reader:
        known = await reader.tuples(import_identities.of_source_ids(import_id, {ImportKind.PROJECT: keys}))
    folders = _EmptyRepositories(context)
    try:
        await folders.make(len(keys) - len(known))
        running = await instance_imports.lock_running(context, import_id)
        kind = ItemKind(**{**vars(PROJECTS), "write_related": folders.install})
        return await write_items(context, running, kind, items)
    finally:
        await folders.discard()


class _EmptyRepositories:
    """Repositories that belong to no project yet."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._folders: list[Path] = []

    async def make(self, count: int) -> None:
        self._folders += await asyncio.to_thread(self._stage, count)

    def _stage(self, count: int) -> list[Path]:
        return [self._context.services.repositories.stage(None) for _ in range(count)]

    async def install(self, batch: Batch) -> None:
        """Give each new project a repository; undone when the transaction is rolled back."""
        created = [item for item in batch.written_items if item.outcome is ImportOutcome.CREATED]
        # A project that was deleted here has an identity, and no repository was made for it.
        await self.make(len(created) - len(self._folders))
        for item in created:
            assert item.row_id is not None, "it was written"  # noqa: S101
            projects.undo_install_after_rollback(self._context, item.row_id)
        heads = [(item.row_id or 0, item.initial["unborn_branch"], self._folders.pop()) for item in created]
        await asyncio.to_thread(self._promote, heads)
        await _link_forks(batch)

    def _promote(self, heads: Sequence[tuple[int, str, Path]]) -> None:
        for project_id, head, folder in heads:
            projection.write(folder, RefProjection(1, head, []))
            self._context.services.repositories.promote(project_id, folder)

    async def discard(self) -> None:
        for folder in self._folders:
            await asyncio.to_thread(self._context.services.repositories.discard, folder)


PROJECTS = ItemKind(
    kind=ImportKind.PROJECT,
    table=tables.Project,
    fields=FIELDS,
    unique=(UniqueKey(("namespace_id", "path_key"), "path"),),
    reuses_ids=True,
    prepare=_prepare,
)
STARS = ItemKind(
    kind=ImportKind.PROJECT_STAR,
    table=tables.ProjectStar,
    fields={"project_id": reference(ImportKind.PROJECT), "user_id": reference(ImportKind.USER), "created_at": CREATED_AT},
    key=key_of("project_id", "user_id"),
    unique=(UniqueKey(("project_id", "user_id"), "userId"),),
    adopts=True,
)
