"""Users through the graph: who can see which fields."""

import hashlib
from dataclasses import replace
from typing import Any

from sqlalchemy import event

from graph.context import Services
from graph.operations.execution import Graph
from storage import tables
from storage.database.engine import Database
from storage.tables import UserState, Visibility
from tests.make import DataFactory, token_of
from tests.support.api_clients import Ask
from tests.support.database.statements import StatementRecorder

PRIVATE = """email externUid provider themeId colorSchemeId canCreateGroup canCreateProject projectsLimit currentSignInAt
    twoFactorEnabled confirmed blockedByDirectory"""


class TestUser:
    async def test_public_fields_are_visible_to_everybody(self, ask: Ask, make: DataFactory) -> None:
        user = await make.user("ada", bio="Counts", website_url="https://ada.example")

        data = await ask.data(
            "query ($id: Int!) { user(databaseId: $id) { username name state isAdmin bio websiteUrl webUrl restPath avatarUrl } }",
            await make.user(),
            id=user.id,
        )

        assert data["user"] == {
            "username": "ada",
            "name": "Ada",
            "state": "ACTIVE",
            "isAdmin": False,
            "bio": "Counts",
            "websiteUrl": "https://ada.example",
            "webUrl": "http://forge.example/u/ada",
            "restPath": f"/api/v3/users/{user.id}",
            "avatarUrl": None,
        }

    async def test_private_fields_are_hidden_from_others(self, ask: Ask, make: DataFactory) -> None:
        user = await make.user(extern_uid="1", provider="ldap")
        query = f"query ($id: Int!) {{ user(databaseId: $id) {{ {PRIVATE} }} }}"

        others = (await ask.data(query, await make.user(), id=user.id))["user"]
        own = (await ask.data(query, user, id=user.id))["user"]
        admins = (await ask.data(query, await make.admin(), id=user.id))["user"]

        assert set(others.values()) == {None}
        assert own == admins
        assert own["email"] == user.email
        assert (own["provider"], own["themeId"], own["canCreateProject"]) == ("ldap", 2, True)

    async def test_shows_the_token_to_its_owner_alone(self, ask: Ask, make: DataFactory) -> None:
        user = await make.user()
        query = "query ($id: Int!) { user(databaseId: $id) { privateToken } viewer { privateToken } }"

        assert (await ask.data(query, user, id=user.id))["user"] == {"privateToken": token_of(user)}
        data = await ask.data(query, admin := await make.admin(), id=user.id)
        assert data == {"user": {"privateToken": None}, "viewer": {"privateToken": token_of(admin)}}

    async def test_shows_the_email_of_an_author_only_in_notes(self, ask: Ask, make: DataFactory) -> None:
        project = await make.project(visibility=Visibility.PUBLIC)
        note = await make.note(await make.issue(project), author=(author := await make.user()))

        data = await ask.data(
            """query ($path: String!, $issue: Int!, $id: Int!) {
                project(path: $path) { issue(databaseId: $issue) { author { email } notes { nodes { author { email } } } } }
                user(databaseId: $id) { email }
                users { nodes { email } }
            }""",
            await make.user("reader"),
            path=str(project.id),
            issue=note.issue_id,
            id=author.id,
        )

        assert data["project"]["issue"] == {"author": {"email": None}, "notes": {"nodes": [{"author": {"email": author.email}}]}}
        assert data["user"] == {"email": None}
        assert [user["email"] for user in data["users"]["nodes"] if user["email"]] == ["reader@example.org"]

    async def test_can_create_projects_up_to_the_limit(self, ask: Ask, make: DataFactory) -> None:
        user = await make.user(projects_limit=1)
        query = "{ viewer { canCreateProject } }"

        assert await ask.data(query, user) == {"viewer": {"canCreateProject": True}}
        await make.project(owner=user)
        assert await ask.data(query, user) == {"viewer": {"canCreateProject": False}}

    async def test_is_found_by_username_without_case(self, ask: Ask, make: DataFactory) -> None:
        user = await make.user("Ada")
        query = "query ($name: String) { user(username: $name) { databaseId } }"

        assert (await ask.data(query, user, name="aDA"))["user"] == {"databaseId": user.id}
        assert await ask.codes(query, user, name="nobody") == ["NOT_FOUND"]
        assert await ask.codes("{ user { databaseId } }", user) == ["BAD_REQUEST"]


