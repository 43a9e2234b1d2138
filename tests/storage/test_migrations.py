import asyncio
import contextlib
import hashlib
import shutil
import signal
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.autogenerate.api import AutogenContext
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import JSON, Connection, Dialect, Inspector, create_engine, inspect, text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.types import TypeDecorator, TypeEngine
from sqlmodel import AutoString, SQLModel

from storage import migrations
from storage.database.clock import now
from storage.database.column_types import Timestamp, enum_type
from storage.database.engine import Database
from storage.migrations.__main__ import write_revision
from storage.migrations.rendering import render_item
from storage.tables import Build, CheckStatus, IssueState, Namespace, NamespaceKind, Project, User, metadata
from tests.support.database import migrated_databases
from tests.support.database.databases import create_databases
from tests.support.database.upgrade_processes import processes, upgrade_on_signal, upgrade_until
from tests.support.reliability_promises import promise, scaled_count

NewDatabase = Callable[[], str]

KILLS = scaled_count(20, 3)
"""How many times an upgrade is killed, at points spread over its statements."""


async def run_on(url: str, work: Callable[[Connection], Any]) -> Any:
    """Runs synchronous `work` on a connection to the database, and commits."""
    database = Database(url)
    try:
        async with database.engine.begin() as connection:
            return await connection.run_sync(work)
    finally:
        await database.close()


async def upgrade(url: str) -> list[str]:
    return await asyncio.to_thread(migrations.upgrade, url)


def differences(connection: Connection) -> list[Any]:
    """What autogenerate would write."""
    context = MigrationContext.configure(connection, opts={"compare_type": True, "compare_server_default": True})
    return list(compare_metadata(context, metadata))


def schema_shape(connection: Connection) -> dict[str, Any]:
    """Everything the database itself knows of its tables, in a form that can be compared."""
    inspector: Inspector = inspect(connection)

    def render_value(value: Any) -> str:
        # The condition of an index is a clause, which would show where it lies in memory.
        return str({key: str(each) for key, each in value.items()}) if isinstance(value, dict) else str(value)

    def in_order(found: Any) -> list[str]:
        return sorted(repr(sorted((key, render_value(value)) for key, value in one.items())) for one in found)

    # What the inspector does not show: AUTOINCREMENT, without which the id of a deleted row is used again, and indexes of expressions.
    statements: dict[str, list[Any]] = {}
    if connection.dialect.name == "sqlite":
        query = "SELECT tbl_name, type, sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY name"
        for table, kind, sql in connection.execute(text(query)):
            shown = " ".join(sql.replace('"', "").split()) if kind != "table" else "AUTOINCREMENT" in sql
            statements.setdefault(table, []).append((kind, shown))
    else:
        query = (
            "SELECT c.relname, pg_get_triggerdef(t.oid), p.prosrc FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid"
            " JOIN pg_proc p ON p.oid = t.tgfoid WHERE NOT t.tgisinternal ORDER BY t.tgname"
        )
        for table, trigger, function in connection.execute(text(query)):
            statements.setdefault(table, []).append((trigger, " ".join(function.split())))

    return {
        table: [
            statements.get(table, []),
            in_order(inspector.get_columns(table)),
            in_order(inspector.get_indexes(table)),
            in_order(inspector.get_foreign_keys(table)),
            in_order(inspector.get_unique_constraints(table)),
            in_order(inspector.get_check_constraints(table)),
            in_order([inspector.get_pk_constraint(table)]),
        ]
        for table in inspector.get_table_names()
        if table != "alembic_version"
    }


def known_revisions() -> list[str]:
    """Every revision, oldest first."""
    scripts = ScriptDirectory.from_config(migrations.configuration())
    return [script.revision for script in scripts.walk_revisions()][::-1]


def tables(connection: Connection) -> list[str]:
    return inspect(connection).get_table_names()


def insert_row(connection: Connection, row: SQLModel, **values: Any) -> None:
    """Inserts what the table, which may be of an earlier revision, has columns for."""
    table = metadata.tables[type(row).__tablename__]  # type: ignore[index]
    names = {column["name"] for column in inspect(connection).get_columns(table.name)}
    connection.execute(table.insert(), {name: value for name, value in row.model_dump().items() if name in names} | values)


