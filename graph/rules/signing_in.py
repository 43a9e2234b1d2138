"""Signing in with a password, and opening an account for oneself (wire facts 1.4, DECISIONS 17)."""

from graph.context import Context
from graph.errors import Forbidden, Unauthenticated
from graph.rules import settings
from storage import tables
from storage.tables import UserState, users

LONGEST = 1000
"""Characters of a login or a password beyond which it is nobody's, and not worth a hash."""


async def sign_in(context: Context, login: str, password: str) -> tables.User:
    """The active user of this login and password, who is the viewer from here on.

    Raises Unauthenticated alike for a login that nobody has, a wrong password and a blocked user, LimitExceeded after ten failures
    in a minute. Where the instance lets nobody in by password, an administrator still comes in, so that no setting locks an instance,
    and everything else raises Forbidden alike, the right password of another user too. The password is looked at before the
    transaction takes its turn, because a hash takes long enough to hold up every writer.
    """
    async with context.aside() as aside:
        enabled = (await settings.current(aside)).signin_enabled
        if not login or not password or len(login) > LONGEST or len(password) > LONGEST:
            raise _wrong(enabled)
        found = await aside.first(users.by_login(login))
    # An account has one count, however its login is spelled.
    name = found.id if found is not None else login.strip().lower()
    async with context.services.sign_in_failures.attempt(name) as failed:
        right = await context.services.passwords.verify(found.password_hash if found is not None else None, password)
        if found is None or not right or found.state is not UserState.ACTIVE:
            failed()
            raise _wrong(enabled)
        if not enabled and not found.admin:
            # Counted as well, or who is never told to wait would know the password.
            failed()
            raise _wrong(enabled)
    user = await context.rows_by_id(tables.User).get(found.id)
    if user is None or user.password_hash != found.password_hash or user.state is not UserState.ACTIVE:
        raise _wrong(enabled)
    user.current_sign_in_at = context.now()
    context.viewer_or_none = user
    return user


def _wrong(enabled: bool) -> Unauthenticated | Forbidden:
    return Unauthenticated("There is no active user of this login and password.") if enabled else Forbidden("Password sign-in is disabled")


async def let_sign_up(context: Context) -> None:
    """Raises Forbidden where the instance opens no accounts for strangers, LimitExceeded where too many come.

    Every attempt counts, of whomever: each costs a hash, tells whether an address is known, and may leave an account behind.
    """
    async with context.services.sign_ups.attempt("anybody") as count:
        count()
    if not (await settings.current(context)).signup_enabled:
        raise Forbidden("Sign-up is disabled")
