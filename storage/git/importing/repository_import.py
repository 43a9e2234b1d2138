"""Imports the whole history of a local repository into a new bare repository."""

import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

from storage.git.refs.ref_names import BRANCHES, DEFAULT_HEAD, TAGS
from storage.git.repository import DamagedRepository, Repository
from storage.git.repository_folders import create_atomically
from storage.git.subprocesses import git_command

ProgressCallback = Callable[[str, int, int], None]
"""Called with a phase ("receiving objects"), the number of completed steps, and the total number of steps."""

REFSPECS = [f"+{folder}*:{folder}*" for folder in (BRANCHES, TAGS)]
_MAX_LINE_BYTES = 4096
"""Bytes of a line of git that are kept, the last ones; a line with the message of another host may have any length."""
_PROGRESS_LINE = re.compile(rb"(?:remote: )?([A-Z][a-z]+ [a-z]+): +\d+% \((\d+)/(\d+)\)")
_UPLOAD_PACK = "--upload-pack=GIT_GRAFT_FILE=/dev/null git-upload-pack"
"""The process that reads the source ignores its grafts, which hide the recorded parents of commits."""
_REMOTE_BRANCH = re.compile(r"refs/remotes/[^/]+/(.+)")


def import_repository(source: Path, target: Path, progress: ProgressCallback | None = None) -> None:
    """Creates `target`, a bare repository with all branches, all tags and the HEAD of the repository `source`.

    `source` may be bare, the root of a work tree or of a linked one, and may belong to another user. It is only read, and
    everything is copied (no hard links, no alternates). Remote-tracking branches are not imported.

    A detached HEAD becomes a branch, so that no visible commit of the source is lost: a local branch at that commit if there
    is one (main, master, then by name); otherwise a new branch, named after a remote-tracking branch at that commit, or else
    `master`, `main`, `detached` or `detached-N`, whichever is free.

    A shallow source (a CI checkout) results in a shallow repository: it has the same commits with complete trees and contents,
    and the oldest ones appear as root commits, whose diff is their whole tree. Clones of the result are as shallow.

    `target` is created atomically and synced to disk. Raises NotARepository or DamagedRepository for `source`, FileExistsError
    for `target`, GitCommandError with git's message, OSError (ENOSPC) if the disk is full. An exception of `progress` ends the
    import and is passed on.
    """
    origin = Repository.open(source)
    branch, detached = _target_head(origin)
    refspecs = [*REFSPECS]
    if detached:
        refspecs.append(f"HEAD:{BRANCHES}{branch}")
    with create_atomically(target) as folder:
        Repository.initialize(folder, branch)
        _fetch(origin.path, folder, refspecs, progress)
        git_command.run(folder, "pack-refs", "--all")


def _target_head(origin: Repository) -> tuple[str, bool]:
    """Returns the branch that HEAD will refer to, and whether it has to be created at the detached commit."""
    branches = {branch.name: branch.oid for branch in origin.branches()}
    if not origin.handle.head_is_detached:
        head = origin.handle.lookup_reference("HEAD").target
        unborn = head.removeprefix(BRANCHES) if isinstance(head, str) and head.startswith(BRANCHES) else DEFAULT_HEAD
        return origin.default_branch() or unborn, False
    commit = str(origin.handle.lookup_reference("HEAD").target)
    branches_at_head = [name for name, oid in branches.items() if oid == commit]
    if branches_at_head:
        return min(branches_at_head, key=_main_branches_first), False
    remotes = [
        match[1]
        for name in origin.handle.references
        if (match := _REMOTE_BRANCH.fullmatch(name)) and origin.find_ref(name) == commit and match[1] != "HEAD"
    ]
    numbered = (f"detached-{number}" for number in range(2, len(branches) + 3))
    remotes.sort(key=_main_branches_first)
    for name in (*remotes, "master", "main", "detached", *numbered):
        if not any(name == other or name.startswith(f"{other}/") or other.startswith(f"{name}/") for other in branches):
            return name, True
    raise DamagedRepository(f"{origin.path}: no free branch name for its detached HEAD")


def _main_branches_first(name: str) -> tuple[bool, str]:
    return name not in ("main", "master"), name


def _fetch(source: Path, target: Path, refspecs: list[str], progress: ProgressCallback | None) -> None:
    with git_command.start_fetch(target, source, *refspecs, options=("--progress", "--update-shallow", _UPLOAD_PACK)) as process:
        last_lines = report_progress(process, progress)
    if process.returncode:
        raise git_command.failure_of(b"\n".join(last_lines))


def report_progress(process: subprocess.Popen[bytes], progress: ProgressCallback | None) -> list[bytes]:
    """Reports each progress step that git prints. Returns the last other lines."""
    assert process.stderr is not None  # noqa: S101 - a fetch has one
    last_lines: list[bytes] = []
    rest = b""
    with process.stderr as stream:
        while block := os.read(stream.fileno(), 65536):
            *lines, rest = re.split(rb"[\r\n]", rest + block)
            rest = rest[-_MAX_LINE_BYTES:]
            for line in lines:
                if step := _PROGRESS_LINE.match(line):
                    if progress:
                        progress(step[1].decode().lower(), int(step[2]), int(step[3]))
                elif line.strip():
                    last_lines = [*last_lines[-19:], line[-_MAX_LINE_BYTES:]]
    process.wait()
    return [*last_lines, rest]
