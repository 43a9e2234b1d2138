"""Builds through the graph: lists, fields, attempts and permissions."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from graph.context import Services
from graph.fields.entities import global_id
from graph.operations.execution import Graph
from storage import tables
from storage.git.history.log import list_history
from storage.tables import AccessLevel, CheckStatus, MergeRequestState, Visibility
from tests.make import DataFactory
from tests.support.api_clients import Ask
from tests.support.database.statements import StatementRecorder, requires_planner
from tests.support.queries.pagination import check_pages_both_ways

LIST = """query ($path: String!, $filter: BuildFilter, $first: Int, $after: String, $offset: Int) { project(path: $path) {
    builds(filter: $filter, first: $first, after: $after, offset: $offset) {
      totalCount nodes { name } pageInfo { hasNextPage endCursor } } } }"""
OF_COMMIT = """query ($path: String!, $rev: String!, $filter: BuildFilter) { project(path: $path) { commit(rev: $rev) {
    builds(filter: $filter) { totalCount nodes { name } } } } }"""
OF_GROUP = """query ($path: String!, $filter: BuildFilter, $first: Int) { group(path: $path) {
    builds(filter: $filter, first: $first) { totalCount nodes { name project { path } } } } }"""
ONE = "query ($path: String!, $id: Int!) { project(path: $path) { build(databaseId: $id) { databaseId name } } }"
NOON = datetime(2016, 1, 2, 12, tzinfo=UTC)


def after(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


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


async def listed(ask: Ask, viewer: tables.User, project: tables.Project, **variables: Any) -> list[str]:
    data = await ask.data(LIST, viewer, path=str(project.id), **variables)
    return [node["name"] for node in data["project"]["builds"]["nodes"]]


class TestBuild:
    async def test_shows_everything(
        self, services: Services, make: DataFactory, owner: tables.User, project: tables.Project, head: str
    ) -> None:
        runner = await make.runner(description="In the cellar", name="cellar")
        proposal = await make.merge_request(project, source_branch="topic", head_oid=head)
        times = {"created_at": after(0), "started_at": after(2.5), "finished_at": after(10)}
        columns = {"name": "unit", "ref": "topic", "stage": "check", "status": CheckStatus.FAILED, "allow_failure": True, "coverage": 98.29}
        output = {"description": "3 of 4", "target_url": "https://ci.example/1", "user_id": owner.id, "runner_id": runner.id}
        build = await make.build(project, head, **columns, **output, **times)
        query = """query ($id: ID!) { node(id: $id) { id ... on Build { databaseId projectId sha ref tag name stage status
            allowFailure attempt coverage description targetUrl createdAt startedAt finishedAt erasedAt durationSeconds queuedSeconds
            restPath user { username } runner { databaseId description active shared name } project { path } commit { oid }
            mergeRequest { iid } attempts { totalCount nodes { attempt } } viewerCan { cancel retry erase } } } }"""

        data = await Ask(Graph(replace(services, clock=lambda: after(100)))).data(query, owner, id=global_id("Build", build.id))

        assert data["node"] == {
            "id": global_id("Build", build.id),
            "databaseId": build.id,
            "projectId": project.id,
            "sha": head,
            "ref": "topic",
            "tag": False,
            "name": "unit",
            "stage": "check",
            "status": "FAILED",
            "allowFailure": True,
            "attempt": 1,
            "coverage": 98.29,
            "description": "3 of 4",
            "targetUrl": "https://ci.example/1",
            "createdAt": "2016-01-02T12:00:00.000000Z",
            "startedAt": "2016-01-02T12:00:02.500000Z",
            "finishedAt": "2016-01-02T12:00:10.000000Z",
            "erasedAt": None,
            "durationSeconds": 7.5,
            "queuedSeconds": 2.5,
            "restPath": f"/api/v3/projects/{project.id}/builds/{build.id}",
            "user": {"username": owner.username},
            "runner": {"databaseId": runner.id, "description": "In the cellar", "active": True, "shared": True, "name": "cellar"},
            "project": {"path": project.path},
            "commit": {"oid": head},
            "mergeRequest": {"iid": proposal.iid},
            "attempts": {"totalCount": 1, "nodes": [{"attempt": 1}]},
            "viewerCan": {"cancel": False, "retry": True, "erase": True},
        }

    async def test_missing_values_are_null(self, ask: Ask, make: DataFactory, owner: tables.User, project: tables.Project) -> None:
        build = await make.build(project, "f" * 40)
        query = "query ($id: ID!) { node(id: $id) { ... on Build { user { id } runner { name } commit { oid } mergeRequest { iid } } } }"

        data = await ask.data(query, owner, id=global_id("Build", build.id))

        assert data["node"] == {"user": None, "runner": None, "commit": None, "mergeRequest": None}

    @pytest.mark.parametrize(
        ("status", "started", "finished", "duration", "queued"),
        [
            (CheckStatus.PENDING, None, None, None, 30.0),
            (CheckStatus.RUNNING, 10, None, 20.0, 10.0),
            (CheckStatus.SUCCESS, 10, 12.5, 2.5, 10.0),
            (CheckStatus.CANCELED, None, 5, None, 5.0),
            (CheckStatus.SUCCESS, -10, -20, 0.0, 0.0),
        ],
    )
    async def test_counts_its_time(
        self,
        services: Services,
        make: DataFactory,
        owner: tables.User,
        project: tables.Project,
        status: CheckStatus,
        started: float | None,
        finished: float | None,
        duration: float | None,
        queued: float,
    ) -> None:
        times = {
            "started_at": None if started is None else after(started),
            "finished_at": None if finished is None else after(finished),
        }
        await make.build(project, "f" * 40, status=status, created_at=after(0), **times)
        query = "query ($path: String!) { project(path: $path) { builds { nodes { durationSeconds queuedSeconds } } } }"

        data = await Ask(Graph(replace(services, clock=lambda: after(30)))).data(query, owner, path=str(project.id))

        assert data["project"]["builds"]["nodes"] == [{"durationSeconds": duration, "queuedSeconds": queued}]

    async def test_belongs_to_the_newest_open_merge_request_of_its_branch_and_commit(
        self, ask: Ask, make: DataFactory, owner: tables.User, project: tables.Project, head: str
    ) -> None:
        await make.merge_request(project, source_branch="topic", head_oid=head)
        newest = await make.merge_request(project, source_branch="topic", head_oid=head, target_branch="stable")
        await make.merge_request(project, source_branch="topic", head_oid=head, state=MergeRequestState.CLOSED)
        await make.merge_request(project, source_branch="moved", head_oid="f" * 40)
        stranger = await make.user()
        hidden = await make.project(owner=stranger)
        await make.merge_request(hidden, source_project_id=project.id, source_branch="fork", head_oid=head)
        for columns in ({"ref": "topic"}, {"ref": "moved"}, {"ref": "fork"}, {"ref": "topic", "tag": True}):
            await make.build(project, head, **columns)
        query = "query ($path: String!) { project(path: $path) { builds { nodes { mergeRequest { iid } } } } }"

        data = await ask.data(query, owner, path=str(project.id))

        shown = [node["mergeRequest"] for node in data["project"]["builds"]["nodes"]]
        assert shown == [None, None, None, {"iid": newest.iid}]

    @pytest.mark.parametrize(
        ("status", "can"),
        [
            (CheckStatus.PENDING, {"cancel": True, "retry": False, "erase": False}),
            (CheckStatus.RUNNING, {"cancel": True, "retry": False, "erase": False}),
            (CheckStatus.SUCCESS, {"cancel": False, "retry": True, "erase": True}),
            (CheckStatus.CANCELED, {"cancel": False, "retry": True, "erase": True}),
        ],
    )
    async def test_returns_the_available_actions(
        self, ask: Ask, make: DataFactory, project: tables.Project, status: CheckStatus, can: dict[str, bool]
    ) -> None:
        await make.member(project, reporter := await make.user(), AccessLevel.REPORTER)
        await make.member(project, developer := await make.user(), AccessLevel.DEVELOPER)
        build = await make.build(project, "f" * 40, status=status)
        query = "query ($id: ID!) { node(id: $id) { ... on Build { viewerCan { cancel retry erase } } } }"

        for viewer, allowed in ((developer, can), (reporter, dict.fromkeys(can, False))):
            data = await ask.data(query, viewer, id=global_id("Build", build.id))
            assert data["node"]["viewerCan"] == allowed


class TestLists:
    @pytest.fixture
    async def builds(self, make: DataFactory, owner: tables.User, project: tables.Project, head: str) -> None:
        other = await make.user("other")
        rows: tuple[dict[str, Any], ...] = (
            {"status": CheckStatus.SUCCESS, "stage": "build", "user_id": owner.id},
            {"status": CheckStatus.FAILED, "ref": "topic", "user_id": other.id, "finished_at": after(50)},
            {"status": CheckStatus.PENDING, "stage": "deploy"},
        )
        for number, columns in enumerate(rows):
            await make.build(project, head, name="abc"[number], **{"created_at": after(number), **columns})
        newest = await make.build(project, "f" * 40, name="d", attempt=2, created_at=after(3))
        await make.build(project, "f" * 40, name="d", current_id=newest.id, status=CheckStatus.CANCELED, created_at=after(2.5))

    @pytest.mark.usefixtures("builds")
    @pytest.mark.parametrize(
        ("filter", "names"),
        [
            (None, "dcba"),
            ({}, "dcba"),
            ({"status": ["SUCCESS"]}, "a"),
            ({"status": ["PENDING", "FAILED"]}, "dcb"),
            ({"status": []}, ""),
            ({"name": ["a", "d"]}, "da"),
            ({"stage": ["test"]}, "db"),
            ({"ref": ["topic"]}, "b"),
            ({"ref": [None]}, "dca"),
            ({"ref": [None, "topic"]}, "dcba"),
            ({"ref": []}, ""),
            ({"latestAttemptOnly": False}, "ddcba"),
            ({"latestAttemptOnly": False, "status": ["CANCELED"]}, "d"),
            ({"created": {"since": "2016-01-02T12:00:01Z", "until": "2016-01-02T12:00:03Z"}}, "cb"),
            ({"finished": {"since": "2016-01-02T12:00:30Z"}}, "b"),
            ({"authorUsername": ["other", "nobody"]}, "b"),
            ({"authorUsername": ["other"], "status": ["SUCCESS"]}, ""),
        ],
    )
    async def test_filtered_and_newest_first(
        self, ask: Ask, owner: tables.User, project: tables.Project, filter: dict[str, Any] | None, names: str
    ) -> None:
        assert "".join(await listed(ask, owner, project, filter=filter)) == names

    @pytest.mark.usefixtures("builds")
    async def test_of_a_commit(self, ask: Ask, make: DataFactory, owner: tables.User, project: tables.Project, head: str) -> None:
        fork = await make.project(owner=owner, history={"commits": 12})
        await make.build(fork, head)

        for rev, filter, names in (("master", None, "cba"), (head, {"ref": ["topic"]}, "b"), ("topic", None, "")):
            builds = (await ask.data(OF_COMMIT, owner, path=str(project.id), rev=rev, filter=filter))["project"]["commit"]["builds"]
            assert "".join(node["name"] for node in builds["nodes"]) == names
            assert builds["totalCount"] == len(names)

    async def test_of_a_group(self, ask: Ask, make: DataFactory, owner: tables.User, statements: StatementRecorder) -> None:
        """Those of its projects that the viewer may see, of the newest attempts, in a constant number of statements."""
        group = await make.group()
        seen, other, hidden = [
            await make.project(group=group, path=path, members=[(owner, AccessLevel.REPORTER)] if path != "hidden" else [])
            for path in ("seen", "other", "hidden")
        ]
        counts = []
        for number in range(2):
            for project in (seen, other, hidden):
                await make.build(project, "f" * 40, name=f"unit {number}", ref="master" if project is seen else "topic")
            with statements.record() as recorded:
                data = await ask.data(OF_GROUP, owner, path=group.path, first=100)
            counts.append(len(recorded))
        assert counts[0] == counts[1]
        found = data["group"]["builds"]
        expected = [("unit 1", "other"), ("unit 1", "seen"), ("unit 0", "other"), ("unit 0", "seen")]
        assert [(each["name"], each["project"]["path"]) for each in found["nodes"]] == expected
        data = await ask.data(OF_GROUP, owner, path=group.path, filter={"ref": ["topic"], "name": ["unit 0"]})
        assert [each["project"]["path"] for each in data["group"]["builds"]["nodes"]] == ["other"]

    @pytest.mark.usefixtures("builds")
    async def test_by_pages(self, ask: Ask, make: DataFactory, owner: tables.User, project: tables.Project, head: str) -> None:
        page = (await ask.data(LIST, owner, path=str(project.id), first=2))["project"]["builds"]
        await make.build(project, head, name="new")

        assert (page["totalCount"], page["pageInfo"]["hasNextPage"]) == (4, True)
        assert await listed(ask, owner, project, first=2, after=page["pageInfo"]["endCursor"]) == ["b", "a"]
        assert await listed(ask, owner, project, first=2, offset=3) == ["b", "a"]

    async def test_one_is_found_by_its_id_in_its_project(
        self, ask: Ask, make: DataFactory, owner: tables.User, project: tables.Project
    ) -> None:
        build = await make.build(project, "f" * 40, name="unit")
        past = await make.build(project, "f" * 40, name="unit", current_id=build.id, status=CheckStatus.FAILED)
        other = await make.project(owner=owner)

        data = await ask.data(ONE, owner, path=str(project.id), id=build.id)

        assert data["project"]["build"] == {"databaseId": build.id, "name": "unit"}
        assert await ask.codes(ONE, owner, path=str(other.id), id=build.id) == ["NOT_FOUND"]
        assert await ask.codes(ONE, owner, path=str(project.id), id=past.id) == ["NOT_FOUND"]

    async def test_attempts_are_paged_both_ways(self, ask: Ask, make: DataFactory, owner: tables.User, project: tables.Project) -> None:
        build = await make.build(project, "f" * 40, attempt=5)
        for attempt in range(1, 5):
            await make.build(project, "f" * 40, attempt=attempt, current_id=build.id)
        query = """query ($id: ID!, $first: Int, $after: String, $last: Int, $before: String, $offset: Int) { node(id: $id) { ... on Build {
            attempts(first: $first, after: $after, last: $last, before: $before, offset: $offset) { totalCount nodes { attempt }
            edges { cursor node { attempt } } pageInfo { hasNextPage hasPreviousPage startCursor endCursor } } } } }"""

        async def page(**arguments: Any) -> Any:
            found = (await ask.data(query, owner, id=global_id("Build", build.id), **arguments))["node"]["attempts"]
            assert found["totalCount"] == 5
            assert [edge["node"] for edge in found["edges"]] == found["nodes"]
            return found

        assert [node["attempt"] for node in (await page())["nodes"]] == [5, 4, 3, 2, 1]
        assert [node["attempt"] for node in (await page(first=2, offset=1))["nodes"]] == [4, 3]
        await check_pages_both_ways(page, "attempt", [5, 4, 3, 2, 1])

    async def test_attempts_are_those_of_all_their_builds(
        self, ask: Ask, make: DataFactory, owner: tables.User, project: tables.Project
    ) -> None:
        builds = [await make.build(project, "f" * 40, attempt=3) for _ in range(2)]
        past = [await make.build(project, "f" * 40, attempt=number, current_id=each.id) for each in builds for number in (1, 2)]
        query = "query ($ids: [ID!]!) { nodes(ids: $ids) { ... on Build { attempts(first: %d) { totalCount nodes { databaseId } } } } }"
        ids = [global_id("Build", each.id) for each in (*builds, past[0])]

        for first, shown in ((10, [builds[0].id, past[1].id, past[0].id]), (2, [builds[0].id, past[1].id]), (0, [])):
            attempts = [node["attempts"] for node in (await ask.data(query % first, owner, ids=ids))["nodes"]]
            # A superseded attempt returns the same as the newest.
            assert attempts[0] == attempts[2] == {"totalCount": 3, "nodes": [{"databaseId": each} for each in shown]}
            assert attempts[1] != attempts[0] or not first
        assert await ask.codes(query % 101, owner, ids=ids) == ["LIMIT_EXCEEDED"]

    @requires_planner
    async def test_statement_count_does_not_grow_with_rows(
        self, ask: Ask, make: DataFactory, statements: StatementRecorder, services: Services, owner: tables.User
    ) -> None:
        shown = """totalCount nodes { name durationSeconds restPath user { name } runner { name } project { path } commit { title }
            mergeRequest { iid } attempts { totalCount nodes { status } } viewerCan { retry } }"""
        query = f"""query ($path: String!) {{ project(path: $path) {{ builds(first: 30) {{ {shown} }}
            commits(first: 5) {{ nodes {{ oid builds(first: 5) {{ {shown} }} }} }} }} }}"""
        counts = []
        for number in (1, 30):
            project = await make.project(owner=owner, history={"commits": 12})
            walked = await services.repositories.read(
                project.id, lambda repository: list_history(repository, str(repository.resolve("master")), skip=0, limit=5)
            )
            for index in range(number):
                runner, user = await make.runner(), await make.user()
                await make.member(project, user, AccessLevel.DEVELOPER)
                await make.build(project, walked[index % 5].oid, runner_id=runner.id, user_id=user.id)
            # A text is planned when it comes again.
            await ask.data(query, owner, path=str(project.id))
            with statements.record() as seen:
                data = await ask.data(query, owner, path=str(project.id))
            assert len(data["project"]["builds"]["nodes"]) == number
            counts.append(len(seen))

        assert counts[0] == counts[1]
        assert counts[1] <= 16


class TestRights:
    """docs/promises.md (d): reporters see builds, guests do not; others only those of a shared project that gives them away."""

    async def test_read_permissions(self, ask: Ask, make: DataFactory) -> None:
        guest, reporter, outsider = await make.user(), await make.user(), await make.user()
        members = [(guest, AccessLevel.GUEST), (reporter, AccessLevel.REPORTER)]
        for visibility, public_builds, enabled, seen in (
            (Visibility.PRIVATE, True, True, {reporter.id}),
            (Visibility.INTERNAL, True, True, {reporter.id, guest.id, outsider.id}),
            (Visibility.PUBLIC, False, True, {reporter.id}),
            (Visibility.PUBLIC, True, False, set()),
        ):
            switches: dict[str, Any] = {"public_builds": public_builds, "builds_enabled": enabled}
            project = await make.project(visibility=visibility, members=members, history={"commits": 4}, **switches)
            build = await make.build(project, "f" * 40)
            node = "query ($id: ID!) { node(id: $id) { ... on Build { name } } }"
            for viewer in (guest, reporter, outsider):
                hidden = viewer is outsider and visibility is Visibility.PRIVATE
                refused = [] if viewer.id in seen else ["NOT_FOUND" if hidden else "FORBIDDEN"]
                for query, variables in ((LIST, {}), (ONE, {"id": build.id})):
                    outcome = await ask(query, viewer, path=str(project.id), **variables)
                    assert [str(problem.code) for problem in outcome.errors] == refused
                data = await ask.data(node, viewer, id=global_id("Build", build.id))
                assert (data["node"] is not None) is (not refused)
            can = "query ($path: String!) { project(path: $path) { viewerCan { readBuilds createBuild } } }"
            data = await ask.data(can, reporter, path=str(project.id))
            assert data["project"]["viewerCan"] == {"readBuilds": reporter.id in seen, "createBuild": False}
