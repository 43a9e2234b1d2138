"""The filter by the state of the head commit: it finds exactly what the rollup of each commit says."""

import random
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import insert, select
from sqlmodel import col

from graph.context import Context
from graph.rules.builds.commit_checks import load_newest_checks
from graph.rules.builds.rollups import RollupState, roll_up
from storage import tables
from storage.tables import CheckStatus
from storage.tables.builds import rollups
from tests.make import DataFactory

MOMENT = datetime(2016, 1, 1, tzinfo=UTC)
COMMITS = 150
STATES = [str(state) for state in RollupState]


def draw_checks(project_ids: list[int]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Rows of builds and commit statuses of few names and refs, with superseded attempts, up to six for each commit."""
    dice = random.Random(7)
    builds: list[dict[str, Any]] = []
    statuses: list[dict[str, Any]] = []
    for number in range(COMMITS):
        among = dice.choice([["success"], ["canceled"], ["pending"], ["success", "failed"], list(CheckStatus)])
        for _ in range(dice.randint(0, 6)):
            row = {
                "project_id": dice.choice(project_ids),
                "sha": f"{number:040}",
                "name": dice.choice("abc"),
                "ref": dice.choice(["master", "v1"]),
                "status": CheckStatus(dice.choice(among)),
                "allow_failure": dice.random() < 0.3,
                "created_at": MOMENT + timedelta(seconds=(len(builds) + len(statuses)) // 3),
            }
            if dice.random() < 0.3 and row["status"] is not CheckStatus.MANUAL:
                statuses.append(row)
                continue
            builds.append({"id": len(builds) + 1, "current_id": None, **row})
            if dice.random() < 0.3:
                earlier = {"id": len(builds) + 1, "current_id": len(builds), "status": CheckStatus(dice.choice(["failed", "running"]))}
                builds.append({**row, **earlier})
    return builds, statuses


async def test_are_those_of_the_rollup(dialect: str, make: DataFactory) -> None:
    row, project, fork = tables.MergeRequest, await make.project(), await make.project()
    builds, statuses = draw_checks([project.id, fork.id])
    one = {"project_id": project.id, "author_id": project.creator_id, "title": "x", "target_branch": "master"}
    heads: list[Any] = [(source.id, None if number == 0 else f"{number:040}") for number in range(COMMITS) for source in (project, fork)]
    merge_requests = [
        {**one, "iid": at, "source_project_id": source, "source_branch": f"branch{at}", "head_oid": oid}
        for at, (source, oid) in enumerate(heads, 1)
    ]
    source, head = col(row.source_project_id), col(row.head_oid)
    rest = [[state for state in STATES if state != each] for each in STATES]
    chosen: list[list[str]] = [[], *([state] for state in STATES), *rest, ["failed", "running"], STATES]
    conditions = [rollups.has_state(source, head, row, states).label(f"is_chosen{at}") for at, states in enumerate(chosen)]
    async with make.services.database.write_session() as session:
        for table, rows in ((tables.Build, builds), (tables.CommitStatus, statuses), (row, merge_requests)):
            await session.execute(insert(table), rows)
        in_sql = select(source, head, rollups.rollup_state(source, head, row), *conditions).select_from(row)
        found = [tuple(each) for each in await session.read(in_sql)]
        newest = await load_newest_checks(Context(make.services, session, None, "test"), heads)

    assert {state for _, _, state, *_ in found} == set(STATES)
    for source_id, oid, state, *is_chosen in found:
        assert state == roll_up(newest.get((source_id, oid), [])).state
        assert [bool(each) for each in is_chosen] == [state in states for states in chosen], (oid, state)
