"""An answer as a table: which lists an operation asks for, and what is in the columns. Made from the operation alone, so that an empty
list has the same header as a full one.

The lists are those that are reached from the root through single objects: a connection's `nodes`, a table's `rows`, a bare list. A list's
columns are the scalars of its items, objects flattened, named by their dotted paths:

    { project(path: "a/b") { name issues { totalCount nodes { iid labels author { username } notes { totalCount nodes { id } } } } } }

has one list, `project.issues.nodes`, with the columns `iid`, `labels`, `author.username` and `notes.totalCount`. Lists of scalars are
joined by spaces. Lists of objects inside an item are left out (their `totalCount` is a scalar like others), and so is what stands beside
the list. An operation without a list is one row.
"""

import csv
import io
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rest_v3.operations import Selected

_SIGNS = "=+\\-@\uff1d\uff0b\uff0d\uff20\ufe66\ufe62\ufe63\ufe6b"
"""The signs that begin a formula, and their full-width and small forms (OWASP, CSV Injection)."""
_BLANKS = r"[\s\"\x00-\x1f\u200b-\u200f\ufeff]*"
"""What spreadsheets skip at the beginning of a cell."""
_FORMULA = re.compile(f"((?:^|[;\t\r\n]){_BLANKS})([{_SIGNS}])")
"""A formula where a spreadsheet begins a cell: some split lines at semicolons or tabs, and then do not see quotes within."""
_CONTROLS = ("\t", "\r", "\n")

Path = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Table:
    """A list of an operation, or all of it where `path` is empty."""

    path: Path
    columns: tuple[Path, ...]

    @property
    def name(self) -> str:
        return ".".join(self.path)

    def csv_of(self, data: Mapping[str, Any]) -> str:
        """RFC 4180, with a header."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\r\n")
        writer.writerow(".".join(column) for column in self.columns)
        writer.writerows([_cell(_at(item, column)) for column in self.columns] for item in self._items(data))
        return text.getvalue()

    def _items(self, data: Mapping[str, Any]) -> list[Any]:
        if not self.path:
            return [data]
        return [item for item in _at(data, self.path) or () if item is not None]


class Tables:
    """The tables of an operation. The first one is that of the list which is met first."""

    def __init__(self, selected: Mapping[str, Selected]) -> None:
        self._tables = tuple(_lists(selected, ())) or (Table((), tuple(_columns(selected, ()))),)

    def get(self, name: str | None) -> Table | None:
        """The table of a list, which is named by its path, or by that of the connection around it; None is the first."""
        if name is None:
            return self._tables[0]
        way = tuple(name.split("."))
        exact = next((table for table in self._tables if table.path == way), None)
        return exact or next((table for table in self._tables if table.path[:-1] == way), None)

    @property
    def names(self) -> list[str]:
        return [table.name for table in self._tables if table.path]


def _lists(selected: Mapping[str, Selected], way: Path) -> Iterator[Table]:
    for key, field in selected.items():
        if field.is_list and field.below:
            yield Table((*way, key), tuple(_columns(field.below, ())))
        elif field.below:
            yield from _lists(field.below, (*way, key))


def _columns(selected: Mapping[str, Selected], way: Path) -> Iterator[Path]:
    for key, field in selected.items():
        if not field.below:
            yield (*way, key)
        elif not field.is_list:
            yield from _columns(field.below, (*way, key))


def _at(value: Any, way: Path) -> Any:
    for key in way:
        if value is None:
            return None
        value = value.get(key)
    return value


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        value = " ".join(str(item) for item in value if item is not None)
    if isinstance(value, str):
        return _guarded(value)
    return str(value)


def _guarded(text: str) -> str:
    """The text with an apostrophe before each sign that a spreadsheet would take for the beginning of a formula.

    >>> _guarded("=1+1"), _guarded("a;=1+1"), _guarded("a = b; c")
    ("'=1+1", "a;'=1+1", 'a = b; c')
    """
    guarded = _FORMULA.sub(r"\1'\2", text)
    return f"'{guarded}" if guarded.startswith(_CONTROLS) else guarded
