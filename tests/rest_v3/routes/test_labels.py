"""The section Labels of the interface document."""

import asyncio
from collections import Counter
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest

import rest_v3
from graph.operations.execution import Graph
from storage import tables
from storage.tables import AccessLevel, Visibility
from tests.make import EXTERNAL_URL, DataFactory, token_of
from tests.rest_v3.support.interface_rules import cites
from tests.support.api_clients import Api, route_operations
from tests.support.database.statements import StatementRecorder

MOMENT = datetime(2016, 1, 4, 15, 31, 46, 176000, tzinfo=UTC)
BUG = {"name": "bug", "color": "#FF0000"}
NO_PROJECT = {"message": "404 Project Not Found"}


def path_of(project: tables.Project) -> str:
    return f"/projects/{project.id}/labels"


async def reload_label(make: DataFactory, label: tables.Label) -> tables.Label:
    found = await make.fetch(tables.Label, label.id)
    assert found is not None
    return found


class TestListLabels:
    """GET /projects/:id/labels"""

    async def test_returns_names_and_colours_by_name(self, api: Api, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user()))
        await make.label(project, "later", color="#00FF00")
        await make.label(project, "bug", color="#FF0000")
        await make.label(await make.project(owner=owner), "elsewhere")

        response = await api.get(path_of(project), owner)

        assert response.status_code == 200
        assert response.json() == [BUG, {"name": "later", "color": "#00FF00"}]

    async def test_is_paged(self, api: Api, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user()))
        for number in range(22):
            await make.label(project, f"label {number:02}")

        first, second = await api.get(path_of(project), owner), await api.get(path_of(project), owner, page=2)

        assert [label["name"] for label in first.json()] == [f"label {number:02}" for number in range(20)]
        assert [label["name"] for label in second.json()] == ["label 20", "label 21"]
        assert (first.headers["X-Total"], first.headers["X-Total-Pages"], first.headers["X-Next-Page"]) == ("22", "2", "2")
        assert 'rel="next"' in first.headers["Link"]

    async def test_is_not_paged_for_legacy_clients(self, graph: Graph, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user()))
        for number in range(103):
            await make.label(project, f"label {number:03}")

        async with legacy_client(graph) as client:
            response = await client.get(path_of(project), headers={"PRIVATE-TOKEN": token_of(owner)})

        assert len(response.json()) == 103
        assert "X-Total" not in response.headers

    async def test_statement_count_does_not_grow_with_rows(self, api: Api, make: DataFactory, statements: StatementRecorder) -> None:
        project = await make.project(owner=(owner := await make.user()))
        for _ in range(30):
            await make.label(project)

        with statements.record() as few:
            await api.get(path_of(project), owner, per_page=1)
        with statements.assert_at_most(len(few)):
            await api.get(path_of(project), owner, per_page=30)

    async def test_hides_a_private_project_and_shows_an_internal_one(self, api: Api, make: DataFactory) -> None:
        private, internal, outsider = await make.project(), await make.project(visibility=Visibility.INTERNAL), await make.user()

        assert (await api.get(path_of(private))).status_code == 401
        assert (await api.get(path_of(private), outsider)).json() == NO_PROJECT
        assert (await api.get(path_of(internal), outsider)).json() == []

    async def test_is_forbidden_only_where_issues_and_merge_requests_are_disabled(self, api: Api, make: DataFactory) -> None:
        owner = await make.user()
        without_issues = await make.project(owner=owner, issues_enabled=False)
        without_both = await make.project(owner=owner, issues_enabled=False, merge_requests_enabled=False)

        assert (await api.get(path_of(without_issues), owner)).status_code == 200
        assert (await api.get(path_of(without_both), owner)).json() == {"message": "403 Forbidden"}
        assert (await api.post(path_of(without_both), owner, **BUG)).status_code == 403


