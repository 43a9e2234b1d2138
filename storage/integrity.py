"""Checks the integrity of a database: its pages, its references, and the rows that refer to repositories and uploads."""

from dataclasses import dataclass

from sqlalchemy import Select, Table, Update, select, text, update
from sqlmodel import col

from storage import tables
from storage.database.column_types import metadata
from storage.database.engine import Database, DatabaseSession
from storage.secrets import TokenCipher
from storage.tables import row_counts
from storage.tables.accounts import users


@dataclass(frozen=True, slots=True)
class StoredProject:
    """A project's row, for comparison with its repository."""

    id: int
    full_path: str
    default_branch: str | None


@dataclass(frozen=True, slots=True)
class StoredUpload:
    """An upload's row, for comparison with its file. `size` is in bytes; `address` is the path of its URL."""

    project_id: int
    secret: str
    size: int
    address: str


async def find_broken_pages(database: Database) -> list[str]:
    """Returns the errors of SQLite's integrity check, at most 20. Returns [] on PostgreSQL, which checks its pages itself."""
    if database.dialect != "sqlite":
        return []
    async with database.read_session() as session:
        lines = (await session.execute(text("PRAGMA integrity_check(20)"))).scalars().all()
    return [line for line in lines if line != "ok"]


async def find_broken_references(database: Database) -> list[str]:
    """Returns the foreign keys that rows violate, with the number of rows: `notes.author_id: 2 rows name no row of users`."""
    found = []
    async with database.read_session() as session:
        for table in metadata.sorted_tables:
            for statement, name, target in _orphan_counts(table):
                ((count,),) = await session.fetch(statement, ())
                if count:
                    found.append(f"{table.name}.{name}: {count} rows name no row of {target}")
    return found


async def find_wrong_counts(database: Database) -> list[str]:
    """Returns the counters that differ from the rows that they count: `project 7: 2 more issues that are opened than counted`."""
    async with database.read_session() as session:
        found = (await session.execute(row_counts.find_differences())).all()
    return [
        f"project {project_id}: {abs(number)} {'more' if number > 0 else 'fewer'} {kind} in the state {state} than counted"
        for project_id, kind, state, number in found
    ]


async def correct_counts(database: Database) -> None:
    """Makes all counters those of the rows that they count."""
    async with database.write_session() as session:
        await session.execute(row_counts.repair())
        await session.commit()


async def list_projects(database: Database) -> list[StoredProject]:
    """Returns all projects, ordered by id."""
    statement = (
        select(
            col(tables.Project.id),
            col(tables.Namespace.path) + "/" + col(tables.Project.path),
            col(tables.Project.default_branch),
        )
        .join(tables.Namespace, col(tables.Namespace.id) == col(tables.Project.namespace_id))
        .order_by(col(tables.Project.id))
    )
    async with database.read_session() as session:
        return [StoredProject(*row) for row in (await session.execute(statement)).all()]


async def list_uploads(database: Database) -> list[StoredUpload]:
    """Returns all uploads, ordered by id."""
    statement = (
        select(
            col(tables.Upload.project_id),
            col(tables.Upload.secret),
            col(tables.Upload.size),
            col(tables.Namespace.path)
            + "/"
            + col(tables.Project.path)
            + "/uploads/"
            + col(tables.Upload.secret)
            + "/"
            + col(tables.Upload.name),
        )
        .join(tables.Project, col(tables.Project.id) == col(tables.Upload.project_id))
        .join(tables.Namespace, col(tables.Namespace.id) == col(tables.Project.namespace_id))
        .order_by(col(tables.Upload.id))
    )
    async with database.read_session() as session:
        return [StoredUpload(*row) for row in (await session.execute(statement)).all()]


async def matches_sealed_tokens(session: DatabaseSession, cipher: TokenCipher) -> bool:
    """Whether the newest stored token was encrypted with the key of the cipher; true if there is none."""
    sealed = await session.scalar(newest_sealed_token())
    return sealed is None or cipher.matches(sealed)


def newest_sealed_token() -> Select[str]:
    return select(col(tables.Token.sealed)).where(col(tables.Token.sealed) != "").order_by(col(tables.Token.id).desc()).limit(1)


async def forget_sealed_tokens(database: Database) -> None:
    """Deletes encrypted tokens and values of variables, whose key is lost.

    Tokens still sign in, by their digests, but cannot be shown any more. Builds receive no variable without a value.
    """
    async with database.write_session() as session:
        for statement in list_forgetting_statements():
            await session.execute(statement)
        await session.commit()


def list_forgetting_statements() -> list[Update]:
    """The statements of `forget_sealed_tokens`. Secrets of hooks stay: without one, deliveries would be unsigned instead of failing."""
    return [
        update(tables.Token).values(sealed=""),
        update(tables.Variable).values(sealed_value="", size=0),
        update(tables.Runner).values(sealed_token=None),
        update(tables.Trigger).values(sealed_token=""),
        update(tables.TriggerRequest).values(sealed_variables=None),
        update(tables.Build).where(col(tables.Build.sealed_variables).is_not(None)).values(sealed_variables=None),
    ]


async def has_administrator(database: Database) -> bool:
    async with database.read_session() as session:
        return await session.scalar(users.administrators().limit(1)) is not None


def _orphan_counts(table: Table) -> list[tuple[str, str, str]]:
    """Returns for each foreign key of a table: the SQL that counts violating rows, its column, and the referenced table."""
    found = []
    # Not built with SQLAlchemy, which takes longer to compile these statements, about a hundred, than a small database to run them.
    for key in sorted(table.foreign_keys, key=lambda key: key.parent.name):
        target = key.column.table.name
        statement = (
            f'SELECT count(*) FROM "{table.name}" AS source LEFT JOIN "{target}" AS target ON source."{key.parent.name}"'  # noqa: S608 - names
            f' = target."{key.column.name}" WHERE source."{key.parent.name}" IS NOT NULL AND target."{key.column.name}" IS NULL'
        )
        found.append((statement, key.parent.name, target))
    return found
