"""The section Notes of the interface document, under snippets and merge requests."""

from datetime import UTC, datetime

import pytest

from storage import tables
from storage.tables import AccessLevel, Visibility
from tests.make import DataFactory
from tests.rest_v3.support import response_shapes
from tests.support.api_clients import Api
from tests.support.database.statements import StatementRecorder

MOMENT = datetime(2013, 10, 2, 9, 22, 45, 0, tzinfo=UTC)
TIME = "2013-10-02T09:22:45.000Z"
NOT_FOUND = {"message": "404 Not found"}
NOT_GIVEN = {"message": '400 (Bad request) "body" not given'}


def path_of(thing: tables.Snippet | tables.Note, note_id: int | None = None) -> str:
    snippet_id = thing.id if isinstance(thing, tables.Snippet) else thing.snippet_id
    last = note_id if note_id is not None else thing.id if isinstance(thing, tables.Note) else None
    base = f"/projects/{thing.project_id}/snippets/{snippet_id}/notes"
    return base if last is None else f"{base}/{last}"


class TestListSnippetNotes:
    """GET /projects/:id/snippets/:snippet_id/notes"""

    async def test_returns_the_notes_oldest_first_with_every_field_of_the_document(self, api: Api, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user("ada", created_at=MOMENT)))
        snippet = await make.snippet(project)
        await make.note(await make.issue(project), body="Elsewhere")
        first = await make.note(snippet, body="One", created_at=MOMENT)
        await make.note(snippet, body="Two")

        response = await api.get(path_of(snippet), owner)

        assert response.status_code == 200
        assert [note["body"] for note in response.json()] == ["One", "Two"]
        assert response.json()[0] == {
            "id": first.id,
            "body": "One",
            "attachment": None,
            "author": {
                "id": owner.id,
                "username": "ada",
                "email": "ada@example.org",
                "name": "Ada",
                "state": "active",
                "created_at": TIME,
            },
            "created_at": TIME,
            "system": False,
            "upvote": False,
            "downvote": False,
            "noteable_id": snippet.id,
            "noteable_type": "Snippet",
        }
        assert response.headers["X-Total"] == "2"

    async def test_has_pages(self, api: Api, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user()))
        snippet = await make.snippet(project)
        for number in range(5):
            await make.note(snippet, body=str(number))

        response = await api.get(path_of(snippet), owner, page=2, per_page=2)

        assert [note["body"] for note in response.json()] == ["2", "3"]
        assert (response.headers["X-Next-Page"], response.headers["X-Total-Pages"]) == ("3", "3")

    async def test_statement_count_does_not_grow_with_rows(self, api: Api, make: DataFactory, statements: StatementRecorder) -> None:
        project = await make.project(owner=(owner := await make.user()))
        snippet = await make.snippet(project)
        for _ in range(30):
            await make.note(snippet, author=await make.user())

        with statements.record() as few:
            await api.get(path_of(snippet), owner, per_page=1)
        with statements.assert_at_most(len(few)):
            await api.get(path_of(snippet), owner, per_page=30)

    async def test_does_not_find_a_snippet_of_another_project(self, api: Api, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user()))
        snippet = await make.snippet(await make.project(owner=owner))

        response = await api.get(f"/projects/{project.id}/snippets/{snippet.id}/notes", owner)

        assert (response.status_code, response.json()) == (404, NOT_FOUND)

    @pytest.mark.parametrize("key", ["0", "x", "1abc", "99999999999"])
    async def test_an_invalid_id_is_404(self, api: Api, make: DataFactory, key: str) -> None:
        project = await make.project(owner=(owner := await make.user()))

        assert (await api.get(f"/projects/{project.id}/snippets/{key}/notes", owner)).status_code == 404

    async def test_hides_a_private_snippet_of_a_public_project_from_others(self, api: Api, make: DataFactory) -> None:
        guest, outsider = await make.user(), await make.user()
        project = await make.project(visibility=Visibility.PUBLIC, members=[(guest, AccessLevel.GUEST)])
        snippet = await make.snippet(project, visibility_level=0)
        note = await make.note(snippet)

        assert (await api.get(path_of(snippet), guest)).status_code == 200
        for path in (path_of(snippet), path_of(note)):
            response = await api.get(path, outsider)
            assert (response.status_code, response.json()) == (404, NOT_FOUND)
        assert (await api.post(path_of(snippet), outsider, body="x")).status_code == 404
        assert (await api.put(path_of(note), outsider, body="x")).status_code == 404

    async def test_rejects_where_snippets_are_disabled(self, api: Api, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user()), snippets_enabled=False)
        note = await make.note(await make.snippet(project))

        assert (await api.get(f"/projects/{project.id}/snippets/{note.snippet_id}/notes", owner)).status_code == 403
        assert (await api.post(f"/projects/{project.id}/snippets/{note.snippet_id}/notes", owner, body="x")).status_code == 403
        assert (await api.put(path_of(note), owner, body="x")).status_code == 403


