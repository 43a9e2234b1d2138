"""Caches token lookups for a second, because most operations use the same tokens as the operations before.

The next operation sees a change of a user or a token: the cache is cleared when such a change is committed in this process, or when other
processes notify it (on PostgreSQL). On SQLite an operation checks whether others have changed the file
(`storage/database/data_version.py`), and compares the rows of the token only if they have. No entry is used for longer than
`CACHE_SECONDS`, or after the token has expired.

Each lookup of an access token records its use, so an operation whose token is cached does nothing for it. A job of each process
(`graph/jobs/token_uses.py`) writes the uses; a token is written at most once in `USE_SECONDS`.
"""

import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from graph.operations.token_scopes import TokenIdentity, identify
from storage import tables
from storage.caches import CacheBounds, LruCache
from storage.database.data_version import DataVersion
from storage.database.engine import Database, DatabaseSession
from storage.tables.accounts import users

TOKEN_CACHE = CacheBounds("tokens", max_entries=10_000, max_bytes=16 * 2**20)
CACHE_SECONDS = 1.0
USE_SECONDS = 300.0
"""Seconds during which further uses of an access token are not recorded."""

_MAX_AGE = timedelta(seconds=CACHE_SECONDS)
_MIN_AGE = timedelta(0)
_USE_AGE = timedelta(seconds=USE_SECONDS)


@dataclass(slots=True)
class _CachedToken:
    """A cached token. `data_version` and `rows` are SQLite's when the rows of the token were last compared."""

    read_at: datetime
    digest: str
    identity: TokenIdentity
    data_version: int | None = None
    rows: list[Any] | None = None


def token_size(digest: str, cached: _CachedToken) -> int:
    """Estimates the memory of an entry in bytes."""
    return 2_600 + sum(len(value) for value in cached.identity.user.__dict__.values() if isinstance(value, str))


class TokenCache:
    """Tokens of active users by their digests; one cache per process."""

    def __init__(self, max_entries: int = TOKEN_CACHE.max_entries) -> None:
        self._version = -1
        self._entries: LruCache[str, _CachedToken] = LruCache(TOKEN_CACHE, token_size, max_entries=max_entries)
        self._uses: dict[int, datetime] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def find_cached(self, database: Database, token_digest: str, moment: datetime) -> TokenIdentity | None:
        """Returns the token with this digest, if it is cached."""
        if self._version != database.account_tables.version:
            self._version = database.account_tables.version
            self._entries.clear()
            return None
        cached = self._entries.get(token_digest)
        if cached is None or not _MIN_AGE <= moment - cached.read_at < _MAX_AGE or not hmac.compare_digest(cached.digest, token_digest):
            return None
        if database.data_version is not None and not _is_unchanged(database, database.data_version, cached):
            self._entries.pop(token_digest)
            return None
        return cached.identity

    async def find(self, database: Database, token_digest: str, moment: datetime) -> TokenIdentity | None:
        """Returns the token with this digest, if it is valid and of an active user, from the cache or the database."""
        identity = self.find_cached(database, token_digest, moment)
        if identity is not None:
            return identity
        accounts, file = database.account_tables, database.data_version
        version = accounts.version if accounts.is_stable else None
        data_version = file.current() if file is not None else None
        async with database.read_session() as session:
            identity = await self.read(session, token_digest, moment)
        # Rows that were read during an uncommitted change may be outdated.
        if (
            identity is not None
            and version == accounts.version == self._version
            and accounts.is_stable
            and not _expires_in(identity, moment + _MAX_AGE)
        ):
            cached = _CachedToken(moment, token_digest, identity)
            if file is not None:
                cached.rows = _read_rows(database, file, token_digest)
                # At another version the rows may differ from those that the identity was read from.
                cached.data_version = file.current()
                if data_version is None or cached.rows is None or cached.data_version != data_version:
                    return identity
            self._entries.put(token_digest, cached)
        return identity

    async def read(self, session: DatabaseSession, token_digest: str, moment: datetime) -> TokenIdentity | None:
        """As `find`, always from the database, and records the use of an access token."""
        identity = await find_token(session, token_digest, moment)
        if identity is not None and identity.scopes is not None:
            last_used_at = identity.last_used_at
            if last_used_at is None or not _MIN_AGE <= moment - last_used_at < _USE_AGE:
                self._uses[identity.token_id] = moment
        return identity

    def take_uses(self) -> dict[int, datetime]:
        """Returns when access tokens were last used, by their ids, and forgets it."""
        uses, self._uses = self._uses, {}
        return uses

    def return_uses(self, uses: Mapping[int, datetime]) -> None:
        """Records uses again that could not be written; later uses of the same tokens stay."""
        self._uses = {**uses, **self._uses}


def _expires_in(identity: TokenIdentity, moment: datetime) -> bool:
    """Whether the token will have expired at a moment."""
    return identity.expires_at is not None and identity.expires_at <= moment


def _is_unchanged(database: Database, file: DataVersion, cached: _CachedToken) -> bool:
    """Whether the rows of the token are unchanged. They are read only if the file has changed."""
    version = file.current()
    if version == cached.data_version:
        return version is not None
    rows = _read_rows(database, file, cached.digest)
    if rows is None or rows != cached.rows:
        return False
    # The rows may be newer than the version; they are then read again the next time.
    cached.data_version = version
    return True


def _read_rows(database: Database, file: DataVersion, token_digest: str) -> list[Any] | None:
    bound = database.statement_cache.bind(users.USER_BY_TOKEN, {"digest": token_digest})
    return file.fetch(bound[0], bound[1]) if bound is not None else None


async def find_token(session: DatabaseSession, token_digest: str, moment: datetime) -> TokenIdentity | None:
    """Reads the token with this digest from the database, if it has not expired and its user is active."""
    row = next(iter(await session.read(users.USER_BY_TOKEN, {"digest": token_digest})), None)
    if row is None or not hmac.compare_digest(row[1], token_digest) or row[0].state is not tables.UserState.ACTIVE:
        return None
    user, _, token_id, scopes, expires_at, last_used_at = row
    if expires_at is not None and expires_at <= moment:
        return None
    return identify(user, token_id, scopes, expires_at, last_used_at)
