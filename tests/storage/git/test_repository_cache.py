"""Repositories whose packs are in a bucket: two hosts, each with a folder of its own, one database."""

import asyncio
import contextlib
import fcntl
import os
from collections.abc import AsyncIterator, Collection
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import structlog
from sqlalchemy import select, update
from sqlmodel import col

from graph.jobs.pack_jobs import GRACE_SECONDS, sweep_packs
from storage import tables
from storage.database.clock import now
from storage.database.engine import Database
from storage.git.packing import bucket_packs, pack_transfer, packs, repack
from storage.git.packing.object_collection import CollectedObjects, CollectionTips
from storage.git.packing.pack_transfer import PacksUnavailable
from storage.git.refs.ref_lock import lock_refs
from storage.git.repository import NotARepository, Repository
from storage.git.repository_cache import RepositoryCache
from storage.objects.object_store import open_store
from storage.tables import Pack
from storage.tables.git import refs
from storage.tables.git.packs import RepackLease
from tests.make import DataFactory
from tests.support.git.git_history import commit_files, git, make_history
from tests.support.servers.bucket import Bucket

MASTER = "refs/heads/master"


class Host:
    """A host with the repository of one project."""

    def __init__(self, root: Path, database: Database, bucket: Bucket, project_id: int, **settings: Any) -> None:
        store = open_store("s3://forge/packs", root, bucket.settings)
        self.database, self.project_id = database, project_id
        self.cache = RepositoryCache(root, database, store, **settings)
        self.path = self.cache.path_of(project_id)

    async def write(self, text: str, parent: str | None = None) -> str:
        """Writes a commit as loose objects; no ref reaches it."""
        parents = [parent] if parent else []
        return await self.cache.read(self.project_id, lambda repository: commit_files(repository.path, {"file": text.encode()}, *parents))

    async def move(self, oid: str, name: str = MASTER) -> None:
        """Moves a ref."""
        async with self.database.write_session() as session:
            await session.execute(
                refs.upsert(self.database.dialect), [{"project_id": self.project_id, "name": name, "oid": oid, "peeled_oid": None}]
            )
            await session.execute(refs.advance_version([self.project_id], now()))
            await session.commit()

    async def commit(self, text: str, parent: str | None = None) -> str:
        oid = await self.write(text, parent)
        await self.cache.publish(self.project_id)
        await self.move(oid)
        return oid

    async def commit_ids(self) -> list[str]:
        """The commits of master, as git sees them."""
        async with self.cache.use(self.project_id) as path:
            return (await asyncio.to_thread(git, path, "rev-list", "master")).split()

    async def version(self) -> int:
        async with self.database.read_session() as session:
            [(found,)] = await session.read(refs.version(self.project_id))
        return int(found)

    async def collect(self, days: float, oids: Collection[str]) -> CollectedObjects | None:
        """Collects the objects that these do not reach, `days` from now."""
        tips = CollectionTips(oids, [], partial(lock_refs, self.database, self.project_id, await self.version()))
        return await self.cache.collect(self.project_id, tips, now() + timedelta(days=days))

    async def has(self, oid: str) -> bool:
        return await self.cache.read(self.project_id, lambda repository: repository.handle.get(oid) is not None)


@pytest.fixture
async def project(make: DataFactory, tmp_path: Path) -> int:
    project = await make.project()
    async with make.services.database.write_session() as session:
        await session.execute(refs.advance_version([project.id], now()))
        await session.commit()
    return project.id


@pytest.fixture
async def hosts(database: Database, bucket: Bucket, project: int, tmp_path: Path) -> AsyncIterator[tuple[Host, Host]]:
    first, second = (Host(tmp_path / name, database, bucket, project) for name in ("first", "second"))
    yield first, second
    for host in (first, second):
        host.cache.close()


async def rows_of(database: Database) -> list[Pack]:
    async with database.read_session() as session:
        return [row[0] for row in await session.read(select(Pack).order_by(col(Pack.id)))]


