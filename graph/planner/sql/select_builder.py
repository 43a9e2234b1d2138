"""Builds the SELECT of a plan: columns of a table and of rows it refers to, and lists of names.

A `SelectSource` is a table under an alias of its own, so that the conditions of a list, which name the table itself, never mean it.
An expression that several fields need is selected once.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from sqlalchemy import JSON, ColumnElement, Select, Text, and_, not_, select, type_coerce
from sqlalchemy.inspection import inspect
from sqlalchemy.orm import Mapper
from sqlalchemy.types import NullType

from graph.fields.declarations import IndexedBy
from graph.rules.permissions.sql_policy import SQL_VIEWER, VIEWER_ID, VIEWER_IS_ADMIN, SqlViewer
from storage.database.column_types import Timestamp
from storage.database.statements.compiled_statements import SqlDialect, column_names_in, substitute_columns
from storage.database.statements.statement_cache import result_processor

Expression = ColumnElement[Any]

VIEWER_PARAMETERS = frozenset((VIEWER_ID, VIEWER_IS_ADMIN))
MAX_JOINED_TABLES = 12
"""Joined tables of one statement; loaders load what is further away."""


class TableAlias:
    """A table under a name of its own, as `issues__2`, and what is selected of it.

    All statements share these.
    """

    def __init__(self, row: Any, number: int, sql_dialect: SqlDialect) -> None:
        self.mapper: Mapper[Any] = inspect(row)
        self.table: Any = row.__table__.alias(f"{row.__tablename__}__{number}")
        self._sql_dialect = sql_dialect
        self._expressions: dict[Any, Expression] = {}

    def column(self, key: str) -> Expression:
        """The column of this attribute."""
        return self._get_expression(key, lambda: self.table.corresponding_column(self.mapper.columns[key]))

    def timestamp_string(self, key: str) -> Expression:
        return self._get_expression((key, "bare"), lambda: self._sql_dialect.utc_timestamp_string(self.column(key)))

    def name_list(self, statement: Any) -> Expression:
        return self._get_expression(statement, lambda: self._sql_dialect.aggregate_list(statement([self.column("id")]), self.table))

    def for_viewers(self, select: Callable[[Any, SqlViewer], Any]) -> Any:
        """What a declaration selects of this table, for all viewers."""
        return self._get_expression(select, lambda: select(self.table.c, SQL_VIEWER))

    def id_equals(self, other: "TableAlias", key: str) -> Expression:
        """The condition that another table's column refers to this one."""
        return self._get_expression((other, key), lambda: self.column("id") == other.column(key))

    def _get_expression(self, key: Any, make: Callable[[], Expression]) -> Expression:
        found = self._expressions.get(key)
        if found is None:
            found = self._expressions[key] = make()
        return found


_TABLE_ALIASES: dict[tuple[type, int, str], TableAlias] = {}


def _get_table_alias(row: type, number: int, sql_dialect: SqlDialect) -> TableAlias:
    key = (row, number, sql_dialect.dialect.name)
    if key not in _TABLE_ALIASES:
        _TABLE_ALIASES[key] = TableAlias(row, number, sql_dialect)
    return _TABLE_ALIASES[key]


