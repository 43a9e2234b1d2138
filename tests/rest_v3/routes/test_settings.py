"""The section Application settings of the interface document."""

import asyncio
from typing import Any

import pytest

from storage import tables
from tests.make import DataFactory
from tests.rest_v3.support.interface_rules import cites
from tests.support.api_clients import Api
from tests.support.database.statements import StatementRecorder

PATH = "/application/settings"
DEFAULTS = {
    "id": 1,
    "default_projects_limit": 10,
    "signup_enabled": True,
    "signin_enabled": True,
    "avatar_service_enabled": True,
    "sign_in_text": None,
    "home_page_url": None,
    "default_branch_protection": 1,
    "microblog_sharing_enabled": True,
    "restricted_visibility_levels": None,
    "max_attachment_size": 10,
    "session_expire_delay": 10080,
    "default_project_visibility": 0,
    "default_snippet_visibility": 0,
    "restricted_signup_domains": None,
    "user_oauth_applications": True,
    "after_sign_out_path": None,
}
CHANGED = {
    "default_projects_limit": 0,
    "signup_enabled": False,
    "signin_enabled": False,
    "avatar_service_enabled": False,
    "sign_in_text": "Hello & <welcome>",
    "home_page_url": "https://example.org/start?a=b",
    "default_branch_protection": 2,
    "microblog_sharing_enabled": False,
    "restricted_visibility_levels": [0, 2],
    "max_attachment_size": 1,
    "session_expire_delay": 0,
    "default_project_visibility": 1,
    "default_snippet_visibility": 2,
    "restricted_signup_domains": ["example.org", "*.example.com"],
    "user_oauth_applications": False,
    "after_sign_out_path": "/bye",
}


def without_times(body: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in body.items() if key not in ("created_at", "updated_at")}


@pytest.fixture
async def admin(make: DataFactory) -> tables.User:
    return await make.admin()


class TestGetSettings:
    """GET /application/settings"""

    @cites("Limits: default_projects_limit is 10 and is given to new users", "Limits: session_expire_delay is a number of minutes")
    async def test_returns_the_defaults_of_a_new_instance(self, api: Api, admin: tables.User) -> None:
        response = await api.get(PATH, admin)

        assert response.status_code == 200
        assert without_times(response.json()) == DEFAULTS
        assert (await api.get(PATH, admin)).json() == response.json()

    @cites("Authentication: application settings are for administrators")
    async def test_requires_an_administrator(self, api: Api, make: DataFactory) -> None:
        assert (await api.get(PATH, await make.user())).json() == {"message": "403 Forbidden"}
        assert (await api.get(PATH)).json() == {"message": "401 Unauthorized"}

    async def test_costs_one_statement_beside_the_caller_s(self, api: Api, admin: tables.User, statements: StatementRecorder) -> None:
        with statements.assert_at_most(2):
            await api.get(PATH, admin)


