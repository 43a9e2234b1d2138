"""A small schema and a graph over it, so that rest_v3 is tested without storage."""

import enum
from dataclasses import dataclass
from typing import Any, NewType

import strawberry
from graphql import (
    DocumentNode,
    ExecutionResult,
    FragmentDefinitionNode,
    GraphQLError,
    GraphQLSchema,
    OperationDefinitionNode,
    execute,
    validate,
)
from strawberry.schema.config import StrawberryConfig
from strawberry.types import Info

from graph.documents.output_format import OutputFormat

DateTime = NewType("DateTime", str)
"""A timestamp, serialized like the graph's."""


@dataclass(frozen=True)
class FakePrepared:
    name: str
    kind: str
    document: DocumentNode
    schema: GraphQLSchema

    def formatted(self, output_format: OutputFormat) -> "FakePrepared":
        """The fake has no plans, so that its answers stay as they are."""
        return self


@dataclass
class FakeErrorEntry:
    code: str
    message: str = ""
    path: list[str | int] | None = None
    subject: str | None = None
    reason: str | None = None
    retry_after: int | None = None


@dataclass
class FakeResult:
    data: dict[str, Any] | None
    errors: list[FakeErrorEntry]
    viewer_id: int | None = None
    is_formatted: bool = False
    is_large: bool = False


class FakeError(Exception):
    """What a resolver of the fake raises; becomes a FakeProblem."""

    def __init__(self, code: str, subject: str | None = None, *, reason: str | None = None) -> None:
        super().__init__(code)
        self.problem = FakeErrorEntry(code, code.lower(), None, subject, reason)


@strawberry.enum
class IssueState(enum.Enum):
    OPENED = "opened"
    CLOSED = "closed"


@strawberry.enum
class StateEvent(enum.Enum):
    CLOSE = "close"
    REOPEN = "reopen"


@strawberry.enum
class ErrorCode(enum.Enum):
    INVALID = "INVALID"
    REQUIRED = "REQUIRED"
    TAKEN = "TAKEN"
    CONFLICT = "CONFLICT"
    NOT_ALLOWED = "NOT_ALLOWED"
    NOT_MERGEABLE = "NOT_MERGEABLE"
    NOT_SET = "NOT_SET"
    TOO_LARGE = "TOO_LARGE"


@strawberry.type
class UserErrorEntry:
    field: str | None
    message: str
    code: ErrorCode


@strawberry.type
class PageInfo:
    has_next_page: bool


@strawberry.type
class User:
    id: strawberry.ID
    database_id: int
    username: str
    is_admin: bool = False
    email: str | None = None


@strawberry.type
class Rights:
    update: bool


@strawberry.interface
class Noteable:
    database_id: int
    state: IssueState


@strawberry.type
class Issue(Noteable):
    iid: int
    title: str
    created_at: DateTime
    closed_at: DateTime | None = None
    author: User | None = None
    labels: list[str] = strawberry.field(default_factory=list)
    due_date: str | None = None

    @strawberry.field
    def history(self) -> list[IssueState]:
        return [IssueState.OPENED, self.state]

    @strawberry.field
    def viewer_can(self, info: Info) -> Rights:
        return Rights(update=info.context["viewer"] != "reader")

    @strawberry.field
    def build(self) -> str | None:
        raise FakeError("UNAVAILABLE")

    @strawberry.field
    def broken(self) -> str | None:
        raise FakeError("INTERNAL")

    @strawberry.field
    def watchers(self) -> "UserConnection":
        people = [User(id=strawberry.ID("u1"), database_id=1, username="ada")]
        return UserConnection(nodes=people, total_count=1, page_info=PageInfo(has_next_page=False))


@strawberry.type
class UserConnection:
    nodes: list[User]
    total_count: int
    page_info: PageInfo


@strawberry.type
class IssueConnection:
    nodes: list[Issue]
    total_count: int
    page_info: PageInfo


def make_issue(number: int, *, state: IssueState = IssueState.OPENED) -> Issue:
    return Issue(
        database_id=100 + number,
        iid=number,
        title=f"Issue {number}",
        state=state,
        created_at=DateTime("2016-01-19T08:40:25.934123Z"),
        author=User(id=strawberry.ID("u1"), database_id=1, username="ada"),
        labels=["bug"],
    )


ISSUES = [make_issue(number, state=IssueState.CLOSED if number % 5 == 0 else IssueState.OPENED) for number in range(1, 46)]


@strawberry.type
class Project:
    id: strawberry.ID
    database_id: int

    @strawberry.field
    def issues(
        self,
        first: int = 20,
        offset: int = 0,
        state: list[IssueState] | None = None,
        labels: list[str] | None = None,
        iids: list[int] | None = None,
    ) -> IssueConnection:
        assert 0 <= first <= 100
        found = [issue for issue in ISSUES if state is None or issue.state in state]
        found = [issue for issue in found if iids is None or issue.iid in iids]
        found = [issue for issue in found if labels is None or set(labels) & set(issue.labels)]
        page = found[offset : offset + first]
        return IssueConnection(nodes=page, total_count=len(found), page_info=PageInfo(has_next_page=offset + first < len(found)))

    @strawberry.field
    def issue(self, database_id: int) -> Issue | None:
        return next((issue for issue in ISSUES if issue.database_id == database_id), None)

    @strawberry.field
    def noteable(self, database_id: int) -> Noteable | None:
        return self.issue(database_id)

    @strawberry.field
    def commit(self, sha: str) -> Issue | None:
        raise FakeError("NOT_FOUND", "Commit")


