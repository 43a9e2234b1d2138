"""The repositories of all projects: one folder with a bare repository per project."""

import asyncio
import secrets
import shutil
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

from storage.database.engine import DatabaseSession
from storage.disk_sync import replace_file
from storage.git.cancellation import Cancellation
from storage.git.history.history_cache import HistoryCache
from storage.git.importing.repository_import import ProgressCallback, import_repository
from storage.git.packing import dropped_packs, object_collection, packs, repack
from storage.git.packing.object_collection import CollectedObjects, CollectionTips
from storage.git.refs.ref_names import DEFAULT_HEAD
from storage.git.repository import RefTargets, Repository
from storage.git.repository_folders import move_into_place, sync_packs

T = TypeVar("T")

_LOCK_FILES = ("config.lock", "shallow.lock")


@dataclass(frozen=True, slots=True)
class StagedRepository:
    """A repository that belongs to no project yet. `packs` are columns of those that were uploaded (storage/tables/git/packs.py)."""

    path: Path
    packs: Sequence[dict[str, Any]] = ()


class Repositories:
    """Repositories under `root`, named by the project's id: `root/42.git`.

    `workers` threads read concurrently; further reads are queued, so a burst of slow diffs cannot occupy all threads of the process.
    """

    def __init__(self, root: Path, *, workers: int = 4) -> None:
        self.root = root
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="git")
        self._history_cache = HistoryCache()

    def path_of(self, project_id: int) -> Path:
        """Returns the path of the project's repository, whether it exists or not. Raises ValueError for an id below 1."""
        if project_id < 1:
            raise ValueError(f"{project_id} is not a project id")
        return self.root / f"{project_id:d}.git"

    def stage(self, source: Path | None, default_branch: str = DEFAULT_HEAD, progress: ProgressCallback | None = None) -> Path:
        """Creates a repository that belongs to no project yet: a copy of `source`, or an empty one.

        The caller passes the returned folder to `promote` or `discard`; after a crash `sweep` removes it. Raises as `import_repository`.
        """
        staged = self.new_staging_folder()
        if source is None:
            Repository.create(staged, default_branch)
        else:
            import_repository(source, staged, progress)
        return staged

    def new_staging_folder(self) -> Path:
        """Returns the path for a new repository that belongs to no project yet; see `stage`."""
        return self.root / f".incoming-staged-{secrets.token_hex(8)}"

    def promote(self, project_id: int, staged: Path) -> None:
        """Renames a staged repository to the project's path, synced to disk when this returns.

        An existing repository there belongs to no project: it was left by a creation that was not committed, and is removed.
        """
        self.remove(project_id)
        move_into_place(staged, self.path_of(project_id))

    async def add_packs(self, project_id: int, staged: StagedRepository) -> None:
        """Moves the packs of a staged repository into the one of an existing project, which stays: it may have objects of running pushes.

        Call it before the transaction ends whose refs reach them. Raises OSError, GitCommandError, NotARepository.
        """
        async with self.use(project_id) as path:
            await asyncio.to_thread(_move_packs, staged.path, path)

    def discard(self, staged: Path) -> None:
        """Removes a staged repository, if it is still staged."""
        shutil.rmtree(staged, ignore_errors=True)

    def remove(self, project_id: int) -> None:
        """Deletes the repository: it disappears immediately for readers, then its files are deleted. Does nothing if it does not exist."""
        path = self.path_of(project_id)
        trash = self.root / f".removed-{path.name}-{secrets.token_hex(4)}"
        try:
            path.rename(trash)
        except FileNotFoundError:
            return
        shutil.rmtree(trash)

    def sweep(self) -> None:
        """Removes what a killed process left: partial and partly deleted repositories, push quarantines, locks of git's own files.

        Call it only at startup and under the instance's lock, because the locks of a running process look the same.
        """
        if not self.root.is_dir():
            return
        for folder in self.root.iterdir():
            if folder.name.startswith((".incoming-", ".removed-")):
                shutil.rmtree(folder)
            elif folder.suffix == ".git":
                for leftover in (*(folder / name for name in _LOCK_FILES), *folder.glob(".tmp-*")):
                    leftover.unlink(missing_ok=True)
                for quarantine in (folder / "objects").glob("tmp_objdir-*"):
                    shutil.rmtree(quarantine, ignore_errors=True)

    @asynccontextmanager
    async def use(self, project_id: int) -> AsyncIterator[Path]:
        """Yields the path of the project's repository, with all objects of the current refs; it stays in place until the end of the block.

        Raises NotARepository if they cannot be fetched. The path of a project that does not exist is no repository.
        """
        yield self.path_of(project_id)

    async def prepare_folder(self, project_id: int) -> bool:
        """Returns whether the repository's folder exists, after creating it if it is a copy."""
        return self.path_of(project_id).is_dir()

    async def fetch_packs(self, project_id: int, *, is_empty: bool = False) -> None:
        """Adds the objects of the current refs that the folder lacks. The caller has locked the projection.

        Raises NotARepository, also if there are no packs, unless there are no refs (`is_empty`).
        """

    async def fetch_new_packs(self, project_id: int) -> None:
        """Adds the objects that other hosts have published, also those that no ref reaches yet. Raises NotARepository."""

    async def publish(self, project_id: int, session: DatabaseSession | None = None) -> None:
        """Stores new objects where all hosts find them. Call it before the transaction whose refs reach them, or with its session.

        Raises OSError, GitCommandError; ConnectionError if the store cannot be reached.
        """

    async def publish_staged(self, staged: Path) -> StagedRepository:
        """As `publish`, for a staged repository, whose packs `insert_packs` gives to its project. Raises as `publish`."""
        return StagedRepository(staged)

    async def repack(self, project_id: int) -> bool:
        """Combines packs. Returns False if another process is doing it. Raises GitCommandError, OSError."""
        return await repack.repack(self.path_of(project_id))

    async def collect(self, project_id: int, tips: CollectionTips, moment: datetime) -> CollectedObjects | None:
        """Collects the project's objects (`object_collection`). Returns None if another process does it, or did it lately.

        Raises GitCommandError, OSError.
        """
        return await object_collection.collect(self.path_of(project_id), tips, moment.timestamp())

    async def may_lack(self, project_id: int, version: int) -> bool:
        """Whether objects, or some to which they refer, may have been deleted since the refs had this version.

        They were in the repository then, or were written later; only a collection deletes objects. The caller has locked the project, or
        its commit finds out whether the version of its refs has changed since the call.
        """
        return await asyncio.to_thread(dropped_packs.has_dropped, self.path_of(project_id), version)

    async def insert_packs(self, session: DatabaseSession, project_id: int, uploaded: Sequence[dict[str, Any]]) -> None:
        """Inserts the rows of uploaded packs in the transaction of the project."""

    async def read(
        self, project_id: int, work: Callable[[Repository], T], *, refs: RefTargets | None = None, cancellable: bool = False
    ) -> T:
        """Runs `work` in a thread with the project's repository, and returns its result.

        `refs` are the refs of the database that the repository knows; None means those of the files, which may be older.

        `cancellable` work must change nothing; when the caller is canceled, it stops at the next object that it reads. Other work always
        runs to its end. The repository is valid only inside `work`. Raises NotARepository, and any exception of `work`.
        """
        loop = asyncio.get_running_loop()
        if not cancellable:
            return await loop.run_in_executor(self._pool, self._run, project_id, work, refs)
        cancellation = Cancellation()
        try:
            return await loop.run_in_executor(self._pool, self._run_cancellable, project_id, work, refs, cancellation)
        except asyncio.CancelledError:
            cancellation.cancel()
            raise

    def close(self) -> None:
        """Stops the threads after their current work."""
        self._pool.shutdown(cancel_futures=True)

    def _run_cancellable(self, project_id: int, work: Callable[[Repository], T], refs: RefTargets | None, cancellation: Cancellation) -> T:
        with cancellation.activate():
            return self._run(project_id, work, refs)

    def _run(self, project_id: int, work: Callable[[Repository], T], refs: RefTargets | None) -> T:
        # Opening costs 0.05 ms; a cached handle would have to be shared between threads and invalidated on removal.
        return work(Repository.open(self.path_of(project_id), refs, self._history_cache))


def _move_packs(staged: Path, path: Path) -> None:
    packs.pack_loose_objects(staged)
    if (staged / packs.SHALLOW).exists():
        # The commits whose parents the repository does not have, a line each.
        files = [file for file in (staged / packs.SHALLOW, path / packs.SHALLOW) if file.exists()]
        lines = sorted({line for file in files for line in file.read_bytes().splitlines(keepends=True)})
        replace_file(path / packs.SHALLOW, b"".join(lines))
    for name in packs.list_packs(staged):
        # Indexes last: no pack may be found without its objects.
        for file in sorted(packs.folder_of(staged).glob(f"{name}.*"), key=lambda file: file.suffix == ".idx"):
            file.rename(packs.folder_of(path) / file.name)
    sync_packs(path)
