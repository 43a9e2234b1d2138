"""Statements that are compiled once and run many times: what differs between runs are the values of their named parameters alone."""

from collections.abc import Callable, Iterable
from typing import Any

import orjson
from sqlalchemy import ARRAY, Dialect, Join, String, Text, bindparam, cast, func, literal_column, select
from sqlalchemy.dialects.postgresql import aggregate_order_by
from sqlalchemy.sql.visitors import iterate, replacement_traverse

from storage.database.list_parameters import dialect_for_values
from storage.database.row_codegen import BoundParameter, ParameterBinder, compile_binder
from storage.database.text_budget import find_text_columns


class CompiledStatement:
    """The text of a statement for one dialect. The parameters in `variable_names` get their values at each run, all others have those of
    the statement."""

    __slots__ = ("bind", "size", "sql", "text_columns")

    bind: ParameterBinder

    def __init__(self, statement: Any, dialect: Dialect, variable_names: frozenset[str]) -> None:
        compiled: Any = statement.compile(dialect=dialect_for_values(dialect), compile_kwargs={"render_postcompile": True})
        state = compiled._post_compile_expanded_state
        # Of its state, since a list that is one parameter is not processed as its values are.
        processors = {**compiled._bind_processors, **(state.processors if state is not None else {})}
        values = compiled.construct_params(escape_names=False)
        self.sql: str = compiled.string
        self.text_columns = find_text_columns(entry.type for entry in compiled._result_columns)
        constant_values = {name: value for name, value in values.items() if name not in variable_names}
        self.size = 2_000 + len(self.sql) + 250 * len(values)
        """An estimate of its bytes."""
        self.bind = compile_binder([BoundParameter(name, processors.get(name)) for name in compiled.positiontup or ()], constant_values)


def named_parameter(name: str, kind: Any) -> Any:
    """A parameter that gets its value when the statement is run."""
    return bindparam(name, None, type_=kind, required=False)


def literal_number(number: int) -> Any:
    """A number that stands in the text. A bound LIMIT has PostgreSQL plan the statement again at every call."""
    return literal_column(str(int(number)))


class SqlDialect:
    """What the two databases spell differently in such statements. A list is one parameter, so that one text serves all lengths."""

    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect
        self.is_sqlite = dialect.name == "sqlite"

    def in_list(self, column: Any, name: str) -> Any:
        """The condition that the column has one of the values of the list `name`."""
        if self.is_sqlite:
            each = func.json_each(named_parameter(name, String)).table_valued("value")
            return column.in_(select(each.c.value))
        return column == func.any(named_parameter(name, ARRAY(column.type)))

    def has_python_order(self, columns: Iterable[Any]) -> bool:
        """Whether Python sorts the values of these columns, as the driver gives them, as the database does."""
        return self.is_sqlite and not any(column.nullable or getattr(column.type, "collation", None) for column in columns)

    def hide_from_planner(self, value: Any) -> Any:
        """A parameter as the bound of a range. PostgreSQL plans at every call for a value that it sees there, and once for one that it does
        not."""
        return value if self.is_sqlite else select(value).scalar_subquery()

    def key_table(self, names: list[str], kinds: list[Any]) -> Any:
        """A table of keys of one or more parts, given as the lists `names` (see `bind_keys`), with the `position` of each, from 0 on."""
        if self.is_sqlite:
            each = func.json_each(named_parameter(names[0], String)).table_valued("key", "value")
            parts = [func.json_extract(each.c.value, literal_column(f"'$[{number}]'")).label(name) for number, name in enumerate(names)]
            return select(*parts, each.c.key.label("position")).subquery("keys")
        lists = [named_parameter(name, ARRAY(kind)) for name, kind in zip(names, kinds, strict=True)]
        each = func.unnest(*lists).table_valued(*names, with_ordinality="ordinality").render_derived("each")
        return select(*each.c[*names], (each.c.ordinality - literal_column("1")).label("position")).subquery("keys")

    def bind_keys(self, names: list[str], keys: list[Any]) -> dict[str, Any]:
        """The values of such lists, by their names."""
        if self.is_sqlite:
            return {name: self.bind_list(keys) for name in names}
        return {name: [key[number] for key in keys] for number, name in enumerate(names)}

    def bind_list(self, values: list[Any]) -> Any:
        """The value of such a list."""
        if not self.is_sqlite:
            return values
        return orjson.dumps(values).decode()

    def list_decoder(self, statement: Any) -> Callable[[list[Any]], list[Any]]:
        """What makes lists of the values that `aggregate_list` gives."""
        if not self.is_sqlite:
            return _replace_nulls
        return _decode_sorted_json if _sorts_by_value(statement) else _decode_json

    def utc_timestamp_string(self, column: Any) -> Any:
        """The instant in UTC as a text, which both drivers give for a fraction of what a datetime costs: `2016-01-19 08:40:25.934`."""
        return column if self.is_sqlite else cast(func.timezone(literal_column("'UTC'"), column), String)

    def aggregate_list(self, statement: Any, outer: Any) -> Any:
        """The values of a statement that selects (key, value) with a condition on `outer`, in its order, as one value of a row of `outer`:
        a list, or null for none; on SQLite the list as JSON."""
        _, value = statement.selected_columns
        values_only = statement.with_only_columns(value.label("value"), maintain_column_froms=True).correlate(outer)
        if self.is_sqlite:
            if _sorts_by_value(statement):
                # Sorting a few is cheaper outside.
                return (
                    values_only.with_only_columns(func.json_group_array(value, type_=Text), maintain_column_froms=True)
                    .order_by(None)
                    .scalar_subquery()
                )
            inner = values_only.subquery()
            return select(func.json_group_array(inner.c.value, type_=Text)).scalar_subquery()
        # As TEXT, so that its length is counted (`TextMeter`).
        ordered = aggregate_order_by(cast(value, Text), *statement._order_by_clauses)
        return values_only.with_only_columns(func.array_agg(ordered), maintain_column_froms=True).order_by(None).scalar_subquery()


def _sorts_by_value(statement: Any) -> bool:
    """Whether a statement that selects (key, value) sorts by the value, as texts are sorted everywhere on SQLite: by code points."""
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
    """The statement with the columns of `page`, which it selects from, wherever it has those of `table`."""
    preserved = {id(part) for each in statement.get_final_froms() for part in _joined_tables(each)}

    def replace(element: Any, **_: Any) -> Any:
        if element is table or id(element) in preserved:
            return page if element is table else element
        return page.c[element.key] if getattr(element, "table", None) is table else None

    return replacement_traverse(statement, {}, replace)


def _joined_tables(rows: Any) -> list[Any]:
    return [*_joined_tables(rows.left), *_joined_tables(rows.right)] if isinstance(rows, Join) else [rows]


def column_names_in(expressions: Iterable[Any], table: Any) -> list[str]:
    """The names of the columns of the table in these."""
    parts: Iterable[Any] = (part for each in expressions for part in iterate(each))
    return sorted({part.key for part in parts if getattr(part, "table", None) is table})
