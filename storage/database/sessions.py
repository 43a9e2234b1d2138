"""Database sessions of operations. They bypass the ORM where that is cheaper. The session of a mutation is in `write_session.py`."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sqlalchemy import Select
from sqlalchemy.exc import InvalidRequestError
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.inspection import inspect
from sqlalchemy.orm import Mapper, make_transient_to_detached

from storage.database.readers import CLOSED_MESSAGE, Reader
from storage.database.statements.compiled_statements import COMPILATIONS
from storage.database.statements.statement_cache import CompiledSelect
from storage.database.text_budget import TextBudget, TextColumns

if TYPE_CHECKING:
    from storage.database.engine import Database


ORM_ATTRIBUTES = ("sync_session", "_proxied", "_async_bind", "_async_binds")
"""What `AsyncSession.__init__` sets, by which sessions without an ORM session know that a statement needs one."""


class _ExpiredError(Exception):
    """A row in the session's identity map has expired and must be refreshed, which only the ORM does."""


class DatabaseSession(AsyncSession):
    """A session that runs one statement at a time, because resolvers run concurrently on one connection."""

    budget: TextBudget | None = None
    """Limits how much text the session reads; None if it is not limited."""
    _reader: Reader | None = None
    """The connection for statements that need no ORM session, of sessions that take one from the pool."""
    uses_known_reads = False
    """Whether a write session may use what an earlier one has read (`storage/database/known_read_session.py`)."""
    _has_ended = False

    def __init__(self, database: "Database", **settings: Any) -> None:
        super().__init__(**settings)
        self._database = database
        self._statement_lock = asyncio.Lock()
        self._driver_connection: Any = None
        self._connection_info: dict[Any, Any] | None = None
        self._connected_transaction: Any = None

    async def read(self, statement: Any, values: Mapping[str, Any] | None = None) -> Sequence[Any]:
        """Returns the rows of a SELECT; `values` are those of its named parameters. Rows of tables belong to the session."""
        bound = self._database.statement_cache.bind(statement, values)
        if bound is None:
            return (await self.execute(statement, values)).all()  # type: ignore[no-any-return]
        sql, parameters, row_factory = bound
        rows = await self.fetch(sql, parameters, row_factory.text_columns)
        try:
            return row_factory.session_rows(rows, self._attach_row)
        except _ExpiredError:
            select = statement.statement if isinstance(statement, CompiledSelect) else statement
            return (await self.execute(select, values)).all()  # type: ignore[no-any-return]

    @property
    def reads_versions(self) -> bool:
        """Whether lookups should read the versions of rows too (`storage/database/statements/row_versions.py`), for `keep_version`."""
        return False

    def keep_version(self, row: Any, version: int) -> None:
        """Keeps the version of a row that was read, by which its change finds out whether it is still so."""
        raise NotImplementedError

    @property
    def relies_on_known_read(self) -> bool:
        """Whether what the session has read may be outdated, so that a repetition may have another result."""
        return False

    async def read_known(self, statement: Any, values: Mapping[str, Any]) -> Sequence[Any]:
        """As `read`, for a statement whose rows a write session may know already."""
        return await self.read(statement, values)

    async def read_without_flush(self, statement: Any, values: Mapping[str, Any] | None = None) -> Sequence[Any]:
        """As `read`, for statements that do not depend on deferred rows; those stay deferred if possible."""
        return await self.read(statement, values)

    async def run_if(self, condition: Select[Any], action: Callable[[], Awaitable[None]]) -> None:
        """Awaits `action` within the transaction if `condition`, a constant statement without parameters, selects true.

        That happens immediately, or at the commit if a row is deferred until then: the check and the INSERT are then one statement.
        """
        ((answer,),) = await self.read_without_flush(condition)
        if answer:
            await self.flush()
            await action()

    def add_deferred(self, row: Any) -> None:
        """Adds a row that is inserted at the commit, or before the next statement of the transaction; its id is known then."""
        self.add(row)

    async def fetch(self, sql: str, parameters: Sequence[Any], columns: TextColumns | None = None) -> Sequence[Sequence[Any]]:
        """Runs an SQL string of the driver's dialect and returns rows of the driver's values.

        Raises TextLimitExceeded if the text of these columns exceeds the budget of the session.
        """
        if self.new or self.dirty or self.deleted:
            await self.flush()
        async with self._statement_lock:
            # After a commit, a rollback or `close`, other sessions use the connection, and this one has another.
            if self._connected_transaction is None or self._connected_transaction is not self.sync_session.get_transaction():
                connection = await (await self.connection()).get_raw_connection()
                self._driver_connection, self._connection_info = connection.driver_connection, connection.record_info
                self._connected_transaction = self.sync_session.get_transaction()
            self._database.record_statement(sql, parameters)
            rows: Sequence[Sequence[Any]]
            if self._database.dialect == "sqlite":
                rows = await self._driver_connection.execute_fetchall(sql, parameters)
            else:
                rows = await self._driver_connection.fetch(sql, *parameters)
        self._database.account_tables.record_execution(self._connection_info, sql)
        budget = self.budget
        if budget is None:
            return rows
        budget.row_count += len(rows)
        if columns is not None:
            columns.consume(rows, budget)
        return rows

    def _drop_orm_session(self) -> None:
        """Makes a session that has ended refuse everything: an ORM session that was closed would begin another transaction."""
        for name in ORM_ATTRIBUTES:
            self.__dict__.pop(name, None)

    def _attach_row(self, table: type, columns: dict[str, Any]) -> Any:
        """Returns the session's row with this identity, created from the columns if there is none. Raises _ExpiredError."""
        mapper: Mapper[Any] = inspect(table)
        key = mapper.identity_key_from_primary_key(
            tuple(columns[mapper.get_property_by_column(column).key] for column in mapper.primary_key)
        )
        existing = self.identity_map.get(key)
        if existing is not None:
            if inspect(existing).expired_attributes:
                raise _ExpiredError
            return existing
        row = mapper.class_manager.new_instance()
        row.__dict__.update(columns)
        make_transient_to_detached(row)
        self.add(row)
        return row

    async def execute(self, *args: Any, **settings: Any) -> Any:
        async with self._statement_lock:
            return await super().execute(*args, **settings)

    async def scalar(self, *args: Any, **settings: Any) -> Any:
        async with self._statement_lock:
            return await super().scalar(*args, **settings)

    async def flush(self, objects: Any = None) -> None:
        async with self._statement_lock:
            await super().flush(objects)

    async def get(self, *args: Any, **settings: Any) -> Any:
        async with self._statement_lock:
            return await super().get(*args, **settings)

    async def delete(self, instance: object) -> None:
        async with self._statement_lock:
            await super().delete(instance)

    async def _acquire_first_reader(self) -> Reader:
        """Acquires a reader for a session that has none, without the statement lock if that is free. Raises as `_acquire_reader`."""
        if not self._has_ended and not self._statement_lock.locked():
            self._reader = self._database.reader_pool.try_acquire()
            if self._reader is not None:
                return self._reader
        async with self._statement_lock:
            return await self._acquire_reader()

    async def _acquire_reader(self) -> Reader:
        """Returns the session's reader. The caller has the statement lock. Raises InvalidRequestError if the session has ended."""
        if self._reader is None and not self._has_ended:
            reader = await self._database.reader_pool.acquire()
            if self._has_ended:
                self._database.reader_pool.release(reader)
            else:
                self._reader = reader
        if self._reader is None:
            # A loader runs after the end of its operation.
            raise InvalidRequestError(CLOSED_MESSAGE)
        return self._reader

    def _release_reader(self) -> None:
        if self._reader is not None:
            self._database.reader_pool.release(self._reader)
            self._reader = None


