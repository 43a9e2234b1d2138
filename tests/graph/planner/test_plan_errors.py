"""A plan reports the errors of fields itself: nothing is run a second time to report them."""

from dataclasses import replace
from typing import Any

import pytest
from graphql import parse

from graph.context import Services
from graph.errors import Code, NotFound
from graph.operations.results import OperationResult
from graph.planner.errors import ErrorPosition, FieldError, PlanBailout, RowError, locate_row_errors, null_error_positions
from storage import tables
from storage.tables import AccessLevel
from tests.make import DataFactory, token_of
from tests.support.api_clients import Api
from tests.support.database.statements import StatementRecorder, requires_planner
from tests.support.queries.oracle import FallbackCountingGraph, PlanOracle, prepare_document
from tests.support.week_fixture import NOW

PROJECT = prepare_document(parse("query ($path: String!) { project(path: $path) { name owner { username } } }"))
ISSUE = prepare_document(
    parse("query ($path: String!, $iid: Int) { project(path: $path) { issue(iid: $iid) { title labels author { username } } } }")
)
ISSUES = prepare_document(
    parse("query ($path: String!, $after: String) { project(path: $path) { issues(after: $after) { totalCount nodes { title } } } }")
)
BUILDS = prepare_document(parse("query ($path: String!) { project(path: $path) { name builds { nodes { name } } } }"))
RECURSIVE = prepare_document(
    parse("query ($path: String!, $all: Boolean = false) { project(path: $path) { name tree(recursive: $all) { totalCount } } }")
)
UPDATE = prepare_document(
    parse('mutation ($id: ID!) { updateIssue(input: {id: $id, title: "New"}) { issue { title } userErrors { code } } }')
)
MISSING_ISSUE = "SXNzdWU6OTk5OTk5"


@pytest.fixture
async def owner(make: DataFactory) -> tables.User:
    return await make.user()


@pytest.fixture
async def guest(make: DataFactory) -> tables.User:
    return await make.user()


@pytest.fixture
async def issue(make: DataFactory, owner: tables.User, guest: tables.User) -> tables.Issue:
    """In a project whose builds guests may not see."""
    return await make.issue(await make.project(owner=owner, members=[(guest, 10)], builds_enabled=True, public_builds=False))


@pytest.fixture
async def invisible(make: DataFactory) -> tables.Project:
    return await make.project()


@pytest.fixture
async def without_issues(make: DataFactory, owner: tables.User) -> tables.Project:
    project = await make.project(owner=owner, issues_enabled=False)
    await make.issue(project)
    return project


class Planned:
    """Runs planned operations, and counts their statements."""

    def __init__(self, services: Services, statements: StatementRecorder) -> None:
        self.graph = FallbackCountingGraph(services, planner=True)
        self._statements = statements

    async def __call__(self, operation: Any, viewer: tables.User, **variables: Any) -> tuple[OperationResult, int]:
        with self._statements.record() as seen:
            result = await self.graph.run(operation, variables, token_of(viewer), request_id="x")
        return result, len(seen)

    async def refuse(self, operation: Any, viewer: tables.User, limit: int, **variables: Any) -> OperationResult:
        """The result of an operation that a plan refuses with at most this number of statements."""
        result, count = await self(operation, viewer, **variables)
        assert result.errors and count <= limit
        assert self.graph.fallback_count == 0, repr(self.graph.last_error)
        return result


@pytest.fixture
def planned(services: Services, statements: StatementRecorder) -> Planned:
    return Planned(services, statements)


def codes(result: OperationResult) -> list[tuple[Code, Any]]:
    return [(each.code, each.path) for each in result.errors]


