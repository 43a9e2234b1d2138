"""The activity log of a project: what is recorded, and who may see it."""

from typing import Any

from storage import tables
from storage.tables import AccessLevel, Visibility
from tests.make import EXTERNAL_URL, DataFactory
from tests.support.api_clients import Ask
from tests.support.database.statements import StatementRecorder
from tests.support.merge_requests import commit_text_files

LIST = """query ($path: String!, $first: Int, $after: String) { project(path: $path) { activities(first: $first, after: $after) {
    totalCount pageInfo { endCursor } nodes { id action subject actionName targetId targetTitle webUrl author { username } note { body }
        push { ref before after totalCommitsCount commits { oid message committedAt author { name } } } } } } }"""


async def change(ask: Ask, viewer: tables.User, mutation: str, **values: Any) -> None:
    kind = mutation[0].upper() + mutation[1:]
    text = f"mutation ($input: {kind}Input!) {{ {mutation}(input: $input) {{ userErrors {{ message }} }} }}"
    assert (await ask.data(text, viewer, input=values))[mutation]["userErrors"] == []


async def read_activities(ask: Ask, viewer: tables.User, project: tables.Project, **arguments: Any) -> Any:
    return (await ask.data(LIST, viewer, path=str(project.id), **arguments))["project"]["activities"]


class TestActivities:
    async def test_record_pushes_merges_and_members(self, ask: Ask, make: DataFactory) -> None:
        owner, member, guest = await make.user("ada"), await make.user("member"), await make.user("guest")
        project = await make.project(owner=owner, members=[(guest, AccessLevel.GUEST)], history={"commits": 2})
        path = str(project.id)
        await make.services.repositories.read(project.id, lambda repository: commit_text_files(repository, "topic", {"a.txt": "a"}))
        await change(ask, owner, "createBranch", projectPath=path, name="other", ref="topic")
        await change(ask, owner, "deleteBranch", projectPath=path, name="other")
        await change(ask, owner, "createMergeRequest", projectPath=path, sourceBranch="topic", targetBranch="master", title="Take it")
        merge_request = await make.fetch(tables.MergeRequest, 1)
        assert merge_request is not None
        await change(ask, owner, "createNote", projectPath=path, mergeRequestDatabaseId=1, body="Fine")
        await change(ask, owner, "acceptMergeRequest", projectPath=path, databaseId=1)
        await change(ask, owner, "addProjectMember", projectPath=path, userId=member.id, accessLevel="REPORTER")
        await change(ask, owner, "removeProjectMember", projectPath=path, userId=member.id)

        page = await read_activities(ask, owner, project)

        shown = [(each["subject"], each["actionName"], each["targetTitle"], each["author"]["username"]) for each in page["nodes"]]
        assert shown[:2] == [("MEMBER", "left", None, "member"), ("MEMBER", "joined", None, "member")]
        assert sorted(shown[2:4]) == [("MERGE_REQUEST", "accepted", "Take it", "ada"), ("REF", "pushed to", None, "ada")]
        assert shown[4:] == [
            ("MERGE_REQUEST_NOTE", "commented on", None, "ada"),
            ("MERGE_REQUEST", "opened", "Take it", "ada"),
            ("REF", "deleted", None, "ada"),
            ("REF", "pushed new", None, "ada"),
        ]
        (merged,) = [each["push"] for each in page["nodes"][2:4] if each["push"]]
        assert (merged["ref"], merged["totalCommitsCount"], len(merged["commits"])) == ("refs/heads/master", 2, 2)
        assert page["nodes"][4]["note"] == {"body": "Fine"}
        base = f"{EXTERNAL_URL}/ada/{project.path}"
        assert [each["webUrl"] for each in page["nodes"] if each["webUrl"]] == [f"{base}/merge_requests/1"] * 3
        assert [each["subject"] for each in (await read_activities(ask, guest, project))["nodes"]] == [
            "MEMBER",
            "MEMBER",
            "MERGE_REQUEST",
            "MERGE_REQUEST_NOTE",
            "MERGE_REQUEST",
        ]
        node = "query ($id: ID!) { node(id: $id) { ... on Activity { subject } } }"
        pushed = page["nodes"][-1]["id"]
        assert (await ask.data(node, owner, id=pushed))["node"] == {"subject": "REF"}
        assert (await ask.data(node, guest, id=pushed))["node"] is None
        rest = await read_activities(ask, owner, project, after=page["pageInfo"]["endCursor"])
        assert (rest["nodes"], rest["totalCount"]) == ([], 8)

    async def test_comments_and_their_activities_are_written_together(self, ask: Ask, make: DataFactory) -> None:
        user = await make.user()
        project = await make.project(owner=user, visibility=Visibility.PUBLIC, history={"commits": 1})
        issue, snippet = await make.issue(project, author=user), await make.snippet(project, author=user)
        path = str(project.id)
        await change(ask, user, "createNote", projectPath=path, issueDatabaseId=issue.id, body="One")
        await change(ask, user, "createNote", projectPath=path, issueDatabaseId=issue.id, body="Two, see #1")
        await change(ask, user, "createNote", projectPath=path, snippetDatabaseId=snippet.id, body="Not in the log")
        await change(ask, user, "createCommitComment", projectPath=path, rev="master", note="On a commit")

        nodes = (await read_activities(ask, user, project))["nodes"]
        shown = [(each["subject"], each["targetId"], each["note"]) for each in nodes]

        assert shown == [("COMMIT_COMMENT", 1, None), ("ISSUE_NOTE", 2, {"body": "Two, see #1"}), ("ISSUE_NOTE", 1, {"body": "One"})]
        oid = (await ask.data('query ($p: String!) { project(path: $p) { commit(rev: "master") { oid } } }', user, p=path))["project"]
        base = f"{EXTERNAL_URL}/{user.username}/{project.path}"
        assert [each["webUrl"] for each in nodes] == [f"{base}/commit/{oid['commit']['oid']}", *[f"{base}/issues/{issue.iid}"] * 2]

    async def test_take_a_fixed_number_of_statements(self, ask: Ask, make: DataFactory, statements: StatementRecorder) -> None:
        user = await make.user()
        projects = [await make.project(owner=user) for _ in range(3)]
        for project in projects:
            for number in range(3):
                await change(ask, user, "createIssue", projectPath=str(project.id), title=f"T{number}")
        query = """query ($first: Int) { projects(first: $first) { nodes { activities(first: $first) {
            totalCount nodes { action targetTitle webUrl author { username } note { body } push { ref } } } } } }"""

        with statements.record() as few:
            await ask.data(query, user, first=1)
        with statements.assert_at_most(len(few)):
            found = (await ask.data(query, user, first=3))["projects"]["nodes"]

        assert [each["activities"]["totalCount"] for each in found] == [3, 3, 3]
