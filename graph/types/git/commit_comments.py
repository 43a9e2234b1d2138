"""Comments on commits."""

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import strawberry

from graph.context import Info
from graph.errors import NotFound
from graph.fields.declarations import column, to_one
from graph.fields.entities import Node, entity, parse_global_id
from graph.fields.mutations import mutation
from graph.rules import lookup
from graph.rules.git import commit_comments
from graph.rules.permissions.policy import Action
from graph.types.accounts.users import User
from graph.types.git.commit_loader import load_commit
from graph.types.inputs import get_or, optional, sent_values
from graph.types.markdown import markdown_html
from storage import tables

if TYPE_CHECKING:
    from graph.types.git.commits import Commit
    from graph.types.projects.projects import Project

LineType = strawberry.enum(tables.LineType, name="LineType", description="Whether a line of a diff was added or removed.")


@entity(
    tables.CommitComment,
    description="A comment on a commit or on a line of its diff.",
    project_key="project_id",
    action=Action.READ_CODE,
)
class CommitComment(Node):
    database_id: int = column(tables.CommitComment.id, description="Database ID; not exposed by v3.")
    note: str = column(description="Text of the comment.")
    body_html: str = markdown_html(tables.CommitComment.project_id, tables.CommitComment.note, description="Text of the comment")
    path: str | None = column(description="Path of the file after the change; null for a comment on the whole commit.")
    line: int | None = column(description="Line number in the new file; null for a comment on the whole commit.")
    line_type: LineType | None = column(  # type: ignore[valid-type]
        description="Whether the line was added or removed; null for a comment on the whole commit."
    )
    created_at: datetime = column(description="When it was created.")
    author: User = to_one(tables.CommitComment.author_id, description="User who wrote it.")
    project: Annotated["Project", strawberry.lazy("graph.types.projects.projects")] = to_one(
        tables.CommitComment.project_id, description="Project it belongs to."
    )

    @strawberry.field(description="The commit; null if it cannot be read.")
    async def commit(self, info: Info) -> Annotated["Commit", strawberry.lazy("graph.types.git.commits")] | None:
        row: Any = self
        return await load_commit(info, row.project_id, row.sha)

    @strawberry.field(description="Path of the comments of the commit in the v3 API.")
    def rest_path(self) -> str:
        row: Any = self
        return f"/api/v3/projects/{row.project_id}/repository/commits/{row.sha}/comments"


@strawberry.input(
    description="Input of `createCommitComment`. The commit is identified by `id`, or by `rev` and `projectPath`. With a full commit ID, a"
    " `path` and a `line` changed by the commit, the comment is attached to that line, otherwise to the whole commit."
)
class CreateCommitCommentInput:
    id: strawberry.ID | None = optional("ID of the commit; sufficient on its own.")
    project_path: str | None = optional("Full path of the project, or its v3 ID.")
    rev: str | None = optional("Commit, with `projectPath`: a full ID, a branch, a tag or an unambiguous ID prefix; `sha` in v3.")
    note: str = strawberry.field(description="Text of the comment.")
    path: str | None = optional("Path of a file after the change.")
    line: int | None = optional("Line number in the new file.")
    line_type: LineType | None = optional("Whether the line was added or removed; default added.")  # type: ignore[valid-type]


def _parse_commit_reference(input: CreateCommitCommentInput) -> tuple[str, str]:
    """The project and the commit that an input names. Raises NotFound for an id that is not a commit id, BadRequest without both."""
    if get_or(input.id, None) is None:
        for key in (input.project_path, input.rev):
            lookup.require_one("Give `id`, or `projectPath` with `rev`.", get_or(key, None))
        return input.project_path or "", input.rev or ""
    kind, key = parse_global_id(input.id or "") or ("", "")
    project_id, _, oid = key.partition("-")
    if kind != "Commit" or lookup.parse_id(project_id) is None:
        raise NotFound("Commit")
    return project_id, oid


@mutation(
    entity="commit_comment", returns=CommitComment, entity_description="The created comment.", description="Creates a comment on a commit."
)
async def create_commit_comment(info: Info, input: CreateCommitCommentInput) -> tables.CommitComment:
    path, rev = _parse_commit_reference(input)
    return await commit_comments.create_comment(info.context, path, rev, sent_values(input))


@strawberry.type
class CommitCommentMutations:
    create_commit_comment = create_commit_comment
