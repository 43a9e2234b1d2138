"""Dumps and restorations of instances in buckets: from folders and buckets into both, chains across a move, and what is lost or refused."""

import asyncio
import os
import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from sqlalchemy import func, select

from forgefront.backend import Backend
from forgefront.buckets.bucket_move import move_to_buckets
from forgefront.config import Config
from storage import tables
from storage.database.engine import Database
from storage.dump import bucket_repository_parts
from storage.dump.dump_format import Manifest, PartEntry
from storage.dump.instance_dump import LOCATION_TABLES
from storage.git.repository_cache import RepositoryCache
from storage.objects.object_store import OWNER_NAME
from storage.secrets import KEY_FILE
from tests.forgefront.support.cli_runner import CommandRunner
from tests.make import DataFactory
from tests.support.database.database_selection import ALL_DATABASES_VARIABLE
from tests.support.git.git_history import commit_files, git
from tests.support.imports.dumps import DumpTool, contents_of, read_dump
from tests.support.imports.instance_comparison import compare_answers, open_instance
from tests.support.queries.edge_case_data import create_edge_cases
from tests.support.servers.bucket import Bucket

pytestmark = pytest.mark.usefixtures("isolated_environment")

PARTS = ("repositories", "uploads", "artifacts")
LARGE = bytes(range(256)) * 2000
ROUND_TRIPS = [("sqlite", "old", None), ("postgresql", None, "new")]
"""A database with prefixes of buckets or None, the data folder. Each is restored into the other database."""
if os.environ.get(ALL_DATABASES_VARIABLE):
    ROUND_TRIPS += [("sqlite", "old", "new"), ("postgresql", "old", None)]


@dataclass
class Instances:
    """Instances in folders and in prefixes of a bucket."""

    dumps: DumpTool
    bucket: Bucket
    folder: Path

    @contextmanager
    def stored_in(self, prefix: str | None) -> Iterator[None]:
        """The environment of an instance in this prefix; None is the data folder."""
        with self.dumps.patch.context() as patch:
            for name, value in self.bucket.variables.items():
                patch.setenv(f"FORGEFRONT_{name.upper()}", value)
            for part in PARTS if prefix else ():
                patch.setenv(f"FORGEFRONT_{part.upper()}_URL", f"s3://forge/{prefix}/{part}")
            yield

    async def move(self, prefix: str) -> None:
        """Moves the instance of the test into buckets, as the first start does."""
        with self.stored_in(prefix):
            config = Config.load(data=self.folder, database_url=self.dumps.database_url)
        async with open_instance(config) as backend:
            await move_to_buckets(backend)

    def empty_host(self, name: str) -> Path:
        """A data folder with nothing but the key."""
        (self.folder / name).mkdir(mode=0o700)
        shutil.copy(self.folder / KEY_FILE, self.folder / name)
        return self.folder / name

    async def dump(self, prefix: str | None, name: str, *options: object, host: Path | None = None, code: int = 0) -> Path:
        """Dumps the instance of the test; one in a bucket is dumped by a host with an empty folder."""
        with self.stored_in(prefix):
            data = host or (self.empty_host(f"{name}-host") if prefix else self.folder)
            return await self.dumps.dump_instance(data, self.dumps.database_url, name, *options, code=code)

    async def restore(self, prefix: str | None, *files: object, name: str = "restored") -> Config:
        with self.stored_in(prefix):
            config = await self.dumps.restore(*files, name=name)
            return Config.load(data=config.data, database_url=config.database_url, external_url=config.external_url)

    @contextmanager
    def on_empty_host(self, config: Config) -> Iterator[Config]:
        """A restored instance in buckets on a host that has nothing; one in a folder where it is."""
        data = self.empty_host(f"{config.data.name}-other") if config.repositories_url else config.data
        yield config.model_copy(update={"data": data})


@pytest.fixture
def instances(dumps: DumpTool, bucket: Bucket, tmp_path: Path) -> Instances:
    return Instances(dumps, bucket, tmp_path)


@pytest.fixture
async def project(make: DataFactory) -> AsyncIterator[tables.Project]:
    """A project with a history, an upload, an artifact and a trace."""
    project = await make.indexed(await make.project(owner=await make.admin(), history={"commits": 6}))
    build = await make.build(project, "a" * 40)
    await make.artifact(build, LARGE)
    await make.trace(build, "first\n", "second\n")
    await make.upload(project, b"small")
    await make.upload(project, LARGE)
    yield project


