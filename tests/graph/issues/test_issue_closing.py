"""Issues closed by merge requests and pushes: the pattern, the lists of both sides, and the closing user."""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import pytest
from sqlalchemy import select
from sqlmodel import col

from graph.context import Context, Services
from graph.operations.transaction import commit_and_notify, session_for
from graph.rules.git import ref_updates
from graph.rules.git.commit_index import RefUpdate
from graph.rules.git.ref_updates import PreparedUpdates
from graph.rules.issues import issue_closing
from graph.rules.issues.issue_closing import parse_closing_references
from graph.rules.merge_requests.moved_branches import PreparedMergeRequests
from graph.rules.notes.mentions import MAX_MENTIONS, MAX_SCANNED_CHARACTERS, Mention
from storage import tables
from storage.git.commits import GitCommit
from storage.git.protocol.push import RefCommand
from storage.tables import AccessLevel, IssueState, MergeRequestState, Visibility
from tests.make import EXTERNAL_URL, DataFactory
from tests.support.database.statements import StatementRecorder

OID = "{:040x}".format


def commit(number: int, message: str, email: str = "stranger@example.org") -> GitCommit:
    moment = datetime(2026, 3, 1, tzinfo=UTC)
    return GitCommit(OID(number), (), message, "A U Thor", email, moment, "C O Mitter", "committer@example.org", moment)


class ClosingScenario:
    """`await closer.push(user, project, commit(1, "Fixes #1"))`: what follows from a push of these commits, the newest first."""

    def __init__(self, services: Services, make: DataFactory) -> None:
        self.services = services
        self.make = make

    @asynccontextmanager
    async def acting(self, user: tables.User | None) -> AsyncIterator[Context]:
        """A context of the user's, whose changes are kept."""
        async with session_for(self.services.database, writing=True) as session:
            context = Context(self.services, session, user, "test")
            yield context
            await commit_and_notify(context)

    @asynccontextmanager
    async def reading(self, user: tables.User) -> AsyncIterator[Context]:
        async with self.services.database.read_session() as session:
            yield Context(self.services, session, user, "test")

    async def push(self, user: tables.User | None, project: tables.Project, *commits: GitCommit) -> None:
        async with self.acting(user) as context:
            await issue_closing.close_after_push(context, project, commits)

    async def record(self, row: tables.MergeRequest, *messages: str) -> None:
        async with self.acting(None) as context:
            await issue_closing.record_closings(context, [(row, messages)])

    async def closes(self, user: tables.User, *rows: tables.MergeRequest) -> list[list[int]]:
        """The ids of the issues that each would close, for this viewer."""
        async with self.reading(user) as context:
            found = await asyncio.gather(*(issue_closing.load_closing_issues(context, row) for row in rows))
            return [[issue.id for issue in issues] for issues in found]

    async def closed_by(self, user: tables.User, *issues: tables.Issue) -> list[list[int]]:
        async with self.reading(user) as context:
            found = await asyncio.gather(*(issue_closing.load_closing_merge_requests(context, issue) for issue in issues))
            return [[row.id for row in rows] for rows in found]

    async def state(self, issue: tables.Issue) -> IssueState:
        row = await self.make.fetch(tables.Issue, issue.id)
        assert row is not None
        assert (row.closed_at is not None) == (row.state is IssueState.CLOSED)
        return row.state

    async def notes(self, thing: tables.Issue | tables.MergeRequest) -> list[tuple[str, int]]:
        """(text, author id) of the notes under it."""
        key = tables.Note.issue_id if isinstance(thing, tables.Issue) else tables.Note.merge_request_id
        async with self.services.database.read_session() as session:
            found = await session.read(select(tables.Note).where(col(key) == thing.id).order_by(col(tables.Note.id)))
        return [(note.body, note.author_id) for (note,) in found]


@pytest.fixture
def closer(services: Services, make: DataFactory) -> ClosingScenario:
    return ClosingScenario(services, make)


def named(*found: int | str) -> list[Mention]:
    """`1` for #1, `a/b#1` for another project's."""
    return [Mention(None, each) if isinstance(each, int) else Mention(*split_references(each)) for each in found]


def split_references(text: str) -> tuple[tuple[str, str], int]:
    path, _, iid = text.partition("#")
    namespace, _, name = path.partition("/")
    return (namespace, name), int(iid)


