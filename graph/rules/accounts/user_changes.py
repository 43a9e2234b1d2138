"""Creation and changes of users by administrators."""

from collections.abc import Callable, Mapping
from typing import Any

from graph.context import Context
from graph.errors import Invalid, UserError
from graph.operations.token_scopes import require_private_token
from graph.rules import lookup, settings
from graph.rules.accounts import accounts
from storage import tables
from storage.tables.accounts import identities

PROFILE_COLUMNS = (*accounts.VALIDATORS, "admin", "can_create_group")
UNVALIDATED_COLUMNS = ("confirmed", "two_factor_enabled", "theme_id", "color_scheme_id")
"""Columns set by administrators or a directory and stored without validation.

Null leaves them unchanged.
"""
SIGN_IN_COLUMNS = frozenset(("password_hash", "provider", "extern_uid"))
"""Columns that decide how a user signs in. An address does not: it never finds the account of an administrator."""
NON_NULL_COLUMNS = frozenset(("email", "password", "name", "username", "projects_limit", "admin", "can_create_group"))


async def create_user(context: Context, values: Mapping[str, Any]) -> tables.User:
    """Add a user with the values of `CreateUserInput`. Raises InsufficientScope, UserErrors, Invalid, Taken."""
    columns = _validate_profile(values)
    _require_grantable(context, columns)
    await hash_password(context, columns)
    await require_available(context, columns)
    return await open_account(context, columns, confirmed=values.get("confirm") is False)


async def update_user(context: Context, find_id: Callable[[], int], values: Mapping[str, Any]) -> tables.User:
    """Change a user by the values of `UpdateUserInput` that were sent. `find_id` returns the id.

    Raises NotFound, Forbidden, InsufficientScope, UserErrors, Invalid, Taken.
    """
    try:
        columns = _validate_profile(values)
    except UserError:
        # A user who cannot be changed is reported before values that cannot be stored.
        async with context.read_only() as reader:
            accounts.require_changeable(await lookup.get_user(reader, find_id()))
        raise
    await hash_password(context, columns)
    user = await accounts.lock_user(context, find_id())
    if not user.admin:
        _require_grantable(context, columns)
    elif columns.keys() & SIGN_IN_COLUMNS:
        accounts.require_credentials_changeable(context, user)
    if columns.get("admin") is False and user.admin and user.id == context.viewer.id:
        raise Invalid("admin", "cannot be revoked from yourself")
    if columns.get("admin") is False or values.get("blocked_by_directory"):
        await accounts.require_remaining_administrator(context, user)
    username, name, address = (columns.pop(key, None) for key in ("username", "name", "email"))
    identity = _directory_identity(user, columns)
    await accounts.require_available(context, username=username, address=address, identity=identity, user_id=user.id)
    columns.update({key: values[key] for key in UNVALIDATED_COLUMNS if values.get(key) is not None})
    if "current_sign_in_at" in values:
        columns["current_sign_in_at"] = values["current_sign_in_at"]
    old_provider = user.provider if user.extern_uid else None
    user.sqlmodel_update(columns)
    if columns.keys() & {"provider", "extern_uid"}:
        await _replace_identity(context, user, old_provider)
    if values.get("blocked_by_directory") is not None:
        accounts.change_directory_block(context, user, values["blocked_by_directory"])
    user.updated_at = context.now()
    if username or name:
        await accounts.rename(context, user, username=username, name=name)
    if address:
        await accounts.change_primary_email(context, user, address)
    await context.session.flush()
    return user


async def hash_password(context: Context, columns: dict[str, Any]) -> None:
    """Replace the password by its hash.

    Call it before the first statement, because hashing would block other writers.
    """
    if "password" in columns:
        columns["password_hash"] = await context.services.passwords.hash(columns.pop("password"))


async def require_available(context: Context, columns: Mapping[str, Any]) -> None:
    """Raises Invalid for an email address outside the domains allowed for sign-up, Taken."""
    await accounts.require_allowed_domain(context, columns["email"])
    identity = _directory_identity(None, columns)
    await accounts.require_available(context, username=columns["username"], address=columns["email"], identity=identity)


async def open_account(context: Context, columns: dict[str, Any], *, confirmed: bool) -> tables.User:
    """Add a user with validated columns, and the default limit of projects if none is given. Raises Taken."""
    if "projects_limit" not in columns:
        columns["projects_limit"] = (await settings.load_settings(context)).default_projects_limit
    moment = context.now()
    return await accounts.create_account(context, tables.User(**columns, confirmed=confirmed, created_at=moment, updated_at=moment))


def _require_grantable(context: Context, columns: Mapping[str, Any]) -> None:
    """Raises InsufficientScope for an access token that would make an administrator, who signs in with every right."""
    if columns.get("admin"):
        require_private_token(context.access_token, "make a user an administrator")


async def _replace_identity(context: Context, user: tables.User, old_provider: str | None) -> None:
    """Store the identity that v3 shows as the one that the user signs in with. Raises Taken."""
    if old_provider and (old_provider != user.provider or not user.extern_uid):
        await context.session.execute(identities.remove(user.id, old_provider))
    if user.provider and user.extern_uid:
        await accounts.set_identity(context, user.id, user.provider, user.extern_uid)


def _validate_profile(values: Mapping[str, Any]) -> dict[str, Any]:
    """The validated columns among the values. Null clears nullable columns and leaves others unchanged.

    Raises UserErrors.
    """
    sent = {key: values[key] for key in PROFILE_COLUMNS if key in values}
    return accounts.validate_columns(
        {key: value if value is not None else "" for key, value in sent.items() if value is not None or key not in NON_NULL_COLUMNS}
    )


def _directory_identity(user: tables.User | None, columns: Mapping[str, Any]) -> tuple[str, str] | None:
    provider = columns.get("provider", user.provider if user else None)
    extern_uid = columns.get("extern_uid", user.extern_uid if user else None)
    return (provider, extern_uid) if provider and extern_uid else None
