"""Statistics from the columnar copy of builds: the same answers as from the database, whatever is requested and whatever changes."""

import asyncio
import random
import threading
from collections import Counter
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import delete, insert, text, update
from sqlmodel import col

from graph.context import Services
from graph.jobs import build_analytics, change_pruning
from graph.jobs.build_analytics import BuildAnalytics, CopyState
from graph.jobs.change_pruning import ChangeRetention
from storage import tables
from storage.analytics import build_copy
from storage.analytics.build_copy import POINTER_NAME, BuildCopy, CopyPointer, read_pointer
from storage.analytics.build_copy_writer import RebuildRunning
from storage.analytics.build_statistics import CopyStatement
from storage.tables import AccessLevel, CheckStatus, Visibility
from storage.tables.builds import build_changes
from tests.make import DataFactory
from tests.support.build_copies import Both
from tests.support.database.database_selection import share_of_draws

MOMENT = datetime(2016, 3, 20, tzinfo=UTC)
SHA = "a" * 40
QUANTILES = "{ count mean p50 p90 p95 max }"
MEASURES = ("duration", "queued", "coverage")
DIMENSIONS = ("PROJECT", "NAME", "STAGE", "REF", "AUTHOR", "STATUS")
COLUMNS = "bucketStart project name stage ref author status counts { total pending running failed success canceled } successRate retried"
ARGUMENTS = "$filter: BuildFilter, $groupBy: [BuildDimension!]! = [], $bucket: TimeBucket, $timezone: String, $first: Int"
PASSED = "filter: $filter, groupBy: $groupBy, bucket: $bucket, timezone: $timezone, first: $first"
ZONES = ("UTC", "Europe/Helsinki", "America/St_Johns", "Asia/Kolkata", "Pacific/Apia")
NAMES = ("unit", 'lint, and "more"', "Ünïcode\nline", "\\N", "", "Zebra")


def query_of(parent: str, measures: tuple[str, ...], columns: str = COLUMNS, quantiles: str = QUANTILES) -> str:
    measured = " ".join(f"{measure} {quantiles}" for measure in measures)
    stats = f"buildStats({PASSED}) {{ truncated rows {{ {columns} {measured} }} }}"
    if parent == "projects":
        return f"query ({ARGUMENTS}) {{ projects(first: 5) {{ nodes {{ databaseId {stats} }} }} }}"
    return f"query ($path: String!, {ARGUMENTS}) {{ {parent}(path: $path) {{ {stats} }} }}"


class BuildFactory:
    """Writes builds as statements, as pushes, imports and retries do."""

    def __init__(self, services: Services, projects: list[tables.Project], users: list[tables.User], seed: int) -> None:
        self.random, self.services, self.projects, self.users = random.Random(seed), services, projects, users

    def columns(self) -> dict[str, Any]:
        pick = self.random
        created = MOMENT + timedelta(seconds=pick.randrange(30 * 86400), microseconds=pick.randrange(10**6))
        started = created + timedelta(seconds=pick.randrange(-5, 900), microseconds=pick.randrange(10**6)) if pick.random() < 0.9 else None
        ended = started + timedelta(seconds=pick.randrange(-2, 4000)) if started is not None and pick.random() < 0.9 else None
        return {
            "project_id": pick.choice(self.projects).id,
            "sha": SHA,
            "ref": pick.choice(("main", "other", "Ünïcode")),
            "name": pick.choice(NAMES),
            "stage": pick.choice(("test", "deploy")),
            "status": pick.choice(list(CheckStatus)),
            "user_id": pick.choice([None, *(user.id for user in self.users)]),
            "attempt": pick.randrange(1, 4),
            "coverage": pick.choice((None, 0.0, 12.3456789, 87.5)),
            "created_at": created,
            "started_at": started,
            "finished_at": ended,
        }

    async def insert(self, count: int) -> None:
        async with self.services.database.write_session() as session:
            await session.execute(insert(tables.Build), [self.columns() for _ in range(count)])
            await session.commit()

    async def run(self, *statements: Any) -> None:
        async with self.services.database.write_session() as session:
            for statement in statements:
                await session.execute(statement)
            await session.commit()

    async def change(self) -> None:
        """Changes some builds in a way that may happen."""
        pick, build = self.random, tables.Build
        async with self.services.database.read_session() as session:
            ids = sorted(row[0] for row in await session.fetch("SELECT id FROM builds", ()))
        some = pick.sample(ids, min(5, len(ids)))
        kind = pick.randrange(4)
        if kind == 0:
            await self.insert(5)
        elif kind == 1:
            values = {name: value for name, value in self.columns().items() if name != "sha"}
            await self.run(update(build).where(col(build.id).in_(some)).values(**values))
        elif kind == 2:
            await self.run(update(build).where(col(build.id).in_(some[1:])).values(current_id=some[0]))
        else:
            await self.run(delete(build).where(col(build.id).in_(some[:2])))


