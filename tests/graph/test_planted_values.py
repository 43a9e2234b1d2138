"""No path through the schema shows a viewer what the viewer may not read: see tests/planted.py.

Every path of fields from every entity is asked of all entities of its kind at once, as each viewer. In the suite paths have one relation,
and a share of the longer ones is drawn; FORGEFRONT_PLANTED=3 asks all paths of up to three, FORGEFRONT_PLANTED_DRAWN=2000 draws so many.
"""

import gc
import os
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest
from graphql import (
    GraphQLInterfaceType,
    GraphQLObjectType,
    GraphQLUnionType,
    get_named_type,
    is_leaf_type,
    is_required_argument,
    parse,
)
from sqlalchemy import select

from graph.answers import result_of
from graph.declare import ENTITIES, global_id
from graph.execute import Graph
from graph.schema import graphql_schema
from storage import tables
from tests.compared import Watched, prepared, same, without
from tests.make import Make, token_of
from tests.planted import BUILD_TOKEN, World, settle
from tests.story import NOW

pytestmark = [
    pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
"""graphql-core leaves coroutines behind where a null that may not be takes away what waits beside it."""

DEEPEST = int(os.environ.get("FORGEFRONT_PLANTED", "0"))
DRAWN = int(os.environ.get("FORGEFRONT_PLANTED_DRAWN", "120"))
"""Longer paths that the suite asks of each database."""
PRUNINGS = 4
AT_ONCE = 100
GIVEN = {
    "Branch.timeline": '(range: {since: "2016-01-01T00:00:00Z"})',
    "Project.blob": '(path: "absent")',
    "Project.commit": '(rev: "master")',
    "Project.compare": '(from: "master", to: "topic")',
    "Project.flakyBuilds": '(since: "2016-01-01T00:00:00Z")',
    "Project.buildStats": "(groupBy: [PROJECT, NAME, STAGE, REF, AUTHOR])",
    "Project.issue": "(iid: 1)",
    "Project.mergeRequest": "(iid: 1)",
    "Project.milestone": "(iid: 1)",
    "Project.tree": "(recursive: true)",
    "Group.buildStats": "(groupBy: [PROJECT, NAME, STAGE, REF, AUTHOR])",
    "Query.projects": "(filter: {archived: null})",
    "Group.projects": "(filter: {archived: null})",
}
"""The arguments of fields that need some, or show more with them. What needs the number of one thing is asked for each below."""
NAMED = {
    "Project.artifact": ("buildId", tables.Build), "Project.build": ("databaseId", tables.Build),
    "Project.snippet": ("databaseId", tables.Snippet), "Issue.note": ("databaseId", tables.Note),
    "MergeRequest.note": ("databaseId", tables.Note), "Snippet.note": ("databaseId", tables.Note),
    "Project.label": ("databaseId", tables.Label), "User.sshKey": ("databaseId", tables.SshKey),
    "User.secondaryEmail": ("databaseId", tables.Email), "Group.member": ("userId", tables.User),
}  # fmt: skip
"""Fields that name one thing by its number."""
BY_SECRET = {"Project.upload"}
"""Fields that take what only those know who may read."""
ROOTS = ("users", "viewer", "groups", "projects", "issues", "settings", "instance", "frontPage", "hooks", "runners", "sshKeys", "emails")


@pytest.fixture(autouse=True)
def what_is_left_behind_goes_between_two_questions() -> Iterator[None]:
    """Else a coroutine may fall due within generated code, which cannot import what a warning needs."""
    gc.disable()
    yield
    gc.collect()
    gc.enable()


def opened(kind: Any) -> tuple[Any, str]:
    """The type that a field leads to, and the text around its fields."""
    if isinstance(kind, GraphQLObjectType) and kind.name.endswith("Connection") and "nodes" in kind.fields:
        return get_named_type(kind.fields["nodes"].type), "nodes {{ {} }}"
    return kind, "{}"


def kinds_of(kind: Any) -> list[Any]:
    if isinstance(kind, GraphQLUnionType):
        return list(kind.types)
    return list(graphql_schema.get_possible_types(kind)) if isinstance(kind, GraphQLInterfaceType) else [kind]


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
        place = f"{kind.name}.{name}"
        if is_leaf_type(inner) or place in BY_SECRET or place in NAMED:
            continue
        assert place in GIVEN or not any(map(is_required_argument, each.args.values())), f"say in GIVEN or NAMED what {place} is asked with"
        target, around = opened(inner)
        for possible in kinds_of(target):
            on = f"... on {possible.name} {{ {{}} }}" if possible is not target else "{}"
            head = f"{name}{GIVEN.get(place, '')} {{ {around.format(on.format('{}')) if around != '{}' else on} }}"
            for rest in paths(possible, length - 1):
                yield (head, *rest)


def written(path: tuple[str, ...]) -> str:
    """
    >>> written(("author {}", "name"))
    'author { name }'
    """
    text = path[-1]
    for head in reversed(path[:-1]):
        text = head.replace("{}", text) if "{}" in head else head
    return text


class Walk:
    def __init__(self, world: World) -> None:
        services = replace(world.make.services, clock=lambda: NOW)
        self.world = world
        self.planned, self.plain = Watched(services, planner=True), Graph(services, planner=False)
        self.asked = 0
        self.found: dict[str, str] = {}

    async def ask(self, text: str, viewer: tables.User | None, *, planner: bool) -> None:
        """Asks, and what is left without the fields that failed; notes each leak by the first text that showed it."""
        token = token_of(viewer) if viewer is not None else BUILD_TOKEN.format(self.world.build.id if self.world.build else 0)
        document: Any = parse(text)
        for _ in range(PRUNINGS):
            graph = self.planned if planner else self.plain
            outcome = await graph.run(prepared(document), {}, token, request_id="planted", seconds=60)
            self.asked += 1
            answer = orjson.dumps(outcome.data).decode()
            for leak in self.world.leaks(answer, viewer):
                self.found.setdefault(f"{viewer.username if viewer else 'build token'} reads {leak}", text)
            failed = {str([part for part in problem.path if isinstance(part, str)][-1]) for problem in outcome.errors if problem.path}
            assert not any(str(problem.code) == "INTERNAL" for problem in outcome.errors), (text, outcome.errors)
            rest = without(document, failed) if failed else None
            if rest is None:
                return
            document = rest

    async def answer(self, text: str, viewer: tables.User, *, planner: bool) -> list[Any]:
        """What is answered, and then without the fields that failed."""
        document: Any = parse(text)
        answers: list[Any] = []
        for _ in range(PRUNINGS):
            graph = self.planned if planner else self.plain
            outcome = await graph.run(prepared(document), {}, token_of(viewer), request_id="planted", seconds=60)
            answers.append(result_of(outcome, "planted"))
            failed = {str([part for part in problem.path if isinstance(part, str)][-1]) for problem in outcome.errors if problem.path}
            rest = without(document, failed) if failed else None
            if rest is None:
                break
            document = rest
        return answers


@pytest.fixture
async def world(make: Make, tmp_path: Path) -> World:
    return await settle(make, tmp_path)


async def ids_of(world: World) -> dict[str, list[str]]:
    """The ids of all entities that are nodes."""
    found: dict[str, list[str]] = {}
    async with world.make.services.database.reading() as session:
        for row, entity in ENTITIES.items():
            if entity.is_node and hasattr(row, "__table__"):
                keys = (await session.scalars(select(row.id).order_by(row.id))).all()  # type: ignore[attr-defined]
                found[entity.name] = [global_id(entity.name, key) for key in keys]
        commits = (await session.execute(select(tables.Commit.project_id, tables.Commit.oid))).all()
    found["Commit"] = [global_id("Commit", f"{project_id}-{oid}") for project_id, oid in commits]
    return found


def questions(ids: dict[str, list[str]], length: int) -> Iterator[str]:
    """Every path of this many relations, from all entities of each kind and from the fields of the query."""
    for name, keys in ids.items():
        for path in paths(graphql_schema.type_map[name], length):
            if len(path) == length + 1:
                for start in range(0, len(keys), AT_ONCE):
                    listed = ", ".join(f'"{key}"' for key in keys[start : start + AT_ONCE])
                    yield f"{{ nodes(ids: [{listed}]) {{ ... on {name} {{ {written(path)} }} }} }}"
    root: Any = graphql_schema.query_type
    for name in ROOTS:
        target, around = opened(get_named_type(root.fields[name].type))
        for path in paths(target, length):
            if len(path) == length + 1:
                inner = around.format(written(path)) if around != "{}" else written(path)
                yield f"{{ {name}{GIVEN.get(f'Query.{name}', '')} {{ {inner} }} }}"


async def named_questions(world: World, ids: dict[str, list[str]]) -> list[str]:
    """Each field that names one thing by its number, of all parents and all numbers; and projects and groups by their paths."""
    found: list[str] = []
    async with world.make.services.database.reading() as session:
        for place, (argument, table) in NAMED.items():
            kind, name = place.split(".")
            field: Any = graphql_schema.type_map[kind].fields[name]  # type: ignore[attr-defined]
            parents = ", ".join(f'"{key}"' for key in ids[kind][:AT_ONCE])
            for key in (await session.scalars(select(table.id))).all():
                inner = leaves(get_named_type(field.type))
                found.append(f"{{ nodes(ids: [{parents}]) {{ ... on {kind} {{ {name}({argument}: {key}) {{ {inner} }} }} }} }}")
    for project in world.projects.values():
        namespace = await world.make.fetch(tables.Namespace, project.namespace_id)
        assert namespace is not None
        for path in paths(graphql_schema.type_map["Project"], 1):
            found.append(f'{{ project(path: "{namespace.path}/{project.path}") {{ {written(path)} }} }}')
        for path in paths(graphql_schema.type_map["Group"], 1):
            found.append(f'{{ group(path: "{namespace.path}") {{ {written(path)} }} }}')
    return found


class TestPaths:
    async def test_show_no_viewer_what_is_hidden(self, world: World, dialect: str, capsys: pytest.CaptureFixture[str]) -> None:
        ids, walk = await ids_of(world), Walk(world)
        texts = [*questions(ids, 0), *questions(ids, 1), *await named_questions(world, ids)]
        for length in (2, 3):
            longer = list(questions(ids, length))
            texts += longer if length <= DEEPEST else random.Random(f"{dialect} {length}").sample(longer, min(DRAWN // 2, len(longer)))
        viewers = [world.viewers[name] for name in ("outsider", "guest", "reporter", "forker")]
        for place, text in enumerate(texts):
            some = viewers if DEEPEST or place < 400 else [viewers[place % 2]]
            for viewer in some:
                # On one database with a plan, on the other without.
                await walk.ask(text, viewer, planner=(place % 2 == 0) is (dialect == "sqlite"))
            if place % 200 == 0:
                gc.collect()
        if DEEPEST:
            with capsys.disabled():
                print(f"{dialect}: {walk.asked} questions of {len(texts)} texts")
        assert not walk.found, "\n".join(f"{what}: {text}" for what, text in walk.found.items())

    @pytest.mark.parametrize("name", ["outsider", "guest"])
    async def test_answer_the_same_when_what_is_hidden_changes(self, world: World, dialect: str, name: str) -> None:
        """States and numbers hold no words: the same questions have the same answers and errors before and after."""
        ids, walk, viewer = await ids_of(world), Walk(world), world.viewers[name]
        texts = [*questions(ids, 0), *questions(ids, 1)]
        for length in (2, 3):
            longer = list(questions(ids, length))
            texts += (
                longer if length <= DEEPEST else random.Random(f"{dialect} {name} {length}").sample(longer, min(DRAWN // 2, len(longer)))
            )
        before = [await walk.answer(text, viewer, planner=place % 2 == 0) for place, text in enumerate(texts)]
        await world.change_hidden(viewer)
        differing = []
        for place, text in enumerate(texts):
            after = await walk.answer(text, viewer, planner=place % 2 == 0)
            if len(after) != len(before[place]) or not all(map(same, before[place], after)):
                differing.append(f"{text}\n{before[place]!r}\n{after!r}")
        assert not differing, f"{len(differing)} answers differ:\n" + "\n".join(differing[:10])

    async def test_show_the_token_of_a_build_its_build_alone(self, world: World, dialect: str) -> None:
        walk = Walk(world)
        assert world.build is not None
        for length in range(max(DEEPEST, 2) + 1):
            for place, path in enumerate(paths(graphql_schema.type_map["Build"], length)):
                if len(path) == length + 1:
                    change = f"updateBuild(input: {{databaseId: {world.build.id}}}) {{ build {{ {written(path)} }} }}"
                    await walk.ask(f"mutation {{ {change} }}", None, planner=(place % 2 == 0) is (dialect == "sqlite"))
        assert not walk.found, "\n".join(f"{what}: {text}" for what, text in walk.found.items())

    async def test_show_an_administrator_everything_that_was_planted(self, world: World) -> None:
        """The words are where they are looked for: else nothing would be found anywhere."""
        ids, walk = await ids_of(world), Walk(world)
        seen = ""
        for text in questions(ids, 1):
            outcome = await walk.plain.run(prepared(parse(text)), {}, token_of(world.viewers["admin"]), request_id="planted", seconds=60)
            seen += orjson.dumps(outcome.data).decode()
        for text in questions(ids, 0):
            outcome = await walk.plain.run(prepared(parse(text)), {}, token_of(world.viewers["admin"]), request_id="planted", seconds=60)
            seen += orjson.dumps(outcome.data).decode()
        missing = {
            what.partition(" of ")[0]
            for word, (what, may_read) in world.words.items()
            if may_read(world.viewers["admin"]) and word not in seen
        }
        assert missing == set()
