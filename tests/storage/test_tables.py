"""`storage.tables` imports every table; migrations compare only those."""

import re
from pathlib import Path

from storage import tables

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
