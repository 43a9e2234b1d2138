"""An LDAP directory: who may sign in with which password, and who is in which group.

All requests run in a few threads, each within the time-out of the configuration. Values of callers are escaped before they are part of a
filter (RFC 4515).
"""

import asyncio
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import structlog

from graph.identity_providers import ldap_connections
from graph.identity_providers.ldap_connections import LdapConnections, LdapEntry, LdapServerOptions, escape_filter_chars
from graph.identity_providers.people import AccountPolicy, ExternalPerson, IdentityProviderUnavailable
from storage.tables.accounts.identities import normalize_uid

MAX_CONCURRENT_REQUESTS = 8
MAX_WAIT_SECONDS = 8.0
"""Maximum duration of a request of a sign-in, including the time that it waits for a thread."""
NESTED_MEMBER_RULE = "1.2.840.113556.1.4.1941"
"""Active Directory's matching rule for members of groups in groups."""
ACCOUNT_DISABLED = 2
"""The bit of Active Directory's userAccountControl."""
MEMBER_ATTRIBUTES = ("member", "uniqueMember", "memberUid")

T = TypeVar("T")
log = structlog.get_logger("directory")


@dataclass(frozen=True)
class LdapOptions:
    """`login_attributes` are those that a login is compared with; the first one is the username. `id_attribute` identifies people even
    if they are renamed; without it the DN does. A person is in the directory if `user_filter` finds the entry below `base`."""

    server: LdapServerOptions
    base: str
    provider: str = "ldapmain"
    user_filter: str = "(objectClass=person)"
    login_attributes: tuple[str, ...] = ("uid",)
    id_attribute: str = ""
    name_attribute: str = "cn"
    email_attribute: str = "mail"
    nested_groups: bool = False
    sync_seconds: float = 600.0
    policy: AccountPolicy = field(default_factory=AccountPolicy)


@dataclass(frozen=True, slots=True)
class LdapLogin:
    """The entry of a login. `person.groups` are read after the password was verified."""

    dn: str
    person: ExternalPerson


