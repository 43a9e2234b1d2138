"""Validation and recording of commit statuses (docs/decisions.md 12)."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from graph.context import Context
from graph.errors import Invalid
from graph.rules import lookup, settings, validation
from graph.rules.builds import commit_checks
from graph.rules.git import commits
from graph.rules.permissions.policy import Action, require
from graph.rules.projects import projects
from storage import tables
from storage.tables import CheckStatus
from storage.tables.builds import commit_statuses
from storage.tables.builds.commit_statuses import FINISHED

DEFAULT_NAME = "default"


def validate_name(value: str | None) -> str:
    """The name of a commit status, `default` if blank. Raises Invalid."""
    cleaned = validation.validate_string("name", value or "", max_length=validation.MAX_NAME_LENGTH)
    return cleaned if cleaned.strip() else DEFAULT_NAME


def validate_ref(value: str | None) -> str | None:
    """The branch or tag that an external system names; it need not exist in the project. Raises Invalid."""
    cleaned = validation.validate_string("ref", value or "", max_length=validation.MAX_NAME_LENGTH)
    return cleaned if cleaned.strip() else None


def validate_stage(value: str) -> str:
    return validation.validate_string("stage", value, max_length=validation.MAX_NAME_LENGTH)


def validate_target_url(value: str | None) -> str | None:
    return settings.validate_link("targetUrl", value)


def validate_description(value: str | None) -> str | None:
    return validation.validate_string("description", value or "") or None


async def create_status(context: Context, values: Mapping[str, Any]) -> tables.CommitStatus:
    """Record a commit status with the values of `CreateCommitStatusInput`. Raises NotFound, Forbidden, Invalid, Unavailable."""
    # The repository is read before the transaction begins, because on SQLite a transaction blocks all other writers.
    async with context.read_only() as reader:
        oid = (await commits.get_commit(reader, await _get_project(reader, values["project_path"]), values["sha"])).oid
    columns: dict[str, Any] = {}
    if "target_url" in values:
        columns["target_url"] = validate_target_url(values["target_url"])
    if "description" in values:
        columns["description"] = validate_description(values["description"])
    if stage := (values.get("stage") or "").strip():
        columns["stage"] = validate_stage(stage)
    if values.get("allow_failure") is not None:
        columns["allow_failure"] = values["allow_failure"]
    project = await _get_project(context, values["project_path"])
    name, ref = validate_name(values.get("name")), validate_ref(values.get("ref"))
    return await record_status(context, project, oid, validate_status("state", values["state"]), name=name, ref=ref, **columns)


async def _get_project(context: Context, path: str) -> tables.Project:
    project = await lookup.get_project(context, path)
    await require(context, Action.WRITE_CHECKS, project)
    return project


async def record_status(
    context: Context, project: tables.Project, sha: str, status: CheckStatus, *, name: str, ref: str | None, **columns: Any
) -> tables.CommitStatus:
    """Record a commit status: update the newest row with this name and ref, or insert one.

    A finished row is not updated. `columns` are other columns to set; columns of an existing row that are not among them do not change.
    Locks the project, so that concurrent calls never create two unfinished rows for one name and ref.
    """
    await projects.lock_project(context, project)
    row = await context.first(commit_statuses.newest_of(project.id, sha, name, ref))
    moment = context.now()
    if row is None or row.status in FINISHED:
        row = tables.CommitStatus(project_id=project.id, sha=sha, name=name, ref=ref, author_id=context.viewer.id, created_at=moment)
    for column, value in columns.items():
        setattr(row, column, value)
    apply_status(row, status, moment)
    await context.add(row)
    await commit_checks.apply_check_changes(context, project.id, (sha, ref))
    return row


def validate_status(field: str, status: CheckStatus) -> CheckStatus:
    """A status that another system reports. Raises Invalid for MANUAL, which only a CI file makes."""
    if status is CheckStatus.MANUAL:
        raise Invalid(field, "cannot be MANUAL; a job of the CI file with `when: manual` begins so")
    return status


def apply_status(row: tables.CommitStatus, status: CheckStatus, now: datetime) -> None:
    """Set the next status of an unfinished row. A status that never was running has an end and no start."""
    row.status = status
    if status is CheckStatus.PENDING:
        row.started_at = None
    elif status is CheckStatus.RUNNING:
        row.started_at = row.started_at or now
    else:
        row.finished_at = now
