"""The state of the instance, for administrators: sizes, hosts, and what waits."""

import asyncio
import os
import platform
import shutil
import socket
from datetime import timedelta
from importlib.metadata import version
from typing import NamedTuple

from graph.context import Context
from graph.jobs.backlog import Backlog, read_backlog
from storage.database.status import DatabaseStatus, read_status
from storage.tables import hosts
from storage.tables.hosts import LIVE_SECONDS, Host


class ProcessInfo(NamedTuple):
    """The server process that answers. `process` is the name of its machine and its number there."""

    version: str
    python_version: str
    process: str


class DiskSpace(NamedTuple):
    """The disk of the repositories, in bytes."""

    total: int
    free: int


def describe_process() -> ProcessInfo:
    return ProcessInfo(version("forgefront"), platform.python_version(), f"{socket.gethostname()}:{os.getpid()}")


async def describe_database(context: Context) -> DatabaseStatus:
    return await read_status(context.services.database)


async def measure_disk(context: Context) -> DiskSpace | None:
    """The space on the disk of the repositories; None if it cannot be read."""
    try:
        usage = await asyncio.to_thread(shutil.disk_usage, context.services.repositories.root)
    except OSError:
        return None
    return DiskSpace(usage.total, usage.free)


async def measure_backlog(context: Context) -> Backlog:
    return await read_backlog(context.services.database, context.services.clock)


async def list_hosts(context: Context) -> list[tuple[Host, bool]]:
    """The hosts, each with whether it was running lately; none with SQLite, where the instance has a single one."""
    cutoff = context.now() - timedelta(seconds=LIVE_SECONDS)
    return [(host, host.heartbeat_at > cutoff) for host in await context.all(hosts.all_hosts())]
