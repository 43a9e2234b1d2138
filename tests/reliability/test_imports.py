"""Imports into the other database that are killed: the next run goes on, nothing is lost, nothing is doubled (R32)."""

import asyncio
import os
import random
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sqlalchemy import func, select

from forgefront.config import Config
from storage import tables
from storage.database.engine import Database
from tests.make import DataFactory, token_of
from tests.support.fork_server import start_program
from tests.support.import_source import head_of, serve_source
from tests.support.reliability_promises import promise, scaled_count

KILLS = scaled_count(30, min_count=3)
COUNTED = (
    tables.User, tables.Project, tables.Label, tables.Issue, tables.MergeRequest, tables.Note, tables.Snippet, tables.Build, tables.GitRef,
    tables.CommitStatus, tables.ProjectMember,
)  # fmt: skip


async def count_rows(database: Database) -> dict[str, int]:
    async with database.read_session() as session:
        return {table.__name__: int(await session.scalar(select(func.count()).select_from(table)) or 0) for table in COUNTED}


@promise("R32", always=True)
async def test_killed_runs_are_continued(
    make: DataFactory, database_url: str, other_database_url: str, tmp_path: Path, figure: Callable[[str], None]
) -> None:
    admin = await make.user("root", admin=True)
    people = [await make.user(f"person{number}") for number in range(5)]
    for number, owner in enumerate(people):
        project = await make.project(owner=owner, path=f"project{number}", history={"commits": 3}, members=[(people[0], 30)])
        await make.label(project, "bug")
        for _ in range(8):
            issue = await make.issue(project, author=owner)
            await make.note(issue, author=people[number - 1])
        await make.merge_request(project, author=owner)
        await make.snippet(project, author=owner)
        for _ in range(6):
            await make.trace(await make.build(project, head_of(make, project)), "output")
    expected = await count_rows(make.services.database)
    config = Config.load(data=tmp_path, database_url=database_url)
    target_url, data, randomness = other_database_url, tmp_path / "target", random.Random(1)
    environment = {**os.environ, "FORGEFRONT_DATABASE_URL": target_url, "FORGEFRONT_IMPORT_TOKEN": token_of(admin)}
    killed, most_requests = 0, 250

    def start(address: str) -> subprocess.Popen[Any]:
        arguments = ("import", address, "--keep-ids", "--requests-per-second", 10_000, "--data", data, "--json")
        return start_program("forgefront.cli", *arguments, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    async with serve_source(config) as (address, source):
        for _ in range(3 * KILLS):
            before, process = len(source.paths), start(address)
            wanted = randomness.randrange(1, most_requests)
            while process.poll() is None and len(source.paths) - before < wanted:  # noqa: ASYNC110 - the process has no event
                await asyncio.sleep(0.002)
            if process.poll() is None:
                killed += 1
            else:
                # When everything is written, a run makes fewer requests.
                most_requests = max(2, len(source.paths) - before)
            process.kill()
            await asyncio.to_thread(process.communicate)
            if killed == KILLS:
                break
        process = start(address)
        output, errors = await asyncio.to_thread(process.communicate)
        assert process.returncode in (0, 3), errors.decode()
    database = Database(target_url)
    try:
        found = await count_rows(database)
    finally:
        await database.close()
    assert found == expected, output.decode()
    assert killed == KILLS
    figure(f"{killed} SIGKILLs: {sum(found.values())} rows, none lost or doubled")
