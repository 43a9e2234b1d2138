"""The instance settings, and the public part of them."""

from datetime import datetime
from typing import Any

import strawberry

from graph.context import Info
from graph.fields.declarations import column
from graph.fields.metadata import facts
from graph.fields.mutations import mutation
from graph.rules import settings
from graph.rules.external_accounts import openid_sign_in
from graph.rules.permissions.policy import Action, require
from graph.types.builds.runner_registration import SettingsRunnerRegistrationFields
from graph.types.inputs import optional, sent_values
from graph.types.visibility import Visibility
from storage import tables

BranchProtection = strawberry.enum(
    tables.BranchProtection, description="Protection of the first branch of a project, applied at the first push."
)


def _enum_resolver(key: str, kind: Any) -> Any:
    """A resolver that converts a column's number to a member of an enumeration."""
    return lambda root: kind(getattr(root, key))


def _resolve_restricted_levels(root: Any) -> Any:
    levels = root.restricted_visibility_levels
    return None if levels is None else [tables.Visibility(level) for level in levels]


@strawberry.type(description="Settings of the instance. Visible to administrators only.")
class Settings(SettingsRunnerRegistrationFields):
    database_id: int = column(tables.Settings.id, description="ID in the v3 API; always 1.")
    created_at: datetime = column(description="When the instance was set up.")
    updated_at: datetime = column(description="When a setting was last changed.")
    default_projects_limit: int = column(description="Maximum number of personal projects of a new user.")
    signup_enabled: bool = column(description="Whether anyone can create an account with `signUp`.")
    signin_enabled: bool = column(description="Whether users can sign in with a password; administrators always can.")
    avatar_service_enabled: bool = column(description="Whether avatars are enabled; `gravatar_enabled` in v3.")
    sign_in_text: str | None = column(description="Text of the sign-in page.")
    home_page_url: str | None = column(description="URL to which visitors of the front page are redirected.")
    default_branch_protection: BranchProtection = strawberry.field(  # type: ignore[valid-type]
        resolver=_enum_resolver("default_branch_protection", tables.BranchProtection),
        description="Protection of the first branch of a project.",
    )
    default_branch_protection_value: int = column(
        tables.Settings.default_branch_protection, description="The same as a number, as in v3: 0 none, 1 partial, 2 full."
    )
    microblog_sharing_enabled: bool = column(description="Whether pages offer sharing on a microblog; `twitter_sharing_enabled` in v3.")
    restricted_visibility_levels: list[Visibility] | None = strawberry.field(  # type: ignore[valid-type]
        resolver=_resolve_restricted_levels,
        description="Visibility levels only administrators can use for projects and snippets; null or empty for none.",
    )
    restricted_visibility_level_values: list[int] | None = column(
        tables.Settings.restricted_visibility_levels, description="The same as a number, as in v3: 0 private, 1 internal, 2 public."
    )
    max_attachment_size: int = column(description="Maximum size of an uploaded file in megabytes.")
    session_expire_delay: int = column(description="Session lifetime in minutes.")
    default_project_visibility: Visibility = strawberry.field(  # type: ignore[valid-type]
        resolver=_enum_resolver("default_project_visibility", tables.Visibility), description="Default visibility of new projects."
    )
    default_project_visibility_value: int = column(
        tables.Settings.default_project_visibility, description="The same as a number, as in v3: 0 private, 1 internal, 2 public."
    )
    default_snippet_visibility: Visibility = strawberry.field(  # type: ignore[valid-type]
        resolver=_enum_resolver("default_snippet_visibility", tables.Visibility), description="Default visibility of new snippets."
    )
    default_snippet_visibility_value: int = column(
        tables.Settings.default_snippet_visibility, description="The same as a number, as in v3: 0 private, 1 internal, 2 public."
    )
    restricted_signup_domains: list[str] | None = column(
        description="Allowed email domains of new users, where `*` is a wildcard; null or empty allows all."
    )
    user_oauth_applications: bool = column(description="Whether users can register OAuth applications.")
    after_sign_out_path: str | None = column(description="URL to which users are redirected after signing out.")


