"""Dumps taken under load, restored into the other database (R25, R29), and what dumps of large instances take (R31).

Beside each dump a replica is made at the same moment: a copy of the database that the test's own tools make. The answers of the restored
instance are compared with those of the replica.
"""

import asyncio
import contextlib
import json
import os
import random
import shutil
import sqlite3
import subprocess
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import make_url, select, text
from sqlmodel import col

from forgefront.config import Config
from storage import tables
from storage.database.engine import Database
from storage.dump import instance_dump
from storage.dump.snapshots import DatabaseSnapshot, open_snapshot
from storage.git.repositories import Repositories
from storage.tables import MergeRequestState
from tests.make import DataFactory, token_of
from tests.reliability.test_kills import whole
from tests.reliability.test_merges import BranchPusher, MergeLog, client_of, disagreements, full_path, move_branches, prepare
from tests.support.database.databases import client_program
from tests.support.git.git_history import git
from tests.support.git.hostile_packs import PackWriter
from tests.support.imports.dumps import DumpTool
from tests.support.merge_requests import MergeRequestFactory, OpenMergeRequest
from tests.support.reliability_promises import COUNT_SHARE, promise, scaled_count
from tests.support.servers.fork_server import start_program
from tests.support.servers.server_process import ServerProcess, WriteLog, create_writers, run_for_each, run_server

ROUNDS = scaled_count(10)
MERGES = scaled_count(40, 6)
EQUAL_SECONDS = 30.0
"""Until background jobs have brought both instances to the same state."""
TABLE_SECONDS = 0.03 if COUNT_SHARE else 0.01
"""Between the tables of a dump: some half a second of writes in all are enough to tell two moments from one."""
BUILDS = scaled_count(500_000, 10_000)
MEGABYTES = scaled_count(1024, 64)
"""Of packs."""
PACK_MEGABYTES = 64
MAX_GROWTH_MIB = (200, 200) if COUNT_SHARE else (14, 48)
"""Of a dump and of a restoration. All rows of the suite at once are 10 MiB more, and all packs 64 MiB."""
DATABASE_FILES = ("forge.db*", "forge*.tar", "replica*", "restored*", "target*", "*.log", "*.lock")


@dataclass
class Replica:
    """An instance that was copied at the moment of a dump, and what was acknowledged before that moment."""

    folder: Path
    database_url: str
    log: WriteLog
    merge_log: MergeLog
    acknowledged: dict[str, int] = field(default_factory=dict)
    merged: set[int] = field(default_factory=set)

    @contextlib.asynccontextmanager
    async def open_snapshot(self, database: Database) -> AsyncIterator[DatabaseSnapshot]:
        """The snapshot of the dump, of which the replica gets a copy. On SQLite writers wait meanwhile."""
        self.folder.mkdir()
        self.acknowledged, self.merged = dict(self.log.iids), set(self.merge_log.acknowledged)
        if database.dialect == "sqlite":
            path = str(database.url.database)
            with contextlib.closing(sqlite3.connect(path, isolation_level=None, timeout=60)) as writer:
                writer.execute("BEGIN IMMEDIATE")
                with contextlib.closing(sqlite3.connect(path)) as source, contextlib.closing(sqlite3.connect(self._file)) as target:
                    source.backup(target)
                async with open_snapshot(database) as snapshot:
                    writer.rollback()
                    yield read_slowly(snapshot)
            return
        async with open_snapshot(database) as snapshot:
            name = (await snapshot.fetch("SELECT pg_export_snapshot()"))[0][0]
            await run_program("pg_dump", "--format=custom", f"--file={self._file}", f"--snapshot={name}", libpq_url(database.url))
            yield read_slowly(snapshot)

    async def finish(self, data: Path) -> None:
        """Copies the files, which only grow, and fills the database."""
        await asyncio.to_thread(copy_files, data, self.folder)
        if not self.database_url.startswith("sqlite"):
            await run_program("pg_restore", f"--dbname={libpq_url(self.database_url)}", str(self._file))

    @property
    def _file(self) -> Path:
        """The database of SQLite, or what pg_dump writes."""
        if self.database_url.startswith("sqlite"):
            return Path(make_url(self.database_url).database or "")
        return self.folder.with_suffix(".dump")


