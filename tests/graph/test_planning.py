"""What is planned, and what is kept of it. That plans answer as graphql-core does is proved in test_oracle.py."""

import gc
import tracemalloc
from dataclasses import replace
from pathlib import Path
from types import FunctionType
from typing import Any

import pytest
from graphql import (
    OperationDefinitionNode,
    get_named_type,
    is_leaf_type,
    parse,
)
from sqlalchemy.dialects import sqlite
from strawberry.schema.schema_converter import GraphQLCoreConverter

from graph.context import Fixed, Services
from graph.execute import Graph
from graph.installing import is_filled
from graph.planning import keeping
from graph.planning.compiling import Compiler, Plan, Unplannable
from graph.planning.keeping import MOST_PLANS, OFTEN, plans_of
from graph.remembering import LEAST, Remembered
from graph.schema import graphql_schema, schema
from storage import tables
from tests.compared import Oracle, prepared
from tests.forge import Ask
from tests.make import Make, token_of
from tests.statements import Statements, planned
from tests.story import NOW, Story, tell


@pytest.fixture
async def story(make: Make, tmp_path: Path) -> Story:
    return await tell(make, tmp_path / "story.git")


@pytest.fixture
def oracle(services: Services) -> Oracle:
    return Oracle(replace(services, clock=lambda: NOW))


FIXED = Fixed("https://forge.example", shows_avatars=False)

LISTS = {
    "Issue": "issues {{ nodes {{ {} }} }}",
    "MergeRequest": "mergeRequests {{ nodes {{ {} }} }}",
    "Build": "builds {{ nodes {{ {} }} }}",
    "User": "mergeRequests {{ nodes {{ author {{ {} }} }} }}",
    "Commit": "mergeRequests {{ nodes {{ headCommit {{ {} }} }} }}",
    "Milestone": "milestones {{ nodes {{ {} }} }}",
    "Snippet": "snippets {{ nodes {{ {} }} }}",
    "Artifact": "builds {{ nodes {{ artifact {{ {} }} }} }}",
    "GroupMember": "members {{ nodes {{ {} }} }}",
    "Note": "issues {{ nodes {{ notes {{ nodes {{ {} }} }} }} }}",
}
"""Where rows of a type are read by a plan's own statement, below a project or below a root of their own."""
ROOTS = {"GroupMember": 'group(path: "acme")'}


