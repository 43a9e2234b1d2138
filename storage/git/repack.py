"""Keeps repositories quick to read: the many packs that pushes leave, one each, become few.

Nothing is ever thrown away, reached by a ref or not: a merge commit is written before its branch names it, and a push lands while this
runs. Packs are rolled up by size (git-repack, --geometric), so the cost is in line with what has come since, not with the repository.
"""

import asyncio
import contextlib
import fcntl
import os
import signal
import time
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Iterator
from pathlib import Path

from storage.git.subprocesses import git_command

MAX_PACKS = 30
"""Packs beyond which a repository is packed."""
MAX_LOOSE_OBJECTS = 27
"""Loose objects in one of their 256 folders beyond which a repository is packed; git's own measure (gc.auto, 6,700 in all)."""
MAX_LOOSE_REFS = 500
"""Merge requests whose refs are files of their own, beyond which all refs are packed."""
TIMEOUT_SECONDS = 1800.0
NICENESS = 10
LEFTOVER_SECONDS = 2 * 24 * 3600.0
"""A half-written pack is removed at this age, long after whoever wrote it has gone."""
TERMINATION_SECONDS = 3.0

_LOCK = "packing"
_SETTINGS = ("safe.directory=*", "pack.threads=1")


def repositories_to_repack(root: Path) -> list[Path]:
    """The repositories under `root` that are to be packed, those with the most packs first. Reads directories alone."""
    if not root.is_dir():
        return []
    found = [(packs, path) for path in root.iterdir() if path.suffix == ".git" and (packs := _pack_count(path))]
    return [path for _, path in sorted(found, reverse=True)]


def _pack_count(path: Path) -> int:
    """How much there is to pack; 0 for a repository that is well as it is."""
    packs = sum(name.endswith(".pack") for name in _names(path / "objects/pack"))
    loose = len(_names(path / "objects/17"))
    refs = len(_names(path / "refs/merge-requests"))
    return max(packs, 1) if packs > MAX_PACKS or loose > MAX_LOOSE_OBJECTS or refs > MAX_LOOSE_REFS else 0


def _names(folder: Path) -> list[str]:
    try:
        return [entry.name for entry in folder.iterdir()]
    except (FileNotFoundError, NotADirectoryError):
        return []


async def repack(path: Path) -> bool:
    """Packs the repository; False when another process is at it. It is given up with its caller.

    Raises GitCommandError, also after TIMEOUT_SECONDS, and OSError: the repository was removed meanwhile, the disk is full.
    """
    with _try_lock(path) as is_locked:
        if is_locked:
            await asyncio.to_thread(_remove_partial_packs, path / "objects/pack")
            await _run_git(path, "repack", "-d", "-l", "--quiet", "--geometric=2")
            await _run_git(path, "pack-refs", "--all")
        return is_locked


@contextlib.contextmanager
def _try_lock(path: Path) -> Iterator[bool]:
    """Whether nobody else packs this repository; the system takes the lock back from whoever dies."""
    with (path / _LOCK).open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True


def _remove_partial_packs(folder: Path) -> None:
    """Removes what a kill left of packs on their way."""
    cutoff = time.time() - LEFTOVER_SECONDS
    for name in _names(folder):
        if name.startswith(("tmp_", ".tmp-")):
            with contextlib.suppress(FileNotFoundError):
                if (folder / name).stat().st_mtime < cutoff:
                    (folder / name).unlink()


async def _run_git(path: Path, *arguments: str) -> None:
    settings = (part for setting in _SETTINGS for part in ("-c", setting))
    process = await asyncio.create_subprocess_exec(
        *git_command.current_limits().wrap_command(git_command.command(path, *settings, *arguments)),
        stdin=DEVNULL,
        stdout=DEVNULL,
        stderr=PIPE,
        env=git_command.environment(),
        cwd="/",
        start_new_session=True,
    )
    try:
        with contextlib.suppress(ProcessLookupError):
            os.setpriority(os.PRIO_PROCESS, process.pid, NICENESS)
        async with asyncio.timeout(TIMEOUT_SECONDS):
            _, stderr = await process.communicate()
    except TimeoutError as error:
        raise git_command.GitCommandError(f"git {arguments[0]} took more than {TIMEOUT_SECONDS:.0f} s") from error
    finally:
        await asyncio.shield(_terminate(process))
    if process.returncode:
        raise git_command.failure_of(stderr)


async def _terminate(process: asyncio.subprocess.Process) -> None:
    """Sees to it that the process and its children are gone; asked first, so that they take their temporary files away."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        if process.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(TERMINATION_SECONDS):
                await process.communicate()
