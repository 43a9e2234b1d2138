"""A group with three years of builds and merge requests, inserted into a data set by SQL statements that generate the rows.

Its first project has a twentieth of the builds and of the merge requests, the other ones have equal shares. Each commit of a project has
some builds; every job fails and succeeds on some of them.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from benchmarks.dataset.bulk_insert import insert_rows
from benchmarks.dataset.vacuum import vacuum
from storage import tables
from storage.database.engine import Database
from storage.tables import AccessLevel, NamespaceKind, Visibility, row_counts
from storage.tables.builds import build_changes

GROUP = "statistics"
PROJECTS = 200
VIEWER = 1
"""The id of the user whose token the data set has."""
DAYS = 1_096
START = datetime(2023, 1, 1, tzinfo=UTC)
COMMITS = 125
"""Commits of each project."""
BATCH = 250_000
FIRST_PROJECT_INTERVAL = 20
"""The first project has one build in this number."""


@dataclass(frozen=True)
class StatisticsProjects:
    """The ids of the group's projects: from `first` to `last`."""

    first: int
    last: int


def fill(url: str, builds: int, merge_requests: int) -> StatisticsProjects:
    """Adds the group to a database that `seed` filled."""
    return asyncio.run(_fill(url, builds, merge_requests))


async def _fill(url: str, builds: int, merge_requests: int) -> StatisticsProjects:
    database = Database(url)
    try:
        async with database.engine.execution_options(writing=True).begin() as connection:
            projects = await _insert_projects(connection)
        async with without_triggers(database), _without_indexes(database):
            for start in range(0, builds, BATCH):
                async with _begin(database) as connection:
                    await connection.exec_driver_sql(
                        build_statement(database.dialect, projects, (start, min(start + BATCH, builds)), builds)
                    )
        async with _begin(database) as connection:
            for statement in _merge_request_statements(database.dialect, projects, merge_requests):
                await connection.exec_driver_sql(statement)
            # On PostgreSQL the triggers that count rows do not fire either.
            await connection.execute(row_counts.repair())
        await vacuum(database)
    finally:
        await database.close()
    return projects


_INDEXES = {
    "sqlite": "SELECT name, sql FROM sqlite_master WHERE type = 'index' AND tbl_name = 'builds' AND sql IS NOT NULL",
    "postgresql": "SELECT indexname, indexdef FROM pg_indexes WHERE tablename = 'builds' AND indexname <> 'pk_builds'",
}


@asynccontextmanager
async def _without_indexes(database: Database) -> AsyncIterator[None]:
    """Drops the indexes of builds except that of their ids within the block, so that inserting many takes a third of the time."""
    async with _begin(database) as connection:
        indexes = (await connection.exec_driver_sql(_INDEXES[database.dialect])).all()
        for name, _ in indexes:
            await connection.exec_driver_sql(f"DROP INDEX {name}")
    yield
    async with _begin(database) as connection:
        for _, statement in indexes:
            await connection.exec_driver_sql(statement)


@asynccontextmanager
async def _begin(database: Database) -> AsyncIterator[AsyncConnection]:
    """A transaction for many rows, whose foreign keys PostgreSQL need not check."""
    async with database.engine.execution_options(writing=True).begin() as connection:
        if database.dialect == "postgresql":
            await connection.exec_driver_sql("SET LOCAL statement_timeout = 0")
            await connection.exec_driver_sql("SET LOCAL session_replication_role = replica")
        yield connection


async def _insert_projects(connection: AsyncConnection) -> StatisticsProjects:
    dates = {"created_at": START, "updated_at": START}
    group = {"kind": NamespaceKind.GROUP, "name": GROUP, "path": GROUP, "path_key": GROUP, "description": "", "owner_id": None, **dates}
    await insert_rows(connection, [(tables.Namespace, iter([group]))])
    ((group_id,),) = await connection.execute(text("SELECT max(id) FROM namespaces"))
    member = {"group_id": group_id, "user_id": VIEWER, "access_level": int(AccessLevel.OWNER), **dates}
    await insert_rows(connection, [(tables.GroupMember, iter([member])), (tables.Project, _projects(group_id, dates))])
    ((last,),) = await connection.execute(text("SELECT max(id) FROM projects"))
    return StatisticsProjects(last - PROJECTS + 1, last)


