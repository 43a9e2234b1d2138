"""Permissions of the data folder: what the service stores is for the user alone who runs it, whatever the umask and the folder's own mode.

What lies in the folders of repositories, uploads and artifacts is protected by the mode of these folders.
"""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import structlog

from forgefront.config import Config
from forgefront.data_folder_lock import LOCK_FILE_NAME as LOCK_FILE
from storage.database.engine import driver_url
from storage.secrets import KEY_FILE

SSH_HOST_KEY_FILE = "ssh_host_ed25519_key"
OTHERS_MODE = stat.S_IRWXG | stat.S_IRWXO
"""The permissions of everybody but the owner."""

log = structlog.get_logger()


def restrict_permissions(config: Config) -> None:
    """Has this process create files for its user alone, and takes what others may do with those that exist from them.

    What cannot be changed is logged; `forgefront check` reports it too.
    """
    os.umask(OTHERS_MODE)
    for path, mode in find_exposed(config):
        try:
            path.chmod(mode & ~OTHERS_MODE)
        except OSError as error:
            log.warning("file open to others", path=str(path), mode=f"{mode:o}", error=error.strerror)
        else:
            log.warning("permissions corrected", path=str(path), was=f"{mode:o}", now=f"{mode & ~OTHERS_MODE:o}")


def find_exposed(config: Config) -> Iterator[tuple[Path, int]]:
    """The files and folders of the service that others may read or write, with their modes. The data folder itself is not among them."""
    for path in _private_paths(config):
        try:
            mode = stat.S_IMODE(path.stat().st_mode)
        except OSError:
            continue
        if mode & OTHERS_MODE:
            yield path, mode


def _private_paths(config: Config) -> list[Path]:
    paths = [config.data / name for name in (KEY_FILE, SSH_HOST_KEY_FILE, LOCK_FILE)]
    paths += [config.repositories, config.uploads, config.artifacts]
    if config.uses_sqlite:
        # SQLite gives the other two the mode of the database when it makes them.
        database = driver_url(config.database_url).database or ""
        paths += [Path(f"{database}{suffix}") for suffix in ("", "-wal", "-shm")]
    return paths
