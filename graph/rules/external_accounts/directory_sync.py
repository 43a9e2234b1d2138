"""The job that compares the accounts of a directory with the directory.

It blocks accounts that the directory has removed or disabled, unblocks them when they are back, and applies groups. A person who may no
longer sign in is blocked within `sync_seconds` and the duration of a run; as for every blocked user, tokens, keys and sessions stop at
once. The last active administrator is never blocked. While the directory cannot be read completely, or seems to be empty or another one,
nothing changes.
"""

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import structlog
from sqlalchemy import select

from graph.context import Context, Services
from graph.errors import NotFound, UserError
from graph.identity_providers.people import AccountPolicy, ExternalPerson, IdentityProviderUnavailable
from graph.jobs.exclusive_job import ExclusiveJob
from graph.operations.transaction import commit_and_notify, session_for
from graph.rules.accounts import accounts
from graph.rules.external_accounts import external_accounts
from storage.database.engine import Database
from storage.tables import UserState
from storage.tables.accounts import identities, members, namespaces, users
from storage.tables.accounts.identities import ManagedAccount

if TYPE_CHECKING:
    # The library is imported only where it is configured.
    from graph.identity_providers.ldap_directory import LdapDirectory

MAX_RETRY_SECONDS = 60.0
"""Maximum of seconds until the next run after the directory could not be read."""
ACCOUNTS_PER_STATEMENT = 1_000
MIN_DOUBTFUL_BLOCKS = 5
"""If at least this many accounts would be blocked and none would stay, the configuration probably names others, as with a wrong base."""

log = structlog.get_logger("directory")


@dataclass(frozen=True, slots=True)
class DirectoryComparison:
    """An account, and its person in the directory; `person` is None if the directory has nobody of this identity."""

    account: ManagedAccount
    person: ExternalPerson | None
    is_last_administrator: bool = False

    @property
    def blocks(self) -> bool:
        """Whether somebody who can use the instance now is blocked when the comparison is applied."""
        is_gone = self.person is None or not self.person.is_active
        return is_gone and self.account.state is UserState.ACTIVE and not self.is_last_administrator


@dataclass(frozen=True, slots=True)
class AccountComparison:
    """`changed` are the accounts that differ from the directory; `matched` is how many of all accounts are in it."""

    changed: list[DirectoryComparison]
    matched: int

    @property
    def is_doubtful(self) -> bool:
        """Whether the configuration probably names other people, so that nothing is changed."""
        return not self.matched and len(self.changed) >= MIN_DOUBTFUL_BLOCKS


async def run_forever(services: Services) -> None:
    """Compare now and again and again, in one server process at a time, until canceled. Raises if the database is unavailable."""
    directory = services.directory
    assert directory is not None, "the job runs only with a directory"  # noqa: S101
    sync_seconds = directory.options.sync_seconds

    async def compare() -> float | None:
        try:
            await synchronize(services, directory)
        except IdentityProviderUnavailable as error:
            log.warning("the directory cannot be read; nothing was changed", error=str(error))
            return min(sync_seconds, MAX_RETRY_SECONDS)
        return None

    # Directories of different providers are different jobs.
    await ExclusiveJob(services, f"directory {directory.provider}"[:64], sync_seconds, compare).run_forever()


async def synchronize(services: Services, directory: "LdapDirectory") -> int:
    """Compare all accounts once. Returns how many were changed. Reads take two statements for ACCOUNTS_PER_STATEMENT accounts.

    Raises IdentityProviderUnavailable.
    """
    people = await directory.list_people()
    if not people:
        raise IdentityProviderUnavailable("the search finds nobody; check the base and the filter")
    changed, comparison = 0, await compare_accounts(services.database, directory, people)
    if comparison.is_doubtful:
        raise IdentityProviderUnavailable(
            f"none of the accounts with identities of {directory.provider} is in the directory, {len(comparison.changed)} would be blocked;"
            " check the base, the filter, the attribute of ids, and the identities of the accounts"
        )
    for each in comparison.changed:
        try:
            changed += await _apply(services, directory, each)
        except NotFound:
            # The account was deleted meanwhile.
            continue
        except UserError as error:
            # The others must be blocked all the same.
            log.error("an account cannot be changed as the directory says", user=each.account.username, error=error.message)
    return changed


