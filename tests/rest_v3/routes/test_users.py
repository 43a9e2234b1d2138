"""The section Users of the interface document: users."""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest
from argon2 import PasswordHasher

import rest_v3
from graph.context import Services
from graph.operations.execution import Graph
from storage import tables
from storage.secrets import Passwords
from storage.tables import AccessLevel, UserState
from tests.make import EXTERNAL_URL, DataFactory, token_of
from tests.rest_v3.support.interface_rules import cites
from tests.support.api_clients import Api, route_operations
from tests.support.database.statements import StatementRecorder

MOMENT = datetime(2012, 5, 23, 8, 0, 58, 123456, tzinfo=UTC)
NEW_USER = {"email": "ada@example.org", "password": "correct horse", "username": "ada", "name": "Ada"}


@pytest.fixture
def services(services: Services) -> Services:
    """Hashes that cost next to nothing."""
    return replace(services, passwords=Passwords(PasswordHasher(time_cost=1, memory_cost=64, parallelism=1)))


class TestListUsers:
    """GET /users"""

    async def test_others_see_only_basic_fields(self, api: Api, make: DataFactory) -> None:
        viewer = await make.user("ada")
        bob = await make.user("bob", state=UserState.BLOCKED)

        response = await api.get("/users", viewer)

        assert response.status_code == 200
        assert response.json()[0] == {"id": bob.id, "username": "bob", "name": "Bob", "state": "blocked", "avatar_url": None}
        assert [user["username"] for user in response.json()] == ["bob", "ada"]

    async def test_shows_administrators_everything(self, api: Api, make: DataFactory) -> None:
        admin = await make.user("ada", admin=True, created_at=MOMENT, extern_uid="7", provider="ldap", current_sign_in_at=MOMENT)

        response = await api.get("/users", admin)

        assert response.json() == [
            {
                "id": admin.id,
                "username": "ada",
                "name": "Ada",
                "state": "active",
                "avatar_url": None,
                "created_at": "2012-05-23T08:00:58.123Z",
                "is_admin": True,
                "bio": None,
                "messenger": "",
                "professional_profile": "",
                "microblog": "",
                "website_url": "",
                "email": "ada@example.org",
                "extern_uid": "7",
                "provider": "ldap",
                "theme_id": 2,
                "color_scheme_id": 1,
                "can_create_group": True,
                "can_create_project": True,
                "projects_limit": 10,
                "current_sign_in_at": "2012-05-23T08:00:58.123Z",
                "two_factor_enabled": False,
            }
        ]

    async def test_pages(self, api: Api, make: DataFactory) -> None:
        viewer, *_ = [await make.user() for _ in range(5)]

        response = await api.get("/users", viewer, page=2, per_page=2, search="user")

        assert len(response.json()) == 2
        assert (response.headers["X-Total"], response.headers["X-Next-Page"]) == ("5", "3")
        assert "search=user" in response.headers["Link"]

    async def test_searches(self, api: Api, make: DataFactory) -> None:
        viewer, admin = await make.user("ada"), await make.admin()
        await make.user("bob", email="robert@secret.example")

        async def names(who: tables.User, **params: Any) -> list[str]:
            return [user["username"] for user in (await api.get("/users", who, **params)).json()]

        assert await names(viewer, search="bo") == ["bob"]
        assert await names(viewer, search="secret") == []
        assert await names(viewer, search="robert@secret.example") == ["bob"]
        assert await names(admin, search="secret") == ["bob"]
        assert await names(viewer, search="") == await names(viewer)

    async def test_finds_by_username(self, api: Api, make: DataFactory) -> None:
        viewer = await make.user("ada")
        await make.user("ada2")

        assert [user["username"] for user in (await api.get("/users", viewer, username="ada")).json()] == ["ada"]
        assert (await api.get("/users", viewer, username="nobody")).json() == []

    async def test_excludes_blocked_users(self, api: Api, make: DataFactory) -> None:
        viewer = await make.user("ada")
        await make.user("bob", state=UserState.BLOCKED)

        assert [user["username"] for user in (await api.get("/users", viewer, active="true")).json()] == ["ada"]

    async def test_requires_a_caller(self, api: Api) -> None:
        response = await api.get("/users")

        assert (response.status_code, response.json()) == (401, {"message": "401 Unauthorized"})

    async def test_statement_count_does_not_grow_with_rows(self, api: Api, make: DataFactory, statements: StatementRecorder) -> None:
        admin = await make.admin()
        for _ in range(30):
            await make.user()

        with statements.record() as few:
            await api.get("/users", admin, per_page=1)
        with statements.assert_at_most(len(few)):
            await api.get("/users", admin, per_page=30)


