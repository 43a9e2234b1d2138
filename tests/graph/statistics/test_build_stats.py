"""Statistics of builds: groups, buckets of a time zone, and only what the viewer can see."""

import random
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from math import ceil
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from graph.errors import BadRequest
from graph.rules.statistics.time_buckets import build_buckets
from storage import tables
from storage.tables import AccessLevel, CheckStatus, Visibility
from storage.tables.buckets import TimeBucket
from tests.make import DataFactory
from tests.support.api_clients import Ask
from tests.support.database.statements import StatementRecorder

MOMENT = datetime(2016, 1, 1, tzinfo=UTC)
SHA = "a" * 40
QUANTILES = "{ count mean p50 p90 p95 max }"
ROWS = f"""rows {{ bucketStart project name stage ref author status counts {{ total pending running failed success canceled }}
    successRate retried duration {QUANTILES} queued {QUANTILES} coverage {QUANTILES} }}"""
ARGUMENTS = "$filter: BuildFilter, $groupBy: [BuildDimension!]! = [], $bucket: TimeBucket, $timezone: String, $first: Int"
EXPECTED_COLUMNS = "filter: $filter, groupBy: $groupBy, bucket: $bucket, timezone: $timezone, first: $first"
OF_PROJECT = f"query ($path: String!, {ARGUMENTS}) {{ project(path: $path) {{ buildStats({EXPECTED_COLUMNS}) {{ truncated {ROWS} }} }} }}"
OF_GROUP = f"query ($path: String!, {ARGUMENTS}) {{ group(path: $path) {{ buildStats({EXPECTED_COLUMNS}) {{ truncated {ROWS} }} }} }}"


def after(seconds: float) -> datetime:
    return MOMENT + timedelta(seconds=seconds)


@pytest.fixture
async def owner(make: DataFactory) -> tables.User:
    return await make.user("owner")


@pytest.fixture
async def project(make: DataFactory, owner: tables.User) -> tables.Project:
    return await make.project(owner=owner, path="site")


class StatsQuery:
    def __init__(self, ask: Ask, owner: tables.User, project: tables.Project) -> None:
        self.ask, self.owner, self.project = ask, owner, project

    async def __call__(self, **arguments: Any) -> list[dict[str, Any]]:
        return list((await self.table(**arguments))["rows"])

    async def table(self, **arguments: Any) -> dict[str, Any]:
        found: dict[str, Any] = (await self.ask.data(OF_PROJECT, self.owner, path=str(self.project.id), **arguments))["project"]
        return found["buildStats"]  # type: ignore[no-any-return]


@pytest.fixture
def stats(ask: Ask, owner: tables.User, project: tables.Project) -> StatsQuery:
    return StatsQuery(ask, owner, project)


async def create_build(
    make: DataFactory, project: tables.Project, seconds: float, status: CheckStatus = CheckStatus.SUCCESS, **columns: Any
) -> tables.Build:
    """A build that was made at MOMENT, waited ten seconds and ran for this number of seconds."""
    values = {"created_at": MOMENT, "started_at": after(10), "finished_at": after(10 + seconds), **columns}
    return await make.build(project, SHA, status=status, **values)


