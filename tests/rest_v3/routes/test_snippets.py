"""Snippets of projects, under both profiles."""

from datetime import UTC, datetime

from storage import tables
from storage.tables import AccessLevel, Visibility
from tests.make import DataFactory
from tests.support.api_clients import Api
from tests.support.database.statements import StatementRecorder

MOMENT = datetime(2013, 10, 2, 9, 22, 45, 0, tzinfo=UTC)
NOT_FOUND = {"message": "404 Not found"}
VALUES = {"title": "T", "file_name": "a.rb", "code": "puts 1", "visibility_level": 20}


class TestProjectSnippets:
    async def test_private_ones_are_for_members(self, any_api: Api, make: DataFactory, statements: StatementRecorder) -> None:
        owner, outsider = await make.user(), await make.user()
        project = await make.project(owner=owner, visibility=Visibility.PUBLIC)
        private = await make.snippet(project, title="private", visibility_level=0)
        public = await make.snippet(project, title="public", created_at=MOMENT, expires_at=MOMENT)
        elsewhere = await make.snippet(await make.project(owner=owner), visibility_level=2)
        path = f"/projects/{project.id}/snippets"

        with statements.record() as few:
            first = await any_api.get(path, owner, per_page=1)
        with statements.assert_at_most(len(few)):
            every = await any_api.get(path, owner)

        assert (first.headers["X-Total"], len(first.json())) == ("2", 1)
        assert [each["title"] for each in every.json()] == ["private", "public"]
        assert [each["title"] for each in (await any_api.get(path, outsider)).json()] == ["public"]
        found = await any_api.get(f"{path}/{public.id}", outsider)
        assert (found.json()["created_at"], found.json()["expires_at"]) == ("2013-10-02T09:22:45.000Z",) * 2
        raw = await any_api.get(f"{path}/{public.id}/raw", outsider)
        assert (raw.text, raw.headers["X-Content-Type-Options"]) == ("puts 1", "nosniff")
        assert (await any_api.request("HEAD", f"{path}/{public.id}/raw", outsider)).status_code == 200
        for suffix in ("", "/raw"):
            assert (await any_api.get(f"{path}/{private.id}{suffix}", owner)).status_code == 200
            for user, absent in ((outsider, private.id), (owner, elsewhere.id), (owner, 4711), (owner, "ASDF")):
                missing = await any_api.get(f"{path}/{absent}{suffix}", user)
                assert (missing.status_code, missing.json()) == (404, NOT_FOUND)

    async def test_are_created(self, any_api: Api, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user()))
        path = f"/projects/{project.id}/snippets"

        for level, stored in ((0, 0), (10, 1), (20, 2), ("1", 1), (2, 2)):
            created = await any_api.post(path, owner, **{**VALUES, "visibility_level": level})
            row = await make.fetch(tables.Snippet, created.json()["id"])
            assert row is not None
            assert (created.status_code, row.visibility_level, row.content, row.author_id) == (201, stored, "puts 1", owner.id)
        for name in VALUES:
            refused = await any_api.post(path, owner, **{key: value for key, value in VALUES.items() if key != name})
            assert (refused.status_code, refused.json()) == (400, {"message": f'400 (Bad request) "{name}" not given'})
        for wrong in ({"file_name": "a/b"}, {"title": "x" * 256}, {"visibility_level": 5}):
            refused = await any_api.post(path, owner, **{**VALUES, **wrong})
            assert (refused.status_code, list(refused.json()["message"])) == (400, list(wrong))
        assert await make.count(tables.Snippet) == 5

    async def test_are_changed_and_deleted_by_author_and_master(self, any_api: Api, make: DataFactory) -> None:
        owner, author, reporter = await make.user(), await make.user(), await make.user()
        project = await make.project(owner=owner)
        for user in (author, reporter):
            await make.member(project, user, AccessLevel.REPORTER)
        snippet = await make.snippet(project, author=author)
        path = f"/projects/{project.id}/snippets/{snippet.id}"

        changed = await any_api.put(path, author, code="puts 2", visibility_level=0)

        assert (changed.status_code, changed.json()["title"]) == (200, snippet.title)
        assert (await any_api.get(f"{path}/raw", owner)).text == "puts 2"
        assert (await any_api.put(path, reporter, code="x", visibility_level="x")).status_code == 403
        assert (await any_api.put(path, author, file_name="a b")).status_code == 400
        assert (await any_api.put(f"{path}0", author, title="x")).json() == NOT_FOUND
        assert (await any_api.delete(path, reporter)).status_code == 403
        deleted = await any_api.delete(path, owner)
        assert deleted.status_code == 200
        assert (deleted.json()["content"], deleted.json()["visibility_level"]) == ("puts 2", 0)
        for absent in (path, f"/projects/{project.id}/snippets/ASDF"):
            again = await any_api.delete(absent, owner)
            assert (again.status_code, again.json()) == (404, {"message": "404 Snippet Not Found"})


class TestOlderComments:
    """/projects/:id/merge_requests/:merge_request_id/comments, and the same at merge_request"""

    async def test_are_notes_without_ids(self, any_api: Api, make: DataFactory) -> None:
        owner = await make.user()
        project = await make.project(owner=owner, history={"commits": 4})
        merge_request = await make.merge_request(project)
        await make.note(merge_request, body="one")
        await make.note(await make.merge_request(project), body="elsewhere")

        for noun in ("merge_requests", "merge_request"):
            path = f"/projects/{project.id}/{noun}/{merge_request.id}/comments"
            written = await any_api.post(path, owner, note=noun)
            assert (written.status_code, written.json()["note"], written.json()["author"]["id"]) == (201, noun, owner.id)
            refused = await any_api.post(path, owner, body="x")
            assert (refused.status_code, refused.json()) == (400, {"message": '400 (Bad request) "note" not given'})
            for absent in (4711, "ASDF"):
                elsewhere = f"/projects/{project.id}/{noun}/{absent}/comments"
                assert (await any_api.get(elsewhere, owner)).status_code == 404
                assert (await any_api.post(elsewhere, owner, note="x")).status_code == 404

        listed = await any_api.get(path, owner)
        assert [each["note"] for each in listed.json()] == ["one", "merge_requests", "merge_request"]
        page = await any_api.get(path, owner, per_page=2, page=2)
        assert ([each["note"] for each in page.json()], page.headers["X-Total"]) == (["merge_request"], "3")
