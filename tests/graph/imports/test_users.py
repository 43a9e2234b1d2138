"""Imported users."""

from sqlalchemy import update
from sqlmodel import col

from graph.context import Context
from graph.rules.accounts.accounts import get_or_create_ghost
from storage import tables
from storage.database.engine import Database
from storage.secrets import digest_token
from storage.tables import UserState
from tests.graph.imports.support import T1, begin, rows_of, user_item
from tests.make import DataFactory, token_of
from tests.support.api_clients import Api, Ask
from tests.support.database.statements import StatementRecorder

FULL = {
    "state": "BLOCKED", "blockedByDirectory": True, "confirmed": False, "admin": True, "bio": "B", "messenger": "m",
    "professionalProfile": "p", "microblog": "t", "websiteUrl": "w.example", "externUid": "cn=1", "provider": "ldap", "themeId": 3,
    "colorSchemeId": 4, "canCreateGroup": False, "projectsLimit": 7, "twoFactorEnabled": True, "currentSignInAt": T1, "updatedAt": T1,
    "privateToken": "an-old-token-of-theirs",
}  # fmt: skip


class TestUsers:
    async def test_are_written_as_they_are_in_the_source(self, ask: Ask, api: Api, make: DataFactory, database: Database) -> None:
        running = await begin(ask, await make.admin())
        await make.save(tables.Hook(url="http://93.184.215.14/"))
        plain, full = await running.ids("importUsers", user_item(7), user_item(8, **FULL))

        (row,) = await rows_of(database, tables.User, id=full)
        expected = {
            "username": "Source8", "name": "User 8", "email": "source8@old.example", "password_hash": None, "state": UserState.BLOCKED,
            "blocked_by_directory": True, "confirmed": False, "admin": True, "bio": "B", "messenger": "m", "professional_profile": "p",
            "microblog": "t", "website_url": "w.example", "extern_uid": "cn=1", "provider": "ldap", "theme_id": 3, "color_scheme_id": 4,
            "can_create_group": False, "projects_limit": 7, "two_factor_enabled": True,
        }  # fmt: skip
        assert {name: row[name] for name in expected} == expected
        assert [row[name].isoformat() for name in ("created_at", "updated_at", "current_sign_in_at")] == [
            "2014-03-02T10:00:00+00:00", "2015-04-03T11:30:00.250000+00:00", "2015-04-03T11:30:00.250000+00:00",
        ]  # fmt: skip
        (other,) = await rows_of(database, tables.User, id=plain)
        assert (other["state"], other["confirmed"], other["projects_limit"]) == (UserState.ACTIVE, True, 10)
        assert other["updated_at"] == other["created_at"]
        (namespace,) = await rows_of(database, tables.Namespace, owner_id=full)
        assert (namespace["path"], namespace["path_key"], namespace["name"]) == ("Source8", "source8", "User 8")
        (email,) = await rows_of(database, tables.Email, user_id=full)
        assert (email["email"], email["is_primary"]) == ("source8@old.example", True)
        (token,) = await rows_of(database, tables.Token, user_id=full)
        assert token["digest"] == digest_token("an-old-token-of-theirs")
        assert make.services.cipher.decrypt(token["sealed"]) == "an-old-token-of-theirs"
        (identity,) = await rows_of(database, tables.Identity)
        assert (identity["user_id"], identity["provider"], identity["uid"]) == (full, "ldap", "cn=1")
        assert len(await rows_of(database, tables.Token, user_id=plain)) == 1
        assert await make.count(tables.Event) == 0
        shown = (await api.get(f"/users/{plain}", running.admin)).json()
        assert (shown["username"], shown["created_at"]) == ("Source7", "2014-03-02T10:00:00.000Z")

    async def test_whom_a_directory_blocks_are_blocked(self, ask: Ask, make: DataFactory, database: Database) -> None:
        running = await begin(ask, await make.admin())
        (user_id,) = await running.ids("importUsers", user_item(1, state="ACTIVE", blockedByDirectory=True))
        (row,) = await rows_of(database, tables.User, id=user_id)
        assert (row["state"], row["blocked_by_directory"]) == (UserState.BLOCKED, True)

    async def test_sign_in_with_the_identity_that_the_source_shows(self, ask: Ask, make: DataFactory, database: Database) -> None:
        """An identity that a user has linked here stays, unless it is the one that the source replaces."""
        running = await begin(ask, await make.admin())
        given = {"externUid": "CN=Ada", "provider": "ldapmain"}
        first, _ = await running.ids("importUsers", user_item(1, **given), user_item(2, externUid="2", provider="openid"))
        await make.save(tables.Identity(user_id=first, provider="openid", uid="linked here"))
        changed = {"externUid": "CN=Ada, OU=x", "provider": "ldapother"}
        assert await running.write("importUsers", user_item(1, **changed), user_item(2)) == [("UPDATED", []), ("UPDATED", [])]

        found = {(row["user_id"], row["provider"], row["uid"]) for row in await rows_of(database, tables.Identity)}
        assert found == {(first, "ldapother", "cn=ada,ou=x"), (first, "openid", "linked here")}

    async def test_are_unchanged_until_the_source_says_something_else(self, ask: Ask, make: DataFactory, database: Database) -> None:
        running = await begin(ask, await make.admin())
        items = [user_item(1), user_item(2, **FULL), user_item(3, websiteUrl="javascript:alert(1)", email="nobody@localhost")]
        ids = [(await running.results_of("importUsers", *items))[number]["databaseId"] for number in range(3)]
        rows = await rows_of(database, tables.User)
        invalid = ["email INVALID", "websiteUrl INVALID"]
        assert await running.write("importUsers", *items) == [("UNCHANGED", []), ("UNCHANGED", []), ("UNCHANGED", invalid)]
        assert await rows_of(database, tables.User) == rows
        assert rows[-1]["email"] == "source3@import.invalid"

        changed = [{**items[0], "username": "Renamed", "email": "New@old.example", "privateToken": "given-later"}, items[1], items[2]]
        changed[2] = {**items[2], "websiteUrl": None, "email": "real@old.example"}
        assert await running.write("importUsers", *changed) == [("UPDATED", []), ("UNCHANGED", []), ("UPDATED", [])]
        assert [each["databaseId"] for each in running.results] == ids
        assert await make.count(tables.User) == len(rows)
        (email,) = await rows_of(database, tables.Email, user_id=ids[0])
        (namespace,) = await rows_of(database, tables.Namespace, owner_id=ids[0])
        (token,) = await rows_of(database, tables.Token, user_id=ids[0])
        assert (email["email"], namespace["path_key"], token["digest"]) == ("new@old.example", "renamed", digest_token("given-later"))
        without_address = {name: value for name, value in changed[0].items() if name != "email"}
        assert await running.write("importUsers", {**without_address, "name": "Other"}) == [("UPDATED", [])]
        assert (await rows_of(database, tables.User, id=ids[0]))[0]["email"] == "new@old.example"

    async def test_with_taken_or_invalid_values_are_skipped_and_the_others_written(
        self, ask: Ask, make: DataFactory, database: Database
    ) -> None:
        running = await begin(ask, await make.admin())
        group, local = await make.group(), await make.user(extern_uid="cn=9", provider="ldap")
        items = [
            user_item(1, username=local.username.upper()),
            user_item(2, username=group.path),
            user_item(3, email=local.email.upper()),
            user_item(4, username="ghost"),
            user_item(5, username="-"),
            user_item(6, username="api"),
            user_item(7, name=" "),
            user_item(8, name="n" * 256),
            user_item(9, externUid="cn=9", provider="ldap", privateToken=token_of(local)),
            user_item(10),
            user_item(10),
            user_item(11, username="source10"),
            user_item(12, mergeInto="nobody"),
            user_item(13, createdAt="9999-12-31T23:59:59Z", projectsLimit=-1),
        ]
        assert await running.write("importUsers", *items) == [
            ("SKIPPED", ["username TAKEN"]), ("SKIPPED", ["username TAKEN"]), ("SKIPPED", ["email TAKEN"]),
            ("SKIPPED", ["username INVALID"]), ("SKIPPED", ["username INVALID"]), ("SKIPPED", ["username INVALID"]),
            ("SKIPPED", ["name REQUIRED"]), ("SKIPPED", ["name INVALID"]), ("CREATED", ["privateToken TAKEN", "externUid TAKEN"]),
            ("CREATED", []), ("SKIPPED", ["sourceId INVALID"]), ("SKIPPED", ["username TAKEN"]), ("SKIPPED", ["mergeInto NOT_FOUND"]),
            ("CREATED", ["projectsLimit INVALID"]),
        ]  # fmt: skip
        assert [each["databaseId"] is None for each in running.results] == [each["outcome"] == "SKIPPED" for each in running.results]
        written = [each["username"] for each in await rows_of(database, tables.User)]
        assert written == [running.admin.username, local.username, "Source9", "Source10", "Source13"]

    async def test_that_exchanged_their_values_are_written(self, ask: Ask, make: DataFactory, database: Database) -> None:
        running = await begin(ask, await make.admin())
        ids = await running.ids("importUsers", *(user_item(number) for number in (1, 2, 3, 4)))
        # 1 and 2 exchanged names and addresses, 3 took the name of 4 in another case, and a new user has that of 3.
        items = [
            user_item(1, username="Source2", email="source2@old.example"),
            user_item(2, username="Source1", email="source1@old.example"),
            user_item(5, username="Source3"),
            user_item(3, username="SOURCE4"),
            user_item(4, username="other"),
        ]
        assert await running.write("importUsers", *items) == [
            (each, []) for each in ("UPDATED", "UPDATED", "CREATED", "UPDATED", "UPDATED")
        ]
        rows = await rows_of(database, tables.User)
        assert [(row["username"], row["email"]) for row in rows if row["id"] in ids] == [
            ("Source2", "source2@old.example"), ("Source1", "source1@old.example"),
            ("SOURCE4", "source3@old.example"), ("other", "source4@old.example"),
        ]  # fmt: skip
        paths = {row["owner_id"]: row["path_key"] for row in await rows_of(database, tables.Namespace)}
        assert [paths[row_id] for row_id in ids] == ["source2", "source1", "source4", "other"]
        addresses = {row["user_id"]: row["email"] for row in await rows_of(database, tables.Email)}
        assert [addresses[row_id] for row_id in ids[:2]] == ["source2@old.example", "source1@old.example"]
        assert await running.write("importUsers", *items) == [("UNCHANGED", [])] * 5

    async def test_identities_may_move_to_another_user(self, ask: Ask, make: DataFactory, database: Database) -> None:
        """A batch that was written is not written again, so an identity that is left out would be lost."""
        running = await begin(ask, await make.admin())
        identities = [{"provider": "ldap", "externUid": f"uid={number}"} for number in range(4)]
        ids = await running.ids("importUsers", *(user_item(number, **identities[number]) for number in (1, 2, 3)))
        items = [user_item(1, **identities[2]), user_item(2, **identities[1]), user_item(4, **identities[3]), user_item(3)]
        assert await running.write("importUsers", *items) == [(each, []) for each in ("UPDATED", "UPDATED", "CREATED", "UPDATED")]
        new_id = running.results[2]["databaseId"]
        owners = {row["uid"]: row["user_id"] for row in await rows_of(database, tables.Identity)}
        assert owners == {"uid=2": ids[0], "uid=1": ids[1], "uid=3": new_id}
        # That of an item without changes stays.
        assert await running.write("importUsers", user_item(2, **identities[1]), user_item(5, **identities[1])) == [
            ("UNCHANGED", []), ("CREATED", ["externUid TAKEN"]),
        ]  # fmt: skip

    async def test_keep_what_those_have_who_are_skipped_or_not_written(self, ask: Ask, make: DataFactory, database: Database) -> None:
        admin = await make.admin()
        running = await begin(ask, admin)
        ids = await running.ids("importUsers", *(user_item(number) for number in (1, 2, 3, 4)))
        await make.user("here", email="taken@old.example")
        # 3 cannot become what it is in the source, so 2 cannot have its name, nor 1 that of 2.
        items = [
            user_item(1, username="Source2"),
            user_item(2, username="Source3"),
            user_item(3, username="free", email="taken@old.example"),
        ]
        assert await running.write("importUsers", *items) == [
            ("SKIPPED", ["username TAKEN"]), ("SKIPPED", ["username TAKEN"]), ("SKIPPED", ["email TAKEN"]),
        ]  # fmt: skip
        # 4 was renamed here, and is as it was in the source.
        async with database.write_session() as session:
            await session.execute(update(tables.User).where(col(tables.User.id) == ids[3]).values(username="renamed"))
            renamed = update(tables.Namespace).where(col(tables.Namespace.owner_id) == ids[3])
            await session.execute(renamed.values(path="renamed", path_key="renamed"))
            await session.commit()
        written = await running.write("importUsers", user_item(4), user_item(1, username="renamed"))
        assert written == [("UNCHANGED", []), ("SKIPPED", ["username TAKEN"])]
        # A secondary address stays with its user.
        await make.save(tables.Email(user_id=ids[1], email="second@old.example"))
        written = await running.write("importUsers", user_item(2, email="new@old.example"), user_item(3, email="second@old.example"))
        assert written == [("UPDATED", []), ("SKIPPED", ["email TAKEN"])]

    async def test_that_have_an_account_here_are_merged(self, ask: Ask, make: DataFactory, database: Database) -> None:
        running = await begin(ask, await make.admin())
        local = await make.user()
        before = await rows_of(database, tables.User)
        items = [user_item(1, username=running.admin.username), user_item(2, mergeInto=local.username, privateToken="t")]
        assert await running.write("importUsers", *items) == [("UPDATED", [])] * 2
        assert [each["databaseId"] for each in running.results] == [running.admin.id, local.id]
        assert (
            await running.write("importUsers", {**items[0], "name": "Changed"}, {**items[1], "mergeInto": None}) == [("UNCHANGED", [])] * 2
        )
        assert await rows_of(database, tables.User) == before
        assert len(await rows_of(database, tables.Token)) == 2

    async def test_in_a_batch_of_100_take_the_statements_of_one_of_10(
        self, ask: Ask, make: DataFactory, statements: StatementRecorder
    ) -> None:
        running = await begin(ask, await make.admin())
        counts = []
        for first, size in ((1000, 3), (0, 10), (100, 100)):
            for name in ("User", "Other", "Other"):
                items = [
                    user_item(number, name=f"{name} {number}", externUid=f"u{number}", provider="p")
                    for number in range(first, first + size)
                ]
                with statements.record() as seen:
                    results = await running.results_of("importUsers", *items)
                assert not any(each["errors"] for each in results)
                counts.append(len(seen))
        assert counts[3:6] == counts[6:9]
        assert counts[3] <= 20


