"""Limits of the text that one operation reads and of its answer, with and without a plan."""

import tracemalloc
from typing import Any

import orjson
import pytest
from sqlalchemy import text

from graph.context import Services
from graph.errors import Code
from graph.http.json_pieces import dump_json
from graph.operations import execution
from graph.operations.answer_size import MAX_SHORT_VALUE_BYTES, PUNCTUATION_BYTES, FieldRepetition, measure_json
from graph.operations.execution import Graph
from graph.operations.limits import MAX_ANSWER_BYTES, parse
from graph.operations.results import ANSWER_TOO_LARGE_MESSAGE, OperationResult
from graph.operations.time_slices import SliceScheduler
from graph.schema import graphql_schema
from storage import tables
from tests.make import DataFactory
from tests.support.api_clients import Api, Ask
from tests.support.git.git_history import commit_to_branch
from tests.support.git.repositories import take_over
from tests.support.measuring.loop_lag import measure_loop_lag

MIB = 2**20
ISSUES = "query ($path: String!, $first: Int!) { project(path: $path) { issues(first: $first) { nodes { title description } } } }"
ALIASES = " ".join(f"a{number}: project(path: $path) {{ issues(first: 100) {{ nodes {{ description }} }} }}" for number in range(10))
ALIASES = f"query ($path: String!) {{ {ALIASES} }}"


class AskTwice(Ask):
    """Runs each query twice, because a document is planned at its second run."""

    async def __call__(self, query: str, viewer: tables.User | None = None, **variables: Any) -> OperationResult:
        if query.startswith("mutation"):
            return await super().__call__(query, viewer, **variables)
        first, second = [await super(AskTwice, self).__call__(query, viewer, **variables) for _ in range(2)]
        assert first.data == second.data
        return second


@pytest.fixture(params=["planned", "unplanned"])
def ask(request: pytest.FixtureRequest, services: Services) -> Ask:
    is_planned = request.param == "planned"
    return (AskTwice if is_planned else Ask)(Graph(services, planner=is_planned))


async def project_with_descriptions(
    make: DataFactory, count: int, size: int = MIB, letter: str = "a"
) -> tuple[tables.Project, tables.User]:
    """A project with `count` issues whose descriptions have `size` characters each."""
    project = await make.project(owner=(owner := await make.user()))
    first = await make.issue(project, description=letter * size)
    iids = range(first.iid + 1, first.iid + count)
    await make.save(*(tables.Issue(project_id=project.id, author_id=owner.id, iid=iid, title=f"Issue {iid}") for iid in iids))
    async with make.services.database.write_session() as session:
        # PostgreSQL copies the compressed text; it would compress each that it is sent.
        await session.execute(text("UPDATE issues SET description = (SELECT description FROM issues WHERE id = :id)"), {"id": first.id})
        last = {"project_id": project.id, "iid": first.iid + count - 1}
        await session.execute(text("UPDATE counters SET value = :iid WHERE project_id = :project_id AND kind = 'issue'"), last)
        await session.commit()
    return project, owner


def is_rejected(result: OperationResult) -> bool:
    return result.data is None and [(each.code, each.message, each.path) for each in result.errors] == [
        (Code.LIMIT_EXCEEDED, ANSWER_TOO_LARGE_MESSAGE, None)
    ]


