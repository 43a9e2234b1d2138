"""Background jobs that find nothing to do."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

import pytest
from sqlalchemy import text

from graph.context import Services
from graph.jobs import change_pruning, maintenance, token_uses
from graph.jobs.change_retention import ChangeRetention
from graph.live.stream_access import end_hidden_streams
from graph.rules.git import commit_index
from graph.rules.merge_requests import merge_request_imports
from graph.rules.projects import project_imports

JOBS: dict[str, Callable[[Services], Awaitable[object]]] = {
    "maintenance": maintenance.run_once,
    "imports": merge_request_imports.run_pending,
    "project imports": project_imports.run_pending,
    "token uses": token_uses.write_uses,
    "unfinished indexes": commit_index.index_unfinished,
    "old changes": partial(change_pruning.prune, retention=ChangeRetention()),
    "access of streams": end_hidden_streams,
}


@pytest.mark.parametrize("dialect", ["sqlite"], indirect=True)
@pytest.mark.parametrize("name", JOBS)
async def test_begin_no_transaction_that_writes(name: str, services: Services) -> None:
    """On SQLite all writers would wait for it, as it waits here for one."""
    async with services.database.write_session() as writer:
        await writer.execute(text("SELECT 1"))
        await asyncio.wait_for(JOBS[name](services), 3)