async def compare_accounts(database: Database, directory: "LdapDirectory", people: list[ExternalPerson]) -> AccountComparison:
    """Compare all accounts of the directory with these people, and change nothing. Two statements for ACCOUNTS_PER_STATEMENT accounts."""
    policy, changed, matched, last_id = directory.policy, list[DirectoryComparison](), 0, 0
    # In threads and in parts, because a large directory takes longer than other requests may wait.
    by_uid = await asyncio.to_thread(_index_people, people)
    async with session_for(database, writing=False) as session:
        groups = [row[0] for row in await session.read(namespaces.groups_of_paths(sorted(policy.mapping.group_paths)))]
        paths = {group.id: group.path_key for group in groups}
        while rows := await session.read(identities.accounts_of_provider(directory.provider, last_id, ACCOUNTS_PER_STATEMENT)):
            accounts_read = [ManagedAccount(*row) for row in rows]
            first_id, last_id = accounts_read[0].user_id, accounts_read[-1].user_id
            memberships = list(await session.read(members.levels_by_group(sorted(paths), first_id, last_id))) if paths else []
            matched += sum(account.uid in by_uid for account in accounts_read)
            changed += await asyncio.to_thread(_compare, policy, by_uid, accounts_read, paths, memberships)
            if len(rows) < ACCOUNTS_PER_STATEMENT:
                break
        blocked = [position for position, each in enumerate(changed) if each.blocks and each.account.admin]
        condition = users.has_other_administrator(*(changed[position].account.user_id for position in blocked))
        if blocked and not (await session.read(select(condition)))[0][0]:
            changed[blocked[-1]] = replace(changed[blocked[-1]], is_last_administrator=True)
    return AccountComparison(changed, matched)


def _index_people(people: list[ExternalPerson]) -> dict[str, ExternalPerson]:
    """People by their normalized ids, of now and of an import."""
    by_uid = {identities.normalize_uid(person.provider, person.former_uid or person.uid): person for person in people}
    return by_uid | {identities.normalize_uid(person.provider, person.uid): person for person in people}


def _compare(
    policy: AccountPolicy,
    by_uid: Mapping[str, ExternalPerson],
    accounts_read: list[ManagedAccount],
    paths: Mapping[int, str],
    memberships: list[Any],
) -> list[DirectoryComparison]:
    """The accounts that differ from the directory. `paths` are the mapped groups that exist."""
    levels: dict[int, dict[str, int]] = {}
    for user_id, group_id, level in memberships:
        levels.setdefault(user_id, {})[paths[group_id]] = level
    existing = frozenset(paths.values())
    found = []
    for account in accounts_read:
        person = by_uid.get(account.uid)
        if _is_changed(policy, account, person, levels.get(account.user_id, {}), existing):
            found.append(DirectoryComparison(account, person))
    return found


def _is_changed(
    policy: AccountPolicy, account: ManagedAccount, person: ExternalPerson | None, levels: Mapping[str, int], mapped_paths: Collection[str]
) -> bool:
    if person is None:
        # An account that an administrator has blocked stays that, so that the directory does not unblock it later.
        return account.state is UserState.ACTIVE
    expected_levels = {path: level for path, level in policy.mapping.levels(person.groups).items() if path in mapped_paths}
    is_admin = policy.mapping.is_admin(person.groups)
    return (
        account.uid != identities.normalize_uid(person.provider, person.uid)
        or (account.blocked_by_directory if person.is_active else account.state is UserState.ACTIVE)
        or (is_admin is not None and is_admin != account.admin)
        or expected_levels != levels
    )


async def _apply(services: Services, directory: "LdapDirectory", comparison: DirectoryComparison) -> bool:
    """Returns whether the account is the person's. Raises NotFound when it was deleted."""
    person, is_owner = comparison.person, True
    async with session_for(services.database, writing=True) as session:
        context = Context(services, session, None, "directory")
        user = await accounts.lock_user(context, comparison.account.user_id)
        if person is None:
            await external_accounts.change_directory_block(context, user, True)
        else:
            owner = await context.first(identities.user_of(person.provider, person.uid))
            is_owner = owner is None or owner.id == user.id
            if is_owner:
                # An account that was imported with a DN gets the id that survives renaming.
                await accounts.set_identity(context, user.id, person.provider, person.uid)
            elif owner is not None:
                log.warning("two accounts have identities of one person in the directory", user=user.username, other=owner.username)
            await external_accounts.refresh_account(context, user, person, directory.policy)
        is_blocked = user.blocked_by_directory
        if is_owner or is_blocked != comparison.account.blocked_by_directory:
            user.updated_at = context.now()
        await session.flush()
        await commit_and_notify(context)
    if comparison.account.blocked_by_directory != is_blocked:
        event = "account blocked by the directory" if is_blocked else "account unblocked by the directory"
        log.info(event, user=comparison.account.username)
    return is_owner
