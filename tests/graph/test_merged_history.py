"""Merge requests that an imported history tells of."""

from pathlib import Path

from storage import tables
from storage.tables import AccessLevel, MergeRequestState
from tests.forge import Ask
from tests.history import git, grow, make_history
from tests.make import Make
from tests.statements import Statements

IMPORT = "mutation ($path: String!) { importMergeRequests(input: {projectPath: $path}) { project { path } userErrors { code } } }"


def merge(path: Path, branch: str, message: str) -> str:
    """Merges the branch into master, without a look at master's own files."""
    oid = git(path, "commit-tree", f"{branch}^{{tree}}", "-p", "master", "-p", branch, "-m", message)
    git(path, "update-ref", "refs/heads/master", oid)
    return oid


def history(folder: Path, *messages: str) -> Path:
    """A repository whose master merged `part0`, `part1`, … with these messages."""
    path = make_history(folder / "app.git", commits=3, merges_every=0).path
    for number, message in enumerate(messages):
        grow(path, f"part{number}", {f"{number}.txt": b"one\ntwo\n"}, start="master", message=f"Part {number}")
        merge(path, f"part{number}", message)
    return path


async def rows(make: Make, project: tables.Project) -> list[tables.MergeRequest]:
    from sqlalchemy import select

    async with make.services.database.reading() as session:
        statement = select(tables.MergeRequest).where(tables.MergeRequest.project_id == project.id).order_by(tables.MergeRequest.iid)
        return [row[0] for row in await session.read(statement)]


class TestImporting:
    async def test_writes_what_the_messages_say(self, ask: Ask, make: Make, tmp_path: Path) -> None:
        owner, author = await make.user(), await make.user(email="author@example.org")
        source = history(tmp_path, "Merge pull request #7 from ada/doors\n\nAdd a door\n", "Merge branch 'walls'\n")
        project = await make.project(owner=owner, source=source, members=[(owner, AccessLevel.OWNER)])

        await ask.data(IMPORT, owner, path=str(project.id))

        first, second = await rows(make, project)
        assert (first.iid, first.title, first.source_branch, first.target_branch) == (7, "Add a door", "doors", "master")
        assert (second.iid, second.title, second.source_branch) == (8, "Merge branch 'walls'", "walls")
        assert {first.state, second.state} == {MergeRequestState.MERGED}
        assert first.merge_commit_oid == git(source, "rev-parse", "master~1")
        assert first.head_oid == git(source, "rev-parse", "part0")
        assert first.merged_at is not None and first.created_at <= first.merged_at
        assert (first.author_id, first.merge_user_id) == (author.id, author.id)
        assert (first.commit_count, first.files, first.additions, first.deletions) == (1, 1, 2, 0)

    async def test_twice_writes_nothing_more(self, ask: Ask, make: Make, tmp_path: Path) -> None:
        owner = await make.user()
        source = history(tmp_path, "Merge branch 'doors'")
        project = await make.project(owner=owner, source=source, members=[(owner, AccessLevel.OWNER)])
        for _ in range(2):
            await ask.data(IMPORT, owner, path=str(project.id))

        assert [row.iid for row in await rows(make, project)] == [1]

    async def test_goes_on_where_numbers_are_given_twice(self, ask: Ask, make: Make, tmp_path: Path) -> None:
        owner = await make.user()
        source = history(tmp_path, *("Merge pull request #2 from ada/doors" for _ in range(2)))
        project = await make.project(owner=owner, source=source, members=[(owner, AccessLevel.OWNER)])

        await ask.data(IMPORT, owner, path=str(project.id))

        assert [row.iid for row in await rows(make, project)] == [2, 3]
        async with make.services.database.reading() as session:
            counter = await session.get(tables.Counter, (project.id, tables.CounterKind.MERGE_REQUEST))
        assert counter is not None and counter.value == 3

    async def test_tells_nobody(self, ask: Ask, make: Make, tmp_path: Path) -> None:
        owner = await make.user()
        await make.save(tables.Hook(url="http://hooks.invalid/", merge_requests_events=True))
        issue_project = await make.project(
            owner=owner, source=history(tmp_path, "Merge branch 'doors'\n\nFixes #1"), members=[(owner, AccessLevel.OWNER)]
        )
        issue = await make.issue(issue_project)

        await ask.data(IMPORT, owner, path=str(issue_project.id))

        found = await make.fetch(tables.Issue, issue.id)
        assert found is not None and found.state is tables.IssueState.OPENED
        assert await make.count(tables.Event) == await make.count(tables.Note) == 0

    async def test_is_for_owners(self, ask: Ask, make: Make) -> None:
        master = await make.user()
        project = await make.project(members=[(master, AccessLevel.MASTER)])

        assert await ask.codes(IMPORT, master, path=str(project.id)) == ["FORBIDDEN"]

    async def test_reads_no_account_twice(self, ask: Ask, make: Make, statements: Statements, tmp_path: Path) -> None:
        owner = await make.user()
        costs = []
        for name, messages in (("one", ("Merge branch 'a'",)), ("three", ("Merge branch 'a'",) * 3)):
            source = history(tmp_path / name, *messages)
            project = await make.project(owner=owner, source=source, members=[(owner, AccessLevel.OWNER)])
            with statements.counted() as seen:
                await ask.data(IMPORT, owner, path=str(project.id))
            costs.append(sum(not each.startswith("INSERT INTO merge_requests") for each in seen))
        assert costs[0] == costs[1]
