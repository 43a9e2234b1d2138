"""Existing values for the arguments of generated queries (tests/support/queries/query_generator.py).

Ids and names are read from the tables, cursors from the results of whole lists.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from graphql import GraphQLEnumType, GraphQLObjectType, get_named_type, parse
from sqlalchemy import select

from graph.documents.documents import make_prepared_operation
from graph.fields.entities import ENTITIES, global_id
from graph.operations.execution import Graph
from graph.schema import graphql_schema
from storage import tables
from storage.database.engine import Database
from tests.make import token_of
from tests.support.queries.edge_case_data import EdgeCaseData


@dataclass(frozen=True)
class ProjectArguments:
    """A project and its contents."""

    path: str
    values: dict[str, Sequence[Any]]


@dataclass
class ArgumentPool:
    """`cursors` by (Type.field, ordering), and for all lists of a type by (the type of the rows, ordering); `ids` by type."""

    projects: list[ProjectArguments]
    shared_values: dict[str, Sequence[Any]]
    ids: dict[str, list[str]]
    cursors: dict[tuple[str, str], list[str]] = field(default_factory=dict)

    def values_of_all_projects(self, name: str) -> list[Any]:
        """The values of that name in all projects."""
        return [each for place in self.projects for each in place.values.get(name, ())]


def ordering_key(order: dict[str, Any] | None) -> str:
    """The name of an ordering; "" is the list's own."""
    if order is None:
        return ""
    leading = "first " if order.get("ciEnabledFirst") else ""
    return f"{leading}{order.get('field')} {order.get('direction', 'DESC')}"


async def collect_arguments(town: EdgeCaseData, graph: Graph, *, cursors: bool = True) -> ArgumentPool:
    """`graph` runs the queries that collect cursors, if they are required."""
    database = graph.services.database
    projects = [await _project_arguments(database, town, project) for project in town.projects]
    users = await _read(database, tables.User, "id", "username")
    ids = {entity.name: [global_id(entity.name, key) for key, *_ in await _read(database, row, "id")]
           for row, entity in ENTITIES.items() if hasattr(row, "__table__")}  # fmt: skip
    oids = list(town.week.oids.values())
    forks = [project.id for project in town.projects if project.forked_from_id or project is town.week.web]
    ids["Commit"] = [global_id("Commit", f"{key}-{oid}") for key in forks for oid in oids]
    ids["Branch"] = [global_id("Branch", f"{key}:{name}") for key in forks for name in ("master", "stable", "none")]
    groups = [path for path, kind in await _read(database, tables.Namespace, "path", "kind") if kind is tables.NamespaceKind.GROUP]
    shared_values: dict[str, Sequence[Any]] = {
        "paths": [project_arguments.path for project_arguments in projects] * 3 + [str(project.id) for project in town.projects],
        "groups": [*groups * 3, str(town.week.group.id)],
        "user ids": [key for key, _ in users],
        "usernames": [name for _, name in users],
        "hook ids": [key for (key,) in await _read(database, tables.Hook, "id")],
        "runner ids": [key for (key,) in await _read(database, tables.Runner, "id")],
        "key ids": [key for (key,) in await _read(database, tables.SshKey, "id")],
        "email ids": [key for (key,) in await _read(database, tables.Email, "id")],
        "nodes": [each for name in ids for each in ids[name][:6]],
    }
    pool = ArgumentPool(projects, shared_values, ids)
    if cursors:
        await _collect_cursors(pool, town, graph)
    return pool


async def _read(database: Database, table: Any, *columns: str, **equal: Any) -> list[Any]:
    statement = select(*(getattr(table, column) for column in columns)).order_by(table.id)
    for column, value in equal.items():
        statement = statement.where(getattr(table, column) == value)
    async with database.read_session() as session:
        return list((await session.execute(statement)).all())


async def _project_arguments(database: Database, town: EdgeCaseData, project: tables.Project) -> ProjectArguments:
    key = project.id
    ((path, space),) = await _read(database, tables.Project, "path", "namespace_id", id=key)
    ((leading,),) = await _read(database, tables.Namespace, "path", id=space)
    has_code = project is town.week.web or project.path == "fork"

    async def of(table: Any, column: str) -> list[Any]:
        return [value for (value,) in await _read(database, table, column, project_id=key) if value is not None]

    async def notes(column: str) -> list[Any]:
        return [pair for pair in await _read(database, tables.Note, column, "id", project_id=key) if pair[0] is not None]

    uploads = await _read(database, tables.Upload, "secret", "name", project_id=key)
    oids = list(town.week.oids.values()) if has_code else []
    return ProjectArguments(f"{leading}/{path}", {
        "issue iids": await of(tables.Issue, "iid"), "issue ids": await of(tables.Issue, "id"),
        "merge request iids": await of(tables.MergeRequest, "iid"), "merge request ids": await of(tables.MergeRequest, "id"),
        "milestone iids": await of(tables.Milestone, "iid"), "milestone ids": await of(tables.Milestone, "id"),
        "milestones": await of(tables.Milestone, "title"), "labels": await of(tables.Label, "title"), "label ids": await of(tables.Label,
        "id"),
        "project hook ids": await of(tables.Hook, "id"), "deploy key ids": await of(tables.DeployKey, "id"),
        "member ids": await of(tables.ProjectMember, "user_id"),
        "variable keys": await of(tables.Variable, "key"),
        "trigger tokens": [f"{key} {n}" for n in range(len(await of(tables.Trigger, "id")))],
        "snippet ids": await of(tables.Snippet, "id"), "build ids": await of(tables.Build, "id"), "note ids": await of(tables.Note, "id"),
        "issue notes": await notes("issue_id"), "merge request notes": await notes("merge_request_id"),
        "snippet notes": await notes("snippet_id"),
        "artifact builds": await of(tables.Artifact, "build_id"), "stages": ["test", "deploy", "external"], "jobs": ["unit", "lint",
        "deploy"],
        "branches": ["master", "stable", "topic", "wait", "cache"] if has_code else ["master"], "shas": oids or ["b" * 40],
        "revs": ["master", "stable", "topic", *oids, *(oid[:8] for oid in oids[:3])] if has_code else ["master"],
        "files": ["m1.txt", "p1.txt", "s1.txt"], "folders": ["", ""],
        "upload secrets": [secret for secret, _ in uploads], "upload names": [name for _, name in uploads],
        "source branches": await of(tables.MergeRequest, "source_branch"),
    })  # fmt: skip