class TestGetSnippetNote:
    """GET /projects/:id/snippets/:snippet_id/notes/:note_id"""

    async def test_returns_the_record_of_the_snippet(self, api: Api, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user("ada", created_at=MOMENT)))
        dates = {"created_at": MOMENT, "updated_at": MOMENT, "expires_at": MOMENT}
        note = await make.note(await make.snippet(project, title="Ruby", file_name="test.rb", **dates), author=await make.user())

        response = await api.get(path_of(note), owner)

        assert response.status_code == 200
        assert response.json() == {
            "id": note.snippet_id,
            "title": "Ruby",
            "file_name": "test.rb",
            "author": {
                "id": owner.id,
                "username": "ada",
                "email": "ada@example.org",
                "name": "Ada",
                "state": "active",
                "created_at": TIME,
            },
            "expires_at": TIME,
            "updated_at": TIME,
            "created_at": TIME,
        }

    async def test_does_not_find_a_note_under_another_parent(self, api: Api, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user()))
        snippet = await make.snippet(project)
        others = [await make.note(await make.snippet(project)), await make.note(await make.issue(project))]

        for note in others:
            response = await api.get(path_of(snippet, note.id), owner)
            assert (response.status_code, response.json()) == (404, NOT_FOUND)


class TestGetSnippetNoteInLegacyProfile:
    """GET /projects/:id/snippets/:snippet_id/notes/:note_id with the profile gitlab-8.5"""

    async def test_returns_the_note(self, legacy_api: Api, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user()))
        note = await make.note(await make.snippet(project), body="Here")

        response = await legacy_api.get(path_of(note), owner)

        assert response.status_code == 200
        response_shapes.check_shape("Note", response.json(), "gitlab-8.5")
        assert (response.json()["id"], response.json()["body"]) == (note.id, "Here")

    async def test_does_not_find_a_note_under_another_parent(self, legacy_api: Api, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user()))
        snippet, note = await make.snippet(project), await make.note(await make.issue(project))

        assert (await legacy_api.get(path_of(snippet, note.id), owner)).status_code == 404


class TestCreateSnippetNote:
    """POST /projects/:id/snippets/:snippet_id/notes"""

    async def test_writes_a_note(self, api: Api, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user()))
        snippet = await make.snippet(project)

        response = await api.post(path_of(snippet), owner, body="Hello")

        assert response.status_code == 201
        note = response.json()
        assert (note["body"], note["author"]["id"]) == ("Hello", owner.id)
        assert (note["noteable_id"], note["noteable_type"]) == (snippet.id, "Snippet")

    async def test_a_thumb_is_not_a_vote_on_snippets(self, api: Api, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user()))
        snippet = await make.snippet(project)

        for _ in range(2):
            note = (await api.post(path_of(snippet), owner, body=":+1:")).json()
            assert (note["body"], note["upvote"]) == (":+1:", False)

    @pytest.mark.parametrize("body", [None, "", " \n"])
    async def test_rejects_a_missing_body(self, api: Api, make: DataFactory, body: str | None) -> None:
        project = await make.project(owner=(owner := await make.user()))
        snippet = await make.snippet(project)

        response = await api.post(path_of(snippet), owner, body=body)

        assert (response.status_code, response.json()) == (400, NOT_GIVEN)

    async def test_checks_the_noteable_before_the_body(self, api: Api, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user()))
        snippet = await make.snippet(await make.project())

        assert (await api.post(f"/projects/{project.id}/snippets/{snippet.id}/notes", owner)).status_code == 404
        assert (await api.post(path_of(snippet), owner)).json() == {"message": "404 Project Not Found"}

    async def test_writes_nothing_into_another_project(self, api: Api, make: DataFactory) -> None:
        project, other = await make.project(owner=(owner := await make.user())), await make.project()
        snippet = await make.snippet(other)

        assert (await api.post(f"/projects/{project.id}/snippets/{snippet.id}/notes", owner, body="x")).status_code == 404
        assert (await api.post(path_of(snippet), owner, body="x")).status_code == 404
        assert await make.count(tables.Note) == 0


