"""Scopes of access tokens: which of its user's rights a token has (docs/decisions.md 55).

Only this module decides by scopes. Private tokens, keys and the operator have every right; for them `scopes` is None.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from graph.errors import InsufficientScope
from storage import tables
from storage.tables import TokenScope

Scopes = frozenset[TokenScope]

SCOPE_BY_KIND = {"query": TokenScope.READ, "subscription": TokenScope.READ, "mutation": TokenScope.WRITE}
"""The scope that an operation of each kind needs."""

FETCH_SCOPES = (TokenScope.GIT, TokenScope.READ)
PUSH_SCOPES = (TokenScope.GIT,)
"""The scopes of which git over HTTP needs one."""


@dataclass(frozen=True, slots=True)
class TokenIdentity:
    """An authenticated token of an active user. Without the scope ADMIN, `user` has no rights of an administrator."""

    user: tables.User
    token_id: int
    scopes: Scopes | None = None
    expires_at: datetime | None = None
    last_used_at: datetime | None = None


def identify(
    user: tables.User, token_id: int, stored: str | None, expires_at: datetime | None, last_used_at: datetime | None
) -> TokenIdentity:
    """The identity of a token with these stored scopes."""
    scopes = parse_scopes(stored)
    return TokenIdentity(limit_user(user, scopes), token_id, scopes, expires_at, last_used_at)


def parse_scopes(stored: str | None) -> Scopes | None:
    """`"git,write"` becomes {GIT, WRITE, READ}, because WRITE includes READ. Scopes that this version does not know allow nothing."""
    if stored is None:
        return None
    names = stored.split(",")
    scopes = {scope for scope in TokenScope if scope in names}
    return frozenset(scopes | {TokenScope.READ} if TokenScope.WRITE in scopes else scopes)


def serialize_scopes(scopes: Iterable[TokenScope]) -> str:
    return ",".join(scope for scope in TokenScope if scope in scopes)


def limit_user(user: tables.User, scopes: Scopes | None) -> tables.User:
    """The user with the rights that these scopes leave; a copy, which belongs to no session, if they take the administrator's."""
    if not user.admin or has_scope(scopes, TokenScope.ADMIN):
        return user
    limited = object.__new__(tables.User)
    limited.__dict__.update({name: value for name, value in vars(user).items() if name in tables.User.model_fields}, admin=False)
    return limited


def has_scope(scopes: Scopes | None, scope: TokenScope) -> bool:
    return scopes is None or scope in scopes


def require_scope(scopes: Scopes | None, *sufficient: TokenScope) -> None:
    """Raises InsufficientScope unless the scopes include one of these."""
    if scopes is not None and scopes.isdisjoint(sufficient):
        needed = " or ".join(f"`{scope}`" for scope in sufficient)
        raise InsufficientScope(f"The access token lacks the scope {needed}.")


def require_private_token(token: TokenIdentity | None, action: str) -> None:
    """Raises InsufficientScope for an access token, whatever its scopes: the action gives rights that no scope includes.

    `action` completes the message "An access token cannot …". `token` is None for callers with every right of the user.
    """
    if token is not None:
        raise InsufficientScope(f"An access token cannot {action}. Use the private token.")


def may_see_writing_tokens(token: TokenIdentity | None) -> bool:
    """Whether the caller may read tokens of triggers and runners, which change something: an access token needs WRITE."""
    return token is None or has_scope(token.scopes, TokenScope.WRITE)
