"""Snippets through the graph."""

from datetime import UTC, datetime
from typing import Any

import pytest

from graph.fields.entities import global_id
from storage import tables
from storage.tables import AccessLevel, Visibility
from tests.make import DataFactory
from tests.support.api_clients import Ask
from tests.support.database.statements import StatementRecorder

MOMENT = datetime(2016, 1, 4, 15, 31, 46, 176000, tzinfo=UTC)
LIST = """query ($path: String!, $first: Int) { project(path: $path) {
    snippets(first: $first) { totalCount nodes { title author { username } project { path } viewerCan { update comment } } } } }"""
ONE = """query ($path: String!, $databaseId: Int!) { project(path: $path) { snippet(databaseId: $databaseId) {
    id databaseId projectId title fileName content visibility visibilityLevel expiresAt createdAt updatedAt restPath
    author { username } viewerCan { update comment } notes { totalCount } } } }"""
MANY = "{ projects(first: 50) { nodes { path snippets { totalCount nodes { title } } } } }"
NODE = "query ($id: ID!) { node(id: $id) { ... on Snippet { title } } }"
FIELDS = "snippet { databaseId title fileName content visibility expiresAt } userErrors { field message code }"
CREATE = f"mutation ($input: CreateSnippetInput!) {{ createSnippet(input: $input) {{ {FIELDS} }} }}"
UPDATE = f"mutation ($input: UpdateSnippetInput!) {{ updateSnippet(input: $input) {{ {FIELDS} }} }}"
DELETE = f"mutation ($input: DeleteSnippetInput!) {{ deleteSnippet(input: $input) {{ {FIELDS} }} }}"


def snippet_input(project: tables.Project, **values: Any) -> dict[str, Any]:
    return {"projectPath": str(project.id), "title": "Ruby", "fileName": "test.rb", "content": "puts 1", **values}


async def titles(ask: Ask, viewer: tables.User, project: tables.Project) -> list[str]:
    data = await ask.data(LIST, viewer, path=str(project.id))
    return [snippet["title"] for snippet in data["project"]["snippets"]["nodes"]]


async def run_mutation(ask: Ask, operation: str, viewer: tables.User, **input: Any) -> dict[str, Any]:
    """The snippet that a mutation answers, which must succeed."""
    ((payload,),) = [list((await ask.data(operation, viewer, input=input)).values())]
    assert payload["userErrors"] == []
    return payload["snippet"]  # type: ignore[no-any-return]


async def errors(ask: Ask, operation: str, viewer: tables.User, **input: Any) -> list[dict[str, Any]]:
    ((payload,),) = [list((await ask.data(operation, viewer, input=input)).values())]
    assert payload["snippet"] is None
    return payload["userErrors"]  # type: ignore[no-any-return]


