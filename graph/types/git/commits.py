"""Commits."""

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import strawberry

from graph.context import Info
from graph.fields.connection_pages import Window
from graph.fields.connections import Connection, UncountedConnection
from graph.fields.declarations import column, to_many, to_one
from graph.fields.entities import Node, entity
from graph.fields.keyset_listing import Order
from graph.fields.scalars import GitOid
from graph.rules.builds import commit_checks
from graph.rules.builds.commit_checks import ChecksState as State
from graph.rules.git import commits
from graph.rules.git.commits import ProjectCommit
from graph.rules.permissions.policy import Action, can, require
from graph.types.accounts.users import User
from graph.types.builds.builds import CommitBuildFields
from graph.types.builds.commit_statuses import CommitStatusFields
from graph.types.builds.pipelines import CommitPipelineFields
from graph.types.builds.rollups import CommitRollupFields
from graph.types.git.commit_comments import CommitComment
from graph.types.git.commit_merge_requests import CommitMergeRequestFields
from graph.types.web_urls import web_url
from storage import tables

if TYPE_CHECKING:
    from graph.types.projects.projects import Project

ChecksState = strawberry.enum(
    State, name="ChecksState", description="Combined state of the newest checks of a commit; `NOT_FOUND` if there are none."
)


@strawberry.type(description="Change of a file in a diff.")
class DiffEntry:
    diff: str = strawberry.field(
        description="Unified diff, starting at the `--- ` line. A last line `\\ Diff cut: …` contains the reason if it is truncated."
    )
    old_path: str = strawberry.field(description="Path before the change.")
    new_path: str = strawberry.field(description="Path after the change.")
    a_mode: str | None = strawberry.field(description="File mode before the change, in octal; `0` for a new file.")
    b_mode: str = strawberry.field(description="File mode after the change, in octal; `0` for a deleted file.")
    new_file: bool = strawberry.field(description="Whether the file was added.")
    renamed_file: bool = strawberry.field(description="Whether the file was renamed.")
    deleted_file: bool = strawberry.field(description="Whether the file was deleted.")
    additions: int = strawberry.field(description="Number of added lines; 0 if the contents were not compared.")
    deletions: int = strawberry.field(description="Number of deleted lines; 0 if the contents were not compared.")
    too_large: bool = strawberry.field(description="Whether `diff` was truncated or omitted.")


@strawberry.type(description="Actions the viewer is allowed to perform on a commit.")
class CommitAbilities:
    comment: bool = strawberry.field(description="Comment on the commit.")


