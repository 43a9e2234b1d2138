"""The health of branches: the state of the newest checked commit, since when, and which commits may have broken it."""

from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from graph.context import Context, Services
from graph.rules.branches import branch_health
from graph.rules.branches.branch_health import MAX_COMMITS, BranchHealthReport
from graph.rules.builds.rollups import RollupState
from storage import tables
from storage.tables import AccessLevel, CheckStatus, Visibility
from tests.make import DataFactory
from tests.support.api_clients import Ask
from tests.support.database.statements import StatementRecorder, requires_planner
from tests.support.git.git_history import commit_to_branch, git

MOMENT = datetime(2016, 1, 1, tzinfo=UTC)
HEALTH = """query ($path: String!, $branch: String, $name: [String!], $first: Int! = 20) { project(path: $path) { branch(name: $branch) {
    health(name: $name) { state since lastGreen { oid } firstBad { oid } failing { totalCount nodes { name } }
        suspects(first: $first) { totalCount nodes { oid } pageInfo { hasNextPage } } } } } }"""
WALL = """query ($path: String!) { group(path: $path) { projects(first: 50) { nodes { branch {
    health { state since firstBad { oid } } } } } } }"""

ReadHealth = Callable[..., Awaitable[BranchHealthReport]]


def after(minutes: float) -> datetime:
    return MOMENT + timedelta(minutes=minutes)


@pytest.fixture
async def project(make: DataFactory) -> tables.Project:
    return await make.project()


@pytest.fixture
async def context(services: Services) -> AsyncIterator[Context]:
    """The context of a job, which has no viewer."""
    async with services.database.read_session() as session:
        yield Context(services, session, None, "test")


@pytest.fixture
def read_health(services: Services, project: tables.Project) -> ReadHealth:
    """The health of a head as it is now, dated too. The state alone is the same."""

    async def read_health(oid: str, *names: str) -> BranchHealthReport:
        async with services.database.read_session() as session:
            context = Context(services, session, None, "test")
            (found,) = (await branch_health.load_health(context, [(project.id, oid)], names or None, dated=True)).values()
            if not names:
                assert await branch_health.load_states(context, [(project.id, oid)]) == {(project.id, oid): found.state}
        return found

    return read_health


async def create_builds(make: DataFactory, project: tables.Project, line: list[str], status_letters: str, *, start: float = 0) -> None:
    """One build for each commit of a line, oldest first, which ended a minute after the one before; `-` is none."""
    statuses = {"ok": CheckStatus.SUCCESS, "bad": CheckStatus.FAILED, "wait": CheckStatus.PENDING, "run": CheckStatus.RUNNING}
    statuses |= {"stop": CheckStatus.CANCELED, "may": CheckStatus.FAILED}
    for number, (oid, word) in enumerate(zip(line, status_letters.split(), strict=True), 1):
        if word != "-":
            at = {"created_at": after(start + number - 0.5), "finished_at": after(start + number)}
            if word in ("wait", "run"):
                at.pop("finished_at")
            await make.build(project, oid, name="unit", status=statuses[word], allow_failure=word == "may", **at)


