"""Changes of users: how they come and sign in, and what administrators do with them."""

from datetime import datetime
from typing import Any

import strawberry

from graph.context import Context, Info
from graph.errors import Invalid
from graph.mutations import mutation
from graph.rules import accounts, leaving, settings, signing_in
from graph.rules.policy import Action, require
from graph.rules.states import UserEvent
from graph.types.inputs import UserInput, given, sent, user_id_of, value_or
from graph.types.users import User
from storage import tables


@strawberry.input
class Profile:
    """What a user may be given, at creation and after."""

    messenger: str | None = given("The address at a messenger.")
    professional_profile: str | None = given("A professional profile.")
    microblog: str | None = given("A microblog.")
    website_url: str | None = given("The user's own page: http, https, or without a scheme.")
    extern_uid: str | None = given("The user's id in a directory.")
    provider: str | None = given("The directory in which `externUid` is.")
    bio: str | None = given("What the user says of themselves; at most 255 characters.")
    projects_limit: int | None = given("How many personal projects the user may have; the instance's default when not sent.")
    admin: bool | None = given("Whether the user is an administrator.")
    can_create_group: bool | None = given("Whether the user may create groups.")


@strawberry.input(description="A new user.")
class CreateUserInput(Profile):
    email: str = strawberry.field(description="The primary address; of nobody else.")
    password: str | None = given("8 to 128 characters; without one the user has a token and cannot sign in.")
    username: str = strawberry.field(description="The name in mentions and paths; of no other user and no group, without case.")
    name: str = strawberry.field(description="The full name.")
    confirm: bool | None = given("Whether the address has yet to be confirmed; true when not sent. No mail is sent.")


@strawberry.input(description="Changes to a user; what is not sent stays.")
class UpdateUserInput(UserInput, Profile):
    email: str | None = given("The primary address. A secondary one of the user trades places with it.")
    password: str | None = given("8 to 128 characters.")
    username: str | None = given("The name in mentions and paths; the personal projects move along.")
    name: str | None = given("The full name.")
    blocked_by_directory: bool | None = given("True blocks the user on behalf of a synchronized directory; false ends that.")
    confirmed: bool | None = given("Whether the e-mail address was confirmed.")
    two_factor_enabled: bool | None = given("Whether signing in takes a second factor.")
    theme_id: int | None = given("The theme of the pages.")
    color_scheme_id: int | None = given("The colours of code.")
    current_sign_in_at: datetime | None = given("When the user last signed in; null clears it.")


@strawberry.input(description="Names a user.")
class DeleteUserInput(UserInput):
    pass


@strawberry.input(description="Names a user.")
class BlockUserInput(UserInput):
    pass


@strawberry.input(description="Names a user.")
class UnblockUserInput(UserInput):
    pass


@strawberry.input(description="Names a user; the viewer when nothing is sent.")
class ResetPrivateTokenInput(UserInput):
    pass


@strawberry.input(description="Who signs in.")
class SignInInput:
    login: str = strawberry.field(description="A username, or the primary e-mail address; without case.")
    password: str = strawberry.field(description="The password.")


@strawberry.input(description="Who wants an account.")
class SignUpInput:
    username: str = strawberry.field(description="The name in mentions and paths; of no other user and no group, without case.")
    email: str = strawberry.field(description="The primary address; of nobody else, and in a domain from which the instance takes users.")
    name: str = strawberry.field(description="The full name.")
    password: str = strawberry.field(description="8 to 128 characters.")


COLUMNS = ("email", "password", "name", "username", *Profile.__annotations__)
KEPT = ("confirmed", "two_factor_enabled", "theme_id", "color_scheme_id")
"""Columns that administration or a directory fills, taken as they are; null means nothing."""
NEVER_NULL = frozenset(("email", "password", "name", "username", "projects_limit", "admin", "can_create_group"))


def _wanted(input: Any) -> dict[str, Any]:
    """The columns that an input gives, checked. Null clears what may be empty, and means nothing elsewhere. Raises UserErrors."""
    values = {key: getattr(input, key) for key in COLUMNS}
    return accounts.checked(
        {
            key: value if value is not None else ""
            for key, value in values.items()
            if sent(value) and (value is not None or key not in NEVER_NULL)
        }
    )


async def _hashed(context: Context, wanted: dict[str, Any]) -> None:
    """Puts the hash in the place of the password: before the first statement, since a hash takes long enough to hold up writers."""
    if "password" in wanted:
        wanted["password_hash"] = await context.services.passwords.hash(wanted.pop("password"))


def _identity(user: tables.User | None, wanted: dict[str, Any]) -> tuple[str, str] | None:
    provider = wanted.get("provider", user.provider if user else None)
    extern_uid = wanted.get("extern_uid", user.extern_uid if user else None)
    return (provider, extern_uid) if provider and extern_uid else None


