"""Serves a folder of static files with security headers and ETags.

 files = StaticFolder(FOLDER, base_path="/-/pages/", policy=POLICY, values={"base": "/git"})
 files.matches("/-/pages/main.js")      True, and so is every other path below `base_path`
 await files(scope, receive, send)      FOLDER/main.js; `base_path` itself is FOLDER/index.html; anything else is not found
 await files.send("index.html", …)      the same file at any other address

The folder is listed once, at start, so that a path from outside never reaches the file system. Small files are cached in memory; large ones
are read in a thread while they are sent. Text is sent compressed to clients that accept gzip, and is compressed at its first request.

Each file has two addresses. `/-/pages/main.js` is revalidated each time by its ETag (RFC 9110, section 13.1.2). Below the version of the
folder, `/-/pages/0123456789abcdef/main.js`, the same file never changes, so browsers do not ask for it again (RFC 8246). HTML files, which
are always revalidated, name the second ones with `$version`, and what is imported relative to these is below the version too. The version
is a hash of all files. Below the version of another release, which a host may be asked for during an upgrade, a file is revalidated.
"""

import asyncio
import gzip
import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from pathlib import Path
from string import Template

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send

from forgefront.server.etags import make_etag, matches_etag
from graph.http.content_coding import accepts_gzip

CONTENT_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".graphql": "text/plain; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".ttf": "font/ttf",
    ".woff2": "font/woff2",
    ".txt": "text/plain; charset=utf-8",
    "": "text/plain; charset=utf-8",
}
"""Content types by extension; other files are not served."""
COMPRESSED_SUFFIXES = frozenset((".html", ".css", ".js", ".json", ".graphql", ".svg", ".txt", ""))
INDEX = "index.html"
MAX_CACHED_BYTES = 256 * 1024
"""Larger files are read from the disk."""
MAX_COMPRESSED_BYTES = 8 * 1024 * 1024
"""Larger files are sent as they are: what is compressed stays in memory. The largest is GraphiQL's, 4 MB that become 1.1."""
BLOCK_BYTES = 256 * 1024
VERSION_LENGTH = 16
VERSION_PATTERN = re.compile(rf"[0-9a-f]{{{VERSION_LENGTH}}}")
REVALIDATED = "no-cache"
IMMUTABLE = "public, max-age=31536000, immutable"
SECURITY_HEADERS = {
    "cache-control": REVALIDATED,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}


@dataclass(frozen=True, slots=True)
class _StaticFile:
    """`body` is None for a file that is read from the disk."""

    path: Path
    body: bytes | None
    size: int
    content_type: str
    etag: str


class StaticFolder:
    """The app of one folder. `policy` is the Content-Security-Policy of every response; `values` replace `$name` in HTML files, escaped.

    `subfolders` are the paths of further folders by the name that they have in this one.
    """

    def __init__(
        self,
        folder: Path,
        *,
        base_path: str,
        policy: str,
        values: Mapping[str, str] | None = None,
        subfolders: Mapping[str, Path] | None = None,
    ) -> None:
        self._base_path = base_path
        self._headers = {**SECURITY_HEADERS, "content-security-policy": policy}
        self._compressed: dict[str, bytes] = {}
        paths = _list_files(folder)
        for name, path in (subfolders or {}).items():
            paths |= {f"{name}/{below}": file for below, file in _list_files(path).items()}
        self._files = {name: _make_file(path, path.read_bytes()) for name, path in paths.items() if path.suffix != ".html"}
        self._unchanging = frozenset(self._files)
        self._version = _version_of(self._files)
        values = {**(values or {}), "version": self._version}
        self._files |= {name: _make_file(path, _fill(path, values)) for name, path in paths.items() if path.suffix == ".html"}

    def __contains__(self, name: str) -> bool:
        return name in self._files

    def put(self, name: str, body: bytes) -> None:
        """Serves generated content under this name."""
        self._files[name] = _make_file(Path(name), body)
        self._compressed.pop(name, None)
        self._unchanging -= {name}

    def matches(self, path: str) -> bool:
        """Whether the path of a scope is below `base_path`."""
        return path.startswith(self._base_path)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        name = scope["path"][len(self._base_path) :] or INDEX
        version, _, versioned = name.partition("/")
        if not VERSION_PATTERN.fullmatch(version):
            await self.send(name, scope, receive, send)
            return
        unchanging = version == self._version and versioned in self._unchanging
        await self.send(versioned, scope, receive, send, cache_control=IMMUTABLE if unchanging else REVALIDATED)

    async def send(
        self,
        name: str,
        scope: Scope,
        receive: Receive,
        send: Send,
        *,
        vary: str | None = None,
        status: int = 200,
        cache_control: str = REVALIDATED,
    ) -> None:
        """Sends the file of this name, at any address. `vary` names the request header that selected it."""
        file = self._files.get(name)
        if file is None:
            await JSONResponse({"message": "404 Not Found"}, 404)(scope, receive, send)
            return
        if scope["method"] not in ("GET", "HEAD"):
            await JSONResponse({"message": "405 Method Not Allowed"}, 405, {"Allow": "GET, HEAD"})(scope, receive, send)
            return
        request_headers = Headers(scope=scope)
        body, size, etag, coding = file.body, file.size, file.etag, {}
        if file.path.suffix in COMPRESSED_SUFFIXES and size <= MAX_COMPRESSED_BYTES:
            vary = f"{vary}, accept-encoding" if vary else "accept-encoding"
            if accepts_gzip(request_headers.get("accept-encoding", "")):
                # At the first request, so that a start does not wait for it.
                if name not in self._compressed:
                    self._compressed[name] = await asyncio.to_thread(_compress, file)
                body = self._compressed[name]
                size, etag, coding = len(body), f'{file.etag[:-1]}-gzip"', {"content-encoding": "gzip"}
        headers = {**self._headers, "cache-control": cache_control, "etag": etag, **({"vary": vary} if vary else {})}
        if status == 200 and matches_etag(request_headers.get("if-none-match"), etag):
            await _start_response(send, 304, headers)
            await send({"type": "http.response.body", "body": b""})
            return
        await _start_response(send, status, {**headers, **coding, "content-type": file.content_type, "content-length": str(size)})
        if scope["method"] == "HEAD" or body is not None:
            await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})
            return
        with await asyncio.to_thread(file.path.open, "rb") as opened:
            remaining = file.size
            while block := await asyncio.to_thread(opened.read, min(BLOCK_BYTES, remaining)):
                remaining -= len(block)
                await send({"type": "http.response.body", "body": block, "more_body": remaining > 0})


def _list_files(folder: Path) -> dict[str, Path]:
    paths = sorted(path for path in folder.rglob("*") if path.is_file() and path.suffix in CONTENT_TYPES)
    return {path.relative_to(folder).as_posix(): path for path in paths}


def _fill(path: Path, values: Mapping[str, str]) -> bytes:
    """The HTML of a file with these values."""
    return Template(path.read_text(encoding="utf-8")).substitute({name: escape(value) for name, value in values.items()}).encode()


def _make_file(path: Path, body: bytes) -> _StaticFile:
    cached = body if len(body) <= MAX_CACHED_BYTES or path.suffix == ".html" else None
    return _StaticFile(path, cached, len(body), CONTENT_TYPES[path.suffix], make_etag(body))


def _compress(file: _StaticFile) -> bytes:
    return gzip.compress(file.path.read_bytes() if file.body is None else file.body, 6, mtime=0)


def _version_of(files: Mapping[str, _StaticFile]) -> str:
    lines = "".join(f"{name} {file.etag}\n" for name, file in sorted(files.items()))
    return hashlib.sha256(lines.encode()).hexdigest()[:VERSION_LENGTH]


async def _start_response(send: Send, status: int, headers: Mapping[str, str]) -> None:
    pairs = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": status, "headers": pairs})
