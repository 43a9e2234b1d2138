"""What an error of the database means: whether a retry may succeed, somebody has to act, or a unique value is taken."""

import sqlite3

from sqlalchemy.exc import DBAPIError, IntegrityError, OperationalError
from sqlalchemy.exc import TimeoutError as NoConnectionFree

from storage.database.writers import DatabaseBusy

MAX_LOGGED_MESSAGE = 200
LOCK_CONFLICT_SQLSTATES = ("40001", "40P01", "55P03")
UNUSABLE_SQLSTATES = ("28", "3D", "42501", "53100", "XX001", "XX002")
UNUSABLE_SQLITE_CODES = (
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_CORRUPT,
    sqlite3.SQLITE_NOTADB,
)


def is_unique_violation(error: IntegrityError) -> bool:
    """Whether a unique constraint was violated, rather than a foreign key, a check or a NOT NULL constraint."""
    code = getattr(error.orig, "sqlstate", None) or getattr(error.orig, "sqlite_errorname", "")
    return code in ("23505", "SQLITE_CONSTRAINT_UNIQUE", "SQLITE_CONSTRAINT_PRIMARYKEY")


def violated_unique_column(error: IntegrityError) -> str | None:
    """Returns the column, such as `users.email`, whose unique constraint was violated; None for any other error.

    SQLite names the column in its message. PostgreSQL names the table and the constraint, whose name follows `NAMING_CONVENTION`.
    """
    if not is_unique_violation(error):
        return None
    name = getattr(error.orig.__cause__, "constraint_name", None) if error.orig is not None else None
    if name is not None:
        table = str(getattr(error.orig.__cause__, "table_name", None))  # type: ignore[union-attr]
        return f"{table}.{str(name).removeprefix(f'uq_{table}_')}"
    return str(error.orig).rpartition(": ")[2]


def is_unavailable(error: BaseException) -> bool:
    """Whether the database itself could not answer (unreachable, restarting, busy, over its time limit), so that a retry may succeed."""
    if isinstance(error, DatabaseBusy | NoConnectionFree | ConnectionError | TimeoutError):
        return True
    if isinstance(error, DBAPIError) and (error.connection_invalidated or isinstance(error.orig, OSError)):
        return True
    # Readers raise the driver's errors themselves.
    cause = error.orig if isinstance(error, DBAPIError) else error
    state = str(getattr(cause, "sqlstate", None) or "")
    if state[:2] in ("08", "53", "57") or state in LOCK_CONFLICT_SQLSTATES:
        return True
    if isinstance(error, OperationalError | sqlite3.OperationalError):
        return "locked" in str(cause) or "busy" in str(cause)
    return type(cause).__module__.startswith("asyncpg.") and type(cause).__name__ == "InterfaceError"


def is_lock_conflict(error: BaseException) -> bool:
    """Whether PostgreSQL rolled a transaction back because of the locks of others, so that a repetition may succeed."""
    return isinstance(error, DBAPIError) and getattr(error.orig, "sqlstate", None) in LOCK_CONFLICT_SQLSTATES


def is_unusable(error: BaseException) -> bool:
    """Whether the database refuses all work of this program, whatever it is, so that somebody has to act.

    The user, the name of the database or a permission is wrong, the disk is full, or the file is damaged or no database.
    """
    cause = error.orig if isinstance(error, DBAPIError) else error
    state = str(getattr(cause, "sqlstate", None) or "")
    return state.startswith(UNUSABLE_SQLSTATES) if state else sqlite_result_code(error) in UNUSABLE_SQLITE_CODES


def sqlite_result_code(error: BaseException) -> int:
    """The primary result code of SQLite (https://sqlite.org/rescode.html) of an error; 0 if it is none of SQLite's."""
    cause = error.orig if isinstance(error, DBAPIError) else error
    return int(getattr(cause, "sqlite_errorcode", 0)) & 0xFF


def describe_error(error: BaseException) -> str:
    """The class, the SQLSTATE if there is one, and the first line of the message, without the statement and its values; for the log."""
    cause = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
    state = getattr(cause, "sqlstate", None)
    return f"{type(error).__name__}{f' {state}' if state else ''}: {str(cause).partition(chr(10))[0][:MAX_LOGGED_MESSAGE]}"
