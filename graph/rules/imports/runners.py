"""Runners of an import, with the projects that they serve."""

from sqlalchemy import delete, insert
from sqlmodel import col

from graph.rules import validation
from graph.rules.imports.batches import Batch, UnknownReference, find_targets
from graph.rules.imports.contents.commit_statuses import validate_short
from graph.rules.imports.item_kinds import TIMES, ImportField, ItemKind, UniqueKey
from graph.rules.runners.runner_administration import validate_description, validate_tags
from storage import tables
from storage.secrets import digest_token
from storage.tables import ImportKind

MAX_TOKEN_LENGTH = 255


async def _prepare(batch: Batch) -> None:
    source_ids = {str(each) for item in batch.open_items for each in item.values.get("project_ids") or ()}
    found = await find_targets(batch, ImportKind.PROJECT, source_ids) if source_ids else {}
    for item in batch.open_items:
        named = dict.fromkeys(map(str, item.values.get("project_ids") or ()))
        item.extras["projects"] = sorted(found[each] for each in named if each in found)
        item.errors += [UnknownReference("projectIds", f"{each} was not imported") for each in named if each not in found]
        # Without one in the source, each run derives the same.
        token = item.secrets.get("token") or batch.context.services.cipher.derive(f"imported runner {batch.running.id} {item.key}")
        item.secrets["token"], item.columns["token_digest"] = token, digest_token(token)


async def _write_related(batch: Batch) -> None:
    """Assign the written runners to their projects."""
    link, session = tables.RunnerProject, batch.context.session
    if batch.written_items:
        await session.execute(delete(link).where(col(link.runner_id).in_([item.row_id for item in batch.written_items])))
    rows = [{"runner_id": item.row_id, "project_id": key} for item in batch.written_items for key in item.extras["projects"]]
    if rows:
        await session.execute(insert(link), rows)


RUNNERS = ItemKind(
    ImportKind.RUNNER,
    tables.Runner,
    {
        "token": ImportField(
            validate=lambda field, value: validation.validate_string(field, value, max_length=MAX_TOKEN_LENGTH) or None, is_sealed=True
        ),
        "description": ImportField(validate=lambda field, value: validate_description(value), is_required=True),
        "active": ImportField(default=True),
        "shared": ImportField(default=False),
        "tags": ImportField(default=[], validate=lambda field, value: validate_tags(value)),
        "run_untagged": ImportField(default=True),
        "name": ImportField(validate=validate_short),
        "version": ImportField(validate=validate_short),
        "revision": ImportField(validate=validate_short),
        "platform": ImportField(validate=validate_short),
        "architecture": ImportField(validate=validate_short),
        "contacted_at": ImportField(),
        **TIMES,
    },
    unique=(UniqueKey(("token_digest",), "token"),),
    adopts=True,
    prepare=_prepare,
    write_related=_write_related,
)
