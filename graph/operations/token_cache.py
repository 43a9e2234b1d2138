"""Caches token lookups for a second, because most operations use the same tokens as the operations before.

The next operation sees a change of a user or a token: the cache is cleared when such a change is committed in this process, or when other
processes notify it (on PostgreSQL). On SQLite an operation checks whether the file has changed (`storage/database/data_version.py`), and
compares the rows of the token only if it has. No entry is used for longer than `CACHE_SECONDS`.
"""

import hmac
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from storage import tables
from storage.caches import CacheBounds, LruCache
from storage.database.data_version import DataVersion
from storage.database.engine import Database, DatabaseSession
from storage.tables.accounts import users

TOKEN_CACHE = CacheBounds("tokens", max_entries=10_000, max_bytes=16 * 2**20)
CACHE_SECONDS = 1.0

_MAX_AGE = timedelta(seconds=CACHE_SECONDS)
_MIN_AGE = timedelta(0)


@dataclass(slots=True)
class _CachedViewer:
    """A cached user. `data_version` and `rows` are SQLite's when the rows of the token were last compared."""

    read_at: datetime
    digest: str
    user: tables.User
    data_version: int | None = None
    rows: list[Any] | None = None


def token_size(digest: str, cached: _CachedViewer) -> int:
    """Estimates the memory of an entry in bytes."""
    return 2_600 + sum(len(value) for value in cached.user.__dict__.values() if isinstance(value, str))


class TokenCache:
    """Active users by token digests; one cache per process."""

    def __init__(self, max_entries: int = TOKEN_CACHE.max_entries) -> None:
        self._version = -1
        self._entries: LruCache[str, _CachedViewer] = LruCache(TOKEN_CACHE, token_size, max_entries=max_entries)

    def __len__(self) -> int:
        return len(self._entries)

    def find_cached(self, database: Database, token_digest: str, moment: datetime) -> tables.User | None:
        """Returns the active user of the token with this digest, if it is cached."""
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
        return cached.user

    async def find(self, database: Database, token_digest: str, moment: datetime) -> tables.User | None:
        """Returns the active user of the token with this digest, from the cache or the database."""
        user = self.find_cached(database, token_digest, moment)
        if user is not None:
            return user
        accounts, file = database.account_tables, database.data_version
        version = accounts.version if accounts.is_stable else None
        data_version = file.current() if file is not None else None
        async with database.read_session() as session:
            user = await find_viewer(session, token_digest)
        # Rows that were read during an uncommitted change may be outdated.
        if user is not None and version == accounts.version == self._version and accounts.is_stable:
            cached = _CachedViewer(moment, token_digest, user)
            if file is not None:
                cached.rows = _read_rows(database, file, token_digest)
                # At another version the rows may differ from those that the user was read from.
                cached.data_version = file.current()
                if data_version is None or cached.rows is None or cached.data_version != data_version:
                    return user
            self._entries.put(token_digest, cached)
        return user


def _is_unchanged(database: Database, file: DataVersion, cached: _CachedViewer) -> bool:
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


async def find_viewer(session: DatabaseSession, token_digest: str) -> tables.User | None:
    """Reads the active user of the token with this digest from the database."""
    row = next(iter(await session.read(users.USER_BY_TOKEN, {"digest": token_digest})), None)
    if row is None or not hmac.compare_digest(row[1], token_digest) or row[0].state is not tables.UserState.ACTIVE:
        return None
    user: tables.User = row[0]
    return user
