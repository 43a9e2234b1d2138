"""Gives a user another id, with everything that refers to it."""

from typing import Any

from sqlalchemy import delete, func, insert, select, update
from sqlmodel import col

from graph.context import Context
from storage import tables
from storage.database.statements import bulk_rows
from storage.tables import ImportKind, import_identities, metadata
from storage.tables.accounts import users


async def highest_id(context: Context) -> int:
    return await context.value(select(func.coalesce(func.max(col(tables.User.id)), 0))) or 0


async def move_user(context: Context, old_id: int, new_id: int) -> None:
    """Change the id of a user to one that no user has."""
    table: Any = metadata.tables[tables.User.__tablename__]
    session = context.session
    columns = (await session.execute(select(table).where(table.c.id == old_id).with_for_update())).mappings().one()
    placeholder = f"moved-{old_id}"
    await session.execute(update(table).where(table.c.id == old_id).values(username=placeholder, email=f"{placeholder}@invalid"))
    await session.execute(insert(table).values({**columns, "id": new_id}))
    for statement in users.reassign_everything(old_id, new_id):
        await session.execute(statement)
    await session.execute(import_identities.reassign(ImportKind.USER, old_id, new_id))
    await session.execute(delete(table).where(table.c.id == old_id))
    await bulk_rows.raise_sequence(session, tables.User, new_id)
    context.loaders.clear()