class TestState:
    """`state`, `lastGreen`, `firstBad`, `since` and the suspects of a line of commits, oldest first."""

    @pytest.mark.parametrize(
        ("words", "state", "good", "bad", "since", "suspects"),
        [
            ("ok ok ok", "success", 2, None, 1, []),
            ("ok bad bad", "failed", 0, 1, 2, [1]),
            ("bad ok - may ok", "success", 4, None, 2, []),
            # Those in between decide nothing, and any of them may have done it.
            ("ok - stop bad bad", "failed", 0, 3, 4, [3, 2, 1]),
            ("ok bad wait - run", "failed", 0, 1, 2, [1]),
            ("bad ok stop -", "success", 1, None, 2, []),
            # A revert restores green; the reverted commit is no longer listed.
            ("ok bad ok", "success", 2, None, 3, []),
            ("ok bad ok bad", "failed", 2, 3, 4, [3]),
            # No green one ever.
            ("- bad stop bad", "failed", None, 1, 2, [1, 0]),
            ("- - -", "none", None, None, None, []),
            ("- wait run", "running", None, None, None, []),
            ("- stop", "canceled", None, None, None, []),
            ("stop -", "none", None, None, None, []),
        ],
    )
    async def test_health_of_a_linear_history(
        self,
        make: DataFactory,
        project: tables.Project,
        read_health: ReadHealth,
        words: str,
        state: str,
        good: int | None,
        bad: int | None,
        since: float | None,
        suspects: list[int],
    ) -> None:
        line = await make.linear_commits(project, len(words.split()))
        await create_builds(make, project, line, words)

        found = await read_health(line[-1])

        assert (found.state, found.last_good) == (RollupState(state), None if good is None else line[good])
        assert (found.first_bad and found.first_bad.oid) == (None if bad is None else line[bad])
        assert found.since == (None if since is None else after(since))
        assert found.suspects == [line[place] for place in suspects]

    async def test_goes_by_ancestry_and_not_by_the_order_of_builds(
        self, make: DataFactory, project: tables.Project, read_health: ReadHealth
    ) -> None:
        line = await make.linear_commits(project, 3)
        await create_builds(make, project, line[2:], "ok")
        await create_builds(make, project, line[:2], "ok bad", start=60)

        found = await read_health(line[2])

        assert (found.state, found.since) == (RollupState.SUCCESS, after(1))

    async def test_follows_first_parents_past_merges(self, make: DataFactory, project: tables.Project, read_health: ReadHealth) -> None:
        trunk = await make.linear_commits(project, 2)
        side = await make.linear_commits(project, 2, after=trunk[0])
        merge = await make.linear_commits(project, 1, after=trunk[1], merging=side[1])
        await create_builds(make, project, [*trunk, *side, *merge], "ok - bad bad bad")

        found = await read_health(merge[0])

        assert (found.last_good, found.suspects) == (trunk[0], [merge[0], trunk[1]])
        assert found.first_bad is not None
        assert found.first_bad.oid == merge[0]

    async def test_the_newest_attempt_counts(self, make: DataFactory, project: tables.Project, read_health: ReadHealth) -> None:
        line = await make.linear_commits(project, 2)
        await create_builds(make, project, line, "ok -")
        at = {"created_at": after(9), "finished_at": after(10)}
        stored = await make.build(project, line[1], name="unit", status=CheckStatus.SUCCESS, attempt=2, **at)
        await make.build(project, line[1], name="unit", status=CheckStatus.FAILED, current_id=stored.id, created_at=after(5))

        assert (await read_health(line[1])).since == after(1)

        await make.commit_status(project, line[1], name="lint", status=CheckStatus.FAILED, created_at=after(11), finished_at=after(12))

        found = await read_health(line[1])
        assert (found.state, found.since, found.suspects) == (RollupState.FAILED, after(12), [line[1]])

    async def test_only_named_jobs_count(self, make: DataFactory, project: tables.Project, read_health: ReadHealth) -> None:
        line = await make.linear_commits(project, 2)
        for oid in line:
            for name, status in (("unit", CheckStatus.SUCCESS), ("flaky", CheckStatus.FAILED)):
                await make.build(project, oid, name=name, status=status, created_at=MOMENT)

        states = [(await read_health(line[1], *names)).state for names in ((), ("unit",), ("flaky",), ("unit", "flaky"), ("nobody",))]

        failed, good = RollupState.FAILED, RollupState.SUCCESS
        assert states == [failed, good, failed, failed, RollupState.NONE]

    async def test_a_fork_has_its_own(self, make: DataFactory, project: tables.Project, context: Context) -> None:
        line = await make.linear_commits(project, 1)
        await make.linear_commits(fork := await make.project(), 1, oids=line)
        await create_builds(make, project, line, "bad")
        await create_builds(make, fork, line, "ok")

        heads = [(project.id, line[0]), (fork.id, line[0]), (fork.id, "f" * 40)]
        found = await branch_health.load_health(context, heads)

        states = [health.state for health in found.values()]
        assert states == [RollupState.FAILED, RollupState.SUCCESS, RollupState.NONE]
        assert await branch_health.load_states(context, heads) == dict(zip(heads, states, strict=True))


class TestLongHistories:
    async def test_are_walked_to_a_bound(
        self, make: DataFactory, project: tables.Project, context: Context, statements: StatementRecorder
    ) -> None:
        line = await make.linear_commits(project, MAX_COMMITS + 10)
        good = await make.linear_commits(project, 200)
        unchecked = await make.linear_commits(project, MAX_COMMITS)
        (later,) = await make.linear_commits(project, 1, after=unchecked[-1])
        await make.save(
            *(
                tables.CommitStatus(project_id=project.id, sha=oid, status=status, created_at=MOMENT, finished_at=after(number))
                for oids, status in ((line, CheckStatus.FAILED), (good, CheckStatus.SUCCESS), (unchecked[:1], CheckStatus.SUCCESS))
                for number, oid in enumerate(oids)
            )
        )
        with statements.assert_at_most(1):
            found = await branch_health.load_health(context, [(project.id, line[-1]), (project.id, good[-1])], dated=True)
        bad, fine = found.values()
        assert (bad.state, bad.last_good, len(bad.suspects)) == (RollupState.FAILED, None, 1)
        assert bad.first_bad is not None
        assert (bad.first_bad.oid, bad.since) == (line[10], after(10))
        assert (fine.state, fine.since, len(fine.walked)) == (RollupState.SUCCESS, after(0), 200)
        (fine,) = (await branch_health.load_health(context, [(project.id, good[-1])])).values()
        assert (fine.state, len(fine.walked)) == (RollupState.SUCCESS, 1)
        with statements.assert_at_most(1):
            states = await branch_health.load_states(context, [(project.id, oid) for oid in (line[-1], unchecked[-1], later)])
        # The last commit that is walked decides; one more does not.
        assert list(states.values()) == [RollupState.FAILED, RollupState.SUCCESS, RollupState.NONE]


