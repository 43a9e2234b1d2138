"""The section Issues of the interface document."""

from datetime import UTC, datetime, timedelta

import pytest

from storage import tables
from storage.tables import AccessLevel, IssueState, Visibility
from tests.make import EXTERNAL_URL, DataFactory, token_of
from tests.rest_v3.support.interface_rules import cites
from tests.support.api_clients import Api
from tests.support.database.statements import StatementRecorder, requires_planner

MOMENT = datetime(2016, 1, 4, 15, 31, 46, 176000, tzinfo=UTC)
NOT_FOUND = {"message": "404 Not found"}
NO_PROJECT = {"message": "404 Project Not Found"}


class TestListIssues:
    """GET /issues"""

    async def test_returns_issues_authored_by_the_caller_in_all_projects(self, api: Api, make: DataFactory) -> None:
        author, other = await make.user(), await make.user()
        one, two = await make.project(owner=author), await make.project(owner=other, members=[(author, AccessLevel.GUEST)])
        await make.issue(one, author=author, title="First", created_at=MOMENT)
        await make.issue(two, author=author, title="Second", created_at=MOMENT + timedelta(hours=1))
        await make.issue(two, author=other, title="Somebody else's")

        response = await api.get("/issues", author)

        assert response.status_code == 200
        assert [issue["title"] for issue in response.json()] == ["Second", "First"]

    async def test_excludes_issues_of_hidden_projects(self, api: Api, make: DataFactory) -> None:
        author = await make.user()
        await make.issue(await make.project(), author=author)

        assert (await api.get("/issues", author)).json() == []

    async def test_filters_by_state_and_by_any_of_the_labels(self, api: Api, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user()))
        bug, later = await make.label(project, "bug"), await make.label(project, "later")
        await make.issue(project, title="Bug", labels=[bug])
        await make.issue(project, title="Later", labels=[later, bug], state=IssueState.CLOSED)
        await make.issue(project, title="Plain")

        async def titles(**params: str) -> set[str]:
            return {issue["title"] for issue in (await api.get("/issues", owner, **params)).json()}

        assert await titles(state="closed") == {"Later"}
        assert await titles(labels="later, bug") == {"Bug", "Later"}
        assert await titles(labels="bug", state="opened") == {"Bug"}
        assert await titles(labels="unknown") == set()
        assert await titles(labels="") == set()
        assert await titles(state="no such word") == {"Bug", "Later", "Plain"}

    @cites("Errors: a missing or wrong token is 401")
    async def test_requires_a_token(self, api: Api) -> None:
        response = await api.get("/issues")

        assert response.status_code == 401
        assert response.json() == {"message": "401 Unauthorized"}


