"""The statements that find open merge requests by their branches, and any by the state of their heads: each reads rows of indexes,
however many are closed, and have successful checks."""

from typing import Any

import pytest
from sqlalchemy import case, select, text, true

from storage import tables
from storage.database.engine import Database
from storage.database.statements.compiled_statements import CompiledStatement
from storage.tables import CheckStatus, MergeRequestState
from storage.tables.merge_requests import merge_request_branches as branched
from storage.tables.merge_requests import merge_requests
from tests.make import DataFactory
from tests.support.database.many_rows import insert_numbered, numbered

ROWS = 3_000
STATEMENTS: dict[str, tuple[Any, dict[str, Any] | None]] = {
    "none of a branch": (branched.NONE_OPEN, {"of_project": 1, "branch": "topic"}),
    "of moved branches": (branched.OPEN_OF_MOVED, {"project_id": 1, "names": ["topic"]}),
    "of a moved branch": (branched.OPEN_OF_ONE_MOVED, {"project_id": 1, "name": "topic"}),
    "from branches": (branched.open_from(1, ["topic"]), None),
    "into branches": (branched.open_into(1, ["topic"]), None),
    "of branches, locked": (branched.open_for_update(1, ["topic"]), None),
    "between branches": (merge_requests.open_between(1, "topic", 1, "master"), None),
    "that wait for builds": (merge_requests.waiting_for_builds(0, 100), None),
}


@pytest.fixture
async def filled(make: DataFactory) -> Database:
    """A database with many closed merge requests between different branches, whose heads have successful checks."""
    project, database = await make.project(), make.services.database
    one = {"project_id": project.id, "source_project_id": project.id, "author_id": project.creator_id, "title": "x"}

    def closed(number: Any) -> dict[str, Any]:
        states = case((number % 2 == 0, MergeRequestState.MERGED), else_=MergeRequestState.CLOSED)
        branches = {"source_branch": numbered("branch", number), "target_branch": numbered("release", number % 100)}
        return {**one, "iid": number, **branches, "state": states, "head_oid": numbered("", number)}

    def passed(number: Any) -> dict[str, Any]:
        return {"project_id": project.id, "ref": "master", "name": "test", "status": CheckStatus.SUCCESS, "sha": numbered("", number)}

    async with database.write_session() as session:
        await insert_numbered(session, tables.MergeRequest, ROWS, closed)
        await insert_numbered(session, tables.Build, ROWS, passed)
        await insert_numbered(session, tables.CommitStatus, ROWS, passed)
        await session.execute(text("ANALYZE"))
        await session.commit()
    return database


async def plan_of(database: Database, statement: Any, parameters: dict[str, Any] | None) -> str:
    """The plan for all values, as PostgreSQL keeps it. `parameters` are those of a constant statement."""
    bound = database.statement_cache.bind(statement, parameters) if parameters is not None else None
    if bound is None:
        compiled = CompiledStatement(statement, database.engine.dialect, frozenset())
        bound = (compiled.sql, compiled.bind({}), None)
    sql, values, _ = bound
    async with database.engine.connect() as connection:
        if database.dialect == "sqlite":
            return "\n".join(str(row[3]) for row in await connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {sql}", tuple(values)))
        driver: Any = (await connection.get_raw_connection()).driver_connection
        literals = ", ".join(f"'{{{','.join(map(str, each))}}}'" if isinstance(each, list | tuple) else f"'{each}'" for each in values)
        await driver.execute(f"SET plan_cache_mode = force_generic_plan; PREPARE examined AS {sql}")
        try:
            return "\n".join(row[0] for row in await driver.fetch(f"EXPLAIN EXECUTE examined({literals})"))
        finally:
            await driver.execute("DEALLOCATE examined; RESET plan_cache_mode")


async def test_no_plan_reads_all_merge_requests(dialect: str, filled: Database) -> None:
    scan = "SCAN" if dialect == "sqlite" else "Seq Scan on"
    for name, (statement, parameters) in STATEMENTS.items():
        plan = await plan_of(filled, statement, parameters)
        assert "merge_requests" in plan, name
        assert f"{scan} merge_requests" not in plan, (name, plan)
    for states in (["failed"], ["pending", "running"], ["canceled"]):
        by_head = select(tables.MergeRequest).where(merge_requests.with_head_state(states, true()))
        plan = await plan_of(filled, by_head, None)
        assert {"ix_builds_unsuccessful", "ix_commit_statuses_unsuccessful"} <= set(plan.replace("(", " ").split()), (states, plan)
        assert not any(f"{scan} {table}" in plan for table in ("builds", "commit_statuses")), (states, plan)
