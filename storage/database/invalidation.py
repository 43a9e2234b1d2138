"""Counts the changes of some tables, so that caches of their rows are invalidated immediately.

Every statement of the engine is checked: a statement that names such a table and is not a plain SELECT counts as a change. Other
connections see the change from some moment between the commit event and the return of the connection to the pool, so the version is
incremented at both.
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
"""For statements other than SELECT: whether they change the tables."""
UNCOMMITTED = "uncommitted"
COMMITTED = "committed"


class TableVersion:
    """Version number of some tables: `version` is incremented at each committed change.

    A change of this process counts immediately, a change of another process when its notification arrives (`invalidate`). `channel` is the
    PostgreSQL channel of these notifications.
    """

    def __init__(self, engine: Engine, tables: Iterable[str], channel: str) -> None:
        self.channel = channel
        self.version = 0
        self._names = re.compile(rf"\b(?:{'|'.join(tables)})\b", re.IGNORECASE)
        self._change_cache: LruCache[str, bool] = LruCache(CHANGING_STATEMENTS, lambda string, _: 200 + len(string))
        self._open_changes = 0
        self._key = f"changed {channel}"
        self._notifies = engine.dialect.name == "postgresql"
        event.listen(engine, "after_cursor_execute", self._on_execute)
        event.listen(engine, "begin", self._on_begin)
        event.listen(engine, "commit", self._on_commit)
        event.listen(engine, "rollback", self._on_rollback)
        event.listen(engine, "checkin", self._on_checkin)

    @property
    def is_stable(self) -> bool:
        """Whether rows that are read now belong to the current version: no transaction of this process has an unfinished change."""
        return self._open_changes == 0

    def invalidate(self, _payload: str = "") -> None:
        """Increments the version after a change by another process."""
        self.version += 1

    def changes_rows(self, sql: str) -> bool:
        """Returns whether a statement may change rows of the tables."""
        if sql.startswith("SELECT"):
            return False
        found = self._change_cache.get(sql)
        if found is None:
            found = self._names.search(sql) is not None and sql.lstrip()[:6].upper() != "SELECT"
            self._change_cache.put(sql, found)
        return found

    def record_execution(self, info: dict[Any, Any] | None, sql: str) -> None:
        """Records that a statement was run on the connection with this `record_info`."""
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
            # Within the transaction, so PostgreSQL delivers it when the change becomes visible.
            await_only(driver.execute(f"NOTIFY {self.channel}"))

    def _on_rollback(self, connection: Connection) -> None:
        if connection.invalidated:
            # The connection broke; the pool has handled its check-in.
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
