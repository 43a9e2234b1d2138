"""Traces of builds: appended once, read from the end, joined when the build has finished."""

import contextlib
import errno
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select
from sqlmodel import col

from graph.context import Context, Services
from graph.rules.builds import stored_objects, traces
from storage import tables
from storage.objects.object_store import ObjectNotFound, new_key
from storage.tables import AccessLevel, CheckStatus
from tests.make import DataFactory
from tests.support.api_clients import Ask
from tests.support.database.statements import StatementRecorder

APPEND = """mutation ($input: AppendBuildTraceInput!) { appendBuildTrace(input: $input) {
    build { trace { lines totalBytes } } userErrors { field code message } } }"""
TRACE = """query ($id: String!, $build: Int!, $last: Int!) { project(path: $id) { build(databaseId: $build) {
    trace(last: $last) { lines totalBytes } } } }"""
TRACES = "query ($id: String!, $first: Int) { project(path: $id) { builds(first: $first) { nodes { trace { lines totalBytes } } } } }"
SHA = "a" * 40


async def create_build(make: DataFactory, **columns: Any) -> tuple[tables.User, tables.Build]:
    owner = await make.user()
    return owner, await make.build(await make.project(owner=owner), SHA, **columns)


def input_of(build: tables.Build, text: str, offset: int) -> dict[str, Any]:
    return {"projectPath": str(build.project_id), "databaseId": build.id, "text": text, "offset": offset}


async def append(ask: Ask, viewer: tables.User, build: tables.Build, text: str, offset: int) -> Any:
    payload = (await ask.data(APPEND, viewer, input=input_of(build, text, offset)))["appendBuildTrace"]
    return payload["build"]["trace"] if payload["build"] else [(error["field"], error["code"]) for error in payload["userErrors"]]


def files(services: Services) -> int:
    root: Path = services.objects.root  # type: ignore[attr-defined]
    return len([path for path in root.rglob("*") if path.is_file()])


class TestAppendTrace:
    async def test_adds_to_the_end(self, ask: Ask, make: DataFactory) -> None:
        owner, build = await create_build(make)

        assert await append(ask, owner, build, "one\ntw", 0) == {"lines": ["one", "tw"], "totalBytes": 6}
        assert await append(ask, owner, build, "ö\n", 6) == {"lines": ["one", "twö"], "totalBytes": 9}

    async def test_a_repeated_chunk_is_stored_once(self, ask: Ask, make: DataFactory) -> None:
        owner, build = await create_build(make)
        await append(ask, owner, build, "one\n", 0)

        assert await append(ask, owner, build, "one\n", 0) == {"lines": ["one"], "totalBytes": 4}
        assert await append(ask, owner, build, "ne\ntwo\n", 1) == {"lines": ["one", "two"], "totalBytes": 8}
        assert await append(ask, owner, build, "", 3) == {"lines": ["one", "two"], "totalBytes": 8}
        assert files(make.services) == await make.count(tables.TracePart) == 2

    async def test_rejects_a_gap(self, ask: Ask, make: DataFactory) -> None:
        owner, build = await create_build(make)
        await append(ask, owner, build, "one\n", 0)

        assert await append(ask, owner, build, "three\n", 5) == [("offset", "CONFLICT")]
        assert await append(ask, owner, build, "x", 2**62) == [("offset", "CONFLICT")]
        assert await append(ask, owner, build, "x", -1) == [("offset", "INVALID")]
        assert files(make.services) == 1

    async def test_accepts_a_mebibyte_at_once(self, ask: Ask, make: DataFactory) -> None:
        owner, build = await create_build(make)

        assert await append(ask, owner, build, "x" * 2**20, 0) == {"lines": ["x" * 4000 + "…"], "totalBytes": 2**20}
        assert await append(ask, owner, build, "x" * 2**20 + "y", 2**20) == [("text", "TOO_LARGE")]

    async def test_is_truncated_at_the_limit_with_a_notice(self, ask: Ask, make: DataFactory) -> None:
        owner, build = await create_build(make)
        object.__setattr__(ask.graph.services, "max_trace_bytes", 10)

        cut = await append(ask, owner, build, "a\nb\nöööö more", 0)

        assert cut["lines"] == ["a", "b", "ööö", "[The trace is longer than 10 bytes; the rest was discarded.]"]
        assert await append(ask, owner, build, "later\n", 10_000) == cut

    async def test_is_closed_for_an_erased_build_and_an_earlier_attempt(self, ask: Ask, make: DataFactory) -> None:
        owner, build = await create_build(make, status=CheckStatus.SUCCESS, erased_at=datetime.now(UTC))

        assert await append(ask, owner, build, "x", 0) == [("id", "NOT_ALLOWED")]
        assert files(make.services) == 0

    async def test_a_failed_commit_leaves_no_object(self, ask: Ask, make: DataFactory, monkeypatch: pytest.MonkeyPatch) -> None:
        owner, build = await create_build(make)

        async def fail(*_: Any) -> Any:
            raise ZeroDivisionError

        monkeypatch.setattr(traces.builds, "lock_build", fail)
        outcome = await ask(APPEND, owner, input=input_of(build, "x", 0))

        assert [str(error.code) for error in outcome.errors] == ["INTERNAL"]
        assert (files(make.services), await make.count(tables.TracePart)) == (0, 0)

    async def test_requires_a_developer(self, ask: Ask, make: DataFactory) -> None:
        reporter, outsider = await make.user(), await make.user()
        project = await make.project(members=[(reporter, AccessLevel.REPORTER)])
        build = await make.build(project, SHA)

        assert await ask.codes(APPEND, reporter, input=input_of(build, "x", 0)) == ["FORBIDDEN"]
        assert await ask.codes(APPEND, outsider, input=input_of(build, "x", 0)) == ["NOT_FOUND"]


