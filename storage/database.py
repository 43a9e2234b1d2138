"""The engine, its sessions, and everything that differs between SQLite and PostgreSQL, but for expressions (storage/dialects.py).

SQLite runs in WAL mode with foreign keys on. Its writing transactions begin IMMEDIATE behind a fair queue of this process, so that
writers wait for each other instead of failing with "database is locked"; writers of other processes wait by SQLite's own busy time-out.
"""

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

import orjson
from sqlalchemy import URL, DateTime, Dialect, MetaData, Select, event, make_url
from sqlalchemy import Enum as EnumType
from sqlalchemy.engine import Connection
from sqlalchemy.exc import DBAPIError, DisconnectionError, IntegrityError, InvalidRequestError, OperationalError
from sqlalchemy.exc import TimeoutError as NoConnectionFree
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.inspection import inspect
from sqlalchemy.orm import Mapper, make_transient_to_detached
from sqlalchemy.pool import ConnectionPoolEntry
from sqlalchemy.types import TypeDecorator
from sqlalchemy.util import await_only
from sqlmodel import SQLModel

from storage.inserting import Inserts
from storage.readers import CLOSED, PostgresReader, Reader, Readers, SqliteReader
from storage.reading import Plans
from storage.touched import Touched
from storage.writers import Busy, PostgresWriter, Queue, SqliteWriter, Statement, Writer

if TYPE_CHECKING:
    from storage.writing import WritingSession

NAMING = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_name)s",
    "pk": "pk_%(table_name)s",
}
metadata: MetaData = SQLModel.metadata
metadata.naming_convention = NAMING

WAIT_SECONDS = 5.0
"""How long a writer waits for its turn on SQLite before it gives up with `Busy`."""
CONNECT_SECONDS = 3.0
STATEMENT_SECONDS = 15.0
PRAGMAS = ("journal_mode = WAL", "synchronous = NORMAL", "foreign_keys = ON", "temp_store = MEMORY")
POSTGRESQL: dict[str, Any] = {
    "timeout": CONNECT_SECONDS,
    "server_settings": {"statement_timeout": str(int(STATEMENT_SECONDS * 1000)), "jit": "off"},
}
"""What every connection is opened with."""


class Timestamp(TypeDecorator[datetime]):
    """An instant, kept in UTC with microseconds. Takes and gives aware datetimes only."""

    impl = DateTime(timezone=True)
    cache_ok = True

    @property
    def python_type(self) -> type[datetime]:
        return datetime

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError("a timestamp needs its offset")
        return value.astimezone(UTC)

    def result_processor(self, dialect: Dialect, coltype: object) -> Callable[[Any], datetime | None]:
        return _read_instant if dialect.name == "sqlite" else _aware


def _read_instant(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text + "+00:00")


def _aware(moment: datetime | None) -> datetime | None:
    """The driver of PostgreSQL gives aware instants, but for the first and the last one."""
    return moment if moment is None or moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def words(enumeration: type[Any]) -> Any:
    """The column type of an enumeration: kept as its word (the value, lower case), checked in Python, free to grow without a migration."""
    return EnumType(
        enumeration,
        native_enum=False,
        create_constraint=False,
        length=32,
        values_callable=lambda members: [str(member.value) for member in members],
    )


def now() -> datetime:
    return datetime.now(UTC)


def is_conflict(error: IntegrityError) -> bool:
    """Whether a unique constraint was hit, rather than a foreign key, a check or a missing value."""
    code = getattr(error.orig, "sqlstate", None) or getattr(error.orig, "sqlite_errorname", "")
    return code in ("23505", "SQLITE_CONSTRAINT_UNIQUE", "SQLITE_CONSTRAINT_PRIMARYKEY")


def taken_column(error: IntegrityError) -> str | None:
    """The column, as `users.email`, whose unique constraint was hit; None for any other failure.

    SQLite names the column in its text; PostgreSQL names the constraint, which `NAMING` spells, and the table.
    """
    if not is_conflict(error):
        return None
    name = getattr(error.orig.__cause__, "constraint_name", None) if error.orig is not None else None
    if name is not None:
        table = str(getattr(error.orig.__cause__, "table_name", None))  # type: ignore[union-attr]
        return f"{table}.{str(name).removeprefix(f'uq_{table}_')}"
    return str(error.orig).rpartition(": ")[2]


