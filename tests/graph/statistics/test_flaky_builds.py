"""Jobs that both fail and succeed on the same commit."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from graph.context import Services
from graph.fields.cursors import encode_cursor
from storage import tables
from storage.git.history.log import list_history
from storage.tables import AccessLevel, CheckStatus, Visibility
from tests.make import DataFactory
from tests.support.api_clients import Ask
from tests.support.database.statements import StatementRecorder
from tests.support.queries.pagination import check_pages_both_ways

MOMENT = datetime(2016, 1, 1, tzinfo=UTC)
JOB = "name stage flips runs rate wastedSeconds blockedMergeRequests"
FLAKY = f"""query ($path: String!, $since: DateTime!, $first: Int) {{ project(path: $path) {{ flakyBuilds(since: $since, first: $first) {{
    totalCount nodes {{ {JOB} }} }} }} }}"""
WITH_COMMITS = f"""query ($path: String!, $since: DateTime!, $first: Int) {{ project(path: $path) {{
    flakyBuilds(since: $since, first: $first) {{ totalCount nodes {{ {JOB} lastCommit {{ oid shortOid
        builds(filter: {{latestAttemptOnly: false}}, first: 10) {{ nodes {{ name attempt status durationSeconds }} }} }} }} }} }} }}"""
A, B, C = "a" * 40, "b" * 40, "c" * 40


def after(seconds: float) -> datetime:
    return MOMENT + timedelta(seconds=seconds)


@pytest.fixture
async def owner(make: DataFactory) -> tables.User:
    return await make.user("owner")


@pytest.fixture
async def project(make: DataFactory, owner: tables.User) -> tables.Project:
    return await make.project(owner=owner)


async def create_build(make: DataFactory, project: tables.Project, sha: str, name: str, *runs: tuple[str, float], **columns: Any) -> None:
    """The attempts of a build, each with its status and when it ended; each took ten seconds."""
    current = None
    for attempt in range(len(runs), 0, -1):
        status, end = runs[attempt - 1]
        times = {"created_at": after(end - 20), "started_at": after(end - 10), "finished_at": after(end)}
        values = {"attempt": attempt, "current_id": current.id if current else None, **times, **columns}
        row = await make.build(project, sha, name=name, status=CheckStatus(status), **values)
        current = current or row


async def create_merge_request(make: DataFactory, project: tables.Project, *oids: str, **columns: Any) -> None:
    row = await make.merge_request(project, **columns)
    await make.save(*(tables.MergeRequestCommit(merge_request_id=row.id, position=index, oid=oid) for index, oid in enumerate(oids)))


async def query_flaky_builds(ask: Ask, viewer: tables.User, project: tables.Project, query: str = FLAKY, **arguments: Any) -> Any:
    variables = {"since": MOMENT.isoformat(), **arguments}
    return (await ask.data(query, viewer, path=str(project.id), **variables))["project"]["flakyBuilds"]


class TestFlaky:
    async def test_is_a_job_that_failed_and_succeeded_on_one_commit(
        self, ask: Ask, make: DataFactory, owner: tables.User, project: tables.Project
    ) -> None:
        await create_build(make, project, A, "unit", ("failed", 10), ("failed", 20), ("success", 30))
        await create_build(make, project, A, "unit", ("failed", 40), ref="topic")
        await create_build(make, project, B, "unit", ("success", 50), ("canceled", 60), ("success", 70))
        await create_build(make, project, C, "unit", ("failed", 80))
        await create_build(make, project, A, "lint", ("failed", 10))
        await create_build(make, project, B, "lint", ("success", 20))
        await create_build(make, project, A, "lint", ("success", 10), stage="other")

        found = await query_flaky_builds(ask, owner, project)

        assert found["totalCount"] == 1
        (job,) = found["nodes"]
        assert job == {
            "name": "unit",
            "stage": "test",
            "flips": 2,
            "runs": 7,
            "rate": 2 / 7,
            "wastedSeconds": 30,
            "blockedMergeRequests": 0,
        }

    async def test_runs_before_do_not_count(self, ask: Ask, make: DataFactory, owner: tables.User, project: tables.Project) -> None:
        await create_build(make, project, A, "unit", ("failed", -1), ("success", 10))

        assert await query_flaky_builds(ask, owner, project) == {"totalCount": 0, "nodes": []}
        assert (await query_flaky_builds(ask, owner, project, since=after(-1).isoformat()))["totalCount"] == 1

    async def test_attempts_order_builds_of_the_same_timestamp(
        self, ask: Ask, make: DataFactory, owner: tables.User, project: tables.Project
    ) -> None:
        await create_build(make, project, A, "unit", ("failed", 10), ("failed", 10), ("success", 10))

        assert [job["flips"] for job in (await query_flaky_builds(ask, owner, project))["nodes"]] == [1]

    async def test_those_that_flip_most_come_first(self, ask: Ask, make: DataFactory, owner: tables.User, project: tables.Project) -> None:
        for name, stage in (("b", "test"), ("a", "test"), ("a", "build")):
            await create_build(make, project, A, name, ("failed", 10), ("success", 20), stage=stage)
        await create_build(make, project, A, "z", ("failed", 10), ("success", 20), ("failed", 30))

        whole, two, none = [await query_flaky_builds(ask, owner, project, first=first) for first in (20, 2, 0)]

        assert [(job["name"], job["stage"]) for job in whole["nodes"]] == [("z", "test"), ("a", "build"), ("a", "test"), ("b", "test")]
        assert two == {"totalCount": 4, "nodes": whole["nodes"][:2]}
        assert none == {"totalCount": 4, "nodes": []}


class TestBlocked:
    async def test_are_merge_requests_with_a_failed_commit(
        self, ask: Ask, make: DataFactory, owner: tables.User, project: tables.Project
    ) -> None:
        await create_build(make, project, A, "unit", ("failed", 10), ("success", 20))
        await create_build(make, project, B, "unit", ("failed", 10), ("success", 20))
        await create_build(make, project, C, "unit", ("failed", 30))
        await create_build(make, project, A, "lint", ("failed", 10), ("success", 20), allow_failure=True)
        hidden = await make.project(forked_from_id=project.id)
        foreign = await make.project(owner=owner)
        await create_merge_request(make, project, A, B)
        await create_merge_request(make, project, B)
        await create_merge_request(make, project, C)
        await create_merge_request(make, hidden, A, source_project_id=project.id)
        await create_merge_request(make, foreign, A)

        found = await query_flaky_builds(ask, owner, project)
        every = await query_flaky_builds(ask, await make.admin(), project)

        assert [(job["name"], job["blockedMergeRequests"]) for job in found["nodes"]] == [("unit", 2), ("lint", 0)]
        assert [(job["name"], job["blockedMergeRequests"]) for job in every["nodes"]] == [("unit", 3), ("lint", 0)]


class TestCommits:
    async def test_are_those_of_the_last_flip_and_cost_the_same_for_many(
        self, ask: Ask, make: DataFactory, services: Services, owner: tables.User, statements: StatementRecorder
    ) -> None:
        project = await make.project(owner=owner, history={"commits": 12, "merges_every": 0})
        commits = await services.repositories.read(
            project.id, lambda repository: list_history(repository, repository.resolve("master") or "", skip=0, limit=5)
        )
        for number, commit in enumerate(commits):
            await create_build(make, project, commit.oid, f"job{number}", ("failed", 10), ("success", 20))
        await create_build(make, project, commits[4].oid, "job0", ("failed", 30), ("success", 35))
        await create_build(make, project, commits[3].oid, "job0", ("success", 40))

        with statements.record() as one:
            await query_flaky_builds(ask, owner, project, WITH_COMMITS, first=1)
        with statements.assert_at_most(8) as five:
            found = await query_flaky_builds(ask, owner, project, WITH_COMMITS, first=5)

        assert len(five) <= len(one)
        last = [commits[4], *commits[1:]]
        assert [job["lastCommit"]["oid"] for job in found["nodes"]] == [commit.oid for commit in last]
        assert found["nodes"][0]["lastCommit"]["builds"]["nodes"][:2] == [
            {"name": "job0", "attempt": 1, "status": "FAILED", "durationSeconds": 10.0},
            {"name": "job0", "attempt": 2, "status": "SUCCESS", "durationSeconds": 10.0},
        ]

    async def test_statement_count_does_not_grow_with_rows(
        self, ask: Ask, make: DataFactory, owner: tables.User, statements: StatementRecorder
    ) -> None:
        query = f"""query ($first: Int, $since: DateTime!) {{ projects(first: $first) {{ nodes {{ name
            flakyBuilds(since: $since, first: 1) {{ totalCount nodes {{ {JOB} }} }} }} }} }}"""
        for number in range(3):
            project = await make.project(owner=owner, name=str(number))
            for name in "xyz"[: number + 1]:
                await create_build(make, project, A, name, ("failed", 10), ("success", 20))

        with statements.record() as one:
            await ask.data(query, owner, first=1, since=MOMENT.isoformat())
        with statements.record() as three:
            data = await ask.data(query, owner, first=3, since=MOMENT.isoformat())

        assert len(three) <= len(one)
        found = {node["name"]: node["flakyBuilds"] for node in data["projects"]["nodes"]}
        assert {name: (jobs["totalCount"], [job["name"] for job in jobs["nodes"]]) for name, jobs in found.items()} == {
            "0": (1, ["x"]), "1": (2, ["x"]), "2": (3, ["x"])}  # fmt: skip


class TestRights:
    async def test_follow_build_permissions(self, ask: Ask, make: DataFactory) -> None:
        viewer = await make.user()
        guarded = await make.project(visibility=Visibility.PUBLIC, public_builds=False, members=[(viewer, AccessLevel.GUEST)])

        assert await ask.codes(FLAKY, viewer, path=str(guarded.id), since=MOMENT.isoformat()) == ["FORBIDDEN"]
        assert await ask.codes(FLAKY, viewer, path=str((await make.project()).id), since=MOMENT.isoformat()) == ["NOT_FOUND"]


class TestPages:
    PAGE = """query ($path: String!, $since: DateTime!, $first: Int, $after: String, $last: Int, $before: String, $offset: Int) {
      project(path: $path) { flakyBuilds(since: $since, first: $first, after: $after, last: $last, before: $before, offset: $offset) {
        totalCount nodes { name } edges { cursor node { name } } pageInfo { hasNextPage hasPreviousPage startCursor endCursor } } } }"""

    async def test_both_ways_with_ties(self, ask: Ask, make: DataFactory, owner: tables.User, project: tables.Project) -> None:
        for name in ("b", "B", "ä", "a"):
            await create_build(make, project, A, name, ("failed", 10), ("success", 20))
        await create_build(make, project, A, "most", ("failed", 10), ("success", 20), ("failed", 30))

        async def page(**arguments: Any) -> Any:
            found = await query_flaky_builds(ask, owner, project, self.PAGE, **arguments)
            assert found["totalCount"] == 5
            assert [edge["node"] for edge in found["edges"]] == found["nodes"]
            return found

        whole = ["most", "B", "a", "b", "ä"]
        assert [node["name"] for node in (await page())["nodes"]] == whole
        assert [node["name"] for node in (await page(first=2, offset=2))["nodes"]] == ["a", "b"]
        await check_pages_both_ways(page, "name", whole)
        last = (await page())["edges"][-1]["cursor"]
        assert (await page(after=last))["nodes"] == []
        assert (await page(first=0))["nodes"] == []

    @pytest.mark.parametrize(
        "values",
        [
            [],
            [1],
            [1, "a"],
            ["1", "a", "b"],
            [True, "a", "b"],
            [-1, "a", "b"],
            [2**31, "a", "b"],
            [2**63, "a", "b"],
            [1, "a\0", "b"],
            [1, None, "b"],
        ],
    )
    async def test_a_forged_cursor_is_rejected(self, ask: Ask, owner: tables.User, project: tables.Project, values: list[Any]) -> None:
        columns = {"path": str(project.id), "since": MOMENT.isoformat(), "after": encode_cursor("flaky", *values)}

        assert await ask.codes(self.PAGE, owner, **columns) == ["BAD_REQUEST"]
