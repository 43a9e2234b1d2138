"""Converts a result to a table: the lists of an operation, and their columns, derived from the operation alone.

An empty list has the same header as a full one. The lists are those that are reached from the root through single objects: a connection's
`nodes`, a table's `rows`, a plain list. A list's columns are the scalars of its items, with objects flattened, named by their dotted paths:

 { project(path: "a/b") { name issues { totalCount nodes { iid labels author { username } notes { totalCount nodes { id } } } } } }

has one list, `project.issues.nodes`, with the columns `iid`, `labels`, `author.username` and `notes.totalCount`. Lists of scalars are
joined by spaces. Lists of objects inside an item are left out (their `totalCount` is a scalar like others), and so are fields beside the
list. An operation without a list is one row.
"""

import csv
import io
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rest_v3.operations import SelectedField

_FORMULA_SIGNS = "=+\\-@\uff1d\uff0b\uff0d\uff20\ufe66\ufe62\ufe63\ufe6b"
"""Characters that begin a formula, and their full-width and small forms (OWASP, CSV Injection)."""
_BLANKS = r"\s\"\x00-\x1f\u200b-\u200f\ufeff"
"""Characters that spreadsheets skip at the beginning of a cell."""
_FORMULA_PATTERN = re.compile(f"(?<![{_BLANKS}])((?:^|(?<=;)|(?=[{_BLANKS}]*?[\t\r\n]))[{_BLANKS}]*+)([{_FORMULA_SIGNS}])")
"""A formula at the beginning of a cell: some spreadsheets split lines at semicolons or tabs, and then ignore quotes.

It begins only where blanks begin, because a string of blanks would take quadratic time otherwise.
"""
_CONTROL_CHARACTERS = ("\t", "\r", "\n")

FieldPath = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CsvTable:
    """A list of an operation, or all of it where `path` is empty."""

    path: FieldPath
    columns: tuple[FieldPath, ...]

    @property
    def name(self) -> str:
        return ".".join(self.path)

    def to_csv(self, data: Mapping[str, Any]) -> str:
        """The rows as CSV (RFC 4180), with a header."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\r\n")
        writer.writerow(".".join(column) for column in self.columns)
        writer.writerows([_format_cell(_value_at(item, column)) for column in self.columns] for item in self._items(data))
        return text.getvalue()

    def _items(self, data: Mapping[str, Any]) -> list[Any]:
        if not self.path:
            return [data]
        return [item for item in _value_at(data, self.path) or () if item is not None]


class CsvTables:
    """The tables of an operation, in document order."""

    def __init__(self, selected: Mapping[str, SelectedField]) -> None:
        self._tables = tuple(_find_lists(selected, ())) or (CsvTable((), tuple(_find_columns(selected, ()))),)

    def get(self, name: str | None) -> CsvTable | None:
        """The table of a list, named by its path, or by that of the connection around it; None returns the first."""
        if name is None:
            return self._tables[0]
        path = tuple(name.split("."))
        exact = next((table for table in self._tables if table.path == path), None)
        return exact or next((table for table in self._tables if table.path[:-1] == path), None)

    @property
    def names(self) -> list[str]:
        return [table.name for table in self._tables if table.path]


def _find_lists(selected: Mapping[str, SelectedField], path: FieldPath) -> Iterator[CsvTable]:
    for key, field in selected.items():
        if field.is_list and field.subfields:
            yield CsvTable((*path, key), tuple(_find_columns(field.subfields, ())))
        elif field.subfields:
            yield from _find_lists(field.subfields, (*path, key))


def _find_columns(selected: Mapping[str, SelectedField], path: FieldPath) -> Iterator[FieldPath]:
    for key, field in selected.items():
        if not field.subfields:
            yield (*path, key)
        elif not field.is_list:
            yield from _find_columns(field.subfields, (*path, key))


def _value_at(value: Any, path: FieldPath) -> Any:
    for key in path:
        if value is None:
            return None
        value = value.get(key)
    return value


def _format_cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        value = " ".join(str(item) for item in value if item is not None)
    if isinstance(value, str):
        return _escape_formulas(value)
    return str(value)


def _escape_formulas(text: str) -> str:
    """The string with an apostrophe before each character that a spreadsheet would read as the beginning of a formula.

    >>> _escape_formulas("=1+1"), _escape_formulas("a;=1+1"), _escape_formulas("a = b; c")
    ("'=1+1", "a;'=1+1", 'a = b; c')
    """
    escaped = _FORMULA_PATTERN.sub(r"\1'\2", text)
    return f"'{escaped}" if escaped.startswith(_CONTROL_CHARACTERS) else escaped
