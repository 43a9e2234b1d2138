"""`forgefront runner` against a running service: builds of a pushed repository, and what its parts do by themselves."""

import asyncio
import io
import json
import os
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from graphql import build_schema, parse, validate

from forgefront.runner import archive, shell
from forgefront.runner.service import OPERATIONS, Gone, Job, Service, Unreachable
from forgefront.runner.trace import AT_ONCE, MASK, MOST_HELD, Trace
from forgefront.runner.work import Ended, Work
from graph.schema import printed
from tests.forgefront.running import Cli
from tests.reliability.served import Served, served

REPOSITORY = Path(__file__).parents[2]
JOBS = """
stages: [build, test, deploy]
passes:
  stage: build
  tags: [passes]
  script:
    - echo "building $CI_BUILD_NAME"
    - |
      if true; then
        echo two lines
      fi
    - mkdir -p pkg && echo made > pkg/file.txt && ln -s /etc/passwd pkg/link
    - echo "token $CI_BUILD_TOKEN in $CI_BUILD_REPO"
    - git log --oneline | head -1
    - env | grep -c RUNNER_SECRET || true
    - echo '42% covered'
  after_script: [echo goodbye]
  artifacts: {paths: [pkg/, "no*.such"], name: packages}
fails:
  stage: build
  tags: [fails]
  script: [echo before, exit 3, echo never]
  artifacts: {paths: [README], when: on_failure}
sleeps:
  stage: build
  tags: [sleeps]
  script: ["echo sleeping; sleep 300 & sleep 300"]
prints:
  stage: build
  tags: [prints]
  script:
    - head -c 3000000 /dev/urandom
    - head -c 3000000 /dev/zero | tr '\\0' x
    - printf 'the end\\n\\000'
"""


@dataclass
class Site:
    """A running service with the project `ann/tool`, of whose pushed commit builds wait."""

    server: Served
    folder: Path
    token: str

    def ask(self, query: str, token: str | None = None, **variables: Any) -> Any:
        body = {"query": query, "variables": variables}
        answer = httpx.post(f"{self.server.url}/graphql", json=body, headers={"PRIVATE-TOKEN": token or self.token}, timeout=30).json()
        assert "errors" not in answer, answer
        ((_, value),) = answer["data"].items()
        return value

    def runner(self, *tags: str) -> str:
        """The token of a new runner for the project."""
        query = "mutation ($input: CreateRunnerInput!) { createRunner(input: $input) { token userErrors { message } } }"
        given = {"projectPath": "ann/tool", "description": "r", "tags": list(tags), "runUntagged": False}
        payload = self.ask(query, input=given)
        assert payload["userErrors"] == []
        return str(payload["token"])

    def start(self, token: str, *options: str, url: str = "") -> "subprocess.Popen[str]":
        command = [sys.executable, "-m", "forgefront.cli", "runner", "--url", url or self.server.url, "--json", *options]
        environment = {**os.environ, "FORGEFRONT_RUNNER_TOKEN": token, "RUNNER_SECRET": "hidden"}
        return subprocess.Popen(
            [*command, "--builds-dir", str(self.folder / "builds")],
            cwd=REPOSITORY,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, token: str, *options: str) -> tuple[int, dict[str, Any], str]:
        """Runs one build; the exit code, what was printed of the build, and the log."""
        process = self.start(token, "--once", *options)
        out, errors = process.communicate(timeout=60)
        assert out, errors
        return process.returncode, json.loads(out), errors

    def build(self, name: str) -> Any:
        query = """
            query ($name: [String!]) { project(path: "ann/tool") { builds(filter: {name: $name}) { nodes {
              databaseId name status coverage trace(last: 1000) { lines totalBytes } artifact { filename downloadUrl }
              runner { name platform }
            } } } }
        """
        (found,) = self.ask(query, name=[name])["builds"]["nodes"]
        return found

    def until(self, name: str, **wanted: Any) -> Any:
        """The build, once it is so."""
        deadline = time.monotonic() + 20
        while True:
            found = self.build(name)
            if all(found[key] == value for key, value in wanted.items()):
                return found
            assert time.monotonic() < deadline, found
            time.sleep(0.2)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("runner")
    data = folder / "data"
    cli = Cli(data)
    cli("admin", "user", "create", "ann", "--email", "ann@example.org", "--admin", "--no-password")
    token = cli("admin", "token", "show", "ann").stdout.strip()
    with served(data, f"sqlite:///{data}/forgefront.db") as server:
        site = Site(server, folder, token)
        site.ask('mutation { createProject(input: {name: "tool"}) { project { id } userErrors { message } } }')
        work = folder / "work"
        work.mkdir()
        (work / ".gitlab-ci.yml").write_text(JOBS)
        (work / "README").write_text("read me\n")
        who = ["-c", "user.name=Ann", "-c", "user.email=ann@example.org"]
        host = server.url.removeprefix("http://")
        for arguments in (
            ["init", "-q", "-b", "master"],
            ["add", "."],
            [*who, "commit", "-q", "-m", "First"],
            ["push", "-q", f"http://ann:{token}@{host}/ann/tool.git", "master"],
        ):
            subprocess.run(["git", *arguments], cwd=work, check=True, capture_output=True)
        yield site


class TestABuild:
    def test_passes_and_leaves_its_artifact(self, site: Site) -> None:
        token = site.runner("passes")

        code, said, log = site.run(token)

        build = site.build("passes")
        assert (code, said) == (0, {"build": build["databaseId"], "name": "passes", "ended": "passed"}), log
        assert build["status"] == "SUCCESS"
        assert build["runner"] == {"name": "forgefront", "platform": "linux"}
        text = "\n".join(build["trace"]["lines"])
        for expected in ('$ echo "building $CI_BUILD_NAME"\nbuilding passes\n', "\ntwo lines\n", " First\n", "\n$ echo goodbye\ngoodbye\n"):
            assert expected in text, text
        assert "$ if true; then\n  echo two lines\nfi\n" in text
        assert f"token {MASK} in {MASK}" in text
        assert "RUNNER_SECRET || true\n0\n" in text
        assert "fb-" not in text and token not in text and token not in log and "fb-" not in log
        assert "no*.such: there are no such files" in text
        assert build["artifact"]["filename"] == "packages.zip"
        kept = httpx.get(build["artifact"]["downloadUrl"], headers={"PRIVATE-TOKEN": site.token})
        with zipfile.ZipFile(io.BytesIO(kept.content)) as file:
            assert {name: file.read(name) for name in file.namelist()} == {"pkg/file.txt": b"made\n"}
        assert list((site.folder / "builds").iterdir()) == []

    def test_fails_with_the_exit_code_of_its_script(self, site: Site) -> None:
        code, said, _ = site.run(site.runner("fails"))

        build = site.build("fails")
        assert (code, said["ended"], build["status"]) == (1, "failed", "FAILED")
        lines = build["trace"]["lines"]
        assert "ERROR: Build failed: exit code 3" in lines
        assert "before" in lines and "never" not in lines
        assert build["artifact"]["filename"] == "artifacts.zip"

    def test_prints_without_end(self, site: Site) -> None:
        code, _, log = site.run(site.runner("prints"))

        build = site.build("prints")
        assert code == 0, log
        assert build["trace"]["totalBytes"] > 5_000_000
        assert build["trace"]["lines"][-1] == "\N{REPLACEMENT CHARACTER}"

    def test_is_given_back_when_the_runner_stops_and_ends_when_it_is_canceled(self, site: Site) -> None:
        token = site.runner("sleeps")
        process = site.start(token, "--grace", "0.2")
        site.until("sleeps", status="RUNNING")
        process.send_signal(signal.SIGTERM)
        out, errors = process.communicate(timeout=20)
        assert json.loads(out)["ended"] == "given back", errors
        build = site.until("sleeps", status="PENDING")
        assert build["trace"]["lines"] == ["The runner gave the build back; it was started again."]

        process = site.start(token, "--once")
        site.until("sleeps", status="RUNNING")
        site.ask(
            "mutation ($input: BuildInput!) { cancelBuild(input: $input) { userErrors { code } } }",
            input={"projectPath": "ann/tool", "databaseId": build["databaseId"]},
        )
        out, errors = process.communicate(timeout=20)
        assert json.loads(out)["ended"] == "gone", errors
        assert "The build was canceled." in errors
        assert site.build("sleeps")["status"] == "CANCELED"
        assert not running_now("sleep 300")

    def test_a_wrong_token_is_told_of(self, site: Site) -> None:
        process = site.start("fr-" + "x" * 20, "--once")

        _, errors = process.communicate(timeout=20)

        assert process.returncode == 1
        assert "does not know this token" in errors


def entries(folder: Path) -> list[Path]:
    return list(folder.iterdir())


def running_now(command: str) -> list[str]:
    """The processes that were started so and have not ended."""
    wanted = "\0".join(command.split()).encode() + b"\0"
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if (process / "cmdline").read_bytes() == wanted:
                found.append(process.name)
        except OSError:
            continue
    return found


class Heard:
    """Stands for the service, and keeps what it is told."""

    def __init__(self, *, gone: bool = False) -> None:
        self.text = ""
        self.statuses: list[str] = []
        self.gone = gone

    async def append(self, job: Job, text: str, offset: int, *, tries_for: float) -> None:
        if self.gone:
            raise Gone("The build was canceled.")
        assert offset == len(self.text.encode())
        self.text += text

    async def say(self, job: Job, status: str, *, tries_for: float) -> None:
        self.statuses.append(status)


class Unfetched(Work):
    """Has no code to fetch."""

    async def _fetch(self, code: Path, place: Path) -> None:
        pass


def work_of(heard: Heard, folder: Path, *script: str, **changes: Any) -> Work:
    given: dict[str, Any] = {"timeout_seconds": 60, "artifacts": None, "after_script": (), **changes}
    job = Job(
        build_id=1,
        token="fb-1-" + "x" * 20,
        name="job",
        ref="master",
        sha="a" * 40,
        repository_url="http://localhost/a/b.git",
        script=script,
        variables={},
        secrets=frozenset(),
        lease_seconds=60,
        trace_offset=0,
        trace_limit=2**20,
        **given,
    )
    return Unfetched(heard, job, folder, "fr-" + "x" * 20)  # type: ignore[arg-type]


class TestWork:
    async def test_ends_when_its_time_is_over(self, tmp_path: Path) -> None:
        heard = Heard()

        ended = await work_of(heard, tmp_path, "echo began", "sleep 86420", timeout_seconds=1).run()

        assert ended is Ended.FAILED
        assert heard.statuses == ["FAILED"]
        assert heard.text.endswith("$ sleep 86420\nERROR: The build took longer than 1 s, which is all that it has.\n")
        assert not running_now("sleep 86420")

    async def test_ends_when_it_is_gone_and_says_nothing_more(self, tmp_path: Path) -> None:
        heard = Heard(gone=True)

        assert await work_of(heard, tmp_path, "sleep 86421").run() is Ended.GONE
        assert heard.statuses == []
        assert not running_now("sleep 86421")

    async def test_leaves_no_folder_whatever_the_script_did_to_it(self, tmp_path: Path) -> None:
        ended = await work_of(Heard(), tmp_path, "mkdir -p a/b && touch a/b/c && chmod 0 a/b && chmod 500 a").run()

        assert ended is Ended.PASSED
        assert entries(tmp_path) == []

    async def test_what_comes_after_the_script_runs_also_when_that_failed(self, tmp_path: Path) -> None:
        heard = Heard()

        assert await work_of(heard, tmp_path, "false", after_script=("echo after", "exit 9")).run() is Ended.FAILED
        assert "\nafter\n" in heard.text
        assert "WARNING: What comes after the script ended with 9" in heard.text


class TestOperations:
    def test_are_those_of_the_schema(self) -> None:
        assert validate(build_schema(printed()), parse(OPERATIONS.read_text())) == []


