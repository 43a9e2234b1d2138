"""Traces: the output of builds, stored as parts that are appended one after the other.

A writer sends the offset at which it believes the trace ends, so that data sent twice is stored once. Each part is an object, complete
before its row is inserted; after a build has finished, its parts are joined into one object.
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any

import structlog

from graph.context import Context, Services
from graph.errors import BadRequest, Conflict, Invalid, NotAllowed, TooLarge, Unavailable
from graph.operations.transaction import commit_and_notify, session_for, undo_on_failure
from graph.rules.builds import builds, trace_masking
from graph.rules.builds.stored_objects import erase_after_commit, erase_on_rollback
from storage import tables
from storage.objects.object_store import ObjectNotFound, new_key
from storage.tables.builds import artifacts, runners
from storage.tables.builds import builds as statements
from storage.tables.builds.artifacts import TracePart
from storage.tables.builds.commit_statuses import FINISHED

MAX_APPEND_BYTES = 2**20
"""Maximum bytes of one append."""
TAIL_BYTES = 2**18
"""Bytes at the end of a trace in which the last lines are searched."""
MAX_TAIL_LINES = 1000
MAX_LINE_LENGTH = 4000
"""Characters; a longer line is truncated when it is shown."""
READ_BYTES = 2**15
"""Bytes per read, from the end backwards."""
JOIN_DELAY = timedelta(seconds=60)
JOIN_BATCH_SIZE = 20

log = structlog.get_logger("graph")


async def append_trace(context: Context, build: tables.Build, text: str, offset: int, *, replace: bool = False) -> tables.Build:
    """Append a string that starts at byte `offset` of the trace, skipping bytes that the trace has. With `replace` it takes the place of
    what the runner sent so far, and starts where that does.

    The object is written before the transaction begins, based on the given state of `build`, with secrets masked. Raises Conflict for a
    gap, TooLarge, Invalid, NotAllowed for an erased build or a superseded attempt.
    """
    data = text.encode()
    if offset < 0:
        raise Invalid("offset", "must not be negative")
    if len(data) > MAX_APPEND_BYTES:
        raise TooLarge("text", f"is too long (at most {MAX_APPEND_BYTES} bytes per request)")
    if replace:
        if offset != (build.trace_start or 0):
            raise Invalid("offset", "must be the start of the runner's output")
        build = await _truncate(context, build)
    written = await _write_part(context, build, data, offset)
    row = await builds.lock_build(context, build.id)
    if row.current_id is not None or row.erased_at is not None:
        raise NotAllowed("id", "The trace is closed, because the build was erased or superseded.")
    if _append_state(row) != _append_state(build):
        # The build finished, or another append was committed, in the meantime.
        erase_after_commit(context, [written.key] if written is not None and written.key is not None else [])
        written = await _write_part(context, row, data, offset)
    if written is not None:
        context.on_commit.append(partial(context.services.trace_feeds.notify, row.id))
        if written.key is not None:
            await context.add(TracePart(build_id=row.id, start=written.start, size=written.size, key=written.key))
        row.trace_size = written.start + written.size + len(written.pending.data)
        row.sealed_trace_end = trace_masking.encrypt_pending(context, written.pending)
    return row


async def _truncate(context: Context, build: tables.Build) -> tables.Build:
    """Delete what the runner sent, and keep the message before it."""
    row = await builds.lock_build(context, build.id)
    size, objects = row.trace_start or 0, context.services.objects
    parts = await context.all(artifacts.parts_of_trace(row.id))
    pieces = [await objects.read(part.key, 0, min(part.size, size - part.start)) for part in parts if part.start < size]
    message = b"".join([*pieces, trace_masking.decrypt_pending(context, row).data])[:size]
    erase_after_commit(context, [part.key for part in parts])
    await context.session.execute(runners.delete_outputs(TracePart, row.id))
    builds.discard_trace(row, size)
    row.sealed_trace_end = None
    if message:
        key = new_key()
        erase_on_rollback(context, key)
        await objects.put_bytes(key, message)
        await context.add(TracePart(build_id=row.id, start=0, size=size, key=key))
    return row


@dataclass(frozen=True, slots=True)
class _WrittenPart:
    """A new part of a trace, whose object is written, and the pending bytes after it.

    `key` is None when all new bytes are pending.
    """

    key: str | None
    start: int
    size: int
    pending: trace_masking.PendingTrace


def _append_state(build: tables.Build) -> tuple[Any, ...]:
    """The state of the build on which the next part depends."""
    return build.trace_size, build.sealed_trace_end, build.sealed_token, build.status in FINISHED


async def _write_part(context: Context, build: tables.Build, data: bytes, offset: int) -> _WrittenPart | None:
    """Write the new bytes of the data as a part; None when all are stored already or the trace is full.

    Raises Conflict.
    """
    max_bytes = context.services.max_trace_bytes
    if build.trace_size >= max_bytes:
        return None
    if offset > build.trace_size:
        raise Conflict("offset", f"The trace has {build.trace_size} bytes; send the bytes from there on.")
    new_data = data[build.trace_size - offset :]
    if not new_data:
        return None
    remaining, notice = max_bytes - build.trace_size, b""
    if len(new_data) > remaining:
        # Cut between characters, and end with a notice that fills the trace.
        new_data = new_data[:remaining].decode(errors="ignore").encode()
        notice = f"\n[The trace is longer than {max_bytes} bytes; the rest was discarded.]\n".encode()
    before = trace_masking.decrypt_pending(context, build)
    final = bool(notice) or build.status in FINISHED
    masker = await trace_masking.create_masker(context, build)
    stored, pending = await masker.feed_piece(before, new_data, final=final)
    stored += notice
    start = build.trace_size - len(before.data)
    if not stored:
        return _WrittenPart(None, start, 0, pending)
    key = new_key()
    erase_on_rollback(context, key)
    await context.services.objects.put_bytes(key, stored)
    return _WrittenPart(key, start, len(stored), pending)


async def read_tail(context: Context, build: tables.Build, last: int) -> list[str]:
    """The last lines of a trace, newest at the end, within its last TAIL_BYTES bytes.

    Raises BadRequest, Unavailable.
    """
    if not 0 <= last <= MAX_TAIL_LINES:
        raise BadRequest(f"The number of trace lines must be between 0 and {MAX_TAIL_LINES}.")
    if last == 0:
        return []
    try:
        try:
            return await _read_tail_of_parts(context, await _tail_loader(context).get(build.id) or [], last)
        except ObjectNotFound:
            # The parts were joined in the meantime.
            return await _read_tail_of_parts(context, (await _fetch_tails(context, [build.id])).get(build.id) or [], last)
    except ObjectNotFound as error:
        log.error("trace object not found", build_id=build.id, error=str(error))
        raise Unavailable("The trace cannot be read: part of it is missing in the object store.") from error


async def _read_tail_of_parts(context: Context, parts: list[TracePart], last: int) -> list[str]:
    """Read the last lines from `parts`, the last parts of the trace in order."""
    objects = context.services.objects
    # Raises if the operation has already exceeded its budget, before any object is read.
    context.count_text()
    found, remaining = 0, TAIL_BYTES
    pieces: list[bytes] = []
    for part in reversed(parts):
        end, lower_bound = part.size, max(0, part.size - remaining)
        while end > lower_bound and found <= last:
            begin = max(lower_bound, end - READ_BYTES)
            piece = await objects.read(part.key, begin, end - begin)
            pieces.append(piece)
            found += piece.count(b"\n")
            remaining -= end - begin
            end = begin
    is_whole = sum(map(len, pieces)) == (parts[-1].start + parts[-1].size if parts else 0)
    lines = b"".join(reversed(pieces)).split(b"\n")
    if not is_whole and len(lines) > 1:
        # The first line may be incomplete.
        lines = lines[1:]
    if lines and not lines[-1]:
        lines.pop()
    formatted_lines = [_format_line(line) for line in lines[-last:]]
    context.count_text(*formatted_lines)
    return formatted_lines


def _format_line(line: bytes) -> str:
    text = line.removesuffix(b"\r").decode(errors="replace").replace("\0", "\ufffd")
    return text if len(text) <= MAX_LINE_LENGTH else text[:MAX_LINE_LENGTH] + "…"


def _tail_loader(context: Context) -> Any:
    async def fetch(ids: list[int]) -> dict[int, list[TracePart]]:
        return await _fetch_tails(context, ids)

    return context.loader("ends of traces", fetch)


async def _fetch_tails(context: Context, ids: list[int]) -> dict[int, list[TracePart]]:
    found: dict[int, list[TracePart]] = {}
    for part in await context.all(artifacts.trace_tails(ids, TAIL_BYTES)):
        found.setdefault(part.build_id, []).append(part)
    return found


async def join_traces(services: Services) -> None:
    """Maintenance job: join the parts of finished builds' traces into one object each."""
    position = services.trace_join_position
    async with session_for(services.database, writing=False) as session:
        found = await session.read(artifacts.traces_to_join(services.clock() - JOIN_DELAY, position.last_id, JOIN_BATCH_SIZE))
    for (build_id,) in found:
        position.last_id = build_id
        await _join_trace(services, build_id)
    if len(found) < JOIN_BATCH_SIZE:
        position.last_id = 0


