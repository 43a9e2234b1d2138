"""The cost per row of the triggers that log changes of builds, measured with and without them in turn."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from benchmarks.dataset.statistics_rows import StatisticsProjects, build_statement, without_triggers
from storage.database.engine import Database

ROWS = 10_000


def measure_triggers(url: str, projects: StatisticsProjects, rounds: int) -> dict[str, float]:
    """The microseconds that the triggers add to a row, for each kind of statement. The rows are removed again."""
    return asyncio.run(_measure(url, projects, rounds))


async def _measure(url: str, projects: StatisticsProjects, rounds: int) -> dict[str, float]:
    database = Database(url)
    statements = {
        "insert": build_statement(database.dialect, projects, (0, ROWS), ROWS).replace("'test'", "'new'"),
        "update": "UPDATE builds SET status = 'failed', finished_at = created_at WHERE stage = 'new'",
        "delete": "DELETE FROM builds WHERE stage = 'new'",
    }
    seconds: dict[tuple[str, bool], list[float]] = {}
    try:
        for number in range(2 * rounds):
            is_logged = bool(number % 2)
            async with _unchanged() if is_logged else without_triggers(database):
                for name, statement in statements.items():
                    async with database.engine.execution_options(writing=True).begin() as connection:
                        began = time.perf_counter()
                        await connection.exec_driver_sql(statement)
                        seconds.setdefault((name, is_logged), []).append(time.perf_counter() - began)
    finally:
        await database.close()
    # The shortest of each, because other work of the machine only adds to it.
    return {name: round(1e6 * (min(seconds[name, True]) - min(seconds[name, False])) / ROWS, 2) for name in statements}


@asynccontextmanager
async def _unchanged() -> AsyncIterator[None]:
    yield
