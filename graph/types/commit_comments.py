"""Comments on commits."""

from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import strawberry

from graph.context import Context, Info
from graph.declare import Node, column, entity, parse_global_id, to_one
from graph.errors import NotFound, Required
from graph.events import object_payloads
from graph.events.publish import publish
from graph.mutations import mutation
from graph.rules import commits, finding, naming
from graph.rules.policy import Action, require
from graph.transaction import session_for
from graph.types.inputs import given, value_or
from graph.types.shown_commits import commit_of
from graph.types.users import User
from storage import tables

if TYPE_CHECKING:
    from graph.types.commits import Commit
    from graph.types.projects import Project

LineType = strawberry.enum(tables.LineType, name="LineType", description="Whether a line of a diff was added or removed.")


@entity(
    tables.CommitComment,
    description="What somebody wrote on a commit, or on a line of what it changed.",
    project_key="project_id",
    action=Action.READ_CODE,
)
class CommitComment(Node):
    database_id: int = column(tables.CommitComment.id, description="The id of the row; v3 shows none.")
    note: str = column(description="The text.")
    path: str | None = column(description="The file, by its path after the change; null for a comment on the whole commit.")
    line: int | None = column(description="The number of the line in the new file; null for a comment on the whole commit.")
    line_type: LineType | None = column(  # type: ignore[valid-type]
        description="Whether the line was added or removed; null for a comment on the whole commit."
    )
    created_at: datetime = column(description="When it was written.")
    author: User = to_one(tables.CommitComment.author_id, description="Who wrote it.")
    project: Annotated["Project", strawberry.lazy("graph.types.projects")] = to_one(
        tables.CommitComment.project_id, description="Where it belongs."
    )

    @strawberry.field(description="The commit; null when the repository cannot give it.")
    async def commit(self, info: Info) -> Annotated["Commit", strawberry.lazy("graph.types.commits")] | None:
        row: Any = self
        return await commit_of(info, row.project_id, row.sha)

    @strawberry.field(description="The path of the comments on the commit in v3.")
    def rest_path(self) -> str:
        row: Any = self
        return f"/api/v3/projects/{row.project_id}/repository/commits/{row.sha}/comments"


@strawberry.input(
    description="A new comment on a commit, which is named by its `id` alone or by `rev` beside `projectPath`."
    " With a full id, a `path` and a `line` that the commit changed it stands at that line, otherwise under the whole commit."
)
class CreateCommitCommentInput:
    id: strawberry.ID | None = given("The id of the commit; nothing else names it then.")
    project_path: str | None = given("The full path of the project, or its v3 id in digits.")
    rev: str | None = given("The commit, beside `projectPath`: a full id, a branch, a tag, or the unique start of an id; v3's `sha`.")
    note: str = strawberry.field(description="The text.")
    path: str | None = given("A file, by its path after the change.")
    line: int | None = given("The number of a line in the new file.")
    line_type: LineType | None = given("Whether the line was added or removed; by default added.")  # type: ignore[valid-type]


async def _project(context: Context, path: str) -> tables.Project:
    project = await finding.project(context, path)
    await require(context, Action.COMMENT_COMMIT, project)
    return project


def _names(input: CreateCommitCommentInput) -> tuple[str, str]:
    """The project and the commit that an input names. Raises NotFound for an id that is none of a commit."""
    if value_or(input.id, None) is None:
        return value_or(input.project_path, ""), value_or(input.rev, "")
    kind, key = parse_global_id(input.id or "") or ("", "")
    project_id, _, oid = key.partition("-")
    if kind != "Commit" or finding.as_id(project_id) is None:
        raise NotFound("Commit")
    return project_id, oid


@mutation(
    entity="commit_comment", returns=CommitComment, entity_description="The new comment.", description="Writes a comment on a commit."
)
async def create_commit_comment(info: Info, input: CreateCommitCommentInput) -> tables.CommitComment:
    context = info.context
    path, rev = _names(input)
    # The diff is read before the transaction begins, since on SQLite nobody else writes while it lasts.
    async with session_for(context.services.database, writing=False) as session:
        project = await _project(replace(context, session=session, loaders={}), path)
    place = await commits.place_of_comment(
        context, project, rev, value_or(input.path, None), value_or(input.line, None), value_or(input.line_type, None)
    )
    note = naming.clean("note", input.note)
    if not note.strip():
        raise Required("note")
    project = await _project(context, path)
    row = tables.CommitComment(project_id=project.id, sha=place.oid, author_id=context.viewer.id, note=note, created_at=context.now())
    if place.line is not None:
        row.path, row.line, row.line_type = place.line
    context.leave(row)
    await publish(context, object_payloads.CommitCommented, row)
    return row


@strawberry.type
class CommitCommentMutations:
    create_commit_comment = create_commit_comment
