"""Access tokens of users: named, with scopes, and optionally with an expiry (docs/decisions.md 55)."""

from collections.abc import Sequence
from datetime import datetime

from graph.context import Context
from graph.errors import InsufficientScope, Invalid, NotFound, UserError, UserErrors
from graph.operations.token_scopes import has_scope, serialize_scopes
from graph.rules import validation
from storage import tables
from storage.secrets import digest_token, new_token
from storage.tables import TokenScope
from storage.tables.accounts import users


async def create_token(context: Context, name: str, scopes: Sequence[TokenScope], expires_at: datetime | None) -> tuple[tables.Token, str]:
    """Create a token of the viewer, and return it with its value, which is not stored. Raises UserErrors, InsufficientScope."""
    problems: list[UserError] = []
    try:
        name = validation.validate_title("name", name)
    except UserError as error:
        problems.append(error)
    if not scopes or set(scopes) == {TokenScope.ADMIN}:
        problems.append(Invalid("scopes", "must include READ, WRITE or GIT"))
    if TokenScope.ADMIN in scopes and not context.viewer.admin:
        problems.append(Invalid("scopes", "must not include ADMIN, because you are not an administrator"))
    if expires_at is not None and expires_at <= context.now():
        problems.append(Invalid("expiresAt", "must be in the future"))
    if problems:
        raise UserErrors(problems)
    _require_no_more_rights(context, scopes, expires_at)
    value = new_token()
    row = tables.Token(
        user_id=context.viewer.id,
        name=name,
        digest=digest_token(value),
        sealed="",
        created_at=context.now(),
        scopes=serialize_scopes(scopes),
        expires_at=expires_at,
    )
    return await context.add(row), value


def _require_no_more_rights(context: Context, scopes: Sequence[TokenScope], expires_at: datetime | None) -> None:
    """Raises InsufficientScope if the caller's access token has fewer rights than the one that it creates, or expires before it."""
    caller = context.access_token
    if caller is None:
        return
    for scope in scopes:
        if not has_scope(caller.scopes, scope):
            raise InsufficientScope(f"The access token lacks the scope `{scope}`, so it cannot create tokens with it.")
    if caller.expires_at is not None and (expires_at is None or expires_at > caller.expires_at):
        raise InsufficientScope("The access token cannot create tokens that expire after itself.")


async def revoke_token(context: Context, token: tables.Token) -> tables.Token:
    """Delete a token, which becomes invalid immediately. Raises NotFound when it has been deleted."""
    if await context.value(users.remove_access_token(token.id, token.user_id)) is None:
        raise NotFound("Token")
    context.loaders.clear()
    return token
