"""Fetching and pushing: git's own upload-pack and receive-pack, streamed both ways with bounds on memory, processes and time.

Nothing is kept but a few blocks on their way. A process lives no longer than its client, with one exception: once a push has come
whole it is finished, since from outside nobody can tell how far it is.

Who may move which ref is told by a `Judge`. The list of updates stands before the objects, so it is judged before any of them is
taken; receive-pack then runs the hooks of `receiving/`, ours and no others, which let pass what was judged and nothing else.
"""

import asyncio
import contextlib
import os
import re
import shutil
import signal
import tempfile
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from time import monotonic

from storage.git import program
from storage.git.repository import is_ref_name

Incoming = AsyncIterator[bytes]
"""What the client sends. An error that it raises is that the client is gone."""
Outgoing = Callable[[bytes], Awaitable[None]]
"""Takes what the client is sent; returns when more can be taken."""

HOOKS = Path(__file__).parent / "receiving"
BLOCK = 64 * 1024
LONGEST_LIST = 16 * 1024 * 1024
"""Bytes of the list of updates of one push: about 150,000 refs."""
RECHECK_SECONDS = 10.0
"""A push that took longer to come is judged once more before its last block is handed to git."""
ENDING_SECONDS = 3.0
"""What a process gets to take its locks and temporary files away before it is killed."""
LAST_WORDS = 4000

_NONE = "0" * 40
_SIZE = re.compile(rb"[0-9a-fA-F]{4}")
_COMMAND = re.compile(rb"([0-9a-f]{40}) ([0-9a-f]{40}) ([^\x00-\x20\x7f]+)\n?")
_PROTOCOL = re.compile(r"[A-Za-z0-9=.:_-]{1,100}")
_UNSEEN = re.compile(r"[\x00-\x1f\x7f]+")

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


class BadPush(Exception):
    """What the client sent is no list of updates; the text says why."""


class TooSlow(Exception):
    """The conversation took longer than it may."""


class Service(StrEnum):
    UPLOAD = "git-upload-pack"
    RECEIVE = "git-receive-pack"


@dataclass(frozen=True, slots=True)
class Update:
    """A ref that is to move, or has moved, from the object `old` to `new`: None where it was not there, or is not any more.

    `ref` is its whole name, in which bytes that are no UTF-8 are lone surrogates (PEP 383).
    """

    ref: str
    old: str | None
    new: str | None


class Rule(StrEnum):
    ALLOW = "allow"
    FORWARD = "forward"
    """Only when the new commit holds the old one."""
    REFUSE = "refuse"


@dataclass(frozen=True, slots=True)
class Verdict:
    """`reason` is shown to whoever pushes when the update is refused: a line."""

    rule: Rule
    reason: str = ""


Judge = Callable[[list[Update]], Awaitable[list[Verdict]]]
"""A verdict for each of the updates, in their order. What it raises refuses the push."""


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
        push = _Push(incoming, judge, hold=stateless)
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
        process = await asyncio.create_subprocess_exec(
            *self._arguments(service, path, mode),
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
            env=environment,
            cwd="/",
            start_new_session=True,
            limit=BLOCK,
        )
        assert process.stdout is not None and process.stderr is not None  # noqa: S101 - asked for above
        feeding = asyncio.create_task(_feed(process, incoming))
        listening = asyncio.create_task(_last_words(process.stderr))
        sent = False
        limit = asyncio.timeout(self._seconds)
        try:
            async with limit:
                while block := await process.stdout.read(BLOCK):
                    sent = True
                    await outgoing(block)
                code = await process.wait()
            if feeding.done():
                # Raises what made the client's side fail.
                feeding.result()
            if code and not sent:
                raise program.failure(await listening)
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise TooSlow(f"{service} took more than {self._seconds:.0f} s") from error
        finally:
            feeding.cancel()
            await asyncio.shield(_end(process))
            listening.cancel()
            await asyncio.gather(feeding, listening, return_exceptions=True)

    def _arguments(self, service: Service, path: Path, mode: tuple[str, ...]) -> list[str]:
        settings = (*_SAFE, *(_PUSHING if service is Service.RECEIVE else _FETCHING), *self._limits)
        configured = program.command(path, *(part for setting in settings for part in ("-c", setting)))
        return [*configured, service.removeprefix("git-"), *mode, str(path.absolute())]


