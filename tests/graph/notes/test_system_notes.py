"""System notes: state changes of an issue, and its mentions."""

import asyncio
import time
from dataclasses import replace
from typing import Any

import pytest

from graph.fields.entities import global_id
from graph.operations.execution import Graph
from graph.rules.notes.mentions import MAX_MENTIONS, MAX_SCANNED_CHARACTERS, Mention, parse_mentions
from storage import tables
from storage.tables import AccessLevel, Visibility
from tests.make import EXTERNAL_URL, DataFactory
from tests.support.api_clients import Ask
from tests.support.database.statements import StatementRecorder

UPDATE = "mutation ($input: UpdateIssueInput!) { updateIssue(input: $input) { userErrors { code } } }"
CLOSE = "mutation ($input: IssueInput!) { closeIssue(input: $input) { userErrors { code } } }"
REOPEN = "mutation ($input: IssueInput!) { reopenIssue(input: $input) { userErrors { code } } }"
CREATE = "mutation ($input: CreateIssueInput!) { createIssue(input: $input) { userErrors { code } } }"
WRITE = "mutation ($input: CreateNoteInput!) { createNote(input: $input) { userErrors { code } } }"
REWRITE = "mutation ($input: UpdateNoteInput!) { updateNote(input: $input) { userErrors { code } } }"
NOTES = """query ($path: String!, $iid: Int!, $first: Int, $after: String) { project(path: $path) { issue(iid: $iid) {
    notes(first: $first, after: $after) { totalCount nodes { body system author { username } } edges { node { databaseId } }
      pageInfo { hasNextPage endCursor } } } } }"""
NOTE = "query ($path: String!, $iid: Int!, $id: Int!) { project(path: $path) { issue(iid: $iid) { note(databaseId: $id) { body } } } }"
NODE = "query ($ids: [ID!]!) { nodes(ids: $ids) { ... on Note { body } } }"
VOTES = "query ($path: String!, $first: Int) { project(path: $path) { issues(first: $first) { nodes { iid upvotes downvotes } } } }"


class SystemNoteScenario:
    """`await do(text, viewer, issue, **input)` does what must succeed; `await bodies(issue)` gives the notes under it."""

    def __init__(self, ask: Ask, make: DataFactory) -> None:
        self.ask = ask
        self.make = make

    async def do(self, text: str, viewer: tables.User, issue: tables.Issue, **input: Any) -> None:
        named = {"projectPath": str(issue.project_id), "issueIid" if text == WRITE else "iid": issue.iid}
        assert await self.ask.codes(text, viewer, input={**named, **input}) == []

    async def notes(self, issue: tables.Issue, viewer: tables.User | None = None, **window: Any) -> dict[str, Any]:
        viewer = viewer or await self.make.admin()
        data = await self.ask.data(NOTES, viewer, path=str(issue.project_id), iid=issue.iid, **window)
        notes: dict[str, Any] = data["project"]["issue"]["notes"]
        return notes

    async def bodies(self, issue: tables.Issue, viewer: tables.User | None = None) -> list[str]:
        return [note["body"] for note in (await self.notes(issue, viewer))["nodes"]]


@pytest.fixture
def forge(ask: Ask, make: DataFactory) -> SystemNoteScenario:
    return SystemNoteScenario(ask, make)


