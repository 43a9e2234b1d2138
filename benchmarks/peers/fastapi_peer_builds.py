"""The peer's lists of builds and of merge requests, in the manner of `fastapi_peer.py`."""

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any

from fastapi import APIRouter, HTTPException, Query, Response
from pydantic import computed_field
from sqlalchemy import DateTime
from sqlalchemy.orm import selectinload
from sqlmodel import Field, Relationship, col, func, select

from benchmarks.peers import fastapi_peer
from benchmarks.peers.fastapi_peer import (
    Base,
    Label,
    Milestone,
    MilestoneOut,
    Note,
    NoteAuthorOut,
    Out,
    ProjectDep,
    SessionDep,
    State,
    User,
    string_enum,
)


class CheckStatus(StrEnum):
    PENDING = "pending"
    RUNNING = "running"
    SUCCESS = "success"
    FAILED = "failed"
    CANCELED = "canceled"


class MergeRequestState(StrEnum):
    OPENED = "opened"
    REOPENED = "reopened"
    CLOSED = "closed"
    MERGED = "merged"


class Commit(Base, table=True):
    __tablename__ = "commits"

    id: int | None = Field(default=None, primary_key=True)
    project_id: int = Field(foreign_key="projects.id")
    oid: str
    author_name: str
    author_email: str
    committed_at: datetime = Field(sa_type=DateTime(timezone=True))
    title: str


class Runner(Base, table=True):
    __tablename__ = "runners"

    id: int | None = Field(default=None, primary_key=True)
    description: str
    active: bool
    shared: bool
    name: str | None = None


class Artifact(Base, table=True):
    __tablename__ = "artifacts"

    id: int | None = Field(default=None, primary_key=True)
    project_id: int = Field(foreign_key="projects.id")
    build_id: int = Field(foreign_key="builds.id", unique=True)
    filename: str
    size: int


class Build(Base, table=True):
    __tablename__ = "builds"

    id: int | None = Field(default=None, primary_key=True)
    project_id: int = Field(foreign_key="projects.id")
    current_id: int | None = None
    sha: str
    ref: str
    tag: bool
    name: str
    stage: str
    status: CheckStatus = Field(sa_type=string_enum(CheckStatus))
    user_id: int | None = Field(default=None, foreign_key="users.id")
    runner_id: int | None = Field(default=None, foreign_key="runners.id")
    coverage: float | None = None
    created_at: datetime = Field(sa_type=DateTime(timezone=True))
    started_at: datetime | None = Field(default=None, sa_type=DateTime(timezone=True))
    finished_at: datetime | None = Field(default=None, sa_type=DateTime(timezone=True))

    user: User | None = Relationship()
    runner: Runner | None = Relationship()
    artifact: Artifact | None = Relationship(sa_relationship_kwargs={"uselist": False})
    commit: Commit | None = Relationship(
        sa_relationship_kwargs={
            "primaryjoin": "and_(foreign(Build.project_id) == Commit.project_id, foreign(Build.sha) == Commit.oid)",
            "viewonly": True,
            "uselist": False,
        }
    )


class MergeRequestLabel(Base, table=True):
    __tablename__ = "merge_request_labels"

    merge_request_id: int = Field(primary_key=True, foreign_key="merge_requests.id")
    label_id: int = Field(primary_key=True, foreign_key="labels.id")


class MergeRequest(Base, table=True):
    __tablename__ = "merge_requests"

    id: int | None = Field(default=None, primary_key=True)
    project_id: int = Field(foreign_key="projects.id")
    source_project_id: int
    iid: int
    author_id: int = Field(foreign_key="users.id")
    assignee_id: int | None = Field(default=None, foreign_key="users.id")
    milestone_id: int | None = Field(default=None, foreign_key="milestones.id")
    title: str
    description: str | None = None
    state: MergeRequestState = Field(sa_type=string_enum(MergeRequestState))
    source_branch: str
    target_branch: str
    merge_status: str
    head_oid: str | None = None
    merge_when_build_succeeds: bool
    created_at: datetime = Field(sa_type=DateTime(timezone=True))
    updated_at: datetime = Field(sa_type=DateTime(timezone=True))

    author: User = Relationship(sa_relationship_kwargs={"foreign_keys": "MergeRequest.author_id"})
    assignee: User | None = Relationship(sa_relationship_kwargs={"foreign_keys": "MergeRequest.assignee_id"})
    milestone: Milestone | None = Relationship()
    labels: list[Label] = Relationship(link_model=MergeRequestLabel, sa_relationship_kwargs={"order_by": "Label.title"})


class PublicUserOut(Out):
    id: int
    username: str
    name: str
    state: State
    avatar_url: str | None = None
    created_at: datetime
    is_admin: Annotated[bool, Field(validation_alias="admin")]
    bio: str | None
    messenger: str
    professional_profile: str
    microblog: str
    website_url: str


class CommitOut(Out):
    id: Annotated[str, Field(validation_alias="oid")]
    title: str
    author_name: str
    author_email: str
    created_at: Annotated[datetime, Field(validation_alias="committed_at")]

    @computed_field  # type: ignore[prop-decorator]
    @property
    def short_id(self) -> str:
        return self.id[:8]

    @computed_field  # type: ignore[prop-decorator]
    @property
    def message(self) -> str:
        return self.title


class RunnerOut(Out):
    id: int
    description: str
    active: bool
    is_shared: Annotated[bool, Field(validation_alias="shared")]
    name: str | None


