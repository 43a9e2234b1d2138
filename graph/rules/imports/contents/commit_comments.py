"""Comments on commits of an import. The source may show no ids of them: their fields identify them."""

import hashlib
from collections.abc import Mapping
from typing import Any

import orjson

from graph.errors import Invalid
from graph.rules import validation
from graph.rules.imports.batches import Batch
from graph.rules.imports.contents.snippets import validate_content
from graph.rules.imports.item_kinds import AUTHOR, CREATED_AT, ImportField, ItemKind, reference
from graph.rules.imports.numbers import validate_iid
from storage import tables
from storage.git.refs.ref_names import FULL_ID
from storage.tables import ImportKind, LineType

IDENTIFYING_FIELDS = ("author_id", "created_at", "path", "line", "note")


def validate_sha(field: str, value: str) -> str:
    """The full id of a commit, which need not be in the repository. Raises Invalid."""
    oid = value.strip().lower()
    if not FULL_ID.fullmatch(oid):
        raise Invalid(field, "must be the full ID of a commit")
    return oid


def _key(values: Mapping[str, Any]) -> str:
    contents = orjson.dumps([values.get(name) for name in IDENTIFYING_FIELDS], default=str, option=orjson.OPT_UTC_Z)
    return f"{values['project_id']}/{values['sha']}/{hashlib.sha256(contents).hexdigest()}"


async def _prepare(batch: Batch) -> None:
    for item in batch.open_items:
        columns = item.columns
        if columns["path"] is None or columns["line"] is None:
            columns["path"] = columns["line"] = columns["line_type"] = None
        elif columns["line_type"] is None:
            columns["line_type"] = LineType.NEW


COMMIT_COMMENTS = ItemKind(
    ImportKind.COMMIT_COMMENT,
    tables.CommitComment,
    {
        "project_id": reference(ImportKind.PROJECT),
        "sha": ImportField(validate=validate_sha, is_required=True),
        "author_id": AUTHOR,
        "note": ImportField(validate=validate_content, is_required=True),
        "path": ImportField(validate=validation.validate_string),
        "line": ImportField(validate=validate_iid),
        "line_type": ImportField(),
        "created_at": CREATED_AT,
    },
    key=_key,
    prepare=_prepare,
)
