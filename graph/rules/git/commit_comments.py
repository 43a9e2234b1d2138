"""Comments on commits, and on lines that they changed."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from graph.context import Context
from graph.errors import NotFound, Required
from graph.events import object_payloads
from graph.events.publisher import publish
from graph.rules import lookup, validation
from graph.rules.events import activities
from graph.rules.git import refs
from graph.rules.git.commits import run_in_repository
from graph.rules.permissions.policy import Action, require
from storage import tables
from storage.git.diffs import diff
from storage.git.repository import Repository
from storage.tables import ActivitySubject, LineType


@dataclass(frozen=True, slots=True)
class CommentPosition:
    """Where a comment belongs: a commit, and optionally a line of its diff."""

    oid: str
    line: tuple[str, int, LineType] | None = None


async def create_comment(context: Context, path: str, rev: str, values: Mapping[str, Any]) -> tables.CommitComment:
    """Comment on a commit of the project with this path, with the values of `CreateCommitCommentInput`.

    Raises NotFound, Forbidden, Required, Invalid, Unavailable.
    """
    # The diff is read before the transaction begins, because on SQLite a transaction blocks all other writers.
    async with context.read_only() as reader:
        project = await _get_project(reader, path)
    position = await locate_comment(context, project, rev, values.get("path"), values.get("line"), values.get("line_type"))
    note = validation.validate_string("note", values["note"])
    if not note.strip():
        raise Required("note")
    project = await _get_project(context, path)
    row = tables.CommitComment(project_id=project.id, sha=position.oid, author_id=context.viewer.id, note=note, created_at=context.now())
    if position.line is not None:
        row.path, row.line, row.line_type = position.line
    activities.add_comment(context, row, ActivitySubject.COMMIT_COMMENT)
    await publish(context, object_payloads.CommitCommented, row)
    return row


async def _get_project(context: Context, path: str) -> tables.Project:
    project = await lookup.get_project(context, path)
    await require(context, Action.COMMENT_COMMIT, project)
    return project


async def locate_comment(
    context: Context, project: tables.Project, rev: str, path: str | None, line: int | None, line_type: LineType | None
) -> CommentPosition:
    """The commit that `rev` names, and the line of its diff that the arguments name, if any.

    A line needs a full id, a path and a line that the commit changed. A line is an added one unless `line_type` says otherwise. In
    every other case the comment belongs to the whole commit (rules for posting a commit comment). Raises NotFound, Unavailable.
    """

    def work(repository: Repository) -> CommentPosition | None:
        oid = repository.resolve(rev)
        if oid is None:
            return None
        kind = line_type or LineType.NEW
        if oid == rev.lower() and path and line is not None and diff.has_line(diff.diff_of_commit(repository, oid), path, line, kind):
            return CommentPosition(oid, (path, line, kind))
        return CommentPosition(oid)

    known = await refs.of_revisions(context, project.id, rev)
    found = await run_in_repository(context, project.id, work, refs=known, cancellable=True)
    if found is None:
        raise NotFound("Commit")
    return found
