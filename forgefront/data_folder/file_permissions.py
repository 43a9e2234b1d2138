"""Permissions of the data folder: only the user who runs the service has access, whatever the umask and the folder's own mode.

The modes of the folders of repositories, uploads and artifacts protect their contents.
"""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import structlog

from forgefront.config import Config
from forgefront.data_folder.data_folder_lock import LOCK_FILE_NAME as LOCK_FILE
from storage.database.engine import driver_url
from storage.secrets import KEY_FILE

SSH_HOST_KEY_FILE = "ssh_host_ed25519_key"
OTHERS_MODE = stat.S_IRWXG | stat.S_IRWXO
"""The permissions of everybody but the owner."""

log = structlog.get_logger()


def restrict_permissions(config: Config) -> None:
    """Makes this process create files for its user only, and removes the permissions of other users from existing files.

    Files that cannot be changed are logged; `forgefront check` reports them too.
    """
    os.umask(OTHERS_MODE)
    for path, mode in find_exposed(config):
        try:
            path.chmod(mode & ~OTHERS_MODE)
        except OSError as error:
            log.warning("file is accessible to other users", path=str(path), mode=f"{mode:o}", error=error.strerror)
        else:
            log.warning("permissions corrected", path=str(path), was=f"{mode:o}", now=f"{mode & ~OTHERS_MODE:o}")


def find_exposed(config: Config) -> Iterator[tuple[Path, int]]:
    """The files and folders of the service that other users may read or write, with their modes, without the data folder itself."""
    for path in _private_paths(config):
        try:
            mode = stat.S_IMODE(path.stat().st_mode)
        except OSError:
            continue
        if mode & OTHERS_MODE:
            yield path, mode


def _private_paths(config: Config) -> list[Path]:
    # A rotation of the key leaves the old one in a file beside it.
    paths = [config.data / name for name in (KEY_FILE, SSH_HOST_KEY_FILE, LOCK_FILE)] + sorted(config.data.glob(f"{KEY_FILE}.*"))
    paths += [config.repositories, config.uploads, config.artifacts]
    if config.uses_sqlite:
        # SQLite creates the other two with the mode of the database.
        database = driver_url(config.database_url).database or ""
        paths += [Path(f"{database}{suffix}") for suffix in ("", "-wal", "-shm")]
    return paths