class TestGetUser:
    """GET /users/:id"""

    async def test_others_see_public_fields(self, api: Api, make: DataFactory) -> None:
        viewer = await make.user("ada", created_at=MOMENT, bio="Counts")

        response = await api.get(f"/users/{viewer.id}", viewer)

        assert response.status_code == 200
        assert response.json() == {
            "id": viewer.id,
            "username": "ada",
            "name": "Ada",
            "state": "active",
            "avatar_url": None,
            "created_at": "2012-05-23T08:00:58.123Z",
            "is_admin": False,
            "bio": "Counts",
            "messenger": "",
            "professional_profile": "",
            "microblog": "",
            "website_url": "",
        }

    async def test_administrators_see_all_fields(self, api: Api, make: DataFactory) -> None:
        user = await make.user()

        response = await api.get(f"/users/{user.id}", await make.admin())

        assert response.json()["email"] == user.email

    @pytest.mark.parametrize("key", ["4711", "0", "abc", "1abc", "99999999999", "-1"])
    async def test_a_missing_user_is_404(self, api: Api, make: DataFactory, key: str) -> None:
        response = await api.get(f"/users/{key}", await make.user())

        assert (response.status_code, response.json()) == (404, {"message": "404 Not found"})


class TestCreateUser:
    """POST /users"""

    async def test_answers_the_new_user(self, api: Api, make: DataFactory) -> None:
        profile = {"messenger": "m", "professional_profile": "p", "microblog": "b", "website_url": "https://ada.example", "bio": "Counts"}
        rest = {"extern_uid": "7", "provider": "ldap", "projects_limit": 3, "can_create_group": False}

        response = await api.post("/users", await make.admin(), **NEW_USER, **profile, **rest, admin="true", confirm="false")

        assert response.status_code == 201
        user = response.json()
        assert user | profile | rest | {"email": "ada@example.org", "is_admin": True, "state": "active"} == user
        row = await make.fetch(tables.User, user["id"])
        assert row is not None and row.confirmed and row.password_hash

    async def test_accepts_the_older_names(self, api: Api, make: DataFactory) -> None:
        response = await api.post("/users", await make.admin(), **NEW_USER, skype="s", linkedin="l", twitter="t")

        assert [response.json()[key] for key in ("messenger", "professional_profile", "microblog")] == ["s", "l", "t"]

    async def test_accepts_a_form_and_ignores_what_it_does_not_know(self, api: Api, make: DataFactory) -> None:
        data = {**NEW_USER, "id": "1", "private_toke": "x", "confirm": "", "projects_limit": ""}

        response = await api.request("POST", "/users", await make.admin(), data=data)

        assert (response.status_code, response.json()["projects_limit"]) == (201, 10)

    @pytest.mark.parametrize("missing", ["email", "password", "name", "username"])
    async def test_reports_missing_parameters(self, api: Api, make: DataFactory, missing: str) -> None:
        response = await api.post("/users", await make.admin(), **{**NEW_USER, missing: " "})

        assert (response.status_code, response.json()) == (400, {"message": f'400 (Bad request) "{missing}" not given'})

    async def test_reports_each_invalid_value(self, api: Api, make: DataFactory) -> None:
        response = await api.post(
            "/users", await make.admin(), **{**NEW_USER, "password": "short", "projects_limit": -1, "website_url": "javascript:x"}
        )

        assert response.status_code == 400
        assert response.json() == {
            "message": {
                "password": ["is too short (minimum is 8 characters)"],
                "website_url": ["is not a web address"],
                "projects_limit": ["must be greater than or equal to 0"],
            }
        }

    async def test_reports_taken_values(self, api: Api, make: DataFactory) -> None:
        admin = await make.user("root", admin=True)

        for field, value in (("email", "ROOT@example.org"), ("username", "Root")):
            response = await api.post("/users", admin, **{**NEW_USER, field: value})
            assert (response.status_code, response.json()) == (409, {"message": f"{field.title()} has already been taken"})

    async def test_a_taken_identity_is_an_invalid_value(self, api: Api, make: DataFactory) -> None:
        admin = await make.admin()
        await api.post("/users", admin, **NEW_USER, provider="ldap", extern_uid="7")
        other = {**NEW_USER, "username": "other", "email": "other@example.org"}

        response = await api.post("/users", admin, **other, provider="ldap", extern_uid="7")

        assert (response.status_code, response.json()) == (400, {"message": {"extern_uid": ["has already been taken"]}})

    async def test_concurrent_duplicates_succeed_once(self, api: Api, make: DataFactory) -> None:
        admin = await make.admin()

        responses = await asyncio.gather(*(api.post("/users", admin, **NEW_USER) for _ in range(32)))

        assert sorted(response.status_code for response in responses) == [201, *[409] * 31]

    @cites("Authentication: creating users is for administrators")
    async def test_requires_an_administrator(self, api: Api, make: DataFactory) -> None:
        user = await make.user()

        for params in (NEW_USER, {}):
            assert (await api.post("/users", user, **params)).status_code == 403
            assert (await api.post("/users", None, **params)).status_code == 401


