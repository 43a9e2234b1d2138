"""What is new in a merge request since the viewer's last visit, through the graph."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from sqlalchemy import select

from graph.context import Services
from graph.operations.execution import Graph
from storage import tables
from storage.database.clock import now
from tests.make import DataFactory
from tests.support.api_clients import Ask
from tests.support.database.statements import StatementRecorder
from tests.support.git.git_history import build_once, commit_files, git

MARK = """mutation ($input: MarkMergeRequestVisitedInput!) { markMergeRequestVisited(input: $input) {
    mergeRequest { iid } userErrors { field code } } }"""
VISITS = """query ($path: String!) { project(path: $path) { mergeRequests { nodes { lastVisit {
    headOid noteDatabaseId newNoteCount newCommitCount newCommits { oid } changes { newPath additions } } } } } }"""

SHARED = dict.fromkeys(("same.txt", "changed.txt"), b"".join(b"%d\n" % number for number in range(20)))
"""Files that both branches change."""


def create_history(path: Path) -> str:
    """A base, two heads of a branch on it, a later base, and the branch rebased on that with a further commit; returns them in order."""
    git(path.parent, "init", "-q", "--bare", "-b", "master", str(path))
    files = {**{f"{name}.txt": b"1\n" for name in ("own", "both", "target")}, **SHARED}
    begun = {**files, **{name: b"begin\n" + text for name, text in SHARED.items()}}
    base = commit_files(path, files)
    first = commit_files(path, {**begun, "own.txt": b"2\n"}, base)
    second = commit_files(path, {**begun, "own.txt": b"3\n"}, first)
    moved = {**files, "target.txt": b"2\n", "folder/target.txt": b"1\n"}
    # The target changes the ends of files whose beginnings are the merge request's.
    moved |= {name: text + b"end\n" for name, text in SHARED.items()}
    later = commit_files(path, moved, base)
    own = {name: begun[name] + b"end\n" for name in SHARED}
    own["changed.txt"] = b"really " + own["changed.txt"]
    rebased = commit_files(path, {**moved, "own.txt": b"3\n", "both.txt": b"2\n", **own}, later)
    final = commit_files(path, {**moved, "own.txt": b"4\n", "both.txt": b"2\n", **own}, rebased)
    for name, oid in (("master", later), ("topic", second), ("rebased", final)):
        git(path, "update-ref", f"refs/heads/{name}", oid)
    return " ".join((base, first, second, later, rebased, final))


class TestLastVisit:
    async def test_tells_what_is_new(self, make: DataFactory, services: Services, histories: Path, tmp_path: Path) -> None:
        moment = [now()]
        ask = Ask(Graph(replace(services, clock=lambda: moment[0])))
        base, first, second, later, rebased, final = build_once(create_history, histories, path := tmp_path / "source.git").split()
        project = await make.project(owner=(owner := await make.user()), source=path)
        author = await make.user()
        await make.member(project, author, tables.AccessLevel.DEVELOPER)
        request = await make.merge_request(project, author=author, source_branch="topic", base_oid=base, head_oid=first)
        note = await make.note(request, author=author)
        foreign = await make.note(await make.issue(project))

        async def mark(**values: Any) -> Any:
            input = {"projectPath": str(project.id), "databaseId": request.id, **values}
            payload = (await ask.data(MARK, owner, input=input))["markMergeRequestVisited"]
            return [(error["field"], error["code"]) for error in payload["userErrors"]]

        async def visit(viewer: tables.User = owner) -> Any:
            return (await ask.data(VISITS, viewer, path=str(project.id)))["project"]["mergeRequests"]["nodes"][0]["lastVisit"]

        async def move(head: str, start: str = base) -> None:
            request.head_oid, request.base_oid = head, start
            await make.save(request)

        assert await visit() is None
        assert await mark() == [("headOid", "REQUIRED")]
        assert await mark(headOid=second) == [("headOid", "CONFLICT")]
        assert await mark(noteDatabaseId=foreign.id) == await mark(noteDatabaseId=4711) == [("noteDatabaseId", "INVALID")]
        assert await mark(headOid=first.upper(), noteDatabaseId=note.id) == []
        nothing = {"newNoteCount": 0, "newCommitCount": 0, "newCommits": [], "changes": []}
        assert await visit() == {"headOid": first, "noteDatabaseId": note.id, **nothing}
        assert await visit(author) is None

        # A head is compared with the one that was seen before it, and notes with those of the visit before this one.
        await move(second)
        await make.note(request, author=owner)
        reply = await make.note(request, author=author)
        seen = {"headOid": first, "noteDatabaseId": note.id, "newNoteCount": 1, "newCommitCount": 1, "newCommits": [{"oid": second}]}
        assert await visit() == {**seen, "changes": [{"newPath": "own.txt", "additions": 1}]}
        assert await mark(headOid=second, noteDatabaseId=reply.id) == []
        assert (await visit())["newCommits"] == [{"oid": second}]
        assert (await visit())["newNoteCount"] == 1
        moment[0] += timedelta(minutes=31)
        assert await visit() == {"headOid": second, "noteDatabaseId": reply.id, **nothing}

        # A rebased branch shows its own files only, and its commits are new.
        await move(final, later)
        found = await visit()
        assert [each["oid"] for each in found["newCommits"]] == [final, rebased]
        assert sorted(each["newPath"] for each in found["changes"]) == ["both.txt", "changed.txt", "own.txt"]
        assert await mark(noteDatabaseId=note.id) == []
        found = await visit()
        assert (found["headOid"], found["noteDatabaseId"], found["newCommitCount"]) == (second, reply.id, 2)

        # A commit whose objects were deleted cannot be compared.
        async with services.database.write_session() as session:
            row = (await session.scalars(select(tables.MergeRequestVisit))).one()
            row.head_oid = "1" * 40
            await session.commit()
        missing = dict.fromkeys(("newCommitCount", "newCommits", "changes"))
        assert await visit() == {"headOid": "1" * 40, "noteDatabaseId": reply.id, "newNoteCount": 0, **missing}

    async def test_statements_do_not_depend_on_the_number_of_merge_requests(
        self, ask: Ask, make: DataFactory, statements: StatementRecorder
    ) -> None:
        project = await make.project(owner=(owner := await make.user()), history={"commits": 4})
        counts = []
        for _ in range(2):
            for number in range(3):
                request = await make.merge_request(project, head_oid=f"{number}" * 40)
                await make.save(tables.MergeRequestVisit(user_id=owner.id, merge_request_id=request.id))
            with statements.record() as recorded:
                await ask.data(VISITS, owner, path=str(project.id))
            counts.append(len(recorded))
        assert counts[0] == counts[1]
