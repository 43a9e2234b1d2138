"""Backups taken under load, as docs/operations.md says, and restored (R25)."""

import asyncio
import contextlib
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from sqlalchemy import make_url, select
from sqlmodel import col

from storage import integrity, tables
from storage.database.engine import Database
from storage.tables import AccessLevel, MergeRequestState
from tests.make import DataFactory, token_of
from tests.reliability.test_merges import MergeLog, client_of, find_disagreements, full_path
from tests.support.databases import client_program
from tests.support.merge_requests import MergeRequestFactory, OpenMergeRequest
from tests.support.reliability_promises import promise, scaled_count
from tests.support.server_process import WriteLog, create_writers, run_server

BACKUPS = scaled_count(10)
MERGES_PER_BACKUP = 40
DATABASE_FILES = ("forge.db*", "backup*", "restored*", "*.log", "*.lock")


@dataclass
class Backup:
    """A backup, and what was acknowledged before it began."""

    folder: Path
    issues: set[str] = field(default_factory=set)
    merged: set[int] = field(default_factory=set)

    @property
    def dump(self) -> Path:
        return self.folder / "dump"

    @property
    def files(self) -> Path:
        return self.folder / "files"

    def take(self, data: Path, database_url: str) -> None:
        """The database first, then the files."""
        self.folder.mkdir()
        if database_url.startswith("sqlite"):
            source, target = sqlite3.connect(data / "forge.db"), sqlite3.connect(self.dump)
            source.backup(target)
            source.close()
            target.close()
        else:
            subprocess.run([client_program("pg_dump"), "--format=custom", f"--file={self.dump}", libpq_url(database_url)], check=True)
        try:
            shutil.copytree(data, self.files, copy_function=copy_if_present, ignore=shutil.ignore_patterns(*DATABASE_FILES))
        except shutil.Error as error:
            # A quarantine folder of git that was removed meanwhile.
            assert all("No such file" in reason for _, _, reason in error.args[0]), error

    def restore(self, folder: Path, database_url: str) -> None:
        shutil.copytree(self.files, folder)
        if database_url.startswith("sqlite"):
            file = Path(make_url(database_url).database or "")
            shutil.copyfile(self.dump, file)
            file.chmod(0o600)
        else:
            subprocess.run([client_program("pg_restore"), f"--dbname={libpq_url(database_url)}", str(self.dump)], check=True)


def libpq_url(database_url: str) -> str:
    return make_url(database_url).set(drivername="postgresql").render_as_string(hide_password=False)


def copy_if_present(source: str, target: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        shutil.copy2(source, target)


def check(folder: Path, database_url: str, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "forgefront.cli", "check", "--data", str(folder), *options]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("FORGEFRONT_")}
    environment["FORGEFRONT_DATABASE_URL"] = database_url
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


@promise("R25")
async def test_a_backup_under_load_is_restorable(
    make: DataFactory,
    tmp_path: Path,
    database_url: str,
    new_database: Callable[[], str],
    figure: Callable[[str], None],
) -> None:
    project, users = await create_writers(make, 4)
    developer = users[0]
    code = await make.project(history={"commits": 4}, members=[(developer, AccessLevel.MASTER)])
    merges, log, merge_log, backups = MergeRequestFactory(make, code, developer), WriteLog(), MergeLog(), []
    is_done = asyncio.Event()
    open_ones: asyncio.Queue[OpenMergeRequest] = asyncio.Queue()
    with run_server(tmp_path, database_url) as server:
        async with server.client() as v3, client_of(server) as client:

            async def write(user: tables.User) -> None:
                number = 0
                while not is_done.is_set():
                    assert await log.create_issue(v3, project.id, user, f"{user.username} {number}")
                    number += 1

            async def merge() -> None:
                while not is_done.is_set():
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(0.2):
                            proposal = await open_ones.get()
                        await merge_log.accept(client, proposal, developer)

            async with asyncio.TaskGroup() as group:
                for user in users:
                    group.create_task(write(user))
                for _ in range(4):
                    group.create_task(merge())
                for number in range(BACKUPS):
                    proposals = [await merges.proposal(f"branch{number}-{turn}") for turn in range(MERGES_PER_BACKUP)]
                    await make.indexed(code)
                    for proposal in proposals:
                        open_ones.put_nowait(proposal)
                    backup = Backup(tmp_path / f"backup{number}", set(log.iids), set(merge_log.acknowledged))
                    await asyncio.to_thread(backup.take, tmp_path, database_url)
                    backups.append(backup)
                is_done.set()
        assert (await server.stop())[0] == 0

    for number, backup in enumerate(backups):
        folder, url = tmp_path / f"restored{number}", new_database()
        await asyncio.to_thread(backup.restore, folder, url)
        repository = folder / "repositories" / f"{code.id}.git"
        database = Database(url)
        assert await find_disagreements(database, repository, code.id) == []
        found = await asyncio.to_thread(check, folder, url)
        assert found.returncode == 0, found.stdout + found.stderr
        with run_server(folder, url) as restored:
            address = f"{restored.url.replace('://', f'://me:{token_of(developer)}@')}/{await full_path(merges)}.git"
            await asyncio.to_thread(subprocess.run, ["git", "clone", "-q", "--mirror", address, str(folder / "clone")], check=True)
            assert (await restored.stop())[0] == 0
        assert await find_disagreements(database, folder / "clone", code.id) == []
        assert await integrity.find_broken_pages(database) == []
        assert await integrity.find_broken_references(database) == []
        async with database.read_session() as session:
            titles = set(await session.scalars(select(col(tables.Issue.title))))
            state = select(col(tables.MergeRequest.id)).where(col(tables.MergeRequest.state) == MergeRequestState.MERGED)
            merged = set(await session.scalars(state))
        await database.close()
        assert backup.issues <= titles
        assert backup.merged <= merged
        found = await asyncio.to_thread(check, folder, url, "--full")
        assert found.returncode == 0, found.stdout + found.stderr
    figure(
        f"{BACKUPS} backups during {len(log.iids)} writes and {len(merge_log.acknowledged)} merges: rows and refs agree in each as it is"
        " restored; 0 acknowledged before the backup lost"
    )
