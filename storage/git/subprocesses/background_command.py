"""Runs git for background jobs: with low priority, a time limit, and an end of its children with the caller."""

import asyncio
import contextlib
import os
import signal
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Mapping
from pathlib import Path

from storage.git.subprocesses import git_command

TIMEOUT_SECONDS = 1800.0
NICENESS = 10
TERMINATION_SECONDS = 3.0
_SETTINGS = ("safe.directory=*", "pack.threads=1")


async def run(
    path: Path,
    *arguments: str,
    stdin: bytes | None = None,
    extra_environment: Mapping[str, str] | None = None,
) -> bytes:
    """Runs a git command and returns its output. Canceling the caller ends git.

    Raises GitCommandError, also after TIMEOUT_SECONDS, and OSError if the disk is full.
    """
    process = await asyncio.create_subprocess_exec(
        *git_command.current_limits().wrap_command(git_command.command(path, *arguments, settings=_SETTINGS)),
        stdin=DEVNULL if stdin is None else PIPE,
        stdout=PIPE,
        stderr=PIPE,
        env={**git_command.environment(), **(extra_environment or {})},
        cwd="/",
        start_new_session=True,
    )
    try:
        with contextlib.suppress(ProcessLookupError):
            os.setpriority(os.PRIO_PROCESS, process.pid, NICENESS)
        async with asyncio.timeout(TIMEOUT_SECONDS):
            stdout, stderr = await process.communicate(stdin)
    except TimeoutError as error:
        raise git_command.GitCommandError(f"git {arguments[0]} took more than {TIMEOUT_SECONDS:.0f} s") from error
    finally:
        await asyncio.shield(_terminate(process))
    if process.returncode:
        raise git_command.failure_of(stderr)
    return stdout


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
