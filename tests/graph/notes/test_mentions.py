"""System notes under merge requests, and mentions between issues, merge requests and commits."""

from typing import Any

import pytest
from sqlalchemy import select
from sqlmodel import col

from graph.context import Context, Services
from graph.operations.transaction import commit_and_notify, session_for
from graph.rules.issues import issue_closing
from graph.rules.notes.mentions import Mention, parse_mentions
from storage import tables
from storage.tables import AccessLevel, Visibility
from tests.graph.issues.test_issue_closing import OID, commit
from tests.make import EXTERNAL_URL, DataFactory
from tests.support.api_clients import Ask
from tests.support.database.statements import StatementRecorder

HISTORY = {"commits": 6}
UPDATE = "mutation ($input: UpdateMergeRequestInput!) { updateMergeRequest(input: $input) { userErrors { message code } } }"
WRITE = "mutation ($input: CreateNoteInput!) { createNote(input: $input) { userErrors { code } } }"
NOTES = """query ($path: String!, $iid: Int!, $first: Int) { project(path: $path) {
    mergeRequest(iid: $iid) { notes(first: $first) { totalCount nodes { body author { username } } } } } }"""
ISSUE_NOTES = "query ($path: String!, $iid: Int!) { project(path: $path) { issue(iid: $iid) { notes { nodes { body } } } } }"


class MentionScenario:
    def __init__(self, ask: Ask, make: DataFactory) -> None:
        self.ask = ask
        self.make = make

    async def update(self, viewer: tables.User, row: tables.MergeRequest, **input: Any) -> None:
        outcome = await self.ask.data(UPDATE, viewer, input={"projectPath": str(row.project_id), "iid": row.iid, **input})
        assert outcome["updateMergeRequest"]["userErrors"] == []

    async def write(self, viewer: tables.User, thing: tables.Issue | tables.MergeRequest, body: str) -> None:
        key = "issueIid" if isinstance(thing, tables.Issue) else "mergeRequestIid"
        assert await self.ask.codes(WRITE, viewer, input={"projectPath": str(thing.project_id), key: thing.iid, "body": body}) == []

    async def notes(self, thing: tables.Issue | tables.MergeRequest, viewer: tables.User) -> list[str]:
        text, noun = (ISSUE_NOTES, "issue") if isinstance(thing, tables.Issue) else (NOTES, "mergeRequest")
        data = await self.ask.data(text, viewer, path=str(thing.project_id), iid=thing.iid)
        return [note["body"] for note in data["project"][noun]["notes"]["nodes"]]

    async def push(self, viewer: tables.User, project: tables.Project, number: int, message: str) -> None:
        async with session_for(self.make.services.database, writing=True) as session:
            context = Context(self.make.services, session, viewer, "test")
            await issue_closing.close_after_push(context, project, [commit(number, message)])
            await commit_and_notify(context)


@pytest.fixture
def forge(ask: Ask, make: DataFactory) -> MentionScenario:
    return MentionScenario(ask, make)


class TestChangesOfMergeRequests:
    async def test_are_noted_in_the_name_of_the_author(self, forge: MentionScenario, make: DataFactory) -> None:
        ada, bob = await make.user("ada"), await make.user("bob")
        project = await make.project(owner=ada, path="mill", history=HISTORY, members=[(bob, AccessLevel.MASTER)])
        milestone = await make.milestone(project, title="1.0")
        row = await make.merge_request(project, source_branch="topic", title="It leaks")
        await make.services.repositories.read(
            project.id, lambda repository: repository.move_ref("refs/heads/Stable", repository.resolve("master"), None)
        )

        await forge.update(ada, row, stateEvent="CLOSE")
        await forge.update(bob, row, stateEvent="REOPEN")
        await forge.update(ada, row, targetBranch="Stable", title="It drips")
        await forge.update(ada, row, assigneeId=bob.id, milestoneId=milestone.id)
        await forge.update(ada, row, assigneeId=0, milestoneId=0)

        data = await forge.ask.data(NOTES, ada, path=str(project.id), iid=row.iid)
        assert [(note["body"], note["author"]["username"]) for note in data["project"]["mergeRequest"]["notes"]["nodes"]] == [
            ("Status changed to closed", "ada"),
            ("Status changed to reopened", "bob"),
            ("Title changed from **It leaks** to **It drips**", "ada"),
            ("Target branch changed from `master` to `Stable`", "ada"),
            (f"Milestone changed to [1.0]({EXTERNAL_URL}/ada/mill/milestones/1)", "ada"),
            ("Reassigned to @bob", "ada"),
            ("Milestone removed", "ada"),
            ("Assignee removed", "ada"),
        ]

    async def test_without_effect_are_not_noted(self, forge: MentionScenario, make: DataFactory) -> None:
        project = await make.project(owner=(ada := await make.user("ada")), history=HISTORY)
        row = await make.merge_request(project, source_branch="topic", title="Old")
        await forge.update(ada, row, title="Old", targetBranch="master", assigneeId=None, stateEvent="REOPEN", labels=["bug"])
        assert await forge.notes(row, ada) == []


