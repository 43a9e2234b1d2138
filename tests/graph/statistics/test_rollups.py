"""The rollup of a commit's checks, as docs/decisions.md 43 defines it, and through the graph."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from graph.context import Services
from graph.operations import execution
from graph.rules.builds.rollups import CheckCounts, RollupState, roll_up
from storage import tables
from storage.git.history.log import list_history
from storage.tables import AccessLevel, CheckStatus, Visibility
from tests.make import DataFactory
from tests.support.api_clients import Ask
from tests.support.database.statements import StatementRecorder

MOMENT = datetime(2016, 1, 1, tzinfo=UTC)
ROLLUP = """query ($path: String!, $rev: String!, $ref: String, $first: Int! = 10) { project(path: $path) { commit(rev: $rev) {
    rollup(ref: $ref) { state counts { total pending running failed success canceled } startedAt finishedAt durationSeconds queuedSeconds
    coverage failing(first: $first) { __typename ... on CommitStatus { name targetUrl } ... on Build { databaseId } } } } } }"""


def check(status: str, name: str = "unit", **columns: Any) -> tables.CommitStatus:
    """`forgiven` is a failure that was allowed."""
    return tables.CommitStatus(
        project_id=1,
        sha="a",
        name=name,
        status=CheckStatus(status.replace("forgiven", "failed")),
        allow_failure=status == "forgiven",
        **{"created_at": MOMENT, **columns},
    )


def parse_checks(words: str) -> list[tables.CommitStatus]:
    """Checks of different names."""
    return [check(word, f"job{number}") for number, word in enumerate(words.split())]


def after(seconds: float) -> datetime:
    return MOMENT + timedelta(seconds=seconds)


class TestState:
    @pytest.mark.parametrize(
        ("words", "state"),
        [
            ("", RollupState.NONE),
            ("success", RollupState.SUCCESS),
            ("pending", RollupState.PENDING),
            ("pending pending", RollupState.PENDING),
            ("pending success", RollupState.RUNNING),
            ("pending forgiven", RollupState.RUNNING),
            ("running", RollupState.RUNNING),
            ("running failed", RollupState.RUNNING),
            ("failed", RollupState.FAILED),
            ("failed success", RollupState.FAILED),
            ("failed canceled", RollupState.FAILED),
            ("failed forgiven", RollupState.FAILED),
            ("forgiven", RollupState.SUCCESS),
            ("forgiven success", RollupState.SUCCESS),
            ("canceled", RollupState.CANCELED),
            ("canceled canceled", RollupState.CANCELED),
            ("canceled success", RollupState.SUCCESS),
            ("canceled forgiven", RollupState.SUCCESS),
        ],
    )
    def test_of_checks_of_different_names(self, words: str, state: RollupState) -> None:
        rows = parse_checks(words)

        assert roll_up(rows).state is state
        assert roll_up(reversed(rows)).state is state

    def test_counts_the_newest_attempt_of_each_name(self) -> None:
        assert roll_up([check("failed"), check("success")]).state is RollupState.SUCCESS
        assert roll_up([check("success"), check("failed")]).state is RollupState.FAILED
        assert roll_up([check("failed", ref="master"), check("success", ref="v1")]).state is RollupState.SUCCESS
        assert roll_up([check("failed"), check("success", "lint")]).state is RollupState.FAILED

    def test_of_one_ref_with_those_that_name_none(self) -> None:
        rows = [check("failed", "a", ref="master"), check("success", "b", ref="topic"), check("success", "c")]

        assert [row.name for row in roll_up(rows, "master").checks] == ["a", "c"]
        assert [row.name for row in roll_up(rows, "topic").checks] == ["b", "c"]
        assert [row.name for row in roll_up(rows, "gone").checks] == ["c"]
        assert [row.name for row in roll_up(rows).checks] == ["a", "b", "c"]

    def test_a_newer_one_of_another_ref_does_not_count_for_this(self) -> None:
        rows = [check("failed", ref="master"), check("success", ref="topic")]

        assert roll_up(rows, "master").state is RollupState.FAILED


class TestCounts:
    def test_each_status(self) -> None:
        rollup = roll_up(parse_checks("pending pending running failed forgiven success success success canceled"))

        assert rollup.counts == CheckCounts(total=9, pending=2, running=1, failed=2, success=3, canceled=1)

    def test_nothing(self) -> None:
        assert roll_up([]).counts == CheckCounts(0, 0, 0, 0, 0, 0)

    def test_failing_are_those_that_make_it_red(self) -> None:
        rows = [check("failed", "b"), check("forgiven", "c"), check("failed", "a"), check("failed", "d"), check("success", "d")]

        assert [row.name for row in roll_up(rows).failing] == ["b", "a"]


class TestTimes:
    def test_from_the_first_start_to_the_last_end(self) -> None:
        rollup = roll_up(
            [
                check("success", "a", created_at=after(0), started_at=after(10), finished_at=after(20)),
                check("failed", "b", created_at=after(2), started_at=after(5), finished_at=after(12.5)),
            ]
        )

        assert (rollup.started_at, rollup.finished_at) == (after(5), after(20))
        assert (rollup.duration_seconds, rollup.queued_seconds) == (15.0, 5.0)

    @pytest.mark.parametrize(
        ("spans", "seconds"),
        [
            ([(0, 10), (20, 30)], 20.0),
            ([(0, 10), (5, 30)], 30.0),
            ([(0, 30), (5, 10)], 30.0),
            ([(0, 10), (10, 20)], 20.0),
            ([(20, 30), (0, 10), (0, 10), (8, 12.5)], 22.5),
            ([(0, 10), (30, 20)], 10.0),
            ([(5, 30), (0, -5)], 25.0),
        ],
    )
    def test_gaps_in_which_none_ran_do_not_count(self, spans: list[tuple[float, float]], seconds: float) -> None:
        rows = [
            check("success", f"job {number}", started_at=after(start), finished_at=after(end)) for number, (start, end) in enumerate(spans)
        ]

        assert roll_up(rows).duration_seconds == seconds
        assert roll_up(reversed(rows)).duration_seconds == seconds

    def test_a_superseded_attempt_does_not_count(self) -> None:
        earlier = check("failed", "a", started_at=after(0), finished_at=after(100))

        assert roll_up([earlier, check("success", "a", started_at=after(200), finished_at=after(207))]).duration_seconds == 7.0

    def test_one_that_never_ran_adds_nothing(self) -> None:
        rows = [check("success", "a", started_at=after(1), finished_at=after(3)), check("canceled", "b", finished_at=after(50))]

        assert roll_up(rows).duration_seconds == 2.0

    def test_has_no_end_while_one_has_none(self) -> None:
        rollup = roll_up([check("success", "a", started_at=after(1), finished_at=after(2)), check("running", "b", started_at=after(3))])

        assert (rollup.started_at, rollup.finished_at, rollup.duration_seconds, rollup.queued_seconds) == (after(1), None, None, 1.0)

    def test_are_null_where_not_reported(self) -> None:
        for rollup in (roll_up([]), roll_up([check("pending")])):
            assert (rollup.started_at, rollup.finished_at, rollup.duration_seconds, rollup.queued_seconds) == (None, None, None, None)
        ended = roll_up([check("success", finished_at=after(3))])
        assert (ended.finished_at, ended.duration_seconds, ended.queued_seconds) == (after(3), None, None)

    def test_are_never_negative(self) -> None:
        rollup = roll_up([check("success", created_at=after(9), started_at=after(5), finished_at=after(1))])

        assert (rollup.duration_seconds, rollup.queued_seconds) == (0.0, 0.0)


class TestRollupField:
    @pytest.fixture
    async def owner(self, make: DataFactory) -> tables.User:
        return await make.user()

    @pytest.fixture
    async def project(self, make: DataFactory, owner: tables.User) -> tables.Project:
        return await make.project(owner=owner, history={"commits": 6})

    @pytest.fixture
    async def head(self, make: DataFactory, project: tables.Project) -> str:
        return str(await make.services.repositories.read(project.id, lambda repository: repository.resolve("master")))

    async def rollup(self, ask: Ask, viewer: tables.User, project: tables.Project, **variables: Any) -> dict[str, Any]:
        data = await ask.data(ROLLUP, viewer, path=str(project.id), **{"rev": "master", **variables})
        found: dict[str, Any] = data["project"]["commit"]["rollup"]
        return found

    async def test_shows_everything(self, ask: Ask, make: DataFactory, owner: tables.User, project: tables.Project, head: str) -> None:
        times = {"created_at": after(0), "started_at": after(1.5), "finished_at": after(4)}
        await make.commit_status(project, head, name="unit", status=CheckStatus.SUCCESS, **times)
        await make.commit_status(
            project, head, name="unit", ref="master", status=CheckStatus.FAILED, target_url="http://ci.example/1", **times
        )
        await make.commit_status(project, head, name="lint", status=CheckStatus.FAILED, allow_failure=True, **times)
        await make.commit_status(project, head, name="old", ref="topic", status=CheckStatus.FAILED, **times)

        assert await self.rollup(ask, owner, project, ref="master") == {
            "state": "FAILED",
            "counts": {"total": 2, "pending": 0, "running": 0, "failed": 2, "success": 0, "canceled": 0},
            "startedAt": "2016-01-01T00:00:01.500000Z",
            "finishedAt": "2016-01-01T00:00:04.000000Z",
            "durationSeconds": 2.5,
            "queuedSeconds": 1.5,
            "coverage": None,
            "failing": [{"__typename": "CommitStatus", "name": "unit", "targetUrl": "http://ci.example/1"}],
        }
        assert [each["name"] for each in (await self.rollup(ask, owner, project))["failing"]] == ["unit", "old"]
        assert [each["name"] for each in (await self.rollup(ask, owner, project, first=1))["failing"]] == ["unit"]

    async def test_of_a_commit_without_checks(self, ask: Ask, owner: tables.User, project: tables.Project) -> None:
        assert await self.rollup(ask, owner, project) == {
            "state": "NONE",
            "counts": {"total": 0, "pending": 0, "running": 0, "failed": 0, "success": 0, "canceled": 0},
            "startedAt": None,
            "finishedAt": None,
            "durationSeconds": None,
            "queuedSeconds": None,
            "coverage": None,
            "failing": [],
        }

    async def test_rejects_invalid_page_sizes(self, ask: Ask, owner: tables.User, project: tables.Project) -> None:
        assert await ask.codes(ROLLUP, owner, path=str(project.id), rev="master", first=-1) == ["BAD_REQUEST"]
        assert await ask.codes(ROLLUP, owner, path=str(project.id), rev="master", first=101) == ["LIMIT_EXCEEDED"]

    async def test_is_not_for_guests(self, ask: Ask, make: DataFactory, project: tables.Project) -> None:
        await make.member(project, guest := await make.user(), AccessLevel.GUEST)

        assert await ask.codes(ROLLUP, guest, path=str(project.id), rev="master") == ["FORBIDDEN"]

    async def test_of_builds_and_statuses(
        self, ask: Ask, make: DataFactory, owner: tables.User, project: tables.Project, head: str
    ) -> None:
        """docs/decisions.md 43: the newest attempt of each name counts, whether a build or a status says so."""
        red = await make.build(project, head, name="unit", status=CheckStatus.FAILED, coverage=80, created_at=after(1))
        await make.commit_status(project, head, name="unit", status=CheckStatus.SUCCESS, created_at=after(0))
        await make.commit_status(project, head, name="lint", status=CheckStatus.FAILED, created_at=after(3))
        await make.build(project, head, name="lint", status=CheckStatus.SUCCESS, coverage=40.5, created_at=after(2))
        # What a retry superseded, and an older build of the same name and ref.
        await make.build(project, head, name="docs", status=CheckStatus.FAILED, created_at=after(4))
        docs = await make.build(project, head, name="docs", status=CheckStatus.SUCCESS, coverage=99.5, attempt=2, created_at=after(5))
        await make.build(project, head, name="docs", status=CheckStatus.FAILED, current_id=docs.id, created_at=after(4.5))

        rollup = await self.rollup(ask, owner, project)

        assert (rollup["state"], rollup["counts"]["total"]) == ("FAILED", 3)
        assert (rollup["counts"]["failed"], rollup["coverage"]) == (2, (80 + 99.5) / 2)
        assert [each["__typename"] for each in rollup["failing"]] == ["Build", "CommitStatus"]
        assert rollup["failing"][0]["databaseId"] == red.id
        query = 'query ($path: String!) { project(path: $path) { commit(rev: "master") { status } } }'
        # A status of a name and ref does not stand for a build of the same (docs/wire-facts.md 5.6): each is one of its own.
        assert (await ask.data(query, owner, path=str(project.id)))["project"]["commit"] == {"status": "FAILED"}

    async def test_does_not_read_the_commands_of_what_succeeded(
        self, ask: Ask, make: DataFactory, owner: tables.User, project: tables.Project, head: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(execution, "MAX_ANSWER_BYTES", 50_000)
        await make.build(project, head, status=CheckStatus.SUCCESS, commands="a" * 100_000)
        red = await make.build(project, head, status=CheckStatus.FAILED)

        rollup = await self.rollup(ask, owner, project)

        assert (rollup["state"], rollup["counts"]["total"], rollup["failing"][0]["databaseId"]) == ("FAILED", 2, red.id)

    async def test_hides_builds_without_permission(self, ask: Ask, make: DataFactory) -> None:
        project = await make.project(visibility=Visibility.PUBLIC, public_builds=False, history={"commits": 4})
        commit = await make.services.repositories.read(project.id, lambda repository: repository.resolve("master"))
        await make.build(project, str(commit), status=CheckStatus.FAILED, coverage=80)
        await make.commit_status(project, str(commit), name="lint", status=CheckStatus.FAILED)

        rollup = await self.rollup(ask, await make.user(), project)

        assert (rollup["state"], rollup["coverage"]) == ("FAILED", None)
        assert [each["__typename"] for each in rollup["failing"]] == ["CommitStatus"]

    @pytest.mark.parametrize(
        ("selection", "count", "count_of_rows"),
        [
            ("state counts { total } durationSeconds coverage", 1, 0),
            ("state failing { ... on Build { name } ... on CommitStatus { name } }", 3, 1),
        ],
    )
    async def test_costs_one_statement_with_the_status_and_two_for_what_failed(
        self,
        ask: Ask,
        make: DataFactory,
        statements: StatementRecorder,
        services: Services,
        owner: tables.User,
        project: tables.Project,
        selection: str,
        count: int,
        count_of_rows: int,
    ) -> None:
        query = "query ($path: String!, $first: Int!) { project(path: $path) { commits(first: $first) { nodes { title %s } } } }"
        more = f'status allowFailure rollup {{ {selection} }} other: rollup(ref: "master") {{ state }}'
        head = str(await services.repositories.read(project.id, lambda repository: repository.resolve("master")))
        walked = await services.repositories.read(project.id, lambda repository: list_history(repository, head, skip=0, limit=3))
        # The refs of the project are cached from then on.
        await ask.data(query % "", owner, path=str(project.id), first=3)
        with statements.record() as without:
            await ask.data(query % "", owner, path=str(project.id), first=3)
        for number in (1, 30):
            for index in range(number):
                for made in (make.build, make.commit_status):
                    await made(project, walked[index % 3].oid, name=f"{made.__name__}{number}{index}", status=CheckStatus.FAILED)

            with statements.record() as with_them:
                await ask.data(query % more, owner, path=str(project.id), first=3)

            assert len(with_them) == len(without) + count
            assert sum("commands" in statement for statement in with_them) == count_of_rows
