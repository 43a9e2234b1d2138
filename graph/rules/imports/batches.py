"""Writes a batch of items of one kind, in this order, with a number of statements that does not depend on the number of items:

1. Validate the fields. An item with an invalid required field is skipped; an optional one is left out.
2. Find the rows to which the items refer, and lock them, so that they are not deleted meanwhile.
3. Find the rows that the items became in an earlier batch. An item with the values of that time is unchanged.
4. Skip items whose unique values another row has, and keeps.
5. Insert and update rows, and write the identities in the same transaction: a crash leaves the whole batch or nothing.

Batches of one import wait for each other (`instance_imports.lock_running`).
"""

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson
from sqlalchemy import select
from sqlmodel import col

from graph.context import Context
from graph.errors import Code, Invalid, Taken, UserError
from graph.rules.accounts.accounts import get_or_create_ghost
from graph.rules.imports.item_kinds import MERGED, TARGETS, ImportOutcome, Item, ItemKind, UniqueKey, validate_key
from graph.rules.validation import to_camel_case
from storage import tables
from storage.database.statements import bulk_rows
from storage.tables import ImportKind, import_identities

_Owners = dict[tuple[Any, ...], int]
"""The ids of rows by their unique values."""


class UnknownReference(UserError):
    """A reference to something that was not imported."""

    code = Code.NOT_FOUND


@dataclass(frozen=True)
class ItemError:
    """What is wrong with a field of an item; a result has no exceptions, which graphql-core would raise."""

    field: str | None
    message: str
    code: Code

    @classmethod
    def of(cls, error: UserError) -> "ItemError":
        return cls(error.field, error.message, error.code)


@dataclass(frozen=True)
class ItemResult:
    """The result of an item. `errors` say why it was skipped or, with another outcome, which optional fields were left out."""

    source_id: str
    database_id: int | None
    outcome: ImportOutcome
    errors: Sequence[ItemError]

    @classmethod
    def skipped(cls, source_id: str, error: UserError) -> "ItemResult":
        return cls(source_id, None, ImportOutcome.SKIPPED, [ItemError.of(error)])


@dataclass
class Batch:
    """The items of one kind that are written together."""

    context: Context
    running: tables.InstanceImport
    kind: ItemKind
    items: list[Item]
    identities: list[tuple[ImportKind, str, int, str]] = field(default_factory=list)
    """Identities that are written besides those of the items: (kind, source id, id of the row, digest)."""
    vacated: dict[str, set[int]] = field(default_factory=lambda: defaultdict(set))
    """The ids of rows whose value in a unique column another item of the batch gets, by column."""

    @property
    def open_items(self) -> list[Item]:
        """The items that may still be written."""
        return [item for item in self.items if item.outcome is None]

    @property
    def written_items(self) -> list[Item]:
        return [item for item in self.items if item.outcome in (ImportOutcome.CREATED, ImportOutcome.UPDATED)]


async def write_items(
    context: Context, running: tables.InstanceImport, kind: ItemKind, items: Iterable[Mapping[str, Any]]
) -> list[ItemResult]:
    """Write the items; each is the values of an input that were sent. The results are in their order."""
    batch = Batch(context, running, kind, [Item(kind.key(values), values) for values in items])
    _validate(batch)
    await _resolve_references(batch)
    if kind.prepare is not None:
        await kind.prepare(batch)
    await _find_rows(batch)
    if kind.match is not None:
        await kind.match(batch)
    _compare(batch)
    await _check_unique(batch)
    await _assign_ids(batch)
    await _write_rows(batch)
    if kind.write_related is not None:
        await kind.write_related(batch)
    await _write_identities(batch)
    return [_result(item) for item in batch.items]


def _result(item: Item) -> ItemResult:
    errors = [ItemError.of(error) for error in item.errors]
    row_id = None if item.outcome is ImportOutcome.SKIPPED else item.row_id
    return ItemResult(item.key, row_id, item.outcome or ImportOutcome.UNCHANGED, errors)


def _validate(batch: Batch) -> None:
    keys = set[str]()
    for item in batch.items:
        try:
            validate_key(item.key)
        except UserError as error:
            item.skip(error)
            continue
        if item.key in keys:
            item.skip(Invalid("sourceId", "occurs twice in the batch"))
            continue
        keys.add(item.key)
        _validate_fields(batch.kind, item)


def _validate_fields(kind: ItemKind, item: Item) -> None:
    for name, declared in kind.fields.items():
        value = item.values.get(name)
        if value is not None and declared.validate is not None:
            try:
                value = declared.validate(to_camel_case(name), value)
            except UserError as error:
                if declared.is_required:
                    item.skip(error)
                    continue
                item.errors.append(error)
                value = None
        if declared.is_sealed:
            if value is not None:
                item.secrets[name] = value
            continue
        columns = item.initial if declared.is_initial else item.columns
        columns[declared.column or name] = declared.default if value is None else value


