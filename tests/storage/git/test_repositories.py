"""The folder of all repositories: creation, removal, reads in threads, and leftovers of a kill."""

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from storage.git import repository_folders
from storage.git.importing.repository_import import import_repository
from storage.git.repositories import Repositories, StagedRepository
from storage.git.repository import NotARepository, Repository
from tests.support.git.git_history import commit_files, git, make_history


@pytest.fixture
def repositories(tmp_path: Path) -> Iterator[Repositories]:
    made = Repositories(tmp_path / "repositories", workers=2)
    yield made
    made.close()


class TestPaths:
    def test_are_named_by_the_projects_id(self, repositories: Repositories):
        assert repositories.path_of(42) == repositories.root / "42.git"

    @pytest.mark.parametrize("project_id", [0, -1])
    def test_ids_that_are_none(self, repositories: Repositories, project_id: int):
        with pytest.raises(ValueError, match="is not a project id"):
            repositories.path_of(project_id)

    def test_create_and_remove(self, repositories: Repositories):
        assert Repository.create(repositories.path_of(1)).is_empty()
        with pytest.raises(FileExistsError):
            Repository.create(repositories.path_of(1))
        repositories.remove(1)
        repositories.remove(1)
        assert list(repositories.root.iterdir()) == []

    def test_everything_is_synced_before_it_appears(self, repositories: Repositories, monkeypatch: pytest.MonkeyPatch):
        synced: list[tuple[Path, bool]] = []
        path = repositories.path_of(3)
        monkeypatch.setattr(repository_folders, "sync_path", lambda file: synced.append((file, path.exists())))
        Repository.create(repositories.path_of(3))
        files = [file.relative_to(path) for file in path.rglob("*")]
        before = {Path(*file.parts[len(path.parts) :]) for file, there in synced if not there}

        assert {*files, Path()} == before
        assert [file for file, there in synced if there] == [repositories.root]


class TestRead:
    async def test_runs_the_work_in_a_thread(self, repositories: Repositories):
        Repository.create(repositories.path_of(1))

        assert await repositories.read(1, lambda _: threading.current_thread().name.startswith("git"))
        assert await repositories.read(1, Repository.is_empty)

    async def test_a_missing_repository_is_reported(self, repositories: Repositories):
        with pytest.raises(NotARepository):
            await repositories.read(1, Repository.branches)

    async def test_passes_errors_on(self, repositories: Repositories):
        Repository.create(repositories.path_of(1))
        with pytest.raises(LookupError):
            await repositories.read(1, lambda repository: repository.commit("f" * 40))

    async def test_sees_later_changes_by_git(self, repositories: Repositories, tmp_path: Path):
        made = make_history(tmp_path / "source.git", commits=20)
        import_repository(made.path, repositories.path_of(1))
        git(repositories.path_of(1), "branch", "later", "master")
        git(repositories.path_of(1), "repack", "-adq")

        assert await repositories.read(1, lambda repository: repository.resolve("later"))

    async def test_is_bounded(self, repositories: Repositories):
        Repository.create(repositories.path_of(1))
        lock, running, most = threading.Lock(), 0, 0
        full = threading.Barrier(2)

        def work(_: Repository) -> None:
            nonlocal running, most
            with lock:
                running += 1
                most = max(most, running)
            full.wait(10)
            with lock:
                running -= 1

        await asyncio.gather(*(repositories.read(1, work) for _ in range(6)))
        assert most == 2


class TestAddPacks:
    async def test_adds_to_what_pushes_have_written(self, repositories: Repositories, tmp_path: Path):
        path = repositories.path_of(1)
        Repository.create(path)
        pushed = commit_files(path, {"file": b"pushed"})
        source = make_history(tmp_path / "source.git", commits=20).path
        git(tmp_path, "clone", "--quiet", "--bare", "--depth=5", f"file://{source}", str(tmp_path / "shallow"))
        staged = repositories.stage(tmp_path / "shallow")

        await repositories.add_packs(1, StagedRepository(staged))

        repository = Repository.open(path)
        assert repository.commit(pushed) and repository.commit(git(source, "rev-parse", "master"))
        git(path, "update-ref", "refs/heads/master", git(source, "rev-parse", "master"))
        assert git(path, "rev-list", "master") == git(tmp_path / "shallow", "rev-list", "HEAD")
        assert not list(path.rglob(".tmp-*"))


class TestCleanup:
    def test_removes_only_leftovers_of_a_killed_process(self, repositories: Repositories, tmp_path: Path):
        made = make_history(tmp_path / "source.git", commits=20)
        import_repository(made.path, repositories.path_of(1))
        adopted = Repository.open(repositories.path_of(1))
        for name in (".incoming-2.git-00000000", ".removed-3.git-00000000"):
            (repositories.root / name / "objects").mkdir(parents=True)
        locks = [adopted.path / name for name in ("config.lock", ".tmp-of-refs")]
        for lock in locks:
            lock.touch()
        repositories.sweep()

        assert [entry.name for entry in repositories.root.iterdir()] == ["1.git"]
        assert not any(lock.exists() for lock in locks)

    def test_nothing_to_do_before_the_first_repository(self, repositories: Repositories):
        repositories.sweep()
