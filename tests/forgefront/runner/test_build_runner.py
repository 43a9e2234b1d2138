"""The runner with several forges: its configuration, slots, metrics, and how it stops."""

import asyncio
import fcntl
import os
import sys
import tempfile
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from forgefront.runner import build_runner
from forgefront.runner.build_runner import BuildRunner, Forge, create_work_folder
from forgefront.runner.executors.executor import Limits
from forgefront.runner.executors.shell import ShellExecutor
from forgefront.runner.forge_client import ClaimedBuild, RequestRejected, ServiceUnreachable, parse_build
from forgefront.runner.metrics import RunnerMetrics
from forgefront.runner.settings import InvalidRunnerConfig, load_settings
from tests.forgefront.runner.test_runner import FakeService, make_work


class FakeForge(FakeService):
    """A stub of a service with builds of these scripts, which then has none until the runner stops."""

    def __init__(self, *scripts: str, first_error: Exception | None = None) -> None:
        super().__init__()
        self.scripts = list(scripts)
        self.first_error = first_error
        self.claims = 0
        self.is_empty = asyncio.Event()

    async def claim(self, wait_seconds: int) -> ClaimedBuild | None:
        self.claims += 1
        if self.first_error is not None:
            error, self.first_error = self.first_error, None
            raise error
        if self.scripts:
            job = make_work(FakeService(), Path(), self.scripts.pop(0)).job
            return replace(job, build_id=self.claims, trace_limit=0)
        self.is_empty.set()
        await asyncio.sleep(0.01 if wait_seconds < 5 else 3600)
        return None

    async def append_trace(self, job: ClaimedBuild, text: str, offset: int, *, retry_seconds: float) -> None:
        """Several builds report at the same time."""


def make_runner(forges: list[tuple[str, FakeForge]], folder: Path, ended: list[str], **settings: Any) -> BuildRunner:
    return BuildRunner(
        [Forge(client, f"fr-{name}", name, 2) for name, client in forges],  # type: ignore[arg-type]
        folder,
        ShellExecutor(),
        on_build_end=lambda forge, job, outcome: ended.append(f"{forge.name}: {outcome.value}"),
        **settings,
    )


