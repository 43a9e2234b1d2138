"""What is planned, and what is cached of it. That plans answer as graphql-core does is tested in test_oracle.py."""

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
from structlog.testing import capture_logs

from graph.context import Services, StaticSettings
from graph.documents.document_cache import MIN_WEIGHT_CHARACTERS, DocumentCache
from graph.fields.resolvers import is_row_type
from graph.operations.execution import Graph
from graph.planner import cache
from graph.planner.cache import MAX_PLANS_PER_OPERATION, MIN_RUNS_TO_PLAN, plan_cache_of
from graph.planner.compiler import CompileTarget, compile_operation
from graph.planner.errors import Unplannable
from graph.planner.plan import OperationPlan
from graph.schema import graphql_schema, schema
from storage import tables
from tests.make import DataFactory, token_of
from tests.support.api_clients import Ask
from tests.support.database.statements import StatementRecorder, requires_planner
from tests.support.queries.oracle import PlanOracle, prepare_document
from tests.support.week_fixture import NOW, WeekData, create_week


@pytest.fixture
async def week(make: DataFactory, tmp_path: Path) -> WeekData:
    return await create_week(make, tmp_path / "story.git")


@pytest.fixture
def oracle(services: Services) -> PlanOracle:
    return PlanOracle(replace(services, clock=lambda: NOW))


FIXED = StaticSettings("https://forge.example", shows_avatars=False, ssh_prefix="git@forge.example:")

LISTS = {
    "Issue": "issues {{ nodes {{ {} }} }}",
    "MergeRequest": "mergeRequests {{ nodes {{ {} }} }}",
    "Build": "builds {{ nodes {{ {} }} }}",
    "User": "mergeRequests {{ nodes {{ author {{ {} }} }} }}",
    "Commit": "mergeRequests {{ nodes {{ headCommit {{ {} }} }} }}",
    "CommitComment": "mergeRequests {{ nodes {{ headCommit {{ comments {{ nodes {{ {} }} }} }} }} }}",
    "Milestone": "milestones {{ nodes {{ {} }} }}",
    "Snippet": "snippets {{ nodes {{ {} }} }}",
    "Artifact": "builds {{ nodes {{ artifact {{ {} }} }} }}",
    "GroupMember": "members {{ nodes {{ {} }} }}",
    "Note": "issues {{ nodes {{ notes {{ nodes {{ {} }} }} }} }}",
    "Runner": "runners {{ nodes {{ {} }} }}",
    "ReviewThread": "mergeRequests {{ nodes {{ threads {{ nodes {{ {} }} }} }} }}",
    "Pipeline": "pipelines {{ nodes {{ {} }} }}",
    "Project": "{}",
    "Activity": "activities {{ nodes {{ {} }} }}",
    "DeployKey": "deployKeys {{ nodes {{ {} }} }}",
    "ProjectMember": "members {{ nodes {{ {} }} }}",
    "Release": "tags {{ nodes {{ release {{ {} }} }} }}",
    "Variable": "variables {{ nodes {{ {} }} }}",
    "Trigger": "triggers {{ nodes {{ {} }} }}",
    "AccessToken": "accessTokens {{ nodes {{ {} }} }}",
}
"""Where rows of a type are read by a plan's own statement, below a project or below a root of their own."""
ROOTS = {"GroupMember": 'group(path: "acme")', "AccessToken": "viewer"}


