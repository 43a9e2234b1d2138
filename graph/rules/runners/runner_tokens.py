"""Tokens of runners and of builds, and the builds assigned to a runner.

A runner claims builds with its own token. Each claimed build has a token of its own, which is valid for that build while it is assigned
to the runner: it reports the status and fetches the project's code. Both token formats differ from those of users' tokens.
"""

import hmac
import re
from datetime import timedelta
from functools import partial

from sqlmodel import col

from graph.context import Context, RunnerIdentity, Services
from graph.errors import Conflict, NotFound
from graph.operations.transaction import write_transaction
from storage import tables
from storage.database.engine import DatabaseSession
from storage.secrets import digest_token, new_token
from storage.tables import CheckStatus
from storage.tables.base import MAX_ID
from storage.tables.builds import runners

RUNNER_TOKEN = re.compile(r"fr-[\w-]{20}", re.ASCII)
BUILD_TOKEN = re.compile(r"fb-([1-9][0-9]{0,9})-[\w-]{20}", re.ASCII)
PREFIXES = ("fr-", "fb-")
MIN_RENEWAL_INTERVAL = timedelta(seconds=10)
"""Minimum age of a lease before it is renewed."""
CONTACT_INTERVAL = timedelta(minutes=1)
"""Minimum time between two records of when a runner last called."""


def generate_runner_token() -> str:
    return f"fr-{new_token()}"


def generate_build_token(build_id: int) -> str:
    """A token that contains the build's id, so that lookups need no index on tokens."""
    return f"fb-{build_id}-{new_token()}"


def is_token(credential: str | None) -> bool:
    """Whether a credential has the format of a runner's or a build's token."""
    if credential is None or not credential.startswith(PREFIXES):
        return False
    return bool(RUNNER_TOKEN.fullmatch(credential) or BUILD_TOKEN.fullmatch(credential))


def is_runner_token(credential: str | None) -> bool:
    """Whether a credential has the format of a runner's own token."""
    return credential is not None and RUNNER_TOKEN.fullmatch(credential) is not None


def is_build_token(credential: object) -> bool:
    return isinstance(credential, str) and BUILD_TOKEN.fullmatch(credential) is not None


async def authenticate(session: DatabaseSession, credential: str) -> RunnerIdentity | None:
    """The runner that a token authenticates; the token of a finished build is still accepted."""
    token_digest = digest_token(credential)
    match = BUILD_TOKEN.fullmatch(credential)
    if match is None:
        rows = await session.read(runners.by_digest(token_digest))
        runner = rows[0][0] if rows else None
        return (
            RunnerIdentity(runner, token_digest) if runner is not None and hmac.compare_digest(runner.token_digest, token_digest) else None
        )
    return await find_holder(session, int(match[1]), token_digest)


async def find_holder(session: DatabaseSession, build_id: int, token_digest: str) -> RunnerIdentity | None:
    """The runner to which the build was assigned with the token of this digest.

    None if it has been assigned again since.
    """
    if build_id > MAX_ID:
        return None
    for build, runner in await session.read(runners.build_and_runner(build_id)):
        if build.token_digest is not None and hmac.compare_digest(build.token_digest, token_digest):
            return RunnerIdentity(runner, token_digest, build)
    return None


async def get_build(context: Context, runner_identity: RunnerIdentity, build_id: int | None) -> tables.Build:
    """The build with this id, which is assigned to the runner; its lease is renewed after the commit.

    Raises NotFound for a build that never was assigned to it, Conflict for one that no longer is.
    """
    if build_id is None or not 0 < build_id <= MAX_ID:
        raise NotFound("Build")
    build = await context.first(runners.build_by_id(build_id))
    if (
        build is None
        or (build.runner_id is None and runner_identity.build is None)
        or (runner_identity.build is not None and runner_identity.build.id != build_id)
    ):
        raise NotFound("Build")
    if not runner_identity.is_assigned(build):
        raise lost_build_error(build)
    renew_lease_after_commit(context, runner_identity.runner, build)
    return build


def lost_build_error(build: tables.Build) -> Conflict:
    """The error for a build that is no longer assigned to the runner."""
    if build.status is CheckStatus.CANCELED:
        return Conflict("id", "The build was canceled.")
    return Conflict("id", "The build is no longer assigned to this runner.")


def renew_lease_after_commit(context: Context, runner: tables.Runner, build: tables.Build) -> None:
    """Renew the lease of a build that is assigned to its runner, unless it was renewed recently."""
    lease = timedelta(seconds=context.services.build_lease)
    renewed_after = min(MIN_RENEWAL_INTERVAL, lease / 4)
    until = context.now() + lease
    if build.lease_until is not None and until - build.lease_until >= renewed_after:
        contacted_id = runner.id if is_contact_due(context, runner) else None
        context.after_commit.append(partial(_renew_lease, context.services, build.id, build.token_digest, contacted_id))


def is_contact_due(context: Context, runner: tables.Runner) -> bool:
    """Whether the recorded time of the runner's last call is too old."""
    return runner.contacted_at is None or context.now() - runner.contacted_at >= CONTACT_INTERVAL


async def _renew_lease(services: Services, build_id: int, token_digest: str | None, contacted_id: int | None) -> None:
    """Renew in a separate transaction, so that the renewal does not delay the operation.

    A runner that has a build in each of its slots requests none, so that its call is recorded here.
    """
    moment = services.clock()
    until = moment + timedelta(seconds=services.build_lease)
    async with write_transaction(services.database) as session:
        if contacted_id is not None:
            await session.execute(runners.record_contact(contacted_id, moment, {}))
        await session.execute(runners.renew_lease(build_id, until).where(col(tables.Build.token_digest) == token_digest))
