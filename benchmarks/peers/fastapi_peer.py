"""The peer: the same answers, written the way FastAPI and SQLModel are meant to be written.

It works on the service's own tables, so both sides do the same job: find the caller by the digest of a token, decide whether the
caller may see the project, read or write, and answer the same fields. `fastapi_peer_app.py` makes the application.
"""

import hashlib
import os
from collections.abc import AsyncIterator
from datetime import UTC, date, datetime
from enum import StrEnum
from typing import Annotated, Any

from fastapi import APIRouter, Depends, HTTPException, Query, Request, Response
from fastapi.security import APIKeyHeader
from pydantic import BaseModel, ConfigDict, computed_field, field_validator
from sqlalchemy import DateTime, exists, or_
from sqlalchemy import Enum as EnumType
from sqlalchemy.orm import registry, selectinload
from sqlmodel import Field, Relationship, SQLModel, col, func, select
from sqlmodel.ext.asyncio.session import AsyncSession

EXTERNAL_URL_VARIABLE = "PEER_EXTERNAL_URL"
EXTERNAL_URL = os.environ.get(EXTERNAL_URL_VARIABLE, "http://localhost:8080")


class State(StrEnum):
    ACTIVE = "active"
    BLOCKED = "blocked"


class IssueState(StrEnum):
    OPENED = "opened"
    CLOSED = "closed"


def string_enum(enumeration: type[StrEnum]) -> Any:
    return EnumType(enumeration, native_enum=False, length=32, values_callable=lambda members: [member.value for member in members])


# A registry of its own, since a test loads it beside the service's tables of the same names.
class Base(SQLModel, registry=registry()):
    pass


class User(Base, table=True):
    __tablename__ = "users"

    id: int | None = Field(default=None, primary_key=True)
    username: str
    name: str
    email: str
    state: State = Field(sa_type=string_enum(State))
    admin: bool = False
    bio: str | None = None
    messenger: str = ""
    professional_profile: str = ""
    microblog: str = ""
    website_url: str = ""
    created_at: datetime = Field(sa_type=DateTime(timezone=True))


class Token(Base, table=True):
    __tablename__ = "tokens"

    id: int | None = Field(default=None, primary_key=True)
    user_id: int = Field(foreign_key="users.id")
    digest: str


class Namespace(Base, table=True):
    __tablename__ = "namespaces"

    id: int | None = Field(default=None, primary_key=True)
    kind: str
    owner_id: int | None = Field(default=None, foreign_key="users.id")


class Project(Base, table=True):
    __tablename__ = "projects"

    id: int | None = Field(default=None, primary_key=True)
    namespace_id: int = Field(foreign_key="namespaces.id")
    name: str
    path: str
    visibility_level: int = 0
    issues_enabled: bool = True
    merge_requests_enabled: bool = True
    builds_enabled: bool = True


class ProjectMember(Base, table=True):
    __tablename__ = "project_members"

    id: int | None = Field(default=None, primary_key=True)
    project_id: int = Field(foreign_key="projects.id")
    user_id: int = Field(foreign_key="users.id")
    access_level: int


class GroupMember(Base, table=True):
    __tablename__ = "group_members"

    id: int | None = Field(default=None, primary_key=True)
    group_id: int = Field(foreign_key="namespaces.id")
    user_id: int = Field(foreign_key="users.id")
    access_level: int


class Milestone(Base, table=True):
    __tablename__ = "milestones"

    id: int | None = Field(default=None, primary_key=True)
    iid: int
    project_id: int = Field(foreign_key="projects.id")
    title: str
    description: str
    state: str
    due_date: date | None = None
    created_at: datetime = Field(sa_type=DateTime(timezone=True))
    updated_at: datetime = Field(sa_type=DateTime(timezone=True))


class IssueLabel(Base, table=True):
    __tablename__ = "issue_labels"

    issue_id: int = Field(primary_key=True, foreign_key="issues.id")
    label_id: int = Field(primary_key=True, foreign_key="labels.id")


