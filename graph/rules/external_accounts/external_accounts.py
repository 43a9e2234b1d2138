"""The account of a person at a provider.

An account is found by its identity. One without an identity of the provider is found by the address only if the configuration says so,
if both sides have verified the address, and if it does not administer the instance: otherwise a person could take over an account by
entering an address at the provider, or prepare an account for a person who signs in later. A username never finds an account.
"""

import re

import structlog

from graph.context import Context
from graph.errors import Forbidden, Invalid, Taken, Unavailable, UserError, UserErrors
from graph.identity_providers.people import AccountPolicy, ExternalPerson
from graph.rules import validation
from graph.rules.accounts import accounts, user_changes
from graph.rules.external_accounts import group_levels
from storage import tables
from storage.tables import UserState
from storage.tables.accounts import emails, identities, users

MAX_USERNAME_LENGTH = 200
MAX_SUFFIX = 99
MAX_SHOWN_UID_LENGTH = 255

log = structlog.get_logger("sign-in")


async def sign_in_person(context: Context, person: ExternalPerson, policy: AccountPolicy) -> tables.User | None:
    """The account of a person whose identity is proven, found or made, who becomes the viewer; None if it is blocked.

    Raises Forbidden if there is no account and none can be made, and Unavailable if another sign-in makes it at this moment.
    """
    user = await find_account(context, person, policy)
    if user is None:
        user = await _create_account(context, person, policy)
    else:
        user = await accounts.lock_user(context, user.id)
    await refresh_account(context, user, person, policy)
    if user.state is not UserState.ACTIVE:
        return None
    user.current_sign_in_at = context.now()
    context.sign_in(user)
    return user


async def find_account(context: Context, person: ExternalPerson, policy: AccountPolicy) -> tables.User | None:
    """The account with the identity of the person, or with the verified address if the policy allows that."""
    user = await context.first(identities.user_of(person.provider, person.uid))
    if user is not None:
        return user
    if person.former_uid is not None:
        user = await context.first(identities.user_of(person.provider, person.former_uid))
    if user is None and policy.matches_email and person.has_verified_email and person.email:
        user = await _find_by_email(context, person, person.email)
    if user is not None:
        await accounts.set_identity(context, user.id, person.provider, person.uid)
        log.info("account linked", user=user.username, provider=person.provider)
    return user


async def refresh_account(context: Context, user: tables.User, person: ExternalPerson, policy: AccountPolicy) -> None:
    """Apply what the provider says now: whether the person is active, administers the instance, and has which levels in groups."""
    if person.provider.startswith(identities.DIRECTORY_PREFIX):
        await change_directory_block(context, user, not person.is_active)
    is_admin = policy.mapping.is_admin(person.groups)
    if is_admin is not None and is_admin != user.admin:
        if not is_admin:
            await accounts.lock_administrators(context)
        if is_admin or await context.exists(users.has_other_administrator(user.id)):
            user.admin = is_admin
        else:
            log.warning("the last administrator keeps the right, although the directory revokes it", user=user.username)
    await context.session.flush()
    await group_levels.apply_levels(context, user, policy.mapping.levels(person.groups), policy.mapping.group_paths)


async def change_directory_block(context: Context, user: tables.User, blocked: bool) -> None:
    """Store whether the directory blocks the user; the last active administrator is not blocked, since nobody could undo it."""
    if blocked and user.admin and user.state is UserState.ACTIVE:
        await accounts.lock_administrators(context)
        if not await context.exists(users.has_other_administrator(user.id)):
            log.warning("the last administrator is not blocked, although the directory has no such active person", user=user.username)
            return
    accounts.change_directory_block(context, user, blocked)


async def _find_by_email(context: Context, person: ExternalPerson, address: str) -> tables.User | None:
    row = await context.first(emails.of_address(address))
    user = await context.rows_by_id(tables.User).get(row.user_id) if row is not None and row.is_primary else None
    if user is None or not user.confirmed or user.admin or await context.exists(identities.has_identity(user.id, person.provider)):
        return None
    return user


async def _create_account(context: Context, person: ExternalPerson, policy: AccountPolicy) -> tables.User:
    if not policy.creates_accounts:
        raise Forbidden("There is no account for you on this instance; ask an administrator for one")
    if not person.email:
        raise Forbidden("The directory has no email address for you, which an account needs; ask an administrator")
    try:
        address = accounts.validate_email("email", person.email)
        await accounts.require_allowed_domain(context, address)
        await accounts.require_available(context, address=address)
        columns = {
            "username": await choose_username(context, person.username),
            "name": validation.validate_title("name", person.name[: validation.MAX_NAME_LENGTH]),
            "email": address,
            "provider": person.provider,
            "extern_uid": person.uid if len(person.uid) <= MAX_SHOWN_UID_LENGTH else None,
        }
    except (Taken, UserErrors):
        raise Forbidden(
            "Another account has your email address. Ask an administrator to enter your identity in that account, or to remove the address"
        ) from None
    except UserError as error:
        raise Forbidden(f"No account can be made from what the directory says about you: {error.field} {error.message}") from None
    try:
        user = await user_changes.open_account(context, columns, confirmed=person.has_verified_email)
        await accounts.set_identity(context, user.id, person.provider, person.uid)
    except Taken as error:
        # Another sign-in has taken the username or made the account meanwhile.
        raise Unavailable from error
    log.info("account created", user=user.username, provider=person.provider)
    return user


async def choose_username(context: Context, preferred: str) -> str:
    """A free username like the preferred one: "Ada Lovelace" is Ada_Lovelace, or Ada_Lovelace1 if that is taken. Raises Invalid."""
    base = re.sub(r"[^A-Za-z0-9_.-]+", "_", preferred)[:MAX_USERNAME_LENGTH].lstrip("-.").rstrip(".") or "user"
    base = re.sub(r"(?i)\.(git|atom)$", "", base) or "user"
    if base.isdigit():
        base = f"user{base}"
    candidates = []
    for suffix in ("", *map(str, range(1, MAX_SUFFIX + 1))):
        try:
            candidates.append(validation.validate_namespace_path("username", base + suffix))
        except Invalid:
            # A reserved name is free with a number.
            continue
    taken = set(await context.all(users.taken_paths(candidates)))
    free = next((name for name in candidates if name.lower() not in taken), None)
    if free is None:
        raise Invalid("username", "is taken, and so are its variants with numbers")
    return free
