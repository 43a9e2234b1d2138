"""When projects were last active: with the newest of their activities, not only with pushes, which write it themselves.

It is written in the background. A transaction that also updated the project would wait for pushes to it, and lock the project after the
rows of it that it has changed, while pushes lock it before.
"""

from datetime import timedelta

from graph.context import Services
from graph.operations.transaction import session_for, write_transaction
from storage.tables.events import activities
from storage.tables.projects import projects

RECENT_ACTIVITIES = 2_000
"""Activities that each run reads, more than are recorded between two runs."""
MIN_STEP = timedelta(seconds=1)
"""A push records its activity some milliseconds after it has written when the project was last active."""


async def record_last_activities(services: Services) -> None:
    """Maintenance job: write when the projects of the newest activities were last active.

    Projects that others have locked wait for the next run.
    """
    async with session_for(services.database, writing=False) as session:
        found = await session.read(activities.newest_of_projects(RECENT_ACTIVITIES))
    moments = {project_id: moment for project_id, moment, known in found if moment - known >= MIN_STEP}
    if not moments:
        return
    async with write_transaction(services.database) as session:
        free = {project_id for (project_id,) in await session.read(projects.ids_for_update_skipping_locked(moments))}
        if free:
            await session.execute(projects.record_activity({key: moment for key, moment in moments.items() if key in free}))
