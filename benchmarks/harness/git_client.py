"""The git program as a client, without the caller's configuration."""

import asyncio
import os
import subprocess
from pathlib import Path

PERSON = "C O Mitter <committer@example.org>"


def environment() -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1", "GIT_TERMINAL_PROMPT": "0"}


def run_git(folder: Path, *arguments: str, stdin: bytes = b"") -> str:
    """Runs git, and returns its output. Raises RuntimeError with its message."""
    done = subprocess.run(["git", *arguments], cwd=folder, env=environment(), input=stdin, capture_output=True, check=False)
    return _read_output(arguments, done.returncode, done.stdout, done.stderr)


async def run_git_async(folder: Path, *arguments: str) -> str:
    """As `run_git`, without blocking the event loop."""
    process = await asyncio.create_subprocess_exec(
        "git", *arguments, cwd=folder, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    output, error = await process.communicate()
    return _read_output(arguments, process.returncode or 0, output, error)


def _read_output(arguments: tuple[str, ...], code: int, output: bytes, error: bytes) -> str:
    if code:
        raise RuntimeError(f"git {arguments[0]}: {error.decode(errors='replace')[-1000:]}")
    return output.decode().strip()
