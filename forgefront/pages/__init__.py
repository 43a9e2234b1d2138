"""The pages for people: which paths are pages, and the door that serves them.

A page is one small HTML file for all of them (`static/index.html`); what it shows is decided in the browser by its address, from the
graph alone. Addresses are those that the API gives as `web_url`, so that a link from anywhere opens here. Who does not ask for HTML is
answered as if there were no pages: `/` is the index of addresses, all else is not found.
"""

import re
from pathlib import Path
from urllib.parse import urlsplit

from starlette.types import Receive, Scope, Send

from forgefront.pages.static_folder import INDEX, StaticFolder
from graph.rules.validation import RESERVED_PATHS

STATIC_FOLDER = Path(__file__).parent / "static"
OPERATIONS_FOLDER = Path(__file__).parent / "operations"
"""What the pages ask of the graph: a file a view, which the browser reads as text and sends as it is."""
FILES_PATH = "/-/pages/"
FAVICON_PATH = "/favicon.ico"
"""Where browsers look for the icon of what is no page."""
ROUTE = "/-/pages"
CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; font-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
"""The pages' own files and the graph; nothing else may load, nothing inline runs, and no text is ever taken for HTML."""

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
    """Whether a page has this address: "/", "/demo/tools", "/demo/tools/issues/3", "/groups/demo", "/u/dev"."""
    if _PAGE_PATTERN.fullmatch(path) is None:
        return False
    first = path.split("/")[1].lower()
    return first in _PAGE_PREFIXES or first not in RESERVED_PATHS


def prefers_html(accept: str) -> bool:
    """Whether HTML is named, and JSON not preferred to it. `*/*`, which programs send, does not name it."""
    quality = {"text/html": 0.0, "application/json": 0.0}
    for item in accept.split(","):
        kind, *parameters = (part.strip().lower() for part in item.split(";"))
        if kind in quality:
            quality_value = next((text[2:] for text in parameters if text.startswith("q=")), "1")
            quality[kind] = float(quality_value) if re.fullmatch(r"[01](?:\.\d{0,3})?", quality_value) else 0.0
    return quality["text/html"] > 0 and quality["text/html"] >= quality["application/json"]


def _accept_header(scope: Scope) -> str:
    return ",".join(value.decode("latin-1") for name, value in scope["headers"] if name == b"accept")