class TestAvatar:
    async def test_follows_the_template(self, services: Services, make: DataFactory) -> None:
        user = await make.user("ada")
        graph = Graph(replace(services, avatar_url_template="https://images.example/{email_md5}?u={username}&i={id}"))

        data = await Ask(graph).data("{ viewer { avatarUrl } }", user)

        digest = hashlib.md5(b"ada@example.org", usedforsecurity=False).hexdigest()
        assert data["viewer"]["avatarUrl"] == f"https://images.example/{digest}?u=ada&i={user.id}"

    async def test_is_none_when_the_settings_switch_the_service_off(self, services: Services, make: DataFactory) -> None:
        user = await make.user()
        await make.settings(avatar_service_enabled=False)
        graph = Graph(replace(services, avatar_url_template="https://images.example/{id}"))

        assert await Ask(graph).data("{ viewer { avatarUrl } }", user) == {"viewer": {"avatarUrl": None}}

    async def test_costs_one_statement_for_all(self, services: Services, make: DataFactory, statements: StatementRecorder) -> None:
        user = await make.user()
        for _ in range(5):
            await make.user()
        ask = Ask(Graph(replace(services, avatar_url_template="https://images.example/{id}")))

        with statements.assert_at_most(3):
            await ask.data("{ users { nodes { avatarUrl } } }", user)


class TestListUsers:
    LIST = "query ($filter: UserFilter, $first: Int) { users(filter: $filter, first: $first) { totalCount nodes { username } } }"

    async def names(self, ask: Ask, viewer: tables.User, **filter: Any) -> list[str]:
        return [user["username"] for user in (await ask.data(self.LIST, viewer, filter=filter))["users"]["nodes"]]

    async def test_returns_the_newest_first(self, ask: Ask, make: DataFactory) -> None:
        viewer = await make.user("ada")
        await make.user("bob", state=UserState.BLOCKED)

        assert await self.names(ask, viewer) == ["bob", "ada"]

    async def test_excludes_blocked_users(self, ask: Ask, make: DataFactory) -> None:
        viewer = await make.user("ada")
        await make.user("bob", state=UserState.BLOCKED)

        assert await self.names(ask, viewer, active=True) == ["ada"]
        assert await self.names(ask, viewer, active=False) == ["bob", "ada"]

    async def test_finds_parts_of_usernames_and_whole_addresses(self, ask: Ask, make: DataFactory) -> None:
        viewer = await make.user("ada")
        await make.user("bob", email="robert@secret.example", name="Robert")

        assert await self.names(ask, viewer, search="OB") == ["bob"]
        assert await self.names(ask, viewer, search="Robert@secret.example") == ["bob"]
        for part in ("secret", "robert", "rt@secret.example", "%", "_"):
            assert await self.names(ask, viewer, search=part) == []

    async def test_finds_parts_of_names_and_addresses_for_administrators(self, ask: Ask, make: DataFactory) -> None:
        admin = await make.user("ada", admin=True)
        await make.user("bob", email="x@secret.example", name="Robert")

        assert await self.names(ask, admin, search="secret") == ["bob"]
        assert await self.names(ask, admin, search="rober") == ["bob"]

    async def test_finds_a_username(self, ask: Ask, make: DataFactory) -> None:
        viewer = await make.user("ada")
        await make.user("ada2")

        assert await self.names(ask, viewer, username="ADA") == ["ada"]
        assert await self.names(ask, viewer, username="ad") == []

    async def test_statement_count_does_not_grow_with_rows(self, ask: Ask, make: DataFactory, statements: StatementRecorder) -> None:
        admin = await make.admin()
        for _ in range(30):
            await make.project(owner=await make.user())
        query = f"query ($first: Int) {{ users(first: $first) {{ totalCount nodes {{ {PRIVATE} sshKeys {{ totalCount }} }} }} }}"

        with statements.record() as one:
            await ask.data(query, admin, first=1)
        with statements.assert_at_most(len(one) + 1):
            data = await ask.data(query, admin, first=30)

        assert len(data["users"]["nodes"]) == 30


class TestTokenLookup:
    async def test_is_looked_up_by_its_digest_alone(self, ask: Ask, make: DataFactory, database: Database) -> None:
        user, engine = await make.user(), database.engine.sync_engine
        seen: list[str] = []
        record: Any = lambda connection, cursor, statement, *_: seen.append(statement)  # noqa: E731
        event.listen(engine, "before_cursor_execute", record)
        try:
            for token in (token_of(user), token_of(user)[:-1] + "x", "\udcff", "' OR 1=1"):
                await ask.graph.run_document("{ viewer { id } }", None, None, token, request_id="test")
        finally:
            event.remove(engine, "before_cursor_execute", record)

        lookups = [statement for statement in seen if "tokens" in statement]
        assert len(lookups) == 4
        assert all("tokens.digest =" in statement for statement in lookups)
