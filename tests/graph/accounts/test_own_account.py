"""Changes that users make to their own accounts."""

from typing import Any

from storage import tables
from tests.make import DataFactory
from tests.support.api_clients import Ask

UPDATE = """mutation ($input: UpdateProfileInput!) { updateProfile(input: $input) {
    user { name bio websiteUrl messenger } userErrors { field code } } }"""
CHANGE = "mutation ($input: ChangePasswordInput!) { changePassword(input: $input) { user { hasPassword } userErrors { field code } } }"
SIGN_IN = "mutation ($login: String!, $password: String!) { signIn(input: {login: $login, password: $password}) { user { username } } }"


class TestUpdateProfile:
    async def test_changes_only_given_fields_and_null_clears(self, ask: Ask, make: DataFactory) -> None:
        user = await make.user(name="Ada", bio="Counts", website_url="https://ada.example")

        async def change(**input: Any) -> dict[str, Any]:
            payload = (await ask.data(UPDATE, user, input=input))["updateProfile"]
            assert payload["userErrors"] == []
            found: dict[str, Any] = payload["user"]
            return found

        assert await change(name="Ada L.") == {"name": "Ada L.", "bio": "Counts", "websiteUrl": "https://ada.example", "messenger": ""}
        cleared = await change(name=None, bio=None, websiteUrl=None, messenger="ada")
        assert cleared == {"name": "Ada L.", "bio": None, "websiteUrl": "", "messenger": "ada"}
        namespace = (await ask.data("{ namespaces { nodes { name path } } }", user))["namespaces"]["nodes"]
        assert namespace == [{"name": "Ada L.", "path": user.username}]

    async def test_rejects_invalid_values(self, ask: Ask, make: DataFactory) -> None:
        user = await make.user()

        for input, error in (
            ({"name": " "}, ("name", "REQUIRED")),
            ({"bio": "x" * 256}, ("bio", "INVALID")),
            ({"websiteUrl": "javascript:alert(1)"}, ("websiteUrl", "INVALID")),
        ):
            payload = (await ask.data(UPDATE, user, input=input))["updateProfile"]
            assert payload == {"user": None, "userErrors": [{"field": error[0], "code": error[1]}]}
        stored = await make.fetch(tables.User, user.id)
        assert stored is not None
        assert stored.name == user.name


class TestChangePassword:
    async def test_needs_the_present_password(self, ask: Ask, make: DataFactory) -> None:
        user = await make.user("ada", password_hash=await make.services.passwords.hash("a first secret"))

        async def change(current: str, new: str) -> Any:
            return (await ask.data(CHANGE, user, input={"currentPassword": current, "password": new}))["changePassword"]

        assert await change("a wrong secret", "a second secret") == {
            "user": None,
            "userErrors": [{"field": "currentPassword", "code": "INVALID"}],
        }
        assert (await change("a first secret", "short"))["userErrors"] == [{"field": "password", "code": "INVALID"}]
        assert (await change("a first secret", "a second secret"))["user"] == {"hasPassword": True}
        assert await ask.codes(SIGN_IN, None, login="ada", password="a first secret") == ["UNAUTHENTICATED"]
        assert (await ask.data(SIGN_IN, None, login="ada", password="a second secret"))["signIn"]["user"] == {"username": "ada"}

    async def test_is_throttled_together_with_sign_ins(self, ask: Ask, make: DataFactory) -> None:
        user = await make.user("ada", password_hash=await make.services.passwords.hash("a first secret"))
        wrong = {"currentPassword": "x" * 2000, "password": "a second secret"}

        codes = [await ask.codes(CHANGE, user, input=wrong) for _ in range(11)]

        assert codes == [["INVALID"]] * 10 + [["LIMIT_EXCEEDED"]]
        assert await ask.codes(SIGN_IN, None, login="ada", password="a first secret") == ["LIMIT_EXCEEDED"]

    async def test_is_forbidden_without_a_password(self, ask: Ask, make: DataFactory) -> None:
        user, other = await make.user(), await make.user()

        assert await ask.codes(CHANGE, user, input={"currentPassword": "", "password": "a second secret"}) == ["FORBIDDEN"]
        query = "query ($id: Int!) { user(databaseId: $id) { hasPassword } }"
        assert (await ask.data(query, user, id=user.id))["user"] == {"hasPassword": False}
        assert (await ask.data(query, other, id=user.id))["user"] == {"hasPassword": None}
