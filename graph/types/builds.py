"""Builds."""

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import strawberry
from sqlmodel import col

from graph.connections import Connection, Order
from graph.context import Info
from graph.declare import Node, column, computed, connection_field, entity, to_many, to_one, window_of
from graph.rules import artifacts, builds
from graph.rules.policy import Action, may, require
from graph.scalars import GitOid
from graph.types.artifacts import BuildArtifact
from graph.types.commit_statuses import BuildStatus
from graph.types.inputs import DateTimeRange
from graph.types.runners import Runner
from graph.types.shown_commits import TOLD, commit_of, commits_of
from graph.types.traces import BuildTraces
from graph.types.users import User
from graph.types.web_urls import web_url
from storage import tables
from storage.tables import builds as statements
from storage.tables import issues as issue_statements

if TYPE_CHECKING:
    from graph.types.commits import Commit
    from graph.types.merge_requests import MergeRequest
    from graph.types.pipelines import Pipeline
    from graph.types.projects import Project

NEWEST_FIRST = Order(tables.Build.id, descending=True)
TIMES = (tables.Build.created_at, tables.Build.started_at, tables.Build.finished_at)


@strawberry.input(description="Which builds; every field given must match.")
class BuildFilter:
    status: list[BuildStatus] | None = strawberry.field(  # type: ignore[valid-type]
        description="In one of these states; v3's `scope`.", default=None
    )
    name: list[str] | None = strawberry.field(description="Of a job of one of these names.", default=None)
    stage: list[str] | None = strawberry.field(description="Of one of these stages.", default=None)
    ref: list[str | None] | None = strawberry.field(
        description="For one of these branches or tags; null in the list stands for the project's default branch.", default=None
    )
    latest_attempt_only: bool = strawberry.field(
        description="True: without the attempts that a retry superseded. A build's own are its `attempts`.", default=True
    )
    created: DateTimeRange | None = strawberry.field(description="Made in this time.", default=None)
    finished: DateTimeRange | None = strawberry.field(description="Ended in this time.", default=None)
    author_username: list[str] | None = strawberry.field(description="Made by one of these users, as by a push.", default=None)

    def conditions(self) -> list[Any]:
        row = tables.Build
        among: list[tuple[Any, Any]] = [(row.status, self.status), (row.name, self.name), (row.stage, self.stage)]
        found: list[Any] = [col(key).in_(values) for key, values in among if values is not None]
        if self.ref is not None:
            found.append(statements.has_ref(self.ref))
        if self.author_username is not None:
            found.append(col(row.user_id).in_(issue_statements.ids_of_users(self.author_username)))
        spans: list[tuple[Any, Any]] = [(row.created_at, self.created), (row.finished_at, self.finished)]
        for moment, span in spans:
            if span is not None:
                found += span.conditions(moment)
        return [*found, statements.is_current()] if self.latest_attempt_only else found


@strawberry.type(description="What the viewer may do with a build, in the state that it is in.")
class BuildAbilities:
    cancel: bool = strawberry.field(description="Stop it, or keep it from being run.")
    retry: bool = strawberry.field(description="Have it run again.")
    erase: bool = strawberry.field(description="Take its trace and its artifact away.")


def _row(build: Any) -> tables.Build:
    return build  # type: ignore[no-any-return]


async def _attempts(root: Any, info: Info, **arguments: Any) -> Any:
    return await builds.attempts(info.context, root, window_of(arguments))