def is_unavailable(error: BaseException) -> bool:
    """Whether the database itself could not answer (gone, restarting, busy, over its time limit), so that a later try may succeed."""
    if isinstance(error, Busy | NoConnectionFree | ConnectionError | TimeoutError):
        return True
    if isinstance(error, DBAPIError) and (error.connection_invalidated or isinstance(error.orig, OSError)):
        return True
    # What a reader raises is the driver's error itself.
    cause = error.orig if isinstance(error, DBAPIError) else error
    state = str(getattr(cause, "sqlstate", None) or "")
    if state[:2] in ("08", "53", "57") or state in ("40001", "40P01"):
        return True
    if isinstance(error, OperationalError | sqlite3.OperationalError):
        return "locked" in str(cause) or "busy" in str(cause)
    return type(cause).__module__.startswith("asyncpg.") and type(cause).__name__ == "InterfaceError"


class _ExpiredError(Exception):
    """A row that the session has must be read anew, which is the ORM's own business."""


class Session(AsyncSession):
    """A session whose statements take turns, since one connection answers one statement at a time and resolvers run side by side."""

    def __init__(self, database: "Database", **settings: Any) -> None:
        super().__init__(**settings)
        self._database = database
        self._turn = asyncio.Lock()
        self._driver: Any = None
        self._info: dict[Any, Any] | None = None

    async def read(self, statement: Any, values: Mapping[str, Any] | None = None) -> Sequence[Any]:
        """The rows of a statement that selects; `values` are those of its named parameters. Rows of tables are the session's own."""
        bound = self._database.plans.bind(statement, values)
        if bound is None:
            return (await self.execute(statement, values)).all()  # type: ignore[no-any-return]
        text, parameters, shape = bound
        found = await self.fetch(text, parameters)
        try:
            return shape.built(found, self._attached)
        except _ExpiredError:
            return (await self.execute(statement, values)).all()  # type: ignore[no-any-return]

    async def read_beside(self, statement: Any, values: Mapping[str, Any] | None = None) -> Sequence[Any]:
        """As `read`, for what does not hang on rows that wait to be written: they go on waiting, where they can."""
        return await self.read(statement, values)

    async def when(self, question: Select[Any], then: Callable[[], Awaitable[None]]) -> None:
        """Awaits `then` within the transaction, where the answer to a question is yes.

        That is now, or at the commit, where a row is left for it: both are one statement then. A question is a constant without
        parameters that selects one truth.
        """
        ((answer,),) = await self.read_beside(question)
        if answer:
            await self.flush()
            await then()

    def leave(self, row: Any) -> None:
        """Writes a new row at the end of the transaction, or before the next statement in it; its id is known then."""
        self.add(row)

    async def fetch(self, text: str, parameters: Sequence[Any]) -> Sequence[Sequence[Any]]:
        """What the driver gives for a text of its own dialect: rows of its values, as it spells them."""
        if self.new or self.dirty or self.deleted:
            await self.flush()
        async with self._turn:
            if self._driver is None or not self.in_transaction():
                connection = await (await self.connection()).get_raw_connection()
                self._driver, self._info = connection.driver_connection, connection.record_info
            self._database.tell(text, parameters)
            found: Sequence[Sequence[Any]]
            if self._database.dialect == "sqlite":
                found = await self._driver.execute_fetchall(text, parameters)
            else:
                found = await self._driver.fetch(text, *parameters)
        self._database.accounts.ran(self._info, text)
        return found

    def _attached(self, table: type, columns: dict[str, Any]) -> Any:
        """The session's row of this identity: the one that it has, or else one made of the columns. Raises _ExpiredError."""
        mapper: Mapper[Any] = inspect(table)
        key = mapper.identity_key_from_primary_key(
            tuple(columns[mapper.get_property_by_column(column).key] for column in mapper.primary_key)
        )
        known = self.identity_map.get(key)
        if known is not None:
            if inspect(known).expired_attributes:
                raise _ExpiredError
            return known
        row = mapper.class_manager.new_instance()
        row.__dict__.update(columns)
        make_transient_to_detached(row)
        self.add(row)
        return row

    async def execute(self, *args: Any, **settings: Any) -> Any:
        async with self._turn:
            return await super().execute(*args, **settings)

    async def scalar(self, *args: Any, **settings: Any) -> Any:
        async with self._turn:
            return await super().scalar(*args, **settings)

    async def flush(self, objects: Any = None) -> None:
        async with self._turn:
            await super().flush(objects)

    async def get(self, *args: Any, **settings: Any) -> Any:
        async with self._turn:
            return await super().get(*args, **settings)

    async def delete(self, instance: object) -> None:
        async with self._turn:
            await super().delete(instance)


