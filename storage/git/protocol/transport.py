"""Fetching and pushing: git's own upload-pack and receive-pack, streamed both ways with bounds on memory, processes and time.

Nothing is kept but a few blocks on their way. A process lives no longer than its client, with one exception: once a push has come
whole it is finished, since from outside nobody can tell how far it is.

A `PushAuthorizer` (push.py) decides who may move which ref; receive-pack runs only the hooks of `hooks/`, which enforce it.
"""

import asyncio
import contextlib
import os
import re
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from enum import StrEnum
from functools import partial
from pathlib import Path

from storage.git.protocol.push import ClientStream, Push, PushAuthorizer, RefCommand
from storage.git.protocol.push_gate import PushGate
from storage.git.protocol.push_report import PushReport
from storage.git.subprocesses import async_process, git_command, limits
from storage.git.subprocesses.async_process import AsyncProcess
from storage.git.subprocesses.limits import ProcessLimits, git_children

SendBlock = Callable[[bytes], Awaitable[None]]
"""Takes what the client is sent; returns when more can be taken."""

HOOKS_FOLDER = Path(__file__).parent / "hooks"
BLOCK_BYTES = 64 * 1024
TERMINATION_SECONDS = 3.0
"""What a process gets to take its locks and temporary files away before it is killed."""
MAX_STDERR_BYTES = 4000
INDEXING_SECONDS = 60.0
"""What git may take for a push that has come whole, beside a second for each INDEXING_BYTES of it."""
INDEXING_BYTES = 1_000_000
MAX_DELTA_BYTES = 16 * 1024 * 1024
"""Bytes of the largest object that is kept as a delta, or as what one is made from; repository.py reads none that is larger."""
PUSH_NICENESS = 5
"""Below the service itself and its fetches."""
_STDERR_SECONDS = 0.2

_PROTOCOL = re.compile(r"[A-Za-z0-9=.:_-]{1,100}")

# The operator's folder is trusted whoever owns it, as for reading (repository.py).
_SAFE_DIRECTORY = ("safe.directory=*",)
_UPLOAD_PACK_SETTINGS = (
    "uploadpack.allowFilter=true",
    "uploadpack.allowAnySHA1InWant=false",
    "uploadpack.allowReachableSHA1InWant=false",
    "uploadpack.allowTipSHA1InWant=false",
    "uploadpack.advertiseBundleURIs=false",
)
_RECEIVE_PACK_SETTINGS = (
    f"core.hooksPath={HOOKS_FOLDER}",
    "receive.fsckObjects=true",
    # Old histories have these, and no tool minds.
    "receive.fsck.badTimezone=ignore",
    "receive.fsck.missingSpaceBeforeDate=ignore",
    "receive.fsck.zeroPaddedFilemode=ignore",
    # The judge says who may; git's own guesses would stand in the way of it.
    "receive.denyDeletes=false",
    "receive.denyDeleteCurrent=ignore",
    "receive.denyNonFastForwards=false",
    # A pack is synced once, loose objects one by one.
    "receive.unpackLimit=1",
    "receive.autogc=false",
    "receive.advertiseAtomic=true",
    "receive.advertisePushOptions=false",
    "receive.shallowUpdate=false",
)


class TransportBusy(Exception):
    """Every process is taken, and the queue is full or did not move in time; the same call may go through later."""


class TransportTimeout(Exception):
    """The conversation took longer than it may."""


class GitService(StrEnum):
    UPLOAD = "git-upload-pack"
    RECEIVE = "git-receive-pack"


class FairLimiter:
    """At most `limit` at once; others wait in a fair queue."""

    def __init__(self, limit: int, *, max_waiting: int, seconds: float) -> None:
        self._semaphore = asyncio.Semaphore(limit)
        self._max_waiting = max_waiting
        self._seconds = seconds
        self.waiting = 0
        self.running = 0

    @contextlib.asynccontextmanager
    async def slot(self) -> AsyncIterator[None]:
        """Raises TransportBusy."""
        if self.waiting >= self._max_waiting:
            raise TransportBusy
        self.waiting += 1
        try:
            async with asyncio.timeout(self._seconds):
                await self._semaphore.acquire()
        except TimeoutError as error:
            raise TransportBusy from error
        finally:
            self.waiting -= 1
        self.running += 1
        try:
            yield
        finally:
            self.running -= 1
            self._semaphore.release()


