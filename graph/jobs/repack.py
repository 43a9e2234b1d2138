"""Packs repositories that pushes have scattered over many files: one after the other, below everything else that the machine does."""

import asyncio
from time import monotonic

import structlog

from graph.context import Services
from storage.git import repack
from storage.git.subprocesses.git_command import GitCommandError

log = structlog.get_logger("packing")


async def repack_repositories(services: Services) -> None:
    """Looks at all repositories, and packs those that need it. Several processes may: a repository is packed by one of them."""
    for path in await asyncio.to_thread(repack.repositories_to_repack, services.repositories.root):
        started = monotonic()
        try:
            if await repack.repack(path):
                log.info("repository packed", repository=path.name, seconds=round(monotonic() - started, 1))
        except (GitCommandError, OSError) as error:
            # One that was removed meanwhile is nobody's loss.
            if path.exists():
                log.error("repository not packed", repository=path.name, error=str(error))