class TestUpdateUser:
    """PUT /users/:id"""

    async def test_answers_the_user_as_it_is_now(self, api: Api, make: DataFactory) -> None:
        user = await make.user("ada", bio="Old")

        response = await api.put(
            f"/users/{user.id}", await make.admin(), name="Countess", username="lovelace", email="new@example.org", admin=True, bio=""
        )

        assert response.status_code == 200
        changed = response.json()
        assert changed | {"name": "Countess", "username": "lovelace", "email": "new@example.org", "is_admin": True} == changed
        # A blank is as if it had not been sent (docs/wire-facts.md 2.3).
        assert changed["bio"] == "Old"

    async def test_changes_nothing_where_nothing_is_sent(self, api: Api, make: DataFactory) -> None:
        user = await make.user("ada", admin=True, bio="Old", password_hash="kept")

        response = await api.put(f"/users/{user.id}", await make.admin(), name=None, admin=None, password=None, unknown=1)

        assert response.status_code == 200
        row = await make.fetch(tables.User, user.id)
        assert row is not None and (row.name, row.admin, row.bio, row.password_hash) == ("Ada", True, "Old", "kept")

    @pytest.mark.parametrize("ignored", ["", None])
    async def test_accepts_an_older_name_beside_a_name_without_a_value(self, api: Api, make: DataFactory, ignored: str | None) -> None:
        user = await make.user("ada")

        response = await api.put(f"/users/{user.id}", await make.admin(), messenger=ignored, skype="s")

        assert response.json()["messenger"] == "s"

    @cites("Errors: 404 for every failure to modify a user")
    @pytest.mark.parametrize(
        ("params", "message"),
        [
            ({"email": "taken@example.org"}, {"email": ["has already been taken"]}),
            ({"username": "TAKEN"}, {"username": ["has already been taken"]}),
            ({"password": "short"}, {"password": ["is too short (minimum is 8 characters)"]}),
            ({"projects_limit": "many"}, {"projects_limit": ["is not a number"]}),
            ({"bio": "x" * 256}, {"bio": ["is too long (maximum is 255 characters)"]}),
        ],
    )
    async def test_answers_404_for_every_failure(self, api: Api, make: DataFactory, params: dict[str, Any], message: Any) -> None:
        await make.user("taken")
        user = await make.user()

        response = await api.put(f"/users/{user.id}", await make.admin(), **params)

        assert (response.status_code, response.json()) == (404, {"message": message})

    async def test_a_missing_user_is_404(self, api: Api, make: DataFactory) -> None:
        for params in ({"name": "X"}, {"projects_limit": "many"}, {"password": "short"}):
            response = await api.put("/users/4711", await make.admin(), **params)

            assert (response.status_code, response.json()) == (404, {"message": "404 Not found"})

    @cites("Errors: 404 for every failure to modify a user", "Errors: 404 for a key or e-mail of an unknown user")
    async def test_nothing_of_the_ghost_user_can_be_changed(self, api: Api, make: DataFactory) -> None:
        ghost, admin = await make.user("ghost"), await make.admin()
        refused = {"message": "The ghost user replaces deleted users and cannot be changed"}

        for method, path, params in (
            ("PUT", "", {"name": "X"}),
            ("POST", "/keys", {"title": "Key", "key": "ssh-ed25519 AAAA"}),
            ("POST", "/emails", {"email": "a@example.org"}),
        ):
            response = await api.request(method, f"/users/{ghost.id}{path}", admin, json=params)
            assert (response.status_code, response.json()) == (404, refused)

    async def test_the_ghost_user_becomes_neither_a_member_nor_an_assignee(self, api: Api, make: DataFactory) -> None:
        ghost, owner = await make.user("ghost"), await make.user()
        group = await make.group(owner=owner)
        project = await make.project(group=group)
        refused = {"message": "403 Forbidden - The ghost user replaces deleted users and cannot be changed"}

        for path in (f"/groups/{group.id}/members", f"/projects/{project.id}/members"):
            response = await api.post(path, owner, user_id=ghost.id, access_level=40)
            assert (response.status_code, response.json()) == (403, refused)
        response = await api.post(f"/projects/{project.id}/issues", owner, title="Lost", assignee_id=ghost.id)
        assert (response.status_code, response.json()) == (400, {"message": {"assignee_id": ["is not a user"]}})

    @cites("Authentication: modifying users is for administrators")
    async def test_requires_an_administrator(self, api: Api, make: DataFactory) -> None:
        user = await make.user()

        assert (await api.put(f"/users/{user.id}", user, admin=True)).status_code == 403
        assert (await api.put("/users/4711", user, projects_limit="many")).status_code == 403
        assert (await api.put(f"/users/{user.id}")).status_code == 401