class ArtifactOut(Out):
    filename: str
    size: int


class BuildOut(Out):
    id: int
    project_id: Annotated[int, Field(exclude=True)]
    status: CheckStatus
    stage: str
    name: str
    ref: str
    tag: bool
    coverage: float | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    user: PublicUserOut | None
    commit: CommitOut | None
    runner: RunnerOut | None
    artifacts_file: Annotated[ArtifactOut | None, Field(validation_alias="artifact")]

    @computed_field  # type: ignore[prop-decorator]
    @property
    def download_url(self) -> str | None:
        if self.artifacts_file is None:
            return None
        return f"{fastapi_peer.EXTERNAL_URL}/api/v3/projects/{self.project_id}/builds/{self.id}/artifacts"


class MergeRequestOut(Out):
    id: int
    iid: int
    project_id: int
    title: str
    description: str | None
    state: MergeRequestState
    target_branch: str
    source_branch: str
    upvotes: int
    downvotes: int
    source_project_id: int
    target_project_id: int
    labels: list[str]
    work_in_progress: bool
    milestone: MilestoneOut | None
    merge_when_build_succeeds: bool
    merge_status: str
    author: NoteAuthorOut
    assignee: NoteAuthorOut | None


router = APIRouter(prefix="/api/v3")
Page = Annotated[int, Query(ge=1)]
PerPage = Annotated[int, Query(ge=1, le=100)]
WITH_BUILD_RELATIONS = (selectinload(Build.user), selectinload(Build.runner), selectinload(Build.commit), selectinload(Build.artifact))  # type: ignore[arg-type]
WITH_MERGE_REQUEST_RELATIONS = (
    selectinload(MergeRequest.author),  # type: ignore[arg-type]
    selectinload(MergeRequest.assignee),  # type: ignore[arg-type]
    selectinload(MergeRequest.milestone),  # type: ignore[arg-type]
    selectinload(MergeRequest.labels),  # type: ignore[arg-type]
)


def set_paging_headers(response: Response, total: int, page: int, per_page: int) -> None:
    response.headers["X-Total"] = str(total)
    response.headers["X-Page"] = str(page)
    response.headers["X-Per-Page"] = str(per_page)


@router.get("/projects/{project_id}/builds", response_model=list[BuildOut])
async def list_builds(
    project: ProjectDep,
    session: SessionDep,
    response: Response,
    scope: CheckStatus | None = None,
    page: Page = 1,
    per_page: PerPage = 20,
) -> Any:
    if not project.builds_enabled:
        raise HTTPException(403, "403 Forbidden")
    conditions: list[Any] = [Build.project_id == project.id, col(Build.current_id).is_(None)]
    if scope is not None:
        conditions.append(Build.status == scope)
    total = (await session.exec(select(func.count()).select_from(Build).where(*conditions))).one()
    newest = select(Build).where(*conditions).order_by(col(Build.id).desc())
    found = await session.exec(newest.offset((page - 1) * per_page).limit(per_page).options(*WITH_BUILD_RELATIONS))
    set_paging_headers(response, total, page, per_page)
    return found.all()


@router.get("/projects/{project_id}/merge_requests", response_model=list[MergeRequestOut])
async def list_merge_requests(
    project: ProjectDep,
    session: SessionDep,
    response: Response,
    state: MergeRequestState | None = None,
    page: Page = 1,
    per_page: PerPage = 20,
) -> Any:
    if not project.merge_requests_enabled:
        raise HTTPException(403, "403 Forbidden")
    conditions = [MergeRequest.project_id == project.id]
    if state is not None:
        conditions.append(MergeRequest.state == state)
    total = (await session.exec(select(func.count()).select_from(MergeRequest).where(*conditions))).one()
    newest = select(MergeRequest).where(*conditions).order_by(col(MergeRequest.created_at).desc(), col(MergeRequest.id).desc())
    found = (await session.exec(newest.offset((page - 1) * per_page).limit(per_page).options(*WITH_MERGE_REQUEST_RELATIONS))).all()
    votes = await count_votes(session, [row.id for row in found if row.id is not None])
    set_paging_headers(response, total, page, per_page)
    return [create_response(row, *votes.get(row.id or 0, (0, 0))) for row in found]


async def count_votes(session: SessionDep, ids: list[int]) -> dict[int, tuple[int, int]]:
    """Merge request → (upvotes, downvotes), where there are any."""
    counts = (func.count().filter(col(Note.upvote)), func.count().filter(col(Note.downvote)))
    voted = col(Note.merge_request_id).in_(ids), col(Note.upvote) | col(Note.downvote)
    found = await session.exec(select(Note.merge_request_id, *counts).where(*voted).group_by(col(Note.merge_request_id)))
    return {key: (up, down) for key, up, down in found.all() if key is not None}


def create_response(row: MergeRequest, upvotes: int, downvotes: int) -> MergeRequestOut:
    return MergeRequestOut(
        **row.model_dump(),
        upvotes=upvotes,
        downvotes=downvotes,
        target_project_id=row.project_id,
        labels=[label.title for label in row.labels],
        work_in_progress=row.title.lower().startswith(("wip:", "wip ", "[wip]")),
        milestone=MilestoneOut.model_validate(row.milestone) if row.milestone is not None else None,
        author=NoteAuthorOut.model_validate(row.author),
        assignee=NoteAuthorOut.model_validate(row.assignee) if row.assignee is not None else None,
    )
