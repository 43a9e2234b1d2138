"""The settings of the instance through the graph, and their effects."""

import asyncio
from typing import Any

import pytest

from storage import migrations, tables
from storage.database.engine import Database
from storage.tables import Visibility, settings
from tests.make import DataFactory
from tests.support.api_clients import Ask

SETTINGS = """{ settings { databaseId createdAt updatedAt defaultProjectsLimit signupEnabled signinEnabled avatarServiceEnabled signInText
    homePageUrl defaultBranchProtection defaultBranchProtectionValue microblogSharingEnabled restrictedVisibilityLevels
    restrictedVisibilityLevelValues maxAttachmentSize sessionExpireDelay defaultProjectVisibility defaultProjectVisibilityValue
    defaultSnippetVisibility defaultSnippetVisibilityValue restrictedSignupDomains userOauthApplications afterSignOutPath } }"""
INSTANCE = """{ instance { signupEnabled signinEnabled signInText homePageUrl afterSignOutPath microblogSharingEnabled maxAttachmentSize
    sessionExpireDelay restrictedVisibilityLevels defaultProjectVisibility defaultSnippetVisibility } }"""
UPDATE = """mutation ($input: UpdateSettingsInput!) { updateSettings(input: $input) {
    settings { signInText homePageUrl restrictedVisibilityLevels restrictedSignupDomains defaultProjectsLimit maxAttachmentSize
        defaultBranchProtection defaultProjectVisibility defaultSnippetVisibility updatedAt }
    userErrors { field message code } } }"""
CREATE_PROJECT = """mutation ($input: CreateProjectInput!) { createProject(input: $input) {
    project { visibility } userErrors { field code } } }"""
CREATE_SNIPPET = """mutation ($input: CreateSnippetInput!) { createSnippet(input: $input) {
    snippet { visibility } userErrors { field code } } }"""
CREATE_USER = """mutation ($input: CreateUserInput!) { createUser(input: $input) {
    user { projectsLimit } userErrors { field message code } } }"""


@pytest.fixture
async def admin(make: DataFactory) -> tables.User:
    return await make.admin()


async def update(ask: Ask, viewer: tables.User | None, **changes: Any) -> dict[str, Any]:
    payload: dict[str, Any] = (await ask.data(UPDATE, viewer, input=changes))["updateSettings"]
    return payload


class TestSettingsRow:
    async def test_is_there_from_the_beginning(self, database: Database) -> None:
        async with database.read_session() as session:
            row = await session.scalar(settings.current())

        assert row is not None
        made = tables.Settings(id=1, created_at=row.created_at, updated_at=row.updated_at)
        assert row.model_dump() == made.model_dump()

    async def test_is_not_changed_by_a_restart(self, database: Database, database_url: str, make: DataFactory) -> None:
        await make.settings(max_attachment_size=7)

        await asyncio.to_thread(migrations.upgrade, database_url)

        row = await make.fetch(tables.Settings, 1)
        assert row is not None
        assert row.max_attachment_size == 7

    async def test_is_recreated_when_deleted(self, database: Database, database_url: str, make: DataFactory, admin: tables.User) -> None:
        from sqlalchemy import delete

        async with database.write_session() as session:
            await session.execute(delete(tables.Settings))
            await session.commit()

        await asyncio.to_thread(migrations.upgrade, database_url)

        assert await make.fetch(tables.Settings, 1) is not None


