"""Sign-in with the password of a directory."""

from dataclasses import replace
from typing import TYPE_CHECKING

import structlog

from graph.context import Services
from graph.errors import Unavailable
from graph.identity_providers.people import ExternalPerson, IdentityProviderUnavailable
from graph.rules.accounts.failure_limiter import name_login

if TYPE_CHECKING:
    # The library is imported only where it is configured.
    from graph.identity_providers.ldap_directory import LdapDirectory

UNAVAILABLE = (
    "The directory cannot be reached, so its people cannot sign in with their password now. Accounts with a password of their own can."
)

log = structlog.get_logger("directory")


async def authenticate(services: Services, directory: "LdapDirectory", login: str, password: str) -> ExternalPerson | None:
    """The active person with this login and password. Call it before the first statement, because it waits for the directory.

    Failures are counted for the entry too, since servers find one entry by many spellings of a login. Raises LimitExceeded, Unavailable.
    """
    try:
        found = await directory.find(login)
        name = name_login(found.dn if found is not None else None, login)
        async with services.sign_in_failures.attempt(f"directory {name}") as record_failure:
            if not await directory.verify(found, password) or found is None or not found.person.is_active:
                record_failure()
                return None
        return replace(found.person, groups=await directory.groups_of(found))
    except IdentityProviderUnavailable as error:
        log.warning("the directory cannot be reached", error=str(error))
        raise Unavailable(UNAVAILABLE) from None
