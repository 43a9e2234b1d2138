"""What earlier write sessions have read on PostgreSQL, for later ones whose INSERT checks that it is still so.

Somebody who writes once in a project often writes again: an import, a bot, a discussion. The project, the issue, and the writer's level are
the same each time, so a session takes what the last one has read, and its INSERT inserts nothing if one of these rows has another version
now (`storage/database/statements/row_versions.py`) or a single value is another. That is one round trip to the server instead of two.
SQLite, which answers such a read within the process, does without.
"""

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson
from sqlalchemy import ColumnElement, Integer, Select, bindparam, exists, literal_column
from sqlalchemy.inspection import inspect
from sqlalchemy.orm import Mapper

from storage.caches import CacheBounds, LruCache
from storage.database.statements.row_codegen import RowFactory
from storage.database.statements.row_versions import TransactionNumber, row_version
from storage.database.statements.statement_cache import CompiledSelect, StatementCache, mark_constant

KNOWN_READS = CacheBounds("known reads", max_entries=1_000, max_bytes=2 * 2**20, max_entry_bytes=2**16)
MAX_AGE_SECONDS = 600.0
"""A version is the number of a transaction, of which PostgreSQL has 2**32 before they begin again."""

Identity = tuple[type, int]
"""The table and the id of a row."""

_VERSION, _VALUE = "known_version_", "known_value_"


@dataclass(frozen=True, slots=True, eq=False)
class CheckedSelect:
    """A constant statement as it is run: with the versions of the rows of its tables after its own columns, which `row_factory` builds.

    `check` is true if a row with its parameters has the same versions and integers. `names` are the parameters of these by column index,
    `ids` the indexes of the ids of its tables.
    """

    compiled: CompiledSelect
    row_factory: RowFactory
    check: ColumnElement[bool]
    names: Mapping[int, str]
    ids: Sequence[tuple[type, int]]

    def bind(self, values: Mapping[str, Any]) -> tuple[str, list[Any]]:
        """Returns the SQL string and its parameters."""
        bound = self.compiled.bind_single(values)
        assert bound is not None  # noqa: S101 - it has no lists
        return bound[:2]


@dataclass(frozen=True, slots=True, eq=False)
class KnownRead:
    """The only row of a statement with some values of its parameters. `values` are those and the values of the check's parameters.

    `identities` are those of the rows of tables in it.
    """

    select: CheckedSelect
    key: tuple[Any, ...]
    rows: Sequence[Sequence[Any]]
    identities: Sequence[Identity]
    text_length: int
    values: Mapping[str, Any]
    read_at: float


class KnownReads:
    """The known reads of one database; one cache per process."""

    def __init__(self, statement_cache: StatementCache) -> None:
        self._statement_cache = statement_cache
        self._selects: dict[int, CheckedSelect] = {}
        self._reads: LruCache[tuple[Any, ...], KnownRead] = LruCache(
            KNOWN_READS, lambda _, read: 4_500 + 2 * read.text_length, lambda _, read: self._remove_keys(read)
        )
        self._keys: dict[Identity, set[tuple[Any, ...]]] = {}
        """The keys of the reads that have a row."""

    def find_select(self, statement: Select[Any]) -> CheckedSelect:
        """Returns how a constant statement is run. It selects tables and integers, and has no lists."""
        select = self._selects.get(id(statement))
        if select is None:
            select = self._selects[id(statement)] = self._make_select(mark_constant(statement))
        return select

    def find(self, statement: Select[Any], values: Mapping[str, Any]) -> KnownRead | None:
        """Returns what a constant statement has returned for these values of its parameters."""
        key = _key(statement, values)
        read = self._reads.get(key)
        if read is not None and time.monotonic() - read.read_at > MAX_AGE_SECONDS:
            self._remove(read)
            return None
        return read

    def forget(self, changed: Iterable[Identity]) -> None:
        """Removes the reads of rows that this process has changed.

        Their checks would fail, after which everything is read and done again.
        """
        for identity in changed:
            for key in tuple(self._keys.get(identity, ())):
                read = self._reads.get(key)
                if read is not None:
                    self._remove(read)

    def clear(self) -> None:
        """Forgets everything that was read."""
        self._reads.clear()
        self._keys.clear()

    def keep(self, statement: Select[Any], values: Mapping[str, Any], rows: Sequence[Sequence[Any]]) -> None:
        """Keeps what the statement's `CheckedSelect` has returned."""
        self._keep(_key(statement, values), self.find_select(statement), values, rows)

    def replace(self, read: KnownRead, rows: Sequence[Sequence[Any]]) -> None:
        """Replaces an outdated read by what its statement returns now."""
        self._remove(read)
        self._keep(read.key, read.select, read.values, rows)

    def _keep(self, key: tuple[Any, ...], select: CheckedSelect, values: Mapping[str, Any], rows: Sequence[Sequence[Any]]) -> None:
        if len(rows) != 1:
            return
        (row,) = rows
        checked = {name: row[index] for index, name in select.names.items()}
        if any(value is None for name, value in checked.items() if name.startswith(_VERSION)):
            # An outer join has found nothing.
            return
        replaced = self._reads.get(key)
        if replaced is not None:
            self._remove(replaced)
        identities = [(table, row[index]) for table, index in select.ids]
        length = sum([_text_length(value) for value in row])
        for identity in identities:
            self._keys.setdefault(identity, set()).add(key)
        self._reads.put(key, KnownRead(select, key, rows, identities, length, {**values, **checked}, time.monotonic()))

    def _remove(self, read: KnownRead) -> None:
        self._reads.pop(read.key)
        self._remove_keys(read)

    def _remove_keys(self, read: KnownRead) -> None:
        for identity in read.identities:
            keys = self._keys.get(identity, set())
            keys.discard(read.key)
            if not keys:
                self._keys.pop(identity, None)

    def _make_select(self, statement: Select[Any]) -> CheckedSelect:
        versions: list[ColumnElement[Any]] = []
        conditions: list[ColumnElement[bool]] = []
        names: dict[int, str] = {}
        ids: list[tuple[type, int]] = []
        position, keys = 0, [column.key for column in statement.selected_columns]
        for description in statement.column_descriptions:
            mapper: Any = inspect(description["expr"], raiseerr=False)
            if isinstance(mapper, Mapper):
                ids.append((mapper.class_, keys.index(mapper.primary_key[0].key, position)))
                position += len(mapper.columns)
                versions.append(row_version(mapper))
            else:
                names[position] = f"{_VALUE}{position}"
                conditions.append(description["expr"].is_not_distinct_from(bindparam(names[position], type_=Integer)))
                position += 1
        for number, version in enumerate(versions):
            names[position + number] = f"{_VERSION}{number}"
            conditions.append(version == bindparam(names[position + number], type_=TransactionNumber()))
        # Of equal names, only the first would be selected.
        columns = [version.label(f"{_VERSION}{number}") for number, version in enumerate(versions)]
        check = exists(statement.with_only_columns(literal_column("1"), maintain_column_froms=True).where(*conditions))
        compiled = self._statement_cache.compile(statement.add_columns(*columns))
        return CheckedSelect(compiled, self._statement_cache.compile(statement).row_factory, check, names, ids)


def _key(statement: Select[Any], values: Mapping[str, Any]) -> tuple[Any, ...]:
    return id(statement), *values.items()


def _text_length(value: Any) -> int:
    if isinstance(value, str):
        return len(value)
    return len(orjson.dumps(value)) if isinstance(value, list | dict) else 0
