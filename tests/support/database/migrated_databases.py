"""New databases are copies of one that a run has migrated once: all revisions take a second on SQLite, and two on PostgreSQL.

Commands and servers that the tests start use it. Tests of revisions call `storage.migrations.upgrade`, which runs them.
"""

import asyncio
import shutil
import sqlite3
import subprocess
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any

import asyncpg
from sqlalchemy import URL, make_url

from forgefront import backend
from storage import migrations
from storage.dump import instance_restore, table_loader
from tests.support.process_folders import lock_run_file

VERSIONS = migrations.VERSIONS
SCRIPTS: dict[str, str] = {}
"""The SQL that fills an empty database, by the URL of its PostgreSQL server, without a database."""


class CopyingMigrations:
    """The module `storage.migrations`, except that `upgrade` copies."""

    def __getattr__(self, name: str) -> Any:
        return getattr(migrations, name)

    @staticmethod
    def upgrade(database_url: str, revision: str | None = None, *, host: str = "", only_empty: bool = False) -> list[str]:
        return upgrade(database_url, revision, host=host, only_empty=only_empty)


def install() -> None:
    """Makes commands and servers of this process copy."""
    for module in (backend, instance_restore, table_loader):
        vars(module)["migrations"] = CopyingMigrations()


def upgrade(database_url: str, revision: str | None = None, *, host: str = "", only_empty: bool = False) -> list[str]:
    """As `storage.migrations.upgrade`, but an empty database becomes a copy of a migrated one."""
    newest = migrations.newest_revision()
    if revision not in (None, newest) or migrations.VERSIONS != VERSIONS or not _fill(database_url):
        return migrations.upgrade(database_url, revision, host=host, only_empty=only_empty)
    if revision is None:
        # Inserts the required rows.
        migrations.upgrade(database_url, host=host)
    return sorted(path.name.partition("_")[0] for path in VERSIONS.glob("[0-9]*_*.py"))


@cache
def migrated_file() -> Path:
    """An SQLite file with all revisions and without required rows."""
    with lock_run_file("migrated.db") as path:
        if not path.exists():
            unfinished = path.with_name("unfinished.db")
            migrations.upgrade(f"sqlite:///{unfinished}", migrations.newest_revision())
            with closing(sqlite3.connect(unfinished)) as connection:
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            unfinished.rename(path)
    return path


def migrate_original(database_url: str, pg_dump: str) -> None:
    """Migrates an empty database of PostgreSQL; the other ones on its server become copies of it, as it is itself a copy if another
    process of the run has migrated one before."""
    with lock_run_file("migrated.sql") as path:
        is_first = not path.exists()
        if is_first:
            migrations.upgrade(database_url)
            path.write_text(_dump_schema(database_url, pg_dump))
        SCRIPTS[_server_of(make_url(database_url))] = path.read_text()
    if not is_first:
        upgrade(database_url)


def _dump_schema(database_url: str, pg_dump: str) -> str:
    command = [pg_dump, "--schema-only", "--no-owner", _address(make_url(database_url))]
    dumped = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    # Lines with a backslash are for psql.
    lines = [line for line in dumped.splitlines() if not line.startswith("\\")]
    lines.append(f"INSERT INTO public.alembic_version VALUES ('{migrations.newest_revision()}');")
    return "\n".join(lines)


def _address(url: URL) -> str:
    return url.set(drivername="postgresql").render_as_string(hide_password=False)


def _server_of(url: URL) -> str:
    return _address(url.set(database=""))


def _fill(database_url: str) -> bool:
    """Fills the database if it is empty; returns whether it was."""
    url = make_url(database_url)
    if url.get_backend_name() == "postgresql":
        script = SCRIPTS.get(_server_of(url))
        return script is not None and asyncio.run(_run_script(_address(url), script))
    path = Path(url.database or "")
    if not url.database or path.exists():
        return False
    original = migrated_file()
    with migrations._file_lock(path.with_name(f"{path.name}.lock")):
        if path.exists():
            return False
        copy = path.with_name(f"{path.name}.copy")
        shutil.copyfile(original, copy)
        copy.rename(path)
        return True


async def _run_script(address: str, script: str) -> bool:
    connection = await asyncpg.connect(address, timeout=10)
    try:
        async with connection.transaction():
            await connection.execute(f"SELECT pg_advisory_xact_lock({migrations.ADVISORY_LOCK})")
            if await connection.fetchval("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'"):
                return False
            await connection.execute(script)
            return True
    finally:
        await connection.close()
