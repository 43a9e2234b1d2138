"""Who calls by which token, remembered for a moment: nearly every operation asks the database the same as the one before.

A change of a user or a token is seen by the next operation: what is remembered is dropped when one is kept in this process, and in others
as soon as they hear of it, on PostgreSQL by a notice. On SQLite an operation asks whether anything in the file has changed
(`storage/data_version.py`), and only then whether the rows behind the token are as they were. Nothing is remembered beyond `SECONDS`.
"""

import hmac
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from storage import tables
from storage.caches import CacheBounds, LruCache
from storage.data_version import DataVersion
from storage.database import Database, Session
from storage.tables import users

TOKENS = CacheBounds("tokens", max_entries=10_000, max_bytes=16 * 2**20)
SECONDS = 2.0

_AGE = timedelta(seconds=SECONDS)
_NEW = timedelta(0)


@dataclass(slots=True)
class _CachedViewer:
    """`data_version` and `rows` are what SQLite said when the rows behind the token were last compared."""

    read_at: datetime
    digest: str
    user: tables.User
    data_version: int | None = None
    rows: list[Any] | None = None


def token_size(digest: str, known: _CachedViewer) -> int:
    """Estimates the bytes of a token with its user."""
    return 2_600 + sum(len(value) for value in known.user.__dict__.values() if isinstance(value, str))


class Viewers:
    """One of each process."""

    def __init__(self, most: int = TOKENS.max_entries) -> None:
        self._version = -1
        self._known: LruCache[str, _CachedViewer] = LruCache(TOKENS, token_size, max_entries=most)

    def __len__(self) -> int:
        return len(self._known)

    def known(self, database: Database, wanted: str, moment: datetime) -> tables.User | None:
        """The active user of the token with this digest, where that is remembered."""
        if self._version != database.accounts.version:
            self._version = database.accounts.version
            self._known.clear()
            return None
        found = self._known.get(wanted)
        if found is None or not _NEW <= moment - found.read_at < _AGE or not hmac.compare_digest(found.digest, wanted):
            return None
        if database.data_version is not None and not _is_unchanged(database, database.data_version, found):
            self._known.pop(wanted)
            return None
        return found.user

    async def find(self, database: Database, wanted: str, moment: datetime) -> tables.User | None:
        """The active user of the token with this digest."""
        user = self.known(database, wanted, moment)
        if user is not None:
            return user
        accounts, file = database.accounts, database.data_version
        version = accounts.version if accounts.settled else None
        data_version = file.current() if file is not None else None
        async with database.reading() as session:
            user = await viewer_of(session, wanted)
        # What was read while a change was on its way may be from before it.
        if user is not None and version == accounts.version == self._version and accounts.settled:
            found = _CachedViewer(moment, wanted, user)
            if file is not None:
                found.rows = _rows(database, file, wanted)
                # Rows of another version may not be those that the user was read from.
                found.data_version = file.current()
                if data_version is None or found.rows is None or found.data_version != data_version:
                    return user
            self._known.put(wanted, found)
        return user


def _is_unchanged(database: Database, file: DataVersion, found: _CachedViewer) -> bool:
    """Whether the rows behind the token are as they were. They are read only if anything in the file has changed."""
    version = file.current()
    if version == found.data_version:
        return version is not None
    rows = _rows(database, file, found.digest)
    if rows is None or rows != found.rows:
        return False
    # The rows may be newer than the version, and are then read once more the next time.
    found.data_version = version
    return True


def _rows(database: Database, file: DataVersion, wanted: str) -> list[Any] | None:
    bound = database.plans.bind(users.BY_TOKEN, {"digest": wanted})
    return file.fetch(bound[0], bound[1]) if bound is not None else None


async def viewer_of(session: Session, wanted: str) -> tables.User | None:
    """The active user of the token with this digest, as the database has it now."""
    found = next(iter(await session.read(users.BY_TOKEN, {"digest": wanted})), None)
    if found is None or not hmac.compare_digest(found[1], wanted) or found[0].state is not tables.UserState.ACTIVE:
        return None
    user: tables.User = found[0]
    return user
