"""Clone, fetch and push over HTTP: git's smart protocol (gitprotocol-http) at /NAMESPACE/PROJECT.git.

The graph decides who may; the transport runs git; here is only HTTP. Answers that refuse are plain text, which git shows to its user.
"""

import asyncio
import base64
import binascii
import errno
import re
import zlib
from collections.abc import AsyncIterator
from urllib.parse import parse_qs

import structlog
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import Message, Receive, Scope, Send

from graph.caller import gone
from graph.errors import Code, Forbidden, OperationError
from graph.git_access import GitAccess, Granted
from storage.git.program import GitFailed
from storage.git.pushes import BadPush, Incoming, Update, Verdict
from storage.git.transport import BLOCK, Service, TooBusy, TooSlow, Transport

LARGEST_FETCH = 64 * 1024 * 1024
"""Bytes of what a client asks for and has, unpacked."""
RETRY_SECONDS = 5

_ADDRESS = re.compile(r"/([^/]+/[^/]+?)(\.git)?/(info/refs|git-upload-pack|git-receive-pack|HEAD|objects/.+)")
_UNCACHED = {"Cache-Control": "no-cache, max-age=0, must-revalidate", "Pragma": "no-cache", "Expires": "Fri, 01 Jan 1980 00:00:00 GMT"}
_STATUS = {
    Code.UNAUTHENTICATED: 401,
    Code.FORBIDDEN: 403,
    Code.NOT_FOUND: 404,
    Code.LIMIT_EXCEEDED: 429,
    Code.UNAVAILABLE: 503,
}
_SIGN_IN = "Use your private token as the password, with any user name."
_DUMB = "This server speaks the smart protocol only: use git 1.6.6 or newer."

log = structlog.get_logger("git")


