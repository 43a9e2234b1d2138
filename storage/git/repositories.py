"""The repositories of all projects: one folder, a bare repository a project."""

import asyncio
import secrets
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from storage.git.cancellation import Cancellation
from storage.git.repository import Repository, move_into_place
from storage.git.repository_import import ProgressCallback, import_repository

T = TypeVar("T")

_LOCK_FILES = ("HEAD.lock", "config.lock", "packed-refs.lock", "shallow.lock")


class Repositories:
    """Repositories under `root`, named by the project's id: `root/42.git`.

    `workers` threads read at once; further readings wait their turn, so a burst of slow diffs cannot take every thread.
    """

    def __init__(self, root: Path, *, workers: int = 4) -> None:
        self.root = root
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="git")

    def path_of(self, project_id: int) -> Path:
        """Where the project's repository is or would be. Raises ValueError for an id below 1."""
        if project_id < 1:
            raise ValueError(f"{project_id} is no project id")
        return self.root / f"{project_id:d}.git"

    def create(self, project_id: int, default_branch: str = "master") -> Repository:
        """An empty repository, on disk when this returns. Raises FileExistsError."""
        return Repository.create(self.path_of(project_id), default_branch)

    def import_copy(self, project_id: int, source: Path, progress: ProgressCallback | None = None) -> Repository:
        """A copy of the local repository `source`, on disk when this returns. Raises as `import_repository`."""
        import_repository(source, self.path_of(project_id), progress)
        return Repository.open(self.path_of(project_id))

    def stage(self, source: Path | None, default_branch: str = "master", progress: ProgressCallback | None = None) -> Path:
        """A whole repository that no project has yet: a copy of `source`, or an empty one. Ends in `promote` or `discard`.

        The folder that a kill leaves is taken by `sweep`. Raises as `import_repository`.
        """
        staged = self.root / f".incoming-staged-{secrets.token_hex(8)}"
        if source is None:
            Repository.create(staged, default_branch)
        else:
            import_repository(source, staged, progress)
        return staged

    def promote(self, project_id: int, staged: Path) -> None:
        """Gives a staged repository to the project, on disk when this returns.

        What stands in its place belongs to no project: it was left by a creation that was never kept, and is removed.
        """
        self.remove(project_id)
        move_into_place(staged, self.path_of(project_id))

    def discard(self, staged: Path) -> None:
        """Removes a staged repository, if it is still staged."""
        shutil.rmtree(staged, ignore_errors=True)

    def remove(self, project_id: int) -> None:
        """Deletes the repository: gone at once for readers, its files after that. Nothing happens when it is not there."""
        path = self.path_of(project_id)
        trash = self.root / f".removed-{path.name}-{secrets.token_hex(4)}"
        try:
            path.rename(trash)
        except FileNotFoundError:
            return
        shutil.rmtree(trash)

    def sweep(self) -> None:
        """Removes what a killed process left: half-made and half-deleted repositories, half-taken pushes, and the locks of refs.

        Only at start and under the instance's lock: a living process's locks look the same.
        """
        if not self.root.is_dir():
            return
        for folder in self.root.iterdir():
            if folder.name.startswith((".incoming-", ".removed-")):
                shutil.rmtree(folder)
            elif folder.suffix == ".git":
                for lock in (*(folder / name for name in _LOCK_FILES), *(folder / "refs").rglob("*.lock")):
                    lock.unlink(missing_ok=True)
                for quarantine in (folder / "objects").glob("tmp_objdir-*"):
                    shutil.rmtree(quarantine, ignore_errors=True)

    async def read(self, project_id: int, work: Callable[[Repository], T], *, cancellable: bool = False) -> T:
        """What `work` gives for the project's repository, run in a thread.

        `cancellable` work changes nothing, and ends at the next object that it reads when the caller is cancelled; other work always runs
        to its end. Raises NotARepository when there is none, and whatever `work` raises. The repository is good only inside `work`.
        """
        loop = asyncio.get_running_loop()
        if not cancellable:
            return await loop.run_in_executor(self._pool, self._run, project_id, work)
        cancellation = Cancellation()
        try:
            return await loop.run_in_executor(self._pool, self._run_cancellable, project_id, work, cancellation)
        except asyncio.CancelledError:
            cancellation.cancel()
            raise

    def close(self) -> None:
        """Ends the threads after their present work."""
        self._pool.shutdown(cancel_futures=True)

    def _run_cancellable(self, project_id: int, work: Callable[[Repository], T], cancellation: Cancellation) -> T:
        with cancellation.activate():
            return self._run(project_id, work)

    def _run(self, project_id: int, work: Callable[[Repository], T]) -> T:
        # Opening costs 0.05 ms; a handle kept open would have to be shared between threads and dropped on removal.
        return work(Repository.open(self.path_of(project_id)))
