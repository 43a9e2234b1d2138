"""Threads of the review of merge requests, through the graph."""

from pathlib import Path
from typing import Any

import pytest

from storage import tables
from storage.tables import AccessLevel
from tests.make import DataFactory
from tests.support.api_clients import Ask
from tests.support.database.statements import StatementRecorder
from tests.support.git.git_history import build_once, commit_files, git

THREAD = """fragment thread on ReviewThread {
    id isResolved resolvedAt resolvedBy { username } author { username } excerpt
    position { baseOid startOid headOid oldPath newPath oldLine newLine } currentLine { oldPath newPath oldLine newLine }
    notes { nodes { body upvote thread { id } } } viewerCan { reply resolve } }"""
CREATE = f"""mutation ($input: CreateThreadInput!) {{ createThread(input: $input) {{
    thread {{ ...thread }} userErrors {{ field code message }} }} }} {THREAD}"""
REPLY = "mutation ($input: ReplyToThreadInput!) { replyToThread(input: $input) { note { body } userErrors { field code } } }"
RESOLVE = "mutation ($input: ResolveThreadInput!) { resolveThread(input: $input) { thread { isResolved resolvedBy { username } } } }"
UNRESOLVE = "mutation ($input: UnresolveThreadInput!) { unresolveThread(input: $input) { thread { isResolved resolvedBy { username } } } }"
THREADS = f"""query ($path: String!, $filter: ReviewThreadFilter) {{ project(path: $path) {{ mergeRequest(iid: 1) {{
    unresolvedThreadCount threads(filter: $filter) {{ totalCount nodes {{ ...thread }} }}
    notes {{ nodes {{ body system }} }} }} }} }} {THREAD}"""

NUMBERS = [f"{number}\n" for number in range(1, 31)]


def create_history(path: Path) -> str:
    """A base, a head on it that changes line 10 and removes line 20, and a later one; returns the three commits."""

    def text(changes: dict[int, str], before: str = "") -> bytes:
        return (before + "".join(changes.get(number, line) for number, line in enumerate(NUMBERS, 1))).encode()

    git(path.parent, "init", "-q", "--bare", "-b", "master", str(path))
    base = commit_files(path, {"a.txt": text({}), "same.txt": b"1\n"})
    head = commit_files(path, {"a.txt": text({10: "ten\n", 20: ""}), "same.txt": b"1\n", "new.txt": b"1\n2\n"}, base)
    later = commit_files(
        path, {"a.txt": text({10: "ten\n", 12: "twelve\n", 20: ""}, "0\n0\n"), "same.txt": b"1\n", "new.txt": b"2\n"}, head
    )
    git(path, "update-ref", "refs/heads/master", base)
    git(path, "update-ref", "refs/heads/topic", later)
    return f"{base} {head} {later}"


class Review:
    """A merge request of two authors' threads: `change(viewer, query, **input)` returns the entity or the errors of a mutation."""

    def __init__(self, ask: Ask, project: tables.Project, request: tables.MergeRequest) -> None:
        self.ask, self.project, self.request = ask, project, request

    async def change(self, viewer: tables.User, query: str, **input: Any) -> Any:
        ((payload),) = (await self.ask.data(query, viewer, input=input)).values()
        found = next((value for key, value in payload.items() if key != "userErrors"), None)
        return found or [(error["field"], error["code"]) for error in payload["userErrors"]]

    async def start(self, viewer: tables.User, body: str = "Why?", **position: Any) -> Any:
        line = {"headOid": self.request.head_oid, "path": "a.txt", **position} if position else None
        return await self.change(viewer, CREATE, projectPath=str(self.project.id), databaseId=self.request.id, body=body, position=line)

    async def read(self, viewer: tables.User, filter: Any = None) -> Any:
        found = await self.ask.data(THREADS, viewer, path=str(self.project.id), filter=filter)
        return found["project"]["mergeRequest"]


@pytest.fixture
async def review(ask: Ask, make: DataFactory, histories: Path, tmp_path: Path) -> Review:
    base, head, _ = build_once(create_history, histories, path := tmp_path / "source.git").split()
    project = await make.project(owner=await make.user(username="owner"), source=path)
    return Review(ask, project, await make.merge_request(project, source_branch="topic", base_oid=base, head_oid=head))


