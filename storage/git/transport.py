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
from pathlib import Path

from storage.git import processes, program
from storage.git.processes import Running
from storage.git.pushes import Incoming, Judge, Push, Update

Outgoing = Callable[[bytes], Awaitable[None]]
"""Takes what the client is sent; returns when more can be taken."""

HOOKS = Path(__file__).parent / "receiving"
BLOCK = 64 * 1024
ENDING_SECONDS = 3.0
"""What a process gets to take its locks and temporary files away before it is killed."""
LAST_WORDS = 4000

_PROTOCOL = re.compile(r"[A-Za-z0-9=.:_-]{1,100}")

_SAFE = (
    # The operator's folder is trusted whoever owns it, as for reading (repository.py).
    "safe.directory=*",
    "core.bigFileThreshold=64m",
    "pack.windowMemory=128m",
)
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

    Callers beyond that wait, up to `queue_seconds`. `seconds` is the longest conversation, `largest_push` the bytes of a pack.
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
    ) -> None:
        for name in ("pre-receive", "update", "post-receive"):
            if not os.access(HOOKS / name, os.R_OK | os.X_OK):
                raise PermissionError(f"{HOOKS / name} must be there and executable")
        self.fetching = Turns(processes, longest_queue=longest_queue, seconds=queue_seconds)
        self.pushing = Turns(processes, longest_queue=longest_queue, seconds=queue_seconds)
        self._seconds = seconds
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
                await self._converse(Service.RECEIVE, path, _mode(stateless), push.guarded(), tell, "", push.folder)
        except BaseException:
            # What moved before a failure, or before the end of this process, has moved.
            if not (moved := push.moved()):
                raise
            return moved
        else:
            return push.moved()
        finally:
            push.forget()

    async def _converse(
        self,
        service: Service,
        path: Path,
        mode: tuple[str, ...],
        incoming: Incoming,
        outgoing: Outgoing,
        protocol: str,
        push: Path | None = None,
    ) -> None:
        environment = program.environment()
        if _PROTOCOL.fullmatch(protocol):
            environment["GIT_PROTOCOL"] = protocol
        if push is not None:
            environment["FORGEFRONT_PUSH"] = str(push)
        process = await processes.start(self._arguments(service, path, mode), environment, limit=BLOCK)
        gently = service is Service.RECEIVE
        feed = _Feed(process, incoming, gently=gently)
        feeding = asyncio.create_task(feed.run())
        listening = asyncio.create_task(_last_words(process.stderr))
        sent = False
        limit = asyncio.timeout(self._seconds)
        try:
            async with limit:
                while block := await process.stdout.read(BLOCK):
                    # What git says of a request that broke off is for nobody.
                    if feed.error is None:
                        sent = True
                        await outgoing(block)
                code = await process.wait()
            if feed.error is not None:
                raise feed.error
            if code and not sent:
                raise program.failure(await listening)
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise TooSlow(f"{service} took more than {self._seconds:.0f} s") from error
        finally:
            feeding.cancel()
            await asyncio.shield(_end(process, gently=gently))
            listening.cancel()
            await asyncio.gather(feeding, listening, return_exceptions=True)
            process.close()

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


async def _last_words(stream: asyncio.StreamReader) -> bytes:
    said = b""
    while block := await stream.read(BLOCK):
        said = (said + block)[-LAST_WORDS:]
    return said


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