class TestSettings:
    async def test_shows_everything_to_administrators(self, ask: Ask, make: DataFactory, admin: tables.User) -> None:
        await make.settings(restricted_visibility_levels=[0, 2], default_project_visibility=1, sign_in_text="Hello")

        shown = (await ask.data(SETTINGS, admin))["settings"]

        assert (shown["databaseId"], shown["signInText"], shown["defaultProjectsLimit"]) == (1, "Hello", 10)
        assert (shown["defaultBranchProtection"], shown["defaultBranchProtectionValue"]) == ("PARTIAL", 1)
        assert (shown["restrictedVisibilityLevels"], shown["restrictedVisibilityLevelValues"]) == (["PRIVATE", "PUBLIC"], [0, 2])
        assert (shown["defaultProjectVisibility"], shown["defaultProjectVisibilityValue"]) == ("INTERNAL", 1)
        assert (shown["defaultSnippetVisibility"], shown["defaultSnippetVisibilityValue"]) == ("PRIVATE", 0)
        assert shown["createdAt"] is not None

    async def test_require_an_administrator(self, ask: Ask, make: DataFactory) -> None:
        assert await ask.codes(SETTINGS, await make.user()) == ["FORBIDDEN"]
        assert await ask.codes(SETTINGS) == ["UNAUTHENTICATED"]

    async def test_public_settings_are_visible_to_everybody(self, ask: Ask, make: DataFactory) -> None:
        await make.settings(
            sign_in_text="Hello", home_page_url="https://example.org", after_sign_out_path="/bye", restricted_visibility_levels=[2]
        )

        assert (await ask.data(INSTANCE, await make.user()))["instance"] == {
            "signupEnabled": True,
            "signinEnabled": True,
            "signInText": "Hello",
            "homePageUrl": "https://example.org",
            "afterSignOutPath": "/bye",
            "microblogSharingEnabled": True,
            "maxAttachmentSize": 10,
            "sessionExpireDelay": 10080,
            "restrictedVisibilityLevels": ["PUBLIC"],
            "defaultProjectVisibility": "PRIVATE",
            "defaultSnippetVisibility": "PRIVATE",
        }
        assert await ask.codes(INSTANCE) == ["UNAUTHENTICATED"]

    async def test_anonymous_callers_see_only_front_page_settings(self, ask: Ask, make: DataFactory) -> None:
        await make.settings(sign_in_text="Hello", home_page_url="https://example.org", after_sign_out_path="/bye")
        front = "frontPage { signInText homePageUrl afterSignOutPath signinEnabled }"

        assert (await ask.data(f"{{ {front} }}"))["frontPage"] == {
            "signInText": "Hello",
            "homePageUrl": "https://example.org",
            "afterSignOutPath": "/bye",
            "signinEnabled": True,
        }
        assert await ask.codes(f"{{ {front} instance {{ signupEnabled }} }}") == ["UNAUTHENTICATED"]


class TestUpdateSettings:
    async def test_changes_given_fields(self, ask: Ask, admin: tables.User) -> None:
        payload = await update(
            ask,
            admin,
            signInText="Hello",
            homePageUrl=" https://example.org ",
            restrictedVisibilityLevels=["PUBLIC", "PRIVATE", "PUBLIC"],
            restrictedSignupDomains=[" example.org ", "*.example.com", "example.org"],
            defaultBranchProtection="FULL",
            defaultProjectVisibility="INTERNAL",
            defaultSnippetVisibility="PUBLIC",
        )

        assert payload["userErrors"] == []
        changed = payload["settings"]
        del changed["updatedAt"]
        assert changed == {
            "signInText": "Hello",
            "homePageUrl": "https://example.org",
            "restrictedVisibilityLevels": ["PRIVATE", "PUBLIC"],
            "restrictedSignupDomains": ["example.org", "*.example.com"],
            "defaultProjectsLimit": 10,
            "maxAttachmentSize": 10,
            "defaultBranchProtection": "FULL",
            "defaultProjectVisibility": "INTERNAL",
            "defaultSnippetVisibility": "PUBLIC",
        }

    async def test_null_clears_texts_and_lists_and_means_nothing_elsewhere(self, ask: Ask, make: DataFactory, admin: tables.User) -> None:
        await make.settings(
            sign_in_text="Hello", home_page_url="https://example.org", restricted_visibility_levels=[2], max_attachment_size=3
        )

        payload = await update(ask, admin, signInText=None, homePageUrl="", restrictedVisibilityLevels=None, maxAttachmentSize=None)

        changed = payload["settings"]
        assert (changed["signInText"], changed["homePageUrl"], changed["restrictedVisibilityLevels"]) == (None, None, None)
        assert changed["maxAttachmentSize"] == 3

    async def test_names_each_field_that_cannot_be_and_changes_nothing(self, ask: Ask, make: DataFactory, admin: tables.User) -> None:
        payload = await update(
            ask,
            admin,
            signInText="Hello",
            homePageUrl="javascript:alert(1)",
            afterSignOutPath="data:text/html,x",
            maxAttachmentSize=0,
            sessionExpireDelay=-1,
            defaultProjectsLimit=-1,
            restrictedSignupDomains=["a/b"],
        )

        assert payload["settings"] is None
        assert {error["code"] for error in payload["userErrors"]} == {"INVALID"}
        assert {error["field"] for error in payload["userErrors"]} == {
            "homePageUrl",
            "afterSignOutPath",
            "maxAttachmentSize",
            "sessionExpireDelay",
            "defaultProjectsLimit",
            "restrictedSignupDomains",
        }
        row = await make.fetch(tables.Settings, 1)
        assert row is not None
        assert row.sign_in_text is None

    async def test_requires_an_administrator(self, ask: Ask, make: DataFactory) -> None:
        assert await ask.codes(UPDATE, await make.user(), input={"homePageUrl": "javascript:"}) == ["FORBIDDEN"]
        assert await ask.codes(UPDATE, input={}) == ["UNAUTHENTICATED"]


