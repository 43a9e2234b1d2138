"""Two instances on one prefix of a bucket would delete each other's objects: the second is refused."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from forgefront.app import create_app
from forgefront.buckets.bucket_owner import ForeignBucket, claim_buckets
from forgefront.config import Config
from storage.database.engine import Database
from storage.objects.bucket_store import BucketStore
from storage.objects.object_store import ALL_SECONDS, OWNER_NAME, ObjectStore, open_store
from tests.forgefront.support.cli_runner import CommandRunner
from tests.support.database import migrated_databases
from tests.support.servers.bucket import Bucket

URLS = {f"{name}_url": f"s3://forge/{name}" for name in ("repositories", "uploads", "artifacts")}


@pytest.fixture
def configs(new_database: Callable[[], str], bucket: Bucket, tmp_path: Path, isolated_environment: None) -> list[Config]:
    """The configurations of two instances that share their prefixes by mistake."""
    found = []
    for name in ("one", "two"):
        migrated_databases.upgrade(url := new_database())
        (tmp_path / name).mkdir(mode=0o700)
        found.append(Config.load(data=tmp_path / name, database_url=url, **URLS, **bucket.variables))
    return found


def stores_of(config: Config) -> dict[str, ObjectStore]:
    urls = {"repositories": config.repositories_url, "uploads": config.uploads_url, "artifacts": config.artifacts_url}
    return {name: open_store(url, config.data / name, config.s3_settings) for name, url in urls.items()}


async def claim(config: Config) -> str | None:
    """Claims the buckets as a start does; returns why they were refused."""
    database = Database(config.database_url)
    try:
        await claim_buckets(config, database, stores_of(config))
    except ForeignBucket as error:
        return str(error)
    finally:
        await database.close()
    return None


class TestBuckets:
    async def test_belong_to_the_first_instance(self, configs: list[Config], bucket: Bucket) -> None:
        first, second = configs

        assert await claim(first) is None
        owners = bucket.owners()
        assert owners.keys() == {f"{name}/{OWNER_NAME}" for name in ("repositories", "uploads", "artifacts")}
        assert len(set(owners.values())) == 1
        # Another host or another start of the same instance.
        assert await claim(first) is None
        refused = await claim(second)
        assert refused is not None
        assert "s3://forge/repositories belongs to another instance" in refused and "Set FORGEFRONT_REPOSITORIES_URL to" in refused
        assert f"delete the object {OWNER_NAME}" in refused
        assert bucket.owners() == owners
        # A sweep neither lists nor deletes them.
        assert [keys async for keys in stores_of(first)["artifacts"].list_older_than(ALL_SECONDS) if keys] == []
        # As the message says.
        for key in owners:
            bucket.delete(key)
        assert await claim(second) is None
        assert await claim(first) is not None

    async def test_of_two_first_starts_at_once_one_wins(self, configs: list[Config], bucket: Bucket) -> None:
        barrier = asyncio.Barrier(2)

        class SlowStore(BucketStore):
            async def read_owner(self) -> str | None:
                owner = await super().read_owner()
                if owner is None:
                    # Both have seen that nobody owns the prefix.
                    await barrier.wait()
                return owner

        async def start(owner: str) -> str:
            return await SlowStore("s3://forge/artifacts", bucket.settings).claim(owner)

        found = await asyncio.gather(start("a" * 32), start("b" * 32))
        assert found[0] == found[1] and found[0].encode() == bucket.owners()[f"artifacts/{OWNER_NAME}"]


class TestRefusal:
    async def test_of_the_service_and_of_commands(self, configs: list[Config], monkeypatch: pytest.MonkeyPatch) -> None:
        first, second = configs
        assert await claim(first) is None
        app = create_app(second)
        with pytest.raises(ForeignBucket):
            await app.start()
        await app.stop()
        for name in (*URLS, "s3_endpoint", "s3_region", "s3_access_key_id", "database_url"):
            monkeypatch.setenv(f"FORGEFRONT_{name.upper()}", str(getattr(second, name)))
        monkeypatch.setenv("FORGEFRONT_S3_SECRET_ACCESS_KEY", "secret")
        run = CommandRunner(second.data)
        output = await asyncio.to_thread(run, "admin", "user", "list", code=1)
        assert "belongs to another instance" in output.output
        report = (await asyncio.to_thread(run, "check", "--json", code=1)).stdout
        assert report.count("belongs to another instance") == 3 and "Set FORGEFRONT_UPLOADS_URL to a prefix" in report
