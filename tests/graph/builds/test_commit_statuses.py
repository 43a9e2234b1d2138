"""Commit statuses through the graph."""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from graph.context import Services
from graph.fields.entities import global_id
from graph.jobs import maintenance
from graph.jobs.maintenance_wakeup import MaintenanceWakeup, MaintenanceWork
from graph.operations.execution import Graph
from storage import tables
from storage.git.history.log import list_history
from storage.tables import AccessLevel, CheckStatus, Visibility
from tests.make import DataFactory
from tests.support.api_clients import Ask
from tests.support.database.statements import StatementRecorder

CREATE = """mutation ($input: CreateCommitStatusInput!) { createCommitStatus(input: $input) {
    commitStatus { databaseId sha ref name stage status description targetUrl allowFailure createdAt startedAt finishedAt
      author { username } commit { oid status allowFailure rollup { state } } project { path } restPath }
    userErrors { field message code } } }"""
LIST = """query ($path: String!, $rev: String!, $filter: CommitStatusFilter, $first: Int, $after: String, $offset: Int) {
    project(path: $path) { commit(rev: $rev) { statuses(filter: $filter, first: $first, after: $after, offset: $offset) {
      totalCount nodes { name ref status } pageInfo { hasNextPage endCursor } } } } }"""
MOMENT = datetime(2016, 1, 2, 3, 4, 5, tzinfo=UTC)


class RecordingWakeup(MaintenanceWakeup):
    """Records the work of which it is notified."""

    def __init__(self) -> None:
        super().__init__()
        self.notified: list[MaintenanceWork] = []

    def notify(self, work: MaintenanceWork) -> None:
        self.notified.append(work)
        super().notify(work)


@pytest.fixture
async def owner(make: DataFactory) -> tables.User:
    return await make.user()


@pytest.fixture
async def project(make: DataFactory, owner: tables.User) -> tables.Project:
    return await make.project(owner=owner, history={"commits": 12})


@pytest.fixture
async def head(services: Services, project: tables.Project) -> str:
    """The commit of `master`."""
    return str(await services.repositories.read(project.id, lambda repository: repository.resolve("master")))


async def post(ask: Ask, viewer: tables.User, project: tables.Project, state: str, **input: Any) -> dict[str, Any]:
    data = await ask.data(CREATE, viewer, input={"projectPath": str(project.id), "sha": "master", "state": state, **input})
    assert data["createCommitStatus"]["userErrors"] == []
    found: dict[str, Any] = data["createCommitStatus"]["commitStatus"]
    return found


async def listed(ask: Ask, viewer: tables.User, project: tables.Project, rev: str = "master", **variables: Any) -> list[tuple[Any, ...]]:
    data = await ask.data(LIST, viewer, path=str(project.id), rev=rev, **variables)
    return [(node["name"], node["ref"], node["status"]) for node in data["project"]["commit"]["statuses"]["nodes"]]


def services_at(moments: dict[str, datetime], services: Services) -> Ask:
    """The forge at the moment that `moments["now"]` says."""
    return Ask(Graph(replace(services, clock=lambda: moments["now"])))