@pytest.fixture
async def users(make: DataFactory) -> list[tables.User]:
    return [await make.user(name) for name in ("owner", "Zoe", "anna", "guest")]


@pytest.fixture
async def group(make: DataFactory, users: list[tables.User]) -> tables.Namespace:
    return await make.group(path="forge", members=[(users[0], AccessLevel.OWNER), (users[3], AccessLevel.GUEST)])


@pytest.fixture
async def projects(make: DataFactory, users: list[tables.User], group: tables.Namespace) -> list[tables.Project]:
    found = [await make.project(group=group, path=path, default_branch=branch) for path, branch in (("site", "main"), ("App", "other"))]
    found.append(await make.project(group=group, path="open", visibility=Visibility.PUBLIC))
    found.append(await make.project(owner=users[1], path="own"))
    return found


@pytest.fixture
def builds(services: Services, projects: list[tables.Project], users: list[tables.User]) -> BuildFactory:
    return BuildFactory(services, projects, users, 7)


def random_variables(pick: random.Random) -> dict[str, Any]:
    def at(days: float) -> str:
        return (MOMENT + timedelta(days=days)).isoformat()

    def span() -> dict[str, str]:
        since = pick.uniform(-1, 25)
        found = {"since": at(since), "until": at(since + pick.uniform(0, 12))}
        return {key: found[key] for key in pick.sample(sorted(found), pick.randrange(3))}

    choices = {
        "status": lambda: pick.sample(["PENDING", "RUNNING", "SUCCESS", "FAILED", "CANCELED", "MANUAL"], 3),
        "name": lambda: pick.sample(NAMES, 2),
        "stage": lambda: ["test"],
        "ref": lambda: pick.choice(([None], [None, "Ünïcode"], ["other"], [])),
        "latestAttemptOnly": lambda: pick.random() < 0.3,
        "created": span,
        "finished": span,
        "authorUsername": lambda: pick.choice((["OWNER", "zoe"], ["nobody"], ["anna"])),
    }
    names = [name for name in choices if pick.random() < 0.25]
    return {
        "filter": {name: choices[name]() for name in names},
        "groupBy": pick.sample(DIMENSIONS, pick.choice((0, 0, 1, 1, 2, 3))),
        "bucket": pick.choice((None, "HOUR", "DAY", "WEEK", "MONTH")),
        "timezone": pick.choice(ZONES),
        "first": pick.choice((5, 100, 1000)),
    }


class TestAnswers:
    async def test_equal_those_of_the_database(
        self, both: Both, analytics: BuildAnalytics, builds: BuildFactory, users: list[tables.User], group: tables.Namespace
    ) -> None:
        await builds.insert(300)
        await analytics.rebuild()
        pick, count = random.Random(11), share_of_draws(150, 3)

        for number in range(count):
            if number % 5 == 4:
                await builds.change()
            if number == count // 2:
                await analytics.rebuild()
            parent = pick.choice(("group", "group", "project", "projects"))
            path = {"group": group.path, "project": str(builds.projects[pick.choice((0, 2))].id)}
            measures = tuple(measure for measure in MEASURES if pick.random() < 0.4)
            viewer = pick.choice({"project": users[:1], "projects": users[:2], "group": users}[parent])
            variables = random_variables(pick) | ({"path": path[parent]} if parent in path else {})
            if parent == "group" and viewer is users[2]:
                viewer = users[3]
            columns = pick.choice((COLUMNS, "bucketStart counts { total }"))
            quantiles = pick.choice((QUANTILES, "{ count p50 p95 }", "{ mean }", "{ max }"))
            await both.data(query_of(parent, measures, columns, quantiles), viewer, **variables)
        assert both.copied_count >= count

    async def test_do_not_count_what_the_viewer_may_not_see(
        self, both: Both, analytics: BuildAnalytics, builds: BuildFactory, users: list[tables.User], group: tables.Namespace
    ) -> None:
        await builds.insert(60)
        await analytics.rebuild()

        totals = [
            (await both.data(query_of("group", ()), viewer, path=group.path))["group"]["buildStats"]["rows"][0]["counts"]["total"]
            for viewer in (users[0], users[1])
        ]

        assert totals[0] > totals[1] > 0


