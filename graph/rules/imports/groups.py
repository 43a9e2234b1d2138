"""Imported groups and the memberships in groups and projects."""

from collections.abc import Callable
from typing import Any

from sqlalchemy import select
from sqlmodel import col

from graph.errors import Invalid
from graph.rules import validation
from graph.rules.accounts import groups
from graph.rules.imports.batches import Batch, UnknownReference
from graph.rules.imports.item_kinds import TIMES, ImportField, ItemKind, UniqueKey, key_of, reference
from storage import tables
from storage.tables import AccessLevel, ImportKind, NamespaceKind
from storage.tables.base import Row


async def _prepare(batch: Batch) -> None:
    for item in batch.open_items:
        item.columns["path_key"] = item.columns["path"].lower()
        item.columns["kind"] = NamespaceKind.GROUP


async def _match(batch: Batch) -> None:
    """Find the groups of this instance that items are merged into, and refuse the ids of personal namespaces."""
    items = batch.open_items
    paths = {str(path).lower() for item in items if item.is_new and (path := item.values.get("merge_into"))}
    ids = [item.row_id for item in items if item.row_id is not None]
    row = tables.Namespace
    if not (paths or ids):
        return
    statement = select(col(row.path_key), col(row.id), col(row.kind)).where(col(row.path_key).in_(paths) | col(row.id).in_(ids))
    found = await batch.context.tuples(statement)
    existing = {path: row_id for path, row_id, kind in found if kind is NamespaceKind.GROUP}
    personal = {row_id for _, row_id, kind in found if kind is NamespaceKind.USER}
    for item in items:
        merge_into = item.values.get("merge_into")
        if item.row_id in personal:
            item.skip(Invalid("sourceId", "is the ID of a personal namespace"))
        elif item.is_new and merge_into:
            if (group_id := existing.get(merge_into.lower())) is None:
                item.skip(UnknownReference("mergeInto", f"there is no group {merge_into}"))
            else:
                item.merge(group_id)


GROUPS = ItemKind(
    kind=ImportKind.NAMESPACE,
    table=tables.Namespace,
    fields={
        "name": ImportField(validate=validation.validate_title, is_required=True),
        "path": ImportField(validate=validation.validate_namespace_path, is_required=True),
        "description": ImportField(default="", validate=lambda _, value: groups.validate_description(value)),
        **TIMES,
    },
    unique=(UniqueKey(("path_key",), "path"),),
    prepare=_prepare,
    match=_match,
)


def _level(_: str, value: AccessLevel) -> int:
    return int(value)


def _project_level(_: str, value: AccessLevel) -> int:
    """Projects have no members with the level of an owner here; newer servers have."""
    return min(int(value), int(AccessLevel.MASTER))


def _member_kind(kind: ImportKind, table: type[Row], parent: str, target: ImportKind, level: Callable[[str, Any], int]) -> ItemKind:
    """The memberships in one kind of parents, whose ids are in the column `parent`."""
    return ItemKind(
        kind=kind,
        table=table,
        fields={
            parent: reference(target),
            "user_id": reference(ImportKind.USER),
            "access_level": ImportField(validate=level, is_required=True),
            **TIMES,
        },
        key=key_of(parent, "user_id"),
        unique=(UniqueKey((parent, "user_id"), "userId"),),
        adopts=True,
    )


GROUP_MEMBERS = _member_kind(ImportKind.GROUP_MEMBER, tables.GroupMember, "group_id", ImportKind.NAMESPACE, _level)
PROJECT_MEMBERS = _member_kind(ImportKind.PROJECT_MEMBER, tables.ProjectMember, "project_id", ImportKind.PROJECT, _project_level)
