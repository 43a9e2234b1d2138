"""Loads the modules of the service with less memory and time; packages that begin a process import this first."""

import gc
import sys

COLOUR_LIBRARIES = ("pygments", "rich")


def _load_without_colours() -> None:
    """Loads structlog and httpx as if pygments and rich were not installed.

    Those libraries would add 7 MB to every server, for coloured tracebacks and the command line of httpx, which are not used.
    """
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
# The half million objects loaded from here on live to the end of the process. Collecting garbage repeatedly while they are loaded was an
# eighth of the startup time.
gc.set_threshold(50_000, 5, 200)
