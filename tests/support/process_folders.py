"""Folders for what a process of the suite makes once, and its tests copy."""

import atexit
import os
import shutil
import tempfile
from pathlib import Path


def create_process_folder(name: str) -> Path:
    """A new folder that is removed when this process ends."""
    folder = Path(tempfile.mkdtemp(prefix=f"forgefront-{name}-"))
    owner = os.getpid()
    # Not in the programs that are forked from this process.
    atexit.register(lambda: shutil.rmtree(folder) if os.getpid() == owner else None)
    return folder
