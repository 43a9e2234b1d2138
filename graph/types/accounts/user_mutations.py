"""Mutations of users: sign-up, sign-in, profile and administration."""

from datetime import datetime
from functools import partial

import strawberry

from graph.context import Context, Info
from graph.fields.mutations import mutation
from graph.operations.token_scopes import require_private_token
from graph.rules.accounts import accounts, password_sign_in, user_changes, user_deletion
from graph.rules.permissions.policy import Action, require
from graph.rules.states import UserTransition
from graph.types.accounts.users import User
from graph.types.inputs import UserInput, get_or, optional, sent_values, user_id_of
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


async def _lock_token_owner(context: Context, input: ResetPrivateTokenInput) -> tables.User:
    """The viewer, or the user that an administrator names, locked. Raises Forbidden, InsufficientScope, NotFound."""
    if get_or(input.id, None) is None and get_or(input.database_id, None) is None:
        require_private_token(context.access_token, "replace the private token of its user")
        return await accounts.lock_user(context, context.viewer.id)
    await require(context, Action.ADMIN_USERS)
    user = await accounts.lock_user(context, user_id_of(input))
    accounts.require_credentials_changeable(context, user)
    return user


@mutation(
    entity="user",
    returns=User,
    entity_description="The created user.",
    description="Creates a user and the personal namespace. Administrators only.",
)
async def create_user(info: Info, input: CreateUserInput) -> tables.User:
    await require(info.context, Action.ADMIN_USERS)
    return await user_changes.create_user(info.context, sent_values(input))


@mutation(entity="user", returns=User, entity_description="The updated user.", description="Updates a user. Administrators only.")
async def update_user(info: Info, input: UpdateUserInput) -> tables.User:
    await require(info.context, Action.ADMIN_USERS)
    return await user_changes.update_user(info.context, partial(user_id_of, input), sent_values(input))


@mutation(
    entity="user",
    returns=User,
    deletes=True,
    entity_description="The deleted user.",
    description="Deletes a user and the personal projects. Administrators only. Other content of the user is assigned to the ghost user.",
)
async def delete_user(info: Info, input: DeleteUserInput) -> tables.User:
    await require(info.context, Action.ADMIN_USERS)
    user = await accounts.lock_user(info.context, user_id_of(input))
    await user_deletion.delete_user(info.context, user)
    return user


@mutation(
    entity="user",
    returns=User,
    entity_description="The updated user.",
    description="Blocks a user. Administrators only.",
)
async def block_user(info: Info, input: BlockUserInput) -> tables.User:
    await require(info.context, Action.ADMIN_USERS)
    user = await accounts.lock_user(info.context, user_id_of(input))
    await accounts.require_remaining_administrator(info.context, user)
    accounts.change_state(info.context, user, UserTransition.BLOCK)
    return user


@mutation(entity="user", returns=User, entity_description="The updated user.", description="Unblocks a user. Administrators only.")
async def unblock_user(info: Info, input: UnblockUserInput) -> tables.User:
    await require(info.context, Action.ADMIN_USERS)
    user = await accounts.lock_user(info.context, user_id_of(input))
    accounts.change_state(info.context, user, UserTransition.UNBLOCK)
    return user


@mutation(
    entity="user",
    returns=User,
    entity_description="The user; `privateToken` is visible to its owner.",
    description="Replaces the private token of the viewer or, for administrators, of any user. The old token becomes invalid immediately."
    " Not possible with an access token, except for an administrator who replaces that of a user who is none.",
)
async def reset_private_token(info: Info, input: ResetPrivateTokenInput) -> tables.User:
    user = await _lock_token_owner(info.context, input)
    await accounts.issue_private_token(info.context, user)
    return user


@mutation(
    entity="user",
    returns=User,
    anonymous=True,
    entity_description="The signed-in user; `privateToken` is the credential for further requests.",
    description="Signs in with a password of the instance or of its directory. Requires no credential. A login is throttled after ten"
    " failures per minute.",
    extra_wait_seconds=20.0,
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
    return await password_sign_in.sign_up(info.context, sent_values(input))


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
