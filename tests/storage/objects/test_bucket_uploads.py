"""Uploaded files in a bucket."""

from dataclasses import replace
from pathlib import Path

import pytest

from graph.context import Context
from graph.errors import Unavailable
from graph.rules.projects import uploads as rules
from storage import tables
from storage.objects.bucket_uploads import BucketUploadStore
from storage.objects.object_store import open_store
from storage.objects.uploads import new_secret
from tests.make import DataFactory
from tests.support.servers.bucket import Bucket

CONTENT = bytes(range(256)) * 4096


@pytest.fixture
def uploads(tmp_path: Path, bucket: Bucket) -> BucketUploadStore:
    return BucketUploadStore(tmp_path / "uploads", open_store("s3://forge/uploads", tmp_path, bucket.settings))


async def receive(uploads: BucketUploadStore) -> str:
    incoming = uploads.receive()
    await incoming.write(CONTENT)
    await incoming.finish()
    return incoming.ticket


async def read(uploads: BucketUploadStore, secret: str) -> bytes:
    async with uploads.read(1, secret) as chunks:
        return b"".join([chunk async for chunk in chunks])


class TestBucketUploads:
    async def test_a_published_file_is_in_the_bucket_alone(self, uploads: BucketUploadStore, bucket: Bucket) -> None:
        secret = new_secret()
        await uploads.publish(await receive(uploads), 1, secret)
        assert bucket.objects() == {f"uploads/{secret}": CONTENT}
        assert await read(uploads, secret) == CONTENT
        assert list(uploads.root.iterdir()) == []

    async def test_an_erased_file_cannot_be_read(self, uploads: BucketUploadStore) -> None:
        secret = new_secret()
        await uploads.publish(await receive(uploads), 1, secret)
        await uploads.erase(1, secret)
        await uploads.erase(1, secret)
        with pytest.raises(FileNotFoundError):
            await read(uploads, secret)

    async def test_a_bucket_that_is_away_keeps_the_received_file(self, uploads: BucketUploadStore, bucket: Bucket) -> None:
        ticket = await receive(uploads)
        bucket.stop()
        with pytest.raises(ConnectionError):
            await uploads.publish(ticket, 1, new_secret())
        bucket.start()
        await uploads.publish(ticket, 1, new_secret())

    async def test_lists_old_files(self, uploads: BucketUploadStore, bucket: Bucket) -> None:
        secret = new_secret()
        await uploads.publish(await receive(uploads), 1, secret)
        assert await uploads.list_old(60) == []
        bucket.age(120)
        assert await uploads.list_old(60) == [(0, secret)]


@pytest.mark.parametrize("dialect", ["sqlite"], indirect=True)
class TestRules:
    async def test_files_without_a_row_are_erased(self, uploads: BucketUploadStore, make: DataFactory, bucket: Bucket) -> None:
        services = replace(make.services, uploads=uploads)
        user = await make.user()
        project = await make.project(owner=user)
        async with services.database.write_session() as session:
            context = Context(services, session, await session.get(tables.User, user.id), "test")
            upload = await rules.save_upload(context, project, await receive(uploads), "image.png")
            await session.commit()
        await uploads.publish(await receive(uploads), project.id, new_secret())
        bucket.age(rules.ORPHAN_AGE_SECONDS + 60)

        await rules.remove_orphans(services)

        assert list(bucket.objects()) == [f"uploads/{upload.secret}"]

    async def test_a_bucket_that_is_away_is_reported(self, uploads: BucketUploadStore, make: DataFactory, bucket: Bucket) -> None:
        services = replace(make.services, uploads=uploads)
        user = await make.user()
        project = await make.project(owner=user)
        ticket = await receive(uploads)
        bucket.stop()
        async with services.database.write_session() as session:
            context = Context(services, session, await session.get(tables.User, user.id), "test")
            with pytest.raises(Unavailable, match="object store"):
                await rules.save_upload(context, project, ticket, "image.png")
        bucket.start()
        assert await make.count(tables.Upload) == 0