@entity(
    tables.Build,
    description="A job that was, or is to be, run for a commit. A retry makes the next attempt of the same build.",
    project_key="project_id",
    action=Action.READ_BUILD,
)
class Build(BuildArtifact, BuildTraces, Node):
    database_id: int = column(tables.Build.id, description="The v3 id. An attempt that was superseded has one of its own.")
    project_id: int = column(description="The v3 id of the project.")
    sha: GitOid = column(description="The full id of the commit.")
    ref: str = column(description="The branch or tag that it is for.")
    tag: bool = column(description="Whether `ref` is a tag.")
    name: str = column(description="The name of the job.")
    stage: str = column(description="The part of the pipeline that it belongs to.")
    status: BuildStatus = column(description="How far it has come.")  # type: ignore[valid-type]
    allow_failure: bool = column(description="Whether it may fail without the commit being called failed.")
    attempt: int = column(description="Which attempt it is, counted from 1.")
    coverage: float | None = column(description="How much of the code the tests reached, in per cent; null when nobody said.")
    description: str | None = column(description="What is said of it beside that, in words.")
    target_url: str | None = column(description="The address of a page with more, in an outside system; http, https or relative.")
    created_at: datetime = column(description="When this attempt was made.")
    started_at: datetime | None = column(description="When it began to run, if it did.")
    finished_at: datetime | None = column(description="When it ended, if it has.")
    erased_at: datetime | None = column(description="When its trace and its artifact were taken away, if they were.")
    user: User | None = to_one(tables.Build.user_id, description="Who made it, as by a push; null when nobody did, or the account is gone.")
    runner: Runner | None = to_one(tables.Build.runner_id, description="What runs it, or ran it; null when none has taken it.")
    pipeline: Annotated["Pipeline", strawberry.lazy("graph.types.pipelines")] | None = to_one(
        tables.Build.pipeline_id, description="What it is a part of; null when an outside system made it."
    )
    project: Annotated["Project", strawberry.lazy("graph.types.projects")] = to_one(
        tables.Build.project_id, description="Where it belongs."
    )

    web_url: str = web_url(
        "builds",
        tables.Build.project_id,
        tables.Build.current_id,
        tables.Build.id,
        description="The address of its page; of an attempt that was superseded, that of the build.",
    )

    attempts: Connection[Annotated["Build", strawberry.lazy("graph.types.builds")]] = connection_field(
        _attempts, description="Every attempt of the same build, the newest first."
    )

    @computed(
        tables.Build.project_id,
        tables.Build.id,
        description="The path of the same thing in v3, which knows no attempts that were superseded.",
    )
    def rest_path(self) -> str:
        return f"/api/v3/projects/{_row(self).project_id}/builds/{_row(self).id}"

    @computed(
        tables.Build.project_id,
        tables.Build.sha,
        together=lambda info, rows: commits_of(info, [(row.project_id, row.sha) for row in rows]),
        told=TOLD,
        description="The commit; null when the repository cannot give it.",
    )
    async def commit(self, info: Info) -> Annotated["Commit", strawberry.lazy("graph.types.commits")] | None:
        return await commit_of(info, _row(self).project_id, _row(self).sha)

    @strawberry.field(description="The absolute address of its artifact in v3; null without one.")
    async def download_url(self, info: Info) -> str | None:
        left = await artifacts.of_builds(info.context).get(_row(self).id)
        return artifacts.address(info.context, left) if left is not None else None

    @computed(*TIMES, description="Seconds that it ran; while it runs, so far. Null for one that never did.")
    def duration_seconds(self, info: Info) -> float | None:
        return builds.duration(_row(self), info.context.now())

    @computed(*TIMES, description="Seconds that it waited to be run; while it waits, so far.")
    def queued_seconds(self, info: Info) -> float | None:
        return builds.queued(_row(self), info.context.now())

    @strawberry.field(description="The newest open merge request that proposes its branch with this commit as the newest.")
    async def merge_request(self, info: Info) -> Annotated["MergeRequest", strawberry.lazy("graph.types.merge_requests")] | None:
        return await builds.merge_request(info.context, _row(self))  # type: ignore[return-value]

    @strawberry.field(description="What the viewer may do with it.")
    async def viewer_can(self, info: Info) -> BuildAbilities:
        row = _row(self)
        update = await may(info.context, Action.UPDATE_BUILD, row)
        return BuildAbilities(
            cancel=update and builds.is_cancelable(row),
            retry=update and builds.is_retryable(row),
            erase=update and builds.is_erasable(row),
        )


@strawberry.type
class ProjectBuilds:
    """The part of a project that is about its builds."""

    builds: Connection[Build] = to_many(
        tables.Build.project_id,
        order_by=NEWEST_FIRST,
        filter=BuildFilter,
        default=BuildFilter,
        action=Action.READ_BUILD,
        description="The project's builds, the newest first; of each the newest attempt.",
    )

    @strawberry.field(description="A build of the project.")
    async def build(
        self, info: Info, database_id: Annotated[int, strawberry.argument(description="The v3 id; one of a superseded attempt is none.")]
    ) -> Build | None:
        project: Any = self
        await require(info.context, Action.READ_BUILD, project)
        return await builds.within(info.context, project, database_id)  # type: ignore[return-value]


@strawberry.type
class CommitBuilds:
    """The part of a commit that is about its builds."""

    builds: Connection[Build] = to_many(
        (tables.Build.project_id, tables.Build.sha),
        of="key",
        order_by=NEWEST_FIRST,
        filter=BuildFilter,
        default=BuildFilter,
        action=Action.READ_BUILD,
        description="The builds of the commit, the newest first; of each the newest attempt.",
    )
