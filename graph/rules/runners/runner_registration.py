"""Registration tokens: the instance's is for shared runners, a project's for runners of the project.

A token is derived from the instance's key, its scope and the number of resets, so that reading one writes nothing.
"""

import hmac
import re
from collections.abc import Collection

from graph.context import Context
from graph.errors import Forbidden
from graph.rules.runners import build_claims, runner_administration, runner_tokens
from storage import tables
from storage.tables.base import MAX_ID
from storage.tables.builds import registration_tokens
from storage.tables.builds.registration_tokens import INSTANCE_SCOPE

DEFAULT_DESCRIPTION = "runner"
"""Description of a runner that sends neither a description nor a name."""
TOKEN_PATTERN = re.compile(r"rt-(0|[1-9][0-9]{0,9})-[\w-]{20}", re.ASCII)


async def get_token(context: Context, scope: int) -> str:
    """The registration token of the project with this id, or of the instance (INSTANCE_SCOPE)."""

    async def fetch(scopes: list[int]) -> dict[int, int]:
        return {row.scope: row.changes for row in await context.all(registration_tokens.of_scopes(scopes))}

    return _derive_token(context, scope, await context.loader("registration tokens", fetch).get(scope) or 0)


def _derive_token(context: Context, scope: int, changes: int) -> str:
    return f"rt-{scope}-{context.services.cipher.derive(f'registration {scope} {changes}')}"


async def reset_token(context: Context, scope: int) -> None:
    """Change the token of a scope. The commit invalidates the old one; runners registered with it remain."""
    row = await context.first(registration_tokens.for_update(scope))
    if row is None:
        row = await context.add(tables.RegistrationToken(scope=scope, project_id=None if scope == INSTANCE_SCOPE else scope))
    row.changes += 1
    row.changed_at = context.now()


async def get_scope(context: Context, token_string: str) -> int:
    """The scope of a registration token: a project id, or INSTANCE_SCOPE. Raises Forbidden, LimitExceeded.

    Only invalid tokens are counted and throttled. A valid token is always accepted, because 120 bits cannot be guessed.
    """
    match = TOKEN_PATTERN.fullmatch(token_string)
    scope = int(match[1]) if match is not None else -1
    if 0 <= scope <= MAX_ID:
        row = await context.first(registration_tokens.of_scopes([scope]))
        if hmac.compare_digest(token_string, _derive_token(context, scope, row.changes if row is not None else 0)):
            return scope
    await _count_failure(context)
    raise Forbidden


async def register_runner(
    context: Context, token_string: str, description: str, tags: Collection[str], details: build_claims.RunnerDetails
) -> tuple[tables.Runner, str]:
    """Register a runner in the scope of the registration token; returns it and its own token.

    Without a description, the runner's name is the description. Raises Forbidden, LimitExceeded, Invalid.
    """
    scope = await get_scope(context, token_string)
    project = await context.rows_by_id(tables.Project).get(scope) if scope != INSTANCE_SCOPE else None
    if scope != INSTANCE_SCOPE and project is None:
        raise Forbidden
    columns = details.to_columns()
    name = description.strip() or columns.get("name") or DEFAULT_DESCRIPTION
    runner, token = await runner_administration.create_runner(context, name, tags=tags, run_untagged=True, active=True, project=project)
    runner.sqlmodel_update(columns)
    return runner, token


async def unregister_runner(context: Context, token_string: str) -> tables.Runner:
    """Delete the runner that authenticates with this token. Raises Forbidden, LimitExceeded."""
    runner_identity = await runner_tokens.authenticate(context.session, token_string) if runner_tokens.is_token(token_string) else None
    if runner_identity is None or runner_identity.build is not None:
        await _count_failure(context)
        raise Forbidden
    return await runner_administration.delete_runner(context, runner_identity.runner)


async def _count_failure(context: Context) -> None:
    """Count an invalid token. Raises LimitExceeded."""
    async with context.services.registrations.attempt("anybody") as record_failure:
        record_failure()
