"""Notes through the graph."""

from typing import Any

import pytest

from graph.fields.entities import global_id
from storage import tables
from storage.tables import AccessLevel, Visibility
from tests.make import DataFactory
from tests.support.api_clients import Ask
from tests.support.database.statements import StatementRecorder

FIELDS = "databaseId body attachment upvote noteableId noteableType noteableTypeName restPath issue { databaseId } snippet { databaseId }"
CREATE = f"mutation ($input: CreateNoteInput!) {{ createNote(input: $input) {{ note {{ {FIELDS} }} userErrors {{ field code }} }} }}"
UPDATE = f"mutation ($input: UpdateNoteInput!) {{ updateNote(input: $input) {{ note {{ {FIELDS} }} userErrors {{ field code }} }} }}"
NODES = "query ($ids: [ID!]!) { nodes(ids: $ids) { ... on Note { body } } }"
OF_SNIPPET = """query ($path: String!, $snippet: Int!, $note: Int!) { project(path: $path) { snippet(databaseId: $snippet) {
    notes { totalCount nodes { body } } note(databaseId: $note) { body viewerCan { update } } } } }"""


async def create_note(ask: Ask, viewer: tables.User, **input: Any) -> dict[str, Any]:
    payload = (await ask.data(CREATE, viewer, input={"body": "B", **input}))["createNote"]
    assert payload["userErrors"] == []
    return payload["note"]  # type: ignore[no-any-return]


class TestNoteable:
    async def test_follows_from_the_foreign_key_that_is_set(self, ask: Ask, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user()))
        issue, snippet = await make.issue(project), await make.snippet(project)
        path = str(project.id)

        under_issue = await create_note(ask, owner, projectPath=path, issueDatabaseId=issue.id)
        under_snippet = await create_note(ask, owner, projectPath=path, snippetDatabaseId=snippet.id)

        base = f"/api/v3/projects/{project.id}"
        assert under_issue | {"databaseId": 0} == {
            "databaseId": 0,
            "body": "B",
            "attachment": None,
            "upvote": False,
            "noteableId": issue.id,
            "noteableType": "ISSUE",
            "noteableTypeName": "Issue",
            "restPath": f"{base}/issues/{issue.id}/notes/{under_issue['databaseId']}",
            "issue": {"databaseId": issue.id},
            "snippet": None,
        }
        assert under_snippet | {"databaseId": 0} == {
            "databaseId": 0,
            "body": "B",
            "attachment": None,
            "upvote": False,
            "noteableId": snippet.id,
            "noteableType": "SNIPPET",
            "noteableTypeName": "Snippet",
            "restPath": f"{base}/snippets/{snippet.id}/notes/{under_snippet['databaseId']}",
            "issue": None,
            "snippet": {"databaseId": snippet.id},
        }

    async def test_may_be_named_by_its_id(self, ask: Ask, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user()))
        snippet, issue = await make.snippet(project), await make.issue(project)

        assert (await create_note(ask, owner, snippetId=global_id("Snippet", snippet.id)))["noteableId"] == snippet.id
        assert (await create_note(ask, owner, issueId=global_id("Issue", issue.id)))["noteableId"] == issue.id
        assert (await create_note(ask, owner, projectPath=str(project.id), issueIid=issue.iid))["noteableId"] == issue.id

    async def test_has_to_be_one_thing(self, ask: Ask, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user()))
        issue, snippet = await make.issue(project), await make.snippet(project)
        path = str(project.id)

        assert await ask.codes(CREATE, owner, input={"projectPath": path, "body": "B"}) == ["INVALID"]
        both = {"projectPath": path, "issueDatabaseId": issue.id, "snippetDatabaseId": snippet.id, "body": "B"}
        assert await ask.codes(CREATE, owner, input=both) == ["INVALID"]
        assert await make.count(tables.Note) == 0

    async def test_has_to_be_of_the_kind_that_is_named(self, ask: Ask, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user()))
        issue = await make.issue(project)

        assert await ask.codes(CREATE, owner, input={"snippetId": global_id("Issue", issue.id), "body": "B"}) == ["NOT_FOUND"]
        assert await ask.codes(CREATE, owner, input={"projectPath": "nobody/x", "snippetDatabaseId": 1, "body": "B"}) == ["NOT_FOUND"]


