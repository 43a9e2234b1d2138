"""Traces as files: the parts of a trace are read one after the other, with memory that does not depend on its size."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass

from graph.context import Context, Services
from graph.rules.builds import trace_masking
from graph.served_files import read_first
from storage import tables
from storage.objects.object_store import ObjectNotFound
from storage.tables.builds import artifacts
from storage.tables.builds.artifacts import TracePart


@dataclass(frozen=True, slots=True)
class StoredTrace:
    """A served file with the trace of one attempt of a build. It stays readable if a retry makes this an earlier attempt meanwhile, but not
    if output of it is discarded."""

    services: Services
    build_id: int
    attempt: int
    generation: int
    name: str
    size: int

    @asynccontextmanager
    async def open(self, start: int, size: int) -> AsyncIterator[AsyncIterator[bytes]]:
        """As `ServedFile.open`."""
        async with aclosing(self._read(start, size)) as chunks:
            yield await read_first(chunks)

    async def _read(self, offset: int, size: int) -> AsyncGenerator[bytes, None]:
        """Yields `size` bytes from the offset on. Raises ObjectNotFound."""
        end, missing_key = offset + size, None
        while offset < end:
            part = await self._find_part(offset)
            try:
                async with self.services.objects.open(part.key, offset - part.start, min(part.start + part.size, end) - offset) as chunks:
                    async for chunk in chunks:
                        offset += len(chunk)
                        yield chunk
            except ObjectNotFound:
                # The parts may have been joined meanwhile: the bytes are the same, in another object.
                if part.key == missing_key:
                    raise
                missing_key = part.key

    async def _find_part(self, offset: int) -> TracePart:
        """The part that contains the byte at the offset. Raises ObjectNotFound if the trace was erased, or the run was lost."""
        async with self.services.database.read_session() as session:
            at = {"build_id": self.build_id, "attempt": self.attempt, "generation": self.generation, "offset": offset}
            rows = await session.read(artifacts.PART_AT, at)
        if not rows or rows[0][0].start + rows[0][0].size <= offset:
            raise ObjectNotFound(f"trace of build {self.build_id}")
        found: TracePart = rows[0][0]
        return found


def offer_trace(context: Context, build: tables.Build) -> str:
    """Register the trace for download; returns the handle under which the endpoint finds its bytes.

    The end that may be the beginning of a secret is not part of the file.
    """
    handle = f"trace {build.id}"
    size = build.trace_size - trace_masking.pending_bytes(build)
    context.files[handle] = StoredTrace(context.services, build.id, build.attempt, build.trace_generation or 0, f"{build.id}.log", size)
    return handle
