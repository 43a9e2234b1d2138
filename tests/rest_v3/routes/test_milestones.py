"""The section Milestones of the interface document."""

import asyncio
from collections import Counter
from datetime import UTC, date, datetime
from typing import Any

import pytest

from storage import tables
from storage.tables import AccessLevel, IssueState, MilestoneState, Visibility
from tests.make import DataFactory
from tests.rest_v3.support.interface_rules import cites
from tests.support.api_clients import Api
from tests.support.database.statements import StatementRecorder

MOMENT = datetime(2016, 1, 4, 15, 31, 46, 176000, tzinfo=UTC)
NOT_FOUND = {"message": "404 Not found"}
NO_PROJECT = {"message": "404 Project Not Found"}


def path_of(project: tables.Project, milestone: tables.Milestone | None = None) -> str:
    base = f"/projects/{project.id}/milestones"
    return base if milestone is None else f"{base}/{milestone.id}"


async def reload_milestone(make: DataFactory, milestone: tables.Milestone) -> tables.Milestone:
    found = await make.fetch(tables.Milestone, milestone.id)
    assert found is not None
    return found


class TestListMilestones:
    """GET /projects/:id/milestones"""

    async def test_returns_every_field_newest_first(self, api: Api, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user()))
        old = await make.milestone(
            project, title="10.0", description="Version", due_date=date(2016, 2, 29), created_at=MOMENT, updated_at=MOMENT
        )
        new = await make.milestone(project, state=MilestoneState.CLOSED)
        await make.milestone(await make.project(owner=owner))

        response = await api.get(path_of(project), owner)

        assert response.status_code == 200
        assert [milestone["id"] for milestone in response.json()] == [new.id, old.id]
        assert response.json()[1] == {
            "id": old.id,
            "iid": 1,
            "project_id": project.id,
            "title": "10.0",
            "description": "Version",
            "state": "active",
            "created_at": "2016-01-04T15:31:46.176Z",
            "updated_at": "2016-01-04T15:31:46.176Z",
            "due_date": "2016-02-29",
        }

    async def test_filters_by_number(self, api: Api, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user()))
        for _ in range(3):
            await make.milestone(project)

        async def numbers(**params: Any) -> list[int]:
            return [milestone["iid"] for milestone in (await api.get(path_of(project), owner, **params)).json()]

        assert await numbers(iid=2) == [2]
        assert await numbers(**{"iid[]": ["1", "3"]}) == [3, 1]
        assert await numbers(iid=9) == []
        assert await numbers(iid=99999999999) == await numbers(iid="x") == []
        assert await numbers(iid="2,x") == [2]

    async def test_is_paged(self, api: Api, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user()))
        for _ in range(3):
            await make.milestone(project)

        response = await api.get(path_of(project), owner, page=2, per_page=2)

        assert [milestone["iid"] for milestone in response.json()] == [1]
        assert (response.headers["X-Total"], response.headers["X-Page"], response.headers["X-Prev-Page"]) == ("3", "2", "1")

    async def test_statement_count_does_not_grow_with_rows(self, api: Api, make: DataFactory, statements: StatementRecorder) -> None:
        project = await make.project(owner=(owner := await make.user()))
        for _ in range(30):
            await make.milestone(project)

        with statements.record() as few:
            await api.get(path_of(project), owner, per_page=1)
        with statements.assert_at_most(len(few)):
            await api.get(path_of(project), owner, per_page=30)

    async def test_hides_a_private_project_and_shows_an_internal_one(self, api: Api, make: DataFactory) -> None:
        private, internal, outsider = await make.project(), await make.project(visibility=Visibility.INTERNAL), await make.user()

        assert (await api.get(path_of(private))).status_code == 401
        assert (await api.get(path_of(private), outsider)).json() == NO_PROJECT
        assert (await api.get(path_of(internal), outsider)).json() == []


