"""The executor `shell`: scripts run as the runner's user, with everything that it may read and write."""

import asyncio
import secrets
from collections.abc import Mapping
from pathlib import Path

from forgefront.runner.executors.executor import BuildPaths, Session, Workspace
from forgefront.runner.executors.host_executor import HostExecutor
from forgefront.runner.executors.processes import kill_marked, run_process
from forgefront.runner.executors.resource_limits import ControlGroup, limit_arguments
from forgefront.runner.scripts import SHELL, runner_path
from forgefront.runner.trace_buffer import TraceBuffer

MARK = "FORGEFRONT_BUILD_MARK"
"""The variable by which processes that left the group of their build are found."""


class ShellExecutor(HostExecutor):
    """Runs scripts in a shell on this machine, without a sandbox."""

    name = "shell"

    async def check(self) -> None:
        """A shell is always there."""

    def create_session(self, workspace: Workspace, group: ControlGroup | None) -> Session:
        return ShellSession(self, workspace, group)


class ShellSession(Session):
    """A build in a shell."""

    def __init__(self, executor: ShellExecutor, workspace: Workspace, group: ControlGroup | None) -> None:
        self.paths = BuildPaths(str(workspace.code), str(workspace.home), str(workspace.temporary), str(workspace.mirror), runner_path())
        self._workspace = workspace
        self._group = group
        self._limit_arguments = limit_arguments(executor.limits, executor.controllers_of(group))

    async def run(self, script: Path, environment: Mapping[str, str], trace: TraceBuffer, stop: asyncio.Event) -> int:
        command = [*self._limit_arguments, *SHELL, str(script)]
        mark = secrets.token_hex(16)
        try:
            return await run_process(
                self._group.wrap(command) if self._group else command,
                self._workspace.code,
                {**environment, MARK: mark},
                trace,
                stop,
                ends_with_runner=True,
            )
        finally:
            if self._group:
                await asyncio.to_thread(self._group.kill)
            else:
                await asyncio.to_thread(kill_marked, f"{MARK}={mark}")