class TestComputedFields:
    async def test_look_at_no_other_columns_than_they_say(self, oracle: Oracle, story: Story) -> None:
        asked = 0
        for kind in graphql_schema.type_map.values():
            fields = getattr(kind, "fields", {}).items() if is_filled(kind) else ()
            for name, field in fields:
                if "needs" not in field.extensions[GraphQLCoreConverter.DEFINITION_BACKREF].metadata:
                    continue
                selected = f"{name} {{ __typename }}" if not is_leaf_type(get_named_type(field.type)) else name
                root = ROOTS.get(kind.name, 'project(path: "acme/web")')
                query = f"{{ {root} {{ {LISTS[kind.name].format(selected)} }} }}"
                await oracle.compare(prepared(parse(query)), {}, story.ann)
                asked += 1
        assert oracle.compared.total() == asked > 10

    async def test_pictures_with_a_service_for_them_and_without(self, services: Services, story: Story) -> None:
        pictures = Oracle(replace(services, avatar_url_template="https://pictures.example/{email_md5}?u={username}&i={id}"))
        people = "nodes { author { avatarUrl webUrl } assignee { avatarUrl } }"
        text = f'{{ project(path: "acme/web") {{ issues {{ {people} }} owner {{ avatarUrl webUrl }} }} viewer {{ avatarUrl }} }}'
        for oracle in (Oracle(services), pictures):
            await oracle.compare(prepared(parse(text)), {}, story.ann)
            assert oracle.compared == {"rows": 1}

    async def test_addresses_are_shown_by_where_a_user_is_met(self, oracle: Oracle, story: Story) -> None:
        met = "author { email username }"
        notes = f"notes {{ nodes {{ {met} issue {{ {met} }} }} }}"
        lists = f"issues {{ nodes {{ {met} assignee {{ email }} {notes} }} }} mergeRequests {{ nodes {{ {met} assignee {{ email }} }} }}"
        text = f'{{ project(path: "acme/web") {{ {lists} issue(iid: 1) {{ {met} {notes} }} owner {{ email }} }} viewer {{ email }} }}'
        for caller in (story.ann, story.bob):
            await oracle.compare(prepared(parse(text)), {}, caller)
        assert oracle.compared == {"rows": 2}

    async def test_plans_of_one_service_are_not_those_of_another(self, graph: Graph, services: Services, story: Story) -> None:
        operation = prepared(parse("{ viewer { webUrl avatarUrl } }"))
        here, there = Graph(services), Graph(replace(services, external_url="https://there.example"))
        for asked, start in ((here, services.external_url), (there, "https://there.example"), (here, services.external_url)):
            outcome = await asked.run(operation, {}, token_of(story.ann), request_id="x")
            assert outcome.data == {"viewer": {"webUrl": f"{start}/u/{story.ann.username}", "avatarUrl": None}}

    async def test_one_row_of_each_project(self, oracle: Oracle, story: Story) -> None:
        one = "issue(iid: 1) { iid title author { username } labels project { id } }"
        await oracle.compare(prepared(parse(f'{{ project(path: "acme/web") {{ {one} }} }}')), {}, story.ann)
        await oracle.compare(prepared(parse(f"{{ projects {{ nodes {{ name {one} }} }} }}")), {}, story.ann)
        await oracle.compare(prepared(parse('{ project(path: "acme/web") { issue(iid: 99) { title } } }')), {}, story.ann)
        await oracle.compare(prepared(parse('{ project(path: "acme/web") { issue { title } } }')), {}, story.ann)
        assert oracle.compared.total() == 4

    @planned
    async def test_pages_in_either_direction_by_all_orders(self, oracle: Oracle, story: Story) -> None:
        query = """query ($order: IssueOrder) { project(path: "acme/web") {
            issues(first: 3, orderBy: $order) { nodes { title } edges { cursor } } end: issues(last: 3, orderBy: $order) { nodes { iid } }
            milestones(first: 3) { nodes { iid dueDate issues(last: 2, orderBy: $order) { nodes { state } } } } } }"""
        fields = graphql_schema.type_map["IssueOrderField"].values  # type: ignore[attr-defined]
        for name in fields:
            for direction in ("ASC", "DESC"):
                await oracle.compare(prepared(parse(query)), {"order": {"field": name, "direction": direction}}, story.ann)
        assert oracle.compared == {"rows": 2 * len(fields)}

    async def test_a_page_of_which_nothing_is_wanted(self, oracle: Oracle, story: Story) -> None:
        query = 'query ($no: Boolean!) { project(path: "acme/web") { issues { nodes @include(if: $no) { title } } } }'
        await oracle.compare(prepared(parse(query)), {"no": False}, story.ann)
        await oracle.compare(prepared(parse('{ project(path: "acme/web") { issues { edges { __typename } } } }')), {}, story.ann)
        assert oracle.compared.total() == 2


