"""Chooses the executor of a runner, and says why."""

import asyncio
from dataclasses import dataclass, field
from pathlib import Path

import structlog

from forgefront.runner.executors.bubblewrap import BubblewrapExecutor
from forgefront.runner.executors.container import ContainerExecutor, ContainerSettings
from forgefront.runner.executors.executor import UNLIMITED, Executor, ExecutorUnavailable, Limits
from forgefront.runner.executors.resource_limits import ControlGroups, find_control_groups
from forgefront.runner.executors.shell import ShellExecutor

log = structlog.get_logger("runner")


@dataclass(frozen=True, slots=True)
class ExecutorSettings:
    """`name` is "auto", "bubblewrap", "container" or "shell"; `has_network` and `read_only` are for bubblewrap."""

    name: str = "auto"
    limits: Limits = UNLIMITED
    has_network: bool = True
    read_only: tuple[Path, ...] = ()
    container: ContainerSettings = field(default_factory=ContainerSettings)


async def choose_executor(settings: ExecutorSettings) -> Executor:
    """The executor of the settings, tried; `auto` is bubblewrap where it works, else the shell. Raises ExecutorUnavailable."""
    groups = await asyncio.to_thread(find_control_groups) if settings.name != "container" else None
    if settings.name == "auto":
        executor: Executor = make_executor("bubblewrap", settings, groups)
        try:
            await executor.check()
        except ExecutorUnavailable as error:
            log.warning(
                "builds run without a sandbox, and may read and change everything that this user may", why=error.reason, remedy=error.remedy
            )
            return make_executor("shell", settings, groups)
        return executor
    executor = make_executor(settings.name, settings, groups)
    await executor.check()
    return executor


def make_executor(name: str, settings: ExecutorSettings, groups: ControlGroups | None) -> Executor:
    """The executor, which was not tried yet."""
    if name == "container":
        return ContainerExecutor(settings.limits, settings.container)
    if name == "shell":
        return ShellExecutor(settings.limits, groups)
    return BubblewrapExecutor(settings.limits, groups, has_network=settings.has_network, binds=settings.read_only)