class Refused(Exception):
    """An answer instead of git's. The text is for people."""

    def __init__(self, status: int, text: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(text)
        self.status = status
        self.text = text
        self.headers = headers or {}


class GitHttp:
    """The door. It takes what `serves` says."""

    def __init__(self, access: GitAccess, transport: Transport) -> None:
        self._access = access
        self._transport = transport
        self._pushes: set[asyncio.Task[None]] = set()

    @staticmethod
    def serves(scope: Scope) -> bool:
        """Whether the path is one of git's."""
        return scope["type"] == "http" and _ADDRESS.fullmatch(scope["path"]) is not None

    async def close(self) -> None:
        """Lets pushes that have come whole be finished and recorded."""
        if self._pushes:
            await asyncio.wait(self._pushes)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        found = _ADDRESS.fullmatch(scope["path"])
        assert found is not None, "asked only for what it serves"  # noqa: S101
        project, suffix, rest = found.groups()
        scope["state"]["route"] = "/:namespace/:project.git/" + ("objects" if rest.startswith("objects/") else rest)
        answer = _Answer(send)
        try:
            if rest == "HEAD" or rest.startswith("objects/"):
                raise Refused(403, _DUMB)
            if rest == "info/refs":
                await self._refs(scope, project, bool(suffix), answer)
            else:
                await self._serve(scope, project, Service(rest), receive, answer)
        except Exception as error:
            if answer.started:
                # The connection is closed under an incomplete answer, which is all that the client can still be told.
                raise
            if isinstance(error, _Elsewhere):
                response: Response = RedirectResponse(str(error), 301)
            elif (refused := refusal(error)) is not None:
                response = _text(refused)
            else:
                raise
            await response(scope, receive, send)

    async def _refs(self, scope: Scope, project: str, suffix: bool, answer: "_Answer") -> None:
        _only(scope, "GET")
        wanted = parse_qs(scope["query_string"].decode("latin-1")).get("service", [""])[0]
        if wanted not in set(Service):
            raise Refused(403, _DUMB)
        service = Service(wanted)
        if not suffix:
            # To every project's name, there or not.
            raise _Elsewhere(f"{scope.get('root_path', '')}{scope['path'].removesuffix('/info/refs')}.git/info/refs?service={service}")
        granted = await self._grant(scope, project, service)
        protocol = _protocol(scope) if service is Service.UPLOAD else ""
        answer.headers = {"Content-Type": f"application/x-{service}-advertisement", **_UNCACHED}
        if "version=2" not in protocol.split(":"):
            first = f"# service={service}\n"
            answer.prefix = f"{len(first) + 4:04x}{first}0000".encode()
        await self._transport.advertise(service, granted.path, answer.write, protocol=protocol)
        await answer.end()

    async def _serve(self, scope: Scope, project: str, service: Service, receive: Receive, answer: "_Answer") -> None:
        _only(scope, "POST")
        headers = Headers(scope=scope)
        if headers.get("content-type", "").partition(";")[0].strip() != f"application/x-{service}-request":
            raise Refused(415, f"The body must be application/x-{service}-request.")
        granted = await self._grant(scope, project, service)
        body = _Body(receive)
        incoming = _unpacked(body, headers.get("content-encoding", "identity"))
        answer.headers = {"Content-Type": f"application/x-{service}-result", **_UNCACHED}
        if service is Service.UPLOAD:
            fetch = self._transport.upload_pack(granted.path, bounded(incoming), answer.write, protocol=_protocol(scope))
            await _while_there(asyncio.create_task(fetch), body)
            await answer.end()
            return
        # Not ended with the request: what has come whole is finished and recorded even when the client is gone.
        push = asyncio.create_task(self._push(granted, incoming, answer, scope["state"]["request_id"]))
        self._pushes.add(push)
        push.add_done_callback(self._pushes.discard)
        await asyncio.shield(push)

    async def _push(self, granted: Granted, incoming: Incoming, answer: "_Answer", request_id: str) -> None:
        async def judge(updates: list[Update]) -> list[Verdict]:
            return await self._access.judge(granted, updates, request_id)

        moved = await self._transport.receive_pack(granted.path, incoming, answer.write, judge)
        if moved:
            await self._access.pushed(granted, moved, request_id)
        # Only now does the client know that it is done, and may look at what follows from its push.
        await answer.end()

    async def _grant(self, scope: Scope, project: str, service: Service) -> Granted:
        ask = self._access.reader if service is Service.UPLOAD else self._access.pusher
        granted = await ask(project, _credential(Headers(scope=scope)), scope["state"]["request_id"])
        if granted.viewer_id is not None:
            scope["state"]["user_id"] = granted.viewer_id
        return granted


class _Elsewhere(Exception):
    """The same, at another address."""


class _Answer:
    """A streamed answer of 200, begun with its first block, so that until then another can be given."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.headers: dict[str, str] = {}
        self.prefix = b""
        self.started = False

    async def write(self, block: bytes) -> None:
        if not self.started:
            self.started = True
            headers = [(name.lower().encode(), value.encode()) for name, value in self.headers.items()]
            await self._send({"type": "http.response.start", "status": 200, "headers": headers})
            block = self.prefix + block
        await self._send({"type": "http.response.body", "body": block, "more_body": True})

    async def end(self) -> None:
        if not self.started:
            await self.write(b"")
        await self._send({"type": "http.response.body", "body": b"", "more_body": False})


class _Body:
    """The blocks of a request's body. Raises ClientDisconnect where it ends too early."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._ended = asyncio.Event()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while True:
            message: Message = await self._receive()
            if message["type"] == "http.disconnect":
                raise ClientDisconnect
            if block := message.get("body", b""):
                yield block
            if not message.get("more_body", False):
                self._ended.set()
                return

    async def gone(self) -> None:
        """Returns when the client went away after its body."""
        await self._ended.wait()
        await gone(self._receive)


async def _while_there(work: "asyncio.Task[None]", body: _Body) -> None:
    """Waits for the work, and stops it when the client goes away or the server does not wait any longer."""
    leaving = asyncio.create_task(body.gone())
    try:
        await asyncio.wait({work, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not work.done():
            raise ClientDisconnect
        work.result()
    finally:
        for task in (work, leaving):
            task.cancel()
        await asyncio.gather(work, leaving, return_exceptions=True)


async def _unpacked(body: _Body, encoding: str) -> Incoming:
    """The body as it was before the client packed it, a block at a time however small it was packed."""
    if encoding not in ("identity", "gzip", "x-gzip"):
        raise Refused(415, "The body may be packed with gzip, and with nothing else.")
    if encoding == "identity":
        async for block in body:
            yield block
        return
    unpacking = zlib.decompressobj(zlib.MAX_WBITS | 16)
    try:
        async for block in body:
            while not unpacking.eof:
                unpacked = unpacking.decompress(block, BLOCK)
                block = unpacking.unconsumed_tail
                if unpacked:
                    yield unpacked
                elif not block:
                    break
    except zlib.error as error:
        raise Refused(400, "The body is not packed with gzip.") from error
    if not unpacking.eof:
        raise Refused(400, "The packed body has no end.")


async def bounded(incoming: Incoming) -> Incoming:
    """What a fetch asks for, as long as it is no more than it may be. Raises Refused."""
    size = 0
    async for block in incoming:
        size += len(block)
        if size > LARGEST_FETCH:
            raise Refused(413, "This asks for too much at once.")
        yield block


def _credential(headers: Headers) -> str | None:
    """The private token that a request carries, if any (DECISIONS 3); a user name beside it means nothing."""
    if token := headers.get("private-token"):
        return token
    scheme, _, value = headers.get("authorization", "").partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        password = base64.b64decode(value.strip(), validate=True).decode("utf-8", "replace").partition(":")[2]
    except (binascii.Error, ValueError):
        return None
    return password or None


def _protocol(scope: Scope) -> str:
    return Headers(scope=scope).get("git-protocol", "")


def _only(scope: Scope, method: str) -> None:
    if scope["method"] != method:
        raise Refused(405, "405 Method Not Allowed", {"Allow": method})


def refusal(error: Exception) -> Refused | None:
    """The answer that an error means, in words for both of git's doors; None for one that is not ours to explain."""
    match error:
        case Refused():
            return error
        case OperationError() if error.code in _STATUS:
            return _of_graph(error)
        case BadPush():
            return Refused(400, f"This push cannot be read: {error}.")
        case TooBusy():
            return Refused(503, "Too many are fetching or pushing right now; try again in a moment.", {"Retry-After": str(RETRY_SECONDS)})
        case TooSlow():
            return Refused(503, "This took too long.")
        case GitFailed():
            log.error("git failed", error=str(error))
            return Refused(500, "The repository cannot be read right now; the log of the service says why.")
        case OSError() if error.errno == errno.ENOSPC:
            return Refused(507, "The disk of the service is full; nothing was changed.")
    return None


def _of_graph(error: OperationError) -> Refused:
    status = _STATUS[error.code]
    headers: dict[str, str] = {}
    text = error.message
    if status == 401:
        text, headers = _SIGN_IN, {"WWW-Authenticate": 'Basic realm="Forgefront", charset="UTF-8"'}
    elif isinstance(error, Forbidden):
        text = error.reason or "You are not allowed to do this in the project."
    elif (seconds := getattr(error, "retry_after", None)) is not None:
        headers = {"Retry-After": str(seconds)}
    return Refused(status, text, headers)


def _text(refused: Refused) -> Response:
    return PlainTextResponse(refused.text + "\n", refused.status, {**_UNCACHED, **refused.headers})