@mutation(
    entity="user",
    returns=User,
    entity_description="The new user.",
    description="Opens an account, with its personal namespace; administrators only.",
)
async def create_user(info: Info, input: CreateUserInput) -> tables.User:
    context = info.context
    await require(context, Action.ADMIN_USERS)
    wanted = _wanted(input)
    await _hashed(context, wanted)
    await _require_possible(context, wanted)
    return await _opened(context, wanted, confirmed=not value_or(input.confirm, True))


async def _require_possible(context: Context, wanted: dict[str, Any]) -> None:
    """Raises Invalid for an address outside the domains of new users, Taken."""
    await accounts.require_allowed_domain(context, wanted["email"])
    await accounts.require_free(context, username=wanted["username"], address=wanted["email"], identity=_identity(None, wanted))


async def _opened(context: Context, wanted: dict[str, Any], *, confirmed: bool) -> tables.User:
    if "projects_limit" not in wanted:
        wanted["projects_limit"] = (await settings.current(context)).default_projects_limit
    moment = context.now()
    return await accounts.open_account(context, tables.User(**wanted, confirmed=confirmed, created_at=moment, updated_at=moment))


@mutation(entity="user", returns=User, entity_description="The user as it is now.", description="Changes an account; administrators only.")
async def update_user(info: Info, input: UpdateUserInput) -> tables.User:
    context = info.context
    await require(context, Action.ADMIN_USERS)
    wanted = _wanted(input)
    await _hashed(context, wanted)
    user = await accounts.find_for_change(context, user_id_of(input))
    if wanted.get("admin") is False and user.admin and user.id == context.viewer.id:
        raise Invalid("admin", "cannot be taken from yourself")
    username, name, address = (wanted.pop(key, None) for key in ("username", "name", "email"))
    await accounts.require_free(context, username=username, address=address, identity=_identity(user, wanted), user_id=user.id)
    wanted.update({key: value for key in KEPT if (value := value_or(getattr(input, key), None)) is not None})
    if sent(input.current_sign_in_at):
        wanted["current_sign_in_at"] = input.current_sign_in_at
    user.sqlmodel_update(wanted)
    directory = value_or(input.blocked_by_directory, None)
    if directory is not None:
        accounts.change_directory_block(context, user, directory)
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
    entity_description="The user who is gone.",
    description="Closes an account; administrators only. Personal projects go with it; what the user wrote elsewhere stays, as a ghost's.",
)
async def delete_user(info: Info, input: DeleteUserInput) -> tables.User:
    context = info.context
    await require(context, Action.ADMIN_USERS)
    user = await accounts.find_for_change(context, user_id_of(input))
    await leaving.remove(context, user)
    return user


async def _happen(info: Info, input: UserInput, event: UserEvent) -> tables.User:
    context = info.context
    await require(context, Action.ADMIN_USERS)
    user = await accounts.find_for_change(context, user_id_of(input))
    accounts.change_state(context, user, event)
    return user


@mutation(
    entity="user",
    returns=User,
    entity_description="The user as it is now.",
    description="Keeps a user out of the service from now on; administrators only.",
)
async def block_user(info: Info, input: BlockUserInput) -> tables.User:
    return await _happen(info, input, UserEvent.BLOCK)


@mutation(
    entity="user", returns=User, entity_description="The user as it is now.", description="Lets a user in again; administrators only."
)
async def unblock_user(info: Info, input: UnblockUserInput) -> tables.User:
    return await _happen(info, input, UserEvent.UNBLOCK)


@mutation(
    entity="user",
    returns=User,
    entity_description="The user; `privateToken` shows the new one to its owner.",
    description="Gives the viewer, or for administrators any user, a new private token; the old one is worthless at once.",
)
async def reset_private_token(info: Info, input: ResetPrivateTokenInput) -> tables.User:
    context = info.context
    named = value_or(input.id, None) is not None or value_or(input.database_id, None) is not None
    if named:
        await require(context, Action.ADMIN_USERS)
    user = await accounts.find_for_change(context, user_id_of(input) if named else context.viewer.id)
    await accounts.give_token(context, user)
    return user


@mutation(
    entity="user",
    returns=User,
    entity_description="Who signed in; `privateToken` is the credential for every other call.",
    description="Signs in with a password; needs no credential. After ten failures in a minute a login has to wait.",
)
async def sign_in(info: Info, input: SignInInput) -> tables.User:
    return await signing_in.sign_in(info.context, input.login, input.password)


@mutation(
    entity="user",
    returns=User,
    entity_description="The new user; `privateToken` is the credential for every other call.",
    description="Opens an ordinary account for whoever asks, where the instance allows it; needs no credential. "
    "When more than sixty ask in a minute the next have to wait.",
)
async def sign_up(info: Info, input: SignUpInput) -> tables.User:
    context = info.context
    wanted = accounts.checked({key: getattr(input, key) for key in ("email", "password", "name", "username")})
    async with context.aside() as early:
        await signing_in.let_sign_up(early)
        await _require_possible(early, wanted)
    await _hashed(context, wanted)
    await _require_possible(context, wanted)
    user = await _opened(context, wanted, confirmed=False)
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