class TestReading:
    async def test_one_with_everything(self, ask: Ask, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user("ada")))
        dates = {"created_at": MOMENT, "updated_at": MOMENT, "expires_at": MOMENT}
        snippet = await make.snippet(project, title="T", file_name="a.rb", content="x", visibility_level=1, **dates)
        await make.note(snippet)

        data = await ask.data(ONE, owner, path=str(project.id), databaseId=snippet.id)

        assert data["project"]["snippet"] == {
            "id": global_id("Snippet", snippet.id),
            "databaseId": snippet.id,
            "projectId": project.id,
            "title": "T",
            "fileName": "a.rb",
            "content": "x",
            "visibility": "INTERNAL",
            "visibilityLevel": 1,
            "expiresAt": "2016-01-04T15:31:46.176000Z",
            "createdAt": "2016-01-04T15:31:46.176000Z",
            "updatedAt": "2016-01-04T15:31:46.176000Z",
            "restPath": f"/api/v3/projects/{project.id}/snippets/{snippet.id}",
            "author": {"username": "ada"},
            "viewerCan": {"update": True, "comment": True},
            "notes": {"totalCount": 1},
        }

    async def test_lists_the_newest_first(self, ask: Ask, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user()))
        await make.snippet(project, title="Old", created_at=MOMENT)
        await make.snippet(project, title="New")

        assert await titles(ask, owner, project) == ["New", "Old"]

    async def test_a_private_one_is_for_members(self, ask: Ask, make: DataFactory) -> None:
        guest, outsider, admin = await make.user(), await make.user(), await make.admin()
        group = await make.group(members=[(await make.user("grouped"), AccessLevel.GUEST)])
        project = await make.project(group=group, visibility=Visibility.INTERNAL, members=[(guest, AccessLevel.GUEST)])
        author = await make.user()
        hidden = await make.snippet(project, author=author, title="Private", visibility_level=0)
        shown = await make.snippet(project, author=author, title="Internal", visibility_level=1)
        grouped = await make.fetch(tables.User, 4)
        assert grouped is not None
        assert grouped.username == "grouped"

        for viewer, sees in ((guest, True), (grouped, True), (admin, True), (outsider, False), (author, False)):
            assert await titles(ask, viewer, project) == (["Internal", "Private"] if sees else ["Internal"])
            one = await ask(ONE, viewer, path=str(project.id), databaseId=hidden.id)
            assert [str(problem.code) for problem in one.errors] == ([] if sees else ["NOT_FOUND"])
            node = await ask.data(NODE, viewer, id=global_id("Snippet", hidden.id))
            assert node["node"] == ({"title": "Private"} if sees else None)
            assert (await ask.data(NODE, viewer, id=global_id("Snippet", shown.id)))["node"] == {"title": "Internal"}

    async def test_none_is_seen_where_the_project_is_not(self, ask: Ask, make: DataFactory) -> None:
        project, outsider = await make.project(), await make.user()
        snippet = await make.snippet(project)

        assert await ask.codes(LIST, outsider, path=str(project.id)) == ["NOT_FOUND"]
        assert (await ask.data(NODE, outsider, id=global_id("Snippet", snippet.id)))["node"] is None

    async def test_one_of_another_project_is_not_found(self, ask: Ask, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user()))
        snippet = await make.snippet(await make.project(owner=owner))

        assert await ask.codes(ONE, owner, path=str(project.id), databaseId=snippet.id) == ["NOT_FOUND"]

    async def test_a_project_without_snippets_shows_and_takes_none(self, ask: Ask, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user()), snippets_enabled=False)
        snippet = await make.snippet(project)
        names = {"projectPath": str(project.id), "databaseId": snippet.id}

        assert await ask.codes(LIST, owner, path=str(project.id)) == ["FORBIDDEN"]
        assert await ask.codes(ONE, owner, path=str(project.id), databaseId=snippet.id) == ["FORBIDDEN"]
        assert (await ask.data(NODE, owner, id=global_id("Snippet", snippet.id)))["node"] is None
        assert await ask.codes(CREATE, owner, input=snippet_input(project)) == ["FORBIDDEN"]
        assert await ask.codes(UPDATE, owner, input=names) == ["FORBIDDEN"]
        assert await ask.codes(DELETE, owner, input=names) == ["FORBIDDEN"]

    async def test_statement_count_does_not_grow_with_rows(self, ask: Ask, make: DataFactory, statements: StatementRecorder) -> None:
        viewer = await make.user()
        project = await make.project(visibility=Visibility.PUBLIC)
        for number in range(30):
            await make.snippet(project, author=await make.user(), visibility_level=2 - number % 3)

        with statements.record() as few:
            await ask.data(LIST, viewer, path=str(project.id), first=1)
        with statements.assert_at_most(len(few)):
            data = await ask.data(LIST, viewer, path=str(project.id), first=30)
        assert len(data["project"]["snippets"]["nodes"]) == data["project"]["snippets"]["totalCount"] == 20

    async def test_statement_count_does_not_grow_with_projects(self, ask: Ask, make: DataFactory, statements: StatementRecorder) -> None:
        viewer = await make.user()
        for number in range(2):
            await make.snippet(await make.project(visibility=Visibility.PUBLIC), title=f"S{number}")
        with statements.record() as few:
            await ask.data(MANY, viewer)
        mine = await make.project(members=[(viewer, AccessLevel.GUEST)], path="mine")
        await make.snippet(mine, title="Private", visibility_level=0)
        for _ in range(8):
            await make.snippet(await make.project(visibility=Visibility.PUBLIC), visibility_level=0)

        with statements.assert_at_most(len(few)):
            data = await ask.data(MANY, viewer)
        shown = {node["path"]: node["snippets"] for node in data["projects"]["nodes"]}
        assert shown["mine"] == {"totalCount": 1, "nodes": [{"title": "Private"}]}
        assert sum(each["totalCount"] for each in shown.values()) == 3


