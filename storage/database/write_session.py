"""The session of a mutation. It begins its transaction as late as possible, and uses the ORM only where it has to.

Most mutations look up a few rows and then write one. Until something is written or locked, the session reads without the ORM, as a read
session does (on PostgreSQL, READ COMMITTED would show the same; on SQLite, no other writer has to wait meanwhile). A row that is not
needed before the end is inserted by the commit itself, which is then one statement.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from sqlalchemy import Select, select
from sqlalchemy.exc import IntegrityError, InvalidRequestError
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.inspection import inspect
from sqlalchemy.orm import Mapper
from sqlalchemy.orm.attributes import instance_state

from storage.database.known_read_session import CHANGED, KnownReadSession, RecordingSession
from storage.database.pending_changes import PendingChanges
from storage.database.readers import CLOSED_MESSAGE
from storage.database.sessions import ORM_ATTRIBUTES
from storage.database.statements.bulk_inserts import BulkRows
from storage.database.statements.insert_cache import Numbering
from storage.database.statements.update_cache import WAS_CHANGED, WAS_SKIPPED
from storage.database.text_budget import TextBudget, TextColumns
from storage.database.writers import ConcurrentChange

if TYPE_CHECKING:
    from storage.database.engine import Database

SELECT_PREFIXES = ("SELECT", "WITH")
"""Statements that begin so are run by a reader; its connection is read-only, so it rejects one that writes."""


class WriteSession(KnownReadSession):
    """A session whose transaction may write. Uncommitted changes are rolled back at the end.

    The ORM session is created when a statement needs it (`__getattr__`), with all rows that were read until then: from there on the ORM
    does everything, within one transaction.
    """

    def __init__(self, database: "Database", budget: TextBudget | None = None) -> None:
        self._database = database
        self.budget = budget
        self._statement_lock = asyncio.Lock()
        self._driver_connection = None
        self._connection_info = None
        self._connected_transaction = None
        self._active_reads = 0
        self._has_begun = False
        self._rows: dict[Any, Any] = {}
        self._versions: dict[int, int | None] = {}
        """Versions of rows that were read, by the `id()` of the row; None if it may have been read before its version."""
        self._pending = PendingChanges()
        self._reads_before_changes = False

    def __getattr__(self, name: str) -> Any:
        if name not in ORM_ATTRIBUTES:
            raise AttributeError(name)
        if self._has_ended:
            raise InvalidRequestError(CLOSED_MESSAGE)
        AsyncSession.__init__(self, bind=self._database.write_engine, expire_on_commit=False, sync_session_class=RecordingSession)
        self._has_begun = True
        if not self._active_reads:
            self._release_reader()
        self.add_all([*self._rows.values(), *self._pending.deferred])
        self._rows, self._pending.deferred = {}, []
        return self.__dict__[name]

    def add_deferred(self, row: Any) -> None:
        if self._has_begun:
            self.add(row)
        else:
            self._pending.deferred.append(row)

    def add_with_follower(self, row: Any, follower: Any, key: str) -> None:
        """As `add_deferred`, with a second row whose column `key` is the id of the first one."""
        self.add_deferred(row)
        self.add_follower(row, follower, key)

    def add_follower(self, row: Any, follower: Any, key: str) -> None:
        """Adds one more row that is inserted together with a row that waits; `key` is empty if it does not refer to it."""
        self._pending.add_follower(row, follower, key)

    def add_numbered(self, row: Any, numbering: Numbering, follower: Any, key: str) -> None:
        """As `add_with_follower`, for a row that gets its number when it is inserted."""
        self._pending.numbered.append((row, numbering))
        self.add_follower(row, follower, key)

    @property
    def locks_at_commit(self) -> bool:
        """Whether nothing is locked, because the commit finds out what has changed (`lock_later`)."""
        return bool(self._pending.unlocked) and not self._has_begun

    def lock_later(self, row: Any, *, reads_before_changes: bool = False) -> bool:
        """Whether a row that this session has read need not be locked, because the commit raises ConcurrentChange if it was changed.

        That is so if the caller repeats the transaction then (`may_repeat`). The commit writes such rows in the order of these calls.
        `reads_before_changes`: the statements that follow need not see what the transaction changes.
        """
        if not self.may_repeat or self._has_begun or self._rows.get(instance_state(row).key) is not row:
            return False
        self._reads_before_changes |= reads_before_changes
        self._pending.add_unlocked(row, self._versions.get(id(row)))
        return True

    @property
    def reads_versions(self) -> bool:
        return self.may_repeat and not self.uses_known_reads and not self._has_begun and self._database.dialect == "postgresql"

    def keep_version(self, row: Any, version: int) -> None:
        self._versions.setdefault(id(row), version)

    def require_later(self, statement: Any, values: Mapping[str, Any]) -> bool:
        """Whether a statement is left to the commit, which raises ConcurrentChange if it returns no row.

        That is so after `lock_later`. `statement` is constant, with a named parameter for each value, and returns an id.
        """
        if not self.locks_at_commit:
            return False
        self._pending.required.append((statement, values))
        return True

    def insert_later(self, statement: Any, rows: BulkRows) -> None:
        """Inserts rows by the end of the transaction, and before its next statement that may depend on them.

        `statement` is a constant INSERT without values.
        """
        if rows:
            self._pending.add_inserts(statement, rows)

    async def read(self, statement: Any, values: Mapping[str, Any] | None = None) -> Sequence[Any]:
        if self._has_pending() and not (self._reads_before_changes and self.locks_at_commit):
            await self.flush()
        return await self.read_without_flush(statement, values)

    async def read_without_flush(self, statement: Any, values: Mapping[str, Any] | None = None) -> Sequence[Any]:
        if self._has_begun:
            pending = self._pending
            waiting, pending.inserts = pending.inserts, {}
            try:
                return await super().read(statement, values)
            finally:
                pending.inserts = waiting
        bound = self._database.statement_cache.bind(statement, values)
        if bound is None:
            return (await self.execute(statement, values)).all()  # type: ignore[no-any-return]
        sql, parameters, row_factory = bound
        return row_factory.session_rows(await self._fetch_with_reader(sql, parameters, row_factory.text_columns), self._own_row)

    async def fetch(self, sql: str, parameters: Sequence[Any], columns: TextColumns | None = None) -> Sequence[Sequence[Any]]:
        if self._has_pending():
            await self.flush()
        if self._has_begun or not sql.startswith(SELECT_PREFIXES):
            return await super().fetch(sql, parameters, columns)
        return await self._fetch_with_reader(sql, parameters, columns)

    async def _fetch_with_reader(self, sql: str, parameters: Sequence[Any], columns: TextColumns | None) -> Sequence[Sequence[Any]]:
        """Runs a statement on a reader, before the transaction begins."""
        self._active_reads += 1
        try:
            reader = self._reader or await self._acquire_first_reader()
            if reader.is_concurrent:
                self._database.record_statement(sql, parameters)
                return await reader.fetch(sql, parameters, columns, self.budget)
            async with self._statement_lock:
                if self._reader is not reader:
                    # It was released during the wait for the lock, so another session may use it.
                    reader = await self._acquire_reader()
                self._database.record_statement(sql, parameters)
                return await reader.fetch(sql, parameters, columns, self.budget)
        finally:
            self._active_reads -= 1

    def _own_row(self, table: type, columns: dict[str, Any]) -> Any:
        """Returns the session's row with this identity; the ORM session takes it over when it is created."""
        if self._has_begun:
            return self._attach_row(table, columns)
        new, kind, names = _row_identity(table)
        key = (kind, tuple([columns[name] for name in names]), None)
        row = self._rows.get(key)
        if row is None:
            row = self._rows[key] = new()
            row.__dict__.update(columns)
            instance_state(row).key = key
        else:
            # It stays as it was read first, so a version that was read with it now may be newer.
            self._versions.setdefault(id(row), None)
        return row

    async def flush(self, objects: Any = None) -> None:
        pending = self._pending
        if self._has_begun or self._has_pending() or pending.unlocked:
            if pending.unlocked:
                await self._lock_rows()
            if pending.numbered:
                await self._number_rows()
            await super().flush(objects)
            if pending.required:
                await self._run_required()
            if pending.followers:
                await self._flush_followers()
            if pending.inserts:
                await self._flush_inserts()

    async def _flush_followers(self) -> None:
        followers, self._pending.followers = self._pending.followers, {}
        for row, waiting in followers.values():
            for follower, key in waiting:
                if key:
                    setattr(follower, key, row.id)
                self.add(follower)
        await super().flush()

    async def _number_rows(self) -> None:
        numbered, self._pending.numbered = self._pending.numbered, []
        for row, numbering in numbered:
            sql, parameters = self._database.insert_cache.bind_advance(numbering)
            async with self._statement_lock:
                ((value,),) = await (await self.connection()).exec_driver_sql(sql, tuple(parameters))
            setattr(row, numbering.column, value)
            self.add(row)

    async def _lock_rows(self) -> None:
        """Locks the rows that `lock_later` has left unlocked. Raises ConcurrentChange if one was changed or deleted meanwhile."""
        unlocked, self._pending.unlocked = self._pending.unlocked, []
        for row, before, _ in unlocked:
            columns = inspect(type(row)).columns
            statement = select(*[columns[name] for name in before]).where(columns["id"] == row.id).with_for_update(key_share=True)
            async with self._statement_lock:
                found = (await (await self.connection()).execute(statement)).one_or_none()
            if found is None or tuple(found) != tuple(before.values()):
                raise ConcurrentChange

    async def _run_required(self) -> None:
        required, self._pending.required = self._pending.required, []
        for statement, values in required:
            async with self._statement_lock:
                found = (await (await self.connection()).execute(statement, values)).first()
            if found is None:
                raise ConcurrentChange

    async def _flush_inserts(self) -> None:
        inserts, self._pending.inserts = list(self._pending.inserts.values()), {}
        async with self._statement_lock:
            connection = await self.connection()
            for sql, parameters in self._database.bulk_inserts.bind(inserts):
                await connection.exec_driver_sql(sql, parameters)

    async def execute(self, *args: Any, **settings: Any) -> Any:
        if self._pending.must_flush:
            await self.flush()
        return await super().execute(*args, **settings)

    async def scalar(self, *args: Any, **settings: Any) -> Any:
        if self._pending.must_flush:
            await self.flush()
        return await super().scalar(*args, **settings)

    async def delete(self, instance: object) -> None:
        if self._pending.must_flush:
            await self.flush()
        await super().delete(instance)

    def _has_pending(self) -> bool:
        """Whether rows wait that the transaction does not have yet, or are changed."""
        return self._pending.has_rows or bool(self._count_changes())

    def _is_unused(self) -> bool:
        return not self._has_begun and not self._has_pending()

    def _count_changes(self, beside: Any = None) -> int:
        return sum(instance_state(row).modified for row in self._rows.values() if row is not beside)

    async def run_if(self, condition: Select[Any], action: Callable[[], Awaitable[None]]) -> None:
        pending = self._pending
        if self._has_begun or pending.condition is not None or not pending.is_one or self._database.writer.max_statements != 1:
            await super().run_if(condition, action)
        else:
            pending.condition = condition, action

    async def commit(self) -> None:
        pending = self._pending
        if self._known is not None and (self._has_begun or not pending.only_inserts or self._count_changes()):
            await self._verify_known()
        if pending.unlocked and not self._has_begun and await self._write_batch():
            return
        if pending.inserts or (self._has_begun and pending.must_flush):
            await self.flush()
        if pending.unlocked and await self._update_directly():
            return
        if self._has_begun or self._count_changes() or not await self._insert_directly():
            if pending.must_flush:
                await self.flush()
            if pending.condition is not None:
                condition, pending.condition = pending.condition, None
                await super().run_if(*condition)
            if pending.followers:
                await self.flush()
            await super().commit()
            self._forget_known(self.info.pop(CHANGED, ()))

    async def _update_directly(self) -> bool:
        """Changes the unlocked row, the only one, without the ORM. Returns False if the ORM has to do it. Raises ConcurrentChange."""
        pending = self._pending
        if self._has_begun or pending.deferred or pending.numbered or len(pending.unlocked) > 1 or self._count_changes() > 1:
            return False
        ((row, before, version),) = pending.unlocked
        bound = self._database.update_cache.bind(row, before, pending.skip_condition, version)
        if bound is None:
            # Nothing was changed in the end. The ORM would write nothing either, but begin a transaction for it.
            pending.unlocked = []
            if pending.has_rows or pending.followers or pending.condition is not None or self._count_changes(beside=row):
                return False
            self._forget_rows()
            return True
        self._release_reader()
        (found,) = await self._database.write([bound])
        if found == WAS_SKIPPED:
            return False
        if found == WAS_CHANGED:
            raise ConcurrentChange
        self._forget_known([(type(row), row.id)])
        pending.unlocked, pending.condition = [], None
        self._forget_rows()
        return True

    def _forget_rows(self) -> None:
        self._rows.clear()
        self._versions.clear()

    async def _write_batch(self) -> bool:
        """Writes the unlocked rows and all that waits, without the ORM. Returns False if that is not all. Raises ConcurrentChange.

        A single changed row is left to `_update_directly`.
        """
        pending = self._pending
        has_more = pending.inserts or pending.required or pending.deferred or len(pending.unlocked) > 1
        if not has_more or pending.numbered or pending.followers:
            return False
        if pending.condition is not None and (await self.read_without_flush(pending.condition[0]))[0][0]:
            return False
        bound = pending.bind_batch(self._database, self._count_changes())
        if bound is None:
            return False
        statements, required = bound
        self._release_reader()
        try:
            ids = await self._database.write(statements, required)
        except IntegrityError as error:
            # A row to which another refers was deleted meanwhile, or there is an equal one now.
            raise ConcurrentChange from error
        self._forget_known([(type(row), row.id) for row, _, _ in pending.unlocked])
        pending.assign_batch_ids(ids, required)
        pending.clear()
        self._forget_rows()
        return True

    async def _insert_directly(self) -> bool:
        """Inserts the deferred rows without the ORM. Returns False if the ORM has to do it. Raises ConcurrentChange."""
        known = self._known
        statements = self._pending.bind_inserts(self._database, known)
        if statements is None:
            await self._verify_known()
            return False
        self._release_reader()
        if statements:
            # The rows are not written a second time if this is canceled.
            pending, self._pending = self._pending, PendingChanges()
            self._known = None
            ids = await self._database.write(statements)
            if not ids:
                # Nothing was inserted: the known read is outdated, or the condition is true and the action has to run first.
                self._pending, self._known = pending, known
                await self._verify_known()
                return False
            pending.assign_ids(ids, one_statement=self._database.writer.max_statements is not None)
        self._pending.clear()
        return True

    async def rollback(self) -> None:
        self._pending.clear()
        self._known = None
        if self._has_begun:
            await super().rollback()

    async def close(self) -> None:
        self._forget_rows()
        self._pending.clear()
        self._known = None
        self._release_reader()
        if self._has_begun:
            try:
                await super().close()
            finally:
                if self._has_ended:
                    self._has_begun = False
                    self._drop_orm_session()

    async def __aexit__(self, *error: Any) -> None:
        self._has_ended = True
        if self._has_begun:
            await super().__aexit__(*error)
        else:
            await self.close()


@cache
def _row_identity(table: type) -> tuple[Callable[[], Any], type, list[str]]:
    """Returns the constructor of an empty row, and the class and attributes of `Mapper.identity_key_from_primary_key`'s keys."""
    mapper: Mapper[Any] = inspect(table)
    names = [mapper.get_property_by_column(column).key for column in mapper.primary_key]
    return mapper.class_manager.new_instance, mapper._identity_class, names
