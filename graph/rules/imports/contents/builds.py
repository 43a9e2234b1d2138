"""Builds of an import. No runner gets those that are unfinished: their commands are unknown, and a later import brings their end."""

from graph.errors import Invalid
from graph.rules import settings, validation
from graph.rules.builds.commit_statuses import validate_status
from graph.rules.builds.external_builds import validate_coverage
from graph.rules.imports import branch_health
from graph.rules.imports.batches import Batch
from graph.rules.imports.contents.commit_comments import validate_sha
from graph.rules.imports.contents.commit_statuses import validate_short
from graph.rules.imports.contents.issuables import validate_text
from graph.rules.imports.item_kinds import ImportField, ItemKind, reference
from storage import tables
from storage.tables import ImportKind, RunWhen

MAX_STAGE_INDEX = 10_000


def _validate_stage_index(field: str, value: int) -> int:
    if not 0 <= value <= MAX_STAGE_INDEX:
        raise Invalid(field, f"must be between 0 and {MAX_STAGE_INDEX}")
    return value


async def _prepare(batch: Batch) -> None:
    for item in batch.open_items:
        columns = item.columns
        columns["updated_at"] = columns["erased_at"] or columns["finished_at"] or columns["started_at"] or columns["created_at"]


BUILDS = ItemKind(
    ImportKind.BUILD,
    tables.Build,
    {
        "project_id": reference(ImportKind.PROJECT),
        "sha": ImportField(validate=validate_sha, is_required=True),
        "ref": ImportField(validate=validation.validate_title, is_required=True),
        "tag": ImportField(default=False),
        "name": ImportField(validate=validation.validate_title, is_required=True),
        "stage": ImportField(default="test", validate=validate_short),
        "stage_index": ImportField(default=0, validate=_validate_stage_index),
        "status": ImportField(validate=validate_status),
        "allow_failure": ImportField(default=False),
        "run_when": ImportField(default=RunWhen.ON_SUCCESS),
        "user_id": reference(ImportKind.USER, is_required=False),
        "runner_id": reference(ImportKind.RUNNER, is_required=False),
        "coverage": ImportField(validate=lambda field, value: validate_coverage(value)),
        "description": ImportField(validate=validate_text),
        "target_url": ImportField(validate=settings.validate_link),
        "created_at": ImportField(),
        "started_at": ImportField(),
        "finished_at": ImportField(),
        "erased_at": ImportField(),
    },
    prepare=_prepare,
    write_related=branch_health.record_health,
)