class TestService:
    async def test_is_asked_again_while_it_is_away(self) -> None:
        body = b'{"data":{"appendBuildTrace":{"build":{"status":"RUNNING"},"userErrors":[]}}}'
        answers = [
            b"",
            b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body),
        ]
        asked = []

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while (line := await reader.readline()) and answers:
                asked.append(line)
                length = 0
                while (line := await reader.readline()).strip():
                    name, _, value = line.decode().partition(":")
                    length = int(value) if name.lower() == "content-length" else length
                await reader.readexactly(length)
                said = answers.pop(0)
                writer.write(said)
                if not said:
                    break
            writer.close()

        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        service = Service(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", "fr-" + "x" * 20, pause=0.01)
        try:
            await service.append(work_of(Heard(), Path()).job, "text", 0, tries_for=5)
            assert len(asked) == 3
            server.close()
            with pytest.raises(Unreachable):
                await service.append(work_of(Heard(), Path()).job, "text", 0, tries_for=0.05)
        finally:
            server.close()
            await service.close()


class TestTrace:
    async def test_takes_secrets_out_wherever_they_are_cut(self) -> None:
        trace = Trace(["fb-1-secretsecret"], limit=10**6)
        seen = ""
        for piece in ("a fb-1-", "secretsecret b fb-", "1-other c fb-1-secretsecret"):
            await trace.write(piece.encode())
            text = trace.take()
            trace.sent(text)
            seen += text
            assert "fb-1-s" not in seen
        trace.end()
        seen += trace.take()

        assert seen == f"a {MASK} b fb-1-other c {MASK}"

    async def test_is_text_whatever_is_printed(self) -> None:
        trace = Trace([], limit=10**6)
        for piece in (b"\xc3", b"\xbc\0\xff", b"\xe2\x82"):
            await trace.write(piece)
        trace.end()
        text = trace.take()
        trace.sent(text)

        assert text == "ü\ufffd\ufffd\ufffd"
        assert trace.offset == len(text.encode())

    async def test_holds_so_much_and_no_more(self) -> None:
        trace = Trace([], limit=10**9)
        await trace.write(b"x" * (MOST_HELD + 1))
        waiting = asyncio.create_task(trace.write(b"y"))
        await asyncio.sleep(0.01)
        assert not waiting.done()
        while not waiting.done():
            text = trace.take()
            assert 0 < len(text) <= AT_ONCE
            trace.sent(text)
            await asyncio.sleep(0)

    async def test_forgets_what_the_service_does_not_keep(self) -> None:
        trace = Trace([], limit=10)
        await trace.write(b"x" * 11)
        trace.sent(trace.take())
        await trace.write(b"y" * (MOST_HELD + 1))
        await trace.write(b"z")

        assert trace.take() == ""


class TestScripts:
    def test_commands_are_told_apart_as_the_shell_does(self) -> None:
        text = "one\nfor each in 1 2; do\n  two\ndone\ncat <<END\nthree\n\nEND\nfour \\\n  five\n'a\nb'"

        assert shell.statements(text) == ["one", "for each in 1 2; do\n  two\ndone", "cat <<END\nthree\n\nEND", "four \\\n  five", "'a\nb'"]

    def test_what_is_no_script_is_shown_whole(self) -> None:
        assert shell.statements("if\none\ntwo") == ["if\none\ntwo"]

    async def test_the_environment_is_the_builds_alone(self, tmp_path: Path) -> None:
        given = shell.environment({"A": "1", "bad=": "2", "B": "x\0"}, tmp_path, tmp_path)

        assert set(given) == {"PATH", "HOME", "TMPDIR", "LANG", "TERM", "SHELL", "A"}

    async def test_a_stopped_one_ends_with_all_that_it_began(self, tmp_path: Path) -> None:
        trace, stop = Trace([], limit=10**6), asyncio.Event()
        command = "trap 'echo asked; exit 7' TERM; sleep 97531 & echo began; wait"
        running = asyncio.create_task(shell.run(["bash", "-c", command], tmp_path, {"PATH": os.environ["PATH"]}, trace, stop))
        await trace.news.wait()
        stop.set()

        assert await running == 7
        assert trace.take() == "began\nasked\n"
        assert not running_now("sleep 97531")


class TestArchive:
    def test_holds_what_the_patterns_name_within_the_folder(self, tmp_path: Path) -> None:
        root, outside = tmp_path / "root", tmp_path / "outside"
        for name in ("root/a.log", "root/logs/b.log", "root/logs/deep/c.log", "root/.git/config", "root/other", "outside/secret"):
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(name)
        (root / "link").symlink_to(outside)
        (root / "logs" / "file").symlink_to(outside / "secret")
        (root / "round").symlink_to(root)
        os.mkfifo(root / "pipe")

        def packed(*patterns: str, more: tuple[str, ...] = ()) -> tuple[list[str], list[str]]:
            count, missing = archive.pack(root, patterns, more, tmp_path / "zip")
            with zipfile.ZipFile(tmp_path / "zip") as file:
                assert len(file.namelist()) == count
                return file.namelist(), missing

        assert packed("*.log") == (["a.log"], [])
        assert packed("**/*.log") == (["a.log", "logs/b.log", "logs/deep/c.log"], [])
        assert packed("logs/", "none") == (["logs/b.log", "logs/deep/c.log"], ["none"])
        assert packed("link/secret", "link", "round/a.log", "logs/file", "pipe", ".git", ".git/config")[0] == []
        assert packed("../outside/secret", str(outside / "secret"), "", "/")[0] == []
        assert packed(".") == (["a.log", "logs/b.log", "logs/deep/c.log", "other"], [])
        assert packed(more=("other", "../outside/secret", ".git/config"))[0] == ["other"]
