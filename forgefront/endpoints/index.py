"""The endpoint of `/`: the addresses of the service as JSON, or the start page for a browser."""

from importlib.metadata import version

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from forgefront.pages import accepts_page


class IndexEndpoint:
    """Serves `paths`, a path for each name, as addresses below `base_url`; requests that accept HTML go to `pages`."""

    def __init__(self, base_url: str, paths: dict[str, str], pages: ASGIApp) -> None:
        self._pages = pages
        addresses = {name: base_url + path for name, path in paths.items()}
        self._content = {"name": "Forgefront", "version": version("forgefront"), **addresses}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] not in ("GET", "HEAD"):
            await JSONResponse({"message": "405 Method Not Allowed"}, 405, {"Allow": "GET, HEAD"})(scope, receive, send)
        elif accepts_page(scope):
            await self._pages(scope, receive, send)
        else:
            await JSONResponse(self._content, headers={"Vary": "Accept"})(scope, receive, send)
