"""Imported secondary addresses and SSH keys of users."""

from contextlib import suppress

from sqlalchemy import select
from sqlmodel import col

from graph.errors import Taken, UserError, UserErrors
from graph.rules import validation
from graph.rules.accounts import accounts, ssh_keys
from graph.rules.imports.batches import Batch
from graph.rules.imports.item_kinds import TIMES, ImportField, Item, ItemKind, Step, UniqueKey, reference
from storage import tables
from storage.database.statements import bulk_rows
from storage.tables import ImportKind


async def _move_primary_addresses(batch: Batch) -> None:
    """Give other ids to the rows of primary addresses, which nobody sees, whose ids are kept for secondary ones."""
    if not batch.running.keeps_ids:
        return
    requested = set[int]()
    for item in batch.open_items:
        if item.is_new:
            with suppress(UserError):
                requested.add(item.requested_id() or 0)
    row = tables.Email
    taken = await batch.context.all(select(col(row.id)).where(col(row.id).in_(requested), col(row.is_primary))) if requested else []
    session = batch.context.session
    new_ids = await bulk_rows.allocate_ids(session, row, len(taken), above=max(requested, default=0))
    await bulk_rows.update_rows(session, row, {old: {"id": new} for old, new in zip(taken, new_ids, strict=True)})


EMAILS = ItemKind(
    kind=ImportKind.EMAIL,
    table=tables.Email,
    fields={
        "user_id": reference(ImportKind.USER),
        "email": ImportField(validate=accounts.validate_email, is_required=True),
        **TIMES,
    },
    unique=(UniqueKey(("email",), "email"),),
    match=_move_primary_addresses,
)


async def parse_keys(batch: Batch) -> None:
    """Set the stored form and the fingerprint of public keys."""
    for item in batch.open_items:
        try:
            item.columns["key"], item.columns["fingerprint"] = await ssh_keys.parse_key(item.columns["key"])
        except UserError as error:
            item.skip(error.errors[0] if isinstance(error, UserErrors) else error)


def skip_keys_of(table: type[tables.SshKey] | type[tables.DeployKey]) -> Step:
    """A step that skips the items whose keys the table has: a key belongs to a user or to projects."""

    async def skip(batch: Batch) -> None:
        items: dict[str, list[Item]] = {}
        for item in batch.open_items:
            items.setdefault(item.columns["fingerprint"], []).append(item)
        if items:
            fingerprint = col(table.fingerprint)
            for found in await batch.context.all(select(fingerprint).where(fingerprint.in_(items)).distinct()):
                for item in items[found]:
                    item.skip(Taken("key"))

    return skip


PUBLIC_KEY_FIELDS = {
    "title": ImportField(validate=validation.validate_title, is_required=True),
    "key": ImportField(),
    **TIMES,
}
SSH_KEYS = ItemKind(
    kind=ImportKind.SSH_KEY,
    table=tables.SshKey,
    fields={"user_id": reference(ImportKind.USER), **PUBLIC_KEY_FIELDS},
    unique=(UniqueKey(("fingerprint",), "key"),),
    prepare=parse_keys,
    match=skip_keys_of(tables.DeployKey),
)
