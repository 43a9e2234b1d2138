"""Whether a database is sound: its pages, its references, and the rows that other stores lean on. It only reads."""

from dataclasses import dataclass

from sqlalchemy import Select, Table, func, select, text
from sqlmodel import col

from storage import tables
from storage.database.engine import Database, metadata


@dataclass(frozen=True, slots=True)
class StoredProject:
    """What a project's repository must agree with."""

    id: int
    full_path: str
    default_branch: str | None


@dataclass(frozen=True, slots=True)
class StoredUpload:
    """What the file of an upload must agree with: where it lies, and its length in bytes. `address` is the end of its link."""

    project_id: int
    secret: str
    size: int
    address: str


async def find_broken_pages(database: Database) -> list[str]:
    """What SQLite's integrity check says is wrong, at most 20 lines. PostgreSQL checks its pages itself: always []."""
    if database.dialect != "sqlite":
        return []
    async with database.read_session() as session:
        lines = (await session.execute(text("PRAGMA integrity_check(20)"))).scalars().all()
    return [line for line in lines if line != "ok"]


async def find_broken_references(database: Database) -> list[str]:
    """The foreign keys that some rows break, with the number of those rows, as `notes.author_id: 2 rows name no row of users`."""
    found = []
    async with database.read_session() as session:
        for table in metadata.sorted_tables:
            for statement, name, target in _orphan_counts(table):
                count = await session.scalar(statement)
                if count:
                    found.append(f"{table.name}.{name}: {count} rows name no row of {target}")
    return found


async def list_projects(database: Database) -> list[StoredProject]:
    """Every project, by id."""
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
    """Every upload, by id."""
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


async def any_sealed_token(database: Database) -> str | None:
    """An encrypted token, to try the key of the instance on; None when there is none yet."""
    async with database.read_session() as session:
        sealed: str | None = await session.scalar(select(col(tables.Token.sealed)).order_by(col(tables.Token.id).desc()).limit(1))
        return sealed


async def has_administrator(database: Database) -> bool:
    async with database.read_session() as session:
        return await session.scalar(tables.users.administrators().limit(1)) is not None


def _orphan_counts(table: Table) -> list[tuple[Select[int], str, str]]:
    """For each foreign key of a table: the statement that counts the rows which break it, its column, the table it names."""
    found = []
    for key in sorted(table.foreign_keys, key=lambda key: key.parent.name):
        target = key.column.table.alias()
        statement = (
            select(func.count())
            .select_from(table.outerjoin(target, key.parent == target.c[key.column.name]))
            .where(key.parent.is_not(None), target.c[key.column.name].is_(None))
        )
        found.append((statement, key.parent.name, key.column.table.name))
    return found
