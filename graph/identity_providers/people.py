"""People as directories and OpenID providers describe them, and what the configuration makes of their groups."""

from collections.abc import Collection
from dataclasses import dataclass, field

from storage.tables import AccessLevel


class IdentityProviderUnavailable(Exception):
    """A directory or provider cannot be reached, or its response cannot be used. The message says why, without secrets."""


class IdentityRejected(Exception):
    """A provider's response does not prove who somebody is. The message says why, without secrets."""


@dataclass(frozen=True, slots=True)
class ExternalPerson:
    """A person at a provider. `uid` identifies the person there for all time, and `former_uid` is how an import may have recorded it.

    `groups` are those of the groups that the configuration names, in the form of `GroupMapping`. `is_active` is false if the directory has
    disabled the person.
    """

    provider: str
    uid: str
    username: str
    name: str
    email: str | None
    has_verified_email: bool
    groups: frozenset[str] = frozenset()
    is_active: bool = True
    former_uid: str | None = None


@dataclass(frozen=True, slots=True)
class GroupGrant:
    """Members of a group of the provider have a level in a group of the instance, whose path is in lower case."""

    group_path: str
    level: AccessLevel
    external_group: str


@dataclass(frozen=True, slots=True)
class GroupMapping:
    """What follows from the groups of a provider. Without `admin_group`, the provider does not decide who administers the instance."""

    grants: tuple[GroupGrant, ...] = ()
    admin_group: str | None = None

    @property
    def external_groups(self) -> tuple[str, ...]:
        """All groups of the provider that matter, each once."""
        return tuple(dict.fromkeys([*(grant.external_group for grant in self.grants), *([self.admin_group] if self.admin_group else [])]))

    @property
    def group_paths(self) -> frozenset[str]:
        return frozenset(grant.group_path for grant in self.grants)

    def levels(self, groups: Collection[str]) -> dict[str, AccessLevel]:
        """The highest level by the path of the group, for a member of these groups of the provider."""
        found: dict[str, AccessLevel] = {}
        for grant in self.grants:
            if grant.external_group in groups:
                found[grant.group_path] = max(grant.level, found.get(grant.group_path, grant.level))
        return found

    def is_admin(self, groups: Collection[str]) -> bool | None:
        """None if the provider does not decide it."""
        return self.admin_group in groups if self.admin_group else None


@dataclass(frozen=True, slots=True)
class AccountPolicy:
    """How accounts are made and changed for the people of a provider.

    `matches_email`: an account without an identity of the provider is the person's if its confirmed address is the person's verified one.
    """

    mapping: GroupMapping = field(default_factory=GroupMapping)
    creates_accounts: bool = True
    matches_email: bool = False