class TestChanges:
    async def test_are_noted_in_the_name_of_the_author(self, forge: SystemNoteScenario, make: DataFactory) -> None:
        ada, bob = await make.user("ada"), await make.user("bob")
        project = await make.project(owner=ada, path="mill")
        issue, milestone = await make.issue(project, title="It leaks"), await make.milestone(project, title="1.0")

        await forge.do(CLOSE, ada, issue)
        await forge.do(REOPEN, ada, issue)
        await make.member(project, bob, AccessLevel.REPORTER)
        await forge.do(UPDATE, ada, issue, assigneeId=bob.id)
        await forge.do(UPDATE, bob, issue, assigneeId=None)
        await forge.do(UPDATE, ada, issue, milestoneId=milestone.id)
        await forge.do(UPDATE, ada, issue, milestoneId=0)
        await forge.do(UPDATE, ada, issue, title="It drips")

        page = await forge.notes(issue)
        assert [(note["body"], note["author"]["username"]) for note in page["nodes"]] == [
            ("Status changed to closed", "ada"),
            ("Status changed to reopened", "ada"),
            ("Reassigned to @bob", "ada"),
            ("Assignee removed", "bob"),
            (f"Milestone changed to [1.0]({EXTERNAL_URL}/ada/mill/milestones/1)", "ada"),
            ("Milestone removed", "ada"),
            ("Title changed from **It leaks** to **It drips**", "ada"),
        ]
        assert all(note["system"] for note in page["nodes"])

    async def test_a_link_has_the_address_that_the_service_has_when_it_is_read(self, forge: SystemNoteScenario, make: DataFactory) -> None:
        project = await make.project(owner=(ada := await make.user("ada")), path="mill")
        issue, milestone = await make.issue(project), await make.milestone(project, title="1.0](http://x/a/b/milestones/2)")
        await forge.do(UPDATE, ada, issue, milestoneId=milestone.id)
        stored = await make.fetch(tables.Note, 1)
        moved = SystemNoteScenario(Ask(Graph(replace(make.services, external_url="https://new.example/git"))), make)

        assert stored is not None
        assert stored.body == f"Milestone changed to [{milestone.title}](/ada/mill/milestones/1)"
        for _ in range(2):
            shown = f"Milestone changed to [{milestone.title}](https://new.example/git/ada/mill/milestones/1)"
            assert await moved.bodies(issue, ada) == [shown]

    @pytest.mark.parametrize("old", ["http://localhost:8080", "https://forge.example/git", "http://[::1]:8080"])
    async def test_a_link_that_was_stored_with_an_address_has_the_present_one(
        self, forge: SystemNoteScenario, make: DataFactory, old: str
    ) -> None:
        project = await make.project(owner=(ada := await make.user("ada")), path="mill")
        issue = await make.issue(project)
        body = f"Milestone changed to [1.0]({old}/ada/mill/milestones/1)"
        await make.note(issue, body=body, system=True, author=ada)
        await make.note(issue, body=body, author=ada)

        assert await forge.bodies(issue, ada) == [f"Milestone changed to [1.0]({EXTERNAL_URL}/ada/mill/milestones/1)", body]

    async def test_concurrent_changes_are_each_noted(self, forge: SystemNoteScenario, make: DataFactory) -> None:
        project = await make.project(owner=(ada := await make.user("ada")))
        issue, milestone = await make.issue(project, title="Old"), await make.milestone(project)

        changes = {"title": "New", "milestoneId": milestone.id, "assigneeId": ada.id, "stateEvent": "CLOSE", "labels": ["bug"]}
        await forge.do(UPDATE, ada, issue, **changes)

        kinds = [body.split(" ")[0] for body in await forge.bodies(issue)]
        assert kinds == ["Status", "Title", "Milestone", "Reassigned"]

    async def test_without_effect_are_not_noted(self, forge: SystemNoteScenario, make: DataFactory) -> None:
        project = await make.project(owner=(ada := await make.user("ada")))
        issue = await make.issue(project, title="Old", assignee_id=ada.id)

        await forge.do(UPDATE, ada, issue, title="Old", assigneeId=ada.id, milestoneId=None, stateEvent="REOPEN", labels=["bug"])
        await forge.do(REOPEN, ada, issue)

        assert await forge.bodies(issue) == []

    async def test_a_new_issue_has_no_notes(self, forge: SystemNoteScenario, make: DataFactory) -> None:
        project = await make.project(owner=(ada := await make.user("ada")))
        milestone = await make.milestone(project)
        input = {"projectPath": str(project.id), "title": "New", "assigneeId": ada.id, "milestoneId": milestone.id}

        assert await forge.ask.codes(CREATE, ada, input=input) == []
        assert await make.count(tables.Note) == 0

    async def test_rejected_changes_leave_no_note(self, forge: SystemNoteScenario, make: DataFactory) -> None:
        project = await make.project(owner=(ada := await make.user("ada")))
        await make.issue(project)
        input = {"projectPath": str(project.id), "iid": 1, "stateEvent": "CLOSE", "description": "See #1", "milestoneId": 99}

        assert await forge.ask.codes(UPDATE, ada, input=input) == ["INVALID"]
        assert await make.count(tables.Note) == 0

    async def test_concurrent_changes_are_noted_in_order(self, forge: SystemNoteScenario, make: DataFactory) -> None:
        issue = await make.issue(await make.project(owner=(ada := await make.user("ada"))), title="0")

        await asyncio.gather(*(forge.do(UPDATE, ada, issue, title=str(number)) for number in range(1, 13)))

        title = "0"
        for body in await forge.bodies(issue):
            start, middle = f"Title changed from **{title}** to **", "**"
            assert body.startswith(start) and body.endswith(middle)
            title = body.removeprefix(start).removesuffix(middle)
        row = await make.fetch(tables.Issue, issue.id)
        assert row is not None
        assert row.title == title


