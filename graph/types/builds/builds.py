"""Builds."""

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import strawberry

from graph.context import Info
from graph.fields.connection_pages import ConnectionPage
from graph.fields.connections import Connection
from graph.fields.declarations import column, computed, connection_field, make_window, to_many, to_one
from graph.fields.entities import Node, entity
from graph.fields.keyset_listing import Order
from graph.fields.scalars import GitOid
from graph.rules.builds import artifacts, builds
from graph.rules.permissions.policy import Action, can, require
from graph.types.accounts.group_lists import list_in_group
from graph.types.accounts.users import User
from graph.types.builds.artifacts import BuildArtifactFields
from graph.types.builds.build_filters import BuildFilter, BuildStatus
from graph.types.builds.environments import BuildDeploymentFields
from graph.types.builds.runners import Runner
from graph.types.builds.traces import BuildTraceFields
from graph.types.git.commit_loader import COMMIT_INDEX, load_commit, load_commits
from graph.types.web_urls import web_url
from storage import tables

if TYPE_CHECKING:
    from graph.types.builds.pipelines import Pipeline
    from graph.types.git.commits import Commit
    from graph.types.merge_requests.merge_requests import MergeRequest
    from graph.types.projects.projects import Project

NEWEST_FIRST = Order(tables.Build.id, descending=True)
TIME_COLUMNS = (tables.Build.created_at, tables.Build.started_at, tables.Build.finished_at)


@strawberry.type(description="Actions the viewer is allowed to perform on a build in its current state.")
class BuildAbilities:
    cancel: bool = strawberry.field(description="Cancel the build.")
    retry: bool = strawberry.field(description="Retry the build.")
    erase: bool = strawberry.field(description="Erase the trace and the artifact.")
    play: bool = strawberry.field(description="Play the build, which has `when: manual`.")


def _as_row(build: Any) -> tables.Build:
    return build  # type: ignore[no-any-return]


async def _resolve_attempts(root: Any, info: Info, **arguments: Any) -> Any:
    return await builds.attempt_page(info.context, root, make_window(arguments))