def _projects(group_id: int, dates: dict[str, datetime]) -> Iterator[dict[str, Any]]:
    for number in range(1, PROJECTS + 1):
        path = f"part{number}"
        names = {"name": path, "path": path, "path_key": path, "description": ""}
        owner = {"namespace_id": group_id, "creator_id": VIEWER, "visibility_level": int(Visibility.PRIVATE)}
        yield {**names, **owner, "default_branch": "master", "last_activity_at": START, "refs_version": 0, **dates}


@asynccontextmanager
async def without_triggers(database: Database) -> AsyncIterator[None]:
    """Within the block, changes of builds are not logged. A copy written before it is out of date afterwards."""

    async def run(*statements: str) -> None:
        async with database.engine.execution_options(writing=True).begin() as connection:
            for statement in statements:
                await connection.exec_driver_sql(statement)

    if database.dialect == "postgresql":
        await run(*(f"ALTER TABLE builds DISABLE TRIGGER {name}" for name in sorted(build_changes.TRIGGERS)))
        yield
        await run(*(f"ALTER TABLE builds ENABLE TRIGGER {name}" for name in sorted(build_changes.TRIGGERS)))
        return
    await run(*(f"DROP TRIGGER {name}" for name in sorted(build_changes.TRIGGERS)))
    yield
    await run(*build_changes.trigger_statements("sqlite"))


def _numbers(dialect: str, start: int, end: int) -> str:
    """SQL of (n, h) for the numbers from `start` to before `end`; `h` is a hash of n below 2^32."""
    if dialect == "postgresql":
        numbers = f"SELECT n::bigint AS n FROM generate_series({start}, {end - 1}) AS s(n)"
    else:
        numbers = f"WITH RECURSIVE s(n) AS (SELECT {start} UNION ALL SELECT n + 1 FROM s WHERE n < {end - 1}) SELECT n FROM s"
    return f"(SELECT n, (n * 2654435761) % 4294967296 / 8 AS h FROM ({numbers}) AS numbers)"


def _moment(dialect: str, seconds: str) -> str:
    """SQL of the timestamp that is `seconds`, itself SQL, after START."""
    if dialect == "postgresql":
        return f"(TIMESTAMPTZ '{START.isoformat()}' + ({seconds}) * INTERVAL '1 second')"
    return f"strftime('%Y-%m-%d %H:%M:%S.000000', {int(START.timestamp())} + ({seconds}), 'unixepoch')"


def _project_of(projects: StatisticsProjects) -> str:
    rest = f"{projects.first + 1} + h / {FIRST_PROJECT_INTERVAL} % {projects.last - projects.first}"
    return f"CASE WHEN h % {FIRST_PROJECT_INTERVAL} = 0 THEN {projects.first} ELSE {rest} END"


