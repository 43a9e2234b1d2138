"""Users: who they are."""

from collections.abc import Callable
from datetime import datetime
from typing import Annotated, Any

import strawberry
from sqlmodel import col

from graph.connections import Connection, Listing, Order
from graph.context import Fixed, Info
from graph.declare import Node, Same, column, computed, connection_field, entity, window_of
from graph.errors import BadRequest, NotFound
from graph.rules import accounts, finding
from graph.rules.policy import knows
from graph.rules.searching import search_term
from graph.types.emails import UserEmails
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


@entity(
    tables.User,
    description="A person, or a program, with an account.",
    unrestricted="Every signed-in viewer may see every account; what is private to one is a field that asks for the right itself.",
)
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

    @computed(
        tables.User.email,
        tables.User.id,
        made=lambda fixed, above: (lambda email, id: email) if above in EMAIL_SHOWN_IN else None,
        description="The primary address. Null for all but the user and administrators, unless the user is met as the author or "
        "assignee of a note, a commit comment, a merge request or a snippet, or as a member of a group.",
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

    @computed(tables.User.id, description="The path of the same thing in v3.")
    def rest_path(self) -> str:
        return f"/api/v3/users/{self.id}"

    @computed(tables.User.username, made=lambda fixed, above: _web_url(fixed), description="The address of the user's page.")
    def web_url(self, info: Info) -> str:
        return _web_url(info.context.services.fixed)(self.username)

    @computed(
        tables.User.email,
        tables.User.username,
        tables.User.id,
        made=lambda fixed, above: None if fixed.shows_avatars else Same(None),
        description="The user's picture; null when the instance shows none.",
    )
    async def avatar_url(self, info: Info) -> str | None:
        return await accounts.avatar_url(info.context, self)  # type: ignore[arg-type]


# Users stand in nearly every answer.


def _web_url(fixed: Fixed) -> Callable[[str], str]:
    start = f"{fixed.external_url}/u/"
    return lambda username: start + username


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
            found.append(users.search(search_term(self.search), everything=everything))
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
