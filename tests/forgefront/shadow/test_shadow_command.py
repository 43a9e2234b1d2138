"""`forgefront shadow` between two Forgefronts: one on SQLite, one on PostgreSQL."""

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from forgefront.cli import main
from forgefront.commands import shadow
from forgefront.shadow.settings import ServerAddress
from graph.jobs import maintenance
from graph.operations.execution import Graph
from tests.graph.planner.test_oracle import v3_calls
from tests.make import DataFactory, open_services, token_of
from tests.support.database import migrated_databases
from tests.support.database.databases import PostgresServer
from tests.support.queries.arguments import collect_arguments
from tests.support.queries.edge_case_data import create_edge_cases
from tests.support.servers.fork_server import start_program
from tests.support.servers.server_process import ServerProcess, run_server
from tests.support.week_fixture import NOW

RANDOM = {"/projects/:id": {("value", "$.runners_token")}}
"""What the two generate by chance, by the route; the report shows it as asterisks."""
RULES = """
[[tolerance]]
path = "$..*"
seconds = 600
reason = "the servers were filled one after the other"
"""


@dataclass
class Twins:
    """Two servers with the same data, the calls of v3 that read it, and an administrator's header."""

    old: ServerProcess
    new: ServerProcess
    calls: list[tuple[str, str, dict[str, Any]]]
    headers: dict[str, str]
    project: int


@dataclass
class ShadowProcess:
    process: subprocess.Popen[str]
    url: str
    status_url: str
    lines: list[str] = field(default_factory=list)

    def report(self, seen: int) -> dict[str, Any]:
        """The report of the status page, once it has counted this number of requests."""
        deadline = time.monotonic() + 30
        while True:
            report: dict[str, Any] = httpx.get(f"{self.status_url}report.json", timeout=60).json()
            total = report["total"]
            if total["seen"] >= seen and total["equal"] + total["different"] + sum(total["not_compared"].values()) == total["seen"]:
                return report
            assert time.monotonic() < deadline, total
            time.sleep(0.1)

    def stop(self) -> str:
        """Stops it gracefully; what it printed."""
        self.process.send_signal(signal.SIGTERM)
        output, _ = self.process.communicate(timeout=40)
        assert self.process.returncode == 0
        return output