class TestGetMilestone:
    """GET /projects/:id/milestones/:milestone_id"""

    async def test_returns_the_milestone_of_the_global_id(self, api: Api, make: DataFactory) -> None:
        await make.milestone(await make.project())
        project = await make.project(owner=(owner := await make.user()))
        milestone = await make.milestone(project, title="v1")

        response = await api.get(path_of(project, milestone), owner)

        assert response.status_code == 200
        assert (response.json()["title"], response.json()["iid"]) == ("v1", 1)

    async def test_missing_foreign_and_invalid_ids_are_404(self, api: Api, make: DataFactory) -> None:
        project, other = await make.project(owner=(owner := await make.user())), await make.project(owner=owner)
        milestone = await make.milestone(other)

        for key in (milestone.id, 0, "x", "99999999999999999999"):
            response = await api.get(f"/projects/{project.id}/milestones/{key}", owner)
            assert (response.status_code, response.json()) == (404, NOT_FOUND)


class TestCreateMilestone:
    """POST /projects/:id/milestones"""

    async def test_creates_a_milestone_and_answers_201(self, api: Api, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user()))

        response = await api.post(path_of(project), owner, title=" v1 ", description="First", due_date="2016-02-29")

        assert response.status_code == 201
        body = response.json()
        assert (body["iid"], body["title"], body["description"], body["due_date"], body["state"]) == (
            1,
            "v1",
            "First",
            "2016-02-29",
            "active",
        )
        assert (await api.get(f"{path_of(project)}/{body['id']}", owner)).json() == body

    @pytest.mark.parametrize("settings", [{"params": {"title": "T"}}, {"data": {"title": "T"}}, {"json": {"title": "T"}}])
    async def test_accepts_query_form_and_json(self, api: Api, make: DataFactory, settings: dict[str, dict[str, str]]) -> None:
        project = await make.project(owner=(owner := await make.user()))

        body = (await api.request("POST", path_of(project), owner, **settings)).json()

        assert (body["title"], body["description"], body["due_date"]) == ("T", "", None)

    @pytest.mark.parametrize("title", [None, "", "   "])
    async def test_requires_a_title(self, api: Api, make: DataFactory, title: str | None) -> None:
        project = await make.project(owner=(owner := await make.user()))

        response = await api.post(path_of(project), owner, title=title)

        assert (response.status_code, response.json()) == (400, {"message": '400 (Bad request) "title" not given'})

    @pytest.mark.parametrize(
        ("params", "message"),
        [
            ({"title": "x" * 256}, {"title": ["is too long (maximum is 255 characters)"]}),
            ({"title": ["T"]}, {"title": ["is invalid"]}),
            ({"due_date": "2015-02-29"}, {"due_date": ["is invalid"]}),
            ({"due_date": "tomorrow"}, {"due_date": ["is invalid"]}),
            ({"due_date": "0000-00-00"}, {"due_date": ["is invalid"]}),
            ({"due_date": 20160229}, {"due_date": ["is invalid"]}),
        ],
    )
    async def test_rejects_invalid_values(self, api: Api, make: DataFactory, params: dict[str, object], message: object) -> None:
        project = await make.project(owner=(owner := await make.user()))

        response = await api.post(path_of(project), owner, **{"title": "T", **params})

        assert (response.status_code, response.json()) == (400, {"message": message})
        assert await make.count(tables.Milestone) == 0

    async def test_uses_the_date_of_a_timestamp(self, api: Api, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user()))

        assert (await api.post(path_of(project), owner, title="T", due_date="2016-02-29 00:00:00")).json()["due_date"] == "2016-02-29"

    async def test_rejects_a_duplicate_title_and_leaves_no_gap_in_numbers(self, api: Api, make: DataFactory) -> None:
        project, other = await make.project(owner=(owner := await make.user())), await make.project(owner=owner)
        await make.milestone(project, title="v1")

        response = await api.post(path_of(project), owner, title="v1 ")

        assert (response.status_code, response.json()) == (400, {"message": {"title": ["has already been taken"]}})
        assert (await api.post(path_of(project), owner, title="V1")).json()["iid"] == 2
        assert (await api.post(path_of(other), owner, title="v1")).status_code == 201

    async def test_concurrent_duplicates_succeed_once(self, api: Api, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user()))

        responses = await asyncio.gather(*(api.post(path_of(project), owner, title="v1") for _ in range(32)))

        assert Counter(response.status_code for response in responses) == {201: 1, 400: 31}
        assert all(
            response.json() == {"message": {"title": ["has already been taken"]}} for response in responses if response.status_code == 400
        )
        assert (await api.post(path_of(project), owner, title="v2")).json()["iid"] == 2

    async def test_checks_permission_before_values(self, api: Api, make: DataFactory) -> None:
        developer, outsider = await make.user(), await make.user()
        project = await make.project(members=[(developer, AccessLevel.DEVELOPER)])

        for params in ({"title": "T"}, {}, {"title": "T", "due_date": "x"}):
            assert (await api.post(path_of(project), None, **params)).status_code == 401
            assert (await api.post(path_of(project), outsider, **params)).json() == NO_PROJECT
            assert (await api.post(path_of(project), developer, **params)).json() == {"message": "403 Forbidden"}

    async def test_ignores_undocumented_parameters(self, api: Api, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user()))

        body = (await api.post(path_of(project), owner, title="T", iid=7, id=9, state="closed", state_event="close", project_id=5)).json()

        assert (body["iid"], body["state"], body["project_id"]) == (1, "active", project.id)


