"""Renders column types in revisions."""

from typing import Literal

from alembic.autogenerate.api import AutogenContext
from sqlalchemy import Enum, make_url
from sqlalchemy.types import TypeDecorator

DIALECTS = [make_url(f"{name}://").get_dialect()() for name in ("sqlite", "postgresql+asyncpg")]


def render_item(kind: str, item: object, context: AutogenContext) -> str | Literal[False]:
    """Returns the Python expression of a custom type; False leaves other types to Alembic.

    A revision must never change its meaning, so it uses plain SQLAlchemy types if possible: `Timestamp` is rendered as
    `sa.DateTime(timezone=True)`, SQLModel's string as `sa.String(length=255)`, a non-native enum as `sa.String(length=32)`.
    A TypeDecorator that differs between the databases has no plain type: it is rendered by its name, with its import.
    """
    if kind != "type":
        return False
    if isinstance(item, Enum) and not item.native_enum:
        return f"sa.String(length={item.length})"
    if not isinstance(item, TypeDecorator):
        return False
    plain = item.impl_instance
    if plain.__module__ == "sqlalchemy.sql.sqltypes" and all(repr(item.load_dialect_impl(dialect)) == repr(plain) for dialect in DIALECTS):
        return f"sa.{plain!r}"
    module = type(item).__module__
    context.imports.add(f"import {module}")
    return f"{module}.{item!r}"