class TestStatements:
    """A refused operation takes the statements of a successful one, and no more."""

    async def test_of_missing_and_invisible_projects(
        self, planned: Planned, issue: tables.Issue, invisible: tables.Project, owner: tables.User
    ) -> None:
        found, count = await planned(PROJECT, owner, path=str(issue.project_id))
        assert not found.errors
        for path in ("none/none", "none", "0", str(invisible.id)):
            result = await planned.refuse(PROJECT, owner, count, path=path)
            assert result.data == {"project": None} and codes(result) == [(Code.NOT_FOUND, ["project"])]

    async def test_of_missing_and_forbidden_issues(
        self, planned: Planned, issue: tables.Issue, invisible: tables.Project, without_issues: tables.Project, owner: tables.User
    ) -> None:
        path = str(issue.project_id)
        found, count = await planned(ISSUE, owner, path=path, iid=issue.iid)
        assert not found.errors and count == 1
        for iid, code in ((999, Code.NOT_FOUND), (None, Code.BAD_REQUEST)):
            result = await planned.refuse(ISSUE, owner, count, path=path, iid=iid)
            assert result.data == {"project": {"issue": None}} and codes(result) == [(code, ["project", "issue"])]
        result = await planned.refuse(ISSUE, owner, count, path=str(invisible.id), iid=1)
        assert result.data == {"project": None} and codes(result) == [(Code.NOT_FOUND, ["project"])]
        for iid in (1, 999, None):
            result = await planned.refuse(ISSUE, owner, count, path=str(without_issues.id), iid=iid)
            assert result.data == {"project": {"issue": None}} and codes(result) == [(Code.FORBIDDEN, ["project", "issue"])]

    async def test_of_refused_pages(
        self, planned: Planned, issue: tables.Issue, without_issues: tables.Project, owner: tables.User, guest: tables.User
    ) -> None:
        found, count = await planned(ISSUES, owner, path=str(issue.project_id))
        assert not found.errors
        result = await planned.refuse(ISSUES, owner, count, path=str(issue.project_id), after="x")
        assert codes(result) == [(Code.BAD_REQUEST, ["project", "issues"])]
        for after in (None, "x"):
            result = await planned.refuse(ISSUES, owner, count, path=str(without_issues.id), after=after)
            assert codes(result) == [(Code.FORBIDDEN, ["project", "issues"])]
            result = await planned.refuse(ISSUES, owner, count, path="none/none", after=after)
            assert codes(result) == [(Code.NOT_FOUND, ["project"])]
        found, count = await planned(BUILDS, owner, path=str(issue.project_id))
        assert not found.errors
        result = await planned.refuse(BUILDS, guest, count, path=str(issue.project_id))
        assert codes(result) == [(Code.FORBIDDEN, ["project", "builds"])]

    async def test_of_arguments_that_an_operation_does_not_reach(self, planned: Planned, owner: tables.User) -> None:
        """graphql-core does not coerce them. A plan coerces all arguments before its first statement, so no statement runs twice."""
        valid, count = await planned(RECURSIVE, owner, path="none/none", all=False)
        assert planned.graph.fallback_count == 0
        invalid, invalid_count = await planned(RECURSIVE, owner, path="none/none", all=None)
        assert planned.graph.fallback_count == 1
        assert codes(valid) == codes(invalid) == [(Code.NOT_FOUND, ["project"])] and invalid_count == count

    async def test_of_refused_changes(self, planned: Planned, owner: tables.User) -> None:
        """The payload is non-null, so the data is null."""
        result = await planned.refuse(UPDATE, owner, 1, id=MISSING_ISSUE)
        assert result.data is None and codes(result) == [(Code.NOT_FOUND, ["updateIssue"])]

    @requires_planner
    @pytest.mark.parametrize("path", ["/projects/{}/labels", "/projects/{}/issues", "/projects/{}/issues/{}"])
    async def test_of_404s_of_v3(
        self,
        api: Api,
        issue: tables.Issue,
        invisible: tables.Project,
        owner: tables.User,
        statements: StatementRecorder,
        path: str,
    ) -> None:
        with statements.record() as seen:
            assert (await api.get(path.format(issue.project_id, issue.id), owner)).status_code == 200
        for keys in ((invisible.id, issue.id), ("none%2Fnone", issue.id), (issue.project_id, 999_999)):
            if keys[0] == issue.project_id and path.count("{}") == 1:
                continue
            with statements.assert_at_most(len(seen)):
                assert (await api.get(path.format(*keys), owner)).status_code == 404

    @requires_planner
    async def test_of_403s_of_v3(
        self, api: Api, issue: tables.Issue, without_issues: tables.Project, owner: tables.User, guest: tables.User,
        statements: StatementRecorder,
    ) -> None:  # fmt: skip
        for path, viewer, refused in (
            (f"/projects/{issue.project_id}/builds", guest, f"/projects/{issue.project_id}/builds"),
            (f"/projects/{issue.project_id}/issues", owner, f"/projects/{without_issues.id}/issues"),
        ):
            with statements.record() as seen:
                assert (await api.get(path, owner)).status_code == 200
            with statements.assert_at_most(len(seen)):
                assert (await api.get(refused, viewer)).status_code == 403


