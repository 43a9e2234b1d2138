"""FastAPI + SQLModel: a session, the caller and the project as dependencies, relations by `selectinload`, response models.

Run it with `uvicorn --factory benchmarks.peers.fastapi_app:create_app`.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import date, datetime
from typing import Annotated, Any

from fastapi import APIRouter, Depends, FastAPI, HTTPException, Request
from fastapi.security import APIKeyHeader
from pydantic import BaseModel, ConfigDict, Field, field_validator
from pydantic.alias_generators import to_camel
from sqlalchemy.ext.asyncio import async_sessionmaker
from sqlalchemy.orm import selectinload
from sqlmodel import col, func, select
from sqlmodel.ext.asyncio.session import AsyncSession

from benchmarks.peers.engine import create_engine
from benchmarks.peers.sqlmodel_tables import (
    Build,
    CheckStatus,
    Commit,
    GroupMember,
    Issue,
    IssueState,
    Label,
    MergeRequest,
    MergeRequestState,
    Namespace,
    Note,
    Project,
    ProjectMember,
    ProjectStar,
    State,
    User,
    find_caller,
    find_project,
    is_member,
)

Id = Annotated[int, Field(validation_alias="id", serialization_alias="databaseId")]


def camel(name: str) -> Any:
    return Field(serialization_alias=to_camel(name))


class Out(BaseModel):
    model_config = ConfigDict(from_attributes=True)


class UserOut(Out):
    id: Id
    username: str
    name: str
    state: State


class MilestoneOut(Out):
    id: Id
    iid: int
    title: str
    state: str
    due_date: Annotated[date | None, camel("due_date")]


class IssueOut(Out):
    id: Id
    iid: int
    title: str
    description: str | None
    state: IssueState
    created_at: Annotated[datetime, camel("created_at")]
    updated_at: Annotated[datetime, camel("updated_at")]
    labels: list[str]
    milestone: MilestoneOut | None
    author: UserOut
    assignee: UserOut | None

    @field_validator("labels", mode="before")
    @classmethod
    def titles(cls, labels: list[Label]) -> list[str]:
        return [label.title for label in labels]


class BuildOut(Out):
    id: Id
    name: str
    stage: str
    status: CheckStatus
    started_at: Annotated[datetime | None, camel("started_at")]
    finished_at: Annotated[datetime | None, camel("finished_at")]


class CommitOut(Out):
    oid: str
    title: str
    author_name: Annotated[str, camel("author_name")]
    committed_at: Annotated[datetime, camel("committed_at")]
    builds: list[BuildOut]


class MergeRequestOut(Out):
    id: Id
    iid: int
    title: str
    state: MergeRequestState
    source_branch: Annotated[str, camel("source_branch")]
    target_branch: Annotated[str, camel("target_branch")]
    created_at: Annotated[datetime, camel("created_at")]
    author: UserOut
    head_commit: Annotated[CommitOut | None, camel("head_commit")] = None


class NoteOut(Out):
    id: Id
    body: str
    created_at: Annotated[datetime, camel("created_at")]
    author: UserOut


class NamespaceOut(Out):
    id: Id
    name: str
    path: str


class MembershipOut(Out):
    project_level: Annotated[int | None, Field(serialization_alias="projectLevelValue")]
    group_level: Annotated[int | None, Field(serialization_alias="groupLevelValue")]


class ProjectOut(Out):
    id: Id
    name: str
    path: str
    full_path: Annotated[str, camel("full_path")]
    description: str | None
    visibility_level: Annotated[int, camel("visibility_level")]
    archived: bool
    created_at: Annotated[datetime, camel("created_at")]
    last_activity_at: Annotated[datetime, camel("last_activity_at")]
    star_count: Annotated[int, camel("star_count")]
    fork_count: Annotated[int, camel("fork_count")]
    open_issues_count: Annotated[int | None, camel("open_issues_count")]
    owner: UserOut | None
    namespace: NamespaceOut
    viewer_membership: Annotated[MembershipOut, camel("viewer_membership")]


class NoteIn(BaseModel):
    body: Annotated[str, Field(min_length=1, max_length=1_000_000)]


async def get_session(request: Request) -> AsyncIterator[AsyncSession]:
    async with request.app.state.sessions() as session:
        yield session


SessionDep = Annotated[AsyncSession, Depends(get_session)]
header = APIKeyHeader(name="PRIVATE-TOKEN", auto_error=False)


async def get_user(session: SessionDep, token: Annotated[str | None, Depends(header)]) -> User:
    user = await find_caller(session, token)
    if user is None:
        raise HTTPException(401, "401 Unauthorized")
    return user


UserDep = Annotated[User, Depends(get_user)]


async def get_project(project_id: int, session: SessionDep, user: UserDep) -> Project:
    project = await find_project(session, project_id, user)
    if project is None:
        raise HTTPException(404, "404 Project Not Found")
    return project


ProjectDep = Annotated[Project, Depends(get_project)]
WITH_RELATIONS = (selectinload(Issue.author), selectinload(Issue.assignee), selectinload(Issue.milestone), selectinload(Issue.labels))  # type: ignore[arg-type]

router = APIRouter()


@router.get("/projects", response_model=list[ProjectOut])
async def list_projects(session: SessionDep, user: UserDep) -> Any:
    """A statement for the projects, two for their namespaces and owners, and one for each count and level."""
    newest = select(Project).where(is_member(col(Project.id), col(Project.namespace_id), user))
    ordered = newest.order_by(col(Project.created_at).desc(), col(Project.id).desc()).limit(20)
    found = (await session.exec(ordered.options(selectinload(Project.namespace).selectinload(Namespace.owner)))).all()  # type: ignore[arg-type]
    ids = [project.id for project in found]

    async def numbers(key: Any, value: Any, *conditions: Any) -> dict[int, int]:
        return dict((await session.exec(select(key, value).where(*conditions).group_by(key))).all())

    issues = await numbers(col(Issue.project_id), func.count(), col(Issue.project_id).in_(ids), Issue.state == IssueState.OPENED)
    forks = await numbers(col(Project.forked_from_id), func.count(), col(Project.forked_from_id).in_(ids))
    stars = await numbers(col(ProjectStar.project_id), func.count(), col(ProjectStar.project_id).in_(ids))
    own, level = ProjectMember.user_id == user.id, func.max(ProjectMember.access_level)
    levels = await numbers(col(ProjectMember.project_id), level, col(ProjectMember.project_id).in_(ids), own)
    in_groups = [GroupMember.user_id == user.id, col(GroupMember.group_id).in_([project.namespace_id for project in found])]
    group_levels = await numbers(col(GroupMember.group_id), func.max(GroupMember.access_level), *in_groups)
    return [
        {
            **project.model_dump(),
            "full_path": f"{project.namespace.path}/{project.path}",
            "namespace": project.namespace,
            "owner": project.namespace.owner,
            "star_count": stars.get(project.id or 0, 0),
            "fork_count": forks.get(project.id or 0, 0),
            "open_issues_count": issues.get(project.id or 0, 0) if project.issues_enabled else None,
            "viewer_membership": {
                "project_level": 50 if project.namespace.owner_id == user.id else levels.get(project.id or 0),
                "group_level": group_levels.get(project.namespace_id),
            },
        }
        for project in found
    ]


@router.get("/projects/{project_id}/issues", response_model=list[IssueOut])
async def list_issues(project: ProjectDep, session: SessionDep) -> Any:
    newest = select(Issue).where(Issue.project_id == project.id).order_by(col(Issue.created_at).desc(), col(Issue.id).desc())
    return (await session.exec(newest.limit(20).options(*WITH_RELATIONS))).all()


@router.get("/projects/{project_id}/issues/{issue_id}", response_model=IssueOut)
async def get_issue(project: ProjectDep, issue_id: int, session: SessionDep) -> Any:
    statement = select(Issue).where(Issue.id == issue_id, Issue.project_id == project.id).options(*WITH_RELATIONS)
    issue = (await session.exec(statement)).first()
    if issue is None:
        raise HTTPException(404, "404 Issue Not Found")
    return issue


@router.get("/projects/{project_id}/merge_requests", response_model=list[MergeRequestOut])
async def list_merge_requests(project: ProjectDep, session: SessionDep) -> Any:
    """Reads the merge requests, their commits, and five builds of each commit by three statements; the authors by another one."""
    newest = select(MergeRequest).where(MergeRequest.project_id == project.id)
    ordered = newest.order_by(col(MergeRequest.created_at).desc(), col(MergeRequest.id).desc()).limit(20)
    found = (await session.exec(ordered.options(selectinload(MergeRequest.author)))).all()  # type: ignore[arg-type]
    heads = [row.head_oid for row in found if row.head_oid is not None]
    commits = (await session.exec(select(Commit).where(Commit.project_id == project.id, col(Commit.oid).in_(heads)))).all()
    rank = func.row_number().over(partition_by=col(Build.sha), order_by=col(Build.id).desc()).label("rank")
    of_heads = select(Build.id, rank).where(Build.project_id == project.id, col(Build.sha).in_(heads), col(Build.current_id).is_(None))
    first = of_heads.subquery()
    builds = await session.exec(select(Build).join(first, first.c.id == Build.id).where(first.c.rank <= 5).order_by(col(Build.id).desc()))
    by_sha: dict[str, list[BuildOut]] = {}
    for build in builds.all():
        by_sha.setdefault(build.sha, []).append(BuildOut.model_validate(build))
    by_oid = {commit.oid: commit for commit in commits}
    answers = []
    for row in found:
        answer = MergeRequestOut.model_validate(row)
        if (commit := by_oid.get(row.head_oid or "")) is not None:
            answer.head_commit = CommitOut(**commit.model_dump(), builds=by_sha.get(commit.oid, []))
        answers.append(answer)
    return answers


@router.post("/projects/{project_id}/issues/{issue_id}/notes", response_model=NoteOut, status_code=201)
async def create_note(project: ProjectDep, issue_id: int, payload: NoteIn, user: UserDep, session: SessionDep) -> Any:
    issue = (await session.exec(select(Issue).where(Issue.id == issue_id, Issue.project_id == project.id))).first()
    if issue is None:
        raise HTTPException(404, "404 Issue Not Found")
    assert project.id is not None and issue.id is not None and user.id is not None
    note = Note(project_id=project.id, issue_id=issue.id, author_id=user.id, body=payload.body)
    session.add(note)
    await session.commit()
    return {**note.model_dump(), "author": user}


def create_app(database_url: str | None = None) -> FastAPI:
    """The application; without a URL it takes the one of PEER_DATABASE_URL."""
    engine = create_engine(database_url)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        await engine.dispose()

    app = FastAPI(lifespan=lifespan)
    app.state.sessions = async_sessionmaker(engine, class_=AsyncSession, expire_on_commit=False)
    app.include_router(router)
    return app