class TestPublish:
    async def test_what_one_host_writes_is_read_on_the_other_at_once(self, hosts: tuple[Host, Host]) -> None:
        first, second = hosts
        one = await first.commit("one")
        assert await second.commit_ids() == [one]
        two = await second.commit("two", one)
        assert await first.commit_ids() == [two, one]

    async def test_a_row_describes_its_object(self, hosts: tuple[Host, Host], database: Database, bucket: Bucket) -> None:
        await hosts[0].commit("one")
        (row,) = await rows_of(database)
        (content,) = bucket.objects("packs/").values()
        folder = packs.folder_of(hosts[0].path)
        assert content == (folder / f"{row.name}.pack").read_bytes() + (folder / f"{row.name}.idx").read_bytes()
        assert (row.pack_bytes + row.index_bytes, row.objects) == (len(content), 3)

    async def test_nothing_new_costs_nothing(self, hosts: tuple[Host, Host], database: Database, bucket: Bucket) -> None:
        await hosts[0].commit("one")
        await hosts[0].cache.publish(hosts[0].project_id)
        await hosts[1].commit_ids()
        await hosts[1].cache.publish(hosts[1].project_id)
        assert len(await rows_of(database)) == len(bucket.objects("packs/")) == 1

    async def test_concurrent_writers_publish_everything(self, hosts: tuple[Host, Host]) -> None:
        base = await hosts[0].commit("base")

        async def work(host: Host, number: int) -> str:
            oid = await host.write(f"text {number}", base)
            await host.cache.publish(host.project_id)
            await host.move(oid, f"refs/heads/branch{number}")
            return oid

        oids = await asyncio.gather(*(work(hosts[number % 2], number) for number in range(8)))
        for host in hosts:
            for oid in oids:
                assert await host.has(oid)

    async def test_a_bucket_that_is_away_is_reported_and_loses_nothing(
        self, hosts: tuple[Host, Host], database: Database, bucket: Bucket
    ) -> None:
        first, second = hosts
        oid = await first.write("one")
        bucket.stop()
        with pytest.raises(ConnectionError, match="unavailable"):
            await first.cache.publish(first.project_id)
        assert await rows_of(database) == []

        bucket.start()
        await first.cache.publish(first.project_id)
        await first.move(oid)

        assert await second.commit_ids() == [oid]

    async def test_an_imported_repository_is_complete(self, hosts: tuple[Host, Host], database: Database, tmp_path: Path) -> None:
        first, second = hosts
        history = make_history(tmp_path / "source", commits=30)
        shallow = tmp_path / "shallow"
        git(tmp_path, "clone", "--quiet", "--bare", "--depth=5", f"file://{tmp_path}/source", str(shallow))
        staged = await first.cache.publish_staged(await asyncio.to_thread(first.cache.stage, shallow))
        async with database.write_session() as session:
            await first.cache.insert_packs(session, first.project_id, staged.packs)
            await session.commit()
        first.cache.promote(first.project_id, staged.path)
        expected = git(shallow, "rev-list", "HEAD").split()
        await first.move(expected[0])

        assert await first.commit_ids() == await second.commit_ids() == expected
        assert len(expected) < len(git(tmp_path / "source", "rev-list", "HEAD").split())
        assert history

    async def test_a_pack_that_is_damaged_in_the_folder_is_named_in_the_log(self, hosts: tuple[Host, Host], tmp_path: Path) -> None:
        cache, path = hosts[0].cache, make_history(tmp_path / "source", commits=30).path
        git(path, "repack", "-a", "-d", "-q")
        (pack,) = packs.folder_of(path).glob("*.pack")
        content = pack.read_bytes()
        pack.chmod(0o600)
        for damaged in (content, content[:100] + bytes([content[100] ^ 1]) + content[101:]):
            pack.write_bytes(damaged)
            with structlog.testing.capture_logs() as logs:
                columns = await pack_transfer.upload(cache.store, path, pack.stem)
            assert columns["pack_bytes"] == len(content)
            expected = [] if damaged == content else [("damaged pack uploaded", path.name, pack.name)]
            assert [(line["event"], line["repository"], line["file"]) for line in logs] == expected

    async def test_a_repository_that_is_imported_later_is_beside_what_was_pushed(
        self, hosts: tuple[Host, Host], database: Database, tmp_path: Path
    ) -> None:
        first, second = hosts
        pushed = await first.write("pushed")
        source = make_history(tmp_path / "source", commits=8).path
        head = git(source, "rev-parse", "master")
        staged = await second.cache.publish_staged(await asyncio.to_thread(second.cache.stage, source))
        async with database.write_session() as session:
            await second.cache.insert_packs(session, second.project_id, staged.packs)
            await second.cache.add_packs(second.project_id, staged)
            await session.commit()
        await second.move(head)
        await first.cache.publish(first.project_id)
        await first.move(pushed, "refs/heads/pushed")

        for host in hosts:
            assert await host.has(pushed) and await host.has(head)
            await host.cache.publish(host.project_id)
        assert len(await rows_of(database)) == 2