@strawberry.input
class UpdateIssueInput:
    project_path: str
    database_id: int
    title: str | None = strawberry.UNSET
    due_date: str | None = strawberry.UNSET
    assignee_id: int | None = strawberry.UNSET
    labels: list[str] | None = strawberry.UNSET
    state_event: StateEvent | None = strawberry.UNSET
    confidential: bool | None = strawberry.UNSET


@strawberry.type
class UpdateIssuePayload:
    issue: Issue | None
    user_errors: list[UserErrorEntry]


def find_project(info: Info, path: str) -> Project:
    """Project 1 is there for everybody, the rest for nobody."""
    if info.context["viewer"] is None:
        raise FakeError("UNAUTHENTICATED")
    if path not in ("1", "group/name"):
        raise FakeError("NOT_FOUND", "Project")
    return Project(id=strawberry.ID("p1"), database_id=1)


@strawberry.type
class Query:
    @strawberry.field
    def viewer(self, info: Info) -> User:
        name = info.context["viewer"]
        if name is None:
            raise FakeError("UNAUTHENTICATED")
        return User(id=strawberry.ID("u1"), database_id=1, username=name, is_admin=name == "root")

    @strawberry.field
    def project(self, info: Info, path: str) -> Project | None:
        return find_project(info, path)

    @strawberry.field
    def user(self, info: Info, database_id: int) -> User | None:
        if info.context["viewer"] is None:
            raise FakeError("UNAUTHENTICATED")
        return User(id=strawberry.ID("u1"), database_id=1, username="ada", email="a@b") if database_id == 1 else None

    @strawberry.field
    def fail(self, code: str, reason: str | None = None) -> str | None:
        raise FakeError(code, reason=reason)


@strawberry.type
class Mutation:
    @strawberry.mutation
    def update_issue(self, info: Info, input: UpdateIssueInput) -> UpdateIssuePayload:
        project = find_project(info, input.project_path)
        if info.context["viewer"] == "reader":
            raise FakeError("FORBIDDEN")
        issue = project.issue(input.database_id)
        if issue is None:
            raise FakeError("NOT_FOUND", "Issue")
        info.context["inputs"].append({key: value for key, value in vars(input).items() if value is not strawberry.UNSET})
        refused = []
        for word in (input.title or "").split():
            if word.isupper() and word in ErrorCode.__members__:
                refused.append(UserErrorEntry(field="dueDate", message="says no", code=ErrorCode[word]))
        return UpdateIssuePayload(issue=None if refused else issue, user_errors=refused)


schema = strawberry.Schema(
    Query,
    Mutation,
    types=[Issue],
    config=StrawberryConfig(scalar_map={DateTime: strawberry.scalar(name="DateTime", serialize=str, parse_value=DateTime)}),
)
"""The fake's schema; its names are the graph's."""


def prepare(document: DocumentNode) -> FakePrepared:
    core = schema._schema
    problems = validate(core, document)
    if problems:
        raise ValueError("; ".join(problem.message for problem in problems))
    operation = next(node for node in document.definitions if isinstance(node, OperationDefinitionNode))
    assert operation.name is not None
    return FakePrepared(operation.name.value, operation.operation.value, document, core)


class FakeGraph:
    """Runs operations with graphql-core. A token is its viewer's name; `reader` may change nothing, `root` is administrator."""

    def __init__(self) -> None:
        self.operations_run: list[tuple[str, dict[str, Any]]] = []
        self.credentials: list[str | None] = []
        self.inputs: list[dict[str, Any]] = []

    async def run(
        self, prepared: Any, variables: dict[str, Any], credential: str | None, *, request_id: str, checks: Any = None
    ) -> FakeResult:
        assert request_id
        self.operations_run.append((prepared.name, dict(variables)))
        self.credentials.append(credential)
        viewer = credential if credential in ("ada", "reader", "root") else None
        result = execute(
            prepared.schema, prepared.document, variable_values=variables, context_value={"viewer": viewer, "inputs": self.inputs}
        )
        assert isinstance(result, ExecutionResult)
        return FakeResult(result.data, [_error_entry(error) for error in result.errors or ()])


def _error_entry(error: GraphQLError) -> FakeErrorEntry:
    cause = error.original_error
    if not isinstance(cause, FakeError):
        raise AssertionError(error) from cause
    known = cause.problem
    return FakeErrorEntry(known.code, known.message, list(error.path or ()), known.subject, known.reason)


def fragment_names(document: DocumentNode) -> set[str]:
    """The names of the fragments that a document defines."""
    return {node.name.value for node in document.definitions if isinstance(node, FragmentDefinitionNode)}
