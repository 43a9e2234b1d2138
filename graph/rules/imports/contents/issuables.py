"""What issues and merge requests of an import have in common: labels, milestones and numbers."""

from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import insert, select
from sqlmodel import col

from graph.context import Context
from graph.errors import Invalid, NotAllowed, UserError
from graph.rules import validation
from graph.rules.imports.batches import Batch
from graph.rules.imports.item_kinds import AUTHOR, TIMES, ImportField, Item, UniqueKey, reference
from graph.rules.imports.numbers import raise_counters, validate_iid
from graph.rules.issues.issues import DEFAULT_LABEL_COLOR, LABEL_FOREIGN_KEYS
from storage import tables
from storage.tables import CounterKind, ImportKind, import_identities
from storage.tables.issues import labels


def validate_text(field: str, value: str) -> str | None:
    """A long string; an empty one is stored as None. Raises Invalid."""
    return validation.validate_string(field, value) or None


async def skip_confidential(batch: Batch) -> None:
    """Skip what only some people may see in the source: here everybody could who may see the rest."""
    items = [item for item in batch.open_items if item.values.get("confidential")]
    if not items:
        return
    kind, keys = batch.kind, {item.key for item in items}
    existing = await batch.context.tuples(import_identities.existing_for_key_share(batch.running.id, kind.kind, kind.table, keys))
    readable = {key for key, _ in existing}
    for item in items:
        advice = " It was imported before it became confidential and is readable here: delete it." if item.key in readable else ""
        item.skip(NotAllowed("confidential", f"Confidential issues and notes are not supported.{advice}"))


ISSUABLE_FIELDS = {
    "project_id": reference(ImportKind.PROJECT),
    "iid": ImportField(validate=validate_iid, is_required=True),
    "author_id": AUTHOR,
    "assignee_id": reference(ImportKind.USER, is_required=False),
    "milestone_id": reference(ImportKind.MILESTONE, is_required=False),
    "title": ImportField(validate=validation.validate_title, is_required=True),
    "description": ImportField(validate=validate_text),
    "state": ImportField(is_required=True),
    "closed_at": ImportField(),
    **TIMES,
}
UNIQUE_IID = UniqueKey(("project_id", "iid"), "iid")


async def prepare(batch: Batch, closed_state: Any) -> None:
    """Validate the labels, leave out milestones of other projects, and find when closed ones were closed."""
    await skip_confidential(batch)
    await check_same_project(batch, "milestone_id", tables.Milestone)
    for item in batch.open_items:
        is_closed = item.columns["state"] is closed_state
        item.columns["closed_at"] = (item.columns["closed_at"] or item.columns["updated_at"]) if is_closed else None
        if item.values.get("labels") is not None:
            item.extras["labels"] = _validate_labels(item, item.values["labels"])


def _validate_labels(item: Item, names: Iterable[str]) -> list[str]:
    titles: dict[str, None] = {}
    for name in names:
        try:
            titles.update(dict.fromkeys(validation.validate_label_titles([name])))
        except UserError as error:
            item.errors.append(error)
    return sorted(titles)


async def check_same_project(batch: Batch, name: str, table: Any, *, is_required: bool = False) -> None:
    """Leave out references to items of another project than that of the item; an item that requires it is skipped."""
    items = [item for item in batch.open_items if item.columns[name] is not None]
    if not items:
        return
    statement = select(col(table.id), col(table.project_id)).where(col(table.id).in_({item.columns[name] for item in items}))
    owners = dict(map(tuple, await batch.context.tuples(statement)))
    for item in items:
        if owners.get(item.columns[name]) != item.columns["project_id"]:
            error = Invalid(validation.to_camel_case(name), "belongs to another project")
            if is_required:
                item.skip(error)
            else:
                item.columns[name] = None
                item.errors.append(error)


async def write_related(batch: Batch, counter: CounterKind) -> None:
    """Write the labels of what was written, and make the next numbers of the projects larger."""
    await _write_labels(batch.context, batch.kind.table, [item for item in batch.written_items if "labels" in item.extras])
    await raise_counters(batch, counter)


async def _write_labels(context: Context, table: Any, items: Sequence[Item]) -> None:
    if not items:
        return
    key = LABEL_FOREIGN_KEYS[table]
    await context.session.execute(labels.detach_all_of(key, [item.row_id or 0 for item in items]))
    titles = {(item.columns["project_id"], title) for item in items for title in item.extras["labels"]}
    found = await _find_or_create_labels(context, titles)
    rows = [
        {key.key: item.row_id, "label_id": found[item.columns["project_id"], title]} for item in items for title in item.extras["labels"]
    ]
    if rows:
        await context.session.execute(insert(key.class_), rows)


async def _find_or_create_labels(context: Context, titles: set[tuple[int, str]]) -> dict[tuple[int, str], int]:
    """The ids of labels by (project, title), created if missing; they are locked against deletion."""
    if not titles:
        return {}
    statement = labels.of_projects_for_key_share({key for key, _ in titles}, {title for _, title in titles})
    found = {(label.project_id, label.title): label.id for label in await context.all(statement)}
    if missing := sorted(titles - found.keys()):
        rows = [{"project_id": key, "title": title, "color": DEFAULT_LABEL_COLOR} for key, title in missing]
        await context.session.execute(labels.insert_missing(context.services.database.dialect, rows))
        found |= {(label.project_id, label.title): label.id for label in await context.all(statement)}
    return found