class TestTheProjectThatIsEntered:
    """It comes with the one row of it that is asked for, by one statement; on PostgreSQL with a page too."""

    ISSUES = """query ($path: String!, $iid: Int) { project(path: $path) { issues(first: 2, offset: $iid) {
        totalCount pageInfo { hasNextPage endCursor } nodes { title author { username } viewerCan { update } project { name } } } } }"""
    ISSUE = "query ($path: String!, $iid: Int) { project(path: $path) { issue(iid: $iid) { title author { webUrl } } } }"

    @planned
    async def test_one_statement(self, ask: Ask, story: Story, make: Make, statements: Statements) -> None:
        chief = await make.user(admin=True)
        for path in ("acme/web", str(story.web.id)):
            for caller in (story.ann, chief):
                await ask.data(self.ISSUE, caller, path=path, iid=1)
                await ask.data(self.ISSUE, caller, path=path, iid=1)
                with statements.at_most(1):
                    await ask.data(self.ISSUE, caller, path=path, iid=1)

    @planned
    async def test_a_page_of_it(self, ask: Ask, story: Story, statements: Statements, dialect: str) -> None:
        plain = self.ISSUES.replace("viewerCan { update } ", "")
        for path in ("acme/web", str(story.web.id)):
            await ask.data(plain, story.ann, path=path)
            await ask.data(plain, story.ann, path=path)
            with statements.at_most(1 if dialect == "postgresql" else 2):
                await ask.data(plain, story.ann, path=path)

    async def test_is_there_for_all_that_is_selected_of_it(self, oracle: Oracle, story: Story) -> None:
        one = "issue(iid: 1) { title viewerCan { update } restPath project { name } }"
        for selected in (one, f"fullPath webUrl {one}", f"{one} issues {{ totalCount }}", f"__typename {one} b: issue(iid: 2) {{ iid }}"):
            await oracle.compare(prepared(parse(f'{{ project(path: "acme/web") {{ {selected} }} }}')), {}, story.ann)
        two = f'a: project(path: "acme/web") {{ {one} }} b: project(path: "{story.web.id}") {{ {one} }}'
        await oracle.compare(prepared(parse(f"{{ {two} }}")), {}, story.ann)
        assert oracle.compared.total() == 5

    async def test_what_is_not_found_or_not_allowed(self, oracle: Oracle, story: Story, make: Make) -> None:
        hidden = await make.project()
        without = await make.project(owner=story.ann, issues_enabled=False)
        shared = await make.project(visibility=tables.Visibility.PUBLIC, issues_enabled=False)
        for project in (hidden, without, shared):
            await make.issue(project)
        for path in ("acme/none", "no path", "0", "9" * 12, *(str(each.id) for each in (hidden, without, shared, story.web))):
            for number in (1, 999, None):
                await oracle.compare(prepared(parse(self.ISSUE)), {"path": path, "iid": number}, story.ann)
                await oracle.compare(prepared(parse(self.ISSUES)), {"path": path, "iid": number}, story.ann)
        assert oracle.compared.total() == 48


class TestThroughTheGraph:
    LIST = "query ($path: String!) { project(path: $path) { issues { totalCount nodes { iid title author { username } labels } } } }"

    async def test_with_and_without_plans(self, services: Services, make: Make, story: Story, statements: Statements) -> None:
        planned, plain = Ask(Graph(services, planner=True)), Ask(Graph(services, planner=False))
        counts = []
        for ask in (planned, planned, planned, plain):
            with statements.counted() as seen:
                data = await ask.data(self.LIST, story.ann, path="acme/web")
            counts.append(len(seen))
            assert [row["title"] for row in data["project"]["issues"]["nodes"]] == ["Words are slow", "Numbers are not read"]
        assert counts[1] == counts[2] < counts[3]

    async def test_what_goes_wrong_is_told_the_same(self, services: Services, story: Story) -> None:
        planned, plain = Ask(Graph(services, planner=True)), Ask(Graph(services, planner=False))
        asked: list[tuple[str, dict[str, Any]]] = [
            (self.LIST, {"path": "acme/none"}),
            (self.LIST, {"path": None}),
            ("{ project(path: \"acme/web\") { a: issues(first: 2) { totalCount } b: issues(after: \"x\") { totalCount } } }", {}),
            ("{ a: project(path: \"acme/web\") { name } b: project(path: \"acme/none\") { name } }", {}),
            ("{ user(username: \"ann\") { email } settings { signupEnabled } }", {}),
        ]  # fmt: skip
        for query, variables in asked:
            answers = [await ask(query, story.bob, **variables) for ask in (planned, planned, planned, plain)]
            assert answers[-1].errors
            # What each call cost differs with the time at which it was made.
            assert all((answer.data, answer.errors) == (answers[-1].data, answers[-1].errors) for answer in answers)


class TestWhatAnOperationLeaves:
    @planned
    async def test_no_work_for_the_garbage_collector(self, graph: Graph, make: Make) -> None:
        """It would stop the server now and then, and all that it does."""
        project = await make.project(owner=(owner := await make.user()))
        issue = await make.issue(project)
        operation = prepared(
            parse("query ($path: String!, $iid: Int!) { project(path: $path) { issue(iid: $iid) { title author { webUrl } } } }")
        )

        async def run() -> None:
            given = {"path": str(project.id), "iid": issue.iid}
            assert (await graph.run(operation, given, token_of(owner), request_id="x")).data

        await run()
        await run()
        gc.collect()
        gc.disable()
        try:
            for _ in range(3):
                await run()
            assert gc.collect() == 0
        finally:
            gc.enable()


