"""Time ranges, searches and lists of one value in filters: one statement serves all, whatever their values."""

import dataclasses
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy.sql.elements import BindParameter
from sqlalchemy.sql.visitors import iterate

from graph.fields.filter_values import (
    LIST_ATTRIBUTES,
    SEARCH_ATTRIBUTES,
    USERNAME_ATTRIBUTES,
    shape_of,
    varying_values,
    with_distinct_values,
)
from graph.operations.execution import Graph
from graph.planner.sql import page_select
from graph.types.inputs import DateTimeRange
from graph.types.issues.issues import IssueFilter
from storage import tables
from storage.tables import MergeRequestState
from tests.graph.operations.test_filters import find_filters
from tests.make import DataFactory, token_of
from tests.support.database.statements import requires_planner

START = datetime(2026, 3, 1, tzinfo=UTC)
RANGES = """
query Ranges($path: String!, $first: DateTime, $second: DateTime, $end: DateTime) { project(path: $path) {
  issues(filter: {created: {since: $first, until: $end}, updated: {since: $second}}) { totalCount nodes { iid } }
} }
"""
MERGED = """
query Merged($path: String!, $range: DateTimeRange!, $states: [RollupState!]) { project(path: $path) {
  mergeRequests(filter: {merged: $range, headState: $states}) { nodes { iid } } } }
"""


SEARCHES = """
query Searches($path: String!, $search: String) { project(path: $path) {
  issues(filter: {search: $search}, orderBy: {field: CREATED_AT, direction: ASC}) { totalCount nodes { title } } } }
"""
PROJECTS = """
query Projects($search: String, $name: String) { projects(filter: {search: $search, nameContains: $name}) { nodes { name } } }
"""


def day(number: int) -> datetime:
    return START + timedelta(days=number)


@pytest.fixture
async def owner(make: DataFactory) -> tables.User:
    return await make.user()


@pytest.fixture
async def project(make: DataFactory, owner: tables.User) -> tables.Project:
    """Its issues were created on the days 1 to 4, and updated two days later."""
    project = await make.project(owner=owner)
    for number in range(1, 5):
        await make.issue(project, created_at=day(number), updated_at=day(number + 2))
    return project


