"""Looks at branches whose health may have changed, and tells those who follow them where it has, or where the head is another one.

Whatever may change a health (a check, a head) leaves a row of `health_checks_due` in its own transaction. The chore takes what it finds,
and compares each branch with what was told of it last, under a lock of the branch; so two processes never tell the same, and since every
change leaves a row of its own, what is told last is how the branch is. Branches that somebody else holds are left for a moment: the
chore waits for nobody while others may wait for it. Rows of branches that are gone go.
"""

import asyncio
from collections.abc import Collection

from graph.context import Context, Services
from graph.operations.transaction import commit_and_notify, session_for
from graph.rules.events import change_records
from graph.rules.git import branch_health
from storage.tables import branches, health_checks_due, projects

BATCH_SIZE = 500
"""Rows that one round takes."""
BRANCHES_PER_TRANSACTION = 50
"""Branches that are held together."""
RETRY_SECONDS = 0.05


async def refresh_health(services: Services) -> None:
    """A round of the upkeep: looks at the branches of the oldest rows."""
    async with services.database.read_session() as session:
        due_ids = [row[0] for row in await session.read(health_checks_due.oldest_ids(BATCH_SIZE))]
        if not due_ids:
            return
        affected = [tuple(row) for row in await session.read(health_checks_due.due_branches(due_ids))]
    remaining = {branch for branch, _ in affected}
    branch_ids = sorted(remaining)
    for start in range(0, max(len(branch_ids), 1), BRANCHES_PER_TRANSACTION):
        async with session_for(services.database, writing=True) as session:
            context = Context(services, session, None, "upkeep")
            remaining -= await _refresh_branches(context, branch_ids[start : start + BRANCHES_PER_TRANSACTION])
            if start + BRANCHES_PER_TRANSACTION >= len(branch_ids):
                # One whose branches were not all looked at stays, and so does one that was written meanwhile.
                retained_ids = {number for branch, number in affected if branch in remaining}
                await session.execute(health_checks_due.delete_due(sorted(set(due_ids) - retained_ids)))
            await commit_and_notify(context)
    if remaining:
        asyncio.get_running_loop().call_later(RETRY_SECONDS, services.maintenance_wakeup.notify)
    elif len(due_ids) == BATCH_SIZE:
        services.maintenance_wakeup.notify()


async def _refresh_branches(context: Context, branch_ids: Collection[int]) -> set[int]:
    """Tells what is new of these branches; gives those that are done, which are all that nobody else holds."""
    if not branch_ids:
        return set()
    project_ids = dict(map(tuple, await context.tuples(branches.existing_ids(branch_ids))))
    # First, since who removes a project holds it before its branches.
    await context.tuples(projects.ids_for_key_share(sorted(set(project_ids.values()))))
    locked = await context.all(branches.for_update(branch_ids))
    # After the branches are held: what others have told of them by now is seen, and so is all that they are to be told for.
    found = await branch_health.load_health(context, {(row.project_id, row.oid) for row in locked})
    changed = []
    for row in locked:
        state = found[row.project_id, row.oid].state
        if (row.told_health, row.told_oid) != (state, row.oid):
            changed.append((row.project_id, row.name, row.told_health, str(state)))
            row.told_health, row.told_oid = str(state), row.oid
    await context.session.flush()
    await change_records.record_branches(context, changed)
    return {row.id for row in locked} | (set(branch_ids) - project_ids.keys())
