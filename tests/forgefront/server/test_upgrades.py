"""Data folders that version 0.1.0 made, upgraded and served by this one. `tests/support/database/data_0_1_0/build.py` made them."""

import asyncio
import json
import tarfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import asyncpg
import httpx
import pytest
from sqlalchemy import func, inspect, make_url, select, table, text

from storage import migrations
from storage.database.engine import Database
from tests.forgefront.support.cli_runner import CommandRunner
from tests.support.database import data_0_1_0
from tests.support.database.data_0_1_0.build import EXTERNAL_URL
from tests.support.database.databases import PostgresServer
from tests.support.git.git_history import git
from tests.support.servers.server_process import ServerProcess, run_server

ARCHIVES = Path(data_0_1_0.__file__).parent
CLOSED_BY = "Status changed to closed by commit "

RENAMED_TABLES = {"branch_looks": "health_checks_due", "branches": "refs"}
REMOVED_TABLES = {"merge_intents"}
"""Which 0.1.0 fills only during a merge."""


@dataclass
class OldForge:
    """A data folder of version 0.1.0 and its database, and what that version answered."""

    data: Path
    database_url: str
    known: dict[str, Any]
    server: ServerProcess = field(init=False)

    @property
    def url(self) -> str:
        return self.server.url

    def get(self, path: str, token: str = "token") -> Any:
        response = httpx.get(f"{self.url}/api/v3/{path}", headers={"PRIVATE-TOKEN": self.known[token]}, timeout=30)
        assert response.status_code == 200, (path, response.text)
        return response.json()

    def bodies(self, path: str, token: str = "token") -> list[str]:
        return [note["body"] for note in self.get(path, token)]

    def post(self, path: str, body: Any = None) -> Any:
        response = httpx.post(f"{self.url}{path}", json=body, headers={"PRIVATE-TOKEN": self.known["token"]}, timeout=30)
        assert response.is_success, (path, response.text)
        return response.json()

    def first_changes(self, count: int) -> list[tuple[str | None, str]]:
        """(from, to) of the first builds in the change log."""
        query = 'subscription { buildChanged(projects: ["demo/pipeline"], afterSeq: "0") { from to } }'
        headers = {"PRIVATE-TOKEN": self.known["token"], "Accept": "text/event-stream"}
        with httpx.stream("POST", f"{self.url}/graphql", json={"query": query}, headers=headers, timeout=30) as response:
            events = (json.loads(line.removeprefix("data: ")) for line in response.iter_lines() if line.startswith("data: {"))
            changes = [event["data"]["buildChanged"] for event in islice(events, count)]
        return [(change["from"], change["to"]) for change in changes]

    def query(self, text: str) -> Any:
        headers = {"PRIVATE-TOKEN": self.known["token"]}
        return httpx.post(f"{self.url}/graphql", json={"query": text}, headers=headers, timeout=30).json()


async def count_rows(database_url: str) -> dict[str, int]:
    """The number of rows of each table."""
    database = Database(database_url)
    async with database.engine.connect() as connection:
        names = await connection.run_sync(lambda connection: inspect(connection).get_table_names())
        counts = {name: int(await connection.scalar(select(func.count()).select_from(table(name))) or 0) for name in names}
    await database.close()
    return counts


async def read_refs(database_url: str) -> dict[int, str]:
    """The refs of each project that has some, as git lists them."""
    database = Database(database_url)
    async with database.engine.connect() as connection:
        rows = await connection.execute(text("SELECT project_id, name, oid, peeled_oid FROM refs"))
        found = sorted(
            ((project_id, f"{name} {oid} {peeled or ''}") for project_id, name, oid, peeled in rows), key=lambda row: row[1].encode()
        )
    await database.close()
    return {project_id: "\n".join(line for owner, line in found if owner == project_id) for project_id, _ in found}


def until(condition: Callable[[], bool]) -> bool:
    """Whether the condition becomes true within thirty seconds."""
    for _ in range(300):
        if condition():
            return True
        time.sleep(0.1)
    return False


@pytest.fixture
def old_forge(dialect: str, request: pytest.FixtureRequest, tmp_path: Path, isolated_environment: None) -> Iterator[OldForge]:
    with tarfile.open(ARCHIVES / f"{dialect}.tar.xz") as archive:
        # Python 3.11.4 and later have filters, and 3.12 warns where none is named.
        archive.extractall(tmp_path, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
    known = json.loads((tmp_path / "answers.json").read_text())
    if dialect == "sqlite":
        yield OldForge(tmp_path / "data", f"sqlite:///{tmp_path}/data/forgefront.db", known)
        return
    server: PostgresServer = request.getfixturevalue("postgres")
    url = server.create_database()
    address = make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)

    async def load() -> None:
        connection = await asyncpg.connect(address)
        await connection.execute((tmp_path / "dump.sql").read_text())
        await connection.close()

    asyncio.run(load())
    yield OldForge(tmp_path / "data", address, known)
    server.drop_database(url)


