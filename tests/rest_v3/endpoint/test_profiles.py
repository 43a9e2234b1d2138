"""The profile `gitlab-8.5`: what it changes, what it does not, and what holds under every profile (docs/wire-facts.md 16)."""

from pathlib import Path
from typing import Any

import pytest

from graph.operations.execution import prepare_document
from rest_v3 import profiles
from rest_v3.api_docs.profile_differences import write_into
from rest_v3.operations import OperationRegistry
from rest_v3.route import Route
from rest_v3.routes import EXTRA_ROUTES, ROUTES
from storage import tables
from tests.make import DataFactory, ssh_key, token_of
from tests.rest_v3.support.interface_document import DOCUMENTED_CALLS
from tests.rest_v3.support.interface_rules import cites
from tests.support.api_clients import Api, route_operations

LEGACY_PROFILE = "gitlab-8.5"
PROFILES_DOCUMENT = Path(__file__).parents[3] / "docs" / "profiles.md"

ROWS = (*ROUTES, *EXTRA_ROUTES)


class TestProfileData:
    def test_names_the_two_profiles(self) -> None:
        assert list(profiles.PROFILES) == ["document", LEGACY_PROFILE]

    def test_the_document_profile_changes_nothing(self) -> None:
        assert profiles.apply_profile("document", ROWS) == ROWS

    def test_every_part_of_the_data_changes_a_row(self) -> None:
        profile, changed = profiles.find_profile(LEGACY_PROFILE), profiles.apply_profile(LEGACY_PROFILE, ROWS)
        assert [row.call for row in changed] == [row.call for row in ROWS]
        found = {row.call for row, other in zip(ROWS, changed, strict=True) if row != other}
        assert profile.routes.keys() <= found
        assert profile.reshapes.keys() <= {row.shape for row in changed}
        own = OperationRegistry.read(profiles.OPERATIONS_FOLDER, prepare_document)
        assert own.names <= route_operations().names, "an operation that replaces none"
        operations = profiles.replace_operations(LEGACY_PROFILE, route_operations())
        assert {name for name in operations.names if operations.document(name) != route_operations().document(name)} >= own.names

    def test_the_document_of_the_differences_is_up_to_date(self) -> None:
        text = PROFILES_DOCUMENT.read_text(encoding="utf-8")
        assert write_into(text, LEGACY_PROFILE) == text, "run scripts/profiles"

    def test_under_it_every_creation_that_changes_something_answers_201(self) -> None:
        creations = [row for row in profiles.apply_profile(LEGACY_PROFILE, ROWS) if row.method == "POST"]

        assert {row.success_status for row in creations} == {201}

    def test_the_document_s_statuses_hold_without_it(self) -> None:
        documented = {call.call: call.status for call in DOCUMENTED_CALLS if call.status is not None}

        assert {row.call: documented[row.call] for row in ROUTES if row.call in documented and row.rejection_status is None} == {
            row.call: row.success_status for row in ROUTES if row.call in documented and row.rejection_status is None
        }


@pytest.fixture
async def admin(make: DataFactory) -> tables.User:
    return await make.admin()


@pytest.fixture
async def owner(make: DataFactory) -> tables.User:
    return await make.user()


