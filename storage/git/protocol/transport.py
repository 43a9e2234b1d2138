"""Fetches and pushes: git's upload-pack and receive-pack, streamed both ways with limits on memory, processes and time.

Only a few blocks are buffered. A process ends when its client disconnects, with one exception: a push that has been received completely
is finished, because its progress cannot be observed from outside.

A `PushAuthorizer` (push.py) decides which refs may move, and a `RefMover` (proc_receive.py) moves them; git writes only objects.
"""

import asyncio
import contextlib
import os
import re
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from enum import StrEnum
from functools import partial
from pathlib import Path

from storage.git.protocol import small_push
from storage.git.protocol.advertisement import PushAdvertiser, SendBlock
from storage.git.protocol.proc_receive import ProcReceive, RefMover
from storage.git.protocol.process_slots import FairLimiter, SlowClientWatchdog
from storage.git.protocol.process_supervision import (
    BLOCK_BYTES,
    PUSH_NICENESS,
    SHORT_PUSH_SECONDS,
    IndexingWatchdog,
    InputFeed,
    StderrTail,
    terminate,
)
from storage.git.protocol.push import ClientStream, Push, PushAuthorizer, RefCommand
from storage.git.protocol.push_gate import PushGate
from storage.git.protocol.push_report import PushReport, explain_rejection
from storage.git.subprocesses import async_process, git_command, limits
from storage.git.subprocesses.limits import ProcessLimits

RefReserver = Callable[[list[RefCommand]], AbstractAsyncContextManager[None]]
"""Keeps others from moving these refs for the time of the context, as far as it is known to succeed."""

HOOKS_FOLDER = Path(__file__).parent / "hooks"
MAX_DELTA_BYTES = 16 * 1024 * 1024
"""Maximum size of an object that may be stored as a delta or as the base of one; repository.py reads no larger objects."""
INVALID_FETCH_PATTERN = re.compile(
    "fatal: (protocol error|the remote end hung up|unknown capability|invalid command|command '.*' requested after|no command requested"
    "|expected flush after|unexpected line|unexpected option|unknown object format|mismatched object format"
    "|(git )?upload-pack: (protocol error|expected SHA1 list)|invalid shallow line|invalid deepen)",
    re.IGNORECASE,
)
"""What upload-pack writes about a request that is incomplete or invalid. Its client is the only other end that can hang up."""
_STDERR_SECONDS = 1.0

_PROTOCOL = re.compile(r"[A-Za-z0-9=.:_-]{1,100}")

# The operator's folder is trusted regardless of its owner, as in repository.py.
_SAFE_DIRECTORY = ("safe.directory=*",)
_UPLOAD_PACK_SETTINGS = (
    "uploadpack.allowFilter=true",
    "uploadpack.allowAnySHA1InWant=false",
    "uploadpack.allowReachableSHA1InWant=false",
    "uploadpack.allowTipSHA1InWant=false",
    "uploadpack.advertiseBundleURIs=false",
)
_RECEIVE_PACK_SETTINGS = (
    "receive.fsckObjects=true",
    *(f"receive.fsck.{level}" for level in git_command.FSCK_LEVELS),
    # The RefMover moves all refs, and git's own rules are disabled.
    "receive.procReceiveRefs=refs/",
    "receive.denyDeletes=false",
    "receive.denyDeleteCurrent=ignore",
    "receive.denyNonFastForwards=false",
    # A pack is synced to disk once, loose objects one by one.
    "receive.unpackLimit=1",
    "receive.autogc=false",
    "receive.advertiseAtomic=true",
    "receive.advertisePushOptions=false",
    "receive.shallowUpdate=false",
    # While objects are in quarantine, the repository is their alternate: the check of a push would list all of its refs twice.
    "core.alternateRefsCommand=true",
)


class TransportTimeout(Exception):
    """The fetch or push took longer than the limit."""


class InvalidFetch(Exception):
    """The client's request is incomplete, or is not in git's protocol."""


class GitService(StrEnum):
    UPLOAD = "git-upload-pack"
    RECEIVE = "git-receive-pack"


