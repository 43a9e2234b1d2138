"""The settings of the instance, and what of them everybody may know."""

from datetime import datetime
from typing import Any

import strawberry

from graph.context import Info
from graph.declare import column
from graph.mutations import mutation
from graph.rules import settings
from graph.rules.policy import Action, require
from graph.types.inputs import given, sent
from graph.types.runner_registration import SettingsRunnerRegistration
from graph.types.visibility import Visibility
from storage import tables

BranchProtection = strawberry.enum(
    tables.BranchProtection, description="Who may do what to the first branch of a project, which is protected at its first push."
)


def _value_of(key: str, kind: Any) -> Any:
    """The member of an enumeration that a column's number stands for."""
    return lambda root: kind(getattr(root, key))


def _restricted(root: Any) -> Any:
    levels = root.restricted_visibility_levels
    return None if levels is None else [tables.Visibility(level) for level in levels]


@strawberry.type(description="How the instance behaves; administrators alone see and change it.")
class Settings(SettingsRunnerRegistration):
    database_id: int = column(tables.Settings.id, description="The v3 id: 1.")
    created_at: datetime = column(description="When the instance was set up.")
    updated_at: datetime = column(description="When a setting was last changed.")
    default_projects_limit: int = column(description="How many personal projects a new user may have.")
    signup_enabled: bool = column(description="Whether anybody may open an account with `signUp`.")
    signin_enabled: bool = column(description="Whether users sign in with a password; administrators always do.")
    avatar_service_enabled: bool = column(description="Whether users have pictures; `gravatar_enabled` for old clients of v3.")
    sign_in_text: str | None = column(description="What the page for signing in says.")
    home_page_url: str | None = column(description="Where the front page sends who is not signed in.")
    default_branch_protection: BranchProtection = strawberry.field(  # type: ignore[valid-type]
        resolver=_value_of("default_branch_protection", tables.BranchProtection), description="How a project's first branch is protected."
    )
    default_branch_protection_value: int = column(
        tables.Settings.default_branch_protection, description="The same as v3 spells it: 0 none, 1 partial, 2 full."
    )
    microblog_sharing_enabled: bool = column(
        description="Whether pages offer to share on a microblog; `twitter_sharing_enabled` for old clients of v3."
    )
    restricted_visibility_levels: list[Visibility] | None = strawberry.field(  # type: ignore[valid-type]
        resolver=_restricted, description="What administrators alone may give to projects and snippets; null or empty restricts nothing."
    )
    restricted_visibility_level_values: list[int] | None = column(
        tables.Settings.restricted_visibility_levels, description="The same as v3 spells it: 0 private, 1 internal, 2 public."
    )
    max_attachment_size: int = column(description="The most megabytes of an uploaded file.")
    session_expire_delay: int = column(description="Minutes after which pages ask to sign in again.")
    default_project_visibility: Visibility = strawberry.field(  # type: ignore[valid-type]
        resolver=_value_of("default_project_visibility", tables.Visibility), description="Who sees a new project for which nothing is said."
    )
    default_project_visibility_value: int = column(
        tables.Settings.default_project_visibility, description="The same as v3 spells it: 0 private, 1 internal, 2 public."
    )
    default_snippet_visibility: Visibility = strawberry.field(  # type: ignore[valid-type]
        resolver=_value_of("default_snippet_visibility", tables.Visibility), description="Who sees a new snippet for which nothing is said."
    )
    default_snippet_visibility_value: int = column(
        tables.Settings.default_snippet_visibility, description="The same as v3 spells it: 0 private, 1 internal, 2 public."
    )
    restricted_signup_domains: list[str] | None = column(
        description="The domains of the addresses of new users, where `*` stands for anything; null or empty restricts nothing."
    )
    user_oauth_applications: bool = column(description="Whether users may register applications.")
    after_sign_out_path: str | None = column(description="Where pages send who signs out.")


