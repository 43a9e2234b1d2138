"""What there really is to be asked for: the values that made-up queries take for their arguments (tests/generated.py).

Ids and names are read from the tables, cursors are taken from the answers of whole lists.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from graphql import GraphQLEnumType, GraphQLObjectType, get_named_type, parse
from sqlalchemy import select

from graph.declare import ENTITIES, global_id
from graph.execute import Graph
from graph.operations import prepared_of
from graph.schema import graphql_schema
from storage import tables
from storage.database import Database
from tests.make import token_of
from tests.town import Town


@dataclass(frozen=True)
class Place:
    """A project, and what is in it."""

    path: str
    things: dict[str, Sequence[Any]]


@dataclass
class Drawn:
    """`cursors` by (Type.field, ordering), and of all lists of a type by (the type of the rows, ordering); `ids` by the type."""

    places: list[Place]
    everywhere: dict[str, Sequence[Any]]
    ids: dict[str, list[str]]
    cursors: dict[tuple[str, str], list[str]] = field(default_factory=dict)

    def anywhere(self, name: str) -> list[Any]:
        """What there is of that name in all projects."""
        return [each for place in self.places for each in place.things.get(name, ())]


def ordering(given: dict[str, Any] | None) -> str:
    """What an ordering comes to; "" is the list's own."""
    if given is None:
        return ""
    leading = "first " if given.get("ciEnabledFirst") else ""
    return f"{leading}{given.get('field')} {given.get('direction', 'DESC')}"


async def draw(town: Town, graph: Graph, *, cursors: bool = True) -> Drawn:
    """`graph` answers the lists whose cursors are taken, where they are wanted."""
    database = graph.services.database
    places = [await _place(database, town, project) for project in town.projects]
    users = await _read(database, tables.User, "id", "username")
    ids = {entity.name: [global_id(entity.name, key) for key, *_ in await _read(database, row, "id")]
           for row, entity in ENTITIES.items() if hasattr(row, "__table__")}  # fmt: skip
    oids = list(town.story.oids.values())
    forks = [project.id for project in town.projects if project.forked_from_id or project is town.story.web]
    ids["Commit"] = [global_id("Commit", f"{key}-{oid}") for key in forks for oid in oids]
    ids["Branch"] = [global_id("Branch", f"{key}:{name}") for key in forks for name in ("master", "stable", "none")]
    groups = [path for path, kind in await _read(database, tables.Namespace, "path", "kind") if kind is tables.NamespaceKind.GROUP]
    everywhere: dict[str, Sequence[Any]] = {
        "paths": [place.path for place in places] * 3 + [str(project.id) for project in town.projects],
        "groups": [*groups * 3, str(town.story.group.id)],
        "user ids": [key for key, _ in users],
        "usernames": [name for _, name in users],
        "hook ids": [key for (key,) in await _read(database, tables.Hook, "id")],
        "key ids": [key for (key,) in await _read(database, tables.SshKey, "id")],
        "email ids": [key for (key,) in await _read(database, tables.Email, "id")],
        "nodes": [each for name in ids for each in ids[name][:6]],
    }
    drawn = Drawn(places, everywhere, ids)
    if cursors:
        await _cursors(drawn, town, graph)
    return drawn


async def _read(database: Database, table: Any, *columns: str, **equal: Any) -> list[Any]:
    statement = select(*(getattr(table, column) for column in columns)).order_by(table.id)
    for column, value in equal.items():
        statement = statement.where(getattr(table, column) == value)
    async with database.reading() as session:
        return list((await session.execute(statement)).all())


async def _place(database: Database, town: Town, project: tables.Project) -> Place:
    key = project.id
    ((path, space),) = await _read(database, tables.Project, "path", "namespace_id", id=key)
    ((leading,),) = await _read(database, tables.Namespace, "path", id=space)
    has_code = project is town.story.web or project.path == "fork"

    async def of(table: Any, column: str) -> list[Any]:
        return [value for (value,) in await _read(database, table, column, project_id=key) if value is not None]

    async def notes(column: str) -> list[Any]:
        return [pair for pair in await _read(database, tables.Note, column, "id", project_id=key) if pair[0] is not None]

    uploads = await _read(database, tables.Upload, "secret", "name", project_id=key)
    oids = list(town.story.oids.values()) if has_code else []
    return Place(f"{leading}/{path}", {
        "issue iids": await of(tables.Issue, "iid"), "issue ids": await of(tables.Issue, "id"),
        "merge request iids": await of(tables.MergeRequest, "iid"), "merge request ids": await of(tables.MergeRequest, "id"),
        "milestone iids": await of(tables.Milestone, "iid"), "milestone ids": await of(tables.Milestone, "id"),
        "milestones": await of(tables.Milestone, "title"), "labels": await of(tables.Label, "title"), "label ids": await of(tables.Label,
        "id"),
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


async def _cursors(drawn: Drawn, town: Town, graph: Graph) -> None:
    """Asks whole lists of several things of each type, in every order, as an administrator."""
    credential = token_of(town.viewers["admin"])
    for kind in list(graphql_schema.type_map.values()):
        if not isinstance(kind, GraphQLObjectType) or kind.name in ("Mutation", "Subscription"):
            continue
        asked = drawn.ids.get(kind.name, [])
        wanted = [(name, order) for name, found in kind.fields.items() if _turns(found) for order in orders_of(found)]
        for start in (0, len(asked) // 2) if kind is not graphql_schema.query_type else (0,):
            for name, order in wanted:
                given = f"first: 9{f', orderBy: {_spelled(order)}' if order else ''}"
                needed = [
                    argument for argument, each in kind.fields[name].args.items() if str(each.type).endswith("!") and not each.default
                ]
                if kind is graphql_schema.query_type:
                    text = f"{{ list: {name}({', '.join([given, *(f'{each}: 1' for each in needed)])}) {{ edges {{ cursor }} }} }}"
                elif start < len(asked) and not needed:
                    text = f'{{ node(id: "{asked[start]}") {{ ... on {kind.name} {{ list: {name}({given}) {{ edges {{ cursor }} }} }} }} }}'
                else:
                    continue
                await _take(
                    drawn, graph, text, credential, f"{kind.name}.{name}", get_named_type(kind.fields[name].type).name, ordering(order)
                )


async def _take(drawn: Drawn, graph: Graph, text: str, credential: str, place: str, kind: str, order: str) -> None:
    document = parse(text)
    (operation,) = document.definitions
    outcome = await graph.run(prepared_of(document, operation), {}, credential, request_id="cursors")  # type: ignore[arg-type]
    data = (outcome.data or {}).get("node") or outcome.data or {}
    found = [edge["cursor"] for edge in (data.get("list") or {}).get("edges", ())]
    for key in ((place, order), (kind, order)):
        drawn.cursors.setdefault(key, []).extend(found)


def _turns(found: Any) -> bool:
    """Whether a field is a list with cursors."""
    kind: Any = get_named_type(found.type)
    return "after" in found.args and "edges" in getattr(kind, "fields", ())


def orders_of(found: Any) -> list[dict[str, Any] | None]:
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


def _spelled(order: dict[str, Any]) -> str:
    return "{" + ", ".join(f"{key}: {str(value).lower() if isinstance(value, bool) else value}" for key, value in order.items()) + "}"