class _Push:
    """One push on its way to receive-pack: its list of updates, what was judged of it, and which refs moved."""

    def __init__(self, incoming: Incoming, judge: Judge, *, hold: bool) -> None:
        self._incoming = incoming
        self._judge = judge
        self._hold = hold
        self._read = False
        self._updates: list[Update] = []
        self._list = b""
        self._rest = b""
        self.folder = Path(tempfile.mkdtemp(prefix="forgefront-push-"))

    async def read_list(self) -> None:
        """Reads up to the end of the list, which is a flush packet (gitprotocol-pack, Reference Update Request). Raises BadPush."""
        self._read = True
        taken = bytearray()
        at = 0
        async for block in self._incoming:
            taken += block
            while len(taken) >= at + 4:
                size = int(taken[at : at + 4], 16) if _SIZE.fullmatch(taken, at, at + 4) else 1
                if size == 0:
                    self._list, self._rest = bytes(taken[: at + 4]), bytes(taken[at + 4 :])
                    return
                if size < 4:
                    raise BadPush("this is not what git sends")
                if len(taken) < at + size:
                    break
                self._read_line(bytes(taken[at + 4 : at + size]))
                at += size
            if at > LONGEST_LIST:
                raise BadPush("too many refs at once")
        if taken:
            raise BadPush("the list of refs has no end")

    def _read_line(self, line: bytes) -> None:
        if line.startswith(b"shallow "):
            return
        # The first line tells, after a NUL, what the client is able to.
        found = _COMMAND.fullmatch(line.partition(b"\0")[0])
        if found is None:
            raise BadPush("only SHA-1 ids and unsigned pushes are understood here")
        old, new, ref = (part.decode("utf-8", "surrogateescape") for part in found.groups())
        self._updates.append(Update(ref, None if old == _NONE else old, None if new == _NONE else new))

    async def guarded(self) -> Incoming:
        """What receive-pack is given. With `hold` the last block waits for a second judgement when the push took its time to come.

        Over a stream that cannot be: a client that waits for the report does not end it.
        """
        if not self._read:
            await self.read_list()
        await self._judge_all()
        judged_at = monotonic()
        yield self._list
        held = self._rest
        async for block in self._incoming:
            if held:
                yield held
            held = block
            if not self._hold:
                yield held
                held = b""
        if held:
            if monotonic() - judged_at > RECHECK_SECONDS:
                await self._judge_all()
            yield held

    async def _judge_all(self) -> None:
        """Asks the judge, and writes down for the hooks what it says."""
        verdicts = await self._judge(self._updates) if self._updates else []
        self._write(list(zip(self._updates, verdicts, strict=True)))

    def moved(self) -> list[Update]:
        try:
            lines = (self.folder / "moved").read_bytes().splitlines()
        except FileNotFoundError:
            return []
        found = []
        for line in lines:
            old, new, ref = line.decode("utf-8", "surrogateescape").split(" ", 2)
            found.append(Update(ref, None if old == _NONE else old, None if new == _NONE else new))
        return found

    def forget(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def _write(self, judged: list[tuple[Update, Verdict]]) -> None:
        asked, rules = [], []
        for update, verdict in judged:
            old, new = update.old or _NONE, update.new or _NONE
            asked.append(f"{old} {new} {update.ref}\n")
            rule, reason = verdict.rule, verdict.reason
            if not is_ref_name(update.ref):
                rule, reason = Rule.REFUSE, "This is not a name that a ref can have."
            if rule is Rule.FORWARD and (update.old is None or update.new is None):
                rule = Rule.ALLOW
            if rule is not Rule.ALLOW:
                rules.append("\t".join((rule, old, new, update.ref, _UNSEEN.sub(" ", reason) or "This may not be pushed.")) + "\n")
        for name, lines in (("rules", rules), ("asked", asked)):
            # Renamed into place, so that a hook reads the list of one judgement.
            fresh = self.folder / f"{name}.new"
            fresh.write_bytes("".join(lines).encode("utf-8", "surrogateescape"))
            fresh.rename(self.folder / name)


async def _feed(process: Process, incoming: Incoming) -> None:
    """Hands on what comes in, and then the end of it. A client that goes away ends the process, before it saw an end."""
    assert process.stdin is not None  # noqa: S101 - asked for by Transport
    try:
        async for block in incoming:
            # A process that has said all it had to say reads no more; what still comes is taken and dropped.
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                process.stdin.write(block)
                await process.stdin.drain()
    except BaseException:
        _signal(process, signal.SIGTERM)
        raise
    process.stdin.close()


async def _last_words(stream: asyncio.StreamReader) -> bytes:
    said = b""
    while block := await stream.read(BLOCK):
        said = (said + block)[-LAST_WORDS:]
    return said


async def _end(process: Process) -> None:
    """Sees to it that the process and its children are gone: asked first, so that git takes its locks away, then killed."""
    if process.returncode is None:
        _signal(process, signal.SIGTERM)
        try:
            async with asyncio.timeout(ENDING_SECONDS):
                await _drained(process)
        except TimeoutError:
            _signal(process, signal.SIGKILL)
            await _drained(process)
    if process.stdin is not None:
        process.stdin.close()


async def _drained(process: Process) -> None:
    # `wait` alone never ends while the pipe is full and paused.
    assert process.stdout is not None  # noqa: S101 - asked for by Transport
    while await process.stdout.read(BLOCK):
        pass
    await process.wait()


def _signal(process: Process, number: signal.Signals) -> None:
    """To the whole group, for git's children do the work. A process that was waited for has no group any more."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)


def _mode(stateless: bool) -> tuple[str, ...]:
    return ("--stateless-rpc",) if stateless else ()


async def _nothing() -> Incoming:
    return
    yield b""