class TestChanges:
    async def test_of_deleted_users_and_projects_are_seen(
        self, both: Both, analytics: BuildAnalytics, builds: BuildFactory, users: list[tables.User], group: tables.Namespace
    ) -> None:
        await builds.insert(100)
        await analytics.rebuild()
        variables = {"path": group.path, "groupBy": ["AUTHOR", "PROJECT"]}
        await both.data(query_of("group", ()), users[0], **variables)

        await builds.run(update(tables.Build).where(col(tables.Build.user_id) == users[2].id).values(user_id=None))
        await builds.run(delete(tables.Project).where(col(tables.Project.id) == builds.projects[0].id))

        rows = (await both.data(query_of("group", ()), users[0], **variables))["group"]["buildStats"]["rows"]
        assert {row["author"] for row in rows} == {None, "owner", "Zoe", "guest"}
        assert {row["project"] for row in rows} == {"forge/App", "forge/open"}

    async def test_of_an_open_transaction_are_counted_when_it_commits(
        self, both: Both, analytics: BuildAnalytics, builds: BuildFactory, users: list[tables.User], group: tables.Namespace
    ) -> None:
        await builds.insert(20)
        await analytics.rebuild()
        query = query_of("group", ())
        if both.services.database.dialect == "sqlite":
            pytest.skip("SQLite has one writer at a time, so that the log is in the order of commits")

        async with both.services.database.write_session() as session:
            await session.execute(insert(tables.Build), [builds.columns() | {"project_id": builds.projects[0].id}])
            # A later number of the log, which is visible earlier.
            await builds.insert(3)
            await both.data(query, users[0], path=group.path)
            await session.commit()

        await both.data(query, users[0], path=group.path)