async def _resolve_references(batch: Batch) -> None:
    """Replace the source's ids in the columns by those of the rows."""
    fields = {name: declared for name, declared in batch.kind.fields.items() if declared.target is not None}
    source_ids: dict[ImportKind, set[str]] = defaultdict(set)
    for item in batch.open_items:
        for name, declared in fields.items():
            if declared.target is not None and (value := item.values.get(name)) is not None:
                source_ids[declared.target].add(str(value))
    found = {kind: await find_targets(batch, kind, ids) for kind, ids in source_ids.items()}
    ghost_id = await _find_ghost_id(batch)
    for item in batch.open_items:
        for name, declared in fields.items():
            value = item.values.get(name)
            if value is None:
                item.columns[name] = ghost_id if declared.uses_ghost else None
                continue
            item.columns[name] = found[declared.target].get(str(value)) if declared.target is not None else None
            if item.columns[name] is None:
                error = UnknownReference(to_camel_case(name), f"{value} was not imported")
                if declared.is_required:
                    item.skip(error)
                else:
                    item.errors.append(error)


async def find_targets(batch: Batch, kind: ImportKind, source_ids: Iterable[str]) -> dict[str, int]:
    """The ids of the rows of these items, by their ids in the source, of those that exist; they are locked against deletion."""
    statement = import_identities.existing_for_key_share(batch.running.id, kind, TARGETS[kind], set(source_ids))
    return dict(await batch.context.tuples(statement))


async def _find_ghost_id(batch: Batch) -> int | None:
    names = [name for name, declared in batch.kind.fields.items() if declared.uses_ghost]
    if any(item.values.get(name) is None for item in batch.open_items for name in names):
        return (await get_or_create_ghost(batch.context)).id
    return None


async def _find_rows(batch: Batch) -> None:
    """Find the rows of items that were imported before; the rows are locked."""
    items = {item.key: item for item in batch.open_items}
    if not items:
        return
    known = await batch.context.tuples(import_identities.of_source_ids(batch.running.id, {batch.kind.kind: items.keys()}))
    table: Any = batch.kind.table
    # The project of a hook is null if it is one of the instance.
    names = [name for name, is_read in (("created_at", batch.kind.reuses_ids), ("project_id", hasattr(table, "project_id"))) if is_read]
    columns = (col(table.id), *(col(getattr(table, name)) for name in names))
    ids = sorted(row_id for _, _, row_id, _ in known)
    statement = select(*columns).where(col(table.id).in_(ids)).order_by(col(table.id)).with_for_update(key_share=True)
    rows = await batch.context.tuples(statement) if ids else []
    existing = {row_id: dict(zip(names, values, strict=True)) for row_id, *values in rows}
    for _, key, row_id, digest in known:
        item, row = items[key], existing.get(row_id)
        if row is None or ("created_at" in row and row["created_at"] != item.initial.get("created_at")):
            continue
        if "project_id" in row and row["project_id"] != item.columns.get("project_id"):
            item.skip(Invalid("sourceId", "was imported into another project"))
        else:
            item.row_id, item.is_new, item.last_digest = row_id, False, digest
            if digest == MERGED:
                item.outcome = ImportOutcome.UNCHANGED


def digest_of(batch: Batch, item: Item) -> str:
    """A digest of the contents of an item. It is keyed, because some items have secrets that are short."""
    contents = [item.columns, item.initial, item.secrets, item.extras]
    plain = orjson.dumps(contents, default=str, option=orjson.OPT_SORT_KEYS | orjson.OPT_UTC_Z)
    return batch.context.services.cipher.derive(f"imported item {hashlib.sha256(plain).hexdigest()}")


def _compare(batch: Batch) -> None:
    for item in batch.open_items:
        item.digest = digest_of(batch, item)
        if not item.is_new and item.digest == item.last_digest:
            item.outcome = ImportOutcome.UNCHANGED


async def _check_unique(batch: Batch) -> None:
    """Skip the items whose unique values another row has, unless that row gets other values in this batch."""
    owners = [(key, await _find_owners(batch, key)) for key in batch.kind.unique]
    if batch.kind.adopts:
        _adopt_rows(batch, *owners[0])
    # A row whose item is skipped keeps its values, which the input may have for others.
    while any(_skip_taken(batch, key, found) for key, found in owners):
        pass
    for key, found in owners:
        for item, values in _claims(batch, key):
            if values in found and found[values] != item.row_id:
                batch.vacated[key.columns[-1]].add(found[values])


async def _find_owners(batch: Batch, key: UniqueKey) -> _Owners:
    """The ids of the rows that have the unique values of items now."""
    items = [item for item, _ in _claims(batch, key)]
    if not items:
        return {}
    columns = [getattr(batch.kind.table, name) for name in key.columns]
    among = [col(column).in_({_value(item, name) for item in items}) for column, name in zip(columns, key.columns, strict=True)]
    rows = await batch.context.tuples(select(col(batch.kind.table.id), *map(col, columns)).where(*among))
    return {tuple(values): row_id for row_id, *values in rows}


def _claims(batch: Batch, key: UniqueKey) -> list[tuple[Item, tuple[Any, ...]]]:
    """The items that may be written and have unique values, with these values."""
    found = [(item, tuple(_value(item, name) for name in key.columns)) for item in batch.open_items]
    return [(item, values) for item, values in found if None not in values]