class TestEffects:
    @pytest.mark.parametrize("level", Visibility)
    async def test_a_project_gets_the_default_visibility(self, ask: Ask, make: DataFactory, admin: tables.User, level: Visibility) -> None:
        await update(ask, admin, defaultProjectVisibility=level.name)
        user = await make.user()

        unsaid = await ask.data(CREATE_PROJECT, user, input={"name": "Unsaid"})
        named = await ask.data(CREATE_PROJECT, user, input={"name": "Said", "visibility": "INTERNAL"})

        assert unsaid["createProject"]["project"]["visibility"] == level.name
        assert named["createProject"]["project"]["visibility"] == "INTERNAL"

    async def test_a_snippet_gets_the_default_visibility(self, ask: Ask, make: DataFactory, admin: tables.User) -> None:
        await update(ask, admin, defaultSnippetVisibility="INTERNAL")
        project = await make.project(owner=(owner := await make.user()))
        snippet = {"projectPath": str(project.id), "title": "T", "fileName": "f", "content": "c"}

        assert (await ask.data(CREATE_SNIPPET, owner, input=snippet))["createSnippet"]["snippet"]["visibility"] == "INTERNAL"

    async def test_restricted_levels_are_for_administrators(self, ask: Ask, make: DataFactory, admin: tables.User) -> None:
        await update(ask, admin, restrictedVisibilityLevels=["PUBLIC"])
        project = await make.project(owner=(owner := await make.user()))
        snippet = {"projectPath": str(project.id), "title": "T", "fileName": "f", "content": "c", "visibility": "PUBLIC"}
        public = {"name": "P", "visibility": "PUBLIC"}
        change = "mutation ($input: UpdateProjectInput!) { updateProject(input: $input) { userErrors { field code } } }"
        refused = [{"field": "visibility", "code": "INVALID"}]

        assert (await ask.data(CREATE_PROJECT, owner, input=public))["createProject"]["userErrors"] == refused
        assert (await ask.data(CREATE_SNIPPET, owner, input=snippet))["createSnippet"]["userErrors"] == refused
        changed = await ask.data(change, owner, input={"projectPath": str(project.id), "visibility": "PUBLIC"})
        assert changed["updateProject"]["userErrors"] == refused
        assert (await ask.data(CREATE_PROJECT, admin, input=public))["createProject"]["project"]["visibility"] == "PUBLIC"
        assert (await ask.data(CREATE_PROJECT, owner, input={**public, "visibility": "INTERNAL"}))["createProject"]["userErrors"] == []

    async def test_users_get_the_default_limit(self, ask: Ask, admin: tables.User) -> None:
        await update(ask, admin, defaultProjectsLimit=0)
        person = {"username": "bob", "name": "Bob", "email": "bob@example.org"}

        assert (await ask.data(CREATE_USER, admin, input=person))["createUser"]["user"]["projectsLimit"] == 0

    @pytest.mark.parametrize(
        ("domains", "address", "allowed"),
        [
            ([], "bob@example.org", True),
            (["example.org"], "bob@EXAMPLE.org", True),
            (["EXAMPLE.org"], "bob@example.org", True),
            (["example.org"], "bob@sub.example.org", False),
            (["example.org"], "bob@badexample.org", False),
            (["example.org"], "bob@example.org.evil.net", False),
            (["*.example.org"], "bob@a.b.example.org", True),
            (["*.example.org"], "bob@example.org", False),
            (["*.example.org"], "bob@badexample.org", False),
            (["*example.org"], "bob@badexample.org", True),
            (["mail-*.example.*"], "bob@mail-1.example.net", True),
            (["mail-*.example.*"], "bob@mail.example.net", False),
            (["a.org", "b.org"], "bob@b.org", True),
            (["*"], "bob@anywhere.net", True),
        ],
    )
    async def test_allowed_domains_apply_to_every_account(
        self, ask: Ask, admin: tables.User, domains: list[str], address: str, allowed: bool
    ) -> None:
        await update(ask, admin, restrictedSignupDomains=domains)

        payload = (await ask.data(CREATE_USER, admin, input={"username": "bob", "name": "Bob", "email": address}))["createUser"]

        assert [(error["field"], error["code"]) for error in payload["userErrors"]] == ([] if allowed else [("email", "INVALID")])
        if not allowed:
            assert payload["userErrors"][0]["message"].endswith(f"Email domains valid for registration are: {', '.join(domains)}")