class LdapDirectory:
    """The directory of the configuration. Its methods raise IdentityProviderUnavailable."""

    def __init__(self, options: LdapOptions) -> None:
        self.options = options
        self.connections = LdapConnections(options.server)
        self._threads = ThreadPoolExecutor(MAX_CONCURRENT_REQUESTS, thread_name_prefix="ldap")
        own = (*options.login_attributes, options.name_attribute, options.email_attribute, options.id_attribute)
        self._attributes = (*(name for name in dict.fromkeys(own) if name), "userAccountControl", "nsAccountLock")

    @property
    def provider(self) -> str:
        return self.options.provider

    @property
    def policy(self) -> AccountPolicy:
        return self.options.policy

    async def find(self, login: str) -> LdapLogin | None:
        """The entry that has this login, without groups. None if there is none, or several."""
        if not ldap_connections.is_utf8(login):
            return None
        return await self._run(lambda connection: self._find(connection, login))

    async def verify(self, found: LdapLogin | None, password: str) -> bool:
        """Whether this is the person's password. For nobody it takes as long, and is false."""
        dn = found.dn if found is not None else f"cn=nobody-{uuid.uuid4().hex},{self.options.base}"
        is_correct = await self._in_thread(lambda: self.connections.verify_password(dn, password))
        return is_correct and found is not None

    async def groups_of(self, found: LdapLogin) -> frozenset[str]:
        """Those of the mapped groups that the person is a member of."""

        def work(connection: Any) -> frozenset[str]:
            member_filter = self._member_filter(found)
            groups = self.policy.mapping.external_groups
            return frozenset(group for group in groups if ldap_connections.read(connection, group, member_filter, ("cn",)) is not None)

        return await self._run(work)

    async def list_people(self) -> list[ExternalPerson]:
        """Everybody in the directory, with their groups. The number of requests depends on pages and mapped groups only."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, lambda: self.connections.run(self._list_people))

    async def try_server(self, url: str) -> str | None:
        """Why this server cannot be used; None if the account that searches can bind there."""
        connections = LdapConnections(replace(self.options.server, urls=(url,)))
        try:
            await self._in_thread(lambda: connections.run(lambda connection: None))
        except IdentityProviderUnavailable as error:
            return str(error)
        finally:
            await self._in_thread(connections.close)
        return None

    async def has_entry(self, dn: str) -> bool:
        return await self._run(lambda connection: ldap_connections.read(connection, dn, "(objectClass=*)", ("cn",)) is not None)

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
        self.connections.close()

    async def _run(self, work: Callable[[Any], T]) -> T:
        return await self._in_thread(lambda: self.connections.run(work))

    async def _in_thread(self, work: Callable[[], T]) -> T:
        """Raises IdentityProviderUnavailable also if other requests occupy the threads for too long."""
        try:
            async with asyncio.timeout(MAX_WAIT_SECONDS):
                return await asyncio.get_running_loop().run_in_executor(self._threads, work)
        except TimeoutError:
            raise IdentityProviderUnavailable(f"the directory does not respond within {MAX_WAIT_SECONDS:g} s") from None

    def _find(self, connection: Any, login: str) -> LdapLogin | None:
        value = escape_filter_chars(login.strip())
        login_filters = "".join(f"({name}={value})" for name in self.options.login_attributes)
        search_filter = f"(&{self.options.user_filter}(|{login_filters}))"
        entries = ldap_connections.search(connection, self.options.base, search_filter, self._attributes, max_entries=2)
        if len(entries) > 1:
            log.warning("login is ambiguous in the directory", entries=[entry.dn for entry in entries])
        return LdapLogin(entries[0].dn, self._person(entries[0])) if len(entries) == 1 else None

    def _person(self, entry: LdapEntry, groups: frozenset[str] = frozenset()) -> ExternalPerson:
        options = self.options
        username = entry.first(options.login_attributes[0])
        email = entry.first(options.email_attribute).strip().lower() or None
        return ExternalPerson(
            provider=options.provider,
            uid=_read_id(entry, options.id_attribute) or entry.dn,
            former_uid=entry.dn,
            username=username,
            name=entry.first(options.name_attribute) or username,
            email=email,
            has_verified_email=email is not None,
            groups=groups,
            is_active=not _is_disabled(entry),
        )

    def _member_filter(self, found: LdapLogin) -> str:
        dn, username = escape_filter_chars(found.dn), escape_filter_chars(found.person.username)
        if self.options.nested_groups:
            return f"(member:{NESTED_MEMBER_RULE}:={dn})"
        return f"(|(member={dn})(uniqueMember={dn})(memberUid={username}))"

    def _list_people(self, connection: Any) -> list[ExternalPerson]:
        options = self.options
        members = {group: self._list_members(connection, group) for group in self.policy.mapping.external_groups}
        entries = ldap_connections.search(connection, options.base, options.user_filter, self._attributes)
        people = []
        for entry in entries:
            dn, username = _key(entry.dn), entry.first(options.login_attributes[0])
            groups = frozenset(group for group, (dns, usernames) in members.items() if dn in dns or username in usernames)
            people.append(self._person(entry, groups))
        return people

    def _list_members(self, connection: Any, group: str) -> tuple[set[str], set[str]]:
        """The DNs, normalized, and the usernames of a group's members."""
        if self.options.nested_groups:
            member_filter = f"(&{self.options.user_filter}(memberOf:{NESTED_MEMBER_RULE}:={escape_filter_chars(group)}))"
            return {_key(entry.dn) for entry in ldap_connections.search(connection, self.options.base, member_filter, ("cn",))}, set()
        entry = ldap_connections.read(connection, group, "(objectClass=*)", MEMBER_ATTRIBUTES)
        if entry is None:
            log.warning("a mapped group is not in the directory", group=group)
            return set(), set()
        return {_key(dn) for name in ("member", "uniqueMember") for dn in entry.all(name)}, set(entry.all("memberUid"))


def _key(dn: str) -> str:
    return normalize_uid("ldap", dn)


def _read_id(entry: LdapEntry, attribute: str) -> str:
    values = entry.attributes.get(attribute.lower(), []) if attribute else []
    if values and attribute.lower() == "objectguid" and len(values[0]) == 16:
        return str(uuid.UUID(bytes_le=values[0]))
    return entry.first(attribute) if attribute else ""


def _is_disabled(entry: LdapEntry) -> bool:
    flags = entry.first("userAccountControl")
    return bool(flags.isdigit() and int(flags) & ACCOUNT_DISABLED) or entry.first("nsAccountLock").lower() == "true"