class TestReadTrace:
    async def lines(self, ask: Ask, viewer: tables.User, build: tables.Build, last: int) -> Any:
        data = await ask.data(TRACE, viewer, id=str(build.project_id), build=build.id, last=last)
        return data["project"]["build"]["trace"]["lines"]

    async def test_returns_the_last_lines_across_parts(self, ask: Ask, make: DataFactory) -> None:
        owner, build = await create_build(make)
        await make.trace(build, "a\nb", "c\n", "d\r\n", "e\n\nf")

        assert await self.lines(ask, owner, build, 20) == ["a", "bc", "d", "e", "", "f"]
        assert await self.lines(ask, owner, build, 3) == ["e", "", "f"]
        assert await self.lines(ask, owner, build, 0) == []

    async def test_reads_no_more_than_the_end(self, ask: Ask, make: DataFactory, monkeypatch: pytest.MonkeyPatch) -> None:
        owner, build = await create_build(make)
        line = "x" * 99 + "\n"
        await make.trace(build, *[line * 5000] * 4)
        read = 0
        original = make.services.objects.read

        async def counted(key: str, start: int = 0, size: int | None = None) -> bytes:
            nonlocal read
            read += size or 0
            return await original(key, start, size)

        monkeypatch.setattr(make.services.objects, "read", counted)

        assert await self.lines(ask, owner, build, 20) == ["x" * 99] * 20
        assert read <= 2**15
        assert len(await self.lines(ask, owner, build, 1000)) == 1000

    async def test_a_line_without_end_is_shown_in_part(self, ask: Ask, make: DataFactory) -> None:
        owner, build = await create_build(make)
        await make.trace(build, "a\n" + "x" * 2**19)

        assert await self.lines(ask, owner, build, 2) == ["x" * 4000 + "…"]

    async def test_bytes_that_are_no_text_are_marked(self, ask: Ask, make: DataFactory) -> None:
        owner, build = await create_build(make)
        key = new_key()
        await make.services.objects.put_bytes(key, b"\xff\0x\n")
        build.trace_size = 4
        await make.save(tables.TracePart(build_id=build.id, start=0, size=4, key=key), build)

        assert await self.lines(ask, owner, build, 1) == ["\ufffd\ufffdx"]

    @pytest.mark.parametrize("last", [-1, 1001])
    async def test_has_bounds(self, ask: Ask, make: DataFactory, last: int) -> None:
        owner, build = await create_build(make)

        assert await ask.codes(TRACE, owner, id=str(build.project_id), build=build.id, last=last) == ["BAD_REQUEST"]

    async def test_a_lost_trace_does_not_affect_others(self, ask: Ask, make: DataFactory) -> None:
        owner, build = await create_build(make)
        await make.save(tables.TracePart(build_id=build.id, start=0, size=4, key=new_key()))

        outcome = await ask(TRACE, owner, id=str(build.project_id), build=build.id, last=1)

        assert [str(error.code) for error in outcome.errors] == ["UNAVAILABLE"]
        assert outcome.data == {"project": {"build": {"trace": None}}}

    async def test_an_erased_build_has_none(self, ask: Ask, make: DataFactory) -> None:
        owner, build = await create_build(make, status=CheckStatus.FAILED, erased_at=datetime.now(UTC))

        data = await ask.data(TRACE, owner, id=str(build.project_id), build=build.id, last=1)

        assert data["project"]["build"]["trace"] is None

    async def test_statement_count_does_not_grow_with_rows(self, ask: Ask, make: DataFactory, statements: StatementRecorder) -> None:
        owner, build = await create_build(make)
        await make.trace(build, "a\n", "b\n")
        project = await make.fetch(tables.Project, build.project_id)
        assert project is not None
        with statements.record() as one:
            await ask.data(TRACES, owner, id=str(project.id), first=100)
        for _ in range(29):
            await make.trace(await make.build(project, SHA), "a\n", "b\n")
        with statements.record() as thirty:
            data = await ask.data(TRACES, owner, id=str(project.id), first=100)

        assert [node["trace"]["lines"] for node in data["project"]["builds"]["nodes"]] == [["a", "b"]] * 30
        assert len(thirty) == len(one)


