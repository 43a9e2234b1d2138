"""No path through the schema shows a viewer what the viewer cannot read: see tests/support/queries/planted_data.py.

Every path of fields from every entity is asked of all entities of its kind at once, as each viewer. In the suite paths have one relation,
and a share of the longer ones is drawn; FORGEFRONT_PLANTED=3 asks all paths of up to three, FORGEFRONT_PLANTED_DRAWN=2000 draws 2,000.
"""

import gc
import os
import random
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import orjson
import pytest
from graphql import (
    DocumentNode,
    GraphQLInterfaceType,
    GraphQLObjectType,
    GraphQLUnionType,
    get_named_type,
    is_leaf_type,
    is_required_argument,
)
from sqlalchemy import select

from graph.documents.document_parser import parse_without_tokens
from graph.documents.documents import PreparedOperation
from graph.fields.entities import ENTITIES, global_id
from graph.http.responses import serialize_result
from graph.operations.execution import Graph
from graph.operations.results import OperationResult
from graph.rules.builds.artifact_files import MAX_ARCHIVES
from graph.schema import graphql_schema
from storage import tables
from tests.make import DataFactory, token_of
from tests.support.database.database_selection import half_for_dialect, share_of_values
from tests.support.queries.oracle import FallbackCountingGraph, answers_equal, prepare_document, remove_fields
from tests.support.queries.planted_data import BUILD_TOKEN_FORMAT, PlantedData, create_planted_data
from tests.support.week_fixture import NOW

