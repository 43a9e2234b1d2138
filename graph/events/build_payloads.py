"""The event of a build that starts or finishes, for hooks with `build_events`: the body of GitLab 8.5, for system hooks too."""

from dataclasses import asdict, dataclass
from typing import Any, Self

from graph.context import Context
from graph.events.payloads import EventPayload, format_timestamp
from graph.events.project_hook_payloads import REPOSITORY_KEYS, find_commit, project_attributes
from graph.rules.builds.rollups import roll_up
from storage import tables
from storage.git.refs.ref_names import NULL_ID
from storage.tables.builds import pipelines


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildChanged(EventPayload):
    """`user` has nulls for a build that no user caused. `commit` is the pipeline, whose `id` is null for builds of other systems."""

    event_name = "build"
    switch = "build_events"

    ref: str
    tag: bool
    before_sha: str
    sha: str
    build_id: int
    build_name: str
    build_stage: str
    build_status: str
    build_started_at: str | None
    build_finished_at: str | None
    build_duration: float | None
    build_allow_failure: bool
    project_id: int
    project_name: str
    user: dict[str, Any]
    commit: dict[str, Any]
    repository: dict[str, Any]

    @classmethod
    async def of(cls, context: Context, build: tables.Build) -> Self:
        project = await project_attributes(context, build.project_id)
        user = await context.rows_by_id(tables.User).get(build.user_id) if build.user_id is not None else None
        return cls(
            ref=build.ref,
            tag=build.tag,
            before_sha=NULL_ID,
            sha=build.sha,
            build_id=build.id,
            build_name=build.name,
            build_stage=build.stage,
            build_status=str(build.status),
            build_started_at=_timestamp(build.started_at),
            build_finished_at=_timestamp(build.finished_at),
            build_duration=_duration(build.started_at, build.finished_at),
            build_allow_failure=build.allow_failure,
            project_id=build.project_id,
            project_name=f"{project['namespace']} / {project['name']}",
            user={"id": user and user.id, "name": user and user.name, "email": user and user.email},
            commit=await _pipeline_attributes(context, build),
            repository={key: project[key] for key in REPOSITORY_KEYS},
        )

    @classmethod
    def project_id_of(cls, *subjects: Any) -> int | None:
        build: tables.Build = subjects[0]
        return build.project_id

    def body(self) -> dict[str, Any]:
        return {"object_kind": self.event_name, **asdict(self)}


async def _pipeline_attributes(context: Context, build: tables.Build) -> dict[str, Any]:
    rows = await context.all(pipelines.builds_of([build.pipeline_id])) if build.pipeline_id is not None else [build]
    # A pipeline does not wait for builds that nobody has played, so it may have finished without them.
    rollup = roll_up(row for row in rows if row.status is not tables.CheckStatus.MANUAL)
    commit = await find_commit(context, [build.project_id], build.sha)
    return {
        "id": build.pipeline_id,
        "sha": build.sha,
        "message": commit and commit.message,
        "author_name": commit and commit.author_name,
        "author_email": commit and commit.author_email,
        "status": str(rollup.state),
        "duration": sum(_duration(row.started_at, row.finished_at) or 0.0 for row in rows) or None,
        "started_at": _timestamp(rollup.started_at),
        "finished_at": _timestamp(rollup.finished_at),
    }


def _timestamp(value: Any) -> str | None:
    return None if value is None else format_timestamp(value)


def _duration(started_at: Any, finished_at: Any) -> float | None:
    return None if started_at is None or finished_at is None else max((finished_at - started_at).total_seconds(), 0.0)
