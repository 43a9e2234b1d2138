"""Directories and files of a commit are read from the repository once; what a name means is asked each time."""

from pathlib import Path
from typing import Any

import pytest

from graph.rules.git import ref_adoption
from storage import tables
from storage.git import content_cache
from tests.make import DataFactory
from tests.support.api_clients import Ask
from tests.support.git.git_history import commit_files, commit_to_branch, git

BOTH = """query ($path: String!, $ref: String) { project(path: $path) {
  tree(ref: $ref, path: "folder") { nodes { name oid lastCommit { oid } } }
  blob(ref: $ref, path: "folder/file") { text base64 lastCommitOid } } }"""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "source.git"
    git(tmp_path, "init", "-q", "--bare", "-b", "master", str(path))
    files = {"folder/file": b"first\n", "large": b"x" * content_cache.MAX_ENTRY_BYTES}
    git(path, "update-ref", "refs/heads/master", commit_files(path, files))
    return path


def texts_of(answer: dict[str, Any]) -> str:
    return answer["project"]["blob"]["text"]  # type: ignore[no-any-return]


async def test_a_second_request_reads_only_what_is_not_cached(
    ask: Ask, viewer: tables.User, project: tables.Project, reads: list[int]
) -> None:
    first = await ask.data(BOTH, viewer, path=str(project.id), ref="master")
    before = len(reads)
    assert await ask.data(BOTH, viewer, path=str(project.id), ref="master") == first
    # The last change of each entry is not cached.
    assert len(reads) - before < before


async def test_a_branch_that_has_moved_shows_its_new_files(
    ask: Ask, make: DataFactory, viewer: tables.User, project: tables.Project
) -> None:
    assert texts_of(await ask.data(BOTH, viewer, path=str(project.id), ref="master")) == "first\n"
    commit_to_branch(make.services.repositories.path_of(project.id), "master", {"folder/file": b"second\n"})
    assert await ref_adoption.adopt_changes(make.services, project.id)
    second = await ask.data(BOTH, viewer, path=str(project.id), ref="master")
    assert texts_of(second) == "second\n"
    assert second["project"]["blob"]["lastCommitOid"] == second["project"]["tree"]["nodes"][0]["lastCommit"]["oid"]


async def test_a_viewer_without_access_does_not_see_them(ask: Ask, make: DataFactory, viewer: tables.User, project: tables.Project) -> None:
    await ask.data(BOTH, viewer, path=str(project.id))
    result = await ask(BOTH, await make.user(), path=str(project.id))
    assert result.data == {"project": None}


async def test_abbreviated_ids_and_large_files_are_not_cached(
    ask: Ask, make: DataFactory, viewer: tables.User, project: tables.Project, reads: list[int]
) -> None:
    short = git(make.services.repositories.path_of(project.id), "rev-parse", "--short=8", "master")
    query = 'query ($path: String!, $ref: String) { project(path: $path) { blob(ref: $ref, path: "%s") { size } } }'
    for ref, path in ((short, "folder/file"), ("master", "large")):
        reads.clear()
        for _ in range(2):
            assert (await ask.data(query % path, viewer, path=str(project.id), ref=ref))["project"]["blob"]["size"]
        assert len(reads) == 2