class TestMentions:
    async def test_between_issues_and_merge_requests(self, forge: MentionScenario, make: DataFactory) -> None:
        ada = await make.user("ada")
        mill, engine = await make.project(owner=ada, path="mill"), await make.project(owner=ada, path="engine")
        issue, row, other, there = (
            await make.issue(mill),
            await make.merge_request(mill),
            await make.merge_request(mill),
            await make.issue(engine),
        )
        await forge.update(ada, row, description="Of #1 and !2, see ada/Engine#1, not !1, !9 or #9")
        await forge.write(ada, row, "#1 again")
        await forge.write(ada, issue, "!1 and !1; #1")
        await forge.write(ada, there, "ada/mill!2 and ada/mill#1")

        assert await forge.notes(issue, ada) == ["mentioned in merge request !1", "!1 and !1; #1", "mentioned in issue ada/engine#1"]
        assert await forge.notes(row, ada) == ["#1 again", "mentioned in issue #1"]
        assert await forge.notes(other, ada) == ["mentioned in merge request !1", "mentioned in issue ada/engine#1"]
        assert await forge.notes(there, ada) == ["mentioned in merge request ada/mill!1", "ada/mill!2 and ada/mill#1"]

    async def test_in_commits_once_each(self, forge: MentionScenario, make: DataFactory) -> None:
        ada = await make.user("ada")
        mill, engine = await make.project(owner=ada, path="mill"), await make.project(owner=ada, path="engine")
        issue, row, there = await make.issue(mill), await make.merge_request(mill), await make.issue(engine)
        for _ in range(2):
            await forge.push(ada, mill, 1, "See #1, !1 and ada/engine#1")
        # The same commit of another project, as of a fork, is another source.
        await forge.push(ada, engine, 1, "See #1, !1 and ada/engine#1")

        assert await forge.notes(issue, ada) == [f"mentioned in commit {OID(1)}"]
        assert await forge.notes(row, ada) == [f"mentioned in commit {OID(1)}"]
        assert await forge.notes(there, ada) == [f"mentioned in commit ada/mill@{OID(1)}", f"mentioned in commit {OID(1)}"]

    async def test_are_not_noted_where_merge_requests_are_disabled(self, forge: MentionScenario, make: DataFactory) -> None:
        ada = await make.user("ada")
        project = await make.project(owner=ada)
        row, issue = await make.merge_request(project), await make.issue(project)
        project.merge_requests_enabled = False
        await make.save(project)
        await forge.write(ada, issue, "See !1")
        assert await make.count(tables.Note) == 1
        assert row.iid == 1

    async def test_of_one_text_cost_the_same_for_one_and_for_many(
        self, forge: MentionScenario, make: DataFactory, statements: StatementRecorder
    ) -> None:
        ada = await make.user("ada")
        projects = [await make.project(owner=ada, path=f"p{number}") for number in range(5)]
        for project in projects:
            for _ in range(3):
                await make.issue(project)
                await make.merge_request(project)
        here = await make.issue(await make.project(owner=ada))
        costs = []
        for text in (
            "ada/p0#9 ada/p0!9",
            "ada/p0#1 ada/p0!1",
            " ".join(f"ada/p{project}{sigil}{iid}" for project in range(1, 5) for iid in (1, 2, 3) for sigil in "#!"),
        ):
            with statements.record() as seen:
                await forge.write(ada, here, text)
            costs.append(len(seen))
        assert costs[1] == costs[2]
        assert await make.count(tables.Note) == 3 + 2 + 24