class TestCounts:
    async def test_of_all(self, make: DataFactory, project: tables.Project, stats: StatsQuery) -> None:
        for status in (CheckStatus.SUCCESS, CheckStatus.SUCCESS, CheckStatus.SUCCESS, CheckStatus.FAILED, CheckStatus.CANCELED):
            await create_build(make, project, 1, status)
        await make.build(project, SHA)
        await make.build(project, SHA, status=CheckStatus.RUNNING)

        (row,) = await stats()

        assert row["counts"] == {"total": 7, "pending": 1, "running": 1, "failed": 1, "success": 3, "canceled": 1}
        assert row["successRate"] == 0.75
        assert [row[key] for key in ("bucketStart", "project", "name", "stage", "ref", "author", "status")] == [None] * 7

    async def test_of_nothing_is_one_row(self, stats: StatsQuery) -> None:
        (row,) = await stats()

        assert row["counts"]["total"] == row["retried"] == 0
        assert row["successRate"] is row["duration"] is row["queued"] is row["coverage"] is None
        assert await stats(groupBy=["NAME"]) == []

    async def test_in_groups(self, make: DataFactory, owner: tables.User, project: tables.Project, stats: StatsQuery) -> None:
        somebody = await make.user("somebody")
        for name, status, user in (("b", "success", owner), ("B", "failed", None), ("a", "success", somebody), ("b", "success", owner)):
            await create_build(make, project, 1, CheckStatus(status), name=name, stage="test", user_id=user.id if user else None)

        rows = await stats(groupBy=["STATUS", "NAME", "STATUS"])
        people = await stats(groupBy=["AUTHOR", "PROJECT", "STAGE", "REF"])

        assert [(row["status"], row["name"], row["counts"]["total"]) for row in rows] == [
            ("FAILED", "B", 1), ("SUCCESS", "a", 1), ("SUCCESS", "b", 2)]  # fmt: skip
        assert [(row["author"], row["project"], row["stage"], row["ref"], row["counts"]["total"]) for row in people] == [
            (None, "owner/site", "test", "master", 1),
            ("owner", "owner/site", "test", "master", 2),
            ("somebody", "owner/site", "test", "master", 1),
        ]

    async def test_retries(self, make: DataFactory, project: tables.Project, stats: StatsQuery) -> None:
        twice = await create_build(make, project, 1, name="unit", attempt=3)
        await create_build(make, project, 1, CheckStatus.FAILED, name="unit", attempt=1, current_id=twice.id)
        await create_build(make, project, 1, CheckStatus.CANCELED, name="unit", attempt=2, current_id=twice.id)
        await create_build(make, project, 1, name="lint")

        newest = await stats(groupBy=["NAME"])
        every = await stats(groupBy=["NAME"], filter={"latestAttemptOnly": False})

        assert [(row["name"], row["counts"]["total"], row["retried"]) for row in newest] == [("lint", 1, 0), ("unit", 1, 2)]
        assert [(row["name"], row["counts"]["total"], row["retried"]) for row in every] == [("lint", 1, 0), ("unit", 3, 2)]

    async def test_reports_that_rows_were_truncated(self, make: DataFactory, project: tables.Project, stats: StatsQuery) -> None:
        for name in "bca":
            await create_build(make, project, 1, name=name)

        two, three = await stats.table(groupBy=["NAME"], first=2), await stats.table(groupBy=["NAME"], first=3)

        assert [row["name"] for row in two["rows"]] == ["a", "b"]
        assert (two["truncated"], three["truncated"]) == (True, False)
        assert (await stats.table(groupBy=["NAME"], first=0)) == {"truncated": True, "rows": []}


class TestQuantiles:
    @pytest.mark.parametrize(
        ("seconds", "quantiles"),
        [
            ([3], {"count": 1, "mean": 3, "p50": 3, "p90": 3, "p95": 3, "max": 3}),
            ([5, 2], {"count": 2, "mean": 3.5, "p50": 2, "p90": 5, "p95": 5, "max": 5}),
            (range(10, 0, -1), {"count": 10, "mean": 5.5, "p50": 5, "p90": 9, "p95": 10, "max": 10}),
            ([0.1, 0.000001, 0.2], {"count": 3, "mean": 0.100000333333333333, "p50": 0.1, "p90": 0.2, "p95": 0.2, "max": 0.2}),
        ],
        ids=["one", "two", "ten", "fractions"],
    )
    async def test_by_nearest_rank(
        self, make: DataFactory, project: tables.Project, stats: StatsQuery, seconds: Any, quantiles: Any
    ) -> None:
        for each in seconds:
            await create_build(make, project, each)

        (row,) = await stats()

        assert row["duration"] == quantiles
        assert row["queued"] == {"count": len(seconds), "mean": 10, "p50": 10, "p90": 10, "p95": 10, "max": 10}

    async def test_unfinished_builds_count_up_to_now(self, ask: Ask, make: DataFactory, project: tables.Project, stats: StatsQuery) -> None:
        object.__setattr__(make.services, "clock", lambda: after(100))
        await make.build(project, SHA, created_at=after(60))
        await make.build(project, SHA, status=CheckStatus.RUNNING, created_at=after(10), started_at=after(30))
        await make.build(project, SHA, status=CheckStatus.CANCELED, created_at=after(0), started_at=None, finished_at=after(7))
        await make.build(project, SHA, status=CheckStatus.SUCCESS, created_at=after(9), started_at=after(5), finished_at=after(4))

        (row,) = await stats()

        assert row["duration"] == {"count": 2, "mean": 35, "p50": 0, "p90": 70, "p95": 70, "max": 70}
        assert row["queued"] == {"count": 4, "mean": 16.75, "p50": 7, "p90": 40, "p95": 40, "max": 40}

    async def test_of_coverage(self, make: DataFactory, project: tables.Project, stats: StatsQuery) -> None:
        for coverage in (87.1, None, 50.0):
            await create_build(make, project, 1, coverage=coverage)

        (row,) = await stats()

        assert row["coverage"] == {"count": 2, "mean": 68.55, "p50": 50, "p90": 87.1, "p95": 87.1, "max": 87.1}

    async def test_of_times_that_no_build_has(self, make: DataFactory, project: tables.Project, stats: StatsQuery) -> None:
        first, last = datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)
        columns = {"project_id": project.id, "sha": SHA, "ref": "master", "name": "long", "status": CheckStatus.SUCCESS}
        await make.save(*(tables.Build(**columns, created_at=first, started_at=first, finished_at=last) for _ in range(40)))

        for bucket in TimeBucket:
            for zone, span in (("America/New_York", "created"), ("Pacific/Kiritimati", "finished")):
                (row,) = await stats(bucket=bucket.name, timezone=zone, filter={span: {}})
                assert row["duration"]["mean"] == (last - first) / timedelta(seconds=1)


