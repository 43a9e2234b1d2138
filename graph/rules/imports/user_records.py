"""The rows that belong to imported users: personal namespaces, primary addresses, identities, and private tokens."""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import delete, select, update
from sqlmodel import col

from graph.rules.accounts.accounts import GHOST_USERNAME
from graph.rules.imports.batches import Batch
from graph.rules.imports.item_kinds import MERGED, ImportOutcome, Item
from storage import tables
from storage.database.statements import bulk_rows
from storage.secrets import digest_token, new_token
from storage.tables import ImportKind, NamespaceKind
from storage.tables.accounts import identities
from storage.tables.accounts.users import PRIVATE_TOKEN

IMPORTED_TOKEN = "imported"  # noqa: S105 - the name of a kind of token


def identity_of(item: Item) -> tuple[str | None, str | None]:
    """The provider and the normalized uid with which the user signs in; None if there is none."""
    provider, extern_uid = item.columns["provider"], item.columns["extern_uid"]
    return (provider, identities.normalize_uid(provider, extern_uid)) if provider and extern_uid else (None, None)


def is_ghost(item: Item) -> bool:
    return bool(item.columns["username"] == GHOST_USERNAME)


async def write_user_records(batch: Batch) -> None:
    """Write what belongs to the users that were written, after their rows."""
    items = [item for item in batch.written_items if item.digest != MERGED and not is_ghost(item)]
    created = [item for item in items if item.outcome is ImportOutcome.CREATED]
    updated = [item for item in items if item.outcome is ImportOutcome.UPDATED]
    await _write_creation_of_administrator(batch, updated)
    await _write_namespaces(batch, created, updated)
    await _write_emails(batch, created, updated)
    await _write_identities(batch, created, updated)
    await _write_tokens(batch, created, updated)


async def _write_creation_of_administrator(batch: Batch, updated: list[Item]) -> None:
    """The account of the administrator of the import exists already; all others get the time when they are created."""
    if not batch.running.keeps_ids:
        return
    for item in updated:
        if item.row_id == batch.running.user_id and item.initial.get("created_at") is not None:
            statement = update(tables.User).where(col(tables.User.id) == item.row_id).values(created_at=item.initial["created_at"])
            await batch.context.session.execute(statement)


async def _write_namespaces(batch: Batch, created: list[Item], updated: list[Item]) -> None:
    session = batch.context.session
    missing = [item for item in (*created, *updated) if "namespace" not in item.related]
    for item, row_id in zip(missing, await bulk_rows.allocate_ids(session, tables.Namespace, len(missing)), strict=True):
        item.related["namespace"] = row_id
    vacated = [item.related["namespace"] for item in updated if item.row_id in batch.vacated["username"]]
    await bulk_rows.vacate_values(session, tables.Namespace, "path_key", vacated)
    inserted = [*created, *(item for item in updated if item in missing)]
    await bulk_rows.insert_rows(session, tables.Namespace, [{"id": item.related["namespace"], **_namespace(item)} for item in inserted])
    renamed = {item.related["namespace"]: _namespace(item) for item in updated if item not in missing}
    await bulk_rows.update_rows(session, tables.Namespace, renamed)
    if batch.running.keeps_ids and created:
        await bulk_rows.raise_sequence(session, tables.Namespace, max(item.related["namespace"] for item in created))
    batch.identities += [
        (ImportKind.NAMESPACE, item.extras["namespace"], item.related["namespace"], "")
        for item in (*created, *updated)
        if item.extras["namespace"] is not None
    ]


def _namespace(item: Item) -> dict[str, Any]:
    username = item.columns["username"]
    return {
        "kind": NamespaceKind.USER,
        "name": item.columns["name"],
        "path": username,
        "path_key": username.lower(),
        "owner_id": item.row_id,
    }


async def _write_emails(batch: Batch, created: list[Item], updated: list[Item]) -> None:
    session, email = batch.context.session, tables.Email
    rows = [{"user_id": item.row_id, "email": item.columns["email"], "is_primary": True} for item in created]
    primary: Mapping[int | None, int] = {}
    if updated:
        owners = [item.row_id for item in updated]
        statement = select(col(email.user_id), col(email.id)).where(col(email.user_id).in_(owners), col(email.is_primary))
        primary = dict(await batch.context.tuples(statement))
    vacated = [primary[item.row_id] for item in updated if item.row_id in batch.vacated["email"] and item.row_id in primary]
    await bulk_rows.vacate_values(session, email, "email", vacated)
    ids = await bulk_rows.allocate_ids(session, email, len(rows))
    await bulk_rows.insert_rows(session, email, [{"id": row_id, **row} for row_id, row in zip(ids, rows, strict=True)])
    changed = {primary[item.row_id]: {"email": item.columns["email"]} for item in updated if item.row_id in primary}
    await bulk_rows.update_rows(session, email, changed)


async def _write_identities(batch: Batch, created: list[Item], updated: list[Item]) -> None:
    """Make the identities that v3 shows those with which the users sign in."""
    session, identity = batch.context.session, tables.Identity
    if updated:
        replaced = {(item.row_id, provider) for item in updated for provider in (item.before["provider"], item.columns["provider"])}
        stored = await batch.context.all(select(identity).where(col(identity.user_id).in_([item.row_id for item in updated])))
        old_ids = [row.id for row in stored if (row.user_id, row.provider) in replaced]
        await session.execute(delete(identity).where(col(identity.id).in_(old_ids)))
    moment = batch.context.now()
    rows = [
        {"user_id": item.row_id, "provider": provider, "uid": uid, "created_at": moment, "updated_at": moment}
        for item in (*created, *updated)
        for provider, uid in [identity_of(item)]
        if provider is not None
    ]
    ids = await bulk_rows.allocate_ids(session, identity, len(rows))
    await bulk_rows.insert_rows(session, identity, [{"id": row_id, **row} for row_id, row in zip(ids, rows, strict=True)])


async def _write_tokens(batch: Batch, created: list[Item], updated: list[Item]) -> None:
    session, token = batch.context.session, tables.Token
    known: dict[tuple[int, str], tuple[int, str]] = {}
    replacing = [item for item in updated if item.extras["token"] is not None]
    if replacing:
        columns = col(token.user_id), col(token.name), col(token.id), col(token.digest)
        rows = await batch.context.tuples(select(*columns).where(col(token.user_id).in_([item.row_id for item in replacing])))
        known = {(user_id, name): (row_id, digest) for user_id, name, row_id, digest in rows}
    inserted = [_token(batch, item, PRIVATE_TOKEN) for item in created]
    replaced: dict[int, dict[str, Any]] = {}
    for item in replacing:
        name = IMPORTED_TOKEN if item.row_id == batch.running.user_id else PRIVATE_TOKEN
        row = _token(batch, item, name)
        if row["digest"] in {digest for (user_id, _), (_, digest) in known.items() if user_id == item.row_id}:
            continue
        if (row["user_id"], name) in known:
            replaced[known[row["user_id"], name][0]] = row
        else:
            inserted.append(row)
    ids = await bulk_rows.allocate_ids(session, token, len(inserted))
    await bulk_rows.insert_rows(session, token, [{"id": row_id, **row} for row_id, row in zip(ids, inserted, strict=True)])
    await bulk_rows.update_rows(session, token, replaced)


def _token(batch: Batch, item: Item, name: str) -> dict[str, Any]:
    token = item.extras["token"] or new_token()
    sealed = batch.context.services.cipher.encrypt(token)
    return {"user_id": item.row_id, "name": name, "digest": digest_token(token), "sealed": sealed, "created_at": batch.context.now()}