class Label(Base, table=True):
    __tablename__ = "labels"

    id: int | None = Field(default=None, primary_key=True)
    project_id: int = Field(foreign_key="projects.id")
    title: str


class Issue(Base, table=True):
    __tablename__ = "issues"

    id: int | None = Field(default=None, primary_key=True)
    iid: int
    project_id: int = Field(foreign_key="projects.id")
    author_id: int = Field(foreign_key="users.id")
    assignee_id: int | None = Field(default=None, foreign_key="users.id")
    milestone_id: int | None = Field(default=None, foreign_key="milestones.id")
    title: str
    description: str | None = None
    state: IssueState = Field(sa_type=string_enum(IssueState))
    created_at: datetime = Field(sa_type=DateTime(timezone=True))
    updated_at: datetime = Field(sa_type=DateTime(timezone=True))

    author: User = Relationship(sa_relationship_kwargs={"foreign_keys": "Issue.author_id"})
    assignee: User | None = Relationship(sa_relationship_kwargs={"foreign_keys": "Issue.assignee_id"})
    milestone: Milestone | None = Relationship()
    labels: list[Label] = Relationship(link_model=IssueLabel, sa_relationship_kwargs={"order_by": "Label.title"})


class Note(Base, table=True):
    __tablename__ = "notes"

    id: int | None = Field(default=None, primary_key=True)
    project_id: int = Field(foreign_key="projects.id")
    issue_id: int | None = Field(default=None, foreign_key="issues.id")
    merge_request_id: int | None = None
    author_id: int = Field(foreign_key="users.id")
    body: str
    attachment: str | None = None
    system: bool = False
    upvote: bool = False
    downvote: bool = False
    created_at: datetime = Field(default_factory=lambda: datetime.now(UTC), sa_type=DateTime(timezone=True))
    updated_at: datetime = Field(default_factory=lambda: datetime.now(UTC), sa_type=DateTime(timezone=True))


class Out(BaseModel):
    model_config = ConfigDict(from_attributes=True)


class UserOut(Out):
    id: int
    username: str
    name: str
    state: State
    avatar_url: str | None = None

    @computed_field  # type: ignore[prop-decorator]
    @property
    def web_url(self) -> str:
        return f"{EXTERNAL_URL}/u/{self.username}"


class MilestoneOut(Out):
    id: int
    iid: int
    project_id: int
    title: str
    description: str
    state: str
    created_at: datetime
    updated_at: datetime
    due_date: date | None


class IssueOut(Out):
    id: int
    iid: int
    project_id: int
    title: str
    description: str | None
    state: IssueState
    created_at: datetime
    updated_at: datetime
    labels: list[str]
    milestone: MilestoneOut | None
    assignee: UserOut | None
    author: UserOut

    @field_validator("labels", mode="before")
    @classmethod
    def titles(cls, labels: list[Label]) -> list[str]:
        return [label.title for label in labels]


class NoteIn(BaseModel):
    body: Annotated[str, Field(min_length=1, max_length=1_000_000)]


class NoteAuthorOut(Out):
    id: int
    username: str
    email: str
    name: str
    state: State
    created_at: datetime


class NoteOut(Out):
    id: int
    body: str
    attachment: str | None
    author: NoteAuthorOut
    created_at: datetime
    system: bool
    noteable_id: int
    noteable_type: str
    upvote: bool
    downvote: bool


async def get_session(request: Request) -> AsyncIterator[AsyncSession]:
    async with request.app.state.sessions() as session:
        yield session


SessionDep = Annotated[AsyncSession, Depends(get_session)]
header = APIKeyHeader(name="PRIVATE-TOKEN", auto_error=False)


