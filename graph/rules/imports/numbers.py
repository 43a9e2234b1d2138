"""Numbers of imported issues, merge requests and milestones in their projects."""

from graph.errors import Invalid
from graph.rules.imports.batches import Batch
from storage.tables import CounterKind, counters
from storage.tables.base import MAX_ID


def validate_iid(field: str, value: int) -> int:
    """A number in a project. Raises Invalid."""
    if not 1 <= value < MAX_ID:
        raise Invalid(field, "must be greater than 0")
    return value


async def raise_counters(batch: Batch, kind: CounterKind) -> None:
    """Make the next numbers of the projects larger than those of the written items."""
    highest: dict[int, int] = {}
    for item in batch.written_items:
        project_id = item.columns["project_id"]
        highest[project_id] = max(item.columns["iid"], highest.get(project_id, 0))
    rows = [{"project_id": project_id, "kind": kind, "value": value} for project_id, value in sorted(highest.items())]
    if rows:
        await batch.context.session.execute(counters.raise_each(batch.context.services.database.dialect), rows)
