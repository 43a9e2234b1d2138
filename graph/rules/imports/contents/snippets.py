"""Snippets of an import."""

from graph.errors import Required
from graph.rules import validation
from graph.rules.imports.batches import Batch
from graph.rules.imports.item_kinds import AUTHOR, TIMES, ImportField, ItemKind, reference
from storage import tables
from storage.tables import ImportKind


def validate_content(field: str, value: str) -> str:
    """A long string that is not blank. Raises Required, Invalid."""
    if not value.strip():
        raise Required(field)
    return validation.validate_string(field, value)


async def _prepare(batch: Batch) -> None:
    for item in batch.open_items:
        item.columns["visibility_level"] = int(item.values["visibility"])


SNIPPETS = ItemKind(
    ImportKind.SNIPPET,
    tables.Snippet,
    {
        "project_id": reference(ImportKind.PROJECT),
        "author_id": AUTHOR,
        "title": ImportField(validate=validation.validate_title, is_required=True),
        "file_name": ImportField(validate=validation.validate_title, is_required=True),
        "content": ImportField(validate=validate_content, is_required=True),
        "expires_at": ImportField(),
        **TIMES,
    },
    prepare=_prepare,
)
