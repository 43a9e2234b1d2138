"""SSH keys through the graph."""

import asyncio
from typing import Any

import asyncssh
import pytest

from graph.fields.entities import global_id
from storage import tables
from tests.make import DataFactory
from tests.support.api_clients import Ask
from tests.support.database.statements import StatementRecorder

ADD = """mutation ($input: AddSshKeyInput!) { addSshKey(input: $input) {
    sshKey { id databaseId title key fingerprint restPath } userErrors { field message code } } }"""
DELETE = "mutation ($input: DeleteSshKeyInput!) { deleteSshKey(input: $input) { sshKey { title } userErrors { code } } }"


def new_key(kind: str = "ssh-ed25519", **settings: Any) -> str:
    return asyncssh.generate_private_key(kind, **settings).export_public_key().decode().strip()


KEY = new_key()


async def save(make: DataFactory, user: tables.User, title: str = "Laptop", fingerprint: str = "aa:bb") -> tables.SshKey:
    row = tables.SshKey(user_id=user.id, title=title, key=KEY, fingerprint=fingerprint)
    await make.save(row)
    return row


class TestAddSshKey:
    async def test_stores_the_normalized_key_with_its_fingerprint(self, ask: Ask, make: DataFactory) -> None:
        user = await make.user()

        payload = (await ask.data(ADD, user, input={"title": " Laptop ", "key": f"  {KEY} ada@home\n"}))["addSshKey"]

        expected = asyncssh.import_public_key(KEY).get_fingerprint("md5").removeprefix("MD5:")
        assert payload["userErrors"] == []
        key = payload["sshKey"]
        assert (key["title"], key["key"], key["fingerprint"]) == ("Laptop", f"{KEY} ada@home", expected)
        assert key["restPath"] == f"/api/v3/user/keys/{key['databaseId']}"
        row = await make.fetch(tables.SshKey, key["databaseId"])
        assert row is not None and row.user_id == user.id

    @pytest.mark.parametrize(("kind", "settings"), [("ssh-rsa", {"key_size": 2048}), ("ecdsa-sha2-nistp256", {}), ("ssh-ed25519", {})])
    async def test_accepts_the_kinds_that_git_clients_have(self, ask: Ask, make: DataFactory, kind: str, settings: dict[str, Any]) -> None:
        payload = (await ask.data(ADD, await make.user(), input={"title": "a", "key": new_key(kind, **settings)}))["addSshKey"]

        assert payload["userErrors"] == []

    @pytest.mark.parametrize(
        "key",
        [
            "nonsense",
            "ssh-rsa",
            "ssh-rsa AAAA",
            pytest.param(KEY.replace("ssh-ed25519", "ssh-rsa"), id="a blob of another kind"),
            pytest.param("sk-" + KEY, id="a kind that only devices have"),
            "-----BEGIN PUBLIC KEY-----",
            "ssh-ed25519 \u00e9\u00e9\u00e9\u00e9",
        ],
    )
    async def test_rejects_invalid_keys(self, ask: Ask, make: DataFactory, key: str) -> None:
        payload = (await ask.data(ADD, await make.user(), input={"title": "a", "key": key}))["addSshKey"]

        assert [(error["field"], error["message"]) for error in payload["userErrors"]] == [
            ("key", "is invalid"),
            ("fingerprint", "cannot be generated"),
        ]

    @pytest.mark.parametrize(
        ("fields", "field", "message"),
        [
            ({"key": f"{KEY}\n{KEY}"}, "key", "should be a single line"),
            ({"key": f"{KEY} {'x' * 5000}"}, "key", "is too long (maximum is 5000 characters)"),
            ({"title": ""}, "title", "can't be blank"),
            ({"title": "x" * 256}, "title", "is too long (maximum is 255 characters)"),
        ],
    )
    async def test_reports_each_invalid_value(self, ask: Ask, make: DataFactory, fields: dict[str, Any], field: str, message: str) -> None:
        payload = (await ask.data(ADD, await make.user(), input={"title": "a", "key": KEY, **fields}))["addSshKey"]

        assert [(error["field"], error["message"]) for error in payload["userErrors"]] == [(field, message)]

    async def test_rejects_a_taken_key(self, ask: Ask, make: DataFactory) -> None:
        await ask.data(ADD, await make.user(), input={"title": "a", "key": KEY})

        payload = (await ask.data(ADD, await make.user(), input={"title": "b", "key": f"{KEY} again"}))["addSshKey"]

        assert [(error["field"], error["code"]) for error in payload["userErrors"]] == [("key", "TAKEN"), ("fingerprint", "TAKEN")]

    async def test_concurrent_duplicates_succeed_once(self, ask: Ask, make: DataFactory) -> None:
        people = [await make.user() for _ in range(4)]

        answers = await asyncio.gather(*(ask.data(ADD, people[n % 4], input={"title": str(n), "key": KEY}) for n in range(32)))

        payloads = [answer["addSshKey"] for answer in answers]
        assert sum(payload["sshKey"] is not None for payload in payloads) == 1
        assert {error["code"] for payload in payloads for error in payload["userErrors"]} == {"TAKEN"}
        assert await make.count(tables.SshKey) == 1

    async def test_requires_an_administrator_for_another_user(self, ask: Ask, make: DataFactory) -> None:
        user, admin = await make.user(), await make.admin()
        expected = {"title": "a", "key": KEY, "userId": user.id}

        assert await ask.codes(ADD, user, input=expected) == ["FORBIDDEN"]
        assert await ask.codes(ADD, admin, input={**expected, "userId": 4711}) == ["NOT_FOUND"]
        key = (await ask.data(ADD, admin, input=expected))["addSshKey"]["sshKey"]
        row = await make.fetch(tables.SshKey, key["databaseId"])
        assert row is not None and row.user_id == user.id