class TestListProjectIssues:
    """GET /projects/:id/issues"""

    async def test_shows_every_field_of_the_document(self, api: Api, make: DataFactory) -> None:
        owner, helper = await make.user("ada", name="Ada"), await make.user("bob", name="Bob")
        project = await make.project(owner=owner)
        milestone = await make.milestone(project, title="v1", created_at=MOMENT, updated_at=MOMENT)
        issue = await make.issue(
            project,
            title="Crash",
            description="When starting",
            assignee_id=helper.id,
            milestone_id=milestone.id,
            labels=[await make.label(project, "z"), await make.label(project, "a")],
            created_at=MOMENT,
            updated_at=MOMENT,
        )

        response = await api.get(f"/projects/{project.id}/issues", owner)

        def person(user: tables.User) -> dict[str, object]:
            return {
                "id": user.id,
                "username": user.username,
                "name": user.name,
                "state": "active",
                "avatar_url": None,
                "web_url": f"{EXTERNAL_URL}/u/{user.username}",
            }

        assert response.json() == [
            {
                "id": issue.id,
                "iid": 1,
                "project_id": project.id,
                "title": "Crash",
                "description": "When starting",
                "state": "opened",
                "created_at": "2016-01-04T15:31:46.176Z",
                "updated_at": "2016-01-04T15:31:46.176Z",
                "labels": ["a", "z"],
                "milestone": {
                    "id": milestone.id,
                    "iid": 1,
                    "project_id": project.id,
                    "title": "v1",
                    "description": "",
                    "state": "active",
                    "created_at": "2016-01-04T15:31:46.176Z",
                    "updated_at": "2016-01-04T15:31:46.176Z",
                    "due_date": None,
                },
                "assignee": person(helper),
                "author": person(owner),
            }
        ]

    async def test_filters_by_number_state_labels_and_milestone(self, api: Api, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user()))
        milestone = await make.milestone(project, title="v1")
        await make.issue(project, title="One", milestone_id=milestone.id)
        await make.issue(project, title="Two", state=IssueState.CLOSED)
        await make.issue(project, title="Three", labels=[await make.label(project, "bug")])

        async def titles(**params: object) -> list[str]:
            response = await api.get(f"/projects/{project.id}/issues", owner, sort="asc", **params)
            return [issue["title"] for issue in response.json()]

        assert await titles(iid=2) == ["Two"]
        assert await titles(iid=99999999999) == await titles(iid="2x") == []
        assert await titles(**{"iid[]": ["1", "3"]}) == ["One", "Three"]
        assert await titles(state="opened") == ["One", "Three"]
        assert await titles(labels="bug") == ["Three"]
        assert await titles(milestone="v1") == ["One"]
        assert await titles(milestone="unknown") == []

    async def test_sorts_by_creation_or_by_change_either_way(self, api: Api, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user()))
        await make.issue(project, title="Old", created_at=MOMENT, updated_at=MOMENT + timedelta(days=9))
        await make.issue(project, title="New", created_at=MOMENT + timedelta(days=1), updated_at=MOMENT + timedelta(days=1))

        async def titles(**params: str) -> list[str]:
            return [issue["title"] for issue in (await api.get(f"/projects/{project.id}/issues", owner, **params)).json()]

        assert await titles() == ["New", "Old"]
        assert await titles(sort="asc") == ["Old", "New"]
        assert await titles(order_by="updated_at") == ["Old", "New"]
        assert await titles(order_by="updated_at", sort="asc") == ["New", "Old"]
        assert await titles(order_by="'; drop table issues", sort="sideways") == ["New", "Old"]

    async def test_pages_with_totals_and_links(self, api: Api, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user()))
        for number in range(5):
            await make.issue(project, title=str(number), created_at=MOMENT + timedelta(minutes=number))

        response = await api.get(f"/projects/{project.id}/issues", owner, per_page=2, page=2, state="opened", unknown="x")

        assert [issue["title"] for issue in response.json()] == ["2", "1"]
        headers = response.headers
        assert {name: headers[name] for name in ("X-Total", "X-Total-Pages", "X-Per-Page", "X-Page", "X-Next-Page", "X-Prev-Page")} == {
            "X-Total": "5",
            "X-Total-Pages": "3",
            "X-Per-Page": "2",
            "X-Page": "2",
            "X-Next-Page": "3",
            "X-Prev-Page": "1",
        }
        relations = [part.partition("; ")[2] for part in headers["Link"].split(", ")]
        assert relations == ['rel="prev"', 'rel="next"', 'rel="first"', 'rel="last"']
        assert f"<{EXTERNAL_URL}/api/v3/projects/{project.id}/issues?" in headers["Link"]
        assert "unknown" not in headers["Link"]

    @pytest.mark.parametrize(
        ("page", "per_page", "count"), [("-1", "2", 2), ("0", "2", 2), ("1", "100000", 3), ("x", "x", 3), ("9", "2", 0)]
    )
    async def test_accepts_any_page_numbers(self, api: Api, make: DataFactory, page: str, per_page: str, count: int) -> None:
        project = await make.project(owner=(owner := await make.user()))
        for _ in range(3):
            await make.issue(project)

        response = await api.get(f"/projects/{project.id}/issues", owner, page=page, per_page=per_page)

        assert response.status_code == 200
        assert len(response.json()) == count

    async def test_finds_the_project_by_its_escaped_path(self, api: Api, make: DataFactory) -> None:
        owner = await make.user("ada")
        project = await make.project(owner=owner, path="engine")
        await make.issue(project, title="Here")

        for path in ("ada%2Fengine", "Ada%2FENGINE"):
            response = await api.get(f"/projects/{path}/issues", owner)
            assert [issue["title"] for issue in response.json()] == ["Here"]

    async def test_statement_count_does_not_grow_with_rows(self, api: Api, make: DataFactory, statements: StatementRecorder) -> None:
        project = await make.project(owner=(owner := await make.user()))
        milestone, label = await make.milestone(project), await make.label(project)
        for _ in range(30):
            user = await make.user()
            await make.issue(project, author=user, assignee_id=user.id, milestone_id=milestone.id, labels=[label])

        with statements.record() as few:
            await api.get(f"/projects/{project.id}/issues", owner, per_page=1)
        with statements.assert_at_most(len(few)):
            await api.get(f"/projects/{project.id}/issues", owner, per_page=30)

    @cites("Errors: 404 for reads of a private project by a non-member")
    async def test_a_private_project_looks_like_a_missing_one(self, api: Api, make: DataFactory) -> None:
        project, outsider = await make.project(), await make.user()

        hidden = await api.get(f"/projects/{project.id}/issues", outsider)
        absent = await api.get("/projects/999999/issues", outsider)

        assert hidden.status_code == absent.status_code == 404
        assert hidden.json() == absent.json() == NO_PROJECT

    async def test_is_open_to_everybody_signed_in_where_the_project_is_internal(self, api: Api, make: DataFactory) -> None:
        project = await make.project(visibility=Visibility.INTERNAL)

        assert (await api.get(f"/projects/{project.id}/issues", await make.user())).status_code == 200
        assert (await api.get(f"/projects/{project.id}/issues")).status_code == 401


