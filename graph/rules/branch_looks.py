"""Asks for looks at branches whose health may have changed; `graph/rules/looking.py` takes them."""

from collections.abc import Iterable

from graph.context import Context
from storage.tables import branch_looks


async def ask(context: Context, project_id: int, looks: Iterable[tuple[str | None, str | None]]) -> None:
    """Has branches looked at, by their name or by the id of their newest commit, once the change is kept: one statement."""
    rows = [{"project_id": project_id, "name": name, "sha": sha} for name, sha in dict.fromkeys(looks)]
    if rows:
        await context.session.execute(branch_looks.ask(), rows)
        context.after_commit.append(context.services.upkeep.wake)
