"""Statistics of merge requests: counts by outcome and time, lead times, and failed checks when merged."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from storage import tables
from storage.tables import AccessLevel, CheckStatus, MergeRequestState, Visibility
from tests.make import DataFactory
from tests.support.api_clients import Ask
from tests.support.database.statements import StatementRecorder

ARGUMENTS = "$filter: MergeRequestFilter, $bucket: TimeBucket, $timezone: String"
FIELDS = "bucketStart opened merged closed redAtMerge leadTime { count mean p50 p90 p95 max }"
STATS = f"""query ($path: String!, {ARGUMENTS}) {{ project(path: $path) {{
    mergeRequestStats(filter: $filter, bucket: $bucket, timezone: $timezone) {{ {FIELDS} }} }} }}"""
EMPTY = {"count": 0, "mean": None, "p50": None, "p90": None, "p95": None, "max": None}


def at(text: str) -> datetime:
    """A timestamp in May 2016, as `03T12:00`; the third was a Tuesday."""
    return datetime.fromisoformat(f"2016-05-{text}+00:00")


@pytest.fixture
async def owner(make: DataFactory) -> tables.User:
    return await make.user("owner")


@pytest.fixture
async def project(make: DataFactory, owner: tables.User) -> tables.Project:
    return await make.project(owner=owner)


async def rows_of(ask: Ask, viewer: tables.User, project: tables.Project, **arguments: Any) -> list[dict[str, Any]]:
    data = await ask.data(STATS, viewer, path=str(project.id), **arguments)
    return data["project"]["mergeRequestStats"]  # type: ignore[no-any-return]


async def merged(
    make: DataFactory, project: tables.Project, opened: datetime, at: datetime, *authored: datetime, **columns: Any
) -> tables.MergeRequest:
    """One that brings commits which were written at these times, the newest first."""
    times = {"created_at": opened, "updated_at": at, "merged_at": at}
    row = await make.merge_request(project, state=MergeRequestState.MERGED, **times, **columns)
    for index, moment in enumerate(authored):
        oid = f"{row.id:020x}{index:020x}"
        people = {"author_name": "A", "author_email": "a@x.org", "committer_name": "A", "committer_email": "a@x.org"}
        await make.save(
            tables.Commit(project_id=project.id, oid=oid, title="Do it", authored_at=moment, committed_at=at, **people),
            tables.MergeRequestCommit(merge_request_id=row.id, position=index, oid=oid),
        )
    return row


class TestCounts:
    async def test_by_the_week_in_which_it_happened(self, ask: Ask, make: DataFactory, owner: tables.User, project: tables.Project) -> None:
        await merged(make, project, at("03T12:00"), at("10T12:00"), at("03T11:00"), at("03T10:00"))
        await merged(make, project, at("09T00:00"), at("10T00:00"), at("09T00:00"))
        await make.merge_request(project, state=MergeRequestState.CLOSED, created_at=at("04T00:00"), closed_at=at("17T00:00"))
        # Monday begins at 21:00 UTC of Sunday in Helsinki.
        await make.merge_request(project, created_at=at("15T21:00"))

        rows = await rows_of(ask, owner, project, bucket="WEEK", timezone="Europe/Helsinki")

        assert [(row["bucketStart"][:13], row["opened"], row["merged"], row["closed"]) for row in rows] == [
            ("2016-05-01T21", 2, 0, 0),
            ("2016-05-08T21", 1, 2, 0),
            ("2016-05-15T21", 1, 0, 1),
        ]
        week, day = 7 * 86400.0, 86400.0
        long = week + 7200
        assert rows[1]["leadTime"] == {"count": 2, "mean": (long + day) / 2, "p50": day, "p90": long, "p95": long, "max": long}
        assert rows[0]["leadTime"] == rows[2]["leadTime"] == EMPTY

        # In another time zone, which differs only in what the SQL string has of it, the last one belongs to the week before.
        rows = await rows_of(ask, owner, project, bucket="WEEK", timezone="Europe/Paris")
        assert [(row["bucketStart"][:13], row["opened"], row["closed"]) for row in rows] == [
            ("2016-05-01T22", 2, 0),
            ("2016-05-08T22", 2, 0),
            ("2016-05-15T22", 0, 1),
        ]

    async def test_returns_the_given_range(self, ask: Ask, make: DataFactory, owner: tables.User, project: tables.Project) -> None:
        await merged(make, project, at("02T00:00"), at("10T12:00"))
        await merged(make, project, at("09T00:00"), at("12T00:00"))
        await merged(make, project, at("12T00:00"), at("16T00:00"))
        await make.merge_request(project, created_at=at("10T00:00"))
        span = {"since": "2016-05-10T00:00:00Z", "until": "2016-05-16T00:00:00Z"}

        weeks = await rows_of(ask, owner, project, bucket="WEEK", filter={"merged": span})
        (whole,) = await rows_of(ask, owner, project, filter={"merged": span})
        opened = await rows_of(ask, owner, project, bucket="WEEK", filter={"created": {"until": "2016-05-05T00:00:00Z"}})

        assert [(row["bucketStart"][:10], row["opened"], row["merged"]) for row in weeks] == [("2016-05-09", 1, 2)]
        assert (whole["bucketStart"], whole["opened"], whole["merged"]) == (None, 2, 2)
        assert [(row["bucketStart"][:10], row["opened"], row["merged"]) for row in opened] == [("2016-05-02", 1, 0)]

    async def test_of_none(self, ask: Ask, owner: tables.User, project: tables.Project) -> None:
        nothing = {"bucketStart": None, "opened": 0, "merged": 0, "closed": 0, "redAtMerge": 0, "leadTime": EMPTY}

        assert await rows_of(ask, owner, project) == [nothing]
        assert await rows_of(ask, owner, project, bucket="DAY") == []

    async def test_too_many_buckets(
        self, ask: Ask, make: DataFactory, owner: tables.User, project: tables.Project, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("graph.rules.merge_requests.merge_request_stats.MAX_ROWS", 1)
        await merged(make, project, at("02T00:00"), at("10T12:00"))

        assert await ask.codes(STATS, owner, path=str(project.id), bucket="HOUR") == ["LIMIT_EXCEEDED"]
        assert len(await rows_of(ask, owner, project, bucket="MONTH")) == 1


class TestRedAtMerge:
    async def test_is_the_combined_status_at_merge_time(
        self, ask: Ask, make: DataFactory, owner: tables.User, project: tables.Project
    ) -> None:
        moment, source = at("10T12:00"), await make.project(owner=owner)

        async def checked(letter: str, *builds: tuple[str, int], where: tables.Project = project, **columns: Any) -> None:
            """One whose head had builds that ended this number of seconds after the merge; each further one is an attempt of the same."""
            await merged(make, project, at("01T00:00"), moment, head_oid=letter * 40, source_project_id=where.id)
            current = None
            for attempt in range(len(builds), 0, -1):
                status, seconds = builds[attempt - 1]
                end = moment + timedelta(seconds=seconds)
                values = {
                    "name": "unit",
                    "attempt": attempt,
                    "created_at": end - timedelta(seconds=9),
                    "current_id": current and current.id,
                }
                row = await make.build(where, letter * 40, status=CheckStatus(status), finished_at=end, **values, **columns)
                current = current or row

        await checked("a", ("failed", -1))
        await checked("b", ("failed", 1))
        await checked("c", ("failed", -20), ("success", 5))
        await checked("d", ("failed", -20), ("success", -1))
        await checked("e", ("failed", -1), allow_failure=True)
        await checked("f", ("failed", -1), ("success", 60))
        await checked("0", ("failed", -1), where=source)

        rows = await rows_of(ask, owner, project, bucket="WEEK")

        red_now = await rows_of(
            ask, owner, project, bucket="WEEK", filter={"headState": ["FAILED"], "merged": {"since": moment.isoformat()}}
        )

        assert [(row["merged"], row["redAtMerge"]) for row in rows] == [(0, 0), (7, 3)]
        assert [(row["merged"], row["redAtMerge"]) for row in red_now] == [(3, 2)]

    async def test_is_not_for_guests(self, ask: Ask, make: DataFactory, owner: tables.User, project: tables.Project) -> None:
        guest = await make.user()
        await make.member(project, guest, AccessLevel.GUEST)
        await merged(make, project, at("01T00:00"), at("02T00:00"))

        (row,) = await rows_of(ask, guest, project)

        assert (row["merged"], row["redAtMerge"]) == (1, None)
        assert await ask.codes(STATS, guest, path=str(project.id), filter={"headState": ["FAILED"]}) == ["FORBIDDEN"]

    async def test_requires_permission_to_see_merge_requests(self, ask: Ask, make: DataFactory) -> None:
        viewer = await make.user()
        off = await make.project(visibility=Visibility.PUBLIC, merge_requests_enabled=False)
        hidden = await make.project()

        assert await ask.codes(STATS, viewer, path=str(off.id)) == ["FORBIDDEN"]
        assert await ask.codes(STATS, viewer, path=str(hidden.id)) == ["NOT_FOUND"]


class TestStatements:
    async def test_are_the_same_for_many_projects(
        self, ask: Ask, make: DataFactory, owner: tables.User, statements: StatementRecorder
    ) -> None:
        query = f"query ($first: Int) {{ projects(first: $first) {{ nodes {{ name mergeRequestStats(bucket: DAY) {{ {FIELDS} }} }} }} }}"
        for number in range(3):
            project = await make.project(owner=owner, name=str(number))
            for _ in range(number + 1):
                await merged(make, project, at("02T00:00"), at("10T12:00"), at("01T00:00"))

        with statements.record() as one:
            await ask.data(query, owner, first=1)
        with statements.record() as three:
            data = await ask.data(query, owner, first=3)

        assert len(three) <= len(one)
        found = {node["name"]: [(row["opened"], row["merged"]) for row in node["mergeRequestStats"]] for node in data["projects"]["nodes"]}
        assert found == {"0": [(1, 0), (0, 1)], "1": [(2, 0), (0, 2)], "2": [(3, 0), (0, 3)]}
