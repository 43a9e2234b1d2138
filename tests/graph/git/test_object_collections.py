"""The job that collects the objects of repositories: what the database names stays, what nothing names is deleted after two weeks."""

import subprocess
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select
from sqlmodel import col

from graph.context import Services
from graph.git_access import GitAccess
from graph.jobs import object_collections, repack
from graph.rules.git import ref_updates
from graph.rules.merge_requests import branch_comparison, merge_request_refresh
from graph.rules.merge_requests.branch_comparison import BranchComparison
from storage import tables
from storage.database.clock import now
from storage.database.column_types import metadata
from storage.git import merge_preview
from storage.git.packing import dropped_packs, object_collection
from storage.git.packing import repack as repack_files
from storage.git.packing.pack_transfer import PacksUnavailable
from storage.git.protocol.push import RefCommand
from storage.tables import MergeRequestState, named_commits
from storage.tables.git import commits, refs
from tests.make import DataFactory, token_of
from tests.support.api_clients import Ask
from tests.support.git.git_history import commit_to_branch, git

OTHER_COLUMNS = {
    "applied_suggestions.commit_oid": "the source branch had it, and the page shows its id alone",
    "branch_moves.oid": "the history of a branch shows a commit that was deleted without its details",
    "commits.oid": "the index repeats objects, and its rows are deleted with them",
    "health_checks_due.sha": "the check reads the newest commit of a branch",
    "merge_request_commits.oid": "the head of the merge request reaches them",
    "merge_request_visits.head_oid": "the page says that the commit was deleted, and shows all changes",
    "merge_request_visits.previous_head_oid": "as that of the visit after it",
    "merge_request_imports.tip_oid": "a ref has it until the import has ended",
    "pipelines.before_sha": "the commit before a push is passed to builds, who do not read it",
    "refs.notified_oid": "subscribers were notified of it",
    "refs.oid": "they are the refs",
    "refs.peeled_oid": "the object of the tag reaches it",
    "viewed_files.blob_oid": "it is compared, never read",
}
"""Columns with object ids that `named_commits` leaves out, with reasons."""