@pytest.fixture
def served(old_forge: OldForge) -> Iterator[OldForge]:
    """The folder, served by this version, whose start upgrades it."""
    assert migrations.current_revision(old_forge.database_url) == "0001"
    with run_server(old_forge.data, old_forge.database_url) as server:
        old_forge.server = server
        old_forge.known = json.loads(json.dumps(old_forge.known).replace(EXTERNAL_URL, server.url))
        yield old_forge


def test_every_row_is_preserved(old_forge: OldForge) -> None:
    before = asyncio.run(count_rows(old_forge.database_url))
    migrations.upgrade(old_forge.database_url)
    after = asyncio.run(count_rows(old_forge.database_url))

    assert before["branch_looks"] == 1
    assert {before[table] for table in REMOVED_TABLES} == {0}
    renamed = {RENAMED_TABLES.get(table, table): count for table, count in before.items() if table not in REMOVED_TABLES}
    assert {table: after[table] for table in renamed} == renamed
    assert {table for table in after.keys() - renamed.keys() if after[table]} == {"identities", "row_counts", "schema_compatibility"}


def test_ids_are_not_used_again(old_forge: OldForge) -> None:
    """Of the tables that revisions before 0019 copied without AUTOINCREMENT; their rows are those of before."""
    names = ("hooks", "pipelines", "projects", "refs")

    async def run(statement: str) -> list[dict[str, Any]]:
        database = Database(old_forge.database_url)
        async with database.engine.begin() as connection:
            found = await connection.execute(text(statement))
            rows = [dict(row._mapping) for row in found] if found.returns_rows else []
        await database.close()
        return rows

    def read(name: str) -> dict[int, dict[str, Any]]:
        return {row["id"]: row for row in asyncio.run(run(f"SELECT * FROM {name}"))}

    migrations.upgrade(old_forge.database_url, "0017")
    before = {name: read(name) for name in names}
    migrations.upgrade(old_forge.database_url)

    for name, rows in before.items():
        assert {key: {column: row[column] for column in rows[key]} for key, row in read(name).items()} == rows
    assert all(before[name] for name in ("projects", "pipelines"))
    for name in ("pipelines", "projects"):
        highest = max(before[name])
        columns = ", ".join(before[name][highest].keys() - {"id"})
        asyncio.run(run(f"CREATE TABLE highest AS SELECT * FROM {name} WHERE id = {highest}"))
        asyncio.run(run(f"DELETE FROM {name} WHERE id = {highest}"))
        asyncio.run(run(f"INSERT INTO {name} ({columns}) SELECT {columns} FROM highest"))
        asyncio.run(run("DROP TABLE highest"))
        assert max(read(name)) > highest


def test_refs_are_taken_over(old_forge: OldForge) -> None:
    paths = sorted((old_forge.data / "repositories").glob("*.git"))
    before = {int(path.stem): git(path, "for-each-ref", "--format=%(refname) %(objectname) %(*objectname)") for path in paths}
    heads = {int(path.stem): git(path, "symbolic-ref", "HEAD") for path in paths}

    with run_server(old_forge.data, old_forge.database_url):
        stored = asyncio.run(read_refs(old_forge.database_url))

    assert stored == {project_id: refs for project_id, refs in before.items() if refs}
    assert len(stored) > 1
    assert {int(path.stem): git(path, "for-each-ref", "--format=%(refname) %(objectname) %(*objectname)") for path in paths} == before
    assert {int(path.stem): git(path, "symbolic-ref", "HEAD") for path in paths} == heads
    assert [file for path in paths for file in (path / "refs").rglob("*") if file.is_file()] == []


