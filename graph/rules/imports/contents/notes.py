"""Notes of an import, on issues, merge requests and snippets."""

from typing import Any

from sqlalchemy import select
from sqlmodel import col

from graph.context import Context
from graph.errors import Invalid
from graph.rules import validation
from graph.rules.imports.batches import Batch, UnknownReference
from graph.rules.imports.contents import note_sources
from graph.rules.imports.contents.issuables import check_same_project, skip_confidential
from graph.rules.imports.contents.note_sources import ResolvedSource
from graph.rules.imports.item_kinds import AUTHOR, TIMES, ImportField, Item, ItemKind, reference
from graph.rules.notes.notes import NOTEABLES, validate_body
from storage import tables
from storage.tables import ImportKind

MAX_SOURCE_LENGTH = 80
"""Characters of `Note.source`."""


async def _prepare_notes(batch: Batch) -> None:
    await skip_confidential(batch)
    for kind in NOTEABLES:
        await check_same_project(batch, kind.foreign_key, kind.table, is_required=True)
    for item in batch.open_items:
        item.columns |= {"source_project_id": None, "source": None}
        if sum(item.columns[kind.foreign_key] is not None for kind in NOTEABLES) != 1:
            item.skip(Invalid("issueId", "must be given, or mergeRequestId, or snippetId, and only one of them"))


async def _find_sources(batch: Batch) -> None:
    """Find the objects that system notes mention, or that closed their noteable."""
    parsed = {
        item.key: (int(item.columns["project_id"]), found)
        for item in batch.open_items
        if item.columns["system"] and (found := note_sources.parse_reference(item.columns["body"])) is not None
    }
    sources = await note_sources.resolve(batch.context, parsed.values())
    named = list[tuple[Item, ResolvedSource]]()
    for item in batch.open_items:
        if item.key in parsed:
            source = sources.get(parsed[item.key])
            if source is None:
                item.skip(UnknownReference("body", "names a project that this instance does not have"))
            else:
                named.append((item, source))
    owners = await _find_owners(batch.context, named)
    for item, source in named:
        for key in _source_keys(item, source):
            owner_key = (source.project_id, key, item.columns["issue_id"], item.columns["merge_request_id"])
            if owners.setdefault(owner_key, item.key) in (item.key, item.row_id):
                item.columns |= {"source_project_id": source.project_id, "source": key}
                break


def _source_keys(item: Item, source: ResolvedSource) -> list[str]:
    """The values of `Note.source` that the note may have, best first.

    A mention is noted once, but the source may have noted it twice; what closes an object may do so again.
    """
    unique = [f"{source.key}:{round(item.initial['created_at'].timestamp() * 1_000_000)}", f"{source.key}:{item.key}"[:MAX_SOURCE_LENGTH]]
    return [source.key, *unique] if source.mentioned else unique


async def _find_owners(context: Context, named: list[tuple[Item, ResolvedSource]]) -> dict[tuple[Any, ...], Any]:
    """The ids of the notes that have one of these sources, by (project, source, issue, merge request)."""
    row = tables.Note
    if not named:
        return {}
    statement: Any = select(col(row.id), col(row.source_project_id), col(row.source), col(row.issue_id), col(row.merge_request_id))
    keys = {key for item, source in named for key in _source_keys(item, source)}
    found = await context.tuples(
        statement.where(col(row.source_project_id).in_({source.project_id for _, source in named}), col(row.source).in_(keys))
    )
    return {tuple(values): key for key, *values in found}


NOTES = ItemKind(
    ImportKind.NOTE,
    tables.Note,
    {
        "project_id": reference(ImportKind.PROJECT),
        "issue_id": reference(ImportKind.ISSUE),
        "merge_request_id": reference(ImportKind.MERGE_REQUEST),
        "snippet_id": reference(ImportKind.SNIPPET),
        "author_id": AUTHOR,
        "body": ImportField(validate=lambda field, value: validate_body(value), is_required=True),
        "attachment": ImportField(validate=validation.validate_title),
        "system": ImportField(default=False),
        "upvote": ImportField(default=False),
        "downvote": ImportField(default=False),
        **TIMES,
    },
    prepare=_prepare_notes,
    match=_find_sources,
)
