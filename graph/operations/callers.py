"""Authentication of callers: a credential is authenticated once for each operation."""

from dataclasses import dataclass
from typing import NamedTuple

from graph.context import RunnerIdentity, Services
from graph.documents.documents import PreparedOperation
from graph.errors import NotFound, Unauthenticated
from graph.operations.rate_limits import CostQuote
from graph.operations.token_scopes import SCOPE_BY_KIND, TokenIdentity, require_scope
from graph.operations.transaction import session_for
from graph.rules.runners import runner_tokens
from storage import tables
from storage.database.engine import DatabaseSession
from storage.secrets import digest_token
from storage.tables.accounts import users


@dataclass(frozen=True, slots=True)
class LocalAdmin:
    """The operator at the machine, who has access to the database and the key, and so may act as any user.

    `username` is the user to act as; None is the first active administrator or, if there is none, an administrator without a row.
    No endpoint creates one: remote callers have a credential, which is a string.
    """

    username: str | None = None


class Caller(NamedTuple):
    """The caller: a user, with the access token if that is the credential, a runner, or nobody."""

    viewer: tables.User | None
    runner_identity: RunnerIdentity | None = None
    access_token: TokenIdentity | None = None


async def is_known_caller(services: Services, credential: str | None) -> bool:
    """Whether the credential belongs to an active user or a runner."""
    if not credential:
        return False
    if runner_tokens.is_token(credential):
        async with session_for(services.database, writing=False) as session:
            return await runner_tokens.authenticate(session, credential) is not None
    return await services.token_cache.find(services.database, digest_token(credential), services.clock()) is not None


async def authenticate_caller(
    services: Services, credential: str | LocalAdmin | None, prepared: PreparedOperation, quote: CostQuote | None
) -> Caller:
    """Authenticates the caller: a user, who is charged, with the access token if it is one, or a runner.

    Raises Unauthenticated, InsufficientScope, LimitExceeded.
    """
    if isinstance(credential, LocalAdmin):
        async with session_for(services.database, writing=False) as session:
            return Caller(await user_of_admin(session, credential))
    if credential is not None and runner_tokens.is_token(credential):
        if prepared.facts.runner:
            async with session_for(services.database, writing=False) as session:
                runner_identity = await runner_tokens.authenticate(session, credential)
            if runner_identity is not None:
                return Caller(None, runner_identity)
        raise Unauthenticated
    identity: TokenIdentity | None = None
    moment = services.clock()
    if credential:
        token_digest, token_cache = digest_token(credential), services.token_cache
        identity = token_cache.find_cached(services.database, token_digest, moment) or await token_cache.find(
            services.database, token_digest, moment
        )
    if identity is None:
        if not prepared.facts.anonymous:
            raise Unauthenticated
        return Caller(None)
    viewer = identity.user
    if quote is not None:
        services.rate_limiter.charge(viewer.id, quote, moment)
    if identity.scopes is None:
        return Caller(viewer)
    require_scope(identity.scopes, SCOPE_BY_KIND[prepared.kind])
    return Caller(viewer, access_token=identity)


async def authenticate(services: Services, session: DatabaseSession, credential: str | None) -> TokenIdentity | None:
    """Returns a valid token of an active user. It is looked up by its digest, so that timing does not reveal parts of a token."""
    return await services.token_cache.read(session, digest_token(credential), services.clock()) if credential else None


async def user_of_admin(session: DatabaseSession, admin: LocalAdmin) -> tables.User:
    """Returns the user that the operator acts as. Raises NotFound for an unknown username, Unauthenticated for a blocked user."""
    if admin.username is None:
        first: tables.User | None = await session.scalar(users.administrators().limit(1))
        return first or tables.User(id=0, username="operator", name="Operator", email="", admin=True)
    user: tables.User | None = await session.scalar(users.by_username(admin.username))
    if user is None:
        raise NotFound("User")
    if user.state is not tables.UserState.ACTIVE:
        raise Unauthenticated(f"{user.username} is blocked.")
    return user