class TestGetIssue:
    """GET /projects/:id/issues/:issue_id"""

    async def test_returns_the_issue_of_the_global_id(self, api: Api, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user()))
        issue = await make.issue(project, title="Crash")

        response = await api.get(f"/projects/{project.id}/issues/{issue.id}", owner)

        assert response.status_code == 200
        assert response.json()["title"] == "Crash"

    async def test_does_not_find_an_issue_of_another_project(self, api: Api, make: DataFactory) -> None:
        project, other = await make.project(owner=(owner := await make.user())), await make.project(owner=owner)
        issue = await make.issue(other)

        response = await api.get(f"/projects/{project.id}/issues/{issue.id}", owner)

        assert response.status_code == 404
        assert response.json() == NOT_FOUND

    @pytest.mark.parametrize("key", ["0", "-1", "1abc", "abc", "99999999999999999999", "%31%32x", "\uff11", "1.5", "%00"])
    async def test_an_invalid_id_is_404(self, api: Api, make: DataFactory, key: str) -> None:
        project = await make.project(owner=(owner := await make.user()))
        await make.issue(project)

        response = await api.get(f"/projects/{project.id}/issues/{key}", owner)

        assert response.status_code == 404

    async def test_finds_it_behind_the_slashes_that_clients_write(self, api: Api, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user()))
        issue = await make.issue(project)

        for path in (f"/projects/{project.id}/issues//{issue.id}", f"/projects/{project.id}/issues/{issue.id}/"):
            assert (await api.get(path, owner)).status_code == 200


