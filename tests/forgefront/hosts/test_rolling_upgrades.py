"""Hosts are upgraded one by one behind the balancer of the manual, as its section says, to a version with one more revision."""

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from storage import migrations, tables
from tests.forgefront.hosts.test_balancers import run_balancer
from tests.make import token_of
from tests.support.database import migrated_databases
from tests.support.servers.hosts import Hosts, git, write_text_commit
from tests.support.servers.server_process import ServerProcess

pytestmark = pytest.mark.parametrize("dialect", ["postgresql"], indirect=True)

REVISION = """
import sqlalchemy as sa
from alembic import op

revision = "{revision}"
down_revision = "{before}"
{mark}

def upgrade() -> None:
    op.add_column("issues", sa.Column("{column}", sa.Integer(), nullable=True))
"""


def make_next_version(revisions: Path, folder: Path, column: str, mark: str) -> Path:
    """Copies the revisions of a version of the program, and adds one, which adds a column."""
    shutil.copytree(revisions, folder)
    before = max(path.name[:4] for path in folder.glob("[0-9]*.py"))
    revision = f"{int(before) + 1:04d}"
    (folder / f"{revision}_next.py").write_text(REVISION.format(revision=revision, before=before, column=column, mark=mark))
    return folder


LOAD_PAUSE_SECONDS = 0.5


class Load:
    """A developer who pushes, writes and reads through the balancer until `stop`, and records every answer that is no success."""

    def __init__(self, address: str, project: dict[str, Any], user: tables.User, folder: Path) -> None:
        self._address = address
        self._project = project
        self._user = user
        self._folder = folder
        self._is_stopped = False
        self.turns = 0
        self.failures: list[str] = []

    async def run(self) -> None:
        url = f"{self._address.replace('://', f'://me:{token_of(self._user)}@')}/{self._project['path_with_namespace']}.git"
        await git("clone", "--quiet", url, str(self._folder))
        await git("checkout", "-q", "-b", "load", folder=self._folder, succeeds=None)
        issues = f"{self._address}/api/v3/projects/{self._project['id']}/issues"
        async with httpx.AsyncClient(headers={"PRIVATE-TOKEN": token_of(self._user)}, timeout=30) as client:
            while not self._is_stopped:
                self.turns += 1
                for response in (await client.post(issues, json={"title": f"Load {self.turns}"}), await client.get(issues)):
                    if not response.is_success:
                        self.failures.append(f"{response.request.method}: {response.status_code} {response.text[:200]}")
                oid = await write_text_commit(self._folder, f"load{self.turns}", "text\n")
                pushed = await git("push", "--quiet", url, "HEAD:refs/heads/load", folder=self._folder, succeeds=None)
                if pushed.code or (await git("ls-remote", url, "refs/heads/load", folder=self._folder)).out.split()[:1] != [oid]:
                    self.failures.append(f"push: {pushed.err}")
                await asyncio.sleep(LOAD_PAUSE_SECONDS)

    def stop(self) -> None:
        self._is_stopped = True


async def use_host(hosts: Hosts, number: int, project: dict[str, Any], user: tables.User, title: str) -> None:
    """Writes, reads and pushes through this host."""
    path, folder = f"/projects/{project['id']}", hosts.folder / "clone"
    issue = await hosts.api(number, "POST", f"{path}/issues", user, 200, title=title)
    assert title in [each["title"] for each in await hosts.api(number, "GET", f"{path}/issues", user, 200)]
    assert (await hosts.api(number, "PUT", f"{path}/issues/{issue['id']}", user, 200, title=f"{title}, changed"))["state"] == "opened"
    oid = await write_text_commit(folder, f"{title}.txt", "text\n")
    await git("push", "--quiet", hosts.url(number, project, user), "HEAD:refs/heads/master", folder=folder)
    for reader in hosts.servers:
        listed = await git("ls-remote", hosts.url(reader, project, user), "refs/heads/master")
        assert listed.out.split()[0] == oid


async def wait_until_balanced(address: str, server: ServerProcess) -> None:
    """Waits until the balancer sends requests to a server that has started: before that, no other may stop."""
    async with httpx.AsyncClient(headers={"Connection": "close"}, timeout=30) as client, asyncio.timeout(60):
        while not server.log_entries(path="/api/v3/user"):
            await client.get(f"{address}/api/v3/user")
            await asyncio.sleep(0.1)


@pytest.fixture
def database_url(new_database: Callable[[], str]) -> str:
    """A database of this test, since it adds columns."""
    url = new_database()
    migrated_databases.upgrade(url)
    return url


class TestRollingUpgrade:
    async def test_hosts_are_upgraded_one_by_one(self, hosts: Hosts, tmp_path: Path, database_url: str) -> None:
        ada = await hosts.make.admin()
        later = make_next_version(migrations.VERSIONS, tmp_path / "later", "weight", "expands = True")
        for number in (2, 3):
            await asyncio.to_thread(hosts.start, number)
        project = await hosts.create_project(2, ada, "app")
        await git("clone", "--quiet", hosts.url(2, project, ada), str(hosts.folder / "clone"))
        await git("checkout", "-q", "-b", "master", folder=hosts.folder / "clone", succeeds=None)
        ports = {number: int(server.url.rpartition(":")[2]) for number, server in hosts.servers.items()}
        before = await asyncio.to_thread(migrations.current_revision, database_url)

        async def restart(number: int, revisions: Path | None) -> None:
            code, _ = await hosts.servers[number].stop()
            assert code == 0
            hosts.kill(number)
            await asyncio.to_thread(hosts.start, number, revisions, ports[number])
            await wait_until_balanced(address, hosts.servers[number])

        with run_balancer("haproxy", hosts.folder, list(hosts.servers.values())) as address:
            load = Load(address, project, ada, hosts.folder / "load")
            running = asyncio.create_task(load.run())
            for number in (2, 3):
                await restart(number, later)
                after = await asyncio.to_thread(migrations.current_revision, database_url)
                assert before is not None and after is not None and int(after) == int(before) + 1
                for each in (2, 3):
                    await use_host(hosts, each, project, ada, f"through {each} after {number}")
                if number == 2:
                    # A host of the old version that dies meanwhile, or is restarted, serves again.
                    await restart(3, None)
                    await use_host(hosts, 3, project, ada, "again")
            load.stop()
            await running
        assert load.turns > 3
        assert load.failures == []
        assert [line for line in hosts.read_warnings() if '"level":"error"' in line] == []
        await self.refuse_other_versions(hosts, make_next_version(later, tmp_path / "breaking", "height", ""))

    async def refuse_other_versions(self, hosts: Hosts, breaking: Path) -> None:
        """A version that the running hosts do not tolerate starts when they have stopped, and they do not start again."""

        async def refuse(number: int, revisions: Path | None, *messages: str) -> None:
            start: Callable[..., object] = hosts.start
            with pytest.raises(AssertionError):
                await asyncio.to_thread(start, number, revisions)
            log = max(hosts.folder.glob(f"host{number}-*.log"), key=lambda path: path.stat().st_mtime_ns).read_text()
            assert all(message in log for message in messages), log

        await refuse(4, breaking, "of the database cannot be used by the hosts that run now: ", "(127.0.0.2:", "(127.0.0.3:", "Stop them")
        for number in (2, 3):
            assert (await hosts.servers[number].stop())[0] == 0
            hosts.kill(number)
        await asyncio.to_thread(hosts.start, 4, breaking)
        await refuse(3, None, "newer than this program")
