"""What merge requests propose: compared, marked when a branch moves, looked at again, and found merged."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select, text, update
from sqlmodel import col

from graph import upkeep
from graph.context import Services
from graph.errors import LimitExceeded, Unavailable
from graph.git_access import GitAccess, Granted
from graph.rules import commits, refreshing
from graph.transaction import keep
from storage import tables
from storage.git import program, proposals
from storage.git.pushes import Rule, Update
from storage.git.repository import Repository
from storage.tables import AccessLevel, MergeRequestState, MergeStatus
from tests.history import git, grow
from tests.make import Make
from tests.merges import acting
from tests.statements import Statements

HISTORY = {"commits": 6, "merges_every": 0}


class Forge:
    """A project with `master`, its developer, and what they push to it."""

    def __init__(self, make: Make, project: tables.Project, developer: tables.User) -> None:
        self.make = make
        self.services = make.services
        self.project = project
        self.developer = developer
        self._iids = 0

    def path(self, project: tables.Project | None = None) -> Path:
        return self.services.repositories.path_of((project or self.project).id)

    def head(self, branch: str, project: tables.Project | None = None) -> str | None:
        return Repository.open(self.path(project)).find(f"refs/heads/{branch}")

    def grow(self, branch: str, project: tables.Project | None = None, *, message: str = "A change", **files: bytes | None) -> str:
        """A commit on a branch, which begins at master; nobody has told the service."""
        start = None if self.head(branch, project) else "master"
        return grow(self.path(project), branch, dict(files) or {f"{branch}.txt": message.encode()}, start=start, message=message)

    async def told(self, *updates: Update, project: tables.Project | None = None, by: tables.User | None = None) -> None:
        """The service hears of a push that has moved these refs."""
        place = project or self.project
        granted = Granted(place.id, self.path(place), (by or self.developer).id)
        await GitAccess(self.services).pushed(granted, list(updates), "test")

    async def push(self, branch: str, new: str | None, *, project: tables.Project | None = None, by: tables.User | None = None) -> None:
        """Moves a branch, by whatever it takes, and tells the service."""
        old = self.head(branch, project)
        if old != new:
            git(self.path(project), "update-ref", f"refs/heads/{branch}", new or "0" * 40)
        await self.told(Update(f"refs/heads/{branch}", old, new), project=project, by=by)

    async def pushed(self, branch: str, project: tables.Project | None = None, **settings: Any) -> str:
        """Pushes a new commit to a branch; gives its id."""
        old = self.head(branch, project)
        oid = self.grow(branch, project, **settings)
        await self.told(Update(f"refs/heads/{branch}", old, oid), project=project)
        return oid

    async def propose(self, branch: str, *, source: tables.Project | None = None, look: bool = True, **columns: Any) -> tables.MergeRequest:
        """An open merge request into master, looked at as one is that somebody makes."""
        self._iids += 1
        given = {"title": branch[:200], "target_branch": "master", "source_project_id": (source or self.project).id, **columns}
        row = tables.MergeRequest(project_id=self.project.id, iid=self._iids, author_id=self.developer.id, source_branch=branch, **given)
        await self.make.save(row)
        return await self.look(row) if look else row

    async def compare(self, row: tables.MergeRequest, **settings: Any) -> refreshing.Comparison:
        branches = {"source_branch": row.source_branch, "target_branch": row.target_branch}
        ids = {"target_project_id": row.project_id, "source_project_id": row.source_project_id}
        return await refreshing.compare(self.services, **ids, **branches, **settings)

    async def look(self, row: tables.MergeRequest) -> tables.MergeRequest:
        comparison = await self.compare(row)
        async with acting(self.services, self.developer) as context:
            held = await context.session.get(tables.MergeRequest, row.id)
            await refreshing.apply(context, held, comparison)
            await keep(context)
        return await self.now(row)

    async def now(self, row: tables.MergeRequest) -> tables.MergeRequest:
        found = await self.make.fetch(tables.MergeRequest, row.id)
        assert found is not None
        return found

    async def commits(self, row: tables.MergeRequest) -> list[str]:
        held = tables.MergeRequestCommit
        statement = select(col(held.oid)).where(col(held.merge_request_id) == row.id).order_by(col(held.position))
        async with self.services.database.reading() as session:
            return list((await session.execute(statement)).scalars())

    async def notes(self, row: tables.MergeRequest) -> list[tuple[str, int]]:
        note = tables.Note
        statement = select(col(note.body), col(note.author_id)).where(col(note.merge_request_id) == row.id, col(note.system))
        async with self.services.database.reading() as session:
            return [tuple(found) for found in await session.execute(statement.order_by(col(note.id)))]

    async def changes(self, row: tables.MergeRequest) -> list[Any]:
        async with acting(self.services, self.developer) as context:
            return await refreshing.changes_of(context, row)

    async def fork(self, **columns: Any) -> tables.Project:
        return await self.make.project(history=HISTORY, forked_from_id=self.project.id, **columns)


@pytest.fixture
async def forge(make: Make) -> Forge:
    developer = await make.user("dev")
    project = await make.project(history=HISTORY, members=[(developer, AccessLevel.DEVELOPER)])
    return Forge(make, project, developer)


class TestLooking:
    async def test_writes_what_lies_between_the_branches(self, forge: Forge) -> None:
        base = forge.head("master")
        first = forge.grow("feature", message="First")
        second = forge.grow("feature", message="Second")

        row = await forge.propose("feature")

        assert (row.head_oid, row.base_oid, row.commit_count, row.merge_status) == (second, base, 2, MergeStatus.CAN_BE_MERGED)
        assert (row.files, row.additions, row.deletions) == (1, 1, 0)
        assert await forge.commits(row) == [second, first]
        assert [entry.new_path for entry in await forge.changes(row)] == ["feature.txt"]
        assert await forge.notes(row) == []
        assert git(forge.path(), "rev-parse", f"refs/merge-requests/{row.iid}/head") == second

    async def test_a_fork_brings_its_commits_with_it(self, forge: Forge) -> None:
        fork = await forge.fork()
        oid = forge.grow("feature", fork)

        row = await forge.propose("feature", source=fork)

        assert (row.head_oid, row.merge_status, row.commit_count) == (oid, MergeStatus.CAN_BE_MERGED, 1)
        forge.services.repositories.remove(fork.id)
        assert [entry.new_path for entry in await forge.changes(row)] == ["feature.txt"]

    async def test_conflicts_and_unrelated_histories_cannot_be_merged(self, forge: Forge) -> None:
        forge.grow("feature", same=b"mine\n")
        forge.grow("master", same=b"theirs\n")
        other = await forge.make.project(history={"commits": 4, "seed": 7})

        conflict = await forge.propose("feature")
        unrelated = await forge.propose("master", source=other)

        assert conflict.merge_status is unrelated.merge_status is MergeStatus.CANNOT_BE_MERGED
        assert (conflict.commit_count, unrelated.commit_count, unrelated.base_oid) == (1, 2, None)
        assert len(await forge.changes(unrelated)) > 0

    @pytest.mark.parametrize("branch", ["gone", "--output=x", "@{-1}", "../x", "x" * 255, "HEAD", ":/x"])
    async def test_a_missing_branch_cannot_be_merged_whatever_its_name(self, forge: Forge, branch: str) -> None:
        row = await forge.propose(branch)

        assert row.merge_status is MergeStatus.CANNOT_BE_MERGED
        assert (row.head_oid, row.commit_count, await forge.changes(row)) == (None, None, [])
        comparison = await forge.compare(await forge.propose("topic", target_branch=branch))
        assert (comparison.target_oid, comparison.seen) == (None, False)

    async def test_names_that_look_like_options_are_branches(self, forge: Forge) -> None:
        oid = forge.grow("feature")
        git(forge.path(), "update-ref", "refs/heads/--output=x", oid)

        assert (await forge.propose("--output=x")).head_oid == oid

    async def test_file_names_that_are_no_utf8_are_shown(self, forge: Forge) -> None:
        path = forge.path()
        blob = git(path, "hash-object", "-w", "--stdin", stdin=b"x\n")
        tree = git(path, "mktree", "-z", stdin=b"100644 blob " + blob.encode() + b"\tna\xffme\0")
        head = forge.head("master")
        assert head is not None
        git(path, "update-ref", "refs/heads/odd", git(path, "commit-tree", tree, "-p", head, "-m", "Odd"))

        row = await forge.propose("odd")

        assert "na\ufffdme" in [entry.new_path for entry in await forge.changes(row)]

    async def test_a_repository_that_cannot_be_read_is_unavailable(self, forge: Forge) -> None:
        row = await forge.propose("topic", look=False)
        forge.services.repositories.remove(forge.project.id)

        with pytest.raises(Unavailable):
            await forge.compare(row)

    async def test_what_git_does_not_finish_cannot_be_merged(self, forge: Forge, monkeypatch: pytest.MonkeyPatch) -> None:
        def slow(*_: object) -> None:
            raise program.GitFailed("took more than 10 s")

        monkeypatch.setattr("graph.rules.proposing.proposals.propose", slow)
        comparison = await forge.compare(await forge.propose("topic", look=False))

        assert (comparison.merge_status, comparison.seen) == (MergeStatus.CANNOT_BE_MERGED, False)

    async def test_the_issues_that_its_commits_close_are_kept(self, forge: Forge) -> None:
        issue = await forge.make.issue(forge.project)
        forge.grow("feature", message=f"Fixes #{issue.iid}")
        await forge.make.save(forge.project)

        await forge.propose("feature")

        assert await forge.make.count(tables.MergeRequest) == 1
        async with forge.services.database.reading() as session:
            assert await session.scalar(text("SELECT count(*) FROM closings")) == 1


class TestPushingToTheSource:
    async def test_tells_of_new_commits_as_the_pusher(self, forge: Forge) -> None:
        forge.grow("feature", message="First")
        row = await forge.propose("feature")
        other = await forge.make.user()
        await forge.make.member(forge.project, other, AccessLevel.DEVELOPER)
        old = forge.head("feature")
        second, third = (forge.grow("feature", message=message) for message in ("Second", "Third"))

        await forge.told(Update("refs/heads/feature", old, third), by=other)

        now = await forge.now(row)
        assert (now.head_oid, now.commit_count, now.merge_status) == (third, 3, MergeStatus.CAN_BE_MERGED)
        assert await forge.notes(row) == [(f"Added 2 commits:\n\n* {second[:8]} - Second\n* {third[:8]} - Third", other.id)]
        assert git(forge.path(), "rev-parse", f"refs/merge-requests/{row.iid}/head") == third

    async def test_many_commits_are_told_in_a_few_lines(self, forge: Forge, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(proposals, "MOST_SHOWN", 2)
        row = await forge.propose("topic")
        old = forge.head("topic")
        new = ""
        for number in range(5):
            parent = new or old
            new = git(forge.path(), "commit-tree", "master^{tree}", "-p", str(parent), "-m", f"Change {number}")
        await forge.push("topic", new)

        ((body, _),) = await forge.notes(row)
        assert body.startswith("Added 5 commits:\n\n* and 3 more\n* ") and body.endswith(f"{new[:8]} - Change 4")

    async def test_a_rewritten_branch_and_one_that_goes_back(self, forge: Forge) -> None:
        first = forge.grow("feature", message="First")
        row = await forge.propose("feature")
        fresh = git(forge.path(), "commit-tree", "master^{tree}", "-p", "master", "-m", "Instead")

        await forge.push("feature", fresh)
        assert await forge.commits(row) == [fresh]
        await forge.push("feature", forge.head("master"))

        now = await forge.now(row)
        assert (now.state, now.commit_count, await forge.commits(row)) == (MergeRequestState.OPENED, 0, [])
        assert [body for body, _ in await forge.notes(row)] == [f"Added 1 commit:\n\n* {fresh[:8]} - Instead"]
        assert first not in await forge.commits(row)

    async def test_ends_the_wait_for_builds_without_a_word(self, forge: Forge) -> None:
        waiting = {"merge_when_build_succeeds": True, "merge_params": {"a": 1}, "merge_user_id": forge.developer.id}
        row = await forge.propose("topic", **waiting)
        forge.grow("topic")

        await forge.push("topic", forge.head("topic"))

        now = await forge.now(row)
        assert (now.merge_when_build_succeeds, now.merge_params, now.merge_user_id) == (False, None, None)
        assert all("automatic" not in body for body, _ in await forge.notes(row))

    async def test_of_a_fork_is_looked_at_in_the_target(self, forge: Forge) -> None:
        fork = await forge.fork()
        row = await forge.propose("topic", source=fork)

        oid = await forge.pushed("topic", fork)

        now = await forge.now(row)
        assert (now.head_oid, now.merge_status) == (oid, MergeStatus.CAN_BE_MERGED)

    async def test_a_deleted_branch_loses_nothing_and_can_come_back(self, forge: Forge) -> None:
        row = await forge.propose("topic")
        head = forge.head("topic")

        await forge.push("topic", None)
        gone = await forge.now(row)
        assert (gone.state, gone.merge_status) == (MergeRequestState.OPENED, MergeStatus.UNCHECKED)
        await upkeep.once(forge.services)
        git(forge.path(), "gc", "--quiet", "--prune=now")

        gone = await forge.now(row)
        assert (gone.merge_status, gone.head_oid, gone.commit_count) == (MergeStatus.CANNOT_BE_MERGED, head, row.commit_count)
        assert len(await forge.changes(gone)) > 0
        await forge.push("topic", head)
        assert (await forge.now(row)).merge_status is MergeStatus.CAN_BE_MERGED
        assert await forge.notes(row) == []

    async def test_a_deleted_fork_loses_nothing(self, forge: Forge) -> None:
        fork = await forge.fork()
        row = await forge.propose("topic", source=fork)
        async with forge.services.database.writing() as session:
            await session.delete(await session.get(tables.Project, fork.id))
            await session.commit()
        forge.services.repositories.remove(fork.id)

        await forge.pushed("master")
        await upkeep.once(forge.services)

        now = await forge.now(row)
        assert (now.state, now.merge_status) == (MergeRequestState.OPENED, MergeStatus.CANNOT_BE_MERGED)
        assert len(await forge.changes(now)) > 0


class TestPushingToTheTarget:
    async def test_leaves_it_unchecked_until_the_upkeep_has_looked(self, forge: Forge) -> None:
        forge.grow("feature", same=b"mine\n")
        row = await forge.propose("feature")

        await forge.pushed("master", same=b"theirs\n")

        assert (await forge.now(row)).merge_status is MergeStatus.UNCHECKED
        await upkeep.once(forge.services)
        assert (await forge.now(row)).merge_status is MergeStatus.CANNOT_BE_MERGED

    async def test_other_branches_and_closed_ones_stay_as_they_are(self, forge: Forge) -> None:
        closed = await forge.propose("topic", state=MergeRequestState.CLOSED)
        other = await forge.propose("topic", target_branch="release", look=False, merge_status=MergeStatus.CAN_BE_MERGED)

        await forge.pushed("master")

        assert (await forge.now(closed)).merge_status is MergeStatus.CAN_BE_MERGED
        assert (await forge.now(other)).merge_status is MergeStatus.CAN_BE_MERGED

    async def test_a_deleted_target_cannot_be_merged_into(self, forge: Forge) -> None:
        git(forge.path(), "update-ref", "refs/heads/release", "master")
        row = await forge.propose("topic", target_branch="release")

        await forge.push("release", None)
        await upkeep.once(forge.services)

        now = await forge.now(row)
        assert (now.merge_status, now.head_oid) == (MergeStatus.CANNOT_BE_MERGED, row.head_oid)

    @pytest.mark.parametrize("way", ["merge", "fast-forward", "and deletes the source", "from a fork"])
    async def test_whoever_merges_by_hand_has_merged_it(self, forge: Forge, way: str) -> None:
        source = await forge.fork() if way == "from a fork" else None
        row = await forge.propose("topic", source=source)
        head, master = str(row.head_oid), str(forge.head("master"))
        merge = git(forge.path(), "commit-tree", f"{head}^{{tree}}", "-p", master, "-p", head, "-m", "By hand")
        new = head if way == "fast-forward" else git(forge.path(), "commit-tree", f"{head}^{{tree}}", "-p", merge, "-m", "And more")
        other = await forge.make.user()
        updates = [Update("refs/heads/master", master, new)]
        git(forge.path(), "update-ref", "refs/heads/master", new)
        if way == "and deletes the source":
            git(forge.path(), "update-ref", "-d", "refs/heads/topic")
            updates.append(Update("refs/heads/topic", head, None))

        await forge.told(*updates, by=other)

        now = await forge.now(row)
        assert (now.state, now.merge_user_id, now.head_oid) == (MergeRequestState.MERGED, other.id, head)
        assert now.merge_commit_oid == (head if way == "fast-forward" else merge)
        assert now.merged_at is not None
        assert await forge.notes(row) == [("Status changed to merged", other.id)]
        assert await forge.commits(row) == await forge.commits(await forge.now(row)) != []
        await upkeep.once(forge.services)
        assert len(await forge.notes(row)) == 1

    async def test_one_push_may_bring_commits_and_merge_them(self, forge: Forge) -> None:
        row = await forge.propose("topic")
        old, master = str(row.head_oid), str(forge.head("master"))
        head = forge.grow("topic", message="Last")
        merge = git(forge.path(), "commit-tree", f"{head}^{{tree}}", "-p", master, "-p", head, "-m", "By hand")
        git(forge.path(), "update-ref", "refs/heads/master", merge)

        await forge.told(Update("refs/heads/topic", old, head), Update("refs/heads/master", master, merge))

        now = await forge.now(row)
        assert (now.state, now.head_oid, now.merge_commit_oid) == (MergeRequestState.MERGED, head, merge)
        assert (await forge.commits(row))[0] == head and len(await forge.commits(row)) == 3

    async def test_the_upkeep_finds_a_merge_that_a_crash_kept_untold(self, forge: Forge) -> None:
        row = await forge.propose("topic")
        git(forge.path(), "update-ref", "refs/heads/master", str(row.head_oid))
        await self._unchecked(forge, row)

        await upkeep.once(forge.services)

        now = await forge.now(row)
        assert (now.state, now.merge_commit_oid, now.merge_user_id) == (MergeRequestState.MERGED, row.head_oid, None)

    async def test_a_merge_on_its_way_is_left_to_itself(self, forge: Forge) -> None:
        row = await forge.propose("topic")
        intent: dict[str, Any] = {"target_branch": "master", "old_oid": "0" * 40, "new_oid": "1" * 40, "params": {"source": row.head_oid}}
        await forge.make.save(tables.MergeIntent(merge_request_id=row.id, user_id=forge.developer.id, **intent))

        await forge.push("master", row.head_oid)

        now = await forge.now(row)
        assert (now.state, now.merge_status) == (MergeRequestState.OPENED, MergeStatus.UNCHECKED)

    async def test_it_closes_what_merging_would_close(self, forge: Forge) -> None:
        issue = await forge.make.issue(forge.project)
        head = forge.grow("feature", message=f"Closes #{issue.iid}")
        row = await forge.propose("feature")
        master = await forge.make.user()
        await forge.make.member(forge.project, master, AccessLevel.MASTER)

        await forge.push("master", head, by=master)

        assert (await forge.now(row)).state is MergeRequestState.MERGED
        found = await forge.make.fetch(tables.Issue, issue.id)
        assert found is not None and found.state is tables.IssueState.CLOSED

    async def _unchecked(self, forge: Forge, row: tables.MergeRequest) -> None:
        async with forge.services.database.writing() as session:
            await session.execute(update(tables.MergeRequest).values(merge_status=MergeStatus.UNCHECKED))
            await session.commit()


class TestUpkeep:
    async def test_writes_nothing_that_was_overtaken(self, forge: Forge, monkeypatch: pytest.MonkeyPatch) -> None:
        row = await forge.propose("topic", look=False)
        compare = refreshing.compare

        async def overtaken(*args: Any, **settings: Any) -> refreshing.Comparison:
            found = await compare(*args, **settings)
            forge.grow("topic")
            return found

        monkeypatch.setattr(refreshing, "compare", overtaken)
        await refreshing.pending(forge.services)
        assert ((await forge.now(row)).merge_status, (await forge.now(row)).head_oid) == (MergeStatus.UNCHECKED, None)
        monkeypatch.setattr(refreshing, "compare", compare)
        await refreshing.pending(forge.services)
        assert (await forge.now(row)).head_oid == forge.head("topic")

    @pytest.mark.parametrize("change", [{"target_branch": "other"}, {"state": MergeRequestState.CLOSED}])
    async def test_writes_nothing_of_one_that_changed_meanwhile(
        self, forge: Forge, monkeypatch: pytest.MonkeyPatch, change: dict[str, Any]
    ) -> None:
        row = await forge.propose("topic", look=False)
        compare = refreshing.compare

        async def overtaken(services: Services, **settings: Any) -> refreshing.Comparison:
            found = await compare(services, **settings)
            async with services.database.writing() as session:
                await session.execute(update(tables.MergeRequest).values(**change))
                await session.commit()
            return found

        monkeypatch.setattr(refreshing, "compare", overtaken)
        await refreshing.pending(forge.services)

        assert (await forge.now(row)).merge_status is MergeStatus.UNCHECKED

    async def test_leaves_alone_for_a_while_what_cannot_be_read(self, forge: Forge, monkeypatch: pytest.MonkeyPatch) -> None:
        row = await forge.propose("topic", look=False)
        forge.services.repositories.path_of(forge.project.id).rename(forge.path().with_suffix(".away"))
        tried: list[int] = []
        compare = refreshing.compare

        async def counted(*args: Any, **settings: Any) -> refreshing.Comparison:
            tried.append(row.id)
            return await compare(*args, **settings)

        monkeypatch.setattr(refreshing, "compare", counted)
        for _ in range(3):
            await refreshing.pending(forge.services)

        assert tried == [row.id]
        assert (await forge.now(row)).merge_status is MergeStatus.UNCHECKED

    async def test_goes_on_with_the_next_round_after_the_other_chores(self, forge: Forge, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(refreshing, "ROUND", 2)
        rows = [await forge.propose("topic", look=False, target_branch=f"b{number}") for number in range(3)]

        await refreshing.pending(forge.services)

        left = [row.id for row in rows if (await forge.now(row)).merge_status is MergeStatus.UNCHECKED]
        assert left == [rows[2].id]
        async with asyncio.timeout(1):
            await forge.services.upkeep.woken(60)

    async def test_many_at_once_do_no_harm(self, forge: Forge) -> None:
        forge.grow("feature")
        row = await forge.propose("feature")
        forge.grow("feature", message="More")
        async with forge.services.database.writing() as session:
            await session.execute(update(tables.MergeRequest).values(merge_status=MergeStatus.UNCHECKED))
            await session.commit()

        await asyncio.gather(*(refreshing.pending(forge.services) for _ in range(4)))

        assert (await forge.now(row)).commit_count == 2
        assert len(await forge.notes(row)) == 1
        assert len(await forge.commits(row)) == 2


class TestCost:
    async def test_marking_one_and_thirty_costs_the_same(self, forge: Forge, statements: Statements) -> None:
        async def cost(names: Sequence[str]) -> int:
            updates = [Update(f"refs/heads/{name}", None, "1" * 40) for name in (*names, "master")]
            async with acting(forge.services, forge.developer) as context:
                with statements.counted() as seen:
                    await refreshing.moved(context, forge.project, updates)
            return len(seen)

        await forge.propose("b0", look=False)
        one = await cost(["b0"])
        for number in range(1, 30):
            await forge.propose(f"b{number}", look=False)

        assert await cost([f"b{number}" for number in range(30)]) == one == 3

    async def test_names_that_no_database_keeps_are_passed_over(self, forge: Forge) -> None:
        async with acting(forge.services, forge.developer) as context:
            await refreshing.moved(context, forge.project, [Update("refs/heads/\udcff", None, "1" * 40)])

    async def test_a_push_of_very_many_branches_marks_all(self, forge: Forge) -> None:
        row = await forge.propose("topic")
        updates = [Update(f"refs/heads/b{number}", None, "1" * 40) for number in range(1001)]
        async with acting(forge.services, forge.developer) as context:
            await refreshing.moved(context, forge.project, updates)
            await context.session.commit()

        assert (await forge.now(row)).merge_status is MergeStatus.UNCHECKED


async def test_kept_heads_cannot_be_pushed(forge: Forge) -> None:
    row = await forge.propose("topic")
    granted = Granted(forge.project.id, forge.path(), forge.developer.id)
    updates = [Update(f"refs/merge-requests/{row.iid}/head", row.head_oid, new) for new in (None, "1" * 40)]

    verdicts = await GitAccess(forge.services).judge(granted, updates, "test")

    assert [verdict.rule for verdict in verdicts] == [Rule.REFUSE, Rule.REFUSE]


async def test_the_diffs_of_one_operation_are_bounded_together(forge: Forge, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commits._Diffs.__init__, "__defaults__", (10,))
    first = await forge.propose("topic")
    forge.grow("feature")
    second = await forge.propose("feature")
    async with acting(forge.services, forge.developer) as context:
        await refreshing.changes_of(context, first)
        with pytest.raises(LimitExceeded):
            await refreshing.changes_of(context, second)
