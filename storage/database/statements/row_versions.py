"""Versions of rows on PostgreSQL: the transaction that wrote a row (`xmin`), so every change of a row makes another version.

See https://www.postgresql.org/docs/current/ddl-system-columns.html.
"""

from typing import Any

from sqlalchemy import ColumnElement, literal_column
from sqlalchemy.inspection import inspect
from sqlalchemy.types import UserDefinedType


class TransactionNumber(UserDefinedType[int]):
    """PostgreSQL's `xid`. Parameters are rendered without a type, since they exceed an `integer`."""

    cache_ok = True

    def get_col_spec(self, **_: Any) -> str:
        return "xid"


def row_version(table: Any) -> ColumnElement[int]:
    """The version of the row of a table in a statement on PostgreSQL."""
    return literal_column(f"{inspect(table).local_table.name}.xmin", TransactionNumber())
