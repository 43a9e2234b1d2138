"""The pool of PostgreSQL's connections that write, for transactions of the ORM's and for single statements past it (`PostgresWriter`)."""

from typing import Any

from sqlalchemy.pool import AsyncAdaptedQueuePool, ConnectionPoolEntry
from sqlalchemy.util import await_only, greenlet_spawn

from storage.connections import Connections
from storage.prepared import Prepared


class Kept(Prepared):
    """A connection that is kept from the pool while it rests; the pool opens another one for it once it is broken."""

    def __init__(self, pooled: Any) -> None:
        super().__init__(pooled.driver_connection)
        self._pooled = pooled

    def rest(self) -> bool:
        if super().rest():
            return True
        self.give_back()
        return False

    def give_back(self) -> None:
        self._pooled.close()

    async def close(self) -> None:
        self.give_back()


class LinedPool(AsyncAdaptedQueuePool):
    """A pool before which all stand in one `line`, of as many places as there are connections.

    To take a connection from a pool costs as much as a statement, so those of `line` are kept from it while they rest. Who comes to a place
    of the pool's and finds it empty is given one of them.
    """

    # What SQLAlchemy tells of its pools goes by the name of the class, and would stand in every log at its end.
    _sqla_logger_namespace = "sqlalchemy.pool.LinedPool"

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.line: Connections[Kept] = Connections(self._connect_in_place, self.size(), self._timeout)
        self._has_place = False
        self._of_line: set[ConnectionPoolEntry] = set()

    async def _connect_in_place(self) -> Kept:
        def connect() -> Any:
            # `_do_get` is the first that hears of it, before anything can wait.
            self._has_place = True
            return self.connect()

        return Kept(await greenlet_spawn(connect))

    def _do_get(self) -> ConnectionPoolEntry:
        if self._has_place:
            self._has_place = False
            entry = super()._do_get()
            self._of_line.add(entry)
            return entry
        await_only(self.line.enter())
        try:
            if self.checkedout() == self.size() and (kept := self.line.drop_one()) is not None:
                kept.give_back()
            return super()._do_get()
        except BaseException:
            self.line.leave()
            raise

    def _do_return_conn(self, record: ConnectionPoolEntry) -> None:
        super()._do_return_conn(record)
        if record in self._of_line:
            # Its place is the line's own business.
            self._of_line.discard(record)
        else:
            self.line.leave()
