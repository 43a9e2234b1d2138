"""Releases of an import: one for each tag."""

from collections.abc import Mapping
from typing import Any

from graph.errors import UserError
from graph.rules import validation
from graph.rules.git import refs
from graph.rules.imports.batches import Batch, UnknownReference
from graph.rules.imports.item_kinds import TIMES, ImportField, ItemKind, UniqueKey, reference
from graph.rules.imports.snippets import validate_content
from storage import tables
from storage.git.ref_names import TAGS
from storage.tables import ImportKind


def _key(values: Mapping[str, Any]) -> str:
    return f"{values['project_id']}/{values['tag_name']}"


async def _prepare(batch: Batch) -> None:
    for item in batch.open_items:
        try:
            item.columns["tag"] = validation.validate_title("tagName", item.values["tag_name"])
        except UserError as error:
            item.skip(error)
    wanted = {(item.columns["project_id"], TAGS + item.columns["tag"]) for item in batch.open_items}
    found = await refs.current_of_projects(batch.context, wanted)
    for item in batch.open_items:
        if (item.columns["project_id"], TAGS + item.columns["tag"]) not in found:
            item.skip(UnknownReference("tagName", "is not a tag of the project"))


RELEASES = ItemKind(
    ImportKind.RELEASE,
    tables.Release,
    {
        "project_id": reference(ImportKind.PROJECT),
        "description": ImportField(validate=validate_content, is_required=True),
        **TIMES,
    },
    key=_key,
    unique=(UniqueKey(("project_id", "tag"), "tagName"),),
    adopts=True,
    prepare=_prepare,
)
