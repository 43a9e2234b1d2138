"""Access of an importing program to the traces and artifacts of the builds that it has imported.

This is not an operation of the schema, because files are streamed. The rules are in `graph/rules/imports/contents/build_files.py`.
"""

import asyncio
import hashlib
from collections.abc import AsyncIterable, AsyncIterator, Sequence

from graph.context import Context, Services
from graph.errors import LimitExceeded, TooLarge
from graph.operations.transaction import commit_and_notify, session_for, undo_on_failure
from graph.rules.builds import stored_objects
from graph.rules.builds.artifacts import sanitize_filename
from graph.rules.imports.batches import ItemResult
from graph.rules.imports.contents import build_files
from graph.rules.imports.contents.build_files import BuildFile
from graph.rules.imports.item_kinds import MAX_ITEMS, ImportOutcome
from storage.objects.object_store import ObjectTooLarge, new_key
from storage.tables import ImportKind

MAX_CONCURRENT_WRITES = 8
"""Objects of a batch that are written at the same time."""


class BuildFileImports:
    """Writes traces and artifacts of imported builds over the services of this process.

    All methods take the source's id of a build. They raise Invalid and NotAllowed for the import, and OSError for the object store.
    """

    def __init__(self, services: Services) -> None:
        self._services = services

    async def write_traces(self, import_id: int, traces: Sequence[tuple[str, bytes]]) -> list[ItemResult]:
        """Writes the traces of at most MAX_ITEMS builds in one transaction; those that are too long are cut. Raises LimitExceeded."""
        if len(traces) > MAX_ITEMS or len({build_id for build_id, _ in traces}) < len(traces):
            raise LimitExceeded(f"A batch has the traces of at most {MAX_ITEMS} builds, each once.")
        contents = {build_id: self._cut(content) for build_id, content in traces}
        async with session_for(self._services.database, writing=False) as session:
            context = Context(self._services, session, None, "import")
            digests = {key: build_files.digest_of(context, hashlib.sha256(content)) for key, content in contents.items()}
            unchanged = await build_files.find_unchanged(context, import_id, ImportKind.TRACE, digests)
        semaphore = asyncio.Semaphore(MAX_CONCURRENT_WRITES)

        async def store(build_id: str, content: bytes) -> BuildFile:
            async with semaphore:
                key = new_key()
                await self._services.objects.put_bytes(key, content)
                return BuildFile(build_id, digests[build_id], key, len(content))

        changed = [(build_id, content) for build_id, content in contents.items() if build_id not in unchanged]
        files = await asyncio.gather(*(store(*each) for each in changed))
        results = {result.source_id: result for result in await self._write(import_id, ImportKind.TRACE, files)}
        for build_id, row_id in unchanged.items():
            results[build_id] = ItemResult(build_id, row_id, ImportOutcome.UNCHANGED, [])
        return [results[build_id] for build_id, _ in traces]

    async def write_trace(self, import_id: int, build_id: str, content: AsyncIterable[bytes]) -> ItemResult:
        """Writes a trace that may be too long for memory; it is cut where it is longer than a trace may be."""
        return await self._stream(import_id, ImportKind.TRACE, build_id, self._cut_stream(content), None)

    async def write_artifact(self, import_id: int, build_id: str, filename: str, content: AsyncIterable[bytes]) -> ItemResult:
        """Writes the artifact of a build; one that is too large is skipped."""
        return await self._stream(import_id, ImportKind.ARTIFACT, build_id, content, sanitize_filename(filename))

    async def _stream(
        self,
        import_id: int,
        kind: ImportKind,
        build_id: str,
        content: AsyncIterable[bytes],
        filename: str | None,
    ) -> ItemResult:
        key, content_hash = new_key(), hashlib.sha256()

        async def hashed() -> AsyncIterator[bytes]:
            async for chunk in content:
                content_hash.update(chunk)
                yield chunk

        limit = self._services.max_artifact_bytes if kind is ImportKind.ARTIFACT else self._services.max_trace_bytes + len(self._notice)
        try:
            size = await self._services.objects.put(key, hashed(), limit)
        except ObjectTooLarge:
            return ItemResult.skipped(build_id, TooLarge("content", f"may have at most {limit} bytes"))
        async with session_for(self._services.database, writing=False) as session:
            context = Context(self._services, session, None, "import")
            digest = build_files.digest_of(context, content_hash, filename or "")
            unchanged = await build_files.find_unchanged(context, import_id, kind, {build_id: digest})
        if unchanged:
            await self._services.objects.delete(key)
            await self._write(import_id, kind, [])
            return ItemResult(build_id, unchanged[build_id], ImportOutcome.UNCHANGED, [])
        (result,) = await self._write(import_id, kind, [BuildFile(build_id, digest, key, size, filename)])
        return result

    async def _write(self, import_id: int, kind: ImportKind, files: Sequence[BuildFile]) -> list[ItemResult]:
        async with session_for(self._services.database, writing=True) as session:
            context = Context(self._services, session, None, "import")
            for file in files:
                stored_objects.erase_on_rollback(context, file.key)
            async with undo_on_failure(context):
                results = await build_files.write_files(context, import_id, kind, files)
                await commit_and_notify(context)
            return results

    @property
    def _notice(self) -> bytes:
        return f"\n[The trace is longer than {self._services.max_trace_bytes} bytes; the rest was not imported.]\n".encode()

    def _cut(self, content: bytes) -> bytes:
        limit = self._services.max_trace_bytes
        return content if len(content) <= limit else content[:limit] + self._notice

    async def _cut_stream(self, content: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
        remaining = self._services.max_trace_bytes
        async for chunk in content:
            if len(chunk) > remaining:
                yield chunk[:remaining] + self._notice
                return
            remaining -= len(chunk)
            yield chunk
