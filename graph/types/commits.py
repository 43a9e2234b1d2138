"""Commits."""

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import strawberry

from graph.connections import Connection, Order, UncountedConnection, Window
from graph.context import Info
from graph.declare import Node, column, entity, to_many, to_one
from graph.rules import building, commits
from graph.rules.building import ChecksState as State
from graph.rules.commits import ProjectCommit
from graph.rules.policy import Action, may, require
from graph.scalars import GitOid
from graph.types.builds import CommitBuilds
from graph.types.commit_comments import CommitComment
from graph.types.commit_merge_requests import CommitMergeRequests
from graph.types.commit_statuses import CommitStatuses
from graph.types.pipelines import CommitPipelines
from graph.types.rollups import CommitRollup
from graph.types.users import User
from graph.types.web_urls import web_url
from storage import tables

if TYPE_CHECKING:
    from graph.types.projects import Project

ChecksState = strawberry.enum(State, name="ChecksState", description="What the newest checks of a commit come to; `NOT_FOUND` without any.")


@strawberry.type(description="A file that a commit changed.")
class DiffEntry:
    diff: str = strawberry.field(
        description="The changes as unified diff, from its line `--- ` on. A last line `\\ Diff cut: …` says why there is less than all."
    )
    old_path: str = strawberry.field(description="The path before.")
    new_path: str = strawberry.field(description="The path after.")
    a_mode: str | None = strawberry.field(description="The mode before, in octal; `0` of a new file.")
    b_mode: str = strawberry.field(description="The mode after, in octal; `0` of a deleted file.")
    new_file: bool = strawberry.field(description="Whether the commit added the file.")
    renamed_file: bool = strawberry.field(description="Whether the commit renamed the file.")
    deleted_file: bool = strawberry.field(description="Whether the commit deleted the file.")
    additions: int = strawberry.field(description="How many lines were added; 0 where nothing was compared.")
    deletions: int = strawberry.field(description="How many lines were removed; 0 where nothing was compared.")
    too_large: bool = strawberry.field(description="Whether `diff` was cut or left out.")


@strawberry.type(description="What the viewer may do with a commit.")
class CommitAbilities:
    comment: bool = strawberry.field(description="Write comments on it.")