class TestCreateLabel:
    """POST /projects/:id/labels"""

    @cites("Errors: 200 for created issues, merge requests and labels")
    async def test_creates_a_label_and_answers_200(self, api: Api, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user()))

        response = await api.post(path_of(project), owner, name=" bug ", color="#FF0000")

        assert response.status_code == 200
        assert response.json() == BUG
        assert (await api.get(path_of(project), owner)).json() == [BUG]

    async def test_answers_201_to_legacy_clients(self, graph: Graph, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user()))

        async with legacy_client(graph) as client:
            response = await client.post(path_of(project), headers={"PRIVATE-TOKEN": token_of(owner)}, json=BUG)

        assert (response.status_code, response.json()) == (201, BUG)

    @pytest.mark.parametrize("settings", [{"params": BUG}, {"data": BUG}, {"json": BUG}])
    async def test_accepts_query_form_and_json(self, api: Api, make: DataFactory, settings: dict[str, dict[str, str]]) -> None:
        project = await make.project(owner=(owner := await make.user()))

        assert (await api.request("POST", path_of(project), owner, **settings)).json() == BUG

    @pytest.mark.parametrize(("missing", "params"), [("name", {"color": "#FF0000"}), ("color", {"name": "bug"}), ("name", {"name": " "})])
    async def test_requires_a_name_and_a_colour(self, api: Api, make: DataFactory, missing: str, params: dict[str, str]) -> None:
        project = await make.project(owner=(owner := await make.user()))

        response = await api.post(path_of(project), owner, **params)

        assert response.status_code == 400
        assert response.json() == {"message": f'400 (Bad request) "{missing}" not given'}

    @cites("Errors: 400 for wrong parameters of labels")
    @pytest.mark.parametrize(
        ("params", "message"),
        [
            ({"color": "red"}, {"color": ["must be a valid color code"]}),
            ({"color": "#FFF"}, {"color": ["must be a valid color code"]}),
            ({"color": "#FF00000"}, {"color": ["must be a valid color code"]}),
            ({"color": "FF0000"}, {"color": ["must be a valid color code"]}),
            ({"color": "#GG0000"}, {"color": ["must be a valid color code"]}),
            ({"color": "#\uff11\uff11\uff11\uff11\uff11\uff11"}, {"color": ["must be a valid color code"]}),
            ({"color": {"a": 1}}, {"color": ["is invalid"]}),
            ({"name": "a,b"}, {"title": ["is invalid"]}),
            ({"name": "a&b"}, {"title": ["is invalid"]}),
            ({"name": "a?b"}, {"title": ["is invalid"]}),
            ({"name": "x" * 256}, {"title": ["is too long (maximum is 255 characters)"]}),
            ({"name": "a&b", "color": "red"}, {"title": ["is invalid"], "color": ["must be a valid color code"]}),
        ],
    )
    async def test_rejects_invalid_values(self, api: Api, make: DataFactory, params: dict[str, object], message: object) -> None:
        project = await make.project(owner=(owner := await make.user()))

        response = await api.post(path_of(project), owner, **{**BUG, **params})

        assert response.status_code == 400
        assert response.json() == {"message": message}
        assert await make.count(tables.Label) == 0

    @cites("Errors: 409 for a label that exists")
    async def test_rejects_a_duplicate_name(self, api: Api, make: DataFactory) -> None:
        project, other = await make.project(owner=(owner := await make.user())), await make.project(owner=owner)
        await make.label(project, "bug")

        response = await api.post(path_of(project), owner, name="bug", color="#00FF00")

        assert response.status_code == 409
        assert response.json() == {"message": "Label already exists"}
        assert (await api.post(path_of(project), owner, name="Bug", color="#00FF00")).status_code == 200
        assert (await api.post(path_of(other), owner, **BUG)).status_code == 200

    async def test_concurrent_duplicates_succeed_once(self, api: Api, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user()))

        responses = await asyncio.gather(*(api.post(path_of(project), owner, **BUG) for _ in range(32)))

        assert Counter(response.status_code for response in responses) == {200: 1, 409: 31}
        assert await make.count(tables.Label) == 1

    async def test_checks_permission_before_values(self, api: Api, make: DataFactory) -> None:
        guest, outsider = await make.user(), await make.user()
        project = await make.project(members=[(guest, AccessLevel.GUEST)])

        for params in (BUG, {}, {"name": "a&b"}, {"name": {}, "color": "red"}):
            assert (await api.post(path_of(project), None, **params)).status_code == 401
            assert (await api.post(path_of(project), outsider, **params)).json() == NO_PROJECT
            assert (await api.post(path_of(project), guest, **params)).json() == {"message": "403 Forbidden"}