class TestCollectObjects:
    async def test_keeps_what_refs_and_rows_name(self, make: DataFactory) -> None:
        project = await make.indexed(await make.project(history={"commits": 8}))
        path = make.services.repositories.path_of(project.id)
        built, stray = (write_stray(path, name) for name in ("built", "stray"))
        await make.build(project, built)
        await make.save(index_row(project, stray), index_row(project, built))

        assert await object_collections.collect_project(make.services, project.id) == 0
        later = replace(make.services, clock=lambda: now() + timedelta(days=15))
        # The commit, its tree and its blob.
        assert await object_collections.collect_project(later, project.id) == 3

        assert [git(path, "cat-file", "--batch-check", stdin=oid.encode()).split()[1] for oid in (built, stray)] == ["commit", "missing"]
        assert await indexed(make, project, built, stray) == [built]
        assert git(path, "fsck", "--full", "--no-dangling") == ""

    @pytest.mark.parametrize("moment", ["before the old objects are deleted", "before the row is deleted"])
    async def test_keeps_the_row_of_a_commit_that_a_push_brings_back(
        self, make: DataFactory, monkeypatch: pytest.MonkeyPatch, moment: str
    ) -> None:
        project = await make.indexed(await make.project(history={"commits": 8}))
        path = make.services.repositories.path_of(project.id)
        stray = write_stray(path, "stray")
        await make.save(index_row(project, stray))
        assert await object_collections.collect_project(make.services, project.id) == 0
        content = read_pack(path, stray)

        def push_before(run: Callable[..., Any]) -> Callable[..., Any]:
            def work(*arguments: Any) -> Any:
                # As a push, which inserts no row, because one exists.
                run_git(path, "index-pack", "--stdin", stdin=content)
                return run(*arguments)

            return work

        module, name = (dropped_packs, "drop") if "objects" in moment else (commits, "delete_commits")
        monkeypatch.setattr(module, name, push_before(getattr(module, name)))
        later = replace(make.services, clock=lambda: now() + timedelta(days=15))
        await object_collections.collect_project(later, project.id)

        assert git(path, "cat-file", "-t", stray).strip() == "commit"
        assert await indexed(make, project, stray) == [stray]

    async def test_waits_for_the_refs_of_the_database(self, make: DataFactory) -> None:
        project = await make.project(history={"commits": 4})
        async with make.services.database.write_session() as session:
            for row in await session.scalars(select(tables.GitRef)):
                await session.delete(row)
            await session.commit()
        assert await object_collections.collect_project(make.services, project.id) is None
        assert await object_collections.collect_project(make.services, 4711) is None

    async def test_goes_on_after_a_damaged_repository(self, make: DataFactory, monkeypatch: pytest.MonkeyPatch) -> None:
        damaged, sound = await make.project(history={"commits": 4}), await make.project(history={"commits": 5})
        async with make.services.database.write_session() as session:
            row = {"project_id": damaged.id, "name": "refs/heads/lost", "oid": "1" * 40, "peeled_oid": None}
            await session.execute(refs.upsert(make.services.database.dialect), [row])
            await session.commit()
        monkeypatch.setattr(object_collection, "MIN_BITMAP_OBJECTS", 1)

        await object_collections.collect_objects(make.services)

        bitmaps = [list(make.services.repositories.path_of(each.id).rglob("*.bitmap")) for each in (damaged, sound)]
        assert [len(found) for found in bitmaps] == [0, 1]
        assert object_collection.repositories_to_collect(make.services.repositories.root) == []

    async def test_goes_on_after_a_pack_that_cannot_be_read(self, make: DataFactory, monkeypatch: pytest.MonkeyPatch) -> None:
        projects = [await make.project(history={"commits": number}) for number in (4, 5)]
        for project in projects:
            (make.services.repositories.path_of(project.id) / "collected").unlink(missing_ok=True)
        tried = set[int]()

        async def fail(project_id: int, *_: object) -> None:
            tried.add(project_id)
            raise PacksUnavailable("a pack is missing in the bucket")

        monkeypatch.setattr(make.services.repositories, "collect", fail)
        monkeypatch.setattr(make.services.repositories, "repack", fail)
        await object_collections.collect_objects(make.services)
        assert tried == {project.id for project in projects}
        tried.clear()
        monkeypatch.setattr(repack_files, "MAX_PACKS", 0)
        await repack.repack_repositories(make.services)
        assert tried == {project.id for project in projects}


class TestMoves:
    """Moves of refs to objects that a collection deletes after they were found."""

    async def make_project(self, make: DataFactory) -> tuple[tables.User, tables.Project, str]:
        """The owner of a project, which has a commit that nothing reaches, and this commit."""
        owner = await make.user()
        project = await make.indexed(await make.project(owner=owner, history={"commits": 8}))
        stray = write_stray(make.services.repositories.path_of(project.id), "stray")
        await object_collections.collect_project(make.services, project.id)
        return owner, project, stray

    def collect_meanwhile(self, make: DataFactory, monkeypatch: pytest.MonkeyPatch) -> None:
        prepare = ref_updates.prepare_updates

        async def prepare_then_collect(services: Services, project_id: int, *arguments: Any, **options: Any) -> Any:
            monkeypatch.setattr(ref_updates, "prepare_updates", prepare)
            prepared = await prepare(services, project_id, *arguments, **options)
            later = replace(make.services, clock=lambda: now() + timedelta(days=15))
            assert await object_collections.collect_project(later, project_id)
            return prepared

        monkeypatch.setattr(ref_updates, "prepare_updates", prepare_then_collect)

    async def test_of_a_new_branch_are_refused(self, ask: Ask, make: DataFactory, monkeypatch: pytest.MonkeyPatch) -> None:
        owner, project, stray = await self.make_project(make)
        self.collect_meanwhile(make, monkeypatch)

        create = "mutation ($input: CreateBranchInput!) { createBranch(input: $input) { userErrors { code message } } }"
        values = {"projectPath": str(project.id), "name": "again", "ref": stray}
        payload = (await ask.data(create, owner, input=values))["createBranch"]

        assert payload["userErrors"] == [
            {"code": "CONFLICT", "message": "Old objects of the repository were deleted in the meantime. Retry."}
        ]
        assert await ask.codes(create, owner, input=values) == ["INVALID"]
        assert await ask.codes(create, owner, input={**values, "ref": "master"}) == []

    async def test_of_a_commit_write_its_objects_again(self, ask: Ask, make: DataFactory, monkeypatch: pytest.MonkeyPatch) -> None:
        owner, project, stray = await self.make_project(make)
        path = make.services.repositories.path_of(project.id)
        blob = git(path, "rev-parse", f"{stray}:stray")
        self.collect_meanwhile(make, monkeypatch)

        create = "mutation ($input: CreateCommitInput!) { createCommit(input: $input) { userErrors { code } } }"
        action = {"action": "CREATE", "path": "new", "content": "stray"}
        values = {"projectPath": str(project.id), "branch": "master", "message": "Add", "actions": [action]}
        assert await ask.codes(create, owner, input=values) == []

        assert git(path, "rev-parse", "master:new") == blob
        assert git(path, "fsck", "--full", "--no-dangling") == ""

    async def test_of_a_push_are_refused(self, make: DataFactory, monkeypatch: pytest.MonkeyPatch) -> None:
        owner, project, stray = await self.make_project(make)
        path = make.services.repositories.path_of(project.id)
        access, name = GitAccess(make.services), f"{owner.username}/{project.path}"
        grant = await access.authorize_push(name, token_of(owner), "test")
        self.collect_meanwhile(make, monkeypatch)

        # Git accepts it without its objects, because they are there.
        update = RefCommand("refs/heads/again", None, stray)
        (reason,) = await access.move_refs(grant, [update], "test", atomic=False)
        assert reason == "Old objects of the repository were deleted in the meantime. Retry."
        master = git(path, "rev-parse", "master")
        grant = await access.authorize_push(name, token_of(owner), "test")
        assert await access.move_refs(grant, [replace(update, new=master)], "test", atomic=False) == [None]
        await access.finish_push(grant)


