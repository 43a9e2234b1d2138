"""Changes that users make to their own accounts."""

from collections.abc import Mapping
from typing import Any

from graph.context import Context
from graph.errors import Forbidden, Invalid
from graph.rules.accounts import accounts
from graph.rules.accounts.failure_limiter import name_login
from storage import tables

NO_PASSWORD = "This account has no password: it signs in elsewhere, or with a token."  # noqa: S105 - a message


async def update_profile(context: Context, values: Mapping[str, Any]) -> tables.User:
    """Change the viewer by the values of `UpdateProfileInput` that were sent; null clears, except for the name. Raises UserErrors."""
    columns = accounts.validate_columns({key: value or "" for key, value in values.items() if value is not None or key != "name"})
    user = await accounts.lock_user(context, context.viewer.id)
    name = columns.pop("name", None)
    user.sqlmodel_update(columns)
    user.updated_at = context.now()
    if name:
        await accounts.rename(context, user, username=None, name=name)
    await context.session.flush()
    return user


async def change_password(context: Context, current_password: str, password: str) -> tables.User:
    """Replace the password of the viewer.

    Raises Invalid for a wrong or invalid password, Forbidden for an account without one, LimitExceeded after ten failures in a minute.
    Passwords are hashed before the transaction takes the write lock, as at a sign-in.
    """
    validated = accounts.validate_password("password", password)
    async with context.read_only() as reader:
        found = await reader.rows_by_id(tables.User).get(context.viewer.id)
    if found is None or found.password_hash is None:
        raise Forbidden(NO_PASSWORD)
    async with context.services.sign_in_failures.attempt(name_login(found.id, found.username)) as record_failure:
        is_correct = len(current_password) <= accounts.MAX_PASSWORD_LENGTH
        if not (is_correct and await context.services.passwords.verify(found.password_hash, current_password)):
            record_failure()
            raise Invalid("currentPassword", "is wrong")
    new_hash = await context.services.passwords.hash(validated)
    user = await accounts.lock_user(context, found.id)
    if user.password_hash != found.password_hash:
        raise Invalid("currentPassword", "was changed meanwhile")
    user.password_hash = new_hash
    user.updated_at = context.now()
    await context.session.flush()
    return user