class TestDeleteLabel:
    """DELETE /projects/:id/labels"""

    async def test_deletes_the_label_and_answers_its_whole_record(self, api: Api, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user()))
        label = await make.label(project, "bug", color="#FF0000", created_at=MOMENT, updated_at=MOMENT)
        issue = await make.issue(project, labels=[label, await make.label(project, "stays")])

        response = await api.delete(path_of(project), owner, name="bug")

        assert response.status_code == 200
        assert response.json() == {
            "id": label.id,
            "title": "bug",
            "color": "#FF0000",
            "template": False,
            "project_id": project.id,
            "created_at": "2016-01-04T15:31:46.176Z",
            "updated_at": "2016-01-04T15:31:46.176Z",
        }
        assert await make.fetch(tables.Label, label.id) is None
        assert (await api.get(f"/projects/{project.id}/issues/{issue.id}", owner)).json()["labels"] == ["stays"]

    @pytest.mark.parametrize("settings", [{"params": {"name": "bug"}}, {"data": {"name": "bug"}}, {"json": {"name": "bug"}}])
    async def test_accepts_query_form_and_json(self, api: Api, make: DataFactory, settings: dict[str, dict[str, str]]) -> None:
        project = await make.project(owner=(owner := await make.user()))
        await make.label(project, "bug")

        assert (await api.request("DELETE", path_of(project), owner, **settings)).status_code == 200
        assert await make.count(tables.Label) == 0

    @cites("Errors: 404 for a missing label")
    async def test_an_unknown_name_is_not_found(self, api: Api, make: DataFactory) -> None:
        project, other = await make.project(owner=(owner := await make.user())), await make.project(owner=owner)
        await make.label(other, "bug")

        for name in ("bug", "a&b", "x" * 300):
            response = await api.delete(path_of(project), owner, name=name)
            assert (response.status_code, response.json()) == (404, {"message": "404 Label Not Found"})
        assert await make.count(tables.Label) == 1

    async def test_requires_a_name(self, api: Api, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user()))

        response = await api.delete(path_of(project), owner)

        assert (response.status_code, response.json()) == (400, {"message": '400 (Bad request) "name" not given'})

    async def test_one_of_32_at_once_deletes_it(self, api: Api, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user()))
        await make.label(project, "bug")

        responses = await asyncio.gather(*(api.delete(path_of(project), owner, name="bug") for _ in range(32)))

        assert Counter(response.status_code for response in responses) == {200: 1, 404: 31}

    async def test_checks_permission_before_required_parameters(self, api: Api, make: DataFactory) -> None:
        guest = await make.user()
        project = await make.project(members=[(guest, AccessLevel.GUEST)])
        label = await make.label(project, "bug")

        for params in ({"name": "bug"}, {"name": "unknown"}, {}):
            assert (await api.delete(path_of(project), None, **params)).status_code == 401
            assert (await api.delete(path_of(project), await make.user(), **params)).json() == NO_PROJECT
            assert (await api.delete(path_of(project), guest, **params)).status_code == 403
        assert await make.fetch(tables.Label, label.id) is not None


