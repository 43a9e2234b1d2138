"""SERVES. The only package that sees all; decides nothing."""

import sys

COLOUR_LIBRARIES = ("pygments", "rich")


def _load_without_colours() -> None:
    """structlog and httpx are loaded as they are where these libraries are not installed. They would take 7 MB of them into every server:
    for tracebacks in colours, which no line of ours has, and for a command line of httpx's own."""
    if not sys.modules.keys().isdisjoint((*COLOUR_LIBRARIES, "httpx", "structlog")):
        return
    for name in COLOUR_LIBRARIES:
        sys.modules[name] = None  # type: ignore[assignment]
    try:
        import httpx  # noqa: F401
        import structlog  # noqa: F401
    finally:
        for name in COLOUR_LIBRARIES:
            del sys.modules[name]


_load_without_colours()
