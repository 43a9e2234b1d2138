"""Looks at branches whose health may have changed, and tells those who follow them where it has, or where the head is another one.

Whatever may change a health (a check, a head) leaves a row of `branch_looks` in its own transaction. The chore takes what it finds,
and compares each branch with what was told of it last, under a lock of the branch; so two processes never tell the same, and since every
change leaves a row of its own, what is told last is how the branch is. Branches that somebody else holds are left for a moment: the
chore waits for nobody while others may wait for it. Rows of branches that are gone go.
"""

import asyncio
from collections.abc import Collection

from graph.context import Context, Services
from graph.rules import branch_health, changes
from graph.transaction import keep, session_for
from storage.tables import branch_looks, branches, projects

LOOKS = 500
"""Rows that one round takes."""
AT_ONCE = 50
"""Branches that are held together."""
AGAIN_SECONDS = 0.05


async def look(services: Services) -> None:
    """A round of the upkeep: looks at the branches of the oldest rows."""
    async with services.database.reading() as session:
        looks = [row[0] for row in await session.read(branch_looks.oldest(LOOKS))]
        if not looks:
            return
        concerned = [tuple(row) for row in await session.read(branch_looks.concerned(looks))]
    left = {branch for branch, _ in concerned}
    wanted = sorted(left)
    for start in range(0, max(len(wanted), 1), AT_ONCE):
        async with session_for(services.database, writing=True) as session:
            context = Context(services, session, None, "upkeep")
            left -= await _look_at(context, wanted[start : start + AT_ONCE])
            if start + AT_ONCE >= len(wanted):
                # One whose branches were not all looked at stays, and so does one that was written meanwhile.
                again = {number for branch, number in concerned if branch in left}
                await session.execute(branch_looks.forget(sorted(set(looks) - again)))
            await keep(context)
    if left:
        asyncio.get_running_loop().call_later(AGAIN_SECONDS, services.upkeep.wake)
    elif len(looks) == LOOKS:
        services.upkeep.wake()


async def _look_at(context: Context, branch_ids: Collection[int]) -> set[int]:
    """Tells what is new of these branches; gives those that are done, which are all that nobody else holds."""
    if not branch_ids:
        return set()
    there = dict(map(tuple, await context.tuples(branches.among_ids(branch_ids))))
    # First, since who removes a project holds it before its branches.
    await context.tuples(projects.kept(sorted(set(there.values()))))
    held = await context.all(branches.held(branch_ids))
    # After the branches are held: what others have told of them by now is seen, and so is all that they are to be told for.
    found = await branch_health.healths(context, {(row.project_id, row.oid) for row in held})
    news = []
    for row in held:
        state = found[row.project_id, row.oid].state
        if (row.told_health, row.told_oid) != (state, row.oid):
            news.append((row.project_id, row.name, row.told_health, str(state)))
            row.told_health, row.told_oid = str(state), row.oid
    await context.session.flush()
    await changes.of_branches(context, news)
    return {row.id for row in held} | (set(branch_ids) - there.keys())
