"""Validation and changes of user accounts (docs/wire-facts.md 8.3; messages as legacy clients expect them)."""

import hashlib
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy.exc import IntegrityError
from sqlmodel import col

from graph.context import Context
from graph.errors import Conflict, Forbidden, Invalid, NotFound, Taken, UserError, UserErrors
from graph.events import payloads
from graph.events.publisher import publish
from graph.operations.token_scopes import require_private_token
from graph.rules import settings, validation
from graph.rules.notes import system_notes
from graph.rules.states import USER_TRANSITIONS, UserTransition
from storage import tables
from storage.database.errors import violated_unique_column
from storage.secrets import digest_token, new_token
from storage.tables import NamespaceKind, UserState
from storage.tables.accounts import emails, identities, namespaces, users
from storage.tables.accounts.users import PRIVATE_TOKEN

MIN_PASSWORD_LENGTH = 8
MAX_PASSWORD_LENGTH = 128
EMAIL_PATTERN = re.compile(r"[^@\s]+@(?:[^@\s.]+\.)+[^@\s.]+")
SCHEMELESS_URL_PATTERN = re.compile(r"[^:/?#]*|[^:/?#]+\.[^:/?#]*(?::\d+)?(?:[/?#].*)?|[^:/?#]*[/?#].*")
WEB_URL_PATTERN = re.compile(r"https?://[^/?#]+.*", re.IGNORECASE)
GHOST_USERNAME = "ghost"
"""Username of the ghost user, who replaces deleted users as author.

It is reserved, so nobody else can have it.
"""

FIELDS_BY_UNIQUE_COLUMN = {
    "users.username": "username",
    "namespaces.path_key": "username",
    "users.email": "email",
    "emails.email": "email",
    "identities.provider_uid": "externUid",
    "identities.provider, identities.uid": "externUid",
}


def validate_email(field: str, value: str) -> str:
    """An email address in lower case. Raises Required, Invalid."""
    address = validation.validate_title(field, value).lower()
    if not EMAIL_PATTERN.fullmatch(address):
        raise Invalid(field, "is invalid")
    return address


def validate_password(field: str, value: str) -> str:
    """A password of 8 to 128 characters; whitespace is not stripped. Raises Invalid."""
    if len(value) < MIN_PASSWORD_LENGTH:
        raise Invalid(field, f"is too short (minimum is {MIN_PASSWORD_LENGTH} characters)")
    return validation.validate_string(field, value, max_length=MAX_PASSWORD_LENGTH)


def validate_website(field: str, value: str) -> str:
    """The URL of a page: http, https, or without a scheme. Raises Invalid.

    Other schemes could run code in the browser of a user who follows the link.
    """
    address = validation.validate_string(field, value.strip(), max_length=validation.MAX_NAME_LENGTH)
    if not address.isprintable() or not (WEB_URL_PATTERN.fullmatch(address) or SCHEMELESS_URL_PATTERN.fullmatch(address)):
        raise Invalid(field, "is not a web address")
    return address


def validate_short_string(field: str, value: str) -> str:
    return validation.validate_string(field, value.strip(), max_length=validation.MAX_NAME_LENGTH)


VALIDATORS: dict[str, Callable[[str, Any], Any]] = {
    "email": validate_email,
    "password": validate_password,
    "name": validation.validate_title,
    "username": validation.validate_namespace_path,
    "messenger": validate_short_string,
    "professional_profile": validate_short_string,
    "microblog": validate_short_string,
    "website_url": validate_website,
    "extern_uid": validate_short_string,
    "provider": validate_short_string,
    "bio": validate_short_string,
    "projects_limit": validation.validate_count,
}
"""Validators of user columns, in the order in which errors are reported."""
NULLABLE_COLUMNS = frozenset(("bio", "extern_uid", "provider"))


def validate_columns(values: dict[str, Any]) -> dict[str, Any]:
    """Return the validated user columns; null clears a nullable column.

    Raises UserErrors with every problem found.
    """

    def validate(key: str, value: Any) -> Any:
        if key in VALIDATORS and value is not None:
            value = VALIDATORS[key](validation.to_camel_case(key), value)
        return value or None if key in NULLABLE_COLUMNS else value

    return validation.validate_all({key: values[key] for key in (*VALIDATORS, *values) if key in values}, validate)


async def require_allowed_domain(context: Context, address: str) -> None:
    """Raises Invalid for an email address outside the domains allowed for sign-up, if any are set."""
    allowed = (await settings.load_settings(context)).restricted_signup_domains
    if allowed and not settings.is_domain_allowed(allowed, address):
        raise Invalid("email", f"is not whitelisted. Email domains valid for registration are: {', '.join(allowed)}")