class SelectBuilder:
    """The columns and joins of one statement, added while an operation is compiled.

    `root` is the table of its rows.
    """

    def __init__(self, row: type, sql_dialect: SqlDialect) -> None:
        self.sql_dialect = sql_dialect
        self.expressions: list[Expression] = []
        self.needs_viewer = False
        """Whether the statement has the parameters of the viewer."""
        self.name_lists: dict[int, Callable[[list[Any]], Any]] = {}
        """The declarations of the root's lists of names, by their indexes."""
        self._joins: list[tuple[SelectSource, Expression]] = []
        self._alias_counts: Counter[type] = Counter()
        self.root = SelectSource(self, row)

    def add(self, expression: Expression) -> int:
        """The index of a value in the rows of the statement."""
        self.expressions.append(expression)
        return len(self.expressions) - 1

    def next_alias(self, row: type) -> TableAlias:
        """The table under a name that no other has in this statement."""
        self._alias_counts[row] += 1
        return _get_table_alias(row, self._alias_counts[row], self.sql_dialect)

    def add_join(self, source: "SelectSource", condition: Expression) -> None:
        """Adds a LEFT JOIN of a table. The caller has checked `is_full`."""
        self._joins.append((source, condition))

    @property
    def is_full(self) -> bool:
        return len(self._joins) >= MAX_JOINED_TABLES

    def join_relations(self, statement: Select[Any]) -> Select[Any]:
        """Adds the expressions, as the driver returns their values, to a statement that selects rows of the root's table."""
        table, alias = self.root.row.__table__, self.root.table
        for source, condition in self._conditions():
            statement = statement.outerjoin(source.table, substitute_columns(table, alias, condition))
        expressions = [substitute_columns(table, alias, each) for each in self.expressions]
        return statement.add_columns(*[type_coerce(each, _driver_type(each.type)) for each in expressions])

    def find_root_columns(self, *more: Expression) -> list[str]:
        """The columns of the root that the statement uses, with those that `more` expressions use."""
        parts = [*self.expressions, *(condition for _, condition in self._conditions()), *more]
        return column_names_in(parts, self.root.table)

    def _conditions(self) -> "Iterator[tuple[SelectSource, Expression]]":
        return ((source, and_(condition, *source.conditions)) for source, condition in self._joins)

    def build_select(self, rows: Any, page: Any = None) -> Select[Any]:
        """The statement over the FROM clause `rows`, which contains the root's table.

        With a page that can be read twice, the lists of names are read once for all of its rows.
        """
        if not self.expressions:
            # Only the number of rows is selected.
            self.root.select_column("id")
        for source, condition in self._conditions():
            rows = rows.outerjoin(source.table, condition)
        expressions = list(self.expressions)
        if page is not None:
            for index, declared in self.name_lists.items():
                lists = self.sql_dialect.aggregate_lists(declared([]), select(page.c.id))
                rows = rows.outerjoin(lists, lists.c.key == self.root.column("id"))
                expressions[index] = lists.c.names
        return select(*expressions).select_from(rows)


def _driver_type(kind: Any) -> Any:
    """A type whose values are those of the driver, and which the session counts as text if it counts this one."""
    return Text() if isinstance(kind, Text | JSON) else NullType()