class TestUpdateSnippetNote:
    """PUT /projects/:id/snippets/:snippet_id/notes/:note_id"""

    async def test_rewrites_a_note(self, api: Api, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user()))
        note = await make.note(await make.snippet(project))

        response = await api.put(path_of(note), owner, body="New")

        assert (response.status_code, response.json()["body"]) == (200, "New")
        stored = await make.fetch(tables.Note, note.id)
        assert stored is not None
        assert stored.body == "New"

    async def test_requires_a_master_or_the_author(self, api: Api, make: DataFactory) -> None:
        author, developer, master = await make.user(), await make.user(), await make.user()
        levels = [(author, AccessLevel.GUEST), (developer, AccessLevel.DEVELOPER), (master, AccessLevel.MASTER)]
        project = await make.project(members=levels)
        note = await make.note(await make.snippet(project), author=author)

        assert (await api.put(path_of(note), author, body="a")).status_code == 200
        assert (await api.put(path_of(note), developer, body="d")).status_code == 403
        assert (await api.put(path_of(note), developer)).status_code == 403
        assert (await api.put(path_of(note), master, body="m")).status_code == 200

    async def test_rejects_a_missing_body(self, api: Api, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user()))
        note = await make.note(await make.snippet(project))

        response = await api.put(path_of(note), owner)

        assert (response.status_code, response.json()) == (400, NOT_GIVEN)

    async def test_does_not_find_a_note_under_a_wrong_parent(self, api: Api, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user()))
        snippet, issue = await make.snippet(project), await make.issue(project)
        under_issue, under_snippet = await make.note(issue, body="Old"), await make.note(snippet, body="Old")

        assert (await api.put(path_of(snippet, under_issue.id), owner, body="New")).status_code == 404
        wrong = f"/projects/{project.id}/issues/{issue.id}/notes/{under_snippet.id}"
        assert (await api.put(wrong, owner, body="New")).status_code == 404
        for note in (under_issue, under_snippet):
            stored = await make.fetch(tables.Note, note.id)
            assert stored is not None
            assert stored.body == "Old"


class TestNotesOfMergeRequests:
    """…/projects/:id/merge_requests/:merge_request_id/notes…: there are no merge requests yet"""

    CALLS = (("GET", ""), ("GET", "/1"), ("POST", ""), ("PUT", "/1"))

    @pytest.mark.parametrize(("method", "last"), CALLS)
    @pytest.mark.parametrize("noun", ["merge_requests", "merge_request"])
    async def test_finds_no_merge_request(self, api: Api, make: DataFactory, method: str, last: str, noun: str) -> None:
        project = await make.project(owner=(owner := await make.user()))

        response = await api.request(method, f"/projects/{project.id}/{noun}/1/notes{last}", owner)

        assert (response.status_code, response.json()) == (404, NOT_FOUND)

    @pytest.mark.parametrize(("method", "last"), CALLS)
    async def test_checks_viewer_and_project_first(self, api: Api, make: DataFactory, method: str, last: str) -> None:
        project = await make.project()
        path = f"/projects/{project.id}/merge_requests/1/notes{last}"

        assert (await api.request(method, path)).status_code == 401
        response = await api.request(method, path, await make.user())
        assert (response.status_code, response.json()) == (404, {"message": "404 Project Not Found"})
