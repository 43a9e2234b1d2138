"""Traces and artifacts of imported builds."""

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import select
from sqlmodel import col

from graph.build_file_imports import BuildFileImports
from graph.errors import LimitExceeded, NotAllowed
from graph.rules.builds import traces
from storage import tables
from storage.tables import CheckStatus, ImportKind
from tests.graph.imports.copied_project import know
from tests.graph.imports.support import FINISH, T1, begin
from tests.make import DataFactory
from tests.support.api_clients import Api, Ask
from tests.support.database.statements import StatementRecorder

KEYS: tuple[Any, ...] = (col(tables.Artifact.key), col(tables.TracePart.key))


async def stream(*chunks: bytes) -> AsyncIterator[bytes]:
    for chunk in chunks:
        yield chunk


def outcomes(results: list[Any]) -> list[tuple[str, list[str]]]:
    return [(str(each.outcome), [str(error.code) for error in each.errors]) for each in results]


async def stored_keys(make: DataFactory) -> set[str]:
    """The objects of the store, all of which must have a row."""
    async with make.services.database.read_session() as session:
        rows = {key for column in KEYS for (key,) in await session.read(select(column))}
    found = {key async for keys in make.services.objects.list_older_than(-1e9) for key in keys}
    assert found == rows
    return found


class TestBuildFiles:
    async def test_are_those_of_the_builds_and_written_once(self, ask: Ask, api: Api, make: DataFactory) -> None:
        owner = await make.user()
        project = await make.project(owner=owner)
        running = await begin(ask, await make.admin())
        builds = [await make.build(project, "a" * 40, status=CheckStatus.SUCCESS) for _ in range(3)]
        await know(make, running, ImportKind.BUILD, {number + 10: build.id for number, build in enumerate(builds)})
        files = BuildFileImports(replace(make.services, max_trace_bytes=100, max_artifact_bytes=20))

        first = [("10", b"one\nt\xc3\xb6o\n"), ("11", b"x" * 101), ("99", b"lost")]
        assert outcomes(await files.write_traces(running.id, first)) == [("created", []), ("created", []), ("skipped", ["NOT_FOUND"])]
        assert outcomes(await files.write_traces(running.id, first[:2])) == [("unchanged", [])] * 2
        again = [("10", b"other"), ("12", b"new")]
        assert outcomes(await files.write_traces(running.id, again)) == [("updated", []), ("created", [])]
        assert outcomes([await files.write_trace(running.id, "12", stream(b"y" * 60, b"z" * 60))]) == [("updated", [])]
        assert outcomes([await files.write_trace(running.id, "12", stream(b"y" * 60, b"z" * 60))]) == [("unchanged", [])]
        shown = [(await api.get(f"/projects/{project.id}/builds/{build.id}/trace", owner)).content for build in builds]
        notice = b"\n[The trace is longer than 100 bytes; the rest was not imported.]\n"
        assert shown == [b"other", b"x" * 100 + notice, b"y" * 60 + b"z" * 40 + notice]

        async def artifact(build_id: str, content: bytes) -> Any:
            return await files.write_artifact(running.id, build_id, "dir/out.zip", stream(content))

        assert outcomes([await artifact("10", b"PK1"), await artifact("10", b"PK1"), await artifact("10", b"PK2")]) == [
            ("created", []), ("unchanged", []), ("updated", []),
        ]  # fmt: skip
        assert outcomes([await artifact("11", b"x" * 21), await artifact("99", b"")]) == [
            ("skipped", ["TOO_LARGE"]),
            ("skipped", ["NOT_FOUND"]),
        ]
        response = await api.get(f"/projects/{project.id}/builds/{builds[0].id}/artifacts", owner)
        assert (response.content, "out.zip" in response.headers["content-disposition"]) == (b"PK2", True)
        row = await make.fetch(tables.Artifact, 2)
        assert row is not None and row.created_at == builds[0].finished_at
        assert len(await stored_keys(make)) == 4

        # A finished build is not appended to by what joins traces, and a retry takes its files along.
        await traces.join_traces(make.services)
        text = "mutation ($input: BuildInput!) { retryBuild(input: $input) { build { attempt } userErrors { code } } }"
        await ask.data(text, owner, input={"projectPath": str(project.id), "databaseId": builds[0].id})
        assert outcomes(await files.write_traces(running.id, [("10", b"other")])) == [("created", [])]

    async def test_are_refused_outside_of_an_import(self, ask: Ask, make: DataFactory) -> None:
        running = await begin(ask, await make.admin())
        build = await make.build(await make.project(), "a" * 40)
        await know(make, running, ImportKind.BUILD, {1: build.id})
        files = BuildFileImports(make.services)
        await files.write_traces(running.id, [("1", b"one")])
        await ask.data(FINISH, running.admin, input={"importId": running.id})
        for content in (b"one", b"other"):
            with pytest.raises(NotAllowed):
                await files.write_traces(running.id, [("1", content)])
            with pytest.raises(NotAllowed):
                await files.write_artifact(running.id, "1", "a.zip", stream(content))
        with pytest.raises(LimitExceeded):
            await files.write_traces(running.id, [("1", b"")] * 2)
        assert len(await stored_keys(make)) == 1

    async def test_take_the_same_number_of_statements_for_any_number(
        self, ask: Ask, make: DataFactory, statements: StatementRecorder
    ) -> None:
        running = await begin(ask, await make.admin())
        project = await make.project()
        await know(make, running, ImportKind.PROJECT, {1: project.id})
        files, counts = BuildFileImports(make.services), list[int]()
        build = {"projectId": 1, "sha": "a" * 40, "ref": "master", "name": "b", "stage": "test", "status": "SUCCESS", "createdAt": T1}
        for start, size in ((0, 10), (100, 100), (300, 10)):
            numbers = range(start, start + size)
            await running.ids("importBuilds", *({**build, "sourceId": number} for number in numbers))
            with statements.record() as seen:
                found = await files.write_traces(running.id, [(str(number), b"%d" % number) for number in numbers])
            assert outcomes(found) == [("created", [])] * size
            counts.append(len(seen))
        assert counts[1] == counts[2]
