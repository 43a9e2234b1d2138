"""Secrets of builds do not occur in stored traces (docs/promises.md R30)."""

import base64
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import select

from graph.context import Services
from graph.rules.builds import traces
from storage import tables
from storage.tables import CheckStatus, metadata
from tests.ci_v1.conftest import LegacyRunner
from tests.ci_v1.test_builds import FORBIDDEN, trace_of
from tests.make import DataFactory
from tests.support.api_clients import Ask

APPEND = """mutation ($input: AppendBuildTraceInput!) { appendBuildTrace(input: $input) {
    build { trace { lines totalBytes } } userErrors { code } } }"""
REPORT = "mutation ($input: UpdateBuildInput!) { updateBuild(input: $input) { build { status } userErrors { code } } }"
UPLOAD = "mutation ($input: CreateArtifactUploadInput!) { createArtifactUpload(input: $input) { upload { url } userErrors { code } } }"
PAGE = (
    """query ($id: Int!) { project(path: "ada/engine") { build(databaseId: $id) { trace(last: 1000) { lines } artifact { filename } } } }"""
)


def forms(token: str) -> list[str]:
    return [token, base64.b64encode(f"gitlab-ci-token:{token}".encode()).decode()]


async def stored(services: Services) -> bytes:
    """Every row of every table, and every file of the store."""
    found = b""
    async with services.database.read_session() as session:
        for table in metadata.sorted_tables:
            found += repr((await session.execute(select(table))).all()).encode()
    return found + files_of(services)


def files_of(services: Services) -> bytes:
    root: Path = services.objects.root  # type: ignore[attr-defined]
    return b"".join(path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file())