class TestCreateThread:
    async def test_on_a_line_that_the_diff_shows(self, review: Review, make: DataFactory) -> None:
        owner = await make.fetch(tables.User, review.project.creator_id)
        base, head = review.request.base_oid, review.request.head_oid

        found = await review.start(owner, "Why ten? See #1", newLine=10)
        assert found["position"] == {
            "baseOid": base,
            "startOid": base,
            "headOid": head,
            "oldPath": "a.txt",
            "newPath": "a.txt",
            "oldLine": None,
            "newLine": 10,
        }
        assert found["currentLine"] == {"oldPath": "a.txt", "newPath": "a.txt", "oldLine": None, "newLine": 10}
        assert found["excerpt"] == "@@ -7,4 +7,4 @@\n 7\n 8\n 9\n-10\n+ten\n"
        assert found["notes"]["nodes"] == [{"body": "Why ten? See #1", "upvote": False, "thread": {"id": found["id"]}}]
        assert (await review.start(owner, oldLine=20))["currentLine"]["newLine"] is None
        assert (await review.start(owner, oldLine=21, newLine=20))["currentLine"] is not None
        assert (await review.start(owner, newLine=2, path="new.txt", oldPath="new.txt"))["position"]["newLine"] == 2

    async def test_on_other_lines_is_refused(self, review: Review, make: DataFactory) -> None:
        owner = await make.fetch(tables.User, review.project.creator_id)
        wrong: list[dict[str, Any]] = [
            {"newLine": 1},  # not shown
            {"newLine": 30, "oldLine": 30},
            {"newLine": 20},  # a line of context has both numbers
            {"oldLine": 10, "newLine": 10},
            {"newLine": 0},
            {"newLine": -1},
            {"newLine": 2**31 - 1},
            {"newLine": 1, "path": "same.txt"},
            {"newLine": 10, "oldPath": "same.txt"},
            {"newLine": 10, "path": "../a.txt"},
        ]
        for position in wrong:
            assert await review.start(owner, **position) == [("position", "INVALID")]
        assert await review.start(owner, path="a.txt") == [("position.newLine", "REQUIRED")]
        assert await review.start(owner, newLine=10, headOid=review.request.base_oid) == [("position.headOid", "CONFLICT")]
        assert await review.start(owner, " ", newLine=10) == [("body", "REQUIRED")]
        assert (await review.read(owner))["threads"]["totalCount"] == 0

    async def test_on_the_whole_merge_request_and_its_notes_are_no_votes(self, review: Review, make: DataFactory) -> None:
        owner = await make.fetch(tables.User, review.project.creator_id)
        found = await review.start(owner, ":+1:")
        assert (found["position"], found["currentLine"], found["excerpt"]) == (None, None, None)
        assert found["notes"]["nodes"][0]["body"] == ":+1:"
        assert await review.change(owner, REPLY, id=found["id"], body=":+1:") == {"body": ":+1:"}
        assert await review.change(owner, REPLY, id=found["id"], body="") == [("body", "REQUIRED")]
        request = await review.read(owner)
        assert request["notes"]["nodes"] == [{"body": ":+1:", "system": False}] * 2
        assert [note["upvote"] for note in request["threads"]["nodes"][0]["notes"]["nodes"]] == [False, False]


class TestCurrentLine:
    async def test_follows_new_commits_or_is_outdated(self, review: Review, make: DataFactory, histories: Path, tmp_path: Path) -> None:
        owner = await make.fetch(tables.User, review.project.creator_id)
        _, _, later = build_once(create_history, histories, tmp_path / "again.git").split()
        for position in ({"newLine": 10}, {"oldLine": 20}, {"oldLine": 12, "newLine": 12}, {"oldLine": 21, "newLine": 20}):
            await review.start(owner, **position)
        for line in (1, 2):
            await review.start(owner, path="new.txt", newLine=line)
        review.request.head_oid = later
        await make.save(review.request)

        threads = (await review.read(owner))["threads"]["nodes"]
        lines = [each["currentLine"] and (each["currentLine"]["oldLine"], each["currentLine"]["newLine"]) for each in threads]
        assert lines == [(None, 12), (20, None), None, (21, 22), None, (None, 1)]
        assert threads[2]["position"]["newLine"] == 12
        assert threads[2]["excerpt"].endswith(" 12\n")
        # Everything that the head has removed is back.
        review.request.head_oid = review.request.base_oid
        await make.save(review.request)
        assert [each["currentLine"] for each in (await review.read(owner))["threads"]["nodes"][:2]] == [None, None]

    async def test_of_unknown_commits_is_outdated(self, review: Review, make: DataFactory) -> None:
        owner = await make.fetch(tables.User, review.project.creator_id)
        lost = {"head_oid": "1" * 40, "base_oid": "2" * 40, "old_path": "a.txt", "new_path": "a.txt", "new_line": 10, "excerpt": "@@ @@\n"}
        await make.thread(review.request, **lost)
        assert (await review.read(owner))["threads"]["nodes"][0]["currentLine"] is None