@strawberry.type(description="Settings of the instance that are visible to all signed-in users.")
class Instance:
    signup_enabled: bool = column(description="Whether anyone can create an account with `signUp`.")
    signin_enabled: bool = column(description="Whether users can sign in with a password.")
    sign_in_text: str | None = column(description="Text of the sign-in page.")
    home_page_url: str | None = column(description="URL to which visitors of the front page are redirected.")
    after_sign_out_path: str | None = column(description="URL to which users are redirected after signing out.")
    microblog_sharing_enabled: bool = column(description="Whether pages offer sharing on a microblog.")
    max_attachment_size: int = column(description="Maximum size of an uploaded file in megabytes.")
    session_expire_delay: int = column(description="Session lifetime in minutes.")
    restricted_visibility_levels: list[Visibility] | None = strawberry.field(  # type: ignore[valid-type]
        resolver=_resolve_restricted_levels,
        description="Visibility levels only administrators can use for projects and snippets; null or empty for none.",
    )
    default_project_visibility: Visibility = strawberry.field(  # type: ignore[valid-type]
        resolver=_enum_resolver("default_project_visibility", tables.Visibility), description="Default visibility of new projects."
    )
    default_snippet_visibility: Visibility = strawberry.field(  # type: ignore[valid-type]
        resolver=_enum_resolver("default_snippet_visibility", tables.Visibility), description="Default visibility of new snippets."
    )


@strawberry.type(description="Settings for users who are not signed in.")
class FrontPage:
    sign_in_text: str | None = column(description="Text of the sign-in page.")
    home_page_url: str | None = column(description="URL to which visitors of the front page are redirected.")
    after_sign_out_path: str | None = column(description="URL to which users are redirected after signing out.")
    signin_enabled: bool = column(description="Whether users can sign in with a password; administrators always can.")

    @strawberry.field(description="Whether people can sign in with the password of a directory.")
    def directory_enabled(self, info: Info) -> bool:
        return info.context.services.directory is not None

    @strawberry.field(description="Name of the OpenID provider, for a button; null if none is configured.")
    def open_id_label(self, info: Info) -> str | None:
        provider = info.context.services.openid_provider
        return provider.options.label if provider is not None else None

    @strawberry.field(
        description="Address at which a browser signs out of the OpenID provider; null if the provider has none or cannot be reached."
    )
    async def open_id_sign_out_url(self, info: Info) -> str | None:
        return await openid_sign_in.load_sign_out_url(info.context)


@strawberry.type
class SettingsQueries:
    @strawberry.field(description="Settings of the instance. Administrators only.")
    async def settings(self, info: Info) -> Settings | None:
        await require(info.context, Action.ADMIN_SETTINGS)
        return await settings.load_settings(info.context)  # type: ignore[return-value]

    @strawberry.field(description="Settings of the instance that are visible to all signed-in users.")
    async def instance(self, info: Info) -> Instance:
        return await settings.load_settings(info.context)  # type: ignore[return-value]

    @strawberry.field(
        description="Settings for users who are not signed in. Available without credentials if it is the only field of the query.",
        metadata=facts(anonymous=True),
    )
    async def front_page(self, info: Info) -> FrontPage:
        return await settings.load_settings(info.context)  # type: ignore[return-value]


@strawberry.input(
    description="Input of `updateSettings`; omitted fields are not changed. Null clears strings and lists and is ignored for other fields."
)
class UpdateSettingsInput:
    default_projects_limit: int | None = optional("Maximum number of personal projects of a new user.")
    signup_enabled: bool | None = optional("Whether anyone can create an account with `signUp`.")
    signin_enabled: bool | None = optional("Whether users who are not administrators can sign in with a password.")
    avatar_service_enabled: bool | None = optional("Whether avatars are enabled.")
    sign_in_text: str | None = optional("Text of the sign-in page.")
    home_page_url: str | None = optional("URL to which visitors of the front page are redirected; http or https.")
    default_branch_protection: BranchProtection | None = optional("Protection of the first branch of a project.")  # type: ignore[valid-type]
    microblog_sharing_enabled: bool | None = optional("Whether pages offer sharing on a microblog.")
    restricted_visibility_levels: list[Visibility] | None = optional(  # type: ignore[valid-type]
        "New list of visibility levels only administrators can use."
    )
    max_attachment_size: int | None = optional("Maximum size of an uploaded file in megabytes; greater than 0.")
    session_expire_delay: int | None = optional("Session lifetime in minutes.")
    default_project_visibility: Visibility | None = optional("Default visibility of new projects.")  # type: ignore[valid-type]
    default_snippet_visibility: Visibility | None = optional("Default visibility of new snippets.")  # type: ignore[valid-type]
    restricted_signup_domains: list[str] | None = optional("New list of allowed email domains of new users; `*` is a wildcard.")
    user_oauth_applications: bool | None = optional("Whether users can register OAuth applications.")
    after_sign_out_path: str | None = optional("URL to which users are redirected after signing out: http, https, or a path on this host.")


@mutation(
    entity="settings",
    returns=Settings,
    entity_description="The updated settings.",
    description="Updates the settings of the instance. Administrators only. If a value is invalid, nothing is changed.",
)
async def update_settings(info: Info, input: UpdateSettingsInput) -> tables.Settings:
    await require(info.context, Action.ADMIN_SETTINGS)
    return await settings.update_settings(info.context, sent_values(input))


@strawberry.type
class SettingsMutations:
    update_settings = update_settings
