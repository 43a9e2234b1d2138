"""`storage.tables` imports every table; migrations compare only those."""

import re
from pathlib import Path

from sqlalchemy import Column, PrimaryKeyConstraint, Table, UniqueConstraint

from storage import tables
from storage.database.column_types import metadata

FOLDER = Path(tables.__file__).parent


def test_every_table_is_imported() -> None:
    defined = {
        name
        for path in FOLDER.rglob("*.py")
        for name in re.findall(r"^class (\w+)\(.*\btable=True", path.read_text(encoding="utf-8"), re.MULTILINE)
    }
    assert defined
    missing = sorted(name for name in defined if not hasattr(tables, name))
    assert not missing, f"storage/tables/__init__.py must import {', '.join(missing)}"


WITHOUT_INDEX = {"instance_imports.user_id": "an instance imports few others"}
"""Foreign keys that need no index, with the reason why their table stays small."""


def find_indexed(table: Table) -> set[str]:
    """The columns of which an index or key of the table finds every row with a value that is not null."""
    keys = [each for each in table.constraints if isinstance(each, PrimaryKeyConstraint | UniqueConstraint)]
    found = {next(iter(each.columns)).name for each in keys if len(each.columns)}
    for index in table.indexes:
        first = next(iter(index.expressions))
        conditions = {str(index.dialect_options[dialect]["where"]) for dialect in ("sqlite", "postgresql")}
        if isinstance(first, Column) and conditions <= {"None", f"{first.name} IS NOT NULL"}:
            found.add(first.name)
    return found


def test_every_foreign_key_has_an_index() -> None:
    """Else the deletion of one row reads the whole table that refers to it, to delete its rows or to set the key to null."""
    keys = [key for table in metadata.sorted_tables for key in table.foreign_keys]
    assert len(keys) > 100
    missing = {f"{key.parent.table.name}.{key.parent.name}" for key in keys if key.parent.name not in find_indexed(key.parent.table)}
    assert missing == set(WITHOUT_INDEX), (
        "pass index=True to foreign_key, begin the unique constraint with it, or add a partial index where it is seldom set"
    )