class TestUpdateMilestone:
    """PUT /projects/:id/milestones/:milestone_id"""

    async def test_changes_only_given_fields(self, api: Api, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user()))
        milestone = await make.milestone(
            project, title="v1", description="Stays", due_date=date(2016, 1, 1), created_at=MOMENT, updated_at=MOMENT
        )

        response = await api.put(path_of(project, milestone), owner, title="v2", description=" ", due_date="", state_event=None)

        assert response.status_code == 200
        body = response.json()
        assert (body["title"], body["description"], body["due_date"], body["state"]) == ("v2", "Stays", "2016-01-01", "active")
        assert body["updated_at"] > body["created_at"]

    async def test_changes_the_day_and_the_description(self, api: Api, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user()))
        milestone = await make.milestone(project)

        body = (await api.put(path_of(project, milestone), owner, description="More", due_date="2017-12-31")).json()

        assert (body["description"], body["due_date"]) == ("More", "2017-12-31")

    @cites("States: state_event of a milestone is close or activate and makes it closed or active")
    async def test_closes_and_activates(self, api: Api, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user()))
        milestone = await make.milestone(project)

        for event, state in (("activate", "active"), ("close", "closed"), ("close", "closed"), ("activate", "active")):
            response = await api.put(path_of(project, milestone), owner, state_event=event)
            assert (response.status_code, response.json()["state"]) == (200, state)

    @pytest.mark.parametrize(
        ("params", "message"),
        [
            ({"state_event": "reopen"}, {"state_event": ["is not included in the list"]}),
            ({"due_date": "soon"}, {"due_date": ["is invalid"]}),
            ({"title": "taken"}, {"title": ["has already been taken"]}),
            ({"title": "x" * 256, "state_event": "close"}, {"title": ["is too long (maximum is 255 characters)"]}),
        ],
    )
    async def test_rejects_invalid_values_and_changes_nothing(
        self, api: Api, make: DataFactory, params: dict[str, str], message: object
    ) -> None:
        project = await make.project(owner=(owner := await make.user()))
        milestone, _ = await make.milestone(project, title="v1"), await make.milestone(project, title="taken")

        response = await api.put(path_of(project, milestone), owner, **params)

        assert (response.status_code, response.json()) == (400, {"message": message})
        saved = await reload_milestone(make, milestone)
        assert (saved.title, saved.state, saved.due_date) == ("v1", MilestoneState.ACTIVE, None)

    async def test_checks_permission_then_existence_then_values(self, api: Api, make: DataFactory) -> None:
        developer, outsider = await make.user(), await make.user()
        project = await make.project(owner=(owner := await make.user()), members=[(developer, AccessLevel.DEVELOPER)])
        milestone = await make.milestone(await make.project(owner=owner))
        path = path_of(project, milestone)

        for params in ({"title": "T"}, {"state_event": "explode"}):
            assert (await api.put(path, None, **params)).status_code == 401
            assert (await api.put(path, outsider, **params)).json() == NO_PROJECT
            assert (await api.put(path, developer, **params)).json() == {"message": "403 Forbidden"}
            assert (await api.put(path, owner, **params)).json() == NOT_FOUND


