"""strawberry on SQLModel with DataLoaders, as their manuals say: the types of the schema, and resolvers that use the request's loaders.

It looks up the caller by the digest of the token, and shows a private project to its members only. Parsed and validated documents are
cached.
Run it with `uvicorn --factory benchmarks.peers.strawberry_app:create_app`.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import date, datetime
from typing import Any

import strawberry
from sqlalchemy.ext.asyncio import async_sessionmaker
from sqlmodel import col, select
from sqlmodel.ext.asyncio.session import AsyncSession
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from strawberry.asgi import GraphQL
from strawberry.extensions import ParserCache, ValidationCache
from strawberry.types import Info as StrawberryInfo

from benchmarks.peers import sqlmodel_tables
from benchmarks.peers.engine import create_engine
from benchmarks.peers.strawberry_loaders import Loaders

UserState = strawberry.enum(sqlmodel_tables.State, name="UserState")
IssueState = strawberry.enum(sqlmodel_tables.IssueState)
MergeRequestState = strawberry.enum(sqlmodel_tables.MergeRequestState)
BuildStatus = strawberry.enum(sqlmodel_tables.CheckStatus, name="BuildStatus")

Sessions = async_sessionmaker[AsyncSession]


class Context(dict[str, Any]):
    """The state that the resolvers of a request share."""

    user: sqlmodel_tables.User
    sessions: Sessions
    loaders: Loaders


Info = StrawberryInfo[Context, None]


@strawberry.type
class User:
    database_id: int
    username: str
    name: str
    state: UserState

    @classmethod
    def of(cls, row: sqlmodel_tables.User) -> "User":
        return cls(database_id=row.id or 0, username=row.username, name=row.name, state=row.state)


@strawberry.type
class Milestone:
    database_id: int
    iid: int
    title: str
    state: str
    due_date: date | None

    @classmethod
    def of(cls, row: sqlmodel_tables.Milestone) -> "Milestone":
        return cls(database_id=row.id or 0, iid=row.iid, title=row.title, state=row.state.upper(), due_date=row.due_date)


@strawberry.type
class Issue:
    row: strawberry.Private[sqlmodel_tables.Issue]
    database_id: int
    iid: int
    title: str
    description: str | None
    state: IssueState
    created_at: datetime
    updated_at: datetime

    @classmethod
    def of(cls, row: sqlmodel_tables.Issue) -> "Issue":
        return cls(
            row=row,
            database_id=row.id or 0,
            iid=row.iid,
            title=row.title,
            description=row.description,
            state=row.state,
            created_at=row.created_at,
            updated_at=row.updated_at,
        )

    @strawberry.field
    async def labels(self, info: Info) -> list[str]:
        return await info.context.loaders.labels.load(self.database_id)

    @strawberry.field
    async def author(self, info: Info) -> User:
        return User.of(await info.context.loaders.users.load(self.row.author_id))

    @strawberry.field
    async def assignee(self, info: Info) -> User | None:
        key = self.row.assignee_id
        return User.of(await info.context.loaders.users.load(key)) if key is not None else None

    @strawberry.field
    async def milestone(self, info: Info) -> Milestone | None:
        key = self.row.milestone_id
        return Milestone.of(await info.context.loaders.milestones.load(key)) if key is not None else None


@strawberry.type
class IssueConnection:
    nodes: list[Issue]


@strawberry.type
class Build:
    database_id: int
    name: str
    stage: str
    status: BuildStatus
    started_at: datetime | None
    finished_at: datetime | None

    @classmethod
    def of(cls, row: sqlmodel_tables.Build) -> "Build":
        return cls(
            database_id=row.id or 0,
            name=row.name,
            stage=row.stage,
            status=row.status,
            started_at=row.started_at,
            finished_at=row.finished_at,
        )


@strawberry.type
class BuildConnection:
    nodes: list[Build]


@strawberry.type
class Commit:
    project_id: strawberry.Private[int]
    oid: str
    title: str
    author_name: str
    committed_at: datetime

    @strawberry.field
    async def builds(self, info: Info, first: int = 20) -> BuildConnection:
        rows = await info.context.loaders.builds.load((self.project_id, self.oid, first))
        return BuildConnection(nodes=[Build.of(row) for row in rows])


@strawberry.type
class MergeRequest:
    row: strawberry.Private[sqlmodel_tables.MergeRequest]
    database_id: int
    iid: int
    title: str
    state: MergeRequestState
    source_branch: str
    target_branch: str
    created_at: datetime

    @classmethod
    def of(cls, row: sqlmodel_tables.MergeRequest) -> "MergeRequest":
        return cls(
            row=row,
            database_id=row.id or 0,
            iid=row.iid,
            title=row.title,
            state=row.state,
            source_branch=row.source_branch,
            target_branch=row.target_branch,
            created_at=row.created_at,
        )

    @strawberry.field
    async def author(self, info: Info) -> User:
        return User.of(await info.context.loaders.users.load(self.row.author_id))

    @strawberry.field
    async def head_commit(self, info: Info) -> Commit | None:
        if self.row.head_oid is None:
            return None
        row = await info.context.loaders.commits.load((self.row.project_id, self.row.head_oid))
        if row is None:
            return None
        return Commit(project_id=row.project_id, oid=row.oid, title=row.title, author_name=row.author_name, committed_at=row.committed_at)


@strawberry.type
class MergeRequestConnection:
    nodes: list[MergeRequest]


@strawberry.type
class Project:
    row: strawberry.Private[sqlmodel_tables.Project]

    @strawberry.field
    async def issues(self, info: Info, first: int = 20) -> IssueConnection:
        newest = select(sqlmodel_tables.Issue).where(sqlmodel_tables.Issue.project_id == self.row.id)
        ordered = newest.order_by(col(sqlmodel_tables.Issue.created_at).desc(), col(sqlmodel_tables.Issue.id).desc()).limit(first)
        async with info.context.sessions() as session:
            rows = (await session.exec(ordered)).all()
        return IssueConnection(nodes=[Issue.of(row) for row in rows])

    @strawberry.field
    async def issue(self, info: Info, database_id: int) -> Issue | None:
        row = await _issue(info.context, self.row, database_id)
        return Issue.of(row) if row is not None else None

    @strawberry.field
    async def merge_requests(self, info: Info, first: int = 20) -> MergeRequestConnection:
        table = sqlmodel_tables.MergeRequest
        newest = select(table).where(table.project_id == self.row.id)
        async with info.context.sessions() as session:
            rows = (await session.exec(newest.order_by(col(table.created_at).desc(), col(table.id).desc()).limit(first))).all()
        return MergeRequestConnection(nodes=[MergeRequest.of(row) for row in rows])


@strawberry.type
class Note:
    row: strawberry.Private[sqlmodel_tables.Note]
    database_id: int
    body: str
    created_at: datetime

    @strawberry.field
    async def author(self, info: Info) -> User:
        return User.of(await info.context.loaders.users.load(self.row.author_id))


async def _issue(context: Context, project: sqlmodel_tables.Project, issue_id: int) -> sqlmodel_tables.Issue | None:
    async with context.sessions() as session:
        return (
            await session.exec(
                select(sqlmodel_tables.Issue).where(sqlmodel_tables.Issue.id == issue_id, sqlmodel_tables.Issue.project_id == project.id)
            )
        ).first()


async def _project(context: Context, path: str) -> sqlmodel_tables.Project | None:
    """The project whose id is the path; None if the caller may not see it."""
    async with context.sessions() as session:
        return await sqlmodel_tables.find_project(session, int(path), context.user)


@strawberry.type
class Query:
    @strawberry.field
    async def project(self, info: Info, path: str) -> Project | None:
        row = await _project(info.context, path)
        return Project(row=row) if row is not None else None


@strawberry.input
class CreateNoteInput:
    project_path: str
    issue_database_id: int
    body: str


@strawberry.type
class CreateNotePayload:
    note: Note


@strawberry.type
class Mutation:
    @strawberry.mutation
    async def create_note(self, info: Info, input: CreateNoteInput) -> CreateNotePayload | None:
        project = await _project(info.context, input.project_path)
        issue = await _issue(info.context, project, input.issue_database_id) if project is not None else None
        if project is None or issue is None:
            return None
        row = sqlmodel_tables.Note(project_id=project.id or 0, issue_id=issue.id, author_id=info.context.user.id or 0, body=input.body)
        async with info.context.sessions() as session:
            session.add(row)
            await session.commit()
        return CreateNotePayload(note=Note(row=row, database_id=row.id or 0, body=row.body, created_at=row.created_at))


class PeerGraphQL(GraphQL[Context, None]):
    """The GraphQL endpoint, which gives each request its caller and its loaders."""

    sessions: Sessions

    async def get_context(self, request: Any, response: Any) -> Context:
        context = Context()
        context.user = request.state.user
        context.sessions = self.sessions
        context.loaders = Loaders(self.sessions)
        return context


def create_app(database_url: str | None = None) -> Starlette:
    """The application; without a URL it takes the one of PEER_DATABASE_URL."""
    engine = create_engine(database_url)
    sessions: Sessions = async_sessionmaker(engine, class_=AsyncSession, expire_on_commit=False)
    schema = strawberry.Schema(Query, Mutation, extensions=[ParserCache, ValidationCache])
    graphql_app = PeerGraphQL(schema)
    graphql_app.sessions = sessions

    class SignedIn:
        """The endpoint, for callers with a valid token."""

        async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
            request = Request(scope)
            async with sessions() as session:
                user = await sqlmodel_tables.find_caller(session, request.headers.get("private-token"))
            if user is None:
                await Response(status_code=401)(scope, receive, send)
                return
            request.state.user = user
            await graphql_app(scope, receive, send)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        yield
        await engine.dispose()

    return Starlette(routes=[Route("/graphql", SignedIn())], lifespan=lifespan)
