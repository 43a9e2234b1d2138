"""The session of a change. It begins its transaction where it must, and takes no part in the ORM where it need not.

Most changes look a few things up and then write a row. Until something is written or locked a session reads beside the ORM, as one that
only reads does (on PostgreSQL nothing else was seen at READ COMMITTED; on SQLite no other writer has to wait meanwhile); and a row that
nobody needs before the end is written by the commit itself, which is one statement then.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from sqlalchemy import Select
from sqlalchemy.exc import InvalidRequestError
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.inspection import inspect
from sqlalchemy.orm import Mapper
from sqlalchemy.orm.attributes import instance_state

from storage.readers import CLOSED, Reader
from storage.sessions import Session

if TYPE_CHECKING:
    from storage.database import Database

SELECTS = ("SELECT", "WITH")
"""How texts begin that change nothing; a reader refuses one that does all the same."""


class WritingSession(Session):
    """A session whose transaction may write. What `commit` did not keep is rolled back at the end.

    The ORM's own session is made where a statement needs it (`__getattr__`), with all rows that were read by then: from there on everything
    is the ORM's, within one transaction.
    """

    def __init__(self, database: "Database") -> None:
        self._database = database
        self._turn = asyncio.Lock()
        self._driver = None
        self._info = None
        self._reader: Reader | None = None
        self._reading = 0
        self._begun = self._ended = False
        self._rows: dict[Any, Any] = {}
        self._left: list[Any] = []
        self._question: tuple[Select[Any], Callable[[], Awaitable[None]]] | None = None

    def __getattr__(self, name: str) -> Any:
        if name not in ("sync_session", "_proxied", "_async_bind", "_async_binds"):
            raise AttributeError(name)
        AsyncSession.__init__(self, bind=self._database.writing_engine, expire_on_commit=False)
        self._begun = True
        if not self._reading:
            self._give_back()
        self.add_all([*self._rows.values(), *self._left])
        self._rows, self._left = {}, []
        return self.__dict__[name]

    def leave(self, row: Any) -> None:
        if self._begun:
            self.add(row)
        else:
            self._left.append(row)

    async def read(self, statement: Any, values: Mapping[str, Any] | None = None) -> Sequence[Any]:
        if self._is_pending():
            await self.flush()
        return await self.read_beside(statement, values)

    async def read_beside(self, statement: Any, values: Mapping[str, Any] | None = None) -> Sequence[Any]:
        if self._begun:
            return await super().read(statement, values)
        bound = self._database.plans.bind(statement, values)
        if bound is None:
            return (await self.execute(statement, values)).all()  # type: ignore[no-any-return]
        text, parameters, shape = bound
        return shape.built(await self._asked(text, parameters), self._own)

    async def fetch(self, text: str, parameters: Sequence[Any]) -> Sequence[Sequence[Any]]:
        if self._is_pending():
            await self.flush()
        if self._begun or not text.startswith(SELECTS):
            return await super().fetch(text, parameters)
        return await self._asked(text, parameters)

    async def _asked(self, text: str, parameters: Sequence[Any]) -> Sequence[Sequence[Any]]:
        """What a reader gives, before there is a transaction."""
        self._reading += 1
        try:
            reader = self._reader
            if reader is None:
                if not self._ended and not self._turn.locked():
                    reader = self._reader = self._database.readers.ready()
                reader = reader or await self._take()
            if reader.takes_many:
                self._database.tell(text, parameters)
                return await reader.fetch(text, parameters)
            async with self._turn:
                self._database.tell(text, parameters)
                return await reader.fetch(text, parameters)
        finally:
            self._reading -= 1

    async def _take(self) -> Reader:
        async with self._turn:
            if self._ended:
                # A loader that the end of its operation overtook.
                raise InvalidRequestError(CLOSED)
            if self._reader is None:
                self._reader = await self._database.readers.take()
            return self._reader

    def _give_back(self) -> None:
        if self._reader is not None:
            self._database.readers.give_back(self._reader)
            self._reader = None

    def _own(self, table: type, columns: dict[str, Any]) -> Any:
        """The session's row of this identity, which the ORM's own gets once there is one."""
        if self._begun:
            return self._attached(table, columns)
        new, kind, names = _identity(table)
        key = (kind, tuple([columns[name] for name in names]), None)
        row = self._rows.get(key)
        if row is None:
            row = self._rows[key] = new()
            row.__dict__.update(columns)
            instance_state(row).key = key
        return row

    async def flush(self, objects: Any = None) -> None:
        if self._begun or self._is_pending():
            await super().flush(objects)

    def _is_pending(self) -> bool:
        """Whether something waits to be written, of what the ORM's own session does not know yet."""
        return bool(self._left) or self._is_changed()

    def _is_changed(self) -> bool:
        return any(instance_state(row).modified for row in self._rows.values())

    async def when(self, question: Select[Any], then: Callable[[], Awaitable[None]]) -> None:
        if self._begun or self._question is not None or len(self._left) != 1 or self._database.writer.most != 1:
            await super().when(question, then)
        else:
            self._question = question, then

    async def commit(self) -> None:
        if self._begun or self._is_changed() or not await self._written_alone():
            if self._question is not None:
                asked, self._question = self._question, None
                await super().when(*asked)
            await super().commit()

    async def _written_alone(self) -> bool:
        """Writes the rows that were left, past the ORM. False: it is the ORM that can."""
        most, unless = self._database.writer.most, self._question[0] if self._question is not None else None
        if most is not None and len(self._left) > most:
            return False
        statements = [statement for row in self._left if (statement := self._database.inserts.bind(row, unless)) is not None]
        if len(statements) != len(self._left):
            return False
        self._give_back()
        if statements:
            rows, self._left = self._left, []
            ids = await self._database.write(statements)
            if not ids:
                # The answer was yes.
                self._left = rows
                return False
            for row, id in zip(rows, ids, strict=True):
                row.__dict__["id"] = id
        self._question = None
        return True

    async def rollback(self) -> None:
        self._left, self._question = [], None
        if self._begun:
            await super().rollback()

    async def close(self) -> None:
        self._rows, self._left, self._question = {}, [], None
        self._give_back()
        if self._begun:
            await super().close()

    async def __aexit__(self, *error: Any) -> None:
        self._ended = True
        if self._begun:
            await super().__aexit__(*error)
        else:
            await self.close()


@cache
def _identity(table: type) -> tuple[Callable[[], Any], type, list[str]]:
    """What makes an empty row of a table, and the class and the attributes that `Mapper.identity_key_from_primary_key` makes a key of."""
    mapper: Mapper[Any] = inspect(table)
    names = [mapper.get_property_by_column(column).key for column in mapper.primary_key]
    return mapper.class_manager.new_instance, mapper._identity_class, names
