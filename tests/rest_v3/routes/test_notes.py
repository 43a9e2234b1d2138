"""The section Notes of the interface document."""

from datetime import UTC, datetime

import pytest

from storage import tables
from storage.tables import AccessLevel, Visibility
from tests.make import DataFactory
from tests.support.api_clients import Api
from tests.support.database.statements import StatementRecorder

MOMENT = datetime(2013, 10, 2, 9, 22, 45, 0, tzinfo=UTC)


class TestListIssueNotes:
    """GET /projects/:id/issues/:issue_id/notes"""

    async def test_returns_the_notes_oldest_first_with_every_field_of_the_document(self, api: Api, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user("ada", created_at=MOMENT)))
        issue = await make.issue(project)
        first = await make.note(issue, body="One", created_at=MOMENT)
        await make.note(issue, body="closed", system=True)

        response = await api.get(f"/projects/{project.id}/issues/{issue.id}/notes", owner)

        assert response.status_code == 200
        assert [note["body"] for note in response.json()] == ["One", "closed"]
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
                "created_at": "2013-10-02T09:22:45.000Z",
            },
            "created_at": "2013-10-02T09:22:45.000Z",
            "system": False,
            "upvote": False,
            "downvote": False,
            "noteable_id": issue.id,
            "noteable_type": "Issue",
        }
        assert response.headers["X-Total"] == "2"

    async def test_statement_count_does_not_grow_with_rows(self, api: Api, make: DataFactory, statements: StatementRecorder) -> None:
        project = await make.project(owner=(owner := await make.user()))
        issue = await make.issue(project)
        for _ in range(30):
            await make.note(issue, author=await make.user())

        with statements.record() as few:
            await api.get(f"/projects/{project.id}/issues/{issue.id}/notes", owner, per_page=1)
        with statements.assert_at_most(len(few)):
            await api.get(f"/projects/{project.id}/issues/{issue.id}/notes", owner, per_page=30)

    async def test_does_not_find_the_issue_of_another_project(self, api: Api, make: DataFactory) -> None:
        project, other = await make.project(owner=(owner := await make.user())), await make.project(owner=owner)
        issue = await make.issue(other)

        assert (await api.get(f"/projects/{project.id}/issues/{issue.id}/notes", owner)).status_code == 404


class TestGetIssueNote:
    """GET /projects/:id/issues/:issue_id/notes/:note_id"""

    async def test_returns_one_note(self, api: Api, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user()))
        note = await make.note(await make.issue(project), body="Here")

        response = await api.get(f"/projects/{project.id}/issues/{note.issue_id}/notes/{note.id}", owner)

        assert (response.status_code, response.json()["body"]) == (200, "Here")

    async def test_does_not_find_a_note_under_another_issue(self, api: Api, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user()))
        issue, note = await make.issue(project), await make.note(await make.issue(project))

        response = await api.get(f"/projects/{project.id}/issues/{issue.id}/notes/{note.id}", owner)

        assert (response.status_code, response.json()) == (404, {"message": "404 Not found"})


class TestCreateIssueNote:
    """POST /projects/:id/issues/:issue_id/notes"""

    async def test_writes_a_note(self, api: Api, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user()))
        issue = await make.issue(project)

        response = await api.post(f"/projects/{project.id}/issues/{issue.id}/notes", owner, body="Hello")

        assert response.status_code == 201
        assert (response.json()["body"], response.json()["author"]["id"]) == ("Hello", owner.id)

    @pytest.mark.parametrize(
        ("body", "upvote", "downvote"), [(":+1:", True, False), (" :thumbsdown: ", False, True), ("a :+1:", False, False)]
    )
    async def test_accepts_a_single_thumb_as_a_vote(self, api: Api, make: DataFactory, body: str, upvote: bool, downvote: bool) -> None:
        project = await make.project(owner=(owner := await make.user()))
        issue = await make.issue(project)

        note = (await api.post(f"/projects/{project.id}/issues/{issue.id}/notes", owner, body=body)).json()

        assert (note["upvote"], note["downvote"]) == (upvote, downvote)

    async def test_counts_a_vote_of_one_author_once(self, api: Api, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user()))
        for parent in (f"issues/{(await make.issue(project)).id}", f"merge_requests/{(await make.merge_request(project)).id}"):
            path = f"/projects/{project.id}/{parent}/notes"

            assert (await api.post(path, owner, body=":+1:")).status_code == 201
            again = await api.post(path, owner, body=":thumbsup:")
            assert (again.status_code, again.json()) == (404, {"message": {"body": ["has already been taken"]}})
            assert (await api.post(path, owner, body=":-1:")).status_code == 201

    @pytest.mark.parametrize("body", [None, "", " \n"])
    async def test_rejects_a_missing_body(self, api: Api, make: DataFactory, body: str | None) -> None:
        project = await make.project(owner=(owner := await make.user()))
        issue = await make.issue(project)

        response = await api.post(f"/projects/{project.id}/issues/{issue.id}/notes", owner, body=body)

        assert (response.status_code, response.json()) == (400, {"message": '400 (Bad request) "body" not given'})
        assert await make.count(tables.Note) == 0

    async def test_writes_nothing_into_another_project(self, api: Api, make: DataFactory) -> None:
        project, other = await make.project(owner=(owner := await make.user())), await make.project()
        issue = await make.issue(other)

        assert (await api.post(f"/projects/{project.id}/issues/{issue.id}/notes", owner, body="x")).status_code == 404
        assert (await api.post(f"/projects/{other.id}/issues/{issue.id}/notes", owner, body="x")).status_code == 404
        assert await make.count(tables.Note) == 0

    async def test_is_open_to_guests_and_on_public_projects_to_everybody_signed_in(self, api: Api, make: DataFactory) -> None:
        guest, outsider = await make.user(), await make.user()
        private = await make.project(members=[(guest, AccessLevel.GUEST)])
        public = await make.project(visibility=Visibility.PUBLIC)

        for project, viewer in ((private, guest), (public, outsider)):
            issue = await make.issue(project)
            assert (await api.post(f"/projects/{project.id}/issues/{issue.id}/notes", viewer, body="x")).status_code == 201