class TestProfileDifferences:
    """Each difference as a caller meets it: the document's answer, then that of the time."""

    async def test_an_issue_is_created_with_201(self, api: Api, legacy_api: Api, make: DataFactory, owner: tables.User) -> None:
        path = f"/projects/{(await make.project(owner=owner)).id}/issues"

        assert [(await each.post(path, owner, title="T")).status_code for each in (api, legacy_api)] == [200, 201]

    async def test_a_label_is_created_with_201(self, api: Api, legacy_api: Api, make: DataFactory, owner: tables.User) -> None:
        path = f"/projects/{(await make.project(owner=owner)).id}/labels"

        answered = [
            (await each.post(path, owner, name=name, color="#FF0000")).status_code for each, name in ((api, "a"), (legacy_api, "b"))
        ]

        assert answered == [200, 201]

    async def test_a_hook_is_created_as_an_object(self, api: Api, legacy_api: Api, admin: tables.User) -> None:
        listed, alone = [(await each.post("/hooks", admin, url="https://hooks.example/x")).json() for each in (api, legacy_api)]

        assert [hook["url"] for hook in listed] == [alone["url"]]

    async def test_settings_have_a_whitelist(self, api: Api, legacy_api: Api, admin: tables.User) -> None:
        for method in ("GET", "PUT"):
            documented = (await api.request(method, "/application/settings", admin)).json()
            older = {"domain_whitelist", "gravatar_enabled", "twitter_sharing_enabled"}
            assert (await legacy_api.request(method, "/application/settings", admin)).json().keys() - documented.keys() == older

    async def test_a_note_of_a_snippet_is_a_note(self, api: Api, legacy_api: Api, make: DataFactory, owner: tables.User) -> None:
        project = await make.project(owner=owner)
        snippet = tables.Snippet(project_id=project.id, author_id=owner.id, title="T", file_name="f.txt", content="c")
        await make.save(snippet)
        path = f"/projects/{project.id}/snippets/{snippet.id}/notes"
        note = (await api.post(path, owner, body="B")).json()

        assert (await api.get(f"{path}/{note['id']}", owner)).json()["file_name"] == "f.txt"
        assert (await legacy_api.get(f"{path}/{note['id']}", owner)).json()["body"] == note["body"]

    async def test_a_repeated_block_is_no_failure(self, api: Api, legacy_api: Api, make: DataFactory, admin: tables.User) -> None:
        path = f"/users/{(await make.user()).id}/block"

        answered = [await each.put(path, admin) for each in (api, api, legacy_api)]

        assert [(response.status_code) for response in answered] == [200, 403, 200]
        assert (answered[0].json(), answered[2].json()) == (True, False)

    async def test_short_lists_come_whole(self, api: Api, legacy_api: Api, make: DataFactory, admin: tables.User) -> None:
        project = await make.project(owner=admin)
        people = [await make.user() for _ in range(21)]
        group = await make.group(members=[(person, 10) for person in people])
        for number in range(21):
            await make.label(project)
            await make.save(
                tables.Hook(url="https://hooks.example"),
                tables.SshKey(user_id=admin.id, title="k", key=ssh_key(number), fingerprint=f"{number}"),
                tables.Email(user_id=admin.id, email=f"more{number}@example.org"),
            )
        changes = profiles.find_profile(LEGACY_PROFILE).routes
        whole = {call for call, changed in changes.items() if changed == profiles.UNPAGED and "merge_requests" not in call}
        found = set()

        for path in (
            f"/projects/{project.id}/labels",
            f"/groups/{group.id}/members",
            "/hooks",
            "/user/keys",
            f"/users/{admin.id}/keys",
            "/user/emails",
            f"/users/{admin.id}/emails",
        ):
            paged, all_of_it = await api.get(path, admin), await legacy_api.get(path, admin, page=2, per_page=1)
            assert (len(paged.json()), paged.headers["X-Total"]) == (20, "21")
            assert len(all_of_it.json()) == 21
            assert not {"x-total", "x-page", "link"} & all_of_it.headers.keys()
            found.add(api.app.find_route("GET", path).call)
        assert found == whole