class TestWhatIsPlanned:
    async def prepared(self, graph: Graph, text: str) -> Any:
        found = graph._texts.known(text, None) or await graph._texts.read(text, None)
        assert not isinstance(found, list), found
        return found.prepared

    async def test_a_text_that_is_run_again(self, graph: Graph, ask: Ask, make: Make) -> None:
        # Texts of other tests are remembered.
        viewer, text = await make.user(), f"query {graph.services.database.dialect} {{ viewer {{ username }} }}"
        plans = plans_of(await self.prepared(graph, text))
        assert plans is not None
        for run in range(1, OFTEN + 1):
            assert (plans.find({}, sqlite.dialect(), FIXED) is not None) is (run >= OFTEN)
        assert OFTEN > 1
        assert await ask.data(text, viewer) == {"viewer": {"username": viewer.username}}

    async def test_not_more_texts_than_have_room(self, graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(keeping._PLANS, "_max_entries", 2)
        texts = [f"query {graph.services.database.dialect} {{ viewer {{ a{number}: username }} }}" for number in range(4)]
        kept = []
        for text in texts:
            plans = plans_of(await self.prepared(graph, text))
            assert plans is not None
            kept.append(plans)
            for _ in range(OFTEN):
                plans.find({}, sqlite.dialect(), FIXED)
        assert [len(plans._made) for plans in kept] == [0, 0, 1, 1]

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
        found = [plans.find(each, sqlite.dialect(), FIXED) for each in switches]
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
            Compiler(graphql_schema, schema.schema_converter, {}, {}, sqlite.dialect(), FIXED).plan(operation)

    async def test_nor_are_mutations_with_anything_beside(self, graph: Graph) -> None:
        text = 'mutation { __typename signIn(input: {login: "a", password: "b"}) { userErrors { code } } }'
        assert plans_of(await self.prepared(graph, text)) is None


class TestManyTexts:
    async def test_leave_no_plans_behind_and_no_generated_code(self, services: Services, story: Story) -> None:
        graph = Graph(services, planner=True)
        graph._texts._read = Remembered(in_use=3 * LEAST, new=3 * LEAST)
        token = token_of(story.ann)

        async def ask(number: int) -> None:
            issues = (
                f"a{number}: issues(first: {number % 9 + 1}) {{ nodes {{ b{number}: title labels author {{ c{number}: username }} }} }}"
            )
            text = f'query Many{number} {{ project(path: "acme/web") {{ {issues} }} }}'
            for _ in range(OFTEN):
                outcome = await graph.run_text(text, {}, None, token, request_id="test")
                assert outcome.errors == []

        def kept() -> tuple[int, int, int]:
            gc.collect()
            # The statements of a plan's pages go after it.
            gc.collect()
            everything = gc.get_objects()
            plans = sum(isinstance(each, Plan) for each in everything)
            code = sum(isinstance(each, FunctionType) and each.__code__.co_filename in ("<plan>", "<shape>") for each in everything)
            return plans, code, len(services.database.plans._kept)

        for number in range(9):
            await ask(number)
        before = kept()
        for number in range(9, 60):
            await ask(number)
        assert kept() == before

    @planned
    async def test_a_plan_keeps_little_of_what_it_was_made_of(self, services: Services, story: Story) -> None:
        graph, token = Graph(services, planner=True), token_of(story.ann)

        async def run(number: int) -> None:
            rows = f"issues(first: 3) {{ nodes {{ b{number}: title labels author {{ username avatarUrl }} }} }}"
            operation = prepared(parse(f'{{ project(path: "acme/web") {{ name {rows} }} }}', no_location=True))
            operations.append(operation)
            assert (await graph.run(operation, {}, token, request_id="x")).errors == []

        operations: list[Any] = []
        for number in range(3):
            await run(number)
        gc.collect()
        tracemalloc.start()
        try:
            for number in range(10):
                await run(number)
            gc.collect()
            taken, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert taken / 10 < 60 * 1024, f"{taken / 10 / 1024:.0f} KiB"
