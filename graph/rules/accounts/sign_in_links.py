"""Links that administrators make for people who have no password yet, above all after an import. A link signs in once."""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from graph.context import Context
from graph.errors import Invalid, NotAllowed, Unauthenticated
from graph.rules.accounts import accounts, user_changes
from storage import tables
from storage.secrets import digest_token
from storage.tables import UserState
from storage.tables.accounts import sign_in_links

DEFAULT_HOURS = 72
MAX_HOURS = 24 * 30
MAX_CODE_LENGTH = 100


@dataclass(frozen=True, slots=True)
class NewSignInLink:
    """A link that was made just now. The code is only in this URL, in its fragment, which browsers send to no server."""

    user: tables.User
    url: str
    expires_at: datetime


async def create_link(context: Context, user: tables.User, hours: int | None) -> NewSignInLink:
    """Make a link for a user that `accounts.lock_user` returned; older links of the user become invalid. Raises Invalid, NotAllowed.

    Raises InsufficientScope for an access token and a user who is an administrator.
    """
    accounts.require_credentials_changeable(context, user)
    hours = DEFAULT_HOURS if hours is None else hours
    if not 1 <= hours <= MAX_HOURS:
        raise Invalid("expiresInHours", f"must be between 1 and {MAX_HOURS}")
    if user.state is not UserState.ACTIVE:
        raise NotAllowed(None, "The user is blocked. Unblock the user first.")
    code, moment = secrets.token_urlsafe(32), context.now()
    expires_at = moment + timedelta(hours=hours)
    await context.session.execute(sign_in_links.remove_older(user.id, moment))
    await context.add(tables.SignInLink(user_id=user.id, digest=digest_token(code), created_at=moment, expires_at=expires_at))
    return NewSignInLink(user, f"{context.services.external_url}/-/sign_in#link={code}", expires_at)


async def sign_in(context: Context, code: str, values: Mapping[str, Any]) -> tables.User:
    """The active user of an unused link, who becomes the viewer. A password among the values replaces the user's.

    Raises the same Unauthenticated for an unknown, used or expired link and for a blocked user, and UserErrors for a password that is too
    short; the link can then be used again. Codes have 256 random bits, so attempts are not limited.
    """
    columns = accounts.validate_columns({key: value for key, value in values.items() if key == "password" and value is not None})
    if not code or len(code) > MAX_CODE_LENGTH:
        raise _rejection()
    # The password is hashed only for a valid link, and outside of the transaction.
    digest = digest_token(code)
    async with context.read_only() as reader:
        if await reader.first(sign_in_links.of_digest(digest, context.now())) is None:
            raise _rejection()
    await user_changes.hash_password(context, columns)
    user_id = await context.value(sign_in_links.consume(digest, context.now()))
    user = await context.rows_by_id(tables.User).get(user_id) if user_id is not None else None
    if user is None or user.state is not UserState.ACTIVE:
        raise _rejection()
    user.sqlmodel_update(columns)
    user.current_sign_in_at = context.now()
    context.sign_in(user)
    return user


def _rejection() -> Unauthenticated:
    return Unauthenticated("The link is not valid: it was used, has expired, or is incomplete. Ask an administrator for a new one.")
