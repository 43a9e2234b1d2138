"""What all mutations that import items share."""

from collections.abc import Sequence
from typing import Any

import strawberry

from graph.context import Info
from graph.fields.declarations import column
from graph.fields.mutations import ErrorCode
from graph.rules.imports import instance_imports
from graph.rules.imports.batches import ItemResult, write_items
from graph.rules.imports.item_kinds import ImportOutcome as Outcome
from graph.rules.imports.item_kinds import ItemKind
from graph.types.inputs import sent_values
from storage import tables

ImportOutcome = strawberry.enum(Outcome, name="ImportOutcome", description="What became of an imported item.")
ImportKind = strawberry.enum(tables.ImportKind, name="ImportKind", description="A kind of imported items.")


@strawberry.type(description="Why an item was skipped, or an optional field of it left out.")
class ImportItemError:
    field: str | None = column(description="Field of the item; null if the error concerns the whole item.")
    message: str = column(description="Human-readable error message.")
    code: ErrorCode = column(description="Machine-readable error code.")  # type: ignore[valid-type]


@strawberry.type(description="What became of an imported item.")
class ImportItemResult:
    source_id: str = column(description="ID of the item in the source or, if it has none there, what identifies it.")
    database_id: int | None = column(description="v3 ID of the row that the item is; null if it was skipped.")
    outcome: ImportOutcome = column(description="What became of it.")  # type: ignore[valid-type]
    errors: list[ImportItemError] = column(
        description="Why it was skipped; with another outcome, the optional fields that were left out, which the next run tries again."
    )


@strawberry.input
class ImportInput:
    import_id: int = strawberry.field(description="ID of the running import, from `beginImport`.")


RESULTS: dict[str, Any] = {
    "entity": "results",
    "returns": list[ImportItemResult],
    "entity_description": "What became of each item, in the order of the items; null if the batch was refused.",
}
"""The payload of a mutation that imports items."""


def source_id(description: str = "ID in the source; with kept IDs also that of the row.") -> Any:
    return strawberry.field(description=description)


async def write_inputs(info: Info, kind: ItemKind, import_id: int, items: Sequence[Any]) -> list[ItemResult]:
    """Write the inputs of a batch to the running import. Raises Forbidden, LimitExceeded, Invalid, NotAllowed."""
    running = await instance_imports.lock_for_items(info.context, import_id, items)
    return await write_items(info.context, running, kind, [sent_values(each) for each in items])
