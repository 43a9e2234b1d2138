"""Imports into the other database that are killed while the source is written to: the next run goes on, nothing is lost or doubled, and
v3 answers as the source (R32)."""

import asyncio
import os
import random
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sqlalchemy import select

from forgefront.config import Config
from graph.rules.projects.last_activity import record_last_activities
from storage import tables
from tests.forgefront.importing.test_instances import compare, count_importable_rows, count_rows, create_instance, is_known
from tests.make import DataFactory, token_of
from tests.support.imports.import_source import open_backend, serve_source, write_through_v3
from tests.support.reliability_promises import promise, scaled_count
from tests.support.servers.fork_server import start_program

KILLS = scaled_count(30, min_count=3)


@promise("R32", always=True)
async def test_killed_runs_are_continued(
    make: DataFactory, database_url: str, other_database_url: str, tmp_path: Path, figure: Callable[[str], None]
) -> None:
    instance = await create_instance(make, tmp_path / "week")
    admin, web = instance.viewers["admin"], instance.week.web
    async with make.services.database.read_session() as session:
        tokens = {user.id: token_of(user) for user in await session.scalars(select(tables.User))}
    config = Config.load(data=tmp_path, database_url=database_url)
    target_url, data, randomness = other_database_url, tmp_path / "target", random.Random(1)
    environment = {**os.environ, "FORGEFRONT_DATABASE_URL": target_url, "FORGEFRONT_IMPORT_TOKEN": token_of(admin)}
    killed, most_requests = 0, 250

    def start(address: str) -> subprocess.Popen[Any]:
        arguments = ("import", address, "--keep-ids", "--requests-per-second", 10_000, "--data", data, "--json")
        return start_program("forgefront.cli", *arguments, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    async with serve_source(config, tokens=tokens) as (address, source):
        owner_token, oid = token_of(instance.viewers["owner"]), instance.week.oids["m4"]
        source.writes = write_through_v3(source.app, owner_token, token_of(admin), web.id, oid, rounds=2)
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
        while await anext(source.writes, "ended") != "ended":
            pass
        source.writes = None
        # Else its job might do it after the project was read.
        await record_last_activities(make.services)
        process = start(address)
        output, errors = await asyncio.to_thread(process.communicate)
        assert process.returncode in (0, 3), errors.decode()
    async with open_backend(Config.load(data=data, database_url=target_url)) as backend:
        found = await count_rows(backend.database)
        assert found == await count_importable_rows(make.services.database), output.decode()
        compared = await compare(make, instance, backend, is_known)
    assert killed == KILLS
    figure(f"{killed} SIGKILLs under writes: {sum(found.values())} rows, none lost or doubled, {compared} answers compared")
