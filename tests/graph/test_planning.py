"""Plans against graphql-core: the same bytes for the same query, or graphql-core's own answer.

FORGEFRONT_GENERATED=7000 has so many queries made up for each of three viewers on each database; the suite makes up a few.
"""

import gc
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest
from graphql import (
    DocumentNode,
    ExecutionResult,
    FragmentDefinitionNode,
    GraphQLEnumType,
    NonNullTypeNode,
    OperationDefinitionNode,
    execute,
    get_named_type,
    get_variable_values,
    is_leaf_type,
    parse,
    print_ast,
    specified_rules,
    type_from_ast,
    validate,
)
from sqlalchemy.dialects import sqlite
from strawberry.schema.schema_converter import GraphQLCoreConverter

import graph as package
from graph.context import Context, Services
from graph.declare import is_filled
from graph.execute import Graph
from graph.filling import Filler, may_wait
from graph.planning.compiling import Compiler, Unplannable
from graph.planning.keeping import MOST_PLANS, OFTEN, plans_of
from graph.schema import graphql_schema, schema
from graph.transaction import session_for
from storage import tables
from tests.forge import Ask, operations
from tests.generated import Generator
from tests.make import Make
from tests.statements import Statements
from tests.story import NOW, Story, tell

pytestmark = pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")
"""graphql-core leaves coroutines behind where a null that may not be takes away what waits beside it."""

QUERIES = int(os.environ.get("FORGEFRONT_GENERATED", "60"))
PATHS = ("acme/web", "acme/web", "acme/web", "acme/api", "acme", "acme", "ann", "nobody", "1", "2")


@pytest.fixture(autouse=True)
def what_is_left_behind_goes_with_its_test() -> Iterator[None]:
    yield
    gc.collect()


@pytest.fixture
async def story(make: Make, tmp_path: Path) -> Story:
    return await tell(make, tmp_path / "story.git")


class Both:
    """Has graphql-core and a plan answer the same. `planned` and `left` count those that the plan answered, and those that it left."""

    def __init__(self, services: Services) -> None:
        self.services = services
        self.planned = self.left = 0

    async def compare(self, document: DocumentNode, variables: dict[str, Any], viewer: tables.User) -> None:
        (operation,) = [node for node in document.definitions if isinstance(node, OperationDefinitionNode)]
        fragments = {node.name.value: node for node in document.definitions if isinstance(node, FragmentDefinitionNode)}
        values: Any = get_variable_values(graphql_schema, operation.variable_definitions or (), variables)
        assert not isinstance(values, list), values
        async with session_for(self.services.database, writing=False) as session:
            context = Context(self.services, session, viewer, "test")
            result: Any = execute(
                graphql_schema, document, context_value=context, variable_values=variables, executor_class=Filler, is_awaitable=may_wait
            )
            wanted = result if isinstance(result, ExecutionResult) else await result
        switches = {name: value for name, value in values.coerced.items() if isinstance(value, bool)}
        dialect = self.services.database.engine.dialect
        plan = Compiler(graphql_schema, schema.schema_converter, fragments, switches, dialect).plan(operation)
        found: Any = None
        failed: Exception | None = None
        async with session_for(self.services.database, writing=False) as session:
            try:
                found = await plan.run(Context(self.services, session, viewer, "test"), values)
            except Exception as error:
                failed = error
        if wanted.errors:
            assert failed is not None, wanted.errors
            self.left += 1
        else:
            assert failed is None, repr(failed)
            assert orjson.dumps(found) == orjson.dumps(wanted.data)
            self.planned += 1


@pytest.fixture
def both(services: Services) -> Both:
    return Both(replace(services, clock=lambda: NOW))


async def viewer_of(make: Make, story: Story, who: str) -> tables.User:
    return {"ann": story.ann, "bob": story.bob}.get(who) or await make.user("stranger")


def made_up(value: Any, kind: Any) -> Any:
    """The value, spelled as a variable of that type."""
    named = get_named_type(kind)
    if isinstance(named, GraphQLEnumType):
        return next(iter(named.values))
    if named.name == "Boolean":
        return True
    if named.name == "Int":
        return value if isinstance(value, int) else 1
    return str(value)


