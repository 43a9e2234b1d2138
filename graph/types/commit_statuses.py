"""Commit statuses: what outside services say of a commit."""

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import strawberry
from sqlmodel import col

from graph.connections import Connection, Listing, Order
from graph.context import Context, Info
from graph.declare import Node, column, connection_field, entity, to_one, window_of
from graph.mutations import mutation
from graph.rules import commit_statuses, commits, finding
from graph.rules.commits import ProjectCommit
from graph.rules.policy import Action, require
from graph.types.inputs import given, sent, value_or
from graph.types.shown_commits import commit_of
from graph.types.users import User
from storage import tables
from storage.tables import CheckStatus
from storage.tables import commit_statuses as statements

if TYPE_CHECKING:
    from graph.types.commits import Commit
    from graph.types.projects import Project

BuildStatus = strawberry.enum(CheckStatus, name="BuildStatus", description="How far a commit status, or a build, has come.")


@strawberry.input(description="Which commit statuses; every field given must match.")
class CommitStatusFilter:
    ref: list[str] | None = strawberry.field(description="About one of these branches or tags; v3's `ref_name`.", default=None)
    stage: list[str] | None = strawberry.field(description="Of one of these stages.", default=None)
    name: list[str] | None = strawberry.field(description="Of one of these names.", default=None)
    all: bool = strawberry.field(description="Every one, instead of the newest of each name and ref.", default=False)

    def conditions(self) -> list[Any]:
        row = tables.CommitStatus
        wanted = ((row.ref, self.ref), (row.stage, self.stage), (row.name, self.name))
        return [col(column).in_(values) for column, values in wanted if values is not None]


@entity(
    tables.CommitStatus,
    description="What somebody, usually an outside service, says of a commit: that a check of it waits, runs or has ended.",
    project_key="project_id",
    action=Action.READ_CHECKS,
)
class CommitStatus(Node):
    database_id: int = column(tables.CommitStatus.id, description="The v3 id.")
    sha: str = column(description="The full id of the commit.")
    ref: str | None = column(description="The branch or tag that it is about, where that was said.")
    name: str = column(description="What was checked; `default` where that was not said.")
    stage: str = column(description="The part of the pipeline that it belongs to; `external` where that was not said.")
    status: BuildStatus = column(description="How far it has come.")  # type: ignore[valid-type]
    description: str | None = column(description="What it says beside that, in words.")
    target_url: str | None = column(description="The address of a page with more; http, https or relative.")
    allow_failure: bool = column(description="Whether it may fail without the commit being called failed.")
    created_at: datetime = column(description="When it was first posted.")
    started_at: datetime | None = column(description="When it was said to run, if it was.")
    finished_at: datetime | None = column(description="When it was said to have ended, if it has.")
    author: User | None = to_one(tables.CommitStatus.author_id, description="Who posted it first; null when the account is gone.")
    project: Annotated["Project", strawberry.lazy("graph.types.projects")] = to_one(
        tables.CommitStatus.project_id, description="Where it belongs."
    )

    @strawberry.field(description="The commit; null when the repository cannot give it.")
    async def commit(self, info: Info) -> Annotated["Commit", strawberry.lazy("graph.types.commits")] | None:
        row: Any = self
        return await commit_of(info, row.project_id, row.sha)

    @strawberry.field(description="The path of the statuses of the commit in v3.")
    def rest_path(self) -> str:
        row: Any = self
        return f"/api/v3/projects/{row.project_id}/repository/commits/{row.sha}/statuses"


async def _statuses(root: Any, info: Info, **arguments: Any) -> Any:
    commit: ProjectCommit = root
    context: Context = info.context
    await require(context, Action.READ_CHECKS, commit)
    table = tables.CommitStatus
    wanted = arguments["filter"] or CommitStatusFilter()
    conditions = (col(table.project_id) == commit.project_id, *wanted.conditions())
    window = window_of(arguments)

    async def fetch(shas: list[Any]) -> dict[Any, Any]:
        newest = () if wanted.all else (col(table.id).in_(statements.newest_ids({commit.project_id: shas})),)
        return await Listing(table, Order(table.id), (*conditions, *newest), parent=table.sha).pages(context, window, shas)

    return await context.loader(("commit statuses", commit.project_id, repr(arguments)), fetch).get(commit.oid)


@strawberry.type
class CommitStatuses:
    """The part of a commit that is about its statuses."""

    statuses: Connection[CommitStatus] = connection_field(
        _statuses,
        filter=CommitStatusFilter,
        description="What was said of it, oldest first: the newest of each name and ref, unless the filter asks for all.",
    )


@strawberry.input(
    description="Something to say of a commit. A status of the same name and ref that is pending or running is changed; without one,"
    " there is a new one."
)
class CreateCommitStatusInput:
    project_path: str = strawberry.field(description="The full path of the project, or its v3 id in digits.")
    sha: str = strawberry.field(description="The commit: a full id, a branch, a tag, or the unique start of an id.")
    state: BuildStatus = strawberry.field(description="How far it has come; whatever it was before.")  # type: ignore[valid-type]
    ref: str | None = given("The branch or tag that it is about; by default none, also where `sha` is a branch. At most 255 characters.")
    name: str | None = given("What was checked, by default `default`; v3's `name` or `context`. At most 255 characters.")
    stage: str | None = given("The part of the pipeline that it belongs to; `external` where it was never said.")
    target_url: str | None = given("The address of a page with more; http, https or relative. Null or blank takes it away.")
    description: str | None = given("What to say beside that, in words. Null or blank takes it away.")
    allow_failure: bool | None = given("Whether it may fail without the commit being called failed; false where it was never said.")


@mutation(
    entity="commit_status",
    returns=CommitStatus,
    entity_description="What is now said of the commit.",
    description="Says of a commit how far a check of it has come.",
)
async def create_commit_status(info: Info, input: CreateCommitStatusInput) -> tables.CommitStatus:
    context = info.context
    # The repository is read before the transaction begins, since on SQLite nobody else writes while it lasts.
    async with context.aside() as aside:
        oid = (await commits.named(aside, await _project(aside, input.project_path), input.sha)).oid
    said: dict[str, Any] = {}
    if sent(input.target_url):
        said["target_url"] = commit_statuses.target_url(input.target_url)
    if sent(input.description):
        said["description"] = commit_statuses.description(input.description)
    if stage := value_or(input.stage, "").strip():
        said["stage"] = commit_statuses.stage(stage)
    if (allowed := value_or(input.allow_failure, None)) is not None:
        said["allow_failure"] = allowed
    return await commit_statuses.post(
        context,
        await _project(context, input.project_path),
        oid,
        input.state,
        name=commit_statuses.name(value_or(input.name, None)),
        ref=commit_statuses.ref(value_or(input.ref, None)),
        **said,
    )


async def _project(context: Context, path: str) -> tables.Project:
    project = await finding.project(context, path)
    await require(context, Action.WRITE_CHECKS, project)
    return project


@strawberry.type
class CommitStatusMutations:
    create_commit_status = create_commit_status