class Transport:
    """The git processes of this server process: `processes` for fetches at once, and as many for pushes.

    Callers beyond that wait, up to `queue_seconds`. `seconds` is the longest conversation, `max_push_bytes` the bytes of a pack,
    `max_object_bytes` those of an object in it when it is unpacked. Of the pushes that have come whole, `max_indexing` are read at once.
    Raises PermissionError when the hooks were installed so that they cannot run, since git leaves such hooks out and goes on.
    """

    def __init__(
        self,
        *,
        max_processes: int = 8,
        max_waiting: int = 500,
        queue_seconds: float = 60.0,
        seconds: float = 3600.0,
        max_push_bytes: int = 4 * 1024**3,
        max_object_bytes: int = 2 * 1024**3,
        max_indexing: int = 2,
        fetch_limits: ProcessLimits | None = None,
        push_limits: ProcessLimits | None = None,
    ) -> None:
        for name in ("pre-receive", "update", "post-receive"):
            if not os.access(HOOKS_FOLDER / name, os.R_OK | os.X_OK):
                raise PermissionError(f"{HOOKS_FOLDER / name} must be there and executable")
        self.fetching = FairLimiter(max_processes, max_waiting=max_waiting, seconds=queue_seconds)
        self.pushing = FairLimiter(max_processes, max_waiting=max_waiting, seconds=queue_seconds)
        self.indexing = FairLimiter(max_indexing, max_waiting=max_waiting, seconds=queue_seconds)
        self._seconds = seconds
        self._max_push_bytes = max_push_bytes
        self._max_object_bytes = max_object_bytes
        self._fetch_limits = fetch_limits or ProcessLimits()
        # A thin pack is completed with objects that are here already, as large as they are.
        self._push_limits = push_limits or ProcessLimits(memory_bytes=1024**3, file_bytes=2 * max_push_bytes)
        self._limits = (f"receive.maxInputSize={max_push_bytes}",)

    async def advertise(self, service: GitService, path: Path, outgoing: SendBlock, *, protocol: str = "") -> None:
        """Sends the refs of the repository, or for protocol 2 what the server is able to. Raises TransportBusy, TransportTimeout,
        GitCommandError."""
        async with (self.pushing if service is GitService.RECEIVE else self.fetching).slot():
            await self._run_service(service, path, ("--stateless-rpc", "--http-backend-info-refs"), _empty_stream(), outgoing, protocol)

    async def upload_pack(
        self, path: Path, incoming: ClientStream, outgoing: SendBlock, *, protocol: str = "", stateless: bool = True
    ) -> None:
        """One answer of a fetch over HTTP (`stateless`), or a whole fetch over a stream.

        Raises as `advertise`, and what `incoming` and `outgoing` raise.
        """
        async with self.fetching.slot():
            await self._run_service(GitService.UPLOAD, path, _rpc_arguments(stateless), incoming, outgoing, protocol)

    async def receive_pack(
        self, path: Path, incoming: ClientStream, outgoing: SendBlock, authorize: PushAuthorizer, *, stateless: bool = True
    ) -> list[RefCommand]:
        """Takes a push; gives the refs that moved. Raises InvalidPush, what `authorize` raises, and as `upload_pack`.

        When `incoming` fails, nothing has moved. When `outgoing` fails, the client hears no more of a push that is finished all the same.
        """
        push = Push(incoming, authorize, holds_last_block=stateless)
        gate = PushGate(push.authorized_blocks(), self.indexing.slot, is_stream=not stateless)
        is_disconnected = False

        async def send(block: bytes) -> None:
            nonlocal is_disconnected
            if not is_disconnected:
                try:
                    await outgoing(block)
                except Exception:
                    is_disconnected = True

        try:
            if stateless:
                await push.read_commands()
            async with self.pushing.slot():
                await self._run_service(
                    GitService.RECEIVE, path, _rpc_arguments(stateless), gate.blocks(), send, "", push=push.folder, gate=gate
                )
        except BaseException:
            # What moved before a failure, or before the end of this process, has moved.
            if not (moved := push.moved_refs()):
                raise
            return moved
        else:
            return push.moved_refs()
        finally:
            await gate.close()
            push.remove_folder()

    async def _run_service(
        self,
        service: GitService,
        path: Path,
        mode: tuple[str, ...],
        incoming: ClientStream,
        outgoing: SendBlock,
        protocol: str,
        *,
        push: Path | None = None,
        gate: PushGate | None = None,
    ) -> None:
        environment = git_command.environment()
        if _PROTOCOL.fullmatch(protocol):
            environment["GIT_PROTOCOL"] = protocol
        if push is not None:
            environment["FORGEFRONT_PUSH"] = str(push)
            environment["FORGEFRONT_LARGEST_OBJECT"] = str(self._max_object_bytes)
            environment["FORGEFRONT_LARGEST_DELTA"] = str(MAX_DELTA_BYTES)
        is_push = service is GitService.RECEIVE
        process = await async_process.start(
            self._arguments(service, path, mode),
            environment,
            buffer_bytes=BLOCK_BYTES,
            process_limits=self._push_limits if is_push else self._fetch_limits,
            niceness=PUSH_NICENESS if is_push else 0,
        )
        feed = _InputFeed(process, incoming, is_push=is_push)
        feed_task = asyncio.create_task(feed.run())
        stderr = _StderrTail(process.stderr)
        stderr_task = asyncio.create_task(stderr.read())
        indexing = _IndexingWatchdog(process, gate) if gate is not None else None
        watchdog_task = asyncio.create_task(indexing.watch()) if indexing is not None else None
        report: PushReport | None = None
        if indexing is not None:
            report = PushReport(outgoing, partial(self._explain, stderr, indexing))
            outgoing = report.write
        has_sent = False
        limit = asyncio.timeout(self._seconds)
        try:
            async with limit:
                while block := await process.stdout.read(BLOCK_BYTES):
                    # What git says of a request that broke off is for nobody.
                    if feed.error is None:
                        has_sent = True
                        await outgoing(block)
                if report is not None:
                    await report.flush()
                code = await process.wait()
            if feed.error is not None:
                raise feed.error
            if code and not has_sent:
                await stderr_task
                raise git_command.failure_of(stderr.tail, code)
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise TransportTimeout(f"{service} took more than {self._seconds:.0f} s") from error
        finally:
            feed_task.cancel()
            await asyncio.shield(_terminate(process, is_push=is_push))
            others = [task for task in (feed_task, stderr_task, watchdog_task) if task is not None]
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)
            process.close()

    async def _explain(self, stderr: "_StderrTail", indexing: "_IndexingWatchdog", messages: bytes) -> str | None:
        """What the one who pushes is told of a limit that the push has met."""
        if indexing.is_too_slow:
            reason: str | None = f"reading it takes more than the {indexing.seconds:.0f} seconds that a push of its size may take"
        elif b"pack exceeds maximum allowed size" in messages:
            reason = f"it has more than the {self._max_push_bytes // limits.MEGABYTE} MB that one push may have"
        else:
            reason = limits.explain_failure(messages, self._push_limits)
            if reason is None:
                # receive-pack names a signal on its own error stream, which is read beside its answer.
                await stderr.wait_for_output(_STDERR_SECONDS)
                reason = limits.explain_failure(stderr.tail, self._push_limits)
        if reason is None:
            return None
        return (
            f"This push is rejected: {reason}. Push fewer commits at once and no very large files,"
            " or ask the administrator of this service to raise the limit."
        )

    def _arguments(self, service: GitService, path: Path, mode: tuple[str, ...]) -> list[str]:
        settings = (*_SAFE_DIRECTORY, *(_RECEIVE_PACK_SETTINGS if service is GitService.RECEIVE else _UPLOAD_PACK_SETTINGS), *self._limits)
        configured = git_command.command(path, *(part for setting in settings for part in ("-c", setting)))
        return [*configured, service.removeprefix("git-"), *mode, str(path.absolute())]


