"""The executor `shell`: scripts run as the runner's user, with everything that it may read and write."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from forgefront.runner.executors.executor import UNLIMITED, BuildImages, BuildPaths, Executor, Limits, Session, Workspace
from forgefront.runner.executors.processes import kill_marked, run_process
from forgefront.runner.executors.resource_limits import ControlGroup, ControlGroups, limit_arguments
from forgefront.runner.scripts import SHELL, runner_path
from forgefront.runner.trace_buffer import TraceBuffer

MARK = "FORGEFRONT_BUILD_MARK"
"""The variable by which processes that left the group of their build are found."""


class ShellExecutor(Executor):
    """Runs scripts in a shell on this machine, without a sandbox."""

    name = "shell"

    def __init__(self, limits: Limits = UNLIMITED, groups: ControlGroups | None = None) -> None:
        self.limits = limits
        self.groups = groups

    async def check(self) -> None:
        """A shell is always there."""

    @asynccontextmanager
    async def open(self, workspace: Workspace, images: BuildImages, trace: TraceBuffer, stop: asyncio.Event) -> AsyncIterator[Session]:
        if images.image or images.services:
            trace.write_line("WARNING: The executor shell runs the build without its image and services.")
        group = await asyncio.to_thread(self.groups.create, workspace.root.name, self.limits) if self.groups else None
        try:
            yield ShellSession(self, workspace, group)
        finally:
            if group:
                await asyncio.to_thread(group.remove)


class ShellSession(Session):
    """A build in a shell."""

    def __init__(self, executor: ShellExecutor, workspace: Workspace, group: ControlGroup | None) -> None:
        self.paths = BuildPaths(str(workspace.code), str(workspace.home), str(workspace.temporary), str(workspace.mirror), runner_path())
        self._workspace = workspace
        self._group = group
        controlled = executor.groups.controllers if executor.groups and group else frozenset()
        self._limit_arguments = limit_arguments(executor.limits, controlled)

    async def run(self, script: Path, environment: Mapping[str, str], trace: TraceBuffer, stop: asyncio.Event) -> int:
        command = [*self._limit_arguments, *SHELL, str(script)]
        mark = secrets.token_hex(16)
        try:
            return await run_process(
                self._group.wrap(command) if self._group else command, self._workspace.code, {**environment, MARK: mark}, trace, stop
            )
        finally:
            if self._group:
                await asyncio.to_thread(self._group.kill)
            else:
                await asyncio.to_thread(kill_marked, f"{MARK}={mark}")
