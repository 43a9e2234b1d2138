"""`forgefront serve` as a process: its output, how it stops, and what a second start preserves."""

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from forgefront.data_folder.data_folder_claim import UNFINISHED_DEMO, is_unfinished
from forgefront.demo import demo_builder
from tests.forgefront.support.cli_runner import CommandRunner
from tests.support.git.git_history import make_history
from tests.support.reliability_promises import COUNT_SHARE, promise, scaled_count
from tests.support.servers.fork_server import start_interpreter, start_program
from tests.support.servers.server_process import WARM_UP

KILL_COUNT = scaled_count(20)


@contextmanager
def start_serve(
    data: Path, *options: object, start: Callable[..., subprocess.Popen[str]] = start_program
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The process and all that it printed before it waited for requests."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("FORGEFRONT_")}
    environment["FORGEFRONT_WARM_UP"] = WARM_UP
    command = ("forgefront.cli", "serve", "--data", data, "--port", 0, *options)
    process = start(*command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert process.stdout is not None
    output = ""
    try:
        for line in process.stdout:
            output += line
            if line == "Ctrl-C stops it.\n":
                break
        yield process, output
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def run_serve(command: str) -> object:
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


def test_an_interrupted_demo_is_restarted_served_and_preserved(tmp_path: Path, isolated_environment: None) -> None:
    """Filling a folder takes seconds, so that one does for all of it."""
    source = make_history(tmp_path / "source.git", commits=10).path
    data = tmp_path / "the data"
    interrupt_demo(data, source)
    with start_serve(data, "--demo", "--repository", source) as (process, output):
        commands = [line.strip() for line in output.splitlines() if line.startswith("  curl ")]
        assert len(commands) == 3
        issues, commits, answer = (run_serve(command) for command in commands)
        assert isinstance(issues, list)
        assert len(issues) == 3
        assert isinstance(commits, list)
        assert len(commits) == 3
        assert isinstance(answer, dict)
        assert answer["data"]["project"]["issues"]["totalCount"] > 3
        assert answer["data"]["project"]["fullPath"] == "demo/source"
        assert all(name in output for name in demo_builder.ROLES)
        runner_tokens = re.findall(r"^  FORGEFRONT_RUNNER_TOKEN=(\S+) ", output, re.MULTILINE)
        tokens = re.findall(r"^  (?:root|dev|reporter|outsider) +(\S{20})  ", output, re.MULTILINE)
        assert len(set(tokens)) == 4
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0
    assert CommandRunner(data).json("check", "--full")["problems"] == []
    assert not is_unfinished(data)
    with start_serve(data, "--demo", "--repository", source) as (process, output):
        assert "The data are from an earlier run." in output
        assert not any(token in output for token in tokens)
        assert re.search(r"\$\(.*admin token show dev --data '.*the data'\)", output)
        token = CommandRunner(data)("admin", "token", "show", "dev").stdout.strip()
        assert token in tokens
        (command,) = [line.strip() for line in output.splitlines() if "runners(" in line]
        answer = run_serve(command.replace(re.search(r"\$\(.*?\)", command)[0], token))  # type: ignore[index]
        assert isinstance(answer, dict)
        assert [each["token"] for each in answer["data"]["project"]["runners"]["nodes"]] == runner_tokens
        assert not any(each in output for each in runner_tokens)
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0


def interrupt_demo(data: Path, source: Path) -> None:
    """Kills `forgefront demo` again and again while it fills the folder; each time `check` reports it."""
    pipes = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    for number in range(KILL_COUNT):
        with start_program("forgefront.cli", "demo", "--data", data, "--repository", source, **pipes) as process:
            while not (data / "repositories").exists() and process.poll() is None:
                time.sleep(0.01)
            time.sleep(number % 5 * 0.4 + 0.2)
            process.kill()
        # It may have been quicker than the kill.
        (data / UNFINISHED_DEMO).touch()
        assert "creation was interrupted" in CommandRunner(data)("check", code=1).stdout


@promise("R3", always=True)
def test_without_a_demo(tmp_path: Path, isolated_environment: None, figure: Callable[[str], None]) -> None:
    started = time.monotonic()
    with start_serve(tmp_path / "data", start=start_interpreter) as (process, output):
        base = output.split()[4]
        assert httpx.get(f"{base}/-/readiness", timeout=20).json()["status"] == "ok"
        seconds = time.monotonic() - started
        figure(f"an empty folder answers after {seconds:.1f} s")
        if COUNT_SHARE:
            assert seconds <= 3
        assert "curl" not in output
        # What is printed makes the first administrator, and then it is printed no more.
        command = re.search(r"^  .*forgefront.* (admin user create NAME --email ADDRESS --admin) --data (.*)$", output, re.MULTILINE)
        assert command and command[2] == str(tmp_path / "data")
        assert " demo --data FOLDER" in output
        words = command[1].replace("NAME", "root").replace("ADDRESS", "root@example.org").split()
        CommandRunner(tmp_path / "data")(*words, "--no-password")
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0
    with start_serve(tmp_path / "data") as (_, output):
        assert "admin user create" not in output


def test_checkout_without_a_history(tmp_path: Path, isolated_environment: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """As from a tarball: it is served all the same, and what to do is said."""
    (tmp_path / "checkout").mkdir()
    monkeypatch.setattr("forgefront.commands.demo.CHECKOUT_FOLDER", tmp_path / "checkout")
    monkeypatch.setattr("forgefront.server.http_server.run", lambda config, on_ready: on_ready(config))
    result = CommandRunner(tmp_path / "data")("serve", "--demo")
    assert "the demo's project is empty. To show a history: --repository PATH, with a new --data." in result.stderr
    assert "Three commands to try" in result.stdout
    assert CommandRunner(tmp_path / "data").json("check")["problems"] == []


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (("--port", "99999"), 2, "port: "),
        (("--external-url", "ftp://x"), 2, "external_url: "),
        (("--demo", "--repository", "/nonexistent"), 2, "there is no git repository with a commit"),
        (("--host", "192.0.2.1"), 1, "cannot listen on 192.0.2.1"),
    ],
)
def test_cannot_start(cli: CommandRunner, tmp_path: Path, options: tuple[str, ...], code: int, message: str) -> None:
    data = CommandRunner(tmp_path / "new") if "--demo" in options else cli
    assert message in data("serve", *options, code=code).stderr
