"""Access of the artifact upload endpoint to the graph: authorizes an upload token, and stores the uploaded file.

This is not an operation of the schema, because an upload token is a separate credential, and an upload may take minutes between
authorization and storing. The rules are in `graph/rules/builds/artifacts.py`.
"""

import asyncio
from collections.abc import AsyncIterable
from dataclasses import dataclass

from sqlalchemy.exc import IntegrityError

from graph.context import Context, Services
from graph.errors import NotFound, TooLarge, Unauthenticated, Unavailable
from graph.operations.transaction import commit_and_notify, session_for
from graph.rules.builds import artifacts
from graph.rules.builds.artifacts import UploadGrant
from graph.rules.builds.stored_objects import erase_unreferenced
from graph.rules.runners import runner_tokens
from storage import tables
from storage.database.engine import DatabaseSession
from storage.database.errors import is_unavailable
from storage.objects.object_store import ObjectTooLarge, new_key

RECORD_RETRY_SECONDS = (0.5, 2.0, 5.0)
"""Seconds before each retry to write the row of an uploaded file while the database is unavailable."""


@dataclass(frozen=True, slots=True)
class StoredArtifact:
    """A stored artifact; `size` is in bytes."""

    filename: str
    size: int


class ArtifactAccess:
    """Artifact uploads over the services of this process."""

    def __init__(self, services: Services) -> None:
        self._services = services

    @property
    def max_artifact_bytes(self) -> int:
        """Maximum size of an artifact, in bytes."""
        return self._services.max_artifact_bytes

    @property
    def max_trace_bytes(self) -> int:
        """Maximum size of a build's trace, in bytes."""
        return self._services.max_trace_bytes

    async def authorize_upload(self, token: str, request_id: str) -> UploadGrant:
        """Authorizes an upload token. Raises NotFound, Unauthenticated, Forbidden, Conflict, NotAllowed, Unavailable."""
        try:
            grant = artifacts.decrypt_grant(self._services, token)
            async with session_for(self._services.database, writing=False) as session:
                context = await self._make_context(session, grant, request_id)
                build = await context.rows_by_id(tables.Build).get(grant.build_id)
                if build is None:
                    raise NotFound("Build")
                await artifacts.require_valid_grant(context, grant, build)
            return grant
        except Exception as error:
            if is_unavailable(error):
                raise Unavailable from error
            raise

    async def store(self, grant: UploadGrant, chunks: AsyncIterable[bytes], request_id: str) -> StoredArtifact:
        """Stores an uploaded file and attaches it to the build.

        Raises as `authorize_upload`, TooLarge, the errors of `chunks`, and OSError for a full disk. After any error nothing is stored, and
        an earlier artifact of the build is still there.
        """
        key = new_key()
        try:
            size = await self._services.objects.put(key, chunks, self.max_artifact_bytes)
        except ObjectTooLarge as error:
            raise TooLarge(None, f"may have at most {error.limit} bytes") from None
        except ConnectionError as error:
            raise Unavailable from error
        for pause in (*RECORD_RETRY_SECONDS, None):
            try:
                return await self._record(grant, key, size, request_id)
            except Exception as error:
                if pause is not None and is_unavailable(error):
                    await asyncio.sleep(pause)
                    continue
                await erase_unreferenced(self._services, [key])
                if is_unavailable(error):
                    raise Unavailable from error
                if isinstance(error, IntegrityError):
                    # The build was removed meanwhile.
                    raise NotFound("Build") from error
                raise
        raise AssertionError("the last attempt returns or raises")

    async def _record(self, grant: UploadGrant, key: str, size: int, request_id: str) -> StoredArtifact:
        async with session_for(self._services.database, writing=True) as session:
            context = await self._make_context(session, grant, request_id)
            row = await artifacts.attach_upload(context, grant, key, size)
            stored = StoredArtifact(row.filename, row.size)
            await commit_and_notify(context)
            return stored

    async def _make_context(self, session: DatabaseSession, grant: UploadGrant, request_id: str) -> Context:
        if grant.digest:
            runner_identity = await runner_tokens.find_holder(session, grant.build_id, grant.digest)
            if runner_identity is None:
                raise Unauthenticated
            return Context(self._services, session, None, request_id, runner_identity_or_none=runner_identity)
        viewer = await session.get(tables.User, grant.user_id) if grant.user_id else None
        if grant.user_id and (viewer is None or viewer.state is not tables.UserState.ACTIVE):
            raise Unauthenticated
        return Context(self._services, session, viewer, request_id)
