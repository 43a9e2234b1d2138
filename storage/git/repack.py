"""Repacks repositories, so that they stay fast to read: each push adds a pack.

No object is ever deleted, reachable or not: a merge commit is written before its branch refers to it, and pushes arrive during a repack.
Packs are combined by size (git-repack, --geometric), so the cost depends on the size of the new packs, not of the repository.
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
"""A repository with more packs is repacked."""
MAX_LOOSE_OBJECTS = 27
"""A repository with more loose objects in one of their 256 folders is repacked; git's own threshold (gc.auto, 6,700 in total)."""
TIMEOUT_SECONDS = 1800.0
NICENESS = 10
LEFTOVER_SECONDS = 2 * 24 * 3600.0
"""A partial pack is removed at this age, long after its writer has ended."""
TERMINATION_SECONDS = 3.0

_LOCK = "packing"
_SETTINGS = ("safe.directory=*", "pack.threads=1")


def repositories_to_repack(root: Path) -> list[Path]:
    """Returns the repositories under `root` that need repacking, those with the most packs first. Reads only directories."""
    if not root.is_dir():
        return []
    found = [(packs, path) for path in root.iterdir() if path.suffix == ".git" and (packs := _pack_count(path))]
    return [path for _, path in sorted(found, reverse=True)]


def _pack_count(path: Path) -> int:
    """Returns the number of packs; 0 if the repository needs no repacking."""
    packs = sum(name.endswith(".pack") for name in _names(path / "objects/pack"))
    loose = len(_names(path / "objects/17"))
    return max(packs, 1) if packs > MAX_PACKS or loose > MAX_LOOSE_OBJECTS else 0


def _names(folder: Path) -> list[str]:
    try:
        return [entry.name for entry in folder.iterdir()]
    except (FileNotFoundError, NotADirectoryError):
        return []


async def repack(path: Path) -> bool:
    """Repacks the repository. Returns False if another process is repacking it. Cancelling the caller ends git.

    Raises GitCommandError, also after TIMEOUT_SECONDS, and OSError if the repository was removed meanwhile or the disk is full.
    """
    with _try_lock(path) as is_locked:
        if is_locked:
            await asyncio.to_thread(_remove_partial_packs, path / "objects/pack")
            await _run_git(path, "repack", "-d", "-l", "--quiet", "--geometric=2")
        return is_locked


@contextlib.contextmanager
def _try_lock(path: Path) -> Iterator[bool]:
    """Tries to lock the repository for repacking, and yields whether it succeeded. The system releases the lock of a dead process."""
    with (path / _LOCK).open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True


def _remove_partial_packs(folder: Path) -> None:
    """Removes partial packs that a killed process left."""
    cutoff = time.time() - LEFTOVER_SECONDS
    for name in _names(folder):
        if name.startswith(("tmp_", ".tmp-")):
            with contextlib.suppress(FileNotFoundError):
                if (folder / name).stat().st_mtime < cutoff:
                    (folder / name).unlink()


async def _run_git(path: Path, *arguments: str) -> None:
    process = await asyncio.create_subprocess_exec(
        *git_command.current_limits().wrap_command(git_command.command(path, *arguments, settings=_SETTINGS)),
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
    """Ends the process and its children: first by SIGTERM, so that they remove their temporary files, then by SIGKILL."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        if process.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(TERMINATION_SECONDS):
                await process.communicate()
