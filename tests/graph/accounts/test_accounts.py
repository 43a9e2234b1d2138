"""Accounts through the graph: what administrators can do with them."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest
from argon2 import PasswordHasher
from sqlalchemy import select

from graph.context import Services
from graph.rules.states import USER_TRANSITIONS, UserTransition
from storage import tables
from storage.secrets import Passwords
from storage.tables import AccessLevel, UserState
from tests.make import DataFactory
from tests.support.api_clients import Ask

CREATE = """mutation ($input: CreateUserInput!) { createUser(input: $input) {
    user { databaseId username email isAdmin projectsLimit confirmed privateToken } userErrors { field message code } } }"""
UPDATE = """mutation ($input: UpdateUserInput!) { updateUser(input: $input) {
    user { databaseId username name email isAdmin bio state blockedByDirectory emails { nodes { email } } }
    userErrors { field message code } } }"""
DELETE = "mutation ($id: Int!) { deleteUser(input: {databaseId: $id}) { user { username } userErrors { message code } } }"
BLOCK = "mutation ($id: Int!) { blockUser(input: {databaseId: $id}) { user { state } userErrors { code } } }"
DEMOTE = "mutation ($id: Int!) { updateUser(input: {databaseId: $id, admin: false}) { user { isAdmin } userErrors { code } } }"
DELETE_USER = "mutation ($id: Int!) { deleteUser(input: {databaseId: $id}) { deletedId userErrors { code } } }"
BLOCK_FOR_DIRECTORY = (
    "mutation ($id: Int!) { updateUser(input: {databaseId: $id, blockedByDirectory: true}) { user { state } userErrors { code } } }"
)
UNBLOCK = "mutation ($id: Int!) { unblockUser(input: {databaseId: $id}) { user { state } userErrors { code } } }"
RESET = "mutation ($id: Int) { resetPrivateToken(input: {databaseId: $id}) { user { username privateToken } userErrors { code } } }"

Errors = list[dict[str, Any]]


@pytest.fixture
def services(services: Services) -> Services:
    """Hashes that cost next to nothing."""
    return replace(services, passwords=Passwords(PasswordHasher(time_cost=1, memory_cost=64, parallelism=1)))


def wanted(**fields: Any) -> dict[str, Any]:
    return {"email": "ada@example.org", "password": "correct horse", "username": "ada", "name": "Ada", **fields}


@pytest.fixture
def create(ask: Ask) -> Callable[..., Awaitable[dict[str, Any]]]:
    async def create(viewer: tables.User, **fields: Any) -> dict[str, Any]:
        payload: dict[str, Any] = (await ask.data(CREATE, viewer, input=wanted(**fields)))["createUser"]
        return payload

    return create


@pytest.fixture
def update(ask: Ask) -> Callable[..., Awaitable[dict[str, Any]]]:
    async def update(viewer: tables.User, user: tables.User, **fields: Any) -> dict[str, Any]:
        payload: dict[str, Any] = (await ask.data(UPDATE, viewer, input={"databaseId": user.id, **fields}))["updateUser"]
        return payload

    return update


class TestCreateUser:
    async def test_creates_a_user_with_namespace_email_and_token(
        self, create: Any, ask: Ask, make: DataFactory, services: Services
    ) -> None:
        admin = await make.admin()

        payload = await create(admin, email=" Ada@Example.ORG ")

        assert payload["userErrors"] == []
        assert payload["user"] == {
            "databaseId": payload["user"]["databaseId"],
            "username": "ada",
            "email": "ada@example.org",
            "isAdmin": False,
            "projectsLimit": 10,
            "confirmed": False,
            "privateToken": None,
        }
        async with services.database.read_session() as session:
            user = await session.get(tables.User, payload["user"]["databaseId"])
            namespace = await session.scalar(select(tables.Namespace).where(tables.Namespace.owner_id == user.id))
            email = await session.scalar(select(tables.Email).where(tables.Email.user_id == user.id))
            token = await session.scalar(select(tables.Token).where(tables.Token.user_id == user.id))
        assert user is not None and await services.passwords.verify(user.password_hash, "correct horse")
        assert (namespace.path, namespace.path_key) == ("ada", "ada")
        assert (email.email, email.is_primary) == ("ada@example.org", True)
        value = services.cipher.decrypt(token.sealed)
        assert len(value) == 20
        outcome = await ask.graph.run_document("{ viewer { username } }", None, None, value, request_id="test")
        assert outcome.data == {"viewer": {"username": "ada"}}

    async def test_requires_an_administrator(self, ask: Ask, make: DataFactory) -> None:
        assert await ask.codes(CREATE, await make.user(), input=wanted()) == ["FORBIDDEN"]
        assert await ask.codes(CREATE, None, input=wanted()) == ["UNAUTHENTICATED"]
        assert await make.count(tables.User) == 1

    async def test_uses_the_default_projects_limit(self, create: Any, make: DataFactory) -> None:
        await make.settings(default_projects_limit=3)
        admin = await make.admin()

        assert (await create(admin))["user"]["projectsLimit"] == 3
        assert (await create(admin, username="b", email="b@example.org", projectsLimit=0))["user"]["projectsLimit"] == 0

    async def test_stores_whether_the_email_is_confirmed(self, create: Any, make: DataFactory) -> None:
        assert (await create(await make.admin(), confirm=False))["user"]["confirmed"] is True

    @pytest.mark.parametrize(
        ("fields", "field", "message"),
        [
            ({"email": "nonsense"}, "email", "is invalid"),
            ({"email": "a@b"}, "email", "is invalid"),
            ({"email": "a b@example.org"}, "email", "is invalid"),
            ({"email": "a@@example.org"}, "email", "is invalid"),
            ({"email": f"{'a' * 250}@example.org"}, "email", "is too long (maximum is 255 characters)"),
            ({"password": "1234567"}, "password", "is too short (minimum is 8 characters)"),
            ({"password": "x" * 129}, "password", "is too long (maximum is 128 characters)"),
            (
                {"username": "-ada"},
                "username",
                "can contain only letters, digits, '_', '-' and '.'. Cannot start with '-' or end in '.'.",
            ),
            ({"username": "12345"}, "username", "cannot be digits only"),
            ({"username": "dashboard"}, "username", "dashboard is a reserved name"),
            ({"username": "ghost"}, "username", "ghost is a reserved name"),
            ({"username": " "}, "username", "can't be blank"),
            ({"name": ""}, "name", "can't be blank"),
            ({"bio": "x" * 256}, "bio", "is too long (maximum is 255 characters)"),
            ({"messenger": "x" * 256}, "messenger", "is too long (maximum is 255 characters)"),
            ({"projectsLimit": -1}, "projectsLimit", "must be greater than or equal to 0"),
            ({"websiteUrl": "javascript:alert(1)"}, "websiteUrl", "is not a web address"),
            ({"websiteUrl": "javascript:1/alert(1)"}, "websiteUrl", "is not a web address"),
            ({"websiteUrl": "java\tscript:alert(1)"}, "websiteUrl", "is not a web address"),
            ({"websiteUrl": "data:text/html,x"}, "websiteUrl", "is not a web address"),
        ],
    )
    async def test_reports_each_invalid_value(
        self, create: Any, make: DataFactory, fields: dict[str, Any], field: str, message: str
    ) -> None:
        payload = await create(await make.admin(), **fields)

        assert payload["user"] is None
        assert [(error["field"], error["message"]) for error in payload["userErrors"]] == [(field, message)]

    @pytest.mark.parametrize("address", ["http://ada.example", "HTTPS://ada.example/x?y#z", "ada.example", "ada.example:8080/x", ""])
    async def test_accepts_urls(self, create: Any, make: DataFactory, address: str) -> None:
        assert (await create(await make.admin(), websiteUrl=address))["userErrors"] == []

    async def test_reports_all_errors_at_once(self, create: Any, make: DataFactory) -> None:
        payload = await create(await make.admin(), email="x", password="x", username="x.", bio="x" * 300)

        assert [error["field"] for error in payload["userErrors"]] == ["email", "password", "username", "bio"]

    @pytest.mark.parametrize(("username", "field"), [("Bob", "username"), ("TEAM", "username")])
    async def test_rejects_a_username_of_a_user_or_group(self, create: Any, make: DataFactory, username: str, field: str) -> None:
        await make.user("bob")
        await make.group(path="team")

        payload = await create(await make.admin(), username=username)

        assert payload["userErrors"] == [{"field": field, "message": "has already been taken", "code": "TAKEN"}]

    async def test_rejects_an_email_that_is_taken_as_primary_or_secondary(self, create: Any, make: DataFactory) -> None:
        bob = await make.user("bob")
        await make.save(tables.Email(user_id=bob.id, email="second@example.org"))
        admin = await make.admin()

        for address in ("BOB@example.org", "second@example.org"):
            assert (await create(admin, email=address))["userErrors"] == [
                {"field": "email", "message": "has already been taken", "code": "TAKEN"}
            ]

    async def test_rejects_an_identity_of_another(self, create: Any, make: DataFactory) -> None:
        await make.user(provider="ldap", extern_uid="7")

        payload = await create(await make.admin(), provider="ldap", externUid="7")

        assert [error["field"] for error in payload["userErrors"]] == ["externUid"]

    async def test_rejects_emails_outside_the_allowed_domains(self, create: Any, make: DataFactory) -> None:
        await make.settings(restricted_signup_domains=["example.org", "*.corp.example"])
        admin = await make.admin()

        assert (await create(admin))["userErrors"] == []
        assert (await create(admin, username="b", email="b@x.corp.example"))["userErrors"] == []
        (error,) = (await create(admin, username="c", email="c@evil-corp.example"))["userErrors"]
        assert error["message"] == "is not whitelisted. Email domains valid for registration are: example.org, *.corp.example"

    @pytest.mark.parametrize("same", ["email", "username"])
    async def test_concurrent_duplicates_succeed_once(self, create: Any, make: DataFactory, same: str) -> None:
        admin = await make.admin()
        fields = [{"email": f"a{n}@example.org", "username": f"a{n}"} for n in range(32)]
        for number, each in enumerate(fields):
            each[same] = wanted()[same] if number % 2 else wanted()[same].upper()

        payloads = await asyncio.gather(*(create(admin, **each) for each in fields))

        won = [payload for payload in payloads if payload["user"]]
        lost: list[Errors] = [payload["userErrors"] for payload in payloads if not payload["user"]]
        assert len(won) == 1
        assert lost == [[{"field": same, "message": "has already been taken", "code": "TAKEN"}]] * 31
        assert await make.count(tables.User) == 2
        assert await make.count(tables.Namespace) == 2


class TestUpdateUser:
    async def test_changes_given_fields(self, update: Any, make: DataFactory, services: Services) -> None:
        user = await make.user("ada", bio="Old")

        payload = await update(await make.admin(), user, name="Countess", admin=True, password="battery staple")

        assert payload["userErrors"] == []
        assert payload["user"] | {"name": "Countess", "isAdmin": True, "bio": "Old", "username": "ada"} == payload["user"]
        found = await make.fetch(tables.User, user.id)
        assert found is not None and await services.passwords.verify(found.password_hash, "battery staple")

    async def test_null_clears_nullable_fields_and_is_ignored_elsewhere(self, update: Any, make: DataFactory) -> None:
        user = await make.user("ada", bio="Old", microblog="@ada")

        payload = await update(await make.admin(), user, bio=None, microblog=None, name=None, email=None, admin=None, projectsLimit=None)

        assert payload["userErrors"] == []
        found = await make.fetch(tables.User, user.id)
        assert found is not None
        assert (found.bio, found.microblog, found.name, found.projects_limit) == (None, "", "Ada", 10)

    async def test_renaming_a_user_renames_the_namespace(self, update: Any, ask: Ask, make: DataFactory) -> None:
        project = await make.project(owner=(user := await make.user("ada")), path="engine")

        assert (await update(await make.admin(), user, username="Lovelace"))["user"]["username"] == "Lovelace"

        data = await ask.data('{ project(path: "lovelace/engine") { databaseId } }', user)
        assert data["project"]["databaseId"] == project.id

    async def test_a_change_of_case_does_not_conflict_with_itself(self, update: Any, make: DataFactory) -> None:
        user = await make.user("ada")

        assert (await update(await make.admin(), user, username="Ada"))["userErrors"] == []

    async def test_changes_the_primary_address(self, update: Any, ask: Ask, make: DataFactory) -> None:
        user = await make.user("ada")
        admin = await make.admin()

        assert (await update(admin, user, email="New@example.org"))["user"]["email"] == "new@example.org"
        assert (await update(admin, await make.user(), email="ada@example.org"))["userErrors"] == []

    async def test_lets_a_secondary_address_trade_places_with_the_primary_one(self, update: Any, make: DataFactory) -> None:
        user = await make.user("ada")
        await make.save(tables.Email(user_id=user.id, email="second@example.org"))

        payload = await update(await make.admin(), user, email="second@example.org")

        assert payload["user"]["email"] == "second@example.org"
        assert payload["user"]["emails"]["nodes"] == [{"email": "ada@example.org"}]

    async def test_rejects_values_taken_by_another_user(self, update: Any, make: DataFactory) -> None:
        bob = await make.user("bob")

        payload = await update(await make.admin(), await make.user(), username="BOB", email=bob.email)

        assert [(error["field"], error["code"]) for error in payload["userErrors"]] == [("username", "TAKEN"), ("email", "TAKEN")]

    @pytest.mark.parametrize(("field", "value"), [("username", "same"), ("email", "same@example.org")])
    async def test_concurrent_duplicates_succeed_once(self, update: Any, make: DataFactory, field: str, value: str) -> None:
        admin = await make.admin()
        people = [await make.user() for _ in range(32)]

        payloads = await asyncio.gather(*(update(admin, each, **{field: value}) for each in people))

        assert sum(payload["user"] is not None for payload in payloads) == 1
        lost = [payload["userErrors"] for payload in payloads if payload["user"] is None]
        assert lost == [[{"field": field, "message": "has already been taken", "code": "TAKEN"}]] * 31

    async def test_an_administrator_cannot_demote_themselves(self, update: Any, make: DataFactory) -> None:
        admin = await make.admin()

        assert [error["field"] for error in (await update(admin, admin, admin=False))["userErrors"]] == ["admin"]

    async def test_blocks_for_the_directory(self, update: Any, ask: Ask, make: DataFactory) -> None:
        user, admin = await make.user(), await make.admin()

        blocked = (await update(admin, user, blockedByDirectory=True))["user"]
        assert (blocked["state"], blocked["blockedByDirectory"]) == ("BLOCKED", True)
        assert await ask.codes("{ viewer { id } }", user) == ["UNAUTHENTICATED"]
        assert await ask.codes(UNBLOCK, admin, id=user.id) == ["FORBIDDEN"]
        assert await ask.codes(BLOCK, admin, id=user.id) == ["FORBIDDEN"]
        assert (await update(admin, user, blockedByDirectory=False))["user"]["state"] == "ACTIVE"

    async def test_requires_an_administrator(self, ask: Ask, make: DataFactory) -> None:
        user = await make.user()

        assert await ask.codes(UPDATE, user, input={"databaseId": user.id, "admin": True}) == ["FORBIDDEN"]
        assert await ask.codes(UPDATE, user, input={"databaseId": 4711, "admin": True}) == ["FORBIDDEN"]
        assert await ask.codes(UPDATE, await make.admin(), input={"databaseId": 4711}) == ["NOT_FOUND"]


class TestAdministrators:
    @pytest.mark.parametrize("mutation", [BLOCK, DEMOTE, DELETE_USER, BLOCK_FOR_DIRECTORY], ids=["block", "demote", "delete", "directory"])
    async def test_who_remove_each_other_leave_one(self, ask: Ask, make: DataFactory, mutation: str) -> None:
        for _ in range(4):
            admins = [await make.admin() for _ in range(2)]
            outcomes = await asyncio.gather(*(ask(mutation, admins[n], id=admins[1 - n].id) for n in range(2)))
            assert sorted(len(outcome.errors) for outcome in outcomes) == [0, 1]
            remaining = [await make.fetch(tables.User, admin.id) for admin in admins]
            assert sum(user is not None and user.admin and user.state is UserState.ACTIVE for user in remaining) == 1

    async def test_who_are_removed_meanwhile_may_not_remove_another(self, ask: Ask, make: DataFactory) -> None:
        first, second, third = [await make.admin() for _ in range(3)]
        await ask.data(DEMOTE, first, id=second.id)
        assert await ask.codes(BLOCK, second, id=third.id) == ["FORBIDDEN"]


class TestBlockUser:
    @pytest.mark.parametrize("event", list(UserTransition))
    @pytest.mark.parametrize("state", list(UserState))
    async def test_follows_the_table(self, ask: Ask, make: DataFactory, state: UserState, event: UserTransition) -> None:
        user, admin = await make.user(state=state), await make.admin()
        mutation = BLOCK if event is UserTransition.BLOCK else UNBLOCK
        following = USER_TRANSITIONS.get((state, event))

        outcome = await ask(mutation, admin, id=user.id)

        payload = next(iter((outcome.data or {}).values()))
        assert payload["userErrors"] == ([] if following else [{"code": "CONFLICT"}])
        found = await make.fetch(tables.User, user.id)
        assert found is not None and found.state is (following or state)

    async def test_a_blocked_user_is_signed_out_immediately(self, ask: Ask, make: DataFactory) -> None:
        user, admin = await make.user(), await make.admin()

        assert (await ask.data(BLOCK, admin, id=user.id))["blockUser"]["user"] == {"state": "BLOCKED"}
        assert await ask.codes("{ viewer { id } }", user) == ["UNAUTHENTICATED"]
        await ask.data(UNBLOCK, admin, id=user.id)
        assert (await ask.data("{ viewer { username } }", user))["viewer"]["username"] == user.username

    async def test_rejects_the_callers_own_account(self, ask: Ask, make: DataFactory) -> None:
        admin = await make.admin()

        assert await ask.codes(BLOCK, admin, id=admin.id) == ["FORBIDDEN"]

    async def test_requires_an_administrator(self, ask: Ask, make: DataFactory) -> None:
        user = await make.user()

        assert await ask.codes(BLOCK, user, id=user.id) == ["FORBIDDEN"]
        assert await ask.codes(UNBLOCK, user, id=4711) == ["FORBIDDEN"]
        assert await ask.codes(BLOCK, await make.admin(), id=4711) == ["NOT_FOUND"]


class TestDeleteUser:
    async def test_deletes_everything_the_user_owns(self, ask: Ask, make: DataFactory, services: Services) -> None:
        user, admin = await make.user("ada"), await make.admin()
        project = await make.project(owner=user)
        await make.issue(project, author=admin)
        await make.save(tables.SshKey(user_id=user.id, title="a", key="ssh-rsa x", fingerprint="aa"))

        assert (await ask.data(DELETE, admin, id=user.id))["deleteUser"]["user"] == {"username": "ada"}

        assert await make.fetch(tables.User, user.id) is None
        assert await make.fetch(tables.Project, project.id) is None
        for table in (tables.Issue, tables.SshKey):
            assert await make.count(table) == 0
        assert not services.repositories.path_of(project.id).exists()
        assert await ask.codes("{ viewer { id } }", user) == ["UNAUTHENTICATED"]

    async def test_reassigns_contributions_to_the_ghost_user(self, ask: Ask, make: DataFactory) -> None:
        user, other, admin = await make.user(), await make.user(), await make.admin()
        project = await make.project(owner=other)
        issue = await make.issue(project, author=user, assignee_id=user.id)
        note = await make.note(issue, author=user)
        comment = tables.CommitComment(project_id=project.id, sha="a" * 40, author_id=user.id, note="Hm")
        await make.save(comment)

        await ask.data(DELETE, admin, id=user.id)
        await ask.data(DELETE, admin, id=(await make.user()).id)

        stored = await make.fetch(tables.Issue, issue.id)
        assert stored is not None and stored.assignee_id is None
        ghost = await make.fetch(tables.User, stored.author_id)
        assert ghost is not None and (ghost.username, ghost.state) == ("ghost", UserState.BLOCKED)
        for row in (await make.fetch(tables.Note, note.id), await make.fetch(tables.CommitComment, comment.id)):
            assert row is not None and row.author_id == ghost.id
        assert await make.count(tables.User) == 3

    async def test_the_ghost_user_cannot_be_deleted(self, ask: Ask, make: DataFactory) -> None:
        admin = await make.admin()
        await ask.data(DELETE, admin, id=(await make.user()).id)
        query = '{ user(username: "ghost") { databaseId } }'
        ghost = (await ask.data(query, admin))["user"]["databaseId"]

        for mutation in (DELETE, BLOCK, UNBLOCK):
            assert await ask.codes(mutation, admin, id=ghost) == ["FORBIDDEN"]
        assert await ask.codes(UPDATE, admin, input={"databaseId": ghost, "password": "12345678"}) == ["FORBIDDEN"]
        for mutation in (
            f'mutation {{ addEmail(input: {{userId: {ghost}, email: "ghost@example.org"}}) {{ email {{ id }} }} }}',
            f'mutation {{ addSshKey(input: {{userId: {ghost}, title: "Key", key: "ssh-ed25519 AAAA"}}) {{ sshKey {{ id }} }} }}',
        ):
            assert await ask.codes(mutation, admin) == ["FORBIDDEN"]

    async def test_rejects_the_only_owner_of_a_group(self, ask: Ask, make: DataFactory) -> None:
        user, admin = await make.user("ada"), await make.admin()
        group = await make.group(path="team", owner=user, members=[(await make.user(), AccessLevel.MASTER)])
        await make.group(path="shared", owner=user, members=[(await make.user(), AccessLevel.OWNER)])

        payload = (await ask.data(DELETE, admin, id=user.id))["deleteUser"]

        assert payload == {
            "user": None,
            "userErrors": [{"code": "CONFLICT", "message": "ada is the only owner of team; add another owner to each first."}],
        }
        await make.save(tables.GroupMember(group_id=group.id, user_id=admin.id, access_level=int(AccessLevel.OWNER)))
        assert (await ask.data(DELETE, admin, id=user.id))["deleteUser"]["userErrors"] == []

    async def test_concurrent_deletions_leave_a_group_an_owner(self, ask: Ask, make: DataFactory) -> None:
        owners, admin = [await make.user() for _ in range(4)], await make.admin()
        await make.group(members=[(owner, AccessLevel.OWNER) for owner in owners])

        payloads = await asyncio.gather(*(ask.data(DELETE, admin, id=owner.id) for owner in owners))

        assert sorted(bool(payload["deleteUser"]["user"]) for payload in payloads) == [False, True, True, True]
        assert await make.count(tables.GroupMember) == 1

    async def test_concurrent_deletions_succeed_once(self, ask: Ask, make: DataFactory) -> None:
        user, admin = await make.user(), await make.admin()

        outcomes = await asyncio.gather(*(ask(DELETE, admin, id=user.id) for _ in range(32)))

        codes = [str(outcome.errors[0].code) if outcome.errors else "" for outcome in outcomes]
        assert sorted(codes) == ["", *["NOT_FOUND"] * 31]

    async def test_requires_an_administrator_and_another_account(self, ask: Ask, make: DataFactory) -> None:
        admin, user = await make.admin(), await make.user()

        assert await ask.codes(DELETE, admin, id=admin.id) == ["FORBIDDEN"]
        assert await ask.codes(DELETE, user, id=user.id) == ["FORBIDDEN"]
        assert await ask.codes(DELETE, admin, id=4711) == ["NOT_FOUND"]


class TestResetPrivateToken:
    async def test_revokes_the_old_token(self, ask: Ask, make: DataFactory) -> None:
        user = await make.user()

        token = (await ask.data(RESET, user))["resetPrivateToken"]["user"]["privateToken"]

        assert await ask.codes("{ viewer { id } }", user) == ["UNAUTHENTICATED"]
        outcome = await ask.graph.run_document("{ viewer { privateToken } }", None, None, token, request_id="test")
        assert outcome.data == {"viewer": {"privateToken": token}}
        assert await make.count(tables.Token) == 1

    async def test_requires_an_administrator_for_another_user(self, ask: Ask, make: DataFactory) -> None:
        user, admin = await make.user(), await make.admin()

        assert await ask.codes(RESET, user, id=admin.id) == ["FORBIDDEN"]
        payload = (await ask.data(RESET, admin, id=user.id))["resetPrivateToken"]
        assert payload["user"] == {"username": user.username, "privateToken": None}
        assert await ask.codes("{ viewer { id } }", user) == ["UNAUTHENTICATED"]