class TestSiblings:
    TEXT = """query ($path: String!) { project(path: $path) {
        name issue(iid: 1) { title } missing: issue(iid: 999) { title } issues { nodes { title } } mergeRequest(iid: 999) { title } }
        user(username: "nobody") { name } viewer { name } }"""

    async def test_are_run_once(self, planned: Planned, services: Services, issue: tables.Issue, owner: tables.User) -> None:
        operation, path = prepare_document(parse(self.TEXT)), str(issue.project_id)
        result, count = await planned(operation, owner, path=path)
        assert codes(result).count((Code.NOT_FOUND, ["project", "missing"])) == 1
        assert result.data and result.data["project"]["issue"]["title"] == result.data["project"]["issues"]["nodes"][0]["title"]
        assert planned.graph.fallback_count == 0
        found = self.TEXT.replace("999", "1").replace("mergeRequest(", "m: issue(").replace("nobody", owner.username)
        assert count <= (await planned(prepare_document(parse(found)), owner, path=path))[1]
        await PlanOracle(replace(services, clock=lambda: NOW)).compare(operation, {"path": path}, owner)


class TestNullPropagation:
    """Section 6.4.4 of the specification."""

    NON_NULL = """query ($path: String!) { project(path: $path) {
        name issue(iid: 1) { title notes(after: "!") { totalCount } } other: issue(iid: 1) { title } } }"""
    NULLABLE = """query ($path: String!) { project(path: $path) {
        name milestone(iid: 1) { title issues { totalCount } } other: milestone(iid: 1) { title } } }"""

    async def test_a_non_null_list_nulls_its_issue(self, services: Services, make: DataFactory, owner: tables.User) -> None:
        project = await make.project(owner=owner)
        issue = await make.issue(project)
        oracle = PlanOracle(replace(services, clock=lambda: NOW))
        result = await oracle.compare(prepare_document(parse(self.NON_NULL)), {"path": str(project.id)}, owner)
        assert codes(result) == [(Code.BAD_REQUEST, ["project", "issue", "notes"])]
        assert result.data == {"project": {"name": project.name, "issue": None, "other": {"title": issue.title}}}
        assert oracle.planned_graph.fallback_count == 0

    async def test_a_nullable_list_leaves_its_milestone(
        self, services: Services, make: DataFactory, owner: tables.User, without_issues: tables.Project
    ) -> None:
        title = (await make.milestone(without_issues)).title
        oracle = PlanOracle(replace(services, clock=lambda: NOW))
        result = await oracle.compare(prepare_document(parse(self.NULLABLE)), {"path": str(without_issues.id)}, owner)
        assert codes(result) == [(Code.FORBIDDEN, ["project", "milestone", "issues"])]
        milestone = {"title": title, "issues": None}
        assert result.data == {"project": {"name": without_issues.name, "milestone": milestone, "other": {"title": title}}}
        assert oracle.planned_graph.fallback_count == 0