class TestBranchHealthField:
    @pytest.fixture
    async def owner(self, make: DataFactory) -> tables.User:
        return await make.user()

    async def health(self, ask: Ask, viewer: tables.User, project: tables.Project, **variables: Any) -> dict[str, Any]:
        data = await ask.data(HEALTH, viewer, path=str(project.id), **variables)
        found: dict[str, Any] = data["project"]["branch"]["health"]
        return found

    async def test_returns_the_suspect_commits(self, ask: Ask, make: DataFactory, owner: tables.User) -> None:
        project = await make.project(owner=owner, history={"commits": 12, "merges_every": 4})
        path = make.services.repositories.path_of(project.id)
        commit_to_branch(path, "master", {"a.txt": b"a"})
        await make.indexed(project)
        head, second, third, *_ = line = git(path, "rev-list", "--first-parent", "master").split()
        await create_builds(make, project, line[::-1], " ".join(["ok"] * (len(line) - 3) + ["-", "bad", "bad"]))
        await make.build(project, head, name="later", status=CheckStatus.FAILED)
        await make.build(project, head, name="forgiven", status=CheckStatus.FAILED, allow_failure=True)
        await make.commit_status(project, head, name="said", status=CheckStatus.FAILED)

        found = await self.health(ask, owner, project)

        assert found == {
            "state": "FAILED",
            "since": f"{after(len(line) - 1):%Y-%m-%dT%H:%M:%S.%f}Z",
            "lastGreen": {"oid": line[3]},
            "firstBad": {"oid": second},
            "suspects": {"totalCount": 2, "nodes": [{"oid": second}, {"oid": third}], "pageInfo": {"hasNextPage": False}},
            "failing": {"totalCount": 2, "nodes": [{"name": "unit"}, {"name": "later"}]},
        }
        page = (await self.health(ask, owner, project, first=1))["suspects"]
        assert page == {"totalCount": 2, "nodes": [{"oid": second}], "pageInfo": {"hasNextPage": True}}
        only = await self.health(ask, owner, project, name=["unit"])
        assert only["failing"]["nodes"] == [{"name": "unit"}]
        assert await ask.codes(HEALTH, owner, path=str(project.id), name=["x"] * 101) == ["LIMIT_EXCEEDED"]
        topic = await self.health(ask, owner, project, branch="topic")
        assert (topic["state"], topic["suspects"]["totalCount"], topic["failing"]["nodes"]) == ("SUCCESS", 0, [])

    async def test_pages_of_suspects(self, ask: Ask, make: DataFactory, owner: tables.User) -> None:
        project = await make.indexed(await make.project(owner=owner, history={"commits": 6, "merges_every": 0}))
        line = git(make.services.repositories.path_of(project.id), "rev-list", "master").split()
        await make.build(project, line[0], status=CheckStatus.FAILED)
        query = """query ($path: String!, $after: String) { project(path: $path) { branch { health {
            suspects(first: 2, after: $after) { nodes { oid } pageInfo { endCursor hasNextPage hasPreviousPage } } } } } }"""
        seen: list[str] = []
        cursor = None
        for _ in range(2):
            data = await ask.data(query, owner, path=str(project.id), after=cursor)
            page = data["project"]["branch"]["health"]["suspects"]
            seen += [node["oid"] for node in page["nodes"]]
            cursor = page["pageInfo"]["endCursor"]
        assert (seen, page["pageInfo"]["hasNextPage"]) == (line, False)
        assert await ask.codes(query, owner, path=str(project.id), after="x") == ["BAD_REQUEST"]

    async def test_requires_permission_to_read_checks_and_builds(self, ask: Ask, make: DataFactory) -> None:
        project = await make.project(visibility=Visibility.PUBLIC, public_builds=False, history={"commits": 4})
        await make.indexed(project)
        head = git(make.services.repositories.path_of(project.id), "rev-parse", "master")
        await make.build(project, head, status=CheckStatus.FAILED)
        found = await self.health(ask, await make.user(), project)
        assert (found["state"], found["firstBad"], found["failing"]) == ("FAILED", {"oid": head}, {"totalCount": 0, "nodes": []})

        private = await make.project(history={"commits": 4})
        await make.member(private, guest := await make.user(), AccessLevel.GUEST)
        assert await ask.codes(HEALTH, guest, path=str(private.id)) == ["FORBIDDEN"]

    @requires_planner
    async def test_statement_count_does_not_grow_with_branches(
        self, ask: Ask, make: DataFactory, owner: tables.User, statements: StatementRecorder
    ) -> None:
        group = await make.group(owner=owner)
        seen: list[int] = []
        for number in (1, 4):
            for _ in range(number):
                project = await make.indexed(await make.project(group=group, history={"commits": 4}))
                head = git(make.services.repositories.path_of(project.id), "rev-parse", "master")
                await make.build(project, head, status=CheckStatus.FAILED)
            with statements.record() as run:
                data = await ask.data(WALL, owner, path=group.path)
            nodes = data["group"]["projects"]["nodes"]
            assert [node["branch"]["health"]["state"] for node in nodes] == ["FAILED"] * (number if number == 1 else 5)
            seen.append(len(run))
        assert seen[0] == seen[1]
        assert seen[1] <= 8
