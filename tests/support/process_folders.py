"""Folders for what a process of the suite, or one process of a run, makes once, and its tests copy."""

import atexit
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

RUN_FOLDER_VARIABLE = "TESTS_RUN_FOLDER"
"""Names the folder that all processes of a run share."""


def create_process_folder(name: str) -> Path:
    """A new folder that is removed when this process ends."""
    folder = Path(tempfile.mkdtemp(prefix=f"forgefront-{name}-"))
    owner = os.getpid()
    # Not in the programs that are forked from this process.
    atexit.register(lambda: shutil.rmtree(folder) if os.getpid() == owner else None)
    return folder


@cache
def run_folder() -> Path:
    """The folder of the run. The first process creates it, and the others find it in their environment."""
    if RUN_FOLDER_VARIABLE not in os.environ:
        os.environ[RUN_FOLDER_VARIABLE] = str(create_process_folder("run"))
    return Path(os.environ[RUN_FOLDER_VARIABLE])


@contextmanager
def lock_run_file(name: str) -> Iterator[Path]:
    """The path of a file in the folder of the run. Until the end of the block, other processes of the run wait for it."""
    path = run_folder() / name
    with path.with_name(f"{name}.lock").open("ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield path
