"""When projects were last active (docs/wire-facts.md 14)."""

from datetime import UTC, datetime, timedelta

from sqlalchemy import select

from graph.context import Services
from graph.rules.projects.last_activity import record_last_activities
from storage import tables
from storage.tables.projects import projects
from tests.make import DataFactory
from tests.support.api_clients import Api

BEFORE = datetime(2016, 1, 4, 15, 31, 46, 176000, tzinfo=UTC)


async def last_active(make: DataFactory, project: tables.Project) -> datetime:
    return (await make.fetch(tables.Project, project.id)).last_activity_at  # type: ignore[union-attr]


async def test_is_the_time_of_the_newest_event(api: Api, make: DataFactory, services: Services, dialect: str) -> None:
    owner = await make.user()
    active, other, busy = [await make.project(owner=owner, last_activity_at=BEFORE) for _ in range(3)]
    later = datetime.now(UTC) + timedelta(days=1)
    pushed = await make.project(owner=owner, last_activity_at=later)
    issue = await make.issue(active)
    for path in (f"/projects/{active.id}/issues/{issue.id}/notes", f"/projects/{busy.id}/milestones"):
        assert (await api.post(path, owner, body="Fine", title="v1")).status_code == 201
    assert (await api.post(f"/projects/{pushed.id}/milestones", owner, title="v1")).status_code == 201

    if dialect == "postgresql":
        async with services.database.write_session() as session:
            await session.execute(select(tables.Project).where(tables.Project.id == busy.id).with_for_update(key_share=True))
            await record_last_activities(services)
        assert await last_active(make, busy) == BEFORE
    await record_last_activities(services)
    await record_last_activities(services)

    for project in (active, busy):
        (event,) = (await api.get(f"/projects/{project.id}/events", owner)).json()
        shown = (await api.get(f"/projects/{project.id}", owner)).json()
        assert shown["last_activity_at"] == event["created_at"]
    assert [await last_active(make, project) for project in (other, pushed)] == [BEFORE, later]
    order = (await api.get("/projects", owner, order_by="last_activity_at")).json()
    assert [project["id"] for project in order] == [pushed.id, busy.id, active.id, other.id]


async def test_a_push_after_the_activity_was_read_is_later(make: DataFactory, services: Services) -> None:
    project = await make.project(last_activity_at=BEFORE)

    async with services.database.write_session() as session:
        await session.execute(projects.record_activity({project.id: BEFORE - timedelta(seconds=5)}))
        await session.commit()

    assert await last_active(make, project) == BEFORE