class TestComputedFields:
    async def test_read_only_declared_columns(self, oracle: PlanOracle, week: WeekData, make: DataFactory) -> None:
        await make.access_token(week.ann, tables.TokenScope.READ, tables.TokenScope.GIT)
        requested = 0
        for kind in graphql_schema.type_map.values():
            fields = getattr(kind, "fields", {}).items() if is_row_type(kind) else ()
            for name, field in fields:
                if "needs" not in field.extensions[GraphQLCoreConverter.DEFINITION_BACKREF].metadata:
                    continue
                selected = f"{name} {{ __typename }}" if not is_leaf_type(get_named_type(field.type)) else name
                root = ROOTS.get(kind.name, 'project(path: "acme/web")')
                query = f"{{ {root} {{ {LISTS[kind.name].format(selected)} }} }}"
                await oracle.compare(prepare_document(parse(query)), {}, week.ann)
                requested += 1
        assert oracle.comparison_counts.total() == requested > 10

    async def test_pictures_with_a_service_for_them_and_without(self, services: Services, week: WeekData) -> None:
        images = PlanOracle(replace(services, avatar_url_template="https://images.example/{email_md5}?u={username}&i={id}"))
        people = "nodes { author { avatarUrl webUrl } assignee { avatarUrl } }"
        text = f'{{ project(path: "acme/web") {{ issues {{ {people} }} owner {{ avatarUrl webUrl }} }} viewer {{ avatarUrl }} }}'
        for oracle in (PlanOracle(services), images):
            await oracle.compare(prepare_document(parse(text)), {}, week.ann)
            assert oracle.comparison_counts == {"rows": 1}

    async def test_addresses_are_shown_by_where_a_user_is_met(self, oracle: PlanOracle, week: WeekData) -> None:
        met = "author { email username }"
        notes = f"notes {{ nodes {{ {met} issue {{ {met} }} }} }}"
        lists = f"issues {{ nodes {{ {met} assignee {{ email }} {notes} }} }} mergeRequests {{ nodes {{ {met} assignee {{ email }} }} }}"
        text = f'{{ project(path: "acme/web") {{ {lists} issue(iid: 1) {{ {met} {notes} }} owner {{ email }} }} viewer {{ email }} }}'
        for caller in (week.ann, week.bob):
            await oracle.compare(prepare_document(parse(text)), {}, caller)
        assert oracle.comparison_counts == {"rows": 2}

    async def test_plans_of_one_service_are_not_those_of_another(self, graph: Graph, services: Services, week: WeekData) -> None:
        operation = prepare_document(parse("{ viewer { webUrl avatarUrl } }"))
        here, there = Graph(services), Graph(replace(services, external_url="https://there.example"))
        for requested, start in ((here, services.external_url), (there, "https://there.example"), (here, services.external_url)):
            outcome = await requested.run(operation, {}, token_of(week.ann), request_id="x")
            assert outcome.data == {"viewer": {"webUrl": f"{start}/u/{week.ann.username}", "avatarUrl": None}}

    async def test_one_row_of_each_project(self, oracle: PlanOracle, week: WeekData) -> None:
        one = "issue(iid: 1) { iid title author { username } labels project { id } }"
        await oracle.compare(prepare_document(parse(f'{{ project(path: "acme/web") {{ {one} }} }}')), {}, week.ann)
        await oracle.compare(prepare_document(parse(f"{{ projects {{ nodes {{ name {one} }} }} }}")), {}, week.ann)
        await oracle.compare(prepare_document(parse('{ project(path: "acme/web") { issue(iid: 99) { title } } }')), {}, week.ann)
        await oracle.compare(prepare_document(parse('{ project(path: "acme/web") { issue { title } } }')), {}, week.ann)
        assert oracle.comparison_counts.total() == 4

    @requires_planner
    async def test_pages_in_either_direction_by_all_orders(self, oracle: PlanOracle, week: WeekData) -> None:
        query = """query ($order: IssueOrder) { project(path: "acme/web") {
            issues(first: 3, orderBy: $order) { nodes { title } edges { cursor } } end: issues(last: 3, orderBy: $order) { nodes { iid } }
            milestones(first: 3) { nodes { iid dueDate issues(last: 2, orderBy: $order) { nodes { state } } } } } }"""
        fields = graphql_schema.type_map["IssueOrderField"].values  # type: ignore[attr-defined]
        for name in fields:
            for direction in ("ASC", "DESC"):
                await oracle.compare(prepare_document(parse(query)), {"order": {"field": name, "direction": direction}}, week.ann)
        assert oracle.comparison_counts == {"rows": 2 * len(fields)}

    async def test_a_page_without_selected_rows(self, oracle: PlanOracle, week: WeekData) -> None:
        query = 'query ($no: Boolean!) { project(path: "acme/web") { issues { nodes @include(if: $no) { title } } } }'
        await oracle.compare(prepare_document(parse(query)), {"no": False}, week.ann)
        await oracle.compare(prepare_document(parse('{ project(path: "acme/web") { issues { edges { __typename } } } }')), {}, week.ann)
        assert oracle.comparison_counts.total() == 2


