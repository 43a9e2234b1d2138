"""The index of commits and branch heads: what a push brings gets there, in chunks, once, whatever the commits say."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select
from sqlmodel import col

from graph.git_access import GitAccess, Granted
from graph.rules import indexed_commits, indexing
from graph.rules.indexing import News
from storage import tables
from storage.git import indexing as reading
from storage.git.pushes import Update
from storage.tables import branches
from storage.writers import Busy
from tests.forge import Ask
from tests.history import git, grow, write_commit
from tests.make import Make
from tests.statements import Statements

CREATE = "mutation ($input: CreateBranchInput!) { createBranch(input: $input) { branch { name } userErrors { field code } } }"
DELETE = "mutation ($input: DeleteBranchInput!) { deleteBranch(input: $input) { branch { name } userErrors { field code } } }"
IMPORT = "mutation ($input: CreateProjectInput!) { createProject(input: $input) { project { databaseId } userErrors { field code } } }"
LIST = "query ($path: String!) { project(path: $path) { branches(first: 100) { nodes { name } } } }"
ONE = "query ($path: String!, $name: String!) { project(path: $path) { branch(name: $name) { name } } }"
EMPTY_TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"

Push = Callable[..., Awaitable[None]]


@pytest.fixture
async def project(make: Make) -> tables.Project:
    return await make.indexed(await make.project(history={"commits": 8}, visibility=tables.Visibility.PUBLIC))


@pytest.fixture
def push(make: Make) -> Push:
    """Records refs that have moved, as the git doors do."""

    async def push(project: tables.Project, *updates: Update) -> None:
        granted = Granted(project.id, path_of(make, project), project.creator_id)
        await GitAccess(make.services).pushed(granted, list(updates), "test")

    return push


def path_of(make: Make, project: tables.Project) -> Path:
    return make.services.repositories.path_of(project.id)


def at(make: Make, project: tables.Project, name: str) -> str:
    return git(path_of(make, project), "rev-parse", "--verify", name)


async def rows(make: Make, project: tables.Project) -> dict[str, tables.Commit]:
    async with make.services.database.reading() as session:
        found = await session.scalars(select(tables.Commit).where(col(tables.Commit.project_id) == project.id))
        return {row.oid: row for row in found}


async def heads(make: Make, project: tables.Project) -> dict[str, str]:
    async with make.services.database.reading() as session:
        return dict(await session.read(branches.heads(project.id)))


def listed(make: Make, project: tables.Project, *tips: str) -> set[str]:
    return set(git(path_of(make, project), "rev-list", *(tips or ("--branches",))).split())


async def told(make: Make, project: tables.Project, *updates: Update) -> list[News]:
    return await indexing.index(make.services, project.id, list(updates))


def grown(make: Make, project: tables.Project, branch: str = "master", **settings: Any) -> Update:
    old = at(make, project, f"refs/heads/{branch}")
    return Update(f"refs/heads/{branch}", old, grow(path_of(make, project), branch, {"new": b"new\n"}, **settings))


class TestPushing:
    async def test_what_comes_is_indexed_as_git_says_it(self, make: Make, project: tables.Project, push: Push) -> None:
        update = grown(make, project, message="A title\n\nA body")
        await push(project, update)
        assert (await rows(make, project)).keys() == listed(make, project)
        assert await heads(make, project) == {"master": update.new, "topic": at(make, project, "topic")}
        row = (await rows(make, project))[str(update.new)]
        commit = await make.services.repositories.read(project.id, lambda repository: repository.commit(str(update.new)))
        assert (row.title, row.first_parent, row.parents) == ("A title", update.old, [update.old])
        assert (row.author_name, row.author_email, row.authored_at) == (commit.author_name, commit.author_email, commit.authored_at)
        assert (row.committer_name, row.committed_at, row.committed_offset) == (commit.committer_name, commit.committed_at, 0)

    async def test_twice_is_once(self, make: Make, project: tables.Project, push: Push) -> None:
        update = grown(make, project)
        await push(project, update)
        before = await rows(make, project)
        await push(project, update)
        assert {oid: row.id for oid, row in (await rows(make, project)).items()} == {oid: row.id for oid, row in before.items()}

    async def test_a_new_and_a_deleted_branch(self, make: Make, project: tables.Project, push: Push) -> None:
        folder, topic = path_of(make, project), at(make, project, "topic")
        git(folder, "branch", "-D", "topic")
        git(folder, "branch", "other", "master")
        await push(project, Update("refs/heads/topic", topic, None), Update("refs/heads/other", None, at(make, project, "other")))
        assert await heads(make, project) == {"master": at(make, project, "master"), "other": at(make, project, "master")}

    async def test_writes_down_where_branches_were(self, make: Make, project: tables.Project, push: Push) -> None:
        first, topic = at(make, project, "master"), at(make, project, "topic")
        update = grown(make, project)
        git(path_of(make, project), "branch", "-D", "topic")
        for _ in range(2):
            await push(project, update, Update("refs/heads/topic", topic, None))
        async with make.services.database.reading() as session:
            moves = list(await session.read(select(tables.BranchMove).order_by(col(tables.BranchMove.id))))
        assert {(row.name, row.oid) for (row,) in moves[:2]} == {("master", first), ("topic", topic)}
        assert [(row.name, row.oid) for (row,) in moves[2:]] == [("master", update.new), ("topic", None)]
        assert moves[0][0].moved_at < moves[2][0].moved_at

    async def test_records_in_the_wrong_order_leave_the_later_head(self, make: Make, project: tables.Project, push: Push) -> None:
        first, second = grown(make, project), grown(make, project)
        await push(project, second)
        await push(project, first)
        assert (await heads(make, project))["master"] == second.new
        assert (await rows(make, project)).keys() == listed(make, project)

    async def test_hostile_names(self, make: Make, project: tables.Project, push: Push) -> None:
        oid, long = at(make, project, "master"), "/".join(["ü" * 63 + "x"] * 2)
        names = ["a" * 40, long, "--output=x", "@{-1", "x" * 255, "bad\udcff", "/".join(["y" * 127] * 3)]
        kept = ["a" * 40, long, "--output=x"]
        for name in kept:
            git(path_of(make, project), "update-ref", f"refs/heads/{name}", oid)
        await push(project, *(Update(f"refs/heads/{name}", None, oid) for name in names))
        assert (await heads(make, project)).keys() == {"master", "topic", *kept}

    async def test_tags_bring_nothing(self, make: Make, project: tables.Project, push: Push) -> None:
        update = Update("refs/tags/v9", None, at(make, project, "master"))
        assert await told(make, project, update) == [News(update)]
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
    async def test_are_data(self, make: Make, project: tables.Project, push: Push, author: bytes, message: bytes) -> None:
        folder, old = path_of(make, project), at(make, project, "master")
        git(folder, "hash-object", "-t", "tree", "-w", "--stdin")
        head = f"tree {EMPTY_TREE}\nparent {old}\n".encode()
        oid = write_commit(folder, head + b"author " + author + b"\ncommitter " + author + b"\n\n" + message)
        git(folder, "update-ref", "refs/heads/master", oid)
        await push(project, Update("refs/heads/master", old, oid))
        row = (await rows(make, project))[oid]
        commit = await make.services.repositories.read(project.id, lambda repository: repository.commit(oid))
        assert (await heads(make, project))["master"] == oid
        assert row.title == commit.title
        assert row.author_name == commit.author_name[:1000]
        assert row.authored_at in (commit.authored_at, datetime.max.replace(tzinfo=UTC))
        assert commit.authored_at.utcoffset() is not None and row.authored_offset * 60 == commit.authored_at.utcoffset().total_seconds()  # type: ignore[union-attr]


class TestChunks:
    async def test_a_killed_indexing_goes_on(self, make: Make, push: Push, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(reading, "CHUNK", 10)
        monkeypatch.setattr("graph.git_access.RECORDING_PAUSES", ())
        project, write, left = await make.project(history={"commits": 60}), indexed_commits.write, [3]

        async def dying(*arguments: Any) -> None:
            left[0] -= 1
            if left[0] < 0:
                raise Busy
            await write(*arguments)

        monkeypatch.setattr(indexed_commits, "write", dying)
        updates = [Update(f"refs/heads/{name}", None, at(make, project, name)) for name in ("master", "topic")]
        await push(project, *updates)
        assert (len(await rows(make, project)), await heads(make, project)) == (30, {})
        left[0] = 100
        await push(project, *updates)
        assert (await rows(make, project)).keys() == listed(make, project)
        assert (await heads(make, project)).keys() == {"master", "topic"}

    async def test_a_first_push_of_thousands_writes_a_chunk_at_a_time(self, make: Make, push: Push, statements: Statements) -> None:
        project = await make.project(history={"commits": 5000, "merges_every": 0})
        update = Update("refs/heads/master", None, at(make, project, "master"))
        await push(project, Update("refs/heads/topic", None, at(make, project, "topic")))
        written: list[str] = []
        with statements.counted() as few:
            await push(project, grown(make, project, "topic"))
        with statements.counted() as many:
            longest = 0.0

            async def others() -> None:
                nonlocal longest
                loop = asyncio.get_running_loop()
                while True:
                    before = loop.time()
                    await make.save(tables.ProtectedBranch(project_id=project.id, name=f"x{before}"))
                    longest = max(longest, loop.time() - before)
                    written.append("")
                    await asyncio.sleep(0.02)

            task = asyncio.create_task(others())
            await push(project, update)
            task.cancel()
        assert (await rows(make, project)).keys() == listed(make, project)
        assert len(written) > 3
        assert longest < 2.0
        inserts = [statement for statement in many if "INTO commits" in statement]
        assert len(inserts) <= 5
        assert len(many) - len(written) <= len(few) + 3 * 6

    async def test_progress_is_told(self, make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(reading, "CHUNK", 10)
        project, seen = await make.project(history={"commits": 42}), []
        object.__setattr__(make.services, "progress", lambda *step: seen.append(step))
        await told(make, project, Update("refs/heads/master", None, at(make, project, "master")))
        assert seen[:5] == [("indexing commits", done, 42) for done in (10, 20, 30, 40, 42)]


class TestNews:
    async def test_of_a_branch_that_moved_is_what_it_got(self, make: Make, project: tables.Project) -> None:
        old = at(make, project, "master")
        first, last = grown(make, project, message="Fixes #3"), grown(make, project, message="Plain")
        (news,) = await told(make, project, Update("refs/heads/master", old, last.new))
        assert (news.total, [commit.oid for commit in news.commits]) == (2, [last.new, first.new])
        assert ([commit.oid for commit in news.mentioning], news.is_new, news.indexed) == ([first.new], False, True)

    async def test_of_the_default_branch_tells_what_other_branches_had(self, make: Make, project: tables.Project) -> None:
        old, new = at(make, project, "master"), grown(make, project, "topic", message="See http://x/1")
        await told(make, project, new)
        (news,) = await told(make, project, Update("refs/heads/master", old, new.new))
        assert news.total == len(listed(make, project, "topic", "^master"))
        assert [commit.oid for commit in news.mentioning] == [new.new]

    async def test_of_a_new_branch_is_what_no_other_has(self, make: Make, project: tables.Project) -> None:
        git(path_of(make, project), "branch", "b", "topic")
        update = grown(make, project, "b", message="Fixes #3")
        same, new = Update("refs/heads/a", None, at(make, project, "master")), Update("refs/heads/b", None, update.new)
        gone = Update("refs/heads/c", update.new, None)
        found = await told(make, project, gone, same, new)
        assert [news.update for news in found] == [gone, same, new]
        assert [news.total for news in found] == [0, 0, 1]
        assert [news.mentioning for news in found] == [(), (), ()]
        assert [news.is_new for news in found] == [False, True, True]

    async def test_is_bounded(self, make: Make, project: tables.Project, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(indexing, "LARGEST_SHOWN", 2)
        monkeypatch.setattr(indexing, "MOST_MENTIONING", 2)
        monkeypatch.setattr(indexing, "MOST_TOLD", 1)
        old = at(make, project, "master")
        for number in range(4):
            last = grown(make, project, message=f"#{number}")
        other = grown(make, project, "topic")
        master, topic = await told(make, project, Update("refs/heads/master", old, last.new), other)
        assert (master.total, len(master.commits), len(master.mentioning)) == (4, 2, 2)
        assert (topic.total, topic.commits, topic.indexed) == (0, (), True)
        assert str(other.new) in await rows(make, project)

    async def test_of_a_repository_without_an_index(self, make: Make, push: Push) -> None:
        project = await make.project(history={"commits": 8})
        git(path_of(make, project), "branch", "made", "topic")
        updates = [grown(make, project), Update("refs/heads/made", None, str(grown(make, project, "made").new))]
        assert [(news.total, news.indexed) for news in await told(make, project, *updates)] == [(1, True), (1, True)]
        await push(project, *updates)
        assert (await rows(make, project)).keys() == listed(make, project)
        assert (await heads(make, project)).keys() == {"master", "topic", "made"}

    async def test_of_a_repository_that_cannot_be_read(self, make: Make, project: tables.Project, push: Push) -> None:
        update = grown(make, project)
        path = path_of(make, project)
        path.rename(path.with_suffix(".away"))
        assert await told(make, project, update) == [News(update)]
        await push(project, update)
        row = await make.fetch(tables.Project, project.id)
        assert row is not None and row.last_activity_at > project.last_activity_at


class TestMutations:
    async def test_creating_and_deleting_a_branch(self, make: Make, project: tables.Project, ask: Ask) -> None:
        admin = await make.admin()
        oid = write_commit(path_of(make, project), git(path_of(make, project), "cat-file", "commit", "topic").encode() + b"\nAgain\n")
        place = {"projectPath": str(project.id), "name": "new"}
        await ask.data(CREATE, admin, input={**place, "ref": oid})
        assert (await heads(make, project))["new"] == oid
        assert (await rows(make, project)).keys() == listed(make, project)
        await ask.data(DELETE, admin, input=place)
        assert (await heads(make, project)).keys() == {"master", "topic"}

    async def test_too_much_for_an_operation_is_left_for_later(
        self, make: Make, project: tables.Project, ask: Ask, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(indexing, "MOST_WITHIN", 0)
        oid = write_commit(path_of(make, project), git(path_of(make, project), "cat-file", "commit", "topic").encode() + b"\nAgain\n")
        never = await make.project(history={"commits": 8})
        for each, ref, known in ((project, oid, {"master", "topic"}), (never, "master", set[str]())):
            await ask.data(CREATE, await make.admin(), input={"projectPath": str(each.id), "name": "new", "ref": ref})
            assert (await heads(make, each)).keys() == known
            assert each.id in make.services.noticed.some(10)

    async def test_an_import_is_indexed(self, make: Make, ask: Ask) -> None:
        source = make.imported({"commits": 8})
        data = await ask.data(IMPORT, await make.admin(), input={"name": "Tools", "repositoryPath": str(source)})
        project = await make.fetch(tables.Project, data["createProject"]["project"]["databaseId"])
        assert project is not None
        assert (await rows(make, project)).keys() == listed(make, project)
        assert (await heads(make, project)).keys() == {"master", "topic"}


class TestNoticing:
    @pytest.mark.parametrize("change", ["moved", "made", "gone"])
    async def test_a_read_of_the_branches(self, make: Make, project: tables.Project, ask: Ask, change: str) -> None:
        viewer = await make.user()
        await ask.data(LIST, viewer, path=str(project.id))
        await ask.data(ONE, viewer, path=str(project.id), name="master")
        assert make.services.noticed.some(10) == []
        if change == "moved":
            grown(make, project)
        else:
            git(path_of(make, project), "branch", *(("-D", "topic") if change == "gone" else ("new", "master")))
        await ask.data(LIST, viewer, path=str(project.id))
        assert make.services.noticed.some(10) == [project.id]

    async def test_a_read_of_one_branch(self, make: Make, project: tables.Project, ask: Ask) -> None:
        viewer = await make.user()
        grown(make, project)
        await ask.data(ONE, viewer, path=str(project.id), name="topic")
        assert make.services.noticed.some(10) == []
        await ask.data(ONE, viewer, path=str(project.id), name="master")
        assert make.services.noticed.some(10) == [project.id]

    async def test_costs_one_statement(self, make: Make, project: tables.Project, ask: Ask, statements: Statements) -> None:
        viewer = await make.user()
        with statements.counted() as few:
            await ask.data(LIST, viewer, path=str(project.id))
        for number in range(30):
            git(path_of(make, project), "branch", f"b{number}", "master")
        await make.indexed(project)
        with statements.counted() as many:
            await ask.data(LIST, viewer, path=str(project.id))
        assert len(many) == len(few)
        assert sum("branches" in statement for statement in many) == sum("branches" in statement for statement in few)
        assert make.services.noticed.some(10) == []
