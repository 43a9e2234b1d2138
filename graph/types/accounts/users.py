"""Users."""

from collections.abc import Callable
from datetime import datetime
from typing import Annotated, Any

import strawberry
from sqlmodel import col

from graph.context import Info, StaticSettings
from graph.errors import NotFound
from graph.fields.connections import Connection
from graph.fields.declarations import ConstantValue, column, computed, connection_field, make_window
from graph.fields.entities import Node, entity
from graph.fields.keyset_listing import KeysetListing, Order
from graph.rules import lookup
from graph.rules.accounts import accounts
from graph.rules.permissions.policy import can_read_account
from graph.rules.search_terms import validate_search
from graph.types.accounts.access_tokens import UserAccessTokenFields
from graph.types.accounts.emails import UserEmailFields
from graph.types.accounts.ssh_keys import UserSshKeyFields
from graph.types.accounts.user_work import UserWorkFields
from storage import tables
from storage.tables.accounts import users

UserState = strawberry.enum(tables.UserState, description="Whether a user can use the service.")

TYPES_SHOWING_EMAIL = frozenset(("Note", "CommitComment", "MergeRequest", "Snippet", "GroupMember"))
"""Types whose nested users include the email address, as in v3.

A viewer who sees such an object sees the address of its author. The same user reached otherwise, for example in a list of users, has
none, so that addresses cannot be collected there.
"""


def _private_column(key: str, *, description: str) -> Any:
    """A column that only the user and administrators can read; null for others."""

    def resolve(root: Any, info: Info) -> Any:
        return getattr(root, key) if can_read_account(info.context, root.id) else None

    return strawberry.field(resolver=resolve, description=f"{description} Null except for the user and administrators.")


@entity(
    tables.User,
    description="A user account of a person or a program.",
    unrestricted="Every signed-in viewer may see every account; what is private to one is a field that asks for the right itself.",
)
class User(Node, UserSshKeyFields, UserEmailFields, UserAccessTokenFields, UserWorkFields):
    database_id: int = column(tables.User.id, description="ID in the v3 API.")
    username: str = column(description="Username, unique ignoring case.")
    name: str = column(description="Full name.")
    state: UserState = column(description="Whether the user can use the service.")  # type: ignore[valid-type]
    created_at: datetime = column(description="When the account was created.")
    is_admin: bool = column(
        tables.User.admin,
        description="Whether the user is an administrator of the instance. `viewer.isAdmin` is false with an access token without the scope"
        " `ADMIN`.",
    )
    bio: str | None = column(description="Biography.")
    messenger: str = column(description="Messenger address; `skype` in v3. Empty if not set.")
    professional_profile: str = column(description="URL or name of a professional profile; `linkedin` in v3. Empty if not set.")
    microblog: str = column(description="Microblog account; `twitter` in v3. Empty if not set.")
    website_url: str = column(description="Website. Empty if not set.")
    extern_uid: str | None = _private_column("extern_uid", description="ID of the user in an external directory.")
    provider: str | None = _private_column("provider", description="Name of the external directory of `externUid`.")
    theme_id: int | None = _private_column("theme_id", description="ID of the theme.")
    color_scheme_id: int | None = _private_column("color_scheme_id", description="ID of the syntax highlighting theme.")
    can_create_group: bool | None = _private_column("can_create_group", description="Whether the user may create groups.")
    projects_limit: int | None = _private_column("projects_limit", description="Maximum number of personal projects.")
    current_sign_in_at: datetime | None = _private_column("current_sign_in_at", description="When the user last signed in with a password.")
    two_factor_enabled: bool | None = _private_column("two_factor_enabled", description="Whether two-factor authentication is enabled.")
    confirmed: bool | None = _private_column("confirmed", description="Whether the email address is confirmed.")
    blocked_by_directory: bool | None = _private_column(
        "blocked_by_directory", description="Whether an external directory has blocked the user; only the directory can unblock the user."
    )

    @strawberry.field(
        description="Whether the user can sign in with a password of the instance. Null except for the user and administrators."
    )
    def has_password(self, info: Info) -> bool | None:
        user: Any = self
        return user.password_hash is not None if can_read_account(info.context, user.id) else None

    @computed(
        tables.User.email,
        tables.User.id,
        from_columns=lambda fixed, above: (lambda email, id: email) if above in TYPES_SHOWING_EMAIL else None,
        description="Primary email address. Visible to the user and administrators; to others only on the author or assignee of a note,"
        " commit comment, merge request or snippet, and on members of a group.",
    )
    def email(self, info: Info) -> str | None:
        user: Any = self
        parent = info.path.prev
        is_shown = parent is not None and parent.typename in TYPES_SHOWING_EMAIL
        return user.email if is_shown or can_read_account(info.context, user.id) else None

    @strawberry.field(description="Whether the user can create another personal project. Null except for the user and administrators.")
    async def can_create_project(self, info: Info) -> bool | None:
        user: Any = self
        context = info.context
        if not can_read_account(context, user.id):
            return None

        async def fetch(ids: list[int]) -> dict[int, int]:
            return dict(map(tuple, await context.tuples(users.PERSONAL_PROJECTS, user_ids=ids)))

        return bool((await context.loader("personal projects", fetch).get(user.id) or 0) < user.projects_limit)

    @strawberry.field(
        description="Private token of the viewer; null for all other users, even for administrators, for callers with an access token,"
        " and if the key was lost."
    )
    async def private_token(self, info: Info) -> str | None:
        user: Any = self
        context = info.context
        if user.id != context.viewer.id or context.access_token is not None:
            return None
        token = await accounts.find_private_token(context, user.id)
        return context.services.cipher.decrypt(token.sealed) if token is not None and token.sealed else None

    @computed(tables.User.id, description="Path of the resource in the v3 API.")
    def rest_path(self) -> str:
        return f"/api/v3/users/{self.id}"

    @computed(
        tables.User.username, from_columns=lambda fixed, above: _web_url_builder(fixed), description="URL of the web page of the user."
    )
    def web_url(self, info: Info) -> str:
        return _web_url_builder(info.context.services.static_settings)(self.username)

    @computed(
        tables.User.email,
        tables.User.username,
        tables.User.id,
        from_columns=lambda fixed, above: None if fixed.shows_avatars else ConstantValue(None),
        description="URL of the avatar; null if the instance shows none.",
    )
    async def avatar_url(self, info: Info) -> str | None:
        return await accounts.build_avatar_url(info.context, self)  # type: ignore[arg-type]


