"""Runs the commands of a build's script in a process group of its own, without the runner's environment."""

import asyncio
import contextlib
import os
import re
import shlex
import shutil
import signal
import subprocess
from collections.abc import Iterable, Mapping, Sequence, Set
from pathlib import Path

from forgefront.runner.trace_buffer import TraceBuffer

TERMINATE_SECONDS = 10.0
"""Seconds between the request to end a script and its kill."""
DRAIN_SECONDS = 5.0
"""Seconds for which a process that left the group may keep the output open."""
BLOCK_BYTES = 2**16
MAX_SYNTAX_CHECKS = 200
"""Maximum number of commands of a script that are shown separately."""

BASH = shutil.which("bash")
SHELL: tuple[str, ...] = (BASH, "--noprofile", "--norc", "-eo", "pipefail") if BASH else ("sh", "-e")


REFERENCE = re.compile(r"\$(?:\{([A-Za-z_][A-Za-z0-9_]*)\}|([A-Za-z_][A-Za-z0-9_]*))")


def expand_references(variables: Mapping[str, str], secrets: Set[str]) -> dict[str, str]:
    """The variables with `$A` and `${A}` in their values replaced by the value of A, once; a name that is not among them stays.

    Values among `secrets` stay, because traces mask them as they are.

    >>> expand_references({"A": "1", "B": "$A-${A} $C", "PASSWORD": "a$A"}, {"a$A"})
    {'A': '1', 'B': '1-1 $C', 'PASSWORD': 'a$A'}
    """
    return {
        key: value if value in secrets else REFERENCE.sub(lambda match: variables.get(match[1] or match[2], match[0]), value)
        for key, value in variables.items()
    }


def build_environment(variables: Mapping[str, str], home: Path, temporary: Path) -> dict[str, str]:
    """The environment of a script: PATH, its own folders, and the build's variables."""
    found = {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": str(home),
        "TMPDIR": str(temporary),
        "LANG": "C.UTF-8",
        "TERM": "dumb",
        "SHELL": SHELL[0],
    }
    return {**found, **{key: value for key, value in variables.items() if key and "=" not in key and "\0" not in key + value}}


def build_script(commands: Iterable[str]) -> str:
    """A script that prints each command before it runs it, and exits at the first failure.

    `make` becomes `printf '%s\\n' '$ make'` and `make`, each a line.
    """
    lines = []
    for command in commands:
        for part in split_statements(command):
            lines += [f"printf '%s\\n' {shlex.quote('$ ' + part)}", part]
    return "\n".join(lines) + "\n"


def split_statements(text: str) -> list[str]:
    """The commands of a script, each with all of its lines, as the shell parses them."""
    lines = text.splitlines()
    if len(lines) < 2:
        return [text] if text.strip() else []
    if BASH is None and "<<" in text:
        # Other shells do not report that the end of the script is missing.
        return [text]
    found: list[str] = []
    pending_lines: list[str] = []
    for number, line in enumerate(lines):
        if number >= MAX_SYNTAX_CHECKS:
            pending_lines += lines[number:]
            break
        pending_lines.append(line)
        if _is_complete("\n".join(pending_lines)):
            found.append("\n".join(pending_lines))
            pending_lines = []
    if pending_lines:
        found.append("\n".join(pending_lines))
    return [part for part in found if part.strip()]


def _is_complete(text: str) -> bool:
    if (len(text) - len(text.rstrip("\\"))) % 2:
        return False
    checked = subprocess.run([SHELL[0], "-n"], input=text.encode(), capture_output=True, env={"LANG": "C"}, check=False)  # noqa: S603
    return checked.returncode == 0 and not checked.stderr


async def run_command(arguments: Sequence[str], folder: Path, variables: Mapping[str, str], trace: TraceBuffer, stop: asyncio.Event) -> int:
    """Runs a program with its output going to the trace, and returns its exit code; a negative one is the signal that ended it.

    When `stop` is set, its process group is asked to end, and killed a moment later. When the program ends, the rest of the group is killed
    too.
    """
    reading, writing = os.pipe()
    reader = asyncio.StreamReader(limit=BLOCK_BYTES)
    loop = asyncio.get_running_loop()
    transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(reading, "rb", 0))
    try:
        try:
            process = await asyncio.create_subprocess_exec(
                *arguments,
                cwd=folder,
                env=dict(variables),
                stdin=subprocess.DEVNULL,
                stdout=writing,
                stderr=writing,
                start_new_session=True,
            )
        finally:
            os.close(writing)
        pump = asyncio.create_task(_copy_output(reader, trace))
        try:
            await _wait_for_exit(process, stop)
        finally:
            # Also for processes that the program left behind, and for all when this task is cancelled.
            _signal_group(process.pid, signal.SIGKILL)
            code = await process.wait()
            await asyncio.wait({pump}, timeout=DRAIN_SECONDS)
            pump.cancel()
            await asyncio.gather(pump, return_exceptions=True)
        return code
    finally:
        transport.close()


async def _wait_for_exit(process: asyncio.subprocess.Process, stop: asyncio.Event) -> None:
    ending, stopping = asyncio.create_task(process.wait()), asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({ending, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if not ending.done():
            _signal_group(process.pid, signal.SIGTERM)
            await asyncio.wait({ending}, timeout=TERMINATE_SECONDS)
    finally:
        for task in (ending, stopping):
            task.cancel()
        await asyncio.gather(ending, stopping, return_exceptions=True)


async def _copy_output(reader: asyncio.StreamReader, trace: TraceBuffer) -> None:
    while block := await reader.read(BLOCK_BYTES):
        await trace.write(block)


def _signal_group(group: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)
