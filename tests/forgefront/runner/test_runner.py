"""`forgefront runner` against a running service: builds of a pushed repository; and its parts alone."""

import asyncio
import io
import json
import os
import signal
import subprocess
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from graphql import build_schema, parse, validate

from forgefront.runner import archive, scripts
from forgefront.runner.build_execution import BuildExecution, BuildOutcome
from forgefront.runner.checkout import Checkout, CheckoutFailed, CheckoutOptions
from forgefront.runner.executors.bubblewrap import BubblewrapExecutor
from forgefront.runner.executors.executor import Executor, ExecutorUnavailable, Limits, Workspace
from forgefront.runner.executors.processes import run_process
from forgefront.runner.executors.shell import ShellExecutor
from forgefront.runner.folders import FolderUnreadable, measure_folder, remove_folder
from forgefront.runner.forge_client import (
    OPERATIONS_FILE,
    ArtifactRules,
    BuildRevoked,
    ClaimedBuild,
    ForgeClient,
    RequestRejected,
    ServiceUnreachable,
    parse_build,
)
from forgefront.runner.mirrors import MirrorStore
from forgefront.runner.trace_buffer import MASK, MAX_BUFFERED_CHARACTERS, MAX_CHARACTERS_PER_CALL, TraceBuffer
from forgefront.runner.trace_sender import TraceSender
from graph.schema import print_schema
from tests.forgefront.support.cli_runner import CommandRunner
from tests.support.servers.fork_server import start_program
from tests.support.servers.server_process import ServerProcess, run_server

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
  script: ["echo sleeping; sleep 86423 & sleep 86423"]
prints:
  stage: build
  tags: [prints]
  script:
    - head -c 3000000 /dev/urandom
    - head -c 3000000 /dev/zero | tr '\\0' x
    - printf 'the end\\n\\000'
"""


FLOW = """
stages: [build, test, deploy]
variables: {GIT_SUBMODULE_STRATEGY: normal}
cache: {key: "$CI_BUILD_REF_NAME-$CI_PROJECT_ID", paths: [store/]}
makes:
  stage: build
  tags: [flow]
  script:
    - cat lib/lib.txt
    - echo "commits $(git rev-list --count HEAD)"
    - mkdir -p store/bin pkg && echo kept >store/file && ln -s ../file store/bin/link && ln -s /etc/passwd store/out
    - echo made >pkg/file && chmod 750 pkg/file && echo secret >pkg/unreadable && chmod 0 pkg/unreadable
    - mkdir -p copy/objects && git hash-object -w README | cut -c1-4
  artifacts: {paths: [pkg/file]}
other:
  stage: build
  tags: [flow]
  script: [echo other >file]
  artifacts: {untracked: true, name: other}
uses:
  stage: test
  tags: [flow]
  variables: {GIT_DEPTH: "1"}
  dependencies: [makes]
  script:
    - cat pkg/file && stat -c 'mode %a' pkg/file
    - cat store/bin/link && ls store
    - echo "commits $(git rev-list --count HEAD)"
    - test ! -e file
alone:
  stage: deploy
  tags: [flow]
  dependencies: []
  variables: {GIT_STRATEGY: none}
  script: ["echo files: $(ls -A)"]
