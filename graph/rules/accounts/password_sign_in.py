"""Sign-in with a password, and sign-up (docs/wire-facts.md 1.4, docs/decisions.md 17)."""

from collections.abc import Mapping
from typing import Any

from graph.context import Context
from graph.errors import Forbidden, Unauthenticated, Unavailable
from graph.rules import settings
from graph.rules.accounts import accounts, user_changes
from graph.rules.accounts.failure_limiter import name_login
from graph.rules.external_accounts import directory_sign_in, external_accounts
from storage import tables
from storage.tables import UserState
from storage.tables.accounts import identities, users

MAX_CREDENTIAL_LENGTH = 1000
"""Characters. A longer login or password is rejected without computing a hash."""


async def sign_in(context: Context, login: str, password: str) -> tables.User:
    """The active user with this login and password, who becomes the viewer of the operation.

    The password of the account itself is tried first, and then the directory, if there is one: accounts of people in the directory have no
    other password, except for administrators. So these can sign in while the directory is down, and no directory decides about others.

    Raises the same Unauthenticated for an unknown login, a wrong password and a blocked user, LimitExceeded after ten failures of the
    login in a minute, and Unavailable if the directory cannot be reached. When password sign-in is disabled, administrators can still sign
    in, so that no setting locks everyone out of an instance; so can people in the directory. Without a directory every other attempt raises
    the same Forbidden, even with the correct password. The password is verified before the transaction takes the write lock, because
    hashing takes long enough to delay every writer.
    """
    directory = context.services.directory
    async with context.read_only() as reader:
        enabled = (await settings.load_settings(reader)).signin_enabled
        rejection = _rejection(enabled or directory is not None)
        if not login or not password or len(login) > MAX_CREDENTIAL_LENGTH or len(password) > MAX_CREDENTIAL_LENGTH:
            raise rejection
        found = await reader.first(users.by_login(login))
        is_managed = found is not None and await _is_managed(reader, found)
    own_hash = found.password_hash if found is not None and (found.admin or not is_managed) else None
    async with context.services.sign_in_failures.attempt(name_login(found.id if found is not None else None, login)) as record_failure:
        is_correct = await context.services.passwords.verify(own_hash, password)
        if not is_correct and directory is not None:
            try:
                person = await directory_sign_in.authenticate(context.services, directory, login, password)
            except Unavailable:
                if own_hash is not None:
                    record_failure()
                raise
            user = await external_accounts.sign_in_person(context, person, directory.policy) if person is not None else None
            if user is None:
                record_failure()
                raise rejection
            return user
        # Counts as a failure too where it is disabled; otherwise never being throttled would reveal that the password is correct.
        if found is None or not is_correct or found.state is not UserState.ACTIVE or not (enabled or found.admin):
            record_failure()
            raise rejection
    user = await context.rows_by_id(tables.User).get(found.id)
    if user is None or user.password_hash != found.password_hash or user.state is not UserState.ACTIVE:
        raise rejection
    user.current_sign_in_at = context.now()
    context.sign_in(user)
    return user


async def _is_managed(reader: Context, user: tables.User) -> bool:
    """Whether the account belongs to a person in the directory, who signs in with the password of the directory."""
    directory = reader.services.directory
    return directory is not None and await reader.exists(identities.has_identity(user.id, directory.provider))


def _rejection(is_sign_in_enabled: bool) -> Unauthenticated | Forbidden:
    return Unauthenticated("Invalid login or password.") if is_sign_in_enabled else Forbidden("Password sign-in is disabled")


async def require_sign_up_allowed(context: Context) -> None:
    """Raises Forbidden when sign-up is disabled, LimitExceeded after too many attempts.

    Every attempt by anyone counts: each costs a hash, reveals whether an address is registered, and may create an account.
    """
    async with context.services.sign_ups.attempt("anybody") as record_attempt:
        record_attempt()
    if not (await settings.load_settings(context)).signup_enabled:
        raise Forbidden("Sign-up is disabled")


async def sign_up(context: Context, values: Mapping[str, Any]) -> tables.User:
    """Create the account of an anonymous caller, who becomes the viewer, with the values of `SignUpInput`.

    Raises UserErrors, Forbidden, LimitExceeded, Invalid, Taken.
    """
    columns = accounts.validate_columns(dict(values))
    async with context.read_only() as reader:
        await require_sign_up_allowed(reader)
        await user_changes.require_available(reader, columns)
    await user_changes.hash_password(context, columns)
    await user_changes.require_available(context, columns)
    user = await user_changes.open_account(context, columns, confirmed=False)
    context.sign_in(user)
    return user
