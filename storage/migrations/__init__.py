"""Migrates the schema of the database by Alembic revisions.

All missing revisions are applied in one transaction, on both databases, under a lock: servers that start at the same time
apply each revision once, and a process that is killed leaves the database unchanged. There are no downgrades; restore a
backup instead. Alembic is imported only where it runs, because most starts of a server do not need it.

A revision that contains the line `expands = True` only adds tables, indexes, and columns that are nullable or have a default in the
database, so that hosts of the version before it go on beside upgraded ones. Any other revision is applied only while no other host runs.
The table `schema_compatibility` has the newest of the others: a program that knows it can use a newer database.
"""

import asyncio
import fcntl
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from sqlalchemy import URL, Connection, NullPool, create_engine, event, func, inspect, select, text
from sqlalchemy.ext.asyncio import create_async_engine

from storage.database.clock import now
from storage.database.column_types import Timestamp
from storage.database.engine import driver_url

if TYPE_CHECKING:
    from alembic.config import Config

VERSIONS = Path(__file__).parent / "versions"
ADVISORY_LOCK = int.from_bytes(b"forgefnt")
"""The key of the advisory lock on PostgreSQL. Advisory locks are per database, so forges on one server do not block each other."""
WAIT_SECONDS = 600.0
"""How long to wait for other writers of an SQLite file, such as an older server that is still running."""
CONNECT_SECONDS = 10.0

_EXPANDS = re.compile(r"^expands = True$", re.MULTILINE)

T = TypeVar("T")


class DatabaseTooNew(Exception):
    """The database has a revision that this version of the program does not know, and that does not only add."""


class DatabaseOutdated(Exception):
    """The database has an older revision than this program. Nothing was changed."""


class HostsRunning(Exception):
    """A revision must not be applied while other hosts run, because their version could not use the database then."""


class BrokenReferences(Exception):
    """On SQLite a revision left rows that refer to deleted rows; it was rolled back."""


def upgrade(database_url: str, revision: str | None = None, *, host: str = "", only_empty: bool = False) -> list[str]:
    """Upgrades the database to `head_revision()` and inserts the required rows. Returns the applied revisions, oldest first.

    With an older `revision` it upgrades to this one, without these rows. `host` is the identity of this host. With `only_empty` a database
    of an older revision is refused, which its own version may be serving. Does nothing if the database is newer, but suits this program.

    Call it in a thread: it blocks, and on PostgreSQL it runs its own event loop. It waits for another upgrade of the same database. Raises
    DatabaseOutdated, DatabaseTooNew, HostsRunning; OSError or SQLAlchemy's OperationalError if the database cannot be reached.
    """
    applied: list[str] = []

    def work(connection: Connection) -> bool:
        """Whether revisions were applied."""
        if revision is None and _is_at(connection, newest_revision()):
            # The common case. Importing Alembic would take 9 MB for the lifetime of the process.
            _insert_required_rows(connection)
            return False
        from alembic import command

        config = configuration(connection)
        found = _revision(connection)
        if found is not None and found not in _known_revisions(config):
            if revision is None and is_compatible(_read_oldest_revision(connection)):
                return False
            raise DatabaseTooNew(
                f"the database is at revision {found}, newer than this program, which knows up to {head_revision()};"
                " install the version that migrated it, or restore a dump of this version"
            )
        if only_empty and found is not None:
            raise _outdated(found)
        if revision is None:
            _require_no_other_host(connection, found or "", host)
        config.attributes["on_version_apply"] = lambda *, step, **_: applied.append(step.up_revision_id)
        command.upgrade(config, revision or "head")
        if revision is None:
            _insert_required_rows(connection)
        return bool(applied)

    _run_exclusively(database_url, work)
    return applied