class TestWorkFolders:
    def test_are_not_removed_by_a_runner_that_starts_before_they_are_locked(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        found: list[list[Path]] = []
        goes_on, may_end = threading.Event(), threading.Event()
        make_folder, lock = tempfile.mkdtemp, fcntl.flock

        def start_other() -> None:
            with create_work_folder(tmp_path) as (_, leftovers):
                found.append(leftovers)
                goes_on.set()
                may_end.wait()

        other = threading.Thread(target=start_other)

        def make_folder_slowly(**options: Any) -> str:
            folder = make_folder(**options)
            if threading.current_thread() is not other:
                other.start()
                # Until the other one has removed what it takes for leftovers, or waits.
                goes_on.wait()
            return folder

        def record_lock(handle: int, operation: int) -> None:
            if threading.current_thread() is other and not operation & fcntl.LOCK_NB:
                goes_on.set()
            lock(handle, operation)

        monkeypatch.setattr(build_runner.tempfile, "mkdtemp", make_folder_slowly)
        monkeypatch.setattr(build_runner.fcntl, "flock", record_lock)
        try:
            with create_work_folder(tmp_path) as (folder, leftovers):
                assert folder.is_dir() and leftovers == []
                may_end.set()
                other.join()
                assert folder.is_dir()
        finally:
            may_end.set()
            other.join()
        assert found == [[]]
        assert list(tmp_path.iterdir()) == []

    def test_of_killed_runners_are_removed_whatever_their_depth(self, tmp_path: Path) -> None:
        (tmp_path / "runner-dead").mkdir()
        folder = os.open(tmp_path / "runner-dead", os.O_RDONLY)
        for _ in range(2 * sys.getrecursionlimit()):
            os.mkdir("folder", dir_fd=folder)
            os.close(os.open("file", os.O_WRONLY | os.O_CREAT, dir_fd=folder))
            inner = os.open("folder", os.O_RDONLY, dir_fd=folder)
            os.close(folder)
            folder = inner
        os.close(folder)

        with create_work_folder(tmp_path):
            assert not (tmp_path / "runner-dead").exists()


class TestForges:
    async def test_share_the_slots_and_the_figures(self, tmp_path: Path) -> None:
        counter = tmp_path / "running"
        # The number of builds that run at the same time never exceeds the slots. ls fails for a folder that another build removes.
        script = f"mkdir {counter}$PPID-$$; (ls -d {counter}* || true) | wc -l >>{tmp_path}/counts; sleep 0.1; rmdir {counter}$PPID-$$"
        first = FakeForge(*[script] * 5)
        second = FakeForge(*[script] * 4, "false", first_error=ServiceUnreachable("It is down."))
        rejecting = FakeForge(first_error=RequestRejected("The service does not know this token."))
        ended: list[str] = []
        metrics = RunnerMetrics()
        forges = [("one", first), ("two", second), ("three", rejecting)]
        runner = make_runner(forges, tmp_path / "builds", ended, max_concurrent=2, metrics=metrics, grace=10)
        async with metrics.serve("127.0.0.1", 0) as port:
            running = asyncio.create_task(runner.run(only_one=False))
            for forge in (first, second):
                await forge.is_empty.wait()
            while len(ended) < 10:  # noqa: ASYNC110 - the runner has no event for it
                await asyncio.sleep(0.01)
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
            answer = (await reader.read()).decode()
            writer.close()
            runner.stop()
            assert await running is False

        assert sorted(ended) == ["one: passed"] * 5 + ["two: failed"] + ["two: passed"] * 4
        assert {int(line) for line in (tmp_path / "counts").read_text().split()} == {1, 2}
        assert rejecting.claims == 1
        assert answer.startswith("HTTP/1.1 200 OK\r\n")
        for line in (
            'forgefront_runner_builds_total{ended="passed",forge="two"} 4.0',
            'forgefront_runner_builds_running{forge="one"} 0.0',
            'forgefront_runner_request_failures_total{forge="two"} 1.0',
            'forgefront_runner_rejected{forge="three"} 1.0',
        ):
            assert line in answer

    async def test_a_build_that_cannot_be_parsed_fails_alone(self, tmp_path: Path) -> None:
        class OtherForge(FakeForge):
            async def claim(self, wait_seconds: int) -> ClaimedBuild | None:
                if self.claims < 2:
                    self.claims += 1
                    description = {"token": "fb-7-" + "x" * 20, "name": "odd", "script": [None]} if self.claims == 1 else {}
                    return parse_build(7, description)
                return await super().claim(wait_seconds)

        odd, crashing, good = OtherForge("true"), FakeForge("true", first_error=KeyError("userErrors")), FakeForge("true", "true")
        ended: list[str] = []
        runner = make_runner([("odd", odd), ("crashing", crashing), ("good", good)], tmp_path, ended, max_concurrent=4)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("forgefront.runner.build_runner.MIN_PAUSE_SECONDS", 0.01)
            running = asyncio.create_task(runner.run(only_one=False))
            async with asyncio.timeout(20):
                while len(ended) < 5:  # noqa: ASYNC110 - the runner has no event for it
                    await asyncio.sleep(0.01)
            runner.stop()
            assert await running is False

        assert sorted(ended) == ["crashing: passed", "good: passed", "good: passed", "odd: failed", "odd: passed"]
        assert odd.statuses == ["FAILED: RUNNER_SYSTEM_FAILURE", "SUCCESS"]

    async def test_a_second_stop_returns_builds_at_once(self, tmp_path: Path) -> None:
        forge, ended = FakeForge("trap '' TERM; while :; do sleep 0.05; done"), []
        runner = make_runner([("one", forge)], tmp_path, ended, max_concurrent=2, grace=3600)
        running = asyncio.create_task(runner.run(only_one=False))
        await forge.is_empty.wait()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("forgefront.runner.executors.processes.TERMINATE_SECONDS", 0.2)
            runner.stop()
            await asyncio.sleep(0.2)
            assert not running.done() and not ended
            runner.stop()
            async with asyncio.timeout(10):
                assert await running is True
        assert ended == ["one: given back"] and forge.statuses == ["PENDING"]

    async def test_runs_only_one_build_of_all_forges_if_it_should(self, tmp_path: Path) -> None:
        for number in (1, 3):
            forges = [("idle", FakeForge()), *((name, FakeForge("sleep 0.2", "false")) for name in ("one", "two"))]
            rejecting = FakeForge(first_error=RequestRejected("The service does not know this token."))
            ended: list[str] = []
            runner = make_runner([*forges, ("rejecting", rejecting)], tmp_path, ended, max_concurrent=number)

            assert await asyncio.wait_for(runner.run(only_one=True), 60)
            assert len(ended) == 1 and ended[0].endswith(": passed")

    async def test_a_failure_counts_if_nobody_reads_the_output(self, tmp_path: Path) -> None:
        def print_end(*_: object) -> None:
            raise BrokenPipeError

        forge: Any = FakeForge("false")
        runner = BuildRunner([Forge(forge, "fr-x", "one")], tmp_path, ShellExecutor(), max_concurrent=1, on_build_end=print_end)
        assert not await runner.run(only_one=True)

    async def test_ends_when_all_reject_it(self, tmp_path: Path) -> None:
        forges = [(name, FakeForge(first_error=RequestRejected(name))) for name in ("one", "two")]
        with pytest.raises(RequestRejected, match="one"):
            await make_runner(forges, tmp_path, [], max_concurrent=1).run(only_one=False)

    async def test_leftovers_of_killed_runners_are_removed(self, tmp_path: Path) -> None:
        (tmp_path / "runner-dead" / "build-1").mkdir(parents=True)
        forge = FakeForge("true")
        assert await make_runner([("one", forge)], tmp_path, [], max_concurrent=1).run(only_one=True)
        assert await asyncio.to_thread(lambda: list(tmp_path.iterdir())) == []


class TestSettings:
    def load(self, folder: Path, text: str, **options: Any) -> Any:
        file = folder / "runner.toml"
        file.write_text(text)
        file.chmod(0o600)
        return load_settings(file, options, {"url": "", "token": ""})

    def test_are_those_of_the_manual(self, tmp_path: Path) -> None:
        manual = (Path(__file__).parents[3] / "docs" / "runner.md").read_text()
        example = manual.partition("```toml\n")[2].partition("```")[0]
        settings = self.load(tmp_path, example, concurrent=3)

        assert (settings.concurrent, settings.metrics_address, len(settings.forge)) == (3, ("127.0.0.1", 9253), 2)
        assert settings.executor_settings.limits == Limits(4 * 2**30, 2, 1000, 20 * 2**30)
        assert "fr-" not in repr(settings)

    def test_a_wrong_one_is_named_without_its_token(self, tmp_path: Path) -> None:
        forge = '[[forge]]\nurl = "https://forge.example.com"\ntoken = "fr-secret"\n'
        for text, message in (
            ("", "No forge is named."),
            ("concurrent = ", "Invalid value"),
            (forge + "tags = []", r"forge\.0\.tags: Extra inputs"),
            (
                forge.replace("https", "http"),
                r"forge\.0: url is http://forge\.example\.com: tokens and secret variables .* allow_http = true",
            ),
            (forge.replace("https", "ftp"), "must be an address such as"),
            (forge + 'token_file = "x"', "one of token and token_file"),
            ('metrics = "9253"\n' + forge, "metrics: must be an address such as"),
            (forge + '[limits]\nmemory = "much"', r"limits\.memory: must be a size"),
            (forge + "[limits]\nmemory = 5", r"limits\.memory: .*greater than or equal to 1048576"),
            ('executor = "vm"\n' + forge, "executor: "),
        ):
            with pytest.raises(InvalidRunnerConfig, match=message) as raised:
                self.load(tmp_path, text)
            assert "fr-secret" not in str(raised.value)

    def test_http_is_for_this_machine(self, tmp_path: Path) -> None:
        for host, is_allowed in (
            ("localhost", True),
            ("127.8.9.1", True),
            ("[::1]", True),
            ("10.0.0.1", False),
            ("localhost.evil.org", False),
        ):
            forge = {"url": f"http://{host}:80", "token": "x"}
            if is_allowed:
                assert load_settings(None, {}, forge).forge[0].read_token() == "x"
            else:
                with pytest.raises(InvalidRunnerConfig):
                    load_settings(None, {}, forge)
                assert load_settings(None, {}, {**forge, "allow_http": True})

    def test_the_token_is_read_from_its_file(self, tmp_path: Path) -> None:
        (tmp_path / "token").write_text("fr-secret\n")
        text = f'[[forge]]\nurl = "https://forge.example.com"\ntoken_file = "{tmp_path}/token"'
        assert self.load(tmp_path, text).forge[0].read_token() == "fr-secret"
        (tmp_path / "token").unlink()
        with pytest.raises(InvalidRunnerConfig, match="cannot be read"):
            self.load(tmp_path, text).forge[0].read_token()


class TestStop:
    async def test_a_build_that_is_assigned_meanwhile_is_given_back(self, tmp_path: Path) -> None:
        class LateForge(FakeForge):
            async def claim(self, wait_seconds: int) -> ClaimedBuild | None:
                runner.stop()
                await asyncio.sleep(0.05)
                return await super().claim(wait_seconds)

        forge, ended = LateForge(f"touch {tmp_path}/begun"), list[str]()
        runner = make_runner([("late", forge)], tmp_path, ended, max_concurrent=1)
        await runner.run(only_one=False)

        assert forge.statuses == ["PENDING"]
        assert ended == [] and not (tmp_path / "begun").exists()
