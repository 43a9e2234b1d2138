"""Imported users, with their personal namespaces, primary addresses and private tokens.

Without kept ids an account that exists here is merged by `mergeInto`, or as the administrator of the import: only the identity is written.
With kept ids that administrator becomes the user of the same name in the source, with the id that the user has there, but keeps the
password, the tokens and the rights. The ghost user of the source is the ghost user of this instance.
"""

from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import func, or_, select, update
from sqlmodel import col

from graph.errors import Invalid, Taken, UserError
from graph.rules import validation
from graph.rules.accounts import accounts
from graph.rules.accounts.accounts import GHOST_USERNAME
from graph.rules.imports import user_moves
from graph.rules.imports.batches import Batch, UnknownReference, digest_of, find_taken_ids
from graph.rules.imports.item_kinds import CREATED_AT, MERGED, ImportField, Item, ItemKind, parse_row_id
from graph.rules.imports.user_records import identity_of, is_ghost, write_user_records
from storage import tables
from storage.database.statements import bulk_rows
from storage.secrets import digest_token
from storage.tables import ImportKind, NamespaceKind, UserState
from storage.tables.accounts import identities
from storage.tables.base import MAX_ID

GHOST_EMAIL = f"{GHOST_USERNAME}@invalid"
UNKNOWN_EMAIL = "{}@import.invalid"
"""The address of a user whose address the source did not show; nobody can have it."""
MAX_TOKEN_LENGTH = 255


def _validate_username(name: str, value: str) -> str:
    return value if value == GHOST_USERNAME else validation.validate_namespace_path(name, value)


def _validate_email(name: str, value: str) -> str:
    return value if value == GHOST_EMAIL else accounts.validate_email(name, value)


def _profile_field(name: str, default: Any = "") -> ImportField:
    return ImportField(default=default, validate=accounts.VALIDATORS[name])


FIELDS: dict[str, ImportField] = {
    "username": ImportField(validate=_validate_username, is_required=True),
    "name": ImportField(validate=validation.validate_title, is_required=True),
    "email": ImportField(validate=_validate_email),
    "state": ImportField(default=UserState.ACTIVE),
    "blocked_by_directory": ImportField(default=False),
    "confirmed": ImportField(default=True),
    "admin": ImportField(default=False),
    "bio": _profile_field("bio", None),
    "messenger": _profile_field("messenger"),
    "professional_profile": _profile_field("professional_profile"),
    "microblog": _profile_field("microblog"),
    "website_url": _profile_field("website_url"),
    "extern_uid": _profile_field("extern_uid", None),
    "provider": _profile_field("provider", None),
    "theme_id": ImportField(default=2),
    "color_scheme_id": ImportField(default=1),
    "can_create_group": ImportField(default=True),
    "projects_limit": _profile_field("projects_limit", 10),
    "two_factor_enabled": ImportField(default=False),
    "current_sign_in_at": ImportField(),
    "created_at": CREATED_AT,
    "updated_at": ImportField(),
}


async def _prepare(batch: Batch) -> None:
    for item in batch.open_items:
        if item.columns["username"] == GHOST_USERNAME and item.columns["email"] != GHOST_EMAIL:
            item.skip(Invalid("username", f"{GHOST_USERNAME} is a reserved name"))
            continue
        if item.columns["blocked_by_directory"]:
            item.columns["state"] = UserState.BLOCKED
        if not (item.columns["provider"] and item.columns["extern_uid"]):
            item.columns["provider"] = item.columns["extern_uid"] = None
        item.extras["namespace"] = item.values.get("namespace_id")
        _read_token(item)


def _read_token(item: Item) -> None:
    token = item.values.get("private_token")
    try:
        item.extras["token"] = validation.validate_string("privateToken", token, max_length=MAX_TOKEN_LENGTH) if token else None
    except UserError as error:
        item.errors.append(error)
        item.extras["token"] = None


