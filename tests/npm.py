"""Packages of npm that tests run: installed by `npm ci`, once for each content of a folder, into a cache of the user's."""

import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "forgefront-tests"
NPM = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]


def install(folder: Path, what: str, seconds: float = 60.0) -> Path:
    """A copy of the folder with what its lock file names; skips the test, saying NOT RUN, where npm is missing or cannot install it."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        pytest.skip(f"NOT RUN: {what} (apt install nodejs npm)")
    contents = b"".join(path.read_bytes() for path in sorted(folder.iterdir()))
    kept = CACHE / f"{folder.name}-{hashlib.sha256(contents).hexdigest()[:16]}"
    if kept.exists():
        return kept
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE) as making:
        shutil.copytree(folder, making, dirs_exist_ok=True)
        try:
            subprocess.run(NPM, cwd=making, check=True, capture_output=True, text=True, timeout=seconds)
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
            pytest.skip(f"NOT RUN: {what} (npm could not install it: {error.stderr or error})")
        # Another process of the same run may have been quicker.
        if not kept.exists():
            Path(making).rename(kept)
    return kept