class ReadSession(DatabaseSession):
    """A session for statements that change nothing. `read` returns plain rows, which belong to no session and cannot be changed.

    The ORM session, which costs more than a small statement, is created when a statement needs it (`__getattr__`).
    """

    def __init__(self, database: "Database", budget: TextBudget | None = None) -> None:
        self._database = database
        self.budget = budget
        self._statement_lock = asyncio.Lock()

    def __getattr__(self, name: str) -> Any:
        if name not in ORM_ATTRIBUTES:
            raise AttributeError(name)
        if self._has_ended:
            raise InvalidRequestError(CLOSED_MESSAGE)
        AsyncSession.__init__(self, bind=self._database.engine, expire_on_commit=False, autoflush=False)
        return self.__dict__[name]

    async def read(self, statement: Any, values: Mapping[str, Any] | None = None) -> Sequence[Any]:
        if COMPILATIONS.are_new:
            await COMPILATIONS.let_others_run()
        bound = self._database.statement_cache.bind(statement, values)
        if bound is None:
            return (await self.execute(statement, values)).all()  # type: ignore[no-any-return]
        sql, parameters, row_factory = bound
        return row_factory.plain_rows(await self.fetch(sql, parameters, row_factory.text_columns))

    async def fetch(self, sql: str, parameters: Sequence[Any], columns: TextColumns | None = None) -> Sequence[Sequence[Any]]:
        if COMPILATIONS.are_new:
            await COMPILATIONS.let_others_run(1)
        reader = self._reader or await self._acquire_first_reader()
        if reader.is_concurrent:
            self._database.record_statement(sql, parameters)
            return await reader.fetch(sql, parameters, columns, self.budget)
        async with self._statement_lock:
            if self._has_ended:
                raise InvalidRequestError(CLOSED_MESSAGE)
            self._database.record_statement(sql, parameters)
            return await reader.fetch(sql, parameters, columns, self.budget)

    async def close(self) -> None:
        self._has_ended = True
        self._release_reader()
        if "sync_session" in self.__dict__:
            try:
                await super().close()
            finally:
                self._drop_orm_session()

    async def __aexit__(self, *error: Any) -> None:
        if "sync_session" in self.__dict__:
            await super().__aexit__(*error)
        else:
            await self.close()
