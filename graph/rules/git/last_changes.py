"""The newest commits that changed the entries of directories."""

from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass
from time import monotonic

from graph.context import Context
from graph.operations.loaders import Loader
from graph.rules.git.commits import run_in_repository
from graph.rules.git.trees import ProjectTreeEntry
from storage.git.history.last_changes import last_changes
from storage.git.repository import Repository

MAX_OPERATION_SECONDS = 3.0
"""Time that one operation spends on walks of histories; entries whose commit was not found in it have none."""

EntryKey = tuple[int, str, bytes]
"""Project id, id of the commit of the listing, and the path of the entry in bytes."""


async def find_last_change(context: Context, entry: ProjectTreeEntry) -> str | None:
    """The id of the newest commit, up to that of the listing, that changed the entry; None if it is not found within the limits.

    One walk serves all entries of a directory. Raises Unavailable.
    """
    loader: Loader[EntryKey, str] = context.loader("last changes", _LastChangeReader(context))
    return await loader.get((entry.project_id, entry.commit_oid, entry.key.removesuffix(b"/")))


@dataclass
class _LastChangeReader:
    """Walks the histories of one operation sequentially, until their time is over."""

    context: Context
    remaining: float = MAX_OPERATION_SECONDS

    async def __call__(self, keys: list[EntryKey]) -> dict[EntryKey, str]:
        names = defaultdict[EntryKey, list[bytes]](list)
        for project_id, commit, path in keys:
            directory, _, name = path.rpartition(b"/")
            names[project_id, commit, directory].append(name)
        found: dict[EntryKey, str] = {}
        for (project_id, commit, directory), names_in_directory in names.items():
            prefix = directory + b"/" if directory else b""
            for name, oid in (await self._walk(project_id, commit, directory, names_in_directory)).items():
                found[project_id, commit, prefix + name] = oid
        return found

    async def _walk(self, project_id: int, commit: str, directory: bytes, names: Collection[bytes]) -> dict[bytes, str]:
        if self.remaining <= 0:
            return {}
        seconds = self.remaining

        def work(repository: Repository) -> dict[bytes, str]:
            return last_changes(repository, commit, directory.decode("utf-8", "replace"), names, seconds)

        started = monotonic()
        found = await run_in_repository(self.context, project_id, work, cancellable=True)
        self.remaining -= monotonic() - started
        return found