class TestCreateIssue:
    """POST /projects/:id/issues"""

    @cites("Errors: 200 for created issues, merge requests and labels")
    async def test_writes_an_issue_and_answers_200(self, api: Api, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user()))
        milestone, helper = await make.milestone(project), await make.user()
        await make.member(project, helper, AccessLevel.REPORTER)

        response = await api.post(
            f"/projects/{project.id}/issues",
            owner,
            title="  Crash ",
            description="Often",
            assignee_id=helper.id,
            milestone_id=milestone.id,
            labels="bug, later",
        )

        assert response.status_code == 200
        body = response.json()
        assert (body["iid"], body["title"], body["description"], body["state"]) == (1, "Crash", "Often", "opened")
        assert body["labels"] == ["bug", "later"]
        assert body["assignee"]["id"] == helper.id
        assert body["milestone"]["id"] == milestone.id
        assert await make.fetch(tables.Issue, body["id"]) is not None

    @pytest.mark.parametrize("settings", [{"params": {"title": "T"}}, {"data": {"title": "T"}}, {"json": {"title": "T"}}])
    async def test_accepts_query_form_and_json(self, api: Api, make: DataFactory, settings: dict[str, dict[str, str]]) -> None:
        project = await make.project(owner=(owner := await make.user()))

        response = await api.request("POST", f"/projects/{project.id}/issues", owner, **settings)

        assert response.json()["title"] == "T"

    async def test_accepts_the_token_as_a_parameter_and_as_a_bearer(self, api: Api, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user()))
        path, token = f"/projects/{project.id}/issues", token_of(owner)

        assert (await api.post(path, None, title="a", private_token=token)).status_code == 200
        assert (await api.request("POST", path, data={"title": "a", "private_token": token})).status_code == 200
        assert (await api.request("POST", path, json={"title": "a"}, headers={"Authorization": f"Bearer {token}"})).status_code == 200
        assert (await api.request("POST", path, json={"title": "a"}, headers={"Cookie": f"private_token={token}"})).status_code == 401

    @pytest.mark.parametrize("title", [None, "", "   "])
    async def test_rejects_a_missing_title(self, api: Api, make: DataFactory, title: str | None) -> None:
        project = await make.project(owner=(owner := await make.user()))

        response = await api.post(f"/projects/{project.id}/issues", owner, title=title)

        assert response.status_code == 400
        assert response.json() == {"message": '400 (Bad request) "title" not given'}
        assert await make.count(tables.Issue) == 0

    @pytest.mark.parametrize(
        ("params", "message"),
        [
            ({"title": "x" * 256}, {"title": ["is too long (maximum is 255 characters)"]}),
            ({"title": "nul\0"}, {"title": ["is invalid"]}),
            ({"title": {"a": 1}}, {"title": ["is invalid"]}),
            ({"title": "t", "assignee_id": "x"}, {"assignee_id": ["is not a number"]}),
            ({"title": "t", "assignee_id": 4_000_000_000}, {"assignee_id": ["is not a number"]}),
            ({"title": "t", "assignee_id": 999_999}, {"assignee_id": ["is not a user"]}),
            ({"title": "t", "milestone_id": 999_999}, {"milestone_id": ["is not a milestone of this project"]}),
            ({"title": "t", "labels": "a&b"}, {"labels": ["'a&b' is invalid"]}),
        ],
    )
    async def test_rejects_invalid_values_and_stores_nothing(
        self, api: Api, make: DataFactory, params: dict[str, object], message: object
    ) -> None:
        project = await make.project(owner=(owner := await make.user()))

        response = await api.post(f"/projects/{project.id}/issues", owner, **params)

        assert response.status_code == 400
        assert response.json() == {"message": message}
        assert await make.count(tables.Issue) == await make.count(tables.Label) == 0

    async def test_never_attaches_a_milestone_of_another_project(self, api: Api, make: DataFactory) -> None:
        project, other = await make.project(owner=(owner := await make.user())), await make.project(owner=owner)
        milestone = await make.milestone(other)

        response = await api.post(f"/projects/{project.id}/issues", owner, title="t", milestone_id=milestone.id)

        assert response.status_code == 400

    async def test_rejects_an_assignee_without_access(self, api: Api, make: DataFactory) -> None:
        project, outsider = await make.project(owner=(owner := await make.user())), await make.user()

        response = await api.post(f"/projects/{project.id}/issues", owner, title="t", assignee_id=outsider.id)

        assert response.status_code == 400

    async def test_ignores_assignee_milestone_and_labels_of_guests(self, api: Api, make: DataFactory) -> None:
        guest = await make.user()
        project = await make.project(members=[(guest, AccessLevel.GUEST)])
        milestone = await make.milestone(project)

        response = await api.post(
            f"/projects/{project.id}/issues", guest, title="t", assignee_id=guest.id, milestone_id=milestone.id, labels="x"
        )

        assert response.status_code == 200
        assert (response.json()["assignee"], response.json()["milestone"], response.json()["labels"]) == (None, None, [])

    async def test_names_the_project_before_the_parameters(self, api: Api, make: DataFactory) -> None:
        project = await make.project()

        assert (await api.post(f"/projects/{project.id}/issues", None, title="")).status_code == 401
        assert (await api.post(f"/projects/{project.id}/issues", await make.user(), title="")).json() == NO_PROJECT

    async def test_is_forbidden_where_issues_are_disabled(self, api: Api, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user()), issues_enabled=False)

        response = await api.post(f"/projects/{project.id}/issues", owner, title="t")

        assert response.status_code == 403
        assert response.json() == {"message": "403 Forbidden"}

    async def test_ignores_undocumented_parameters(self, api: Api, make: DataFactory) -> None:
        project, other = await make.project(owner=(owner := await make.user())), await make.user()

        response = await api.post(
            f"/projects/{project.id}/issues", owner, title="t", author_id=other.id, iid=77, id=5, state="closed", project_id=9
        )

        body = response.json()
        assert (body["author"]["id"], body["iid"], body["state"], body["project_id"]) == (owner.id, 1, "opened", project.id)

    @cites("Limits: a body has 1 MiB at most")
    async def test_rejects_broken_json_and_too_large_bodies(self, api: Api, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user()))
        path, json_type = f"/projects/{project.id}/issues", {"Content-Type": "application/json"}

        broken = await api.request("POST", path, owner, content=b'{"title": ', headers=json_type)
        large = await api.request("POST", path, owner, content=b'{"title": "' + b"x" * 1_100_000 + b'"}', headers=json_type)

        assert broken.status_code == 400
        assert large.status_code == 413

    @requires_planner
    async def test_relations_that_are_absent_are_not_read(self, any_api: Api, make: DataFactory, statements: StatementRecorder) -> None:
        project = await make.project(members=[(reporter := await make.user(), AccessLevel.REPORTER)])
        reads = []
        for values in ({}, {"labels": "bug"}, {}, {"labels": "bug"}):
            with statements.record() as recorded:
                response = await any_api.post(f"/projects/{project.id}/issues", reporter, title="New", **values)
            assert (response.json()["labels"], response.json()["milestone"]) == ([values["labels"]] if values else [], None)
            assert response.json()["author"]["username"] == reporter.username
            reads.append([each for each in recorded if each.startswith("SELECT") and "issue_labels" in each])

        # The first two are planned.
        assert (reads[2], len(reads[3])) == ([], 1)


