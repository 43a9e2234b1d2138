"""The identity of this instance: one row with id 1, which the first start with a bucket inserts."""

from typing import Any

from sqlalchemy import Select, select
from sqlmodel import Field, col

from storage.database.dialects import insert_into
from storage.database.engine import Database
from storage.tables.base import Row

IDENTITY_ID = 1


class InstanceIdentity(Row, table=True):
    """A random string, by which an instance knows its buckets. It is not part of a dump: the restored instance has its own."""

    __tablename__ = "instance_identity"

    identity: str = Field(max_length=32)


async def find(database: Database) -> str | None:
    """The identity of the instance; None until it has one."""
    async with database.read_session() as session:
        found = await session.read(_identity())
    return found[0][0] if found else None


async def find_or_create(database: Database, proposed: str) -> str:
    """The identity of the instance, which becomes `proposed` if it has none."""
    if (identity := await find(database)) is None:
        async with database.write_session() as session:
            await session.execute(_create_if_missing(database.dialect, proposed))
            await session.commit()
        identity = await find(database)
    assert identity is not None, "the row was inserted by this process or by another"  # noqa: S101
    return identity


def _identity() -> Select[str]:
    return select(col(InstanceIdentity.identity)).where(col(InstanceIdentity.id) == IDENTITY_ID)


def _create_if_missing(dialect: str, identity: str) -> Any:
    return insert_into(dialect, InstanceIdentity).values(id=IDENTITY_ID, identity=identity).on_conflict_do_nothing(index_elements=["id"])
