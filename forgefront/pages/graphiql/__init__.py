"""GraphiQL at /-/graphiql, offline: the folder `built`, which `scripts/graphiql` bundles from the sources beside this file.

Its examples are the dashboard queries of `graph/documents/dashboards`, inserted into the page at start.
"""

from pathlib import Path
from urllib.parse import urlsplit

from starlette.types import Receive, Scope, Send

import graph
from forgefront.pages.static_folder import INDEX, StaticFolder

ROUTE = "/-/graphiql"
BUILD_FOLDER = Path(__file__).parent / "built"
EXAMPLES_FILE = Path(graph.__file__).parent / "documents" / "dashboards" / "dashboards.graphql"
CONTENT_SECURITY_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "worker-src 'self'",
        # The editor writes its themes into style elements, and its icons are images inside its style sheet.
        "style-src 'self' 'unsafe-inline'",
        "img-src 'self' data:",
        "font-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
"""Nothing is loaded from other hosts. URLs in the bundle are names of namespaces or parts of messages; a test in a browser checks that no
request leaves."""


class GraphiqlApp:
    """The page at ROUTE and its files below. `base_url` is the address of the service for browsers, which may have a path."""

    def __init__(self, base_url: str) -> None:
        values = {"base": urlsplit(base_url).path.rstrip("/"), "examples": EXAMPLES_FILE.read_text()}
        self._files = StaticFolder(BUILD_FOLDER, base_path=f"{ROUTE}/", policy=CONTENT_SECURITY_POLICY, values=values)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == ROUTE:
            await self._files.send(INDEX, scope, receive, send)
        else:
            await self._files(scope, receive, send)