class TestUpdateIssue:
    """PUT /projects/:id/issues/:issue_id"""

    async def test_changes_only_given_fields(self, api: Api, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user()))
        issue = await make.issue(project, title="Old", description="Stays", labels=[await make.label(project, "bug")])

        response = await api.put(f"/projects/{project.id}/issues/{issue.id}", owner, title="New")

        assert response.status_code == 200
        body = response.json()
        assert (body["title"], body["description"], body["labels"]) == ("New", "Stays", ["bug"])
        assert body["updated_at"] > body["created_at"]

    @cites(
        "States: an issue is closed by state_event=close",
        "States: an issue is opened by state_event=reopen",
        "Versioning: an issue is closed with PUT and never deleted",
    )
    async def test_closes_and_reopens(self, api: Api, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user()))
        issue = await make.issue(project)

        for event, state in (("close", "closed"), ("close", "closed"), ("reopen", "opened"), ("reopen", "opened")):
            response = await api.put(f"/projects/{project.id}/issues/{issue.id}", owner, state_event=event)
            assert (response.status_code, response.json()["state"]) == (200, state)

    async def test_replaces_and_clears_labels_assignee_and_milestone(self, api: Api, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user()))
        milestone = await make.milestone(project)
        issue = await make.issue(project, assignee_id=owner.id, milestone_id=milestone.id, labels=[await make.label(project, "old")])
        path = f"/projects/{project.id}/issues/{issue.id}"

        assert (await api.put(path, owner, labels="new, newer")).json()["labels"] == ["new", "newer"]
        cleared = (await api.put(path, owner, labels="", assignee_id=0, milestone_id=0)).json()
        assert (cleared["labels"], cleared["assignee"], cleared["milestone"]) == ([], None, None)

    @pytest.mark.parametrize("kind", ["issues", "merge_requests"])
    async def test_an_assignee_who_has_left_can_be_sent_back(self, api: Api, make: DataFactory, kind: str) -> None:
        project = await make.project(owner=(owner := await make.user()))
        left, stranger = await make.user(), await make.user()
        row = await (make.issue if kind == "issues" else make.merge_request)(project, assignee_id=left.id)
        path = f"/projects/{project.id}/{kind}/{row.id}"

        shown = (await api.put(path, owner, title="Next", assignee_id=left.id)).json()
        assert (shown["title"], shown["assignee"]["id"]) == ("Next", left.id)
        refused = await api.put(path, owner, title="Last", assignee_id=stranger.id)
        assert (refused.status_code, refused.json()) == (400, {"message": {"assignee_id": ["is not a member of this private project"]}})

    async def test_ignores_nulls_blanks_and_unknown_parameters(self, api: Api, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user()))
        issue = await make.issue(project, title="Same", description="Same", assignee_id=owner.id)

        response = await api.put(
            f"/projects/{project.id}/issues/{issue.id}", owner, title=None, description="", assignee_id=None, nonsense=[1], id="<built-in>"
        )

        body = response.json()
        assert (response.status_code, body["title"], body["description"], body["assignee"]["id"]) == (200, "Same", "Same", owner.id)

    async def test_rejects_an_unknown_event_only_to_those_who_may_update(self, api: Api, make: DataFactory) -> None:
        guest = await make.user()
        project = await make.project(owner=(owner := await make.user()), members=[(guest, AccessLevel.GUEST)])
        issue = await make.issue(project)
        path = f"/projects/{project.id}/issues/{issue.id}"

        assert (await api.put(path, owner, state_event="explode")).status_code == 400
        assert (await api.put(path, guest, state_event="explode")).status_code == 403
        assert (await api.put(f"/projects/{project.id}/issues/999999", owner, state_event="explode")).status_code == 404
        assert (await api.put(path, None, state_event="explode")).status_code == 401

    async def test_lets_the_author_and_the_assignee_update_whatever_their_level(self, api: Api, make: DataFactory) -> None:
        author, assignee, guest = await make.user(), await make.user(), await make.user()
        project = await make.project(members=[(user, AccessLevel.GUEST) for user in (author, assignee, guest)])
        issue = await make.issue(project, author=author, assignee_id=assignee.id)
        path = f"/projects/{project.id}/issues/{issue.id}"

        assert (await api.put(path, author, title="By author")).status_code == 200
        assert (await api.put(path, assignee, title="By assignee")).status_code == 200
        assert (await api.put(path, guest, title="By guest")).status_code == 403

    async def test_does_not_find_an_issue_of_another_project(self, api: Api, make: DataFactory) -> None:
        project, other = await make.project(owner=(owner := await make.user())), await make.project(owner=owner)
        issue = await make.issue(other, title="Untouched")

        response = await api.put(f"/projects/{project.id}/issues/{issue.id}", owner, title="Stolen")

        assert response.status_code == 404
        stored = await make.fetch(tables.Issue, issue.id)
        assert stored is not None
        assert stored.title == "Untouched"


class TestDeleteIssue:
    """DELETE /projects/:id/issues/:issue_id"""

    @cites("Errors: 405 for DELETE of an issue", "Versioning: an issue is closed with PUT and never deleted")
    async def test_is_rejected_for_every_signed_in_caller(self, api: Api, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user()))
        issue = await make.issue(project)

        for viewer in (owner, await make.user(), await make.admin()):
            for path in (f"/projects/{project.id}/issues/{issue.id}", "/projects/999/issues/x"):
                response = await api.delete(path, viewer)
                assert response.status_code == 405
                assert response.json() == {"message": "405 Method Not Allowed"}
        assert await make.fetch(tables.Issue, issue.id) is not None

    async def test_requires_a_token(self, api: Api) -> None:
        assert (await api.delete("/projects/1/issues/1")).status_code == 401
