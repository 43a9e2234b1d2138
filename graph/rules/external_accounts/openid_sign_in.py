"""Sign-in with OpenID Connect.

The page asks for a sign-in, stores its ticket, and sends the browser to the provider, which sends it back to the page with a code. The
page then exchanges ticket, state and code for the token of the account. The ticket has what must match and must not be chosen by the
caller, encrypted: so no server process needs to remember it, and no other browser can use the code.
"""

import json
import secrets
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

import structlog

from graph.context import Context
from graph.errors import NotFound, Unauthenticated, Unavailable
from graph.identity_providers.people import IdentityProviderUnavailable, IdentityRejected
from graph.rules.external_accounts import external_accounts
from storage import tables

if TYPE_CHECKING:
    # The library is imported only where it is configured.
    from graph.identity_providers.openid_provider import OpenIdProvider

SIGN_IN_PATH = "/-/sign_in"
TICKET_KIND = "openid sign-in"
TICKET_DURATION = timedelta(minutes=10)
MAX_INPUT_LENGTH = 4_000

log = structlog.get_logger("sign-in")


@dataclass(frozen=True, slots=True)
class OpenIdSignInRequest:
    """What a page needs to send a browser to the provider."""

    authorization_url: str
    ticket: str


async def begin(context: Context) -> OpenIdSignInRequest:
    """Start a sign-in. Raises NotFound without a provider, Unavailable."""
    provider = _provider(context)
    state, nonce, verifier = (secrets.token_urlsafe(48) for _ in range(3))
    try:
        url = await provider.authorization_url(_redirect_uri(context), state=state, nonce=nonce, code_verifier=verifier)
    except IdentityProviderUnavailable as error:
        raise _unavailable(provider, error) from None
    expires_at = (context.now() + TICKET_DURATION).timestamp()
    content = {"kind": TICKET_KIND, "state": state, "nonce": nonce, "verifier": verifier, "expires_at": expires_at}
    return OpenIdSignInRequest(url, context.services.cipher.encrypt(json.dumps(content)))


async def finish(context: Context, *, ticket: str, state: str, code: str, issuer: str | None) -> tables.User:
    """The account of the person who signed in at the provider, who becomes the viewer. Call it before the first statement.

    Raises NotFound without a provider, Unauthenticated for a ticket, state or code that do not belong together or have expired, and for a
    blocked account, Forbidden if no account can be made, LimitExceeded, Unavailable.
    """
    provider = _provider(context)
    content = _open_ticket(context, ticket, state)
    if content is None or len(code) > MAX_INPUT_LENGTH:
        raise _rejection()
    async with context.services.sign_in_failures.attempt(f"openid {state}") as record_failure:
        try:
            person = await provider.finish(
                _redirect_uri(context), code, nonce=content["nonce"], code_verifier=content["verifier"], issuer=issuer
            )
        except IdentityRejected as error:
            record_failure()
            log.warning("sign-in rejected", provider=provider.options.provider, error=str(error))
            raise _rejection() from None
        except IdentityProviderUnavailable as error:
            raise _unavailable(provider, error) from None
    user = await external_accounts.sign_in_person(context, person, provider.policy)
    if user is None:
        raise Unauthenticated("This account is blocked. Ask an administrator.")
    return user


async def load_sign_out_url(context: Context) -> str | None:
    """Where the browser signs out of the provider; None if the provider has no page for that, or cannot be reached."""
    provider = context.services.openid_provider
    if provider is None:
        return None
    try:
        return await provider.sign_out_url(_redirect_uri(context))
    except IdentityProviderUnavailable as error:
        log.warning("the provider cannot be reached", provider=provider.options.provider, error=str(error))
        return None


def _provider(context: Context) -> "OpenIdProvider":
    provider = context.services.openid_provider
    if provider is None:
        raise NotFound("OpenIdSignIn")
    return provider


def _redirect_uri(context: Context) -> str:
    return f"{context.services.external_url}{SIGN_IN_PATH}"


def _open_ticket(context: Context, ticket: str, state: str) -> dict[str, str] | None:
    """The content of a ticket of this instance that belongs to the state and has not expired."""
    text = context.services.cipher.try_decrypt(ticket) if len(ticket) <= MAX_INPUT_LENGTH else None
    try:
        content = json.loads(text) if text is not None else None
    except ValueError:
        # The value of another kind, such as a token.
        return None
    if not isinstance(content, dict) or content.get("kind") != TICKET_KIND or content["expires_at"] <= context.now().timestamp():
        return None
    return content if secrets.compare_digest(content["state"].encode(), state.encode("utf-8", "surrogatepass")) else None


def _rejection() -> Unauthenticated:
    return Unauthenticated("The sign-in could not be completed: it took too long, or was started in another browser. Try again.")


def _unavailable(provider: "OpenIdProvider", error: IdentityProviderUnavailable) -> Unavailable:
    log.warning("the provider cannot be reached", provider=provider.options.provider, error=str(error))
    return Unavailable(f"{provider.options.label} cannot be reached. Try again in a moment, or sign in with a password or a token.")