class TestBuckets:
    async def test_of_days_where_clocks_change(self, make: DataFactory, project: tables.Project, stats: StatsQuery) -> None:
        """In Helsinki clocks were put forward on 27 March 2016 at 01:00 UTC and back on 30 October at 01:00 UTC."""
        moments = ("2016-03-26T21:59:59", "2016-03-26T22:00:00", "2016-03-27T20:59:59", "2016-03-27T21:00:00",
                   "2016-10-29T21:00:00", "2016-10-30T21:59:59", "2016-10-30T22:00:00")  # fmt: skip
        for moment in moments:
            await make.build(project, SHA, created_at=datetime.fromisoformat(f"{moment}+00:00"))

        rows = await stats(bucket="DAY", timezone="Europe/Helsinki")
        weeks = await stats(bucket="WEEK", timezone="Europe/Helsinki", filter={"created": {"until": "2016-04-01T00:00:00Z"}})
        months = await stats(bucket="MONTH", timezone="Europe/Helsinki")

        assert [(row["bucketStart"][:19], row["counts"]["total"]) for row in rows] == [
            ("2016-03-25T22:00:00", 1),
            ("2016-03-26T22:00:00", 2),
            ("2016-03-27T21:00:00", 1),
            ("2016-10-29T21:00:00", 2),
            ("2016-10-30T22:00:00", 1),
        ]
        assert [(row["bucketStart"][:19], row["counts"]["total"]) for row in weeks] == [
            ("2016-03-20T22:00:00", 3), ("2016-03-27T21:00:00", 1)]  # fmt: skip
        assert [(row["bucketStart"][:19], row["counts"]["total"]) for row in months] == [
            ("2016-02-29T22:00:00", 4), ("2016-09-30T21:00:00", 3)]  # fmt: skip

    async def test_a_repeated_hour_has_two_buckets(self, make: DataFactory, project: tables.Project, stats: StatsQuery) -> None:
        for moment in ("2016-10-30T00:30:00", "2016-10-30T01:30:00", "2016-10-30T01:59:59"):
            await make.build(project, SHA, created_at=datetime.fromisoformat(f"{moment}+00:00"))

        rows = await stats(bucket="HOUR", timezone="Europe/Helsinki")

        assert [(row["bucketStart"][11:19], row["counts"]["total"]) for row in rows] == [("00:00:00", 1), ("01:00:00", 2)]

    async def test_by_the_end_where_the_filter_names_it(self, make: DataFactory, project: tables.Project, stats: StatsQuery) -> None:
        await create_build(make, project, 3 * 86400, name="slow")
        await make.build(project, SHA, created_at=MOMENT)

        made = await stats(bucket="DAY")
        ended = await stats(bucket="DAY", filter={"finished": {"since": MOMENT.isoformat()}})

        assert [(row["bucketStart"][:10], row["counts"]["total"]) for row in made] == [("2016-01-01", 2)]
        assert [(row["bucketStart"][:10], row["counts"]["total"]) for row in ended] == [("2016-01-04", 1)]

    async def test_of_a_zone_that_there_is_not(self, ask: Ask, owner: tables.User, project: tables.Project) -> None:
        for name in ("Europe/Nowhere", "Europe", "../../etc/passwd", "x" * 5_000, "a\0b"):
            assert await ask.codes(OF_PROJECT, owner, path=str(project.id), bucket="DAY", timezone=name) == ["BAD_REQUEST"], name

    @pytest.mark.parametrize("zone", ["localtime", "posixrules", "posix/Europe/Helsinki", "right/Europe/Helsinki"])
    def test_files_of_the_host_are_not_zones(self, zone: str) -> None:
        with pytest.raises(BadRequest, match="Unknown time zone"):
            build_buckets(TimeBucket.DAY, zone, None, None, MOMENT)

    @pytest.mark.parametrize("zone", ["Europe/Helsinki", "Australia/Lord_Howe", "America/Sao_Paulo", "Asia/Kathmandu", "Pacific/Apia"])
    def test_keys_are_the_start_of_each_bucket(self, zone: str) -> None:
        zone_info, numbers = ZoneInfo(zone), random.Random(zone)
        for _ in range(100):
            moment = datetime(2011, 1, 1, tzinfo=UTC) + timedelta(seconds=numbers.randrange(400 * 86400))
            starts = {}
            for unit in TimeBucket:
                cut = build_buckets(unit, zone, None, None, MOMENT)
                start = starts[unit] = cut.start(cut.key_of(moment))
                assert start <= moment
                assert cut.key_of(start) == cut.key_of(moment) > cut.key_of(start - timedelta(seconds=1))
            assert moment - starts[TimeBucket.HOUR] < timedelta(hours=1)
            assert starts[TimeBucket.DAY].astimezone(zone_info).date() == moment.astimezone(zone_info).date()
            assert starts[TimeBucket.WEEK].astimezone(zone_info).isocalendar()[:2] == moment.astimezone(zone_info).isocalendar()[:2]
            assert starts[TimeBucket.MONTH].astimezone(zone_info).day == 1

    def test_half_an_hour_back_makes_a_short_bucket(self) -> None:
        """On Lord Howe clocks were put from 02:00 back to 01:30 on 3 April 2011, at 15:00 UTC of the day before."""
        cut = build_buckets(TimeBucket.HOUR, "Australia/Lord_Howe", None, None, MOMENT)
        before, behind = (datetime(2011, 4, 2, hour, minute, tzinfo=UTC) for hour, minute in ((14, 59), (15, 29)))

        assert cut.start(cut.key_of(before)) == datetime(2011, 4, 2, 14, tzinfo=UTC)
        assert cut.start(cut.key_of(behind)) == datetime(2011, 4, 2, 15, tzinfo=UTC)
        with pytest.raises(BadRequest, match="Europe/Helsinki"):
            build_buckets(TimeBucket.DAY, "Mars", None, None, MOMENT)