class TestCreateCommitStatus:
    async def test_stores_every_field(self, services: Services, owner: tables.User, project: tables.Project, head: str) -> None:
        found = await post(
            services_at({"now": MOMENT}, services),
            owner,
            project,
            "FAILED",
            ref="feature/x",
            name="ci/unit",
            stage="test",
            targetUrl="https://ci.example/1?a=b#c",
            description="3 of 4 failed",
            allowFailure=True,
        )

        assert isinstance(found.pop("databaseId"), int)
        assert found == {
            "sha": head,
            "ref": "feature/x",
            "name": "ci/unit",
            "stage": "test",
            "status": "FAILED",
            "description": "3 of 4 failed",
            "targetUrl": "https://ci.example/1?a=b#c",
            "allowFailure": True,
            "createdAt": "2016-01-02T03:04:05.000000Z",
            "startedAt": None,
            "finishedAt": "2016-01-02T03:04:05.000000Z",
            "author": {"username": owner.username},
            "commit": {"oid": head, "status": "SUCCESS", "allowFailure": True, "rollup": {"state": "SUCCESS"}},
            "project": {"path": project.path},
            "restPath": f"/api/v3/projects/{project.id}/repository/commits/{head}/statuses",
        }

    async def test_requires_only_the_state(self, ask: Ask, owner: tables.User, project: tables.Project) -> None:
        for blank in ({}, {"name": " ", "ref": "", "stage": " ", "targetUrl": "", "description": "", "allowFailure": None}):
            found = await post(ask, owner, project, "SUCCESS", **blank)

            assert (found["name"], found["ref"], found["stage"], found["allowFailure"]) == ("default", None, "external", False)
            assert (found["targetUrl"], found["description"]) == (None, None)

    async def test_of_a_commit_by_any_exact_name(self, ask: Ask, owner: tables.User, project: tables.Project, head: str) -> None:
        for name in (head, head.upper(), head[:8], "master"):
            found = await post(ask, owner, project, "SUCCESS", sha=name)
            assert (found["sha"], found["ref"]) == (head, None), name
        assert (await post(ask, owner, project, "SUCCESS", sha="v1"))["sha"] != head

    @pytest.mark.parametrize("name", ["gone", "HEAD", "master~1", "@{-1}", ":/Change", "--output=x", "f" * 40, ""])
    async def test_of_no_revision_expression(
        self, ask: Ask, make: DataFactory, owner: tables.User, project: tables.Project, name: str
    ) -> None:
        input = {"projectPath": str(project.id), "sha": name, "state": "SUCCESS"}

        (problem,) = (await ask(CREATE, owner, input=input)).errors

        assert (problem.code, problem.subject) == ("NOT_FOUND", "Commit")
        assert await make.count(tables.CommitStatus) == 0

    @pytest.mark.parametrize(
        "address",
        [
            "javascript:alert(1)",
            "JavaScript:alert(1)",
            "data:text/html,x",
            "ftp://ci.example/",
            "http://",
            "http://a b/",
        ],
    )
    async def test_rejects_invalid_target_urls(
        self, ask: Ask, make: DataFactory, owner: tables.User, project: tables.Project, address: str
    ) -> None:
        input = {"projectPath": str(project.id), "sha": "master", "state": "SUCCESS", "targetUrl": address}

        data = await ask.data(CREATE, owner, input=input)

        assert data["createCommitStatus"] == {
            "commitStatus": None,
            "userErrors": [{"field": "targetUrl", "message": "must be a valid URL", "code": "INVALID"}],
        }
        assert await make.count(tables.CommitStatus) == 0

    @pytest.mark.parametrize("field", ["ref", "name", "stage"])
    async def test_rejects_too_long_values(self, ask: Ask, owner: tables.User, project: tables.Project, field: str) -> None:
        valid = {"projectPath": str(project.id), "sha": "master", "state": "SUCCESS"}

        assert (await post(ask, owner, project, "SUCCESS", **{field: "ü" * 255}))[field] == "ü" * 255
        data = await ask.data(CREATE, owner, input={**valid, field: "x" * 256})
        assert [(error["field"], error["code"]) for error in data["createCommitStatus"]["userErrors"]] == [(field, "INVALID")]


class TestTransitions:
    """docs/decisions.md 12: what waits or runs is updated, what has ended gets a new row, and the answer has the given state."""

    @pytest.mark.parametrize("before", ["PENDING", "RUNNING", "SUCCESS", "FAILED", "CANCELED"])
    @pytest.mark.parametrize("after", ["PENDING", "RUNNING", "SUCCESS", "FAILED", "CANCELED"])
    async def test_any_state_may_follow_any_other(
        self, services: Services, owner: tables.User, project: tables.Project, before: str, after: str
    ) -> None:
        moments = {"now": MOMENT}
        ask = services_at(moments, services)
        first = await post(ask, owner, project, before, name="unit")
        moments["now"] += timedelta(seconds=10)
        then = "2016-01-02T03:04:15.000000Z"

        second = await post(ask, owner, project, after, name="unit")

        assert second["status"] == after
        ended = before not in ("PENDING", "RUNNING")
        assert (second["databaseId"] != first["databaseId"]) is ended
        assert second["createdAt"] == (then if ended else first["createdAt"])
        assert second["finishedAt"] == (then if after not in ("PENDING", "RUNNING") else None)
        stored = None if ended or after == "PENDING" else first["startedAt"]
        assert second["startedAt"] == (stored or (then if after == "RUNNING" else None))

    async def test_omitted_fields_are_preserved(self, ask: Ask, make: DataFactory, owner: tables.User, project: tables.Project) -> None:
        other = await make.user()
        await make.member(project, other, AccessLevel.DEVELOPER)
        output = {"description": "Queued", "targetUrl": "http://ci.example/1", "stage": "test", "allowFailure": True}
        await post(ask, owner, project, "PENDING", **output)

        second = await post(ask, other, project, "RUNNING", description="Half of it", allowFailure=None)
        third = await post(ask, other, project, "RUNNING", targetUrl=None, description="", allowFailure=False, stage="build")

        assert {key: second[key] for key in output} == {**output, "description": "Half of it"}
        assert {key: third[key] for key in output} == {"description": None, "targetUrl": None, "stage": "build", "allowFailure": False}
        assert third["author"] == {"username": owner.username}

    async def test_each_commit_name_and_ref_is_one_of_its_own(
        self, ask: Ask, make: DataFactory, owner: tables.User, project: tables.Project
    ) -> None:
        others: tuple[dict[str, Any], ...] = ({}, {"name": "unit"}, {"name": "Unit"}, {"ref": "master"}, {"ref": "topic"}, {"sha": "topic"})
        first = [(await post(ask, owner, project, "PENDING", **each))["databaseId"] for each in others]
        again = [(await post(ask, owner, project, "RUNNING", **each))["databaseId"] for each in others]

        assert len(set(first)) == len(others)
        assert again == first

    async def test_concurrent_duplicates_create_one_row(
        self, ask: Ask, make: DataFactory, owner: tables.User, project: tables.Project
    ) -> None:
        for ref in (None, "master"):
            found = await asyncio.gather(*(post(ask, owner, project, state, ref=ref) for state in ("PENDING", "RUNNING") * 5))
            assert len({each["databaseId"] for each in found}) == 1

        assert await make.count(tables.CommitStatus) == 2

    async def test_notifies_waiting_merges(self, services: Services, owner: tables.User, project: tables.Project) -> None:
        wakeup = RecordingWakeup()
        ask = Ask(Graph(replace(services, maintenance_wakeup=wakeup)))

        await post(ask, owner, project, "PENDING")
        await post(ask, owner, project, "SUCCESS")
        assert wakeup.notified == [MaintenanceWork.AUTOMATIC_MERGES, MaintenanceWork.BRANCH_HEALTH] * 2

        # Only the jobs with work run.
        await maintenance.run_once(services, await wakeup.wait(0))
        assert [job.name for job in services.job_monitor.list_jobs()] == ["merge waiting", "refresh health"]
        assert await wakeup.wait(0) == frozenset()

        await ask(CREATE, owner, input={"projectPath": str(project.id), "sha": "master", "state": "SUCCESS", "targetUrl": "javascript:"})
        assert len(wakeup.notified) == 4

    async def test_the_commit_follows_at_once(self, ask: Ask, owner: tables.User, project: tables.Project) -> None:
        for state, shown in (("PENDING", "PENDING"), ("RUNNING", "RUNNING"), ("FAILED", "FAILED"), ("SUCCESS", "SUCCESS")):
            commit = (await post(ask, owner, project, state))["commit"]
            assert (commit["status"], commit["rollup"]["state"]) == (shown, shown)


