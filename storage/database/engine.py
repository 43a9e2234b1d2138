"""The engine, its sessions, and how connections and transactions of SQLite and PostgreSQL differ.

Errors are in `errors.py`, column types in `column_types.py`, expressions that differ in `dialects.py`.

SQLite runs in WAL mode with foreign keys on. Its write transactions BEGIN IMMEDIATE after acquiring a fair lock of this process, so that
writers wait for each other instead of failing with "database is locked". Writers of other processes wait by SQLite's busy timeout.
"""

import sqlite3
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import orjson
from sqlalchemy import URL, Dialect, event, make_url
from sqlalchemy.engine import Connection
from sqlalchemy.exc import DisconnectionError, OperationalError
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import ConnectionPoolEntry
from sqlalchemy.util import await_only

from storage.caches import CacheBounds, CacheUsage, register_usage
from storage.database import sqlite_cursor
from storage.database.connection_pool import ConnectionPool
from storage.database.data_version import DataVersion
from storage.database.invalidation import TableVersion
from storage.database.postgres_pool import FairPool
from storage.database.prepared_statements import Statement
from storage.database.readers import PostgresReader, Reader, SlowStatementCache, SqliteReader, TextMeter
from storage.database.sessions import DatabaseSession as DatabaseSession
from storage.database.sessions import ReadSession
from storage.database.statements.bulk_inserts import BulkInsertCache
from storage.database.statements.insert_cache import InsertCache
from storage.database.statements.known_reads import KnownReads
from storage.database.statements.list_parameters import use_list_parameters
from storage.database.statements.statement_cache import StatementCache
from storage.database.statements.update_cache import UpdateCache
from storage.database.text_budget import TextBudget
from storage.database.write_session import WriteSession
from storage.database.writers import DatabaseBusy, PostgresWriter, SqliteWriter, WriteLock, Writer

ORM_STATEMENTS = CacheBounds("orm statements", max_entries=300, max_bytes=18 * 2**20)
"""SQLAlchemy's compiled statements; its cache grows to one and a half times the configured size before it is pruned."""
ORM_STATEMENT_BYTES = 60_000

WAIT_SECONDS = 5.0
"""How long a writer waits for the write lock on SQLite before it raises `DatabaseBusy`."""
CONNECT_SECONDS = 3.0
STATEMENT_SECONDS = 15.0
PRAGMAS = ("journal_mode = WAL", "synchronous = NORMAL", "foreign_keys = ON", "temp_store = MEMORY")
POSTGRESQL_CONNECT_ARGUMENTS: dict[str, Any] = {
    "timeout": CONNECT_SECONDS,
    "server_settings": {
        "application_name": "forgefront",
        "jit": "off",
        "datestyle": "ISO",
    },
}
"""Arguments with which every connection is opened."""


