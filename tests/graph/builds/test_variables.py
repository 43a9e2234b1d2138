"""Variables of projects: which builds receive them, how they are stored, and what traces show of them."""

import base64
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import text

from graph.context import Services
from graph.operations.execution import Graph
from graph.rules.builds.trace_masking import PendingTrace, SecretMasker
from storage import integrity, tables
from tests.graph.runners.test_build_claims import REPORT, RunnerCalls
from tests.make import DataFactory
from tests.support.api_clients import Ask

APPEND = "mutation ($input: AppendBuildTraceInput!) { appendBuildTrace(input: $input) { build { status } userErrors { message code } } }"
TRACE = "query ($id: String!, $build: Int!) { project(path: $id) { build(databaseId: $build) { trace(last: 100) { lines } } } }"
VALUES = 'query ($id: String!) { project(path: $id) { variables { nodes { key value } } variable(key: "TOKEN") { value } } }'
UPDATE = "mutation ($input: UpdateVariableInput!) { updateVariable(input: $input) { variable { value } userErrors { code } } }"
SECRET = "s3cret/välue+1"
KEY_FILE = "-----BEGIN KEY-----\nMIIEpAIBAAKCAQEA\nabc\n-----END KEY-----\n"


@pytest.fixture
def calls(graph: Graph, make: DataFactory) -> Callable[[tables.Runner], RunnerCalls]:
    return lambda runner: RunnerCalls(graph, make.runner_token(runner))


def secrets_of(job: dict[str, Any]) -> list[tuple[str, str]]:
    assert all(not each["public"] for each in job["variables"] if each["value"] in (SECRET, KEY_FILE))
    known = ("CI_BUILD_TOKEN", "CI_BUILD_REPO")
    return [(each["key"], each["value"]) for each in job["variables"] if not each["public"] and each["key"] not in known]


class TestBuilds:
    async def test_receive_the_variables_of_their_project(self, calls: Any, make: DataFactory) -> None:
        project = await make.project()
        fork = await make.project(forked_from_id=project.id)
        await make.variable(project, "TOKEN", SECRET)
        await make.variable(project, "FROM_FILE", "project")
        await make.variable(await make.project(), "OTHER", "of another project")
        for each in (project, fork):
            await make.pending_build(each, options={"variables": {"FROM_FILE": "file"}})
        runner = calls(await make.runner())

        own, of_fork = [await runner.claim() for _ in range(2)]

        assert secrets_of(own) == [("TOKEN", SECRET), ("FROM_FILE", "project")]
        assert secrets_of(of_fork) == []
        # The last one of a name applies: that of the project.
        assert {each["key"]: each["value"] for each in own["variables"]}["FROM_FILE"] == "project"

    async def test_keep_what_they_were_given_while_they_run(self, ask: Ask, calls: Any, make: DataFactory) -> None:
        owner = await make.user()
        project = await make.project(owner=owner)
        await make.variable(project, "TOKEN", SECRET)
        build = await make.pending_build(project)
        runner = calls(await make.runner())
        job = await runner.claim()
        changed = {"projectPath": str(project.id), "key": "TOKEN", "value": "another value"}
        assert (await ask.data(UPDATE, owner, input=changed))["updateVariable"]["variable"] == {"value": "another value"}

        again = (await runner.graph.run_document(JOB, {"token": job["token"]}, None, job["token"], request_id="test")).data
        assert again["job"]["variables"] == job["variables"]
        assert await runner.code(APPEND, job["token"], databaseId=build.id, text=f"x {SECRET} y\n", offset=0) == "ok"
        assert await runner.code(REPORT, databaseId=build.id, status="SUCCESS") == "ok"

        row = await make.fetch(tables.Build, build.id)
        assert row is not None and row.sealed_variables is None
        trace = (await ask.data(TRACE, owner, id=str(project.id), build=build.id))["project"]["build"]["trace"]
        assert trace["lines"] == [f"x {'*' * len(SECRET.encode())} y"]

    async def test_lose_them_with_their_runner_and_with_a_retry(self, ask: Ask, calls: Any, make: DataFactory) -> None:
        owner = await make.user()
        project = await make.project(owner=owner)
        await make.variable(project, "TOKEN", SECRET)
        build = await make.pending_build(project)
        runner = calls(await make.runner())

        for status in ("PENDING", "FAILED"):
            await runner.claim()
            assert (await make.fetch(tables.Build, build.id)).sealed_variables is not None
            assert await runner.code(REPORT, databaseId=build.id, status=status) == "ok"
            assert (await make.fetch(tables.Build, build.id)).sealed_variables is None


