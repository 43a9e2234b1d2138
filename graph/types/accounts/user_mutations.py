"""Mutations of users: sign-up, sign-in, profile and administration."""

from datetime import datetime
from typing import Any

import strawberry

from graph.context import Context, Info
from graph.errors import Invalid
from graph.fields.mutations import mutation
from graph.rules import settings
from graph.rules.accounts import accounts, password_sign_in, user_deletion
from graph.rules.policy import Action, require
from graph.rules.states import UserTransition
from graph.types.accounts.users import User
from graph.types.inputs import UserInput, get_or, is_set, optional, user_id_of
from storage import tables


@strawberry.input
class UserProfileInput:
    """Profile fields shared by the inputs that create and update a user."""

    messenger: str | None = optional("Messenger address.")
    professional_profile: str | None = optional("URL or name of a professional profile.")
    microblog: str | None = optional("Microblog account.")
    website_url: str | None = optional("Website: http, https, or without a scheme.")
    extern_uid: str | None = optional("ID of the user in an external directory.")
    provider: str | None = optional("Name of the external directory of `externUid`.")
    bio: str | None = optional("Biography; at most 255 characters.")
    projects_limit: int | None = optional("Maximum number of personal projects; default: the default of the instance.")
    admin: bool | None = optional("Whether the user is an administrator.")
    can_create_group: bool | None = optional("Whether the user may create groups.")


@strawberry.input(description="Input of `createUser`.")
class CreateUserInput(UserProfileInput):
    email: str = strawberry.field(description="Primary email address; unique in the instance.")
    password: str | None = optional("8 to 128 characters; a user without a password cannot sign in, but has a token.")
    username: str = strawberry.field(description="Username; unique among users and groups, ignoring case.")
    name: str = strawberry.field(description="Full name.")
    confirm: bool | None = optional("Whether the email address must still be confirmed; default true. No email is sent.")


@strawberry.input(description="Input of `updateUser`; omitted fields are not changed.")
class UpdateUserInput(UserInput, UserProfileInput):
    email: str | None = optional("Primary email address. If it is a secondary address of the user, the two are swapped.")
    password: str | None = optional("8 to 128 characters.")
    username: str | None = optional("Username; the paths of personal projects change with it.")
    name: str | None = optional("Full name.")
    blocked_by_directory: bool | None = optional("Blocks (true) or unblocks (false) the user on behalf of an external directory.")
    confirmed: bool | None = optional("Whether the email address is confirmed.")
    two_factor_enabled: bool | None = optional("Whether two-factor authentication is enabled.")
    theme_id: int | None = optional("ID of the theme.")
    color_scheme_id: int | None = optional("ID of the syntax highlighting theme.")
    current_sign_in_at: datetime | None = optional("When the user last signed in; null clears it.")


@strawberry.input(description="Identifies a user.")
class DeleteUserInput(UserInput):
    pass


@strawberry.input(description="Identifies a user.")
class BlockUserInput(UserInput):
    pass


@strawberry.input(description="Identifies a user.")
class UnblockUserInput(UserInput):
    pass


@strawberry.input(description="Input of `resetPrivateToken`. Default: the viewer.")
class ResetPrivateTokenInput(UserInput):
    pass


@strawberry.input(description="Input of `signIn`.")
class SignInInput:
    login: str = strawberry.field(description="Username or primary email address, ignoring case.")
    password: str = strawberry.field(description="The password.")


@strawberry.input(description="Input of `signUp`.")
class SignUpInput:
    username: str = strawberry.field(description="Username; unique among users and groups, ignoring case.")
    email: str = strawberry.field(description="Primary email address; unique, and in a domain the instance allows.")
    name: str = strawberry.field(description="Full name.")
    password: str = strawberry.field(description="8 to 128 characters.")


PROFILE_COLUMNS = ("email", "password", "name", "username", *UserProfileInput.__annotations__)
UNVALIDATED_COLUMNS = ("confirmed", "two_factor_enabled", "theme_id", "color_scheme_id")
"""Columns set by administrators or a directory and stored without validation.

Null leaves them unchanged.
"""
NON_NULL_COLUMNS = frozenset(("email", "password", "name", "username", "projects_limit", "admin", "can_create_group"))


def _validate_columns(input: Any) -> dict[str, Any]:
    """Validate the columns of an input. Null clears nullable columns and leaves others unchanged.

    Raises UserErrors.
    """
    values = {key: getattr(input, key) for key in PROFILE_COLUMNS}
    return accounts.validate_columns(
        {
            key: value if value is not None else ""
            for key, value in values.items()
            if is_set(value) and (value is not None or key not in NON_NULL_COLUMNS)
        }
    )


async def _hash_password(context: Context, values: dict[str, Any]) -> None:
    """Replace the password by its hash.

    Call it before the first statement, because hashing would block other writers.
    """
    if "password" in values:
        values["password_hash"] = await context.services.passwords.hash(values.pop("password"))


def _directory_identity(user: tables.User | None, values: dict[str, Any]) -> tuple[str, str] | None:
    provider = values.get("provider", user.provider if user else None)
    extern_uid = values.get("extern_uid", user.extern_uid if user else None)
    return (provider, extern_uid) if provider and extern_uid else None


@mutation(
    entity="user",
    returns=User,
    entity_description="The created user.",
    description="Creates a user and the personal namespace. Administrators only.",
)
async def create_user(info: Info, input: CreateUserInput) -> tables.User:
    context = info.context
    await require(context, Action.ADMIN_USERS)
    values = _validate_columns(input)
    await _hash_password(context, values)
    await _require_available(context, values)
    return await _open_account(context, values, confirmed=not get_or(input.confirm, True))