class TestEveryProfile:
    """Needs of clients that the document does not contradict hold under both profiles; numbers are rows of docs/wire-facts.md 16."""

    async def test_4_other_creations_answer_201(self, any_api: Api, make: DataFactory, admin: tables.User) -> None:
        project = await make.project(owner=admin)
        group, person, issue = await make.group(owner=admin), await make.user(), await make.issue(project)
        creations: dict[str, dict[str, Any]] = {
            "/users": {"email": "x@example.org", "username": "x", "name": "X", "password": "12345678"},
            "/groups": {"name": "G", "path": "g"},
            f"/groups/{group.id}/members": {"user_id": person.id, "access_level": 10},
            f"/groups/{group.id}/projects/{project.id}": {},
            f"/projects/{project.id}/milestones": {"title": "M"},
            f"/projects/{project.id}/issues/{issue.id}/notes": {"body": "B"},
            "/hooks": {"url": "https://hooks.example"},
            "/user/keys": {"title": "k", "key": ssh_key(1)},
        }

        answered = {path: (await any_api.post(path, admin, **body)).status_code for path, body in creations.items()}

        assert answered == dict.fromkeys(creations, 201)

    def test_6_merge_requests_have_a_second_path(self) -> None:
        row = Route(call="GET /projects/:id/merge_requests/:merge_request_id/notes", operation="Any")

        assert row.paths == (row.path, "/projects/:id/merge_request/:merge_request_id/notes")

    async def test_7_slashes_fold(self, any_api: Api, make: DataFactory, owner: tables.User) -> None:
        project = await make.project(owner=owner)
        issue = await make.issue(project)

        for path in (f"/projects/{project.id}/issues/", f"/projects/{project.id}/issues//{issue.id}", f"//projects//{project.id}/issues"):
            assert (await any_api.get(path, owner)).status_code == 200

    async def test_8_users_have_their_older_names(self, any_api: Api, make: DataFactory, admin: tables.User) -> None:
        path = f"/users/{(await make.user()).id}"

        changed = (await any_api.put(path, admin, skype="s", linkedin="l", twitter="t")).json()

        names = (("messenger", "professional_profile", "microblog"), ("skype", "linkedin", "twitter"))
        shown, hidden = names if any_api.profile == "document" else names[::-1]
        assert [changed[name] for name in shown] == ["s", "l", "t"]
        assert not {*hidden} & changed.keys()

    async def test_9_settings_have_their_older_names(self, any_api: Api, admin: tables.User) -> None:
        changed = (await any_api.put("/application/settings", admin, gravatar_enabled=False, twitter_sharing_enabled=False)).json()

        names = (("avatar_service_enabled", "microblog_sharing_enabled"), ("gravatar_enabled", "twitter_sharing_enabled"))
        shown, hidden = names if any_api.profile == "document" else names[::-1]
        assert [changed[name] for name in shown] == [False, False]
        assert not {*hidden} & changed.keys()

    @cites(
        "Authentication: the header PRIVATE-TOKEN carries the user's private token",
        "Authentication: a bearer header or the parameter private_token carry the token as well, and nothing else does",
    )
    @pytest.mark.parametrize("location", ["header", "bearer", "query", "form", "json"])
    async def test_14_credentials_may_stand_in_five_places(self, any_api: Api, owner: tables.User, location: str) -> None:
        token = token_of(owner)
        settings: dict[str, Any] = {
            "header": {"headers": {"Private-Token": token}},
            "bearer": {"headers": {"Authorization": f"Bearer {token}"}},
            "query": {"params": {"private_token": token}},
            "form": {"data": {"private_token": token}},
            "json": {"json": {"private_token": token}},
        }[location]

        response = await any_api.request("POST", "/groups", None, **_with_group(settings))

        assert response.status_code == 201

    @pytest.mark.parametrize("kind", ["params", "data", "json"])
    async def test_15_bodies_may_be_json(self, any_api: Api, owner: tables.User, kind: str) -> None:
        settings: dict[str, Any] = {kind: {"name": "G", "path": "g"}}

        assert (await any_api.request("POST", "/groups", owner, **settings)).status_code == 201

    async def test_extra_parameters_are_ignored(self, any_api: Api, make: DataFactory, owner: tables.User) -> None:
        """Section 2: a body on a GET, an id in the body, nulls, names that nobody knows."""
        project = await make.project(owner=owner)
        issue = await make.issue(project, title="T")
        path = f"/projects/{project.id}/issues/{issue.id}"

        read = await any_api.request("GET", path, owner, json={})
        changed = await any_api.request(
            "PUT", path, owner, json={"id": "<built-in function id>", "title": None, "_from_api": True, "project_id": 999}
        )

        assert (read.status_code, changed.status_code) == (200, 200)
        assert changed.json()["title"] == "T"


def _with_group(settings: dict[str, Any]) -> dict[str, Any]:
    """The settings with the parameters of a group where parameters stand, else in the query."""
    location = next((key for key in ("params", "data", "json") if key in settings), "params")
    return {**settings, location: {**settings.get(location, {}), "name": "G", "path": "g"}}
