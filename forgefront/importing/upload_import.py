"""Imports the files that texts link to, with their secrets, so that the links stay valid."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime

from forgefront.importing.entity_fields import SourceEntity
from forgefront.importing.import_run import ImportRun
from forgefront.importing.source_errors import SourceSkipped, SourceUnauthorized
from graph.errors import UserError
from graph.rules.projects.uploads import LINK_PATTERN


@dataclass
class UploadImporter:
    """Fetches each linked file of a project once in a run, with the token, from the address that the old server shows to browsers."""

    run: ImportRun
    _seen: set[tuple[str, str]] = field(default_factory=set)

    async def import_links(self, project_id: str, project_path: str, text: str | None, owner: SourceEntity) -> None:
        """Imports the files that a text of `owner` links to; reports those that cannot be read."""
        for secret, name in self._new_links(project_id, text):
            where = f"/{project_path}/uploads/{secret}/{name}"
            count = self.run.report.count("attached files")
            count.read += 1
            created_at = owner.time("created_at")
            if created_at is None:
                continue
            try:
                result = await self.run.uploads.write_upload(
                    self.run.target.import_id,
                    project_id,
                    secret,
                    name,
                    self.run.source.client.stream(where),
                    author_id=owner.reference("author"),
                    created_at=datetime.fromisoformat(created_at),
                )
            except (SourceSkipped, SourceUnauthorized) as error:
                self.run.report.skip("attached files", where, f"{error.reason}: copy it from the old server's disk")
            except UserError as error:
                self.run.report.skip("attached files", where, error.message)
            else:
                self.run.target.record_result("attached files", where, result)

    def _new_links(self, project_id: str, text: str | None) -> Iterator[tuple[str, str]]:
        for match in LINK_PATTERN.finditer(text or ""):
            secret, name = match.groups()
            if (project_id, secret) not in self._seen:
                self._seen.add((project_id, secret))
                yield secret, name
