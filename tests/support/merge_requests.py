"""Merge requests whose branches exist, for tests of merging."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pygit2
from pygit2.enums import FileMode

from graph.context import Context, Services
from graph.operations.transaction import session_for
from storage import tables
from storage.git import merge
from storage.git.repository import Repository
from tests.make import DataFactory
from tests.support.git.repositories import EditableRepository

COMMIT_TIME = 1_500_000_000


def commit_text_files(
    repository: EditableRepository, branch: str, files: dict[str, str], *, start: str = "master", message: str = "Change"
) -> str:
    """Commits these files (name → content) to a branch, which is created from `start` if it does not exist; returns the commit's id."""
    tip = repository.find_ref(f"refs/heads/{branch}")
    oid = write_text_commit(repository, tip or repository.resolve(start), files, message=message)
    repository.move_ref(f"refs/heads/{branch}", oid, tip)
    return oid


def write_text_commit(repository: Repository, parent: str | None, files: dict[str, str], *, message: str = "Change") -> str:
    """Writes a commit with these files (name → content), which no ref reaches; returns its id."""
    handle = repository.handle
    index = pygit2.Index()
    if parent is not None:
        index.read_tree(handle[parent].peel(pygit2.Tree))
    for name, text in files.items():
        index.add(pygit2.IndexEntry(name, handle.create_blob(text.encode()), FileMode.BLOB))
    who = pygit2.Signature("A U Thor", "author@example.org", COMMIT_TIME)
    return str(handle.create_commit(None, who, who, message, index.write_tree(handle), [parent] if parent else []))


@dataclass
class OpenMergeRequest:
    """A merge request of one new file on a branch of its own."""

    row: tables.MergeRequest
    head: str


class MergeRequestFactory:
    """`await merges.proposal("feature")` in the project, whose `master` exists."""

    def __init__(self, make: DataFactory, project: tables.Project, author: tables.User) -> None:
        self.make = make
        self.services = make.services
        self.project = project
        self.author = author
        self._numbers = 0

    async def commit(self, branch: str, files: dict[str, str] | None = None, **settings: Any) -> str:
        contents = files or {f"{branch}.txt": f"of {branch}\n"}
        return await self.services.repositories.read(
            self.project.id, lambda repository: commit_text_files(repository, branch, contents, **settings)
        )

    async def proposal(self, branch: str, files: dict[str, str] | None = None, **columns: Any) -> OpenMergeRequest:
        head = await self.commit(branch, files)
        self._numbers += 1
        values = {"title": f"Merge {branch}", "target_branch": "master", "source_project_id": self.project.id, "head_oid": head, **columns}
        values.setdefault("iid", self._numbers)
        row = tables.MergeRequest(project_id=self.project.id, author_id=self.author.id, source_branch=branch, **values)
        await self.make.save(row)
        return OpenMergeRequest(row, head)

    async def tip(self, branch: str = "master") -> str | None:
        return await self.services.repositories.read(self.project.id, lambda repository: repository.find_ref(f"refs/heads/{branch}"))

    async def contains(self, oid: str, branch: str = "master") -> bool:
        """Whether the branch contains the commit."""

        def work(repository: Repository) -> bool:
            tip = repository.find_ref(f"refs/heads/{branch}")
            return tip is not None and merge.is_ancestor(repository, oid, tip)

        return await self.services.repositories.read(self.project.id, work)

    async def reload(self, proposal: OpenMergeRequest) -> tables.MergeRequest:
        row = await self.make.fetch(tables.MergeRequest, proposal.row.id)
        assert row is not None
        return row

    @asynccontextmanager
    async def acting(self, user: tables.User) -> AsyncIterator[Context]:
        async with acting(self.services, user) as context:
            yield context


@asynccontextmanager
async def acting(services: Services, user: tables.User) -> AsyncIterator[Context]:
    """The context of a write operation of the user."""
    async with session_for(services.database, writing=True) as session:
        yield Context(services, session, user, "test")
