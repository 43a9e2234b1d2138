"""Imports the notes of issues, merge requests and snippets, after all of these: a system note mentions objects of any project."""

from dataclasses import dataclass

from forgefront.importing import content_mapping
from forgefront.importing.account_import import AccountImporter
from forgefront.importing.entity_fields import InvalidEntity
from forgefront.importing.import_run import CollectionState, ImportRun, for_each
from forgefront.importing.import_target import BatchWriter
from forgefront.importing.project_import import ProjectWork
from forgefront.importing.source_routes import ApiVersion
from forgefront.importing.upload_import import UploadImporter


@dataclass(frozen=True, slots=True)
class NoteParent:
    """A kind of objects with notes: the route of the notes, its parameter, and the field of the input."""

    kind: str
    route: str
    parameter: str
    field: str


PARENTS = (
    NoteParent("issues", "issue_notes", "issue", "issueId"),
    NoteParent("merge requests", "merge_request_notes", "merge_request", "mergeRequestId"),
    NoteParent("snippets", "snippet_notes", "snippet", "snippetId"),
)


@dataclass
class NoteImporter:
    """Reads the notes of what changed, a few parents at once. The marks of a project are stored when all its notes are written."""

    run: ImportRun
    accounts: AccountImporter
    uploads: UploadImporter

    async def import_notes(self, work: ProjectWork) -> None:
        for parent in PARENTS:
            writer, state = BatchWriter(self.run.target, "notes"), CollectionState()
            numbers = dict(work.list_changed(parent.kind))

            async def read_notes(number: tuple[int, int], parent: NoteParent = parent, writer: BatchWriter = writer) -> None:
                await self._read_notes(work, parent, number, writer, state)  # noqa: B023 - runs in this step only

            await for_each(numbers.items(), read_notes, parallel=self.run.parallel)
            await writer.flush()
            if not state.is_complete or writer.retry:
                work.marks.pop(work.mark_name(parent.kind), None)
                work.marks.pop(work.mark_name("events"), None)
        for name, value in work.marks.items():
            await self.run.target.set_mark(name, value)

    async def _read_notes(
        self, work: ProjectWork, parent: NoteParent, number: tuple[int, int], writer: BatchWriter, state: CollectionState
    ) -> None:
        parent_id, iid = number
        is_v4 = self.run.source.api is ApiVersion.V4
        path = self.run.source.path(
            parent.route, project=work.id, **{parent.parameter: iid if is_v4 and parent.kind != "snippets" else parent_id}
        )
        own = CollectionState()
        async for note in self.run.read("notes", path, state=own):
            where = f"{path}/{note.id or '?'}"
            await self.accounts.ensure_users([note.entity("author")])
            try:
                await writer.add(where, content_mapping.map_note(work.id, parent.field, str(parent_id), note))
            except InvalidEntity as error:
                self.run.report.skip("notes", where, str(error))
            if not content_mapping.is_confidential(note):
                await self.uploads.import_links(work.id, work.path, note.text("body"), note)
        # Not `is_short`: notes that the caller may not see are counted, and not listed.
        state.has_failed |= own.has_failed