class TestVisibility:
    """A note of a mention in what one may not see is counted and not shown."""

    async def test_by_the_permissions_of_each_source(self, forge: MentionScenario, make: DataFactory) -> None:
        ada, bob, eve = [await make.user(name) for name in ("ada", "bob", "eve")]
        public = await make.project(owner=ada, path="open", visibility=Visibility.PUBLIC)
        secret = await make.project(owner=ada, path="secret", members=[(bob, AccessLevel.GUEST)])
        target, issue, row = await make.merge_request(public), await make.issue(secret), await make.merge_request(secret)
        await forge.write(ada, issue, "ada/open!1")
        await forge.write(ada, row, "ada/open!1")
        await forge.push(ada, secret, 1, "See ada/open!1")
        reported = [
            "mentioned in issue ada/secret#1",
            "mentioned in merge request ada/secret!1",
            f"mentioned in commit ada/secret@{OID(1)}",
        ]

        assert await forge.notes(target, ada) == reported
        # A guest of a private project does not read its code.
        assert await forge.notes(target, bob) == reported[:2]
        assert await forge.notes(target, eve) == []
        data = await forge.ask.data(NOTES, eve, path=str(public.id), iid=1)
        assert data["project"]["mergeRequest"]["notes"]["totalCount"] == 0

        secret.merge_requests_enabled = False
        await make.save(secret)
        assert await forge.notes(target, ada) == [reported[0], reported[2]]

    async def test_statement_count_does_not_grow_with_rows(
        self, forge: MentionScenario, make: DataFactory, statements: StatementRecorder
    ) -> None:
        ada, bob = await make.user("ada"), await make.user("bob")
        public = await make.project(owner=ada, path="open", visibility=Visibility.PUBLIC)
        target = await make.merge_request(public)
        for number in range(10):
            source = await make.project(owner=ada, visibility=Visibility.PUBLIC if number % 2 else Visibility.PRIVATE)
            await forge.write(ada, await make.issue(source), "ada/open!1")
            await forge.write(ada, await make.merge_request(source), "ada/open!1")
            await forge.push(ada, source, 1, "ada/open!1")
        with statements.record() as one:
            await forge.ask.data(NOTES, bob, path=str(public.id), iid=target.iid, first=1)
        with statements.assert_at_most(len(one)):
            data = await forge.ask.data(NOTES, bob, path=str(public.id), iid=target.iid, first=30)
        assert len(data["project"]["mergeRequest"]["notes"]["nodes"]) == 15

    async def test_the_source_is_stored_with_its_project(self, forge: MentionScenario, make: DataFactory, services: Services) -> None:
        ada = await make.user("ada")
        project = await make.project(owner=ada)
        await make.issue(project)
        row = await make.merge_request(project)
        await forge.write(ada, row, "#1")
        await forge.push(ada, project, 1, "#1")
        async with services.database.read_session() as session:
            found = await session.read(select(tables.Note).where(col(tables.Note.issue_id).is_not(None)).order_by(col(tables.Note.id)))
        stored = [(note.source_project_id, note.source) for (note,) in found]
        assert stored == [(project.id, f"merge_request:{row.id}"), (project.id, f"commit:{OID(1)}")]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("!1", [Mention(None, 1, "!")]),
        ("see !12, (#3) and Group/App!4.", [Mention(None, 12, "!"), Mention(None, 3), Mention(("group", "app"), 4, "!")]),
        ("#1 !1", [Mention(None, 1), Mention(None, 1, "!")]),
        ("!0 !01 !a ! 1 !!1 #!1 !#1 a!1 !1a a/b/c!1 hello!2", []),
    ],
)
def test_reading(text: str, found: list[Mention]) -> None:
    assert parse_mentions(text) == found


