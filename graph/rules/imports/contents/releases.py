"""Releases of an import: one for each tag."""

from graph.rules import validation
from graph.rules.git import refs
from graph.rules.imports.batches import Batch, UnknownReference
from graph.rules.imports.contents.snippets import validate_content
from graph.rules.imports.item_kinds import TIMES, ImportField, ItemKind, UniqueKey, key_of, reference
from storage import tables
from storage.git.refs.ref_names import TAGS
from storage.tables import ImportKind


async def _prepare(batch: Batch) -> None:
    names = {(item.columns["project_id"], TAGS + item.columns["tag"]) for item in batch.open_items}
    found = await refs.current_of_projects(batch.context, names)
    for item in batch.open_items:
        if (item.columns["project_id"], TAGS + item.columns["tag"]) not in found:
            item.skip(UnknownReference("tagName", "is not a tag of the project"))


RELEASES = ItemKind(
    ImportKind.RELEASE,
    tables.Release,
    {
        "project_id": reference(ImportKind.PROJECT),
        "tag_name": ImportField(column="tag", validate=validation.validate_title, is_required=True),
        "description": ImportField(validate=validate_content, is_required=True),
        **TIMES,
    },
    key=key_of("project_id", "tag_name"),
    unique=(UniqueKey(("project_id", "tag"), "tagName"),),
    adopts=True,
    prepare=_prepare,
)