async def get_user(session: SessionDep, token: Annotated[str | None, Depends(header)]) -> User:
    digest = hashlib.sha256((token or "").encode()).hexdigest()
    user = (await session.exec(select(User).join(Token).where(Token.digest == digest))).first()
    if user is None or user.state is not State.ACTIVE:
        raise HTTPException(401, "401 Unauthorized")
    return user


UserDep = Annotated[User, Depends(get_user)]


async def get_project(project_id: int, session: SessionDep, user: UserDep) -> Project:
    project = await session.get(Project, project_id)
    if project is None:
        raise HTTPException(404, "404 Project Not Found")
    if project.visibility_level == 0 and not user.admin:
        member = or_(
            exists().where(col(ProjectMember.project_id) == project.id, col(ProjectMember.user_id) == user.id),
            exists().where(col(GroupMember.group_id) == project.namespace_id, col(GroupMember.user_id) == user.id),
            exists().where(col(Namespace.id) == project.namespace_id, col(Namespace.owner_id) == user.id, col(Namespace.kind) == "user"),
        )
        if not (await session.exec(select(member))).one():
            raise HTTPException(404, "404 Project Not Found")
    return project


ProjectDep = Annotated[Project, Depends(get_project)]
WITH_RELATIONS = (selectinload(Issue.author), selectinload(Issue.assignee), selectinload(Issue.milestone), selectinload(Issue.labels))  # type: ignore[arg-type]

router = APIRouter(prefix="/api/v3")


@router.get("/projects/{project_id}/issues", response_model=list[IssueOut])
async def list_issues(
    project: ProjectDep,
    session: SessionDep,
    response: Response,
    state: IssueState | None = None,
    page: Annotated[int, Query(ge=1)] = 1,
    per_page: Annotated[int, Query(ge=1, le=100)] = 20,
) -> Any:
    if not project.issues_enabled:
        raise HTTPException(403, "403 Forbidden")
    conditions = [Issue.project_id == project.id]
    if state is not None:
        conditions.append(Issue.state == state)
    total = (await session.exec(select(func.count()).select_from(Issue).where(*conditions))).one()
    newest = select(Issue).where(*conditions).order_by(col(Issue.created_at).desc(), col(Issue.id).desc())
    found = await session.exec(newest.offset((page - 1) * per_page).limit(per_page).options(*WITH_RELATIONS))
    response.headers["X-Total"] = str(total)
    response.headers["X-Page"] = str(page)
    response.headers["X-Per-Page"] = str(per_page)
    return found.all()


@router.get("/projects/{project_id}/issues/{issue_id}", response_model=IssueOut)
async def get_issue(project: ProjectDep, issue_id: int, session: SessionDep) -> Any:
    if not project.issues_enabled:
        raise HTTPException(403, "403 Forbidden")
    statement = select(Issue).where(Issue.id == issue_id, Issue.project_id == project.id).options(*WITH_RELATIONS)
    issue = (await session.exec(statement)).first()
    if issue is None:
        raise HTTPException(404, "404 Issue Not Found")
    return issue


@router.post("/projects/{project_id}/issues/{issue_id}/notes", response_model=NoteOut, status_code=201)
async def create_note(project: ProjectDep, issue_id: int, payload: NoteIn, user: UserDep, session: SessionDep) -> Any:
    issue = (await session.exec(select(Issue).where(Issue.id == issue_id, Issue.project_id == project.id))).first()
    if issue is None:
        raise HTTPException(404, "404 Issue Not Found")
    if not payload.body.strip() or "\0" in payload.body:
        raise HTTPException(400, '400 (Bad request) "body" not given')
    assert project.id is not None and issue.id is not None and user.id is not None
    note = Note(project_id=project.id, issue_id=issue.id, author_id=user.id, body=payload.body)
    session.add(note)
    await session.commit()
    return NoteOut(
        **note.model_dump(exclude={"author_id"}),
        author=NoteAuthorOut.model_validate(user),
        noteable_id=issue.id,
        noteable_type="Issue",
    )
