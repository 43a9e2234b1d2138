"""SSH keys of users (docs/wire-facts.md 8.4; messages as legacy clients expect them)."""

import asyncio

from sqlalchemy.exc import IntegrityError

from graph.context import Context
from graph.errors import InsufficientScope, Invalid, NotFound, Taken, UserError, UserErrors
from graph.events import payloads
from graph.events.publisher import publish
from graph.operations.token_scopes import PUSH_SCOPES, TokenIdentity, has_scope, require_scope
from graph.rules import validation
from storage import tables
from storage.database.errors import violated_unique_column
from storage.tables import TokenScope
from storage.tables.accounts import ssh_keys, users
from storage.tables.projects import deploy_keys

KEY_TYPE_PREFIXES = ("ssh-", "ecdsa-")
MAX_KEY_LENGTH = 5000


async def parse_key(key: str) -> tuple[str, str]:
    """The public key in its stored form, and its fingerprint: the MD5 of the key's blob, as `a1:69:…`.

    Raises Required, Invalid.
    """
    cleaned = validation.validate_string("key", key.strip(), max_length=MAX_KEY_LENGTH)
    if len(cleaned.splitlines()) > 1:
        raise Invalid("key", "should be a single line")
    # Parsing is fast, but the first import of asyncssh is slow.
    fingerprint = await asyncio.to_thread(_compute_fingerprint, cleaned) if cleaned.startswith(KEY_TYPE_PREFIXES) else None
    if fingerprint is None:
        raise UserErrors([Invalid("key", "is invalid"), Invalid("fingerprint", "cannot be generated")])
    return cleaned, fingerprint


def _compute_fingerprint(key: str) -> str | None:
    import asyncssh

    try:
        # As bytes: in a string, asyncssh accepts no comment that is not ASCII.
        return asyncssh.import_public_key(key.encode()).get_fingerprint("md5").removeprefix("MD5:")
    except (asyncssh.KeyImportError, ValueError):
        return None


async def add_key(context: Context, user_id: int, title: str, key: str) -> tables.SshKey:
    """Add a key to a user. Raises UserErrors with every problem found, also when any user already has it.

    Raises InsufficientScope for an access token with fewer rights than the key.
    """
    if context.access_token is not None:
        await _require_no_more_rights(context, context.access_token, user_id)
    problems: list[UserError] = []
    cleaned_title = cleaned_key = fingerprint = ""
    try:
        cleaned_title = validation.validate_title("title", title)
    except UserError as error:
        problems.append(error)
    try:
        cleaned_key, fingerprint = await parse_key(key)
    except UserError as error:
        problems += error.errors if isinstance(error, UserErrors) else [error]
    if problems:
        raise UserErrors(problems)
    moment = context.now()
    row = tables.SshKey(
        user_id=user_id, title=cleaned_title, key=cleaned_key, fingerprint=fingerprint, created_at=moment, updated_at=moment
    )
    await lock_fingerprint(context, fingerprint)
    if await is_users_key(context, fingerprint) or await context.first(deploy_keys.of_fingerprint(fingerprint)) is not None:
        raise taken_errors()
    try:
        await context.add(row)
    except IntegrityError as error:
        if violated_unique_column(error) != "ssh_keys.fingerprint":
            raise
        raise taken_errors() from error
    await publish(context, payloads.KeyCreated, row)
    return row


async def _require_no_more_rights(context: Context, caller: TokenIdentity, user_id: int) -> None:
    """Raises InsufficientScope for an access token that may do less than the key: push, without an expiry, with all levels of its user."""
    require_scope(caller.scopes, *PUSH_SCOPES)
    if caller.expires_at is not None:
        raise InsufficientScope("The access token expires, so it cannot add SSH keys, which do not.")
    # Without ADMIN the viewer is no administrator, but the key's user may be one.
    if not has_scope(caller.scopes, TokenScope.ADMIN) and await context.exists(users.is_administrator(user_id)):
        require_scope(caller.scopes, TokenScope.ADMIN)


async def lock_fingerprint(context: Context, fingerprint: str) -> None:
    """Serialize the transactions that add this key, to a user or to a project."""
    await context.session.execute(deploy_keys.lock_fingerprint(context.services.database.dialect, fingerprint))


async def is_users_key(context: Context, fingerprint: str) -> bool:
    return await context.first(ssh_keys.of_fingerprint(fingerprint)) is not None


async def get_key(context: Context, key_id: int) -> tables.SshKey:
    """The key of any user. Raises NotFound."""
    found = await context.rows_by_id(tables.SshKey).get(key_id)
    if found is None:
        raise NotFound("SshKey")
    return found


async def delete_key(context: Context, key: tables.SshKey) -> tables.SshKey:
    """Delete a key. Raises NotFound when it has been deleted."""
    await publish(context, payloads.KeyDestroyed, key)
    if await context.value(ssh_keys.remove(key.id, key.user_id)) is None:
        raise NotFound("SshKey")
    context.loaders.clear()
    return key


def taken_errors() -> UserErrors:
    """The errors of a key that a user or another project has."""
    return UserErrors([Taken("key"), Taken("fingerprint")])