def test_indexed_branches_become_refs(old_forge: OldForge) -> None:
    """Those of projects whose refs were adopted, and of others, which are adopted at the next start."""

    async def run(*statements: str) -> list[Any]:
        database = Database(old_forge.database_url)
        async with database.engine.begin() as connection:
            found = [await connection.execute(text(statement)) for statement in statements]
            rows = [tuple(row) for row in found[-1]] if found[-1].returns_rows else []
        await database.close()
        return rows

    migrations.upgrade(old_forge.database_url, "0011")
    adopted = (
        "UPDATE projects SET refs_version = 7 WHERE id = 1",
        "INSERT INTO refs (project_id, name, oid) SELECT project_id, 'refs/heads/' || name, oid FROM branches WHERE project_id = 1",
        "INSERT INTO refs (project_id, name, oid) SELECT 1, 'refs/merge-requests/1/head', MIN(oid) FROM branches WHERE project_id = 1",
        "INSERT INTO refs (project_id, name, oid) SELECT 1, 'refs/heads/imported', MIN(oid) FROM branches WHERE project_id = 1",
        "SELECT project_id, 'refs/heads/' || name, oid, notified_health, notified_oid FROM branches",
    )
    branches = asyncio.run(run(*adopted))
    migrations.upgrade(old_forge.database_url)
    rows = asyncio.run(run("SELECT is_indexed, project_id, name, oid, notified_health, notified_oid FROM refs"))

    assert sorted(map(str, (row for is_indexed, *row in rows if is_indexed))) == sorted(map(str, map(list, branches)))
    assert {project_id for project_id, *_ in branches} > {1} and any(health for _, _, _, health, _ in branches)
    assert sorted(name for is_indexed, _, name, *_ in rows if not is_indexed) == ["refs/heads/imported", "refs/merge-requests/1/head"]


def test_answers_are_those_of_the_old_version(served: OldForge) -> None:
    assert {path: served.get(path) for path in served.known["v3"]} == served.known["v3"]
    assert {text: served.query(text) for text in served.known["graph"]} == {
        text: {"data": data} for text, data in served.known["graph"].items()
    }
    # Revision 0002: a note that a hidden project closed an issue is shown only to those who may see that project.
    notes = {issue: f"projects/1/issues/{served.known[issue]['issue']}/notes" for issue in ("closed", "closed_by_hidden")}
    hidden = f"{CLOSED_BY}vault/secret@{served.known['closed_by_hidden']['by']}"
    assert served.bodies(notes["closed"]) == served.bodies(notes["closed"], "reporter") == [f"{CLOSED_BY}{served.known['closed']['by']}"]
    assert (served.bodies(notes["closed_by_hidden"]), served.bodies(notes["closed_by_hidden"], "reporter")) == ([hidden], [])


def test_work_goes_on(served: OldForge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known, build, request = served.known, served.known["build"], served.known["merge_request"]
    path, requests = f"projects/{build['project']}/builds/{build['id']}", f"projects/1/merge_requests/{request['id']}"
    # The running build has exceeded its timeout by now: it fails, and its retry is claimed with the runner's old token.
    assert until(lambda: served.get(path)["status"] == "failed")
    retried = served.post(f"/api/v3/{path}/retry", {})
    claimed = served.post("/ci/api/v1/builds/register.json", {"token": known["runner"]})
    assert claimed["id"] == retried["id"]
    done = {"token": known["runner"], "state": "success", "trace": f"token {claimed['token']}\n"}
    assert httpx.put(f"{served.url}/ci/api/v1/builds/{claimed['id']}.json", json=done, timeout=30).status_code == 200
    assert served.get(f"projects/{build['project']}/builds/{claimed['id']}")["status"] == "success"
    # The merge request that waited is merged.
    served.post(f"/api/v3/projects/1/statuses/{request['tip']}", {"state": "success", "name": "slow", "ref": "topic"})
    assert until(lambda: served.get(requests)["state"] == "merged")
    remote = served.url.replace("://", f"://root:{known['token']}@")
    # Repositories are cloned and pushed to.
    git(tmp_path, "clone", "--quiet", f"{remote}/demo/engine.git", "clone")
    git(tmp_path / "clone", "merge-base", "--is-ancestor", request["tip"], "HEAD")
    git(tmp_path / "clone", "commit", "--quiet", "--allow-empty", "--message", "After the upgrade")
    git(tmp_path / "clone", "push", "--quiet", "origin", "HEAD:main")
    assert served.get("projects/1/repository/commits")[0]["title"] == "After the upgrade"
    # The change log continues where it was.
    assert served.first_changes(3) == [(None, "PENDING"), ("PENDING", "RUNNING"), ("RUNNING", "SUCCESS")]
    newest = max(issue["iid"] for issue in known["v3"]["projects/1/issues"])
    assert served.post("/api/v3/projects/1/issues", {"title": "New"})["iid"] == newest + 1

    served.server.kill()
    assert migrations.current_revision(served.database_url) == migrations.head_revision()
    monkeypatch.setenv("FORGEFRONT_DATABASE_URL", served.database_url)
    assert CommandRunner(served.data).json("check", "--full")["problems"] == []