async def _join_trace(services: Services, build_id: int) -> None:
    async with session_for(services.database, writing=False) as session:
        parts: list[TracePart] = [part for (part,) in await session.read(artifacts.parts_of_trace(build_id))]
    if len(parts) < 2:
        return
    key, size = new_key(), parts[-1].start + parts[-1].size
    async with aclosing(_stream_parts(services, parts)) as pieces:
        try:
            stored = await services.objects.put(key, pieces, size)
        except ObjectNotFound as error:
            log.error("trace could not be joined", build_id=build_id, error=str(error))
            return
    if stored != size:
        # The parts are left as they are, with what they still have at its place.
        log.error("trace could not be joined", build_id=build_id, error=f"its objects have {stored} bytes, not {size}")
        await services.objects.delete(key)
        return
    async with session_for(services.database, writing=True) as session:
        context = Context(services, session, None, "maintenance")
        erase_on_rollback(context, key)
        async with undo_on_failure(context):
            locked = await context.first(statements.for_update(build_id))
            current_parts = await context.all(artifacts.parts_of_trace(build_id)) if locked else []
            if [part.key for part in current_parts] != [part.key for part in parts]:
                # The trace was extended, erased, or joined by another process.
                await session.close()
                await services.objects.delete(key)
                return
            first = current_parts[0]
            await session.execute(artifacts.delete_later_parts(build_id))
            first.key, first.size = key, size
            erase_after_commit(context, [part.key for part in parts])
            await commit_and_notify(context)


async def _stream_parts(services: Services, parts: list[TracePart]) -> AsyncGenerator[bytes, None]:
    for part in parts:
        async with services.objects.open(part.key, 0, part.size) as pieces:
            async for piece in pieces:
                yield piece