def current_revision(database_url: str) -> str | None:
    """Returns the revision of the database; None if it is empty or, on SQLite, the file does not exist. Call it in a thread."""
    url = driver_url(database_url)
    if url.get_backend_name() == "postgresql":
        return asyncio.run(_run_on_postgresql(url, _revision))
    path = Path(url.database or "")
    if not path.is_file():
        return None
    engine = create_engine(url.set(drivername="sqlite"), poolclass=NullPool)
    with engine.connect() as connection:
        return _revision(connection)


def require_newest_revision(database_url: str) -> None:
    """Raises DatabaseOutdated or DatabaseTooNew unless the database has the newest revision of this program. Call it in a thread."""
    found = current_revision(database_url) or ""
    if not is_known(found) and found:
        raise DatabaseTooNew(f"the database is at revision {found}, which this program does not know. Use the version that migrated it")
    if found != newest_revision():
        raise _outdated(found)


def newest_revision() -> str:
    """Returns the same as `head_revision()` without Alembic, from the file names, which begin with the revision."""
    return max((path.name.partition("_")[0] for path in VERSIONS.glob("[0-9]*_*.py")), default="")


def is_known(revision: str) -> bool:
    """Whether this program has the revision."""
    return any(path.name.partition("_")[0] == revision for path in VERSIONS.glob("[0-9]*_*.py"))


def is_compatible(oldest_revision: str | None) -> bool:
    """Whether this program can use a database that it has not migrated, by the row of `schema_compatibility`."""
    return oldest_revision is not None and is_known(oldest_revision)


def head_revision() -> str:
    """Returns the newest revision of this program."""
    from alembic.script import ScriptDirectory

    revision = ScriptDirectory.from_config(configuration()).get_current_head()
    if revision is None:
        raise LookupError(f"there is no revision in {VERSIONS}")
    return revision


def configuration(connection: Connection | None = None) -> "Config":
    """Returns Alembic's configuration, which is not read from a file; env.py takes the connection from it."""
    from alembic.config import Config

    config = Config(attributes={"connection": connection})
    for name, value in {
        "script_location": str(Path(__file__).parent),
        "version_locations": str(VERSIONS),
        "path_separator": "newline",
        "file_template": "%(rev)s_%(slug)s",
    }.items():
        config.set_main_option(name, value.replace("%", "%%"))
    return config


def _outdated(found: str) -> DatabaseOutdated:
    return DatabaseOutdated(
        f"the database is at revision {found}, and this version needs {newest_revision()}. Only a start of the service (`forgefront serve`)"
        " migrates it: start this version, or use the commands of the version that serves it. Nothing was changed"
    )


def _insert_required_rows(connection: Connection) -> None:
    """Inserts the settings, not in a revision, so that they have the current defaults, and writes which programs the schema suits."""
    from storage.tables import schema_compatibility, settings

    dialect = connection.dialect.name
    if inspect(connection).has_table(settings.Settings.__tablename__):
        connection.execute(settings.create_if_missing(dialect))
    breaking = list_breaking_revisions()
    if breaking and inspect(connection).has_table(schema_compatibility.SchemaCompatibility.__tablename__):
        connection.execute(schema_compatibility.upsert(dialect, breaking[-1]))


def list_breaking_revisions() -> list[str]:
    """The revisions that do not only add, oldest first; from the files, without Alembic."""
    paths = sorted(VERSIONS.glob("[0-9]*_*.py"))
    return [path.name.partition("_")[0] for path in paths if not _EXPANDS.search(path.read_text("utf-8"))]


def _read_oldest_revision(connection: Connection) -> str | None:
    from storage.tables import schema_compatibility

    if not inspect(connection).has_table(schema_compatibility.SchemaCompatibility.__tablename__):
        return None
    return connection.execute(schema_compatibility.oldest_revision()).scalar()


