"""One build, from fetching its code to reporting its result.

The order: fetch, script, after_script, artifacts, the end of the trace, the status. Meanwhile the trace is sent about once a second, and a
build without output is reported every few seconds. The responses tell the runner when a build is no longer its own.
"""

import asyncio
import base64
import contextlib
import os
import shutil
import stat
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import structlog

from forgefront.runner import archive, shell
from forgefront.runner.forge_client import BuildRevoked, ClaimedBuild, ForgeClient, RequestRejected, ServiceUnreachable
from forgefront.runner.trace_buffer import TraceBuffer

SEND_INTERVAL_SECONDS = 1.0
HEARTBEAT_SECONDS = 5.0
"""Interval of reports for a build without output; a cancellation is noticed within this time."""
FINISH_RETRY_SECONDS = 600.0
"""Time limit for reporting the end of a build."""
AFTER_SCRIPT_SECONDS = 300.0
"""Time limit of the after_script."""
PROGRESS_LOG_SECONDS = 5.0

log = structlog.get_logger("runner")


class BuildOutcome(StrEnum):
    """The result of a build at this runner."""

    PASSED = "passed"
    FAILED = "failed"
    GIVEN_BACK = "given back"
    REVOKED = "gone"
    LOST = "lost"


class _BuildStopped(Exception):
    """The build must end now; the message says why."""