@dataclass
class _Accounts:
    """The existing accounts that items may become, and the unique values that items may collide with, with their owners."""

    users: list[tables.User]
    identities: dict[tuple[str, str], int]
    namespaces: dict[str, tuple[int, NamespaceKind, int | None]]
    emails: dict[str, int]
    tokens: dict[str, int]
    changed_items: dict[int | None, Item] = field(default_factory=dict)
    """The items that change accounts, by the ids of these: what they have now may be free in this batch."""

    def __post_init__(self) -> None:
        self.by_id = {user.id: user for user in self.users}
        self.by_username = {user.username.lower(): user for user in self.users}
        personal = [(owner, row_id) for row_id, kind, owner in self.namespaces.values() if kind is NamespaceKind.USER]
        self.namespace_of: dict[int | None, int] = dict(personal)

    def keeps_username(self, owner: int | None, key: str) -> bool:
        """Whether a user has this username after the batch."""
        return owner not in self.changed_items or str(self.changed_items[owner].columns["username"]).lower() == key

    def keeps_email(self, owner: int | None, address: str) -> bool:
        """Whether a user has this address after the batch; a secondary one stays."""
        account = self.by_id.get(owner or 0)
        is_primary = account is not None and account.email == address
        return not is_primary or owner not in self.changed_items or self.changed_items[owner].columns["email"] == address

    def keeps_identity(self, owner: int | None, identity: tuple[str | None, str | None], item: Item) -> bool:
        """Whether another user has this identity after the batch; those of providers that the item of the user does not name stay."""
        if owner is None or owner == item.row_id:
            return False
        other = self.changed_items.get(owner)
        return other is None or identity_of(other) == identity or identity[0] not in (other.before["provider"], other.columns["provider"])


async def _load_accounts(batch: Batch, items: Iterable[Item]) -> _Accounts:
    items = list(items)
    names = {str(name).lower() for item in items for name in (item.columns["username"], item.values.get("merge_into")) if name}
    names.add(GHOST_USERNAME)
    ids = {item.row_id for item in items if item.row_id is not None} | {batch.running.user_id or 0}
    uids = {uid for item in items if (uid := identity_of(item)[1]) is not None}
    addresses = {item.columns["email"] for item in items if item.columns["email"] is not None}
    addresses |= {UNKNOWN_EMAIL.format(name) for name in names}
    digests = {digest_token(item.extras["token"]) for item in items if item.extras["token"] is not None}
    user, namespace, email, token = tables.User, tables.Namespace, tables.Email, tables.Token
    context = batch.context
    found = await context.all(select(user).where(or_(func.lower(col(user.username)).in_(names), col(user.id).in_(ids))))
    signing_in = await context.tuples(identities.owners_of_uids(uids)) if uids else []
    owners = {each.id for each in found}
    columns = col(namespace.path_key), col(namespace.id), col(namespace.kind), col(namespace.owner_id)
    paths = await context.tuples(select(*columns).where(or_(col(namespace.path_key).in_(names), col(namespace.owner_id).in_(owners))))
    used = await context.tuples(select(col(email.email), col(email.user_id)).where(col(email.email).in_(addresses)))
    known = await context.tuples(select(col(token.digest), col(token.user_id)).where(col(token.digest).in_(digests))) if digests else []
    by_path = {path: (row_id, kind, owner) for path, row_id, kind, owner in paths}
    return _Accounts(found, {(provider, uid): owner for provider, uid, owner in signing_in}, by_path, dict(used), dict(known))


async def _match(batch: Batch) -> None:
    items = batch.open_items
    if not items:
        return
    found = await _load_accounts(batch, items)
    if batch.running.keeps_ids and await _move_accounts(batch, found, items):
        found = await _load_accounts(batch, items)
    tokens = set[str]()
    for item in items:
        if item.is_new:
            _match_account(batch, found, item)
        if item.outcome is None:
            _complete_values(batch, found, item)
            _claim_token(found, item, tokens)
    _claim_values(batch, found)
    await _check_namespaces(batch, found)


