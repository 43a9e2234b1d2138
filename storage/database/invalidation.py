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

CHANGING_STATEMENTS = CacheBounds("changing statements", max_entries=2_000, max_bytes=2**20)
"""Statements other than SELECT of which is known whether they change such rows."""
UNCOMMITTED = "changed"
COMMITTED = "kept"


class TableVersion:
    """`version` rises with each change that was kept: in this process at once, in others when their notices say so (`invalidate`).

    `channel` is that of PostgreSQL on which the others hear of it.
    """

    def __init__(self, engine: Engine, tables: Iterable[str], channel: str) -> None:
        self.channel = channel
        self.version = 0
        self._names = re.compile(rf"\b(?:{'|'.join(tables)})\b", re.IGNORECASE)
        self._change_cache: LruCache[str, bool] = LruCache(CHANGING_STATEMENTS, lambda string, _: 200 + len(string))
        self._open_changes = 0
        self._key = f"touched {channel}"
        self._notifies = engine.dialect.name == "postgresql"
        event.listen(engine, "after_cursor_execute", self._on_execute)
        event.listen(engine, "begin", self._on_begin)
        event.listen(engine, "commit", self._on_commit)
        event.listen(engine, "rollback", self._on_rollback)
        event.listen(engine, "checkin", self._on_checkin)

    @property
    def is_stable(self) -> bool:
        """Whether what is read now is what the version says: no change is on its way."""
        return self._open_changes == 0

    def invalidate(self) -> None:
        """Something was changed elsewhere."""
        self.version += 1

    def changes_rows(self, sql: str) -> bool:
        """Whether a statement changes such rows."""
        if sql.startswith("SELECT"):
            return False
        found = self._change_cache.get(sql)
        if found is None:
            found = self._names.search(sql) is not None and sql.lstrip()[:6].upper() != "SELECT"
            self._change_cache.put(sql, found)
        return found

    def record_execution(self, info: dict[Any, Any] | None, sql: str) -> None:
        """A statement was run on a connection, whose `record_info` is given."""
        if self.changes_rows(sql) and info is not None and self._key not in info:
            info[self._key] = UNCOMMITTED
            self._open_changes += 1

    def _on_execute(self, connection: Connection, cursor: Any, sql: str, *_: Any) -> None:
        self.record_execution(connection.connection.record_info, sql)

    def _on_commit(self, connection: Connection) -> None:
        info = connection.connection.record_info
        if info is None or self._key not in info:
            return
        info[self._key] = COMMITTED
        self.version += 1
        if self._notifies:
            driver: Any = connection.connection.driver_connection
            # Within the transaction, so it is heard when the change can be seen.
            await_only(driver.execute(f"NOTIFY {self.channel}"))

    def _on_rollback(self, connection: Connection) -> None:
        if connection.invalidated:
            # It broke, and was given back to the pool by that.
            return
        info = connection.connection.record_info
        if info is not None and info.get(self._key) == UNCOMMITTED:
            del info[self._key]
            self._open_changes -= 1

    def _on_begin(self, connection: Connection) -> None:
        self._close_change(connection.connection.record_info)

    def _on_checkin(self, connection: Any, entry: ConnectionPoolEntry) -> None:
        self._close_change(entry.record_info)

    def _close_change(self, info: dict[Any, Any] | None) -> None:
        if info is not None and info.pop(self._key, None) is not None:
            self._open_changes -= 1
            self.version += 1