"""
EXECUTORS = ("shell", "bubblewrap")
UNPRIVILEGED_USER = 65534


def require_executor(name: str) -> Executor:
    """The executor; the test is skipped, with its reason, where bubblewrap does not work."""
    executor = ShellExecutor() if name == "shell" else BubblewrapExecutor()
    try:
        asyncio.run(executor.check())
    except ExecutorUnavailable as error:
        pytest.skip(f"bubblewrap: {error.reason}")
    return executor


@contextmanager
def run_unprivileged(folder: Path) -> Iterator[None]:
    """Lets a test of root, for whom all folders are readable, run as another user, who owns the folder."""
    if os.geteuid() != 0:
        yield
        return
    for each in (folder, *folder.rglob("*")):
        os.chown(each, UNPRIVILEGED_USER, -1)
    os.seteuid(UNPRIVILEGED_USER)
    try:
        yield
    finally:
        os.seteuid(0)


@dataclass
class RunnerSite:
    """A running service with a project of which a commit was pushed, so that builds wait; runners use the executor."""

    server: ServerProcess
    folder: Path
    token: str
    executor: str = "shell"

    @property
    def project(self) -> str:
        return f"ann/{self.executor}"

    def ask(self, query: str, token: str | None = None, **variables: Any) -> Any:
        body = {"query": query, "variables": variables}
        answer = httpx.post(f"{self.server.url}/graphql", json=body, headers={"PRIVATE-TOKEN": token or self.token}, timeout=30).json()
        assert "errors" not in answer, answer
        ((_, value),) = answer["data"].items()
        return value

    def runner(self, *tags: str) -> str:
        """The token of a new runner for the project."""
        query = "mutation ($input: CreateRunnerInput!) { createRunner(input: $input) { token userErrors { message } } }"
        values = {"projectPath": self.project, "description": "r", "tags": list(tags), "runUntagged": False}
        payload = self.ask(query, input=values)
        assert payload["userErrors"] == []
        return str(payload["token"])

    def start(self, token: str, *options: str, url: str = "") -> "subprocess.Popen[str]":
        command = ["forgefront.cli", "runner", "--url", url or self.server.url, "--json", "--builds-dir", self.folder / "builds"]
        environment = {**os.environ, "FORGEFRONT_RUNNER_TOKEN": token, "RUNNER_SECRET": "hidden"}
        return start_program(
            *command, "--executor", self.executor, *options, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def run(self, token: str, *options: str) -> tuple[int, dict[str, Any], str]:
        """Runs one build; the exit code, what was printed of the build, and the log."""
        process = self.start(token, "--once", *options)
        out, errors = process.communicate(timeout=60)
        assert out, errors
        return process.returncode, json.loads(out), errors

    def build(self, name: str) -> Any:
        query = """
            query ($project: String!, $name: [String!]) { project(path: $project) { builds(filter: {name: $name}) { nodes {
              databaseId name status coverage trace(last: 1000) { lines totalBytes } artifact { filename downloadUrl }
              runner { name platform }
            } } } }
        """
        (found,) = self.ask(query, project=self.project, name=[name])["builds"]["nodes"]
        return found

    def project_id(self) -> int:
        return int(self.ask("query ($path: String!) { project(path: $path) { databaseId } }", path=self.project)["databaseId"])

    def wait_for_output(self, name: str, line: str) -> None:
        """Returns once the build has written this line: a runner sends it some time after the build is RUNNING."""
        deadline = time.monotonic() + 20
        while line not in (found := self.build(name))["trace"]["lines"]:
            assert time.monotonic() < deadline, found
            time.sleep(0.2)

    def wait_for_status(self, name: str, **wanted: Any) -> Any:
        """The build, once it is so."""
        deadline = time.monotonic() + 20
        while True:
            found = self.build(name)
            if all(found[key] == value for key, value in wanted.items()):
                return found
            assert time.monotonic() < deadline, found
            time.sleep(0.2)


@pytest.fixture(scope="module")
def running_site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunnerSite]:
    folder = tmp_path_factory.mktemp("runner")
    data = folder / "data"
    cli = CommandRunner(data)
    cli("admin", "user", "create", "ann", "--email", "ann@example.org", "--admin", "--no-password")
    token = cli("admin", "token", "show", "ann").stdout.strip()
    with run_server(data, f"sqlite:///{data}/forgefront.db") as server:
        site = RunnerSite(server, folder, token)
        work, library = folder / "work", folder / "library"
        who = ["-c", "user.name=Ann", "-c", "user.email=ann@example.org", "-c", "protocol.file.allow=always"]

        def git(where: Path, *arguments: str) -> None:
            subprocess.run(["git", *who, *arguments], cwd=where, check=True, capture_output=True)

        def create_project(name: str) -> str:
            query = "mutation ($input: CreateProjectInput!) { createProject(input: $input) { project { id } userErrors { message } } }"
            site.ask(query, input={"name": name, "visibility": "PUBLIC" if name == "library" else "PRIVATE"})
            return f"http://ann:{token}@{server.url.removeprefix('http://')}/ann/{name}.git"

        for where, files in ((library, {"lib.txt": "library\n"}), (work, {".gitlab-ci.yml": JOBS, "README": "read me\n"})):
            where.mkdir()
            for name, text in files.items():
                (where / name).write_text(text)
            git(where, "init", "-q", "-b", "master")
            git(where, "add", ".")
            git(where, "commit", "-q", "-m", "First")
        git(library, "push", "-q", create_project("library"), "master")
        git(work, "checkout", "-q", "-b", "flow")
        (work / ".gitlab-ci.yml").write_text(FLOW)
        git(work, "submodule", "--quiet", "add", str(library), "lib")
        (work / ".gitmodules").write_text('[submodule "lib"]\n\tpath = lib\n\turl = ../library.git\n')
        git(work, "commit", "-q", "-a", "-m", "Second")
        for name in EXECUTORS:
            git(work, "push", "-q", create_project(name), "master", "flow")
        yield site


@pytest.fixture(params=EXECUTORS)
def site(request: pytest.FixtureRequest, running_site: RunnerSite) -> RunnerSite:
    require_executor(request.param)
    return replace(running_site, executor=request.param)


@pytest.fixture(params=EXECUTORS)
def executor(request: pytest.FixtureRequest) -> Executor:
    return require_executor(request.param)


class TestBuilds:
    def test_passes_and_leaves_its_artifact(self, site: RunnerSite) -> None:
        token = site.runner("passes")

        code, output, log = site.run(token)

        build = site.build("passes")
        assert (code, output) == (0, {"build": build["databaseId"], "name": "passes", "ended": "passed"}), log
        assert build["status"] == "SUCCESS"
        assert build["runner"] == {"name": "forgefront", "platform": "linux"}
        text = "\n".join(build["trace"]["lines"])
        for expected in ('$ echo "building $CI_BUILD_NAME"\nbuilding passes\n', "\ntwo lines\n", " First\n", "\n$ echo goodbye\ngoodbye\n"):
            assert expected in text, text
        assert "$ if true; then\n  echo two lines\nfi\n" in text
        assert f"token {MASK} in {MASK}" in text
        assert "RUNNER_SECRET || true\n0\n" in text
        assert "fb-" not in text and token not in text and token not in log and "fb-" not in log
        assert "no*.such: no matching files" in text
        assert build["artifact"]["filename"] == "packages.zip"
        stored = httpx.get(build["artifact"]["downloadUrl"], headers={"PRIVATE-TOKEN": site.token})
        with zipfile.ZipFile(io.BytesIO(stored.content)) as file:
            assert {name: file.read(name) for name in file.namelist()} == {"pkg/file.txt": b"made\n"}
        assert not list((site.folder / "builds").glob("runner-*"))

    def test_fails_with_the_exit_code_of_its_script(self, site: RunnerSite) -> None:
        code, output, _ = site.run(site.runner("fails"))

        build = site.build("fails")
        assert (code, output["ended"], build["status"]) == (1, "failed", "FAILED")
        lines = build["trace"]["lines"]
        assert "ERROR: Build failed: exit code 3" in lines
        assert "before" in lines and "never" not in lines
        assert build["artifact"]["filename"] == "artifacts.zip"

    def test_prints_without_end(self, site: RunnerSite) -> None:
        code, _, log = site.run(site.runner("prints"))

        build = site.build("prints")
        assert code == 0, log
        assert build["trace"]["totalBytes"] > 5_000_000
        assert build["trace"]["lines"][-1] == "\N{REPLACEMENT CHARACTER}"

    def test_is_requeued_on_shutdown_and_ends_when_canceled(self, site: RunnerSite) -> None:
        token = site.runner("sleeps")
        process = site.start(token, "--grace", "0.2")
        site.wait_for_output("sleeps", "sleeping")
        process.send_signal(signal.SIGTERM)
        out, errors = process.communicate(timeout=20)
        assert json.loads(out)["ended"] == "given back", errors
        build = site.wait_for_status("sleeps", status="PENDING")
        assert build["trace"]["lines"] == ["The runner returned the build. It was queued again."]

        process = site.start(token, "--once")
        site.wait_for_output("sleeps", "sleeping")
        site.ask(
            "mutation ($input: BuildInput!) { cancelBuild(input: $input) { userErrors { code } } }",
            input={"projectPath": site.project, "databaseId": build["databaseId"]},
        )
        out, errors = process.communicate(timeout=20)
        assert json.loads(out)["ended"] == "gone", errors
        assert "The build was canceled." in errors
        assert site.build("sleeps")["status"] == "CANCELED"
        assert not is_running("sleep 86423")

    def test_pass_files_on_to_later_stages_and_to_the_next_pipeline(self, site: RunnerSite) -> None:
        token = site.runner("flow")

        def run(name: str) -> list[str]:
            code, output, log = site.run(token)
            found = site.build(name)
            assert (code, output["name"]) == (0, name), (found["trace"]["lines"], log)
            return list(found["trace"]["lines"])

        made = run("makes")
        saved = f"Saved 2 files as the cache 'flow-{site.project_id()}'."
        assert {"library", "commits 2", "Fetching submodules …", saved} <= set(made), made
        run("other")
        used = run("uses")
        assert {"made", "mode 750", "kept", "commits 1"} <= set(used), used
        assert "out" not in used and "bin" in used and not [line for line in used if "Downloading the artifacts of other" in line]
        assert "files: store" in run("alone")

    def test_a_wrong_token_is_reported(self, site: RunnerSite) -> None:
        process = site.start("fr-" + "x" * 20, "--once")

        _, errors = process.communicate(timeout=20)

        assert process.returncode == 1
        assert "does not know this token" in errors


def entries(folder: Path) -> list[Path]:
    return list(folder.iterdir())


def is_running(command: str) -> list[str]:
    """The processes that were started so and have not ended."""
    command_line = "\0".join(command.split()).encode() + b"\0"
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if (process / "cmdline").read_bytes() == command_line:
                found.append(process.name)
        except OSError:
            continue
    return found


NO_CODE = {"GIT_STRATEGY": "none"}


class FakeService:
    """A stub of the service, which records its requests."""

    def __init__(self, *, is_gone: bool = False) -> None:
        self.text = ""
        self.statuses: list[str] = []
        self.is_gone = is_gone

    async def append_trace(self, job: ClaimedBuild, text: str, offset: int, *, retry_seconds: float) -> None:
        if self.is_gone:
            raise BuildRevoked("The build was canceled.")
        assert offset == len(self.text.encode())
        self.text += text

    async def report_status(self, job: ClaimedBuild, status: str, *, retry_seconds: float, failure_reason: str | None = None) -> None:
        self.statuses.append(status if failure_reason is None else f"{status}: {failure_reason}")


def make_work(service: FakeService, folder: Path, *script: str, executor: Executor | None = None, **changes: Any) -> BuildExecution:
    job_fields: dict[str, Any] = {"timeout_seconds": 60, "artifacts": None, "after_script": (), "variables": NO_CODE, **changes}
    job = ClaimedBuild(
        build_id=1,
        token="fb-1-" + "x" * 20,
        name="job",
        ref="master",
        sha="a" * 40,
        repository_url="http://localhost/a/b.git",
        script=script,
        secrets=frozenset(),
        lease_seconds=60,
        trace_offset=0,
        trace_limit=2**20,
        **job_fields,
    )
    mirrors = MirrorStore(folder.parent / "mirrors")
    return BuildExecution(service, job, folder, "fr-" + "x" * 20, executor or ShellExecutor(), mirrors)  # type: ignore[arg-type]


class TestSending:
    def make_sender(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[TraceBuffer, TraceSender]:
        monkeypatch.setattr("forgefront.runner.trace_sender.SEND_INTERVAL_SECONDS", 100.0)
        work = make_work(FakeService(), folder)
        return work.trace, TraceSender(work.service, work.job, work.trace, retry_seconds=1.0, on_stop=lambda reason: None)

    async def test_the_first_output_after_a_pause_is_sent_at_once(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        trace, sender = self.make_sender(tmp_path, monkeypatch)
        long_ago = time.monotonic() - 200
        waiting = asyncio.create_task(sender._wait_for_output(long_ago, 1000.0))
        assert not (await asyncio.wait([waiting], timeout=0.15))[0]
        trace.write_line("a line")
        await asyncio.wait_for(waiting, 50)

    async def test_output_soon_after_other_output_waits_for_more(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        trace, sender = self.make_sender(tmp_path, monkeypatch)
        trace.write_line("a line")
        waiting = asyncio.create_task(sender._wait_for_output(time.monotonic(), 1000.0))
        assert not (await asyncio.wait([waiting], timeout=0.15))[0]
        sender.finish()
        await asyncio.wait_for(waiting, 50)

    async def test_output_during_a_call_is_not_forgotten(self, tmp_path: Path) -> None:
        trace = TraceBuffer([], limit=10**6)
        trace.write_line("one")
        text = trace.next_chunk()
        trace.write_line("two")
        trace.mark_sent(text)
        assert trace.has_data.is_set()
        trace.mark_sent(trace.next_chunk())
        assert not trace.has_data.is_set()


class TestWork:
    async def test_ends_at_its_timeout(self, executor: Executor, tmp_path: Path) -> None:
        received = FakeService()

        ended = await make_work(received, tmp_path, "echo began", "sleep 86420", timeout_seconds=1, executor=executor).run()

        assert ended is BuildOutcome.FAILED
        assert received.statuses == ["FAILED"]
        assert received.text.endswith("$ sleep 86420\nERROR: The build exceeded its time limit of 1 s.\n")
        assert not is_running("sleep 86420")

    async def test_ends_without_a_report_when_the_build_is_lost(self, executor: Executor, tmp_path: Path) -> None:
        received = FakeService(is_gone=True)

        assert await make_work(received, tmp_path, "sleep 86421", executor=executor).run() is BuildOutcome.REVOKED
        assert received.statuses == []
        assert not is_running("sleep 86421")

    async def test_removes_its_folder_whatever_the_script_did(self, executor: Executor, tmp_path: Path) -> None:
        ended = await make_work(
            FakeService(), tmp_path, "mkdir -p a/b && touch a/b/c && chmod 0 a/b && chmod 500 a", executor=executor
        ).run()

        assert ended is BuildOutcome.PASSED
        assert entries(tmp_path) == []

    async def test_variables_in_the_name_and_paths_of_its_artifact_are_replaced(self, tmp_path: Path) -> None:
        class ArtifactService(FakeService):
            async def upload_artifact(
                self, job: ClaimedBuild, file: Path, filename: str, on_progress: Any, *, retry_seconds: float
            ) -> None:
                with zipfile.ZipFile(file) as found:
                    self.uploaded = filename, found.namelist()

        received, rules = ArtifactService(), ArtifactRules(("$KIND/*", "$NONE"), False, "${KIND}_$CI_BUILD_REF_NAME", "ALWAYS")
        variables = {**NO_CODE, "KIND": "pkg", "CI_BUILD_REF_NAME": "master"}
        work = make_work(received, tmp_path, "mkdir pkg && touch pkg/file", variables=variables, artifacts=rules)

        assert await work.run() is BuildOutcome.PASSED
        assert received.uploaded == ("pkg_master.zip", ["pkg/file"])
        assert "WARNING: $NONE: no matching files." in received.text

    async def test_ends_at_its_timeout_while_its_artifact_is_zipped(self, tmp_path: Path) -> None:
        received, rules = FakeService(), ArtifactRules((".",), False, "big", "ALWAYS")
        work = make_work(received, tmp_path, "truncate -s 1T big", timeout_seconds=1, artifacts=rules)

        assert await asyncio.wait_for(work.run(), 60) is BuildOutcome.FAILED
        assert received.text.endswith("ERROR: The build exceeded its time limit of 1 s.\n")
        assert entries(tmp_path) == []

    @pytest.mark.parametrize(
        ("variables", "problem"),
        [
            ({"LONG": "x" * 2**17}, "The variable LONG takes 131078 bytes; the system permits 131072."),
            ({f"V{number}": "x" * 10**5 for number in range(100)}, "bytes; the system permits "),
        ],
    )
    async def test_a_build_with_too_long_variables_fails_with_the_reason(
        self, variables: dict[str, str], problem: str, tmp_path: Path
    ) -> None:
        service = FakeService()
        assert await make_work(service, tmp_path, "true", variables=NO_CODE | variables).run() is BuildOutcome.FAILED
        line = service.text.splitlines()[-1]
        assert line.startswith("ERROR: The variable") and problem in line

    async def test_ends_when_it_takes_more_space_than_it_may(self, tmp_path: Path) -> None:
        received, executor = FakeService(), ShellExecutor(Limits(disk_bytes=2**20))
        script = "for each in 1 2 3 4; do head -c 900000 /dev/zero >$each; done; sleep 86422"
        work = make_work(received, tmp_path, script, executor=executor)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("forgefront.runner.build_execution.DISK_CHECK_SECONDS", 0.05)
            assert await work.run() is BuildOutcome.FAILED
        assert received.text.endswith("ERROR: The build exceeded its limit of 1048576 bytes on disk.\n")
        assert not is_running("sleep 86422")

    async def test_a_wrong_variable_is_named(self, tmp_path: Path) -> None:
        received = FakeService()
        for variables, message in (
            ({"GIT_STRATEGY": "pull"}, "GIT_STRATEGY is 'pull'; it can be fetch, clone, none."),
            ({"GIT_DEPTH": "-1"}, "GIT_DEPTH is '-1'; it can be a number of commits"),
            ({"GIT_SUBMODULE_STRATEGY": "all"}, "it can be none, normal, recursive."),
        ):
            received = FakeService()
            assert await make_work(received, tmp_path, "true", variables=variables).run() is BuildOutcome.FAILED
            assert message in received.text

    async def test_after_script_runs_after_a_failure(self, executor: Executor, tmp_path: Path) -> None:
        received = FakeService()

        assert (
            await make_work(received, tmp_path, "false", after_script=("echo after", "exit 9"), executor=executor).run()
            is BuildOutcome.FAILED
        )
        assert "\nafter\n" in received.text
        assert "WARNING: after_script failed with 9" in received.text


class TestOperations:
    def test_are_those_of_the_schema(self) -> None:
        assert validate(build_schema(print_schema()), parse(OPERATIONS_FILE.read_text())) == []


class TestService:
    async def test_requests_are_retried_while_the_service_is_unavailable(self) -> None:
        late = b'{"errors":[{"message":"The operation exceeded the time limit.","extensions":{"code":"LIMIT_EXCEEDED"}}]}'
        body = b'{"data":{"appendBuildTrace":{"build":{"status":"RUNNING"},"userErrors":[]}}}'
        answers = [
            b"",
            b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n",
            *(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(each), each) for each in (late, body)),
        ]
        requests = []

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while (line := await reader.readline()) and answers:
                requests.append(line)
                length = 0
                while (line := await reader.readline()).strip():
                    name, _, value = line.decode().partition(":")
                    length = int(value) if name.lower() == "content-length" else length
                await reader.readexactly(length)
                output = answers.pop(0)
                writer.write(output)
                if not output:
                    break
            writer.close()

        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        service = ForgeClient(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", "fr-" + "x" * 20, min_retry_seconds=0.01)
        try:
            await service.append_trace(make_work(FakeService(), Path()).job, "text", 0, retry_seconds=5)
            assert len(requests) == 4
            server.close()
            with pytest.raises(ServiceUnreachable):
                await service.append_trace(make_work(FakeService(), Path()).job, "text", 0, retry_seconds=0.05)
        finally:
            server.close()
            await service.close()

    async def test_a_damaged_response_is_requested_again(self) -> None:
        body = b'{"data":{"updateBuild":{"build":{"status":"RUNNING"},"userErrors":[]}}}'
        answers = [b"Content-Encoding: gzip\r\n", b""]

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b'"}}}')
            writer.write(b"HTTP/1.1 200 OK\r\n%sContent-Length: %d\r\n\r\n%s" % (answers.pop(0), len(body), body))
            writer.close()

        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        service = ForgeClient(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", "fr-" + "x" * 20, min_retry_seconds=0.01)
        try:
            await service.report_status(make_work(FakeService(), Path()).job, "RUNNING", retry_seconds=5)
            assert answers == []
        finally:
            server.close()
            await service.close()

    async def test_a_build_that_cannot_be_parsed_is_described_with_its_problem(self) -> None:
        job = parse_build(7, {"token": "fb-7-" + "x" * 20, "name": "odd", "traceOffset": 9})
        assert (job.build_id, job.name, job.trace_offset) == (7, "odd", 9)
        assert job.problem == "The runner cannot parse the build: KeyError: 'artifacts'"
        with pytest.raises(ServiceUnreachable, match="build 7 without a token"):
            parse_build(7, None)

    @pytest.mark.parametrize(("hours", "expected"), [(1, 3600), (-1, 0.01), (5, 0.01)])
    async def test_waits_until_the_date_of_retry_after(self, hours: int, expected: float, monkeypatch: pytest.MonkeyPatch) -> None:
        """A proxy before the service may send a date; one after the time limit does not end the retries."""
        waits: list[float] = []

        async def sleep(seconds: float) -> None:
            waits.append(seconds)
            raise ServiceUnreachable

        # Not in asyncio itself: a library that is first imported meanwhile would hold this function forever.
        monkeypatch.setattr("forgefront.runner.forge_client.asyncio", SimpleNamespace(**{**vars(asyncio), "sleep": sleep}))
        service = ForgeClient("http://127.0.0.1:1", "fr-" + "x" * 20, min_retry_seconds=0.01)
        date = format_datetime(datetime.now(UTC) + timedelta(hours=hours), usegmt=True)

        async def call() -> httpx.Response:
            return httpx.Response(503, headers={"Retry-After": date})

        with pytest.raises(ServiceUnreachable):
            await service._retry(call, 10_000)
        await service.close()
        assert 0.79 * expected <= waits[0] <= 1.21 * expected

    async def test_parses_each_answer_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A claim may hold a megabyte of variables, and a chunk of a trace is answered many times a minute."""
        parsed: list[int] = []
        parse_json = httpx.Response.json
        answers = [{"errors": [{"message": "Later.", "extensions": {"code": "UNAVAILABLE"}}]}, {"data": {"report": {"userErrors": []}}}]

        def parse(response: httpx.Response) -> Any:
            parsed.append(len(answers))
            return parse_json(response)

        monkeypatch.setattr(httpx.Response, "json", parse)
        service = ForgeClient("http://127.0.0.1:1", "fr-" + "x" * 20, min_retry_seconds=0.01)
        await service.close()
        transport = httpx.MockTransport(lambda _: httpx.Response(200, json=answers.pop(0)))
        service._http = httpx.AsyncClient(transport=transport, base_url="http://forge")
        await service.report_status(make_work(FakeService(), Path()).job, "RUNNING", retry_seconds=5)
        await service.close()
        assert parsed == [1, 0]

    @pytest.mark.parametrize(
        "body", [b"[]", b'{"data":null}', b'{"message":"404 Not Found"}', b'{"data":{"a":1}}', b'{"errors":"x"}', b"<p>"]
    )
    async def test_another_service_is_named_as_such(self, body: bytes) -> None:
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"}}")
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
            writer.close()

        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        service = ForgeClient(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", "fr-" + "x" * 20)
        try:
            with pytest.raises(RequestRejected, match="is not a Forgefront service: it responds with 200"):
                await service.claim(0)
        finally:
            server.close()
            await service.close()


class TestTrace:
    async def test_takes_secrets_out_wherever_they_are_cut(self) -> None:
        trace = TraceBuffer(["fb-1-secretsecret"], limit=10**6)
        seen = ""
        for piece in ("a fb-1-", "secretsecret b fb-", "1-other c fb-1-secretsecret"):
            await trace.write(piece.encode())
            text = trace.next_chunk()
            trace.mark_sent(text)
            seen += text
            assert "fb-1-s" not in seen
        trace.finish()
        seen += trace.next_chunk()

        assert seen == f"a {MASK} b fb-1-other c {MASK}"

    async def test_takes_out_all_of_a_secret_that_begins_with_another(self) -> None:
        secrets = ["password1", "password1-and-more", "abcabcabc"]
        output = "x password1-and-more y password1 z password1password1-and-more abcabcabcabc password1-and-less password1"
        for size in range(1, len(output)):
            trace = TraceBuffer(secrets, limit=10**6)
            seen = ""
            for start in range(0, len(output), size):
                await trace.write(output[start : start + size].encode())
                text = trace.next_chunk()
                trace.mark_sent(text)
                seen += text
            trace.finish()

            assert seen + trace.next_chunk() == f"x {MASK} y {MASK} z {MASK}{MASK} {MASK} {MASK}-and-less {MASK}", size

    async def test_is_text_whatever_is_printed(self) -> None:
        trace = TraceBuffer([], limit=10**6)
        for piece in (b"\xc3", b"\xbc\0\xff", b"\xe2\x82"):
            await trace.write(piece)
        trace.finish()
        text = trace.next_chunk()
        trace.mark_sent(text)

        assert text == "ü\ufffd\ufffd\ufffd"
        assert trace.offset == len(text.encode())

    async def test_names_files_that_are_not_utf8(self) -> None:
        trace = TraceBuffer([], limit=10**6)
        trace.write_line(f"WARNING: {os.fsdecode(bytes([255]))}: cannot be read.")

        trace.mark_sent(text := trace.next_chunk())
        assert text == "WARNING: \\udcff: cannot be read.\n"

    async def test_is_bounded(self) -> None:
        trace = TraceBuffer([], limit=10**9)
        await trace.write(b"x" * (MAX_BUFFERED_CHARACTERS + 1))
        waiting = asyncio.create_task(trace.write(b"y"))
        await asyncio.sleep(0.01)
        assert not waiting.done()
        while not waiting.done():
            text = trace.next_chunk()
            assert 0 < len(text) <= MAX_CHARACTERS_PER_CALL
            trace.mark_sent(text)
            await asyncio.sleep(0)

    async def test_drops_what_the_service_rejects(self) -> None:
        trace = TraceBuffer([], limit=10)
        await trace.write(b"x" * 11)
        trace.mark_sent(trace.next_chunk())
        await trace.write(b"y" * (MAX_BUFFERED_CHARACTERS + 1))
        await trace.write(b"z")

        assert trace.next_chunk() == ""


def create_repository(folder: Path) -> list[str]:
    """A repository with one file; the ids of its commit and of the file."""
    folder.mkdir()
    (folder / "file").write_text("text")
    who = ["-c", "user.name=Ann", "-c", "user.email=ann@example.org"]
    for arguments in (["init", "-q", "-b", "master"], ["add", "."], [*who, "commit", "-q", "-m", "First"]):
        subprocess.run(["git", *arguments], cwd=folder, check=True)
    ids = ["git", "rev-parse", "HEAD", "HEAD:file"]
    return subprocess.run(ids, cwd=folder, capture_output=True, text=True, check=True).stdout.split()


class TestCheckout:
    async def test_a_copy_stays_while_the_service_cannot_be_reached(self, tmp_path: Path) -> None:
        job = replace(make_work(FakeService(), tmp_path).job, repository_url="http://127.0.0.1:9/a/b.git")
        mirrors, trace = MirrorStore(tmp_path / "mirrors"), TraceBuffer([], limit=10**6)
        mirror = mirrors.path_of(job.repository_url)
        workspace = Workspace(tmp_path / "build", "b", mirror)
        for folder in workspace.folders:
            folder.mkdir(parents=True)
        checkout = Checkout(job, CheckoutOptions(), workspace, mirrors, trace, asyncio.Event())

        async with mirrors.use(mirror, asyncio.Event()):
            with pytest.raises(CheckoutFailed):
                await checkout.run("")
        assert mirror.is_dir()
        async with mirrors.use(mirror, asyncio.Event()):
            assert mirror.is_dir()

    async def test_a_copy_that_lost_objects_is_replaced(self, tmp_path: Path) -> None:
        origin = tmp_path / "origin"
        sha, blob = create_repository(origin)
        job = replace(make_work(FakeService(), tmp_path).job, repository_url=origin.as_uri(), sha=sha)
        mirrors, traces = MirrorStore(tmp_path / "mirrors"), []
        mirror = mirrors.path_of(job.repository_url)
        for number in range(3):
            workspace, trace = Workspace(tmp_path / str(number), "b", mirror), TraceBuffer([], limit=10**6)
            for folder in workspace.folders:
                folder.mkdir(parents=True)
            checkout = Checkout(job, CheckoutOptions(), workspace, mirrors, trace, asyncio.Event())
            checkout._environment["GIT_ALLOW_PROTOCOL"] = "file"
            async with mirrors.use(mirror, asyncio.Event()):
                await checkout.run(str(mirror))
            assert (workspace.code / "file").read_text() == "text"
            assert (workspace.code / ".git/objects/info/alternates").exists() is (number != 1)
            traces.append(trace.next_chunk())
            if number == 0:
                (mirror / "objects" / blob[:2] / blob[2:]).unlink()
        assert ["damaged" in text for text in traces] == [False, True, False]


class TestScripts:
    def test_commands_are_split_as_by_the_shell(self) -> None:
        text = "one\nfor each in 1 2; do\n  two\ndone\ncat <<END\nthree\n\nEND\nfour \\\n  five\n'a\nb'"

        assert scripts.split_statements(text) == [
            "one",
            "for each in 1 2; do\n  two\ndone",
            "cat <<END\nthree\n\nEND",
            "four \\\n  five",
            "'a\nb'",
        ]

    def test_an_unparsable_script_is_shown_unsplit(self) -> None:
        assert scripts.split_statements("if\none\ntwo") == ["if\none\ntwo"]

    async def test_the_environment_is_the_builds_alone(self, tmp_path: Path) -> None:
        values = scripts.build_environment({"A": "1", "bad=": "2", "B": "x\0"}, "/home", "/tmp", "/bin")

        assert set(values) == {"PATH", "HOME", "TMPDIR", "LANG", "TERM", "SHELL", "A"}

    def test_values_refer_to_other_variables(self) -> None:
        given = {"A": "1", "B": "$A-${A} $C $B ${A", "PASSWORD": "a$A", "URL": "http://x:${PASSWORD}@y"}

        found = scripts.expand_references(given, {"a$A"})

        assert found == {**given, "B": "1-1 $C $A-${A} $C $B ${A ${A", "URL": "http://x:a$A@y"}

    async def test_stopping_kills_the_process_group(self, tmp_path: Path) -> None:
        trace, stop = TraceBuffer([], limit=10**6), asyncio.Event()
        command = "trap 'echo asked; exit 7' TERM; sleep 97531 & echo began; wait"
        running = asyncio.create_task(run_process(["bash", "-c", command], tmp_path, {"PATH": os.environ["PATH"]}, trace, stop))
        await trace.has_data.wait()
        stop.set()

        assert await running == 7
        assert trace.next_chunk() == "began\nasked\n"
        assert not is_running("sleep 97531")


class TestArchive:
    def test_contains_files_matching_the_patterns(self, tmp_path: Path) -> None:
        root, outside = tmp_path / "root", tmp_path / "outside"
        for name in ("root/a.log", "root/logs/b.log", "root/logs/deep/c.log", "root/.git/config", "root/other", "outside/secret"):
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(name)
        (root / "link").symlink_to(outside)
        (root / "logs" / "file").symlink_to(outside / "secret")
        (root / "round").symlink_to(root)
        os.mkfifo(root / "pipe")

        def packed(*patterns: str, more: tuple[str, ...] = ()) -> tuple[list[str], list[str]]:
            count, missing = archive.write_archive(root, patterns, more, tmp_path / "zip")
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

    def test_contains_no_links_to_themselves(self, tmp_path: Path) -> None:
        (tmp_path / "root").mkdir()
        (tmp_path / "root" / "loop").symlink_to("loop")
        (tmp_path / "root" / "file").touch()

        assert archive.write_archive(tmp_path / "root", ["*", "loop/file"], ["loop/file"], tmp_path / "zip") == (1, ["loop/file"])

    def test_files_below_long_paths_count(self, tmp_path: Path) -> None:
        folder = os.open(tmp_path, os.O_RDONLY)
        for name in ("n" * 250,) * 20:
            os.mkdir(name, dir_fd=folder)
            inner = os.open(name, os.O_RDONLY, dir_fd=folder)
            os.close(folder)
            folder = inner
        with os.fdopen(os.open("file", os.O_WRONLY | os.O_CREAT, dir_fd=folder), "wb") as file:
            file.write(os.urandom(10**6))
        os.close(folder)

        assert 10**6 <= measure_folder(tmp_path, 10**9) < 2 * 10**6
        remove_folder(tmp_path)

    def test_what_unreadable_folders_take_is_measured(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        # The folders above are readable for root only, which this test is not.
        monkeypatch.chdir(tmp_path)
        modes = {"hidden": 0, "hidden/inner": 0o100, "listed": 0o400, "open": 0o755}
        for path in modes:
            Path(path).mkdir()
            Path(path, "file").write_bytes(os.urandom(10**5))
        with run_unprivileged(Path()):
            for path, mode in reversed(modes.items()):
                Path(path).chmod(mode)

            assert 4 * 10**5 <= measure_folder(Path(), 10**9) < 5 * 10**5
            assert measure_folder(Path(), 10**5) > 10**5
        assert {path: Path(path).stat().st_mode & 0o777 for path in modes} == modes

    def test_a_file_with_several_links_is_measured_once(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_bytes(os.urandom(10**6))
        for name in ("second", "third"):
            (tmp_path / name).hardlink_to(tmp_path / "file")

        assert 10**6 <= measure_folder(tmp_path, 10**9) < 2 * 10**6

    def test_a_program_that_keeps_folders_unreadable_is_detected(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        Path("hidden").mkdir(mode=0)
        with run_unprivileged(Path()), monkeypatch.context() as patch:
            patch.setattr(Path, "chmod", lambda *_: None)
            with pytest.raises(FolderUnreadable):
                measure_folder(Path(), 10**9)

    def test_names_files_whose_path_is_too_long(self, tmp_path: Path) -> None:
        root, unreadable = tmp_path / "root", []
        root.mkdir()
        folder = os.open(root, os.O_RDONLY)
        name, number = "n" * 250, (4096 - len(str(root))) // 251
        for _ in range(number):
            os.mkdir(name, dir_fd=folder)
            inner = os.open(name, os.O_RDONLY, dir_fd=folder)
            os.close(folder)
            folder = inner
        os.close(os.open("f" * 251, os.O_WRONLY | os.O_CREAT, dir_fd=folder))
        os.close(folder)
        (root / "file").touch()

        assert archive.write_archive(root, ["."], [], tmp_path / "zip", on_unreadable=unreadable.append) == (1, [])
        assert unreadable == [f"{name}/" * number + "f" * 251]
        remove_folder(root)
        assert not root.exists()

    def test_patterns_take_time_that_does_not_grow_with_the_ways_in_which_they_match(self, tmp_path: Path) -> None:
        deep = tmp_path.joinpath("root", *["a"] * 25)
        deep.mkdir(parents=True)
        (deep / "file").touch()
        began = time.monotonic()

        assert archive.find_matching(tmp_path / "root", "**/a/" * 12 + "file") == {"a/" * 25 + "file"}
        assert time.monotonic() - began < 10