async def _move_accounts(batch: Batch, found: _Accounts, items: Iterable[Item]) -> bool:
    """Give the administrator of the import and the ghost user the ids of the users of the same names, or others if these are needed.

    Returns whether an id was changed.
    """
    requested: dict[int, Item] = {}
    for item in items:
        if item.is_new:
            with suppress(Invalid):
                requested[parse_row_id("sourceId", item.key)] = item
    ids = {item.columns["username"].lower(): row_id for row_id, item in requested.items()}
    has_moved = False
    for account in (found.by_username.get(GHOST_USERNAME), found.by_id.get(batch.running.user_id or 0)):
        if account is None:
            continue
        new_id = ids.get(account.username.lower())
        if new_id is None and account.id in requested:
            new_id = max(await user_moves.highest_id(batch.context), *requested) + 1
        if new_id in (None, account.id, MAX_ID + 1) or await find_taken_ids(batch.context, tables.User, [new_id]):
            continue
        await user_moves.move_user(batch.context, account.id, new_id)
        if account.id == batch.running.user_id:
            batch.running.user_id = new_id
        has_moved = True
    return has_moved


def _match_account(batch: Batch, found: _Accounts, item: Item) -> None:
    """Find the account that an item is, if it exists."""
    merge_into = item.values.get("merge_into")
    username = (merge_into or item.columns["username"]).lower()
    account = found.by_username.get(username)
    is_administrator = account is not None and account.id == batch.running.user_id
    if merge_into and (account is None or is_ghost(item)):
        item.skip(UnknownReference("mergeInto", f"there is no user {merge_into}"))
    elif account is not None and (is_ghost(item) or (is_administrator and batch.running.keeps_ids and not merge_into)):
        item.row_id, item.is_new = account.id, False
    elif account is not None and (merge_into or is_administrator):
        item.merge(account.id)
        if item.extras["namespace"] is not None and account.id in found.namespace_of:
            batch.identities.append((ImportKind.NAMESPACE, item.extras["namespace"], found.namespace_of[account.id], MERGED))


def _complete_values(batch: Batch, found: _Accounts, item: Item) -> None:
    """Complete the values of an item by those of its account."""
    columns = item.columns
    current = found.by_id.get(item.row_id or 0)
    item.before["provider"] = current.provider if current is not None else None
    if current is not None and current.id == batch.running.user_id:
        columns["admin"], columns["state"], columns["blocked_by_directory"] = True, UserState.ACTIVE, False
    if columns["email"] is None:
        columns["email"] = current.email if current is not None else UNKNOWN_EMAIL.format(columns["username"].lower())
        columns["confirmed"] = current.confirmed if current is not None else False


def _claim_values(batch: Batch, found: _Accounts) -> None:
    """Skip the items whose username or address another user keeps, or another item gets, and leave out identities of others.

    An account whose item is skipped keeps what it has.
    """
    has_changed = True
    while has_changed:
        # Those that have not changed since the last run are not written, even if their account has another name here. Without a
        # namespace, one may be skipped later.
        known = [item for item in batch.open_items if item.row_id in found.namespace_of and not (item.is_new or is_ghost(item))]
        found.changed_items = {item.row_id: item for item in known if digest_of(batch, item) != item.last_digest}
        batch.vacated.clear()
        claimed = set[tuple[str, Any]]()
        has_changed = False
        for item in batch.open_items:
            claimed |= _claim_names(batch, found, item, claimed)
            if item.outcome is not None:
                has_changed = True
                continue
            identity = identity_of(item)
            owner = found.identities.get(identity)  # type: ignore[arg-type]
            if identity[0] is not None and (("identity", identity) in claimed or found.keeps_identity(owner, identity, item)):
                item.columns["provider"] = item.columns["extern_uid"] = None
                item.errors.append(Taken("externUid"))
                has_changed = True
            claimed.add(("identity", identity))