class ReadingSession(Session):
    """A session for statements that change nothing. What `read` gives are plain rows, which belong to no session and cannot be changed.

    The ORM's own session, which costs more than a small statement, is made where a statement needs it (`__getattr__`).
    """

    def __init__(self, database: "Database") -> None:
        self._database = database
        self._turn = asyncio.Lock()
        self._reader: Reader | None = None
        self._closed = False

    def __getattr__(self, name: str) -> Any:
        if name not in ("sync_session", "_proxied", "_async_bind", "_async_binds"):
            raise AttributeError(name)
        AsyncSession.__init__(self, bind=self._database.engine, expire_on_commit=False, autoflush=False)
        return self.__dict__[name]

    async def read(self, statement: Any, values: Mapping[str, Any] | None = None) -> Sequence[Any]:
        bound = self._database.plans.bind(statement, values)
        if bound is None:
            return (await self.execute(statement, values)).all()  # type: ignore[no-any-return]
        text, parameters, shape = bound
        return shape.plain(await self.fetch(text, parameters))

    async def fetch(self, text: str, parameters: Sequence[Any]) -> Sequence[Sequence[Any]]:
        reader = self._reader
        if reader is None:
            if not self._closed and not self._turn.locked():
                reader = self._reader = self._database.readers.ready()
            reader = reader or await self._take()
        if reader.takes_many:
            self._database.tell(text, parameters)
            return await reader.fetch(text, parameters)
        async with self._turn:
            if self._closed:
                raise InvalidRequestError(CLOSED)
            self._database.tell(text, parameters)
            return await reader.fetch(text, parameters)

    async def _take(self) -> Reader:
        async with self._turn:
            if self._reader is None and not self._closed:
                reader = await self._database.readers.take()
                if self._closed:
                    self._database.readers.give_back(reader)
                else:
                    self._reader = reader
            if self._reader is None:
                # A loader that the end of its operation overtook.
                raise InvalidRequestError(CLOSED)
            return self._reader

    async def close(self) -> None:
        self._closed = True
        if self._reader is not None:
            self._database.readers.give_back(self._reader)
            self._reader = None
        if "sync_session" in self.__dict__:
            await super().close()

    async def __aexit__(self, *error: Any) -> None:
        if "sync_session" in self.__dict__:
            await super().__aexit__(*error)
        else:
            await self.close()


