"""Checks files that git itself reads, `.gitmodules` and `.gitattributes`, as git checks those of a push (`receive.fsckObjects`).

Clients that clone with submodules pass parts of `.gitmodules` to other programs: a URL that begins with a dash, or the name `../x`, runs
commands or writes files outside of the work tree (CVE-2018-11235, CVE-2018-17456). Clients that check objects cannot clone a repository
with such a file, and no push that contains it is accepted.
"""

import re
import tempfile
from collections.abc import Iterable
from pathlib import Path

import pygit2
from pygit2.enums import FileMode

from storage.git.diffs.tree_changes import IGNORED_BY_MACOS
from storage.git.subprocesses import git_command

_NAME_PART = re.compile("git(?:mod|att)|gi7", re.IGNORECASE)
"""Is in every name that a file system may take for one of the files: NTFS has `GITMOD~1` and `gi7eba~1` too."""
_DEFECT_CODES = tuple(range(1, 16))
"""Exit codes of git fsck for objects with errors; it ends with 128 if it cannot work (git-fsck, `errors_found`)."""


class InvalidContent(ValueError):
    """Git would refuse a push of these files."""


def check_contents(files: Iterable[tuple[str, bytes]]) -> None:
    """Raises InvalidContent if git would refuse a push of the files, which are paths with their contents.

    It starts git once, and only for names that git may read. Raises GitCommandError, OSError (ENOSPC).
    """
    names = ((path.rpartition("/")[2], content) for path, content in files)
    special = {(name, content) for name, content in names if _NAME_PART.search(IGNORED_BY_MACOS.sub("", name))}
    if not special:
        return
    with tempfile.TemporaryDirectory(prefix="forgefront-check-") as folder:
        repository = pygit2.init_repository(folder, bare=True)
        for name, content in special:
            tree = repository.TreeBuilder()
            tree.insert(name, repository.create_blob(content), FileMode.BLOB)
            tree.write()
        code, _ = git_command.run_with_code(Path(folder), "fsck", "--no-dangling", "--no-progress", expected_codes=(0, *_DEFECT_CODES))
    if code:
        raise InvalidContent
