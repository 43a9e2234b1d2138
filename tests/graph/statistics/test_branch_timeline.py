"""The timeline of branches: the states of their heads over time."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from random import Random
from typing import Any

import pytest

from graph.context import Context
from graph.rules.branches import branch_timeline
from graph.rules.branches.branch_timeline import TimelineSegment, build_segments
from graph.rules.builds.rollup_history import CheckRun, build_rollup_history, state_at
from graph.rules.builds.rollups import RollupState
from storage import tables
from storage.tables import AccessLevel, CheckStatus
from tests.graph.builds.test_pipelines import PushScenario
from tests.make import DataFactory
from tests.support.api_clients import Ask
from tests.support.database.statements import StatementRecorder, requires_planner
from tests.support.git.git_history import git

MOMENT = datetime(2016, 1, 1, tzinfo=UTC)
TIMELINE = """query ($path: String!, $range: DateTimeRange!) { project(path: $path) { branch {
    timeline(range: $range) { state startedAt endedAt seconds commit { oid } } } } }"""
WALL = """query ($path: String!) { group(path: $path) { projects { nodes { branch {
    timeline(range: {}) { state commit { shortOid } } } } } } }"""
NONE, PENDING, RUNNING = RollupState.NONE, RollupState.PENDING, RollupState.RUNNING
GOOD, BAD = RollupState.SUCCESS, RollupState.FAILED


def at(minutes: float) -> datetime:
    return MOMENT + timedelta(minutes=minutes)


def drawn_segments(found: Sequence[TimelineSegment]) -> list[tuple[str, RollupState, float, float | None]]:
    """The head, the state, and the minutes of the start and the end."""

    def minutes(moment: datetime) -> float:
        return (moment - MOMENT).total_seconds() / 60

    return [(each.oid, each.state, minutes(each.started_at), minutes(each.ended_at) if each.ended_at else None) for each in found]


class TestStatusHistory:
    def test_is_the_combined_status_at_each_time(self) -> None:
        dice = Random(1)
        for _ in range(60):
            runs = []
            checks = [(dice.choice("ab"), dice.choice(("x", None)), dice.randrange(2)) for _ in range(5)]
            for number in range(dice.randrange(9)):
                created, stored = dice.randrange(9), dice.randrange(5)
                name, ref, kind = checks[stored]
                times = (at(created), *(at(created + dice.randrange(4)) if dice.random() < 0.8 else None for _ in range(2)))
                runs.append(CheckRun(name, ref, dice.choice(list(CheckStatus)[:5]), dice.random() < 0.3, *times, stored, number, kind))
            known = build_rollup_history(runs)
            for minute in range(16):
                states = [state for moment, state in known if moment <= at(minute)]
                assert (states[-1] if states else NONE) is state_at(runs, at(minute))
            assert all(before[1] is not after[1] for before, after in pairwise(known))


class TestSegments:
    """Of moves (head, minute) and courses (minute, state) of heads, to minute 100."""

    def cut(self, moves: Sequence[tuple[str | None, float]], since: float | None = None, *, is_open: bool = True, **courses: Any) -> Any:
        known = {(1, oid): [(at(minute), state) for minute, state in course] for oid, course in courses.items()}
        start = None if since is None else at(since)
        return drawn_segments(build_segments(1, [(oid, at(minute)) for oid, minute in moves], known, start, at(100), is_open))

    def test_one_for_each_change_of_colour(self) -> None:
        found = self.cut([("a", 0)], a=[(10, PENDING), (20, RUNNING), (30, BAD)])

        assert found == [("a", NONE, 0, 10), ("a", PENDING, 10, 20), ("a", RUNNING, 20, 30), ("a", BAD, 30, None)]

    def test_a_further_head_of_the_same_colour_makes_none(self) -> None:
        found = self.cut([("a", 0), ("b", 50), ("c", 60)], a=[(0, GOOD)], b=[(40, GOOD)], c=[(60, GOOD), (70, BAD)])

        assert found == [("a", GOOD, 0, 70), ("c", BAD, 70, None)]

    def test_statuses_of_a_former_head_do_not_count(self) -> None:
        found = self.cut([("a", 0), ("b", 20), ("a", 80)], a=[(0, GOOD), (50, BAD)], b=[(20, RUNNING), (30, GOOD)])

        assert found == [("a", GOOD, 0, 20), ("b", RUNNING, 20, 30), ("b", GOOD, 30, 80), ("a", BAD, 80, None)]

    def test_no_segment_while_the_branch_was_deleted(self) -> None:
        found = self.cut([("a", 0), (None, 10), ("b", 30), (None, 40)], a=[(0, GOOD)], b=[(0, GOOD)])

        assert found == [("a", GOOD, 0, 10), ("b", GOOD, 30, 40)]

    def test_empty_segments_are_dropped(self) -> None:
        found = self.cut([("a", 0), ("b", 10), ("c", 10)], a=[(0, GOOD)], b=[(0, BAD)], c=[(10, RUNNING)])

        assert found == [("a", GOOD, 0, 10), ("c", RUNNING, 10, None)]

    def test_is_clipped_to_the_range(self) -> None:
        found = self.cut([("a", 0), ("b", 20)], since=30, is_open=False, a=[(0, BAD)], b=[(20, RUNNING), (30, GOOD), (100, BAD)])

        assert found == [("b", GOOD, 30, 100)]


class TestPipelines:
    async def test_a_head_never_appears_without_builds_or_finished_early(self, make: DataFactory) -> None:
        project = await make.indexed(await make.project(history={"commits": 4}))
        pushes = PushScenario(make, project, await make.user())
        await pushes("one: {stage: build, script: make}\ntwo: {script: make test}\n")
        await pushes.finish("one", "two")
        async with make.services.database.read_session() as session:
            found = await branch_timeline.load_timeline(Context(make.services, session, None, "test"), (project.id, "master"), None, None)
        assert [segment.state for segment in found] == [NONE, PENDING, RUNNING, GOOD]


class TestTimelineField:
    @pytest.fixture
    async def owner(self, make: DataFactory) -> tables.User:
        return await make.user()

    @pytest.fixture
    async def project(self, make: DataFactory, owner: tables.User) -> tables.Project:
        return await make.project(owner=owner, history={"commits": 5, "merges_every": 0})

    async def timeline(self, ask: Ask, viewer: tables.User, project: tables.Project, **span: datetime) -> list[list[Any]]:
        """State, start, end and seconds of the segments, and their heads."""
        expected = {name: moment.isoformat() for name, moment in span.items()}
        data = await ask.data(TIMELINE, viewer, path=str(project.id), range=expected)
        return [
            [each["state"], each["startedAt"], each["endedAt"], each["seconds"], (each["commit"] or {}).get("oid")]
            for each in data["project"]["branch"]["timeline"]
        ]

    async def test_segments_of_master(self, ask: Ask, make: DataFactory, owner: tables.User, project: tables.Project) -> None:
        second, first = git(make.services.repositories.path_of(project.id), "rev-list", "--max-count=2", "master").split()
        stored = await make.build(project, first, name="unit", status=CheckStatus.SUCCESS, attempt=2, created_at=at(8), finished_at=at(9))
        await make.build(project, first, name="unit", status=CheckStatus.FAILED, current_id=stored.id, created_at=at(1), finished_at=at(4))
        await make.commit_status(project, second, status=CheckStatus.FAILED, created_at=at(20), finished_at=at(30))
        for oid, moment in ((first, 1), (second, 20), ("f" * 40, 40), (None, 50)):
            await make.branch_move(project, oid, at(moment))
        await make.branch_move(project, second, at(0), name="other")

        def line(state: str, start: float, end: float, oid: str | None) -> list[Any]:
            begun, ended = (f"{at(minute):%Y-%m-%dT%H:%M:%S.%f}Z" for minute in (start, end))
            return [state, begun, ended, (end - start) * 60, oid]

        whole = [
            line("RUNNING", 1, 4, first),
            line("FAILED", 4, 8, first),
            line("RUNNING", 8, 9, first),
            line("SUCCESS", 9, 20, first),
            line("PENDING", 20, 30, second),
            line("FAILED", 30, 40, second),
            line("NONE", 40, 50, None),
        ]
        assert await self.timeline(ask, owner, project) == whole
        found = await self.timeline(ask, owner, project, since=at(5), until=at(25))
        assert found == [line("FAILED", 5, 8, first), *whole[2:4], line("PENDING", 20, 25, second)]
        # The same instants, said in another zone.
        east = timedelta(hours=5)
        output = {"since": at(5).astimezone(UTC) + east, "until": at(25) + east}
        expected = {name: moment.isoformat().replace("+00:00", "+05:00") for name, moment in output.items()}
        data = await ask.data(TIMELINE, owner, path=str(project.id), range=expected)
        in_east = data["project"]["branch"]["timeline"]
        assert [each["seconds"] for each in in_east] == [each[3] for each in found]
        assert (in_east[0]["startedAt"], in_east[-1]["endedAt"]) == ("2016-01-01T00:05:00.000000Z", "2016-01-01T00:25:00.000000Z")
        assert await self.timeline(ask, owner, project, until=at(1)) == []
        assert await self.timeline(ask, owner, project, since=at(25), until=at(5)) == []
        # A move at the start of the range is in it, and one at its end is not.
        assert await self.timeline(ask, owner, project, since=at(20), until=at(40)) == whole[4:6]

    async def test_the_current_segment_is_open(self, ask: Ask, make: DataFactory, owner: tables.User, project: tables.Project) -> None:
        await make.indexed(project)
        tomorrow = datetime.now(UTC) + timedelta(days=1)
        for span in ({}, {"until": tomorrow}):
            ((state, _, ended, seconds, oid),) = await self.timeline(ask, owner, project, **span)
            assert (state, ended, len(oid)) == ("NONE", None, 40)
            assert 0 < seconds < 3600
        assert await self.timeline(ask, owner, project, since=tomorrow) == []

    async def test_too_large_a_request_is_rejected(
        self, ask: Ask, make: DataFactory, owner: tables.User, project: tables.Project, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        head = git(make.services.repositories.path_of(project.id), "rev-parse", "master")
        for minute in range(3):
            await make.branch_move(project, head, at(minute))
            await make.commit_status(project, head, name=f"check{minute}")
        variables = {"path": str(project.id), "range": {"since": at(0).isoformat()}}
        monkeypatch.setattr(branch_timeline, "MAX_CHECKS", 2)
        assert await ask.codes(TIMELINE, owner, **variables) == ["LIMIT_EXCEEDED"]
        monkeypatch.setattr(branch_timeline, "MAX_MOVES", 2)
        assert await ask.codes(TIMELINE, owner, **variables) == ["LIMIT_EXCEEDED"]

    async def test_requires_permission_to_read_checks(self, ask: Ask, make: DataFactory, project: tables.Project) -> None:
        await make.member(project, guest := await make.user(), AccessLevel.GUEST)
        assert await ask.codes(TIMELINE, guest, path=str(project.id), range={}) == ["FORBIDDEN"]

    @requires_planner
    async def test_statement_count_does_not_grow_with_branches(
        self, ask: Ask, make: DataFactory, owner: tables.User, statements: StatementRecorder
    ) -> None:
        group = await make.group(owner=owner)
        seen: list[int] = []
        for number in (1, 4):
            for _ in range(number):
                await make.indexed(await make.project(group=group, history={"commits": 4}))
            with statements.record() as run:
                data = await ask.data(WALL, owner, path=group.path)
            assert all(node["branch"]["timeline"][0]["state"] == "NONE" for node in data["group"]["projects"]["nodes"])
            seen.append(len(run))
        assert seen[0] == seen[1]
        assert seen[1] <= 10