class TestStatuses:
    @pytest.fixture
    async def posted_statuses(self, make: DataFactory, project: tables.Project, head: str) -> None:
        for name, ref, stage, status in (
            ("unit", "master", "test", CheckStatus.FAILED),
            ("unit", None, "test", CheckStatus.SUCCESS),
            ("lint", "master", "check", CheckStatus.RUNNING),
            ("unit", "master", "other", CheckStatus.SUCCESS),
            ("unit", "topic", "test", CheckStatus.CANCELED),
        ):
            await make.commit_status(project, head, name=name, ref=ref, stage=stage, status=status)

    @pytest.mark.usefixtures("posted_statuses")
    async def test_are_the_newest_of_each_name_and_ref_oldest_first(self, ask: Ask, owner: tables.User, project: tables.Project) -> None:
        newest = [
            ("unit", None, "SUCCESS"),
            ("lint", "master", "RUNNING"),
            ("unit", "master", "SUCCESS"),
            ("unit", "topic", "CANCELED"),
        ]

        assert await listed(ask, owner, project) == newest
        assert await listed(ask, owner, project, filter={"all": True}) == [("unit", "master", "FAILED"), *newest]
        assert await listed(ask, owner, project, rev="topic") == []

    @pytest.mark.usefixtures("posted_statuses")
    @pytest.mark.parametrize(
        ("filter", "indexes"),
        [
            ({"ref": ["master"]}, [2, 3]),
            ({"ref": ["master", "topic"]}, [2, 3, 4]),
            ({"name": ["lint"]}, [2]),
            ({"stage": ["test"]}, [1, 4]),
            ({"stage": ["test"], "all": True}, [0, 1, 4]),
            ({"name": ["unit"], "ref": ["master"], "all": True}, [0, 3]),
            ({"name": []}, []),
            ({"name": ["gone"]}, []),
            ({"ref": [""]}, []),
        ],
    )
    async def test_filtered(
        self, ask: Ask, owner: tables.User, project: tables.Project, filter: dict[str, Any], indexes: list[int]
    ) -> None:
        every = await listed(ask, owner, project, filter={"all": True})

        assert await listed(ask, owner, project, filter=filter) == [every[place] for place in indexes]

    @pytest.mark.usefixtures("posted_statuses")
    async def test_by_pages(self, ask: Ask, owner: tables.User, project: tables.Project) -> None:
        every = await listed(ask, owner, project)
        data = await ask.data(LIST, owner, path=str(project.id), rev="master", first=2)
        page = data["project"]["commit"]["statuses"]

        assert (page["totalCount"], page["pageInfo"]["hasNextPage"]) == (4, True)
        assert await listed(ask, owner, project, first=2, after=page["pageInfo"]["endCursor"]) == every[2:]
        assert await listed(ask, owner, project, first=2, offset=1) == every[1:3]

    async def test_of_this_project_only(self, ask: Ask, make: DataFactory, owner: tables.User, project: tables.Project, head: str) -> None:
        fork = await make.project(owner=owner, history={"commits": 12})
        await make.commit_status(fork, head)

        assert await listed(ask, owner, project, rev=head) == []
        assert len(await listed(ask, owner, fork, rev=head)) == 1

    async def test_outlive_their_author(self, ask: Ask, make: DataFactory, owner: tables.User, project: tables.Project, head: str) -> None:
        status = await make.commit_status(project, head)

        query = "query ($id: ID!) { node(id: $id) { ... on CommitStatus { status author { username } } } }"
        data = await ask.data(query, owner, id=global_id("CommitStatus", status.id))

        assert data["node"] == {"status": "PENDING", "author": None}