def read_slowly(snapshot: DatabaseSnapshot) -> DatabaseSnapshot:
    """Pauses before each table, so that much is written between the first and the last."""
    stream = snapshot.stream

    async def pause_and_stream(sql: str) -> AsyncIterator[Any]:
        await asyncio.sleep(TABLE_SECONDS)
        async for rows in stream(sql):
            yield rows

    snapshot.stream = pause_and_stream  # type: ignore[method-assign]
    return snapshot


def copy_files(data: Path, folder: Path) -> None:
    try:
        shutil.copytree(data, folder, copy_function=copy_if_present, ignore=shutil.ignore_patterns(*DATABASE_FILES), dirs_exist_ok=True)
    except shutil.Error as error:
        # A quarantine folder of git that was removed meanwhile.
        assert all("No such file" in reason for _, _, reason in error.args[0]), error


def copy_if_present(source: str, target: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        shutil.copy2(source, target)


def libpq_url(url: Any) -> str:
    return make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)


async def run_program(name: str, *arguments: str) -> None:
    await asyncio.to_thread(subprocess.run, [client_program(name), *arguments], check=True)


class AnswerReader:
    """Reads what an instance answers about all its projects."""

    def __init__(self, server: ServerProcess, user: tables.User) -> None:
        self._server = server
        self._user = user

    async def read(self) -> dict[str, Any]:
        answers: dict[str, Any] = {}
        async with self._server.client() as client:
            projects = await self._get(client, answers, "/projects/all?per_page=100&order_by=created_at")
            await self._get(client, answers, "/users?per_page=100")
            for project in projects:
                base, page = f"/projects/{project['id']}", 1
                for path in ("", "/repository/branches", "/repository/commits?per_page=100", "/members", "/events?per_page=100", "/builds"):
                    await self._get(client, answers, base + path)
                while await self._get(client, answers, f"{base}/issues?per_page=100&page={page}"):
                    page += 1
                for row in await self._get(client, answers, f"{base}/merge_requests?per_page=100"):
                    for path in ("", "/commits", "/changes", "/notes"):
                        await self._get(client, answers, f"{base}/merge_requests/{row['id']}{path}")
                address = self._server.url.replace("://", f"://me:{token_of(self._user)}@")
                answers[f"ls-remote {base}"] = await asyncio.to_thread(
                    git, Path("/"), "ls-remote", f"{address}/{project['path_with_namespace']}.git"
                )
        return answers

    async def _get(self, client: httpx.AsyncClient, answers: dict[str, Any], path: str) -> Any:
        response = await client.get(path, headers={"PRIVATE-TOKEN": token_of(self._user)})
        answers[path] = response.status_code, response.text.replace(self._server.url, "")
        return response.json() if response.is_success else []


async def compare_answers(one: ServerProcess, other: ServerProcess, user: tables.User) -> int:
    """Waits until both instances answer the same; returns the number of answers."""
    loop = asyncio.get_running_loop()
    started = loop.time()
    while True:
        first, second = [await AnswerReader(server, user).read() for server in (one, other)]
        different = [path for path in first.keys() | second.keys() if first.get(path) != second.get(path)]
        if not different:
            return len(first)
        assert loop.time() - started < EQUAL_SECONDS, [(path, first.get(path), second.get(path)) for path in different[:2]]
        await asyncio.sleep(0.5)


@dataclass
class Load:
    """Writers of issues, merges, pushes, and branches that come and go."""

    merges: MergeRequestFactory
    path: str
    issues: tables.Project
    writers: list[tables.User]
    users: list[tables.User]
    log: WriteLog = field(default_factory=WriteLog)
    merge_log: MergeLog = field(default_factory=MergeLog)
    pushed: int = 0

    @contextlib.asynccontextmanager
    async def run(self, server: ServerProcess, proposals: list[OpenMergeRequest], number: int) -> AsyncIterator[None]:
        """Runs during the block, and until all proposals are merged."""
        async with server.client() as v3, client_of(server) as client:
            pusher, is_done = BranchPusher(self.merges, client, self.path, self.users[0]), asyncio.Event()

            async def write(user: tables.User) -> None:
                turn = 0
                while not is_done.is_set() and await self.log.create_issue(v3, self.issues.id, user, f"{number} {user.username} {turn}"):
                    turn += 1

            async def merge(position: int) -> None:
                for proposal in proposals[position::2]:
                    await self.merge_log.accept(client, proposal, self.users[position])

            moving = asyncio.create_task(move_branches(client, self.merges.project.id, self.users[1], number))
            async with asyncio.TaskGroup() as group:
                for work in (run_for_each(self.writers, write), merge(0), merge(1), pusher.run()):
                    group.create_task(work)
                yield
                is_done.set()
                pusher.done.set()
            moving.cancel()
            await asyncio.gather(moving, return_exceptions=True)
        self.pushed += len(pusher.pushed)


