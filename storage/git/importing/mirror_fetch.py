"""Copies objects of a local mirror of another repository into a repository of the service."""

import subprocess
from collections.abc import Sequence
from pathlib import Path

from storage.git.importing.remote_import import IMPORT_SECONDS
from storage.git.subprocesses import git_command

IDS_PER_FETCH = 1_000
"""Objects that are named in one command."""


def fetch_objects(repository: Path, mirror: Path, oids: Sequence[str]) -> None:
    """Fetches objects with everything reachable from them; no ref is written. Raises GitCommandError, OSError (ENOSPC)."""
    for start in range(0, len(oids), IDS_PER_FETCH):
        part = oids[start : start + IDS_PER_FETCH]
        # Protocol 2 allows fetching any object by its id.
        settings = ("protocol.version=2",)
        with git_command.start_fetch(repository, mirror, *part, settings=settings, options=("--quiet", "--update-shallow")) as process:
            try:
                _, stderr = process.communicate(timeout=IMPORT_SECONDS)
            except subprocess.TimeoutExpired as error:
                raise git_command.GitCommandError(f"git fetch took more than {IMPORT_SECONDS:.0f} s") from error
        if process.returncode:
            raise git_command.failure_of(stderr)