class TestRights:
    async def test_reporters_read_and_developers_write(self, ask: Ask, make: DataFactory, project: tables.Project, head: str) -> None:
        status = await make.commit_status(project, head)
        node = "query ($id: ID!) { node(id: $id) { id } }"
        input = {"projectPath": str(project.id), "sha": "gone", "state": "SUCCESS"}
        for level, code in ((AccessLevel.GUEST, "FORBIDDEN"), (AccessLevel.REPORTER, "FORBIDDEN"), (AccessLevel.DEVELOPER, "NOT_FOUND")):
            await make.member(project, viewer := await make.user(), level)
            reads = level > AccessLevel.GUEST

            # Whether the commit is there at all is for those to hear who may.
            assert await ask.codes(CREATE, viewer, input=input) == [code]
            assert ((await ask.data(node, viewer, id=global_id("CommitStatus", status.id)))["node"] is not None) is reads
            if reads:
                assert len(await listed(ask, viewer, project)) == 1

    async def test_every_signed_in_user_reads_those_of_an_internal_project(self, ask: Ask, make: DataFactory, head: str) -> None:
        internal, stranger = await make.project(visibility=Visibility.INTERNAL, history={"commits": 12}), await make.user()
        await make.commit_status(internal, head)

        assert len(await listed(ask, stranger, internal)) == 1
        input = {"projectPath": str(internal.id), "sha": head, "state": "SUCCESS"}
        assert await ask.codes(CREATE, stranger, input=input) == ["FORBIDDEN"]

    async def test_a_hidden_project_is_not_found(self, ask: Ask, make: DataFactory, project: tables.Project, head: str) -> None:
        stranger = await make.user()

        assert await ask.codes(LIST, stranger, path=str(project.id), rev=head) == ["NOT_FOUND"]
        assert await ask.codes(CREATE, stranger, input={"projectPath": str(project.id), "sha": head, "state": "SUCCESS"}) == ["NOT_FOUND"]


class TestCost:
    QUERY = """query ($path: String!, $first: Int!) { project(path: $path) { commits(first: $first) { nodes {
        status rollup { state counts { total } }
        statuses(first: 5) { totalCount nodes { name status author { username } project { path } } } } } } }"""

    async def test_is_the_same_for_one_commit_and_for_ten(
        self, ask: Ask, make: DataFactory, statements: StatementRecorder, owner: tables.User, project: tables.Project, services: Services
    ) -> None:
        for commit in await services.repositories.read(
            project.id, lambda repository: list_history(repository, repository.resolve("master") or "", skip=0, limit=10)
        ):
            for name in ("a", "b", "a"):
                await make.commit_status(project, commit.oid, name=name, author_id=owner.id)

        with statements.record() as one:
            await ask.data(self.QUERY, owner, path=str(project.id), first=1)
        with statements.record() as ten:
            data = await ask.data(self.QUERY, owner, path=str(project.id), first=10)

        nodes = data["project"]["commits"]["nodes"]
        assert [node["statuses"]["totalCount"] for node in nodes] == [2] * len(nodes)
        # The length of a single list that fits its page is known without counting.
        assert len(ten) - 1 <= len(one) <= 8

    async def test_posting_runs_a_constant_number_of_statements(
        self, ask: Ask, make: DataFactory, statements: StatementRecorder, owner: tables.User, project: tables.Project, head: str
    ) -> None:
        # The refs of the project are cached from then on.
        await post(ask, owner, project, "PENDING")
        with statements.record() as first:
            await post(ask, owner, project, "SUCCESS")
        for number in range(30):
            await make.commit_status(project, head, name=f"job{number}")
        with statements.record() as later:
            await post(ask, owner, project, "SUCCESS")

        assert len(later) == len(first) <= 15