class TestCreateSnippet:
    async def test_writes_one(self, ask: Ask, make: DataFactory) -> None:
        reporter = await make.user()
        project = await make.project(members=[(reporter, AccessLevel.REPORTER)])

        made = await run_mutation(ask, CREATE, reporter, **snippet_input(project, visibility="PUBLIC", expiresAt="2030-01-02T03:04:05Z"))

        assert made | {"databaseId": 0} == {
            "databaseId": 0,
            "title": "Ruby",
            "fileName": "test.rb",
            "content": "puts 1",
            "visibility": "PUBLIC",
            "expiresAt": "2030-01-02T03:04:05.000000Z",
        }
        row = await make.fetch(tables.Snippet, made["databaseId"])
        assert row is not None
        assert (row.author_id, row.project_id) == (reporter.id, project.id)

    async def test_requires_a_reporter(self, ask: Ask, make: DataFactory) -> None:
        guest, outsider = await make.user(), await make.user()
        project = await make.project(visibility=Visibility.PUBLIC, members=[(guest, AccessLevel.GUEST)])

        assert await ask.codes(CREATE, guest, input=snippet_input(project)) == ["FORBIDDEN"]
        assert await ask.codes(CREATE, outsider, input=snippet_input(project)) == ["FORBIDDEN"]

    @pytest.mark.parametrize(
        ("values", "field", "code"),
        [
            ({"title": " "}, "title", "REQUIRED"),
            ({"title": "x" * 256}, "title", "INVALID"),
            ({"fileName": ""}, "fileName", "REQUIRED"),
            ({"fileName": "a/b.rb"}, "fileName", "INVALID"),
            ({"fileName": "x" * 256}, "fileName", "INVALID"),
            ({"content": " \n"}, "content", "REQUIRED"),
            ({"content": "x" * 1_000_001}, "content", "INVALID"),
        ],
    )
    async def test_rejects_invalid_values(self, ask: Ask, make: DataFactory, values: dict[str, str], field: str, code: str) -> None:
        project = await make.project(owner=(owner := await make.user()))

        found = await errors(ask, CREATE, owner, **snippet_input(project, **values))

        assert [(error["field"], error["code"]) for error in found] == [(field, code)]
        assert await make.count(tables.Snippet) == 0

    async def test_the_instance_has_a_default_visibility(self, ask: Ask, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user()))

        assert (await run_mutation(ask, CREATE, owner, **snippet_input(project)))["visibility"] == "PRIVATE"
        await make.settings(default_snippet_visibility=1)
        assert (await run_mutation(ask, CREATE, owner, **snippet_input(project)))["visibility"] == "INTERNAL"
        assert (await run_mutation(ask, CREATE, owner, **snippet_input(project, visibility=None)))["visibility"] == "INTERNAL"

    async def test_a_restricted_visibility_is_for_administrators(self, ask: Ask, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user()))
        await make.settings(restricted_visibility_levels=[2])

        (error,) = await errors(ask, CREATE, owner, **snippet_input(project, visibility="PUBLIC"))
        assert (error["field"], error["code"]) == ("visibility", "INVALID")
        assert (await run_mutation(ask, CREATE, await make.admin(), **snippet_input(project, visibility="PUBLIC")))[
            "visibility"
        ] == "PUBLIC"