class TestDeleteUser:
    """DELETE /users/:id"""

    async def test_returns_the_deleted_user_and_then_null(self, api: Api, make: DataFactory) -> None:
        user, admin = await make.user("ada"), await make.admin()

        first, second = [await api.delete(f"/users/{user.id}", admin) for _ in range(2)]

        assert (first.status_code, first.json()["email"]) == (200, "ada@example.org")
        assert (second.status_code, second.text) == (200, "null")

    async def test_concurrent_deletions_answer_200(self, api: Api, make: DataFactory) -> None:
        user, admin = await make.user(), await make.admin()

        responses = await asyncio.gather(*(api.delete(f"/users/{user.id}", admin) for _ in range(32)))

        assert {response.status_code for response in responses} == {200}
        assert sum(response.json() is not None for response in responses) == 1

    async def test_rejects_the_only_owner_of_a_group(self, api: Api, make: DataFactory) -> None:
        user = await make.user("ada")
        await make.group(path="team", members=[(user, AccessLevel.OWNER)])

        response = await api.delete(f"/users/{user.id}", await make.admin())

        assert response.status_code == 409
        assert response.json() == {"message": "ada is the only owner of team; add another owner to each first."}

    @cites("Authentication: deleting users is for administrators")
    async def test_requires_an_administrator_and_another_account(self, api: Api, make: DataFactory) -> None:
        user, admin = await make.user(), await make.admin()

        assert (await api.delete(f"/users/{user.id}", user)).status_code == 403
        assert (await api.delete("/users/4711", user)).status_code == 403
        response = await api.delete(f"/users/{admin.id}", admin)
        assert (response.status_code, response.json()) == (403, {"message": "403 Forbidden - You cannot delete yourself"})