class TestMentions:
    async def test_in_a_description_or_a_note_are_noted_once(self, forge: SystemNoteScenario, make: DataFactory) -> None:
        project = await make.project(owner=(ada := await make.user("ada")))
        first, second, third = [await make.issue(project) for _ in range(3)]
        assert (
            await forge.ask.codes(
                CREATE, ada, input={"projectPath": str(project.id), "title": "x", "description": "As #1 said, and #1; not #99"}
            )
            == []
        )
        await forge.do(UPDATE, ada, third, description="See #2")
        await forge.do(WRITE, ada, third, body="See (#2), and #1.")
        await forge.do(WRITE, ada, third, body="Again #2, and here: #3")
        await forge.do(UPDATE, ada, third, description="Still #2")

        assert await forge.bodies(first) == ["mentioned in issue #4", "mentioned in issue #3"]
        assert await forge.bodies(second) == ["mentioned in issue #3"]
        assert await forge.bodies(third) == ["See (#2), and #1.", "Again #2, and here: #3"]

    async def test_that_come_with_a_new_text_of_a_note(self, forge: SystemNoteScenario, make: DataFactory) -> None:
        project = await make.project(owner=(ada := await make.user("ada")))
        first, second = await make.issue(project), await make.issue(project)
        note = await make.note(second, author=ada, body="nothing")

        input = {"projectPath": str(project.id), "databaseId": note.id, "body": "#1 after all"}
        assert await forge.ask.codes(REWRITE, ada, input=input) == []

        assert await forge.bodies(first) == ["mentioned in issue #2"]

    async def test_of_another_project_s_issue(self, forge: SystemNoteScenario, make: DataFactory) -> None:
        ada = await make.user("ada")
        mill, engine = await make.project(owner=ada, path="Mill"), await make.project(owner=ada, path="engine")
        there, here = await make.issue(mill), await make.issue(engine)

        await forge.do(WRITE, ada, here, body="ADA/mill#1 and ada/engine#1 and ada/none#1")

        assert await forge.bodies(there) == ["mentioned in issue ada/engine#1"]
        assert len(await forge.bodies(here)) == 1

    async def test_of_hidden_issues_are_not_noted(self, forge: SystemNoteScenario, make: DataFactory) -> None:
        ada, bob = await make.user("ada"), await make.user("bob")
        hidden = await make.issue(await make.project(owner=bob, path="hidden"))
        off = await make.issue(await make.project(owner=bob, path="off", visibility=Visibility.PUBLIC, issues_enabled=False))
        here = await make.issue(await make.project(owner=ada))

        await forge.do(WRITE, ada, here, body="bob/hidden#1 bob/off#1")

        assert await make.count(tables.Note) == 1
        assert hidden.id != off.id

    async def test_under_a_snippet_and_by_a_vote_are_none(self, forge: SystemNoteScenario, make: DataFactory) -> None:
        project = await make.project(owner=(ada := await make.user("ada")))
        issue, snippet = await make.issue(project), await make.snippet(project)

        input = {"projectPath": str(project.id), "snippetDatabaseId": snippet.id, "body": "See #1"}
        assert await forge.ask.codes(WRITE, ada, input=input) == []

        assert await forge.bodies(issue) == []

    async def test_concurrent_mentions_are_noted_once(self, forge: SystemNoteScenario, make: DataFactory) -> None:
        project = await make.project(owner=(ada := await make.user("ada")))
        first, second, third = [await make.issue(project) for _ in range(3)]

        works = [forge.do(WRITE, ada, third, body=body) for body in ("#1 #2", "#2 #1") * 6]
        # Issues that mention each other while their labels are set do not wait in a circle.
        works += [forge.do(UPDATE, ada, first, description=f"#2 {number}", labels=[f"a{number}"]) for number in range(4)]
        works += [forge.do(UPDATE, ada, second, description=f"#1 {number}", labels=[f"a{number}"]) for number in range(4)]
        await asyncio.gather(*works)

        assert sorted(await forge.bodies(first)) == ["mentioned in issue #2", "mentioned in issue #3"]
        assert sorted(await forge.bodies(second)) == ["mentioned in issue #1", "mentioned in issue #3"]

    async def test_statement_count_does_not_grow_with_rows(
        self, forge: SystemNoteScenario, make: DataFactory, statements: StatementRecorder
    ) -> None:
        ada = await make.user("ada")
        projects = [await make.project(owner=ada, path=f"p{number}") for number in range(6)]
        for project in projects:
            for _ in range(4):
                await make.issue(project)
        here = await make.issue(await make.project(owner=ada))
        texts = "ada/p0#1", " ".join(f"ada/p{project}#{iid}" for project in range(1, 6) for iid in range(1, 5))
        costs = []
        for text in ("warm #99", *texts):
            with statements.record() as seen:
                await forge.do(WRITE, ada, here, body=text)
            costs.append(len(seen))

        assert costs[1] == costs[2]
        assert await make.count(tables.Note) == 3 + 1 + 20