pytestmark = [
    pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
"""graphql-core leaves coroutines behind where a null that may not be takes away what waits beside it."""

MAX_PATH_LENGTH = int(os.environ.get("FORGEFRONT_PLANTED", "0"))
SAMPLED_PATHS = int(os.environ.get("FORGEFRONT_PLANTED_DRAWN", "80"))
"""Longer paths that the suite asks of each database."""
PRUNINGS = 4
PATHS_PER_QUERY = 100
ARGUMENT_LITERALS = {
    "Artifact.file": '(path: "report.txt")',
    "Branch.timeline": '(range: {since: "2016-01-01T00:00:00Z"})',
    "Project.blob": '(path: "absent")',
    "Project.commit": '(rev: "master")',
    "Project.compare": '(from: "master", to: "topic")',
    "Project.flakyBuilds": '(since: "2016-01-01T00:00:00Z")',
    "Project.buildStats": "(groupBy: [PROJECT, NAME, STAGE, REF, AUTHOR])",
    "Project.issue": "(iid: 1)",
    "Project.mergeRequest": "(iid: 1)",
    "Project.markdownHtml": '(text: "See #1, !1 and @ada")',
    "Project.milestone": "(iid: 1)",
    "Project.rawBlob": '(oid: "absent")',
    "Project.searchPaths": '(search: "e")',
    "Project.searchText": '(search: "e")',
    "Project.tag": '(name: "absent")',
    "Project.tree": "(recursive: true)",
    "Project.trigger": '(token: "absent")',
    "Project.variable": '(key: "TOKEN")',
    "Group.buildStats": "(groupBy: [PROJECT, NAME, STAGE, REF, AUTHOR])",
    "Query.projects": "(filter: {archived: null})",
    "Group.projects": "(filter: {archived: null})",
}
"""The arguments of fields that need some, or show more with them. Fields that need the number of an object are requested for each below."""
FIELDS_BY_ARGUMENT = {
    "Project.artifact": ("buildId", tables.Build), "Project.build": ("databaseId", tables.Build),
    "Project.snippet": ("databaseId", tables.Snippet), "Issue.note": ("databaseId", tables.Note),
    "MergeRequest.note": ("databaseId", tables.Note), "Snippet.note": ("databaseId", tables.Note),
    "Project.label": ("databaseId", tables.Label), "User.sshKey": ("databaseId", tables.SshKey),
    "User.secondaryEmail": ("databaseId", tables.Email), "Group.member": ("userId", tables.User),
    "Project.member": ("userId", tables.User), "Project.hook": ("databaseId", tables.Hook),
    "Project.deployKey": ("databaseId", tables.DeployKey),
}  # fmt: skip
"""Fields that name one thing by its number."""
SECRET_FIELDS = {"Project.upload"}
"""Fields that take what only those know who may read."""
ROOTS = (
    "users",
    "viewer",
    "groups",
    "projects",
    "issues",
    "mergeRequests",
    "settings",
    "instance",
    "frontPage",
    "hooks",
    "runners",
    "availableRunners",
    "sshKeys",
    "emails",
)


@pytest.fixture(autouse=True)
def collect_garbage_between_tests() -> Iterator[None]:
    """Else a coroutine may fall due within generated code, which cannot import what a warning needs."""
    gc.disable()
    yield
    gc.collect()
    gc.enable()


def unwrap_connection(kind: Any) -> tuple[Any, str]:
    """The type that a field leads to, and the text around its fields."""
    if isinstance(kind, GraphQLObjectType) and kind.name.endswith("Connection") and "nodes" in kind.fields:
        return get_named_type(kind.fields["nodes"].type), "nodes {{ {} }}"
    return kind, "{}"


def kinds_of(kind: Any) -> list[Any]:
    if isinstance(kind, GraphQLUnionType):
        return list(kind.types)
    return list(graphql_schema.get_possible_types(kind)) if isinstance(kind, GraphQLInterfaceType) else [kind]


@cache
def leaves(kind: Any) -> str:
    found = [
        name
        for name, each in kind.fields.items()
        if is_leaf_type(get_named_type(each.type)) and not any(map(is_required_argument, each.args.values()))
    ]
    return " ".join(["__typename", *found])


def paths(kind: Any, length: int) -> Iterator[tuple[str, ...]]:
    """The texts of all selections of one path: (text, …) of the fields on the way, and last what is asked at its end."""
    yield (leaves(kind),)
    if not length:
        return
    for name, each in kind.fields.items():
        inner = get_named_type(each.type)
        field_path = f"{kind.name}.{name}"
        if is_leaf_type(inner) or field_path in SECRET_FIELDS or field_path in FIELDS_BY_ARGUMENT:
            continue
        assert field_path in ARGUMENT_LITERALS or not any(map(is_required_argument, each.args.values())), (
            f"say in GIVEN or NAMED what {field_path} is asked with"
        )
        target, around = unwrap_connection(inner)
        for possible in kinds_of(target):
            on = f"... on {possible.name} {{ {{}} }}" if possible is not target else "{}"
            head = f"{name}{ARGUMENT_LITERALS.get(field_path, '')} {{ {around.format(on.format('{}')) if around != '{}' else on} }}"
            for rest in paths(possible, length - 1):
                yield (head, *rest)


def selection_text(path: tuple[str, ...]) -> str:
    """
    >>> written(("author {}", "name"))
    'author { name }'
    """
    text = path[-1]
    for head in reversed(path[:-1]):
        text = head.replace("{}", text) if "{}" in head else head
    return text


def is_parent_null(data: Any, path: list[str | int]) -> bool:
    """Whether the error of a field nulled more than the field.

    >>> is_parent_null({"project": {"builds": None}}, ["project", "builds"]), is_parent_null({"project": None}, ["project", "builds"])
    (False, True)
    """
    for part in path:
        if data is None:
            return True
        data = data[part]
    return False


def pruned_operation(text: str, removed: tuple[frozenset[str], ...]) -> PreparedOperation | None:
    """The operation without fields of these names, which were removed one set after the other; None: nothing is left."""
    document: DocumentNode | None = parse_without_tokens(text, no_location=True)
    for names in removed:
        document = document and remove_fields(document, names)
    return document and prepare_document(document)


class SchemaWalk:
    def __init__(self, world: PlantedData) -> None:
        services = replace(world.make.services, clock=lambda: NOW)
        self.world = world
        self.planned, self.plain = FallbackCountingGraph(services, planner=True), Graph(services, planner=False)
        self.query_count = 0
        self.found: dict[str, str] = {}
        self.lost: dict[str, str] = {}
        """Each field whose refusal nulled its parent → the first text that showed it."""
        self._operation = cache(pruned_operation)
        """Several viewers run an operation, or one of them twice: it is parsed and planned once."""

    async def _run_pruned(self, text: str, token: str, *, planner: bool) -> AsyncIterator[OperationResult]:
        """The result, and then that without the fields that failed."""
        graph = self.planned if planner else self.plain
        removed: tuple[frozenset[str], ...] = ()
        while len(removed) < PRUNINGS and (operation := self._operation(text, removed)) is not None:
            outcome = await graph.run(operation, {}, token, request_id="planted", seconds=60)
            yield outcome
            failed = frozenset(
                str([part for part in problem.path if isinstance(part, str)][-1]) for problem in outcome.errors if problem.path
            )
            if not failed:
                return
            removed += (failed,)

    async def run_operation(self, text: str, viewer: tables.User | None, *, planner: bool) -> None:
        """Asks, and what is left without the fields that failed; notes each leak by the first text that showed it."""
        token = token_of(viewer) if viewer is not None else BUILD_TOKEN_FORMAT.format(self.world.build.id if self.world.build else 0)
        async for outcome in self._run_pruned(text, token, planner=planner):
            self.query_count += 1
            answer = orjson.dumps(outcome.data).decode()
            for leak in self.world.leaks(answer, viewer):
                self.found.setdefault(f"{viewer.username if viewer else 'build token'} reads {leak}", text)
            assert not any(str(problem.code) == "INTERNAL" for problem in outcome.errors), (text, outcome.errors)
            for problem in outcome.errors:
                if viewer and str(problem.code) in ("FORBIDDEN", "NOT_FOUND") and is_parent_null(outcome.data, list(problem.path or ())):
                    self.lost.setdefault(".".join(part for part in problem.path or () if isinstance(part, str)), text)

    async def answer_text(self, text: str, viewer: tables.User, *, planner: bool) -> list[Any]:
        """What is answered, and then without the fields that failed."""
        return [serialize_result(outcome, "planted") async for outcome in self._run_pruned(text, token_of(viewer), planner=planner)]


@pytest.fixture
async def planted(make: DataFactory) -> PlantedData:
    return await create_planted_data(make)


async def ids_of(world: PlantedData) -> dict[str, list[str]]:
    """The ids of all entities that are nodes."""
    found: dict[str, list[str]] = {}
    async with world.make.services.database.read_session() as session:
        for row, entity in ENTITIES.items():
            if entity.is_node and hasattr(row, "__table__"):
                keys = (await session.scalars(select(row.id).order_by(row.id))).all()  # type: ignore[attr-defined]
                found[entity.name] = [global_id(entity.name, key) for key in keys]
        commits = (await session.execute(select(tables.Commit.project_id, tables.Commit.oid))).all()
    found["Commit"] = [global_id("Commit", f"{project_id}-{oid}") for project_id, oid in commits]
    return found


def queries_of_paths(ids: dict[str, list[str]], length: int) -> Iterator[str]:
    """Every path of this many relations, from all entities of each kind and from the fields of the query."""
    for name, keys in ids.items():
        for path in paths(graphql_schema.type_map[name], length):
            if len(path) == length + 1:
                per_query = MAX_ARCHIVES if name == "Artifact" else PATHS_PER_QUERY
                for start in range(0, len(keys), per_query):
                    listed = ", ".join(f'"{key}"' for key in keys[start : start + per_query])
                    yield f"{{ nodes(ids: [{listed}]) {{ ... on {name} {{ {selection_text(path)} }} }} }}"
    root: Any = graphql_schema.query_type
    for name in ROOTS:
        target, around = unwrap_connection(get_named_type(root.fields[name].type))
        for path in paths(target, length):
            if len(path) == length + 1:
                inner = around.format(selection_text(path)) if around != "{}" else selection_text(path)
                yield f"{{ {name}{ARGUMENT_LITERALS.get(f'Query.{name}', '')} {{ {inner} }} }}"


async def queries_by_argument(world: PlantedData, ids: dict[str, list[str]]) -> list[str]:
    """Each field that names one thing by its number, of all parents and all numbers; and projects and groups by their paths."""
    found: list[str] = []
    async with world.make.services.database.read_session() as session:
        for place, (argument, table) in FIELDS_BY_ARGUMENT.items():
            kind, name = place.split(".")
            field: Any = graphql_schema.type_map[kind].fields[name]  # type: ignore[attr-defined]
            parents = ", ".join(f'"{key}"' for key in ids[kind][:PATHS_PER_QUERY])
            for key in (await session.scalars(select(table.id))).all():
                inner = leaves(get_named_type(field.type))
                found.append(f"{{ nodes(ids: [{parents}]) {{ ... on {kind} {{ {name}({argument}: {key}) {{ {inner} }} }} }} }}")
    parts = share_of_values(2)
    for turn, project in enumerate(world.projects.values()):
        namespace = await world.make.fetch(tables.Namespace, project.namespace_id)
        assert namespace is not None
        # From each node of a project all paths are asked anyway, of each path one half.
        for path in list(paths(graphql_schema.type_map["Project"], 1))[turn % parts :: parts]:
            found.append(f'{{ project(path: "{namespace.path}/{project.path}") {{ {selection_text(path)} }} }}')
        for path in list(paths(graphql_schema.type_map["Group"], 1))[turn % parts :: parts]:
            found.append(f'{{ group(path: "{namespace.path}") {{ {selection_text(path)} }} }}')
    return found


class TestSchemaPaths:
    async def test_reveal_no_hidden_values(self, planted: PlantedData, dialect: str, capsys: pytest.CaptureFixture[str]) -> None:
        ids, walk = await ids_of(planted), SchemaWalk(planted)
        texts = [*queries_of_paths(ids, 0), *queries_of_paths(ids, 1), *await queries_by_argument(planted, ids)]
        for length in (2, 3):
            longer = list(queries_of_paths(ids, length))
            texts += (
                longer
                if length <= MAX_PATH_LENGTH
                else random.Random(f"{dialect} {length}").sample(longer, min(SAMPLED_PATHS // 2, len(longer)))
            )
        viewers = [planted.viewers[name] for name in ("outsider", "guest", "reporter", "forker")]
        for index, text in enumerate(texts):
            # Each viewer asks each of the first texts on one of the databases, and one viewer each of the others.
            asking = viewers if MAX_PATH_LENGTH or index < 400 else viewers[index // 2 % 2 : index // 2 % 2 + 1]
            for viewer in asking if MAX_PATH_LENGTH else half_for_dialect(asking, dialect, index // 4):
                # On one database with a plan, on the other without.
                await walk.run_operation(text, viewer, planner=(index % 2 == 0) is (dialect == "sqlite"))
            if index % 200 == 0:
                # What the queries of this round left is young; all else would be looked through again in each round.
                gc.collect(0)
        if MAX_PATH_LENGTH:
            with capsys.disabled():
                print(f"{dialect}: {walk.query_count} questions of {len(texts)} texts")
        assert not walk.found, "\n".join(f"{what}: {text}" for what, text in walk.found.items())
        assert not walk.lost, "\n".join(f"{name} must be nullable: {text}" for name, text in walk.lost.items())

    @pytest.mark.parametrize("name", ["outsider", "guest"])
    async def test_answers_do_not_depend_on_hidden_rows(self, planted: PlantedData, name: str) -> None:
        """States and numbers hold no words: the same questions have the same answers and errors before and after."""
        ids, walk, viewer = await ids_of(planted), SchemaWalk(planted), planted.viewers[name]
        texts = [*queries_of_paths(ids, 0), *list(queries_of_paths(ids, 1))[name == "guest" :: share_of_values(2)]]
        for length in (2, 3):
            longer = list(queries_of_paths(ids, length))
            texts += (
                longer
                if length <= MAX_PATH_LENGTH
                else random.Random(f"{name} {length}").sample(longer, min(SAMPLED_PATHS // 2, len(longer)))
            )
        before = [await walk.answer_text(text, viewer, planner=place % 2 == 0) for place, text in enumerate(texts)]
        await planted.change_hidden(viewer)
        differing = []
        for index, text in enumerate(texts):
            after = await walk.answer_text(text, viewer, planner=index % 2 == 0)
            if len(after) != len(before[index]) or not all(map(answers_equal, before[index], after)):
                differing.append(f"{text}\n{before[index]!r}\n{after!r}")
        assert not differing, f"{len(differing)} answers differ:\n" + "\n".join(differing[:10])

    async def test_show_the_token_of_a_build_its_build_alone(self, planted: PlantedData, dialect: str) -> None:
        walk = SchemaWalk(planted)
        assert planted.build is not None
        for length in range(max(MAX_PATH_LENGTH, 2) + 1):
            for index, path in enumerate(paths(graphql_schema.type_map["Build"], length)):
                if len(path) == length + 1:
                    change = f"updateBuild(input: {{databaseId: {planted.build.id}}}) {{ build {{ {selection_text(path)} }} }}"
                    await walk.run_operation(f"mutation {{ {change} }}", None, planner=(index % 2 == 0) is (dialect == "sqlite"))
        assert not walk.found, "\n".join(f"{what}: {text}" for what, text in walk.found.items())

    async def test_show_an_administrator_everything_that_was_planted(self, planted: PlantedData) -> None:
        """The words are where they are looked for: else nothing would be found anywhere."""
        ids, walk = await ids_of(planted), SchemaWalk(planted)
        empty = {name for name, keys in ids.items() if not keys}
        assert not empty, f"plant rows of {empty} in tests/support/queries/planted_data.py"
        seen = ""
        for text in (*queries_of_paths(ids, 0), *queries_of_paths(ids, 1)):
            operation = pruned_operation(text, ())
            assert operation is not None
            outcome = await walk.plain.run(operation, {}, token_of(planted.viewers["admin"]), request_id="planted", seconds=60)
            seen += orjson.dumps(outcome.data).decode()
        missing = {
            what.partition(" of ")[0]
            for word, (what, may_read) in planted.words.items()
            if may_read(planted.viewers["admin"]) and word not in seen
        }
        assert missing == set()
