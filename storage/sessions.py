"""Sessions: what an operation asks a database through, beside the ORM where that is cheaper. `writing.py` has the one of a change."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sqlalchemy import Select
from sqlalchemy.exc import InvalidRequestError
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.inspection import inspect
from sqlalchemy.orm import Mapper, make_transient_to_detached

from storage.readers import CLOSED, Reader

if TYPE_CHECKING:
    from storage.database import Database


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
