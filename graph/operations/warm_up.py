"""Runs known queries once after the start, so that their first requests find compiled plans and compiled SQL.

Most of the time of a first request is that of SQLAlchemy, which compiles the statements of plans and resolvers. Which statements those are
depends on the rows that are found, so the queries run on the rows of the project of the newest build, for one of its members. They are
read-only, planned and run one at a time, and pause in between. A query that needs other rows than these finds nothing, and is planned all
the same.
"""

import asyncio
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import structlog
from graphql import (
    ArgumentNode,
    GraphQLEnumType,
    GraphQLInputObjectType,
    GraphQLInputType,
    OperationDefinitionNode,
    TypeInfo,
    TypeInfoVisitor,
    VariableNode,
    Visitor,
    get_named_type,
    get_nullable_type,
    is_list_type,
    is_non_null_type,
    type_from_ast,
    visit,
)
from sqlalchemy import select
from sqlmodel import col

from graph.fields.scalars import serialize_timestamp
from graph.operations.documents import PreparedOperation
from graph.operations.execution import Graph, LocalAdmin
from graph.operations.transaction import session_for
from graph.schema import graphql_schema as SCHEMA  # noqa: N812
from storage import tables
from storage.database.engine import DatabaseSession
from storage.tables import NamespaceKind, UserState

DELAY_SECONDS = 1.0
"""After the start: requests that wait for the service come first."""
PAUSE_RATIO = 3.0
"""How many times the duration of a query the pause after it lasts: the event loop is free for three quarters of the time."""
QUERY_SECONDS = 2.0
"""Time limit of a query. Its plan and its first statements are compiled when it ends early."""
MAX_SECONDS = 120.0
"""After which no further query is run, pauses included."""
PERIOD = timedelta(days=30)
"""What queries with a range of time ask about."""

log = structlog.get_logger("warm up")


@dataclass(frozen=True, slots=True)
class SampleRows:
    """The rows that the queries are about. `viewer` None: the project has no member, and an administrator asks."""

    viewer: str | None
    project_id: int
    project_path: str
    group_path: str
    branch: str
    since: str
    until: str

    def argument_values(self, *, by_id: bool) -> dict[tuple[str, str], str]:
        """The values of arguments, by the type of their field and their name. `by_id`: projects are requested as v3 does."""
        return {
            ("Project", "path"): str(self.project_id) if by_id else self.project_path,
            ("Group", "path"): self.group_path,
            ("Branch", "name"): self.branch,
            ("Commit", "rev"): self.branch,
        }


async def warm_up(graph: Graph, documents: Iterable[PreparedOperation], v3_operations: Iterable[PreparedOperation]) -> int:
    """Runs the queries among these operations; returns how many. `documents` request projects by path, `v3_operations` by id."""
    services = graph.services
    if not graph.planner:
        return 0
    await asyncio.sleep(DELAY_SECONDS)
    async with session_for(services.database, writing=False) as session:
        rows = await find_sample_rows(session, services.clock)
    if rows is None:
        return 0
    distinct = {id(each): (each, by_id) for by_id, group in ((False, documents), (True, v3_operations)) for each in group}
    started, count = time.monotonic(), 0
    for prepared, by_id in distinct.values():
        if prepared.kind != "query":
            continue
        before = time.monotonic()
        if before - started > MAX_SECONDS:
            break
        variables = sample_variables(prepared, rows, by_id=by_id)
        # In an iteration of the event loop of its own, since both together would block it for too long.
        graph.compile_plan(prepared, variables)
        await asyncio.sleep(time.monotonic() - before)
        await graph.run_as_admin(LocalAdmin(rows.viewer), prepared, variables, seconds=QUERY_SECONDS)
        count += 1
        await asyncio.sleep((time.monotonic() - before) * PAUSE_RATIO)
    log.info("warmed up", queries=count, seconds=round(time.monotonic() - started, 1))
    return count