def _require_no_other_host(connection: Connection, current: str, host: str) -> None:
    """Raises HostsRunning if a revision after `current` does not only add, and other hosts run."""
    from storage.tables import hosts

    breaking = [revision for revision in list_breaking_revisions() if revision > current]
    if not breaking or not inspect(connection).has_table(hosts.Host.__tablename__):
        return
    # Not through the class, whose columns the table may not have yet.
    query = text("SELECT name, address, version, identity, heartbeat_at FROM hosts").columns(heartbeat_at=Timestamp)
    moment = now() if connection.dialect.name == "sqlite" else connection.execute(select(func.clock_timestamp())).scalar_one()
    running = [
        f"{row.name} ({row.address}, version {row.version})"
        for row in connection.execute(query)
        if row.identity != host and (moment - row.heartbeat_at).total_seconds() < hosts.LIVE_SECONDS
    ]
    if running:
        raise HostsRunning(
            f"revision {breaking[0]} of the database cannot be used by the hosts that run now: {', '.join(running)}. Stop them, then start"
            f" this version; a host that was killed counts as stopped after {hosts.LIVE_SECONDS:.0f} s."
        )


def _known_revisions(config: "Config") -> set[str]:
    from alembic.script import ScriptDirectory

    return {script.revision for script in ScriptDirectory.from_config(config).walk_revisions()}


def _is_at(connection: Connection, revision: str) -> bool:
    if not inspect(connection).has_table("alembic_version"):
        return False
    return list(connection.execute(text("SELECT version_num FROM alembic_version")).scalars()) == [revision]


def _revision(connection: Connection) -> str | None:
    from alembic.runtime.migration import MigrationContext

    return MigrationContext.configure(connection).get_current_revision()


def _run_exclusively(database_url: str, work: Callable[[Connection], bool]) -> None:
    """Runs `work` in one transaction under a lock that excludes other upgrades of the database. It returns whether the schema changed."""
    url = driver_url(database_url)
    if url.get_backend_name() == "postgresql":
        asyncio.run(_run_on_postgresql(url, work, lock=True))
        return
    if not url.database or url.database == ":memory:":
        raise ValueError("migrations need a database in a file")
    path = Path(url.database)
    with _file_lock(path.with_name(f"{path.name}.lock")):
        _run_on_sqlite(url, work)


async def _run_on_postgresql(url: URL, work: Callable[[Connection], T], *, lock: bool = False) -> T:
    """Runs one transaction. The lock is released with it, also if this process is killed."""
    settings = {"timeout": CONNECT_SECONDS, "server_settings": {"statement_timeout": "0", "lock_timeout": "0"}}
    engine = create_async_engine(url, poolclass=NullPool, connect_args=settings)
    async with engine.begin() as connection:
        if lock:
            await connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": ADVISORY_LOCK})
        return await connection.run_sync(work)


def _run_on_sqlite(url: URL, work: Callable[[Connection], bool]) -> None:
    """One transaction, DDL included, in WAL mode: turning that on takes the whole file, so it is done here, alone.

    Foreign keys are off meanwhile, as <https://sqlite.org/lang_altertable.html#otheralter> demands: an alteration copies
    the table and drops the old one, which would delete every row that refers to it. They are checked before the commit, if the schema
    changed: the check reads all rows, and other writers wait for it.
    """
    engine = create_engine(
        url.set(drivername="sqlite"),
        poolclass=NullPool,
        connect_args={"timeout": WAIT_SECONDS, "isolation_level": None},
    )

    @event.listens_for(engine, "connect")
    def connect(connection: Any, _: object) -> None:
        connection.execute("PRAGMA journal_mode = WAL").close()
        connection.execute("PRAGMA foreign_keys = OFF").close()

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE")

    with engine.begin() as connection:
        if not work(connection):
            return
        broken = connection.exec_driver_sql("PRAGMA foreign_key_check").all()
        if broken:
            raise BrokenReferences(f"{len(broken)} rows, the first in {broken[0][0]}, refer to rows of {broken[0][2]}")


@contextmanager
def _file_lock(path: Path) -> Iterator[None]:
    """Holds an exclusive lock on a file. The file is not deleted, because two processes could then lock two files with the same name."""
    with path.open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