@pytest.fixture
def pages(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The page statements that are compiled from now on."""
    made: list[Any] = []
    make_page = page_select.PageStatement

    def record(*arguments: Any) -> Any:
        made.append(make_page(*arguments))
        return made[-1]

    monkeypatch.setattr(page_select, "PageStatement", record)
    return made


async def ask(make: DataFactory, user: tables.User, query: str, **variables: Any) -> Any:
    """The answer of a plan, which must be that of graphql-core."""
    values = {name: value.isoformat() if isinstance(value, datetime) else value for name, value in variables.items()}
    answers = []
    for graph in (Graph(make.services), Graph(make.services, planner=False)):
        for _ in range(2):
            result = await graph.run_document(query, values, None, token_of(user), request_id="test")
            assert not result.errors
            answers.append(result.data)
    assert answers == answers[:1] * 4
    return answers[0]


@requires_planner
class TestTimeRanges:
    async def test_share_a_statement(self, make: DataFactory, owner: tables.User, project: tables.Project, pages: list[Any]) -> None:
        graph, path = Graph(make.services), str(project.id)

        async def find(first: int | None, second: int | None, end: int | None) -> list[int]:
            ends = {"first": first, "second": second, "end": end}
            variables = {name: day(number).isoformat() for name, number in ends.items() if number is not None}
            result = await graph.run_document(RANGES, {"path": path, **variables}, None, token_of(owner), request_id="test")
            assert not result.errors
            issues = result.data["project"]["issues"]  # type: ignore[index]
            assert issues["totalCount"] == len(issues["nodes"])
            return sorted(issue["iid"] for issue in issues["nodes"])

        # graphql-core answers the text first.
        assert await find(1, 1, 9) == [1, 2, 3, 4]
        assert await find(2, 1, 9) == [2, 3, 4]
        assert len(pages) == 1
        assert await find(2, 6, 9) == [4]
        assert await find(2, 2, 9) == [2, 3, 4]
        assert await find(1, 5, 4) == [3]
        assert await find(4, 1, 4) == []
        assert len(pages) == 1
        assert await find(None, 5, None) == [3, 4]
        assert await find(None, 6, None) == [4]
        assert len(pages) == 2

    async def test_that_had_the_same_variable_may_differ(self, make: DataFactory, owner: tables.User, project: tables.Project) -> None:
        """Each end has a parameter of its own, also where both had the same value when the statement was compiled."""
        for first, second, iids in ((day(3), day(3), [4, 3]), (day(3), day(6), [4]), (day(1), day(4), [4, 3, 2])):
            found = await ask(make, owner, RANGES, path=str(project.id), first=first, second=second, end=day(9))
            assert [issue["iid"] for issue in found["project"]["issues"]["nodes"]] == iids

    async def test_of_a_filter_that_depends_on_the_viewer(self, make: DataFactory, owner: tables.User, project: tables.Project) -> None:
        for number in range(1, 4):
            await make.merge_request(project, state=MergeRequestState.MERGED, merged_at=day(number))
        admin = await make.admin()
        for since, iids in ((1, [3, 2, 1]), (3, [3]), (2, [3, 2])):
            for viewer in (owner, admin):
                span = {"since": day(since).isoformat()}
                found = await ask(make, viewer, MERGED, path=str(project.id), range=span, states=["NONE"])
                assert sorted(each["iid"] for each in found["project"]["mergeRequests"]["nodes"]) == sorted(iids)


@requires_planner
class TestSearches:
    TITLES = ("Crash at start", "crash_dump is empty", "100% of CPU", "Ümlaut ÄÖ", "a/b \\ c", "start")

    @pytest.fixture
    async def titles(self, make: DataFactory, project: tables.Project) -> None:
        for number, title in enumerate(self.TITLES):
            await make.issue(project, title=title, created_at=day(10 + number))

    @pytest.mark.usefixtures("titles")
    async def test_share_a_statement(self, make: DataFactory, owner: tables.User, project: tables.Project, pages: list[Any]) -> None:
        graph = Graph(make.services)

        async def find(search: str) -> list[str]:
            variables = {"path": str(project.id), "search": search}
            result = await graph.run_document(SEARCHES, variables, None, token_of(owner), request_id="test")
            assert not result.errors
            issues = result.data["project"]["issues"]  # type: ignore[index]
            assert issues["totalCount"] == len(issues["nodes"])
            return [issue["title"] for issue in issues["nodes"]]

        # graphql-core answers the text first.
        assert await find("START") == ["Crash at start", "start"]
        assert await find("START") == ["Crash at start", "start"]
        assert len(pages) == 1
        assert await find("crash") == ["Crash at start", "crash_dump is empty"]
        assert await find("\\") == ["a/b \\ c"]
        assert await find("nothing") == []
        assert len(pages) == 1

    @pytest.mark.usefixtures("titles")
    @pytest.mark.parametrize("search", ["", "h_d", "_", "%", "0%", "/", "a/b", "\\", "ü", "äÖ", "CRASH", "x" * 1_000, None])
    async def test_find_what_graphql_core_finds(
        self, make: DataFactory, owner: tables.User, project: tables.Project, search: str | None
    ) -> None:
        found = await ask(make, owner, SEARCHES, path=str(project.id), search=search)
        expected = [title for title in self.TITLES if (search or "").lower() in title.lower()]
        assert [each["title"] for each in found["project"]["issues"]["nodes"] if each["title"] in self.TITLES] == expected

    async def test_a_string_that_is_too_long_is_refused_after_one_that_is_not(
        self, make: DataFactory, owner: tables.User, project: tables.Project
    ) -> None:
        graph = Graph(make.services)
        for search, is_refused in (("x", False), ("x", False), ("x" * 1_001, True), ("x", False)):
            variables = {"path": str(project.id), "search": search}
            result = await graph.run_document(SEARCHES, variables, None, token_of(owner), request_id="test")
            assert bool(result.errors) == is_refused

    async def test_that_had_the_same_string_may_differ(self, make: DataFactory, owner: tables.User) -> None:
        for name in ("one", "two", "one two"):
            await make.project(owner=owner, name=name)
        for search, name, names in (("one", "one", {"one", "one two"}), ("one", "two", {"one two"}), ("two", "o", {"two", "one two"})):
            found = await ask(make, owner, PROJECTS, search=search, name=name)
            assert {each["name"] for each in found["projects"]["nodes"]} == names


LISTS = """
query Lists($path: String!, $numbers: [Int!], $labels: [String!], $milestones: [String!]) { project(path: $path) {
  issues(filter: {iid: $numbers, labels: $labels, milestone: $milestones}) { totalCount nodes { iid } } } }
"""


@requires_planner
class TestListsOfOneValue:
    @pytest.fixture
    async def labels(self, make: DataFactory, project: tables.Project) -> None:
        """The issues 5 and 6 have the labels `1` and `2`, and both the label `both`; the second one has a milestone."""
        both = await make.label(project, title="both")
        milestone = await make.milestone(project, title="1")
        for number in (1, 2):
            labels = [await make.label(project, title=str(number)), both]
            await make.issue(project, labels=labels, milestone_id=milestone.id if number == 2 else None, created_at=day(10 + number))

    async def test_share_a_statement(self, make: DataFactory, owner: tables.User, project: tables.Project, pages: list[Any]) -> None:
        graph = Graph(make.services)

        async def find(*numbers: int) -> list[int]:
            variables = {"path": str(project.id), "numbers": [*numbers]}
            result = await graph.run_document(LISTS, variables, None, token_of(owner), request_id="test")
            assert not result.errors
            issues = result.data["project"]["issues"]  # type: ignore[index]
            assert issues["totalCount"] == len(issues["nodes"])
            return sorted(issue["iid"] for issue in issues["nodes"])

        # graphql-core answers the text first.
        assert await find(1) == await find(1) == [1]
        assert len(pages) == 1
        assert await find(3) == [3]
        assert await find(1_000_000) == []
        assert len(pages) == 1
        assert await find(2, 4) == [2, 4]
        assert await find() == []
        assert len(pages) == 3

    @pytest.mark.usefixtures("labels")
    @pytest.mark.parametrize(
        ("lists", "found"),
        [
            ({"labels": ["1"]}, [5]),
            ({"labels": ["2"]}, [6]),
            ({"labels": ["both"]}, [6, 5]),
            ({"labels": ["1", "2"]}, [6, 5]),
            ({"labels": []}, []),
            ({"labels": ["Ü%"]}, []),
            ({"labels": ["1"], "milestones": ["1"]}, []),
            ({"labels": ["both"], "milestones": ["1"]}, [6]),
            ({"labels": ["both"], "milestones": ["1"], "numbers": [6]}, [6]),
            ({"numbers": [5], "labels": ["1"]}, [5]),
            ({"numbers": [1]}, [1]),
        ],
    )
    async def test_find_what_graphql_core_finds(
        self, make: DataFactory, owner: tables.User, project: tables.Project, lists: dict[str, Any], found: list[int]
    ) -> None:
        answer = await ask(make, owner, LISTS, path=str(project.id), **lists)
        assert [issue["iid"] for issue in answer["project"]["issues"]["nodes"]] == found

    async def test_of_users_find_what_graphql_core_finds(self, make: DataFactory, owner: tables.User, project: tables.Project) -> None:
        for name in ("ann", "Bob", "ann-2"):
            await make.issue(project, author=await make.user(username=name), assignee_id=owner.id)
        authors = """
query Authors($path: String!, $names: [String!]) {
  project(path: $path) { issues(filter: {authorUsername: $names}) { nodes { iid } } } }
"""
        for names, found in ((["ann"], [5]), (["ANN"], [5]), (["ann-2"], [7]), (["bob"], [6]), (["Bob"], [6]), (["nobody"], [])):
            answer = await ask(make, owner, authors, path=str(project.id), names=names)
            assert [issue["iid"] for issue in answer["project"]["issues"]["nodes"]] == found

    async def test_a_long_value_is_found_nowhere(self, make: DataFactory, owner: tables.User, project: tables.Project) -> None:
        for value in ("x", "x" * 100_000):
            answer = await ask(make, owner, LISTS, path=str(project.id), labels=[value])
            assert answer["project"]["issues"]["nodes"] == []


def find_search_filters() -> Iterator[type]:
    for kind in find_filters():
        if getattr(kind, SEARCH_ATTRIBUTES, ()):
            yield kind


def list_names(kind: type) -> tuple[str, ...]:
    return (*getattr(kind, LIST_ATTRIBUTES, ()), *getattr(kind, USERNAME_ATTRIBUTES, ()))


def find_list_filters() -> Iterator[type]:
    for kind in find_filters():
        if list_names(kind):
            yield kind


def find_range_filters() -> Iterator[type]:
    for kind in find_filters():
        if any(field.type in (DateTimeRange, DateTimeRange | None) for field in dataclasses.fields(kind)):
            yield kind


class TestFilters:
    def test_with_ranges_are_known(self) -> None:
        assert {kind.__name__ for kind in find_range_filters()} >= {"IssueFilter", "MergeRequestFilter"}

    @pytest.mark.parametrize("kind", list(find_range_filters()), ids=lambda kind: kind.__name__)
    def test_bind_each_end_of_a_range_and_nothing_made_of_it(self, kind: type) -> None:
        """A condition that computed with an end would keep the one with which it was compiled."""
        ranges = [field.name for field in dataclasses.fields(kind) if field.type in (DateTimeRange, DateTimeRange | None)]
        given: Any = kind(**{name: DateTimeRange(since=START, until=START) for name in ranges})
        distinct, names = with_distinct_values(given)
        bound = [
            each.value
            for condition in distinct.conditions()
            for each in iterate(condition)
            if isinstance(each, BindParameter) and isinstance(each.value, datetime)
        ]
        assert sorted(names.get(id(value), "computed") for value in bound) == sorted(
            f"{name}.{end}" for name in ranges for end in ("since", "until")
        )

    def test_with_searches_are_known(self) -> None:
        assert {kind.__name__ for kind in find_search_filters()} == {
            "IssueFilter",
            "LabelFilter",
            "MergeRequestFilter",
            "MilestoneFilter",
            "NamespaceFilter",
            "ProjectFilter",
            "ProjectMemberFilter",
        }

    def test_every_list_of_strings_or_numbers_is_bound(self) -> None:
        lists = {
            f"{kind.__name__}.{field.name}"
            for kind in find_filters()
            for field in dataclasses.fields(kind)
            if field.type in (list[str] | None, list[int] | None, list[str | None] | None)
        }
        assert {f"{kind.__name__}.{name}" for kind in find_list_filters() for name in list_names(kind)} == lists

    @pytest.mark.parametrize("kind", list(find_list_filters()), ids=lambda kind: kind.__name__)
    def test_bind_the_value_of_a_list_of_one_and_nothing_made_of_it(self, kind: Any) -> None:
        fields = {each.name: each.type for each in dataclasses.fields(kind)}
        values = {name: 424_242 if "int" in str(fields[name]) else "needle" for name in list_names(kind)}
        given = kind(**{name: [value] for name, value in values.items()})
        distinct, names = with_distinct_values(given)
        bound = [
            value
            for condition in distinct.conditions()
            for each in iterate(condition)
            if isinstance(each, BindParameter)
            for value in (each.value if isinstance(each.value, list) else [each.value])
            if value == 424_242 or "needle" in str(value).lower()
        ]
        assert bound
        assert {names.get(id(value), "made of it") for value in bound} == {f"filter.{name}" for name in values}

    @pytest.mark.parametrize("kind", list(find_search_filters()), ids=lambda kind: kind.__name__)
    def test_bind_a_searched_string_and_nothing_made_of_it(self, kind: Any) -> None:
        """A condition that was made of the string would keep the one with which it was compiled."""
        given = kind(**dict.fromkeys(kind.search_attributes, "Needle"))
        distinct, names = with_distinct_values(given)
        bound = [
            each.value
            for condition in distinct.conditions()
            for each in iterate(condition)
            if isinstance(each, BindParameter) and "needle" in str(each.value).lower()
        ]
        assert bound
        assert {names.get(id(value), "made of it") for value in bound} == {f"filter.{name}" for name in kind.search_attributes}


class TestShape:
    def test_tells_which_ends_are_given_and_not_their_values(self) -> None:
        first, second = [IssueFilter(created=DateTimeRange(since=day(number)), search="a") for number in (1, 2)]
        assert shape_of(first) == shape_of(second)
        assert varying_values(first) == {"created.since": day(1), "filter.search": "a"}
        others = [
            IssueFilter(created=DateTimeRange(until=day(1)), search="a"),
            IssueFilter(created=DateTimeRange(since=day(1), until=day(1)), search="a"),
            IssueFilter(updated=DateTimeRange(since=day(1)), search="a"),
            IssueFilter(created=DateTimeRange(since=day(1))),
            IssueFilter(search="a"),
            None,
        ]
        assert len({shape_of(each) for each in (first, *others)}) == 7

    def test_tells_whether_a_string_is_searched_for_and_which_if_it_is_no_plain_text(self) -> None:
        assert shape_of(IssueFilter(search="a")) == shape_of(IssueFilter(search="b"))
        assert varying_values(IssueFilter(search="a")) == {"filter.search": "a"}
        special = ["", "a%", "b%", "a_", "a/", "ä", "True", None]
        shapes = {shape_of(IssueFilter(search=search)) for search in special}
        assert len(shapes) == 8

    def test_tells_whether_a_list_has_one_value_and_which_others_do_not(self) -> None:
        assert shape_of(IssueFilter(iid=[1])) == shape_of(IssueFilter(iid=[2]))
        lists: list[list[int] | None] = [[1], [1, 2], [2, 1], [], None]
        assert len({shape_of(IssueFilter(iid=each)) for each in lists}) == 5
        assert shape_of(IssueFilter(author_username=["a"])) == shape_of(IssueFilter(author_username=["b"]))
        names = [["a"], ["A"], ["B"], ["ä"], ["Ä"], ["a", "b"], [], None]
        assert len({shape_of(IssueFilter(author_username=each)) for each in names}) == 7

    def test_of_a_copy_is_its_own(self) -> None:
        given = IssueFilter(created=DateTimeRange(since=day(1)))
        shape = shape_of(given)
        distinct, names = with_distinct_values(given)
        assert distinct.created is not given.created and distinct.created.since == day(1)
        assert list(names.values()) == ["created.since"]
        assert shape_of(distinct) == shape == shape_of(given)
        assert given.created is not None and given.created.since == day(1)