class TestResolveThread:
    async def test_says_who_and_when_and_notes_that_all_are_resolved(self, review: Review, make: DataFactory) -> None:
        owner = await make.fetch(tables.User, review.project.creator_id)
        await make.member(review.project, guest := await make.user(username="guest"), AccessLevel.GUEST)
        await make.member(review.project, reporter := await make.user(username="reporter"), AccessLevel.REPORTER)
        own, other = await review.start(guest), await review.start(owner)
        assert (own["viewerCan"], (await review.read(reporter))["unresolvedThreadCount"]) == ({"reply": True, "resolve": True}, 2)

        answer = await review.ask(RESOLVE, reporter, input={"id": own["id"]})
        assert [error.code for error in answer.errors] == ["FORBIDDEN"]
        assert await review.change(guest, RESOLVE, id=own["id"]) == {"isResolved": True, "resolvedBy": {"username": "guest"}}
        assert await review.change(owner, RESOLVE, id=own["id"]) == {"isResolved": True, "resolvedBy": {"username": "guest"}}
        found = await review.read(reporter, {"isResolved": False})
        assert [each["id"] for each in found["threads"]["nodes"]] == [other["id"]]
        assert (found["threads"]["totalCount"], found["unresolvedThreadCount"]) == (1, 1)
        assert (await review.read(owner, {"isResolved": True}))["threads"]["nodes"][0]["resolvedAt"] is not None
        assert [note["system"] for note in found["notes"]["nodes"]] == [False, False]

        await review.change(owner, RESOLVE, id=other["id"])
        assert (await review.read(owner))["notes"]["nodes"][-1] == {"body": "All threads resolved", "system": True}
        assert await review.change(owner, UNRESOLVE, id=own["id"]) == {"isResolved": False, "resolvedBy": None}
        assert (await review.read(owner))["unresolvedThreadCount"] == 1

    async def test_is_reported_to_subscribers_as_replies_are(self, review: Review, make: DataFactory) -> None:
        owner = await make.fetch(tables.User, review.project.creator_id)
        thread = await review.start(owner)
        await review.change(owner, REPLY, id=thread["id"], body="Because")
        await review.change(owner, RESOLVE, id=thread["id"])
        edit = "mutation ($input: UpdateNoteInput!) { updateNote(input: $input) { note { body } } }"
        await review.change(owner, edit, projectPath=str(review.project.id), databaseId=2, body="Indeed")
        changes = [await make.fetch(tables.Change, number) for number in range(1, await make.count(tables.Change) + 1)]
        assert [(each.merge_request_id, each.old_state, each.new_state) for each in changes if each] == [
            (review.request.id, "opened", "opened")
        ] * 4


class TestStatements:
    async def test_do_not_depend_on_the_number_of_threads(self, review: Review, make: DataFactory, statements: StatementRecorder) -> None:
        owner = await make.fetch(tables.User, review.project.creator_id)
        line = {"head_oid": "1" * 40, "old_path": "a.txt", "new_path": "a.txt", "new_line": 10, "excerpt": "@@ @@\n"}
        counts = []
        for _ in range(2):
            for _ in range(3):
                await make.thread(review.request, author=await make.user(), resolved_by_id=(await make.user()).id, **line)
            await review.read(owner)
            with statements.record() as recorded:
                await review.read(owner)
            counts.append(len(recorded))
        assert counts[0] == counts[1]
