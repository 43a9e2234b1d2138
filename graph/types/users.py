"""Users: who they are, how they sign in, and what administrators do with them."""

from datetime import datetime
from typing import Annotated, Any

import strawberry
from sqlmodel import col

from graph.connections import Connection, Listing, Order
from graph.context import Context, Info
from graph.declare import Node, column, connection_field, entity, window_of
from graph.errors import BadRequest, Invalid, NotFound
from graph.mutations import mutation
from graph.rules import accounts, finding, leaving, settings, signing_in
from graph.rules.policy import Action, knows, require
from graph.rules.states import UserEvent
from graph.types.emails import UserEmails
from graph.types.inputs import UserInput, given, sent, user_id_of, value_or
from graph.types.ssh_keys import UserSshKeys
from storage import tables
from storage.tables import users

UserState = strawberry.enum(tables.UserState, description="Whether a user may use the service.")

EMAIL_SHOWN_IN = frozenset(("Note", "CommitComment", "MergeRequest", "Snippet", "GroupMember"))
"""The types whose users carry their e-mail, as v3 shows it there. Who sees the thing sees the address of who wrote it; the same user
met anywhere else, as in a list of users, has none, so addresses cannot be gathered from there."""


def _private(key: str, *, description: str) -> Any:
    """A column that only the user and administrators know; null for all others."""

    def resolve(root: Any, info: Info) -> Any:
        return getattr(root, key) if knows(info.context, root.id) else None

    return strawberry.field(resolver=resolve, description=f"{description} Null for all but the user and administrators.")


@entity(tables.User, description="A person, or a program, with an account.")
class User(Node, UserSshKeys, UserEmails):
    database_id: int = column(tables.User.id, description="The v3 id.")
    username: str = column(description="The name in mentions and paths, unique without case.")
    name: str = column(description="The full name.")
    state: UserState = column(description="Whether the user may use the service.")  # type: ignore[valid-type]
    created_at: datetime = column(description="When the account was opened.")
    is_admin: bool = column(tables.User.admin, description="Whether the user is an administrator of the instance.")
    bio: str | None = column(description="What the user says of themselves.")
    messenger: str = column(description="The address at a messenger; `skype` for old clients of v3. Empty when not told.")
    professional_profile: str = column(description="A professional profile; `linkedin` for old clients of v3. Empty when not told.")
    microblog: str = column(description="A microblog; `twitter` for old clients of v3. Empty when not told.")
    website_url: str = column(description="The user's own page. Empty when not told.")
    extern_uid: str | None = _private("extern_uid", description="The user's id in a directory.")
    provider: str | None = _private("provider", description="The directory in which `externUid` is.")
    theme_id: int | None = _private("theme_id", description="The theme of the pages.")
    color_scheme_id: int | None = _private("color_scheme_id", description="The colours of code.")
    can_create_group: bool | None = _private("can_create_group", description="Whether the user may create groups.")
    projects_limit: int | None = _private("projects_limit", description="How many personal projects the user may have.")
    current_sign_in_at: datetime | None = _private("current_sign_in_at", description="When the user last signed in with a password.")
    two_factor_enabled: bool | None = _private("two_factor_enabled", description="Whether signing in takes a second factor.")
    confirmed: bool | None = _private("confirmed", description="Whether the e-mail address was confirmed.")
    blocked_by_directory: bool | None = _private(
        "blocked_by_directory", description="Whether a synchronized directory has blocked the user, which only it takes back."
    )

    @strawberry.field(
        description="The primary address. Null for all but the user and administrators, unless the user is met as the author or "
        "assignee of a note, a commit comment, a merge request or a snippet, or as a member of a group."
    )
    def email(self, info: Info) -> str | None:
        user: Any = self
        above = info.path.prev
        shown = above is not None and above.typename in EMAIL_SHOWN_IN
        return user.email if shown or knows(info.context, user.id) else None

    @strawberry.field(description="Whether the user has room for another personal project. Null for all but the user and administrators.")
    async def can_create_project(self, info: Info) -> bool | None:
        user: Any = self
        context = info.context
        if not knows(context, user.id):
            return None

        async def fetch(ids: list[int]) -> dict[int, int]:
            return dict(map(tuple, await context.tuples(users.personal_projects(ids))))

        return bool((await context.loader("personal projects", fetch).get(user.id) or 0) < user.projects_limit)

    @strawberry.field(
        description="The token that speaks for the user, on the viewer alone; null on everybody else, for administrators too."
    )
    async def private_token(self, info: Info) -> str | None:
        user: Any = self
        context = info.context
        if user.id != context.viewer.id:
            return None
        token = await context.first(users.private_token(user.id))
        return context.services.cipher.decrypt(token.sealed) if token is not None else None

    @strawberry.field(description="The path of the same thing in v3.")
    def rest_path(self) -> str:
        return f"/api/v3/users/{self.id}"

    @strawberry.field(description="The address of the user's page.")
    def web_url(self, info: Info) -> str:
        return f"{info.context.services.external_url}/u/{self.username}"

    @strawberry.field(description="The user's picture; null when the instance shows none.")
    def avatar_url(self, info: Info) -> str | None:
        # Users stand in nearly every answer: nothing is awaited where there is no service for pictures.
        context = info.context
        return accounts.avatar_url(context, self) if context.services.avatar_url_template else None  # type: ignore[arg-type, return-value]


@strawberry.input(description="Which users; every field given must match.")
class UserFilter:
    search: str | None = strawberry.field(
        description="With this text in the username, or with this as the whole e-mail; for administrators also in the name or e-mail.",
        default=None,
    )
    username: str | None = strawberry.field(description="Of this username, without case.", default=None)
    active: bool | None = strawberry.field(description="True leaves out who is blocked; false leaves out nobody.", default=None)

    def conditions(self, *, everything: bool) -> list[Any]:
        found: list[Any] = []
        if self.search is not None:
            found.append(users.search(self.search, everything=everything))
        if self.username is not None:
            found.append(users.has_username(self.username))
        if self.active:
            found.append(col(tables.User.state) == tables.UserState.ACTIVE)
        return found


async def _users(root: Any, info: Info, **arguments: Any) -> Any:
    context = info.context
    listing = Listing(tables.User, Order(tables.User.id, descending=True))
    if (wanted := arguments["filter"]) is not None:
        listing = listing.where(*wanted.conditions(everything=context.viewer.admin))
    return await listing.page(context, window_of(arguments))


@strawberry.type
class UserQueries:
    @strawberry.field(description="Who asks.")
    async def viewer(self, info: Info) -> User:
        return info.context.viewer  # type: ignore[return-value]

    @strawberry.field(description="A user, by v3 id or by username.")
    async def user(
        self,
        info: Info,
        database_id: Annotated[int | None, strawberry.argument(description="The v3 id.")] = None,
        username: Annotated[str | None, strawberry.argument(description="The username, without case.")] = None,
    ) -> User | None:
        if (database_id is None) == (username is None):
            raise BadRequest("Give either `databaseId` or `username`.")
        if database_id is not None:
            return await finding.user(info.context, database_id)  # type: ignore[return-value]
        found = await info.context.first(users.by_username(username or ""))
        if found is None:
            raise NotFound("User")
        return found  # type: ignore[return-value]

    users: Connection[User] = connection_field(_users, filter=UserFilter, description="All users, the newest first.")


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
