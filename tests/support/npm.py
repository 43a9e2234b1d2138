"""npm packages that tests run: installed by `npm ci`, once for each content of a folder, into a cache of the user."""

import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

CACHE_FOLDER = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "forgefront-tests"
NPM_INSTALL_COMMAND = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]


def install_packages(folder: Path, purpose: str, seconds: float = 60.0) -> Path:
    """A copy of the folder with the packages of its lock file; skips the test with NOT RUN if npm is missing or fails."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        pytest.skip(f"NOT RUN: {purpose} (apt install nodejs npm)")
    contents = b"".join(path.read_bytes() for path in sorted(folder.iterdir()))
    installed = CACHE_FOLDER / f"{folder.name}-{hashlib.sha256(contents).hexdigest()[:16]}"
    if installed.exists():
        return installed
    CACHE_FOLDER.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE_FOLDER) as making:
        shutil.copytree(folder, making, dirs_exist_ok=True)
        try:
            subprocess.run(NPM_INSTALL_COMMAND, cwd=making, check=True, capture_output=True, text=True, timeout=seconds)
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
            pytest.skip(f"NOT RUN: {purpose} (npm failed: {error.stderr or error})")
        # Another process of the same run may have been faster.
        if not installed.exists():
            Path(making).rename(installed)
    return installed