class Database:
    """One database: `sqlite+aiosqlite:///path` or `postgresql+asyncpg://…` (the plain names `sqlite`, `postgresql` mean these drivers)."""

    def __init__(self, url: str, *, pool_size: int = 10) -> None:
        self.url = driver_url(url)
        self.dialect = self.url.get_backend_name()
        settings: dict[str, Any] = {
            "json_serializer": lambda value: orjson.dumps(value).decode(),
            "json_deserializer": orjson.loads,
            "pool_size": pool_size,
            # As many again are the readers'.
            "max_overflow": 0,
            "pool_timeout": WAIT_SECONDS,
            # The text of an error gets into logs; what people wrote must not.
            "hide_parameters": True,
        }
        if self.dialect == "sqlite":
            settings["connect_args"] = {"timeout": WAIT_SECONDS, "isolation_level": None}
        else:
            settings["connect_args"] = {"async_creator_fn": _connect_to_postgresql, **POSTGRESQL}
        self.engine = create_async_engine(self.url, **settings)
        self.writing_engine = self.engine.execution_options(writing=True)
        self._queue = Queue(WAIT_SECONDS)
        self.plans = Plans(self.engine.dialect)
        self.accounts = Touched(self.engine.sync_engine, ("users", "tokens"), "forgefront_accounts")
        self.inserts = Inserts(self.engine.dialect)
        self._slow: set[str] = set()
        self.readers = Readers(self._connect_reader, pool_size, WAIT_SECONDS)
        if self.dialect == "sqlite":
            self._prepare_sqlite()
        else:
            event.listen(self.engine.sync_engine, "checkout", _refuse_closed)

    def reading(self) -> ReadingSession:
        """A session for statements that change nothing, to be entered; what it did is rolled back at the end."""
        return ReadingSession(self)

    def writing(self) -> "WritingSession":
        """A session whose transaction may write, to be entered. On SQLite what writes or locks first waits for its turn."""
        from storage.writing import WritingSession

        return WritingSession(self)

    async def write(self, statements: Sequence[Statement]) -> list[int]:
        """Runs INSERTs that give an id each as one transaction, past SQLAlchemy; gives the ids. Raises IntegrityError, Busy."""
        for text, parameters in statements:
            self.tell(text, parameters)
        ids = await self.writer.write(statements)
        if any(self.accounts.changes(text) for text, _ in statements):
            # New ones change nothing of those that are remembered; this is for others beside.
            self.accounts.forget()
        return ids

    @cached_property
    def writer(self) -> Writer:
        if self.dialect == "sqlite":
            return SqliteWriter(str(self.url.database), PRAGMAS, WAIT_SECONDS, self._queue)
        return PostgresWriter(self.engine.sync_engine.pool, self.engine.dialect)

    async def close(self) -> None:
        await self.readers.close()
        if "writer" in self.__dict__:
            self.writer.close()
        await self.engine.dispose()

    def tell(self, text: str, parameters: Sequence[Any]) -> None:
        """Lets whoever counts or times the engine's statements hear of one that goes to the driver itself."""
        for listener in self.engine.sync_engine.dispatch.before_cursor_execute:
            listener(None, None, text, parameters, None, False)

    async def _connect_reader(self) -> Reader:
        if self.dialect == "sqlite":
            return SqliteReader(str(self.url.database), PRAGMAS, WAIT_SECONDS, self._slow)
        connection = await self.connect_alone(default_transaction_read_only="on")
        # As SQLAlchemy's dialect does on its own connections.
        for name in ("json", "jsonb"):
            await connection.set_type_codec(name, schema="pg_catalog", encoder=str, decoder=orjson.loads)
        return PostgresReader(connection)

    async def connect_alone(self, **server_settings: str) -> Any:
        """A connection of asyncpg's that belongs to no pool; PostgreSQL only. Raises ConnectionError and what asyncpg raises."""
        arguments, settings = self.engine.dialect.create_connect_args(self.url)
        settings = {name: value for name, value in settings.items() if not name.startswith("prepared_statement_")}
        given = {**POSTGRESQL["server_settings"], **server_settings}
        return await _connect_to_postgresql(*arguments, **settings, **{**POSTGRESQL, "server_settings": given})

    @property
    def driver_errors(self) -> tuple[type[Exception], ...]:
        """What asyncpg raises, but for failures to reach the server."""
        import asyncpg

        return (asyncpg.PostgresError, asyncpg.InterfaceError)

    def _prepare_sqlite(self) -> None:
        engine = self.engine.sync_engine

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
            await_only(self._queue.enter())
            connection.info["queued"] = True
            try:
                connection.exec_driver_sql("BEGIN IMMEDIATE")
            except OperationalError as error:
                self._leave_queue(connection.info)
                if isinstance(error.orig, sqlite3.OperationalError) and "locked" in str(error.orig):
                    raise Busy("another process kept the database for too long") from error
                raise

        @event.listens_for(engine, "checkin")
        def checkin(connection: Any, entry: ConnectionPoolEntry) -> None:
            self._leave_queue(entry.info)

    def _leave_queue(self, info: dict[Any, Any]) -> None:
        if info.pop("queued", False):
            self._queue.leave()


def driver_url(url: str) -> URL:
    """The URL with the asynchronous driver of its database. Raises ValueError for a database that is neither SQLite nor PostgreSQL."""
    parsed = make_url(url)
    drivers = {"sqlite": "sqlite+aiosqlite", "postgresql": "postgresql+asyncpg", "postgres": "postgresql+asyncpg"}
    backend = parsed.drivername.partition("+")[0]
    if backend not in drivers:
        raise ValueError(f"the database must be SQLite or PostgreSQL, not {backend}")
    return parsed.set(drivername=drivers[backend])


def _refuse_closed(connection: Any, entry: ConnectionPoolEntry, fairy: Any) -> None:
    """The pool opens another one for a connection that broke while it rested; asyncpg has heard of that, so nobody need ask the server."""
    if connection.driver_connection.is_closed():
        raise DisconnectionError


async def _connect_to_postgresql(*args: Any, **settings: Any) -> Any:
    """asyncpg's connect, but every failure to reach the server is a ConnectionError, also the FileNotFoundError for its socket's file."""
    import asyncpg

    try:
        return await asyncpg.connect(*args, **settings)
    except OSError as error:
        raise ConnectionError(f"the database cannot be reached: {error.strerror or type(error).__name__}") from error