@entity(
    tables.Build,
    description="A run of a job for a commit. A retry creates a new attempt of the same build.",
    project_key="project_id",
    action=Action.READ_BUILD,
)
class Build(BuildArtifactFields, BuildTraceFields, BuildDeploymentFields, Node):
    database_id: int = column(tables.Build.id, description="ID in the v3 API. A superseded attempt has an ID of its own.")
    project_id: int = column(description="v3 ID of the project.")
    sha: GitOid = column(description="Full ID of the commit.")
    ref: str = column(description="Branch or tag.")
    tag: bool = column(description="Whether `ref` is a tag.")
    name: str = column(description="Name of the job.")
    stage: str = column(description="Stage in the pipeline.")
    status: BuildStatus = column(description="Status.")  # type: ignore[valid-type]
    allow_failure: bool = column(description="Whether it can fail without failing the commit.")
    attempt: int = column(description="Number of the attempt, starting at 1.")
    coverage: float | None = column(description="Code coverage in percent; null if it was not reported.")
    description: str | None = column(description="Additional description.")
    target_url: str | None = column(description="URL of a page with details in the external system; http, https or relative.")
    created_at: datetime = column(description="When this attempt was created.")
    started_at: datetime | None = column(description="When the build started; null if it has not.")
    finished_at: datetime | None = column(description="When the build finished; null if it has not.")
    erased_at: datetime | None = column(description="When the trace and the artifact were erased; null if they were not.")
    artifacts_expired_at: datetime | None = column(description="When the artifact was deleted because it had expired; null if it was not.")
    user: User | None = to_one(
        tables.Build.user_id,
        description="User who created the build, for example by a push; null if nobody did or the account was deleted.",
    )
    runner: Runner | None = to_one(
        tables.Build.runner_id, description="Runner that runs or ran the build; null if no runner has claimed it."
    )
    pipeline: Annotated["Pipeline", strawberry.lazy("graph.types.builds.pipelines")] | None = to_one(
        tables.Build.pipeline_id, description="Pipeline of the build; null if an external system created it."
    )
    project: Annotated["Project", strawberry.lazy("graph.types.projects.projects")] = to_one(
        tables.Build.project_id, description="Project it belongs to."
    )

    web_url: str = web_url(
        "builds",
        tables.Build.project_id,
        tables.Build.current_id,
        tables.Build.id,
        description="URL of the web page; for a superseded attempt, the page of the build.",
    )

    attempts: Connection[Annotated["Build", strawberry.lazy("graph.types.builds.builds")]] = connection_field(
        _resolve_attempts, description="All attempts of the build, newest first."
    )

    @computed(
        tables.Build.project_id,
        tables.Build.id,
        description="Path of the resource in the v3 API, which does not expose superseded attempts.",
    )
    def rest_path(self) -> str:
        return f"/api/v3/projects/{_as_row(self).project_id}/builds/{_as_row(self).id}"

    @computed(
        tables.Build.project_id,
        tables.Build.sha,
        batch=lambda info, rows: load_commits(info, [(row.project_id, row.sha) for row in rows]),
        from_index=COMMIT_INDEX,
        description="The commit; null if it cannot be read.",
    )
    async def commit(self, info: Info) -> Annotated["Commit", strawberry.lazy("graph.types.git.commits")] | None:
        return await load_commit(info, _as_row(self).project_id, _as_row(self).sha)

    @computed(
        tables.Build.id,
        batch=lambda info, rows: artifacts.load_download_urls(info.context, [row.id for row in rows]),
        description="Absolute URL of the artifact in the v3 API; null if there is none.",
    )
    async def download_url(self, info: Info) -> str | None:
        return (await artifacts.load_download_urls(info.context, [_as_row(self).id]))[0]

    @computed(*TIME_COLUMNS, description="Run time in seconds; up to now while the build runs. Null if it never started.")
    def duration_seconds(self, info: Info) -> float | None:
        return builds.duration_seconds(_as_row(self), info.context.now())

    @computed(*TIME_COLUMNS, description="Waiting time in seconds; up to now while the build is pending.")
    def queued_seconds(self, info: Info) -> float | None:
        return builds.queued_seconds(_as_row(self), info.context.now())

    @strawberry.field(description="Newest open merge request from this branch whose head is this commit.")
    async def merge_request(
        self, info: Info
    ) -> Annotated["MergeRequest", strawberry.lazy("graph.types.merge_requests.merge_requests")] | None:
        return await builds.find_merge_request(info.context, _as_row(self))  # type: ignore[return-value]

    @strawberry.field(description="Actions the viewer is allowed to perform.")
    async def viewer_can(self, info: Info) -> BuildAbilities:
        row = _as_row(self)
        update = await can(info.context, Action.UPDATE_BUILD, row)
        return BuildAbilities(
            cancel=update and builds.is_cancelable(row),
            retry=update and builds.is_retryable(row),
            erase=update and builds.is_erasable(row),
            play=update and builds.is_playable(row),
        )


@strawberry.type
class ProjectBuildFields:
    """Fields of a project about its builds."""

    builds: Connection[Build] | None = to_many(
        tables.Build.project_id,
        order_by=NEWEST_FIRST,
        filter=BuildFilter,
        default_filter=BuildFilter,
        action=Action.READ_BUILD,
        counted=tables.CountedKind.BUILDS,
        description="Builds of the project, latest attempt of each, newest first; null, with an error, if the viewer cannot see builds.",
    )

    @strawberry.field(description="Build of the project.")
    async def build(
        self,
        info: Info,
        database_id: Annotated[int, strawberry.argument(description="v3 ID of the build; IDs of superseded attempts are not found.")],
    ) -> Build | None:
        project: Any = self
        await require(info.context, Action.READ_BUILD, project)
        return await builds.get_build(info.context, project, database_id)  # type: ignore[return-value]


async def _resolve_group_builds(root: Any, info: Info, **arguments: Any) -> ConnectionPage:
    arguments["filter"] = arguments["filter"] or BuildFilter()
    return await list_in_group(info.context, root, tables.Build, NEWEST_FIRST, (Action.READ_BUILD,), arguments)


@strawberry.type
class GroupBuildFields:
    """Fields of a group about builds."""

    builds: Connection[Build] = connection_field(
        _resolve_group_builds,
        filter=BuildFilter,
        description="Builds of the group's projects whose builds the viewer can see and that are not archived, latest attempt of each,"
        " newest first.",
    )


@strawberry.type
class CommitBuildFields:
    """Fields of a commit about its builds."""

    builds: Connection[Build] | None = to_many(
        (tables.Build.project_id, tables.Build.sha),
        key_attribute="key",
        order_by=NEWEST_FIRST,
        filter=BuildFilter,
        default_filter=BuildFilter,
        action=Action.READ_BUILD,
        description="Builds of the commit, latest attempt of each, newest first; null, with an error, if the viewer cannot see builds.",
    )
