"""Recognizes errors that a full disk causes, whichever library reports them."""

import errno
import os
import sqlite3

import pygit2
from sqlalchemy.exc import DBAPIError

DISK_FULL_ERRNOS = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EFBIG))
"""No space left, the quota is used up, or the limit of a file's size is reached."""
DISK_FULL_SQLSTATE = "53100"


def is_disk_full(error: BaseException) -> bool:
    """Whether an operation failed because nothing more can be written: to files, git objects or the database."""
    cause = error.orig if isinstance(error, DBAPIError) else error
    if isinstance(cause, OSError) and cause.errno is not None:
        return cause.errno in DISK_FULL_ERRNOS
    if isinstance(cause, sqlite3.OperationalError):
        return getattr(cause, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL
    if isinstance(cause, (pygit2.GitError, OSError)):
        # libgit2 passes on the operating system's message without its error number, and pygit2 raises some of its errors as OSError.
        return any(os.strerror(number) in str(cause) for number in DISK_FULL_ERRNOS)
    return getattr(cause, "sqlstate", None) == DISK_FULL_SQLSTATE