class TestRenames:
    """Notes that name objects by the path of their project follow the project to its new path."""

    @pytest.mark.parametrize("change", ["path", "case", "transfer", "group", "user"])
    async def test_system_notes_have_the_present_path(self, forge: MentionScenario, make: DataFactory, ask: Ask, change: str) -> None:
        ada, admin = await make.user("ada"), await make.admin()
        group = await make.group(owner=ada, path="old")
        owner: dict[str, Any] = {"owner": ada} if change == "user" else {"group": group}
        mill = await make.project(**owner, path="mill", visibility=Visibility.INTERNAL, history=HISTORY)
        other = await make.project(
            owner=await make.user("bob"), path="other", visibility=Visibility.INTERNAL, members=[(ada, AccessLevel.MASTER)]
        )
        other_issue, target = await make.issue(other), await make.issue(other)
        source, milestone = await make.issue(mill), await make.milestone(mill, title="1.0")
        row = await make.merge_request(mill)
        reference = f"bob/other#{other_issue.iid}"
        await forge.write(ada, source, reference)
        await forge.write(ada, row, reference)
        await forge.push(ada, mill, 1, f"Closes bob/other#{target.iid}")
        await forge.write(ada, other_issue, "mentioned in issue old/mill#1, ada/mill#1")
        update = "mutation ($input: UpdateIssueInput!) { updateIssue(input: $input) { userErrors { code } } }"
        assert await ask.codes(update, ada, input={"projectPath": str(mill.id), "iid": source.iid, "milestoneId": milestone.id}) == []
        stored = await make.note(source, body="Milestone changed to [1.0](https://forge.old/old/mill/milestones/1)", system=True)

        rename = {
            "path": ("updateProject", ada, {"projectPath": str(mill.id), "path": "works"}),
            "case": ("updateProject", ada, {"projectPath": str(mill.id), "path": "Mill"}),
            "transfer": ("transferProject", admin, {"projectPath": str(mill.id), "groupPath": "fresh"}),
            "group": ("updateGroup", ada, {"groupPath": "old", "path": "fresh"}),
            "user": ("updateUser", admin, {"databaseId": ada.id, "username": "lovelace"}),
        }
        if change == "transfer":
            await make.group(path="fresh")
        name, viewer, input = rename[change]
        kind = name[0].upper() + name[1:]
        assert await ask.codes(f"mutation ($i: {kind}Input!) {{ {name}(input: $i) {{ userErrors {{ code }} }} }}", viewer, i=input) == []

        path = {"path": "old/works", "case": "old/Mill", "transfer": "fresh/mill", "group": "fresh/mill", "user": "lovelace/mill"}[change]
        assert await forge.notes(other_issue, admin) == [
            f"mentioned in issue {path}#{source.iid}",
            f"mentioned in merge request {path}!{row.iid}",
            "mentioned in issue old/mill#1, ada/mill#1",
        ]
        assert (await forge.notes(target, admin))[-1] == f"Status changed to closed by commit {path}@{OID(1)}"
        milestones = [body for body in await forge.notes(source, admin) if body.startswith("Milestone")]
        found = f"Milestone changed to [1.0]({EXTERNAL_URL}/{path}/milestones/1)"
        assert milestones == ([found] * 2 if change != "user" else [found, milestones[1]])
        assert stored.updated_at == (await make.fetch(tables.Note, stored.id)).updated_at  # type: ignore[union-attr]

    async def test_those_of_projects_of_similar_paths_stay(self, forge: MentionScenario, make: DataFactory, ask: Ask) -> None:
        ada = await make.user("ada")
        group = await make.group(owner=ada, path="old")
        mill, longer = [await make.project(group=group, path=path, visibility=Visibility.INTERNAL) for path in ("mill", "mill_2")]
        other = await make.issue(await make.project(owner=ada, path="other", visibility=Visibility.INTERNAL))
        for project in (mill, longer):
            await forge.write(ada, await make.issue(project), "ada/other#1")
        rename = "mutation ($i: UpdateProjectInput!) { updateProject(input: $i) { userErrors { code } } }"
        assert await ask.codes(rename, ada, i={"projectPath": str(mill.id), "path": "works"}) == []
        assert await forge.notes(other, ada) == ["mentioned in issue old/works#1", "mentioned in issue old/mill_2#1"]
