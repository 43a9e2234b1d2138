"""Statements that are compiled once and run many times; only the values of their named parameters differ between runs."""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from types import MappingProxyType
from typing import Any

import orjson
from sqlalchemy import ARRAY, Dialect, Join, String, Text, bindparam, cast, func, literal_column, select, true
from sqlalchemy.dialects.postgresql import aggregate_order_by
from sqlalchemy.sql.operators import in_op
from sqlalchemy.sql.visitors import iterate, replacement_traverse

from storage.database.statements.list_parameters import dialect_for_values
from storage.database.statements.row_codegen import BoundParameter, ParameterBinder, compile_binder
from storage.database.text_budget import find_text_columns

MAX_WAITING_ITERATIONS = 4
"""Iterations of the event loop for which an operation waits at most while others compile."""


class Compilations:
    """Whether a statement has just been compiled, or built for all its later runs. Either takes up to 30 ms.

    An operation that is about to compile, or to read, lets other work of the event loop run first: on SQLite none of this waits for
    anything, so an operation that compiles several statements would block it for the sum.
    """

    __slots__ = ("_count", "are_new")

    def __init__(self) -> None:
        self.are_new = False
        self._count = 0

    def add(self) -> None:
        """Notes that a statement has been compiled, or built."""
        self.are_new = True
        self._count += 1

    async def let_others_run(self, max_iterations: int = MAX_WAITING_ITERATIONS) -> None:
        """Waits for an iteration of the event loop in which nothing was compiled yet, for at most `max_iterations`."""
        for _ in range(max_iterations):
            count = self._count
            await asyncio.sleep(0)
            if count == self._count:
                self.are_new = False
                break


COMPILATIONS = Compilations()
NOTHING_VARIES: Mapping[int, str] = MappingProxyType({})


class CompiledStatement:
    """The SQL string of a statement for one dialect, and the binder of its parameters.

    The parameters in `variable_names` get their values at each run, as do those whose value is one of the objects with the ids in
    `varying`, by the name there. All others have the values of the statement.
    """

    __slots__ = ("bind", "size", "sql", "text_columns")

    bind: ParameterBinder

    def __init__(
        self, statement: Any, dialect: Dialect, variable_names: frozenset[str], varying: Mapping[int, str] = NOTHING_VARIES
    ) -> None:
        compiled: Any = statement.compile(dialect=dialect_for_values(dialect), compile_kwargs={"render_postcompile": True})
        COMPILATIONS.add()
        state = compiled._post_compile_expanded_state
        # The state has the processors of expanded lists: a list that is one parameter is processed differently than its values.
        processors = {**compiled._bind_processors, **(state.processors if state is not None else {})}
        values = compiled.construct_params(escape_names=False)
        self.sql: str = compiled.string
        self.text_columns = find_text_columns(entry.type for entry in compiled._result_columns)
        renamed = {name: varying[id(value)] for name, value in values.items() if id(value) in varying}
        constant_values = {name: value for name, value in values.items() if name not in variable_names and name not in renamed}
        self.size = 2_000 + len(self.sql) + 250 * len(values)
        """Estimated memory in bytes."""
        parameters = [BoundParameter(renamed.get(name, name), processors.get(name)) for name in compiled.positiontup or ()]
        self.bind = compile_binder(parameters, constant_values)


def named_parameter(name: str, kind: Any) -> Any:
    """A parameter that gets its value when the statement is run."""
    return bindparam(name, None, type_=kind, required=False)


def literal_number(number: int) -> Any:
    """A number that is rendered into the SQL string. With a LIMIT parameter, PostgreSQL would plan the statement again at every call."""
    return literal_column(str(int(number)))