async def read_uploads(backend: Backend) -> dict[str, bytes]:
    """The contents of all uploads, by secret."""
    found = {}
    async with backend.database.read_session() as session:
        uploads = (await session.scalars(select(tables.Upload))).all()
    for upload in uploads:
        async with backend.uploads.read(upload.project_id, upload.secret) as chunks:
            found[upload.secret] = b"".join([chunk async for chunk in chunks])
    return found


async def read_artifacts(backend: Backend) -> dict[str, bytes]:
    async with backend.database.read_session() as session:
        keys = (await session.scalars(select(tables.Artifact.key))).all()
    return {key: await backend.objects.read(key) for key in keys}


async def count_rows(database: Database, table: type) -> int:
    async with database.read_session() as session:
        return int(await session.scalar(select(func.count()).select_from(table)) or 0)


def repository_parts_of(manifest: Manifest) -> set[str]:
    return {name for name in manifest.parts if name.startswith("repositories/")}


def files_of(manifest: Manifest) -> dict[str, PartEntry]:
    """The parts that are immutable files."""
    return {name: part for name, part in manifest.parts.items() if not name.startswith(("tables/", "secrets"))}


def check(config: Config, patch: pytest.MonkeyPatch) -> None:
    """`forgefront check --full` finds nothing."""
    with patch.context() as context:
        context.setenv("FORGEFRONT_DATABASE_URL", config.database_url)
        assert CommandRunner(config.data).json("check", "--full")["problems"] == []


class TestRoundTrip:
    @pytest.mark.parametrize(("dialect", "source", "target"), ROUND_TRIPS, indirect=["dialect"])
    async def test_answers_and_clones_are_those_of_the_original(
        self, make: DataFactory, instances: Instances, source: str | None, target: str | None
    ) -> None:
        edge_cases = await create_edge_cases(make, instances.folder / "source.git")
        project = edge_cases.projects[0]
        await make.artifact(await make.build(project, "b" * 40), LARGE)
        uploaded = {upload.secret: content for content in (b"small", LARGE) if (upload := await make.upload(project, content))}
        refs = {each.id: git(make.services.repositories.path_of(each.id), "for-each-ref") for each in edge_cases.projects}
        if source:
            await instances.move(source)

        dumped = await instances.dump(source, "forge.tar")
        assert read_dump(dumped).tables.keys() == tables.metadata.tables.keys() - LOCATION_TABLES
        config = await instances.restore(target, dumped)

        with instances.stored_in(target), instances.on_empty_host(config) as host:
            async with open_instance(host) as restored:
                assert await compare_answers(make.services, restored.graph.services, edge_cases, below="/repository/") > 15
                for each in edge_cases.projects:
                    async with restored.repositories.use(each.id) as path:
                        assert git(path, "for-each-ref") == refs[each.id]
                        git(path, "fsck", "--strict")
                assert (await read_uploads(restored)).items() >= uploaded.items()
                assert LARGE in (await read_artifacts(restored)).values()
                assert bool(await count_rows(restored.database, tables.Pack)) is bool(target)
            await asyncio.to_thread(check, host, instances.dumps.patch)
            # The database and the stores are others; the contents are the same.
            again = await instances.dumps.dump_instance(host.data, host.database_url, "again.tar")
        assert set(contents_of(read_dump(dumped))) - repository_parts_of(read_dump(dumped)) == (
            set(contents_of(read_dump(again))) - repository_parts_of(read_dump(again))
        )


