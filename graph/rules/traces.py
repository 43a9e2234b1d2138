"""Traces: what a build printed, as stretches that were appended one after the other.

A writer says where it thinks the trace ends, so that what is sent twice is kept once. Each stretch is an object, whole before its row is
written; a build that has ended gets one object for all of them.
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import structlog

from graph.context import Context, Services
from graph.errors import BadRequest, Conflict, Invalid, NotAllowed, TooLarge, Unavailable
from graph.rules import builds, trace_masking
from graph.rules.objects import erase_later, take_back_object
from graph.transaction import keep, session_for
from storage import tables
from storage.artifacts import NoObject, new_key
from storage.tables import artifacts
from storage.tables import builds as statements
from storage.tables.artifacts import TracePart
from storage.tables.commit_statuses import FINISHED

MOST_AT_ONCE = 2**20
"""Bytes of one append."""
TAIL = 2**18
"""Bytes at the end of a trace among which its last lines are looked for."""
MOST_LINES = 1000
LONGEST_LINE = 4000
"""Characters; what a line has beyond is left out where it is shown."""
STEP = 2**15
"""Bytes read at once, from the end on."""
JOINED_AFTER = timedelta(seconds=60)
JOINED_AT_ONCE = 20

log = structlog.get_logger("graph")


async def append(context: Context, build: tables.Build, text: str, offset: int) -> tables.Build:
    """Adds to the trace what it does not have yet of a text that begins at the byte `offset`.

    The object is written before the transaction begins, from what `build` said then, with secrets masked. Raises Conflict where there is a
    gap, TooLarge, Invalid, NotAllowed for an erased or earlier run.
    """
    data = text.encode()
    if offset < 0:
        raise Invalid("offset", "must not be negative")
    if len(data) > MOST_AT_ONCE:
        raise TooLarge("text", f"is too long (at most {MOST_AT_ONCE} bytes at once)")
    written = await _write(context, build, data, offset)
    row = await builds.hold(context, build.id)
    if row.current_id is not None or row.erased_at is not None:
        raise NotAllowed("id", "Its trace is closed.")
    if _state_of(row) != _state_of(build):
        # Another append, or the end of the build, came between.
        erase_later(context, [written.key] if written is not None and written.key is not None else [])
        written = await _write(context, row, data, offset)
    if written is not None:
        if written.key is not None:
            await context.add(TracePart(build_id=row.id, start=written.start, size=written.size, key=written.key))
        row.trace_size = written.start + written.size + len(written.pending.text)
        row.sealed_trace_end = trace_masking.sealed(context, written.pending)
    return row


@dataclass(frozen=True, slots=True)
class _Written:
    """A new part of a trace, whose object is written, and the text that is pending behind it. Without a key all new text is pending."""

    key: str | None
    start: int
    size: int
    pending: trace_masking.PendingText


def _state_of(build: tables.Build) -> tuple[Any, ...]:
    """What the next part of a trace depends on."""
    return build.trace_size, build.sealed_trace_end, build.sealed_token, build.status in FINISHED


async def _write(context: Context, build: tables.Build, data: bytes, offset: int) -> _Written | None:
    """The part with what of the data is new; None where all is known, or the trace is full. Raises Conflict."""
    most = context.services.largest_trace
    if build.trace_size >= most:
        return None
    if offset > build.trace_size:
        raise Conflict("offset", f"The trace has {build.trace_size} bytes so far.")
    news = data[build.trace_size - offset :]
    if not news:
        return None
    room, notice = most - build.trace_size, b""
    if len(news) > room:
        # Whole characters, and a line that makes the trace full.
        news = news[:room].decode(errors="ignore").encode()
        notice = f"\n[The trace is longer than {most} bytes; the rest was not kept.]\n".encode()
    before = trace_masking.pending_of(context, build)
    final = bool(notice) or build.status in FINISHED
    stored, pending = trace_masking.masker_of(context, build).feed(before, news, final=final)
    stored += notice
    start = build.trace_size - len(before.text)
    if not stored:
        return _Written(None, start, 0, pending)
    key = new_key()
    take_back_object(context, key)
    await context.services.objects.put_bytes(key, stored)
    return _Written(key, start, len(stored), pending)


async def tail(context: Context, build: tables.Build, last: int) -> list[str]:
    """The last lines, the newest at the end: those that stand among the last TAIL bytes. Raises BadRequest, Unavailable."""
    if not 0 <= last <= MOST_LINES:
        raise BadRequest(f"A trace is asked for 0 to {MOST_LINES} of its last lines.")
    if last == 0:
        return []
    try:
        try:
            return await _tail(context, await _ends(context).get(build.id) or [], last)
        except NoObject:
            # They were joined meanwhile.
            return await _tail(context, (await _fetch_ends(context, [build.id])).get(build.id) or [], last)
    except NoObject as error:
        log.error("trace lost", build_id=build.id, error=str(error))
        raise Unavailable("The trace cannot be read.") from error


async def _tail(context: Context, parts: list[TracePart], last: int) -> list[str]:
    """`parts` are the last ones, in order."""
    objects = context.services.objects
    found, room = 0, TAIL
    pieces: list[bytes] = []
    for part in reversed(parts):
        upto, least = part.size, max(0, part.size - room)
        while upto > least and found <= last:
            begin = max(least, upto - STEP)
            piece = await objects.read(part.key, begin, upto - begin)
            pieces.append(piece)
            found += piece.count(b"\n")
            room -= upto - begin
            upto = begin
    begins = sum(map(len, pieces)) == (parts[-1].start + parts[-1].size if parts else 0)
    lines = b"".join(reversed(pieces)).split(b"\n")
    if not begins and len(lines) > 1:
        # The first one is the end of a line, or all of it: nobody knows.
        lines = lines[1:]
    if lines and not lines[-1]:
        lines.pop()
    return [_shown(line) for line in lines[-last:]]


def _shown(line: bytes) -> str:
    text = line.removesuffix(b"\r").decode(errors="replace").replace("\0", "\ufffd")
    return text if len(text) <= LONGEST_LINE else text[:LONGEST_LINE] + "…"


def _ends(context: Context) -> Any:
    async def fetch(ids: list[int]) -> dict[int, list[TracePart]]:
        return await _fetch_ends(context, ids)

    return context.loader("ends of traces", fetch)


async def _fetch_ends(context: Context, ids: list[int]) -> dict[int, list[TracePart]]:
    found: dict[int, list[TracePart]] = {}
    for part in await context.all(artifacts.ends_of_traces(ids, TAIL)):
        found.setdefault(part.build_id, []).append(part)
    return found


async def join(services: Services) -> None:
    """A chore: gives each build that has ended one object for its whole trace."""
    async with session_for(services.database, writing=False) as session:
        before = services.clock() - JOINED_AFTER
        waiting = [key for (key,) in await session.read(artifacts.traces_to_join(before, JOINED_AT_ONCE))]
    for build_id in waiting:
        await _join(services, build_id)


async def _join(services: Services, build_id: int) -> None:
    async with session_for(services.database, writing=False) as session:
        parts: list[TracePart] = [part for (part,) in await session.read(artifacts.parts_of_trace(build_id))]
    if len(parts) < 2:
        return
    key, size = new_key(), parts[-1].start + parts[-1].size
    async with aclosing(_all_of(services, parts)) as pieces:
        try:
            await services.objects.put(key, pieces, size)
        except NoObject as error:
            log.error("trace not joined", build_id=build_id, error=str(error))
            return
    async with session_for(services.database, writing=True) as session:
        context = Context(services, session, None, "upkeep")
        held = await context.first(statements.held(build_id))
        now = await context.all(artifacts.parts_of_trace(build_id)) if held else []
        if [part.key for part in now] != [part.key for part in parts]:
            # It was appended to, erased, or joined by another process.
            await session.close()
            await services.objects.erase(key)
            return
        take_back_object(context, key)
        first = now[0]
        await session.execute(artifacts.forget_later_parts(build_id))
        first.key, first.size = key, size
        erase_later(context, [part.key for part in parts])
        await keep(context)


async def _all_of(services: Services, parts: list[TracePart]) -> AsyncGenerator[bytes, None]:
    for part in parts:
        async with services.objects.open(part.key, 0, part.size) as pieces:
            async for piece in pieces:
                yield piece
