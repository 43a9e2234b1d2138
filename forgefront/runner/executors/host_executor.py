"""What the executors share that run builds on the runner's own system: a warning about images, and a control group for each build."""

import asyncio
from abc import abstractmethod
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from forgefront.runner.executors.executor import UNLIMITED, BuildImages, Executor, Limits, Session, Workspace
from forgefront.runner.executors.resource_limits import ControlGroup, ControlGroups
from forgefront.runner.trace_buffer import TraceBuffer


class HostExecutor(Executor):
    """Runs builds without images; in control groups, where this process may create some (`groups`)."""

    def __init__(self, limits: Limits = UNLIMITED, groups: ControlGroups | None = None) -> None:
        self.limits = limits
        self.groups = groups

    @abstractmethod
    def create_session(self, workspace: Workspace, group: ControlGroup | None) -> Session:
        """The session of a build, whose processes enter the group."""

    def controllers_of(self, group: ControlGroup | None) -> frozenset[str]:
        """What the group of a build limits."""
        return self.groups.controllers if self.groups and group else frozenset()

    @asynccontextmanager
    async def open(self, workspace: Workspace, images: BuildImages, trace: TraceBuffer, stop: asyncio.Event) -> AsyncIterator[Session]:
        if images.image or images.services:
            trace.write_line(f"WARNING: The executor {self.name} runs the build on the runner's system, without its image and services.")
        group = await asyncio.to_thread(self.groups.create, workspace.root.name, self.limits) if self.groups else None
        try:
            yield self.create_session(workspace, group)
        finally:
            if group:
                await asyncio.to_thread(group.remove)
