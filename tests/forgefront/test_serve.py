"""`forgefront serve` as a process: what it prints, how it is stopped, and what a second start keeps."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from forgefront.demo_folder import is_unfinished
from tests.forgefront.running import Cli
from tests.history import git, make_history
from tests.promises import SHARE, promise, promised

KILLS = promised(20)


@contextmanager
def serving(data: Path, *options: object) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The process and all that it printed before it waited for requests."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("FORGEFRONT_")}
    process = subprocess.Popen(
        [sys.executable, "-m", "forgefront.cli", "serve", "--data", str(data), "--port", "0", *map(str, options)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=environment,
    )
    assert process.stdout is not None
    said = ""
    try:
        for line in process.stdout:
            said += line
            if line == "Ctrl-C stops it.\n":
                break
        yield process, said
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_killed_demo_is_begun_anew(tmp_path: Path, apart: None) -> None:
    source = make_history(tmp_path / "source.git", commits=20).path
    data = tmp_path / "data"
    command = [sys.executable, "-m", "forgefront.cli", "demo", "--data", str(data), "--repository", str(source)]
    for number in range(KILLS):
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            while not (data / "repositories").exists() and process.poll() is None:
                time.sleep(0.01)
            time.sleep(number % 5 * 0.4 + 0.2)
            process.kill()
        if not is_unfinished(data):
            # It was quicker than the kill.
            shutil.rmtree(data)
    Cli(data).json("demo", "--repository", source)
    assert Cli(data).json("check", "--full")["problems"] == []
    assert not is_unfinished(data)


def run(command: str) -> object:
    """Does what a printed curl command says; the tests need no curl."""
    url = re.search(r"http://[^\s\"]+", command)
    token = re.search(r"PRIVATE-TOKEN: ([^\"]+)\"", command)
    body = re.search(r"-d '(.*)'$", command)
    assert url
    assert token
    headers = {"PRIVATE-TOKEN": token[1]}
    if body:
        response = httpx.post(url[0], headers=headers, json=json.loads(body[1]), timeout=20)
    else:
        response = httpx.get(url[0], headers=headers, timeout=20)
    assert response.status_code == 200, response.text
    return response.json()


def test_demo_is_served_and_kept(tmp_path: Path, apart: None) -> None:
    source = make_history(tmp_path / "source.git", commits=10).path
    data = tmp_path / "the data"
    with serving(data, "--demo", "--repository", source) as (process, said):
        commands = [line.strip() for line in said.splitlines() if line.startswith("  curl ")]
        assert len(commands) == 3
        issues, commits, answer = (run(command) for command in commands)
        assert isinstance(issues, list)
        assert len(issues) == 3
        assert isinstance(commits, list)
        assert len(commits) == 3
        assert isinstance(answer, dict)
        assert answer["data"]["project"]["issues"]["totalCount"] > 3
        tokens = re.findall(r"^  (?:root|dev|reporter|outsider) +(\S{20})  ", said, re.MULTILINE)
        assert len(set(tokens)) == 4
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0
    started = time.monotonic()
    with serving(data, "--demo", "--repository", source) as (process, said):
        assert time.monotonic() - started < 20
        assert "The data are kept." in said
        assert not any(token in said for token in tokens)
        assert re.search(r"\$\(.*admin token show dev --data '.*the data'\)", said)
        token = Cli(data)("admin", "token", "show", "dev").stdout.strip()
        assert token in tokens
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0


@promise("R3", always=True)
def test_without_a_demo(tmp_path: Path, apart: None, figure: Callable[[str], None]) -> None:
    started = time.monotonic()
    with serving(tmp_path / "data") as (process, said):
        base = said.split()[3]
        assert httpx.get(f"{base}/-/readiness", timeout=20).json()["status"] == "ok"
        seconds = time.monotonic() - started
        figure(f"an empty folder answers after {seconds:.1f} s")
        if SHARE:
            assert seconds <= 3
        assert "curl" not in said
        # What is printed makes the first administrator, and then it is printed no more.
        command = re.search(r"^  .*forgefront.* (admin user create NAME --email ADDRESS --admin) --data (.*)$", said, re.MULTILINE)
        assert command and command[2] == str(tmp_path / "data")
        assert " demo --data FOLDER" in said
        words = command[1].replace("NAME", "root").replace("ADDRESS", "root@example.org").split()
        Cli(tmp_path / "data")(*words, "--no-password")
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0
    with serving(tmp_path / "data") as (_, said):
        assert "admin user create" not in said


@pytest.mark.parametrize("commits", ["none", "no git"])
def test_checkout_without_a_history(commits: str, tmp_path: Path, apart: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """As from a tarball: it is served all the same, and what to do is said."""
    (tmp_path / "checkout").mkdir()
    if commits == "none":
        git(tmp_path / "checkout", "init", "-q")
    monkeypatch.setattr("forgefront.commands.demo.CHECKOUT", tmp_path / "checkout")
    monkeypatch.setattr("forgefront.server.run", lambda config, on_ready: on_ready(config))
    result = Cli(tmp_path / "data")("serve", "--demo")
    assert "the demo's project is empty. To see a history: --repository PATH, with a new --data." in result.stderr
    assert "Three commands to try" in result.stdout


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (("--port", "99999"), 2, "port: "),
        (("--external-url", "ftp://x"), 2, "external_url: "),
        (("--demo", "--repository", "/nonexistent"), 2, "there is no git repository with a commit"),
        (("--host", "192.0.2.1"), 1, "cannot listen on 192.0.2.1"),
    ],
)
def test_cannot_start(cli: Cli, tmp_path: Path, options: tuple[str, ...], code: int, said: str) -> None:
    data = Cli(tmp_path / "new") if "--demo" in options else cli
    assert said in data("serve", *options, code=code).stderr