class TestProjectRoot:
    """One statement reads it with the one row that is requested; on PostgreSQL with a page too."""

    ISSUES = """query ($path: String!, $iid: Int) { project(path: $path) { issues(first: 2, offset: $iid) {
        totalCount pageInfo { hasNextPage endCursor } nodes { title author { username } viewerCan { update } project { name } } } } }"""
    ISSUE = "query ($path: String!, $iid: Int) { project(path: $path) { issue(iid: $iid) { title author { webUrl } } } }"

    @requires_planner
    async def test_one_statement(self, ask: Ask, week: WeekData, make: DataFactory, statements: StatementRecorder) -> None:
        chief = await make.user(admin=True)
        for path in ("acme/web", str(week.web.id)):
            for caller in (week.ann, chief):
                await ask.data(self.ISSUE, caller, path=path, iid=1)
                await ask.data(self.ISSUE, caller, path=path, iid=1)
                with statements.assert_at_most(1):
                    await ask.data(self.ISSUE, caller, path=path, iid=1)

    @requires_planner
    async def test_a_page_of_a_list_of_the_project(self, ask: Ask, week: WeekData, statements: StatementRecorder, dialect: str) -> None:
        plain = self.ISSUES.replace("viewerCan { update } ", "")
        for path in ("acme/web", str(week.web.id)):
            await ask.data(plain, week.ann, path=path)
            await ask.data(plain, week.ann, path=path)
            with statements.assert_at_most(1 if dialect == "postgresql" else 2):
                await ask.data(plain, week.ann, path=path)

    async def test_serves_every_selected_field(self, oracle: PlanOracle, week: WeekData) -> None:
        one = "issue(iid: 1) { title viewerCan { update } restPath project { name } }"
        for selected in (one, f"fullPath webUrl {one}", f"{one} issues {{ totalCount }}", f"__typename {one} b: issue(iid: 2) {{ iid }}"):
            await oracle.compare(prepare_document(parse(f'{{ project(path: "acme/web") {{ {selected} }} }}')), {}, week.ann)
        two = f'a: project(path: "acme/web") {{ {one} }} b: project(path: "{week.web.id}") {{ {one} }}'
        await oracle.compare(prepare_document(parse(f"{{ {two} }}")), {}, week.ann)
        assert oracle.comparison_counts.total() == 5

    async def test_not_found_and_forbidden(self, oracle: PlanOracle, week: WeekData, make: DataFactory) -> None:
        hidden = await make.project()
        without = await make.project(owner=week.ann, issues_enabled=False)
        shared = await make.project(visibility=tables.Visibility.PUBLIC, issues_enabled=False)
        for project in (hidden, without, shared):
            await make.issue(project)
        for path in ("acme/none", "no path", "0", "9" * 12, *(str(each.id) for each in (hidden, without, shared, week.web))):
            for number in (1, 999, None):
                await oracle.compare(prepare_document(parse(self.ISSUE)), {"path": path, "iid": number}, week.ann)
                await oracle.compare(prepare_document(parse(self.ISSUES)), {"path": path, "iid": number}, week.ann)
        assert oracle.comparison_counts.total() == 48


class TestPlannedAnswers:
    LIST = "query ($path: String!) { project(path: $path) { issues { totalCount nodes { iid title author { username } labels } } } }"

    async def test_with_and_without_plans(
        self, services: Services, make: DataFactory, week: WeekData, statements: StatementRecorder
    ) -> None:
        planned, plain = Ask(Graph(services, planner=True)), Ask(Graph(services, planner=False))
        counts = []
        for ask in (planned, planned, planned, plain):
            with statements.record() as seen:
                data = await ask.data(self.LIST, week.ann, path="acme/web")
            counts.append(len(seen))
            assert [row["title"] for row in data["project"]["issues"]["nodes"]] == ["Words are slow", "Numbers are not read"]
        assert counts[1] == counts[2] < counts[3]

    async def test_errors_are_identical(self, services: Services, week: WeekData) -> None:
        planned, plain = Ask(Graph(services, planner=True)), Ask(Graph(services, planner=False))
        requested: list[tuple[str, dict[str, Any]]] = [
            (self.LIST, {"path": "acme/none"}),
            (self.LIST, {"path": None}),
            ("{ project(path: \"acme/web\") { a: issues(first: 2) { totalCount } b: issues(after: \"x\") { totalCount } } }", {}),
            ("{ a: project(path: \"acme/web\") { name } b: project(path: \"acme/none\") { name } }", {}),
            ("{ user(username: \"ann\") { email } settings { signupEnabled } }", {}),
        ]  # fmt: skip
        for query, variables in requested:
            answers = [await ask(query, week.bob, **variables) for ask in (planned, planned, planned, plain)]
            assert answers[-1].errors
            # What each call cost differs with the time at which it was made.
            assert all((answer.data, answer.errors) == (answers[-1].data, answers[-1].errors) for answer in answers)