class Transport:
    """Runs the git processes of this server process: at most `max_processes` concurrent fetches, and as many pushes.

    Further callers wait up to `queue_seconds`. `seconds` is the maximum duration of a fetch or push, `max_push_bytes` the maximum size of
    a pack, `max_object_bytes` that of an unpacked object. At most `max_indexing` received pushes are indexed concurrently. Raises
    PermissionError if the hooks are not executable, because git would skip them silently.
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
        for name in ("pre-receive", "proc-receive"):
            if not os.access(HOOKS_FOLDER / name, os.R_OK | os.X_OK):
                raise PermissionError(f"{HOOKS_FOLDER / name} must exist and be executable")
        self.fetching = FairLimiter(max_processes, max_waiting=max_waiting, seconds=queue_seconds)
        self.pushing = FairLimiter(max_processes, max_waiting=max_waiting, seconds=queue_seconds)
        self.indexing = FairLimiter(max_indexing, max_waiting=max_waiting, seconds=queue_seconds)
        self._advertiser = PushAdvertiser()
        self._seconds = seconds
        self._max_push_bytes = max_push_bytes
        self._max_object_bytes = max_object_bytes
        self._fetch_limits = fetch_limits or ProcessLimits()
        # A thin pack is completed with existing objects, which may be as large as the pack itself.
        self._push_limits = push_limits or ProcessLimits(memory_bytes=1024**3, file_bytes=2 * max_push_bytes)
        self._limits = (f"receive.maxInputSize={max_push_bytes}",)

    async def advertise(
        self, service: GitService, path: Path, outgoing: SendBlock, *, protocol: str = "", requester: str | None = None
    ) -> None:
        """Sends the ref advertisement of the repository, or for protocol 2 the capabilities.

        `requester` is who holds the slot (`FairLimiter`). Raises TransportBusy, TransportTimeout, GitCommandError.
        """

        async def run_git(outgoing: SendBlock) -> None:
            async with (self.pushing if service is GitService.RECEIVE else self.fetching).slot(requester):
                await self._run_service(service, path, ("--stateless-rpc", "--http-backend-info-refs"), _empty_stream(), outgoing, protocol)

        if service is GitService.RECEIVE:
            await self._advertiser.advertise(path, outgoing, run_git)
        else:
            await run_git(outgoing)

    async def upload_pack(
        self,
        path: Path,
        incoming: ClientStream,
        outgoing: SendBlock,
        *,
        protocol: str = "",
        stateless: bool = True,
        requester: str | None = None,
    ) -> None:
        """Runs one request of a fetch over HTTP (`stateless`), or a whole fetch over a stream.

        Raises InvalidFetch, as `advertise`, and the errors of `incoming` and `outgoing`.
        """
        async with self.fetching.slot(requester):
            try:
                await self._run_service(GitService.UPLOAD, path, _rpc_arguments(stateless), incoming, outgoing, protocol)
            except git_command.GitCommandError as error:
                if INVALID_FETCH_PATTERN.match(str(error)):
                    raise InvalidFetch from error
                raise

    async def receive_pack(
        self,
        path: Path,
        incoming: ClientStream,
        outgoing: SendBlock,
        authorize: PushAuthorizer,
        move: RefMover,
        *,
        reserve: RefReserver | None = None,
        stateless: bool = True,
        requester: str | None = None,
    ) -> None:
        """Receives a push, whose refs `move` moves. Raises InvalidPush, the errors of `authorize`, and as `upload_pack`.

        Over a stream (`stateless` is false) the refs are advertised first, and the rest is that of a request over HTTP: git starts when the
        commands and a small pack have arrived. `reserve` is entered when a small push has arrived, until its end.

        If `incoming` fails, no ref has moved. If `outgoing` fails, the push is finished without further output to the client.
        """
        if not stateless:
            await self.advertise(GitService.RECEIVE, path, outgoing, requester=requester)
        push = Push(incoming, authorize, is_stream=not stateless)
        gate = PushGate(push.authorized_blocks(), self.indexing.slot, is_stream=not stateless)
        is_disconnected = False

        async def move_last(updates: list[RefCommand], atomic: bool) -> Sequence[str | None]:
            # The objects are in the repository: the next push can be indexed.
            await gate.close()
            return await move(updates, atomic)

        async def send(block: bytes) -> None:
            nonlocal is_disconnected
            if not is_disconnected:
                try:
                    await outgoing(block)
                except Exception:
                    is_disconnected = True

        try:
            await push.check_small_pack(min(MAX_DELTA_BYTES, self._max_object_bytes))
            is_small = push.is_small and len(push.pack) <= self._max_push_bytes and small_push.is_possible(path)
            reservation = reserve(push.allowed_commands) if reserve is not None and is_small else contextlib.nullcontext()
            async with self.pushing.slot(requester), reservation:
                if is_small:
                    await small_push.receive(path, push, send, move, slot=self.indexing.slot, limits=self._push_limits)
                    return
                await self._run_service(
                    GitService.RECEIVE,
                    path,
                    _rpc_arguments(stateless=True),
                    gate.blocks(),
                    send,
                    "",
                    push=push,
                    gate=gate,
                    move=move_last,
                )
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
        push: Push | None = None,
        gate: PushGate | None = None,
        move: RefMover | None = None,
    ) -> None:
        is_push = service is GitService.RECEIVE
        hook = ProcReceive(move) if move is not None else None
        process = await self._start_service(service, path, mode, protocol, push, hook)
        lowering = asyncio.get_running_loop().call_later(SHORT_PUSH_SECONDS, process.lower_priority, PUSH_NICENESS) if is_push else None
        hook_task = asyncio.create_task(hook.serve()) if hook is not None else None
        feed = InputFeed(process, incoming, is_push=is_push)
        feed_task = asyncio.create_task(feed.run())
        stderr = StderrTail(process.stderr)
        stderr_task = asyncio.create_task(stderr.read())
        indexing = IndexingWatchdog(process, gate) if gate is not None else None
        watchdog_task = asyncio.create_task(indexing.watch()) if indexing is not None else None
        report: PushReport | None = None
        if indexing is not None:
            report = PushReport(outgoing, partial(self._explain, stderr, indexing))
            outgoing = report.write
        has_sent = False
        limit = asyncio.timeout(self._seconds)
        limiter, request = (self.pushing, None) if is_push else (self.fetching, feed_task if "--stateless-rpc" in mode else None)
        client = SlowClientWatchdog(limiter, limit, request=request, gate=gate)
        client_task: asyncio.Task[None] | None = None
        try:
            async with limit:
                if gate is not None or not is_push:
                    client_task = asyncio.create_task(client.watch())
                while block := await process.stdout.read(BLOCK_BYTES):
                    # After a failed request nobody reads git's output.
                    if feed.error is None:
                        has_sent = True
                        client.write_began = asyncio.get_running_loop().time()
                        await outgoing(block)
                        client.write_began = None
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
            if client.is_too_slow:
                raise TransportTimeout(f"the client of {service} was too slow, while others waited") from error
            raise TransportTimeout(f"{service} took more than {self._seconds:.0f} s") from error
        finally:
            if lowering is not None:
                lowering.cancel()
            feed_task.cancel()
            others = [task for task in (feed_task, stderr_task, watchdog_task, hook_task, client_task) if task is not None]
            # The caller may be canceled again meanwhile.
            await asyncio.shield(_end(process, others, is_push=is_push))

    async def _start_service(
        self, service: GitService, path: Path, mode: tuple[str, ...], protocol: str, push: Push | None, hook: ProcReceive | None
    ) -> async_process.AsyncProcess:
        """Starts git. If that fails, the hook is closed. Raises OSError."""
        environment = git_command.environment()
        if _PROTOCOL.fullmatch(protocol):
            environment["GIT_PROTOCOL"] = protocol
        if push is not None:
            environment["FORGEFRONT_PUSH"] = str(push.folder)
            environment["FORGEFRONT_LARGEST_OBJECT"] = str(self._max_object_bytes)
            environment["FORGEFRONT_LARGEST_DELTA"] = str(MAX_DELTA_BYTES)
        try:
            return await async_process.start(
                self._arguments(service, path, mode),
                {**environment, **(hook.environment if hook is not None else {})},
                buffer_bytes=BLOCK_BYTES,
                process_limits=self._push_limits if service is GitService.RECEIVE else self._fetch_limits,
                descriptors=hook.descriptors if hook is not None else (),
            )
        except BaseException:
            if hook is not None:
                hook.close()
            raise
        finally:
            if hook is not None:
                hook.close_inherited()

    async def _explain(self, stderr: StderrTail, indexing: IndexingWatchdog, messages: bytes) -> str | None:
        """Returns the message for the client if the push exceeded a limit; None otherwise."""
        if indexing.is_too_slow:
            reason: str | None = indexing.reason
        elif b"pack exceeds maximum allowed size" in messages:
            reason = f"it has more than the {self._max_push_bytes // limits.MEGABYTE} MB that one push may have"
        else:
            reason = limits.explain_failure(messages, self._push_limits)
            if reason is None:
                # receive-pack names a signal on its stderr, which another task reads.
                await stderr.wait_for_output(_STDERR_SECONDS)
                reason = limits.explain_failure(stderr.tail, self._push_limits)
        return explain_rejection(reason) if reason is not None else None

    def _arguments(self, service: GitService, path: Path, mode: tuple[str, ...]) -> list[str]:
        own = (f"core.hooksPath={HOOKS_FOLDER}", *_RECEIVE_PACK_SETTINGS) if service is GitService.RECEIVE else _UPLOAD_PACK_SETTINGS
        settings = (*_SAFE_DIRECTORY, *own, *self._limits)
        configured = git_command.command(path, *(part for setting in settings for part in ("-c", setting)))
        return [*configured, service.removeprefix("git-"), *mode, str(path.absolute())]


async def _end(process: async_process.AsyncProcess, others: Sequence["asyncio.Task[None]"], *, is_push: bool) -> None:
    """Ends the process, and the tasks that accompany it."""
    await terminate(process, is_push=is_push)
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    process.close()


def _rpc_arguments(stateless: bool) -> tuple[str, ...]:
    return ("--stateless-rpc",) if stateless else ()


async def _empty_stream() -> ClientStream:
    return
    yield b""
