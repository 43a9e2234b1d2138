"""Builds that external CI systems run and report."""

import math
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from graph.context import Context
from graph.errors import Invalid, NotAllowed, NotFound, Required
from graph.rules import lookup, settings, validation
from graph.rules.builds import builds, commit_checks
from graph.rules.builds.commit_statuses import validate_status
from graph.rules.git import refs
from graph.rules.git.commits import run_in_repository
from graph.rules.permissions.policy import Action, require
from graph.rules.states import BUILD_TRANSITIONS, TRANSITION_TO_STATUS
from storage import tables
from storage.git.refs.ref_names import BRANCHES, TAGS
from storage.git.repository import Repository
from storage.tables import CheckStatus
from storage.tables.builds.commit_statuses import FINISHED

DEFAULT_STAGE = "test"


async def create_build(context: Context, values: Mapping[str, Any]) -> tables.Build:
    """Record a build with the values of `CreateBuildInput`. Raises NotFound, Forbidden, Required, Invalid, Unavailable."""
    # The repository is read before the transaction begins, because on SQLite a transaction blocks all other writers.
    async with context.read_only() as reader:
        project = await _get_project(reader, values["project_path"])
        target = await resolve_commit_and_ref(reader, project, values["sha"], values.get("ref"))
    if target is None:
        raise NotFound("Commit")
    sha, ref, tag = target
    project = await _get_project(context, values["project_path"])
    build = tables.Build(
        project_id=project.id,
        sha=sha,
        ref=ref,
        tag=tag,
        name=validate_name(values["name"]),
        stage=validate_stage(values.get("stage")),
        status=validate_status("status", values.get("status") or CheckStatus.PENDING),
        description=validate_description(values.get("description")),
        target_url=validate_target_url(values.get("target_url")),
        coverage=validate_coverage(values.get("coverage")),
        allow_failure=values.get("allow_failure") or False,
        started_at=_to_utc(values.get("started_at")),
        finished_at=_to_utc(values.get("finished_at")),
        user_id=context.viewer.id,
    )
    validate_times(build)
    moment = context.now()
    if build.status is CheckStatus.RUNNING:
        build.started_at = build.started_at or moment
    elif build.status in FINISHED:
        build.finished_at = build.finished_at or max(moment, build.started_at or moment)
    # A build reported later than it ran was created no later than it started or finished.
    build.created_at = min(each for each in (moment, build.started_at, build.finished_at) if each is not None)
    return await builds.create_build(context, build)


async def update_build(context: Context, build: tables.Build, values: Mapping[str, Any]) -> tables.Build:
    """Change a build by the values of `UpdateBuildInput` that were sent: its status and any other columns.

    Raises NotFound, Invalid for impossible timestamps, NotAllowed for a status that cannot follow and for a superseded attempt.
    """
    if values.get("failure_reason") is not None:
        raise NotAllowed("failure_reason", "Only a runner reports why its build failed.")
    status: CheckStatus | None = values.get("status")
    columns = _validate_columns(values)
    row = await builds.lock_build(context, build.id)
    if row.current_id is not None:
        raise NotAllowed("id", "A superseded attempt cannot be changed.")
    if status is not None and status is not row.status:
        if (
            status in (CheckStatus.PENDING, CheckStatus.MANUAL)
            or BUILD_TRANSITIONS.get((row.status, TRANSITION_TO_STATUS[status])) is not status
        ):
            raise NotAllowed("status", f"A build that is {row.status} cannot become {status}.")
        started_at = columns.get("started_at") or row.started_at
        now = context.now() if started_at is None else max(context.now(), started_at)
        changed_at = started_at if status is CheckStatus.RUNNING else columns.get("finished_at", now)
        row = await builds.change_status(context, row, status, at=changed_at) or row
    for column, value in columns.items():
        setattr(row, column, value)
    validate_times(row)
    row.updated_at = context.now()
    await commit_checks.apply_check_changes(context, row.project_id, (row.sha, row.ref))
    return row


def _validate_columns(values: Mapping[str, Any]) -> dict[str, Any]:
    validators: dict[str, Callable[[Any], Any]] = {
        "description": validate_description,
        "target_url": validate_target_url,
        "coverage": validate_coverage,
    }
    columns: dict[str, Any] = {name: validate(values[name]) for name, validate in validators.items() if name in values}
    times = {name: moment for name in ("started_at", "finished_at") if (moment := _to_utc(values.get(name))) is not None}
    return columns | times


def _to_utc(timestamp: datetime | None) -> datetime | None:
    return None if timestamp is None else timestamp.astimezone(UTC)


async def _get_project(context: Context, path: str) -> tables.Project:
    project = await lookup.get_project(context, path)
    await require(context, Action.CREATE_BUILD, project)
    return project


def validate_name(value: str) -> str:
    """The name of a build. Raises Required, Invalid."""
    return validation.validate_title("name", value)


def validate_stage(value: str | None) -> str:
    """The stage of a build, `test` if blank. Raises Invalid."""
    return validation.validate_string("stage", (value or "").strip(), max_length=validation.MAX_NAME_LENGTH) or DEFAULT_STAGE


def validate_description(value: str | None) -> str | None:
    return validation.validate_string("description", value or "") or None


def validate_target_url(value: str | None) -> str | None:
    return settings.validate_link("targetUrl", value)


def validate_coverage(value: float | None) -> float | None:
    """Coverage in percent. Raises Invalid."""
    if value is not None and not (math.isfinite(value) and 0 <= value <= 100):
        raise Invalid("coverage", "must be between 0 and 100")
    return value


async def resolve_commit_and_ref(context: Context, project: tables.Project, sha: str, ref: str | None) -> tuple[str, str, bool] | None:
    """Resolve `sha` to (full commit id, name of the branch or tag, whether it is a tag).

    Without `ref`, `sha` must be the name of a branch or tag. Returns None when there is no such commit. Raises Required, Invalid,
    Unavailable.
    """
    requested_ref = (ref or "").strip()

    def work(repository: Repository) -> tuple[str, str, bool] | None:
        oid = repository.resolve(sha)
        if oid is None:
            return None
        ref_name = validation.validate_string("ref", requested_ref or sha, max_length=validation.MAX_NAME_LENGTH)
        branch, tag = (repository.find_ref(folder + ref_name) is not None for folder in (BRANCHES, TAGS))
        if not requested_ref and not branch and not tag:
            raise Required("ref")
        return oid, ref_name, tag and not branch

    known = await refs.of_revisions(context, project.id, sha, requested_ref)
    return await run_in_repository(context, project.id, work, refs=known)


def validate_times(build: tables.Build) -> None:
    """Raises Invalid when a build with this status cannot have these timestamps."""
    if build.status is CheckStatus.PENDING and build.started_at is not None:
        raise Invalid("startedAt", "must be blank while the build is pending")
    if build.status not in FINISHED and build.finished_at is not None:
        raise Invalid("finishedAt", "must be blank until the build has finished")
    if build.started_at is not None and build.finished_at is not None and build.finished_at < build.started_at:
        raise Invalid("finishedAt", "must not be before startedAt")