def add_users(connection: Connection) -> None:
    """Users with the identities that they had before there was a table of them."""
    shared = [("ldapmain", "UID=Ada, DC=x"), ("ldapmain", "uid=ada,dc=x")]
    identities = [*shared, ("openid_connect", "Sub"), ("ldapmain", None), (None, "x"), ("", "")]
    for number, (provider, extern_uid) in enumerate(identities, 1):
        user = User(username=f"u{number}", name="U", email=f"u{number}@x.example", provider=provider, extern_uid=extern_uid)
        insert_row(connection, user, id=number)


def add_builds(connection: Connection) -> None:
    """Builds that wait without a queue, and others."""
    projects: list[dict[str, Any]] = [{}, {"shared_runners_enabled": False}, {"builds_enabled": False}, {"archived": True}]
    lost: dict[str, Any] = {"commands": "make", "tags": ["b", "a", "b"]}
    others = [{"commands": None}, {"queue": "x"}, {"status": CheckStatus.MANUAL}, {"status": CheckStatus.FAILED}, {"current_id": 1}]
    insert_row(connection, Namespace(id=1, kind=NamespaceKind.GROUP, path="g", path_key="g", name="G"))
    for number, columns in enumerate(projects, 1):
        insert_row(connection, Project(id=number, namespace_id=1, name="P", path=f"p{number}", path_key=f"p{number}", **columns))
    builds = [{"project_id": number} for number in range(1, len(projects) + 1)] + [{"project_id": 1, **each} for each in others]
    for number, columns in enumerate(builds, 1):
        insert_row(connection, Build(id=number, sha="1" * 40, ref="master", name="unit", **lost | columns))


@dataclass
class UpgradedDatabase:
    """A database that was upgraded from nothing to the head in steps. At the revisions between them it got rows, which later ones change.

    `applied` are the revisions that each step applied, `revisions` those of the database before the first step and after each.
    """

    url: str
    applied: list[list[str]] = field(default_factory=list)
    revisions: list[str | None] = field(default_factory=list)


@pytest.fixture(scope="module")
def upgrade_in_steps(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[str], UpgradedDatabase]]:
    """Upgrades a database of this dialect once for all tests that only read it: all revisions take half a second."""
    with contextlib.ExitStack() as servers:

        @cache
        def upgrade_once(dialect: str) -> UpgradedDatabase:
            if dialect == "sqlite":
                url = f"sqlite+aiosqlite:///{tmp_path_factory.mktemp('upgraded')}/forge.db"
            else:
                url = servers.enter_context(create_databases(request.getfixturevalue("postgres")))()
            found = UpgradedDatabase(url, revisions=[migrations.current_revision(url)])
            for revision, add_rows in (("0014", add_users), ("0033", add_builds), (None, None)):
                found.applied.append(migrations.upgrade(url, revision))
                found.revisions.append(migrations.current_revision(url))
                if add_rows is not None:
                    asyncio.run(run_on(url, add_rows))
            return found

        yield upgrade_once