class TestPacks:
    async def test_come_from_the_copy_or_from_the_bucket(self, instances: Instances, project: tables.Project) -> None:
        await instances.move("old")
        copies = await instances.dump("old", "copies.tar", host=instances.folder)
        shutil.rmtree(instances.folder / "repositories")
        downloaded = await instances.dump("old", "downloaded.tar")
        assert contents_of(read_dump(copies)) == contents_of(read_dump(downloaded))
        assert not list((instances.folder / "downloaded.tar-host" / "repositories").iterdir())

    async def test_damaged_copy_is_not_dumped(self, instances: Instances, project: tables.Project) -> None:
        await instances.move("old")
        expected = contents_of(read_dump(await instances.dump("old", "copies.tar", host=instances.folder)))
        for pack in (instances.folder / "repositories" / f"{project.id}.git" / "objects" / "pack").glob("*.pack"):
            pack.chmod(0o600)
            pack.write_bytes(pack.read_bytes()[:-1] + b"?")
        assert contents_of(read_dump(await instances.dump("old", "again.tar", host=instances.folder))) == expected

    async def test_replaced_during_the_dump(self, instances: Instances, project: tables.Project, monkeypatch: pytest.MonkeyPatch) -> None:
        """The old packs have left the bucket, and the rows name the new one."""
        await instances.move("old")
        with instances.stored_in("old"):
            config = Config.load(data=instances.folder, database_url=instances.dumps.database_url)
        add, repacked = bucket_repository_parts.add_repository, []

        async def repack_and_add(*arguments: object) -> None:
            if not repacked:
                async with open_instance(config) as backend:
                    assert isinstance(backend.repositories, RepositoryCache)
                    old = await backend.repositories.list_packs(project.id)
                    # As many objects as the old pack has, so that a geometric repack combines them.
                    files = {f"file{number}": b"%d" % number for number in range(sum(pack.objects for pack in old))}
                    await backend.repositories.read(project.id, lambda repository: commit_files(repository.path, files))
                    await backend.repositories.publish(project.id)
                    assert await backend.repositories.repack(project.id)
                    repacked.extend(await backend.repositories.list_packs(project.id))
                    assert {pack.key for pack in old}.isdisjoint(pack.key for pack in repacked)
                for pack in old:
                    instances.bucket.delete(f"old/repositories/{pack.key}")
            await add(*arguments)  # type: ignore[arg-type]

        monkeypatch.setattr(bucket_repository_parts, "add_repository", repack_and_add)
        dumped = await instances.dump("old", "forge.tar")
        parts = repository_parts_of(read_dump(dumped))
        assert parts == {f"repositories/{project.id}/{pack.name}" for pack in repacked} and read_dump(dumped).notes == []
        restored = await instances.restore(None, dumped)
        git(restored.repositories / f"{project.id}.git", "fsck", "--strict")

    @pytest.mark.parametrize("damage", ["missing", "damaged"])
    async def test_lost_ones_are_noted(self, instances: Instances, project: tables.Project, damage: str) -> None:
        await instances.move("old")
        for key, content in instances.bucket.objects("old/repositories/").items():
            if damage == "missing":
                instances.bucket.delete(key)
            else:
                instances.bucket.write(key, content[:-1] + b"?")
        manifest = read_dump(await instances.dump("old", "forge.tar", code=3))
        assert repository_parts_of(manifest) == set() and manifest.deleted == {}
        assert len(manifest.notes) == 1
        assert manifest.notes[0].startswith(f"projects {project.id}: pack pack-") and f"is {damage} in the bucket" in manifest.notes[0]

    async def test_projects_deleted_meanwhile_are_left_out(
        self, instances: Instances, project: tables.Project, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await instances.move("old")
        add = bucket_repository_parts.add_repository

        async def delete_and_add(*arguments: object) -> None:
            # The command has an event loop of its own.
            database = Database(instances.dumps.database_url)
            async with database.write_session() as session:
                await session.delete(await session.get(tables.Project, project.id))
                await session.commit()
            await database.close()
            for key in instances.bucket.objects("old/repositories/"):
                instances.bucket.delete(key)
            await add(*arguments)  # type: ignore[arg-type]

        monkeypatch.setattr(bucket_repository_parts, "add_repository", delete_and_add)
        dumped = await instances.dump("old", "forge.tar")
        assert read_dump(dumped).deleted["projects"] == [project.id]
        config = await instances.restore("new", dumped)
        assert instances.bucket.objects("new/repositories/") == {}
        async with open_instance(config) as restored:
            assert await count_rows(restored.database, tables.Project) == 0

    async def test_folder_that_was_not_moved_is_refused(self, instances: Instances, project: tables.Project) -> None:
        with instances.stored_in("old"), instances.dumps.patch.context() as patch:
            patch.setenv("FORGEFRONT_DATABASE_URL", instances.dumps.database_url)
            result = await asyncio.to_thread(CommandRunner(instances.folder), "dump", instances.folder / "forge.tar", code=1)
        assert "no packs in the bucket. Start the service once" in " ".join(result.stderr.split())
        assert not (instances.folder / "forge.tar").exists()

    async def test_bucket_that_is_away_fails_the_dump(self, instances: Instances, project: tables.Project) -> None:
        await instances.move("old")
        host = instances.empty_host("host")
        instances.bucket.stop()
        with instances.stored_in("old"), instances.dumps.patch.context() as patch:
            patch.setenv("FORGEFRONT_DATABASE_URL", instances.dumps.database_url)
            result = await asyncio.to_thread(CommandRunner(host), "dump", instances.folder / "forge.tar", code=1)
        instances.bucket.start()
        assert "cannot be downloaded: the object store is unavailable" in " ".join(result.stderr.split())
        assert not (instances.folder / "forge.tar").exists()


class TestChain:
    async def test_goes_on_after_a_move_into_buckets(self, instances: Instances, project: tables.Project) -> None:
        first = await instances.dump(None, "first.tar")
        files = files_of(read_dump(first))
        await instances.move("old")
        second = await instances.dump("old", "second.tar", "--since", first)
        assert files_of(read_dump(second)) == files
        config = await instances.restore("new", first, second)
        with instances.stored_in("new"):
            third = await instances.dumps.dump_instance(config.data, config.database_url, "third.tar", "--since", second)
        assert files_of(read_dump(third)) == files

    async def test_shallow_repositories(self, make: DataFactory, instances: Instances) -> None:
        project = await make.indexed(await make.project(owner=await make.admin(), history={"commits": 5}))
        path = make.services.repositories.path_of(project.id)
        tip = git(path, "rev-parse", "master~2").strip()
        (path / "shallow").write_text(f"{tip}\n")
        expected = git(path, "rev-list", "master")
        await instances.move("old")
        config = await instances.restore("new", await instances.dump("old", "forge.tar"))
        with instances.on_empty_host(config) as host:
            async with open_instance(host) as restored, restored.repositories.use(project.id) as copy:
                assert git(copy, "rev-list", "master") == expected


class TestTarget:
    @pytest.mark.parametrize("part", PARTS)
    async def test_prefix_with_objects_is_refused(self, instances: Instances, project: tables.Project, part: str) -> None:
        dumped = await instances.dump(None, "forge.tar")
        instances.bucket.write(f"new/{part}/{'a' * 32}", b"precious")
        with instances.stored_in("new"):
            arguments = ("restore", dumped, "--database-url", instances.dumps.create_target())
            result = await asyncio.to_thread(CommandRunner(instances.folder / "restored"), *arguments, code=1)
        assert f"the bucket has {part}. Name another prefix of it, or empty it. Nothing was changed" in " ".join(result.stderr.split())
        assert list(instances.bucket.objects("new/").values()) == [b"precious"]
        # Another instance that has not stored anything yet.
        instances.bucket.delete(f"new/{part}/{'a' * 32}")
        instances.bucket.write(f"new/{part}/{OWNER_NAME}", b"b" * 32)
        with instances.stored_in("new"):
            result = await asyncio.to_thread(CommandRunner(instances.folder / "restored"), *arguments, code=1)
        assert f"the prefix of the bucket for {part} belongs to an instance" in " ".join(result.stderr.split())
        assert not (instances.folder / "restored").exists()

    async def test_failed_upload_leaves_no_rows(
        self, instances: Instances, project: tables.Project, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        dumped, url = await instances.dump(None, "forge.tar"), instances.dumps.create_target()

        async def fail(*_: object) -> None:
            raise OSError("no space left on device")

        target = CommandRunner(instances.folder / "restored")
        with instances.stored_in("new"):
            with monkeypatch.context() as patch:
                patch.setattr(RepositoryCache, "publish_staged", fail)
                await asyncio.to_thread(target, "restore", dumped, "--database-url", url, code=1)
            for key in instances.bucket.objects("new/"):
                instances.bucket.delete(key)
            assert (await asyncio.to_thread(target.json, "restore", dumped, "--database-url", url))["check"]["ok"]