async def find_sample_rows(session: DatabaseSession, clock: Callable[[], Any]) -> SampleRows | None:
    """The project of the newest build or, without builds, the one that was active last; a member of it, and a group.

    None without a project.
    """
    project, namespace, user, member, build = tables.Project, tables.Namespace, tables.User, tables.ProjectMember, tables.Build
    builds = await session.read(select(build).order_by(col(build.id).desc()).limit(1))
    newest = select(project, namespace).join(namespace, col(namespace.id) == col(project.namespace_id))
    if builds:
        newest = newest.where(col(project.id) == builds[0][0].project_id)
    else:
        newest = newest.order_by(col(project.last_activity_at).desc(), col(project.id).desc()).limit(1)
    if not (found := await session.read(newest)):
        return None
    ((row, owner),) = found
    # Not an administrator, if possible: for them some lists have other statements.
    members = (
        select(col(user.username))
        .join(member, col(member.user_id) == col(user.id))
        .where(col(member.project_id) == row.id, col(user.state) == UserState.ACTIVE)
        .order_by(col(user.admin), col(member.access_level).desc(), col(user.id))
        .limit(1)
    )
    if not (viewers := await session.read(members)):
        viewers = await session.read(select(col(user.username)).where(col(user.id) == owner.owner_id, col(user.state) == UserState.ACTIVE))
    groups = await session.read(
        select(col(namespace.path)).where(col(namespace.kind) == NamespaceKind.GROUP).order_by(col(namespace.id).desc()).limit(1)
    )
    return SampleRows(
        viewer=viewers[0][0] if viewers else None,
        project_id=row.id,
        project_path=f"{owner.path}/{row.path}",
        group_path=groups[0][0] if groups else owner.path,
        branch=row.default_branch or "master",
        since=serialize_timestamp((builds[0][0].created_at if builds else clock()) - PERIOD),
        until=serialize_timestamp(clock()),
    )


def sample_variables(prepared: PreparedOperation, rows: SampleRows, *, by_id: bool) -> dict[str, Any]:
    """Values for the variables that an operation requires; optional ones are omitted."""
    uses = _variable_uses(prepared)
    known = rows.argument_values(by_id=by_id)
    found: dict[str, Any] = {}
    for definition in _operation_of(prepared).variable_definitions or ():
        kind = type_from_ast(SCHEMA, definition.type)
        if kind is None or not is_non_null_type(kind) or definition.default_value is not None:
            continue
        name = definition.variable.name.value
        use = uses.get(name, ("", name))
        found[name] = known[use] if use in known else _sample_value(kind, use[1], rows)
    return found


def _sample_value(kind: GraphQLInputType, argument: str, rows: SampleRows) -> Any:
    nullable = get_nullable_type(kind)
    if is_list_type(nullable):
        return []
    if isinstance(nullable, GraphQLEnumType):
        return next(iter(nullable.values))
    if isinstance(nullable, GraphQLInputObjectType):
        fields = {name: field for name, field in nullable.fields.items() if is_non_null_type(field.type) or name in ("since", "until")}
        return {name: _sample_value(field.type, name, rows) for name, field in fields.items()}
    # The page size is part of a statement; 20 is that of v3.
    by_type = {
        "Int": {"first": 20, "offset": 0}.get(argument, 1),
        "Float": 1.0,
        "Boolean": False,
        "DateTime": rows.until if argument == "until" else rows.since,
    }
    by_type |= {"Date": rows.since[:10]}
    return by_type.get(str(nullable), "1")


def _variable_uses(prepared: PreparedOperation) -> dict[str, tuple[str, str]]:
    """The type of the field and the name of the argument that each variable is the value of, at its first use."""
    found: dict[str, tuple[str, str]] = {}
    types = TypeInfo(SCHEMA)

    class ArgumentVisitor(Visitor):
        def enter_argument(self, node: ArgumentNode, *_: Any) -> None:
            kind = types.get_type()
            if isinstance(node.value, VariableNode) and kind is not None:
                found.setdefault(node.value.name.value, (get_named_type(kind).name, node.name.value))

    visit(prepared.document, TypeInfoVisitor(types, ArgumentVisitor()))
    return found


def _operation_of(prepared: PreparedOperation) -> OperationDefinitionNode:
    operations = [node for node in prepared.document.definitions if isinstance(node, OperationDefinitionNode)]
    return next(node for node in operations if prepared.name is None or (node.name and node.name.value == prepared.name))