class SelectSource:
    """A table as it stands in a statement."""

    def __init__(self, select_builder: SelectBuilder, row: Any) -> None:
        self.row = row
        self._alias = select_builder.next_alias(row)
        self.mapper = self._alias.mapper
        self.table = self._alias.table
        self.column = self._alias.column
        self._select_builder = select_builder
        self._indexes: dict[int, int] = {}
        """By the identity of an expression: all statements share those of a `TableAlias`."""
        self._joined: dict[str, SelectSource] = {}

    def processor(self, key: str) -> Callable[[Any], Any] | None:
        """Converts the driver's value into the attribute's; None where both are the same."""
        return result_processor(self.mapper.columns[key].type, self._select_builder.sql_dialect.dialect)  # type: ignore[no-any-return]

    def select_column(self, key: str) -> int:
        """The index of an attribute in the statement's rows, as the driver returns it."""
        return self._select(self.column(key))

    def find_index(self, key: str) -> int | None:
        """The index of an attribute that is selected as the driver returns it; None if it is not."""
        return self._indexes.get(id(self.column(key)))

    def select_timestamp(self, key: str) -> int:
        """The index of a timestamp in its cheapest form (`SqlDialect.utc_timestamp_string`)."""
        return self._select(self._alias.timestamp_string(key))

    def select_utc_offset(self, key: str) -> int | None:
        """The index of a timestamp's UTC offset, in minutes; None: it is in UTC."""
        return None

    def select_names(self, statement: Any) -> int:
        """The index of the list of names that `statement(ids)` selects for the id of this row."""
        index = self._select(self._alias.name_list(statement))
        if self is self._select_builder.root:
            self._select_builder.name_lists[index] = statement
        return index

    def select_for_viewers(self, select: Callable[[Any, SqlViewer], Sequence[Any]]) -> list[int]:
        """The indexes of the expressions that a declaration selects."""
        self._select_builder.needs_viewer = True
        return [self._select(each) for each in self._alias.for_viewers(select)]

    def _select(self, expression: Expression) -> int:
        key = id(expression)
        if key not in self._indexes:
            self._indexes[key] = self._select_builder.add(expression)
        return self._indexes[key]

    def join(self, key: str, target: type, is_visible: Callable[[Any, SqlViewer], Any] | None = None) -> "SelectSource | None":
        """The row of `target` that the foreign key `key` names; None when the statement has joined enough.

        `is_visible` is a further condition on the row.
        """
        name = key if is_visible is None else f"{key} if visible"
        if name not in self._joined:
            if self._select_builder.is_full:
                return None
            joined = self._joined[name] = SelectSource(self._select_builder, target)
            condition = joined._alias.id_equals(self._alias, key)
            if is_visible is not None:
                self._select_builder.needs_viewer = True
                condition = and_(condition, joined._alias.for_viewers(is_visible))
            self._select_builder.add_join(joined, condition)
        return self._joined[name]

    def join_index(self, index: IndexedBy, keys: Sequence[str]) -> "IndexSource | None":
        """The index row of the object that these columns name; None when the statement is full."""
        key = ".".join((index.table.__tablename__, *keys))
        if key not in self._joined:
            if self._select_builder.is_full:
                return None
            joined = self._joined[key] = IndexSource(self._select_builder, index)
            conditions = (joined.column(column.key) == self.column(key) for column, key in zip(index.key_columns, keys, strict=True))
            self._select_builder.add_join(joined, and_(*conditions))
        found: Any = self._joined[key]
        return found  # type: ignore[no-any-return]

    @property
    def conditions(self) -> list[Expression]:
        """Further conditions for a row to be joined."""
        return []

    @property
    def attributes(self) -> list[str]:
        """All attributes of its objects."""
        return list(self.mapper.columns.keys())

    def required_attributes(self, names: Iterable[str] | None) -> set[str]:
        """The attributes that these names are made of; `names` None: all."""
        everything = set(self.attributes)
        if names is None:
            return everything
        required = set(names)
        return required if required <= everything else everything

    @property
    def policy_columns(self) -> tuple[str, ...] | None:
        """The attributes that the policy reads; None: all."""
        return None

    def select_attribute(self, attribute: str) -> tuple[list[int], Callable[..., Any] | None]:
        """The indexes of the values of an attribute, and the function of them; None: the value itself."""
        return [self.select_column(attribute)], self.processor(attribute)

    @property
    def is_full_row(self) -> bool:
        """Whether an object with all attributes is a row of the table, which loaders may reuse."""
        return True

    def is_timestamp(self, key: str) -> bool:
        return isinstance(self.mapper.columns[key].type, Timestamp)


class IndexSource(SelectSource):
    """Index rows of objects that have no row of their own."""

    def __init__(self, select_builder: SelectBuilder, index: IndexedBy) -> None:
        super().__init__(select_builder, index.table)
        self.row = index.row_class
        self._index = index
        self._exact_columns: set[str] = set()

    @property
    def conditions(self) -> list[Expression]:
        incomplete_if = self._index.incomplete_if
        return [not_(incomplete_if[key](self.column(key))) for key in sorted(self._exact_columns & incomplete_if.keys())]

    @property
    def attributes(self) -> list[str]:
        return list(self._index.attributes)

    def required_attributes(self, names: Iterable[str] | None) -> set[str]:
        properties = self._index.properties
        expanded = None if names is None else [part for name in names for part in properties.get(name, (name,))]
        return super().required_attributes(expanded)

    @property
    def policy_columns(self) -> tuple[str, ...] | None:
        return self._index.policy_columns

    def select_column(self, key: str) -> int:
        self._exact_columns.add(key)
        return super().select_column(key)

    def select_timestamp(self, key: str) -> int:
        self._exact_columns.add(key)
        return super().select_timestamp(key)

    def select_utc_offset(self, key: str) -> int | None:
        offset_column = self._index.offset_columns.get(key)
        return None if offset_column is None else self.select_column(offset_column)

    def select_attribute(self, attribute: str) -> tuple[list[int], Callable[..., Any] | None]:
        columns, make = self._index.attributes[attribute]
        indexes = [self.select_column(column) for column in columns]
        processors = [self.processor(column) for column in columns]
        if make is None or not any(processors):
            return indexes, make or processors[0]
        return indexes, lambda *values: make(
            *(value if process is None else process(value) for value, process in zip(values, processors, strict=True))
        )

    @property
    def is_full_row(self) -> bool:
        return False


def is_table(row: Any) -> bool:
    return isinstance(inspect(row, raiseerr=False), Mapper)