class TestTextBudget:
    async def test_an_operation_that_reads_too_much_text_is_rejected(self, ask: Ask, make: DataFactory) -> None:
        project, owner = await project_with_descriptions(make, 20)

        result = await ask(ISSUES, owner, path=str(project.id), first=20)

        assert is_rejected(result)

    async def test_text_up_to_the_limit_is_answered(self, ask: Ask, make: DataFactory) -> None:
        project, owner = await project_with_descriptions(make, 20)

        data = await ask.data(ISSUES, owner, path=str(project.id), first=14)

        assert [len(issue["description"]) for issue in data["project"]["issues"]["nodes"]] == [MIB] * 14

    async def test_text_that_is_not_selected_is_not_read(self, ask: Ask, make: DataFactory) -> None:
        project, owner = await project_with_descriptions(make, 20)
        query = "query ($path: String!) { project(path: $path) { issues(first: 100) { totalCount nodes { title } } } }"

        if not ask.graph.planner:
            pytest.skip("graphql-core reads whole rows")
        assert (await ask.data(query, owner, path=str(project.id)))["project"]["issues"]["totalCount"] == 20

    async def test_memory_use_stays_near_the_limit(self, ask: Ask, make: DataFactory) -> None:
        project, owner = await project_with_descriptions(make, 100)
        assert is_rejected(await ask(ALIASES, owner, path=str(project.id)))

        tracemalloc.start()
        try:
            assert is_rejected(await ask(ALIASES, owner, path=str(project.id)))
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

        assert peak < 4 * MAX_ANSWER_BYTES

    async def test_the_lists_of_an_operation_share_one_budget(self, ask: Ask, make: DataFactory) -> None:
        project, owner = await project_with_descriptions(make, 4)

        assert is_rejected(await ask(ALIASES, owner, path=str(project.id)))

    async def test_answer_size_is_measured_in_bytes(self, ask: Ask, make: DataFactory) -> None:
        project, owner = await project_with_descriptions(make, 12, size=MIB // 4 * 3, letter="ж")

        assert is_rejected(await ask(ISSUES, owner, path=str(project.id), first=12))

    async def test_connections_remain_usable_after_a_rejection(self, ask: Ask, make: DataFactory) -> None:
        project, owner = await project_with_descriptions(make, 60)
        for _ in range(3):
            assert is_rejected(await ask(ISSUES, owner, path=str(project.id), first=60))

        data = await ask.data(ISSUES, owner, path=str(project.id), first=2)

        assert len(data["project"]["issues"]["nodes"]) == 2

    async def test_a_mutation_is_committed_though_its_payload_is_too_large(self, ask: Ask, make: DataFactory) -> None:
        project, owner = await project_with_descriptions(make, 20)
        query = """mutation ($input: CreateIssueInput!) { createIssue(input: $input) {
            issue { title project { issues(first: 100) { nodes { description } } } } userErrors { code } } }"""

        result = await ask(query, owner, input={"projectPath": str(project.id), "title": "New"})

        assert {str(each.code) for each in result.errors} == {"LIMIT_EXCEEDED"}
        assert await make.count(tables.Issue) == 21


class TestAnswerSize:
    """Text that is read once can occur many times in the answer."""

    async def test_an_answer_that_repeats_text_by_aliases_is_rejected(self, ask: Ask, make: DataFactory) -> None:
        project, owner = await project_with_descriptions(make, 1)
        fields = " ".join(f"d{number}: description" for number in range(20))

        result = await ask(
            f"query ($path: String!) {{ project(path: $path) {{ issues {{ nodes {{ {fields} }} }} }} }}", owner, path=str(project.id)
        )

        assert is_rejected(result)

    async def test_an_answer_that_repeats_text_under_many_rows_is_rejected(self, ask: Ask, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user()))
        issue = await make.issue(project, description="a" * MIB)
        for _ in range(20):
            await make.note(issue)
        query = """query ($path: String!, $iid: Int!) { project(path: $path) { issue(iid: $iid) { notes(first: 20) { nodes {
            body issue { description } } } } } }"""

        assert is_rejected(await ask(query, owner, path=str(project.id), iid=issue.iid))

    async def test_escapes_count_with_their_encoded_length(self, ask: Ask, make: DataFactory) -> None:
        project, owner = await project_with_descriptions(make, 9, letter='"')

        assert is_rejected(await ask(ISSUES, owner, path=str(project.id), first=9))

    async def test_an_answer_of_maximum_size_does_not_block_the_event_loop(self, ask: Ask, make: DataFactory) -> None:
        project, owner = await project_with_descriptions(make, 7, letter='"')
        path = str(project.id)
        await ask.data(ISSUES, owner, path=path, first=7)

        async with measure_loop_lag() as lag:
            result = await ask(ISSUES, owner, path=path, first=7)
            body = await dump_json({"data": result.data}, is_large=result.is_large)

        assert result.is_large
        assert len(body) > 14 * MIB
        assert lag.milliseconds < 100


