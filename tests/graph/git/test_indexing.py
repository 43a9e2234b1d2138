"""The index of commits and branch heads: a push is indexed in chunks, once, whatever the commits contain."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import pytest
from sqlalchemy import select
from sqlmodel import col

from graph.git_access import GitAccess, RepositoryGrant
from graph.rules.git import commit_index, indexed_commits
from graph.rules.git.commit_index import RefUpdate
from storage import tables
from storage.database.writers import DatabaseBusy
from storage.git.history import commit_walk as reading
from storage.git.protocol.push import RefCommand
from storage.git.repository import NotARepository
from storage.tables.git import refs
from tests.make import DataFactory
from tests.support.api_clients import Ask
from tests.support.database.statements import StatementRecorder
from tests.support.git.git_history import commit_to_branch, git, write_commit
from tests.support.git.repositories import push as push_refs

CREATE = "mutation ($input: CreateBranchInput!) { createBranch(input: $input) { branch { name } userErrors { field code } } }"
DELETE = "mutation ($input: DeleteBranchInput!) { deleteBranch(input: $input) { branch { name } userErrors { field code } } }"
IMPORT = "mutation ($input: CreateProjectInput!) { createProject(input: $input) { project { databaseId } userErrors { field code } } }"
LIST = "query ($path: String!) { project(path: $path) { branches(first: 100) { nodes { name } } } }"
ONE = "query ($path: String!, $name: String!) { project(path: $path) { branch(name: $name) { name } } }"
EMPTY_TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"

Push = Callable[..., Awaitable[None]]


@pytest.fixture
async def project(make: DataFactory) -> tables.Project:
    return await make.indexed(await make.project(history={"commits": 8}, visibility=tables.Visibility.PUBLIC))


@pytest.fixture
def push(make: DataFactory) -> Push:
    """Records refs that have moved, as the git endpoints do."""

    async def push(project: tables.Project, *updates: RefCommand) -> None:
        granted = RepositoryGrant(project.id, path_of(make, project), project.creator_id)
        await push_refs(make.services, granted, list(updates), "test")

    return push


def path_of(make: DataFactory, project: tables.Project) -> Path:
    return make.services.repositories.path_of(project.id)


def branch_head(make: DataFactory, project: tables.Project, name: str) -> str:
    return git(path_of(make, project), "rev-parse", "--verify", name)


async def indexed_rows(make: DataFactory, project: tables.Project) -> dict[str, tables.Commit]:
    async with make.services.database.read_session() as session:
        found = await session.scalars(select(tables.Commit).where(col(tables.Commit.project_id) == project.id))
        return {row.oid: row for row in found}


async def heads(make: DataFactory, project: tables.Project) -> dict[str, str]:
    async with make.services.database.read_session() as session:
        return {name.removeprefix("refs/heads/"): oid for name, oid in await session.read(refs.indexed_heads(project.id))}


def listed(make: DataFactory, project: tables.Project, *tips: str) -> set[str]:
    return set(git(path_of(make, project), "rev-list", *(tips or ("--branches",))).split())


async def index_updates(make: DataFactory, project: tables.Project, *updates: RefCommand) -> list[RefUpdate]:
    found, _ = await commit_index.index_updates(make.services, project.id, list(updates))
    return found


def commit_and_index(make: DataFactory, project: tables.Project, branch: str = "master", **settings: Any) -> RefCommand:
    old = branch_head(make, project, f"refs/heads/{branch}")
    return RefCommand(f"refs/heads/{branch}", old, commit_to_branch(path_of(make, project), branch, {"new": b"new\n"}, **settings))


class TestPushes:
    async def test_pushed_commits_are_indexed_as_git_lists_them(self, make: DataFactory, project: tables.Project, push: Push) -> None:
        update = commit_and_index(make, project, message="A title\n\nA body")
        await push(project, update)
        assert (await indexed_rows(make, project)).keys() == listed(make, project)
        assert await heads(make, project) == {"master": update.new, "topic": branch_head(make, project, "topic")}
        row = (await indexed_rows(make, project))[str(update.new)]
        commit = await make.services.repositories.read(project.id, lambda repository: repository.commit(str(update.new)))
        assert (row.title, row.first_parent, row.parents) == ("A title", update.old, [update.old])
        assert (row.author_name, row.author_email, row.authored_at) == (commit.author_name, commit.author_email, commit.authored_at)
        assert (row.committer_name, row.committed_at, row.committed_offset) == (commit.committer_name, commit.committed_at, 0)

    async def test_indexing_twice_changes_nothing(self, make: DataFactory, project: tables.Project, push: Push) -> None:
        update = commit_and_index(make, project)
        await push(project, update)
        before = await indexed_rows(make, project)
        await push(project, update)
        assert {oid: row.id for oid, row in (await indexed_rows(make, project)).items()} == {oid: row.id for oid, row in before.items()}

    async def test_a_new_and_a_deleted_branch(self, make: DataFactory, project: tables.Project, push: Push) -> None:
        folder, topic = path_of(make, project), branch_head(make, project, "topic")
        git(folder, "branch", "-D", "topic")
        git(folder, "branch", "other", "master")
        await push(
            project, RefCommand("refs/heads/topic", topic, None), RefCommand("refs/heads/other", None, branch_head(make, project, "other"))
        )
        assert await heads(make, project) == {"master": branch_head(make, project, "master"), "other": branch_head(make, project, "master")}

    async def test_records_branch_moves(self, make: DataFactory, project: tables.Project, push: Push) -> None:
        first, topic = branch_head(make, project, "master"), branch_head(make, project, "topic")
        update = commit_and_index(make, project)
        git(path_of(make, project), "branch", "-D", "topic")
        await push(project, update, RefCommand("refs/heads/topic", topic, None))
        async with make.services.database.read_session() as session:
            moves = list(await session.read(select(tables.BranchMove).order_by(col(tables.BranchMove.id))))
        assert {(row.name, row.oid) for (row,) in moves[:2]} == {("master", first), ("topic", topic)}
        assert [(row.name, row.oid) for (row,) in moves[2:]] == [("master", update.new), ("topic", None)]
        assert moves[0][0].moved_at < moves[2][0].moved_at

    async def test_a_move_from_another_value_is_refused(self, make: DataFactory, project: tables.Project, push: Push) -> None:
        first, second = commit_and_index(make, project), commit_and_index(make, project)
        await push(project, first)
        grant = RepositoryGrant(project.id, path_of(make, project), project.creator_id)
        (reason,) = await GitAccess(make.services).move_refs(grant, [replace(second, old=first.old)], "test", atomic=False)
        assert reason is not None and "has moved" in reason
        assert (await heads(make, project))["master"] == first.new

    async def test_hostile_names(self, make: DataFactory, project: tables.Project) -> None:
        oid, long = branch_head(make, project, "master"), "/".join(["ü" * 63 + "x"] * 2)
        names = [long, "a" * 40, "--output=x", "@{-1", "x" * 256, "bad\udcff", "/".join(["y" * 127] * 3), "master/x", f"{long}/x"]
        grant = RepositoryGrant(project.id, path_of(make, project), project.creator_id)
        updates = [RefCommand(f"refs/heads/{name}", None, oid) for name in names]
        reasons = await GitAccess(make.services).move_refs(grant, updates[:-1], "test", atomic=False)
        assert [reason is None for reason in reasons] == [True] + [False] * (len(names) - 2)
        assert (await GitAccess(make.services).move_refs(grant, updates[-1:], "test", atomic=False))[0] is not None
        assert (await heads(make, project)).keys() == {"master", "topic", long}

    async def test_atomic_is_all_or_nothing(self, make: DataFactory, project: tables.Project) -> None:
        master, topic = branch_head(make, project, "master"), branch_head(make, project, "topic")
        grant = RepositoryGrant(project.id, path_of(make, project), project.creator_id)
        good, bad = RefCommand("refs/heads/new", None, master), RefCommand("refs/heads/topic", master, None)
        for updates in ([good, bad], [bad, good], [good, RefCommand("refs/heads/new/x", None, topic)]):
            assert None not in await GitAccess(make.services).move_refs(grant, updates, "test", atomic=True)
            assert (await heads(make, project)).keys() == {"master", "topic"}
        assert await GitAccess(make.services).move_refs(grant, [good, bad], "test", atomic=False) == [None, ANY]
        assert (await heads(make, project)).keys() == {"master", "topic", "new"}

    async def test_tags_are_not_indexed(self, make: DataFactory, project: tables.Project, push: Push) -> None:
        update = RefCommand("refs/tags/v9", None, branch_head(make, project, "master"))
        assert await index_updates(make, project, update) == [RefUpdate(update)]
        await push(project, update)
        assert (await heads(make, project)).keys() == {"master", "topic"}


class TestHostileCommits:
    @pytest.mark.parametrize(
        ("author", "message"),
        [
            (b"\xff\xfe <\xfa@x> 1400000000 +0100", b"bad \xff\xfe title"),
            (b"A <a> 253402300799 -1200", b"year 9999, and 10000 in UTC"),
            (b"A <a> 99999999999999999999 +0000", b"no year at all"),
            (b"A <a> 1400000000 +2359", b"far east"),
            (b"A <a> 1400000000 +9999", b"no zone"),
            (b" <> 0 +0000", b""),
            (b"A" * 5000 + b" <" + b"a" * 5000 + b"> 0 -2359", b"t" * 5000),
            (b"A", b"no date\0after a NUL"),
        ],
    )
    async def test_are_stored_as_data(self, make: DataFactory, project: tables.Project, push: Push, author: bytes, message: bytes) -> None:
        folder, old = path_of(make, project), branch_head(make, project, "master")
        git(folder, "hash-object", "-t", "tree", "-w", "--stdin")
        head = f"tree {EMPTY_TREE}\nparent {old}\n".encode()
        oid = write_commit(folder, head + b"author " + author + b"\ncommitter " + author + b"\n\n" + message)
        git(folder, "update-ref", "refs/heads/master", oid)
        await push(project, RefCommand("refs/heads/master", old, oid))
        row = (await indexed_rows(make, project))[oid]
        commit = await make.services.repositories.read(project.id, lambda repository: repository.commit(oid))
        assert (await heads(make, project))["master"] == oid
        assert row.title == commit.title
        assert row.author_name == commit.author_name[:1000]
        assert row.authored_at in (commit.authored_at, datetime.max.replace(tzinfo=UTC))
        assert commit.authored_at.utcoffset() is not None and row.authored_offset * 60 == commit.authored_at.utcoffset().total_seconds()  # type: ignore[union-attr]


class TestChunks:
    async def test_an_interrupted_indexing_resumes(self, make: DataFactory, push: Push, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(reading, "MAX_CHUNK_COMMITS", 10)
        monkeypatch.setattr(commit_index, "MAX_DEFERRED_COMMITS", 0)
        project, write, left = await make.project(history={"commits": 60}), indexed_commits.write_missing_commits, [3]

        async def dying(*arguments: Any) -> None:
            left[0] -= 1
            if left[0] < 0:
                raise DatabaseBusy
            await write(*arguments)

        monkeypatch.setattr(indexed_commits, "write_missing_commits", dying)
        updates = [RefCommand(f"refs/heads/{name}", None, branch_head(make, project, name)) for name in ("master", "topic")]
        with pytest.raises(DatabaseBusy):
            await push(project, *updates)
        assert (len(await indexed_rows(make, project)), await heads(make, project)) == (30, {})
        left[0] = 100
        await push(project, *updates)
        assert (await indexed_rows(make, project)).keys() == listed(make, project)
        assert (await heads(make, project)).keys() == {"master", "topic"}

    async def test_a_first_push_of_thousands_writes_a_chunk_at_a_time(
        self, make: DataFactory, push: Push, statements: StatementRecorder, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(reading, "MAX_CHUNK_COMMITS", 200)
        project = await make.project(history={"commits": 1000, "merges_every": 0})
        update = RefCommand("refs/heads/master", None, branch_head(make, project, "master"))
        await push(project, RefCommand("refs/heads/topic", None, branch_head(make, project, "topic")))
        written: list[str] = []
        with statements.record() as few:
            await push(project, commit_and_index(make, project, "topic"))
        with statements.record() as many:

            async def others() -> None:
                while True:
                    await make.save(tables.ProtectedBranch(project_id=project.id, name=f"x{len(written)}"))
                    written.append("")
                    await asyncio.sleep(0.001)

            task = asyncio.create_task(others())
            await push(project, update)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        assert (await indexed_rows(make, project)).keys() == listed(make, project)
        # Between the chunks, rather than after the last one.
        assert len(written) > 3
        inserts = [statement for statement in many if "INTO commits" in statement]
        assert len(inserts) <= 5
        assert len(many) - len(written) <= len(few) + 3 * 6

    async def test_progress_is_reported(self, make: DataFactory, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(reading, "MAX_CHUNK_COMMITS", 10)
        project, seen = await make.project(history={"commits": 42}), []
        object.__setattr__(make.services, "progress", lambda *step: seen.append(step))
        await index_updates(make, project, RefCommand("refs/heads/master", None, branch_head(make, project, "master")))
        assert seen[:5] == [("indexing commits", done, 42) for done in (10, 20, 30, 40, 42)]


class TestRefUpdates:
    async def test_lists_the_new_commits_of_a_moved_branch(self, make: DataFactory, project: tables.Project) -> None:
        old = branch_head(make, project, "master")
        first, last = commit_and_index(make, project, message="Fixes #3"), commit_and_index(make, project, message="Plain")
        (updates,) = await index_updates(make, project, RefCommand("refs/heads/master", old, last.new))
        assert (updates.total, [commit.oid for commit in updates.commits]) == (2, [last.new, first.new])
        assert ([commit.oid for commit in updates.mentioning], updates.is_new) == ([first.new], False)

    async def test_includes_commits_merged_from_other_branches(self, make: DataFactory, project: tables.Project) -> None:
        old, new = branch_head(make, project, "master"), commit_and_index(make, project, "topic", message="See http://x/1")
        await index_updates(make, project, new)
        (updates,) = await index_updates(make, project, RefCommand("refs/heads/master", old, new.new))
        assert updates.total == len(listed(make, project, "topic", "^master"))
        assert [commit.oid for commit in updates.mentioning] == [new.new]

    async def test_lists_only_unique_commits_of_a_new_branch(self, make: DataFactory, project: tables.Project) -> None:
        git(path_of(make, project), "branch", "b", "topic")
        update = commit_and_index(make, project, "b", message="Fixes #3")
        same, new = RefCommand("refs/heads/a", None, branch_head(make, project, "master")), RefCommand("refs/heads/b", None, update.new)
        missing = RefCommand("refs/heads/c", update.new, None)
        found = await index_updates(make, project, missing, same, new)
        assert [updates.update for updates in found] == [missing, same, new]
        assert [news.total for news in found] == [0, 0, 1]
        assert [news.mentioning for news in found] == [(), (), ()]
        assert [news.is_new for news in found] == [False, True, True]

    async def test_of_a_new_branch_between_two_known_heads(self, make: DataFactory, project: tables.Project, push: Push) -> None:
        """Its commits are a chain above one known head, and ancestors of another."""
        below = RefCommand("refs/heads/below", None, branch_head(make, project, "master"))
        first, last = commit_and_index(make, project), commit_and_index(make, project)
        await push(project, below, RefCommand("refs/heads/master", first.old, last.new))
        (updates,) = await index_updates(make, project, RefCommand("refs/heads/between", None, first.new))
        assert (updates.total, updates.commits) == (0, ())

    async def test_of_a_new_branch_below_a_head(
        self, make: DataFactory, project: tables.Project, push: Push, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Most branches begin at a commit of another that has moved on. No process walks the history for them."""
        path = path_of(make, project)
        git(path, "branch", "late", "master~3")
        new = [commit_and_index(make, project, "late", message=str(number)).new for number in range(2)]
        late = RefCommand("refs/heads/late", None, new[-1])
        monkeypatch.setattr(reading, "walk_new_commits", None)
        (updates,) = await index_updates(make, project, late)
        assert (updates.total, [commit.oid for commit in updates.commits]) == (2, new[::-1])
        (updates,) = await index_updates(make, project, RefCommand("refs/heads/same", None, git(path, "rev-parse", "master~2")))
        assert (updates.total, updates.commits) == (0, ())
        monkeypatch.undo()
        # The index still has the commits of a deleted branch, but no branch has them.
        await push(project, late)
        await push(project, RefCommand(late.ref, late.new, None))
        (updates,) = await index_updates(make, project, late)
        assert (updates.total, [commit.oid for commit in updates.commits]) == (2, new[::-1])

    async def test_is_bounded(self, make: DataFactory, project: tables.Project, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(commit_index, "MAX_LISTED_COMMITS", 2)
        monkeypatch.setattr(commit_index, "MAX_MENTIONING_COMMITS", 2)
        monkeypatch.setattr(commit_index, "MAX_REPORTED_BRANCHES", 1)
        monkeypatch.setattr(commit_index, "MAX_DEFERRED_COMMITS", 0)
        old = branch_head(make, project, "master")
        for number in range(4):
            last = commit_and_index(make, project, message=f"#{number}")
        other = commit_and_index(make, project, "topic")
        master, topic = await index_updates(make, project, RefCommand("refs/heads/master", old, last.new), other)
        assert (master.total, len(master.commits), len(master.mentioning)) == (4, 2, 2)
        assert (topic.total, topic.commits) == (0, ())
        assert str(other.new) in await indexed_rows(make, project)

    async def test_of_a_repository_without_an_index(self, make: DataFactory, push: Push) -> None:
        project = await make.project(history={"commits": 8})
        git(path_of(make, project), "branch", "made", "topic")
        updates = [commit_and_index(make, project), RefCommand("refs/heads/made", None, str(commit_and_index(make, project, "made").new))]
        assert [update.total for update in await index_updates(make, project, *updates)] == [1, 1]
        await push(project, *updates)
        assert (await indexed_rows(make, project)).keys() == listed(make, project)
        assert (await heads(make, project)).keys() == {"master", "topic", "made"}

    async def test_of_a_repository_that_cannot_be_read(self, make: DataFactory, project: tables.Project) -> None:
        update = commit_and_index(make, project)
        path = path_of(make, project)
        path.rename(path.with_suffix(".away"))
        with pytest.raises(NotARepository):
            await index_updates(make, project, update)
        grant = RepositoryGrant(project.id, path, project.creator_id)
        (reason,) = await GitAccess(make.services).move_refs(grant, [update], "test", atomic=False)
        assert reason is not None and "nothing was changed" in reason
        assert (await heads(make, project))["master"] == update.old


class TestMutations:
    async def test_creating_and_deleting_a_branch(self, make: DataFactory, project: tables.Project, ask: Ask) -> None:
        admin = await make.admin()
        oid = write_commit(path_of(make, project), git(path_of(make, project), "cat-file", "commit", "topic").encode() + b"\nAgain\n")
        place = {"projectPath": str(project.id), "name": "new"}
        await ask.data(CREATE, admin, input={**place, "ref": oid})
        assert (await heads(make, project))["new"] == oid
        assert (await indexed_rows(make, project)).keys() == listed(make, project)
        await ask.data(DELETE, admin, input=place)
        assert (await heads(make, project)).keys() == {"master", "topic"}

    async def test_an_import_is_indexed(self, make: DataFactory, ask: Ask) -> None:
        source = make.repository_with_history({"commits": 8})
        data = await ask.data(IMPORT, await make.admin(), input={"name": "Tools", "repositoryPath": str(source)})
        project = await make.fetch(tables.Project, data["createProject"]["project"]["databaseId"])
        assert project is not None
        assert (await indexed_rows(make, project)).keys() == listed(make, project)
        assert (await heads(make, project)).keys() == {"master", "topic"}