class TestUpdateSnippet:
    async def test_changes_given_fields(self, ask: Ask, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user()))
        snippet = await make.snippet(project, title="Old", content="old", expires_at=MOMENT, updated_at=MOMENT)
        names = {"projectPath": str(project.id), "databaseId": snippet.id}

        updated = await run_mutation(ask, UPDATE, owner, **names, content="new")
        assert (updated["title"], updated["content"], updated["expiresAt"]) == ("Old", "new", "2016-01-04T15:31:46.176000Z")
        whole = {"title": "New", "fileName": "b.py", "visibility": "PRIVATE", "expiresAt": None}
        now = await run_mutation(ask, UPDATE, owner, id=global_id("Snippet", snippet.id), **whole)
        assert now == {"databaseId": snippet.id, "content": "new", **whole}
        row = await make.fetch(tables.Snippet, snippet.id)
        assert row is not None
        assert row.updated_at > MOMENT

    @pytest.mark.parametrize("operation", [UPDATE, DELETE])
    async def test_requires_a_master_or_the_author(self, ask: Ask, make: DataFactory, operation: str) -> None:
        author, developer, master, outsider = [await make.user() for _ in range(4)]
        levels = [(author, AccessLevel.GUEST), (developer, AccessLevel.DEVELOPER), (master, AccessLevel.MASTER)]
        project = await make.project(visibility=Visibility.PUBLIC, members=levels)

        for viewer, code in ((author, None), (master, None), (developer, "FORBIDDEN"), (outsider, "FORBIDDEN")):
            snippet = await make.snippet(project, author=author)
            names = {"projectPath": str(project.id), "databaseId": snippet.id}
            if code is None:
                await run_mutation(ask, operation, viewer, **names)
            else:
                assert await ask.codes(operation, viewer, input=names) == [code]

    @pytest.mark.parametrize("operation", [UPDATE, DELETE])
    async def test_hidden_objects_are_not_found(self, ask: Ask, make: DataFactory, operation: str) -> None:
        author = await make.user()
        project = await make.project(visibility=Visibility.PUBLIC)
        snippet = await make.snippet(project, author=author, visibility_level=0)

        for names in ({"projectPath": str(project.id), "databaseId": snippet.id}, {"id": global_id("Snippet", snippet.id)}):
            assert await ask.codes(operation, author, input=names) == ["NOT_FOUND"]

    async def test_rejects_invalid_values_and_changes_nothing(self, ask: Ask, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user()))
        snippet = await make.snippet(project, title="Old", visibility_level=0)
        await make.settings(restricted_visibility_levels=[2])
        names = {"projectPath": str(project.id), "databaseId": snippet.id}

        for values in ({"title": None}, {"fileName": "/"}, {"content": ""}, {"visibility": "PUBLIC"}):
            assert len(await errors(ask, UPDATE, owner, **names, **{"title": "New", **values})) == 1
        row = await make.fetch(tables.Snippet, snippet.id)
        assert row is not None
        assert row.title == "Old"

    async def test_a_level_restricted_later_may_stay(self, ask: Ask, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user()))
        snippet = await make.snippet(project, visibility_level=2)
        await make.settings(restricted_visibility_levels=[2])

        names = {"projectPath": str(project.id), "databaseId": snippet.id}
        assert (await run_mutation(ask, UPDATE, owner, **names, title="New", visibility="PUBLIC"))["visibility"] == "PUBLIC"


class TestDeleteSnippet:
    async def test_deletes_the_notes(self, ask: Ask, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user()))
        snippet, other = await make.snippet(project, title="Gone"), await make.snippet(project)
        await make.note(snippet)
        await make.note(other)

        deleted = await run_mutation(ask, DELETE, owner, projectPath=str(project.id), databaseId=snippet.id)

        assert deleted["title"] == "Gone"
        assert (await make.count(tables.Snippet), await make.count(tables.Note)) == (1, 1)
        assert await ask.codes(DELETE, owner, input={"projectPath": str(project.id), "databaseId": snippet.id}) == ["NOT_FOUND"]