@pytest.fixture
def upgraded(dialect: str, upgrade_in_steps: Callable[[str], UpgradedDatabase]) -> UpgradedDatabase:
    return upgrade_in_steps(dialect)


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The first revision, generated from all tables; the same for both databases."""
    folder = tmp_path_factory.mktemp("generated")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(migrations, "VERSIONS", folder)
        path = write_revision("All of it")
    assert path == folder / "0001_all_of_it.py"
    return path


FROZEN = {"0001": "58a2ad9adb37738f5edc62abd41163c47214e1dcf9975fa35aea1b7765f62f80"}
"""The SHA-256 of revisions of which databases exist."""


def definitions_of(connection: Connection) -> dict[str, list[tuple[str, str | None]]]:
    """The statements that created each table of a SQLite database and its indexes."""
    found: dict[str, list[tuple[str, str | None]]] = {}
    for table, name, sql in connection.execute(text("SELECT tbl_name, name, sql FROM sqlite_master ORDER BY tbl_name, name")):
        found.setdefault(table, []).append((name, sql))
    return found


def find_breaking_changes(before: Connection, after: Connection) -> list[str]:
    """What a program of the schema `before` cannot use in that of `after`, of SQLite databases."""
    old_definitions, new_definitions = definitions_of(before), definitions_of(after)
    old, new = inspect(before), inspect(after)
    found = [f"{table} is gone" for table in set(old.get_table_names()) - set(new.get_table_names())]
    for table in set(old.get_table_names()) & set(new.get_table_names()):
        if old_definitions[table] == new_definitions[table]:
            continue
        known = {column["name"]: column for column in old.get_columns(table)}
        columns = {column["name"]: column for column in new.get_columns(table)}
        found += [f"{table}.{name} is gone" for name in known.keys() - columns.keys()]
        for name, column in columns.items():
            if name not in known and not column["nullable"] and column["default"] is None:
                found.append(f"{table}.{name} needs a value")
            if name in known and (str(column["type"]), column["nullable"]) != (str(known[name]["type"]), known[name]["nullable"]):
                found.append(f"{table}.{name} has changed")
        for kind in ("unique_constraints", "check_constraints", "foreign_keys"):
            # A foreign key of a new column restricts no program that does not know the column.
            kept = [each for each in getattr(new, f"get_{kind}")(table) if known.keys() >= set(each.get("constrained_columns", ()))]
            found += [f"{table} has more {kind}"] if len(kept) != len(getattr(old, f"get_{kind}")(table)) else []
        unique = [sum(bool(each["unique"]) for each in inspector.get_indexes(table)) for inspector in (old, new)]
        found += [f"{table} has more unique indexes"] if unique[0] != unique[1] else []
    return sorted(found)


def find_false_marks() -> dict[str, list[str]]:
    """By revision that is marked as one that only adds: what else it does. On SQLite, which shows the same as PostgreSQL."""
    known, breaking = sorted(path.name[:4] for path in migrations.VERSIONS.glob("[0-9]*.py")), migrations.list_breaking_revisions()
    found, reached = {}, ""
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder, name) for name in ("before.db", "after.db")]
        for before, revision in pairwise(known):
            if revision in breaking:
                continue
            if reached != before:
                migrations.upgrade(f"sqlite:///{paths[1]}", before)
            shutil.copyfile(paths[1], paths[0])
            migrations.upgrade(f"sqlite:///{paths[1]}", reached := revision)
            engines = [create_engine(f"sqlite:///{path}") for path in paths]
            with engines[0].connect() as old, engines[1].connect() as new:
                found[revision] = find_breaking_changes(old, new)
            for engine in engines:
                engine.dispose()
    return found


class TestRevisions:
    @pytest.mark.parametrize("revision", FROZEN)
    def test_of_a_released_version_do_not_change(self, revision: str) -> None:
        (path,) = migrations.VERSIONS.glob(f"{revision}_*.py")

        found = hashlib.sha256(path.read_bytes()).hexdigest()
        assert found == FROZEN[revision], f'restore {path.name}, and write a new revision: scripts/migration "what changed"'

    def test_stand_in_one_line(self) -> None:
        scripts = ScriptDirectory.from_config(migrations.configuration())

        assert len(scripts.get_heads()) == 1, "two revisions follow the same one: delete yours and run scripts/migration again"
        assert scripts.get_current_head() == migrations.head_revision() == migrations.newest_revision()
        names = sorted(path.name for path in migrations.VERSIONS.glob("*.py"))
        assert [name[:4] for name in names] == [f"{number:04d}" for number in range(1, len(names) + 1)]

    def test_that_are_marked_to_expand_only_add(self) -> None:
        assert not any(find_false_marks().values()), "take out `expands = True`: hosts of the version before cannot use the database"

    async def test_match_the_tables(self, upgraded: UpgradedDatabase) -> None:
        assert await run_on(upgraded.url, differences) == [], 'run scripts/migration "what changed"'

    async def test_match_a_fresh_database(self, upgraded: UpgradedDatabase, new_database: NewDatabase) -> None:
        await run_on(fresh := new_database(), metadata.create_all)

        assert await run_on(upgraded.url, schema_shape) == await run_on(fresh, schema_shape), 'run scripts/migration "what changed"'


class TestUpgrade:
    async def test_applies_only_missing_revisions(self, upgraded: UpgradedDatabase) -> None:
        assert upgraded.revisions[0] is None
        assert [each[-1] for each in upgraded.applied] == upgraded.revisions[1:] == ["0014", "0033", migrations.head_revision()]
        assert [revision for each in upgraded.applied for revision in each] == await asyncio.to_thread(known_revisions)
        assert await upgrade(upgraded.url) == []

    def test_reading_the_revision_creates_no_file(self, tmp_path: Path) -> None:
        assert migrations.current_revision(f"sqlite:///{tmp_path}/absent.db") is None
        assert list(tmp_path.iterdir()) == []

    async def test_concurrent_starts_upgrade_once(self, new_database: NewDatabase) -> None:
        url = new_database()
        start, results = processes.Barrier(4), processes.SimpleQueue()
        servers = [processes.Process(target=upgrade_on_signal, args=(url, start, results)) for _ in range(4)]
        for server in servers:
            server.start()
        for server in servers:
            server.join(60)

        assert [server.exitcode for server in servers] == [0] * 4
        assert sorted(results.get() for _ in servers) == [[], [], [], await asyncio.to_thread(known_revisions)]
        assert await run_on(url, differences) == []

    @promise("R23", always=True)
    async def test_completes_after_kills(self, new_database: NewDatabase, figure: Callable[[str], None]) -> None:
        url, counts = new_database(), processes.SimpleQueue()

        async def kill_after(statement: int | None) -> None:
            server = processes.Process(target=upgrade_until, args=(url, statement, counts))
            server.start()
            server.join(60)
            assert server.exitcode == -signal.SIGKILL
            assert await run_on(url, tables) == []

        await kill_after(None)
        total = counts.get()
        for number in range(KILLS - 1):
            await kill_after(1 + number * (total - 1) // (KILLS - 2))

        assert await upgrade(url) == await asyncio.to_thread(known_revisions)
        assert await run_on(url, differences) == []
        figure(f"{KILLS} kills over {total} statements: nothing was left by any, the next start completed")

    async def test_rejects_a_database_of_a_newer_program(self, new_database: NewDatabase) -> None:
        await asyncio.to_thread(migrated_databases.upgrade, url := new_database())
        await run_on(url, lambda connection: connection.execute(text("UPDATE alembic_version SET version_num = '9999'")))
        await run_on(url, lambda connection: connection.execute(text("UPDATE schema_compatibility SET oldest_revision = '9998'")))

        with pytest.raises(migrations.DatabaseTooNew, match="9999"):
            await upgrade(url)

    def test_requires_a_file(self) -> None:
        with pytest.raises(ValueError, match="file"):
            migrations.upgrade("sqlite://")


PEOPLE = """
revision = "0001"
down_revision = None


