"""Statuses and comments of commits: which commits a later run reads."""

import os
import subprocess
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from forgefront.importing import build_import
from forgefront.importing.build_import import BuildImporter
from forgefront.importing.project_import import ProjectWork
from forgefront.importing.repository_mirrors import RepositoryMirrors
from tests.support.git.git_history import git

NEW_YEAR = 1_451_606_400
FAR_FUTURE = 4_000_000_000


class ImportedRepository:
    """A mirror with commits, none of which is the head of a branch or has a build, and the marks of an instance that imports it."""

    def __init__(self, folder: Path) -> None:
        self.mirrors = RepositoryMirrors(folder, parallel=1)
        self.path = self.mirrors.path_of(7)
        self.marks: dict[str, str] = {}
        self._git("init", "--bare", "--quiet", str(self.path))

    def _git(self, *arguments: str, **environ: str) -> str:
        return subprocess.run(["git", *arguments], check=True, capture_output=True, text=True, env={**os.environ, **environ}).stdout.strip()

    def commit(self, committed_at: int) -> str:
        """Adds a commit, which a merge request names."""
        tree = self._git("-C", str(self.path), "hash-object", "-t", "tree", "-w", "/dev/null")
        times = {
            f"GIT_{who}_{what}": value for who in ("AUTHOR", "COMMITTER") for what, value in (("NAME", "ann"), ("EMAIL", "ann@example.org"))
        }
        times |= {"GIT_AUTHOR_DATE": f"{NEW_YEAR} +0000", "GIT_COMMITTER_DATE": f"{committed_at} +0000"}
        oid = self._git("-C", str(self.path), "commit-tree", tree, "-m", str(committed_at), **times)
        self._git("-C", str(self.path), "update-ref", f"refs/merge-requests/{oid}/head", oid)
        return oid

    def write_commit(self, date: str) -> str:
        """As `commit`, with a date as it is written in the object."""
        tree = self._git("-C", str(self.path), "hash-object", "-t", "tree", "-w", "/dev/null")
        raw = f"tree {tree}\nauthor A <a@example.org> {NEW_YEAR} +0000\ncommitter A <a@example.org> {date}\n\nA change\n"
        oid = git(self.path, "hash-object", "-t", "commit", "-w", "--stdin", "--literally", stdin=raw.encode())
        self._git("-C", str(self.path), "update-ref", f"refs/merge-requests/{oid}/head", oid)
        return oid

    async def read(self, *, is_complete: bool = True) -> set[str]:
        """Runs an import; returns the commits whose statuses it reads."""
        found: Counter[str] = Counter()

        async def read(kind: str, path: str, *, state: Any, **_: Any) -> AsyncIterator[Any]:
            found[path] += kind == "commit statuses"
            state.has_failed = not is_complete
            for nothing in ():
                yield nothing

        async def set_mark(name: str, value: str) -> None:
            self.marks[name] = value

        run: Any = SimpleNamespace(
            mirrors=self.mirrors,
            target=SimpleNamespace(marks=self.marks, set_mark=set_mark),
            source=SimpleNamespace(path=lambda route, project, sha: sha),
            read=read,
            report=SimpleNamespace(leave=lambda *_: None),
            parallel=1,
        )
        accounts: Any = None
        await BuildImporter(run, accounts).import_commit_facts(ProjectWork("7", "demo/app", "", "", has_repository=True))
        return set(found)


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ImportedRepository:
    monkeypatch.setattr(build_import, "RECENT_COMMITS", 1)
    return ImportedRepository(tmp_path)


async def test_commits_are_read_once_except_the_newest(repository: ImportedRepository) -> None:
    old, new = repository.commit(NEW_YEAR), repository.commit(NEW_YEAR + 60)

    assert [await repository.read() for _ in range(2)] == [{old, new}, {new}]


@pytest.mark.parametrize("known_time", [NEW_YEAR + 60, FAR_FUTURE])
async def test_commits_that_are_pushed_later_are_read_whatever_their_times(repository: ImportedRepository, known_time: int) -> None:
    known = repository.commit(known_time)
    assert await repository.read() == {known}

    rebased = repository.commit(NEW_YEAR)

    assert [await repository.read() for _ in range(2)] == [{known, rebased}, {known}]


async def test_commits_are_read_again_after_a_run_that_was_not_complete(repository: ImportedRepository) -> None:
    old, new = repository.commit(NEW_YEAR), repository.commit(NEW_YEAR + 60)

    assert [await repository.read(is_complete=each) for each in (False, True, True)] == [{old, new}, {old, new}, {new}]


@pytest.mark.parametrize("lost", ["marks", "mirror"])
async def test_all_commits_are_read_by_another_import_and_from_another_mirror(repository: ImportedRepository, lost: str) -> None:
    old, new = repository.commit(NEW_YEAR), repository.commit(NEW_YEAR + 60)
    await repository.read()
    if lost == "marks":
        repository.marks.clear()
    else:
        (repository.path / "commits.read").unlink()

    assert await repository.read() == {old, new}


async def test_the_mark_of_an_older_version_is_that_of_no_commits(repository: ImportedRepository) -> None:
    """It was the largest time of a commit."""
    old, new = repository.commit(NEW_YEAR), repository.commit(NEW_YEAR + 60)
    repository.marks["project/7/commits"] = str(NEW_YEAR + 60)

    assert await repository.read() == {old, new}


@pytest.mark.parametrize("date", ["1700000000000 +0000", "99999999999999999999999 +0000", f"{NEW_YEAR} UTC"])
async def test_commits_without_a_valid_date_are_read(repository: ImportedRepository, date: str) -> None:
    """The first has milliseconds instead of seconds. Fetches accept that, and time zones of any form."""
    oid = repository.write_commit(date)
    assert repository.mirrors.list_heads(7) == [] and await repository.read() == {oid}
