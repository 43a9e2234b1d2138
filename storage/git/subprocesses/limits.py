"""Limits that the system sets on each git process: memory, processor time, the size of a file, the number of processes.

A running process is limited by prlimit(2), which costs a microsecond each. That is in time for one that forks nothing before it has read
what it is given afterwards. One that forks at once is started by a shell that limits itself first, which costs half a millisecond.
`preexec_fn` is no choice: it forks a process of many threads, and copies its memory tables.
"""

import re
import resource
import signal
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

MEGABYTE = 1024 * 1024
GRACE_SECONDS = 5
"""Seconds of processor time between the signal that asks a process to end and the one that kills it."""
GIT_SETTINGS = (
    # Packs are mapped in windows, as git does it on 32 bits, so that a large repository can be read in a small address space.
    "core.packedGitWindowSize=32m",
    "core.packedGitLimit=256m",
    # Above this size contents are streamed from and to the disk, never compared with others, and never packed as a delta.
    "core.bigFileThreshold=64m",
    # Each thread of a process has memory of its own.
    "pack.threads=2",
    "pack.windowMemory=128m",
)
"""Configuration with which git stays within the limits whatever the size of a repository."""

_SCRIPT = (
    'v="$1" t="$2" f="$3" u="$4"; shift 4; '
    # bash has -u where other shells have -p; macOS limits no address space. What the machine limits further stays as it is.
    '{ ulimit -v "$v"; ulimit -t "$t"; ulimit -f "$f"; ulimit -u "$u" || ulimit -p "$u"; } 2> /dev/null; exec "$@"'
)
_ULIMIT_BLOCK_BYTES = 512  # bytes; the unit of `ulimit -f`

_OUT_OF_MEMORY = re.compile(
    rb"out of memory|cannot allocate memory|unable to create (?:\w+ )?thread|size_t overflow|cannot be mapped", re.IGNORECASE
)
_SIGNALLED = re.compile(rb"died of signal (\d+)")


@dataclass(frozen=True, slots=True)
class ProcessLimits:
    """What one process may take. `memory_bytes` is its address space in bytes, `processes` counts all that the user of the service runs."""

    memory_bytes: int = 2048 * MEGABYTE
    cpu_seconds: int = 900
    file_bytes: int = 65_536 * MEGABYTE
    processes: int = 4096

    def apply(self, pid: int) -> None:
        """Limits a running child. Does nothing for one that has ended. Raises OSError."""
        if not hasattr(resource, "prlimit"):
            return
        for kind, soft, hard in (
            (resource.RLIMIT_AS, self.memory_bytes, self.memory_bytes),
            (resource.RLIMIT_CPU, self.cpu_seconds, self.cpu_seconds + GRACE_SECONDS),
            (resource.RLIMIT_FSIZE, self.file_bytes, self.file_bytes),
            (resource.RLIMIT_NPROC, self.processes, self.processes),
        ):
            with suppress(ProcessLookupError):
                # What the machine's own limit allows; unlimited is -1.
                allowed = resource.getrlimit(kind)[1]
                bounded = [value if allowed == resource.RLIM_INFINITY else min(value, allowed) for value in (soft, hard)]
                resource.prlimit(pid, kind, (bounded[0], bounded[1]))

    def wrap_command(self, command: Sequence[str]) -> list[str]:
        """The command, started by a shell that limits itself first, for a program that may start others at once."""
        values = (self.memory_bytes // 1024, self.cpu_seconds, self.file_bytes // _ULIMIT_BLOCK_BYTES, self.processes)
        return ["/bin/sh", "-c", _SCRIPT, "sh", *map(str, values), *command]


def limited_command(command: Sequence[str], limits: ProcessLimits) -> list[str]:
    """The command as it is where a running process can be limited, else by `wrap_command`."""
    return list(command) if hasattr(resource, "prlimit") else limits.wrap_command(command)


def explain_failure(stderr: bytes, limits: ProcessLimits) -> str | None:
    """The limit that a git process has met, by what it or its parent said of its end; None where that was no limit."""
    found = _SIGNALLED.search(stderr)
    number = int(found[1]) if found else 0
    if _OUT_OF_MEMORY.search(stderr):
        return f"it needs more than the {limits.memory_bytes // MEGABYTE} MB of memory that a git process may take"
    if number in (signal.SIGXCPU, signal.SIGKILL):
        return f"it takes more than the {limits.cpu_seconds} seconds that a git process may run"
    if number == signal.SIGXFSZ or b"File too large" in stderr:
        return f"it makes a file of more than {limits.file_bytes // MEGABYTE} MB"
    if b"Resource temporarily unavailable" in stderr:
        return f"the service runs its {limits.processes} processes already"
    return None


def git_children(pid: int) -> list[int] | None:
    """The git processes that the process `pid` has started and not waited for; None where the system has no /proc."""
    if not Path("/proc/self").exists():
        return None
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with suppress(OSError, IndexError, ValueError):
                command, _, rest = (folder / "stat").read_bytes().partition(b" (")[2].rpartition(b") ")
                if command == b"git" and int(rest.split()[1]) == pid:
                    found.append(int(folder.name))
    return found