@entity(
    ProjectCommit,
    name="Commit",
    description="A git commit in the repository of a project.",
    action=Action.READ_CODE,
    load_nodes=commits.commit_nodes,
)
class Commit(Node, CommitPipelineFields, CommitStatusFields, CommitBuildFields, CommitRollupFields, CommitMergeRequestFields):
    oid: GitOid = column(description="Full commit ID; `id` in v3.")
    short_oid: str = column(description="First eight digits of the commit ID; `short_id` in v3.")
    title: str = column(description="First line of the message; if longer than 100 characters, cut to 80 and `…`.")
    message: str = column(description="Full commit message.")
    author_name: str = column(description="Name of the author, from the commit.")
    author_email: str = column(description="Email address of the author, from the commit.")
    authored_at: datetime = column(description="Author date, with the offset of the author; `authored_date` in v3.")
    committer_name: str = column(description="Name of the committer, from the commit.")
    committer_email: str = column(description="Email address of the committer, from the commit.")
    committed_at: datetime = column(description="Commit date, with the offset of the committer; `created_at` and `committed_date` in v3.")
    project: Annotated["Project", strawberry.lazy("graph.types.projects.projects")] = to_one(
        tables.CommitComment.project_id, description="Project whose repository contains the commit."
    )
    web_url: str = web_url("commit", tables.Commit.project_id, tables.Commit.oid, description="URL of the web page.")
    comments: Connection[CommitComment] | None = to_many(
        (tables.CommitComment.project_id, tables.CommitComment.sha),
        key_attribute="key",
        order_by=Order(tables.CommitComment.created_at),
        action=Action.READ_CODE,
        description="Comments, oldest first. Requires permission to read code.",
    )

    @strawberry.field(description="IDs of the parent commits; `parent_ids` in v3.")
    def parent_oids(self) -> list[GitOid]:
        return list(self.parents)  # type: ignore[attr-defined]

    @strawberry.field(description="Path of the resource in the v3 API.")
    def rest_path(self) -> str:
        return f"/api/v3/projects/{self.project_id}/repository/commits/{self.oid}"  # type: ignore[attr-defined]

    @strawberry.field(description="User with the author's email address; null if there is none.")
    async def author(self, info: Info) -> User | None:
        return await commits.load_author(info.context, self)  # type: ignore[arg-type,return-value]

    @strawberry.field(
        description="Diff against the first parent, complete up to 5 MB. Requires permission to read code. Null, with an error, if it"
        " cannot be read or the operation has already read 5 MB of diffs."
    )
    async def diff(self, info: Info) -> list[DiffEntry] | None:
        await require(info.context, Action.READ_CODE, self)
        return await commits.load_diff(info.context, self)  # type: ignore[arg-type,return-value]

    @strawberry.field(description="Number of comments. Requires permission to read code.")
    async def comment_count(self, info: Info) -> int | None:
        await require(info.context, Action.READ_CODE, self)
        return await commits.load_comment_count(info.context, self)  # type: ignore[arg-type]

    @strawberry.field(description="Combined state of the newest checks; `status` in v3. Requires permission to see checks.")
    async def status(self, info: Info) -> ChecksState | None:  # type: ignore[valid-type]
        await require(info.context, Action.READ_CHECKS, self)
        return commit_checks.state_of(await commit_checks.load_checks(info.context, self.key))  # type: ignore[attr-defined]

    @strawberry.field(description="Whether one of the newest checks failed with `allowFailure`. Requires permission to see checks.")
    async def allow_failure(self, info: Info) -> bool | None:
        await require(info.context, Action.READ_CHECKS, self)
        return commit_checks.has_allowed_failure(await commit_checks.load_checks(info.context, self.key))  # type: ignore[attr-defined]

    @strawberry.field(description="Actions the viewer is allowed to perform.")
    async def viewer_can(self, info: Info) -> CommitAbilities:
        return CommitAbilities(comment=await can(info.context, Action.COMMENT_COMMIT, self))


@strawberry.type
class ProjectCommitFields:
    """Fields of a project about its commits."""

    @strawberry.field(
        description="Commits reachable from a branch or tag, newest first in `git log` order; empty if the name does not exist, null if"
        " the repository cannot be read. A page after a cursor continues the original walk even if the branch has moved."
    )
    async def commits(
        self,
        info: Info,
        ref: Annotated[
            str | None,
            strawberry.argument(description="Branch, tag or commit ID; `ref_name` in v3. Default: the default branch."),
        ] = None,
        first: Annotated[int | None, strawberry.argument(description="Number of commits; default 20, maximum 100.")] = None,
        after: Annotated[str | None, strawberry.argument(description="Return commits after this cursor; `ref` is ignored.")] = None,
        offset: Annotated[
            int | None, strawberry.argument(description="Number of commits to skip; used with `first` for v3 page numbers.")
        ] = None,
    ) -> UncountedConnection[Commit] | None:
        project: Any = self
        await require(info.context, Action.READ_CODE, project)
        window = Window.of(first, after, offset=offset)
        return await commits.history_page(info.context, project, ref, window)  # type: ignore[return-value]

    @strawberry.field(description="Commit by ID, branch or tag.")
    async def commit(
        self,
        info: Info,
        rev: Annotated[
            str,
            strawberry.argument(
                description="Full commit ID, branch, tag or unambiguous ID prefix of at least 7 digits; `sha` in v3. Revision syntax is"
                " not supported."
            ),
        ],
    ) -> Commit | None:
        project: Any = self
        await require(info.context, Action.READ_CODE, project)
        return await commits.get_commit(info.context, project, rev)  # type: ignore[return-value]
