"""Notices that rows of some tables may have changed, so that what remembers them forgets at once.

Every statement of the engine is looked at, whoever wrote it: one that names such a table and is no plain selection changes it. What it
changed is seen by others from some moment between the event before the commit and the return of the connection on, so both count.
"""

import re
from collections.abc import Iterable
from typing import Any

from sqlalchemy import Engine, event
from sqlalchemy.engine import Connection
from sqlalchemy.pool import ConnectionPoolEntry
from sqlalchemy.util import await_only

from storage.caches import CacheBounds, LruCache

CHANGING = CacheBounds("changing statements", max_entries=2_000, max_bytes=2**20)
"""Statements other than SELECT of which is known whether they change such rows."""
CHANGED = "changed"
KEPT = "kept"


class Touched:
    """`version` rises with each change that was kept: in this process at once, in others when their notices say so (`forget`).

    `channel` is that of PostgreSQL on which the others hear of it.
    """

    def __init__(self, engine: Engine, tables: Iterable[str], channel: str) -> None:
        self.channel = channel
        self.version = 0
        self._names = re.compile(rf"\b(?:{'|'.join(tables)})\b", re.IGNORECASE)
        self._changes: LruCache[str, bool] = LruCache(CHANGING, lambda string, _: 200 + len(string))
        self._open = 0
        self._key = f"touched {channel}"
        self._tells = engine.dialect.name == "postgresql"
        event.listen(engine, "after_cursor_execute", self._executed)
        event.listen(engine, "begin", self._begin)
        event.listen(engine, "commit", self._commit)
        event.listen(engine, "rollback", self._rollback)
        event.listen(engine, "checkin", self._checkin)

    @property
    def settled(self) -> bool:
        """Whether what is read now is what the version says: no change is on its way."""
        return self._open == 0

    def forget(self) -> None:
        """Something was changed elsewhere."""
        self.version += 1

    def changes(self, text: str) -> bool:
        """Whether a statement changes such rows."""
        if text.startswith("SELECT"):
            return False
        found = self._changes.get(text)
        if found is None:
            found = self._names.search(text) is not None and text.lstrip()[:6].upper() != "SELECT"
            self._changes.put(text, found)
        return found

    def ran(self, info: dict[Any, Any] | None, text: str) -> None:
        """A statement was run on a connection, whose `record_info` is given."""
        if self.changes(text) and info is not None and self._key not in info:
            info[self._key] = CHANGED
            self._open += 1

    def _executed(self, connection: Connection, cursor: Any, text: str, *_: Any) -> None:
        self.ran(connection.connection.record_info, text)

    def _commit(self, connection: Connection) -> None:
        info = connection.connection.record_info
        if info is None or self._key not in info:
            return
        info[self._key] = KEPT
        self.version += 1
        if self._tells:
            driver: Any = connection.connection.driver_connection
            # Within the transaction, so it is heard when the change can be seen.
            await_only(driver.execute(f"NOTIFY {self.channel}"))

    def _rollback(self, connection: Connection) -> None:
        if connection.invalidated:
            # It broke, and was given back to the pool by that.
            return
        info = connection.connection.record_info
        if info is not None and info.get(self._key) == CHANGED:
            del info[self._key]
            self._open -= 1

    def _begin(self, connection: Connection) -> None:
        self._end(connection.connection.record_info)

    def _checkin(self, connection: Any, entry: ConnectionPoolEntry) -> None:
        self._end(entry.record_info)

    def _end(self, info: dict[Any, Any] | None) -> None:
        if info is not None and info.pop(self._key, None) is not None:
            self._open -= 1
            self.version += 1