class TestPattern:
    @pytest.mark.parametrize("verb", ["close", "closes", "closed", "closing", "fix", "fixes", "fixed", "fixing"])
    @pytest.mark.parametrize("change_case", [str, str.capitalize])
    def test_keywords(self, verb: str, change_case: Any) -> None:
        assert parse_closing_references(f"{change_case(verb)} #7", EXTERNAL_URL) == named(7)

    @pytest.mark.parametrize("verb", ["Resolve", "resolves", "resolved", "Resolving"])
    def test_further_keywords(self, verb: str) -> None:
        assert parse_closing_references(f"It {verb}  issue #7.", EXTERNAL_URL) == named(7)

    @pytest.mark.parametrize(
        ("text", "found"),
        [
            ("Closes #1, #2,#3 and #4", named(1, 2, 3, 4)),
            ("fixes issue #1, issues #2 and issue  #3", named(1, 2, 3)),
            ("Fix #1. Closes Group/My-App.2#3\nresolves #1", named(1, "group/my-app.2#3")),
            (f"fixes {EXTERNAL_URL}/a/b/issues/4 and {EXTERNAL_URL.replace('http', 'https')}/A/B/issues/5#note_1", named("a/b#4", "a/b#5")),
            ("hotfixes #1 and closes #2", named(1, 2)),
            ("fixes #1 and #2, closes #3, see #4", named(1, 2, 3)),
        ],
    )
    def test_finds(self, text: str, found: list[Mention]) -> None:
        assert parse_closing_references(text, EXTERNAL_URL) == found

    @pytest.mark.parametrize(
        "text",
        [
            "",
            "#1",
            "fixe #1",
            "FIXES #1",
            "fixes#1",
            "fixes: #1",
            "fixes\n#1",
            "fixes !1",
            "fixes #0 fixes #01 fixes #x fixes #1x fixes #99999999999 fixes #4294967296",
            "fixes http://elsewhere.example/a/b/issues/1",
            f"fixes {EXTERNAL_URL}/a/b/merge_requests/1",
            f"fixes {EXTERNAL_URL}.evil/a/b/issues/1",
            "fixes a/b/c#1",
        ],
    )
    def test_finds_nothing(self, text: str) -> None:
        assert parse_closing_references(text, EXTERNAL_URL) == []

    def test_reference_length_is_bounded(self) -> None:
        assert len(parse_closing_references(", ".join(f"fix #{number}" for number in range(1, 1000)), EXTERNAL_URL)) == MAX_MENTIONS
        assert parse_closing_references(" " * (MAX_SCANNED_CHARACTERS - 6) + "fix #12", EXTERNAL_URL) == []
        assert parse_closing_references(" " * (MAX_SCANNED_CHARACTERS - 6) + "fix #1", EXTERNAL_URL) == named(1)

    @pytest.mark.parametrize(
        "piece",
        [
            "fix ",
            "fix #1 ",
            "fixes #1,",
            "closes #1 and ",
            "close issue ",
            "issues ",
            "fix a",
            "fix a/",
            "fix a/b#",
            f"fix {'a' * 254}/{'b' * 254} ",
            f"fix {EXTERNAL_URL}/a/b/issues/",
            "fix http://",
            f"fix{' ' * 500}",
            f"fix #1,{' ' * 500}",
            "resolv",
            "a",
            " ",
        ],
    )
    def test_runs_in_linear_time(self, piece: str) -> None:
        text = piece * (MAX_SCANNED_CHARACTERS // 4 // len(piece))

        def seconds(text: str) -> float:
            # Of this thread alone: other processes do not make it longer.
            start = time.thread_time()
            parse_closing_references(text, EXTERNAL_URL)
            return time.thread_time() - start

        one = min(seconds(text) for _ in range(3))
        # Four times the text; were it quadratic, sixteen times the work.
        assert any(seconds(text * 4) < 10 * one + 0.003 for _ in range(3))


class TestLists:
    async def test_references_in_commits_and_the_description(self, closer: ClosingScenario, make: DataFactory) -> None:
        ada = await make.user("ada")
        mill = await make.project(owner=ada, path="mill", default_branch="master")
        engine = await make.project(owner=ada, path="engine")
        first, second, third = [await make.issue(mill) for _ in range(3)]
        there = await make.issue(engine)
        row = await make.merge_request(mill, title="Closes #3", description="Fixes #2 and ada/Engine#1, ada/none#1 and #99")
        await closer.record(row, "Closes #1", "Closes #1, closes #2")

        assert await closer.closes(ada, row) == [[first.id, second.id, there.id]]
        assert await closer.closed_by(ada, first, second, third, there) == [[row.id], [row.id], [], [row.id]]

    async def test_change_with_the_description(self, closer: ClosingScenario, make: DataFactory) -> None:
        ada = await make.user("ada")
        project = await make.project(owner=ada, default_branch="master")
        first, second, third = [await make.issue(project) for _ in range(3)]
        row = await make.merge_request(project, description="Fixes #1")
        await closer.record(row, "Fixes #2")
        row.description = "Fixes #3"
        async with closer.acting(ada) as context:
            await issue_closing.record_description_closings(context, row)
        assert await closer.closes(ada, row) == [[second.id, third.id]]
        await closer.record(row, "Nothing", "See #1")
        assert await closer.closes(ada, row) == [[third.id]]
        await closer.record(row, "Fixes #3")
        row.description = None
        await closer.record(row, "Fixes #3")
        assert await closer.closes(ada, row) == [[third.id]]
        assert first.id != third.id

    async def test_an_issue_created_later_is_listed(self, closer: ClosingScenario, make: DataFactory) -> None:
        ada = await make.user("ada")
        project = await make.project(owner=ada, default_branch="master")
        row = await make.merge_request(project, description="Fixes #1")
        await closer.record(row)
        assert await closer.closes(ada, row) == [[]]
        issue = await make.issue(project)
        assert await closer.closes(ada, row) == [[issue.id]]

    async def test_nothing_for_another_target(self, closer: ClosingScenario, make: DataFactory) -> None:
        ada = await make.user("ada")
        project = await make.project(owner=ada, default_branch="main")
        issue = await make.issue(project)
        row = await make.merge_request(project, description="Fixes #1")
        await closer.record(row)
        assert (await closer.closes(ada, row), await closer.closed_by(ada, issue)) == ([[]], [[]])

    async def test_closed_issues_are_listed_only_for_merged_requests(self, closer: ClosingScenario, make: DataFactory) -> None:
        ada = await make.user("ada")
        project = await make.project(owner=ada, default_branch="master")
        issue = await make.issue(project, state=IssueState.CLOSED)
        states = [MergeRequestState.OPENED, MergeRequestState.CLOSED, MergeRequestState.MERGED]
        rows = [await make.merge_request(project, description="Fixes #1", state=state) for state in states]
        for row in rows:
            await closer.record(row)
        assert await closer.closes(ada, *rows) == [[], [], [issue.id]]
        assert await closer.closed_by(ada, issue) == [[rows[2].id]]

    async def test_hidden_issues_are_excluded(self, closer: ClosingScenario, make: DataFactory) -> None:
        ada, bob = await make.user("ada"), await make.user("bob")
        public = await make.project(owner=ada, path="open", visibility=Visibility.PUBLIC, default_branch="master")
        secret = await make.project(owner=ada, path="secret", default_branch="master")
        off = await make.project(owner=ada, path="off", visibility=Visibility.PUBLIC, issues_enabled=False)
        seen, hidden, unshown = await make.issue(public), await make.issue(secret), await make.issue(off)
        row = await make.merge_request(public, description="Fixes #1, ada/secret#1 and ada/off#1")
        other = await make.merge_request(secret, description="Fixes ada/open#1")
        await closer.record(row)
        await closer.record(other)

        assert await closer.closes(ada, row) == [[seen.id, hidden.id]]
        assert await closer.closes(bob, row) == [[seen.id]]
        assert await closer.closed_by(ada, seen) == [[other.id, row.id]]
        assert await closer.closed_by(bob, seen) == [[row.id]]
        assert unshown.id

    async def test_statement_count_does_not_grow_with_rows(
        self, closer: ClosingScenario, make: DataFactory, statements: StatementRecorder
    ) -> None:
        ada = await make.user("ada")
        projects = [await make.project(owner=ada, path=f"p{number}", default_branch="master") for number in range(5)]
        issues = [await make.issue(project) for project in projects for _ in range(3)]
        text = "Fixes " + ", ".join(f"ada/p{number}#{iid}" for number in range(5) for iid in (1, 2, 3))
        rows = [await make.merge_request(project, description=text) for project in projects for _ in range(6)]
        costs = []
        for row in rows:
            with statements.record() as cost:
                await closer.record(row, text)
            costs.append(len(cost))
        assert len(set(costs)) == 1
        for requested, many in ((closer.closes, rows), (closer.closed_by, issues)):
            with statements.record() as one:
                await requested(ada, many[0])  # type: ignore[operator]
            with statements.record() as all_of_them:
                found = await requested(ada, *many)  # type: ignore[operator]
            assert len(one) == len(all_of_them)
            assert {len(each) for each in found} == {15 if many is rows else 30}


class TestMerging:
    async def test_closes_only_issues_the_merger_may_update(self, closer: ClosingScenario, make: DataFactory) -> None:
        ada, bob = await make.user("ada"), await make.user("bob")
        mill = await make.project(owner=ada, path="mill", members=[(bob, AccessLevel.DEVELOPER)], default_branch="master")
        engine = await make.project(owner=ada, path="engine", visibility=Visibility.PUBLIC)
        loom = await make.project(owner=bob, path="loom")
        here, done, there, own = (
            await make.issue(mill),
            await make.issue(mill, state=IssueState.CLOSED),
            await make.issue(engine),
            await make.issue(loom),
        )
        row = await make.merge_request(mill, description="Fixes #1, #2, ada/engine#1 and bob/loom#1")
        await closer.record(row)

        async with closer.acting(bob) as context:
            await issue_closing.close_after_merge(context, row)

        assert [await closer.state(issue) for issue in (here, done, there, own)] == ["closed", "closed", "opened", "closed"]
        assert await closer.notes(here) == [("Status changed to closed by merge request !1", bob.id)]
        assert await closer.notes(own) == [("Status changed to closed by merge request ada/mill!1", bob.id)]
        assert (await closer.notes(done), await closer.notes(there)) == ([], [])

    async def test_into_another_branch_closes_nothing(self, closer: ClosingScenario, make: DataFactory) -> None:
        project = await make.project(owner=(ada := await make.user("ada")), default_branch="master")
        issue = await make.issue(project)
        row = await make.merge_request(project, description="Fixes #1", target_branch="stable")
        await closer.record(row)
        async with closer.acting(ada) as context:
            await issue_closing.close_after_merge(context, row)
        assert (await closer.state(issue), await closer.notes(issue)) == ("opened", [])


class TestPushing:
    async def test_closes_as_the_commit_s_author(self, closer: ClosingScenario, make: DataFactory) -> None:
        ada, bob = await make.user("ada"), await make.user("bob")
        project = await make.project(owner=ada, members=[(bob, AccessLevel.REPORTER)])
        first, second, third = [await make.issue(project) for _ in range(3)]

        await closer.push(
            ada, project, commit(3, "Nothing"), commit(2, "Closes #2 and #1"), commit(1, "Fixes #1\n\nSee #3 and #1", "BOB@example.org")
        )

        assert await closer.notes(first) == [
            (f"Status changed to closed by commit {OID(1)}", bob.id),
            (f"mentioned in commit {OID(2)}", ada.id),
        ]
        assert await closer.notes(second) == [(f"Status changed to closed by commit {OID(2)}", ada.id)]
        assert await closer.notes(third) == [(f"mentioned in commit {OID(1)}", bob.id)]
        assert [await closer.state(issue) for issue in (first, second, third)] == ["closed", "closed", "opened"]

    async def test_closes_as_the_pusher_where_the_author_may_not(self, closer: ClosingScenario, make: DataFactory) -> None:
        ada, bob = await make.user("ada"), await make.user("bob")
        eve = await make.user("eve", state=tables.UserState.BLOCKED)
        project = await make.project(owner=ada, members=[(bob, AccessLevel.GUEST), (eve, AccessLevel.MASTER)])
        first, second, own = await make.issue(project), await make.issue(project), await make.issue(project, author=bob)

        emails = "bob@example.org", "eve@example.org", "bob@example.org"
        await closer.push(ada, project, *(commit(number, f"Fixes #{number}", emails[number - 1]) for number in (1, 2, 3)))

        assert [(await closer.notes(issue))[0][1] for issue in (first, second, own)] == [ada.id, ada.id, bob.id]

    async def test_closes_issues_of_other_projects_the_pusher_may_update(self, closer: ClosingScenario, make: DataFactory) -> None:
        ada, bob = await make.user("ada"), await make.user("bob")
        mill = await make.project(owner=ada, path="mill")
        public = await make.project(owner=bob, path="public", visibility=Visibility.PUBLIC)
        secret = await make.project(owner=bob, path="secret")
        shared = await make.project(owner=bob, path="shared", members=[(ada, AccessLevel.REPORTER)])
        seen, hidden, may = await make.issue(public), await make.issue(secret), await make.issue(shared)

        # A commit with bob's address does not have bob's permissions.
        await closer.push(ada, mill, commit(1, "Fixes bob/public#1, bob/secret#1 and bob/shared#1", "bob@example.org"))

        assert [await closer.state(issue) for issue in (seen, hidden, may)] == ["opened", "opened", "closed"]
        assert await closer.notes(may) == [(f"Status changed to closed by commit ada/mill@{OID(1)}", bob.id)]
        # Bob does not see the mill, and speaks of it all the same: the commit says so.
        assert await closer.notes(seen) == [(f"mentioned in commit ada/mill@{OID(1)}", bob.id)]
        assert await closer.notes(hidden) == []

    async def test_mentions_merge_requests_and_once(self, closer: ClosingScenario, make: DataFactory) -> None:
        ada = await make.user("ada")
        project = await make.project(owner=ada)
        row = await make.merge_request(project)
        for _ in range(2):
            await closer.push(ada, project, commit(1, "Merge branch 'topic1'\n\nSee merge request !1"))
        assert await closer.notes(row) == [(f"mentioned in commit {OID(1)}", ada.id)]

    async def test_a_push_without_a_user_closes_nothing(self, closer: ClosingScenario, make: DataFactory) -> None:
        project = await make.project()
        issue = await make.issue(project)
        await closer.push(None, project, commit(1, "Fixes #1"))
        assert (await closer.state(issue), await closer.notes(issue)) == ("opened", [])

    async def test_runs_when_refs_are_updated(self, closer: ClosingScenario, make: DataFactory) -> None:
        ada = await make.user("ada")
        project = await make.project(owner=ada, history={"commits": 3})
        issue = await make.issue(project)
        tip = await closer.services.repositories.read(project.id, lambda repository: repository.find_ref("refs/heads/master"))
        found = commit(1, "Fixes #1")
        update = RefCommand("refs/heads/master", tip, tip)
        async with closer.acting(ada) as context:
            prepared = PreparedUpdates((RefUpdate(update, 1, (found,), (found,)),), PreparedMergeRequests())
            await ref_updates.apply_updates(context, await ref_updates.lock_projects(context, project.id, prepared), prepared)
        assert await closer.state(issue) == "closed"

    async def test_statement_count_does_not_grow_with_rows(
        self, closer: ClosingScenario, make: DataFactory, statements: StatementRecorder
    ) -> None:
        ada = await make.user("ada")
        people = [await make.user(f"u{number}") for number in range(8)]
        projects = [
            await make.project(owner=ada, path=f"p{number}", members=[(each, AccessLevel.REPORTER) for each in people])
            for number in range(4)
        ]
        for project in projects:
            for _ in range(8):
                await make.issue(project)
        await make.save(tables.Hook(url="http://hooks.example/", issues_events=True))

        def commits(iids: Sequence[int], start: int, authors: int) -> list[GitCommit]:
            commit_issues = [(number, iid) for number in range(4) for iid in iids]
            return [
                commit(start + index, f"Fixes ada/p{number}#{iid}, see ada/p{number}#1", f"u{index % authors}@example.org")
                for index, (number, iid) in enumerate(commit_issues)
            ]

        costs = []
        for found in ([commit(99, "Nothing")], commits([2], 100, 1)[:2], commits([3, 4, 5, 6, 7, 8], 200, 8)):
            with statements.record() as cost:
                await closer.push(ada, projects[0], *found)
            costs.append(len(cost))

        assert costs[0] == 0
        assert costs[1] == costs[2]
        assert await make.count(tables.Event) == 2 + 24

    async def test_ten_thousand_commits_without_references_are_fast(
        self, closer: ClosingScenario, make: DataFactory, statements: StatementRecorder
    ) -> None:
        ada = await make.user("ada")
        project = await make.project(owner=ada)
        many = [commit(number, "See the manual. " * 20) for number in range(10_000)]
        start = time.thread_time()
        with statements.assert_at_most(0):
            await closer.push(ada, project, *many)
        assert time.thread_time() - start < 5

    async def test_of_more_than_one_statement_takes(
        self, closer: ClosingScenario, make: DataFactory, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(issue_closing, "MENTIONS_PER_BATCH", 3)
        ada = await make.user("ada")
        project = await make.project(owner=ada)
        issues = [await make.issue(project) for _ in range(9)]
        await closer.push(ada, project, *(commit(number, f"Fixes #{number}") for number in range(9, 0, -1)))
        assert {await closer.state(issue) for issue in issues} == {"closed"}