class Database:
    """One database: `sqlite+aiosqlite:///path` or `postgresql+asyncpg://…` (the schemes `sqlite` and `postgresql` select these drivers)."""

    def __init__(self, url: str, *, pool_size: int = 10, statement_seconds: float | None = STATEMENT_SECONDS) -> None:
        """`statement_seconds` is the time after which PostgreSQL cancels a statement; None is no limit."""
        self.url = driver_url(url)
        self.dialect = self.url.get_backend_name()
        milliseconds = str(int((statement_seconds or 0) * 1000))
        self._server_settings = {**POSTGRESQL_CONNECT_ARGUMENTS["server_settings"], "statement_timeout": milliseconds}
        self._postgresql_arguments = {**POSTGRESQL_CONNECT_ARGUMENTS, "server_settings": self._server_settings}
        settings: dict[str, Any] = {
            "json_serializer": lambda value: orjson.dumps(value).decode(),
            "json_deserializer": orjson.loads,
            "pool_size": pool_size,
            # The reader pool has the same number of connections.
            "max_overflow": 0,
            "pool_timeout": WAIT_SECONDS,
            "query_cache_size": ORM_STATEMENTS.max_entries * 2 // 3,
            # Error messages are logged; what users have written must not be.
            "hide_parameters": True,
        }
        if self.dialect == "sqlite":
            settings["connect_args"] = {"timeout": WAIT_SECONDS, "isolation_level": None}
        else:
            settings["connect_args"] = {"async_creator_fn": _connect_to_postgresql, **self._postgresql_arguments}
            settings["poolclass"] = FairPool
        self.engine = create_async_engine(self.url, **settings)
        self.write_engine = self.engine.execution_options(writing=True)
        register_usage(ORM_STATEMENTS, self, Database._orm_statement_usage)
        self._write_lock = WriteLock(WAIT_SECONDS)
        self.engine_dialect: Dialect = self.engine.dialect
        use_list_parameters(self.engine.dialect)
        self.statement_cache = StatementCache(self.engine.dialect)
        self.account_tables = TableVersion(self.engine.sync_engine, ("users", "tokens"), "forgefront_accounts")
        self.data_version = DataVersion(str(self.url.database)) if self.dialect == "sqlite" else None
        self.known_reads = KnownReads(self.statement_cache) if self.dialect != "sqlite" else None
        self.insert_cache = InsertCache(self.engine.dialect)
        self.update_cache = UpdateCache(self.engine.dialect)
        self.bulk_inserts = BulkInsertCache(self.engine.dialect)
        self._slow_statements = SlowStatementCache()
        self._is_closed = False
        event.listen(self.engine.sync_engine, "do_connect", self._prepare_to_connect)
        self.reader_pool: ConnectionPool[Reader] = ConnectionPool(self._connect_reader, pool_size, WAIT_SECONDS)
        if self.dialect == "sqlite":
            self._register_sqlite_events()
        else:
            event.listen(self.engine.sync_engine, "checkout", _reject_closed)

    def read_session(self, budget: TextBudget | None = None) -> ReadSession:
        """Returns a session for statements that change nothing, a context manager; its transaction is rolled back at the end.

        `budget` limits how much text it reads.
        """
        return ReadSession(self, budget)

    def write_session(self, budget: TextBudget | None = None) -> WriteSession:
        """Returns a session whose transaction may write, a context manager. On SQLite it waits for the write lock before it writes."""
        return WriteSession(self, budget)

    async def write(self, statements: Sequence[Statement], required: int = 0) -> list[int]:
        """Runs statements that each return an id as one transaction, without SQLAlchemy. Returns the ids (`storage/database/writers.py`).

        Raises IntegrityError, DatabaseBusy; ConcurrentChange if one of the first `required` returns none.
        """
        for sql, parameters in statements:
            self.record_statement(sql, parameters)
        try:
            return await self.writer.write(statements, required)
        finally:
            if any(self.account_tables.changes_rows(sql) for sql, _ in statements):
                # The writer bypasses the engine's events, on which `account_tables` relies otherwise. What is canceled may be committed.
                self.account_tables.invalidate()

    @cached_property
    def writer(self) -> Writer:
        if self.data_version is not None:
            return SqliteWriter(str(self.url.database), PRAGMAS, WAIT_SECONDS, self._write_lock, self.data_version)
        pool = self.engine.sync_engine.pool
        assert isinstance(pool, FairPool)  # noqa: S101 - see above
        return PostgresWriter(pool.idle_connections, self.engine.dialect)

    def _orm_statement_usage(self) -> CacheUsage:
        entries = len(self.engine.sync_engine._compiled_cache or ())
        return CacheUsage(entries, entries * ORM_STATEMENT_BYTES)

    async def close(self) -> None:
        """Closes all connections. Opening one afterwards raises ConnectionError, because nothing would close it."""
        self._is_closed = True
        await self.reader_pool.close()
        if self.data_version is not None:
            self.data_version.close()
        if "writer" in self.__dict__:
            await self.writer.close()
        await self.engine.dispose()

    def record_statement(self, sql: str, parameters: Sequence[Any]) -> None:
        """Calls the engine's `before_cursor_execute` listeners, which count and time statements, for one that bypasses the engine."""
        for listener in self.engine.sync_engine.dispatch.before_cursor_execute:
            listener(None, None, sql, parameters, None, False)

    def _prepare_to_connect(self, *_: Any) -> None:
        if self._is_closed:
            raise ConnectionError("the database is closed")
        if self.known_reads is not None:
            # It may be to another server: one that lacks the last transactions of the former one gives their numbers to others.
            self.known_reads.clear()

    async def _connect_reader(self) -> Reader:
        if self.dialect == "sqlite":
            self._prepare_to_connect()
            return SqliteReader(str(self.url.database), PRAGMAS, WAIT_SECONDS, self._slow_statements)
        connection = await self.connect_unpooled(default_transaction_read_only="on")
        meter = TextMeter(connection)
        await connection.set_type_codec("text", schema="pg_catalog", encoder=str, decoder=meter.decode_text)
        # As SQLAlchemy's dialect does on its own connections.
        for name in ("json", "jsonb"):
            await connection.set_type_codec(name, schema="pg_catalog", encoder=str, decoder=meter.decode_json)
        return PostgresReader(connection, meter)

    async def connect_unpooled(self, **server_settings: str) -> Any:
        """Opens an asyncpg connection outside the pools; PostgreSQL only. Raises ConnectionError and asyncpg's errors."""
        self._prepare_to_connect()
        arguments, settings = self.engine.dialect.create_connect_args(self.url)
        settings = {name: value for name, value in settings.items() if not name.startswith("prepared_statement_")}
        merged_settings = {**self._server_settings, **server_settings}
        return await _connect_to_postgresql(*arguments, **settings, **{**self._postgresql_arguments, "server_settings": merged_settings})

    @property
    def driver_errors(self) -> tuple[type[Exception], ...]:
        """asyncpg's exceptions, except failures to reach the server."""
        import asyncpg

        return (asyncpg.PostgresError, asyncpg.InterfaceError)

    def _register_sqlite_events(self) -> None:
        engine = self.engine.sync_engine

        @event.listens_for(engine, "do_connect")
        def open_connection(dialect: Dialect, entry: ConnectionPoolEntry, arguments: Sequence[Any], settings: dict[str, Any]) -> Any:
            return sqlite_cursor.connect(dialect, arguments, settings)

        @event.listens_for(engine, "connect")
        def connect(connection: Any, entry: ConnectionPoolEntry) -> None:
            cursor = connection.cursor()
            for pragma in PRAGMAS:
                cursor.execute(f"PRAGMA {pragma}")
            cursor.close()

        @event.listens_for(engine, "begin")
        def begin(connection: Connection) -> None:
            if not connection.get_execution_options().get("writing"):
                connection.exec_driver_sql("BEGIN")
                return
            await_only(self._write_lock.acquire())
            connection.info["queued"] = True
            try:
                connection.exec_driver_sql("BEGIN IMMEDIATE")
            except OperationalError as error:
                self._release_write_lock(connection.info)
                if isinstance(error.orig, sqlite3.OperationalError) and "locked" in str(error.orig):
                    raise DatabaseBusy("another process held the database lock for too long") from error
                raise

        @event.listens_for(engine, "checkin")
        def checkin(connection: Any, entry: ConnectionPoolEntry) -> None:
            self._release_write_lock(entry.info)

    def _release_write_lock(self, info: dict[Any, Any]) -> None:
        if info.pop("queued", False):
            self._write_lock.release()


def driver_url(url: str) -> URL:
    """Returns the URL with the asynchronous driver of its database. Raises ValueError unless it is SQLite or PostgreSQL."""
    parsed = make_url(url)
    drivers = {"sqlite": "sqlite+aiosqlite", "postgresql": "postgresql+asyncpg", "postgres": "postgresql+asyncpg"}
    backend = parsed.drivername.partition("+")[0]
    if backend not in drivers:
        raise ValueError(f"the database must be SQLite or PostgreSQL, not {backend}")
    return parsed.set(drivername=drivers[backend])


def _reject_closed(connection: Any, entry: ConnectionPoolEntry, fairy: Any) -> None:
    """Makes the pool replace a connection that was closed while it was idle; asyncpg knows that without a round trip to the server."""
    if connection.driver_connection.is_closed():
        raise DisconnectionError


async def _connect_to_postgresql(*args: Any, **settings: Any) -> Any:
    """Calls asyncpg's connect, and raises ConnectionError for every failure to reach the server, including a missing socket file."""
    import asyncpg

    try:
        return await asyncpg.connect(*args, **settings)
    except OSError as error:
        raise ConnectionError(f"the database cannot be reached: {error.strerror or type(error).__name__}") from error
