"""The page that shows the report, for browsers on this machine."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route

from forgefront.pages import CONTENT_SECURITY_POLICY, FILES_PATH, STATIC_FOLDER
from forgefront.pages.static_folder import SECURITY_HEADERS, StaticFolder
from forgefront.shadow.comparison.report_files import format_json

PAGE_FOLDER = Path(__file__).parents[1] / "page"
REPORT_PATH = "/report.json"


def create_status_app(read_report: Callable[[], dict[str, Any]]) -> Starlette:
    """`/` is the page, `/report.json` the report, and the files of the other pages are where these expect them.

    Other names than those of this machine are refused: a page elsewhere could otherwise have its own name resolved to this address, and
    read the report.
    """
    page = StaticFolder(PAGE_FOLDER, base_path="/", policy=CONTENT_SECURITY_POLICY)
    shared = StaticFolder(STATIC_FOLDER, base_path=FILES_PATH, policy=CONTENT_SECURITY_POLICY, values={"base": ""})
    headers = {**SECURITY_HEADERS, "cache-control": "no-store", "content-security-policy": CONTENT_SECURITY_POLICY}

    async def report(request: Request) -> Response:
        return Response(format_json(read_report()), media_type="application/json", headers=headers)

    async def files(scope: Any, receive: Any, send: Any) -> None:
        await (shared if shared.matches(scope["path"]) else page)(scope, receive, send)

    return Starlette(
        routes=[Route(REPORT_PATH, report), Mount("/", files)],
        middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=["localhost", "127.0.0.1"])],
    )


class StatusServer(uvicorn.Server):
    """Serves the page until the process ends; signals are left to the process."""

    def __init__(self, app: Starlette) -> None:
        super().__init__(uvicorn.Config(app, log_config=None, access_log=False, lifespan="off", server_header=False))

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield
