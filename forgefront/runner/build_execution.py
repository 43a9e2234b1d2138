"""One build, from fetching its code to reporting its result.

The order: fetch, artifacts of earlier builds, cache, script, after_script, cache, artifacts, the end of the trace, the status.
Meanwhile the trace is sent (`trace_sender.py`), whose responses report when a build is no longer assigned to the runner.
"""

import asyncio
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

import structlog

from forgefront.runner import archive, scripts
from forgefront.runner.build_cache import BuildCache, list_untracked
from forgefront.runner.checkout import Checkout, CheckoutFailed, CheckoutOptions
from forgefront.runner.executors.executor import BuildImages, BuildNotStarted, Executor, Session, Workspace
from forgefront.runner.folders import FolderUnreadable, measure_folder, remove_folder
from forgefront.runner.forge_client import BuildRevoked, ClaimedBuild, ForgeClient, RequestRejected, ServiceUnreachable
from forgefront.runner.mirrors import MirrorStore
from forgefront.runner.trace_buffer import TraceBuffer
from forgefront.runner.trace_sender import StopReason, TraceSender

FINISH_RETRY_SECONDS = 600.0
"""Time limit for reporting the end of a build."""
AFTER_SCRIPT_SECONDS = 300.0
"""Time limit of the after_script."""
PROGRESS_LOG_SECONDS = 5.0
DISK_CHECK_SECONDS = 5.0
MAX_NAMED_FILES = 20
"""Unreadable files that the trace names."""
MAX_DEPENDENCY_BYTES = 2**34
"""Maximum size of the artifacts of one earlier build when they are extracted."""

log = structlog.get_logger("runner")


class BuildOutcome(StrEnum):
    """The result of a build at this runner."""

    PASSED = "passed"
    FAILED = "failed"
    RETURNED = "given back"
    REVOKED = "gone"
    LOST = "lost"


class _BuildStopped(Exception):
    """The build must end now; the message says why."""


