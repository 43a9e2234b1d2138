"""Mutations of builds, and builds that external systems report."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import select
from sqlmodel import col

from graph.context import Services
from graph.fields.entities import global_id
from graph.jobs import maintenance
from graph.operations.execution import Graph
from storage import tables
from storage.tables import AccessLevel, CheckStatus, MergeRequestState
from storage.tables.base import Row
from tests.make import DataFactory
from tests.rest_v3.support.interface_rules import cites
from tests.support.api_clients import Ask
from tests.support.merge_requests import MergeRequestFactory

SHOWN = """databaseId name stage ref tag sha status attempt coverage description targetUrl allowFailure
    createdAt startedAt finishedAt erasedAt user { username } runner { name } commit { status }
    attempts { nodes { databaseId attempt status coverage startedAt } }"""


def call(name: str, kind: str = "BuildInput") -> str:
    return f"mutation ($input: {kind}!) {{ {name}(input: $input) {{ build {{ {SHOWN} }} userErrors {{ field code message }} }} }}"


CREATE, UPDATE = call("createBuild", "CreateBuildInput"), call("updateBuild", "UpdateBuildInput")
CANCEL, RETRY, ERASE = map(call, ("cancelBuild", "retryBuild", "eraseBuild"))
NOON = datetime(2016, 1, 2, 12, tzinfo=UTC)
NOW = "2016-01-02T12:00:00.000000Z"


def at(seconds: float) -> str:
    """A timestamp this long after noon, as the graph serializes it."""
    return (NOON + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


@pytest.fixture
async def owner(make: DataFactory) -> tables.User:
    return await make.user()


@pytest.fixture
async def project(make: DataFactory, owner: tables.User) -> tables.Project:
    return await make.project(owner=owner, history={"commits": 4})


@pytest.fixture
async def head(services: Services, project: tables.Project) -> str:
    """The commit of `master`."""
    return str(await services.repositories.read(project.id, lambda repository: repository.resolve("master")))


@pytest.fixture
def ask_at_noon(services: Services) -> Ask:
    """The forge at noon."""
    return Ask(Graph(replace(services, clock=lambda: NOON)))


async def run_mutation(ask: Ask, query: str, viewer: tables.User, **input: Any) -> dict[str, Any]:
    ((payload,),) = [(await ask.data(query, viewer, input=input)).values()]
    assert payload["userErrors"] == []
    found: dict[str, Any] = payload["build"]
    return found


async def user_error_codes(ask: Ask, query: str, viewer: tables.User, **input: Any) -> list[tuple[str, str]]:
    ((payload,),) = [(await ask.data(query, viewer, input=input)).values()]
    assert payload["build"] is None
    return [(error["field"], error["code"]) for error in payload["userErrors"]]


def of(build: tables.Build) -> dict[str, Any]:
    return {"projectPath": str(build.project_id), "databaseId": build.id}


async def events(services: Services, build_id: int) -> list[tuple[str | None, str]]:
    row = tables.Change
    async with services.database.read_session() as session:
        found = await session.execute(select(row).where(col(row.build_id) == build_id).order_by(col(row.id)))
        return [(event.old_state, event.new_state) for event in found.scalars()]


async def count_rows(services: Services, table: type[Row], build_id: int) -> int:
    kind: Any = table
    async with services.database.read_session() as session:
        return len((await session.execute(select(kind.id).where(kind.build_id == build_id))).all())


async def add_artifact_and_trace(make: DataFactory, build: tables.Build) -> None:
    """Gives the build a trace and an artifact, as rows."""
    build.trace_size = 9
    key = f"{build.id:032x}"
    await make.save(
        build,
        tables.Artifact(project_id=build.project_id, build_id=build.id, filename="a.zip", size=3, key=key),
        tables.TracePart(build_id=build.id, start=0, size=9, key=key),
    )


class TestCancelBuild:
    """Section States and transitions: POST cancel makes it canceled; docs/decisions.md 11: one that has ended stays as it is."""

    @pytest.mark.parametrize("status", CheckStatus)
    async def test_cancels_an_unfinished_build(
        self, ask_at_noon: Ask, services: Services, make: DataFactory, owner: tables.User, project: tables.Project, status: CheckStatus
    ) -> None:
        build = await make.build(project, "f" * 40, status=status, lease_until=NOON)

        shown = await run_mutation(ask_at_noon, CANCEL, owner, **of(build))

        ends = status in (CheckStatus.PENDING, CheckStatus.RUNNING)
        assert shown["status"] == ("CANCELED" if ends else status.name)
        assert (shown["finishedAt"] == NOW) is ends
        assert (shown["startedAt"] is None) is (status in (CheckStatus.PENDING, CheckStatus.MANUAL))
        assert await events(services, build.id) == ([(status, CheckStatus.CANCELED)] if ends else [])
        stored = await make.fetch(tables.Build, build.id)
        assert stored is not None
        assert (stored.lease_until is None) is ends


class TestRetryBuild:
    """Section States and transitions: POST retry makes it pending, started_at and finished_at null; the id stays (docs/decisions.md 11)."""

    async def test_creates_the_next_attempt_and_preserves_the_earlier(
        self, ask_at_noon: Ask, services: Services, make: DataFactory, owner: tables.User, project: tables.Project, head: str
    ) -> None:
        runner = await make.runner(name="cellar")
        ran = {"coverage": 81.5, "runner_id": runner.id, "token_digest": "x", "queue": "ruby", "user_id": owner.id, "commands": "make"}
        times = {"created_at": NOON - timedelta(hours=1), "erased_at": None}
        build = await make.build(project, head, name="unit", status=CheckStatus.FAILED, options={"a": 1}, tags=["ruby"], **ran, **times)
        await add_artifact_and_trace(make, build)

        shown = await run_mutation(ask_at_noon, RETRY, owner, **of(build))

        (newest, past) = shown.pop("attempts")["nodes"]
        assert (newest["databaseId"], newest["attempt"], newest["status"]) == (build.id, 2, "PENDING")
        assert (past["attempt"], past["status"], past["coverage"], past["startedAt"]) == (1, "FAILED", 81.5, at(-3600))
        assert shown == {
            "databaseId": build.id,
            "name": "unit",
            "stage": "test",
            "ref": "master",
            "tag": False,
            "sha": head,
            "status": "PENDING",
            "attempt": 2,
            "coverage": None,
            "description": None,
            "targetUrl": None,
            "allowFailure": False,
            "createdAt": NOW,
            "startedAt": None,
            "finishedAt": None,
            "erasedAt": None,
            "user": {"username": owner.username},
            "runner": None,
            "commit": {"status": "PENDING"},
        }
        stored, history = await make.fetch(tables.Build, build.id), await make.fetch(tables.Build, past["databaseId"])
        assert stored is not None and history is not None
        assert (stored.queue, stored.commands, stored.options, stored.tags, stored.trace_size) == ("ruby", "make", {"a": 1}, ["ruby"], 0)
        assert (stored.token_digest, stored.lease_until) == (None, None)
        assert (history.current_id, history.queue, history.token_digest, history.runner_id) == (build.id, None, None, runner.id)
        assert (history.commands, history.trace_size, history.created_at) == ("make", 9, times["created_at"])
        for table in (tables.Artifact, tables.TracePart):
            assert [await count_rows(services, table, each) for each in (stored.id, history.id)] == [0, 1]
        assert await events(services, build.id) == [(CheckStatus.FAILED, CheckStatus.PENDING)]

    async def test_each_retry_is_a_new_attempt(self, ask: Ask, make: DataFactory, owner: tables.User, project: tables.Project) -> None:
        build = await make.build(project, "f" * 40, status=CheckStatus.SUCCESS)
        for _ in range(2):
            await run_mutation(ask, RETRY, owner, **of(build))
            await run_mutation(ask, CANCEL, owner, **of(build))
        shown = await run_mutation(ask, RETRY, owner, id=global_id("Build", build.id))

        assert [(each["attempt"], each["status"]) for each in shown["attempts"]["nodes"]] == [
            (4, "PENDING"),
            (3, "CANCELED"),
            (2, "CANCELED"),
            (1, "SUCCESS"),
        ]

    async def test_requires_a_finished_build(self, ask: Ask, make: DataFactory, owner: tables.User, project: tables.Project) -> None:
        waiting = await make.build(project, "f" * 40)
        rows = [waiting, await make.build(project, "f" * 40, status=CheckStatus.RUNNING)]
        past = await make.build(project, "f" * 40, status=CheckStatus.FAILED, current_id=waiting.id)

        for named in (*map(of, rows), {"id": global_id("Build", past.id)}):
            (problem,) = (await ask(RETRY, owner, input=named)).errors
            assert (problem.code, problem.reason) == ("FORBIDDEN", "Build is not retryable")
        assert await make.count(tables.Build) == 3
        assert await ask.codes(RETRY, owner, input=of(past)) == ["NOT_FOUND"]


class TestEraseBuild:
    """Section States and transitions: POST erase removes artifacts and trace, the status stays; for ended builds (docs/decisions.md 11)."""

    @cites("States: erase removes artifacts and trace")
    async def test_deletes_trace_and_artifact(
        self, ask_at_noon: Ask, services: Services, make: DataFactory, owner: tables.User, project: tables.Project
    ) -> None:
        build, other = [await make.build(project, "f" * 40, status=CheckStatus.CANCELED) for _ in range(2)]
        for each in (build, other):
            await add_artifact_and_trace(make, each)

        shown = await run_mutation(ask_at_noon, ERASE, owner, **of(build))

        assert (shown["status"], shown["erasedAt"]) == ("CANCELED", NOW)
        stored = await make.fetch(tables.Build, build.id)
        assert stored is not None
        assert (stored.trace_size, stored.erased_by_id) == (0, owner.id)
        for table in (tables.Artifact, tables.TracePart):
            assert [await count_rows(services, table, each.id) for each in (build, other)] == [0, 1]
        assert await events(services, build.id) == []

    async def test_requires_a_finished_build_that_is_not_erased(
        self, ask: Ask, make: DataFactory, owner: tables.User, project: tables.Project
    ) -> None:
        rows = [await make.build(project, "f" * 40, status=status) for status in (CheckStatus.PENDING, CheckStatus.RUNNING)]
        erased = await make.build(project, "f" * 40, status=CheckStatus.SUCCESS)
        await run_mutation(ask, ERASE, owner, **of(erased))

        for build in (*rows, erased):
            (problem,) = (await ask(ERASE, owner, input=of(build))).errors
            assert (problem.code, problem.reason) == ("FORBIDDEN", "Build is not erasable!")
        await run_mutation(ask, RETRY, owner, **of(erased))
        await run_mutation(ask, CANCEL, owner, **of(erased))
        assert (await run_mutation(ask, ERASE, owner, **of(erased)))["erasedAt"] is not None


class TestCreateBuild:
    async def test_stores_every_field(
        self, ask_at_noon: Ask, services: Services, owner: tables.User, project: tables.Project, head: str
    ) -> None:
        output = {"ref": "topic", "stage": "deploy", "status": "SUCCESS", "description": "All good", "targetUrl": "https://ci.example/1"}
        numbers = {"coverage": 87.25, "startedAt": "2016-01-02T12:59:00+01:00", "finishedAt": at(-10), "allowFailure": True}

        shown = await run_mutation(ask_at_noon, CREATE, owner, projectPath=str(project.id), sha="master", name="unit", **output, **numbers)

        expected = {
            **output,
            "coverage": 87.25,
            "allowFailure": True,
            "sha": head,
            "name": "unit",
            "tag": False,
            "attempt": 1,
            "runner": None,
        }
        assert {key: shown[key] for key in expected} == expected
        assert (shown["createdAt"], shown["startedAt"], shown["finishedAt"]) == (at(-60), at(-60), at(-10))
        assert (shown["user"], shown["commit"]) == ({"username": owner.username}, {"status": "SUCCESS"})
        assert await events(services, shown["databaseId"]) == [(None, CheckStatus.SUCCESS)]

    @pytest.mark.parametrize(
        ("status", "started", "finished"), [(None, None, None), ("RUNNING", NOW, None), ("FAILED", None, NOW), ("CANCELED", None, NOW)]
    )
    async def test_requires_only_the_status(
        self, ask_at_noon: Ask, owner: tables.User, project: tables.Project, status: str | None, started: str | None, finished: str | None
    ) -> None:
        shown = await run_mutation(ask_at_noon, CREATE, owner, projectPath=str(project.id), sha="master", name=" unit ", status=status)

        assert (shown["name"], shown["stage"], shown["ref"], shown["status"]) == ("unit", "test", "master", status or "PENDING")
        assert (shown["createdAt"], shown["startedAt"], shown["finishedAt"]) == (NOW, started, finished)

    async def test_of_a_commit_by_any_exact_name(self, ask: Ask, owner: tables.User, project: tables.Project, head: str) -> None:
        path = str(project.id)
        for sha, ref, shown in (
            (head, "master", (head, "master", False)),
            (head[:8].upper(), "elsewhere", (head, "elsewhere", False)),
            ("master", None, (head, "master", False)),
            ("v1", None, ("", "v1", True)),
            ("v1", "v1", ("", "v1", True)),
        ):
            build = await run_mutation(ask, CREATE, owner, projectPath=path, sha=sha, ref=ref, name="unit")
            assert (build["sha"] if shown[0] else "", build["ref"], build["tag"]) == shown
        assert await user_error_codes(ask, CREATE, owner, projectPath=path, sha=head, name="unit") == [("ref", "REQUIRED")]
        for missing in ("gone", "HEAD", "master~1", "@{-1}", "--all", "", "f" * 40):
            (problem,) = (await ask(CREATE, owner, input={"projectPath": path, "sha": missing, "name": "unit"})).errors
            assert (problem.code, problem.subject) == ("NOT_FOUND", "Commit")

    @pytest.mark.parametrize(
        ("input", "error"),
        [
            ({"name": " "}, ("name", "REQUIRED")),
            ({"name": "x" * 256}, ("name", "INVALID")),
            ({"ref": "x" * 256}, ("ref", "INVALID")),
            ({"stage": "x" * 256}, ("stage", "INVALID")),
            ({"targetUrl": "javascript:alert(1)"}, ("targetUrl", "INVALID")),
            ({"coverage": -0.1}, ("coverage", "INVALID")),
            ({"coverage": 100.1}, ("coverage", "INVALID")),
            ({"startedAt": NOW}, ("startedAt", "INVALID")),
            ({"finishedAt": NOW}, ("finishedAt", "INVALID")),
            ({"status": "RUNNING", "finishedAt": NOW}, ("finishedAt", "INVALID")),
            ({"status": "SUCCESS", "startedAt": NOW, "finishedAt": at(-1)}, ("finishedAt", "INVALID")),
        ],
    )
    async def test_rejects_invalid_values(
        self, ask: Ask, make: DataFactory, owner: tables.User, project: tables.Project, input: dict[str, Any], error: tuple[str, str]
    ) -> None:
        assert await user_error_codes(ask, CREATE, owner, **{"projectPath": str(project.id), "sha": "master", "name": "unit", **input}) == [
            error
        ]
        assert await make.count(tables.Build) == 0


class TestUpdateBuild:
    async def test_changes_the_status(
        self, ask_at_noon: Ask, services: Services, make: DataFactory, owner: tables.User, project: tables.Project
    ) -> None:
        build = await make.build(project, "f" * 40, name="unit", description="Queued", created_at=NOON - timedelta(hours=1))

        running = await run_mutation(
            ask_at_noon, UPDATE, owner, **of(build), status="RUNNING", targetUrl="http://ci.example/1", startedAt=at(-20)
        )
        again = await run_mutation(ask_at_noon, UPDATE, owner, **of(build), status="RUNNING", coverage=50)
        ended = await run_mutation(
            ask_at_noon, UPDATE, owner, id=global_id("Build", build.id), status="FAILED", description=None, coverage=None
        )

        assert (running["status"], running["startedAt"], running["description"]) == ("RUNNING", at(-20), "Queued")
        assert (again["startedAt"], again["coverage"], again["targetUrl"]) == (at(-20), 50.0, "http://ci.example/1")
        assert (ended["status"], ended["startedAt"], ended["finishedAt"]) == ("FAILED", at(-20), NOW)
        assert (ended["description"], ended["coverage"], ended["targetUrl"]) == (None, None, "http://ci.example/1")
        steps = (CheckStatus.PENDING, CheckStatus.RUNNING, CheckStatus.FAILED)
        assert await events(services, build.id) == [(steps[0], steps[1]), (steps[1], steps[2])]

    async def test_stores_given_timestamps(self, ask_at_noon: Ask, make: DataFactory, owner: tables.User, project: tables.Project) -> None:
        build = await make.build(project, "f" * 40, created_at=NOON)

        for moment in (at(-5), at(5)):
            assert await user_error_codes(ask_at_noon, UPDATE, owner, **of(build), startedAt=moment) == [("startedAt", "INVALID")]
        early = {"status": "SUCCESS", "startedAt": at(10), "finishedAt": at(9)}
        assert await user_error_codes(ask_at_noon, UPDATE, owner, **of(build), **early) == [("finishedAt", "INVALID")]
        shown = await run_mutation(ask_at_noon, UPDATE, owner, **of(build), status="SUCCESS", startedAt=at(10), finishedAt=at(30))
        corrected = await run_mutation(ask_at_noon, UPDATE, owner, **of(build), finishedAt=at(31))

        assert (shown["status"], shown["startedAt"], shown["finishedAt"]) == ("SUCCESS", at(10), at(30))
        assert corrected["finishedAt"] == at(31)

    async def test_rejects_an_earlier_attempt(self, ask: Ask, make: DataFactory, owner: tables.User, project: tables.Project) -> None:
        build = await make.build(project, "f" * 40)
        past = await make.build(project, "f" * 40, current_id=build.id, status=CheckStatus.FAILED)

        assert await user_error_codes(ask, UPDATE, owner, id=global_id("Build", past.id), coverage=1) == [("id", "NOT_ALLOWED")]
        assert await ask.codes(UPDATE, owner, input={**of(past), "coverage": 1}) == ["NOT_FOUND"]


class TestPermissions:
    async def test_require_a_developer(self, ask: Ask, make: DataFactory) -> None:
        levels = {level: await make.user() for level in (AccessLevel.GUEST, AccessLevel.REPORTER, AccessLevel.DEVELOPER)}
        members = [(user, level) for level, user in levels.items()]
        project = await make.project(members=members, history={"commits": 4})
        build = await make.build(project, "f" * 40, status=CheckStatus.SUCCESS)
        calls = [(query, of(build)) for query in (UPDATE, CANCEL, ERASE, RETRY)]
        calls.append((CREATE, {"projectPath": str(project.id), "sha": "master", "name": "unit"}))

        for query, input in calls:
            for level, user in levels.items():
                expected = [] if level is AccessLevel.DEVELOPER else ["FORBIDDEN"]
                assert await ask.codes(query, user, input=input) == expected
            assert await ask.codes(query, await make.user(), input=input) == ["NOT_FOUND"]

    async def test_are_denied_where_builds_are_disabled(self, ask: Ask, make: DataFactory, owner: tables.User) -> None:
        project = await make.project(owner=owner, builds_enabled=False)
        build = await make.build(project, "f" * 40)

        assert await ask.codes(CANCEL, owner, input=of(build)) == ["FORBIDDEN"]

    async def test_do_not_extend_to_other_projects(self, ask: Ask, make: DataFactory, owner: tables.User, project: tables.Project) -> None:
        build = await make.build(await make.project(), "f" * 40)

        for query in (UPDATE, CANCEL, RETRY, ERASE):
            assert await ask.codes(query, owner, input={"projectPath": str(project.id), "databaseId": build.id}) == ["NOT_FOUND"]
            assert await ask.codes(query, owner, input={"id": global_id("Build", build.id)}) == ["NOT_FOUND"]


class TestEffects:
    async def test_a_merge_request_that_waits_for_its_build_is_merged(self, ask: Ask, services: Services, make: DataFactory) -> None:
        project = await make.project(history={"commits": 4}, members=[(master := await make.user(), AccessLevel.MASTER)])
        merges = MergeRequestFactory(make, project, master)
        proposal = await merges.proposal("feature")
        build = await make.build(project, proposal.head, ref="feature", name="unit")
        accept = """mutation ($input: AcceptMergeRequestInput!) { acceptMergeRequest(input: $input) {
            mergeRequest { state mergeWhenBuildSucceeds blockers } userErrors { code } } }"""
        named = {"projectPath": str(project.id), "databaseId": proposal.row.id}

        data = await ask.data(accept, master, input={**named, "mergeWhenBuildSucceeds": True})
        assert data["acceptMergeRequest"]["mergeRequest"] == {
            "state": "OPENED",
            "mergeWhenBuildSucceeds": True,
            "blockers": ["BUILD_RUNNING"],
        }
        for status, state, blockers in (
            ("RUNNING", MergeRequestState.OPENED, ["BUILD_RUNNING"]),
            ("FAILED", MergeRequestState.OPENED, ["BUILD_FAILED"]),
            (None, MergeRequestState.OPENED, ["BUILD_RUNNING"]),
            ("SUCCESS", MergeRequestState.MERGED, ["MERGED"]),
        ):
            await run_mutation(ask, UPDATE if status else RETRY, master, **of(build), **({"status": status} if status else {}))
            await maintenance.run_once(services)
            query = """query ($path: String!, $id: Int!) { project(path: $path) { mergeRequest(databaseId: $id) { state blockers } } }"""
            shown = (await ask.data(query, master, path=str(project.id), id=proposal.row.id))["project"]["mergeRequest"]
            assert shown == {"state": state.name, "blockers": blockers}