def upgrade():
    op.create_table("people", sa.Column("id", sa.Integer, primary_key=True), sa.Column("name", sa.String(50)))
    op.create_table(
        "pets",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("owner_id", sa.Integer, sa.ForeignKey("people.id", ondelete="CASCADE", name="fk_pets_owner_id")),
    )
    op.execute("INSERT INTO people VALUES (1, 'Ada')")
    op.execute("INSERT INTO pets VALUES (1, 1)")
"""
LONGER_NAMES = """
revision = "0002"
down_revision = "0001"


def upgrade():
    with op.batch_alter_table("people") as people:
        people.alter_column("name", existing_type=sa.String(50), type_=sa.String(99), nullable=False)
"""
FAILS = """
revision = "0003"
down_revision = "0002"


def upgrade():
    op.create_table("half", sa.Column("id", sa.Integer, primary_key=True))
    op.execute("UPDATE people SET name = 'Bob'")
    op.execute("not a statement")
"""
ORPHANS = """
revision = "0003"
down_revision = "0002"


def upgrade():
    op.execute("DELETE FROM people")
"""


NICKNAMES = """
revision = "0002"
down_revision = "0001"
expands = True


def upgrade():
    op.add_column("people", sa.Column("nickname", sa.String(50)))
    op.add_column("people", sa.Column("age", sa.Integer, nullable=False, server_default="0"))
    op.create_index("ix_people_name", "people", ["name"])
    op.create_table("toys", sa.Column("id", sa.Integer, primary_key=True), sa.Column("name", sa.String(9), nullable=False, unique=True))
"""
FALSELY_MARKED = """
revision = "0003"
down_revision = "0002"
expands = True


def upgrade():
    op.drop_table("toys")
    op.execute("DELETE FROM pets")
    op.drop_column("people", "age")
    op.create_index("uq_people_name", "people", ["name"], unique=True)
    with op.batch_alter_table("pets") as pets:
        pets.add_column(sa.Column("weight", sa.Integer, nullable=False))
        pets.alter_column("owner_id", existing_type=sa.Integer, nullable=False)