class TestVisibility:
    """A note of a mention in what one may not see is neither shown nor counted."""

    async def test_from_users_who_cannot_see_the_source(self, forge: SystemNoteScenario, make: DataFactory) -> None:
        ada, bob = await make.user("ada"), await make.user("bob")
        public = await make.project(owner=ada, path="open", visibility=Visibility.PUBLIC)
        secret = await make.project(owner=ada, path="secret")
        target, source, near = await make.issue(public), await make.issue(secret), await make.issue(public)
        await forge.do(WRITE, ada, source, body="ada/open#1")
        await forge.do(WRITE, ada, near, body="#1")
        (hidden, shown) = (await forge.notes(target, ada))["edges"]
        hidden_id, shown_id = hidden["node"]["databaseId"], shown["node"]["databaseId"]

        assert await forge.bodies(target, ada) == ["mentioned in issue ada/secret#1", "mentioned in issue #2"]
        assert await forge.bodies(target, bob) == ["mentioned in issue #2"]
        assert [(await forge.notes(target, viewer))["totalCount"] for viewer in (ada, bob, await make.admin())] == [2, 1, 2]
        assert (await forge.notes(target, bob, first=0))["totalCount"] == 1
        assert await forge.ask.codes(NOTE, bob, path=str(public.id), iid=1, id=hidden_id) == ["NOT_FOUND"]
        assert await forge.ask.codes(REWRITE, bob, input={"projectPath": str(public.id), "databaseId": hidden_id, "body": "x"}) == [
            "NOT_FOUND"
        ]
        ids = [global_id("Note", hidden_id), global_id("Note", shown_id)]
        assert (await forge.ask.data(NODE, bob, ids=ids))["nodes"] == [None, {"body": "mentioned in issue #2"}]
        assert (await forge.ask.data(NODE, ada, ids=ids))["nodes"][0] == {"body": "mentioned in issue ada/secret#1"}

        await make.member(secret, bob, AccessLevel.GUEST)
        assert len(await forge.bodies(target, bob)) == 2

    async def test_from_everybody_while_the_mentioning_project_shows_no_issues(self, forge: SystemNoteScenario, make: DataFactory) -> None:
        ada = await make.user("ada")
        target = await make.issue(await make.project(owner=ada, path="open"))
        other = await make.project(owner=ada, path="other")
        await forge.do(WRITE, ada, await make.issue(other), body="ada/open#1")
        other.issues_enabled = False
        await make.save(other)

        assert await forge.bodies(target, ada) == []
        assert await forge.bodies(target) == []

    async def test_pages_have_visible_notes_only(self, forge: SystemNoteScenario, make: DataFactory) -> None:
        ada, bob = await make.user("ada"), await make.user("bob")
        target = await make.issue(await make.project(owner=ada, path="open", visibility=Visibility.PUBLIC))
        secret = await make.project(owner=ada)
        for _ in range(3):
            await forge.do(WRITE, ada, await make.issue(secret), body="ada/open#1")
        await make.note(target, body="last")

        seen, after, pages = [], None, 0
        while True:
            page = await forge.notes(target, bob, first=1, after=after)
            seen += [note["body"] for note in page["nodes"]]
            after, pages = page["pageInfo"]["endCursor"], pages + 1
            if not page["pageInfo"]["hasNextPage"]:
                break
        assert (seen, pages) == (["last"], 1)

    async def test_statement_count_does_not_grow_with_rows(
        self, forge: SystemNoteScenario, make: DataFactory, statements: StatementRecorder
    ) -> None:
        ada, bob = await make.user("ada"), await make.user("bob")
        target = await make.issue(await make.project(owner=ada, path="open", visibility=Visibility.PUBLIC))
        for number in range(30):
            visibility = Visibility.PUBLIC if number % 2 else Visibility.PRIVATE
            source = await make.project(owner=ada, visibility=visibility)
            await forge.do(WRITE, ada, await make.issue(source), body="ada/open#1")

        with statements.record() as one:
            await forge.notes(target, bob, first=1)
        with statements.assert_at_most(len(one)):
            assert len((await forge.notes(target, bob, first=30))["nodes"]) == 15

    async def test_mentions_are_deleted_with_the_source(self, forge: SystemNoteScenario, make: DataFactory) -> None:
        ada = await make.user("ada")
        target = await make.issue(await make.project(owner=ada, path="open"))
        other = await make.project(owner=ada)
        await forge.do(WRITE, ada, await make.issue(other), body="ada/open#1")
        delete = "mutation ($input: DeleteProjectInput!) { deleteProject(input: $input) { userErrors { code } } }"

        assert await forge.ask.codes(delete, ada, input={"projectPath": str(other.id)}) == []
        assert await make.count(tables.Note) == 0
        assert await forge.bodies(target) == []


