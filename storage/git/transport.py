"""Fetching and pushing: git's own upload-pack and receive-pack, streamed both ways with bounds on memory, processes and time.

Nothing is kept but a few blocks on their way. A process lives no longer than its client, with one exception: once a push has come
whole it is finished, since from outside nobody can tell how far it is.

Who may move which ref is told by a `Judge` (pushes.py); receive-pack runs the hooks of `receiving/` and no others, which see to it.
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

from storage.git import limits, processes, program
from storage.git.limits import ProcessLimits, git_children
from storage.git.processes import Running
from storage.git.push_gate import PushGate
from storage.git.push_report import PushReport
from storage.git.pushes import Incoming, Judge, Push, Update

Outgoing = Callable[[bytes], Awaitable[None]]
"""Takes what the client is sent; returns when more can be taken."""

HOOKS = Path(__file__).parent / "receiving"
BLOCK = 64 * 1024
ENDING_SECONDS = 3.0
"""What a process gets to take its locks and temporary files away before it is killed."""
LAST_WORDS = 4000
INDEXING_SECONDS = 60.0
"""What git may take for a push that has come whole, beside a second for each INDEXING_BYTES of it."""
INDEXING_BYTES = 1_000_000
LARGEST_DELTA = 16 * 1024 * 1024
"""Bytes of the largest object that is kept as a delta, or as what one is made from; repository.py reads none that is larger."""
PUSH_NICENESS = 5
"""Below the service itself and its fetches."""
_STDERR_SECONDS = 0.2

_PROTOCOL = re.compile(r"[A-Za-z0-9=.:_-]{1,100}")

# The operator's folder is trusted whoever owns it, as for reading (repository.py).
_SAFE = ("safe.directory=*",)
_FETCHING = (
    "uploadpack.allowFilter=true",
    "uploadpack.allowAnySHA1InWant=false",
    "uploadpack.allowReachableSHA1InWant=false",
    "uploadpack.allowTipSHA1InWant=false",
    "uploadpack.advertiseBundleURIs=false",
)
_PUSHING = (
    f"core.hooksPath={HOOKS}",
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


class TooBusy(Exception):
    """Every process is taken, and the queue is full or did not move in time; the same call may go through later."""


class TooSlow(Exception):
    """The conversation took longer than it may."""


class Service(StrEnum):
    UPLOAD = "git-upload-pack"
    RECEIVE = "git-receive-pack"


class Turns:
    """At most `limit` at once; others wait in a fair queue."""

    def __init__(self, limit: int, *, longest_queue: int, seconds: float) -> None:
        self._free = asyncio.Semaphore(limit)
        self._longest_queue = longest_queue
        self._seconds = seconds
        self.waiting = 0
        self.running = 0

    @contextlib.asynccontextmanager
    async def one(self) -> AsyncIterator[None]:
        """Raises TooBusy."""
        if self.waiting >= self._longest_queue:
            raise TooBusy
        self.waiting += 1
        try:
            async with asyncio.timeout(self._seconds):
                await self._free.acquire()
        except TimeoutError as error:
            raise TooBusy from error
        finally:
            self.waiting -= 1
        self.running += 1
        try:
            yield
        finally:
            self.running -= 1
            self._free.release()


class Transport:
    """The git processes of this server process: `processes` for fetches at once, and as many for pushes.

    Callers beyond that wait, up to `queue_seconds`. `seconds` is the longest conversation, `largest_push` the bytes of a pack,
    `largest_object` those of an object in it when it is unpacked. Of the pushes that have come whole, `indexing` are read at once.
    Raises PermissionError when the hooks were installed so that they cannot run, since git leaves such hooks out and goes on.
    """

    def __init__(
        self,
        *,
        processes: int = 8,
        longest_queue: int = 500,
        queue_seconds: float = 60.0,
        seconds: float = 3600.0,
        largest_push: int = 4 * 1024**3,
        largest_object: int = 2 * 1024**3,
        indexing: int = 2,
        fetch_limits: ProcessLimits | None = None,
        push_limits: ProcessLimits | None = None,
    ) -> None:
        for name in ("pre-receive", "update", "post-receive"):
            if not os.access(HOOKS / name, os.R_OK | os.X_OK):
                raise PermissionError(f"{HOOKS / name} must be there and executable")
        self.fetching = Turns(processes, longest_queue=longest_queue, seconds=queue_seconds)
        self.pushing = Turns(processes, longest_queue=longest_queue, seconds=queue_seconds)
        self.indexing = Turns(indexing, longest_queue=longest_queue, seconds=queue_seconds)
        self._seconds = seconds
        self._largest_push = largest_push
        self._largest_object = largest_object
        self._fetch_limits = fetch_limits or ProcessLimits()
        # A thin pack is completed with objects that are here already, as large as they are.
        self._push_limits = push_limits or ProcessLimits(memory=1024**3, file_bytes=2 * largest_push)
        self._limits = (f"receive.maxInputSize={largest_push}",)

    async def advertise(self, service: Service, path: Path, outgoing: Outgoing, *, protocol: str = "") -> None:
        """Sends the refs of the repository, or for protocol 2 what the server is able to. Raises TooBusy, TooSlow, GitFailed."""
        async with (self.pushing if service is Service.RECEIVE else self.fetching).one():
            await self._converse(service, path, ("--stateless-rpc", "--http-backend-info-refs"), _nothing(), outgoing, protocol)

    async def upload_pack(self, path: Path, incoming: Incoming, outgoing: Outgoing, *, protocol: str = "", stateless: bool = True) -> None:
        """One answer of a fetch over HTTP (`stateless`), or a whole fetch over a stream.

        Raises as `advertise`, and what `incoming` and `outgoing` raise.
        """
        async with self.fetching.one():
            await self._converse(Service.UPLOAD, path, _mode(stateless), incoming, outgoing, protocol)

    async def receive_pack(
        self, path: Path, incoming: Incoming, outgoing: Outgoing, judge: Judge, *, stateless: bool = True
    ) -> list[Update]:
        """Takes a push; gives the refs that moved. Raises BadPush, what `judge` raises, and as `upload_pack`.

        When `incoming` fails, nothing has moved. When `outgoing` fails, the client hears no more of a push that is finished all the same.
        """
        push = Push(incoming, judge, hold=stateless)
        gate = PushGate(push.guarded(), self.indexing.one, is_stream=not stateless)
        deaf = False

        async def tell(block: bytes) -> None:
            nonlocal deaf
            if not deaf:
                try:
                    await outgoing(block)
                except Exception:
                    deaf = True

        try:
            if stateless:
                await push.read_list()
            async with self.pushing.one():
                await self._converse(Service.RECEIVE, path, _mode(stateless), gate.blocks(), tell, "", push=push.folder, gate=gate)
        except BaseException:
            # What moved before a failure, or before the end of this process, has moved.
            if not (moved := push.moved()):
                raise
            return moved
        else:
            return push.moved()
        finally:
            await gate.close()
            push.forget()

    async def _converse(
        self,
        service: Service,
        path: Path,
        mode: tuple[str, ...],
        incoming: Incoming,
        outgoing: Outgoing,
        protocol: str,
        *,
        push: Path | None = None,
        gate: PushGate | None = None,
    ) -> None:
        environment = program.environment()
        if _PROTOCOL.fullmatch(protocol):
            environment["GIT_PROTOCOL"] = protocol
        if push is not None:
            environment["FORGEFRONT_PUSH"] = str(push)
            environment["FORGEFRONT_LARGEST_OBJECT"] = str(self._largest_object)
            environment["FORGEFRONT_LARGEST_DELTA"] = str(LARGEST_DELTA)
        gently = service is Service.RECEIVE
        process = await processes.start(
            self._arguments(service, path, mode),
            environment,
            limit=BLOCK,
            process_limits=self._push_limits if gently else self._fetch_limits,
            niceness=PUSH_NICENESS if gently else 0,
        )
        feed = _Feed(process, incoming, gently=gently)
        feeding = asyncio.create_task(feed.run())
        heard = _LastWords(process.stderr)
        listening = asyncio.create_task(heard.listen())
        indexing = _Indexing(process, gate) if gate is not None else None
        watching = asyncio.create_task(indexing.watch()) if indexing is not None else None
        report: PushReport | None = None
        if indexing is not None:
            report = PushReport(outgoing, partial(self._explain, heard, indexing))
            outgoing = report.write
        sent = False
        limit = asyncio.timeout(self._seconds)
        try:
            async with limit:
                while block := await process.stdout.read(BLOCK):
                    # What git says of a request that broke off is for nobody.
                    if feed.error is None:
                        sent = True
                        await outgoing(block)
                if report is not None:
                    await report.end()
                code = await process.wait()
            if feed.error is not None:
                raise feed.error
            if code and not sent:
                await listening
                raise program.failure(heard.text, code)
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise TooSlow(f"{service} took more than {self._seconds:.0f} s") from error
        finally:
            feeding.cancel()
            await asyncio.shield(_end(process, gently=gently))
            others = [task for task in (feeding, listening, watching) if task is not None]
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)
            process.close()

    async def _explain(self, heard: "_LastWords", indexing: "_Indexing", said: bytes) -> str | None:
        """What the one who pushes is told of a limit that the push has met."""
        if indexing.is_too_slow:
            reason: str | None = f"reading it takes more than the {indexing.seconds:.0f} seconds that a push of its size may take"
        elif b"pack exceeds maximum allowed size" in said:
            reason = f"it has more than the {self._largest_push // limits.MEGABYTE} MB that one push may have"
        else:
            reason = limits.explain_failure(said, self._push_limits)
            if reason is None:
                # receive-pack names a signal on its own error stream, which is read beside its answer.
                await heard.some(_STDERR_SECONDS)
                reason = limits.explain_failure(heard.text, self._push_limits)
        if reason is None:
            return None
        return (
            f"This push is rejected: {reason}. Push fewer commits at once and no very large files,"
            " or ask the administrator of this service to raise the limit."
        )

    def _arguments(self, service: Service, path: Path, mode: tuple[str, ...]) -> list[str]:
        settings = (*_SAFE, *(_PUSHING if service is Service.RECEIVE else _FETCHING), *self._limits)
        configured = program.command(path, *(part for setting in settings for part in ("-c", setting)))
        return [*configured, service.removeprefix("git-"), *mode, str(path.absolute())]


class _Feed:
    """Hands on what comes in, and then the end of it. Where it breaks off, `error` says why and the process is ended.

    `gently`: at first by an end of its input that comes too early, after which receive-pack throws away what it had taken. (Ended by
    a signal it leaves the quarantine behind.) Before a push has come whole git moves nothing.
    """

    def __init__(self, process: Running, incoming: Incoming, *, gently: bool) -> None:
        self._process = process
        self._stdin = process.stdin
        self._incoming = incoming
        self._gently = gently
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
            if self._gently:
                await asyncio.sleep(ENDING_SECONDS)
            _signal(self._process, signal.SIGTERM)
        else:
            self._stdin.close()


class _LastWords:
    """The end of what a process says on its error stream."""

    def __init__(self, stream: asyncio.StreamReader) -> None:
        self._stream = stream
        self._heard = asyncio.Event()
        self.text = b""

    async def listen(self) -> None:
        while block := await self._stream.read(BLOCK):
            self.text = (self.text + block)[-LAST_WORDS:]
            self._heard.set()

    async def some(self, seconds: float) -> None:
        """Waits until there is something, or for so many seconds."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._heard.wait()


