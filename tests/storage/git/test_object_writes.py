"""Objects written while a repack removes their folders."""

import subprocess
import sys
from pathlib import Path

import pygit2
import pytest
from pygit2.enums import ObjectType

from storage.git.object_writes import MAX_ATTEMPTS, write_object

MAX_WRITES = 50_000
"""Some three hundred are expected to meet a folder that was removed."""
REMOVE_EMPTY_FOLDERS = """
import os, sys
folders = [os.path.join(sys.argv[1], f"{number:02x}") for number in range(256)]
while True:
    for folder in folders:
        try:
            os.rmdir(folder)
        except OSError:
            pass
"""


def test_a_folder_that_was_removed_is_created_again(tmp_path: Path) -> None:
    handle = pygit2.init_repository(str(tmp_path), bare=True)
    attempts: list[bytes] = []

    def write() -> pygit2.Oid:
        attempts.append(b"%d" % number)
        return handle.odb.write(ObjectType.BLOB, attempts[-1])

    removing = subprocess.Popen([sys.executable, "-S", "-c", REMOVE_EMPTY_FOLDERS, tmp_path / "objects"])
    try:
        for number in range(MAX_WRITES):
            oid = str(write_object(write))
            # Raises FileNotFoundError if the object is missing; then its folder is empty again.
            (tmp_path / "objects" / oid[:2] / oid[2:]).unlink()
            if len(attempts) > number + 1:
                return
    finally:
        removing.kill()
        removing.wait()
    pytest.fail("no folder was removed while an object was written")


@pytest.mark.parametrize(("message", "attempts"), [("failed to write: disk full", 1), ("failed to rename lockfile to 'x'", MAX_ATTEMPTS)])
def test_other_errors_and_lasting_ones_are_raised(message: str, attempts: int) -> None:
    calls = []

    def write() -> pygit2.Oid:
        calls.append(message)
        raise OSError(message)

    with pytest.raises(OSError, match=message):
        write_object(write)
    assert len(calls) == attempts
