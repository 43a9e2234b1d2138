"""Builds the data folders of version 0.1.0 that tests/forgefront/server/test_upgrades.py upgrades.

`python -m tests.support.database.data_0_1_0.build CHECKOUT`, where CHECKOUT is the last commit that has no revision but 0001: the
parent of what `git log --diff-filter=A -- 'storage/migrations/versions/0002*'` shows. The server and the commands run from CHECKOUT, and
requests fill the folder, so that everything in it is what that version wrote. The archives have

- `data/`: the data folder, on SQLite with the database,
- `dump.sql`: on PostgreSQL the database,
- `answers.json`: tokens and ids that a test needs, and what that version answered to requests.
"""

import json
import os
import re
import signal
import socket
import sqlite3
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import httpx

from tests.support.database.databases import PostgresServer, client_program, temporary_server
from tests.support.servers.server_process import READY

FOLDER = Path(__file__).parent
EXTERNAL_URL = "https://forge.example.com"
MAIN = "demo/engine"
"""The project of the demo, named after the folder of its repository."""
DUE_CHECK = "INSERT INTO branch_looks (project_id, name) VALUES (1, 'main')"
"""What 0.1.0 writes with a push, and deletes a moment later: a server that was killed between leaves it."""
PATHS = (
    "user",
    "user/keys",
    "groups",
    "application/settings",
    "hooks",
    "users",
    *(f"projects/1/{kind}" for kind in ("issues", "labels", "milestones", "merge_requests", "builds", "repository/commits")),
    "projects/1/issues/1/notes",
    "projects/1/snippets/1/notes",
    "projects/1/repository/commits/main/statuses",
)
QUERIES = (
    '{ project(path: "1") { fullPath defaultBranch branches(first: 5) { nodes { name target { oid } } }'
    " mergeRequests(first: 5) { nodes { iid state closesIssues(first: 5) { nodes { iid } } labels } } } }",
    '{ project(path: "1") { issues(first: 50) { totalCount nodes { iid title state labels author { username } } } } }',
)


