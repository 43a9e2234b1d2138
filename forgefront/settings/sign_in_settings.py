"""The part of the configuration that says how people sign in: an LDAP directory, an OpenID provider, and what their groups give."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, field_validator, model_validator
from pydantic_settings import BaseSettings, NoDecode

if TYPE_CHECKING:
    # The libraries of both are imported only where they are configured, and the tables only where levels are.
    from graph.identity_providers.ldap_directory import LdapDirectory
    from graph.identity_providers.openid_provider import OpenIdProvider
    from graph.identity_providers.people import AccountPolicy

DIRECTORY_PREFIX = "ldap"
"""As in `storage/tables/accounts/identities.py`, which is not imported here, since that would load all tables."""
GRANT_PATTERN = re.compile(r"(?P<path>[A-Za-z0-9_][A-Za-z0-9_.-]*):(?P<level>[a-z]+)=(?P<group>.+)")
GRANT_EXAMPLE = "GROUP:LEVEL=EXTERNAL GROUP, such as tools:developer=cn=devs,ou=groups,dc=example,dc=com, separated by semicolons"
LOCAL_HOSTS = ("localhost", "127.0.0.1", "::1")
ATTRIBUTE_PATTERN = re.compile(r"[A-Za-z][A-Za-z0-9-]*")

GroupGrants = Annotated[tuple[str, ...], NoDecode]


class SignInSettings(BaseSettings):
    """The directory and the OpenID provider. `Config` inherits these fields."""

    ldap_url: Annotated[tuple[str, ...], NoDecode] = Field(
        default=(),
        description="ldaps://HOST or ldap://HOST of the directory, separated by commas if it has several servers, which are tried in their"
        " order. Without it, there is no directory.",
    )
    ldap_start_tls: bool = Field(default=False, description="Whether connections to ldap://HOST are encrypted by StartTLS.")
    ldap_verify_certificate: bool = Field(
        default=True,
        description="Whether the certificate of the directory must be valid for its host. Otherwise passwords can be stolen.",
    )
    ldap_ca_file: Path | None = Field(
        default=None, description="File with the certificate authorities of the directory; by default those of the system."
    )
    ldap_bind_dn: str = Field(default="", description="DN of the account that searches the directory; by default searches are anonymous.")
    ldap_bind_password: SecretStr | None = Field(default=None, description="Password of that account.")
    ldap_base: str = Field(default="", description="DN below which people are, such as ou=people,dc=example,dc=com.")
    ldap_user_filter: str = Field(
        default="(objectClass=person)",
        description="Filter of the people who may sign in. An account whose person it does not find is blocked.",
    )
    ldap_login_attributes: Annotated[tuple[str, ...], NoDecode] = Field(
        default=("uid",),
        description="Attributes that a login is compared with, separated by commas. The first one is the username of new accounts.",
    )
    ldap_id_attribute: str = Field(
        default="",
        description="Attribute that identifies a person even if the entry is renamed, such as entryUUID or objectGUID; by default the"
        " DN does.",
    )
    ldap_name_attribute: str = Field(default="cn", min_length=1, description="Attribute with the full name.")
    ldap_email_attribute: str = Field(default="mail", min_length=1, description="Attribute with the email address.")
    ldap_provider: str = Field(
        default="ldapmain", description="Name of the directory in identities. It begins with ldap, as on the server that was imported."
    )
    ldap_create_accounts: bool = Field(default=True, description="Whether people of the directory get an account at their first sign-in.")
    ldap_match_email: bool = Field(
        default=False,
        description="Whether an account with the confirmed email address of a person becomes the person's at the first sign-in. Set it only"
        " if people cannot change their address in the directory.",
    )
    ldap_groups: GroupGrants = Field(default=(), description=f"Levels in groups: {GRANT_EXAMPLE}.")
    ldap_admin_group: str = Field(
        default="", description="DN of the group of administrators. Without it, the directory does not decide who is one."
    )
    ldap_nested_groups: bool = Field(default=False, description="Whether groups in groups count; only with Active Directory.")
    ldap_sync_minutes: int = Field(
        default=10, ge=1, le=1440, description="Minutes between two comparisons of all accounts with the directory."
    )
    ldap_timeout: int = Field(default=3, ge=1, le=4, description="Seconds that a connection or a request to the directory may take.")

    oidc_issuer: str = Field(
        default="", description="URL of the OpenID provider, such as https://id.example.com/realms/main. Without it, there is none."
    )
    oidc_client_id: str = Field(default="", description="Client id that the provider has given to this instance.")
    oidc_client_secret: SecretStr | None = Field(default=None, description="Client secret; by default the client is a public one.")
    oidc_label: str = Field(default="OpenID Connect", min_length=1, max_length=40, description="Name of the provider on the sign-in page.")
    oidc_provider: str = Field(
        default="openid_connect", min_length=1, description="Name of the provider in identities, as on the server that was imported."
    )
    oidc_scopes: str = Field(default="openid profile email", description="Scopes that are requested, separated by spaces.")
    oidc_username_claim: str = Field(default="preferred_username", min_length=1, description="Claim with the username of new accounts.")
    oidc_groups_claim: str = Field(default="groups", min_length=1, description="Claim with the names of the person's groups.")
    oidc_create_accounts: bool = Field(default=True, description="Whether people get an account at their first sign-in.")
    oidc_match_email: bool = Field(
        default=False,
        description="Whether an account with the confirmed email address of a person becomes the person's at the first sign-in, if the"
        " provider has verified the address too.",
    )
    oidc_groups: GroupGrants = Field(default=(), description="Levels in groups, as in ldap_groups, with names of the groups claim.")
    oidc_admin_group: str = Field(
        default="", description="Name of the group of administrators. Without it, the provider does not decide who is one."
    )

    @field_validator("ldap_url", mode="before")
    @classmethod
    def _parse_ldap_url(cls, value: Any) -> Any:
        urls = _split(value, ",")
        for url in urls:
            parts = urlsplit(url)
            if parts.scheme not in ("ldap", "ldaps") or not parts.hostname or parts.path not in ("", "/") or parts.username is not None:
                raise ValueError("must be ldaps://HOST or ldap://HOST, with :PORT if it is not the usual one, separated by commas")
        return urls

    @field_validator("ldap_login_attributes", mode="before")
    @classmethod
    def _parse_login_attributes(cls, value: Any) -> Any:
        names = _split(value, ",")
        if not names or not all(ATTRIBUTE_PATTERN.fullmatch(name) for name in names):
            raise ValueError("must be names of attributes such as uid,mail")
        return names

    @field_validator("ldap_user_filter")
    @classmethod
    def _validate_user_filter(cls, value: str) -> str:
        if not value.startswith("(") or not value.endswith(")") or value.count("(") != value.count(")"):
            raise ValueError("must be a filter in parentheses, such as (objectClass=person)")
        return value

    @field_validator("ldap_provider")
    @classmethod
    def _validate_ldap_provider(cls, name: str) -> str:
        if not name.startswith(DIRECTORY_PREFIX):
            raise ValueError("must begin with ldap, such as ldapmain")
        return name

    @field_validator("oidc_provider")
    @classmethod
    def _validate_oidc_provider(cls, name: str) -> str:
        if name.startswith(DIRECTORY_PREFIX):
            raise ValueError("must not begin with ldap, which is for directories")
        return name

    @field_validator("oidc_issuer")
    @classmethod
    def _validate_issuer(cls, url: str) -> str:
        if not url:
            return url
        parts = urlsplit(url)
        if not parts.hostname or parts.query or parts.fragment or parts.username is not None:
            raise ValueError("must be a URL such as https://id.example.com/realms/main")
        if parts.scheme != "https" and not (parts.scheme == "http" and parts.hostname in LOCAL_HOSTS):
            raise ValueError("must begin with https://, because a changed response could sign in anybody")
        return url

    @field_validator("oidc_scopes")
    @classmethod
    def _validate_scopes(cls, value: str) -> str:
        if "openid" not in value.split():
            raise ValueError("must contain openid")
        return value

    @field_validator("ldap_groups", "oidc_groups", mode="before")
    @classmethod
    def _parse_grants(cls, value: Any) -> Any:
        grants = _split(value, ";")
        for grant in grants:
            from storage.tables import AccessLevel

            match = GRANT_PATTERN.fullmatch(grant)
            if match is None or match["level"].upper() not in AccessLevel.__members__:
                levels = ", ".join(level.name.lower() for level in AccessLevel)
                raise ValueError(f"must be {GRANT_EXAMPLE}; levels are {levels}")
        return grants

    @model_validator(mode="after")
    def _require_parts(self) -> Self:
        if self.ldap_url and not self.ldap_base:
            raise ValueError("ldap_base: a directory needs the DN below which people are; set FORGEFRONT_LDAP_BASE")
        if self.ldap_start_tls and any(urlsplit(url).scheme == "ldaps" for url in self.ldap_url):
            raise ValueError("ldap_start_tls: ldaps:// is encrypted already; use ldap:// with StartTLS, or ldaps:// without it")
        if self.oidc_issuer and not self.oidc_client_id:
            raise ValueError("oidc_client_id: the provider needs a client id; set FORGEFRONT_OIDC_CLIENT_ID")
        return self

    def open_directory(self) -> "LdapDirectory | None":
        """The directory of the configuration. It connects when it is asked. Raises ValueError for a certificate file that is missing."""
        if not self.ldap_url:
            return None
        from graph.identity_providers.ldap_connections import LdapServerOptions
        from graph.identity_providers.ldap_directory import LdapDirectory, LdapOptions

        if self.ldap_ca_file is not None and not self.ldap_ca_file.is_file():
            raise ValueError(f"there is no file {self.ldap_ca_file}")
        server = LdapServerOptions(
            urls=self.ldap_url,
            start_tls=self.ldap_start_tls,
            verify=self.ldap_verify_certificate,
            ca_file=self.ldap_ca_file,
            bind_dn=self.ldap_bind_dn,
            bind_password=self.ldap_bind_password.get_secret_value() if self.ldap_bind_password else "",
            timeout=self.ldap_timeout,
        )
        return LdapDirectory(
            LdapOptions(
                server=server,
                base=self.ldap_base,
                provider=self.ldap_provider,
                user_filter=self.ldap_user_filter,
                login_attributes=self.ldap_login_attributes,
                id_attribute=self.ldap_id_attribute,
                name_attribute=self.ldap_name_attribute,
                email_attribute=self.ldap_email_attribute,
                nested_groups=self.ldap_nested_groups,
                sync_seconds=self.ldap_sync_minutes * 60.0,
                policy=_make_policy(self.ldap_groups, self.ldap_admin_group, self.ldap_create_accounts, self.ldap_match_email),
            )
        )

    def open_openid_provider(self) -> "OpenIdProvider | None":
        """The OpenID provider of the configuration. It is asked for its metadata when they are needed."""
        if not self.oidc_issuer:
            return None
        from graph.identity_providers.openid_provider import OpenIdOptions, OpenIdProvider

        return OpenIdProvider(
            OpenIdOptions(
                issuer=self.oidc_issuer,
                client_id=self.oidc_client_id,
                client_secret=self.oidc_client_secret.get_secret_value() if self.oidc_client_secret else "",
                provider=self.oidc_provider,
                label=self.oidc_label,
                scopes=tuple(self.oidc_scopes.split()),
                username_claim=self.oidc_username_claim,
                groups_claim=self.oidc_groups_claim,
                policy=_make_policy(self.oidc_groups, self.oidc_admin_group, self.oidc_create_accounts, self.oidc_match_email),
            )
        )


def _split(value: Any, separator: str) -> tuple[str, ...]:
    parts = value.split(separator) if isinstance(value, str) else value
    if not isinstance(parts, list | tuple) or not all(isinstance(part, str) for part in parts):
        raise ValueError("must be a list of strings")
    return tuple(part.strip() for part in parts if part.strip())


def _make_policy(grants: tuple[str, ...], admin_group: str, creates_accounts: bool, matches_email: bool) -> "AccountPolicy":
    from graph.identity_providers.people import AccountPolicy, GroupGrant, GroupMapping
    from storage.tables import AccessLevel

    matches = [match for grant in grants if (match := GRANT_PATTERN.fullmatch(grant)) is not None]
    found = (GroupGrant(match["path"].lower(), AccessLevel[match["level"].upper()], match["group"].strip()) for match in matches)
    return AccountPolicy(GroupMapping(tuple(found), admin_group or None), creates_accounts, matches_email)