def _claim_names(batch: Batch, found: _Accounts, item: Item, claimed: Collection[tuple[str, Any]]) -> set[tuple[str, Any]]:
    """The username and the address that an item gets; none if it is skipped."""
    key, address = item.columns["username"].lower(), item.columns["email"]
    holder = found.by_username.get(key)
    _, kind, namespace_owner = found.namespaces.get(key, (0, NamespaceKind.USER, None))
    owners = {holder.id if holder is not None else None, namespace_owner} - {None, item.row_id}
    email_owners = {found.emails.get(address)} - {None, item.row_id}
    if kind is NamespaceKind.GROUP or ("username", key) in claimed or any(found.keeps_username(owner, key) for owner in owners):
        item.skip(Taken("username"))
    elif ("email", address) in claimed or any(found.keeps_email(owner, address) for owner in email_owners):
        item.skip(Taken("email"))
    else:
        batch.vacated["username"].update(filter(None, owners))
        batch.vacated["email"].update(filter(None, email_owners))
        return {("username", key), ("email", address)}
    return set()


def _claim_token(found: _Accounts, item: Item, claimed: set[str]) -> None:
    """Leave out the token of an item if another user has it, or another item gets it."""
    token = item.extras["token"]
    if token is None:
        return
    digest = digest_token(token)
    if digest in claimed or found.tokens.get(digest, item.row_id) != item.row_id:
        item.extras["token"] = None
        item.errors.append(Taken("privateToken"))
    claimed.add(digest)


async def _move_namespace(batch: Batch, found: _Accounts) -> None:
    """Give the namespace of the administrator of the import the id that it has in the source, or another one if somebody needs its id.

    Nothing refers to it: with kept ids the instance was empty.
    """
    administrator = batch.running.user_id
    row_id = found.namespace_of.get(administrator)
    requested: dict[int, int | None] = {}
    for item in batch.open_items:
        with suppress(Invalid):
            requested[parse_row_id("namespaceId", item.extras["namespace"] or "")] = item.row_id
    new_id = next((namespace_id for namespace_id, owner in requested.items() if owner == administrator), row_id)
    if row_id is None or (new_id == row_id and requested.get(row_id, administrator) == administrator):
        return
    namespace, identity = tables.Namespace, tables.ImportIdentity
    known = col(identity.import_id) == batch.running.id, col(identity.kind) == ImportKind.NAMESPACE, col(identity.database_id) == row_id
    if await batch.context.first(select(identity).where(*known).limit(1)) is not None:
        return
    if new_id == row_id or await find_taken_ids(batch.context, namespace, [new_id or 0]):
        highest = await batch.context.value(select(func.max(col(namespace.id)))) or 0
        new_id = max(highest, *requested) + 1
    await batch.context.session.execute(update(namespace).where(col(namespace.id) == row_id).values(id=new_id))
    await bulk_rows.raise_sequence(batch.context.session, namespace, new_id or 0)
    batch.context.loaders.clear()
    found.namespace_of[administrator] = new_id or 0


async def _check_namespaces(batch: Batch, found: _Accounts) -> None:
    """Find the personal namespaces of accounts that exist, and with kept ids those that the others will have."""
    if batch.running.keeps_ids:
        await _move_namespace(batch, found)
    requested: dict[int, Item] = {}
    for item in batch.open_items:
        row_id = found.namespace_of.get(item.row_id)
        if row_id is not None:
            item.related["namespace"] = row_id
        elif batch.running.keeps_ids and item.extras["namespace"] is not None and not is_ghost(item):
            try:
                namespace_id = parse_row_id("namespaceId", item.extras["namespace"])
            except UserError as error:
                item.skip(error)
                continue
            if namespace_id in requested:
                item.skip(Taken("namespaceId"))
            else:
                requested[namespace_id] = item
    taken = await find_taken_ids(batch.context, tables.Namespace, requested)
    for namespace_id, item in requested.items():
        if namespace_id in taken:
            item.skip(Taken("namespaceId"))
        else:
            item.related["namespace"] = namespace_id


USERS = ItemKind(kind=ImportKind.USER, table=tables.User, fields=FIELDS, prepare=_prepare, match=_match, write_related=write_user_records)
