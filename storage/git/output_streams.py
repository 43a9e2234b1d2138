"""Output of git processes as streams: blobs, and archives of trees. Memory does not depend on their size.

A process runs as long as its stream is read, and ends with the block that reads it.
"""

import asyncio
import bz2
import contextlib
import zlib
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from enum import StrEnum
from pathlib import Path
from time import monotonic
from typing import Protocol

from storage.git.protocol.process_supervision import BLOCK_BYTES, StderrTail, terminate
from storage.git.subprocesses import async_process, git_command

STREAM_SECONDS = 3600.0
"""Maximum duration of one stream."""
COMPRESSION_LEVEL = 6


class ArchiveFormat(StrEnum):
    """A format of an archive; the value is the ending of its name."""

    TAR = "tar"
    TAR_GZ = "tar.gz"
    TAR_BZ2 = "tar.bz2"
    ZIP = "zip"


class _Compressor(Protocol):
    def compress(self, data: bytes, /) -> bytes: ...
    def flush(self) -> bytes: ...


@asynccontextmanager
async def stream_blob(git_dir: Path, oid: str, start: int, size: int) -> AsyncIterator[AsyncIterator[bytes]]:
    """Yields an iterator of `size` bytes of a blob from `start` on. Raises GitCommandError, OSError, also while it is read."""
    async with _run(git_dir, "cat-file", "blob", oid) as output, aclosing(_cut(output, start, size)) as blocks:
        yield blocks


@asynccontextmanager
async def stream_archive(git_dir: Path, commit: str, archive_format: ArchiveFormat, prefix: str) -> AsyncIterator[AsyncIterator[bytes]]:
    """Yields an iterator of the bytes of an archive of a commit's files, in a directory `prefix`.

    Git's own filters would start further programs, so this process compresses. Raises GitCommandError, OSError, also while it is read.
    """
    kind = "zip" if archive_format is ArchiveFormat.ZIP else "tar"
    arguments = ("archive", f"--format={kind}", f"--prefix={prefix}/", commit)
    async with _run(git_dir, *arguments) as output:
        compressor = _create_compressor(archive_format)
        if compressor is None:
            yield output
            return
        async with aclosing(_compress(output, compressor)) as blocks:
            yield blocks


def _create_compressor(archive_format: ArchiveFormat) -> _Compressor | None:
    if archive_format is ArchiveFormat.TAR_GZ:
        return zlib.compressobj(COMPRESSION_LEVEL, zlib.DEFLATED, zlib.MAX_WBITS | 16)
    return bz2.BZ2Compressor() if archive_format is ArchiveFormat.TAR_BZ2 else None


@asynccontextmanager
async def _run(git_dir: Path, *arguments: str) -> AsyncIterator[AsyncGenerator[bytes, None]]:
    """Yields an iterator of the output of a command."""
    process = await async_process.start(
        git_command.command(git_dir, *arguments),
        git_command.environment(),
        buffer_bytes=BLOCK_BYTES,
        process_limits=git_command.current_limits(),
    )
    stderr = StderrTail(process.stderr)
    reader = asyncio.create_task(stderr.read())

    async def blocks() -> AsyncGenerator[bytes, None]:
        deadline = monotonic() + STREAM_SECONDS
        while block := await process.stdout.read(BLOCK_BYTES):
            if monotonic() > deadline:
                raise git_command.GitCommandError(f"git {arguments[0]} took more than {STREAM_SECONDS:.0f} s")
            yield block
        code = await process.wait()
        await reader
        if code:
            raise git_command.failure_of(stderr.tail, code)

    try:
        process.stdin.close()
        async with aclosing(blocks()) as output:
            yield output
    finally:
        await asyncio.shield(_end(process, reader))


async def _end(process: async_process.AsyncProcess, reader: asyncio.Task[None]) -> None:
    await terminate(process, is_push=False)
    reader.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await reader
    process.close()


async def _cut(blocks: AsyncIterator[bytes], start: int, size: int) -> AsyncGenerator[bytes, None]:
    offset, end = 0, start + size
    async for block in blocks:
        part = block[max(start - offset, 0) : end - offset]
        offset += len(block)
        if part:
            yield part
        if offset >= end:
            return


async def _compress(blocks: AsyncIterator[bytes], compressor: _Compressor) -> AsyncGenerator[bytes, None]:
    async for block in blocks:
        if compressed := await asyncio.to_thread(compressor.compress, block):
            yield compressed
    yield await asyncio.to_thread(compressor.flush)
