"""The changes that a session writes at its commit, as statements of the driver: deferred rows, and rows changed without a lock."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import Select
from sqlalchemy.inspection import inspect
from sqlalchemy.orm import Mapper

from storage.database.prepared_statements import Statement
from storage.database.statements.bulk_inserts import BulkRows
from storage.database.statements.insert_cache import InsertConditions, Numbering
from storage.database.statements.known_reads import KnownRead

if TYPE_CHECKING:
    from storage.database.engine import Database


class UnlockedRow(NamedTuple):
    """A row that must be as it was read: all columns that were read, and the version if it is known."""

    row: Any
    before: dict[str, Any]
    version: int | None


class PendingChanges:
    """The changes of one session that are not written yet.

    - `deferred`: new rows; `followers` are inserted with one of them, or with a row of `numbered`.
    - `numbered`: new rows that get their number when they are inserted.
    - `inserts`: values of constant INSERTs, by the identity of the statement.
    - `unlocked`: rows that must be as they were read; the session may have changed them since.
    - `required`: constant statements that must return a row.
    - `condition`: a statement, and an action that has to run before if it selects true.
    """

    __slots__ = ("condition", "deferred", "followers", "inserts", "numbered", "required", "unlocked")

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self.deferred: list[Any] = []
        self.followers: dict[int, tuple[Any, list[tuple[Any, str]]]] = {}
        self.condition: tuple[Select[Any], Callable[[], Awaitable[None]]] | None = None
        self.inserts: dict[int, tuple[Any, list[Mapping[str, Any]]]] = {}
        self.numbered: list[tuple[Any, Numbering]] = []
        self.unlocked: list[UnlockedRow] = []
        self.required: list[tuple[Any, Mapping[str, Any]]] = []

    @property
    def has_rows(self) -> bool:
        """Whether the transaction lacks rows or statements; rows that were changed do not count."""
        return bool(self.deferred or self.numbered or self.inserts or self.required)

    @property
    def must_flush(self) -> bool:
        """Whether something waits that the ORM does not write before its next statement."""
        return bool(self.inserts or self.numbered or self.unlocked or self.required)

    @property
    def is_one(self) -> bool:
        """Whether exactly one row waits."""
        return len(self.deferred) + len(self.numbered) + len(self.unlocked) + len(self.inserts) == 1

    @property
    def only_inserts(self) -> bool:
        """Whether new rows wait that no constant INSERT writes, and nothing else."""
        return bool(self.deferred or self.numbered) and not (self.unlocked or self.inserts or self.required)

    @property
    def skip_condition(self) -> Select[Any] | None:
        return self.condition[0] if self.condition is not None else None

    def add_follower(self, row: Any, follower: Any, key: str) -> None:
        self.followers.setdefault(id(row), (row, []))[1].append((follower, key))

    def add_inserts(self, statement: Any, rows: BulkRows) -> None:
        self.inserts.setdefault(id(statement), (statement, []))[1].extend(rows)

    def add_unlocked(self, row: Any, version: int | None) -> None:
        if not any(row is each.row for each in self.unlocked):
            self.unlocked.append(UnlockedRow(row, {name: row.__dict__[name] for name in _column_names(row.__class__)}, version))

    def bind_batch(self, database: "Database", change_count: int) -> tuple[list[Statement], int] | None:
        """Returns the statements that write everything, and how many of the first ones have to return a row; None if the ORM has to.

        `change_count` is the number of changed rows of the session.
        """
        updates = [database.update_cache.bind(row, before, None, version) for row, before, version in self.unlocked]
        deferred = [database.insert_cache.bind(row) for row in self.deferred]
        if None in updates or None in deferred or change_count > len(updates):
            return None
        statements: list[Any] = [*updates, *(database.update_cache.bind_constant(*each) for each in self.required)]
        required = len(statements)
        statements += [bound for (bound,) in deferred]  # type: ignore[misc]
        if self.inserts:
            statements += database.bulk_inserts.bind(list(self.inserts.values()))
        return statements, required

    def assign_batch_ids(self, ids: Sequence[int], required: int) -> None:
        """Sets the ids of the new rows; `ids` are those of `bind_batch`'s statements."""
        for row, row_id in zip(self.deferred, ids[required:], strict=False):
            row.__dict__["id"] = row_id

    def bind_inserts(self, database: "Database", known: KnownRead | None) -> list[Statement] | None:
        """Returns the statements that insert the new rows and their followers; None if the ORM has to insert them.

        On PostgreSQL they do nothing if the condition is true, or `known` is outdated.
        """
        max_statements = database.writer.max_statements
        conditions = InsertConditions(self.skip_condition, *((known.select.check, known.values) if known is not None else ()))
        if max_statements is not None and len(self.deferred) + len(self.numbered) > max_statements:
            return None
        statements: list[Statement] = []
        for row, numbering in self.numbered:
            _, followers = self.followers[id(row)]
            bound = database.insert_cache.bind_numbered(row, numbering, followers, conditions)
            if bound is None:
                return None
            statements += bound
        for row in self.deferred:
            _, followers = self.followers.get(id(row), (row, []))
            bound = database.insert_cache.bind(row, conditions, followers)
            if bound is None:
                return None
            statements += bound
        return statements

    def assign_ids(self, ids: Sequence[int], *, one_statement: bool) -> None:
        """Sets the numbers and ids of the new rows; `ids` are those of `bind_inserts`'s statements.

        `one_statement`: a row and its followers are one statement, as on PostgreSQL.
        """
        found = iter(ids)
        written: list[tuple[Any, str | None]] = [(row, numbering.column) for row, numbering in self.numbered]
        written += [(row, None) for row in self.deferred]
        for row, column in written:
            if column is not None:
                row.__dict__[column] = next(found)
            row.__dict__["id"] = next(found)
            if id(row) in self.followers and not one_statement:
                for _ in self.followers[id(row)][1]:
                    next(found)


@cache
def _column_names(table: type) -> list[str]:
    mapper: Mapper[Any] = inspect(table)
    return [column.key for column in mapper.columns]
