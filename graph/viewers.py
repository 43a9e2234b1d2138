"""Who calls by which token, remembered for a moment: nearly every operation asks the database the same as the one before.

A change of a user or a token is seen by the next operation: what is remembered is dropped when one is kept in this process, and in others
as soon as they hear of it, on PostgreSQL by a notice, or in `SECONDS`.
"""

import hmac
from datetime import datetime, timedelta

from storage import tables
from storage.database import Database, Session
from storage.tables import users

MOST = 10_000
"""Tokens."""
SECONDS = 2.0

_AGE = timedelta(seconds=SECONDS)
_NEW = timedelta(0)


class Viewers:
    """One of each process."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._version = -1
        self._known: dict[str, tuple[datetime, str, tables.User]] = {}

    def __len__(self) -> int:
        return len(self._known)

    def known(self, database: Database, wanted: str, moment: datetime) -> tables.User | None:
        """The active user of the token with this digest, where that is remembered."""
        if self._version != database.accounts.version:
            self._version = database.accounts.version
            self._known.clear()
            return None
        found = self._known.get(wanted)
        if found is None or not _NEW <= moment - found[0] < _AGE or not hmac.compare_digest(found[1], wanted):
            return None
        return found[2]

    async def find(self, database: Database, wanted: str, moment: datetime) -> tables.User | None:
        """The active user of the token with this digest."""
        user = self.known(database, wanted, moment)
        if user is not None:
            return user
        accounts = database.accounts
        version = accounts.version if accounts.settled else None
        async with database.reading() as session:
            user = await viewer_of(session, wanted)
        # What was read while a change was on its way may be from before it.
        if user is not None and version == accounts.version == self._version and accounts.settled:
            self._known.pop(wanted, None)
            if len(self._known) >= self._most:
                del self._known[next(iter(self._known))]
            self._known[wanted] = moment, wanted, user
        return user


async def viewer_of(session: Session, wanted: str) -> tables.User | None:
    """The active user of the token with this digest, as the database has it now."""
    found = next(iter(await session.read(users.BY_TOKEN, {"digest": wanted})), None)
    if found is None or not hmac.compare_digest(found[1], wanted) or found[0].state is not tables.UserState.ACTIVE:
        return None
    user: tables.User = found[0]
    return user