class TestUpdateIssueNote:
    """PUT /projects/:id/issues/:issue_id/notes/:note_id"""

    async def test_rewrites_a_note(self, api: Api, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user()))
        note = await make.note(await make.issue(project))

        response = await api.put(f"/projects/{project.id}/issues/{note.issue_id}/notes/{note.id}", owner, body="New")

        assert (response.status_code, response.json()["body"]) == (200, "New")

    async def test_requires_a_master_or_the_author(self, api: Api, make: DataFactory) -> None:
        author, developer, master = await make.user(), await make.user(), await make.user()
        levels = [(author, AccessLevel.GUEST), (developer, AccessLevel.DEVELOPER), (master, AccessLevel.MASTER)]
        project = await make.project(members=levels)
        note = await make.note(await make.issue(project), author=author, body="Old")
        path = f"/projects/{project.id}/issues/{note.issue_id}/notes/{note.id}"

        assert (await api.put(path, author, body="a")).status_code == 200
        assert (await api.put(path, developer, body="d")).status_code == 403
        assert (await api.put(path, master, body="m")).status_code == 200

    async def test_system_notes_and_votes_cannot_be_changed(self, api: Api, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user()))
        note = await make.note(await make.issue(project), body="Status changed to closed", system=True)

        response = await api.put(f"/projects/{project.id}/issues/{note.issue_id}/notes/{note.id}", owner, body="Other")

        assert (response.status_code, response.json()["body"]) == (200, "Status changed to closed")

    async def test_does_not_find_a_note_under_a_wrong_parent(self, api: Api, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user()))
        issue, note = await make.issue(project), await make.note(await make.issue(project), body="Old")

        response = await api.put(f"/projects/{project.id}/issues/{issue.id}/notes/{note.id}", owner, body="New")

        assert response.status_code == 404
        stored = await make.fetch(tables.Note, note.id)
        assert stored is not None
        assert stored.body == "Old"


class TestSystemNotes:
    """What the service writes under issues, as GET …/notes shows it."""

    async def test_describe_changes(self, api: Api, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user("ada")), path="mill")
        issue, milestone = await make.issue(project, title="Old"), await make.milestone(project, title="1.0")
        path = f"/projects/{project.id}/issues/{issue.id}"

        await api.put(path, owner, state_event="close")
        await api.put(path, owner, title="New", labels="bug", assignee_id=owner.id, milestone_id=milestone.id, state_event="reopen")
        await api.put(path, owner, assignee_id=0, milestone_id=0)
        notes = (await api.get(f"{path}/notes", owner)).json()

        assert [note["body"] for note in notes] == [
            "Status changed to closed",
            "Status changed to reopened",
            "Title changed from **Old** to **New**",
            f"Milestone changed to [1.0](http://forge.example/ada/mill/milestones/{milestone.iid})",
            "Reassigned to @ada",
            "Milestone removed",
            "Assignee removed",
        ]
        system_notes = {(note["system"], note["author"]["username"], note["noteable_type"], note["upvote"]) for note in notes}
        assert system_notes == {(True, "ada", "Issue", False)}

    async def test_describe_mentions(self, api: Api, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user()))
        first = await make.issue(project)

        second = (await api.post(f"/projects/{project.id}/issues", owner, title="x", description="As in #1")).json()
        await api.post(f"/projects/{project.id}/issues/{second['id']}/notes", owner, body="#1 again")

        notes = (await api.get(f"/projects/{project.id}/issues/{first.id}/notes", owner)).json()
        assert [(note["body"], note["system"]) for note in notes] == [("mentioned in issue #2", True)]


class TestHiddenMentions:
    """A mention in what the caller does not see: 404 alone, and neither on a page nor counted (docs/wire-facts.md 2 and 3)."""

    async def test_are_not_found_and_not_counted(self, api: Api, make: DataFactory) -> None:
        owner, outsider = await make.user("ada"), await make.user()
        public = await make.project(owner=owner, path="open", visibility=Visibility.PUBLIC)
        secret = await make.project(owner=owner, path="secret")
        issue, source = await make.issue(public), await make.issue(secret)
        await api.post(f"/projects/{secret.id}/issues/{source.id}/notes", owner, body="ada/open#1")
        await make.note(issue, body="Plain")
        path = f"/projects/{public.id}/issues/{issue.id}/notes"

        shown, hidden = await api.get(path, owner), await api.get(path, outsider)
        assert [note["body"] for note in shown.json()] == ["mentioned in issue ada/secret#1", "Plain"]
        assert [note["body"] for note in hidden.json()] == ["Plain"]
        assert (shown.headers["X-Total"], hidden.headers["X-Total"]) == ("2", "1")
        assert len((await api.get(path, outsider, per_page=1)).json()) == 1

        mention = f"{path}/{shown.json()[0]['id']}"
        assert (await api.get(mention, owner)).status_code == 200
        for answer in (await api.get(mention, outsider), await api.put(mention, outsider, body="x")):
            assert (answer.status_code, answer.json()) == (404, {"message": "404 Not found"})
