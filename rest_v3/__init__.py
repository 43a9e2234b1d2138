"""RESHAPES. Reads REST v3, runs one operation of the graph, answers v3. Decides nothing, never imports storage."""

from collections.abc import Iterable
from pathlib import Path

from rest_v3 import openapi, profiles
from rest_v3.door import Door
from rest_v3.endpoint import Endpoint, Graph
from rest_v3.operations import Operations, Prepare
from rest_v3.receiving import Receiver
from rest_v3.route import Route
from rest_v3.sending import Sender

ROUTES_FOLDER = Path(__file__).parent / "routes"


def application(
    graph: Graph,
    *,
    external_url: str,
    profile: str = profiles.DOCUMENT,
    routes: Iterable[Route] | None = None,
    operations: Operations | None = None,
) -> Door:
    """The ASGI application for /api/v3.

    `external_url` is the address that links show, without /api/v3. Every row is held against its operation and every
    operation against the schema here, so that a mistake in either ends the start. Raises BadRowError, UnknownProfileError
    and, for an operation that is not valid, what graph.execute raises.
    """
    if routes is None:
        from rest_v3.routes import EXTRA, ROUTES

        routes = (*ROUTES, *EXTRA)
    if operations is None:
        operations = Operations.read(ROUTES_FOLDER, _prepare())
    base_url = external_url.rstrip("/") + "/api/v3"
    endpoints = [_endpoint(route, operations, graph, base_url) for route in profiles.under(profile, routes)]
    return Door(endpoints, openapi.pages(endpoints, base_url))


def _endpoint(route: Route, operations: Operations, graph: Graph, base_url: str) -> Endpoint:
    """The row, ready to answer. Raises BadRowError."""
    kind = Endpoint
    if route.stream is not None:
        kind = Sender
    elif any(parameter.kind == "file" for parameter in route.params):
        kind = Receiver
    return kind(route, operations, graph, base_url)


def _prepare() -> Prepare:
    from graph.execute import prepare

    return prepare