class TestErrorsBelowLists:
    """Of some projects of a list the viewer may not see the builds or the code."""

    WALL = """query { projects(orderBy: {field: ID}) { nodes { path builds { nodes { name } } branch { name } } } }"""
    NESTED = """query ($path: String!) { group(path: $path) { projects { nodes { path
        issues { nodes { iid project { builds { totalCount } branch { name } } } } } } } }"""

    async def run(self, services: Services, text: str, viewer: tables.User, **variables: Any) -> OperationResult:
        oracle = PlanOracle(replace(services, clock=lambda: NOW))
        result = await oracle.compare(prepare_document(parse(text)), variables, viewer)
        assert oracle.planned_graph.fallback_count == 0, repr(oracle.planned_graph.last_error)
        return result

    async def test_are_reported_without_running_anything_again(self, services: Services, make: DataFactory) -> None:
        viewer = await make.user()
        levels = [AccessLevel.DEVELOPER, AccessLevel.GUEST, AccessLevel.REPORTER, AccessLevel.GUEST]
        for number, level in enumerate(levels):
            project = await make.project(path=f"p{number}", members=[(viewer, level)], history={"commits": 2}, public_builds=False)
            if level is not AccessLevel.GUEST:
                await make.build(project, "1" * 40, name=f"build{number}")
        result = await self.run(services, self.WALL, viewer)
        nodes = result.data["projects"]["nodes"]
        refused = [index for index, node in enumerate(nodes) if node["path"] in ("p1", "p3")]
        expected = [(Code.FORBIDDEN, ["projects", "nodes", index, name]) for index in refused for name in ("branch", "builds")]
        assert sorted(codes(result), key=repr) == sorted(expected, key=repr)
        for index, node in enumerate(nodes):
            if index in refused:
                assert (node["builds"], node["branch"]) == (None, None)
            else:
                assert (len(node["builds"]["nodes"]), node["branch"]["name"]) == (1, "master")

    async def test_have_each_position_of_an_object(self, services: Services, make: DataFactory) -> None:
        viewer, owner = await make.user(), await make.user()
        group = await make.group(owner=owner, path="tools")
        for level in (AccessLevel.GUEST, AccessLevel.DEVELOPER):
            project = await make.project(group=group, members=[(viewer, level)], history={"commits": 2}, public_builds=False)
            for _ in range(2):
                await make.issue(project)
        result = await self.run(services, self.NESTED, viewer, path="tools")
        assert len(codes(result)) == 4
        assert {code for code, _ in codes(result)} == {Code.FORBIDDEN}

    async def test_of_objects_that_the_answer_lacks_are_left_to_graphql_core(self) -> None:
        answer = {"name": None}
        errors = [RowError(answer, "name", NotFound("Row"))]
        assert locate_row_errors({"a": [{}, answer], "b": answer}, errors) == [
            (("a", 1, "name"), errors[0].error),
            (("b", "name"), errors[0].error),
        ]
        with pytest.raises(PlanBailout):
            locate_row_errors({"a": [dict(answer)]}, errors)


class TestNulledPositions:
    DATA: dict[str, Any] = {"a": {"b": {"c": 1, "d": None}, "e": 2}}

    def nulled(self, *errors: tuple[str, str]) -> Any:
        """The data and the paths of the reported errors, for (path, nulled position) of each error."""
        positions = [ErrorPosition(tuple(path.split(".")), tuple(null_path.split(".") if null_path else ())) for path, null_path in errors]
        data = {"a": {"b": dict(self.DATA["a"]["b"]), "e": 2}}
        result = null_error_positions(data, [FieldError(each, NotFound("Row")) for each in positions])
        return result.data, [".".join(map(str, each.path)) for each in result.errors]

    def test_a_nullable_field_is_null(self) -> None:
        assert self.nulled(("a.b", "a.b")) == ({"a": {"b": None, "e": 2}}, ["a.b"])

    def test_a_non_null_field_nulls_its_parent(self) -> None:
        assert self.nulled(("a.b.c", "a.b")) == ({"a": {"b": None, "e": 2}}, ["a.b.c"])
        assert self.nulled(("a.b.c", "a")) == ({"a": None}, ["a.b.c"])

    def test_an_error_without_a_nullable_parent_nulls_the_data(self) -> None:
        assert self.nulled(("a.b.c", "")) == (None, ["a.b.c"])

    def test_later_errors_below_a_null_are_dropped(self) -> None:
        assert self.nulled(("a.b.c", "a"), ("a.b", "a.b")) == ({"a": None}, ["a.b.c"])
        assert self.nulled(("a.b.c", "a.b"), ("a.b.d", "a.b")) == ({"a": {"b": None, "e": 2}}, ["a.b.c"])
        assert self.nulled(("a", ""), ("a.b.d", "a.b.d")) == (None, ["a"])

    def test_earlier_errors_below_a_null_are_reported(self) -> None:
        assert self.nulled(("a.b.d", "a.b.d"), ("a.b.c", "a")) == ({"a": None}, ["a.b.d", "a.b.c"])

    def test_a_replaced_object_is_left_to_graphql_core(self) -> None:
        with pytest.raises(PlanBailout):
            self.nulled(("a.e.c.d", "a.e.c.d"))