class Forge:
    """A data folder that commands and a server of the checkout work on."""

    def __init__(self, checkout: Path, data: Path, database_url: str | None) -> None:
        self.checkout, self.data = checkout, data
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("FORGEFRONT_")},
            "PYTHONPATH": str(checkout),
            "FORGEFRONT_DATA": str(data),
            "FORGEFRONT_EXTERNAL_URL": EXTERNAL_URL,
            "FORGEFRONT_HOOKS_ALLOW_LOCAL": "true",
            **({"FORGEFRONT_DATABASE_URL": database_url} if database_url else {}),
        }

    def _command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "forgefront.cli", *arguments]

    def run(self, *arguments: str) -> str:
        done = subprocess.run(self._command(*arguments), cwd=self.checkout, env=self.environment, stdout=subprocess.PIPE, check=True)
        return done.stdout.decode()

    @contextmanager
    def serve(self) -> Iterator[str]:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        command = self._command("serve", "--port", str(port))
        process = subprocess.Popen(command, cwd=self.checkout, env=self.environment, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        try:
            for line in process.stdout:
                if line == READY:
                    break
            yield f"http://127.0.0.1:{port}"
        finally:
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 0


def git(folder: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=Ada", "-c", "user.email=ada@example.com", "-c", "init.defaultBranch=main"]
    return subprocess.run(["git", *identity, *arguments], cwd=folder, stdout=subprocess.PIPE, check=True).stdout.decode()


def commit(folder: Path, name: str, message: str) -> str:
    with (folder / name).open("a") as file:
        file.write(f"{message}\n")
    git(folder, "add", name)
    git(folder, "commit", "--quiet", "--message", message)
    return git(folder, "rev-parse", "HEAD").strip()


def fill(forge: Forge, work: Path) -> dict[str, Any]:
    """Fills the folder. Returns what tests need to know of it."""
    source = work / "engine"
    source.mkdir()
    git(source, "init", "--quiet")
    for number in range(8):
        commit(source, f"file{number % 3}.txt", f"Change {number}")
    filled = forge.run("demo", "--repository", str(source))
    accounts = dict(re.findall(r"^  (\w+) +(\S{20})  ", filled, re.MULTILINE))
    forge.run("admin", "group", "create", "vault")
    forge.run("admin", "project", "create", "vault/secret", "--visibility", "private")
    token = accounts["root"]
    with forge.serve() as url, httpx.Client(base_url=url, headers={"PRIVATE-TOKEN": token}, timeout=30) as client:
        remote = url.replace("://", f"://root:{token}@")

        def v3(method: str, path: str, **body: Any) -> Any:
            response = client.request(method, f"/api/v3/{path}", json=body or None)
            assert response.is_success, (path, response.text)
            return response.json()

        def query(text: str, **variables: Any) -> Any:
            answer = client.post("/graphql", json={"query": text, "variables": variables}).json()
            assert "errors" not in answer, answer
            return answer["data"]

        def mutate(name: str, fields: str, /, **variables: Any) -> Any:
            kind = name[0].upper() + name[1:]
            text = f"mutation ($input: {kind}Input!) {{ {name}(input: $input) {{ {fields} userErrors {{ message }} }} }}"
            found = query(text, input=variables)[name]
            assert found["userErrors"] == [], found
            return found

        v3("POST", "hooks", url="http://user:password@127.0.0.1:9/hook")
        mutate("createHook", "__typename", url="http://127.0.0.1:9/signed", secret=f"whsec_{'c2VjcmV0' * 5}", issuesEvents=True)
        key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIFN6Gg2BUsnDAcIvUoQFCNb0bmBLXCEhvmzXvNbEDx8k"
        v3("POST", "user/keys", title="laptop", key=key)
        # Issues that pushes close: from the project, and from a private one whose name the note must not show.
        first, second, open_issue = (v3("POST", "projects/1/issues", title=f"Issue {number}") for number in range(3))
        clone = work / "clone"
        git(work, "clone", "--quiet", f"{remote}/{MAIN}.git", str(clone))
        head = commit(clone, "file0.txt", f"Fixes #{first['iid']}")
        git(clone, "push", "--quiet", "origin", "HEAD:main")
        secret = work / "secret"
        secret.mkdir()
        git(secret, "init", "--quiet")
        hidden = commit(secret, "plan.txt", f"Fixes {MAIN}#{second['iid']}")
        git(secret, "push", "--quiet", f"{remote}/vault/secret.git", "HEAD:main")
        v3("POST", f"projects/1/statuses/{head}", state="success", name="lint")
        # A merge request that waits for its builds.
        git(clone, "checkout", "--quiet", "-b", "topic")
        tip = commit(clone, "topic.txt", f"Topic, closes #{open_issue['iid']}")
        git(clone, "push", "--quiet", "origin", "topic")
        v3("POST", f"projects/1/statuses/{tip}", state="running", name="slow", ref="topic")
        request = v3(
            "POST", "projects/1/merge_requests", source_branch="topic", target_branch="main", title="Topic", description="As agreed"
        )
        v3("PUT", f"projects/1/merge_requests/{request['id']}/merge", merge_when_build_succeeds=True)
        # A build that runs, with a part of its trace, by a runner of the time.
        project = query('{ project(path: "demo/pipeline") { id: databaseId runnersToken } }')["project"]
        runner = client.post("/ci/api/v1/runners/register.json", json={"token": project["runnersToken"], "description": "old"}).json()
        finished = v3("GET", f"projects/{project['id']}/builds")[0]
        pending = v3("POST", f"projects/{project['id']}/builds/{finished['id']}/retry")
        claimed = client.post("/ci/api/v1/builds/register.json", json={"token": runner["token"]}).json()
        assert claimed["id"] == pending["id"]
        trace = f"begin {claimed['token']}\n"
        assert client.put(f"/ci/api/v1/builds/{claimed['id']}.json", json={"token": runner["token"], "trace": trace}).status_code == 200
        known = {
            "token": token,
            "reporter": accounts["reporter"],
            "runner": runner["token"],
            "build": {"id": claimed["id"], "project": project["id"], "token": claimed["token"]},
            "closed": {"issue": first["id"], "by": head},
            "closed_by_hidden": {"issue": second["id"], "by": hidden},
            "merge_request": {"id": request["id"], "tip": tip},
        }
        known["v3"] = {path: v3("GET", path) for path in PATHS}
        known["graph"] = {text: query(text) for text in QUERIES}
    return known


def pack(name: str, folder: Path) -> None:
    path = FOLDER / f"{name}.tar.xz"
    with tarfile.open(path, "w:xz", preset=9) as archive:
        for entry in sorted(folder.iterdir()):
            archive.add(entry, entry.name, filter=without_owner)
    print(f"wrote {path}, {path.stat().st_size:,} bytes")


def without_owner(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    if entry.name.endswith((".lock", "-wal", "-shm", ".sample")):
        return None
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return entry


def dump(url: str) -> str:
    """The database as plain SQL that any later server and any driver can execute."""
    command = [client_program("pg_dump"), "--inserts", "--rows-per-insert=100", "--no-owner", "--no-privileges", url]
    text = subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout.decode()
    # Settings that an older server may not know, and commands of psql.
    return re.sub(r"^(?:SET \w+ = .*;|SELECT pg_catalog\.set_config\(.*|\\(?:un)?restrict .*)\n", "", text, flags=re.MULTILINE)


def main() -> None:
    checkout = Path(sys.argv[1]).resolve()
    revisions = sorted(path.name for path in (checkout / "storage/migrations/versions").glob("0*.py"))
    assert len(revisions) == 1, f"{checkout} has the revisions {revisions}"
    with tempfile.TemporaryDirectory() as name:
        for database in ("sqlite", "postgresql"):
            work = Path(name) / database
            packed = work / "packed"
            packed.mkdir(parents=True)
            if database == "sqlite":
                known = fill(Forge(checkout, packed / "data", None), work)
                with closing(sqlite3.connect(packed / "data" / "forgefront.db")) as connection, connection:
                    connection.execute(DUE_CHECK)
            else:
                with temporary_server() as maintenance:
                    server = PostgresServer(maintenance)
                    url = server.create_database().replace("+asyncpg", "")
                    known = fill(Forge(checkout, packed / "data", url), work)
                    (packed / "dump.sql").write_text(dump(url) + f"{DUE_CHECK};\n")
                    server.close()
            (packed / "answers.json").write_text(json.dumps(known, indent=1))
            pack(database, packed)


if __name__ == "__main__":
    main()