async def check_restored(config: Config, replica: Replica, load: Load, make: DataFactory) -> None:
    """Everything that was acknowledged before the dump is there, and every row agrees with its ref."""
    database, repositories = Database(config.database_url), Repositories(config.repositories)
    await whole(database, WriteLog(iids=replica.acknowledged), load.issues)
    services = replace(make.services, database=database, repositories=repositories)
    assert await disagreements(MergeRequestFactory(DataFactory(services, make.folder), load.merges.project, load.users[0])) == []
    merged = select(col(tables.MergeRequest.id)).where(col(tables.MergeRequest.state) == MergeRequestState.MERGED)
    async with database.read_session() as session:
        assert replica.merged <= set(await session.scalars(merged))
    repositories.close()
    await database.close()


@promise("R25", "R29", always=True)
async def test_a_dump_under_load_is_one_moment(
    make: DataFactory,
    tmp_path: Path,
    dumps: DumpTool,
    new_database: Callable[[], str],
    monkeypatch: pytest.MonkeyPatch,
    figure: Callable[[str], None],
) -> None:
    issues, writers = await create_writers(make, 2)
    merges, users = await prepare(make)
    load = Load(merges, await full_path(merges), issues, writers, users)
    administrator = await make.admin()
    await make.artifact(await make.build(merges.project, await merges.tip() or ""), b"artifact")
    await make.upload(issues, b"upload")
    answers = 0
    for number in range(ROUNDS):
        proposals = [await merges.proposal(f"round{number}-{turn}") for turn in range(MERGES)]
        await make.indexed(merges.project)
        folder = tmp_path / f"replica{number}"
        url = new_database() if dumps.database_url.startswith("postgres") else f"sqlite+aiosqlite:///{folder}/forge.db"
        replica = Replica(folder, url, load.log, load.merge_log)
        monkeypatch.setattr(instance_dump, "open_snapshot", replica.open_snapshot)
        with run_server(tmp_path, dumps.database_url) as server:
            async with load.run(server, proposals, number):
                await asyncio.sleep(0.3)
                dump = await dumps.dump(f"forge{number}.tar")
            assert (await server.stop())[0] == 0
        await replica.finish(tmp_path)
        config = await dumps.restore(dump, name=f"restored{number}")
        await check_restored(config, replica, load, make)
        with run_server(folder, url) as one, run_server(config.data, config.database_url) as other:
            answers += await compare_answers(one, other, administrator)
        for path in (config.data, folder, dump):
            await asyncio.to_thread(shutil.rmtree if path.is_dir() else Path.unlink, path)
    figure(
        f"{ROUNDS} dumps during {len(load.log.iids)} writes, {len(load.merge_log.acknowledged)} merges and {load.pushed} pushes:"
        f" 0 acknowledged before lost, 0 merge requests differ from their branch, {answers} answers are those of a replica of the same"
        f" moment; refused {dict(load.log.statuses)}"
    )