class TestReferenceImplementation:
    async def test_results_are_equal(self, make: DataFactory, owner: tables.User, project: tables.Project, stats: StatsQuery) -> None:
        numbers, zone_info = random.Random(5), ZoneInfo("Australia/Lord_Howe")
        rows = []
        for _ in range(300):
            created = datetime(2016, 3, 25, tzinfo=UTC) + timedelta(microseconds=numbers.randrange(20 * 86400 * 10**6))
            started = created + timedelta(microseconds=numbers.randrange(10**8))
            columns = {
                "created_at": created,
                "started_at": started,
                "finished_at": started + timedelta(microseconds=numbers.randrange(10**9)),
            }
            name = numbers.choice(["a", "B", "é", "\U0001f4a5", "\uffff", "b b"])
            rows.append(tables.Build(project_id=project.id, sha=SHA, ref="master", name=name, status=CheckStatus.SUCCESS, **columns))
        expected: dict[tuple[Any, str], list[int]] = defaultdict(list)
        for row in rows:
            assert row.finished_at is not None
            day = row.finished_at.astimezone(zone_info).replace(hour=0, minute=0, second=0, microsecond=0)
            expected[day.astimezone(UTC), row.name].append((row.finished_at - (row.started_at or MOMENT)) // timedelta(microseconds=1))
        await make.save(*rows)

        found = await stats(bucket="DAY", timezone=zone_info.key, groupBy=["NAME"], filter={"finished": {}}, first=5_000)

        assert [(datetime.fromisoformat(row["bucketStart"]), row["name"]) for row in found] == sorted(expected)
        for row in found:
            values = sorted(expected[datetime.fromisoformat(row["bucketStart"]), row["name"]])
            ranks = {f"p{rank}": values[ceil(len(values) * rank / 100) - 1] / 10**6 for rank in (50, 90, 95)}
            mean = sum(values) / (len(values) * 10**6)
            assert row["duration"] == {"count": len(values), "mean": mean, **ranks, "max": values[-1] / 10**6}


class TestGroupStats:
    async def test_excludes_hidden_projects(self, ask: Ask, make: DataFactory) -> None:
        viewer, group = await make.user(), await make.group(path="team")
        shown = await make.project(group=group, visibility=Visibility.PUBLIC, path="shown")
        member = await make.project(group=group, path="member", members=[(viewer, AccessLevel.REPORTER)])
        others = [
            await make.project(group=group, path="hidden"),
            await make.project(group=group, visibility=Visibility.PUBLIC, public_builds=False, path="secret"),
            await make.project(group=group, path="guest", members=[(viewer, AccessLevel.GUEST)]),
            await make.project(group=group, visibility=Visibility.PUBLIC, builds_enabled=False, path="off"),
            await make.project(group=group, visibility=Visibility.PUBLIC, archived=True, path="kept"),
            await make.project(visibility=Visibility.PUBLIC, path="elsewhere"),
        ]
        for project in (shown, member, *others):
            await create_build(make, project, 1)

        found = await ask.data(OF_GROUP, viewer, path="team", groupBy=["PROJECT"])

        assert [row["project"] for row in found["group"]["buildStats"]["rows"]] == ["team/member", "team/shown"]
        assert await ask.codes(OF_PROJECT, viewer, path="team/guest") == ["FORBIDDEN"]
        assert await ask.codes(OF_PROJECT, viewer, path="team/hidden") == ["NOT_FOUND"]

    async def test_statement_count_does_not_grow_with_rows(self, ask: Ask, make: DataFactory, statements: StatementRecorder) -> None:
        viewer = await make.admin()
        query = f"""query ($first: Int) {{ groups(first: $first) {{ nodes {{ path
            buildStats(groupBy: [PROJECT], bucket: DAY, first: 2) {{ truncated {ROWS} }}
            projects(first: 3) {{ nodes {{ path buildStats(groupBy: [NAME], first: 1) {{ truncated {ROWS} }} }} }} }} }} }}"""
        for number in range(4):
            group = await make.group(path=f"group{number}")
            for path in "abc":
                project = await make.project(group=group, path=path)
                for name in ("x", "y"):
                    await create_build(make, project, number + 1, name=name)

        with statements.record() as one:
            await ask.data(query, viewer, first=1)
        with statements.record() as four:
            data = await ask.data(query, viewer, first=4)

        assert len(four) <= len(one)
        for group in data["groups"]["nodes"]:
            table = group["buildStats"]
            assert table["truncated"]
            assert [(row["project"], row["counts"]["total"]) for row in table["rows"]] == [(f"{group['path']}/{path}", 2) for path in "ab"]
            assert {row["duration"]["max"] for row in table["rows"]} == {int(group["path"][-1]) + 1}
            for project in group["projects"]["nodes"]:
                assert project["buildStats"]["truncated"]
                assert [row["name"] for row in project["buildStats"]["rows"]] == ["x"]

    async def test_each_has_a_row_of_all(self, ask: Ask, make: DataFactory, owner: tables.User, project: tables.Project) -> None:
        await make.project(owner=owner)
        await create_build(make, project, 1)

        data = await ask.data("{ projects { nodes { buildStats { rows { counts { total } duration { count } } } } } }", owner)

        assert sorted(row["counts"]["total"] for node in data["projects"]["nodes"] for row in node["buildStats"]["rows"]) == [0, 1]


class TestLimits:
    async def test_too_many_rows_are_rejected(self, ask: Ask, owner: tables.User, project: tables.Project) -> None:
        assert await ask.codes(OF_PROJECT, owner, path=str(project.id), first=5_001) == ["LIMIT_EXCEEDED"]
        assert await ask.codes(OF_PROJECT, owner, path=str(project.id), first=-1) == ["BAD_REQUEST"]
        assert (await ask(OF_PROJECT, owner, path=str(project.id), first=5_000)).errors == []