@strawberry.type(description="What everybody who is signed in may know of the settings, for front ends.")
class Instance:
    signup_enabled: bool = column(description="Whether anybody may open an account with `signUp`.")
    signin_enabled: bool = column(description="Whether users sign in with a password.")
    sign_in_text: str | None = column(description="What the page for signing in says.")
    home_page_url: str | None = column(description="Where the front page sends who is not signed in.")
    after_sign_out_path: str | None = column(description="Where pages send who signs out.")
    microblog_sharing_enabled: bool = column(description="Whether pages offer to share on a microblog.")
    max_attachment_size: int = column(description="The most megabytes of an uploaded file.")
    session_expire_delay: int = column(description="Minutes after which pages ask to sign in again.")
    restricted_visibility_levels: list[Visibility] | None = strawberry.field(  # type: ignore[valid-type]
        resolver=_restricted, description="What administrators alone may give to projects and snippets; null or empty restricts nothing."
    )
    default_project_visibility: Visibility = strawberry.field(  # type: ignore[valid-type]
        resolver=_value_of("default_project_visibility", tables.Visibility), description="Who sees a new project for which nothing is said."
    )
    default_snippet_visibility: Visibility = strawberry.field(  # type: ignore[valid-type]
        resolver=_value_of("default_snippet_visibility", tables.Visibility), description="Who sees a new snippet for which nothing is said."
    )


@strawberry.type(description="What pages tell who is not signed in, and where they send them.")
class FrontPage:
    sign_in_text: str | None = column(description="What the page for signing in says.")
    home_page_url: str | None = column(description="Where the front page sends who is not signed in.")
    after_sign_out_path: str | None = column(description="Where pages send who signs out.")
    signin_enabled: bool = column(description="Whether users sign in with a password; administrators always do.")


@strawberry.type
class SettingsQueries:
    @strawberry.field(description="How the instance behaves; for administrators.")
    async def settings(self, info: Info) -> Settings | None:
        await require(info.context, Action.ADMIN_SETTINGS)
        return await settings.current(info.context)  # type: ignore[return-value]

    @strawberry.field(description="What everybody who is signed in may know of the settings.")
    async def instance(self, info: Info) -> Instance:
        return await settings.current(info.context)  # type: ignore[return-value]

    @strawberry.field(description="What pages tell who is not signed in; for everybody, where it stands alone.")
    async def front_page(self, info: Info) -> FrontPage:
        return await settings.current(info.context)  # type: ignore[return-value]


@strawberry.input(
    description="Changes to the settings; what is not sent stays, and null clears a text or a list and means nothing elsewhere."
)
class UpdateSettingsInput:
    default_projects_limit: int | None = given("How many personal projects a new user may have.")
    signup_enabled: bool | None = given("Whether anybody may open an account with `signUp`.")
    signin_enabled: bool | None = given("Whether users who are no administrators sign in with a password.")
    avatar_service_enabled: bool | None = given("Whether users have pictures.")
    sign_in_text: str | None = given("What the page for signing in says.")
    home_page_url: str | None = given("Where the front page sends who is not signed in: http or https.")
    default_branch_protection: BranchProtection | None = given("How a project's first branch is protected.")  # type: ignore[valid-type]
    microblog_sharing_enabled: bool | None = given("Whether pages offer to share on a microblog.")
    restricted_visibility_levels: list[Visibility] | None = given(  # type: ignore[valid-type]
        "The whole list of what administrators alone may give to projects and snippets."
    )
    max_attachment_size: int | None = given("The most megabytes of an uploaded file; more than 0.")
    session_expire_delay: int | None = given("Minutes after which pages ask to sign in again.")
    default_project_visibility: Visibility | None = given("Who sees a new project for which nothing is said.")  # type: ignore[valid-type]
    default_snippet_visibility: Visibility | None = given("Who sees a new snippet for which nothing is said.")  # type: ignore[valid-type]
    restricted_signup_domains: list[str] | None = given("The whole list of domains of new users' addresses; `*` stands for anything.")
    user_oauth_applications: bool | None = given("Whether users may register applications.")
    after_sign_out_path: str | None = given("Where pages send who signs out: http, https, or a path on this host.")


@mutation(
    entity="settings",
    returns=Settings,
    entity_description="The settings as they are now.",
    description="Changes how the instance behaves; administrators only. When one value cannot be, nothing is changed.",
)
async def update_settings(info: Info, input: UpdateSettingsInput) -> tables.Settings:
    context = info.context
    await require(context, Action.ADMIN_SETTINGS)
    wanted = settings.checked({key: value for key in UpdateSettingsInput.__annotations__ if sent(value := getattr(input, key))})
    row = await settings.hold(context)
    for key, value in wanted.items():
        setattr(row, key, value)
    row.updated_at = context.now()
    await context.session.flush()
    return row


@strawberry.type
class SettingsMutations:
    update_settings = update_settings
