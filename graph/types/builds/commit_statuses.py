"""Commit statuses, which external services post."""

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import strawberry
from sqlmodel import col

from graph.context import Context, Info
from graph.fields.connections import Connection
from graph.fields.declarations import column, connection_field, make_window, to_one
from graph.fields.entities import Node, entity
from graph.fields.keyset_listing import KeysetListing, Order
from graph.fields.mutations import mutation
from graph.rules.builds import commit_statuses
from graph.rules.git.commits import ProjectCommit
from graph.rules.permissions.policy import Action, require
from graph.types.accounts.users import User
from graph.types.builds.build_filters import BuildStatus
from graph.types.git.commit_loader import load_commit
from graph.types.inputs import ProjectInput, optional, sent_values
from storage import tables
from storage.tables.builds import commit_statuses as statements

if TYPE_CHECKING:
    from graph.types.git.commits import Commit
    from graph.types.projects.projects import Project


@strawberry.input(description="Filters commit statuses; all specified fields must match.")
class CommitStatusFilter:
    ref: list[str] | None = strawberry.field(description="Branch or tag is one of these; `ref_name` in v3.", default=None)
    stage: list[str] | None = strawberry.field(description="Stage is one of these.", default=None)
    name: list[str] | None = strawberry.field(description="Name is one of these.", default=None)
    all: bool = strawberry.field(description="Include all statuses instead of only the newest of each name and ref.", default=False)

    list_attributes: ClassVar[tuple[str, ...]] = ("ref", "stage", "name")

    def conditions(self) -> list[Any]:
        row = tables.CommitStatus
        criteria = ((row.ref, self.ref), (row.stage, self.stage), (row.name, self.name))
        return [col(column).in_(values) for column, values in criteria if values is not None]


@entity(
    tables.CommitStatus,
    description="Status of an external check of a commit.",
    project_key="project_id",
    action=Action.READ_CHECKS,
)
class CommitStatus(Node):
    database_id: int = column(tables.CommitStatus.id, description="ID in the v3 API.")
    sha: str = column(description="Full ID of the commit.")
    ref: str | None = column(description="Branch or tag of the status; null if none was specified.")
    name: str = column(description="Name of the check, default `default`.")
    stage: str = column(description="Stage in the pipeline, default `external`.")
    status: BuildStatus = column(description="Status.")  # type: ignore[valid-type]
    description: str | None = column(description="Additional description.")
    target_url: str | None = column(description="URL of a page with details; http, https or relative.")
    allow_failure: bool = column(description="Whether it can fail without failing the commit.")
    created_at: datetime = column(description="When the status was first posted.")
    started_at: datetime | None = column(description="When the check started, if it was reported.")
    finished_at: datetime | None = column(description="When the check finished, if it was reported.")
    author: User | None = to_one(
        tables.CommitStatus.author_id, description="User who first posted the status; null if the account was deleted."
    )
    project: Annotated["Project", strawberry.lazy("graph.types.projects.projects")] = to_one(
        tables.CommitStatus.project_id, description="Project it belongs to."
    )

    @strawberry.field(description="The commit; null if it cannot be read.")
    async def commit(self, info: Info) -> Annotated["Commit", strawberry.lazy("graph.types.git.commits")] | None:
        row: Any = self
        return await load_commit(info, row.project_id, row.sha)

    @strawberry.field(description="Path of the statuses of the commit in the v3 API.")
    def rest_path(self) -> str:
        row: Any = self
        return f"/api/v3/projects/{row.project_id}/repository/commits/{row.sha}/statuses"


async def _resolve_statuses(root: Any, info: Info, **arguments: Any) -> Any:
    commit: ProjectCommit = root
    context: Context = info.context
    await require(context, Action.READ_CHECKS, commit)
    table = tables.CommitStatus
    status_filter = arguments["filter"] or CommitStatusFilter()
    conditions = (col(table.project_id) == commit.project_id, *status_filter.conditions())
    window = make_window(arguments)

    async def fetch(shas: list[Any]) -> dict[Any, Any]:
        newest = () if status_filter.all else (col(table.id).in_(statements.newest_ids({commit.project_id: shas})),)
        return await KeysetListing(table, Order(table.id), (*conditions, *newest), parent=table.sha).pages(context, window, shas)

    return await context.loader(("commit statuses", commit.project_id, repr(arguments)), fetch).get(commit.oid)


@strawberry.type
class CommitStatusFields:
    """Fields of a commit about its statuses."""

    statuses: Connection[CommitStatus] | None = connection_field(
        _resolve_statuses,
        filter=CommitStatusFilter,
        description="Commit statuses, oldest first; only the newest of each name and ref unless the filter has `all`. Null, with an error,"
        " if the viewer cannot see checks.",
    )


@strawberry.input(
    description="Input of `createCommitStatus`. A pending or running status of the same name and ref is updated; otherwise a new status is"
    " created."
)
class CreateCommitStatusInput(ProjectInput):
    sha: str = strawberry.field(description="Commit: a full ID, a branch, a tag or an unambiguous ID prefix.")
    state: BuildStatus = strawberry.field(description="New status, regardless of the previous one.")  # type: ignore[valid-type]
    ref: str | None = optional("Branch or tag of the status; none by default, even if `sha` is a branch. At most 255 characters.")
    name: str | None = optional("Name of the check, default `default`; `name` or `context` in v3. At most 255 characters.")
    stage: str | None = optional("Stage in the pipeline, default `external`.")
    target_url: str | None = optional("URL of a page with details; http, https or relative. Null or blank clears it.")
    description: str | None = optional("Additional description. Null or blank clears it.")
    allow_failure: bool | None = optional("Whether the check can fail without failing the commit, default false.")


@mutation(
    entity="commit_status",
    returns=CommitStatus,
    entity_description="The created or updated status.",
    description="Sets the status of a check of a commit.",
)
async def create_commit_status(info: Info, input: CreateCommitStatusInput) -> tables.CommitStatus:
    return await commit_statuses.create_status(info.context, sent_values(input))


@strawberry.type
class CommitStatusMutations:
    create_commit_status = create_commit_status