@dataclass(frozen=True)
class ListQuery:
    """A query of one list of one object, in one order."""

    field_path: str
    """`Type.field`."""
    type_name: str
    order: str
    text: str
    """With `ARGUMENTS` in place of the arguments of the page."""
    goes_backward: bool

    async def edges(self, graph: Graph, credential: str, arguments: str) -> list[dict[str, Any]]:
        """The edges of a page."""
        document = parse(self.text.replace("ARGUMENTS", arguments))
        (operation,) = document.definitions
        outcome = await graph.run(make_prepared_operation(document, operation), {}, credential, request_id="cursors")  # type: ignore[arg-type]
        data = (outcome.data or {}).get("node") or outcome.data or {}
        return (data.get("list") or {}).get("edges") or []


def list_queries(ids: Mapping[str, Sequence[str]], fields: str = "cursor") -> Iterator[ListQuery]:
    """Queries of the lists of two objects of each type and of the root, in every order. `fields` are those of the edges."""
    for kind in list(graphql_schema.type_map.values()):
        if not isinstance(kind, GraphQLObjectType) or kind.name in ("Mutation", "Subscription"):
            continue
        node_ids = ids.get(kind.name, [])
        field_orders = [
            (name, order) for name, found in kind.fields.items() if _is_connection_field(found) for order in orderings_of(found)
        ]
        for start in (0, len(node_ids) // 2) if kind is not graphql_schema.query_type else (0,):
            for name, order in field_orders:
                arguments = f"ARGUMENTS{f', orderBy: {_order_literal(order)}' if order else ''}"
                needed = [
                    argument for argument, each in kind.fields[name].args.items() if str(each.type).endswith("!") and not each.default
                ]
                if kind is graphql_schema.query_type:
                    text = f"{{ list: {name}({', '.join([arguments, *(f'{each}: 1' for each in needed)])}) {{ edges {{ {fields} }} }} }}"
                elif start < len(node_ids) and not needed:
                    selection = f"list: {name}({arguments}) {{ edges {{ {fields} }} }}"
                    text = f'{{ node(id: "{node_ids[start]}") {{ ... on {kind.name} {{ {selection} }} }} }}'
                else:
                    continue
                type_name = get_named_type(kind.fields[name].type).name
                yield ListQuery(f"{kind.name}.{name}", type_name, ordering_key(order), text, "before" in kind.fields[name].args)


async def _collect_cursors(drawn: ArgumentPool, town: EdgeCaseData, graph: Graph) -> None:
    """Queries lists of several objects of each type as an administrator."""
    credential = token_of(town.viewers["admin"])
    for query in list_queries(drawn.ids):
        found = [edge["cursor"] for edge in await query.edges(graph, credential, "first: 9")]
        for key in ((query.field_path, query.order), (query.type_name, query.order)):
            drawn.cursors.setdefault(key, []).extend(found)


def _is_connection_field(found: Any) -> bool:
    """Whether a field is a list with cursors."""
    kind: Any = get_named_type(found.type)
    return "after" in found.args and "edges" in getattr(kind, "fields", ())


def orderings_of(found: Any) -> list[dict[str, Any] | None]:
    """The orderings that a list takes; None is its own."""
    if "orderBy" not in found.args:
        return [None]
    kind: Any = get_named_type(found.args["orderBy"].type)
    fields: Any = get_named_type(kind.fields["field"].type)
    assert isinstance(fields, GraphQLEnumType)
    plain = [{"field": name, "direction": direction} for name in fields.values for direction in ("ASC", "DESC")]
    return (
        [None, *({**each, "ciEnabledFirst": first} for each in plain for first in (False, True))]
        if "ciEnabledFirst" in kind.fields
        else [None, *plain]
    )


def _order_literal(order: dict[str, Any]) -> str:
    return "{" + ", ".join(f"{key}: {str(value).lower() if isinstance(value, bool) else value}" for key, value in order.items()) + "}"