class _InputFeed:
    """Hands on what comes in, and then the end of it. Where it breaks off, `error` says why and the process is ended.

    `is_push`: at first by an end of its input that comes too early, after which receive-pack throws away what it had taken. (Ended by
    a signal it leaves the quarantine behind.) Before a push has come whole git moves nothing.
    """

    def __init__(self, process: AsyncProcess, incoming: ClientStream, *, is_push: bool) -> None:
        self._process = process
        self._stdin = process.stdin
        self._incoming = incoming
        self._is_push = is_push
        self.error: Exception | None = None

    async def run(self) -> None:
        try:
            async for block in self._incoming:
                # A process that has said all it had to say reads no more; what still comes is taken and dropped.
                if self._stdin.is_closing():
                    continue
                with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                    self._stdin.write(block)
                    await self._stdin.drain()
        except Exception as error:
            self.error = error
            self._stdin.close()
            if self._is_push:
                await asyncio.sleep(TERMINATION_SECONDS)
            _signal_group(self._process, signal.SIGTERM)
        else:
            self._stdin.close()


class _StderrTail:
    """The end of what a process says on its error stream."""

    def __init__(self, stream: asyncio.StreamReader) -> None:
        self._stream = stream
        self._has_output = asyncio.Event()
        self.tail = b""

    async def read(self) -> None:
        while block := await self._stream.read(BLOCK_BYTES):
            self.tail = (self.tail + block)[-MAX_STDERR_BYTES:]
            self._has_output.set()

    async def wait_for_output(self, seconds: float) -> None:
        """Waits until there is something, or for so many seconds."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._has_output.wait()


class _IndexingWatchdog:
    """Watches how long git takes for a push that has come whole. One that takes too long is ended, so that the client is told."""

    def __init__(self, process: AsyncProcess, gate: PushGate) -> None:
        self._process = process
        self._gate = gate
        self.is_too_slow = False

    @property
    def seconds(self) -> float:
        return INDEXING_SECONDS + self._gate.received_bytes / INDEXING_BYTES

    async def watch(self) -> None:
        await self._gate.is_complete.wait()
        await asyncio.sleep(self.seconds)
        self.is_too_slow = True
        while self._process.returncode is None:
            # Only the children: receive-pack then reports that the objects were not taken, and removes them. A hook that writes down
            # which refs have moved is no git process.
            children = await asyncio.to_thread(git_children, self._process.pid)
            if children is None:
                _signal_group(self._process, signal.SIGTERM)
            for child in children or ():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(child, signal.SIGKILL)
            await asyncio.sleep(TERMINATION_SECONDS / 10)


async def _terminate(process: AsyncProcess, *, is_push: bool) -> None:
    """Sees to it that the process and its children are gone: asked first, so that git tidies up behind itself, then killed."""
    process.stdin.close()
    for number in (None, signal.SIGTERM, signal.SIGKILL) if is_push else (signal.SIGTERM, signal.SIGKILL):
        if process.returncode is not None:
            return
        if number is not None:
            _signal_group(process, number)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(TERMINATION_SECONDS):
                await _drain(process)


async def _drain(process: AsyncProcess) -> None:
    # `wait` alone never ends while the pipe is full and paused.
    while await process.stdout.read(BLOCK_BYTES):
        pass
    await process.wait()


def _signal_group(process: AsyncProcess, number: signal.Signals) -> None:
    """To the whole group, for git's children do the work. A process that was waited for has no group any more."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)


def _rpc_arguments(stateless: bool) -> tuple[str, ...]:
    return ("--stateless-rpc",) if stateless else ()


async def _empty_stream() -> ClientStream:
    return
    yield b""
