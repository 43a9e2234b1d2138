"""Signing in with a password, and opening an account for oneself (wire facts 1.4, DECISIONS 17)."""

from graph.context import Context
from graph.errors import Forbidden, Unauthenticated
from graph.rules import settings
from storage import tables
from storage.tables import UserState, users

MAX_CREDENTIAL_LENGTH = 1000
"""Characters of a login or a password beyond which it is nobody's, and not worth a hash."""


async def sign_in(context: Context, login: str, password: str) -> tables.User:
    """The active user of this login and password, who is the viewer from here on.

    Raises Unauthenticated alike for a login that nobody has, a wrong password and a blocked user, LimitExceeded after ten failures
    in a minute. Where the instance lets nobody in by password, an administrator still comes in, so that no setting locks an instance,
    and everything else raises Forbidden alike, the right password of another user too. The password is looked at before the
    transaction takes its turn, because a hash takes long enough to hold up every writer.
    """
    async with context.read_only() as reader:
        enabled = (await settings.load_settings(reader)).signin_enabled
        if not login or not password or len(login) > MAX_CREDENTIAL_LENGTH or len(password) > MAX_CREDENTIAL_LENGTH:
            raise _rejection(enabled)
        found = await reader.first(users.by_login(login))
    # An account has one count, however its login is spelled.
    attempt_key = found.id if found is not None else login.strip().lower()
    async with context.services.sign_in_failures.attempt(attempt_key) as record_failure:
        is_correct = await context.services.passwords.verify(found.password_hash if found is not None else None, password)
        if found is None or not is_correct or found.state is not UserState.ACTIVE:
            record_failure()
            raise _rejection(enabled)
        if not enabled and not found.admin:
            # Counted as well, or who is never told to wait would know the password.
            record_failure()
            raise _rejection(enabled)
    user = await context.rows_by_id(tables.User).get(found.id)
    if user is None or user.password_hash != found.password_hash or user.state is not UserState.ACTIVE:
        raise _rejection(enabled)
    user.current_sign_in_at = context.now()
    context.viewer_or_none = user
    return user


def _rejection(is_sign_in_enabled: bool) -> Unauthenticated | Forbidden:
    return (
        Unauthenticated("There is no active user of this login and password.")
        if is_sign_in_enabled
        else Forbidden("Password sign-in is disabled")
    )


async def require_sign_up_allowed(context: Context) -> None:
    """Raises Forbidden where the instance opens no accounts for strangers, LimitExceeded where too many come.

    Every attempt counts, of whomever: each costs a hash, tells whether an address is known, and may leave an account behind.
    """
    async with context.services.sign_ups.attempt("anybody") as record_attempt:
        record_attempt()
    if not (await settings.load_settings(context)).signup_enabled:
        raise Forbidden("Sign-up is disabled")