class TestSameAnswers:
    @pytest.mark.parametrize("who", ["ann", "bob", "stranger"])
    async def test_to_made_up_queries(self, make: Make, both: Both, story: Story, who: str) -> None:
        viewer = await viewer_of(make, story, who)
        oids = list(story.oids.values())
        known = {
            "path": PATHS,
            "rev": ["master", "stable", *oids, oids[0][:8], "nothing"],
            "sha": oids,
            "ref": ["master", "topic"],
            "name": ["master", "unit", "lint"],
            "timezone": ["UTC", "Europe/Helsinki"],
            "username": ["ann", "bob", "Ann", "eve"],
            "databaseId": [1, 2, 3, 5],
            "iid": [1, 2, 3, 9],
        }
        generator = Generator(graphql_schema, known)
        start = {"ann": 0, "bob": 1_000_000, "stranger": 2_000_000}[who]
        for seed in range(start, start + QUERIES):
            text, variables = generator.query(seed)
            document = parse(text)
            assert validate(graphql_schema, document, specified_rules) == [], text
            try:
                await both.compare(document, variables, viewer)
            except AssertionError as error:
                raise AssertionError(f"seed {seed}: {text} {variables}: {error}") from error
        assert both.planned > QUERIES / 10
        assert both.left

    @pytest.mark.parametrize("who", ["ann", "stranger"])
    async def test_to_the_queries_of_v3(self, make: Make, both: Both, story: Story, who: str) -> None:
        viewer = await viewer_of(make, story, who)
        ids = {
            "merge_request_id": story.merge_requests[3].id,
            "build_id": story.builds["m3", "unit"].id,
            "sha": story.oids["m3"],
            "first": 20,
            "offset": 0,
        }
        for name in sorted(operations().names):
            operation = operations().get(name).prepared
            if operation.kind != "query":
                continue
            (definition,) = [node for node in operation.document.definitions if isinstance(node, OperationDefinitionNode)]
            own: dict[str, Any] = {**ids, "id": "acme" if "group(" in print_ast(definition) else "acme/web"}
            given = {
                each.variable.name.value: made_up(own.get(each.variable.name.value, 1), type_from_ast(graphql_schema, each.type))
                for each in definition.variable_definitions or ()
                if isinstance(each.type, NonNullTypeNode)
            }
            try:
                await both.compare(operation.document, given, viewer)
            except AssertionError as error:
                raise AssertionError(f"{name} {given}: {error}") from error
        assert both.planned >= (20 if who == "ann" else 5)

    async def test_to_the_dashboard_questions(self, both: Both, story: Story) -> None:
        variables: dict[str, Any] = {
            "g": "acme", "p": "acme/web", "b": "stable", "since": "2016-03-19T00:00:00Z", "rev": story.oids["m3"], "m": "1.0",
            "r": {"since": "2016-03-21T00:00:00Z", "until": "2016-03-28T00:00:00Z"},
        }  # fmt: skip
        document = parse((Path(package.__file__).parent / "documents" / "dashboards.graphql").read_text())
        for node in document.definitions:
            assert isinstance(node, OperationDefinitionNode) and node.name
            if node.operation.value == "query" and node.name.value != "D07_Backlog":
                names = {each.variable.name.value for each in node.variable_definitions or ()}
                await both.compare(DocumentNode(definitions=(node,)), {key: variables[key] for key in names}, story.ann)
        assert both.planned == 11


LISTS = {
    "Issue": "issues {{ nodes {{ {} }} }}",
    "MergeRequest": "mergeRequests {{ nodes {{ {} }} }}",
    "Build": "builds {{ nodes {{ {} }} }}",
    "User": "mergeRequests {{ nodes {{ author {{ {} }} }} }}",
}
"""Where rows of a type are read by a plan's own statement."""


class TestComputedFields:
    async def test_look_at_no_other_columns_than_they_say(self, both: Both, story: Story) -> None:
        asked = 0
        for kind in graphql_schema.type_map.values():
            fields = getattr(kind, "fields", {}).items() if is_filled(kind) else ()
            for name, field in fields:
                if "needs" not in field.extensions[GraphQLCoreConverter.DEFINITION_BACKREF].metadata:
                    continue
                selected = f"{name} {{ __typename }}" if not is_leaf_type(get_named_type(field.type)) else name
                query = f'{{ project(path: "acme/web") {{ {LISTS[kind.name].format(selected)} }} }}'
                await both.compare(parse(query), {}, story.ann)
                asked += 1
        assert both.planned == asked > 10

    async def test_a_page_of_which_nothing_is_wanted(self, both: Both, story: Story) -> None:
        query = 'query ($no: Boolean!) { project(path: "acme/web") { issues { nodes @include(if: $no) { title } } } }'
        await both.compare(parse(query), {"no": False}, story.ann)
        await both.compare(parse('{ project(path: "acme/web") { issues { edges { __typename } } } }'), {}, story.ann)
        assert both.planned == 2