class TestCommitMessages:
    async def test_a_page_of_long_messages_is_rejected(self, ask: Ask, make: DataFactory, services: Services) -> None:
        project = await make.project(owner=(owner := await make.user()), history={"commits": 1})
        path = services.repositories.path_of(project.id)
        # Linux limits a command-line argument, here git's message, to 128 KiB.
        message = "Title\n\n" + "a" * 120_000
        for number in range(20):
            commit_to_branch(path, "master", {"a.txt": b"%d" % number}, message=message)
        await take_over(services)
        fields = " ".join(f"m{number}: message" for number in range(10))
        page = f"commits(first: $first) {{ nodes {{ {fields} }} }}"
        query = f"query ($path: String!, $first: Int!) {{ project(path: $path) {{ {page} }} }}"

        assert is_rejected(await ask(query, owner, path=str(project.id), first=20))
        data = await ask.data(query, owner, path=str(project.id), first=10)
        assert len(data["project"]["commits"]["nodes"]) == 10

    async def test_messages_count_against_the_text_budget(
        self, ask: Ask, make: DataFactory, services: Services, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(execution, "MAX_ANSWER_BYTES", 300_000)
        project = await make.project(owner=(owner := await make.user()), history={"commits": 1})
        path = services.repositories.path_of(project.id)
        for number in range(5):
            commit_to_branch(path, "master", {"a.txt": b"%d" % number}, message="Title\n\n" + "a" * 100_000)
        await take_over(services)
        query = "query ($path: String!) { project(path: $path) { commits(first: 20) { nodes { oid message } } } }"

        assert is_rejected(await ask(query, owner, path=str(project.id)))


class TestRestV3:
    async def test_a_page_that_is_too_large_is_rejected(self, api: Api, make: DataFactory) -> None:
        project, owner = await project_with_descriptions(make, 20)

        response = await api.get(f"/projects/{project.id}/issues", owner, per_page="20")

        assert response.status_code == 429
        assert response.json() == {"message": ANSWER_TOO_LARGE_MESSAGE}

    async def test_a_large_page_within_the_limit_is_complete(self, api: Api, make: DataFactory) -> None:
        project, owner = await project_with_descriptions(make, 12)

        response = await api.get(f"/projects/{project.id}/issues", owner, per_page="12")

        assert [len(issue["description"]) for issue in response.json()] == [MIB] * 12


class TestJsonPieces:
    @pytest.mark.parametrize(
        "value",
        [
            None,
            "a",
            [],
            {},
            {"data": {"a": [1, None, True, 1.5, 'é\u2028\\"'], "b": {}}},
            {"data": [{"d": "a" * 300_000, "n": [{"x": "b" * 300_000}, 1, []]}, {}, []]},
            [["a" * 200_000] * 3, {'k"': "a" * 400_000}],
        ],
    )
    async def test_json_in_pieces_equals_json_in_one(self, value: Any) -> None:
        assert await dump_json(value, is_large=True) == orjson.dumps(value)

    async def test_long_strings_are_measured_exactly(self) -> None:
        value = {"data": [{"d": '"' * 2_000_000}, {"d": "ж" * 2_000_000}]}

        size = await measure_json(value, SliceScheduler())

        assert abs(size - len(orjson.dumps(value))) < 50

    async def test_small_data_is_measured_in_characters(self) -> None:
        assert 5_000 < await measure_json({"data": [{"d": '"' * 5_000}, None, 1]}, SliceScheduler()) < 5_050


class TestFieldRepetition:
    @pytest.mark.parametrize(
        ("source", "field_count", "max_repeats"),
        [
            ("{ a { b c } }", 2, 1),
            ("{ a { b x: b } }", 2, 2),
            ("{ a { b ...F ...F } } fragment F on A { b d { c } }", 5, 3),
            ("{ ... { a } ... { a } }", 2, 2),
        ],
    )
    def test_fields_are_counted_with_fragments_expanded(self, source: str, field_count: int, max_repeats: int) -> None:
        repetition = FieldRepetition(parse(source))
        assert (repetition.field_count, repetition.max_repeats) == (field_count, max_repeats)

    def test_values_are_as_large_as_their_types_allow(self) -> None:
        source = "{ viewer { databaseId ...F username } } fragment F on User { createdAt ... on User { x: databaseId } }"
        sizes = {"viewer": 0, "databaseId": 11, "createdAt": 29, "x": 11}
        expected = sum(len(name) + PUNCTUATION_BYTES + size for name, size in sizes.items()) + MAX_SHORT_VALUE_BYTES
        assert FieldRepetition(parse(source), graphql_schema).value_bytes == expected
