"""Environments: their last deployment, and stopping them."""

from typing import Any

from graph.context import Context
from graph.errors import NotFound
from graph.rules.builds import builds
from graph.rules.ci import pipelines
from storage import tables
from storage.tables.builds import environments


def last_deployment_loader(context: Context) -> Any:
    """The loader of last deployments by environment id."""

    async def fetch(ids: list[int]) -> dict[int, tables.Deployment]:
        return {row.environment_id: row for row in await context.all(environments.last_deployments(ids))}

    return context.loader("last deployments", fetch)


def deployment_loader(context: Context) -> Any:
    """The loader of the deployment that a build made, by build id."""

    async def fetch(ids: list[int]) -> dict[int, tables.Deployment]:
        return {row.build_id: row for row in await context.all(environments.deployments_of_builds(ids)) if row.build_id is not None}

    return context.loader("deployments of builds", fetch)


async def stop_environment(context: Context, environment: tables.Environment) -> tables.Environment:
    """Start the job that stops the environment (`on_stop`); without one, the environment is stopped at once.

    The job is that of the last deployment's pipeline; it need not wait for its stage. If it is waiting or running nothing changes. Raises
    NotFound.
    """
    row = await context.first(environments.for_update(environment.id))
    if row is None:
        raise NotFound("Environment")
    if row.stopped_at is not None:
        return row
    stop_build = await _get_stop_build(context, row) if row.stop_job is not None else None
    if stop_build is None:
        row.stopped_at = context.now()
    elif builds.is_playable(stop_build):
        await builds.play_build(context, stop_build)
    elif builds.is_retryable(stop_build):
        await builds.retry_build(context, stop_build)
    return row


async def _get_stop_build(context: Context, environment: tables.Environment) -> tables.Build | None:
    """The build of the job that stops the environment, created if its stage has not begun; None if the pipeline has no such job."""
    deployment = await last_deployment_loader(context).get(environment.id)
    build = await context.rows_by_id(tables.Build).get(deployment.build_id) if deployment and deployment.build_id else None
    if build is None or build.pipeline_id is None or environment.stop_job is None:
        return None
    statement = environments.build_of_pipeline(build.pipeline_id, environment.stop_job)
    found = await context.first(statement)
    if found is None and await pipelines.create_build_of_job(context, build.pipeline_id, environment.stop_job):
        found = await context.first(statement)
    return found
