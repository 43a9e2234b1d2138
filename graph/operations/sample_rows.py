"""Rows that known queries can be run on before the first request, and the values of their variables.

Which statements a query runs depends on the rows that it finds, so the rows are those with the most around them: a project whose
default branch is red, a merge request with a commit, an issue with a note.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

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
from sqlalchemy import func, literal, select
from sqlmodel import col

from graph.documents.documents import PreparedOperation
from graph.fields.scalars import serialize_timestamp
from graph.schema import graphql_schema as SCHEMA  # noqa: N812
from storage import tables
from storage.database.engine import DatabaseSession
from storage.git.refs.ref_names import BRANCHES
from storage.tables import NamespaceKind, UserState
from storage.tables.git import first_parents

PERIOD = timedelta(days=30)
"""Length of the range of queries that take a range of time."""
MAX_BUILDS = 500
"""Newest builds whose projects are considered."""
MAX_HEADS = 20
"""Default branches that are considered."""
MAX_COMMITS = 100
"""Commits of a default branch that are read to find whether it is red."""
_FILE = "README.md"


@dataclass(frozen=True, slots=True)
class SampleRows:
    """The rows that the queries are about. `viewer` None: the project has no member, and an administrator is the viewer.

    `further` are values of other arguments, by the type of their field and their name.
    """

    viewer: str | None
    project_id: int
    project_path: str
    group_path: str
    branch: str
    since: str
    until: str
    further: Mapping[tuple[str, str], Any] = field(default_factory=dict)

    def argument_values(self, *, by_id: bool) -> dict[tuple[str, str], Any]:
        """The values of arguments, by the type of their field and their name. `by_id`: projects are requested as v3 does."""
        return {
            ("Project", "path"): str(self.project_id) if by_id else self.project_path,
            ("CiConfig", "projectPath"): self.project_path,
            ("Group", "path"): self.group_path,
            ("Branch", "name"): self.branch,
            ("Commit", "rev"): self.branch,
            ("Archive", "ref"): self.branch,
            ("Blob", "ref"): self.branch,
            ("Blob", "path"): _FILE,
            ("CommitConnection", "path"): _FILE,
            ("TreeEntryConnection", "path"): "",
            ("Comparison", "from"): self.branch,
            ("Comparison", "to"): self.branch,
            ("User", "username"): self.viewer or "root",
            **self.further,
        }


async def find_sample_rows(
    session: DatabaseSession, clock: Callable[[], datetime], has_repository: Callable[[int], bool]
) -> SampleRows | None:
    """Rows of the project of one of the newest builds, or of the project that was active last, with a member of it and a group.

    `has_repository` says whether this host has the files of a project's repository. None without a project.
    """
    project, namespace, user, member, build = tables.Project, tables.Namespace, tables.User, tables.ProjectMember, tables.Build
    builds = await session.read(select(col(build.project_id), col(build.created_at)).order_by(col(build.id).desc()).limit(MAX_BUILDS))
    newest = select(project, namespace).join(namespace, col(namespace.id) == col(project.namespace_id))
    if builds:
        newest = newest.where(
            col(project.id) == await _choose_project(session, list(dict.fromkeys(row[0] for row in builds)), has_repository)
        )
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
        since=serialize_timestamp((builds[0][1] if builds else clock()) - PERIOD),
        until=serialize_timestamp(clock()),
        further=await _find_further_values(session, row.id),
    )


async def _choose_project(session: DatabaseSession, project_ids: Sequence[int], has_repository: Callable[[int], bool]) -> int:
    """The first of these projects whose default branch is red, or the first with an indexed default branch and a repository.

    Without one another project with both, or else the first.
    """
    ref, project = tables.GitRef, tables.Project
    is_default = col(ref.name) == literal(BRANCHES) + func.coalesce(col(project.default_branch), "master")
    heads = select(col(ref.project_id), col(ref.oid)).join(project, col(project.id) == col(ref.project_id))
    heads = heads.where(is_default, col(ref.is_indexed))
    found: list[tuple[int, str]] = []
    for condition in (col(ref.project_id).in_(project_ids), literal(True)):
        rows = await session.read(heads.where(condition).order_by(col(ref.id).desc()).limit(MAX_HEADS))
        found = await asyncio.to_thread(lambda rows: [tuple(row) for row in rows if has_repository(row[0])], rows)
        if found:
            break
    if not found:
        return project_ids[0]
    statement, values = first_parents.head_states(found, MAX_COMMITS)
    red = {project_id for _, project_id, _, state in await session.read(statement, values) if state == "failed"}
    indexed = [project_id for project_id, _ in found]
    return next(each for each in (*project_ids, *indexed) if each in (red or indexed))


async def _find_further_values(session: DatabaseSession, project_id: int) -> dict[tuple[str, str], Any]:
    """The numbers and ids of a row of each kind in the project, by the arguments that take them."""
    found: dict[tuple[str, str], Any] = {}
    note, request, milestone = tables.Note, tables.MergeRequest, tables.Milestone

    async def find_newest(columns: Sequence[Any], *conditions: Any) -> Any:
        owner = columns[0].class_.project_id
        statement = select(*columns).where(col(owner) == project_id, *conditions).order_by(columns[0].desc()).limit(1)
        return next(iter(await session.read(statement)), None)

    def set_numbers(kind: str, row_id: int, iid: int | None = None) -> None:
        found[kind, "databaseId"] = row_id
        if iid is not None:
            found[kind, "iid"] = iid

    if row := await find_newest((col(tables.Build.id),)):
        set_numbers("Build", *row)
    if row := await find_newest((col(tables.Snippet.id),)):
        set_numbers("Snippet", *row)
    if row := await find_newest((col(milestone.id), col(milestone.iid), col(milestone.title))):
        set_numbers("Milestone", *row[:2])
        found["Milestone", "title"] = row[2]
    # A note on an issue, and with it that issue; a merge request with a commit, and with it that commit.
    on_issue = await find_newest((col(note.id), col(note.issue_id)), col(note.issue_id).is_not(None))
    if on_issue:
        set_numbers("Note", on_issue[0])
    conditions = [col(tables.Issue.id) == on_issue[1]] if on_issue else []
    if row := await find_newest((col(tables.Issue.id), col(tables.Issue.iid)), *conditions):
        set_numbers("Issue", *row)
    columns = (col(request.id), col(request.iid), col(request.merge_commit_oid), col(request.head_oid))
    if row := await find_newest(columns, col(request.head_oid).is_not(None)):
        set_numbers("MergeRequest", *row[:2])
        found["Commit", "rev"] = row[2] or row[3]
    return found


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
        "Date": rows.since[:10],
        "String": "UTC" if argument == "timezone" else "1",
    }
    return by_type.get(str(nullable), "1")


def _variable_uses(prepared: PreparedOperation) -> dict[str, tuple[str, str]]:
    """The type of the field and the name of the argument that each variable is the value of, at its first use."""
    types = TypeInfo(SCHEMA)
    visitor = _VariableUseVisitor(types)
    visit(prepared.document, TypeInfoVisitor(types, visitor))
    return visitor.uses


class _VariableUseVisitor(Visitor):
    def __init__(self, types: TypeInfo) -> None:
        super().__init__()
        self._types = types
        self.uses: dict[str, tuple[str, str]] = {}

    def enter_argument(self, node: ArgumentNode, *_: Any) -> None:
        kind = self._types.get_type()
        if isinstance(node.value, VariableNode) and kind is not None:
            self.uses.setdefault(node.value.name.value, (get_named_type(kind).name, node.name.value))


def _operation_of(prepared: PreparedOperation) -> OperationDefinitionNode:
    operations = [node for node in prepared.document.definitions if isinstance(node, OperationDefinitionNode)]
    return next(node for node in operations if prepared.name is None or (node.name and node.name.value == prepared.name))
