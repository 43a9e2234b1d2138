"""What a build may use of those before it: their artifacts, which its runner fetches."""

import hmac
from typing import Any

from sqlmodel import col

from graph.context import Context, Machine
from graph.errors import Conflict, Forbidden, NotAllowed, NotFound
from graph.rules import artifacts, builds, machines
from storage import tables
from storage.secrets import digest
from storage.tables import artifacts as artifact_statements
from storage.tables import pipelines


async def before(context: Context, build: tables.Build) -> list[tables.Build]:
    """The builds of the earlier stages of its pipeline, each in its newest attempt, in the order of stages."""
    if build.pipeline_id is None:
        return []

    async def fetch(ids: list[int]) -> dict[int, list[tables.Build]]:
        found: dict[int, list[tables.Build]] = {}
        for row in await context.all(pipelines.builds_of(ids)):
            found.setdefault(row.pipeline_id or 0, []).append(row)
        return found

    of_pipeline = await context.loader("builds of pipelines", fetch).get(build.pipeline_id) or []
    return [row for row in of_pipeline if row.stage_index < build.stage_index]


async def artifact(context: Context, machine: Machine, build_id: int) -> tables.Artifact | None:
    """What a build has left, for the runner of that build or of one in a later stage of its pipeline, by the token of its own build.

    Raises NotFound for any other build, Forbidden when the runner has its own no more.
    """
    own = await _own(context, machine)
    if build_id != own.id and build_id not in {row.id for row in await before(context, own)}:
        raise NotFound("Build")
    return await context.first(artifact_statements.of_builds([build_id]).where(col(tables.Artifact.project_id) == own.project_id))


async def remove_artifact(context: Context, build: tables.Build) -> tuple[tables.Build, int | None]:
    """Takes the artifact of a build away, for who may give it one; returns its id too, None where there was none.

    Raises Forbidden, NotFound, NotAllowed for an earlier run.
    """
    await artifacts.may_write(context, build)
    held = await builds.hold(context, build.id)
    if held.current_id is not None:
        raise NotAllowed("id", "An earlier attempt stays as it was.")
    return held, await artifacts.remove(context, held)


async def given(context: Context, machine: Machine, token: str) -> tables.Build:
    """The build that a runner has, by the build's token with which it calls. Raises NotFound, Forbidden."""
    if machine.build is None or not hmac.compare_digest(digest(token), machine.digest):
        raise NotFound("Build")
    return await _own(context, machine)


async def _own(context: Context, machine: Machine) -> tables.Build:
    try:
        return await machines.build_of(context, machine, machine.build.id if machine.build is not None else None)
    except Conflict as error:
        raise Forbidden(error.message) from None


def texts(value: Any) -> list[str] | None:
    """The texts of a list out of a job's options; None for what is no list."""
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else None