class TestListMilestoneIssues:
    """GET /projects/:id/milestones/:milestone_id/issues"""

    async def test_returns_its_issues_newest_first_in_pages(self, api: Api, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user()))
        milestone, other = await make.milestone(project, title="v1"), await make.milestone(project)
        await make.issue(project, title="Old", milestone_id=milestone.id, state=IssueState.CLOSED)
        await make.issue(project, title="Other", milestone_id=other.id)
        await make.issue(project, title="None")
        await make.issue(project, title="New", milestone_id=milestone.id, created_at=MOMENT)

        response = await api.get(f"{path_of(project, milestone)}/issues", owner)

        assert response.status_code == 200
        assert [(issue["title"], issue["milestone"]["title"]) for issue in response.json()] == [("New", "v1"), ("Old", "v1")]
        page = await api.get(f"{path_of(project, milestone)}/issues", owner, page=2, per_page=1)
        assert [issue["title"] for issue in page.json()] == ["Old"]
        assert page.headers["X-Total"] == "2"

    async def test_does_not_find_a_milestone_of_another_project(self, api: Api, make: DataFactory) -> None:
        project, other = await make.project(owner=(owner := await make.user())), await make.project(owner=owner)
        milestone = await make.milestone(other)

        response = await api.get(f"{path_of(project, milestone)}/issues", owner)

        assert (response.status_code, response.json()) == (404, NOT_FOUND)
        assert (await api.get(f"{path_of(other, milestone)}/issues", await make.user())).json() == NO_PROJECT

    async def test_is_forbidden_where_issues_are_disabled(self, api: Api, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user()), issues_enabled=False)
        milestone = await make.milestone(project)

        assert (await api.get(path_of(project, milestone), owner)).status_code == 200
        assert (await api.get(f"{path_of(project, milestone)}/issues", owner)).json() == {"message": "403 Forbidden"}

    async def test_statement_count_does_not_grow_with_rows(self, api: Api, make: DataFactory, statements: StatementRecorder) -> None:
        project = await make.project(owner=(owner := await make.user()))
        milestone, label = await make.milestone(project), await make.label(project)
        for _ in range(30):
            user = await make.user()
            await make.issue(project, author=user, assignee_id=user.id, milestone_id=milestone.id, labels=[label])

        with statements.record() as few:
            await api.get(f"{path_of(project, milestone)}/issues", owner, per_page=1)
        with statements.assert_at_most(len(few)):
            await api.get(f"{path_of(project, milestone)}/issues", owner, per_page=30)


class TestWhoMayChangeMilestones:
    @pytest.mark.parametrize(("level", "may"), [(AccessLevel.GUEST, False), (AccessLevel.DEVELOPER, False), (AccessLevel.MASTER, True)])
    async def test_masters_and_above(self, api: Api, make: DataFactory, level: AccessLevel, may: bool) -> None:
        member = await make.user()
        project = await make.project(members=[(member, level)])
        milestone = await make.milestone(project)

        assert (await api.post(path_of(project), member, title="new")).status_code == (201 if may else 403)
        assert (await api.put(path_of(project, milestone), member, state_event="close")).status_code == (200 if may else 403)

    async def test_outsiders_of_a_public_project_are_rejected_except_administrators(self, api: Api, make: DataFactory) -> None:
        project = await make.project(visibility=Visibility.PUBLIC)

        assert (await api.post(path_of(project), await make.user(), title="T")).status_code == 403
        assert (await api.post(path_of(project), await make.admin(), title="T")).status_code == 201
