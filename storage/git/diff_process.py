"""Computes one large diff in a separate process for `diff_between`: `python -m storage.git.diff_process REPOSITORY COMMIT [OLD]`.

The entries are written to standard output in marshal's format, each as the tuple of `FileDiff`'s fields.
"""

import marshal
import os
import sys
from dataclasses import astuple
from pathlib import Path

from storage.git.diff import read_diff
from storage.git.repository import NotARepository, Repository

NICENESS = 5


def main(path: str, oid: str, old: str | None = None) -> None:
    os.nice(NICENESS)
    try:
        entries = read_diff(Repository.open(Path(path)), old, oid)
    except NotARepository as error:
        sys.exit(str(error))
    sys.stdout.buffer.write(marshal.dumps([astuple(entry) for entry in entries]))


if __name__ == "__main__":
    main(*sys.argv[1:])
