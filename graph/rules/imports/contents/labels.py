"""Imported labels and milestones."""

from graph.rules import validation
from graph.rules.imports.batches import Batch
from graph.rules.imports.item_kinds import TIMES, ImportField, ItemKind, UniqueKey, key_of, reference
from graph.rules.imports.numbers import raise_counters, validate_iid
from graph.rules.issues import labels
from storage import tables
from storage.tables import CounterKind, ImportKind, MilestoneState


def _validate_color(field: str, value: str) -> str:
    """A color; newer servers also have those of three digits."""
    digits = value.strip().removeprefix("#")
    return labels.validate_color(field, f"#{''.join(digit * 2 for digit in digits)}" if len(digits) == 3 else value)


LABELS = ItemKind(
    kind=ImportKind.LABEL,
    table=tables.Label,
    fields={
        "project_id": reference(ImportKind.PROJECT),
        "name": ImportField(column="title", validate=labels.validate_name, is_required=True),
        "color": ImportField(validate=_validate_color, is_required=True),
        "description": ImportField(validate=labels.validate_description),
        "template": ImportField(default=False),
        **TIMES,
    },
    key=key_of("project_id", "name"),
    unique=(UniqueKey(("project_id", "title"), "name"),),
    adopts=True,
)


async def _raise_counters(batch: Batch) -> None:
    await raise_counters(batch, CounterKind.MILESTONE)


MILESTONES = ItemKind(
    kind=ImportKind.MILESTONE,
    table=tables.Milestone,
    fields={
        "project_id": reference(ImportKind.PROJECT),
        "iid": ImportField(validate=validate_iid, is_required=True),
        "title": ImportField(validate=validation.validate_title, is_required=True),
        "description": ImportField(default="", validate=validation.validate_string),
        "due_date": ImportField(),
        "state": ImportField(default=MilestoneState.ACTIVE),
        **TIMES,
    },
    unique=(UniqueKey(("project_id", "iid"), "iid"), UniqueKey(("project_id", "title"), "title")),
    write_related=_raise_counters,
)