class TestGarbage:
    """It would stop the server now and then, and all that it does. What waits for it takes memory that the caches of a core have not."""

    QUERY = "query ($path: String!, $iid: Int!) { project(path: $path) { issue(iid: $iid) { title author { webUrl } } } }"
    ISSUE = """mutation ($path: String!) { createIssue(input: {projectPath: $path, title: "New"}) {
      issue { iid labels milestone { title } author { username } } } }"""
    NOTE = """mutation ($path: String!, $iid: Int!) { createNote(input: {projectPath: $path, issueIid: $iid, body: "Yes"}) {
      note { body author { username } } } }"""

    @requires_planner
    @pytest.mark.parametrize("text", [QUERY, ISSUE, NOTE], ids=["query", "issue", "note"])
    async def test_no_work_for_the_garbage_collector(self, graph: Graph, make: DataFactory, text: str) -> None:
        project = await make.project(owner=(owner := await make.user()))
        issue = await make.issue(project)
        operation = prepare_document(parse(text))

        async def run() -> None:
            variables = {"path": str(project.id), "iid": issue.iid}
            assert (await graph.run(operation, variables, token_of(owner), request_id="x")).data

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


class TestPlanCache:
    async def prepared(self, graph: Graph, text: str) -> Any:
        found = graph._documents.find(text, None) or await graph._documents.parse(text, None)
        assert not isinstance(found, list), found
        return found.prepared

    async def test_a_text_that_is_run_again(self, graph: Graph, ask: Ask, make: DataFactory, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(cache, "MIN_RUNS_TO_PLAN", 3)
        # Texts of other tests are remembered.
        viewer, text = await make.user(), f"query {graph.services.database.dialect} {{ viewer {{ username }} }}"
        plans = plan_cache_of(await self.prepared(graph, text))
        assert plans is not None
        assert [plans.find({}, sqlite.dialect(), FIXED) is not None for _ in range(4)] == [False, False, True, True]
        assert await ask.data(text, viewer) == {"viewer": {"username": viewer.username}}

    async def test_an_error_of_the_compiler_is_logged_and_fails_only_in_tests(self, graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
        def compile_with_stale_keyword(*_: Any) -> Any:
            raise TypeError("unexpected keyword argument")

        monkeypatch.setattr(cache.PlanCache, "compile", compile_with_stale_keyword)
        plans = plan_cache_of(await self.prepared(graph, f"query {graph.services.database.dialect} {{ viewer {{ broken: username }} }}"))
        assert plans is not None
        with pytest.raises(TypeError, match="unexpected keyword"):
            for _ in range(MIN_RUNS_TO_PLAN):
                plans.find({}, sqlite.dialect(), FIXED)
        monkeypatch.setattr(cache, "log_compile_error", cache.log_compile_error.__wrapped__)  # type: ignore[attr-defined]
        with capture_logs() as logs:
            assert [plans.find({}, sqlite.dialect(), FIXED) for _ in range(2)] == [None, None]
        assert [(each["event"], each["log_level"]) for each in logs] == [("plan compilation failed", "error")]

    async def test_an_operation_with_a_wrong_constant_is_left_to_graphql_core(self) -> None:
        """Neither is an error of the compiler: nothing is logged, nothing raised."""
        for text in ("query ($state: IssueState = GONE) { viewer { username } }", "{ user(username: 7) { id } }"):
            (operation,) = parse(text).definitions
            plans = cache.PlanCache(prepare_document(parse(text)), operation)  # type: ignore[arg-type]
            assert [plans.find({}, sqlite.dialect(), FIXED) for _ in range(MIN_RUNS_TO_PLAN + 1)][-1] is None

    async def test_the_cache_is_bounded(self, graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(cache._TEXT_PLAN_SIZES, "_max_entries", 2)
        texts = [f"query {graph.services.database.dialect} {{ viewer {{ a{number}: username }} }}" for number in range(4)]
        stored = []
        for text in texts:
            plans = plan_cache_of(await self.prepared(graph, text))
            assert plans is not None
            stored.append(plans)
            for _ in range(MIN_RUNS_TO_PLAN):
                plans.find({}, sqlite.dialect(), FIXED)
        assert [len(plans._plans) for plans in stored] == [0, 0, 1, 1]

    async def test_directives_have_a_plan_for_each_of_their_values(self, graph: Graph, ask: Ask, make: DataFactory) -> None:
        viewer = await make.user()
        text = "query ($a: Boolean!) { viewer { username @include(if: $a) name @skip(if: $a) } }"
        for _ in range(2):
            assert await ask.data(text, viewer, a=True) == {"viewer": {"username": viewer.username}}
            assert await ask.data(text, viewer, a=False) == {"viewer": {"name": viewer.name}}

    async def test_null_in_a_directive_is_an_error_in_each_run(self, ask: Ask, make: DataFactory) -> None:
        viewer = await make.user()
        text = "query ($a: Boolean = true) { viewer { username name @include(if: $a) } }"
        answers = [await ask(text, viewer, a=None) for _ in range(3)]
        assert [[error.path for error in answer.errors] for answer in answers] == [[["viewer"]]] * 3

    async def test_plans_of_one_operation_are_bounded(self, graph: Graph) -> None:
        flags = [f"v{number}" for number in range(6)]
        text = f"query ({' '.join(f'${flag}: Boolean!' for flag in flags)}) {{ viewer {{ name "
        text += " ".join(f"{flag}: username @include(if: ${flag})" for flag in flags) + " } }"
        plans = plan_cache_of(await self.prepared(graph, text))
        assert plans is not None
        switches = [{flag: bool(number >> index & 1) for index, flag in enumerate(flags)} for number in range(64)]
        found = [plans.find(each, sqlite.dialect(), FIXED) for each in switches]
        assert sum(each is not None for each in found) == MAX_PLANS_PER_OPERATION

    @pytest.mark.parametrize("text", ["{ __schema { queryType { name } } }", "{ __type(name: \"User\") { name } }"])  # fmt: skip
    async def test_introspection_is_not_planned(self, ask: Ask, make: DataFactory, graph: Graph, text: str) -> None:
        viewer = await make.user()
        answers = [await ask.data(text, viewer) for _ in range(3)]
        assert answers[0] == answers[1] == answers[2]
        document = parse(text)
        (operation,) = document.definitions
        assert isinstance(operation, OperationDefinitionNode)
        with pytest.raises(Unplannable):
            compile_operation(operation, {}, {}, CompileTarget(graphql_schema, schema.schema_converter, sqlite.dialect(), FIXED))

    async def test_multi_field_mutations_are_not_planned(self, graph: Graph) -> None:
        text = 'mutation { __typename signIn(input: {login: "a", password: "b"}) { userErrors { code } } }'
        assert plan_cache_of(await self.prepared(graph, text)) is None


class TestManyDocuments:
    async def test_plans_and_generated_code_are_freed(self, services: Services, week: WeekData) -> None:
        graph = Graph(services, planner=True)
        graph._documents._cache = DocumentCache(in_use=3 * MIN_WEIGHT_CHARACTERS, new=3 * MIN_WEIGHT_CHARACTERS)
        token = token_of(week.ann)

        async def ask(number: int) -> None:
            issues = (
                f"a{number}: issues(first: {number % 9 + 1}) {{ nodes {{ b{number}: title labels author {{ c{number}: username }} }} }}"
            )
            text = f'query Many{number} {{ project(path: "acme/web") {{ {issues} }} }}'
            for _ in range(MIN_RUNS_TO_PLAN):
                outcome = await graph.run_document(text, {}, None, token, request_id="test")
                assert outcome.errors == []

        def count_objects() -> tuple[int, int, int]:
            gc.collect()
            # The statements of a plan's pages go after it.
            gc.collect()
            everything = gc.get_objects()
            plans = sum(isinstance(each, OperationPlan) for each in everything)
            code = sum(isinstance(each, FunctionType) and each.__code__.co_filename == "<generated>" for each in everything)
            return plans, code, len(services.database.statement_cache._selects)

        for number in range(9):
            await ask(number)
        before = count_objects()
        for number in range(9, 60):
            await ask(number)
        assert count_objects() == before

    @requires_planner
    async def test_a_plan_releases_its_inputs(self, services: Services, week: WeekData) -> None:
        graph, token = Graph(services, planner=True), token_of(week.ann)

        async def run(number: int) -> None:
            rows = f"issues(first: 3) {{ nodes {{ b{number}: title labels author {{ username avatarUrl }} }} }}"
            operation = prepare_document(parse(f'{{ project(path: "acme/web") {{ name {rows} }} }}', no_location=True))
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
