"""One build, from the fetched code to what is said of its end.

The order: fetch, script, what comes after it, artifacts, the end of the trace, the status. Beside all of it the trace is sent about once
a second, and a quiet build is told of every few seconds; by the answers the runner hears that a build is not its own any more.
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
from forgefront.runner.service import Gone, Job, Refused, Service, Unreachable
from forgefront.runner.trace import Trace

SEND_SECONDS = 1.0
BEAT_SECONDS = 5.0
"""How often a build that prints nothing is told of; within so long the runner hears of a cancellation."""
ENDING_SECONDS = 600.0
"""For how long the end of a build is tried to be told."""
AFTER_SECONDS = 300.0
"""What the commands after the script get."""
TOLD_EVERY = 5.0

log = structlog.get_logger("runner")


class Ended(StrEnum):
    """What became of a build at this runner."""

    PASSED = "passed"
    FAILED = "failed"
    GIVEN_BACK = "given back"
    GONE = "gone"
    LOST = "lost"


class _Stopped(Exception):
    """The build is to end now; the text says why."""


@dataclass
class Work:
    """Runs one build. `give_back` asks it to stop and leave the build to another runner."""

    service: Service
    job: Job
    folder: Path
    runner_token: str
    _stop: asyncio.Event = field(default_factory=asyncio.Event)
    _why: Gone | Unreachable | None = None
    _given_back: bool = False
    _late: bool = False

    def __post_init__(self) -> None:
        secrets = self.job.secrets | {self.runner_token}
        self.trace = Trace(secrets, offset=self.job.trace_offset, limit=self.job.trace_limit)
        self.log: Any = log.bind(build=self.job.build_id, job=self.job.name)

    def give_back(self) -> None:
        self._given_back = True
        self._stop.set()

    async def run(self) -> Ended:
        """Runs the build in a new folder below `folder`, which is gone afterwards."""
        started = time.monotonic()
        self.log.info("build taken", ref=self.job.ref, commit=self.job.sha[:8])
        self._done = asyncio.Event()
        telling = asyncio.create_task(self._tell())
        alarm = asyncio.get_running_loop().call_later(self.job.timeout_seconds, self._ring)
        place: Path | None = None
        try:
            place = await asyncio.to_thread(lambda: Path(tempfile.mkdtemp(prefix=f"build-{self.job.build_id}-", dir=self.folder)))
            passed = await self._build(place)
        except OSError as error:
            self.trace.say(f"ERROR: The runner cannot work: {error.strerror or error}")
            self.log.error("the build cannot be run", error=str(error))
            passed = False
        finally:
            alarm.cancel()
            if place is not None:
                await asyncio.to_thread(remove, place)
            self.trace.end()
            self._done.set()
            try:
                await telling
            finally:
                telling.cancel()
        ended = await self._finish(passed)
        self.log.info("build ended", how=ended.value, seconds=round(time.monotonic() - started, 1))
        return ended

    def _ring(self) -> None:
        self._late = True
        self._stop.set()

    async def _finish(self, passed: bool) -> Ended:
        if isinstance(self._why, Gone):
            self.log.warning("the build is gone", why=str(self._why))
            return Ended.GONE
        if self._given_back:
            status, ended = "PENDING", Ended.GIVEN_BACK
        else:
            status, ended = ("SUCCESS", Ended.PASSED) if passed else ("FAILED", Ended.FAILED)
        try:
            await self.service.say(self.job, status, tries_for=10.0 if self._given_back else ENDING_SECONDS)
        except Gone as gone:
            self.log.warning("the build is gone", why=str(gone))
            return Ended.GONE
        except (Unreachable, Refused) as error:
            self.log.error("the end of the build was not told", why=str(error))
            return Ended.LOST
        return ended

    # What is done

    async def _build(self, place: Path) -> bool:
        """Whether it passed."""
        code = place / "code"
        for each in (code, place / "home", place / "tmp"):
            each.mkdir()
        variables = {**self.job.variables, "CI_PROJECT_DIR": str(code)}
        environment = shell.environment(variables, place / "home", place / "tmp")
        self.trace.say(f"Running {self.job.name} for {self.job.ref} at {self.job.sha[:8]}")
        try:
            await self._fetch(code, place)
            passed = await self._script(place / "script", self.job.script, code, environment)
            await self._after(place / "after", code, environment)
            return await self._keep(place, code, passed)
        except _Stopped as stopped:
            self.trace.say(f"ERROR: {stopped}")
            return False

    async def _fetch(self, code: Path, place: Path) -> None:
        """The commit with its history, checked out. The token stands in the environment of git alone."""
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
            **shell.environment({}, place / "home", place / "tmp"),
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_ASKPASS": "true",
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_COUNT": str(len(settings)),
            **{f"GIT_CONFIG_KEY_{number}": key for number, key in enumerate(settings)},
            **{f"GIT_CONFIG_VALUE_{number}": value for number, value in enumerate(settings.values())},
        }

        async def git(*arguments: str) -> bool:
            found = await shell.run(["git", *arguments], code, environment, self.trace, self._stop)
            self._check()
            return found == 0

        self.trace.say(f"Fetching {job.repository_url} …")
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
            raise _Stopped("The commit cannot be fetched.")

    async def _script(self, file: Path, commands: tuple[str, ...], code: Path, environment: dict[str, str]) -> bool:
        await asyncio.to_thread(_write, file, commands)
        found = await shell.run([*shell.SHELL, str(file)], code, environment, self.trace, self._stop)
        self._check()
        if found == 0:
            return True
        self.trace.say(f"ERROR: Build failed: exit code {found}" if found > 0 else f"ERROR: Build failed: ended by signal {-found}")
        return False

    async def _after(self, file: Path, code: Path, environment: dict[str, str]) -> None:
        """What is to be run however the script ended; how it ends itself means nothing."""
        if not self.job.after_script:
            return
        self.trace.say("Running what comes after the script …")
        await asyncio.to_thread(_write, file, self.job.after_script)
        stop = asyncio.Event()
        timer = asyncio.get_running_loop().call_later(AFTER_SECONDS, stop.set)
        watch = asyncio.create_task(self._passes_on(stop))
        try:
            found = await shell.run([*shell.SHELL, str(file)], code, environment, self.trace, stop)
        finally:
            timer.cancel()
            watch.cancel()
            await asyncio.gather(watch, return_exceptions=True)
        self._check()
        if found:
            self.trace.say(f"WARNING: What comes after the script ended with {found}; the build goes on.")

    async def _passes_on(self, stop: asyncio.Event) -> None:
        await self._stop.wait()
        stop.set()

    def _check(self) -> None:
        """Raises _Stopped when the build is to end."""
        if self._stop.is_set():
            late = f"The build took longer than {self.job.timeout_seconds} s, which is all that it has."
            raise _Stopped(late if self._late and self._why is None and not self._given_back else "The build was stopped.")

    async def _keep(self, place: Path, code: Path, passed: bool) -> bool:
        """Sends the artifact, where there is to be one; whether the build passes still."""
        kept = self.job.artifacts
        if kept is None or kept.when not in ("ALWAYS", "ON_SUCCESS" if passed else "ON_FAILURE"):
            return passed
        untracked = await asyncio.to_thread(_untracked, code) if kept.untracked else []
        target = place / "artifact"
        count, missing = await asyncio.to_thread(archive.pack, code, kept.paths, untracked, target)
        for pattern in missing:
            self.trace.say(f"WARNING: {pattern}: there are no such files.")
        if not count:
            self.trace.say("WARNING: There is nothing to keep.")
            return passed
        name = f"{kept.name}.zip"
        self.trace.say(f"Keeping {count} files as {name} ({target.stat().st_size} bytes) …")
        try:
            await self._while_wanted(self.service.upload(self.job, target, name, self._progress(name), tries_for=ENDING_SECONDS))
        except (Refused, Unreachable) as error:
            self.trace.say(f"ERROR: {error}")
            return False
        return passed

    async def _while_wanted(self, work: Any) -> None:
        """Waits for the work, unless the build is to end. Raises _Stopped."""
        doing, stopping = asyncio.create_task(work), asyncio.create_task(self._stop.wait())
        try:
            await asyncio.wait({doing, stopping}, return_when=asyncio.FIRST_COMPLETED)
            self._check()
            await doing
        except Gone as gone:
            self._lose(gone)
            self._check()
        finally:
            for task in (doing, stopping):
                task.cancel()
            await asyncio.gather(doing, stopping, return_exceptions=True)

    def _progress(self, name: str) -> Callable[[int, int], None]:
        last = time.monotonic()

        def tell(sent: int, size: int) -> None:
            nonlocal last
            if time.monotonic() - last >= TOLD_EVERY:
                last = time.monotonic()
                self.log.info("sending", file=name, percent=100 * sent // max(size, 1))

        return tell

    # What is said beside it

    def _lose(self, why: Gone | Unreachable) -> None:
        if self._why is None:
            self._why = why
        self._stop.set()

    async def _tell(self) -> None:
        """Sends the trace, and tells of a quiet build, until all of it is sent."""
        told = time.monotonic()
        beat = min(BEAT_SECONDS, self.job.lease_seconds / 4)
        tries = self.job.timeout_seconds + ENDING_SECONDS
        try:
            while True:
                text = self.trace.take()
                if text:
                    await self.service.append(self.job, text, self.trace.offset, tries_for=tries)
                    self.trace.sent(text)
                    told = time.monotonic()
                elif self._done.is_set():
                    return
                elif time.monotonic() - told >= beat:
                    await self.service.say(self.job, "RUNNING", tries_for=tries)
                    told = time.monotonic()
                if not self.trace.is_full:
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(SEND_SECONDS):
                            await self._done.wait()
        except (Gone, Unreachable) as why:
            self._lose(why)
        except Refused as error:
            self.log.error("the trace was refused", why=str(error))
            self._lose(Unreachable(str(error)))


def _write(file: Path, commands: tuple[str, ...]) -> None:
    file.write_text(shell.script(commands), encoding="utf-8")


def _untracked(code: Path) -> list[str]:
    """The files that git does not know."""
    environment = {"PATH": os.environ.get("PATH", os.defpath), "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull}
    done = subprocess.run(
        ["git", "-c", "core.fsmonitor=false", "ls-files", "-z", "--others"],  # noqa: S607
        cwd=code,
        env=environment,
        capture_output=True,
        check=False,
    )
    return [os.fsdecode(name) for name in done.stdout.split(b"\0") if name]


def remove(folder: Path) -> None:
    """Removes a folder with all that is in it, also what its maker made read-only."""

    def allow(function: Any, path: str, _error: Any) -> None:
        with contextlib.suppress(OSError):
            Path(path).parent.chmod(stat.S_IRWXU)
            if not Path(path).is_symlink():
                Path(path).chmod(stat.S_IRWXU)
            function(path)

    # A second time for folders that could not even be listed.
    for _ in range(2):
        if folder.exists():
            shutil.rmtree(folder, onerror=allow)
    if folder.exists():
        log.warning("a folder was not removed", folder=str(folder))