@entity(
    ProjectCommit,
    name="Commit",
    description="A state of all files of a project, with its message. Read from the project's repository.",
    action=Action.READ_CODE,
    nodes=commits.of_nodes,
)
class Commit(Node, CommitPipelines, CommitStatuses, CommitBuilds, CommitRollup, CommitMergeRequests):
    oid: GitOid = column(description="The full id; v3's `id`.")
    short_oid: str = column(description="The first eight digits of the id; v3's `short_id`.")
    title: str = column(description="The first line of the message, cut to 80 characters and `…` where it is longer than 100.")
    message: str = column(description="The whole message.")
    author_name: str = column(description="Who wrote the change, as the commit says.")
    author_email: str = column(description="The author's e-mail address, as the commit says.")
    authored_at: datetime = column(description="When it was written, in the author's own offset; v3's `authored_date`.")
    committer_name: str = column(description="Who made the commit, as it says.")
    committer_email: str = column(description="The committer's e-mail address, as the commit says.")
    committed_at: datetime = column(
        description="When it was committed, in the committer's own offset; v3's `created_at` and `committed_date`."
    )
    project: Annotated["Project", strawberry.lazy("graph.types.projects")] = to_one(
        tables.CommitComment.project_id, description="The project in whose repository it was read."
    )
    web_url: str = web_url("commit", tables.Commit.project_id, tables.Commit.oid, description="The address of its page.")
    comments: Connection[CommitComment] = to_many(
        (tables.CommitComment.project_id, tables.CommitComment.sha),
        of="key",
        order_by=Order(tables.CommitComment.created_at),
        action=Action.READ_CODE,
        description="The comments on it, oldest first; for who may read code.",
    )

    @strawberry.field(description="The ids of its parents; v3's `parent_ids`.")
    def parent_oids(self) -> list[GitOid]:
        return list(self.parents)  # type: ignore[attr-defined]

    @strawberry.field(description="The path of the same thing in v3.")
    def rest_path(self) -> str:
        return f"/api/v3/projects/{self.project_id}/repository/commits/{self.oid}"  # type: ignore[attr-defined]

    @strawberry.field(description="The account that owns the author's e-mail address; null when nobody does.")
    async def author(self, info: Info) -> User | None:
        return await commits.author_of(info.context, self)  # type: ignore[arg-type,return-value]

    @strawberry.field(
        description="What it changed against its first parent, whole up to 5 MB; for who may read code. Null, with an error, when the"
        " repository cannot give it, or when the operation has read 5 MB of diffs before."
    )
    async def diff(self, info: Info) -> list[DiffEntry] | None:
        await require(info.context, Action.READ_CODE, self)
        return await commits.diff_of(info.context, self)  # type: ignore[arg-type,return-value]

    @strawberry.field(description="How many comments there are on it; for who may read code.")
    async def comment_count(self, info: Info) -> int:
        await require(info.context, Action.READ_CODE, self)
        return await commits.comment_count(info.context, self)  # type: ignore[arg-type]

    @strawberry.field(description="What its newest checks come to; v3's `status`. For who may see the checks of commits.")
    async def status(self, info: Info) -> ChecksState:  # type: ignore[valid-type]
        await require(info.context, Action.READ_CHECKS, self)
        return building.state_of(await building.checks_of(info.context, self.key))  # type: ignore[attr-defined]

    @strawberry.field(description="Whether one of its newest checks failed and was allowed to; for who may see the checks of commits.")
    async def allow_failure(self, info: Info) -> bool:
        await require(info.context, Action.READ_CHECKS, self)
        return building.failure_allowed(await building.checks_of(info.context, self.key))  # type: ignore[attr-defined]

    @strawberry.field(description="What the viewer may do with it.")
    async def viewer_can(self, info: Info) -> CommitAbilities:
        return CommitAbilities(comment=await may(info.context, Action.COMMENT_COMMIT, self))


@strawberry.type
class ProjectCommits:
    """The part of a project that is about its commits."""

    @strawberry.field(
        description="The history of a branch or tag, newest first as `git log` has it; empty for a name that is not there, null when the"
        " repository cannot be read. A page after a cursor continues the walk that the cursor began, wherever the branch is now."
    )
    async def commits(
        self,
        info: Info,
        ref: Annotated[
            str | None,
            strawberry.argument(description="A branch, a tag or the id of a commit; v3's `ref_name`. By default the default branch."),
        ] = None,
        first: Annotated[int | None, strawberry.argument(description="How many commits; 20, at most 100.")] = None,
        after: Annotated[
            str | None, strawberry.argument(description="Continue after the commit of this cursor; `ref` does not count then.")
        ] = None,
        offset: Annotated[int | None, strawberry.argument(description="Commits to skip, beside `first`: the page numbers of v3.")] = None,
    ) -> UncountedConnection[Commit] | None:
        project: Any = self
        await require(info.context, Action.READ_CODE, project)
        window = Window.of(first, after, offset=offset)
        return await commits.history_page(info.context, project, ref, window)  # type: ignore[return-value]

    @strawberry.field(description="A commit by an exact name.")
    async def commit(
        self,
        info: Info,
        rev: Annotated[
            str,
            strawberry.argument(
                description="A full id, a branch, a tag, or the unique start of an id of at least 7 digits; v3's `sha`. No revision syntax."
            ),
        ],
    ) -> Commit | None:
        project: Any = self
        await require(info.context, Action.READ_CODE, project)
        return await commits.named(info.context, project, rev)  # type: ignore[return-value]