def build_statement(dialect: str, projects: StatisticsProjects, numbers: tuple[int, int], total: int) -> str:
    """SQL that inserts the builds numbered from the first to before the second number, of `total` spread over the three years."""
    created, commit = f"n * {DAYS * 86400} / {total}", f"n * {COMMITS} / {total}"
    began, finished = f"{created} + h % 120", f"{created} + h % 120 + 5 + h / 7 % 3595"
    no, empty = ("false", "'[]'::json") if dialect == "postgresql" else ("0", "'[]'")
    columns = {
        "project_id": _project_of(projects),
        "attempt": "1",
        "sha": f"lpad(to_hex({commit}), 40, '0')" if dialect == "postgresql" else f"printf('%040x', {commit})",
        "ref": "CASE WHEN h / 11 % 10 < 6 THEN 'master' ELSE 'topic-' || (h / 13 % 50) END",
        "tag": no,
        "name": "'job ' || (h / 17 % 20)",
        "stage": "'test'",
        "stage_index": "1",
        "status": "CASE WHEN h / 19 % 10 < 7 THEN 'success' WHEN h / 19 % 10 < 9 THEN 'failed' ELSE 'canceled' END",
        "allow_failure": no,
        "run_when": "'on_success'",
        "user_id": "1 + h / 23 % 50",
        "options": empty.replace("[]", "{}"),
        "tags": empty,
        "coverage": "CASE WHEN h / 29 % 10 = 0 THEN h / 31 % 10000 / 100.0 END",
        "trace_size": "0",
        "created_at": _moment(dialect, created),
        "updated_at": _moment(dialect, finished),
        "started_at": _moment(dialect, began),
        "finished_at": _moment(dialect, finished),
    }
    return f"INSERT INTO builds ({', '.join(columns)}) SELECT {', '.join(columns.values())} FROM {_numbers(dialect, *numbers)} AS r"


def _merge_request_statements(dialect: str, projects: StatisticsProjects, total: int) -> Iterator[str]:
    """Statements that insert merge requests, each with one commit of its own, and the moves of the branch `master`."""
    created = f"n * {DAYS * 86400} / {total}"
    ended = _moment(dialect, f"{created} + 600 + h % 600000")
    oid = "lpad(to_hex(n + 1048576), 40, '1')" if dialect == "postgresql" else "replace(printf('%40x', n + 1048576), ' ', '1')"
    state = "CASE WHEN h / 37 % 10 < 7 THEN 'merged' WHEN h / 37 % 10 < 9 THEN 'closed' ELSE 'opened' END"
    no = "false" if dialect == "postgresql" else "0"
    source = f"FROM {_numbers(dialect, 0, total)} AS r"
    requests = {
        "project_id": _project_of(projects),
        "source_project_id": _project_of(projects),
        "iid": "n + 1",
        "author_id": "1 + h / 23 % 50",
        "title": "'Change ' || n",
        "state": state,
        "source_branch": "'topic-' || n",
        "target_branch": "'master'",
        "merge_status": "'can_be_merged'",
        "head_oid": oid,
        "merge_when_build_succeeds": no,
        "merged_at": f"CASE WHEN h / 37 % 10 < 7 THEN {ended} END",
        "closed_at": f"CASE WHEN h / 37 % 10 >= 7 AND h / 37 % 10 < 9 THEN {ended} END",
        "created_at": _moment(dialect, created),
        "updated_at": ended,
    }
    yield f"INSERT INTO merge_requests ({', '.join(requests)}) SELECT {', '.join(requests.values())} {source}"
    group = f"project_id BETWEEN {projects.first} AND {projects.last}"
    yield f"INSERT INTO merge_request_commits (merge_request_id, position, oid) SELECT id, 0, head_oid FROM merge_requests WHERE {group}"
    commits = {
        "project_id": _project_of(projects),
        "oid": oid,
        "parents": "'[]'",
        "author_name": "'Ann'",
        "author_email": "'ann@example.org'",
        "authored_at": _moment(dialect, f"{created} - h % 300000"),
        "authored_offset": "0",
        "committer_name": "'Ann'",
        "committer_email": "'ann@example.org'",
        "committed_at": _moment(dialect, created),
        "committed_offset": "0",
        "title": "'Change'",
    }
    yield f"INSERT INTO commits ({', '.join(commits)}) SELECT {', '.join(commits.values())} {source}"
    yield (
        "INSERT INTO branch_moves (project_id, name, oid, moved_at) SELECT project_id, 'master', sha, min(created_at)"
        f" FROM builds WHERE {group} GROUP BY project_id, sha"
    )
