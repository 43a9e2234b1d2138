"""Resource limits of git processes: memory, CPU time, file size, number of processes.

A running process is limited by prlimit(2), which costs a microsecond per limit. That is early enough for a process that does not fork
before it has read its input. A process that may fork immediately is started by a shell that limits itself first, which costs half a
millisecond. `preexec_fn` is not an option: it forks a multi-threaded process, and copies its page tables.
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
"""Seconds of CPU time between SIGXCPU and SIGKILL."""
GIT_SETTINGS = (
    # Packs are mapped in windows, as on 32-bit systems, so that a large repository can be read in a small address space.
    "core.packedGitWindowSize=32m",
    "core.packedGitLimit=256m",
    # Larger blobs are streamed from and to the disk, never diffed, and never stored as deltas.
    "core.bigFileThreshold=64m",
    # Each thread of a process has its own memory.
    "pack.threads=2",
    "pack.windowMemory=128m",
)
"""Configuration with which git stays within the limits whatever the size of a repository."""

_SCRIPT = (
    'v="$1" t="$2" f="$3" u="$4"; shift 4; '
    # bash has -u, other shells have -p; macOS does not limit the address space. Stricter limits of the machine stay in force.
    '{ ulimit -v "$v"; ulimit -t "$t"; ulimit -f "$f"; ulimit -u "$u" || ulimit -p "$u"; } 2> /dev/null; exec "$@"'
)
_ULIMIT_BLOCK_BYTES = 512  # bytes; the unit of `ulimit -f`

_OUT_OF_MEMORY = re.compile(
    rb"out of memory|cannot allocate memory|unable to create (?:\w+ )?thread|size_t overflow|cannot be mapped", re.IGNORECASE
)
_SIGNALLED = re.compile(rb"died of signal (\d+)")


@dataclass(frozen=True, slots=True)
class ProcessLimits:
    """Limits of one process. `memory_bytes` limits its address space, `processes` all processes of the service's user."""

    memory_bytes: int = 2048 * MEGABYTE
    cpu_seconds: int = 900
    file_bytes: int = 65_536 * MEGABYTE
    processes: int = 4096

    def apply(self, pid: int) -> None:
        """Limits a running child process. Does nothing if it has ended. Raises OSError."""
        if not hasattr(resource, "prlimit"):
            return
        for kind, soft, hard in (
            (resource.RLIMIT_AS, self.memory_bytes, self.memory_bytes),
            (resource.RLIMIT_CPU, self.cpu_seconds, self.cpu_seconds + GRACE_SECONDS),
            (resource.RLIMIT_FSIZE, self.file_bytes, self.file_bytes),
            (resource.RLIMIT_NPROC, self.processes, self.processes),
        ):
            with suppress(ProcessLookupError):
                # The hard limit of this process cannot be exceeded; unlimited is -1.
                allowed = resource.getrlimit(kind)[1]
                bounded = [value if allowed == resource.RLIM_INFINITY else min(value, allowed) for value in (soft, hard)]
                resource.prlimit(pid, kind, (bounded[0], bounded[1]))

    def wrap_command(self, command: Sequence[str]) -> list[str]:
        """Returns a command that runs this one in a shell that limits itself first, for a program that may fork immediately."""
        values = (self.memory_bytes // 1024, self.cpu_seconds, self.file_bytes // _ULIMIT_BLOCK_BYTES, self.processes)
        return ["/bin/sh", "-c", _SCRIPT, "sh", *map(str, values), *command]


def limited_command(command: Sequence[str], limits: ProcessLimits) -> list[str]:
    """Returns the command unchanged if running processes can be limited (prlimit), else wrapped by `wrap_command`."""
    return list(command) if hasattr(resource, "prlimit") else limits.wrap_command(command)


def explain_failure(stderr: bytes, limits: ProcessLimits) -> str | None:
    """Returns which limit a git process exceeded, by its or its parent's stderr; None if it failed for another reason."""
    found = _SIGNALLED.search(stderr)
    number = int(found[1]) if found else 0
    if _OUT_OF_MEMORY.search(stderr):
        return f"it needs more than the {limits.memory_bytes // MEGABYTE} MB of memory that a git process may take"
    if number in (signal.SIGXCPU, signal.SIGKILL):
        return f"it takes more than the {limits.cpu_seconds} seconds that a git process may run"
    if number == signal.SIGXFSZ or b"File too large" in stderr:
        return f"it makes a file of more than {limits.file_bytes // MEGABYTE} MB"
    if b"Resource temporarily unavailable" in stderr:
        return f"the service already runs its maximum of {limits.processes} processes"
    return None


def git_children(pid: int) -> list[int] | None:
    """Returns the child processes of `pid` that run git; None if the system has no /proc."""
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
