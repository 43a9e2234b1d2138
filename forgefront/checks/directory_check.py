"""Tries the directory and the OpenID provider of the configuration step by step, for `forgefront directory check`.

It also compares the accounts of the instance with the directory, as the job of the service does, and changes nothing.
"""

import asyncio
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from forgefront.checks.check_report import CheckReport
from forgefront.config import Config
from graph.identity_providers.people import ExternalPerson, GroupMapping, IdentityProviderUnavailable
from graph.rules.external_accounts import directory_sync
from storage import migrations
from storage.database.engine import Database
from storage.database.errors import describe_error
from storage.tables.accounts.identities import normalize_uid

if TYPE_CHECKING:
    from graph.identity_providers.ldap_directory import LdapDirectory
    from graph.identity_providers.openid_provider import OpenIdProvider

DIRECTORY, PROVIDER, ACCOUNTS = "directory", "OpenID provider", "accounts"


@dataclass(frozen=True, slots=True)
class AccountBlock:
    """An account that the next comparison would block. `uid` is the identity in the form that is compared."""

    username: str
    provider: str
    uid: str
    reason: str


@dataclass
class SignInReport(CheckReport):
    """`blocks` are the accounts that the next comparison with the directory would block, ordered by id."""

    blocks: list[AccountBlock] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        return {**super().as_json(), "would_block": {"count": len(self.blocks), "accounts": [asdict(each) for each in self.blocks]}}


async def check_sign_in(config: Config, login: str | None) -> SignInReport:
    """What is wrong with the directory and the provider. Raises ValueError for a certificate file that is missing."""
    report = SignInReport()
    directory, provider = config.open_directory(), config.open_openid_provider()
    if directory is not None:
        try:
            await _check_directory(config, directory, login, report)
        finally:
            directory.close()
    elif login is not None:
        report.add(DIRECTORY, login, "there is no directory to look the login up in", "set FORGEFRONT_LDAP_URL and FORGEFRONT_LDAP_BASE")
    if provider is not None:
        try:
            await _check_provider(config, provider, report)
        finally:
            await provider.close()
    if directory is None and provider is None:
        report.notes.append("neither a directory nor a provider is configured: FORGEFRONT_LDAP_URL and FORGEFRONT_OIDC_ISSUER are not set")
    return report


async def _check_directory(config: Config, directory: "LdapDirectory", login: str | None, report: SignInReport) -> None:
    for url in config.ldap_url:
        if urlsplit(url).scheme == "ldap" and not config.ldap_start_tls:
            report.notes.append(
                f"{url} is not encrypted: passwords cross the network in clear text; use ldaps:// or FORGEFRONT_LDAP_START_TLS"
            )
        if problem := await directory.try_server(url):
            report.add(DIRECTORY, url, problem, _directory_remedy(problem))
            continue
        report.checked.append(url)
    if not config.ldap_verify_certificate:
        report.notes.append("certificates of the directory are not checked; set FORGEFRONT_LDAP_CA_FILE instead")
    if len(report.problems) == len(config.ldap_url):
        return
    try:
        people = await directory.list_people()
    except IdentityProviderUnavailable as error:
        remedy = "check FORGEFRONT_LDAP_BASE and FORGEFRONT_LDAP_USER_FILTER, and whether the account may read all people"
        report.add(DIRECTORY, config.ldap_base, f"people cannot be listed: {error}", remedy)
        return
    report.checked.append(f"{len(people)} people below {config.ldap_base}")
    _check_people(config, people, report)
    if people:
        await _check_accounts(config, directory, people, report)
    await _check_groups(directory, people, report)
    if login is not None:
        await _check_login(directory, login, report)


def _check_people(config: Config, people: list[ExternalPerson], report: SignInReport) -> None:
    if not people:
        remedy = "check FORGEFRONT_LDAP_BASE and FORGEFRONT_LDAP_USER_FILTER, and whether the account may read there"
        report.add(DIRECTORY, config.ldap_base, f"the filter {config.ldap_user_filter} finds nobody", remedy)
        return
    checks = (
        ("username", "FORGEFRONT_LDAP_LOGIN_ATTRIBUTES", [person for person in people if not person.username]),
        ("email address", "FORGEFRONT_LDAP_EMAIL_ATTRIBUTE", [person for person in people if not person.email]),
    )
    for what, name, lacking in checks:
        if len(lacking) == len(people):
            report.add(DIRECTORY, config.ldap_base, f"nobody has an attribute for the {what}", f"check {name}")
        elif lacking:
            report.notes.append(f"{len(lacking)} people have no {what} and get no account, such as {lacking[0].former_uid}")
    uids = {normalize_uid(person.provider, person.uid) for person in people}
    if len(uids) < len(people):
        problem = f"{len(people) - len(uids)} people have the id of somebody else"
        report.add(DIRECTORY, config.ldap_base, problem, "choose another FORGEFRONT_LDAP_ID_ATTRIBUTE, such as entryUUID or objectGUID")
    elif config.ldap_id_attribute and (missing := [person for person in people if person.uid == person.former_uid]):
        report.notes.append(f"{len(missing)} people have no {config.ldap_id_attribute} and are identified by their DN")
    if inactive := sum(not person.is_active for person in people):
        report.notes.append(f"{inactive} people are disabled in the directory; their accounts are blocked")


