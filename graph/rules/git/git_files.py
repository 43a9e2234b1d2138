"""Contents of a repository as files that an endpoint sends."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from graph.context import Context, Services
from storage.git import output_streams, trees
from storage.git.repository import DamagedRepository

MAX_READ_BYTES = 1024 * 1024
"""A larger blob is streamed by a git process."""


@dataclass(frozen=True, slots=True)
class BlobFile:
    """A served file with the contents of a blob."""

    services: Services
    project_id: int
    oid: str
    name: str
    size: int

    @asynccontextmanager
    async def open(self, start: int, size: int) -> AsyncIterator[AsyncIterator[bytes]]:
        """As `ServedFile.open`."""
        repositories = self.services.repositories
        if self.size > MAX_READ_BYTES:
            async with repositories.use(self.project_id) as path, output_streams.stream_blob(path, self.oid, start, size) as chunks:
                yield chunks
            return
        try:
            data = await repositories.read(
                self.project_id, lambda repository: trees.read_bytes(repository, self.oid), refs={}, cancellable=True
            )
        except DamagedRepository as error:
            raise FileNotFoundError(self.oid) from error

        async def whole() -> AsyncIterator[bytes]:
            yield data[start : start + size]

        yield whole()


def offer_blob(context: Context, project_id: int, oid: str, size: int, name: str) -> str:
    """Register a blob for download; returns the handle under which the endpoint finds its bytes."""
    handle = f"blob {project_id} {oid}"
    context.files[handle] = BlobFile(context.services, project_id, oid, name, size)
    return handle