class _Indexing:
    """Watches how long git takes for a push that has come whole. One that takes too long is ended, so that the client is told."""

    def __init__(self, process: Running, gate: PushGate) -> None:
        self._process = process
        self._gate = gate
        self.is_too_slow = False

    @property
    def seconds(self) -> float:
        return INDEXING_SECONDS + self._gate.received / INDEXING_BYTES

    async def watch(self) -> None:
        await self._gate.is_whole.wait()
        await asyncio.sleep(self.seconds)
        self.is_too_slow = True
        while self._process.returncode is None:
            # Only the children: receive-pack then reports that the objects were not taken, and removes them. A hook that writes down
            # which refs have moved is no git process.
            children = await asyncio.to_thread(git_children, self._process.pid)
            if children is None:
                _signal(self._process, signal.SIGTERM)
            for child in children or ():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(child, signal.SIGKILL)
            await asyncio.sleep(ENDING_SECONDS / 10)


async def _end(process: Running, *, gently: bool) -> None:
    """Sees to it that the process and its children are gone: asked first, so that git tidies up behind itself, then killed."""
    process.stdin.close()
    for number in (None, signal.SIGTERM, signal.SIGKILL) if gently else (signal.SIGTERM, signal.SIGKILL):
        if process.returncode is not None:
            return
        if number is not None:
            _signal(process, number)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(ENDING_SECONDS):
                await _drained(process)


async def _drained(process: Running) -> None:
    # `wait` alone never ends while the pipe is full and paused.
    while await process.stdout.read(BLOCK):
        pass
    await process.wait()


def _signal(process: Running, number: signal.Signals) -> None:
    """To the whole group, for git's children do the work. A process that was waited for has no group any more."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)


def _mode(stateless: bool) -> tuple[str, ...]:
    return ("--stateless-rpc",) if stateless else ()


async def _nothing() -> Incoming:
    return
    yield b""
