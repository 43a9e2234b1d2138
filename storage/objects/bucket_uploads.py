"""The contents of uploaded files in an object store: the key of an object is the upload's secret.

A file is received in the folder of the host that has the request, and sent to the store in the transaction of its row.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from storage.objects.object_store import ObjectStore, read_chunks
from storage.objects.uploads import UploadStore


class BucketUploadStore(UploadStore):
    """The files in `store`; `root` has those that are being received."""

    def __init__(self, root: Path, store: ObjectStore) -> None:
        super().__init__(root)
        self.objects = store

    async def publish(self, ticket: str, project_id: int, secret: str) -> None:
        incoming = self.incoming_path(ticket)
        with incoming.open("rb", buffering=0) as file:
            await self.objects.put(secret, read_chunks(file), incoming.stat().st_size)
        incoming.unlink()

    @asynccontextmanager
    async def read(self, project_id: int, secret: str) -> AsyncIterator[AsyncIterator[bytes]]:
        async with self.objects.open(secret) as chunks:
            yield chunks

    async def erase(self, project_id: int, secret: str) -> None:
        await self.objects.delete(secret)

    def remove_all(self, project_id: int) -> None:
        """Does nothing: the rows are deleted, and objects without a row are erased after an hour."""

    async def list_old(self, seconds: float) -> list[tuple[int, str]]:
        # No upload needs to know its project, because secrets are unique.
        return [(0, key) async for keys in self.objects.list_older_than(seconds) for key in keys]