async def _check_accounts(config: Config, directory: "LdapDirectory", people: list[ExternalPerson], report: SignInReport) -> None:
    """The accounts that the next comparison would block. An instance without a database, or with an older one, has none to compare yet."""
    try:
        revision = await asyncio.to_thread(migrations.current_revision, config.database_url)
        if revision != await asyncio.to_thread(migrations.head_revision):
            report.notes.append("accounts are not compared with the directory: the database is empty, or of another version")
            return
        database = Database(config.database_url)
        try:
            comparison = await directory_sync.compare_accounts(database, directory, people)
        finally:
            await database.close()
    except Exception as error:
        remedy = "start the database, and check FORGEFRONT_DATABASE_URL"
        report.add(ACCOUNTS, "database", f"it cannot be read: {describe_error(error)}", remedy)
        return
    for each in comparison.changed:
        if each.blocks:
            reason = "the directory has nobody with this identity" if each.person is None else "the directory has disabled the person"
            report.blocks.append(AccountBlock(each.account.username, directory.provider, each.account.uid, reason))
    report.checked.append(f"{comparison.matched} accounts with a person in the directory")
    if comparison.is_doubtful:
        problem = (
            f"none of the {len(comparison.changed)} accounts with identities of it is in the directory, so that comparisons change nothing"
        )
        remedy = "check FORGEFRONT_LDAP_BASE, FORGEFRONT_LDAP_USER_FILTER, FORGEFRONT_LDAP_ID_ATTRIBUTE, and the identities of the accounts"
        report.add(ACCOUNTS, directory.provider, problem, remedy)
    elif report.blocks:
        remedy = (
            "correct FORGEFRONT_LDAP_BASE or FORGEFRONT_LDAP_USER_FILTER if the directory has these people,"
            " or an identity with `forgefront admin user change USERNAME --extern-uid`; nothing is to be done for those who have left"
        )
        report.add(
            ACCOUNTS, directory.provider, f"the next comparison with the directory would block {len(report.blocks)} accounts", remedy
        )


async def _check_groups(directory: "LdapDirectory", people: list[ExternalPerson], report: SignInReport) -> None:
    mapping = directory.policy.mapping
    for group in mapping.external_groups:
        if not await directory.has_entry(group):
            report.add(DIRECTORY, group, "there is no such group", "check its DN in FORGEFRONT_LDAP_GROUPS or FORGEFRONT_LDAP_ADMIN_GROUP")
            continue
        count = sum(group in person.groups for person in people)
        report.checked.append(f"group {group} with {count} people")
        if not count:
            report.notes.append(f"none of these people is in {group}")


async def _check_login(directory: "LdapDirectory", login: str, report: SignInReport) -> None:
    found = await directory.find(login)
    if found is None:
        attributes = ", ".join(directory.options.login_attributes)
        remedy = f"look for it in {attributes}, and check whether several people have it or the filter excludes the person"
        report.add(DIRECTORY, login, "nobody can sign in with this login", remedy)
        return
    person, groups = found.person, await directory.groups_of(found)
    report.checked.append(f"login {login}")
    report.notes.append(
        f"{login} is {found.dn}: username {person.username}, name {person.name}, email address {person.email}, id {person.uid}"
    )
    report.notes.append(f"{login} gets {_describe_levels(directory.policy.mapping, groups)}")
    if not person.is_active:
        report.notes.append(f"{login} is disabled in the directory and cannot sign in")


def _describe_levels(mapping: GroupMapping, groups: frozenset[str]) -> str:
    levels = [f"{level.name.lower()} in {path}" for path, level in sorted(mapping.levels(groups).items())]
    if mapping.is_admin(groups):
        levels.append("administrator of the instance")
    return ", ".join(levels) or "no levels from groups"


def _directory_remedy(problem: str) -> str:
    lowered = problem.lower()
    if "certificate" in lowered:
        return "use the name that is in the certificate, and set FORGEFRONT_LDAP_CA_FILE to the authority that issued it"
    if "refuses the bind" in lowered:
        return "check FORGEFRONT_LDAP_BIND_DN and FORGEFRONT_LDAP_BIND_PASSWORD"
    return "check FORGEFRONT_LDAP_URL, and whether this host may connect there"


async def _check_provider(config: Config, provider: "OpenIdProvider", report: SignInReport) -> None:
    redirect = f"{config.base_url}/-/sign_in"
    try:
        metadata = await provider.metadata()
        report.checked.append(f"metadata of {config.oidc_issuer}")
        await provider.keys()
        report.checked.append("keys of the provider")
    except IdentityProviderUnavailable as error:
        remedy = "FORGEFRONT_OIDC_ISSUER must be exactly the issuer in the provider's metadata, and this host must be able to connect there"
        report.add(PROVIDER, config.oidc_issuer, str(error), remedy)
        return
    if "S256" not in metadata.get("code_challenge_methods_supported", ["S256"]):
        report.notes.append("the provider does not announce PKCE (S256); it is used all the same")
    claims = set(metadata.get("claims_supported") or ())
    claim_names = [config.oidc_username_claim, *([config.oidc_groups_claim] if provider.policy.mapping.external_groups else [])]
    if claims and (absent := [name for name in claim_names if name not in claims]):
        report.notes.append(f"the provider does not announce the claims {', '.join(absent)}; add a mapper or a scope there")
    report.notes.append(f"the provider must know the redirect URI {redirect}, which is made of FORGEFRONT_EXTERNAL_URL")
    report.notes.append("the client id and secret are tried only by a sign-in")