def _adopt_rows(batch: Batch, key: UniqueKey, owners: _Owners) -> None:
    """Give items that have no row yet the rows with their unique values."""
    known = {item.row_id for item in batch.items if not item.is_new}
    for item, values in _claims(batch, key):
        owner = owners.get(values)
        if item.is_new and owner is not None and owner not in known:
            item.row_id, item.is_new = owner, False
            known.add(owner)


def _skip_taken(batch: Batch, key: UniqueKey, owners: _Owners) -> bool:
    """Skip the items whose unique values another row keeps, or another item gets; returns whether there is one."""
    new_values: dict[int | None, tuple[Any, ...]] = {}
    # A reference has no value that it could have meanwhile.
    if not bulk_rows.is_reference(batch.kind.table, key.columns[-1]):
        for item in batch.open_items:
            if not item.is_new and all(name in item.columns for name in key.columns):
                new_values[item.row_id] = tuple(item.columns[name] for name in key.columns)
    claimed = set[tuple[Any, ...]]()
    has_skipped = False
    for item, values in _claims(batch, key):
        owner = owners.get(values)
        is_free = owner is None or owner == item.row_id or new_values.get(owner, values) != values
        if values in claimed or not is_free:
            item.skip(Taken(key.field))
            has_skipped = True
        else:
            claimed.add(values)
    return has_skipped


def _value(item: Item, name: str) -> Any:
    return item.columns[name] if name in item.columns else item.initial[name]


async def _assign_ids(batch: Batch) -> None:
    """Give each item without a row the id that its row will have."""
    new = [item for item in batch.open_items if item.is_new]
    if batch.running.keeps_ids:
        await _assign_requested_ids(batch, new)
        new = [item for item in new if item.outcome is None and item.row_id is None]
    if new:
        ids = await bulk_rows.allocate_ids(batch.context.session, batch.kind.table, len(new))
        for item, row_id in zip(new, ids, strict=True):
            item.row_id = row_id


async def _assign_requested_ids(batch: Batch, items: Sequence[Item]) -> None:
    items_by_id: dict[int, Item] = {}
    for item in items:
        try:
            row_id = item.requested_id()
            if row_id in items_by_id:
                raise Taken("sourceId")
        except UserError as error:
            if not (batch.kind.may_renumber and isinstance(error, Taken)):
                item.skip(error)
            continue
        if row_id is not None:
            items_by_id[row_id] = item
    taken = await find_taken_ids(batch.context, batch.kind.table, items_by_id)
    for row_id, item in items_by_id.items():
        if row_id not in taken:
            item.row_id = row_id
        elif not batch.kind.may_renumber:
            item.skip(Taken("sourceId"))
    if items_by_id:
        await bulk_rows.raise_sequence(batch.context.session, batch.kind.table, max(items_by_id))


async def find_taken_ids(context: Context, table: Any, ids: Iterable[int]) -> set[int]:
    """Those of these ids that rows of the table have."""
    sorted_ids = sorted(ids)
    return set(await context.all(select(col(table.id)).where(col(table.id).in_(sorted_ids)))) if sorted_ids else set()


async def _write_rows(batch: Batch) -> None:
    created: list[dict[str, Any]] = []
    updated: dict[int, dict[str, Any]] = {}
    moment = batch.context.now()
    for item in batch.open_items:
        columns = {**item.columns, **_encrypt_secrets(batch, item)}
        assert item.row_id is not None, "every open item has one now"  # noqa: S101
        if "updated_at" in columns:
            columns["updated_at"] = columns["updated_at"] or item.initial.get("created_at") or moment
        if item.is_new:
            initial = {name: value for name, value in item.initial.items() if name != "created_at"}
            if "created_at" in item.initial:
                initial["created_at"] = item.initial["created_at"] or moment
            created.append({"id": item.row_id, **columns, **initial})
            item.outcome = ImportOutcome.CREATED
        else:
            updated[item.row_id] = columns
            item.outcome = ImportOutcome.UPDATED
    for column, ids in batch.vacated.items():
        await bulk_rows.vacate_values(batch.context.session, batch.kind.table, column, ids)
    await bulk_rows.insert_rows(batch.context.session, batch.kind.table, created)
    await bulk_rows.update_rows(batch.context.session, batch.kind.table, updated)


def _encrypt_secrets(batch: Batch, item: Item) -> dict[str, str | None]:
    """The encrypted columns; null for those that the item does not have."""
    names = [name for name, declared in batch.kind.fields.items() if declared.is_sealed]
    cipher = batch.context.services.cipher
    return {f"sealed_{name}": cipher.encrypt(item.secrets[name]) if name in item.secrets else None for name in names}


async def _write_identities(batch: Batch) -> None:
    written = [(batch.kind.kind, item.key, item.row_id, item.digest) for item in batch.written_items]
    rows = [
        {"import_id": batch.running.id, "kind": kind, "source_id": key, "database_id": row_id, "digest": digest}
        for kind, key, row_id, digest in (*written, *batch.identities)
    ]
    if rows:
        await batch.context.session.execute(import_identities.upsert(batch.context.services.database.dialect), rows)