class TestHeadsOfForks:
    """Merge requests whose heads the target project has, but nothing there reaches: a collection deletes them after git found them."""

    @pytest.fixture
    async def forked(self, make: DataFactory) -> tuple[tables.User, tables.Project, tables.Project, str]:
        """The owner of a project and its fork, both, and the head of the branch `feature` of the fork, whose objects the project has."""
        owner = await make.user()
        project = await make.indexed(await make.project(owner=owner, history={"commits": 8}))
        fork = await make.project(owner=owner, history={"commits": 8}, forked_from_id=project.id)
        head = commit_to_branch(make.services.repositories.path_of(fork.id), "feature", {"new": b"new"}, start="master")
        await make.indexed(fork)
        fork_path = make.services.repositories.path_of(fork.id)
        await make.services.repositories.read(project.id, lambda repository: merge_preview.fetch_commit(repository, fork_path, head))
        await object_collections.collect_project(make.services, project.id)
        return owner, project, fork, head

    def collect_after_comparison(self, make: DataFactory, monkeypatch: pytest.MonkeyPatch) -> None:
        compare = branch_comparison.compare_branches

        async def compare_then_collect(services: Services, **settings: Any) -> BranchComparison:
            monkeypatch.setattr(branch_comparison, "compare_branches", compare)
            found = await compare(services, **settings)
            later = replace(make.services, clock=lambda: now() + timedelta(days=15))
            assert await object_collections.collect_project(later, settings["target_project_id"])
            return found

        monkeypatch.setattr(branch_comparison, "compare_branches", compare_then_collect)

    async def require_head(self, make: DataFactory, project: tables.Project, head: str) -> None:
        async with make.services.database.read_session() as session:
            found = await session.read(refs.of_project(project.id))
        assert [oid for name, oid, _ in found if name.startswith("refs/merge-requests/")] == [head]
        path = make.services.repositories.path_of(project.id)
        assert git(path, "cat-file", "-t", head).strip() == "commit"
        assert git(path, "rev-list", "--objects", "--quiet", head) == ""

    async def test_are_fetched_again_when_one_is_created(
        self, ask: Ask, make: DataFactory, monkeypatch: pytest.MonkeyPatch, forked: tuple[tables.User, tables.Project, tables.Project, str]
    ) -> None:
        owner, project, fork, head = forked
        self.collect_after_comparison(make, monkeypatch)
        create = "mutation ($input: CreateMergeRequestInput!) { createMergeRequest(input: $input) { userErrors { message } } }"
        branches = {"sourceBranch": "feature", "targetBranch": "master", "targetProjectId": project.id}
        assert await ask.codes(create, owner, input={"projectPath": str(fork.id), "title": "Feature", **branches}) == []
        await self.require_head(make, project, head)

    async def test_are_fetched_again_when_one_is_reopened(
        self, ask: Ask, make: DataFactory, monkeypatch: pytest.MonkeyPatch, forked: tuple[tables.User, tables.Project, tables.Project, str]
    ) -> None:
        owner, project, fork, head = forked
        row = await make.merge_request(project, source_project_id=fork.id, source_branch="feature", state=MergeRequestState.CLOSED)
        self.collect_after_comparison(make, monkeypatch)
        update = "mutation ($input: UpdateMergeRequestInput!) { updateMergeRequest(input: $input) { userErrors { message code } } }"
        assert await ask.codes(update, owner, input={"projectPath": str(project.id), "iid": row.iid, "stateEvent": "REOPEN"}) == []
        await merge_request_refresh.refresh_unchecked(make.services)
        await self.require_head(make, project, head)

    async def test_are_fetched_again_when_one_is_refreshed(
        self, make: DataFactory, monkeypatch: pytest.MonkeyPatch, forked: tuple[tables.User, tables.Project, tables.Project, str]
    ) -> None:
        _, project, fork, head = forked
        await make.merge_request(project, source_project_id=fork.id, source_branch="feature")
        self.collect_after_comparison(make, monkeypatch)
        await merge_request_refresh.refresh_unchecked(make.services)
        await merge_request_refresh.refresh_unchecked(make.services)
        await self.require_head(make, project, head)

    async def test_are_fetched_again_when_the_fork_is_pushed_to(
        self, make: DataFactory, monkeypatch: pytest.MonkeyPatch, forked: tuple[tables.User, tables.Project, tables.Project, str]
    ) -> None:
        owner, project, fork, head = forked
        await make.merge_request(project, source_project_id=fork.id, source_branch="again")
        access = GitAccess(make.services)
        grant = await access.authorize_push(f"{owner.username}/{fork.path}", token_of(owner), "test")
        self.collect_after_comparison(make, monkeypatch)
        assert await access.move_refs(grant, [RefCommand("refs/heads/again", None, head)], "test", atomic=False) == [None]
        await access.finish_push(grant)
        await self.require_head(make, project, head)


