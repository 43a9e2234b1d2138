"""Registration tokens: who knows the instance's registers runners for every project, who knows a project's registers them for it.

They are random like users' tokens and kept like them (`storage.secrets`), and each is made when it is first shown.
"""

from collections.abc import Collection

from sqlalchemy.exc import IntegrityError

from graph.context import Context
from graph.errors import Forbidden
from graph.rules import machines, runners
from graph.transaction import kept
from storage import tables
from storage.secrets import digest, new_token
from storage.tables import registration_tokens
from storage.tables.registration_tokens import INSTANCE

NAMELESS = "runner"
"""What a runner is called that says nothing of itself."""
LONGEST = 255
"""Characters of a token beyond which it is nobody's."""


async def token(context: Context, scope: int) -> str | None:
    """The token with which runners are registered for the project of this id, or for every project (INSTANCE).

    None when the project is removed at this moment.
    """

    async def fetch(scopes: list[int]) -> dict[int, str]:
        found = {row.scope: row for row in await context.all(registration_tokens.of_scopes(scopes))}
        missing = [key for key in scopes if key not in found]
        if missing:
            found |= await _made(context, missing)
        return {key: context.services.cipher.decrypt(row.sealed) for key, row in found.items()}

    return await context.loader("registration tokens", fetch).get(scope)


async def reset(context: Context, scope: int) -> None:
    """Gives the scope another token; the old one is worthless from the commit on, and runners that came with it stay."""
    row = await context.first(registration_tokens.held(scope))
    fresh = _fresh(context, scope)
    if row is None:
        await context.add(fresh)
    else:
        row.digest, row.sealed, row.created_at = fresh.digest, fresh.sealed, fresh.created_at


async def scope_of(context: Context, text: str) -> int:
    """What a registration token is for: a project's id, or INSTANCE. Raises Forbidden, LimitExceeded.

    Wrong tokens are counted, and too many of them told to wait; a right one never is, since 120 random bits cannot be guessed.
    """
    row = await context.first(registration_tokens.of_digest(digest(text))) if 0 < len(text) <= LONGEST else None
    if row is None:
        await _wrong(context)
        raise Forbidden
    return row.scope


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


async def _made(context: Context, scopes: list[int]) -> dict[int, tables.RegistrationToken]:
    """Tokens for what has none, kept beside the operation, which may be a query; of two who make one at once the first wins."""
    database = context.services.database
    try:
        async with kept(database) as session:
            await session.execute(registration_tokens.create_missing(database.dialect, [_fresh(context, scope) for scope in scopes]))
    except IntegrityError:
        # One of the projects is gone; the others get theirs when they are asked for again.
        return {}
    async with database.reading() as session:
        return {row.scope: row for (row,) in await session.read(registration_tokens.of_scopes(scopes))}


def _fresh(context: Context, scope: int) -> tables.RegistrationToken:
    value = new_token()
    return tables.RegistrationToken(
        scope=scope,
        project_id=None if scope == INSTANCE else scope,
        digest=digest(value),
        sealed=context.services.cipher.encrypt(value),
        created_at=context.now(),
    )
