"""Refresh of merge requests: compared again when a branch moves, and detected as merged."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select, text, update
from sqlmodel import col

from graph.context import Services
from graph.errors import LimitExceeded, Unavailable
from graph.git_access import GitAccess, RepositoryGrant
from graph.jobs import maintenance
from graph.operations.transaction import commit_and_notify
from graph.rules.git import commits, refs
from graph.rules.merge_requests import branch_comparison, merge_request_refresh, moved_branches
from graph.rules.snapshots import MergeRequestSnapshot
from storage import tables
from storage.git import merge_preview
from storage.git.protocol.push import PushRule, RefCommand
from storage.git.repository import Repository
from storage.git.subprocesses import git_command
from storage.tables import AccessLevel, MergeRequestState, MergeStatus
from tests.make import DataFactory
from tests.support.database.statements import StatementRecorder
from tests.support.git.git_history import commit_to_branch, git
from tests.support.git.repositories import push as push_refs
from tests.support.git.repositories import take_over
from tests.support.merge_requests import acting

HISTORY = {"commits": 6, "merges_every": 0}


class RefreshScenario:
    """A project with `master`, its developer, and what they push to it."""

    def __init__(self, make: DataFactory, project: tables.Project, developer: tables.User) -> None:
        self.make = make
        self.services = make.services
        self.project = project
        self.developer = developer
        self._iids = 0

    def path(self, project: tables.Project | None = None) -> Path:
        return self.services.repositories.path_of((project or self.project).id)

    def head(self, branch: str, project: tables.Project | None = None) -> str | None:
        return Repository.open(self.path(project)).find_ref(f"refs/heads/{branch}")

    def commit(self, branch: str, project: tables.Project | None = None, *, message: str = "A change", **files: bytes | None) -> str:
        """A commit on a branch that starts at master; the service does not know it yet."""
        start = None if self.head(branch, project) else "master"
        return commit_to_branch(
            self.path(project), branch, dict(files) or {f"{branch}.txt": message.encode()}, start=start, message=message
        )

    async def record_push(self, *updates: RefCommand, project: tables.Project | None = None, by: tables.User | None = None) -> None:
        """Reports to the service a push that has moved these refs."""
        target = project or self.project
        granted = RepositoryGrant(target.id, self.path(target), (by or self.developer).id)
        await push_refs(self.services, granted, list(updates), "test")

    async def push(self, branch: str, new: str | None, *, project: tables.Project | None = None, by: tables.User | None = None) -> None:
        """Moves a branch, by force if needed, and reports it to the service."""
        old = self.head(branch, project)
        if old != new:
            git(self.path(project), "update-ref", f"refs/heads/{branch}", new or "0" * 40)
        await self.record_push(RefCommand(f"refs/heads/{branch}", old, new), project=project, by=by)

    async def push_branch(self, branch: str, project: tables.Project | None = None, **settings: Any) -> str:
        """Pushes a new commit to a branch; gives its id."""
        old = self.head(branch, project)
        oid = self.commit(branch, project, **settings)
        await self.record_push(RefCommand(f"refs/heads/{branch}", old, oid), project=project)
        return oid

    async def create_merge_request(
        self, branch: str, *, source: tables.Project | None = None, is_refreshed: bool = True, **columns: Any
    ) -> tables.MergeRequest:
        """An open merge request into master, looked at as one is that somebody makes."""
        self._iids += 1
        values = {"title": branch[:200], "target_branch": "master", "source_project_id": (source or self.project).id, **columns}
        row = tables.MergeRequest(project_id=self.project.id, iid=self._iids, author_id=self.developer.id, source_branch=branch, **values)
        await self.make.save(row)
        return await self.refresh(row) if is_refreshed else row

    async def compare(self, row: tables.MergeRequest, **settings: Any) -> branch_comparison.BranchComparison:
        await take_over(self.services)
        branches = {"source_branch": row.source_branch, "target_branch": row.target_branch}
        ids = {"target_project_id": row.project_id, "source_project_id": row.source_project_id}
        return await branch_comparison.compare_branches(self.services, **ids, **branches, **settings)

    async def run_jobs(self) -> None:
        await take_over(self.services)
        await maintenance.run_once(self.services)

    async def refresh_unchecked(self) -> None:
        await take_over(self.services)
        await merge_request_refresh.refresh_unchecked(self.services)

    async def refresh(self, row: tables.MergeRequest) -> tables.MergeRequest:
        comparison = await self.compare(row)
        async with acting(self.services, self.developer) as context:
            held = await context.session.get(tables.MergeRequest, row.id)
            await merge_request_refresh.apply_comparison(context, held, comparison)
            await commit_and_notify(context)
        return await self.reload(row)

    async def reload(self, row: tables.MergeRequest) -> tables.MergeRequest:
        found = await self.make.fetch(tables.MergeRequest, row.id)
        assert found is not None
        return found

    async def commits(self, row: tables.MergeRequest) -> list[str]:
        held = tables.MergeRequestCommit
        statement = select(col(held.oid)).where(col(held.merge_request_id) == row.id).order_by(col(held.position))
        async with self.services.database.read_session() as session:
            return list((await session.execute(statement)).scalars())

    async def notes(self, row: tables.MergeRequest) -> list[tuple[str, int]]:
        note = tables.Note
        statement = select(col(note.body), col(note.author_id)).where(col(note.merge_request_id) == row.id, col(note.system))
        async with self.services.database.read_session() as session:
            return [tuple(found) for found in await session.execute(statement.order_by(col(note.id)))]

    async def changes(self, row: tables.MergeRequest) -> list[Any]:
        async with acting(self.services, self.developer) as context:
            return await branch_comparison.load_changes(context, row)

    async def fork(self, **columns: Any) -> tables.Project:
        return await self.make.project(history=HISTORY, forked_from_id=self.project.id, **columns)


@pytest.fixture
async def forge(make: DataFactory) -> RefreshScenario:
    developer = await make.user("dev")
    project = await make.project(history=HISTORY, members=[(developer, AccessLevel.DEVELOPER)])
    return RefreshScenario(make, project, developer)


class TestComparison:
    async def test_stores_commits_and_diff_between_the_branches(self, forge: RefreshScenario) -> None:
        base = forge.head("master")
        first = forge.commit("feature", message="First")
        second = forge.commit("feature", message="Second")

        row = await forge.create_merge_request("feature")

        assert (row.head_oid, row.base_oid, row.commit_count, row.merge_status) == (second, base, 2, MergeStatus.CAN_BE_MERGED)
        assert (row.files, row.additions, row.deletions) == (1, 1, 0)
        assert await forge.commits(row) == [second, first]
        assert [entry.new_path for entry in await forge.changes(row)] == ["feature.txt"]
        assert await forge.notes(row) == []
        await refs.project_refs(forge.services, forge.project.id)
        assert git(forge.path(), "rev-parse", f"refs/merge-requests/{row.iid}/head") == second

    async def test_a_fork_brings_its_commits_with_it(self, forge: RefreshScenario) -> None:
        fork = await forge.fork()
        oid = forge.commit("feature", fork)

        row = await forge.create_merge_request("feature", source=fork)

        assert (row.head_oid, row.merge_status, row.commit_count) == (oid, MergeStatus.CAN_BE_MERGED, 1)
        forge.services.repositories.remove(fork.id)
        assert [entry.new_path for entry in await forge.changes(row)] == ["feature.txt"]

    async def test_conflicts_and_unrelated_histories_cannot_be_merged(self, forge: RefreshScenario) -> None:
        forge.commit("feature", same=b"mine\n")
        forge.commit("master", same=b"theirs\n")
        other = await forge.make.project(history={"commits": 4, "seed": 7})

        conflict = await forge.create_merge_request("feature")
        unrelated = await forge.create_merge_request("master", source=other)

        assert conflict.merge_status is unrelated.merge_status is MergeStatus.CANNOT_BE_MERGED
        assert (conflict.commit_count, unrelated.commit_count, unrelated.base_oid) == (1, 2, None)
        assert len(await forge.changes(unrelated)) > 0

    @pytest.mark.parametrize("branch", ["gone", "--output=x", "@{-1}", "../x", "x" * 255, "HEAD", ":/x"])
    async def test_a_missing_branch_cannot_be_merged_whatever_its_name(self, forge: RefreshScenario, branch: str) -> None:
        row = await forge.create_merge_request(branch)

        assert row.merge_status is MergeStatus.CANNOT_BE_MERGED
        assert (row.head_oid, row.commit_count, await forge.changes(row)) == (None, None, [])
        comparison = await forge.compare(await forge.create_merge_request("topic", target_branch=branch))
        assert (comparison.target_oid, comparison.is_complete) == (None, False)

    async def test_names_that_look_like_options_are_branches(self, forge: RefreshScenario) -> None:
        oid = forge.commit("feature")
        git(forge.path(), "update-ref", "refs/heads/--output=x", oid)

        assert (await forge.create_merge_request("--output=x")).head_oid == oid

    async def test_file_names_that_are_no_utf8_are_shown(self, forge: RefreshScenario) -> None:
        path = forge.path()
        blob = git(path, "hash-object", "-w", "--stdin", stdin=b"x\n")
        tree = git(path, "mktree", "-z", stdin=b"100644 blob " + blob.encode() + b"\tna\xffme\0")
        head = forge.head("master")
        assert head is not None
        git(path, "update-ref", "refs/heads/odd", git(path, "commit-tree", tree, "-p", head, "-m", "Odd"))

        row = await forge.create_merge_request("odd")

        assert "na\ufffdme" in [entry.new_path for entry in await forge.changes(row)]

    async def test_a_repository_that_cannot_be_read_is_unavailable(self, forge: RefreshScenario) -> None:
        row = await forge.create_merge_request("topic", is_refreshed=False)
        forge.services.repositories.remove(forge.project.id)

        with pytest.raises(Unavailable):
            await forge.compare(row)

    async def test_a_git_timeout_is_not_mergeable(self, forge: RefreshScenario, monkeypatch: pytest.MonkeyPatch) -> None:
        def slow(*_: object) -> None:
            raise git_command.GitCommandError("took more than 10 s")

        monkeypatch.setattr("graph.rules.merge_requests.branch_comparison.merge_preview.preview_merge", slow)
        comparison = await forge.compare(await forge.create_merge_request("topic", is_refreshed=False))

        assert (comparison.merge_status, comparison.is_complete) == (MergeStatus.CANNOT_BE_MERGED, False)

    async def test_issues_closed_by_its_commits_are_stored(self, forge: RefreshScenario) -> None:
        issue = await forge.make.issue(forge.project)
        forge.commit("feature", message=f"Fixes #{issue.iid}")
        await forge.make.save(forge.project)

        await forge.create_merge_request("feature")

        assert await forge.make.count(tables.MergeRequest) == 1
        async with forge.services.database.read_session() as session:
            assert await session.scalar(text("SELECT count(*) FROM closings")) == 1


class TestSourcePush:
    async def test_notes_new_commits_as_the_pusher(self, forge: RefreshScenario) -> None:
        forge.commit("feature", message="First")
        row = await forge.create_merge_request("feature")
        other = await forge.make.user()
        await forge.make.member(forge.project, other, AccessLevel.DEVELOPER)
        old = forge.head("feature")
        second, third = (forge.commit("feature", message=message) for message in ("Second", "Third"))

        await forge.record_push(RefCommand("refs/heads/feature", old, third), by=other)

        now = await forge.reload(row)
        assert (now.head_oid, now.commit_count, now.merge_status) == (third, 3, MergeStatus.CAN_BE_MERGED)
        assert await forge.notes(row) == [(f"Added 2 commits:\n\n* {second[:8]} - Second\n* {third[:8]} - Third", other.id)]
        assert git(forge.path(), "rev-parse", f"refs/merge-requests/{row.iid}/head") == third

    async def test_a_note_about_many_commits_is_short(self, forge: RefreshScenario, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(merge_preview, "MAX_LOADED_COMMITS", 2)
        row = await forge.create_merge_request("topic")
        old = forge.head("topic")
        new = ""
        for number in range(5):
            parent = new or old
            new = git(forge.path(), "commit-tree", "master^{tree}", "-p", str(parent), "-m", f"Change {number}")
        await forge.push("topic", new)

        ((body, _),) = await forge.notes(row)
        assert body.startswith("Added 5 commits:\n\n* and 3 more\n* ") and body.endswith(f"{new[:8]} - Change 4")

    async def test_a_rewritten_branch_and_one_that_goes_back(self, forge: RefreshScenario) -> None:
        first = forge.commit("feature", message="First")
        row = await forge.create_merge_request("feature")
        fresh = git(forge.path(), "commit-tree", "master^{tree}", "-p", "master", "-m", "Instead")

        await forge.push("feature", fresh)
        assert await forge.commits(row) == [fresh]
        await forge.push("feature", forge.head("master"))

        now = await forge.reload(row)
        assert (now.state, now.commit_count, await forge.commits(row)) == (MergeRequestState.OPENED, 0, [])
        assert [body for body, _ in await forge.notes(row)] == [f"Added 1 commit:\n\n* {fresh[:8]} - Instead"]
        assert first not in await forge.commits(row)

    async def test_one_without_commits_cannot_be_merged_and_has_no_conflicts(self, forge: RefreshScenario) -> None:
        git(forge.path(), "branch", "old", "master~1")
        row = await forge.create_merge_request("old")
        assert (row.merge_status, row.commit_count) == (MergeStatus.CANNOT_BE_MERGED, 0)
        assert not MergeRequestSnapshot.of(row).has_conflicts
        changes = await forge.make.count(tables.Change)

        await forge.push_branch("master")
        await forge.refresh_unchecked()

        now = await forge.reload(row)
        assert (now.state, now.merge_status) == (MergeRequestState.OPENED, MergeStatus.CANNOT_BE_MERGED)
        assert await forge.make.count(tables.Change) == changes

        await forge.push_branch("old")
        assert (await forge.reload(row)).merge_status is MergeStatus.CAN_BE_MERGED

    async def test_cancels_the_automatic_merge_without_a_note(self, forge: RefreshScenario) -> None:
        waiting = {"merge_when_build_succeeds": True, "merge_params": {"a": 1}, "merge_user_id": forge.developer.id}
        row = await forge.create_merge_request("topic", **waiting)
        forge.commit("topic")

        await forge.push("topic", forge.head("topic"))

        now = await forge.reload(row)
        assert (now.merge_when_build_succeeds, now.merge_params, now.merge_user_id) == (False, None, None)
        assert all("automatic" not in body for body, _ in await forge.notes(row))

    async def test_a_push_to_a_fork_refreshes_the_target(self, forge: RefreshScenario) -> None:
        fork = await forge.fork()
        row = await forge.create_merge_request("topic", source=fork)

        oid = await forge.push_branch("topic", fork)

        now = await forge.reload(row)
        assert (now.head_oid, now.merge_status) == (oid, MergeStatus.CAN_BE_MERGED)

    async def test_a_deleted_branch_loses_nothing_and_can_come_back(self, forge: RefreshScenario) -> None:
        row = await forge.create_merge_request("topic")
        head = forge.head("topic")

        await forge.push("topic", None)
        missing = await forge.reload(row)
        assert (missing.state, missing.merge_status) == (MergeRequestState.OPENED, MergeStatus.UNCHECKED)
        await forge.run_jobs()
        git(forge.path(), "gc", "--quiet", "--prune=now")

        missing = await forge.reload(row)
        assert (missing.merge_status, missing.head_oid, missing.commit_count) == (MergeStatus.CANNOT_BE_MERGED, head, row.commit_count)
        assert len(await forge.changes(missing)) > 0
        await forge.push("topic", head)
        assert (await forge.reload(row)).merge_status is MergeStatus.CAN_BE_MERGED
        assert await forge.notes(row) == []

    async def test_a_deleted_fork_loses_nothing(self, forge: RefreshScenario) -> None:
        fork = await forge.fork()
        row = await forge.create_merge_request("topic", source=fork)
        async with forge.services.database.write_session() as session:
            await session.delete(await session.get(tables.Project, fork.id))
            await session.commit()
        forge.services.repositories.remove(fork.id)

        await forge.push_branch("master")
        await forge.run_jobs()

        now = await forge.reload(row)
        assert (now.state, now.merge_status) == (MergeRequestState.OPENED, MergeStatus.CANNOT_BE_MERGED)
        assert len(await forge.changes(now)) > 0


class TestTargetPush:
    async def test_is_unchecked_until_the_maintenance_job_ran(self, forge: RefreshScenario) -> None:
        forge.commit("feature", same=b"mine\n")
        row = await forge.create_merge_request("feature")

        await forge.push_branch("master", same=b"theirs\n")

        assert (await forge.reload(row)).merge_status is MergeStatus.UNCHECKED
        await forge.run_jobs()
        assert (await forge.reload(row)).merge_status is MergeStatus.CANNOT_BE_MERGED

    async def test_other_branches_and_closed_ones_are_unchanged(self, forge: RefreshScenario) -> None:
        closed = await forge.create_merge_request("topic", state=MergeRequestState.CLOSED)
        other = await forge.create_merge_request(
            "topic", target_branch="release", is_refreshed=False, merge_status=MergeStatus.CAN_BE_MERGED
        )

        await forge.push_branch("master")

        assert (await forge.reload(closed)).merge_status is MergeStatus.CAN_BE_MERGED
        assert (await forge.reload(other)).merge_status is MergeStatus.CAN_BE_MERGED

    async def test_a_deleted_target_cannot_be_merged_into(self, forge: RefreshScenario) -> None:
        git(forge.path(), "update-ref", "refs/heads/release", "master")
        row = await forge.create_merge_request("topic", target_branch="release")

        await forge.push("release", None)
        await forge.run_jobs()

        now = await forge.reload(row)
        assert (now.merge_status, now.head_oid) == (MergeStatus.CANNOT_BE_MERGED, row.head_oid)

    @pytest.mark.parametrize("method", ["merge", "fast-forward", "and deletes the source", "from a fork"])
    async def test_a_manual_merge_marks_it_merged(self, forge: RefreshScenario, method: str) -> None:
        source = await forge.fork() if method == "from a fork" else None
        row = await forge.create_merge_request("topic", source=source)
        head, master = str(row.head_oid), str(forge.head("master"))
        merge = git(forge.path(), "commit-tree", f"{head}^{{tree}}", "-p", master, "-p", head, "-m", "By hand")
        new = head if method == "fast-forward" else git(forge.path(), "commit-tree", f"{head}^{{tree}}", "-p", merge, "-m", "And more")
        other = await forge.make.user()
        updates = [RefCommand("refs/heads/master", master, new)]
        git(forge.path(), "update-ref", "refs/heads/master", new)
        if method == "and deletes the source":
            git(forge.path(), "update-ref", "-d", "refs/heads/topic")
            updates.append(RefCommand("refs/heads/topic", head, None))

        await forge.record_push(*updates, by=other)

        now = await forge.reload(row)
        assert (now.state, now.merge_user_id, now.head_oid) == (MergeRequestState.MERGED, other.id, head)
        assert now.merge_commit_oid == (head if method == "fast-forward" else merge)
        assert now.merged_at is not None
        assert await forge.notes(row) == [("Status changed to merged", other.id)]
        assert await forge.commits(row) == await forge.commits(await forge.reload(row)) != []
        await forge.run_jobs()
        assert len(await forge.notes(row)) == 1

    async def test_one_push_can_add_and_merge_commits(self, forge: RefreshScenario) -> None:
        row = await forge.create_merge_request("topic")
        old, master = str(row.head_oid), str(forge.head("master"))
        head = forge.commit("topic", message="Last")
        merge = git(forge.path(), "commit-tree", f"{head}^{{tree}}", "-p", master, "-p", head, "-m", "By hand")
        git(forge.path(), "update-ref", "refs/heads/master", merge)

        await forge.record_push(RefCommand("refs/heads/topic", old, head), RefCommand("refs/heads/master", master, merge))

        now = await forge.reload(row)
        assert (now.state, now.head_oid, now.merge_commit_oid) == (MergeRequestState.MERGED, head, merge)
        assert (await forge.commits(row))[0] == head and len(await forge.commits(row)) == 3

    async def test_the_maintenance_job_finds_a_merge_lost_in_a_crash(self, forge: RefreshScenario) -> None:
        row = await forge.create_merge_request("topic")
        git(forge.path(), "update-ref", "refs/heads/master", str(row.head_oid))
        await self._unchecked(forge, row)

        await forge.run_jobs()

        now = await forge.reload(row)
        assert (now.state, now.merge_commit_oid, now.merge_user_id) == (MergeRequestState.MERGED, row.head_oid, None)

    async def test_a_manual_merge_closes_issues(self, forge: RefreshScenario) -> None:
        issue = await forge.make.issue(forge.project)
        head = forge.commit("feature", message=f"Closes #{issue.iid}")
        row = await forge.create_merge_request("feature")
        master = await forge.make.user()
        await forge.make.member(forge.project, master, AccessLevel.MASTER)

        await forge.push("master", head, by=master)

        assert (await forge.reload(row)).state is MergeRequestState.MERGED
        found = await forge.make.fetch(tables.Issue, issue.id)
        assert found is not None and found.state is tables.IssueState.CLOSED

    async def _unchecked(self, forge: RefreshScenario, row: tables.MergeRequest) -> None:
        async with forge.services.database.write_session() as session:
            await session.execute(update(tables.MergeRequest).values(merge_status=MergeStatus.UNCHECKED))
            await session.commit()


class TestMaintenanceJob:
    async def test_discards_outdated_results(self, forge: RefreshScenario, monkeypatch: pytest.MonkeyPatch) -> None:
        row = await forge.create_merge_request("topic", is_refreshed=False)
        compare = branch_comparison.compare_branches

        async def overtaken(*args: Any, **settings: Any) -> branch_comparison.BranchComparison:
            found = await compare(*args, **settings)
            forge.commit("topic")
            await take_over(forge.services)
            return found

        monkeypatch.setattr(branch_comparison, "compare_branches", overtaken)
        await forge.refresh_unchecked()
        assert ((await forge.reload(row)).merge_status, (await forge.reload(row)).head_oid) == (MergeStatus.UNCHECKED, None)
        monkeypatch.setattr(branch_comparison, "compare_branches", compare)
        await forge.refresh_unchecked()
        assert (await forge.reload(row)).head_oid == forge.head("topic")

    @pytest.mark.parametrize("change", [{"target_branch": "other"}, {"state": MergeRequestState.CLOSED}])
    async def test_writes_nothing_of_one_that_changed_meanwhile(
        self, forge: RefreshScenario, monkeypatch: pytest.MonkeyPatch, change: dict[str, Any]
    ) -> None:
        row = await forge.create_merge_request("topic", is_refreshed=False)
        compare = branch_comparison.compare_branches

        async def overtaken(services: Services, **settings: Any) -> branch_comparison.BranchComparison:
            found = await compare(services, **settings)
            async with services.database.write_session() as session:
                await session.execute(update(tables.MergeRequest).values(**change))
                await session.commit()
            return found

        monkeypatch.setattr(branch_comparison, "compare_branches", overtaken)
        await forge.refresh_unchecked()

        assert (await forge.reload(row)).merge_status is MergeStatus.UNCHECKED

    async def test_backs_off_after_read_failures(self, forge: RefreshScenario, monkeypatch: pytest.MonkeyPatch) -> None:
        row = await forge.create_merge_request("topic", is_refreshed=False)
        forge.services.repositories.path_of(forge.project.id).rename(forge.path().with_suffix(".away"))
        tried: list[int] = []
        compare = branch_comparison.compare_branches

        async def counted(*args: Any, **settings: Any) -> branch_comparison.BranchComparison:
            tried.append(row.id)
            return await compare(*args, **settings)

        monkeypatch.setattr(branch_comparison, "compare_branches", counted)
        for _ in range(3):
            await forge.refresh_unchecked()

        assert tried == [row.id]
        assert (await forge.reload(row)).merge_status is MergeStatus.UNCHECKED

    async def test_an_unexpected_error_of_one_is_no_obstacle_for_the_others(
        self, forge: RefreshScenario, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        rows = [await forge.create_merge_request("topic", is_refreshed=False, target_branch=f"b{number}") for number in range(2)]
        compare = branch_comparison.compare_branches

        async def compare_second(*args: Any, **settings: Any) -> branch_comparison.BranchComparison:
            if settings["target_branch"] == "b0":
                raise ValueError("what nobody thought of")
            return await compare(*args, **settings)

        monkeypatch.setattr(branch_comparison, "compare_branches", compare_second)
        await forge.refresh_unchecked()
        assert [(await forge.reload(row)).merge_status is MergeStatus.UNCHECKED for row in rows] == [True, False]

    async def test_continues_after_the_other_jobs(self, forge: RefreshScenario, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(merge_request_refresh, "MAX_REFRESHED_PER_RUN", 2)
        rows = [await forge.create_merge_request("topic", is_refreshed=False, target_branch=f"b{number}") for number in range(3)]

        await forge.refresh_unchecked()

        left = [row.id for row in rows if (await forge.reload(row)).merge_status is MergeStatus.UNCHECKED]
        assert left == [rows[2].id]
        async with asyncio.timeout(30):
            await forge.services.maintenance_wakeup.wait(60)

    async def test_many_at_once_do_no_harm(self, forge: RefreshScenario) -> None:
        forge.commit("feature")
        row = await forge.create_merge_request("feature")
        forge.commit("feature", message="More")
        async with forge.services.database.write_session() as session:
            await session.execute(update(tables.MergeRequest).values(merge_status=MergeStatus.UNCHECKED))
            await session.commit()

        await asyncio.gather(*(forge.refresh_unchecked() for _ in range(4)))

        assert (await forge.reload(row)).commit_count == 2
        assert len(await forge.notes(row)) == 1
        assert len(await forge.commits(row)) == 2


class TestCost:
    async def test_marking_one_and_thirty_costs_the_same(self, forge: RefreshScenario, statements: StatementRecorder) -> None:
        async def cost(names: Sequence[str]) -> int:
            async with acting(forge.services, forge.developer) as context:
                with statements.record() as seen:
                    await moved_branches._mark_unchecked(context, forge.project, [*names, "master"])
            return len(seen)

        await forge.create_merge_request("b0", is_refreshed=False)
        one = await cost(["b0"])
        for number in range(1, 30):
            await forge.create_merge_request(f"b{number}", is_refreshed=False)

        assert await cost([f"b{number}" for number in range(30)]) == one == 3

    async def test_pushes_with_two_and_eight_merge_requests_cost_the_same(
        self, forge: RefreshScenario, make: DataFactory, statements: StatementRecorder
    ) -> None:
        """Those from a pushed branch get new commits, those into a pushed branch are merged by it."""
        await make.save(tables.Hook(url="http://hooks.example/", push_events=False, merge_requests_events=True))
        costs = []
        for run, count in enumerate((1, 2, 8)):  # the first one fills caches
            names = [f"{run}-{number}" for number in range(count)]
            source = f"from-{run}"
            await forge.push_branch(source)
            for name in names:
                await forge.push_branch(name)
            outgoing = [await forge.create_merge_request(source, target_branch=name) for name in names]
            incoming = [await forge.create_merge_request(name) for name in names]
            old, new = forge.head(source), forge.commit(source, message="Fixes #1 and a/b#2")
            with statements.record() as pushed:
                await forge.record_push(RefCommand(f"refs/heads/{source}", old, new))
            assert [(row.head_oid, row.commit_count) for row in [await forge.reload(row) for row in outgoing]] == [(new, 2)] * count
            assert [len(await forge.notes(row)) for row in outgoing] == [1] * count
            old, heads = str(forge.head("master")), [str(forge.head(name)) for name in names]
            new = git(forge.path(), "commit-tree", "-m", "All", f"{old}^{{tree}}", *(part for oid in (old, *heads) for part in ("-p", oid)))
            git(forge.path(), "update-ref", "refs/heads/master", new)
            with statements.record() as merged:
                await forge.record_push(RefCommand("refs/heads/master", old, new))
            assert {(await forge.reload(row)).state for row in incoming} == {MergeRequestState.MERGED}
            costs.append((len(pushed), len(merged)))
        # A cache may expire in between; six more merge requests would cost more than that.
        assert all(many <= few + 2 for few, many in zip(costs[1], costs[2], strict=True))

    async def test_a_push_of_very_many_branches_marks_all(self, forge: RefreshScenario) -> None:
        row = await forge.create_merge_request("topic")
        async with acting(forge.services, forge.developer) as context:
            await moved_branches._mark_unchecked(context, forge.project, [f"b{number}" for number in range(1001)])
            await context.session.commit()

        assert (await forge.reload(row)).merge_status is MergeStatus.UNCHECKED


async def test_keep_refs_cannot_be_pushed(forge: RefreshScenario) -> None:
    row = await forge.create_merge_request("topic")
    granted = RepositoryGrant(forge.project.id, forge.path(), forge.developer.id)
    updates = [RefCommand(f"refs/merge-requests/{row.iid}/head", row.head_oid, new) for new in (None, "1" * 40)]

    decisions = await GitAccess(forge.services).authorize_updates(granted, updates, "test")

    assert [decision.rule for decision in decisions] == [PushRule.REJECT, PushRule.REJECT]


async def test_the_diffs_of_one_operation_share_a_limit(forge: RefreshScenario, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commits._CommitDiffReader.__init__, "__defaults__", (10,))
    first = await forge.create_merge_request("topic")
    forge.commit("feature")
    second = await forge.create_merge_request("feature")
    async with acting(forge.services, forge.developer) as context:
        await branch_comparison.load_changes(context, first)
        with pytest.raises(LimitExceeded):
            await branch_comparison.load_changes(context, second)