@contextmanager
def run_shadow(old: str, new: str, *options: object, log: Path) -> Iterator[ShadowProcess]:
    """The command, ready, as a process of its own."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("FORGEFRONT_")}
    arguments = ["forgefront.cli", "shadow", "--old", old, "--new", new, "--port", "0", *map(str, options)]
    with log.open("w") as errors:
        process = start_program(*arguments, env=environment, stdout=subprocess.PIPE, stderr=errors, text=True)
    try:
        deadline = time.monotonic() + 60
        while len(found := re.findall(r"^(?:Shadow proxy|Status page): (\S+)", log.read_text(), re.MULTILINE)) < 2:
            assert process.poll() is None and time.monotonic() < deadline, log.read_text()
            time.sleep(0.05)
        running = ShadowProcess(process, *found)
        # What is sent before the second process runs is lost by the queue, as it should be.
        httpx.get(f"{running.status_url}report.json", timeout=60)
        yield running
    finally:
        process.kill()
        process.communicate()


@pytest.fixture(scope="module")
def twins(tmp_path_factory: pytest.TempPathFactory, histories: Path, postgres: PostgresServer) -> Iterator[Twins]:
    folders = tmp_path_factory.mktemp("old"), tmp_path_factory.mktemp("new")
    urls = f"sqlite+aiosqlite:///{folders[0] / 'forgefront.db'}", postgres.create_database()

    async def fill(folder: Path, url: str) -> tuple[list[tuple[str, str, dict[str, Any]]], dict[str, str], int]:
        async with open_services(url, folder, clock=lambda: NOW) as services:
            data = await create_edge_cases(DataFactory(services, histories), folder / "edge_cases.git")
            # A server would do it after its start, each in its own time.
            await maintenance.run_once(services)
            arguments = await collect_arguments(data, Graph(services), cursors=False)
            # One of each route.
            calls = {call: (call, path, parameters) for call, path, parameters in reversed(v3_calls(arguments))}
            return list(calls.values()), {"PRIVATE-TOKEN": token_of(data.viewers["admin"])}, data.projects[0].id

    filled = []
    for folder, url in zip(folders, urls, strict=True):
        migrated_databases.upgrade(url)
        filled.append(asyncio.run(fill(folder, url)))
    # The twin has other databases' order of nothing: the same ids.
    assert filled[0] == filled[1]
    with run_server(folders[0], urls[0]) as old, run_server(folders[1], urls[1]) as new:
        yield Twins(old, new, *filled[0])
    postgres.drop_database(urls[1])


class TestReads:
    def test_differ_by_what_is_random_only(self, twins: Twins, tmp_path: Path) -> None:
        report_file = tmp_path / "report.json"
        log = tmp_path / "log"
        rules = tmp_path / "rules.toml"
        rules.write_text(RULES)
        with (
            run_shadow(twins.old.url, twins.new.url, "--report", report_file, "--json", "--rules", rules, log=log) as shadow,
            httpx.Client(base_url=shadow.url, headers=twins.headers | {"User-Agent": "old-script/1"}) as proxied,
            httpx.Client(base_url=twins.old.url, headers=twins.headers) as direct,
        ):
            for _, path, parameters in twins.calls:
                answer = proxied.get(path, params=parameters)
                assert answer.status_code < 500, path
            for path in ("/api/v3/user", "/api/v3/projects?per_page=2"):
                one, other = (
                    client.get(path, params={"private_token": twins.headers["PRIVATE-TOKEN"]}, headers={"Host": "forge.example"})
                    for client in (proxied, direct)
                )
                assert one.content == other.content
                assert set(one.headers) == set(other.headers)
                assert one.headers.get("link") == other.headers.get("link")
            seen = len(twins.calls) + 2
            report = shadow.report(seen)
            shadow.process.send_signal(signal.SIGHUP)
            while not report_file.exists():
                time.sleep(0.05)
            assert report_file.stat().st_mode & 0o777 == 0o600
            page = httpx.get(shadow.status_url)
            foreign = httpx.get(f"{shadow.status_url}report.json", headers={"Host": "evil.example"})
            printed = json.loads(shadow.stop())
        written = json.loads(report_file.read_text())
        assert printed["total"] == written["total"] == report["total"]
        assert (report["total"]["seen"], report["total"]["lost"], report["total"]["not_compared"]) == (seen, 0, {})
        assert "default-src 'none'" in page.headers["content-security-policy"]
        assert foreign.status_code == 400
        found = {row["route"]: {(each["kind"], each["place"]) for each in row["differences"]} for row in report["routes"]}
        assert set(found) == {call.replace(" ", " /api/v3", 1) for call, _, _ in twins.calls} | {"GET /api/v3/user", "GET /api/v3/projects"}
        assert {route: places for route, places in found.items() if places} == {
            f"GET /api/v3{path}": places for path, places in RANDOM.items()
        }
        (client,) = report["clients"]
        assert (client["client"], client["seen"]) == ("old-script/1", seen)
        for text in (json.dumps(written), log.read_text()):
            assert twins.headers["PRIVATE-TOKEN"] not in text
        assert report["total"]["old_milliseconds"] > 0


class TestReplayedWrites:
    def test_are_sent_with_the_ids_of_the_other_server(self, twins: Twins, tmp_path: Path) -> None:
        """The new server has more issues, so the ids of later ones differ; ids of a file are used too."""
        issues = f"/api/v3/projects/{twins.project}/issues"
        for _ in range(2):
            httpx.post(f"{twins.new.url}{issues}", headers=twins.headers, data={"title": "Only here"}).raise_for_status()
        ids = tmp_path / "ids.tsv"
        ids.write_text(f"kind\told\tnew\nproject\t{twins.project}\t{twins.project}\n")
        rules = tmp_path / "rules.toml"
        rules.write_text('[[ignore]]\npath = "$..iid"\nreason = "the servers have drifted"\n')
        options = ("--replay-writes", "--ids", ids, "--rules", rules, "--ignore", "$..web_url")
        for is_switched in (False, True):
            secondary = twins.old if is_switched else twins.new
            switch = ("--switch",) if is_switched else ()
            with (
                run_shadow(twins.old.url, twins.new.url, *options, *switch, log=tmp_path / "log") as shadow,
                httpx.Client(base_url=shadow.url, headers=twins.headers | {"User-Agent": "writer"}) as client,
            ):
                made = client.post(issues, data={"title": f"Replayed {is_switched}", "labels": "a,b"}).json()
                issue = f"{issues}/{made['id']}"
                assert client.put(issue, json={"title": f"Changed {is_switched}"}).status_code == 200
                note = client.post(f"{issue}/notes", json={"body": "Said"}).json()
                assert client.get(f"{issue}/notes/{note['id']}").json()["body"] == "Said"
                assert client.get(issue).json()["title"] == f"Changed {is_switched}"
                # The project is not in the file: the write is answered, and not repeated.
                assert client.post("/api/v3/projects/2/issues", data={"title": "Unknown"}).status_code < 500
                report = shadow.report(6)
                shadow.stop()
            found = httpx.get(f"{secondary.url}{issues}?per_page=100", headers=twins.headers).json()
            (copy,) = [each for each in found if each["title"] == f"Changed {is_switched}"]
            assert copy["id"] != made["id"]
            notes = httpx.get(f"{secondary.url}{issues}/{copy['id']}/notes", headers=twins.headers).json()
            assert [each["body"] for each in notes if not each["system"]] == ["Said"]
            assert (report["answers"], report["total"]["not_compared"]) == (("old", "new")[is_switched], {"unknown id of a project": 1})
            places = {(row["route"].split()[0], each["kind"], each["place"]) for row in report["routes"] for each in row["differences"]}
            assert places == set(), report


class TestIsolation:
    def test_clients_see_nothing_of_a_comparison_that_dies(self, twins: Twins, tmp_path: Path) -> None:
        with run_shadow(twins.old.url, "http://127.0.0.1:1", log=tmp_path / "log") as shadow, httpx.Client(base_url=shadow.url) as client:
            assert client.get("/api/v3/projects").status_code == 401
            assert shadow.report(1)["total"]["not_compared"] == {"shadow server: no connection": 1}
            children = Path(f"/proc/{shadow.process.pid}/task/{shadow.process.pid}/children").read_text().split()
            os.kill(int(children[0]), signal.SIGKILL)
            while Path(f"/proc/{children[0]}").exists():
                time.sleep(0.01)
            for _ in range(20):
                assert client.get("/api/v3/projects").status_code == 401
            assert shadow.report(0)["total"]["comparison_restarts"] == 1
            assert client.get("/api/v3/projects").status_code == 401
            total = shadow.report(1)["total"]
            # Those that the process had taken are lost with it.
            assert 1 <= total["seen"] <= 21
            assert 20 <= total["seen"] + total["lost"] <= 21
            assert "Restarts of the comparison: 1;" in shadow.stop()


class TestGit:
    def test_clones_and_pushes_through_the_proxy(self, twins: Twins, tmp_path: Path) -> None:
        environment = {**os.environ, "GIT_TERMINAL_PROMPT": "0", "HOME": str(tmp_path), "GIT_CONFIG_NOSYSTEM": "1"}

        def git(*arguments: object) -> str:
            identity = ("-c", "user.name=Ada", "-c", "user.email=ada@example.org")
            # A small buffer has git send the pack in chunks.
            command = ["git", *identity, "-c", "http.postBuffer=65536", *map(str, arguments)]
            return subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout.strip()

        with run_shadow(twins.old.url, twins.new.url, log=tmp_path / "log") as shadow:
            address = shadow.url.replace("://", f"://root:{twins.headers['PRIVATE-TOKEN']}@") + "/acme/web.git"
            git("clone", "--quiet", address, tmp_path / "web")
            (tmp_path / "web" / "large.bin").write_bytes(os.urandom(3_000_000))
            git("-C", tmp_path / "web", "add", ".")
            git("-C", tmp_path / "web", "commit", "--quiet", "-m", "Large")
            git("-C", tmp_path / "web", "push", "--quiet", "origin", "HEAD:refs/heads/through-the-proxy")
            pushed = git("-C", tmp_path / "web", "rev-parse", "HEAD")
            assert git("ls-remote", address, "through-the-proxy").split()[0] == pushed
            report = shadow.report(5)
        assert set(report["total"]["not_compared"]) == {"git over HTTP"}
        assert {row["route"] for row in report["routes"]} == {
            "GET /:namespace/:project.git/info/refs",
            "POST /:namespace/:project.git/git-upload-pack",
            "POST /:namespace/:project.git/git-receive-pack",
        }


class TestUsage:
    def test_mistakes_end_the_command_before_it_listens(self, tmp_path: Path) -> None:
        rules, ids = tmp_path / "rules.toml", tmp_path / "ids.tsv"
        rules.write_text("[[ignored]]")
        ids.write_text("project\t1")
        with socket.create_server(("127.0.0.1", 0)) as busy:
            port = busy.getsockname()[1]
            for options, message in {
                ("--old", "localhost:80"): "--old: 'localhost:80' must be an address such as http://localhost:8080",
                ("--new", "http://new.example/gitlab"): "--new: 'http://new.example/gitlab' must have neither a path nor a user",
                ("--new", "http://[x"): "--new: 'http://[x' is not a URL",
                ("--ignore", "title"): "--rules or --ignore: 'title' must begin with $",
                ("--rules", str(rules)): "--rules or --ignore: 'ignored' is not a table of rules",
                ("--ids", str(ids)): "--ids: line 1: must be a kind, an old ID and a new ID, separated by tabs",
                ("--port", str(port)): f"cannot listen on 127.0.0.1 port {port}",
                ("--status-port", str(port)): f"cannot listen on 127.0.0.1 port {port}",
                ("--report", str(tmp_path / "none" / "report")): "--report: there is no folder",
            }.items():
                servers = ["--old", "http://127.0.0.1:1", "--new", "http://127.0.0.1:2", "--port", "0"]
                result = CliRunner().invoke(main, ["shadow", *servers, *options])
                assert (result.exit_code, message in result.stderr) == (2, True), (options, result.output)

    @pytest.mark.parametrize(
        ("host", "server"), [("127.0.0.1", "localhost"), ("127.0.0.1", "127.0.0.1"), ("0.0.0.0", "127.0.0.1"), ("0.0.0.0", "localhost")]
    )
    def test_neither_server_is_the_proxy_itself(self, unused_tcp_port: int, host: str, server: str) -> None:
        itself, other = f"http://{server}:{unused_tcp_port}", "http://127.0.0.1:2"
        for old, new in ((itself, other), (other, itself)):
            arguments = ["shadow", "--old", old, "--new", new, "--host", host, "--port", str(unused_tcp_port)]
            result = CliRunner().invoke(main, arguments)
            assert (result.exit_code, f"{itself} is the address of this proxy itself" in result.stderr) == (2, True), result.output

    def test_a_server_may_have_the_port_of_the_proxy_on_another_address(self, unused_tcp_port: int) -> None:
        with socket.create_server(("127.0.0.2", unused_tcp_port)) as listener:
            shadow._refuse_loop(ServerAddress.parse(f"http://127.0.0.1:{unused_tcp_port}"), listener)