JOB = "query ($token: String!) { job(token: $token) { variables { key value public } } }"


class TestTrace:
    async def test_masks_every_line_of_every_value_at_every_cut(self, ask: Ask, calls: Any, make: DataFactory) -> None:
        owner = await make.user()
        project = await make.project(owner=owner)
        await make.variable(project, "TOKEN", SECRET)
        await make.variable(project, "KEY", KEY_FILE)
        await make.variable(project, "SHORT", "short")
        build = await make.pending_build(project)
        runner = calls(await make.runner())
        job = await runner.claim()
        encoded = base64.b64encode(f"me:{SECRET}".encode()).decode()
        printed = f"$ echo {SECRET}\r\n{KEY_FILE.replace(chr(10), chr(13) + chr(10))}short {encoded} {SECRET[:-1]}".encode()

        # Characters are not split, since the text is a string.
        offset = 0
        for letter in printed.decode():
            assert await runner.code(APPEND, job["token"], databaseId=build.id, text=letter, offset=offset) == "ok"
            offset += len(letter.encode())
        assert await runner.code(REPORT, databaseId=build.id, status="SUCCESS") == "ok"

        shown = "\n".join((await ask.data(TRACE, owner, id=str(project.id), build=build.id))["project"]["build"]["trace"]["lines"])
        for secret in (SECRET, "MIIEpAIBAAKCAQEA", "BEGIN KEY", encoded[4:-4], SECRET[:-1]):
            assert secret not in shown
        assert shown.startswith("$ echo ***") and "\nabc\n" in shown and "\nshort " in shown

    def test_long_repetitive_values_take_no_longer(self) -> None:
        """Overlapping occurrences of a long value are one span, and its beginning at the end is found without comparing every length."""
        masker = SecretMasker(["a" * 16000, "ab" * 8000])
        stored, pending = masker.feed(PendingTrace(), b"a" * 2**15)
        assert (set(stored), len(stored) + len(pending.data)) == ({ord("*")}, 2**15)
        assert masker.feed(pending, b"", final=True)[0] == b"*" * len(pending.data)


class TestStorage:
    async def test_values_are_encrypted_and_not_logged(
        self, ask: Ask, calls: Any, make: DataFactory, services: Services, capsys: pytest.CaptureFixture[str]
    ) -> None:
        owner = await make.user()
        project = await make.project(owner=owner)
        create = "mutation ($input: CreateVariableInput!) { createVariable(input: $input) { userErrors { code } } }"
        await ask.data(create, owner, input={"projectPath": str(project.id), "key": "TOKEN", "value": SECRET})
        await make.pending_build(project)
        await calls(await make.runner()).claim()

        async with services.database.read_session() as session:
            rows = [await session.read(text(f"SELECT * FROM {table}")) for table in ("variables", "builds", "changes", "events")]
        assert SECRET not in str(rows)
        assert SECRET not in capsys.readouterr().out

    async def test_without_the_key_they_have_no_value(self, ask: Ask, calls: Any, make: DataFactory, services: Services) -> None:
        owner = await make.user()
        project = await make.project(owner=owner)
        await make.variable(project, "TOKEN", SECRET)
        await make.pending_build(project)
        found = (await ask.data(VALUES, owner, id=str(project.id)))["project"]
        assert found == {"variables": {"nodes": [{"key": "TOKEN", "value": SECRET}]}, "variable": {"value": SECRET}}
        await integrity.forget_sealed_tokens(services.database)

        found = (await ask.data(VALUES, owner, id=str(project.id)))["project"]
        assert found == {"variables": {"nodes": [{"key": "TOKEN", "value": None}]}, "variable": {"value": None}}
        assert secrets_of(await calls(await make.runner()).claim()) == []
        # A new value is encrypted with the new key.
        again = {"projectPath": str(project.id), "key": "TOKEN", "value": "v"}
        assert (await ask.data(UPDATE, owner, input=again))["updateVariable"]["variable"] == {"value": "v"}