class SqlDialect:
    """SQL of compiled statements that differs between the databases. A list is one parameter, so one SQL string serves all lengths."""

    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect
        self.is_sqlite = dialect.name == "sqlite"

    def in_list(self, column: Any, name: str) -> Any:
        """The condition that the column has one of the values of the list `name`."""
        if self.is_sqlite:
            each = func.json_each(named_parameter(name, String)).table_valued("value")
            return column.in_(select(each.c.value))
        kind = ARRAY(column.type)
        return column == func.any(cast(self.hide_from_planner(named_parameter(name, kind)), kind))

    def has_python_order(self, columns: Iterable[Any]) -> bool:
        """Whether Python sorts the driver's values of these columns in the same order as the database."""
        return self.is_sqlite and not any(column.nullable or getattr(column.type, "collation", None) for column in columns)

    def hide_from_planner(self, value: Any) -> Any:
        """Wraps a parameter that bounds a range, or is a list, in a subquery.

        Otherwise PostgreSQL plans at every call, because the values, or the length of a short list, make a plan look cheaper.
        """
        return value if self.is_sqlite else select(value).scalar_subquery()

    def key_table(self, names: list[str], kinds: list[Any]) -> Any:
        """A table of keys of one or more parts, given as the lists `names` (see `bind_keys`), with the `position` of each, from 0 on."""
        if self.is_sqlite:
            each = func.json_each(named_parameter(names[0], String)).table_valued("key", "value")
            parts = [func.json_extract(each.c.value, literal_column(f"'$[{number}]'")).label(name) for number, name in enumerate(names)]
            return select(*parts, each.c.key.label("position")).subquery("keys")
        lists = [self.hide_from_planner(named_parameter(name, ARRAY(kind))) for name, kind in zip(names, kinds, strict=True)]
        each = func.unnest(*lists).table_valued(*names, with_ordinality="ordinality").render_derived("each")
        return select(*each.c[*names], (each.c.ordinality - literal_column("1")).label("position")).subquery("keys")

    def join_pages(self, parents: Any, page: Any, table: Any) -> tuple[Any, Any]:
        """Joins parents to a page of rows for each, and returns the FROM clause and the rows, which have the name of `table`.

        `page` has a condition on the parents, and selects what is needed of `table`, or on SQLite the ids.
        """
        page = page.correlate(parents)
        if self.is_sqlite:
            return parents.join(table, table.c.id.in_(page)), table
        rows = page.lateral(table.name)
        return parents.join(rows, true()), rows

    def bind_keys(self, names: list[str], keys: list[Any]) -> dict[str, Any]:
        """Returns the parameters of `key_table` for these keys, by name."""
        if self.is_sqlite:
            return {name: self.bind_list(keys) for name in names}
        return {name: [key[number] for key in keys] for number, name in enumerate(names)}

    def bind_list(self, values: list[Any]) -> Any:
        """Returns the parameter of `in_list` for these values."""
        if not self.is_sqlite:
            return values
        return orjson.dumps(values).decode()

    def list_decoder(self, statement: Any) -> Callable[[list[Any]], list[Any]]:
        """Returns the function that converts the values of `aggregate_list` to lists."""
        if not self.is_sqlite:
            return _replace_nulls
        return _decode_sorted_json if _sorts_by_value(statement) else _decode_json

    def utc_timestamp_string(self, column: Any) -> Any:
        """A timestamp in UTC as a string, which costs both drivers a fraction of a datetime: `2016-01-19 08:40:25.934`."""
        return column if self.is_sqlite else cast(func.timezone(literal_column("'UTC'"), column), String)

    def aggregate_list(self, statement: Any, outer: Any) -> Any:
        """Aggregates the values of a statement that selects (key, value) with a condition on `outer` to one value per row of `outer`.

        The value is a list in the statement's order, or null if it is empty; on SQLite it is the list as JSON.
        """
        _, value = statement.selected_columns
        values_only = statement.with_only_columns(value.label("value"), maintain_column_froms=True).correlate(outer)
        if self.is_sqlite:
            if _sorts_by_value(statement):
                # Sorting a short list is cheaper in Python (`list_decoder`).
                return (
                    values_only.with_only_columns(func.json_group_array(value, type_=Text), maintain_column_froms=True)
                    .order_by(None)
                    .scalar_subquery()
                )
            inner = values_only.subquery()
            return select(func.json_group_array(inner.c.value, type_=Text)).scalar_subquery()
        return values_only.with_only_columns(_ordered_array(statement), maintain_column_froms=True).order_by(None).scalar_subquery()

    def aggregate_lists(self, statement: Any, ids: Any) -> Any:
        """The values of `aggregate_list` for all rows at once, on PostgreSQL: a subquery of (key, names) that is read once; separate
        subqueries would be run for one row after another.

        `statement` selects (key, value) under the condition that the key is in a list; `ids` selects the keys to have instead.
        """
        key, _ = statement.selected_columns
        condition = key == func.any(func.array(ids.scalar_subquery(), type_=ARRAY(key.type)))
        criteria = [condition if _is_in_list(each, key) else each for each in statement._where_criteria]
        columns = (key.label("key"), _ordered_array(statement).label("names"))
        return select(*columns).select_from(*statement.get_final_froms()).where(*criteria).group_by(key).subquery()


def _ordered_array(statement: Any) -> Any:
    """The aggregate of the values of a statement that selects (key, value), in its order."""
    _, value = statement.selected_columns
    # As TEXT, so that its length is counted (`TextMeter`).
    return func.array_agg(aggregate_order_by(cast(value, Text), *statement._order_by_clauses))


def _is_in_list(condition: Any, column: Any) -> bool:
    return getattr(condition, "operator", None) is in_op and condition.left.compare(column)


def _sorts_by_value(statement: Any) -> bool:
    """Whether a statement that selects (key, value) sorts by a string value with the default collation: on SQLite, by code points."""
    _, value = statement.selected_columns
    kind = getattr(value.type, "impl", value.type)
    return isinstance(kind, String) and kind.collation is None and bool(statement._order_by_clauses[0].compare(value))


def _replace_nulls(values: list[list[Any] | None]) -> list[list[Any]]:
    return [value or [] for value in values]


def _decode_json(values: list[str]) -> list[list[Any]]:
    lists: list[list[Any]] = orjson.loads(f"[{','.join(values)}]")
    return lists


def _decode_sorted_json(values: list[str]) -> list[list[Any]]:
    lists = _decode_json(values)
    for each in lists:
        if len(each) > 1:
            each.sort()
    return lists


def substitute_table(page: Any, table: Any, statement: Any) -> Any:
    """Returns the statement, which selects from an explicit FROM clause, with the columns of `table` replaced by those of `page`."""
    # `get_final_froms` would compile the whole statement.
    return substitute_columns(page, table, statement, {id(part) for each in statement._from_obj for part in _joined_tables(each)})


def substitute_columns(page: Any, table: Any, expression: Any, preserved: Collection[int] = ()) -> Any:
    """Returns an expression with the columns of `table` replaced by those of `page`, except in the parts with the ids `preserved`."""

    def replace(element: Any, **_: Any) -> Any:
        if element is table or id(element) in preserved:
            return page if element is table else element
        return page.c[element.key] if getattr(element, "table", None) is table else None

    return replacement_traverse(expression, {}, replace)


def _joined_tables(rows: Any) -> list[Any]:
    return [*_joined_tables(rows.left), *_joined_tables(rows.right)] if isinstance(rows, Join) else [rows]


def column_names_in(expressions: Iterable[Any], table: Any) -> list[str]:
    """Returns the sorted names of the table's columns that occur in the expressions."""
    parts: Iterable[Any] = (part for each in expressions for part in iterate(each))
    return sorted({part.key for part in parts if getattr(part, "table", None) is table})
