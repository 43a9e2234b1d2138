"""The health of branches after an import of checks, recorded without notifying subscribers (graph/rules/branches/branch_health_job.py)."""

from graph.rules.branches.branch_health import load_states
from graph.rules.imports.batches import Batch
from storage import tables
from storage.database.statements import bulk_rows
from storage.git.refs.ref_names import BRANCHES
from storage.tables.git import refs
from storage.tables.projects import projects


async def record_health(batch: Batch) -> None:
    """Record the health of the branches whose checks were written."""
    checks = {(item.columns["project_id"], item.columns["sha"], item.columns["ref"]) for item in batch.written_items}
    if not checks:
        return
    context, project_ids = batch.context, {project_id for project_id, _, _ in checks}
    # Projects before branches: the deletion of a project locks in this order.
    await context.tuples(projects.ids_for_key_share(sorted(project_ids)))
    names = {(project_id, f"{BRANCHES}{ref}") for project_id, _, ref in checks if ref is not None}
    heads = {(project_id, sha) for project_id, sha, _ in checks}
    among = refs.indexed_for_update(project_ids, {name for _, name in names}, {sha for _, sha in heads})
    rows = [row for row in await context.all(among) if (row.project_id, row.name) in names or (row.project_id, row.oid) in heads]
    states = await load_states(context, {(row.project_id, row.oid) for row in rows})
    changed = {row.id: {"notified_health": str(states[row.project_id, row.oid]), "notified_oid": row.oid} for row in rows}
    await bulk_rows.update_rows(context.session, tables.GitRef, changed)