# Nearly every response contains users.


def _web_url_builder(fixed: StaticSettings) -> Callable[[str], str]:
    start = f"{fixed.external_url}/u/"
    return lambda username: start + username


@strawberry.input(description="Filters users; all specified fields must match.")
class UserFilter:
    search: str | None = strawberry.field(
        description="Username contains this string, or the email address equals it; for administrators also name or email address contains"
        " it.",
        default=None,
    )
    username: str | None = strawberry.field(description="Username equals this, ignoring case.", default=None)
    active: bool | None = strawberry.field(description="If true, exclude blocked users; false has no effect.", default=None)
    state: list[UserState] | None = strawberry.field(description="State is one of these.", default=None)  # type: ignore[valid-type]
    is_admin: bool | None = strawberry.field(description="Whether the user is an administrator equals this.", default=None)

    def conditions(self, *, everything: bool) -> list[Any]:
        found: list[Any] = []
        if self.search is not None:
            found.append(users.search(validate_search(self.search), all_fields=everything))
        if self.username is not None:
            found.append(users.has_username(self.username))
        if self.active:
            found.append(col(tables.User.state) == tables.UserState.ACTIVE)
        if self.state is not None:
            found.append(col(tables.User.state).in_(self.state))
        if self.is_admin is not None:
            found.append(col(tables.User.admin).is_(self.is_admin))
        return found


async def _resolve_users(root: Any, info: Info, **arguments: Any) -> Any:
    context = info.context
    listing = KeysetListing(tables.User, Order(tables.User.id, descending=True))
    if (user_filter := arguments["filter"]) is not None:
        listing = listing.where(*user_filter.conditions(everything=context.viewer.admin))
    return await listing.page(context, make_window(arguments))


@strawberry.type
class UserQueries:
    @strawberry.field(description="The authenticated user.")
    async def viewer(self, info: Info) -> User:
        return info.context.viewer  # type: ignore[return-value]

    @strawberry.field(description="User by v3 ID or username.")
    async def user(
        self,
        info: Info,
        database_id: Annotated[int | None, strawberry.argument(description="ID in the v3 API.")] = None,
        username: Annotated[str | None, strawberry.argument(description="Username, ignoring case.")] = None,
    ) -> User | None:
        lookup.require_one("Give either `databaseId` or `username`.", database_id, username)
        if database_id is not None:
            return await lookup.get_user(info.context, database_id)  # type: ignore[return-value]
        found = await info.context.first(users.by_username(username or ""))
        if found is None:
            raise NotFound("User")
        return found  # type: ignore[return-value]

    users: Connection[User] = connection_field(_resolve_users, filter=UserFilter, description="All users, newest first.")