class TestUpdateLabel:
    """PUT /projects/:id/labels"""

    @pytest.mark.parametrize(
        ("params", "body"),
        [
            ({"new_name": "defect"}, {"name": "defect", "color": "#FF0000"}),
            ({"color": "#00ff00"}, {"name": "bug", "color": "#00ff00"}),
            ({"new_name": "defect", "color": "#00FF00"}, {"name": "defect", "color": "#00FF00"}),
            ({"new_name": "bug", "color": ""}, BUG),
        ],
    )
    async def test_changes_the_name_the_colour_or_both(
        self, api: Api, make: DataFactory, params: dict[str, str], body: dict[str, str]
    ) -> None:
        project = await make.project(owner=(owner := await make.user()))
        label = await make.label(project, "bug", color="#FF0000", created_at=MOMENT, updated_at=MOMENT)
        issue = await make.issue(project, labels=[label])

        response = await api.put(path_of(project), owner, name="bug", **params)

        assert (response.status_code, response.json()) == (200, body)
        assert ((await reload_label(make, label)).updated_at > MOMENT) is (body != BUG)
        assert (await api.get(f"/projects/{project.id}/issues/{issue.id}", owner)).json()["labels"] == [body["name"]]

    @cites("Errors: 400 for wrong parameters of labels")
    @pytest.mark.parametrize("params", [{}, {"new_name": "", "color": " "}, {"new_name": None}, {"description": "more"}])
    async def test_requires_a_new_name_or_a_colour(self, api: Api, make: DataFactory, params: dict[str, Any]) -> None:
        project = await make.project(owner=(owner := await make.user()))
        await make.label(project, "bug")

        response = await api.put(path_of(project), owner, name="bug", **params)

        assert response.status_code == 400
        assert response.json() == {"message": 'Required parameters "new_name" or "color" missing'}

    async def test_requires_the_name(self, api: Api, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user()))

        response = await api.put(path_of(project), owner, new_name="defect")

        assert (response.status_code, response.json()) == (400, {"message": '400 (Bad request) "name" not given'})

    @cites("Errors: 404 for a missing label")
    @pytest.mark.parametrize("params", [{"new_name": "b"}, {}, {"new_name": "a&b"}, {"color": "red"}, {"color": {}}])
    async def test_an_unknown_name_is_not_found_before_other_checks(self, api: Api, make: DataFactory, params: dict[str, Any]) -> None:
        project = await make.project(owner=(owner := await make.user()))

        response = await api.put(path_of(project), owner, name="unknown", **params)

        assert response.status_code == 404
        assert response.json() == {"message": "404 Label not found Not Found"}

    @pytest.mark.parametrize(
        ("params", "message"),
        [
            ({"new_name": "taken"}, {"title": ["has already been taken"]}),
            ({"new_name": "a,b"}, {"title": ["is invalid"]}),
            ({"new_name": "x" * 256}, {"title": ["is too long (maximum is 255 characters)"]}),
            ({"color": "#12345"}, {"color": ["must be a valid color code"]}),
            ({"new_name": "fine", "color": "red"}, {"color": ["must be a valid color code"]}),
        ],
    )
    async def test_rejects_invalid_values_and_changes_nothing(
        self, api: Api, make: DataFactory, params: dict[str, str], message: object
    ) -> None:
        project = await make.project(owner=(owner := await make.user()))
        label, _ = await make.label(project, "bug", color="#FF0000"), await make.label(project, "taken")

        response = await api.put(path_of(project), owner, name="bug", **params)

        assert (response.status_code, response.json()) == (400, {"message": message})
        saved = await reload_label(make, label)
        assert (saved.title, saved.color) == ("bug", "#FF0000")

    async def test_checks_permission_first(self, api: Api, make: DataFactory) -> None:
        guest = await make.user()
        project = await make.project(members=[(guest, AccessLevel.GUEST)])
        await make.label(project, "bug")

        for name in ("bug", "unknown", ""):
            for params in ({"new_name": "b"}, {}, {"color": {}}):
                assert (await api.put(path_of(project), None, name=name, **params)).status_code == 401
                assert (await api.put(path_of(project), await make.user(), name=name, **params)).json() == NO_PROJECT
                assert (await api.put(path_of(project), guest, name=name, **params)).json() == {"message": "403 Forbidden"}


class TestWhoMayChangeLabels:
    @pytest.mark.parametrize(
        ("level", "may"),
        [(AccessLevel.GUEST, False), (AccessLevel.REPORTER, True), (AccessLevel.DEVELOPER, True), (AccessLevel.MASTER, True)],
    )
    async def test_reporters_and_above(self, api: Api, make: DataFactory, level: AccessLevel, may: bool) -> None:
        member = await make.user()
        project = await make.project(members=[(member, level)])
        await make.label(project, "old")

        assert (await api.post(path_of(project), member, **BUG)).status_code == (200 if may else 403)
        assert (await api.put(path_of(project), member, name="old", new_name="new")).status_code == (200 if may else 403)
        assert (await api.delete(path_of(project), member, name="new" if may else "old")).status_code == (200 if may else 403)

    async def test_outsiders_of_a_public_project_are_rejected_except_administrators(self, api: Api, make: DataFactory) -> None:
        project = await make.project(visibility=Visibility.PUBLIC)

        assert (await api.post(path_of(project), await make.user(), **BUG)).status_code == 403
        assert (await api.post(path_of(project), await make.admin(), **BUG)).status_code == 200


def legacy_client(graph: Graph) -> httpx.AsyncClient:
    """A client of the interface under the profile `gitlab-8.5`."""
    app = rest_v3.create_app(graph, external_url=EXTERNAL_URL, profile="gitlab-8.5", operations=route_operations())
    return httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://inside/api/v3")  # type: ignore[arg-type]
