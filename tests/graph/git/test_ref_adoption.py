"""Refs of the files are taken over: at the first start after the upgrade, and where an operator pushed into a bare repository."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import delete, select, update
from sqlmodel import col
from structlog.testing import capture_logs

from graph.context import Services
from graph.rules.git import commit_index, ref_adoption, refs
from storage import index_comparison, tables
from storage.git.packing import packs
from storage.git.refs import projection
from storage.git.repository import Repository
from storage.git.repository_cache import RepositoryCache
from storage.objects.object_store import open_store
from storage.tables import MergeRequestState
from tests.make import DataFactory
from tests.support.git.git_history import commit_to_branch, git
from tests.support.merge_requests import MergeRequestFactory
from tests.support.servers.bucket import Bucket


@pytest.fixture
async def project(make: DataFactory) -> tables.Project:
    return await make.indexed(await make.project(history={"commits": 8}))


async def index_differs(make: DataFactory, project: tables.Project) -> list[str]:
    return (await index_comparison.compare_index(make.services.database, make.services.repositories, project.id)).describe()


async def run(make: DataFactory, *statements: object) -> None:
    async with make.services.database.write_session() as session:
        for statement in statements:
            await session.execute(statement)
        await session.commit()


async def make_unadopted(make: DataFactory, *projects: tables.Project) -> None:
    """As before the upgrade: rows of indexed branches only, no version; the refs are those of the files."""
    await run(make, delete(tables.GitRef).where(~col(tables.GitRef.is_indexed)), update(tables.Project).values(refs_version=0))
    for path in make.services.repositories.root.glob("*.git"):
        git(path, "pack-refs", "--all")


async def rows_of(make: DataFactory, project: tables.Project) -> list[tuple[str, str, str | None]]:
    statement = select(tables.GitRef.name, tables.GitRef.oid, tables.GitRef.peeled_oid).where(col(tables.GitRef.project_id) == project.id)
    async with make.services.database.read_session() as session:
        return sorted(tuple(row) for row in await session.read(statement))


def files_of(make: DataFactory, project: tables.Project) -> list[tuple[str, str, str | None]]:
    return Repository.open(make.services.repositories.path_of(project.id)).stored_refs()


class TestFirstStart:
    async def test_adopts_all_refs_of_all_projects_once(self, make: DataFactory, project: tables.Project) -> None:
        other, empty = await make.project(history={"commits": 12, "tags": 4}), await make.project()
        await make_unadopted(make)
        assert await ref_adoption.adopt_all(make.services) == 3
        assert await ref_adoption.adopt_all(make.services) == 0
        for each in (project, other, empty):
            assert await rows_of(make, each) == files_of(make, each)
        assert any(peeled for _, _, peeled in await rows_of(make, other))
        # It was never indexed: a start does that after the adoption.
        await commit_index.index_unfinished(make.services)
        assert await index_differs(make, other) == []

    async def test_is_continued_by_the_next(self, make: DataFactory, project: tables.Project, monkeypatch: pytest.MonkeyPatch) -> None:
        other = await make.project(history={"commits": 8})
        await make_unadopted(make)
        insert, calls = refs.insert, []

        def interrupted(*args: object) -> None:
            calls.append(args)
            if len(calls) == 2:
                raise KeyboardInterrupt
            insert(*args)  # type: ignore[arg-type]

        monkeypatch.setattr(refs, "insert", interrupted)
        with pytest.raises(KeyboardInterrupt):
            await ref_adoption.adopt_all(make.services)
        monkeypatch.undo()
        assert (await rows_of(make, project), await rows_of(make, other)) == (files_of(make, project), [])
        assert await ref_adoption.adopt_all(make.services) == 1
        assert await rows_of(make, other) == files_of(make, other)

    async def test_records_moves_that_were_not_recorded(self, make: DataFactory) -> None:
        """A merge and a push that a crash interrupted before the upgrade; a branch that was deleted meanwhile."""
        author = await make.user()
        project = await make.indexed(await make.project(owner=author, history={"commits": 8}))
        merges = MergeRequestFactory(make, project, author)
        proposal = await merges.proposal("feature")
        await make.indexed(project)
        path = make.services.repositories.path_of(project.id)
        await make_unadopted(make)
        git(path, "update-ref", "refs/heads/master", proposal.head)
        git(path, "update-ref", "-d", "refs/heads/topic")
        git(path, "branch", "made", "master")
        assert await ref_adoption.adopt_all(make.services) == 1
        assert await rows_of(make, project) == files_of(make, project)
        assert (await merges.reload(proposal)).state is MergeRequestState.MERGED
        assert await index_differs(make, project) == []

    async def test_nothing_is_served_before_it(self, make: DataFactory, project: tables.Project) -> None:
        """A repository that could not be read at the start keeps its files."""
        await make_unadopted(make)
        row = await make.fetch(tables.Project, project.id)
        assert row is not None
        before = files_of(make, project)
        await refs.project_refs(make.services, project.id)
        assert files_of(make, project) == before != []

    async def test_an_unreadable_repository_is_tried_again(self, make: DataFactory, project: tables.Project) -> None:
        path = make.services.repositories.path_of(project.id)
        await make_unadopted(make)
        path.rename(path.with_suffix(".away"))
        path.mkdir()
        with capture_logs() as lines:
            assert await ref_adoption.adopt_all(make.services) == 0
        assert [(line["event"], line["project_id"]) for line in lines] == [("refs could not be adopted", project.id)]
        path.rmdir()
        path.with_suffix(".away").rename(path)
        assert await ref_adoption.adopt_all(make.services) == 1

    async def test_repositories_that_do_not_exist_are_logged_together(self, make: DataFactory, project: tables.Project) -> None:
        other = await make.project(history={"commits": 8})
        paths = [make.services.repositories.path_of(each.id) for each in (project, other)]
        await make_unadopted(make)
        for path in paths:
            path.rename(path.with_suffix(".away"))
        with capture_logs() as lines:
            assert await ref_adoption.adopt_all(make.services) == 0
        assert lines == [
            {
                "event": "repositories to adopt do not exist",
                "log_level": "warning",
                "projects": 2,
                "project_ids": sorted([project.id, other.id]),
            }
        ]
        for path in paths:
            path.with_suffix(".away").rename(path)
        assert await ref_adoption.adopt_all(make.services) == 2


class TestChanges:
    async def test_of_an_operator_are_taken_over(self, make: DataFactory, project: tables.Project) -> None:
        path = make.services.repositories.path_of(project.id)
        await refs.project_refs(make.services, project.id)
        new = commit_to_branch(path, "master", {"new": b"new\n"})
        git(path, "branch", "made", "master")
        git(path, "tag", "-a", "-m", "Tag", "v9", "master")
        moved = await ref_adoption.adopt_changes(make.services, project.id)
        assert sorted(update.ref for update in moved) == ["refs/heads/made", "refs/heads/master", "refs/tags/v9"]
        found = {name: (oid, peeled) for name, oid, peeled in await rows_of(make, project)}
        assert found["refs/heads/master"] == found["refs/heads/made"] == (new, None)
        assert found["refs/tags/v9"] == (git(path, "rev-parse", "refs/tags/v9"), new)
        assert await index_differs(make, project) == []
        assert await rows_of(make, project) == files_of(make, project)
        # The files of their own are gone, so that later moves are seen.
        assert not [each for each in (path / "refs").rglob("*") if each.is_file()]
        assert await ref_adoption.adopt_changes(make.services, project.id) == []


class TestCopies:
    """Repositories whose packs are in a bucket."""

    def services_of(self, make: DataFactory, root: Path, bucket: Bucket) -> Services:
        store = open_store("s3://forge/packs", root, bucket.settings)
        return replace(make.services, repositories=RepositoryCache(root, make.services.database, store))

    async def test_a_host_without_the_repository_adopts_nothing(
        self, make: DataFactory, project: tables.Project, bucket: Bucket, tmp_path: Path
    ) -> None:
        await make_unadopted(make)
        services = self.services_of(make, tmp_path / "other", bucket)
        assert await ref_adoption.adopt_all(services) == 0
        assert not services.repositories.path_of(project.id).exists()
        assert await ref_adoption.adopt_all(make.services) == 1
        services.repositories.close()

    async def test_refs_that_git_packed_in_a_copy_are_taken_over(self, make: DataFactory, project: tables.Project, bucket: Bucket) -> None:
        services = self.services_of(make, make.services.repositories.root, bucket)
        await services.repositories.publish(project.id)
        await refs.project_refs(services, project.id)
        path = services.repositories.path_of(project.id)
        new = commit_to_branch(path, "master", {"new": b"new\n"})
        git(path, "pack-refs", "--all")
        moved = await ref_adoption.adopt_changes(services, project.id)
        assert [(update.ref, update.new) for update in moved] == [("refs/heads/master", new)]
        assert await rows_of(make, project) == files_of(make, project)
        assert not packs.has_unpublished(path)
        services.repositories.close()


class TestProjection:
    async def test_is_written_where_the_version_differs(self, make: DataFactory, project: tables.Project) -> None:
        path = make.services.repositories.path_of(project.id)
        await refs.project_refs(make.services, project.id)
        version = projection.read_version(path)
        written = (path / "packed-refs").stat().st_mtime_ns
        await refs.project_refs(make.services, project.id)
        assert (path / "packed-refs").stat().st_mtime_ns == written
        await run(make, update(tables.Project).where(col(tables.Project.id) == project.id).values(refs_version=7))
        await refs.project_refs(make.services, project.id)
        assert (version, projection.read_version(path)) == (1, 7)
        # An older backup of the database was restored.
        await run(make, update(tables.Project).where(col(tables.Project.id) == project.id).values(refs_version=6))
        await asyncio.gather(*(refs.project_refs(make.services, project.id) for _ in range(5)))
        assert projection.read_version(path) == 6
        assert git(path, "for-each-ref") and git(path, "fsck", "--connectivity-only") == ""


class TestRepair:
    async def test_everything_that_can_be_wrong(self, make: DataFactory, project: tables.Project) -> None:
        path = make.services.repositories.path_of(project.id)
        of_project = col(tables.Commit.project_id) == project.id
        root = git(path, "rev-list", "--max-parents=0", "master").split()[0]
        await run(
            make,
            delete(tables.Commit).where(of_project, col(tables.Commit.oid) == root),
            update(tables.Commit).where(of_project, col(tables.Commit.oid) == git(path, "rev-parse", "master")).values(oid="1" * 40),
            update(tables.GitRef).where(col(tables.GitRef.name) == "refs/heads/topic").values(is_indexed=False),
        )
        assert await index_differs(make, project) == [
            "1 branch is not in the index: topic",
            "2 commits are not in the index",
            "1 commit is in the index only",
        ]
        await commit_index.rebuild_index(make.services, project.id)
        assert await index_differs(make, project) == []
