"""The job that compares the accounts of a directory with the directory.

It blocks accounts that the directory has removed or disabled, unblocks them when they are back, and applies groups. A person who may no
longer sign in is blocked within `sync_seconds` and the duration of a run; as for every blocked user, tokens, keys and sessions stop at
once. While the directory cannot be read completely, or seems to be empty, nothing changes.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog

from graph.context import Context, Services
from graph.errors import NotFound
from graph.identity_providers.people import ExternalPerson, IdentityProviderUnavailable
from graph.operations.transaction import commit_and_notify, session_for
from graph.rules.accounts import accounts
from graph.rules.external_accounts import external_accounts
from storage import tables
from storage.tables.accounts import identities, members, namespaces

if TYPE_CHECKING:
    # The library is imported only where it is configured.
    from graph.identity_providers.ldap_directory import LdapDirectory

MAX_RETRY_SECONDS = 60.0
"""Maximum of seconds until the next run after the directory could not be read."""

log = structlog.get_logger("directory")


@dataclass(frozen=True, slots=True)
class DirectoryComparison:
    """An account, its identity, and its person in the directory; `person` is None if the directory has nobody of this identity."""

    user: tables.User
    uid: str
    person: ExternalPerson | None


async def run_forever(services: Services) -> None:
    """Compare now and again and again, until canceled. Raises if the database is unavailable."""
    directory = services.directory
    assert directory is not None, "the job runs only with a directory"  # noqa: S101
    while True:
        seconds = directory.options.sync_seconds
        try:
            await synchronize(services, directory)
        except IdentityProviderUnavailable as error:
            log.warning("the directory cannot be read; nothing was changed", error=str(error))
            seconds = min(seconds, MAX_RETRY_SECONDS)
        await asyncio.sleep(seconds)


async def synchronize(services: Services, directory: "LdapDirectory") -> int:
    """Compare all accounts once. Returns how many were changed. Reads take the same number of statements for any number of accounts.

    Raises IdentityProviderUnavailable.
    """
    people = await directory.list_people()
    if not people:
        raise IdentityProviderUnavailable("the search finds nobody; check the base and the filter")
    changed = 0
    for each in await _find_changed(services, directory, people):
        try:
            await _apply(services, directory, each)
        except NotFound:
            # The account was deleted meanwhile.
            continue
        changed += 1
    return changed


async def _find_changed(services: Services, directory: "LdapDirectory", people: list[ExternalPerson]) -> list[DirectoryComparison]:
    policy, provider = directory.policy, directory.provider
    by_uid = {identities.normalize_uid(provider, person.former_uid or person.uid): person for person in people}
    by_uid |= {identities.normalize_uid(provider, person.uid): person for person in people}
    async with session_for(services.database, writing=False) as session:
        context = Context(services, session, None, "directory")
        rows = await context.tuples(identities.users_of_provider(provider))
        groups = await context.all(namespaces.groups_of_paths(sorted(policy.mapping.group_paths)))
        levels: dict[int, dict[str, int]] = {}
        paths = {group.id: group.path_key for group in groups}
        for user_id, group_id, level in await context.tuples(members.levels_by_group(sorted(paths))):
            levels.setdefault(user_id, {})[paths[group_id]] = level
    found = []
    for uid, user in rows:
        person = by_uid.get(uid)
        comparison = DirectoryComparison(user, uid, person)
        if _is_changed(directory, comparison, levels.get(user.id, {}), set(paths.values())):
            found.append(comparison)
    return found


def _is_changed(directory: "LdapDirectory", comparison: DirectoryComparison, levels: Mapping[str, int], mapped_paths: set[str]) -> bool:
    user, person = comparison.user, comparison.person
    if person is None:
        return not user.blocked_by_directory
    wanted = {path: level for path, level in directory.policy.mapping.levels(person.groups).items() if path in mapped_paths}
    is_renamed = comparison.uid != identities.normalize_uid(person.provider, person.uid)
    return is_renamed or wanted != levels or external_accounts.is_changed(user, person, directory.policy)


async def _apply(services: Services, directory: "LdapDirectory", comparison: DirectoryComparison) -> None:
    """Raises NotFound when the account was deleted."""
    person = comparison.person
    async with session_for(services.database, writing=True) as session:
        context = Context(services, session, None, "directory")
        user = await accounts.lock_user(context, comparison.user.id)
        if person is None:
            accounts.change_directory_block(context, user, True)
        else:
            # An account that was imported with a DN gets the id that survives renaming.
            await accounts.set_identity(context, user.id, person.provider, person.uid)
            await external_accounts.refresh_account(context, user, person, directory.policy)
        was_blocked, is_blocked = comparison.user.blocked_by_directory, user.blocked_by_directory
        user.updated_at = context.now()
        await session.flush()
        await commit_and_notify(context)
    if was_blocked != is_blocked:
        log.info("account blocked by the directory" if is_blocked else "account unblocked by the directory", user=comparison.user.username)