@dataclass
class BuildExecution:
    """Runs one build. `return_build` stops it and leaves the build to another runner."""

    service: ForgeClient
    job: ClaimedBuild
    folder: Path
    runner_token: str
    executor: Executor
    mirrors: MirrorStore
    cache: BuildCache | None = None
    _stop: asyncio.Event = field(default_factory=asyncio.Event)
    _stop_reason: StopReason | None = None
    _is_returned: bool = False
    _end_reason: str = ""
    _has_runner_failed: bool = False

    def __post_init__(self) -> None:
        secrets = self.job.secrets | {self.runner_token}
        self.trace = TraceBuffer(secrets, offset=self.job.trace_offset, limit=self.job.trace_limit)
        self.log: Any = log.bind(build=self.job.build_id, job=self.job.name)

    def return_build(self) -> None:
        self._is_returned = True
        self._stop.set()

    async def run(self) -> BuildOutcome:
        """Runs the build in a new folder below `folder`, which is removed afterwards."""
        started = time.monotonic()
        self.log.info("build taken", ref=self.job.ref, commit=self.job.sha[:8])
        retry_seconds = self.job.timeout_seconds + FINISH_RETRY_SECONDS
        sender = TraceSender(self.service, self.job, self.trace, retry_seconds=retry_seconds, on_stop=self._stop_because)
        trace_task = asyncio.create_task(sender.run())
        late = f"The build exceeded its time limit of {self.job.timeout_seconds} s."
        alarm = asyncio.get_running_loop().call_later(self.job.timeout_seconds, self._end, late)
        root: Path | None = None
        try:
            root = await asyncio.to_thread(lambda: Path(tempfile.mkdtemp(prefix=f"build-{self.job.build_id}-", dir=self.folder)))
            passed = await self._run_build(root)
        except Exception as error:
            # Any error fails this build only: another runner would have the same failure after the lease has expired.
            reason = error.strerror or error if isinstance(error, OSError) else f"{type(error).__name__}: {error}"
            self.log.error("build failed to run", exc_info=error)
            passed = self._fail_as_runner(str(reason))
        finally:
            alarm.cancel()
            if root is not None:
                await asyncio.to_thread(remove_folder, root)
            self.trace.finish()
            sender.finish()
            try:
                await trace_task
            finally:
                trace_task.cancel()
        outcome = await self._report_outcome(passed)
        self.log.info("build finished", how=outcome.value, seconds=round(time.monotonic() - started, 1))
        return outcome

    def _end(self, reason: str) -> None:
        """Ends the build, which fails for this reason."""
        self._end_reason = self._end_reason or reason
        self._stop.set()

    def _fail_as_runner(self, reason: str) -> bool:
        """Reports a failure that is not one of the script; returns that the build did not pass."""
        self.trace.write_line(f"ERROR: The runner failed: {reason}")
        self._has_runner_failed = True
        return False

    async def _report_outcome(self, passed: bool) -> BuildOutcome:
        if isinstance(self._stop_reason, BuildRevoked):
            self.log.warning("build was revoked", why=str(self._stop_reason))
            return BuildOutcome.REVOKED
        if self._is_returned:
            status, outcome = "PENDING", BuildOutcome.RETURNED
        else:
            status, outcome = ("SUCCESS", BuildOutcome.PASSED) if passed else ("FAILED", BuildOutcome.FAILED)
        try:
            await self.service.report_status(
                self.job,
                status,
                retry_seconds=10.0 if self._is_returned else FINISH_RETRY_SECONDS,
                failure_reason="RUNNER_SYSTEM_FAILURE" if status == "FAILED" and self._has_runner_failed else None,
            )
        except BuildRevoked as error:
            self.log.warning("build was revoked", why=str(error))
            return BuildOutcome.REVOKED
        except (ServiceUnreachable, RequestRejected) as error:
            self.log.error("result of a build could not be reported", why=str(error))
            return BuildOutcome.LOST
        return outcome

    # Steps

    async def _run_build(self, root: Path) -> bool:
        """Runs the build; returns whether it passed."""
        job = self.job
        if job.problem:
            return self._fail_as_runner(job.problem)
        self.trace.write_line(f"Running {job.name} for {job.ref} at {job.sha[:8]} ({self.executor.name})")
        try:
            options = CheckoutOptions.parse(job.variables)
            mirror = self.mirrors.path_of(job.repository_url) if options.uses_mirror else None
            workspace = Workspace(root, Path(job.repository_url).stem, mirror)
            for each in workspace.folders:
                each.mkdir(mode=0o755)
            async with AsyncExitStack() as stack:
                if mirror is not None:
                    await stack.enter_async_context(self.mirrors.use(mirror, self._stop))
                session = await stack.enter_async_context(self.executor.open(workspace, self._images(), self.trace, self._stop))
                watch = asyncio.create_task(self._watch_disk(root))
                stack.callback(watch.cancel)
                return await self._run_steps(workspace, session, options)
        except (_BuildStopped, CheckoutFailed, BuildNotStarted, archive.ArchiveInterrupted) as stopped:
            self.trace.write_line(f"ERROR: {self._stop_message() or stopped}")
            return False

    def _images(self) -> BuildImages:
        public = {key: value for key, value in self.job.variables.items() if value not in self.job.secrets}
        image, *services = (scripts.expand_string(name, public) for name in (self.job.image or "", *self.job.services))
        return BuildImages(image or None, tuple(services), public)

    async def _run_steps(self, workspace: Workspace, session: Session, options: CheckoutOptions) -> bool:
        job, paths = self.job, session.paths
        variables = scripts.expand_references({**job.variables, "CI_PROJECT_DIR": paths.code}, job.secrets)
        environment = scripts.build_environment(variables, paths.home, paths.temporary, paths.path)
        if problem := scripts.find_environment_problem(environment):
            raise BuildNotStarted(problem)
        checkout = await self._check_out(workspace, session, options)
        needs_tracked = (job.artifacts and job.artifacts.includes_untracked) or (job.cache and job.cache.includes_untracked)
        tracked = await checkout.list_tracked() if needs_tracked else frozenset()
        await self._download_dependencies(workspace)
        if self.cache and job.cache:
            await self._run_unless_stopped(self.cache.restore(job, job.cache, variables, workspace, self.trace, self._stop))
        passed = await self._run_script(workspace.scripts / "script", session, environment)
        await self._run_after_script(workspace.scripts / "after", session, environment)
        if passed and self.cache and job.cache:
            untracked = await asyncio.to_thread(list_untracked, workspace.code, tracked) if job.cache.includes_untracked else []
            await self._run_unless_stopped(self.cache.save(job, job.cache, variables, workspace, untracked, self.trace, self._stop))
        return await self._upload_artifact(workspace, variables, tracked, passed)

    async def _check_out(self, workspace: Workspace, session: Session, options: CheckoutOptions) -> Checkout:
        """Checks out the code. Raises CheckoutFailed, _BuildStopped."""
        checkout = Checkout(self.job, options, workspace, self.mirrors, self.trace, self._stop)
        try:
            await checkout.run(session.paths.mirror)
        finally:
            self._raise_if_stopped()
        return checkout

    async def _download_dependencies(self, workspace: Workspace) -> None:
        """Extracts the artifacts of earlier builds into the working folder. Raises _BuildStopped if one is missing or damaged."""
        target = workspace.root / "dependency"
        for artifact in self.job.dependencies:
            self.trace.write_line(f"Downloading the artifacts of {artifact.build_name} ({artifact.size} bytes) …")
            try:
                await self._run_unless_stopped(
                    self.service.download_artifact(self.job, artifact, target, retry_seconds=FINISH_RETRY_SECONDS)
                )
                await asyncio.to_thread(
                    archive.extract_archive, target, workspace.code, max_bytes=MAX_DEPENDENCY_BYTES, is_stopped=self._stop.is_set
                )
            except (RequestRejected, ServiceUnreachable, archive.ArchiveRejected) as error:
                raise _BuildStopped(f"The artifacts of {artifact.build_name} cannot be used: {error}") from error
            finally:
                await asyncio.to_thread(target.unlink, missing_ok=True)

    async def _watch_disk(self, root: Path) -> None:
        """Ends the build when its folders take more space than it may have."""
        limit = self.executor.limits.disk_bytes
        while limit:
            started = time.monotonic()
            try:
                size = await asyncio.to_thread(measure_folder, root, limit)
            except FolderUnreadable:
                self._end("The space of the build on disk cannot be measured, because it keeps making folders unreadable.")
                return
            if size > limit:
                self._end(f"The build exceeded its limit of {limit} bytes on disk.")
                return
            # A folder with very many files is measured less often.
            await asyncio.sleep(max(DISK_CHECK_SECONDS, 10 * (time.monotonic() - started)))

    async def _run_script(self, file: Path, session: Session, environment: dict[str, str]) -> bool:
        await asyncio.to_thread(_write_script, file, self.job.script)
        found = await session.run(file, environment, self.trace, self._stop)
        self._raise_if_stopped()
        if found == 0:
            return True
        self.trace.write_line(f"ERROR: Build failed: exit code {found}" if found > 0 else f"ERROR: Build failed: ended by signal {-found}")
        return False

    async def _run_after_script(self, file: Path, session: Session, environment: dict[str, str]) -> None:
        """Runs the after_script, whatever the result of the script. Its own result is ignored."""
        if not self.job.after_script:
            return
        self.trace.write_line("Running after_script …")
        await asyncio.to_thread(_write_script, file, self.job.after_script)
        stop = asyncio.Event()
        timer = asyncio.get_running_loop().call_later(AFTER_SCRIPT_SECONDS, stop.set)
        watch = asyncio.create_task(self._forward_stop(stop))
        try:
            found = await session.run(file, environment, self.trace, stop)
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
            raise _BuildStopped(self._stop_message())

    def _stop_message(self) -> str:
        """Why the build must end; empty if it need not."""
        if not self._stop.is_set():
            return ""
        is_own_end = self._stop_reason is None and not self._is_returned
        return self._end_reason if self._end_reason and is_own_end else "The build was stopped."

    async def _upload_artifact(self, workspace: Workspace, variables: Mapping[str, str], tracked: frozenset[str], passed: bool) -> bool:
        """Uploads the artifact, if there is one. Returns whether the build still passes."""
        rules = self.job.artifacts
        if rules is None or rules.when not in ("ALWAYS", "ON_SUCCESS" if passed else "ON_FAILURE"):
            return passed
        untracked = await asyncio.to_thread(list_untracked, workspace.code, tracked) if rules.includes_untracked else []
        target = workspace.root / "artifact"
        unreadable: list[str] = []
        count, missing = await asyncio.to_thread(
            archive.write_archive,
            workspace.code,
            [scripts.expand_string(path, variables) for path in rules.paths],
            untracked,
            target,
            on_unreadable=unreadable.append,
            is_stopped=self._stop.is_set,
        )
        for name in unreadable[:MAX_NAMED_FILES]:
            self.trace.write_line(f"WARNING: {name}: cannot be read.")
        if len(unreadable) > MAX_NAMED_FILES:
            self.trace.write_line(f"WARNING: {len(unreadable) - MAX_NAMED_FILES} more files cannot be read.")
        for pattern in missing:
            self.trace.write_line(f"WARNING: {pattern}: no matching files.")
        if not count:
            self.trace.write_line("WARNING: There are no artifacts to upload.")
            return passed
        name = f"{scripts.expand_string(rules.name, variables)}.zip"
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
        except BuildRevoked as error:
            self._stop_because(error)
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

    def _stop_because(self, reason: StopReason) -> None:
        if self._stop_reason is None:
            self._stop_reason = reason
        self._stop.set()


def _write_script(file: Path, commands: tuple[str, ...]) -> None:
    file.write_text(scripts.build_script(commands), encoding="utf-8")
