"""Uploads of an import, which keep their secrets, so that the links in texts stay valid."""

from sqlmodel import col

from graph.context import Context
from graph.errors import Invalid
from graph.rules.imports.batches import Batch, ItemResult, write_items
from graph.rules.imports.instance_imports import lock_running
from graph.rules.imports.item_kinds import AUTHOR, CREATED_AT, ImportField, ImportOutcome, ItemKind, UniqueKey, key_of, reference
from graph.rules.projects import uploads
from storage import tables
from storage.objects.uploads import SECRET_PATTERN
from storage.tables import ImportKind


def _validate_secret(field: str, value: str) -> str:
    if not SECRET_PATTERN.fullmatch(value):
        raise Invalid(field, "must be 32 hexadecimal digits")
    return value


def _validate_name(field: str, value: str) -> str:
    if value != uploads.sanitize_filename(value):
        raise Invalid(field, "is not the name of an upload")
    return value


async def _prepare(batch: Batch) -> None:
    for item in batch.open_items:
        item.extras["content_digest"] = item.values["content_digest"]


UPLOADS = ItemKind(
    ImportKind.UPLOAD,
    tables.Upload,
    {
        "project_id": reference(ImportKind.PROJECT),
        "author_id": AUTHOR,
        "secret": ImportField(validate=_validate_secret, is_required=True),
        "name": ImportField(validate=_validate_name, is_required=True),
        "size": ImportField(),
        "created_at": CREATED_AT,
    },
    key=key_of("project_id", "secret"),
    unique=(UniqueKey(("secret",), "secret"),),
    reuses_ids=True,
    prepare=_prepare,
)


async def write_upload(context: Context, import_id: int, ticket: str, **item: object) -> ItemResult:
    """Write the row of a received file, and store the file unless it is stored already.

    Raises Invalid and NotAllowed for the import, Unavailable.
    """
    (result,) = await write_items(context, await lock_running(context, import_id), UPLOADS, [item])
    if result.outcome in (ImportOutcome.CREATED, ImportOutcome.UPDATED):
        (row,) = await context.all(tables.all_rows(tables.Upload, col(tables.Upload.id) == result.database_id))
        await uploads.store_received(context, ticket, row.project_id, row.secret)
    return result