class TestKeptIds:
    async def test_are_those_of_the_source(self, ask: Ask, api: Api, make: DataFactory, database: Database) -> None:
        admin = await make.user("Root", admin=True)
        running = await begin(ask, admin, keep_ids=True)
        items = [user_item(3, username="root", admin=False, state="BLOCKED", privateToken="tok-of-root"), user_item(1), user_item(40)]
        items.append(user_item(41, username="ghost", email="ghost@invalid", state="BLOCKED"))
        assert await running.write("importUsers", *items) == [("UPDATED", [])] + [("CREATED", [])] * 3
        assert [each["databaseId"] for each in running.results] == [3, 1, 40, 41]
        assert await running.write("importUsers", *items) == [("UNCHANGED", [])] * 4

        moved = (await rows_of(database, tables.User, id=3))[0]
        assert (moved["username"], moved["admin"], moved["state"], moved["name"]) == ("root", True, UserState.ACTIVE, "User 3")
        tokens = await rows_of(database, tables.Token, user_id=3)
        assert {each["digest"] for each in tokens} == {digest_token(token_of(admin)), digest_token("tok-of-root")}
        namespaces = {each["owner_id"]: each["id"] for each in await rows_of(database, tables.Namespace)}
        assert (namespaces[1], namespaces[40]) == (501, 540) and 41 not in namespaces
        created = await api.post("/users", admin, email="n@example.org", password="12345678", username="newcomer", name="N")
        assert created.json()["id"] > 41

        skipped = [user_item(0), user_item(99, sourceId="x"), user_item(40, sourceId=2**31), user_item(50, namespaceId=540)]
        assert await running.write("importUsers", *skipped) == [
            ("SKIPPED", ["sourceId INVALID"]), ("SKIPPED", ["sourceId INVALID"]), ("SKIPPED", ["username TAKEN"]),
            ("SKIPPED", ["namespaceId TAKEN"]),
        ]  # fmt: skip
        taken = created.json()["id"]
        assert await running.write("importUsers", user_item(60, sourceId=taken)) == [("SKIPPED", ["sourceId TAKEN"])]

    async def test_of_secondary_addresses_and_later_users_are_free(self, ask: Ask, make: DataFactory, database: Database) -> None:
        admin = await make.user("root", admin=True)
        running = await begin(ask, admin, keep_ids=True)
        await running.ids("importUsers", user_item(7, username="root"), user_item(8))
        emails = [{"sourceId": number, "userId": 8, "email": f"more{number}@old.example"} for number in (1, 2, 3)]
        assert await running.ids("importEmails", *emails) == [1, 2, 3]
        rows = await rows_of(database, tables.Email)
        assert [(row["id"], row["is_primary"]) for row in rows[:3]] == [(1, False), (2, False), (3, False)]
        assert {row["user_id"] for row in rows[3:] if row["is_primary"]} == {7, 8} and len(rows) == 5
        async with database.write_session() as session:
            context = Context(make.services, session, admin, "test")
            ghost = (await get_or_create_ghost(context)).id
            await session.commit()
        assert ghost == 9
        assert await running.ids("importUsers", user_item(9), user_item(10)) == [9, 10]
        names = {row["username"]: row["id"] for row in await rows_of(database, tables.User)}
        assert names["ghost"] > 10 and names["Source9"] == 9

    async def test_of_another_user_are_left_by_the_administrator(self, ask: Ask, make: DataFactory, database: Database) -> None:
        admin = await make.user("importer", admin=True)
        running = await begin(ask, admin, keep_ids=True)
        assert admin.id == 1
        assert await running.ids("importUsers", user_item(1), user_item(2)) == [1, 2]
        assert await running.ids("importUsers", user_item(3)) == [3]
        names = {each["id"]: each["username"] for each in await rows_of(database, tables.User)}
        assert names.pop(1) == "Source1" and names.pop(2) == "Source2" and names.pop(3) == "Source3"
        assert list(names.values()) == ["importer"]
        shown = await ask.data("{ instanceImports { user { username } } }", admin)
        assert shown["instanceImports"] == [{"user": {"username": "importer"}}]

    async def test_the_namespace_of_the_administrator_moves_too(self, ask: Ask, make: DataFactory, database: Database) -> None:
        admin = await make.user("root", admin=True)
        (own,) = [each["id"] for each in await rows_of(database, tables.Namespace)]
        running = await begin(ask, admin, keep_ids=True)
        first = [user_item(9, namespaceId=own), user_item(8, username="root", namespaceId=own + 70)]
        assert [outcome for outcome, _ in await running.write("importUsers", *first)] == ["CREATED", "UPDATED"]
        namespaces = {each["owner_id"]: each["id"] for each in await rows_of(database, tables.Namespace)}
        assert namespaces == {9: own, 8: own + 70}
        assert (await running.write("importUsers", user_item(7, namespaceId=own + 70)))[0] == ("SKIPPED", ["namespaceId TAKEN"])
