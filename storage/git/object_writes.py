"""Writes of single objects, as files of their own, into a repository that may be repacked meanwhile."""

from collections.abc import Callable

import pygit2

MAX_ATTEMPTS = 20
_LOST_FOLDER = "failed to rename lockfile"
"""How the message of libgit2 begins when the folder of an object is missing."""


def write_object(write: Callable[[], pygit2.Oid]) -> pygit2.Oid:
    """Returns the id of the object that `write` writes with libgit2, which syncs it to disk (see the settings in repository.py).

    libgit2 creates the folder of an object, one of 256, and then moves a file into it. A repack removes empty folders (git-prune-packed),
    also in between: `write` runs again then, which is harmless, because the id follows from the contents. Raises what it raises.
    """
    for _ in range(MAX_ATTEMPTS - 1):
        try:
            return write()
        except OSError as error:
            if not str(error).startswith(_LOST_FOLDER):
                raise
    return write()