class TestVotes:
    async def test_are_counted_for_a_page_in_one_statement(self, ask: Ask, make: DataFactory, statements: StatementRecorder) -> None:
        project = await make.project(owner=(ada := await make.user("ada")))
        first, _, third = [await make.issue(project) for _ in range(3)]
        for _ in range(3):
            await make.note(first, author=await make.user(), body="thumbsup", upvote=True)
        await make.note(first, author=await make.user(), body="thumbsdown", downvote=True)
        await make.note(first, body=":+1: from me")
        await make.note(third, author=await make.user(), body="thumbsdown", downvote=True)

        with statements.record() as one:
            await ask.data(VOTES, ada, path=str(project.id), first=1)
        with statements.assert_at_most(len(one)):
            data = await ask.data(VOTES, ada, path=str(project.id), first=3)

        found = {issue["iid"]: (issue["upvotes"], issue["downvotes"]) for issue in data["project"]["issues"]["nodes"]}
        assert found == {1: (3, 1), 2: (0, 0), 3: (0, 1)}


class TestReading:
    """What a text mentions."""

    @pytest.mark.parametrize(
        ("text", "found"),
        [
            ("#1", [Mention(None, 1)]),
            ("see #12, (#3) and #12.", [Mention(None, 12), Mention(None, 3)]),
            ("Group/My-App.2#7", [Mention(("group", "my-app.2"), 7)]),
            ("#0 #01 #a # 1 ##1 a#1 #1a é#1 &#39; http://x/y#1 a/b/c#1 /b#1", []),
            ("#99999999999 #4294967296", []),
            ("", []),
        ],
    )
    def test_finds(self, text: str, found: list[Mention]) -> None:
        assert parse_mentions(text) == found

    def test_reference_length_is_bounded(self) -> None:
        many = " ".join(f"#{number}" for number in range(1, 1000))
        assert len(parse_mentions(many)) == MAX_MENTIONS
        assert parse_mentions("a" * (MAX_SCANNED_CHARACTERS - 3) + " #12") == []
        assert parse_mentions(" " * (MAX_SCANNED_CHARACTERS - 2) + "#1") == [Mention(None, 1)]

    @pytest.mark.parametrize("piece", ["a", "a/", "/", "#", "#1", "a#", "a/a#", "1#1/", "#1 ", ".", "-/-"])
    def test_runs_in_linear_time(self, piece: str) -> None:
        text = piece * (MAX_SCANNED_CHARACTERS // len(piece) * 10)
        start = time.thread_time()
        parse_mentions(text)
        assert time.thread_time() - start < 1