class TestPrunedLog:
    async def test_is_not_relied_on_for_a_transaction_that_committed_after_later_ones(
        self, both: Both, analytics: BuildAnalytics, builds: BuildFactory, users: list[tables.User], group: tables.Namespace
    ) -> None:
        await builds.insert(20)
        await analytics.rebuild()
        dialect, query = both.services.database.dialect, query_of("group", ())
        if dialect == "sqlite":
            pytest.skip("SQLite has one writer at a time, so that the log is in the order of commits")

        async with both.services.database.write_session() as session:
            await session.execute(insert(tables.Build), [builds.columns() | {"project_id": builds.projects[0].id}])
            await builds.insert(3)
            await both.data(query, users[0], path=group.path)
            # Not those of the open transaction, nor any later ones.
            await builds.run(build_changes.prune(dialect, 1))
            await both.data(query, users[0], path=group.path)
            await session.commit()
        # The change that the copy has not read yet; its own last change stays.
        await builds.run(build_changes.prune(dialect, 2))

        assert await both.copied.data(query, users[0], path=group.path) == await both.stored.data(query, users[0], path=group.path)
        await analytics.maintain()
        await both.data(query, users[0], path=group.path)

    async def test_is_relied_on_for_what_remains(
        self, both: Both, analytics: BuildAnalytics, builds: BuildFactory, users: list[tables.User], group: tables.Namespace
    ) -> None:
        await builds.insert(20)
        await analytics.rebuild()
        await builds.insert(5)
        await both.data(query_of("group", ()), users[0], path=group.path)

        await builds.run(*(build_changes.prune(both.services.database.dialect, number) for number in (5, 4)))
        await builds.insert(2)

        await both.data(query_of("group", ()), users[0], path=group.path)

    async def test_is_pruned_in_short_transactions(self, services: Services, builds: BuildFactory, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(build_changes, "MAX_LOGGED", 12)
        monkeypatch.setattr(build_changes, "MAX_PRUNED", 7)
        await builds.insert(40)

        await change_pruning.prune(services, ChangeRetention())

        async with services.database.read_session() as session:
            ids = sorted(row[0] for row in await session.fetch("SELECT build_id FROM build_changes WHERE build_id > 0", ()))
        assert len(ids) <= 12
        assert ids[-1] - ids[0] == len(ids) - 1


class TestUnusableCopy:
    """The database answers, and the copy is written again."""

    @pytest.fixture(autouse=True)
    async def rows(self, builds: BuildFactory, analytics: BuildAnalytics) -> None:
        await builds.insert(20)
        await analytics.rebuild()

    async def check(self, both: Both, users: list[tables.User], group: tables.Namespace) -> None:
        query, before = query_of("group", MEASURES), both.copied_count
        assert await both.copied.data(query, users[0], path=group.path) == await both.stored.data(query, users[0], path=group.path)
        assert both.copied_count == before
        assert both.copied.graph.services.build_analytics is not None
        await both.copied.graph.services.build_analytics.maintain()
        await both.data(query, users[0], path=group.path)

    @pytest.mark.parametrize("harm", ["truncated", "absent", "pointer cut off", "other format", "other database"])
    async def test_is_replaced(self, both: Both, users: list[tables.User], group: tables.Namespace, tmp_path: Path, harm: str) -> None:
        pointer = read_pointer(folder := tmp_path / "analytics")
        assert pointer is not None
        path, current = folder / pointer.file, folder / POINTER_NAME
        if harm == "truncated":
            path.write_bytes(path.read_bytes()[:5000])
        elif harm == "absent":
            path.unlink()
        elif harm == "pointer cut off":
            current.write_bytes(current.read_bytes()[:20])
        else:
            old, new = ('"format":', '"format":9') if harm == "other format" else ('"identity":"', '"identity":"another ')
            current.write_text(current.read_text().replace(old, new))

        await self.check(both, users, group)

    async def test_is_replaced_if_the_log_ends_before_it(
        self, both: Both, users: list[tables.User], group: tables.Namespace, builds: BuildFactory
    ) -> None:
        await builds.insert(5)
        await builds.run(build_changes.prune(both.services.database.dialect, 1))

        await self.check(both, users, group)

    async def test_is_replaced_if_the_database_was(
        self, both: Both, users: list[tables.User], group: tables.Namespace, builds: BuildFactory
    ) -> None:
        await builds.run(text("UPDATE build_changes SET token = token + 1"))

        await self.check(both, users, group)

    async def test_is_replaced_after_many_changes(
        self, both: Both, users: list[tables.User], group: tables.Namespace, builds: BuildFactory, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for module in (build_copy, build_analytics):
            monkeypatch.setattr(module, "MAX_CHANGED_BUILDS", 10)
        await builds.insert(30)

        await self.check(both, users, group)


class TestState:
    async def test_has_the_builds_and_the_age_of_the_opened_copy(
        self, both: Both, analytics: BuildAnalytics, builds: BuildFactory, users: list[tables.User], group: tables.Namespace
    ) -> None:
        assert analytics.state == CopyState(0, 0.0, False)
        await builds.insert(20)
        await analytics.rebuild()
        await both.data(query_of("group", ()), users[0], path=group.path)
        assert analytics.state.builds == 20

        await builds.insert(3)
        ids = tables.Build.id
        await builds.run(delete(tables.Build).where(col(ids).in_((1, 2, 21))), update(tables.Build).where(col(ids) == 3).values(attempt=9))
        await both.data(query_of("group", ()), users[0], path=group.path)

        state = analytics.state
        assert (state.builds, state.is_rebuilding) == (20, False)
        assert state.behind_seconds > 0

    @pytest.mark.parametrize("error", [RebuildRunning, OSError])
    async def test_says_that_a_copy_is_being_written(
        self, services: Services, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[Exception]
    ) -> None:
        monkeypatch.setattr(build_analytics, "POLL_SECONDS", 0.0)
        found = []

        async def write_copy(*_: Any) -> CopyPointer:
            found.append(analytics.state.is_rebuilding)
            raise error

        analytics = BuildAnalytics(services.database, tmp_path / "analytics", write_copy=write_copy)
        with pytest.raises(OSError) if error is OSError else nullcontext():
            await analytics.rebuild()

        assert found == [True]
        assert not analytics.state.is_rebuilding
        await analytics.close()


class TestCanceledQuestions:
    async def test_end_so_that_the_next_one_is_answered(
        self, analytics: BuildAnalytics, builds: BuildFactory, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await builds.insert(20)
        await analytics.rebuild()
        await analytics.catch_up()
        has_begun, results = threading.Event(), []
        fetch = BuildCopy.fetch

        def record(*arguments: Any) -> Any:
            results.append(fetch(*arguments))
            return results[-1]

        def compile_long(_: Any) -> CopyStatement:
            has_begun.set()
            return CopyStatement("SELECT sum(a.range * b.range) FROM range(30_000) a, range(10_000) b", [], 0)

        monkeypatch.setattr(BuildCopy, "fetch", record)
        running, waiting = (asyncio.create_task(analytics.fetch(compile_long)) for _ in range(2))
        await asyncio.to_thread(has_begun.wait)
        waiting.cancel()
        running.cancel()
        await asyncio.gather(running, waiting, return_exceptions=True)

        found = await analytics.fetch(lambda _: CopyStatement("SELECT count(*) FROM {builds}", [], 0))

        assert found.rows == [(20,)]
        assert results == [[], [(20,)]], "a question was computed that nobody waited for"

    @pytest.mark.parametrize("function", ["apply", "__init__", "close"])
    async def test_leave_the_copy_in_order(
        self, analytics: BuildAnalytics, builds: BuildFactory, monkeypatch: pytest.MonkeyPatch, function: str
    ) -> None:
        """The thread goes on after the cancellation. A later question finds the copy as the thread leaves it, and opens no second one."""
        await builds.insert(20)
        await analytics.rebuild()
        if function != "__init__":
            await analytics.catch_up()
        await builds.insert(5)
        has_begun, may_end, calls = threading.Event(), threading.Event(), Counter[str]()

        def slow(name: str, original: Any) -> Any:
            def run(*arguments: Any) -> Any:
                calls[name] += 1
                if name == function and calls[name] == 1:
                    has_begun.set()
                    may_end.wait()
                return original(*arguments)

            return run

        for name in ("apply", "__init__", "close"):
            monkeypatch.setattr(BuildCopy, name, slow(name, getattr(BuildCopy, name)))
        canceled = asyncio.create_task(analytics.rebuild() if function == "close" else analytics.catch_up())
        await asyncio.to_thread(has_begun.wait)
        canceled.cancel()
        await asyncio.gather(canceled, return_exceptions=True)
        following = asyncio.create_task(analytics.catch_up())
        await asyncio.sleep(0.01)
        may_end.set()
        await following

        assert (analytics.state.builds, analytics._needs_rebuild) == (25, False)
        assert calls["__init__"] == (0 if function == "apply" else 1)
        assert calls["close"] == (1 if function == "close" else 0)


class TestWriting:
    async def test_leaves_the_copy_if_it_is_interrupted(
        self, both: Both, analytics: BuildAnalytics, builds: BuildFactory, users: list[tables.User], group: tables.Namespace, tmp_path: Path
    ) -> None:
        await builds.insert(20)
        await analytics.rebuild()
        published = read_pointer(tmp_path / "analytics")
        unfinished = tmp_path / "analytics" / "rebuild"
        unfinished.mkdir()
        (unfinished / "builds-0.duckdb").write_bytes(b"half a file")

        await both.data(query_of("group", ()), users[0], path=group.path)
        assert read_pointer(tmp_path / "analytics") == published
        await analytics.rebuild()

        assert not unfinished.exists()
        await both.data(query_of("group", ()), users[0], path=group.path)

    async def test_is_not_begun_for_few_builds(self, services: Services, builds: BuildFactory, tmp_path: Path) -> None:
        await builds.insert(20)
        analytics = BuildAnalytics(services.database, tmp_path / "few", min_builds=1000)

        await analytics.maintain()

        assert not (tmp_path / "few").exists()
        await analytics.close()