class TestNamedCommits:
    def test_are_those_of_all_columns_with_commits(self) -> None:
        found = {
            f"{table.name}.{column.name}"
            for table in metadata.tables.values()
            for column in table.columns
            if column.name.endswith(("sha", "oid"))
        }
        named = {f"{column.class_.__tablename__}.{column.key}" for _, column in named_commits.COLUMNS}
        assert found - OTHER_COLUMNS.keys() == named, "name the column in storage/tables/named_commits.py, or give the reason here"


def write_stray(path: Path, name: str) -> str:
    """A commit that no ref reaches."""
    oid = commit_to_branch(path, name, {name: name.encode()}, start="master")
    git(path, "update-ref", "-d", f"refs/heads/{name}")
    return oid


def read_pack(path: Path, oid: str) -> bytes:
    """A pack of the commit and its history."""
    return run_git(path, "pack-objects", "-q", "--stdout", stdin=git(path, "rev-list", "--objects", "--no-object-names", oid).encode())


def run_git(path: Path, *arguments: str, stdin: bytes) -> bytes:
    return subprocess.run(["git", "-C", str(path), *arguments], input=stdin, capture_output=True, check=True).stdout


def index_row(project: tables.Project, oid: str) -> tables.Commit:
    people = dict.fromkeys(("author_name", "author_email", "committer_name", "committer_email", "title"), "")
    return tables.Commit(project_id=project.id, oid=oid, authored_at=now(), committed_at=now(), **people)


async def indexed(make: DataFactory, project: tables.Project, *oids: str) -> list[str]:
    async with make.services.database.read_session() as session:
        statement = select(col(tables.Commit.oid)).where(col(tables.Commit.project_id) == project.id, col(tables.Commit.oid).in_(oids))
        return [oid for (oid,) in await session.read(statement)]
