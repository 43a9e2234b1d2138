"""Repacks repositories with many packs, one after the other, with low priority."""

import asyncio
from time import monotonic

import structlog

from graph.context import Services
from storage.git.packing import repack
from storage.git.repository import NotARepository
from storage.git.subprocesses.git_command import GitCommandError

log = structlog.get_logger("repack")


async def repack_repositories(services: Services) -> None:
    """Repacks the repositories that need it. Several processes may run it: each repository is repacked by one of them."""
    for path in await asyncio.to_thread(repack.repositories_to_repack, services.repositories.root):
        started = monotonic()
        try:
            if await services.repositories.repack(int(path.stem)):
                log.info("repository repacked", repository=path.name, seconds=round(monotonic() - started, 1))
        except (GitCommandError, NotARepository, OSError) as error:
            # The repository may have been removed meanwhile.
            if path.exists():
                log.error("repacking failed", repository=path.name, error=str(error))