class TestUpdateSettings:
    """PUT /application/settings"""

    async def test_changes_everything_that_the_document_names(self, api: Api, admin: tables.User) -> None:
        response = await api.put(PATH, admin, **CHANGED)

        assert response.status_code == 200
        assert without_times(response.json()) == {"id": 1, **CHANGED}
        assert (await api.get(PATH, admin)).json() == response.json()
        assert response.json()["updated_at"] > response.json()["created_at"]

    @cites("Limits: session_expire_delay is a number of minutes")
    @pytest.mark.parametrize("name", CHANGED)
    async def test_changes_only_given_settings(self, api: Api, admin: tables.User, name: str) -> None:
        response = await api.put(PATH, admin, **{name: CHANGED[name]})

        assert without_times(response.json()) == {**DEFAULTS, name: CHANGED[name]}

    @pytest.mark.parametrize(
        ("older", "name"), [("gravatar_enabled", "avatar_service_enabled"), ("twitter_sharing_enabled", "microblog_sharing_enabled")]
    )
    async def test_accepts_the_names_of_the_legacy_profile(self, api: Api, admin: tables.User, older: str, name: str) -> None:
        response = await api.put(PATH, admin, **{older: False})

        assert response.json()[name] is False

        for ignored in (None, ""):
            await api.put(PATH, admin, **{name: True})
            assert (await api.put(PATH, admin, **{name: ignored, older: False})).json()[name] is False

    @pytest.mark.parametrize(("sent", "meant"), [(0, 0), (1, 1), (2, 2), (10, 1), (20, 2), ("20", 2)])
    async def test_accepts_the_levels_of_the_legacy_profile(self, api: Api, admin: tables.User, sent: object, meant: int) -> None:
        names = ("default_project_visibility", "default_snippet_visibility")

        response = await api.put(PATH, admin, **dict.fromkeys(names, sent), restricted_visibility_levels=[sent])

        assert [response.json()[name] for name in names] == [meant, meant]
        assert response.json()["restricted_visibility_levels"] == [meant]

    @pytest.mark.parametrize(
        "settings",
        [
            {"json": {"restricted_visibility_levels": [1, 2], "restricted_signup_domains": ["a.org", "b.org"]}},
            {"json": {"restricted_visibility_levels": ["2", 1, 2], "restricted_signup_domains": "a.org, b.org"}},
            {"data": {"restricted_visibility_levels": "1,2", "restricted_signup_domains": "a.org,b.org"}},
            {"data": {"restricted_visibility_levels": ["1", "2"], "restricted_signup_domains": ["a.org", "b.org"]}},
            {"data": {"restricted_visibility_levels[]": ["1", "2"], "restricted_signup_domains[]": ["a.org", "b.org"]}},
            {
                "params": {
                    "restricted_visibility_levels[0]": "1",
                    "restricted_visibility_levels[1]": "20",
                    "restricted_signup_domains": "a.org,b.org",
                }
            },
        ],
    )
    async def test_accepts_lists_however_they_are_sent(self, api: Api, admin: tables.User, settings: dict[str, Any]) -> None:
        body = (await api.request("PUT", PATH, admin, **settings)).json()

        assert (body["restricted_visibility_levels"], body["restricted_signup_domains"]) == ([1, 2], ["a.org", "b.org"])

    @pytest.mark.parametrize("empty", [None, []])
    async def test_null_and_nothing_clear_the_lists(self, api: Api, admin: tables.User, empty: object) -> None:
        await api.put(PATH, admin, **CHANGED)

        body = (await api.put(PATH, admin, restricted_visibility_levels=empty, restricted_signup_domains=empty)).json()

        assert (body["restricted_visibility_levels"], body["restricted_signup_domains"]) == (empty, empty)

    async def test_null_and_blank_change_nothing_else(self, api: Api, admin: tables.User) -> None:
        await api.put(PATH, admin, **CHANGED)
        rest = [name for name in CHANGED if not name.startswith("restricted")]

        for nothing in (None, ""):
            assert without_times((await api.put(PATH, admin, **dict.fromkeys(rest, nothing))).json()) == {"id": 1, **CHANGED}

    @pytest.mark.parametrize(
        ("params", "text"),
        [
            ({"default_projects_limit": -1}, "must be greater than or equal to 0"),
            ({"default_projects_limit": "many"}, "is not a number"),
            ({"default_projects_limit": 2**31}, "is not a number"),
            ({"signup_enabled": "perhaps"}, "is not included in the list"),
            ({"signup_enabled": 2}, "is not included in the list"),
            ({"home_page_url": "javascript:alert(1)"}, "must be a valid URL"),
            ({"home_page_url": "JavaScript:alert(1)//https://example.org"}, "must be a valid URL"),
            ({"home_page_url": "ftp://example.org"}, "must be a valid URL"),
            ({"home_page_url": "/path"}, "must be a valid URL"),
            ({"home_page_url": "http://"}, "must be a valid URL"),
            ({"home_page_url": "http://example.org:x"}, "must be a valid URL"),
            ({"home_page_url": "https://example.org/a b"}, "must be a valid URL"),
            ({"home_page_url": "https://" + "x" * 2000}, "is too long (maximum is 2000 characters)"),
            ({"after_sign_out_path": "javascript:alert(1)"}, "must be a valid URL"),
            ({"after_sign_out_path": "//example.org"}, "must be a valid URL"),
            ({"after_sign_out_path": "/\\example.org"}, "must be a valid URL"),
            ({"after_sign_out_path": "bye"}, "must be a valid URL"),
            ({"default_branch_protection": 3}, "is not included in the list"),
            ({"default_branch_protection": -1}, "is not included in the list"),
            ({"restricted_visibility_levels": [0, 3]}, "is not included in the list"),
            ({"restricted_visibility_levels": "x"}, "is not a number"),
            ({"max_attachment_size": 0}, "must be greater than 0"),
            ({"max_attachment_size": -5}, "must be greater than 0"),
            ({"session_expire_delay": -1}, "must be greater than or equal to 0"),
            ({"default_project_visibility": 3}, "is not included in the list"),
            ({"default_snippet_visibility": 30}, "is not included in the list"),
            ({"restricted_signup_domains": ["example.org", "a b"]}, "'a b' is not a domain"),
            ({"restricted_signup_domains": ["@example.org"]}, "'@example.org' is not a domain"),
            ({"restricted_signup_domains": ["example.org."]}, "'example.org.' is not a domain"),
            ({"restricted_signup_domains": [f"{number}.org" for number in range(501)]}, "has too many entries (maximum is 500)"),
            ({"sign_in_text": ["a"]}, "is invalid"),
        ],
    )
    async def test_rejects_values_out_of_range_and_changes_nothing(
        self, api: Api, admin: tables.User, params: dict[str, object], text: str
    ) -> None:
        (name,) = params

        response = await api.put(PATH, admin, **{"microblog_sharing_enabled": False, **params})

        assert (response.status_code, response.json()) == (400, {"message": {name: [text]}})
        assert without_times((await api.get(PATH, admin)).json()) == DEFAULTS

    async def test_reports_all_errors_at_once(self, api: Api, admin: tables.User) -> None:
        response = await api.put(PATH, admin, home_page_url="x", max_attachment_size=0)

        assert response.json()["message"].keys() == {"home_page_url", "max_attachment_size"}

    async def test_ignores_unknown_parameters(self, api: Api, admin: tables.User) -> None:
        response = await api.put(PATH, admin, id=7, created_at="2001-01-01", shared_runners_enabled=True, domain_whitelist=["x"])

        assert response.status_code == 200
        assert without_times(response.json()) == DEFAULTS

    @cites("Authentication: application settings are for administrators")
    async def test_requires_an_administrator_before_a_value_is_read(self, api: Api, make: DataFactory) -> None:
        user = await make.user()

        assert (await api.put(PATH, user, max_attachment_size="x")).json() == {"message": "403 Forbidden"}
        assert (await api.put(PATH, user, max_attachment_size=5)).status_code == 403
        assert (await api.put(PATH, None, max_attachment_size="x")).status_code == 401

    async def test_loses_no_change_of_many_at_once(self, api: Api, admin: tables.User) -> None:
        responses = await asyncio.gather(*(api.put(PATH, admin, **{name: CHANGED[name]}) for name in CHANGED))

        assert {response.status_code for response in responses} == {200}
        assert without_times((await api.get(PATH, admin)).json()) == {"id": 1, **CHANGED}

    @cites("Limits: default_projects_limit is 10 and is given to new users")
    async def test_takes_effect_immediately(self, api: Api, make: DataFactory, admin: tables.User) -> None:
        await api.put(PATH, admin, default_projects_limit=3, restricted_signup_domains="*.corp.example")
        person = {"username": "bob", "name": "Bob", "password": "12345678"}

        refused = await api.post("/users", admin, **person, email="bob@example.org")
        created = await api.post("/users", admin, **person, email="bob@it.corp.example")

        assert refused.status_code == 400
        assert refused.json()["message"]["email"] == ["is not whitelisted. Email domains valid for registration are: *.corp.example"]
        assert created.json()["projects_limit"] == 3


class TestLegacyProfile:
    async def test_both_rows_have_a_whitelist_that_is_empty(self, legacy_api: Api, admin: tables.User) -> None:
        shown = (await legacy_api.get(PATH, admin)).json()
        changed = (await legacy_api.put(PATH, admin, domain_whitelist=["x"], default_project_visibility=20)).json()

        assert shown["domain_whitelist"] == changed["domain_whitelist"] == []
        assert changed["default_project_visibility"] == 20