class TestReadSshKeys:
    LIST = "query ($id: Int!) { user(databaseId: $id) { sshKeys { totalCount nodes { title } } } }"
    ONE = "query ($id: Int!) { viewer { sshKey(databaseId: $id) { title } } }"
    ANY = "query ($id: Int!) { sshKeys(userId: $id) { nodes { title } } }"

    async def test_keys_are_visible_to_the_owner_and_administrators(self, ask: Ask, make: DataFactory) -> None:
        user = await make.user()
        await save(make, user, "Old", "aa")
        await save(make, user, "New", "bb")
        expected = {"totalCount": 2, "nodes": [{"title": "New"}, {"title": "Old"}]}

        assert (await ask.data(self.LIST, user, id=user.id))["user"]["sshKeys"] == expected
        assert (await ask.data(self.LIST, admin := await make.admin(), id=user.id))["user"]["sshKeys"] == expected
        assert (await ask.data(self.ANY, admin, id=user.id))["sshKeys"]["nodes"] == expected["nodes"]

    async def test_rejects_others(self, ask: Ask, make: DataFactory) -> None:
        user, other, admin = await make.user(), await make.user(), await make.admin()
        key = await save(make, user)

        assert await ask.codes(self.LIST, other, id=user.id) == ["FORBIDDEN"]
        assert await ask.codes(self.ANY, other, id=user.id) == ["FORBIDDEN"]
        assert await ask.codes(self.ANY, other, id=4711) == ["FORBIDDEN"]
        assert await ask.codes(self.ANY, admin, id=4711) == ["NOT_FOUND"]
        assert await ask.codes(self.ONE, other, id=key.id) == ["NOT_FOUND"]
        assert await ask.codes(self.ONE, admin, id=key.id) == ["NOT_FOUND"]

    async def test_is_a_node_for_the_owner_and_administrators(self, ask: Ask, make: DataFactory) -> None:
        user = await make.user()
        key = await save(make, user)
        query = "query ($ids: [ID!]!) { nodes(ids: $ids) { ... on SshKey { title } } }"
        ids = [global_id("SshKey", key.id), global_id("SshKey", 4711), global_id("SshKey", "x")]

        assert (await ask.data(query, user, ids=ids))["nodes"] == [{"title": "Laptop"}, None, None]
        assert (await ask.data(query, await make.admin(), ids=ids))["nodes"][0] == {"title": "Laptop"}
        assert (await ask.data(query, await make.user(), ids=ids))["nodes"] == [None, None, None]

    async def test_statement_count_does_not_grow_with_rows(self, ask: Ask, make: DataFactory, statements: StatementRecorder) -> None:
        user = await make.user()
        for number in range(30):
            await save(make, user, fingerprint=str(number))
        query = "query ($n: Int!) { viewer { sshKeys(first: $n) { nodes { title key createdAt } } } }"

        with statements.record() as one:
            await ask.data(query, user, n=1)
        with statements.assert_at_most(len(one)):
            await ask.data(query, user, n=30)


class TestDeleteSshKey:
    async def test_deletes_the_viewers_own(self, ask: Ask, make: DataFactory) -> None:
        user = await make.user()
        key = await save(make, user)

        assert (await ask.data(DELETE, user, input={"databaseId": key.id}))["deleteSshKey"]["sshKey"] == {"title": "Laptop"}
        assert await ask.codes(DELETE, user, input={"databaseId": key.id}) == ["NOT_FOUND"]
        assert await make.count(tables.SshKey) == 0

    async def test_does_not_find_those_of_others(self, ask: Ask, make: DataFactory) -> None:
        user, other, admin = await make.user(), await make.user(), await make.admin()
        key = await save(make, user)

        assert await ask.codes(DELETE, other, input={"databaseId": key.id}) == ["NOT_FOUND"]
        assert await ask.codes(DELETE, other, input={"id": global_id("SshKey", key.id)}) == ["NOT_FOUND"]
        assert await ask.codes(DELETE, admin, input={"databaseId": key.id}) == ["NOT_FOUND"]
        assert await ask.codes(DELETE, user, input={"databaseId": key.id, "userId": user.id}) == ["FORBIDDEN"]
        assert await ask.codes(DELETE, admin, input={"databaseId": key.id, "userId": other.id}) == ["NOT_FOUND"]
        assert await make.count(tables.SshKey) == 1

    @pytest.mark.parametrize("by_id", [True, False])
    async def test_administrators_delete_any(self, ask: Ask, make: DataFactory, by_id: bool) -> None:
        user = await make.user()
        key = await save(make, user)
        named = {"id": global_id("SshKey", key.id)} if by_id else {"databaseId": key.id, "userId": user.id}

        assert (await ask.data(DELETE, await make.admin(), input=named))["deleteSshKey"]["userErrors"] == []

    async def test_concurrent_deletions_succeed_once(self, ask: Ask, make: DataFactory) -> None:
        user = await make.user()
        key = await save(make, user)

        outcomes = await asyncio.gather(*(ask(DELETE, user, input={"databaseId": key.id}) for _ in range(32)))

        assert sorted(str(outcome.errors[0].code) if outcome.errors else "" for outcome in outcomes) == ["", *["NOT_FOUND"] * 31]