@dataclass
class BuildExecution:
    """Runs one build. `give_back` stops it and leaves the build to another runner."""

    service: ForgeClient
    job: ClaimedBuild
    folder: Path
    runner_token: str
    _stop: asyncio.Event = field(default_factory=asyncio.Event)
    _stop_reason: BuildRevoked | ServiceUnreachable | None = None
    _is_given_back: bool = False
    _is_timed_out: bool = False

    def __post_init__(self) -> None:
        secrets = self.job.secrets | {self.runner_token}
        self.trace = TraceBuffer(secrets, offset=self.job.trace_offset, limit=self.job.trace_limit)
        self.log: Any = log.bind(build=self.job.build_id, job=self.job.name)

    def give_back(self) -> None:
        self._is_given_back = True
        self._stop.set()

    async def run(self) -> BuildOutcome:
        """Runs the build in a new folder below `folder`, which is removed afterwards."""
        started = time.monotonic()
        self.log.info("build taken", ref=self.job.ref, commit=self.job.sha[:8])
        self._done = asyncio.Event()
        trace_task = asyncio.create_task(self._send_trace())
        alarm = asyncio.get_running_loop().call_later(self.job.timeout_seconds, self._time_out)
        work_folder: Path | None = None
        try:
            work_folder = await asyncio.to_thread(lambda: Path(tempfile.mkdtemp(prefix=f"build-{self.job.build_id}-", dir=self.folder)))
            passed = await self._run_build(work_folder)
        except OSError as error:
            self.trace.write_line(f"ERROR: The runner failed: {error.strerror or error}")
            self.log.error("build failed to run", error=str(error))
            passed = False
        finally:
            alarm.cancel()
            if work_folder is not None:
                await asyncio.to_thread(remove_folder, work_folder)
            self.trace.finish()
            self._done.set()
            try:
                await trace_task
            finally:
                trace_task.cancel()
        outcome = await self._report_outcome(passed)
        self.log.info("build finished", how=outcome.value, seconds=round(time.monotonic() - started, 1))
        return outcome

    def _time_out(self) -> None:
        self._is_timed_out = True
        self._stop.set()

    async def _report_outcome(self, passed: bool) -> BuildOutcome:
        if isinstance(self._stop_reason, BuildRevoked):
            self.log.warning("build was revoked", why=str(self._stop_reason))
            return BuildOutcome.REVOKED
        if self._is_given_back:
            status, outcome = "PENDING", BuildOutcome.GIVEN_BACK
        else:
            status, outcome = ("SUCCESS", BuildOutcome.PASSED) if passed else ("FAILED", BuildOutcome.FAILED)
        try:
            await self.service.report_status(self.job, status, retry_seconds=10.0 if self._is_given_back else FINISH_RETRY_SECONDS)
        except BuildRevoked as gone:
            self.log.warning("build was revoked", why=str(gone))
            return BuildOutcome.REVOKED
        except (ServiceUnreachable, RequestRejected) as error:
            self.log.error("result of a build could not be reported", why=str(error))
            return BuildOutcome.LOST
        return outcome

    # Steps

    async def _run_build(self, work_folder: Path) -> bool:
        """Whether it passed."""
        code = work_folder / "code"
        for each in (code, work_folder / "home", work_folder / "tmp"):
            each.mkdir()
        variables = shell.expand_references({**self.job.variables, "CI_PROJECT_DIR": str(code)}, self.job.secrets)
        environment = shell.build_environment(variables, work_folder / "home", work_folder / "tmp")
        self.trace.write_line(f"Running {self.job.name} for {self.job.ref} at {self.job.sha[:8]}")
        try:
            await self._fetch(code, work_folder)
            passed = await self._run_script(work_folder / "script", self.job.script, code, environment)
            await self._run_after_script(work_folder / "after", code, environment)
            return await self._upload_artifact(work_folder, code, passed)
        except _BuildStopped as stopped:
            self.trace.write_line(f"ERROR: {stopped}")
            return False

    async def _fetch(self, code: Path, work_folder: Path) -> None:
        """Checks out the commit with its history. Only git's environment contains the token."""
        job = self.job
        parts = urlsplit(job.repository_url)
        credential = base64.b64encode(f"gitlab-ci-token:{job.token}".encode()).decode()
        settings = {
            f"http.{parts.scheme}://{parts.netloc}/.extraHeader": f"Authorization: Basic {credential}",
            "credential.helper": "",
            "protocol.ext.allow": "never",
            "protocol.file.allow": "never",
            "advice.detachedHead": "false",
            "init.defaultBranch": "master",
            "gc.auto": "0",
        }
        environment = {
            **shell.build_environment({}, work_folder / "home", work_folder / "tmp"),
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_ASKPASS": "true",
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_COUNT": str(len(settings)),
            **{f"GIT_CONFIG_KEY_{number}": key for number, key in enumerate(settings)},
            **{f"GIT_CONFIG_VALUE_{number}": value for number, value in enumerate(settings.values())},
        }

        async def git(*arguments: str) -> bool:
            found = await shell.run_command(["git", *arguments], code, environment, self.trace, self._stop)
            self._raise_if_stopped()
            return found == 0

        self.trace.write_line(f"Fetching {job.repository_url} …")
        fetched = await git("init", "--quiet") and await git("remote", "add", "origin", job.repository_url)
        kind = "tags" if job.variables.get("CI_BUILD_TAG") else "heads"
        refs = ("+refs/heads/*:refs/remotes/origin/*", "+refs/tags/*:refs/tags/*")
        # The commit may not be the newest one of its ref any more.
        fetched = fetched and (
            await git("fetch", "--quiet", "--no-tags", "origin", job.sha)
            or await git("fetch", "--quiet", "--no-tags", "origin", f"+refs/{kind}/{job.ref}")
            or await git("fetch", "--quiet", "origin", *refs)
        )
        if not fetched or not await git("checkout", "--quiet", "--force", "--detach", job.sha):
            raise _BuildStopped("The commit cannot be fetched.")

    async def _run_script(self, file: Path, commands: tuple[str, ...], code: Path, environment: dict[str, str]) -> bool:
        await asyncio.to_thread(_write_script, file, commands)
        found = await shell.run_command([*shell.SHELL, str(file)], code, environment, self.trace, self._stop)
        self._raise_if_stopped()
        if found == 0:
            return True
        self.trace.write_line(f"ERROR: Build failed: exit code {found}" if found > 0 else f"ERROR: Build failed: ended by signal {-found}")
        return False

    async def _run_after_script(self, file: Path, code: Path, environment: dict[str, str]) -> None:
        """Runs the after_script, whatever the result of the script. Its own result is ignored."""
        if not self.job.after_script:
            return
        self.trace.write_line("Running after_script …")
        await asyncio.to_thread(_write_script, file, self.job.after_script)
        stop = asyncio.Event()
        timer = asyncio.get_running_loop().call_later(AFTER_SCRIPT_SECONDS, stop.set)
        watch = asyncio.create_task(self._forward_stop(stop))
        try:
            found = await shell.run_command([*shell.SHELL, str(file)], code, environment, self.trace, stop)
        finally:
            timer.cancel()
            watch.cancel()
            await asyncio.gather(watch, return_exceptions=True)
        self._raise_if_stopped()
        if found:
            self.trace.write_line(f"WARNING: after_script failed with {found}; the build continues.")

    async def _forward_stop(self, stop: asyncio.Event) -> None:
        await self._stop.wait()
        stop.set()

    def _raise_if_stopped(self) -> None:
        """Raises _BuildStopped when the build must end."""
        if self._stop.is_set():
            late = f"The build exceeded its time limit of {self.job.timeout_seconds} s."
            raise _BuildStopped(
                late if self._is_timed_out and self._stop_reason is None and not self._is_given_back else "The build was stopped."
            )

    async def _upload_artifact(self, work_folder: Path, code: Path, passed: bool) -> bool:
        """Uploads the artifact, if there is one. Returns whether the build still passes."""
        rules = self.job.artifacts
        if rules is None or rules.when not in ("ALWAYS", "ON_SUCCESS" if passed else "ON_FAILURE"):
            return passed
        untracked = await asyncio.to_thread(_list_untracked, code) if rules.includes_untracked else []
        target = work_folder / "artifact"
        count, missing = await asyncio.to_thread(archive.write_archive, code, rules.paths, untracked, target)
        for pattern in missing:
            self.trace.write_line(f"WARNING: {pattern}: no matching files.")
        if not count:
            self.trace.write_line("WARNING: There are no artifacts to upload.")
            return passed
        name = f"{rules.name}.zip"
        self.trace.write_line(f"Uploading {count} files as {name} ({target.stat().st_size} bytes) …")
        try:
            await self._run_unless_stopped(
                self.service.upload_artifact(self.job, target, name, self._create_progress_logger(name), retry_seconds=FINISH_RETRY_SECONDS)
            )
        except (RequestRejected, ServiceUnreachable) as error:
            self.trace.write_line(f"ERROR: {error}")
            return False
        return passed

    async def _run_unless_stopped(self, work: Any) -> None:
        """Waits for the task, unless the build must end. Raises _BuildStopped."""
        running, stopping = asyncio.create_task(work), asyncio.create_task(self._stop.wait())
        try:
            await asyncio.wait({running, stopping}, return_when=asyncio.FIRST_COMPLETED)
            self._raise_if_stopped()
            await running
        except BuildRevoked as gone:
            self._stop_because(gone)
            self._raise_if_stopped()
        finally:
            for task in (running, stopping):
                task.cancel()
            await asyncio.gather(running, stopping, return_exceptions=True)

    def _create_progress_logger(self, name: str) -> Callable[[int, int], None]:
        last = time.monotonic()

        def log_progress(sent: int, size: int) -> None:
            nonlocal last
            if time.monotonic() - last >= PROGRESS_LOG_SECONDS:
                last = time.monotonic()
                self.log.info("sending", file=name, percent=100 * sent // max(size, 1))

        return log_progress

    # Reports

    def _stop_because(self, reason: BuildRevoked | ServiceUnreachable) -> None:
        if self._stop_reason is None:
            self._stop_reason = reason
        self._stop.set()

    async def _send_trace(self) -> None:
        """Sends the trace, and reports a build without output, until all of it is sent."""
        sent_at = time.monotonic()
        heartbeat_seconds = min(HEARTBEAT_SECONDS, self.job.lease_seconds / 4)
        retry_seconds = self.job.timeout_seconds + FINISH_RETRY_SECONDS
        try:
            while True:
                text = self.trace.next_chunk()
                if text:
                    await self.service.append_trace(self.job, text, self.trace.offset, retry_seconds=retry_seconds)
                    self.trace.mark_sent(text)
                    sent_at = time.monotonic()
                elif self._done.is_set():
                    return
                elif time.monotonic() - sent_at >= heartbeat_seconds:
                    await self.service.report_status(self.job, "RUNNING", retry_seconds=retry_seconds)
                    sent_at = time.monotonic()
                if not self.trace.is_full:
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(SEND_INTERVAL_SECONDS):
                            await self._done.wait()
        except (BuildRevoked, ServiceUnreachable) as why:
            self._stop_because(why)
        except RequestRejected as error:
            self.log.error("trace was rejected", why=str(error))
            self._stop_because(ServiceUnreachable(str(error)))


def _write_script(file: Path, commands: tuple[str, ...]) -> None:
    file.write_text(shell.build_script(commands), encoding="utf-8")


def _list_untracked(code: Path) -> list[str]:
    """The untracked files."""
    environment = {"PATH": os.environ.get("PATH", os.defpath), "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull}
    done = subprocess.run(
        ["git", "-c", "core.fsmonitor=false", "ls-files", "-z", "--others"],  # noqa: S607
        cwd=code,
        env=environment,
        capture_output=True,
        check=False,
    )
    return [os.fsdecode(name) for name in done.stdout.split(b"\0") if name]


def remove_folder(folder: Path) -> None:
    """Removes a folder with its contents, including read-only files."""

    def allow(function: Any, path: str, _error: Any) -> None:
        with contextlib.suppress(OSError):
            Path(path).parent.chmod(stat.S_IRWXU)
            if not Path(path).is_symlink():
                Path(path).chmod(stat.S_IRWXU)
            function(path)

    # Again, for folders that could not be listed before.
    for _ in range(2):
        if folder.exists():
            shutil.rmtree(folder, onerror=allow)
    if folder.exists():
        log.warning("folder could not be removed", folder=str(folder))