class TestFetch:
    async def test_a_damaged_object_is_named_and_never_installed(
        self, hosts: tuple[Host, Host], database: Database, bucket: Bucket
    ) -> None:
        first, second = hosts
        oid = await first.commit("one")
        (row,) = await rows_of(database)
        ((key, content),) = bucket.objects("packs/").items()
        bucket.write(key, content[:-1] + bytes([content[-1] ^ 1]))

        with pytest.raises(PacksUnavailable, match=rf"pack {row.name} of project {row.project_id} \(object {row.key}\) is damaged"):
            await second.commit_ids()
        assert packs.list_packs(second.path) == set()

        bucket.write(key, content)
        assert await second.commit_ids() == [oid]

    async def test_an_object_that_is_damaged_on_its_way_is_fetched_again(
        self, hosts: tuple[Host, Host], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        first, second = hosts
        oid = await first.commit("one")
        opened = second.cache.store.open
        calls = 0

        def damaging(key: str) -> Any:
            nonlocal calls
            calls += 1
            return opened(key, 1) if calls == 1 else opened(key)

        monkeypatch.setattr(second.cache.store, "open", damaging)
        assert await second.commit_ids() == [oid]
        assert calls == 2

    @pytest.mark.parametrize("problem", ["missing", "away"])
    async def test_without_its_objects_a_repository_cannot_be_read(self, hosts: tuple[Host, Host], bucket: Bucket, problem: str) -> None:
        first, second = hosts
        await first.commit("one")
        if problem == "away":
            bucket.stop()
        else:
            bucket.delete(next(iter(bucket.objects("packs/"))))
        with pytest.raises(PacksUnavailable, match="is missing in the bucket" if problem == "missing" else "cannot be downloaded"):
            await second.cache.read(second.project_id, lambda repository: None)
        if problem == "away":
            bucket.start()

    async def test_a_repository_that_was_not_moved_to_the_bucket_cannot_be_read(self, hosts: tuple[Host, Host]) -> None:
        first, second = hosts
        await first.move(await first.write("one"))
        with pytest.raises(PacksUnavailable, match=r"has refs, but no packs in the bucket. Start the service once on the host"):
            await second.commit_ids()
        moved: list[None] = []
        await first.cache.publish_all(lambda: moved.append(None))
        assert len(await second.commit_ids()) == len(moved) == 1

    async def test_readers_of_a_host_download_once(self, hosts: tuple[Host, Host], monkeypatch: pytest.MonkeyPatch) -> None:
        first, second = hosts
        await first.commit("one")
        opened, keys = second.cache.store.open, list[str]()

        def counting(key: str) -> Any:
            keys.append(key)
            return opened(key)

        monkeypatch.setattr(second.cache.store, "open", counting)
        await asyncio.gather(*(second.commit_ids() for _ in range(8)))
        assert len(keys) == 1

    async def test_new_packs_are_fetched_before_a_ref_reaches_them(self, hosts: tuple[Host, Host]) -> None:
        first, second = hosts
        base = await first.commit("base")
        assert await second.commit_ids() == [base]
        oid = await first.write("new", base)
        await first.cache.publish(first.project_id)
        assert not await second.has(oid)
        await second.cache.fetch_new_packs(second.project_id)
        assert await second.has(oid)

    async def test_a_project_whose_refs_were_not_adopted_gets_no_empty_folder(self, hosts: tuple[Host, Host], database: Database) -> None:
        async with database.write_session() as session:
            await session.execute(update(tables.Project).values(refs_version=0))
            await session.commit()
        with pytest.raises(NotARepository):
            await hosts[0].cache.read(hosts[0].project_id, lambda repository: None)
        assert not hosts[0].path.exists()

    async def test_a_project_that_does_not_exist_has_no_folder(self, hosts: tuple[Host, Host]) -> None:
        async with hosts[0].cache.use(999) as path:
            assert not path.exists()


class TestEviction:
    async def test_evicts_the_least_recently_used(
        self, hosts: tuple[Host, Host], make: DataFactory, database: Database, bucket: Bucket
    ) -> None:
        first, _ = hosts
        oid = await first.commit("one")
        other = Host(first.cache.root, database, bucket, (await make.project()).id)
        async with database.write_session() as session:
            await session.execute(refs.advance_version([other.project_id], now()))
            await session.commit()
        await other.commit("two")
        os.utime(first.path / "usage", (1, 1))
        first.cache.max_bytes = packs.size_of(other.path)

        assert await first.cache.evict() == 1

        assert not first.path.exists()
        assert other.path.exists()
        assert await first.commit_ids() == [oid]
        other.cache.close()

    async def test_a_copy_in_use_stays(self, hosts: tuple[Host, Host]) -> None:
        first, _ = hosts
        oid = await first.commit("one")
        first.cache.max_bytes = 0
        async with first.cache.use(first.project_id):
            assert await first.cache.evict() == 0
        assert await first.cache.evict() == 1
        assert await first.has(oid)

    async def test_objects_that_are_nowhere_else_are_uploaded_first(self, hosts: tuple[Host, Host], bucket: Bucket) -> None:
        first, second = hosts
        first.cache.max_bytes = 0
        base = await first.commit("base")
        oid = await first.write("one", base)
        bucket.stop()
        with pytest.raises(ConnectionError):
            await first.cache.evict()
        assert first.path.exists()
        bucket.start()

        assert await first.cache.evict() == 1
        # Another part of the same operation goes on.
        await first.cache.publish(first.project_id)
        await first.move(oid)

        assert await second.commit_ids() == [oid, base]

    async def test_goes_on_after_a_copy_whose_objects_cannot_be_stored(
        self, hosts: tuple[Host, Host], make: DataFactory, database: Database, bucket: Bucket
    ) -> None:
        first, _ = hosts
        await first.commit("one")
        oid = await first.write("two")
        packs.object_path(first.path, oid).unlink()
        packs.object_path(first.path, oid).write_bytes(b"damaged")
        os.utime(first.path / "usage", (1, 1))
        other = Host(first.cache.root, database, bucket, (await make.project()).id)
        async with database.write_session() as session:
            await session.execute(refs.advance_version([other.project_id], now()))
            await session.commit()
        await other.commit("three")
        first.cache.max_bytes = 0

        assert await first.cache.evict() == 1

        assert first.path.exists() and not other.path.exists()
        other.cache.close()

    async def test_readers_go_on_while_copies_are_evicted(self, hosts: tuple[Host, Host]) -> None:
        first, _ = hosts
        oid = await first.commit("one")
        first.cache.max_bytes = 0
        running, evicted, reads = True, 0, 0

        async def evict() -> None:
            nonlocal evicted
            while running:
                evicted += await first.cache.evict()
                await asyncio.sleep(0)

        evicting = asyncio.create_task(evict())
        async with asyncio.timeout(60):
            while reads < 30 or not evicted:
                assert await asyncio.gather(*(first.has(oid) for _ in range(4))) == [True] * 4
                reads += 1
        running = False
        await evicting

    async def test_the_copy_of_a_deleted_project_is_deleted(self, hosts: tuple[Host, Host], database: Database) -> None:
        first, _ = hosts
        await first.commit("one")
        async with database.write_session() as session:
            await session.delete(await session.get(tables.Project, first.project_id))
            await session.commit()
        assert await first.cache.evict() == 0
        os.utime(first.path / "usage", (1, 1))
        assert await first.cache.evict() == 1
        assert not first.path.exists()


class TestRepack:
    async def commit_many(self, hosts: tuple[Host, Host], number: int = 5) -> list[str]:
        oids = [await hosts[0].commit("0")]
        for turn in range(1, number):
            oids.append(await hosts[turn % 2].commit(str(turn), oids[-1]))
        return oids[::-1]

    async def test_replaces_packs_on_all_hosts(self, hosts: tuple[Host, Host], database: Database, bucket: Bucket) -> None:
        first, second = hosts
        oids = await self.commit_many(hosts)

        assert await first.cache.repack(first.project_id)

        current = [row for row in await rows_of(database) if row.removed_at is None]
        assert len(await rows_of(database)) == len(bucket.objects("packs/")) > len(current)
        assert packs.list_packs(first.path) == {row.name for row in current}
        assert await second.commit_ids() == oids
        last = await first.commit("last", oids[0])
        assert await second.commit_ids() == [last, *oids]
        assert len(packs.list_packs(second.path)) == len(current) + 1
        git(second.path, "fsck", "--full", "--strict")

    async def test_one_host_at_a_time(self, hosts: tuple[Host, Host], monkeypatch: pytest.MonkeyPatch) -> None:
        first, second = hosts
        await self.commit_many(hosts)
        results: list[bool] = []
        run = repack.repack

        async def repack_slowly(path: Path) -> bool:
            results.append(await second.cache.repack(second.project_id))
            return await run(path)

        monkeypatch.setattr(repack, "repack", repack_slowly)
        assert await first.cache.repack(first.project_id)
        assert results == [False]

    async def test_a_lease_is_renewed_during_a_long_repack(
        self, hosts: tuple[Host, Host], database: Database, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        first, _ = hosts
        await self.commit_many(hosts)
        run = repack.repack
        ends: list[datetime] = []

        async def read_ends() -> list[datetime]:
            async with database.read_session() as session:
                return [each for (each,) in await session.read(select(col(RepackLease.expires_at)))]

        async def repack_slowly(path: Path) -> bool:
            ends.extend(await read_ends())
            async with asyncio.timeout(10):
                while len(ends) < 3:
                    await asyncio.sleep(0.01)
                    ends.extend(end for end in await read_ends() if end > ends[-1])
            return await run(path)

        monkeypatch.setattr(bucket_packs, "RENEW_SECONDS", 0.01)
        monkeypatch.setattr(repack, "repack", repack_slowly)
        assert await first.cache.repack(first.project_id)
        assert await read_ends() == []

    async def test_a_host_whose_lease_has_ended_leaves_that_of_the_next_one(
        self, hosts: tuple[Host, Host], database: Database, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        first, second = hosts
        await self.commit_many(hosts)
        has_begun, may_end = asyncio.Event(), asyncio.Event()
        later: list[asyncio.Task[bool]] = []
        run = repack.repack

        async def repack_slowly(path: Path) -> bool:
            if path == second.path:
                has_begun.set()
                await may_end.wait()
            elif not later:
                async with database.write_session() as session:
                    await session.execute(update(RepackLease).values(expires_at=now() - timedelta(seconds=1)))
                    await session.commit()
                later.append(asyncio.create_task(second.cache.repack(second.project_id)))
                await has_begun.wait()
            return await run(path)

        monkeypatch.setattr(repack, "repack", repack_slowly)
        assert await first.cache.repack(first.project_id)
        assert not await first.cache.repack(first.project_id)
        may_end.set()
        assert await later[0]
        assert await first.cache.repack(first.project_id)

    async def test_a_host_that_lags_behind_can_repack_too(self, hosts: tuple[Host, Host], database: Database) -> None:
        first, second = hosts
        oids = await self.commit_many(hosts)
        await second.commit_ids()
        await first.cache.repack(first.project_id)
        assert await second.cache.repack(second.project_id)
        assert await first.commit_ids() == await second.commit_ids() == oids
        assert not packs.has_unpublished(second.path)

    async def test_a_pack_that_is_combined_during_its_upload_is_published_with_the_others(
        self, hosts: tuple[Host, Host], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        first, second = hosts
        oids = await self.commit_many(hosts)
        last = await first.write("last", oids[0])
        upload = pack_transfer.upload
        names: list[str] = []

        async def repack_during_upload(store: Any, path: Path, name: str) -> Any:
            names.append(name)
            if len(names) == 1:
                await repack.repack(path)
                assert name not in packs.list_packs(path)
            return await upload(store, path, name)

        monkeypatch.setattr(pack_transfer, "upload", repack_during_upload)
        await first.cache.publish(first.project_id)
        await first.move(last)
        assert len(set(names)) == 2
        assert await second.commit_ids() == [last, *oids]

    async def test_a_fetch_goes_on_during_a_repack(self, hosts: tuple[Host, Host], tmp_path: Path) -> None:
        first, second = hosts
        oids = await self.commit_many(hosts, 8)

        async def clone(number: int) -> list[str]:
            target = tmp_path / f"clone{number}"
            async with second.cache.use(second.project_id) as path:
                await asyncio.to_thread(git, tmp_path, "clone", "--quiet", "--bare", f"file://{path}", str(target))
            return git(target, "rev-list", "master").split()

        cloned, _ = await asyncio.gather(asyncio.gather(*map(clone, range(4))), first.cache.repack(first.project_id))
        assert cloned == [oids] * 4

    async def test_a_pack_that_was_replaced_becomes_current_when_it_is_pushed_again(
        self, hosts: tuple[Host, Host], database: Database
    ) -> None:
        first, _ = hosts
        oid = await first.commit("one")
        (row,) = await rows_of(database)
        async with database.write_session() as session:
            await session.execute(update(Pack).values(removed_at=now()))
            await session.commit()
        packs.write_published(first.path, [])
        await first.cache.publish(first.project_id)
        (again,) = await rows_of(database)
        assert (again.name, again.removed_at) == (row.name, None)
        assert again.key != row.key
        assert await first.has(oid)


class TestCollection:
    async def test_of_one_host_replaces_packs_on_all(self, hosts: tuple[Host, Host], database: Database) -> None:
        first, second = hosts
        oids = await TestRepack().commit_many(hosts)
        stray = await second.write("stray", oids[0])
        await second.cache.publish(second.project_id)

        async def collect(host: Host, days: float) -> CollectedObjects | None:
            return await host.collect(days, [oids[0]])

        collected = await collect(first, 0)
        assert collected is not None
        current = {row.name: row.is_reachable for row in await rows_of(database) if row.removed_at is None}
        assert current == {collected.reachable: True, collected.unreachable: False}
        assert await second.commit_ids() == oids
        assert await second.has(stray)
        assert await collect(second, 6) is None, "another host did it this week"

        # The other host knows since when they are unreachable.
        later = await collect(second, 15)
        assert later is not None and stray in later.deleted
        assert [row.name for row in await rows_of(database) if row.removed_at is None] == [later.reachable]
        # No ref has moved, but the hosts notice that the pack was dropped.
        assert not await first.has(stray) and not await second.has(stray)
        assert await first.commit_ids() == await second.commit_ids() == oids

    async def test_notices_a_move_while_its_packs_are_uploaded(
        self, hosts: tuple[Host, Host], database: Database, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        first, second = hosts
        oids = await TestRepack().commit_many(hosts)
        stray = await first.write("stray", oids[0])
        await first.cache.publish(first.project_id)
        await second.collect(0, [oids[0]])
        last = await second.commit("more", oids[0])
        assert await first.commit_ids() == [last, *oids]
        upload, moved = pack_transfer.upload, list[str]()

        async def move_meanwhile(store: Any, path: Path, name: str) -> Any:
            if not moved:
                moved.append(name)
                await first.cache.publish(first.project_id)
                await first.move(stray, "refs/heads/again")
            return await upload(store, path, name)

        monkeypatch.setattr(pack_transfer, "upload", move_meanwhile)
        later = await second.collect(15, [last])
        assert moved and later is not None and not later.deleted and not later.expired
        for host in hosts:
            assert await host.has(stray) and await host.commit_ids() == [last, *oids]
        # The next one finds the branch, and nothing that is unreachable.
        collected = await first.collect(23, [last, stray])
        assert collected is not None and not collected.deleted
        assert [row.name for row in await rows_of(database) if row.removed_at is None] == [collected.reachable]

    async def test_is_noticed_by_moves_that_were_prepared_before(self, hosts: tuple[Host, Host], database: Database) -> None:
        first, second = hosts
        oids = await TestRepack().commit_many(hosts)
        await first.write("stray", oids[0])
        await first.cache.publish(first.project_id)
        await second.collect(0, [oids[0]])
        before = await first.version()

        async def may_lack(version: int) -> bool:
            return await first.cache.may_lack(first.project_id, version)

        await first.move(oids[0], "refs/heads/other")
        assert not await may_lack(before), "nothing was dropped"
        await second.collect(15, [oids[0]])
        assert await may_lack(before)
        assert not await may_lack(await first.version())

    async def test_brings_back_what_a_ref_needs_after_all(
        self, hosts: tuple[Host, Host], make: DataFactory, database: Database, bucket: Bucket
    ) -> None:
        first, second = hosts
        oids = await TestRepack().commit_many(hosts)
        stray = await first.write("stray", oids[0])
        await first.cache.publish(first.project_id)
        await second.collect(0, [oids[0]])
        assert await first.has(stray)
        later = await second.collect(15, [oids[0]])
        assert later is not None and stray in later.deleted
        # As a host of an older version, whose copy has the objects.
        await first.move(stray, "refs/heads/again")
        for host in hosts:
            host.cache.remove(host.project_id)
        bucket.age(GRACE_SECONDS + 60)
        async with database.write_session() as session:
            await session.execute(update(Pack).where(col(Pack.removed_at).is_not(None)).values(removed_at=now() - timedelta(days=7)))
            await session.commit()
        await sweep_packs(make.services, first.cache)
        assert not await first.has(stray)

        await first.collect(23, [oids[0], stray])

        for host in hosts:
            assert await host.has(stray) and await host.commit_ids() == oids


class TestSweep:
    async def test_deletes_what_no_row_needs_after_a_day(
        self, hosts: tuple[Host, Host], make: DataFactory, database: Database, bucket: Bucket
    ) -> None:
        first, second = hosts
        oids = await TestRepack().commit_many(hosts)
        await first.cache.repack(first.project_id)
        current = {f"packs/{row.key}" for row in await rows_of(database) if row.removed_at is None}
        await first.cache.store.put_bytes("0" * 32, b"a push that failed")
        assert await sweep_packs(make.services, first.cache) == 0

        bucket.age(GRACE_SECONDS + 60)
        # The grace period of replaced packs counts from their replacement.
        assert await sweep_packs(make.services, first.cache) == 1
        assert len(bucket.objects("packs/")) == len(await rows_of(database))

        async with database.write_session() as session:
            old = now() - timedelta(seconds=GRACE_SECONDS + 60)
            await session.execute(update(Pack).where(col(Pack.removed_at).is_not(None)).values(removed_at=old))
            await session.commit()
        assert await sweep_packs(make.services, first.cache) > 0
        assert set(bucket.objects("packs/")) == current
        first.cache.remove(first.project_id)
        assert await first.commit_ids() == await second.commit_ids() == oids

    async def test_deletes_the_packs_of_a_deleted_project(self, hosts: tuple[Host, Host], make: DataFactory, bucket: Bucket) -> None:
        first, _ = hosts
        await first.commit("one")
        async with make.services.database.write_session() as session:
            await session.delete(await session.get(tables.Project, first.project_id))
            await session.commit()
        bucket.age(GRACE_SECONDS + 60)
        assert await sweep_packs(make.services, first.cache) == 1
        assert bucket.objects("packs/") == {}


class TestFolder:
    def test_loose_objects_become_a_pack(self, tmp_path: Path) -> None:
        path = tmp_path / "repository.git"
        Repository.create(path)
        oid = commit_files(path, {"file": b"text"})
        assert len(packs.list_loose_objects(path)) == 3
        packs.pack_loose_objects(path)
        assert packs.list_loose_objects(path) == []
        (name,) = packs.list_packs(path)
        assert packs.count_objects(path, name) == 3
        assert Repository.open(path).commit(oid).oid == oid

    def test_a_folder_that_disappears_hides_no_other_loose_object(self, tmp_path: Path) -> None:
        path = tmp_path / "repository.git"
        Repository.create(path)
        commit_files(path, {"file": b"text"})
        packs.write_published(path, packs.list_packs(path))
        # As a folder that a repack removes after it was listed.
        for number in range(256):
            with contextlib.suppress(FileExistsError):
                (path / "objects" / f"{number:02x}").symlink_to("removed")
        assert len(packs.list_loose_objects(path)) == 3
        assert packs.has_unpublished(path)

    def test_a_pack_without_an_index_is_none(self, tmp_path: Path) -> None:
        path = tmp_path / "repository.git"
        Repository.create(path)
        (packs.folder_of(path) / "pack-1.pack").write_bytes(b"")
        assert packs.list_packs(path) == set()

    async def test_a_locked_copy_is_not_evicted(self, hosts: tuple[Host, Host]) -> None:
        first, _ = hosts
        await first.commit("one")
        first.cache.max_bytes = 0
        # As another process does.
        with (first.path / "usage").open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH)
            assert await first.cache.evict() == 0
