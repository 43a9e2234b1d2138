"""Artifacts of earlier builds in a pipeline, which the runner of a later build downloads."""

import hmac
from typing import Any

from sqlmodel import col

from graph.context import Context, RunnerIdentity
from graph.errors import Conflict, Forbidden, NotAllowed, NotFound
from graph.rules.builds import artifacts, builds
from graph.rules.ci.pipeline_views import load_builds
from graph.rules.runners import runner_tokens
from storage import tables
from storage.secrets import digest_token
from storage.tables import CheckStatus
from storage.tables.builds import artifacts as artifact_statements


async def load_earlier_builds(context: Context, build: tables.Build) -> list[tables.Build]:
    """The builds in earlier stages of the same pipeline, or those that the job needs, in their newest attempts, ordered by stage."""
    if build.pipeline_id is None:
        return []
    pipeline_builds = await load_builds(context, build.pipeline_id)
    needs = select_strings(build.options.get("needs"))
    return [
        row
        for row in pipeline_builds
        if row.stage_index < build.stage_index and row.status is not CheckStatus.MANUAL and (needs is None or row.name in needs)
    ]


async def find_artifact(context: Context, runner_identity: RunnerIdentity, build_id: int) -> tables.Artifact | None:
    """The artifact of a build, for the runner of that build or of one in a later stage of its pipeline.

    The runner identifies itself by the token of its own build. Raises NotFound for any other build, Forbidden when its own build is no
    longer assigned to it.
    """
    own_build = await _get_own_build(context, runner_identity)
    if build_id != own_build.id and build_id not in {row.id for row in await load_earlier_builds(context, own_build)}:
        raise NotFound("Build")
    return await context.first(artifact_statements.of_builds([build_id]).where(col(tables.Artifact.project_id) == own_build.project_id))


async def remove_artifact(context: Context, build: tables.Build) -> tuple[tables.Build, int | None]:
    """Delete the artifact of a build.

    Returns the locked build and the artifact's id, or None if there was none. Requires the right to write the build's artifact. Raises
    Forbidden, NotFound, NotAllowed for an earlier attempt.
    """
    await artifacts.require_write_access(context, build)
    locked = await builds.lock_build(context, build.id)
    if locked.current_id is not None:
        raise NotAllowed("id", "A superseded attempt cannot be changed.")
    return locked, await artifacts.remove(context, locked)


async def get_claimed_build(context: Context, runner_identity: RunnerIdentity, token: str) -> tables.Build:
    """The build that is assigned to the runner, by the token of the build. Raises NotFound, Forbidden."""
    if runner_identity.build is None or not hmac.compare_digest(digest_token(token), runner_identity.digest):
        raise NotFound("Build")
    return await _get_own_build(context, runner_identity)


async def _get_own_build(context: Context, runner_identity: RunnerIdentity) -> tables.Build:
    try:
        return await runner_tokens.get_build(
            context, runner_identity, runner_identity.build.id if runner_identity.build is not None else None
        )
    except Conflict as error:
        raise Forbidden(error.message) from None


def select_strings(value: Any) -> list[str] | None:
    """The strings of a list in a job's options; None when the value is not a list."""
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else None
