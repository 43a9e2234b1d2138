"""Imports of users."""

from datetime import datetime

import strawberry

from graph.context import Info
from graph.fields.mutations import mutation
from graph.rules.imports.batches import ItemResult
from graph.rules.imports.users import USERS
from graph.types.accounts.users import UserState
from graph.types.imports.items import RESULTS, ImportInput, source_id, write_inputs
from graph.types.inputs import optional


@strawberry.input(description="A user of the source.")
class ImportUserInput:
    source_id: strawberry.ID = source_id()
    namespace_id: strawberry.ID | None = optional("The source's ID of the personal namespace, by which projects name it.")
    username: str = strawberry.field(description="Username; unique among users and groups, ignoring case.")
    name: str = strawberry.field(description="Full name.")
    email: str | None = optional("Primary email address; null if the source does not show it: the user then gets an unusable one.")
    state: UserState | None = optional("State; default: active.")  # type: ignore[valid-type]
    blocked_by_directory: bool | None = optional("Whether an external directory has blocked the user.")
    confirmed: bool | None = optional("Whether the email address is confirmed; default: true.")
    admin: bool | None = optional("Whether the user is an administrator.")
    bio: str | None = optional("Biography; at most 255 characters.")
    messenger: str | None = optional("Messenger address; `skype` in v3.")
    professional_profile: str | None = optional("URL or name of a professional profile; `linkedin` in v3.")
    microblog: str | None = optional("Microblog account; `twitter` in v3.")
    website_url: str | None = optional("Website: http, https, or without a scheme.")
    extern_uid: str | None = optional("ID of the user in an external directory.")
    provider: str | None = optional("Name of the external directory of `externUid`.")
    theme_id: int | None = optional("ID of the theme.")
    color_scheme_id: int | None = optional("ID of the syntax highlighting theme.")
    can_create_group: bool | None = optional("Whether the user may create groups; default: true.")
    projects_limit: int | None = optional("Maximum number of personal projects; default: 10.")
    two_factor_enabled: bool | None = optional("Whether two-factor authentication is enabled.")
    current_sign_in_at: datetime | None = optional("When the user last signed in.")
    created_at: datetime = strawberry.field(description="When the account was created.")
    updated_at: datetime | None = optional("When it was last changed.")
    private_token: str | None = optional("Private token; default: a new one.")
    merge_into: str | None = optional("Username of the account of this instance that the user is; it stays as it is.")


@strawberry.input(description="Input of `importUsers`.")
class ImportUsersInput(ImportInput):
    items: list[ImportUserInput] = strawberry.field(description="The users; 1 to 100.")


@mutation(
    **RESULTS,
    description="Imports users, without passwords. A username or address that another user has skips the item; the administrator who began"
    " the import is the user of the same name. Administrators only, while the import runs.",
)
async def import_users(info: Info, input: ImportUsersInput) -> list[ItemResult]:
    return await write_inputs(info, USERS, input.import_id, input.items)


@strawberry.type
class ImportUserMutations:
    import_users = import_users
