"""Open merge requests, each with a target branch of its own, so that merging one does not compare the others again."""

import asyncio
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pygit2
from sqlalchemy import func, select, update
from sqlmodel import col

from benchmarks.dataset import build_rows
from benchmarks.dataset.bulk_insert import insert_rows
from benchmarks.dataset.project_history import AUTHOR, EMAIL
from storage import tables
from storage.database.engine import Database
from storage.git.repositories import Repositories
from storage.tables import CounterKind, MergeRequestState, MergeStatus

TITLE = "Change a file of its own"
BEGAN_AT = datetime(2026, 2, 1, tzinfo=UTC)


def create_open_merge_requests(url: str, repositories: Path, projects: Sequence[int], count: int) -> dict[int, list[int]]:
    """Adds `count` merge requests to each of these projects, which have `project_history`'s repository; returns their ids by project."""
    store = Repositories(repositories)
    commits = {project: _commit_files(store.path_of(project), count) for project in projects}
    store.close()
    return asyncio.run(_insert(url, commits))


def _branch_names(number: int) -> tuple[str, str]:
    """The names of the source and the target branch."""
    return f"accepted-{number}", f"release-{number}"


def _commit_files(path: Path, count: int) -> list[tuple[str, str]]:
    """Commits one new file to each of `count` branches from master; returns the commits with their parent."""
    repository = pygit2.Repository(str(path))
    base = repository.references["refs/heads/master"].peel(pygit2.Commit)
    who = pygit2.Signature(AUTHOR, EMAIL, int(BEGAN_AT.timestamp()), 0)
    commits = []
    for number in range(count):
        index = pygit2.Index()
        index.read_tree(base.tree)
        blob = repository.create_blob(f"of change {number}\n".encode())
        index.add(pygit2.IndexEntry(f"src/accepted/file{number}.txt", blob, pygit2.enums.FileMode.BLOB))
        source, target = (f"refs/heads/{name}" for name in _branch_names(number))
        repository.references.create(target, base.id)
        commits.append((str(repository.create_commit(source, who, who, TITLE, index.write_tree(repository), [base.id])), str(base.id)))
    return commits


async def _insert(url: str, commits: dict[int, list[tuple[str, str]]]) -> dict[int, list[int]]:
    database = Database(url)
    try:
        async with database.engine.execution_options(writing=True).begin() as connection:
            found: dict[int, list[int]] = {}
            for project, heads in commits.items():
                last = (await connection.execute(select(func.max(tables.MergeRequest.id)))).scalar_one()
                await insert_rows(
                    connection,
                    [
                        (tables.Commit, _commit_rows(project, heads)),
                        (tables.GitRef, _ref_rows(project, heads)),
                        (tables.MergeRequest, _merge_request_rows(project, heads)),
                    ],
                )
                found[project] = list(range(last + 1, last + 1 + len(heads)))
                counter = (col(tables.Counter.project_id) == project, col(tables.Counter.kind) == CounterKind.MERGE_REQUEST)
                # The rows of refs are complete; a service that starts need not read the repository.
                await connection.execute(update(tables.Project).where(col(tables.Project.id) == project).values(refs_version=1))
                await connection.execute(update(tables.Counter).where(*counter).values(value=build_rows.MERGE_REQUESTS + len(heads)))
            return found
    finally:
        await database.close()


def _commit_rows(project: int, heads: Sequence[tuple[str, str]]) -> Iterator[dict[str, Any]]:
    people = {"author_name": AUTHOR, "author_email": EMAIL, "committer_name": AUTHOR, "committer_email": EMAIL}
    dates = {"authored_offset": 0, "committed_offset": 0, "authored_at": BEGAN_AT, "committed_at": BEGAN_AT}
    for oid, parent in heads:
        yield {"project_id": project, "oid": oid, "first_parent": parent, "parents": [parent], "title": TITLE, **people, **dates}


def _ref_rows(project: int, heads: Sequence[tuple[str, str]]) -> Iterator[dict[str, Any]]:
    for number, oids in enumerate(heads):
        for name, oid in zip(_branch_names(number), oids, strict=True):
            yield {"project_id": project, "name": f"refs/heads/{name}", "oid": oid, "is_indexed": True}


def _merge_request_rows(project: int, heads: Sequence[tuple[str, str]]) -> Iterator[dict[str, Any]]:
    for number, (oid, parent) in enumerate(heads):
        source, target = _branch_names(number)
        yield {
            "project_id": project,
            "source_project_id": project,
            "iid": build_rows.MERGE_REQUESTS + 1 + number,
            "author_id": 1,
            "title": TITLE,
            "description": None,
            "state": MergeRequestState.OPENED,
            "source_branch": source,
            "target_branch": target,
            "merge_status": MergeStatus.CAN_BE_MERGED,
            "head_oid": oid,
            "base_oid": parent,
            "commit_count": 1,
            **dict.fromkeys(("files", "additions"), 1),
            "deletions": 0,
            "merge_when_build_succeeds": False,
            "created_at": BEGAN_AT,
            "updated_at": BEGAN_AT,
        }
