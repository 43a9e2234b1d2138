"""Rotates the secret key: encrypts the values of all encrypted columns with a new key, in one transaction.

A process that is killed before the commit has changed nothing. Values that the new key decrypts already stay as they are, so a rotation can
be repeated after a kill whatever the outcome of its commit was.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Column, Table, bindparam, func, or_, select, text, update
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlmodel import col

from storage import integrity
from storage.database.clock import now
from storage.database.column_types import metadata
from storage.database.engine import Database
from storage.secrets import TokenCipher
from storage.tables.base import is_encrypted
from storage.tables.hosts import LIVE_SECONDS, Host, others

BATCH_ROWS = 500

ReportProgress = Callable[[int, int], None]


class RotationRefused(Exception):
    """The key cannot be rotated; the message says why and what to do. Nothing was changed."""


@dataclass(slots=True)
class RotationResult:
    """Numbers of values: `encrypted` again, with the new key already (`unchanged`), and with neither key (`unreadable`), which stay."""

    encrypted: int = 0
    unchanged: int = 0
    unreadable: int = 0


def list_encrypted_columns() -> dict[Table, list[Column[Any]]]:
    """The encrypted columns of each table that has some, as its class declares them."""
    columns = {table: [column for column in table.columns if is_encrypted(column)] for table in metadata.sorted_tables}
    return {table: found for table, found in columns.items() if found}


async def rotate_key(
    database: Database, old: TokenCipher, new: TokenCipher, *, host: str, before_commit: Callable[[], None], progress: ReportProgress
) -> RotationResult:
    """Encrypts all values that `old` decrypts with `new`. `host` is the identity of this host, which does not run.

    `before_commit` is called when all is written and nothing is committed yet; if it raises, nothing is changed. Raises RotationRefused if
    other hosts run, or if values exist and none has one of the keys; DatabaseBusy, and the errors of the driver.
    """
    result, tables = RotationResult(), list_encrypted_columns()
    async with database.write_engine.connect() as connection:
        await _require_no_host(connection, database.dialect, host)
        total, done = 0, 0
        for table, columns in tables.items():
            total += await connection.scalar(select(func.count()).select_from(table).where(_has_value(columns))) or 0
        progress(done, total)
        for table, columns in tables.items():
            last_id = 0
            while rows := await _read_batch(connection, table, columns, last_id):
                last_id = rows[-1][0]
                await _write_batch(connection, table, columns, [_encrypt_row(columns, row, old, new, result) for row in rows])
                done += len(rows)
                progress(done, total)
        if result.unreadable and not result.encrypted and not result.unchanged:
            raise RotationRefused("the secrets in the database were encrypted with another key than the present one. Nothing was changed")
        before_commit()
        await connection.commit()
    return result


async def forget_lost_key(database: Database, present: TokenCipher, *, host: str) -> None:
    """Deletes the stored tokens and values of variables, whose key is lost, so that the present key can be used from now on.

    Raises RotationRefused if other hosts run, or if the present key is that of the database; DatabaseBusy, and the errors of the driver.
    """
    async with database.write_engine.connect() as connection:
        await _require_no_host(connection, database.dialect, host)
        sealed = await connection.scalar(integrity.newest_sealed_token())
        if sealed is None or present.matches(sealed):
            raise RotationRefused("the secrets in the database have the present key, which is not lost. Nothing was changed")
        for statement in integrity.list_forgetting_statements():
            await connection.execute(statement)
        await connection.commit()


async def _require_no_host(connection: AsyncConnection, dialect: str, host: str) -> None:
    """Raises RotationRefused if a host runs, and keeps hosts from starting until the end of the transaction."""
    if dialect == "postgresql":
        # A command on another machine waits with its writes, which would have the old key.
        names = ", ".join(sorted(table.name for table in list_encrypted_columns()))
        await connection.execute(text(f"LOCK TABLE hosts, {names} IN EXCLUSIVE MODE"))
    moment: datetime = now() if dialect == "sqlite" else (await connection.execute(select(func.clock_timestamp()))).scalar_one()
    live = others(host, moment - timedelta(seconds=LIVE_SECONDS)).with_only_columns(col(Host.name), col(Host.address))
    if running := [f"{name} ({address})" for name, address in await connection.execute(live)]:
        raise RotationRefused(
            f"these hosts run: {', '.join(running)}. Stop all hosts first; a killed one counts as stopped after {LIVE_SECONDS:.0f} s."
            " Nothing was changed"
        )


def _has_value(columns: list[Column[Any]]) -> Any:
    return or_(*(column.is_not(None) & (column != "") for column in columns))


async def _read_batch(connection: AsyncConnection, table: Table, columns: list[Column[Any]], last_id: int) -> list[Any]:
    statement = select(table.c.id, *columns).where(table.c.id > last_id, _has_value(columns)).order_by(table.c.id).limit(BATCH_ROWS)
    return list(await connection.execute(statement))


async def _write_batch(connection: AsyncConnection, table: Table, columns: list[Column[Any]], rows: list[dict[str, Any]]) -> None:
    values: dict[str, Any] = {column.name: bindparam(f"new_{column.name}") for column in columns}
    await connection.execute(update(table).where(table.c.id == bindparam("row_id")).values(values), rows)


def _encrypt_row(columns: list[Column[Any]], row: Any, old: TokenCipher, new: TokenCipher, result: RotationResult) -> dict[str, Any]:
    """The parameters of the statement that writes the row."""
    row_id, *values = row
    encrypted = {f"new_{column.name}": _encrypt(value, old, new, result) for column, value in zip(columns, values, strict=True)}
    return {"row_id": row_id, **encrypted}


def _encrypt(value: str | None, old: TokenCipher, new: TokenCipher, result: RotationResult) -> str | None:
    if not value:
        return value
    # base64 has no colon, so what precedes the last one is a prefix.
    prefix, separator, ciphertext = value.rpartition(":")
    if (plain := old.try_decrypt(ciphertext)) is not None:
        result.encrypted += 1
        return f"{prefix}{separator}{new.encrypt(plain)}"
    if new.matches(ciphertext):
        result.unchanged += 1
    else:
        result.unreadable += 1
    return value