class TestThroughTheGraph:
    LIST = "query ($path: String!) { project(path: $path) { issues { totalCount nodes { iid title author { username } labels } } } }"

    async def test_with_and_without_plans(self, services: Services, make: Make, story: Story, statements: Statements) -> None:
        planned, plain = Ask(Graph(services)), Ask(Graph(services, planner=False))
        counts = []
        for ask in (planned, planned, planned, plain):
            with statements.counted() as seen:
                data = await ask.data(self.LIST, story.ann, path="acme/web")
            counts.append(len(seen))
            assert [row["title"] for row in data["project"]["issues"]["nodes"]] == ["Words are slow", "Numbers are not read"]
        assert counts[0] == counts[1] == counts[2] < counts[3]

    async def test_what_goes_wrong_is_told_the_same(self, services: Services, story: Story) -> None:
        planned, plain = Ask(Graph(services)), Ask(Graph(services, planner=False))
        for query, variables in [
            (self.LIST, {"path": "acme/none"}),
            (self.LIST, {"path": None}),
            ("{ project(path: \"acme/web\") { a: issues(first: 2) { totalCount } b: issues(after: \"x\") { totalCount } } }", {}),
            ("{ a: project(path: \"acme/web\") { name } b: project(path: \"acme/none\") { name } }", {}),
            ("{ user(username: \"ann\") { email } settings { signupEnabled } }", {}),
        ]:  # fmt: skip
            answers = [await ask(query, story.bob, **variables) for ask in (planned, planned, planned, plain)]
            assert answers[-1].errors
            # What each call cost differs with the time at which it was made.
            assert all((answer.data, answer.errors) == (answers[-1].data, answers[-1].errors) for answer in answers)


class TestWhatIsPlanned:
    async def prepared(self, graph: Graph, text: str) -> Any:
        found = graph._texts.find(text, None)
        assert not isinstance(found, list), found
        return found.prepared

    async def test_a_text_that_is_run_again(self, graph: Graph, ask: Ask, make: Make) -> None:
        viewer, text = await make.user(), "{ viewer { username } }"
        plans = plans_of(await self.prepared(graph, text))
        assert plans is not None
        for run in range(1, OFTEN + 1):
            assert (plans.find({}, sqlite.dialect()) is not None) is (run >= OFTEN)
        assert await ask.data(text, viewer) == {"viewer": {"username": viewer.username}}

    async def test_directives_have_a_plan_for_each_of_their_values(self, graph: Graph, ask: Ask, make: Make) -> None:
        viewer = await make.user()
        text = "query ($a: Boolean!) { viewer { username @include(if: $a) name @skip(if: $a) } }"
        for _ in range(2):
            assert await ask.data(text, viewer, a=True) == {"viewer": {"username": viewer.username}}
            assert await ask.data(text, viewer, a=False) == {"viewer": {"name": viewer.name}}

    async def test_so_many_plans_of_one_operation_and_no_more(self, graph: Graph) -> None:
        flags = [f"v{number}" for number in range(6)]
        text = f"query ({' '.join(f'${flag}: Boolean!' for flag in flags)}) {{ viewer {{ name "
        text += " ".join(f"{flag}: username @include(if: ${flag})" for flag in flags) + " } }"
        plans = plans_of(await self.prepared(graph, text))
        assert plans is not None
        switches = [{flag: bool(number >> place & 1) for place, flag in enumerate(flags)} for number in range(64)]
        found = [plans.find(each, sqlite.dialect()) for each in switches]
        assert sum(each is not None for each in found) == MOST_PLANS

    @pytest.mark.parametrize("text", ["{ __schema { queryType { name } } }", "{ __type(name: \"User\") { name } }"])  # fmt: skip
    async def test_introspection_is_not(self, ask: Ask, make: Make, graph: Graph, text: str) -> None:
        viewer = await make.user()
        answers = [await ask.data(text, viewer) for _ in range(3)]
        assert answers[0] == answers[1] == answers[2]
        document = parse(text)
        (operation,) = document.definitions
        assert isinstance(operation, OperationDefinitionNode)
        with pytest.raises(Unplannable):
            Compiler(graphql_schema, schema.schema_converter, {}, {}, sqlite.dialect()).plan(operation)

    async def test_nor_are_mutations_with_anything_beside(self, graph: Graph) -> None:
        text = 'mutation { __typename signIn(input: {login: "a", password: "b"}) { userErrors { code } } }'
        assert plans_of(await self.prepared(graph, text)) is None
