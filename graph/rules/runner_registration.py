"""Registration tokens: who knows the instance's registers runners for every project, who knows a project's registers them for it.

They follow from the instance's key, what they are for, and how often they were changed, so that showing one writes nothing.
"""

import hmac
import re
from collections.abc import Collection

from graph.context import Context
from graph.errors import Forbidden
from graph.rules import machines, runners
from storage import tables
from storage.tables import registration_tokens
from storage.tables.registration_tokens import INSTANCE

NAMELESS = "runner"
"""What a runner is called that says nothing of itself."""
TOKEN = re.compile(r"rt-(0|[1-9][0-9]{0,9})-[\w-]{20}", re.ASCII)


async def token(context: Context, scope: int) -> str:
    """The token with which runners are registered for the project of this id, or for every project (INSTANCE)."""

    async def fetch(scopes: list[int]) -> dict[int, int]:
        return {row.scope: row.changes for row in await context.all(registration_tokens.of_scopes(scopes))}

    return _token(context, scope, await context.loader("registration tokens", fetch).get(scope) or 0)


def _token(context: Context, scope: int, changes: int) -> str:
    return f"rt-{scope}-{context.services.cipher.derive(f'registration {scope} {changes}')}"


async def reset(context: Context, scope: int) -> None:
    """Gives the scope another token; the old one is worthless from the commit on, and runners that came with it stay."""
    row = await context.first(registration_tokens.held(scope))
    if row is None:
        row = await context.add(tables.RegistrationToken(scope=scope, project_id=None if scope == INSTANCE else scope))
    row.changes += 1
    row.changed_at = context.now()


async def scope_of(context: Context, text: str) -> int:
    """What a registration token is for: a project's id, or INSTANCE. Raises Forbidden, LimitExceeded.

    Wrong tokens are counted, and too many of them told to wait; a right one never is, since 120 bits cannot be guessed.
    """
    found = TOKEN.fullmatch(text)
    scope = int(found[1]) if found is not None else -1
    if 0 <= scope <= machines.MOST_ID:
        row = await context.first(registration_tokens.of_scopes([scope]))
        if hmac.compare_digest(text, _token(context, scope, row.changes if row is not None else 0)):
            return scope
    await _wrong(context)
    raise Forbidden


async def register(context: Context, text: str, description: str, tags: Collection[str], about: runners.About) -> tuple[tables.Runner, str]:
    """A new runner for what a registration token is for, and the token that it calls with. Without a description it is called by its name.

    Raises Forbidden, LimitExceeded, Invalid.
    """
    scope = await scope_of(context, text)
    project = await context.rows_by_id(tables.Project).get(scope) if scope != INSTANCE else None
    if scope != INSTANCE and project is None:
        raise Forbidden
    said = about.columns()
    called = description.strip() or said.get("name") or NAMELESS
    runner, token = await runners.create(context, called, tags=tags, run_untagged=True, active=True, project=project)
    runner.sqlmodel_update(said)
    return runner, token


async def unregister(context: Context, text: str) -> tables.Runner:
    """Forgets the runner that calls with this token. Raises Forbidden, LimitExceeded."""
    machine = await machines.authenticate(context.session, text) if machines.is_token(text) else None
    if machine is None or machine.build is not None:
        await _wrong(context)
        raise Forbidden
    await runners.delete(context, machine.runner)
    return machine.runner


async def _wrong(context: Context) -> None:
    """Counts a token that nobody has. Raises LimitExceeded."""
    async with context.services.registrations.attempt("anybody") as failed:
        failed()
