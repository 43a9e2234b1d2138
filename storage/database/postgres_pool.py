"""The pool of writing connections to PostgreSQL, for ORM transactions and for single statements that bypass the ORM (`PostgresWriter`)."""

from typing import Any

from sqlalchemy.pool import AsyncAdaptedQueuePool, ConnectionPoolEntry
from sqlalchemy.util import await_only, greenlet_spawn

from storage.database.connection_pool import ConnectionPool
from storage.database.prepared_statements import PreparedConnection


class IdleConnection(PreparedConnection):
    """A connection that stays checked out of the pool while it is idle. A broken one is returned, and the pool replaces it."""

    def __init__(self, pooled: Any) -> None:
        super().__init__(pooled.driver_connection)
        self._pooled = pooled

    def reset(self) -> bool:
        if super().reset():
            return True
        self.return_to_pool()
        return False

    def return_to_pool(self) -> None:
        self._pooled.close()

    async def close(self) -> None:
        self.return_to_pool()

    def discard(self) -> None:
        self.return_to_pool()


class FairPool(AsyncAdaptedQueuePool):
    """A pool whose callers wait in one queue, `idle_connections`, with as many slots as there are connections.

    Taking a connection from SQLAlchemy's pool costs as much as a statement, so `idle_connections` keeps released connections out of it. A
    caller that gets a slot of the pool while the pool is empty receives one of them.
    """

    # SQLAlchemy names a pool's logger after its class; under the default name its messages at shutdown would appear in every log.
    _sqla_logger_namespace = "sqlalchemy.pool.FairPool"

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.idle_connections: ConnectionPool[IdleConnection] = ConnectionPool(self._connect_with_slot, self.size(), self._timeout)
        self._has_slot = False
        self._idle_entries: set[ConnectionPoolEntry] = set()
        self._is_disposed = False

    async def _connect_with_slot(self) -> IdleConnection:
        def connect() -> Any:
            # `_do_get` reads it before anything is awaited.
            self._has_slot = True
            return self.connect()

        return IdleConnection(await greenlet_spawn(connect))

    def _do_get(self) -> ConnectionPoolEntry:
        if self._has_slot:
            self._has_slot = False
            entry = super()._do_get()
            self._idle_entries.add(entry)
            return entry
        await_only(self.idle_connections.acquire_slot())
        try:
            if self.checkedout() == self.size() and (idle := self.idle_connections.pop_oldest_idle()) is not None:
                idle.return_to_pool()
            return super()._do_get()
        except BaseException:
            self.idle_connections.release_slot()
            raise

    def dispose(self) -> None:
        self._is_disposed = True
        super().dispose()

    def _do_return_conn(self, record: ConnectionPoolEntry) -> None:
        if self._is_disposed:
            # Nobody takes it from this pool again.
            record.invalidate()
        super()._do_return_conn(record)
        if record in self._idle_entries:
            # `idle_connections` releases the slot itself.
            self._idle_entries.discard(record)
        else:
            self.idle_connections.release_slot()
