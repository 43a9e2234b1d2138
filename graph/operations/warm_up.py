"""Runs known queries once after the start, so that their first requests find compiled plans and compiled SQL.

Most of the time of a first request is that of SQLAlchemy, which compiles the statements of plans and resolvers. Which statements those are
depends on the rows that are found, so the queries run on the rows of one project (`graph/operations/sample_rows.py`), for one of its
members. They are read-only, planned and run one at a time, and pause in between. A query that needs other rows than these finds nothing,
and is planned all the same. So are queries for statistics of many builds, which are run only if somebody has asked for statistics lately,
because they open the columnar copy (`graph/jobs/build_analytics.py`).
"""

import asyncio
import gc
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import structlog
from graphql import FieldNode, Visitor, visit

from graph.documents.documents import PreparedOperation
from graph.errors import Code
from graph.operations.callers import LocalAdmin
from graph.operations.execution import Graph
from graph.operations.results import OperationResult
from graph.operations.sample_rows import SampleRows, find_sample_rows, sample_variables
from graph.operations.transaction import session_for
from graph.rules.statistics import copied_builds
from storage.secrets import digest_token

DELAY_SECONDS = 1.0
"""After the start: requests that wait for the service come first."""
PAUSE_RATIO = 3.0
"""How many times the duration of a query the pause after it lasts: the event loop is free for three quarters of the time."""
QUERY_SECONDS = 2.0
"""Time limit of a query. Its plan and its first statements are compiled when it ends early."""
MAX_SECONDS = 120.0
"""After which no further query is run, pauses included."""

log = structlog.get_logger("warm up")


async def warm_up(graph: Graph, documents: Iterable[PreparedOperation], v3_operations: Iterable[PreparedOperation]) -> int:
    """Runs the queries among these operations; returns how many runs. `documents` request projects by path, `v3_operations` by id."""
    services = graph.services
    if not graph.planner:
        return 0

    async def run(admin: LocalAdmin, prepared: PreparedOperation, variables: dict[str, Any]) -> OperationResult:
        with services.build_analytics.use_is_not_recorded() if services.build_analytics is not None else nullcontext():
            return await graph.run_as_admin(admin, prepared, variables, seconds=QUERY_SECONDS)

    async def plan_and_run(prepared: PreparedOperation, variables: dict[str, Any], rows: SampleRows, *, opens_copy: bool) -> bool:
        """Returns whether the query was run, which takes the copy of builds if it asks for statistics."""
        before = time.monotonic()
        # In an iteration of the event loop of its own, since both together would block it for too long.
        graph.compile_plan(prepared, variables)
        await asyncio.sleep(time.monotonic() - before)
        if not opens_copy and _asks_for_statistics(prepared):
            return False
        result = await run(LocalAdmin(rows.viewer), prepared, variables)
        if rows.viewer is not None and any(error.code is Code.FORBIDDEN for error in result.errors):
            # What only maintainers and administrators see.
            await asyncio.sleep(time.monotonic() - before)
            await run(LocalAdmin(), prepared, variables)
        return True

    await asyncio.sleep(DELAY_SECONDS)
    async with session_for(services.database, writing=False) as session:
        rows = await find_sample_rows(session, services.clock, lambda project_id: services.repositories.path_of(project_id).is_dir())
    if rows is None:
        return 0
    # The statement that finds the token of a caller, which no query here has.
    await services.token_cache.find(services.database, digest_token(""), services.clock())
    distinct = {id(each): (each, by_id) for by_id, group in ((False, documents), (True, v3_operations)) for each in group}
    queries = [(each, by_id) for each, by_id in distinct.values() if each.kind == "query"]
    started, count = time.monotonic(), 0
    opens_copy = services.build_analytics is None or await services.build_analytics.is_worth_opening()
    for prepared, variables in _list_runs(queries, rows):
        before = time.monotonic()
        if before - started > MAX_SECONDS:
            break
        with _collections_deferred():
            count += await plan_and_run(prepared, variables, rows, opens_copy=opens_copy)
            # The collection, too, has an iteration of its own.
            await asyncio.sleep(0)
        await asyncio.sleep((time.monotonic() - before) * PAUSE_RATIO)
    log.info("warmed up", queries=len(queries), runs=count, seconds=round(time.monotonic() - started, 1))
    return count


@contextmanager
def _collections_deferred() -> Iterator[None]:
    """Collects garbage at the end, rather than in the middle of what blocks the event loop already.

    What is left then are plans and statements, most of which stay, so later collections need not traverse them.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.collect(1)
        gc.freeze()
        gc.enable()


def _asks_for_statistics(prepared: PreparedOperation) -> bool:
    names: set[str] = set()

    class FieldNames(Visitor):
        def enter_field(self, node: FieldNode, *_: Any) -> None:
            names.add(node.name.value)

    visit(prepared.document, FieldNames())
    return not names.isdisjoint(copied_builds.FIELDS)


def _list_runs(queries: Sequence[tuple[PreparedOperation, bool]], rows: SampleRows) -> Iterator[tuple[PreparedOperation, dict[str, Any]]]:
    """Each query with its variables; then those that have another statement for a project by path, or by id, with the other."""
    for prepared, by_id in queries:
        yield prepared, sample_variables(prepared, rows, by_id=by_id)
    for prepared, by_id in queries:
        other = sample_variables(prepared, rows, by_id=not by_id)
        if other != sample_variables(prepared, rows, by_id=by_id):
            yield prepared, other