"""
HOSTS = """
revision = "0001"
down_revision = None


def upgrade():
    op.create_table("schema_compatibility", sa.Column("id", sa.Integer, primary_key=True), sa.Column("oldest_revision", sa.String(32)))
    names = ("identity", "name", "address", "version")
    moment = sa.Column("heartbeat_at", sa.DateTime(timezone=True))
    op.create_table("hosts", sa.Column("id", sa.Integer, primary_key=True), *(sa.Column(name, sa.String(64)) for name in names), moment)
    op.create_table("people", sa.Column("id", sa.Integer, primary_key=True), sa.Column("name", sa.String(50)))
"""


class TestIdentities:
    async def test_are_copied_from_users_once_each(self, upgraded: UpgradedDatabase) -> None:
        """What v3 shows signs in after the upgrade; if users share an identity, the oldest one keeps it."""
        query = text("SELECT user_id, provider, uid FROM identities ORDER BY id")
        found = await run_on(upgraded.url, lambda connection: connection.execute(query).all())
        assert [tuple(row) for row in found] == [(1, "ldapmain", "uid=ada,dc=x"), (3, "openid_connect", "Sub")]


class TestQueues:
    async def test_builds_that_lost_theirs_wait_again(self, upgraded: UpgradedDatabase) -> None:
        """Builds of external systems have no commands, and those of projects whose builds are disabled have no queue."""
        query = text("SELECT id, queue FROM builds WHERE queue IS NOT NULL ORDER BY id")
        found = await run_on(upgraded.url, lambda connection: connection.execute(query).all())
        assert [tuple(row) for row in found] == [(1, "a,b"), (2, ",a,b"), (6, "x")]


class TestLaterRevisions:
    """How revisions to come will run, shown with some of the test's own."""

    @pytest.fixture(autouse=True)
    def versions(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        folder = tmp_path / "versions"
        folder.mkdir()
        monkeypatch.setattr(migrations, "VERSIONS", folder)
        self.folder = folder
        return folder

    def add(self, *revisions: str) -> None:
        for body in revisions:
            number = len(list(self.folder.glob("*.py"))) + 1
            (self.folder / f"{number:04d}_test.py").write_text(f"import sqlalchemy as sa\nfrom alembic import op\n{body}")

    async def test_altering_a_table_preserves_the_rows_that_refer_to_it(self, new_database: NewDatabase) -> None:
        url = new_database()
        self.add(PEOPLE)
        assert await upgrade(url) == ["0001"]
        self.add(LONGER_NAMES)
        assert await upgrade(url) == ["0002"]

        def joined(connection: Connection) -> list[Any]:
            query = text("SELECT name, pets.id FROM people JOIN pets ON owner_id = people.id")
            return [tuple(row) for row in connection.execute(query)]

        assert await run_on(url, joined) == [("Ada", 1)]
        assert await run_on(url, lambda connection: str(inspect(connection).get_columns("people")[1]["type"])) == "VARCHAR(99)"

    async def test_a_failing_revision_rolls_everything_back(self, new_database: NewDatabase) -> None:
        url = new_database()
        self.add(PEOPLE)
        await upgrade(url)
        self.add(LONGER_NAMES, FAILS)

        with pytest.raises(Exception, match="syntax error"):
            await upgrade(url)

        assert await asyncio.to_thread(migrations.current_revision, url) == "0001"
        assert "half" not in await run_on(url, tables)
        assert await run_on(url, lambda connection: str(inspect(connection).get_columns("people")[1]["type"])) == "VARCHAR(50)"
        assert await run_on(url, lambda connection: connection.scalar(text("SELECT name FROM people"))) == "Ada"

    def test_orphans_on_sqlite_are_rejected(self, tmp_path: Path) -> None:
        self.add(PEOPLE, LONGER_NAMES, ORPHANS)

        with pytest.raises(migrations.BrokenReferences, match="1 rows, the first in pets, refer to rows of people"):
            migrations.upgrade(f"sqlite:///{tmp_path}/forge.db")
        with sqlite3.connect(tmp_path / "forge.db") as connection:
            assert connection.execute("SELECT count(*) FROM sqlite_master").fetchone() == (0,)
        connection.close()

    def test_orphans_on_sqlite_are_looked_for_only_if_a_revision_was_applied(self, tmp_path: Path) -> None:
        """The check reads all rows under the write lock, and each command that starts the backend upgrades."""
        self.add(PEOPLE)
        url = f"sqlite:///{tmp_path}/forge.db"
        migrations.upgrade(url)
        with contextlib.closing(sqlite3.connect(tmp_path / "forge.db")) as connection, connection:
            connection.execute("INSERT INTO pets (owner_id) VALUES (77)")
        assert migrations.upgrade(url) == []
        self.add(LONGER_NAMES)
        with pytest.raises(migrations.BrokenReferences, match="1 rows, the first in pets"):
            migrations.upgrade(url)

    def test_that_are_falsely_marked_to_expand_are_found(self) -> None:
        self.add(PEOPLE, NICKNAMES, FALSELY_MARKED)
        wrong = ["people has more unique indexes", "people.age is gone", "pets.owner_id has changed", "pets.weight needs a value"]
        assert find_false_marks() == {"0002": [], "0003": [*wrong, "toys is gone"]}

    async def test_of_which_hosts_are_compatible(self, new_database: NewDatabase) -> None:
        """One that only adds is applied while hosts of the version before run, and they can be started again; any other is not."""
        self.add(HOSTS)
        await upgrade(url := new_database())
        seconds = "'{}'" if url.startswith("sqlite") else "TIMESTAMPTZ '{}'"
        row = (
            "INSERT INTO hosts (identity, name, address, version, heartbeat_at)"
            f" VALUES ('other', 'forge1', '10.0.0.1:80', '0.1', {seconds.format(f'{now():%Y-%m-%d %H:%M:%S.%f}')})"
        )
        await run_on(url, lambda connection: connection.execute(text(row)))

        async def start_version(count: int, host: str = "mine") -> list[str]:
            """Starts the version that has this number of revisions."""
            for path in sorted(self.folder.glob("*.py"))[count:]:
                path.rename(path.with_suffix(".later"))
            try:
                return await asyncio.to_thread(migrations.upgrade, url, host=host)
            finally:
                for path in self.folder.glob("*.later"):
                    path.rename(path.with_suffix(".py"))

        self.add(NICKNAMES, LONGER_NAMES.replace("0001", "0002").replace('revision = "0002"', 'revision = "0003"', 1))
        assert await start_version(2) == ["0002"]
        assert await start_version(1) == await start_version(2) == []
        with pytest.raises(migrations.HostsRunning, match=r"revision 0003.*run now: forge1 \(10.0.0.1:80, version 0.1\). Stop them"):
            await start_version(3)
        assert await asyncio.to_thread(migrations.current_revision, url) == "0002"
        # The host itself, which was killed a moment ago.
        assert await start_version(3, "other") == ["0003"]
        for count in (1, 2):
            with pytest.raises(migrations.DatabaseTooNew, match="at revision 0003"):
                await start_version(count)
        assert await start_version(3) == []

    async def test_the_script_generates_a_migration(self, new_database: NewDatabase, generated: Path) -> None:
        shutil.copy(generated, self.folder)

        assert write_revision("Nothing more") is None
        await upgrade(url := new_database())
        assert await run_on(url, differences) == []


class DocumentType(TypeDecorator[Any]):
    """A type that differs between the databases."""

    impl = JSON
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        return dialect.type_descriptor(JSONB() if dialect.name == "postgresql" else JSON())


class TestRendering:
    @pytest.mark.parametrize(
        ("type", "written"),
        [
            (Timestamp(), "sa.DateTime(timezone=True)"),
            (AutoString(length=20), "sa.String(length=20)"),
            (enum_type(IssueState), "sa.String(length=32)"),
            (JSON(), False),
        ],
    )
    def test_writes_plain_types(self, type: TypeEngine[Any], written: str | bool) -> None:
        context = AutogenContext(MigrationContext.configure(dialect_name="sqlite"))

        assert render_item("type", type, context) == written
        assert context.imports == set()

    def test_imports_a_type_that_differs_between_the_databases(self) -> None:
        context = AutogenContext(MigrationContext.configure(dialect_name="sqlite"))

        assert render_item("type", DocumentType(), context) == f"{__name__}.DocumentType()"
        assert context.imports == {f"import {__name__}"}
