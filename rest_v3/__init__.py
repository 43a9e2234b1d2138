"""RESHAPES. Reads REST v3 requests, runs one operation of the graph each, responds in v3's form. Never imports storage."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rest_v3.app import RestApp
    from rest_v3.endpoints.endpoint import Endpoint, GraphExecutor
    from rest_v3.old_ids import OldIds
    from rest_v3.operations import OperationRegistry
    from rest_v3.route import Route

OPERATIONS_FOLDER = Path(__file__).parent / "routes"


def create_app(
    graph: "GraphExecutor",
    *,
    external_url: str,
    profile: str = "document",
    routes: "Iterable[Route] | None" = None,
    operations: "OperationRegistry | None" = None,
    old_ids: "OldIds | None" = None,
) -> "RestApp":
    """The ASGI application for /api/v3.

    `external_url` is the address in links, without /api/v3. `old_ids` are replaced in paths. Checks every row against its operation, so
    that a mistake fails the start.
    Raises InvalidRouteError, UnknownProfileError, BadOperationError.
    """
    # Imported here, so that a program that only reads the table of routes does not load the graph.
    from graph.operations.execution import prepare_document
    from rest_v3 import profiles
    from rest_v3.api_docs import openapi
    from rest_v3.app import RestApp
    from rest_v3.operations import OperationRegistry
    from rest_v3.routes import EXTRA_ROUTES, ROUTES

    if operations is None:
        operations = OperationRegistry.read(OPERATIONS_FOLDER, prepare_document)
    operations = profiles.replace_operations(profile, operations)
    base_url = external_url.rstrip("/") + "/api/v3"
    rows = profiles.apply_profile(profile, (*ROUTES, *EXTRA_ROUTES) if routes is None else routes)
    endpoints = [_create_endpoint(row, operations, graph, base_url) for row in rows]
    return RestApp(endpoints, openapi.create_pages(endpoints, base_url), old_ids)


def _create_endpoint(route: "Route", operations: "OperationRegistry", graph: "GraphExecutor", base_url: str) -> "Endpoint":
    """The endpoint of a row. Raises InvalidRouteError."""
    from rest_v3.endpoints.endpoint import Endpoint
    from rest_v3.endpoints.file_downloads import FileDownloadEndpoint
    from rest_v3.endpoints.file_uploads import FileUploadEndpoint

    endpoint_class = Endpoint
    if route.file_key is not None:
        endpoint_class = FileDownloadEndpoint
    elif any(parameter.kind == "file" for parameter in route.params):
        endpoint_class = FileUploadEndpoint
    return endpoint_class(route, operations, graph, base_url)
