"""Lead times of merge requests, heads with failed checks, and those of a whole group."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from graph.context import Services
from graph.rules.builds.rollup_history import CheckRun, find_green_since, state_at
from graph.rules.builds.rollups import RollupState
from storage import tables
from storage.git.history.log import list_history
from storage.tables import AccessLevel, CheckStatus, MergeRequestState
from tests.make import DataFactory
from tests.support.api_clients import Ask
from tests.support.database.statements import StatementRecorder

MOMENT = datetime(2016, 1, 1, tzinfo=UTC)
LEAD_TIMES = """query ($path: String!) { project(path: $path) { mergeRequests(orderBy: {field: CREATED_AT, direction: ASC}) { nodes {
    leadTime { firstCommitToOpen openToFirstResponse openToMerge mergeToGreen total } } } } }"""
RED = """query ($path: String!, $states: [RollupState!]) { project(path: $path) { mergeRequests(filter: {headState: $states}) {
    totalCount nodes { iid headCommit { rollup { state } } } } } }"""
OF_GROUP = """query ($path: String!, $filter: MergeRequestFilter) { group(path: $path) {
    mergeRequests(filter: $filter, first: 30) { totalCount nodes { title project { path } } } } }"""


def after(seconds: float) -> datetime:
    return MOMENT + timedelta(seconds=seconds)


def create_check(status: str, *times: float | None, name: str = "unit", is_stored: int = 1, attempt: int = 1, **columns: Any) -> CheckRun:
    """Made, begun and ended this number of seconds after MOMENT."""
    created, started, finished = (None if each is None else after(each) for each in (*times, None, None)[:3])
    values = {"ref": "master", "allow_failure": False, "kind": 0, **columns}
    assert created is not None
    return CheckRun(name=name, status=CheckStatus(status), created_at=created, started_at=started, finished_at=finished, check_id=is_stored,
               attempt=attempt, **values)  # fmt: skip


class TestStatusHistory:
    def test_status_history_of_one_run(self) -> None:
        runs = [create_check("failed", 1, 2, 3)]

        assert [state_at(runs, after(each)) for each in (0, 1, 2, 3)] == [
            RollupState.NONE,
            RollupState.PENDING,
            RollupState.RUNNING,
            RollupState.FAILED,
        ]

    def test_status_history_of_a_retry(self) -> None:
        runs = [create_check("success", 10, 11, 12, attempt=2), create_check("failed", 1, 2, 3)]

        assert [state_at(runs, after(each)) for each in (9, 10, 11, 12)] == [
            RollupState.FAILED,
            RollupState.PENDING,
            RollupState.RUNNING,
            RollupState.SUCCESS,
        ]
        assert find_green_since(runs, after(0)) == after(12)
        assert find_green_since(runs, after(20)) == after(20)
        assert find_green_since([create_check("failed", 1, 2, 3)], after(0)) is None

    def test_status_history_of_external_statuses(self) -> None:
        runs = [create_check("success", 5, None, 5, kind=1), create_check("canceled", 1, None, 4, name="lint", is_stored=2)]

        assert [state_at(runs, after(each)) for each in (1, 4, 5)] == [RollupState.PENDING, RollupState.CANCELED, RollupState.SUCCESS]


class TestLeadTimeField:
    @pytest.fixture
    async def owner(self, make: DataFactory) -> tables.User:
        return await make.user()

    @pytest.fixture
    async def project(self, make: DataFactory, owner: tables.User) -> tables.Project:
        return await make.indexed(await make.project(owner=owner, history={"commits": 12, "merges_every": 0}))

    @pytest.fixture
    async def commits(self, services: Services, project: tables.Project) -> list[Any]:
        """Those of master, the newest first."""
        return await services.repositories.read(
            project.id, lambda repository: list_history(repository, repository.resolve("master") or "", skip=0, limit=20)
        )

    async def merged(self, make: DataFactory, project: tables.Project, commits: list[Any], **columns: Any) -> tables.MergeRequest:
        """One of the two newest commits, opened 100 s after the older of them was written and merged 50 s later."""
        opened = commits[1].authored_at + timedelta(seconds=100)
        times = {"created_at": opened, "updated_at": opened, "merged_at": opened + timedelta(seconds=50)}
        row = await make.merge_request(
            project, state=MergeRequestState.MERGED, merge_commit_oid=commits[0].oid, head_oid=commits[0].oid, **{**times, **columns}
        )
        await make.save(*(tables.MergeRequestCommit(merge_request_id=row.id, position=place, oid=commits[place].oid) for place in (0, 1)))
        return row

    async def test_the_steps_of_one(
        self, ask: Ask, make: DataFactory, owner: tables.User, project: tables.Project, commits: list[Any]
    ) -> None:
        row = await self.merged(make, project, commits)
        reviewer = await make.user()
        assert row.merged_at is not None
        await make.note(row, author=owner, created_at=row.created_at + timedelta(seconds=1))
        await make.note(row, author=reviewer, system=True, created_at=row.created_at + timedelta(seconds=2))
        await make.note(row, author=reviewer, created_at=row.created_at + timedelta(seconds=7.5))
        end = row.merged_at
        build = await make.build(
            project, commits[0].oid, attempt=2, status=CheckStatus.SUCCESS, created_at=end + timedelta(seconds=30),
            finished_at=end + timedelta(seconds=40),
        )  # fmt: skip
        await make.build(
            project, commits[0].oid, name=build.name, current_id=build.id, status=CheckStatus.FAILED, created_at=end,
            finished_at=end + timedelta(seconds=5),
        )  # fmt: skip

        data = await ask.data(LEAD_TIMES, owner, path=str(project.id))

        assert data["project"]["mergeRequests"]["nodes"] == [
            {
                "leadTime": {
                    "firstCommitToOpen": 100.0,
                    "openToFirstResponse": 7.5,
                    "openToMerge": 50.0,
                    "mergeToGreen": 40.0,
                    "total": 150.0,
                }
            }
        ]

    async def test_steps_that_have_not_happened(self, ask: Ask, make: DataFactory, owner: tables.User, project: tables.Project) -> None:
        await make.merge_request(project)

        data = await ask.data(LEAD_TIMES, owner, path=str(project.id))

        (node,) = data["project"]["mergeRequests"]["nodes"]
        assert set(node["leadTime"].values()) == {None}

    async def test_statement_count_does_not_grow_with_rows(
        self, ask: Ask, make: DataFactory, owner: tables.User, project: tables.Project, commits: list[Any], statements: StatementRecorder
    ) -> None:
        async def count() -> int:
            with statements.assert_at_most(16) as seen:
                await ask.data(LEAD_TIMES, owner, path=str(project.id))
            return len(seen)

        for index in range(2):
            await self.merged(make, project, commits[index:])
        few = await count()
        for index in range(8):
            await self.merged(make, project, commits[index:])
        assert await count() == few

    async def test_sorts_by_the_state_of_the_newest_commit(
        self, ask: Ask, make: DataFactory, owner: tables.User, project: tables.Project, commits: list[Any]
    ) -> None:
        """What the filter finds is what the rollup of each says."""
        words = [
            "", "success", "failed", "pending", "running", "canceled", "failed success", "pending success", "canceled success",
            "failed running",
        ]  # fmt: skip
        for commit, word in zip(commits, words, strict=True):
            await make.merge_request(project, head_oid=commit.oid)
            for status in word.split():
                await make.build(project, commit.oid, status=CheckStatus(status), created_at=after(0))
        retried = await make.build(project, commits[1].oid, name="again", status=CheckStatus.SUCCESS, attempt=2, created_at=after(9))
        await make.build(project, commits[1].oid, name="again", status=CheckStatus.FAILED, current_id=retried.id, created_at=after(1))
        await make.build(project, commits[2].oid, name="other", status=CheckStatus.SUCCESS, created_at=after(1))
        await make.commit_status(project, commits[2].oid, name="other", status=CheckStatus.FAILED, created_at=after(0))
        await make.commit_status(project, commits[5].oid, name="odd", status=CheckStatus.FAILED, allow_failure=True, created_at=after(3))

        found: dict[str, set[int]] = {}
        for state in ("NONE", "PENDING", "RUNNING", "FAILED", "SUCCESS", "CANCELED"):
            data = await ask.data(RED, owner, path=str(project.id), states=[state])
            page = data["project"]["mergeRequests"]
            assert {node["headCommit"]["rollup"]["state"] for node in page["nodes"]} <= {state}
            assert page["totalCount"] == len(page["nodes"])
            found[state] = {node["iid"] for node in page["nodes"]}
        assert found == {"NONE": {1}, "PENDING": {4}, "RUNNING": {5, 8, 10}, "FAILED": {3, 7}, "SUCCESS": {2, 6, 9}, "CANCELED": set()}

    async def test_a_guest_may_not_sort_by_checks(self, ask: Ask, make: DataFactory, project: tables.Project) -> None:
        guest = await make.user()
        await make.member(project, guest, AccessLevel.GUEST)

        assert await ask.codes(RED, guest, path=str(project.id), states=["FAILED"]) == ["FORBIDDEN"]


class TestGroupLeadTimes:
    async def test_shows_those_of_its_projects_that_the_viewer_sees(
        self, ask: Ask, make: DataFactory, statements: StatementRecorder
    ) -> None:
        member, group = await make.user(), await make.group()
        seen = await make.project(group=group, members=[(member, AccessLevel.REPORTER)], path="seen")
        guarded = await make.project(group=group, members=[(member, AccessLevel.GUEST)], path="guarded")
        hidden = await make.project(group=group, path="hidden")
        old = await make.project(group=group, members=[(member, AccessLevel.REPORTER)], path="old", archived=True)
        off = await make.project(group=group, members=[(member, AccessLevel.REPORTER)], path="off", merge_requests_enabled=False)
        author = await make.user()
        for project in (seen, guarded, hidden, old, off):
            await make.merge_request(project, author=author, title=project.path)

        async def titles(**filter: Any) -> list[str]:
            data = await ask.data(OF_GROUP, member, path=group.path, filter=filter)
            page = data["group"]["mergeRequests"]
            assert page["totalCount"] == len(page["nodes"])
            return sorted(node["title"] for node in page["nodes"])

        assert await titles() == ["guarded", "seen"]
        assert await titles(headState=["NONE"]) == ["seen"]
        with statements.record() as few:
            await titles()
        for _ in range(5):
            another = await make.project(group=group, members=[(member, AccessLevel.REPORTER)])
            await make.merge_request(another, author=author)
        with statements.record() as many:
            await titles()
        assert len(many) == len(few)