def run_command(*arguments: object, database_url: str) -> tuple[dict[str, Any], int]:
    """What a command prints as JSON, and the peak of its resident memory, in bytes."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("FORGEFRONT_")}
    environment["FORGEFRONT_DATABASE_URL"] = database_url
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with start_program("tests.support.measuring.measured_command", *arguments, "--json", env=environment, **pipes) as command:
        out, errors = command.communicate()
    assert command.returncode == 0, out + errors
    return json.loads(out), int(errors.splitlines()[-1]) * 1024


async def insert_builds(database: Database, build: tables.Build, number: int) -> None:
    """Inserts copies of a build, with other names, commits and times."""
    first = "(SELECT max(id) FROM builds) + n"
    if database.dialect == "sqlite":
        numbers = "WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < :number)"
        changed = {"sha": "lower(hex(randomblob(20)))", "created_at": "strftime('%Y-%m-%d %H:%M:%f000', 1460000000 + n * 61, 'unixepoch')"}
    else:
        numbers = "WITH numbers AS (SELECT n FROM generate_series(1, :number) AS n)"
        changed = {"sha": "md5(n::text) || '00000000'", "created_at": "to_timestamp(1460000000 + n * 61)"}
    changed |= {"id": first, "name": "'job' || (n % 17)", "started_at": changed["created_at"], "finished_at": changed["created_at"]}
    columns = tables.Build.__table__.columns.keys()  # type: ignore[attr-defined]
    values = ", ".join(changed.get(name, f"builds.{name}") for name in columns)
    statement = f"INSERT INTO builds ({', '.join(columns)}) {numbers} SELECT {values} FROM builds, numbers WHERE builds.id = :id"
    if database.dialect == "sqlite":
        statement = f"{numbers} INSERT INTO builds ({', '.join(columns)}) SELECT {values} FROM builds, numbers WHERE builds.id = :id"
    async with database.write_session() as session:
        await session.execute(text("SET LOCAL statement_timeout = 0") if database.dialect != "sqlite" else text("SELECT 1"))
        await session.execute(text(statement), {"number": number, "id": build.id})
        await session.commit()


def add_packs(repository: Path, megabytes: int, first: int = 0) -> None:
    """Adds packs of random blobs, of at most PACK_MEGABYTES each."""
    chance = random.Random(first)
    for start in range(0, megabytes, PACK_MEGABYTES):
        pack = PackWriter()
        for _ in range(min(PACK_MEGABYTES, megabytes - start)):
            pack.add("blob", chance.randbytes(2**20), level=0)
        subprocess.run(["git", "-C", str(repository), "index-pack", "--stdin"], input=pack.pack(), capture_output=True, check=True)


@promise("R31", always=True)
async def test_dumps_are_bounded(
    make: DataFactory, dumps: DumpTool, database: Database, tmp_path: Path, figure: Callable[[str], None]
) -> None:
    """Rows and packs are read and written in pieces; an incremental dump has what is new."""
    project = await make.indexed(await make.project(owner=await make.admin(), history={"commits": 4}))
    build = await make.build(project, "a" * 40, status=tables.CheckStatus.SUCCESS)
    repository = make.services.repositories.path_of(project.id)

    async def dump(name: str, *options: object) -> tuple[dict[str, Any], int]:
        arguments = ("dump", tmp_path / name, "--with-key", "--data", tmp_path, *options)
        return await asyncio.to_thread(run_command, *arguments, database_url=dumps.database_url)

    small, memory = await dump("small.tar")
    await insert_builds(database, build, BUILDS)
    await asyncio.to_thread(add_packs, repository, MEGABYTES)
    full, dump_peak = await dump("full.tar")
    await insert_builds(database, build, BUILDS // 100)
    await asyncio.to_thread(add_packs, repository, max(1, MEGABYTES // 100), MEGABYTES)
    later, later_peak = await dump("later.tar", "--since", tmp_path / "full.tar")

    files = [tmp_path / "full.tar", tmp_path / "later.tar"]
    restored, restore_peak = await asyncio.to_thread(
        run_command, "restore", *files, "--data", tmp_path / "restored", database_url=dumps.create_target()
    )
    assert full["rows"] == small["rows"] + BUILDS
    assert restored["rows"] == later["rows"] == full["rows"] + BUILDS // 100
    assert restored["check"]["ok"]

    grown = [round((peak - memory) / 2**20) for peak in (dump_peak, later_peak, restore_peak)]
    figure(
        f"{BUILDS} builds and {MEGABYTES} MB of packs: dump {full['seconds']:.0f} s, {full['bytes'] / 2**20:.0f} MiB; after 1 % has changed"
        f" {later['seconds']:.0f} s, {later['bytes'] / full['bytes']:.1%} of the size; restore of both {restored['seconds']:.0f} s;"
        f" {grown[0]}, {grown[1]} and {grown[2]} MiB more memory than the dump of an empty instance"
    )
    assert max(grown[:2]) <= MAX_GROWTH_MIB[0], grown
    assert grown[2] <= MAX_GROWTH_MIB[1], grown
    assert later["bytes"] <= full["bytes"] * 0.05