async def require_available(
    context: Context, *, username: str | None = None, address: str | None = None, identity: tuple[str, str] | None = None, user_id: int = 0
) -> None:
    """Raises Taken for each of these values that another user has.

    Unique constraints decide between concurrent requests.
    """
    taken: list[UserError] = []
    if username is not None:
        namespace = await context.first(namespaces.of_path(username))
        other = await context.first(users.by_username(username).where(col(tables.User.id) != user_id))
        if other is not None or (namespace is not None and (namespace.kind is NamespaceKind.GROUP or namespace.owner_id != user_id)):
            taken.append(Taken("username"))
    if address is not None:
        row = await context.first(emails.of_address(address))
        if row is not None and row.user_id != user_id:
            taken.append(Taken("email"))
    if identity is not None:
        owner = await context.first(identities.user_of(*identity))
        if owner is not None and owner.id != user_id:
            taken.append(Taken("externUid"))
    if taken:
        raise UserErrors(taken)


@contextmanager
def translate_unique_violations() -> Iterator[None]:
    """Translate the violation of a unique constraint inside the block to Taken on the corresponding field."""
    try:
        yield
    except IntegrityError as error:
        field = FIELDS_BY_UNIQUE_COLUMN.get(violated_unique_column(error) or "")
        if field is None:
            raise
        raise Taken(field) from error


async def create_account(context: Context, user: tables.User) -> tables.User:
    """Insert a new user with the personal namespace, the email address and the private token.

    Raises Taken.
    """
    with translate_unique_violations():
        await context.add(user)
        await context.add(
            tables.Namespace(kind=NamespaceKind.USER, name=user.name, path=user.username, path_key=user.username.lower(), owner_id=user.id)
        )
        await context.add(tables.Email(user_id=user.id, email=user.email, is_primary=True))
    if user.provider and user.extern_uid:
        await set_identity(context, user.id, user.provider, user.extern_uid)
    await issue_private_token(context, user)
    await publish(context, payloads.UserCreated, user)
    return user


def require_credentials_changeable(context: Context, user: tables.User) -> None:
    """Require that the caller may change what signs this user in. Raises InsufficientScope.

    An access token may not change that of an administrator. Otherwise it would lead to every right, without its expiry.
    """
    if user.admin:
        require_private_token(context.access_token, "change how an administrator signs in")


async def find_private_token(context: Context, user_id: int) -> tables.Token | None:
    return next((token for (token,) in await context.tuples(users.PRIVATE_TOKEN_OF_USER, user_id=user_id)), None)


async def issue_private_token(context: Context, user: tables.User) -> None:
    """Issue a new private token to the user; the commit invalidates the old one."""
    token = new_token()
    row = await find_private_token(context, user.id)
    if row is None:
        row = tables.Token(user_id=user.id, name=PRIVATE_TOKEN, digest="", sealed="", created_at=context.now())
    row.digest = digest_token(token)
    row.sealed = context.services.cipher.encrypt(token)
    row.created_at = context.now()
    await context.add(row)
    context.loaders.clear()


async def set_identity(context: Context, user_id: int, provider: str, extern_uid: str) -> None:
    """Set the identity of a user at a provider. Raises Taken."""
    uid = identities.normalize_uid(provider, extern_uid)
    row = await context.first(identities.of_user(user_id, provider))
    with translate_unique_violations():
        if row is None:
            await context.add(tables.Identity(user_id=user_id, provider=provider, uid=uid))
        elif row.uid != uid:
            row.uid, row.updated_at = uid, context.now()
            await context.session.flush()


async def rename(context: Context, user: tables.User, *, username: str | None, name: str | None) -> None:
    """Change a user's username, name or both, and those of the personal namespace. Raises Taken."""
    namespace = await context.first(namespaces.personal(user.id))
    user.username = username or user.username
    user.name = name or user.name
    old_path = namespace.path if namespace is not None else ""
    if namespace is not None:
        namespace.name = user.name
        namespace.path = user.username
        namespace.path_key = user.username.lower()
        namespace.updated_at = context.now()
    with translate_unique_violations():
        await context.session.flush()
    if namespace is not None:
        await system_notes.rename_namespace(context, namespace, old_path)


