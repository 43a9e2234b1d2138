"""The pages: which paths are pages, and the app that serves them.

All pages share one small HTML file (`static/index.html`); the browser renders them by their address from GraphQL alone. Addresses are those
that the API returns as `web_url`. A client that does not accept HTML gets the same response as without pages: `/` is the index of
addresses, everything else is not found.
"""

import re
from pathlib import Path
from urllib.parse import urlsplit

from starlette.types import Receive, Scope, Send

from forgefront.pages.static_folder import INDEX, StaticFolder
from graph.rules.validation import RESERVED_PATHS

STATIC_FOLDER = Path(__file__).parent / "static"
OPERATIONS_FOLDER = Path(__file__).parent / "operations"
"""The pages' operations: a file for each view, which the browser loads and sends unchanged."""
FILES_PATH = "/-/pages/"
FAVICON_PATH = "/favicon.ico"
"""The path at which browsers look for the icon of responses that are not pages."""
ROUTE = "/-/pages"
CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; font-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
"""The content security policy: only the pages' own files and GraphQL load, nothing inline runs, and no string is parsed as HTML."""

_NAME_PATTERN = r"[A-Za-z0-9_.][A-Za-z0-9_.-]*"
_PAGE_PATTERN = re.compile(
    rf"/|/-/sign_in|/u/{_NAME_PATTERN}|/groups/{_NAME_PATTERN}"
    rf"|/{_NAME_PATTERN}/{_NAME_PATTERN}(?<!\.git)(?<!\.atom)(?:/(?:commits|builds|merge_requests|issues)(?:/\d+)?|/commits?/[0-9a-f]{{7,64}}|/(?:milestones|snippets)/\d+)?/?"
)
_PAGE_PREFIXES = frozenset({"u", "groups"})


class PagesApp:
    """The app of the pages. It serves the requests that `matches` accepts.

    `base_url` is the address of the service for browsers, which may have a path.
    """

    def __init__(self, base_url: str) -> None:
        self._files = StaticFolder(
            STATIC_FOLDER, base_path=FILES_PATH, policy=CONTENT_SECURITY_POLICY, values={"base": urlsplit(base_url).path.rstrip("/")}
        )
        self._operations = StaticFolder(OPERATIONS_FOLDER, base_path=f"{FILES_PATH}operations/", policy=CONTENT_SECURITY_POLICY)

    def matches(self, scope: Scope) -> bool:
        """Whether a request is for a file of the pages, or by a browser for a page."""
        if scope["type"] != "http":
            return False
        path: str = scope["path"]
        if path == FAVICON_PATH or self._files.matches(path):
            return True
        return scope["method"] in ("GET", "HEAD") and is_page(path) and prefers_html(_accept_header(scope))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["state"]["route"] = ROUTE
        path = scope["path"]
        if self._files.matches(path):
            await (self._operations if self._operations.matches(path) else self._files)(scope, receive, send)
        elif path == FAVICON_PATH:
            await self._files.send("icon.svg", scope, receive, send)
        else:
            await self._files.send(INDEX, scope, receive, send, vary="accept")


def is_page(path: str) -> bool:
    """Whether the path is that of a page: "/", "/demo/tools", "/demo/tools/issues/3", "/groups/demo", "/u/dev"."""
    if _PAGE_PATTERN.fullmatch(path) is None:
        return False
    first = path.split("/")[1].lower()
    return first in _PAGE_PREFIXES or first not in RESERVED_PATHS


def prefers_html(accept: str) -> bool:
    """Whether Accept names HTML, and does not prefer JSON. `*/*`, which programs send, does not name HTML."""
    quality = {"text/html": 0.0, "application/json": 0.0}
    for item in accept.split(","):
        kind, *parameters = (part.strip().lower() for part in item.split(";"))
        if kind in quality:
            quality_value = next((text[2:] for text in parameters if text.startswith("q=")), "1")
            quality[kind] = float(quality_value) if re.fullmatch(r"[01](?:\.\d{0,3})?", quality_value) else 0.0
    return quality["text/html"] > 0 and quality["text/html"] >= quality["application/json"]


def _accept_header(scope: Scope) -> str:
    return ",".join(value.decode("latin-1") for name, value in scope["headers"] if name == b"accept")
