"""Deployments: a build of a job with `environment` that succeeds has deployed its commit, or has stopped the environment."""

import structlog

from graph.context import Context
from graph.errors import Invalid
from graph.rules import settings
from graph.rules.builds import job_variables
from storage import tables
from storage.tables import CheckStatus
from storage.tables.builds import environments

STOP = "stop"
"""The `action` of a job that stops its environment."""

log = structlog.get_logger("graph")


async def record_deployment(context: Context, build: tables.Build) -> None:
    """Record what a build that has just succeeded did to its environment. Call it in the transaction in which the build finishes.

    Does nothing for other builds, and for an environment whose name is empty or too long after its variables were expanded.
    """
    section = build.options.get("environment")
    if build.status is not CheckStatus.SUCCESS or not isinstance(section, dict):
        return
    known = job_variables.predefined_variables(context, build, await job_variables.load_pipeline(context, build))
    known |= job_variables.configured_variables(build)
    name = job_variables.environment_name(build.options, known)
    if name is None:
        log.warning("deployment not recorded", build_id=build.id, reason="the name of the environment is empty or too long")
        return
    moment = build.finished_at or context.now()
    if section.get("action") == STOP:
        stopped = await context.first(environments.named_for_update(build.project_id, name))
        if stopped is not None:
            stopped.stopped_at = moment
        return
    await context.session.execute(environments.insert_missing(context.services.database.dialect, build.project_id, name, moment))
    environment = await context.first(environments.named_for_update(build.project_id, name))
    assert environment is not None, "the statement before inserted it"  # noqa: S101
    url = section.get("url")
    environment.external_url = _expand_url(url, {**known, **job_variables.environment_variables(build.options, known)}) if url else None
    environment.stop_job, environment.stopped_at = section.get("on_stop"), None
    copied = {key: getattr(build, key) for key in ("project_id", "user_id", "sha", "ref", "tag")}
    await context.add(tables.Deployment(environment_id=environment.id, build_id=build.id, created_at=moment, **copied))


def _expand_url(url: str, known: dict[str, str]) -> str | None:
    try:
        return settings.validate_url("url", job_variables.expand(url, known))
    except Invalid:
        return None