async def change_primary_email(context: Context, user: tables.User, address: str) -> None:
    """Make an address the primary one. Raises Taken.

    If it is one of the user's secondary addresses, it swaps roles with the current primary address.
    """
    if address == user.email:
        return
    old = await context.first(emails.primary(user.id))
    new = await context.first(emails.of_address(address))
    user.email = address
    with translate_unique_violations():
        if new is not None and new.user_id == user.id:
            new.is_primary = True
            if old is not None:
                old.is_primary = False
            await context.session.flush()
        elif old is None:
            await context.add(tables.Email(user_id=user.id, email=address, is_primary=True))
        else:
            old.email = address
            old.updated_at = context.now()
            await context.session.flush()


async def lock_user(context: Context, user_id: int) -> tables.User:
    """The user, locked until this transaction ends. Raises NotFound, and Forbidden for the ghost user."""
    user = await context.first(users.for_update(user_id))
    if user is None:
        raise NotFound("User")
    require_changeable(user)
    context.rows_by_id(tables.User).prime(user.id, user)
    return user


async def require_remaining_administrator(context: Context, user: tables.User) -> None:
    """Call it before the viewer takes the administration from a user that `lock_user` returned.

    Raises Forbidden if another administrator has meanwhile taken it from the viewer: two who remove each other would leave none.
    """
    if user.admin and user.state is UserState.ACTIVE and user.id != context.viewer.id:
        await lock_administrators(context)
        if not await context.exists(users.is_administrator(context.viewer.id)):
            raise Forbidden


async def lock_administrators(context: Context) -> None:
    """Serialize the transactions that take the administration from a user."""
    await context.session.execute(users.lock_administrators(context.services.database.dialect))


def require_changeable(user: tables.User) -> None:
    """Raises Forbidden for the ghost user, with the subject User, because v3 answers 404 to all failures of a change of a user."""
    if user.username == GHOST_USERNAME:
        raise Forbidden("The ghost user replaces deleted users and cannot be changed", subject="User")


def change_state(context: Context, user: tables.User, event: UserTransition) -> None:
    """Block or unblock a user.

    Raises Conflict when nothing would change, Forbidden when the directory has blocked the user.
    """
    if event is UserTransition.BLOCK and user.id == context.viewer.id:
        raise Forbidden("You cannot block yourself")
    if user.blocked_by_directory:
        done = "modified" if event is UserTransition.BLOCK else "unblocked"
        raise Forbidden(f"LDAP blocked users cannot be {done} by the API")
    next_state = USER_TRANSITIONS.get((user.state, event))
    if next_state is None:
        raise Conflict(None, f"The user is already {user.state.value}.")
    user.state = next_state
    user.updated_at = context.now()


def change_directory_block(context: Context, user: tables.User, blocked: bool) -> None:
    """Store whether a synchronized directory blocks the user.

    The directory ends only its own block, so it does not take over that of an administrator.
    """
    if blocked and context.viewer_or_none is not None and user.id == context.viewer.id:
        raise Forbidden("You cannot block yourself")
    if blocked and user.state is UserState.ACTIVE:
        user.state, user.blocked_by_directory = UserState.BLOCKED, True
    elif not blocked and user.blocked_by_directory:
        user.state, user.blocked_by_directory = UserState.ACTIVE, False


async def get_or_create_ghost(context: Context) -> tables.User:
    """The ghost user, which replaces deleted users; created on first use.

    It is blocked and has no token, so nobody can sign in as it.
    """
    row: dict[str, Any] = {
        "username": GHOST_USERNAME,
        "name": "Ghost User",
        # Cannot be the address of a real user, because it has no top-level domain.
        "email": f"{GHOST_USERNAME}@invalid",
        "state": UserState.BLOCKED,
        "projects_limit": 0,
        "can_create_group": False,
        "created_at": context.now(),
        "updated_at": context.now(),
    }
    await context.session.execute(users.create_if_missing(context.services.database.dialect, row))
    found = await context.first(users.by_username(GHOST_USERNAME))
    assert found is not None, "the statement before creates it if it is missing"  # noqa: S101
    return found


async def build_avatar_url(context: Context, user: tables.User) -> str | None:
    """The URL of a user's avatar; None when the instance has no avatar service or the settings disable it."""
    template = context.services.avatar_url_template
    if not template or not (await settings.load_settings(context)).avatar_service_enabled:
        return None
    # Avatar services identify users by the MD5 of the lower-case address; it protects nothing.
    email_md5 = hashlib.md5(user.email.lower().encode(), usedforsecurity=False).hexdigest()
    return template.format(email_md5=email_md5, username=user.username, id=user.id)
