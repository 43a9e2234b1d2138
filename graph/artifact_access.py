"""What the door for artifacts asks of the graph: whether a ticket is good, and to keep what was sent with it.

No operation of the schema could stand for it: a ticket is a credential of its own, and between the two halves lie minutes of upload. The
rules are the graph's all the same (`graph/rules/artifacts.py`).
"""

import asyncio
from collections.abc import AsyncIterable
from dataclasses import dataclass

from sqlalchemy.exc import IntegrityError

from graph.context import Context, Services
from graph.errors import NotFound, TooLarge, Unauthenticated, Unavailable
from graph.rules import artifacts, machines
from graph.rules.artifacts import Permit
from graph.rules.objects import erase_unknown
from graph.transaction import keep, session_for
from storage import tables
from storage.artifacts import TooLong, new_key
from storage.database import Session, is_unavailable

KEEPING_PAUSES = (0.5, 2.0, 5.0)
"""Seconds between the tries to write the row of what was sent, while the database cannot take it."""


@dataclass(frozen=True, slots=True)
class Kept:
    """`size` is in bytes."""

    filename: str
    size: int


class ArtifactAccess:
    """Over the services of this process."""

    def __init__(self, services: Services) -> None:
        self._services = services

    @property
    def limit(self) -> int:
        """The most bytes of an artifact."""
        return self._services.largest_artifact

    @property
    def trace_limit(self) -> int:
        """The most bytes that are kept of a build's trace."""
        return self._services.largest_trace

    async def admit(self, ticket: str, request_id: str) -> Permit:
        """Raises NotFound, Unauthenticated, Forbidden, Conflict, NotAllowed, Unavailable."""
        try:
            permit = artifacts.opened(self._services, ticket)
            async with session_for(self._services.database, writing=False) as session:
                context = await self._context(session, permit, request_id)
                build = await context.rows_by_id(tables.Build).get(permit.build_id)
                if build is None:
                    raise NotFound("Build")
                await artifacts.require_good(context, permit, build)
            return permit
        except Exception as error:
            if is_unavailable(error):
                raise Unavailable from error
            raise

    async def keep(self, permit: Permit, pieces: AsyncIterable[bytes], request_id: str) -> Kept:
        """Stores what is sent and gives it to the build. Raises as `admit`, TooLarge, what `pieces` raises, OSError for a full disk.

        Whatever it raises, nothing was kept, and what the build had is there still.
        """
        key = new_key()
        try:
            size = await self._services.objects.put(key, pieces, self.limit)
        except TooLong as error:
            raise TooLarge(None, f"may have at most {error.limit} bytes") from None
        except ConnectionError as error:
            raise Unavailable from error
        for pause in (*KEEPING_PAUSES, None):
            try:
                return await self._keep(permit, key, size, request_id)
            except Exception as error:
                if pause is not None and is_unavailable(error):
                    await asyncio.sleep(pause)
                    continue
                await erase_unknown(self._services, [key])
                if is_unavailable(error):
                    raise Unavailable from error
                if isinstance(error, IntegrityError):
                    # The build was removed meanwhile.
                    raise NotFound("Build") from error
                raise
        raise AssertionError("the last try returns or raises")

    async def _keep(self, permit: Permit, key: str, size: int, request_id: str) -> Kept:
        async with session_for(self._services.database, writing=True) as session:
            context = await self._context(session, permit, request_id)
            row = await artifacts.keep(context, permit, key, size)
            kept = Kept(row.filename, row.size)
            await keep(context)
            return kept

    async def _context(self, session: Session, permit: Permit, request_id: str) -> Context:
        if permit.digest:
            machine = await machines.holder(session, permit.build_id, permit.digest)
            if machine is None:
                raise Unauthenticated
            return Context(self._services, session, None, request_id, machine_or_none=machine)
        viewer = await session.get(tables.User, permit.user_id) if permit.user_id else None
        if permit.user_id and (viewer is None or viewer.state is not tables.UserState.ACTIVE):
            raise Unauthenticated
        return Context(self._services, session, viewer, request_id)
