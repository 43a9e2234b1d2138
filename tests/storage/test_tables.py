"""`storage.tables` imports every table; migrations compare only those."""

import re
from pathlib import Path

from sqlalchemy import PrimaryKeyConstraint, Table, UniqueConstraint

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


def find_indexed(table: Table) -> set[str]:
    """The columns with which an index of the table begins."""
    keys = [each for each in table.constraints if isinstance(each, PrimaryKeyConstraint | UniqueConstraint)]
    return {next(iter(each.columns)).name for each in (*table.indexes, *keys) if len(each.columns)}


def test_every_foreign_key_that_cascades_has_an_index() -> None:
    """Else the deletion of one row reads the whole table that refers to it."""
    keys = [key for table in metadata.sorted_tables for key in table.foreign_keys if key.ondelete == "CASCADE"]
    assert len(keys) > 50
    missing = sorted(f"{key.parent.table.name}.{key.parent.name}" for key in keys if key.parent.name not in find_indexed(key.parent.table))
    assert not missing, f"pass index=True to foreign_key, or begin the unique constraint with it: {', '.join(missing)}"
