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
from forgefront.server.app_router import send_not_found
from graph.rules.validation import RESERVED_PATHS

STATIC_FOLDER = Path(__file__).parent / "static"
OPERATIONS_FOLDER = Path(__file__).parent / "operations"
"""The pages' operations: a file for each view, which the browser loads and sends unchanged."""
NAMED_OPERATIONS_FOLDER = OPERATIONS_FOLDER / "dashboards"
"""The operations of the dashboards' charts, which are also served by their names, as tables for spreadsheets."""
FILES_PATH = "/-/pages/"
FAVICON_PATH = "/favicon.ico"
"""The path at which browsers look for the icon of responses that are not pages."""
ROUTE = "/-/pages"
CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; font-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types markdown"
)
"""The content security policy: only the pages' own files and GraphQL load, nothing inline runs, and no string is parsed as HTML,
except by the policy `markdown` of `static/markdown.js`."""

_NAME_PATTERN = r"[A-Za-z0-9_.][A-Za-z0-9_.-]*"
PAGE_PATTERN = re.compile(
    rf"/|(?:/-/(?:sign_in|new_project|new_group|issues|merge_requests|profile)"
    rf"|/-/admin(?:/(?:users(?:/{_NAME_PATTERN})?|runners|hooks(?:/\d+)?|settings))?"
    rf"|/u/{_NAME_PATTERN}|/groups/{_NAME_PATTERN}(?:/(?:dashboard|builds|issues|merge_requests|members|settings))?"
    rf"|/{_NAME_PATTERN}/{_NAME_PATTERN}(?<!\.git)(?<!\.atom)(?:/(?:commits|builds|issues|milestones)(?:/\d+)?"
    r"|/builds/\d+/artifacts(?:/browse/[^\0]+)?"
    r"|/merge_requests(?:/\d+(?:/(?:commits|builds|changes))?)?|/(?:issues|merge_requests)/(?:new|\d+/edit)"
    r"|/(?:dashboard|labels|activity|stars|branches|tags|environments|snippets|fork|contributors|search)"
    r"|/(?:files|new_file|compare)(?:/[^\0]*)?|/(?:edit_file|remove_file|history|blame|tree|blob)/[^\0]+"
    r"|/settings(?:/(?:members|general|hooks(?:/\d+)?|deploy_keys|variables|runners|triggers))?|/commits?/[0-9a-f]{7,64}|/snippets/\d+)?)/?"
)
MISSING_PAGE_PATTERN = re.compile(rf"/{_NAME_PATTERN}/?|/(?:-|-/admin|{_NAME_PATTERN})/{_NAME_PATTERN}(?<!\.git)(?<!\.atom)(?:/[^\0]*)?")
"""Addresses beside and below those of pages. Browsers get a page for those that are not one, too, with the status 404."""
_PAGE_PREFIXES = frozenset({"u", "groups"})


class PagesApp:
    """The app of the pages and their files. Other paths are found only if a browser requests them as a page.

    `base_url` is the address of the service for browsers, which may have a path.
    """

    def __init__(self, base_url: str) -> None:
        self._files = StaticFolder(
            STATIC_FOLDER,
            base_path=FILES_PATH,
            policy=CONTENT_SECURITY_POLICY,
            values={"base": urlsplit(base_url).path.rstrip("/")},
            subfolders={"operations": OPERATIONS_FOLDER},
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path: str = scope["path"]
        is_file = path == FAVICON_PATH or self._files.matches(path)
        if not is_file and not (scope["method"] in ("GET", "HEAD") and _has_html(path) and accepts_page(scope)):
            await send_not_found(scope, receive, send)
            return
        scope["state"]["route"] = ROUTE
        if path == FAVICON_PATH:
            await self._files.send("icon.svg", scope, receive, send)
        elif is_file:
            await self._files(scope, receive, send)
        else:
            await self._files.send(INDEX, scope, receive, send, vary="accept", status=200 if is_page(path) else 404)


def is_page(path: str) -> bool:
    """Whether the path is that of a page: "/", "/demo/tools", "/demo/tools/issues/3", "/groups/demo", "/u/dev"."""
    return PAGE_PATTERN.fullmatch(path) is not None and _is_for_pages(path)


def _has_html(path: str) -> bool:
    """Whether the path is that of a page, or of one that does not exist, which the page says."""
    return (PAGE_PATTERN.fullmatch(path) or MISSING_PAGE_PATTERN.fullmatch(path)) is not None and _is_for_pages(path)


def _is_for_pages(path: str) -> bool:
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


def accepts_page(scope: Scope) -> bool:
    """Whether a request prefers HTML, as those of browsers do."""
    return prefers_html(",".join(value.decode("latin-1") for name, value in scope["headers"] if name == b"accept"))
