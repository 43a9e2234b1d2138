"""Packages of npm that tests run: a folder with a lock file, installed once for its content into a cache of the user's."""

import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "forgefront-tests"
COMMAND = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
INSTALL_SECONDS = 60


def installed(folder: Path, what: str) -> Path:
    """A copy of the folder with the packages of its lock file beside its scripts. Skips the test, naming `what`, where npm is missing."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        pytest.skip(f"NOT RUN: {what} (apt install nodejs npm)")
    contents = b"".join(path.read_bytes() for path in sorted(folder.iterdir()))
    found = CACHE / f"{folder.name}-{hashlib.sha256(contents).hexdigest()[:16]}"
    if found.exists():
        return found
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE) as making:
        shutil.copytree(folder, making, dirs_exist_ok=True)
        try:
            subprocess.run(COMMAND, cwd=making, check=True, capture_output=True, text=True, timeout=INSTALL_SECONDS)
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
            pytest.skip(f"NOT RUN: {what} (npm could not install them: {error.stderr or error})")
        Path(making).rename(found)
    return found
