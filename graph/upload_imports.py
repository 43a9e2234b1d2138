"""Access of an importing program to the uploads of the projects that it has imported.

This is not an operation of the schema, because files are streamed. The rules are in `graph/rules/imports/contents/uploads.py`.
"""

import hashlib
from collections.abc import AsyncIterable, Mapping
from datetime import datetime

from graph.context import Context, Services
from graph.errors import TooLarge
from graph.operations.transaction import commit_and_notify, session_for, undo_on_failure
from graph.rules.imports.batches import ItemResult
from graph.rules.imports.contents import uploads
from graph.rules.projects.uploads import load_max_bytes


class UploadImports:
    """Writes uploads of imported projects over the services of this process."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def write_upload(
        self,
        import_id: int,
        project_id: str,
        secret: str,
        name: str,
        content: AsyncIterable[bytes],
        *,
        author_id: str | None,
        created_at: datetime,
    ) -> ItemResult:
        """Writes the file that texts of a project link to as `/uploads/SECRET/NAME`. Ids are those of the source.

        One that is larger than an upload may be is skipped. Raises Invalid and NotAllowed for the import, Unavailable, OSError.
        """
        async with session_for(self._services.database, writing=False) as session:
            max_bytes = await load_max_bytes(Context(self._services, session, None, "import"))
        received, content_hash = self._services.uploads.receive(), hashlib.sha256()
        try:
            async for chunk in content:
                if received.size + len(chunk) > max_bytes:
                    return ItemResult.skipped(f"{project_id}/{secret}", TooLarge("content", f"may have at most {max_bytes} bytes"))
                content_hash.update(chunk)
                await received.write(chunk)
            await received.finish()
            item = {
                "project_id": project_id,
                "author_id": author_id,
                "secret": secret,
                "name": name,
                "size": received.size,
                "content_digest": content_hash.hexdigest(),
                "created_at": created_at,
            }
            return await self._write(import_id, received.ticket, item)
        finally:
            await received.discard()

    async def _write(self, import_id: int, ticket: str, item: Mapping[str, object]) -> ItemResult:
        async with session_for(self._services.database, writing=True) as session:
            context = Context(self._services, session, None, "import")
            async with undo_on_failure(context):
                result = await uploads.write_upload(context, import_id, ticket, **item)
                await commit_and_notify(context)
            return result
