"""Old changes are deleted, and subscriptions that would resume after one receive an error to start again."""

from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import insert, select
from sqlmodel import col

from graph.context import Services
from graph.errors import Code
from graph.jobs import change_pruning
from graph.jobs.change_pruning import ChangeRetention
from graph.operations.execution import Graph
from storage import tables
from storage.database.sessions import ReadSession
from storage.tables import ChangeKind
from storage.tables.events import changes
from tests.make import DataFactory
from tests.support.servers.streams import next_event, subscribed

CHANGED = "subscription($after: String) { buildChanged(afterSeq: $after) { seq build { databaseId } } }"


@pytest.fixture
async def owner(make: DataFactory) -> tables.User:
    return await make.user("olga")


@pytest.fixture
async def build(make: DataFactory, owner: tables.User) -> tables.Build:
    return await make.build(await make.project(owner=owner, builds_enabled=True), "f" * 40)


@pytest.fixture
async def seqs(services: Services, build: tables.Build) -> Sequence[int]:
    """The sequence numbers of ten changes of a build, one each day until now."""
    await add_changes(services, build, reversed(range(10)))
    return await remaining(services)


async def add_changes(services: Services, build: tables.Build, days: Iterable[int]) -> None:
    """Adds one change for each of `days`, that many days old."""
    columns: dict[str, Any] = {"kind": ChangeKind.BUILD, "project_id": build.project_id, "build_id": build.id, "ref": "main"}
    rows = [columns | {"new_state": "pending", "created_at": services.clock() - timedelta(days=age)} for age in days]
    async with services.database.write_session() as session:
        await session.execute(insert(tables.Change), rows)
        await session.commit()


async def remaining(services: Services) -> list[int]:
    async with services.database.read_session() as session:
        return [row[0] for row in await session.read(select(col(tables.Change.id)).order_by(col(tables.Change.id)))]


class TestRetention:
    @pytest.mark.parametrize(("days", "rows", "kept"), [(4, 1000, 4), (1000, 3, 3), (4, 3, 3), (1000, 1000, 10)])
    async def test_is_by_age_and_by_number(self, services: Services, seqs: Sequence[int], days: int, rows: int, kept: int) -> None:
        await change_pruning.prune(services, ChangeRetention(days, rows))

        assert await remaining(services) == seqs[-kept:]

    async def test_is_applied_in_batches(self, services: Services, seqs: Sequence[int], monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(change_pruning, "BATCH_SIZE", 2)

        await change_pruning.prune(services, ChangeRetention(days=5))

        assert await remaining(services) == seqs[-5:]

    async def test_reads_one_change_if_none_is_outdated(
        self, services: Services, seqs: Sequence[int], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        limits: list[int] = []
        oldest = changes.oldest
        monkeypatch.setattr(changes, "oldest", lambda limit: limits.append(limit) or oldest(limit))

        await change_pruning.prune(services, ChangeRetention())

        assert limits == [1]

    async def test_leaves_a_first_change_that_is_added_meanwhile(
        self, services: Services, build: tables.Build, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        read = ReadSession.read

        async def read_before_change(session: ReadSession, *arguments: Any) -> Any:
            rows = await read(session, *arguments)
            monkeypatch.undo()
            await add_changes(services, build, [100])
            return rows

        monkeypatch.setattr(ReadSession, "read", read_before_change)

        await change_pruning.prune(services, ChangeRetention())

        assert len(await remaining(services)) == 1

    async def test_includes_the_newest_change_however_old(self, services: Services, seqs: Sequence[int]) -> None:
        later = services.clock() + timedelta(days=100)
        object.__setattr__(services, "clock", lambda: later)

        await change_pruning.prune(services, ChangeRetention())

        assert await remaining(services) == seqs[-1:]


class TestSubscriptions:
    @pytest.fixture(autouse=True)
    async def pruned(self, services: Services, seqs: Sequence[int]) -> None:
        await change_pruning.prune(services, ChangeRetention(days=4))
        # A second one, which finds nothing to delete, does not forget the first one.
        await change_pruning.prune(services, ChangeRetention(days=9))

    async def test_after_a_deleted_change_are_rejected_and_must_start_again(
        self, graph: Graph, owner: tables.User, seqs: Sequence[int]
    ) -> None:
        for after in (0, seqs[0], seqs[4]):
            async with subscribed(graph, owner, CHANGED, after=str(after)) as stream:
                event = await stream.next(1)
                assert event is not None
                assert [error.code for error in event.result.errors] == [Code.BAD_REQUEST]
                assert "without `afterSeq`" in event.result.errors[0].message
                assert stream.is_ended

    async def test_after_the_last_deleted_change_miss_nothing(self, graph: Graph, owner: tables.User, seqs: Sequence[int]) -> None:
        for first in (6, 8):
            async with subscribed(graph, owner, CHANGED, after=str(seqs[first - 1])) as stream:
                assert [int((await next_event(stream))["seq"]) for _ in seqs[first:]] == list(seqs[first:])

    async def test_that_are_new_start_at_the_end(self, graph: Graph, owner: tables.User, seqs: Sequence[int]) -> None:
        async with subscribed(graph, owner, CHANGED) as stream:
            assert stream.position == seqs[-1]
            assert await stream.next(0.01) is None
