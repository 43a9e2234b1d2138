"""Limits of a build's processes: by cgroups v2 where systemd delegates them to the runner, else by `prlimit`.

`prlimit` bounds each process, a cgroup all processes of a build together. A cgroup also finds processes that left their group.
"""

import contextlib
import os
import shutil
import time
from dataclasses import dataclass, field
from pathlib import Path

import structlog

from forgefront.runner.executors.executor import Limits

CPU_PERIOD_MICROSECONDS = 100_000
CONTROLLERS = ("memory", "pids", "cpu")
REMOVE_ATTEMPTS, REMOVE_PAUSE_SECONDS = 100, 0.02
RUNNER_GROUP = "runner"
"""The cgroup of the runner itself: one with processes of its own cannot limit its children."""

log = structlog.get_logger("runner")


@dataclass(frozen=True, slots=True)
class ControlGroups:
    """A cgroup below which this process may create others; `controllers` are those that its children have."""

    folder: Path
    controllers: frozenset[str] = field(default_factory=frozenset)

    def create(self, name: str, limits: Limits) -> "ControlGroup":
        """Creates the cgroup of a build. Raises OSError."""
        group = self.folder / name
        group.mkdir()
        values = {
            "memory": ("memory.max", limits.memory_bytes),
            "pids": ("pids.max", limits.processes),
            "cpu": ("cpu.max", limits.cpus and f"{int(limits.cpus * CPU_PERIOD_MICROSECONDS)} {CPU_PERIOD_MICROSECONDS}"),
        }
        for controller, (file, value) in values.items():
            if value and controller in self.controllers:
                (group / file).write_text(str(value))
        with contextlib.suppress(OSError):
            (group / "memory.swap.max").write_text("0") if limits.memory_bytes and "memory" in self.controllers else None
        return ControlGroup(group)


@dataclass(frozen=True, slots=True)
class ControlGroup:
    """The cgroup of one build."""

    folder: Path

    def wrap(self, arguments: list[str]) -> list[str]:
        """The command that enters the cgroup and then runs `arguments`."""
        return ["/bin/sh", "-c", 'echo 0 > "$0" && exec "$@"', str(self.folder / "cgroup.procs"), *arguments]

    def kill(self) -> None:
        """Kills all processes in it."""
        with contextlib.suppress(OSError):
            (self.folder / "cgroup.kill").write_text("1")

    def remove(self) -> None:
        """Kills all processes in it, and removes it; one whose processes do not end stays, and the log says so."""
        self.kill()
        for _ in range(REMOVE_ATTEMPTS):
            try:
                self.folder.rmdir()
                return
            except OSError as error:
                # Killed processes end a moment later.
                reason = error.strerror
                time.sleep(REMOVE_PAUSE_SECONDS)
        log.warning("cgroup could not be removed", folder=str(self.folder), why=reason)


def find_control_groups(mounts: Path = Path("/proc/self/mountinfo"), own: Path = Path("/proc/self/cgroup")) -> ControlGroups | None:
    """The cgroup of this process if it may create others below it; None if it may not. Moves the process into a child of it."""
    try:
        points = [line.split() for line in mounts.read_text().splitlines()]
        mounted = next(Path(fields[4]) for fields in points if fields[fields.index("-") + 1] == "cgroup2")
        path = next(line[3:] for line in own.read_text().splitlines() if line.startswith("0::"))
        folder = mounted / path.strip("/")
        available = (folder / "cgroup.controllers").read_text().split()
        if folder.name == RUNNER_GROUP:
            folder = folder.parent
        if not (folder / "cgroup.kill").exists() and folder != mounted:
            return None
        if not os.access(folder, os.W_OK) or not os.access(folder / "cgroup.procs", os.W_OK):
            return None
        if folder != mounted:
            leaf = folder / RUNNER_GROUP
            leaf.mkdir(exist_ok=True)
            (leaf / "cgroup.procs").write_text("0")
        controllers = frozenset(available) & frozenset(CONTROLLERS)
        if controllers:
            (folder / "cgroup.subtree_control").write_text(" ".join(f"+{name}" for name in sorted(controllers)))
        return ControlGroups(folder, controllers)
    except (OSError, StopIteration, ValueError) as error:
        log.debug("cgroups cannot be used", why=str(error))
        return None


def limit_arguments(limits: Limits, controlled: frozenset[str] = frozenset(), *, is_own_namespace: bool = False) -> list[str]:
    """The arguments before a command that limit each of its processes, without what a cgroup limits.

    The number of processes is that of the user, which is the build's own only in a user namespace.

    >>> limit_arguments(Limits(memory_bytes=2**20, processes=9))  # doctest: +ELLIPSIS
    ['...prlimit', '--core=0', '--as=1048576', '--']
    """
    options = ["--core=0"]
    if limits.memory_bytes and "memory" not in controlled:
        options.append(f"--as={limits.memory_bytes}")
    if limits.disk_bytes:
        options.append(f"--fsize={limits.disk_bytes}")
    if limits.processes and is_own_namespace and "pids" not in controlled:
        options.append(f"--nproc={limits.processes}")
    program = shutil.which("prlimit")
    found = [program, *options, "--"] if program else []
    if limits.cpus and "cpu" not in controlled and (taskset := shutil.which("taskset")):
        usable = sorted(os.sched_getaffinity(0))
        count = min(len(usable), max(1, round(limits.cpus)))
        # Different builds begin at different processors.
        start = os.urandom(1)[0] % len(usable)
        chosen = sorted((usable + usable)[start : start + count])
        found = [*found, taskset, "--cpu-list", ",".join(map(str, chosen))]
    return found