class TestCurrentUser:
    """GET /user"""

    @cites(
        "Authentication: the header PRIVATE-TOKEN carries the user's private token",
        "Authentication: the current user shows the private_token",
    )
    async def test_shows_the_caller_with_the_token(self, api: Api, make: DataFactory) -> None:
        user = await make.user("ada")

        response = await api.get("/user", user)

        assert response.status_code == 200
        assert (response.json()["email"], response.json()["private_token"]) == ("ada@example.org", token_of(user))
        assert response.headers["Cache-Control"] == "no-store"

    async def test_requires_a_caller_who_is_not_blocked(self, api: Api, make: DataFactory) -> None:
        assert (await api.get("/user")).status_code == 401
        assert (await api.get("/user", await make.user(state=UserState.BLOCKED))).status_code == 401


class TestBlockUser:
    """PUT /users/:uid/block"""

    @cites("States: a user is blocked by block", "Errors: 200 for block and unblock")
    async def test_blocks_the_user(self, api: Api, make: DataFactory) -> None:
        user, admin = await make.user(), await make.admin()

        response = await api.put(f"/users/{user.id}/block", admin)

        assert (response.status_code, response.text) == (200, "true")
        assert (await api.get("/user", user)).status_code == 401

    @cites("States: block of a blocked user is 403")
    async def test_answers_403_for_a_blocked_user(self, api: Api, make: DataFactory) -> None:
        user = await make.user(state=UserState.BLOCKED)

        response = await api.put(f"/users/{user.id}/block", await make.admin())

        assert (response.status_code, response.json()) == (403, {"message": "The user is already blocked."})

    @cites("Errors: 403 for block and unblock against the directory")
    async def test_answers_403_for_a_user_blocked_by_the_directory(self, api: Api, make: DataFactory) -> None:
        user = await make.user(state=UserState.BLOCKED, blocked_by_directory=True)

        response = await api.put(f"/users/{user.id}/block", await make.admin())

        assert (response.status_code, response.json()) == (
            403,
            {"message": "403 Forbidden - LDAP blocked users cannot be modified by the API"},
        )

    async def test_a_missing_user_is_404(self, api: Api, make: DataFactory) -> None:
        for verb in ("block", "unblock"):
            response = await api.put(f"/users/4711/{verb}", await make.admin())
            assert (response.status_code, response.json()) == (404, {"message": "404 User Not Found"})

    @cites("Authentication: block and unblock are for administrators")
    async def test_requires_an_administrator(self, api: Api, make: DataFactory) -> None:
        user = await make.user()
        for verb in ("block", "unblock"):
            assert (await api.put(f"/users/{user.id}/{verb}", user)).status_code == 403
            assert (await api.put(f"/users/4711/{verb}", user)).status_code == 403
            assert (await api.put(f"/users/{user.id}/{verb}")).status_code == 401

    async def test_answers_200_false_in_the_old_profile(self, graph: Graph, make: DataFactory) -> None:
        user, admin = await make.user(state=UserState.BLOCKED), await make.admin()
        app = rest_v3.create_app(graph, external_url=EXTERNAL_URL, profile="gitlab-8.5", operations=route_operations())
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url=EXTERNAL_URL) as client:
            response = await client.put(f"/api/v3/users/{user.id}/block", headers={"PRIVATE-TOKEN": token_of(admin)})

        assert (response.status_code, response.text) == (200, "false")


class TestUnblockUser:
    """PUT /users/:uid/unblock"""

    @cites("States: a user is active after unblock", "Errors: 200 for block and unblock")
    async def test_unblocks_the_user(self, api: Api, make: DataFactory) -> None:
        user, admin = await make.user(state=UserState.BLOCKED), await make.admin()

        assert (await api.put(f"/users/{user.id}/unblock", admin)).text == "true"
        response = await api.put(f"/users/{user.id}/unblock", admin)
        assert (response.status_code, response.text) == (200, "false")
        assert (await api.get("/user", user)).status_code == 200

    @cites("States: unblock of a user blocked by the directory is 403", "Errors: 403 for block and unblock against the directory")
    async def test_answers_403_for_a_user_blocked_by_the_directory(self, api: Api, make: DataFactory) -> None:
        user = await make.user(state=UserState.BLOCKED, blocked_by_directory=True)

        response = await api.put(f"/users/{user.id}/unblock", await make.admin())

        assert (response.status_code, response.json()) == (
            403,
            {"message": "403 Forbidden - LDAP blocked users cannot be unblocked by the API"},
        )
