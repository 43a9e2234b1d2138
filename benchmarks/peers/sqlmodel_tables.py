"""The service's tables in SQLModel for the peers on FastAPI and on strawberry, and their look-ups of the caller and the project."""

import hashlib
from datetime import UTC, date, datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import DateTime, exists, or_
from sqlalchemy import Enum as EnumType
from sqlalchemy.orm import registry
from sqlmodel import Field, Relationship, SQLModel, col, select
from sqlmodel.ext.asyncio.session import AsyncSession


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
    name: str
    path: str
    owner_id: int | None = Field(default=None, foreign_key="users.id")

    owner: User | None = Relationship()


class Project(Base, table=True):
    __tablename__ = "projects"

    id: int | None = Field(default=None, primary_key=True)
    namespace_id: int = Field(foreign_key="namespaces.id")
    name: str
    path: str
    description: str | None = None
    archived: bool = False
    forked_from_id: int | None = Field(default=None, foreign_key="projects.id")
    created_at: datetime = Field(sa_type=DateTime(timezone=True))
    last_activity_at: datetime = Field(sa_type=DateTime(timezone=True))
    visibility_level: int = 0
    issues_enabled: bool = True
    merge_requests_enabled: bool = True
    builds_enabled: bool = True

    namespace: Namespace = Relationship()


class ProjectStar(Base, table=True):
    __tablename__ = "project_stars"

    id: int | None = Field(default=None, primary_key=True)
    project_id: int = Field(foreign_key="projects.id")
    user_id: int = Field(foreign_key="users.id")


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
    runner_id: int | None = Field(default=None)
    coverage: float | None = None
    created_at: datetime = Field(sa_type=DateTime(timezone=True))
    started_at: datetime | None = Field(default=None, sa_type=DateTime(timezone=True))
    finished_at: datetime | None = Field(default=None, sa_type=DateTime(timezone=True))


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


async def find_caller(session: AsyncSession, token: str | None) -> User | None:
    """The active user of a token; None if there is none."""
    digest = hashlib.sha256((token or "").encode()).hexdigest()
    user = (await session.exec(select(User).join(Token).where(Token.digest == digest))).first()
    return user if user is not None and user.state is State.ACTIVE else None


async def find_project(session: AsyncSession, project_id: int, user: User) -> Project | None:
    """The project of this id; None if it does not exist or the user may not see it."""
    project = await session.get(Project, project_id)
    if project is None or project.visibility_level or user.admin:
        return project
    is_visible = (await session.exec(select(is_member(project.id, project.namespace_id, user)))).one()
    return project if is_visible else None


def is_member(project_id: Any, namespace_id: Any, user: User) -> Any:
    """The condition that the user is a member of the project or of its group, or owns its namespace."""
    return or_(
        exists().where(col(ProjectMember.project_id) == project_id, col(ProjectMember.user_id) == user.id),
        exists().where(col(GroupMember.group_id) == namespace_id, col(GroupMember.user_id) == user.id),
        exists().where(col(Namespace.id) == namespace_id, col(Namespace.owner_id) == user.id, col(Namespace.kind) == "user"),
    )
