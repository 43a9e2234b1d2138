"""Takes the whole history of a repository on this machine into a new bare one."""

import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

from storage.git import program
from storage.git.repository import DamagedRepository, Repository, arriving

Progress = Callable[[str, int, int], None]
"""Called with a phase ("receiving objects"), how many of its steps are done, and how many there are."""

_STEP = re.compile(rb"(?:remote: )?([A-Z][a-z]+ [a-z]+): +\d+% \((\d+)/(\d+)\)")
_BRANCHES = "refs/heads/"
_REMOTE_BRANCH = re.compile(r"refs/remotes/[^/]+/(.+)")


def import_history(source: Path, target: Path, progress: Progress | None = None) -> None:
    """Makes `target` a bare repository with all branches, all tags and the HEAD of the repository `source`.

    `source` may be bare, the root of a work tree or of a linked one, and may belong to another user; it is only read, and
    everything is copied (no hard links, no alternates). Remote-tracking branches are not branches of `source` and stay out.

    A detached HEAD becomes a branch, so that nothing which can be seen in the source is lost: a local branch at that commit
    if there is one (main, master, then by name), else a new branch, named as a remote-tracking branch at that commit, or else
    `master`, `main`, `detached` or `detached-N`, whichever is free.

    A shallow source (a CI checkout) gives a shallow repository: the same commits, whole trees and contents for each, and the
    oldest ones appear as root commits, whose diff is everything that they hold. Their parents cannot be had here; clones
    of the result are as shallow.

    `target` appears whole or not at all, synced to disk. Raises NotARepository or DamagedRepository for `source`, FileExistsError
    for `target`, GitFailed with git's own words, OSError (ENOSPC) when the disk is full. An exception from `progress` ends the
    import and passes through.
    """
    origin = Repository.open(source)
    branch, detached = _head(origin)
    wanted = ["+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*"]
    if detached:
        wanted.append(f"HEAD:{_BRANCHES}{branch}")
    with arriving(target) as folder:
        Repository.lay_out(folder, branch)
        _fetch(origin.path, folder, wanted, progress)
        program.run(folder, "pack-refs", "--all")


def _head(origin: Repository) -> tuple[str, bool]:
    """The branch that HEAD is to name, and whether it has to be made at the detached commit."""
    branches = {branch.name: branch.oid for branch in origin.branches()}
    if not origin.handle.head_is_detached:
        head = origin.handle.lookup_reference("HEAD").target
        unborn = head.removeprefix(_BRANCHES) if isinstance(head, str) and head.startswith(_BRANCHES) else "master"
        return origin.default_branch() or unborn, False
    commit = str(origin.handle.lookup_reference("HEAD").target)
    here = [name for name, oid in branches.items() if oid == commit]
    if here:
        return min(here, key=_usual_first), False
    remotes = [
        match[1]
        for name in origin.handle.references
        if (match := _REMOTE_BRANCH.fullmatch(name)) and origin.find(name) == commit and match[1] != "HEAD"
    ]
    numbered = (f"detached-{number}" for number in range(2, len(branches) + 3))
    remotes.sort(key=_usual_first)
    for name in (*remotes, "master", "main", "detached", *numbered):
        if not any(name == other or name.startswith(f"{other}/") or other.startswith(f"{name}/") for other in branches):
            return name, True
    raise DamagedRepository(f"{origin.path}: no free branch name for its detached HEAD")


def _usual_first(name: str) -> tuple[bool, str]:
    return name not in ("main", "master"), name


def _fetch(source: Path, target: Path, wanted: list[str], progress: Progress | None) -> None:
    with program.fetching(target, source, *wanted, options=("--progress", "--update-shallow")) as process:
        said = _follow(process, progress)
    if process.returncode:
        raise program.failure(b"\n".join(said))


def _follow(process: subprocess.Popen[bytes], progress: Progress | None) -> list[bytes]:
    """Reports each step that git prints; gives the last lines that were no steps."""
    assert process.stderr is not None  # noqa: S101 - a fetch has one
    said: list[bytes] = []
    rest = b""
    with process.stderr as stream:
        while block := os.read(stream.fileno(), 65536):
            *lines, rest = re.split(rb"[\r\n]", rest + block)
            for line in lines:
                if step := _STEP.match(line):
                    if progress:
                        progress(step[1].decode().lower(), int(step[2]), int(step[3]))
                elif line.strip():
                    said = [*said[-19:], line]
    process.wait()
    return [*said, rest]