class TestMergeParts:
    async def test_merges_the_parts_of_a_finished_build(self, ask: Ask, make: DataFactory, services: Services) -> None:
        owner, build = await create_build(make, status=CheckStatus.SUCCESS, created_at=datetime.now(UTC) - timedelta(hours=1))
        _, running = await create_build(make, status=CheckStatus.RUNNING)
        await make.trace(build, "a\nb", "c\n", "d\n")
        await make.trace(running, "a", "b")

        await traces.join_traces(services)

        assert await make.count(tables.TracePart) == files(services) == 3
        data = await ask.data(TRACE, owner, id=str(build.project_id), build=build.id, last=5)
        assert data["project"]["build"]["trace"] == {"lines": ["a", "bc", "d"], "totalBytes": 7}
        assert (await append(ask, owner, build, "late\n", 7))["lines"] == ["a", "bc", "d", "late"]
        await traces.join_traces(services)
        assert await make.count(tables.TracePart) == files(services) == 3

    async def test_skips_a_trace_that_grew_meanwhile(self, make: DataFactory, services: Services, monkeypatch: pytest.MonkeyPatch) -> None:
        _, build = await create_build(make, status=CheckStatus.SUCCESS, created_at=datetime.now(UTC) - timedelta(hours=1))
        await make.trace(build, "a", "b")
        put = services.objects.put

        async def slow(*arguments: Any) -> int:
            size = await put(*arguments)
            monkeypatch.undo()
            await make.trace(build, "c")
            return size

        monkeypatch.setattr(services.objects, "put", slow)
        await traces.join_traces(services)

        assert await make.count(tables.TracePart) == files(services) == 3
        await traces.join_traces(services)
        assert await make.count(tables.TracePart) == files(services) == 1

    async def test_a_failed_commit_leaves_no_object(self, make: DataFactory, services: Services, monkeypatch: pytest.MonkeyPatch) -> None:
        _, build = await create_build(make, status=CheckStatus.SUCCESS, created_at=datetime.now(UTC) - timedelta(hours=1))
        await make.trace(build, "a", "b")

        async def fail(_: Context) -> None:
            raise OSError("the commit fails")

        monkeypatch.setattr(traces, "commit_and_notify", fail)
        with pytest.raises(OSError, match="the commit fails"):
            await traces.join_traces(services)
        assert await make.count(tables.TracePart) == files(services) == 2


class TestTracesThatCannotBeMerged:
    """An object of the store was lost or damaged. Its trace is tried again, as the store may be repaired, but others do not wait for it."""

    @pytest.fixture
    async def finished(self, make: DataFactory, monkeypatch: pytest.MonkeyPatch) -> list[tables.Build]:
        """More builds than a run joins, each with a trace in two parts."""
        monkeypatch.setattr(traces, "JOIN_BATCH_SIZE", 2)
        ended = datetime.now(UTC) - timedelta(hours=1)
        made = [(await create_build(make, status=CheckStatus.SUCCESS, created_at=ended))[1] for _ in range(6)]
        return [await make.trace(build, "a\n", "b\n") for build in made]

    @staticmethod
    async def parts(services: Services) -> dict[int, list[tables.TracePart]]:
        """The parts of each build."""
        found: dict[int, list[tables.TracePart]] = {}
        async with services.database.read_session() as session:
            for (part,) in await session.read(select(tables.TracePart).order_by(col(tables.TracePart.start))):
                found.setdefault(part.build_id, []).append(part)
        return found

    @pytest.mark.parametrize("damage", ["lost", "shortened", "unreadable"])
    async def test_do_not_keep_others_waiting(
        self, services: Services, finished: list[tables.Build], damage: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        parts = await self.parts(services)
        damaged = finished[:4]
        keys = [parts[build.id][1].key for build in damaged]
        open_object = services.objects.open

        def open_damaged(key: str, start: int = 0, size: int | None = None) -> Any:
            if key in keys:
                if damage == "lost":
                    raise ObjectNotFound(key)
                if damage == "unreadable":
                    raise OSError(errno.EIO, "Input/output error")
                size = 1
            return open_object(key, start, size)

        monkeypatch.setattr(services.objects, "open", open_damaged)
        for _ in range(6):
            with contextlib.suppress(OSError):
                await traces.join_traces(services)

        found = {build_id: len(parts) for build_id, parts in (await self.parts(services)).items()}
        assert found == {build.id: 2 if build in damaged else 1 for build in finished}

        monkeypatch.undo()
        monkeypatch.setattr(traces, "JOIN_BATCH_SIZE", 2)
        for _ in range(3):
            await traces.join_traces(services)
        joined = await self.parts(services)
        assert {build_id: [part.size for part in parts] for build_id, parts in joined.items()} == {build.id: [4] for build in finished}
        assert files(services) == len(finished)


class TestCleanup:
    async def test_erases_objects_without_a_row_after_a_day(
        self, make: DataFactory, services: Services, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """docs/promises.md R18."""
        _, build = await create_build(make)
        await make.trace(build, "a")
        await make.artifact(build)
        await services.objects.put_bytes(new_key(), b"orphan")

        await stored_objects.erase_orphans(services)
        assert files(services) == 3

        monkeypatch.setattr(stored_objects, "ORPHAN_AGE_SECONDS", -60.0)
        await stored_objects.erase_orphans(services)
        assert files(services) == 2