async def _require_available(context: Context, values: dict[str, Any]) -> None:
    """Raises Invalid for an email address outside the domains allowed for sign-up, Taken."""
    await accounts.require_allowed_domain(context, values["email"])
    await accounts.require_available(
        context, username=values["username"], address=values["email"], identity=_directory_identity(None, values)
    )


async def _open_account(context: Context, values: dict[str, Any], *, confirmed: bool) -> tables.User:
    if "projects_limit" not in values:
        values["projects_limit"] = (await settings.load_settings(context)).default_projects_limit
    moment = context.now()
    return await accounts.create_account(context, tables.User(**values, confirmed=confirmed, created_at=moment, updated_at=moment))


@mutation(entity="user", returns=User, entity_description="The updated user.", description="Updates a user. Administrators only.")
async def update_user(info: Info, input: UpdateUserInput) -> tables.User:
    context = info.context
    await require(context, Action.ADMIN_USERS)
    values = _validate_columns(input)
    await _hash_password(context, values)
    user = await accounts.lock_user(context, user_id_of(input))
    if values.get("admin") is False and user.admin and user.id == context.viewer.id:
        raise Invalid("admin", "cannot be revoked from yourself")
    username, name, address = (values.pop(key, None) for key in ("username", "name", "email"))
    await accounts.require_available(
        context, username=username, address=address, identity=_directory_identity(user, values), user_id=user.id
    )
    values.update({key: value for key in UNVALIDATED_COLUMNS if (value := get_or(getattr(input, key), None)) is not None})
    if is_set(input.current_sign_in_at):
        values["current_sign_in_at"] = input.current_sign_in_at
    user.sqlmodel_update(values)
    is_blocked_by_directory = get_or(input.blocked_by_directory, None)
    if is_blocked_by_directory is not None:
        accounts.change_directory_block(context, user, is_blocked_by_directory)
    user.updated_at = context.now()
    if username or name:
        await accounts.rename(context, user, username=username, name=name)
    if address:
        await accounts.change_primary_email(context, user, address)
    await context.session.flush()
    return user


@mutation(
    entity="user",
    returns=User,
    deletes=True,
    entity_description="The deleted user.",
    description="Deletes a user and the personal projects. Administrators only. Other content of the user is assigned to the ghost user.",
)
async def delete_user(info: Info, input: DeleteUserInput) -> tables.User:
    context = info.context
    await require(context, Action.ADMIN_USERS)
    user = await accounts.lock_user(context, user_id_of(input))
    await user_deletion.delete_user(context, user)
    return user


async def _change_state(info: Info, input: UserInput, event: UserTransition) -> tables.User:
    context = info.context
    await require(context, Action.ADMIN_USERS)
    user = await accounts.lock_user(context, user_id_of(input))
    accounts.change_state(context, user, event)
    return user


@mutation(
    entity="user",
    returns=User,
    entity_description="The updated user.",
    description="Blocks a user. Administrators only.",
)
async def block_user(info: Info, input: BlockUserInput) -> tables.User:
    return await _change_state(info, input, UserTransition.BLOCK)


@mutation(entity="user", returns=User, entity_description="The updated user.", description="Unblocks a user. Administrators only.")
async def unblock_user(info: Info, input: UnblockUserInput) -> tables.User:
    return await _change_state(info, input, UserTransition.UNBLOCK)


@mutation(
    entity="user",
    returns=User,
    entity_description="The user; `privateToken` is visible to its owner.",
    description="Replaces the private token of the viewer or, for administrators, of any user. The old token becomes invalid immediately.",
)
async def reset_private_token(info: Info, input: ResetPrivateTokenInput) -> tables.User:
    context = info.context
    is_user_set = get_or(input.id, None) is not None or get_or(input.database_id, None) is not None
    if is_user_set:
        await require(context, Action.ADMIN_USERS)
    user = await accounts.lock_user(context, user_id_of(input) if is_user_set else context.viewer.id)
    await accounts.issue_private_token(context, user)
    return user


@mutation(
    entity="user",
    returns=User,
    anonymous=True,
    entity_description="The signed-in user; `privateToken` is the credential for further requests.",
    description="Signs in with a password. Requires no credential. A login is throttled after ten failures per minute.",
)
async def sign_in(info: Info, input: SignInInput) -> tables.User:
    return await password_sign_in.sign_in(info.context, input.login, input.password)


@mutation(
    entity="user",
    returns=User,
    anonymous=True,
    entity_description="The created user; `privateToken` is the credential for further requests.",
    description="Creates an account, if the instance allows it. Requires no credential. Limited to sixty requests per minute.",
)
async def sign_up(info: Info, input: SignUpInput) -> tables.User:
    context = info.context
    values = accounts.validate_columns({key: getattr(input, key) for key in ("email", "password", "name", "username")})
    async with context.read_only() as reader:
        await password_sign_in.require_sign_up_allowed(reader)
        await _require_available(reader, values)
    await _hash_password(context, values)
    await _require_available(context, values)
    user = await _open_account(context, values, confirmed=False)
    context.viewer_or_none = user
    return user


@strawberry.type
class UserMutations:
    sign_in = sign_in
    sign_up = sign_up
    create_user = create_user
    update_user = update_user
    delete_user = delete_user
    block_user = block_user
    unblock_user = unblock_user
    reset_private_token = reset_private_token