@pytest.fixture
async def check_leaks(
    services: Services, runner_with_build: LegacyRunner, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> Any:
    """Holds what is stored and logged to have none of the secrets, nor most of one; gives how much of the trace is readable."""

    async def check_leaks() -> str:
        output = capsys.readouterr()
        shown = await trace_of(services, runner_with_build.build["id"])
        everything = await stored(services) + (caplog.text + output.out + output.err + "\0" + shown).encode()
        for secret in (runner_with_build.build["token"], runner_with_build.token):
            for form in forms(secret):
                assert form.encode() not in everything
                assert form[:-3].encode() not in everything
        return shown

    return check_leaks


class TestOldProtocol:
    """PUT /builds/:id"""

    async def test_masks_the_token_of_the_build_and_of_the_runner(self, runner_with_build: LegacyRunner, check_leaks: Any) -> None:
        token = runner_with_build.build["token"]
        trace = f"Cloning into http://gitlab-ci-token:{token}@forge/a.git\nBasic {forms(token)[1]}\nrunner {runner_with_build.token}\nend"

        assert (await runner_with_build.update(trace=trace)).status_code == 200

        shown = await check_leaks()
        assert shown.startswith(f"Cloning into http://gitlab-ci-token:{'*' * len(token)}@forge/a.git\nBasic ")
        assert shown.endswith(f"\nrunner {'*' * len(runner_with_build.token)}\nend")
        assert len(shown) == len(trace)

    @pytest.mark.parametrize("form", [0, 1])
    async def test_masks_secrets_split_across_updates(self, runner_with_build: LegacyRunner, check_leaks: Any, form: int) -> None:
        secret = forms(runner_with_build.build["token"])[form]
        whole = f"a {secret} b"
        for end in (*range(1, len(whole), 7), len(whole)):
            assert (await runner_with_build.update(trace=whole[:end])).status_code == 200
            await check_leaks()
        assert (await runner_with_build.update(trace=whole, state="success")).status_code == 200

        shown = await check_leaks()
        assert (shown[:2], shown[-2:], len(shown)) == ("a ", " b", len(whole))

    async def test_stores_the_rest_when_the_build_ends(self, make: DataFactory, runner_with_build: LegacyRunner, check_leaks: Any) -> None:
        assert (await runner_with_build.update(trace="all f")).status_code == 200
        assert await check_leaks() == "all "

        assert (await runner_with_build.update(state="success", trace="all f")).status_code == 200

        assert await check_leaks() == "all f"
        row = await make.fetch(tables.Build, runner_with_build.build["id"])
        assert row is not None and (row.trace_size, row.sealed_trace_end) == (5, None)

    async def test_a_token_that_the_end_of_the_trace_cuts_short_is_masked(self, runner_with_build: LegacyRunner, check_leaks: Any) -> None:
        cut = runner_with_build.build["token"][:-2]
        await runner_with_build.update(trace=f"x {cut}", state="failed")

        assert await check_leaks() == f"x {'*' * len(cut)}"

    async def test_a_token_that_the_limit_cuts_short_is_masked(
        self, runner_with_build: LegacyRunner, check_leaks: Any, services: Services
    ) -> None:
        token = runner_with_build.build["token"]
        object.__setattr__(services, "max_trace_bytes", len(token))
        await runner_with_build.update(trace=f"x {token} and more")

        assert (await check_leaks()).startswith(f"x {'*' * (len(token) - 2)}\n[The trace is longer than")

    async def test_only_the_token_of_the_runner_counts(
        self, ci: httpx.AsyncClient, make: DataFactory, runner_with_build: LegacyRunner
    ) -> None:
        number, token = runner_with_build.build["id"], runner_with_build.build["token"]
        by_parameter = await LegacyRunner(ci, token).update(number, state="success", trace="forged")
        by_header = await ci.put(f"builds/{number}", json={"state": "success"}, headers={"BUILD-TOKEN": token})
        by_query = await ci.put(f"builds/{number}?token={token}", json={"state": "success"})

        assert [(answer.status_code, answer.json()) for answer in (by_parameter, by_header, by_query)] == [(403, FORBIDDEN)] * 3
        row = await make.fetch(tables.Build, number)
        assert row is not None and (row.status, row.trace_size) == (CheckStatus.RUNNING, 0)


class TestGraph:
    """appendBuildTrace, updateBuild, createArtifactUpload"""

    async def test_masks_secrets_split_across_appends(
        self, ask: Ask, runner_with_build: LegacyRunner, check_leaks: Any, make: DataFactory
    ) -> None:
        number, token = runner_with_build.build["id"], runner_with_build.build["token"]
        text = f"a {token} b {forms(token)[1]} c"
        admin = await make.admin()
        for credential in (token, None):
            for end in range(1, len(text), 5):
                start = max(0, end - 9)
                values = {"projectPath": "ada/engine", "databaseId": number, "text": text[start:end], "offset": start}
                if credential:
                    outcome = await ask.graph.run_document(APPEND, {"input": values}, None, credential, request_id="test")
                    assert not outcome.errors
                else:
                    data = await ask.data(APPEND, admin, input=values)
                    assert data["appendBuildTrace"]["build"]["trace"]["totalBytes"] >= end
                await check_leaks()

    async def test_stores_the_rest_when_the_build_ends(self, ask: Ask, runner_with_build: LegacyRunner, check_leaks: Any) -> None:
        number, token = runner_with_build.build["id"], runner_with_build.build["token"]
        for query, values in (
            (APPEND, {"projectPath": "ada/engine", "text": f"{token} {token[:12]}", "offset": 0}),
            (REPORT, {"projectPath": "ada/engine", "status": "SUCCESS"}),
        ):
            outcome = await ask.graph.run_document(query, {"input": {**values, "databaseId": number}}, None, token, request_id="test")
            assert not outcome.errors and outcome.data is not None
            ((_, payload),) = outcome.data.items()
            assert payload["userErrors"] == []

        assert await check_leaks() == "*" * len(token) + " " + "*" * 12

    async def test_the_rest_is_stored_when_the_build_is_canceled(
        self, ask: Ask, runner_with_build: LegacyRunner, make: DataFactory, check_leaks: Any
    ) -> None:
        await runner_with_build.update(trace="half")
        cancel = 'mutation ($id: Int!) { cancelBuild(input: {projectPath: "ada/engine", databaseId: $id}) { userErrors { code } } }'
        await ask.data(cancel, await make.admin(), id=runner_with_build.build["id"])

        assert await check_leaks() == "half"

    async def test_the_name_of_an_artifact_is_masked(
        self, ci: httpx.AsyncClient, ask: Ask, make: DataFactory, runner_with_build: LegacyRunner, check_leaks: Any
    ) -> None:
        token = runner_with_build.build["token"]
        assert (await runner_with_build.upload_artifact(b"PK", f"build-{token}.zip")).status_code == 201

        await check_leaks()
        page = await ask.data(PAGE, await make.admin(), id=runner_with_build.build["id"])
        assert page["project"]["build"]["artifact"] == {"filename": f"build-{'*' * len(token)}.zip"}

    async def test_pages_show_masks(self, ask: Ask, make: DataFactory, runner_with_build: LegacyRunner, services: Services) -> None:
        token = runner_with_build.build["token"]
        await runner_with_build.update(trace=f"token {token}\n", state="success")
        await traces.join_traces(services)

        page = await ask.data(PAGE, await make.admin(), id=runner_with_build.build["id"])
        assert page["project"]["build"]["trace"] == {"lines": [f"token {'*' * len(token)}"]}

    async def test_the_next_attempt_has_a_token_of_its_own(
        self, ask: Ask, make: DataFactory, runner_with_build: LegacyRunner, check_leaks: Any
    ) -> None:
        first = runner_with_build.build["token"]
        await runner_with_build.update(trace=f"one {first}\nf", state="failed")
        retry = 'mutation ($id: Int!) { retryBuild(input: {projectPath: "ada/engine", databaseId: $id}) { userErrors { code } } }'
        await ask.data(retry, await make.admin(), id=runner_with_build.build["id"])
        row = await make.fetch(tables.Build, runner_with_build.build["id"])
        assert row is not None and (row.sealed_token, row.sealed_trace_end, row.trace_size) == (None, None, 0)
        async with make.services.database.read_session() as session:
            (past,) = (await session.execute(select(tables.Build).where(tables.Build.current_id == row.id))).scalars()  # type: ignore[arg-type]
        assert (past.sealed_token, past.sealed_trace_end) == (None, None)

        assert (await runner_with_build.claim()).status_code == 201
        assert runner_with_build.build["token"] != first
        await runner_with_build.update(trace=f"two {runner_with_build.build['token']}\n", state="success")

        assert await check_leaks() == f"two {'*' * len(first)}\n"
