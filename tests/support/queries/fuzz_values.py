"""Hostile values, and a check that a rejected call changed nothing."""

from collections.abc import Sequence

from sqlalchemy import Connection, event

from storage.database.engine import Database
from storage.database.writers import Statement

FUZZ_STRINGS = (
    "",
    " ",
    "a\0b",
    "x" * 10_001,
    "\U0001f4a5\U0001f469‍\U0001f469‍\U0001f467",
    "‮txt.exe‏ עברית",
    "'; DROP TABLE users; --",
    "%",
    "_",
    "\\",
    "100%_\\'\"",
    "<script>alert(1)</script><img src=x onerror=alert(1)>",
    "é́" * 3_000,
    "\ufffe\uffff",
    "\r\n\x01\x1b[31m\x7f\u2028",
    "{{7*7}} ${7*7} %s %(x)s {0}",
    "../../../../etc/passwd",
    "--upload-pack=touch /tmp/x",
    "null",
    "undefined",
    "/[a-z]/",
    "(a+)+$",
)
FUZZ_NUMBERS = (
    "0",
    "-1",
    "2147483647",
    "2147483648",
    "-2147483649",
    "9223372036854775808",
    f"1{'0' * 30}",
    "1e309",
    "NaN",
    "0x1",
    "1.5",
    "٣",
    "1_0",
)
"""As strings; most of them are numbers of JSON too."""
FUZZ_TIMESTAMPS = (
    "0000-00-00",
    "0001-01-01",
    "9999-12-31",
    "2016-02-30",
    "0001-01-01T00:00:00+14:00",
    "9999-12-31T23:59:59-14:00",
    "2016-01-01T25:61:61Z",
    "2016-01-01T00:00:00",
)
LONE_SURROGATE = "\ud800"


class CommitCounter:
    """Counts the commits of a database, by any connection: without commits, nothing is changed."""

    def __init__(self, database: Database) -> None:
        self.count = 0
        event.listen(database.engine.sync_engine, "commit", self._committed)
        self._write = database.write
        vars(database)["write"] = self._count_direct

    def _committed(self, connection: Connection) -> None:
        self.count += 1

    async def _count_direct(self, statements: Sequence[Statement], required: int = 0) -> list[int]:
        """Rows that are written without the engine are no events of it."""
        ids = await self._write(statements, required)
        self.count += bool(ids)
        return ids
