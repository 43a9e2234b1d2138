"""Commit statuses of an import."""

from graph.rules import settings, validation
from graph.rules.builds.commit_statuses import validate_name, validate_ref
from graph.rules.imports import branch_health
from graph.rules.imports.contents.commit_comments import validate_sha
from graph.rules.imports.contents.issuables import validate_text
from graph.rules.imports.item_kinds import CREATED_AT, ImportField, ItemKind, reference
from storage import tables
from storage.tables import ImportKind


def validate_short(field: str, value: str) -> str:
    """A name that fits its column. Raises Invalid."""
    return validation.validate_string(field, value, max_length=validation.MAX_NAME_LENGTH)


COMMIT_STATUSES = ItemKind(
    ImportKind.COMMIT_STATUS,
    tables.CommitStatus,
    {
        "project_id": reference(ImportKind.PROJECT),
        "sha": ImportField(validate=validate_sha, is_required=True),
        "ref": ImportField(validate=lambda field, value: validate_ref(value)),
        "name": ImportField(validate=lambda field, value: validate_name(value), is_required=True),
        "stage": ImportField(default="external", validate=validate_short),
        "status": ImportField(),
        "allow_failure": ImportField(default=False),
        "description": ImportField(validate=validate_text),
        "target_url": ImportField(validate=settings.validate_link),
        "author_id": reference(ImportKind.USER, is_required=False),
        "created_at": CREATED_AT,
        "started_at": ImportField(),
        "finished_at": ImportField(),
    },
    write_related=branch_health.record_health,
)