class TestSnippetNotes:
    async def test_are_its_own(self, ask: Ask, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user()))
        snippet, other = await make.snippet(project), await make.snippet(project)
        note, foreign = await make.note(snippet, body="Here"), await make.note(other, body="There")
        await make.note(await make.issue(project))

        data = await ask.data(OF_SNIPPET, owner, path=str(project.id), snippet=snippet.id, note=note.id)
        assert data["project"]["snippet"] == {
            "notes": {"totalCount": 1, "nodes": [{"body": "Here"}]},
            "note": {"body": "Here", "viewerCan": {"update": True}},
        }
        assert await ask.codes(OF_SNIPPET, owner, path=str(project.id), snippet=snippet.id, note=foreign.id) == ["NOT_FOUND"]

    async def test_a_private_snippet_hides_its_notes_from_others(self, ask: Ask, make: DataFactory) -> None:
        outsider, guest = await make.user(), await make.user()
        project = await make.project(visibility=Visibility.PUBLIC, members=[(guest, AccessLevel.GUEST)])
        snippet = await make.snippet(project, visibility_level=0)
        note = await make.note(snippet, body="Secret", author=outsider)
        ids = [global_id("Note", note.id)]
        path = str(project.id)

        assert (await ask.data(NODES, guest, ids=ids))["nodes"] == [{"body": "Secret"}]
        assert (await ask.data(NODES, outsider, ids=ids))["nodes"] == [None]
        names = {"projectPath": path, "databaseId": note.id, "body": "New"}
        assert await ask.codes(UPDATE, outsider, input=names) == ["NOT_FOUND"]
        assert await ask.codes(UPDATE, outsider, input={"id": ids[0], "body": "New"}) == ["NOT_FOUND"]
        for parent in ({"projectPath": path, "snippetDatabaseId": snippet.id}, {"snippetId": global_id("Snippet", snippet.id)}):
            assert await ask.codes(CREATE, outsider, input={**parent, "body": "B"}) == ["NOT_FOUND"]
            assert (await create_note(ask, guest, **parent))["body"] == "B"

    @pytest.mark.parametrize("switch", ["issues_enabled", "snippets_enabled"])
    async def test_disabled_features_show_and_accept_no_notes(self, ask: Ask, make: DataFactory, switch: str) -> None:
        project = await make.project(owner=(owner := await make.user()), **{switch: False})
        issue, snippet = await make.issue(project), await make.snippet(project)
        of_issue, of_snippet = await make.note(issue, body="I"), await make.note(snippet, body="S")
        path = str(project.id)
        off, on = (of_issue, of_snippet) if switch == "issues_enabled" else (of_snippet, of_issue)
        named = {"issueDatabaseId": issue.id} if off is of_issue else {"snippetDatabaseId": snippet.id}

        ids = [global_id("Note", off.id), global_id("Note", on.id)]
        assert (await ask.data(NODES, owner, ids=ids))["nodes"] == [None, {"body": on.body}]
        assert await ask.codes(CREATE, owner, input={"projectPath": path, **named, "body": "B"}) == ["FORBIDDEN"]
        assert await ask.codes(UPDATE, owner, input={"projectPath": path, "databaseId": off.id, "body": "B"}) == ["FORBIDDEN"]

    async def test_rejects_a_note_of_another_parent(self, ask: Ask, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user()))
        issue, snippet = await make.issue(project), await make.snippet(project)
        note = await make.note(snippet)
        names = {"projectPath": str(project.id), "databaseId": note.id, "body": "New"}

        assert await ask.codes(UPDATE, owner, input={**names, "issueDatabaseId": issue.id}) == ["NOT_FOUND"]
        assert await ask.codes(UPDATE, owner, input={**names, "snippetDatabaseId": snippet.id + 1}) == ["NOT_FOUND"]
        assert await ask.codes(UPDATE, owner, input={**names, "snippetDatabaseId": snippet.id}) == []

    async def test_statement_count_does_not_grow_with_rows(self, ask: Ask, make: DataFactory, statements: StatementRecorder) -> None:
        viewer = await make.user()
        ids = []
        for _ in range(15):
            project = await make.project(members=[(viewer, AccessLevel.GUEST)])
            ids += [global_id("Note", (await make.note(await make.issue(project))).id)]
            ids += [global_id("Note", (await make.note(await make.snippet(project))).id)]

        with statements.record() as few:
            await ask.data(NODES, viewer, ids=ids[:2])
        with statements.assert_at_most(len(few)):
            data = await ask.data(NODES, viewer, ids=ids)
        assert None not in data["nodes"]


class TestVotes:
    async def test_only_noteables_with_votes_accept_votes(self, ask: Ask, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user()))
        issue, snippet = await make.issue(project), await make.snippet(project)
        path = str(project.id)

        vote = await create_note(ask, owner, projectPath=path, issueDatabaseId=issue.id, body=":+1:")
        assert (vote["body"], vote["upvote"]) == ("thumbsup", True)
        again = {"projectPath": path, "issueDatabaseId": issue.id, "body": ":+1:"}
        assert await ask.codes(CREATE, owner, input=again) == ["TAKEN"]
        for _ in range(2):
            note = await create_note(ask, owner, projectPath=path, snippetDatabaseId=snippet.id, body=":+1:")
            assert (note["body"], note["upvote"]) == (":+1:", False)
