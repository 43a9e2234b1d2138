"""Maintenance job that recomputes the health of branches and records changes for subscribers.

Each change that may affect a health (a check, a head) inserts a row of `health_checks_due` in its own transaction. The job takes the
oldest rows and, holding a lock on the branch, compares each branch with its last recorded health. Two processes therefore never record
the same change, and because every change inserts its own row, the last recorded health is the current one. Branches locked by others
are retried shortly: the job never waits for a lock while others may wait for its own. Rows of deleted branches are deleted.
"""

import asyncio
from collections.abc import Collection, Mapping

from graph.context import Context, Services
from graph.jobs.maintenance_wakeup import MaintenanceWork
from graph.operations.transaction import commit_and_notify, session_for
from graph.rules.branches import branch_health
from graph.rules.events import change_records
from storage.git.refs.ref_names import BRANCHES
from storage.tables.git import health_checks_due, refs
from storage.tables.projects import projects

BATCH_SIZE = 500
"""Rows per run."""
BRANCHES_PER_TRANSACTION = 50
"""Branches that are locked together."""
RETRY_SECONDS = 0.05


async def refresh_health(services: Services) -> None:
    """One run: recompute the health of the branches of the oldest rows."""
    async with services.database.read_session() as session:
        due_ids = [row[0] for row in await session.read(health_checks_due.OLDEST_IDS, {"maximum": BATCH_SIZE})]
        if not due_ids:
            return
        affected = await session.read(health_checks_due.DUE_BRANCHES, {"due_ids": due_ids})
    project_ids = {branch: project_id for branch, project_id, _ in affected}
    remaining = set(project_ids)
    branch_ids = sorted(remaining)
    for start in range(0, max(len(branch_ids), 1), BRANCHES_PER_TRANSACTION):
        async with session_for(services.database, writing=True) as session:
            context = Context(services, session, None, "maintenance")
            remaining -= await _refresh_branches(context, branch_ids[start : start + BRANCHES_PER_TRANSACTION], project_ids)
            if start + BRANCHES_PER_TRANSACTION >= len(branch_ids):
                # Rows whose branches were not all examined remain, and so do rows inserted meanwhile.
                retained_ids = {number for branch, _, number in affected if branch in remaining}
                await session.execute(health_checks_due.delete_due(sorted(set(due_ids) - retained_ids)))
            await commit_and_notify(context)
    if remaining:
        asyncio.get_running_loop().call_later(RETRY_SECONDS, services.maintenance_wakeup.notify, MaintenanceWork.BRANCH_HEALTH)
    elif len(due_ids) == BATCH_SIZE:
        services.maintenance_wakeup.notify(MaintenanceWork.BRANCH_HEALTH)


async def _refresh_branches(context: Context, branch_ids: Collection[int], project_ids: Mapping[int, int]) -> set[int]:
    """Record changes of these branches; `project_ids` are those of their projects by branch.

    Returns those that are done, which excludes those locked by others.
    """
    if not branch_ids:
        return set()
    # Projects before branches: the deletion of a project locks in this order.
    await context.tuples(projects.ids_for_key_share(sorted({project_ids[each] for each in branch_ids})))
    locked = await context.all(refs.for_update(branch_ids))
    # After locking, this sees both what others have recorded and all changes that are due.
    found = await branch_health.load_states(context, {(row.project_id, row.oid) for row in locked})
    changed = []
    for row in locked:
        state = found[row.project_id, row.oid]
        if (row.notified_health, row.notified_oid) != (state, row.oid):
            changed.append((row.project_id, row.name.removeprefix(BRANCHES), row.notified_health, str(state)))
            row.notified_health, row.notified_oid = str(state), row.oid
    await context.session.flush()
    await change_records.record_branches(context, changed)
    done = {row.id for row in locked}
    if len(done) < len(branch_ids):
        done |= set(branch_ids).difference(await context.all(refs.existing_ids(branch_ids)))
    return done
