"""Runners as callers: the tokens by which they are known, and the builds that they have.

A runner's own token asks for builds. With each build comes a token of the build, which is worth something for that build and for as long
as the runner has it: to say how it goes on, and to fetch the project's code. Both have a form that no user's token has.
"""

import hmac
import re
from datetime import timedelta
from functools import partial

from sqlmodel import col

from graph.context import Context, Machine, Services
from graph.errors import Conflict, NotFound
from graph.transaction import kept
from storage import tables
from storage.database import Session
from storage.secrets import digest, new_token
from storage.tables import CheckStatus, runners

RUNNER_TOKEN = re.compile(r"fr-[\w-]{20}", re.ASCII)
BUILD_TOKEN = re.compile(r"fb-([1-9][0-9]{0,9})-[\w-]{20}", re.ASCII)
PREFIXES = ("fr-", "fb-")
RENEWED_AFTER = timedelta(seconds=10)
"""How old a lease is, at least, when it is written anew."""
MOST_ID = 2**31 - 1


def new_runner_token() -> str:
    return f"fr-{new_token()}"


def new_build_token(build_id: int) -> str:
    """It names the build, so that it is found without an index of its own."""
    return f"fb-{build_id}-{new_token()}"


def is_token(credential: str | None) -> bool:
    """Whether a credential is a runner's or a build's, good or not."""
    if credential is None or not credential.startswith(PREFIXES):
        return False
    return bool(RUNNER_TOKEN.fullmatch(credential) or BUILD_TOKEN.fullmatch(credential))


def is_runner_token(credential: str | None) -> bool:
    """Whether a credential is a runner's own token, good or not."""
    return credential is not None and RUNNER_TOKEN.fullmatch(credential) is not None


def is_build_token(credential: object) -> bool:
    return isinstance(credential, str) and BUILD_TOKEN.fullmatch(credential) is not None


async def authenticate(session: Session, credential: str) -> Machine | None:
    """The runner that a token speaks for; of a build's token also when the build has ended since."""
    wanted = digest(credential)
    found = BUILD_TOKEN.fullmatch(credential)
    if found is None:
        rows = await session.read(runners.by_digest(wanted))
        runner = rows[0][0] if rows else None
        return Machine(runner, wanted) if runner is not None and hmac.compare_digest(runner.token_digest, wanted) else None
    return await holder(session, int(found[1]), wanted)


async def holder(session: Session, build_id: int, token_digest: str) -> Machine | None:
    """The runner that a build was given to with the token of this digest, unless another has got it since."""
    if build_id > MOST_ID:
        return None
    for build, runner in await session.read(runners.with_build(build_id)):
        if build.token_digest is not None and hmac.compare_digest(build.token_digest, token_digest):
            return Machine(runner, token_digest, build)
    return None


async def build_of(context: Context, machine: Machine, build_id: int | None) -> tables.Build:
    """The build that a runner names, which it has; its lease is renewed when the operation is kept.

    Raises NotFound for one that it was never given, Conflict for one that it has no more.
    """
    if build_id is None or not 0 < build_id <= MOST_ID:
        raise NotFound("Build")
    build = await context.first(runners.build(build_id))
    if build is None or (build.runner_id is None and machine.build is None) or (machine.build is not None and machine.build.id != build_id):
        raise NotFound("Build")
    if not machine.has(build):
        raise gone(build)
    renew_later(context, build)
    return build


def gone(build: tables.Build) -> Conflict:
    """What a runner is told of a build that it has no more."""
    if build.status is CheckStatus.CANCELED:
        return Conflict("id", "The build was canceled.")
    return Conflict("id", "The build is not this runner's any more.")


def renew_later(context: Context, build: tables.Build) -> None:
    """Renews the lease of a build that its runner has, unless that was done a moment ago."""
    lease = timedelta(seconds=context.services.build_lease)
    renewed_after = min(RENEWED_AFTER, lease / 4)
    until = context.now() + lease
    if build.lease_until is not None and until - build.lease_until >= renewed_after:
        context.after_commit.append(partial(_renew, context.services, build.id, build.token_digest))


async def _renew(services: Services, build_id: int, token_digest: str | None) -> None:
    """In a transaction of its own, so that what the operation did is not held up by it."""
    until = services.clock() + timedelta(seconds=services.build_lease)
    async with kept(services.database) as session:
        await session.execute(runners.renew(build_id, until).where(col(tables.Build.token_digest) == token_digest))
