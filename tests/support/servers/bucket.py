"""A bucket of a real S3 server, moto's, in a thread of the test: it can be stopped and started, and its objects can be changed."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from storage.objects.object_store import OWNER_NAME
from tests.support.database.databases import free_port
from tests.support.servers.s3_server import SETTINGS


@dataclass
class Bucket:
    """The bucket `forge`. `settings` are those of a store, `variables` those of a server process, without FORGEFRONT_."""

    port: int
    server: Any = field(default=None, repr=False)

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def settings(self) -> dict[str, str]:
        return {**SETTINGS, "endpoint": self.endpoint}

    @property
    def variables(self) -> dict[str, str]:
        return {f"s3_{name}": value for name, value in self.settings.items()}

    def start(self) -> None:
        from moto.server import ThreadedMotoServer

        self.server = ThreadedMotoServer("127.0.0.1", self.port, verbose=False)
        self.server.start()

    def stop(self) -> None:
        """Makes every connection fail."""
        self.server.stop()

    def objects(self, prefix: str = "") -> dict[str, bytes]:
        """The contents of all objects by key, read past the server, without `owners`."""
        return {key: content for key, content in self._read_all().items() if key.startswith(prefix) and not key.endswith(OWNER_NAME)}

    def owners(self) -> dict[str, bytes]:
        """The owners of prefixes, by the key of their object."""
        return {key: content for key, content in self._read_all().items() if key.endswith(OWNER_NAME)}

    def _read_all(self) -> dict[str, bytes]:
        found = self._backend.buckets["forge"].keys
        return {key: found[key].value for key in list(found)}

    def write(self, key: str, content: bytes) -> None:
        """Overwrites an object past the server."""
        self._backend.put_object("forge", key, content)

    def delete(self, key: str) -> None:
        self._backend.delete_object("forge", key)

    def age(self, seconds: float) -> None:
        """Makes all objects older."""
        from datetime import timedelta

        for item in self._backend.buckets["forge"].keys.values():
            item.last_modified -= timedelta(seconds=seconds)

    @property
    def _backend(self) -> Any:
        from moto.s3.models import s3_backends

        return s3_backends["123456789012"]["aws"]


@contextmanager
def run_bucket() -> Iterator[Bucket]:
    """The bucket, running until the end of the block."""
    bucket = Bucket(free_port())
    bucket.start()
    try:
        bucket._backend.create_bucket("forge", "us-east-1")
        yield bucket
    finally:
        bucket.stop()
        bucket._backend.reset()


@pytest.fixture
def bucket() -> Iterator[Bucket]:
    with run_bucket() as found:
        yield found
