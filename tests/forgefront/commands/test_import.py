"""`forgefront import`: what it prints, its reports, its exit codes, and Ctrl-C."""

import json
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import uvicorn

from forgefront.shadow.comparison.comparison_rules import ComparisonRules
from forgefront.shadow.comparison.id_map import IdMap
from tests.forgefront.support.cli_runner import CommandRunner
from tests.support.imports.v4_source import FULL_USER, TOKEN, V4Server
from tests.support.servers.fork_server import start_program

pytestmark = pytest.mark.usefixtures("isolated_environment")


@pytest.fixture
def source(tmp_path: Path) -> V4Server:
    return V4Server(tmp_path / "client.git")


@pytest.fixture
def address(source: V4Server) -> Iterator[str]:
    """Serves the source in a thread, because commands have an event loop of their own."""
    listening = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(source, lifespan="off", log_config=None))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    server.should_exit = True
    thread.join()
    listening.close()


@pytest.fixture
def new(tmp_path: Path) -> CommandRunner:
    return CommandRunner(tmp_path / "new")


class TestImport:
    def test_counts_imports_and_reports(self, new: CommandRunner, address: str, source: V4Server, tmp_path: Path) -> None:
        fast = ("--token", TOKEN, "--requests-per-second", 10_000)
        page, ids = tmp_path / "report.html", tmp_path / "ids.tsv"
        users = source.answers["/users"]
        source.answers["/users"] = [{**user, "two_factor_enabled": True} for user in users]
        counted = json.loads(new("import", address, *fast, "--dry-run", "--json", code=3).stdout)
        assert counted["counts"]["issues"]["read"] == 2
        left = {each["reason"] for each in counted["left_behind"]}
        assert "the second factor: it is set up again" in left
        assert "its place in diaspora/inner: groups here do not nest" in left
        assert "the source does not show the private tokens of other users: they get new ones" in counted["notes"]
        source.answers["/users"] = users
        assert not new.data.exists()

        done = new("import", address, *fast, "--report", page, "--old-ids", ids, code=3)
        assert "Left behind: 15" in done.stdout
        assert "groups here do not nest" in done.stdout
        assert "projects: contents" in done.stderr
        assert "<h2>Left behind: 15</h2>" in page.read_text()
        assert "project\t3\t1\n" in ids.read_text()
        shadow_ids = IdMap(ComparisonRules.read())
        shadow_ids.read(ids.read_text().splitlines())
        assert shadow_ids.map_target("/api/v3/projects/3/issues") == "/api/v3/projects/1/issues"
        assert TOKEN not in done.output + page.read_text()

        again = json.loads(new("import", address, *fast, "--json", code=3).stdout)
        assert (again["complete"], again["api"], again["version"]) == (True, "v4", "13.2.1")
        assert sum(count["created"] + count["updated"] for count in again["counts"].values()) == 0
        source.answers["/user"] = FULL_USER | {"username": "other", "id": 2, "is_admin": False}
        del source.answers["/application/settings"]
        source.paths.clear()
        refused = new("import", address, *fast, code=1)
        assert {path.partition("?")[0] for path in source.paths} <= {"/api/v4/user", "/api/v4/version"}
        assert "not that of an administrator" in refused.stderr
        assert "application settings" in refused.stderr

    def test_wrong_usage_and_refusals_write_nothing(self, new: CommandRunner, address: str) -> None:
        for arguments, code, message in (
            (("ftp://old.example", "--token", "x"), 2, "is not an address"),
            (("http://ann:secret@old.example", "--token", "x"), 2, "is not an address"),
            ((address, "--token", "x", "--project", "a/b", "--group", "a"), 2, "not both"),
            ((address, "--token", "wrong"), 1, "does not accept the token"),
            ((f"{address}/nothing", "--token", TOKEN), 1, "neither API v3 nor v4"),
            ((address,), 2, "--token"),
            ((address, "--token", "x", "--report", "/nowhere/report.html"), 2, "--report: there is no folder /nowhere"),
        ):
            assert message in new("import", *arguments, code=code).stderr, arguments
        assert not new.data.exists()

    def test_ctrl_c_ends_it_and_says_how_to_go_on(self, new: CommandRunner, address: str, source: V4Server) -> None:
        arguments = ("import", address, "--requests-per-second", 5, "--data", new.data)
        environment = {**os.environ, "FORGEFRONT_IMPORT_TOKEN": TOKEN}
        process = start_program("forgefront.cli", *arguments, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        until = time.monotonic() + 60
        while len(source.paths) < 15 and time.monotonic() < until:
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=30)
        assert process.returncode == 130, errors.decode()
        assert "run the same command again" in errors.decode()
        assert b"Traceback" not in errors
        assert b"kind" in output
        new("import", address, "--token", TOKEN, "--requests-per-second", 10_000, code=3)
