"""RESHAPES. Reads REST v3 requests, runs one operation of the graph each, responds in v3's form. Never imports storage."""

from collections.abc import Iterable
from pathlib import Path

from rest_v3 import profiles
from rest_v3.api_docs import openapi
from rest_v3.app import RestApp
from rest_v3.endpoints.endpoint import Endpoint, GraphExecutor
from rest_v3.endpoints.file_downloads import FileDownloadEndpoint
from rest_v3.endpoints.file_uploads import FileUploadEndpoint
from rest_v3.old_ids import OldIds
from rest_v3.operations import OperationRegistry, Prepare
from rest_v3.route import Route

OPERATIONS_FOLDER = Path(__file__).parent / "routes"


def create_app(
    graph: GraphExecutor,
    *,
    external_url: str,
    profile: str = profiles.DOCUMENT,
    routes: Iterable[Route] | None = None,
    operations: OperationRegistry | None = None,
    old_ids: OldIds | None = None,
) -> RestApp:
    """The ASGI application for /api/v3.

    `external_url` is the address in links, without /api/v3. `old_ids` are replaced in paths. Checks every row against its operation, so
    that a mistake fails the start.
    Raises InvalidRouteError, UnknownProfileError, BadOperationError.
    """
    if routes is None:
        from rest_v3.routes import EXTRA_ROUTES, ROUTES

        routes = (*ROUTES, *EXTRA_ROUTES)
    if operations is None:
        operations = OperationRegistry.read(OPERATIONS_FOLDER, _import_prepare())
    operations = profiles.replace_operations(profile, operations)
    base_url = external_url.rstrip("/") + "/api/v3"
    endpoints = [_create_endpoint(route, operations, graph, base_url) for route in profiles.apply_profile(profile, routes)]
    return RestApp(endpoints, openapi.create_pages(endpoints, base_url), old_ids)


def _create_endpoint(route: Route, operations: OperationRegistry, graph: GraphExecutor, base_url: str) -> Endpoint:
    """The endpoint of a row. Raises InvalidRouteError."""
    endpoint_class = Endpoint
    if route.file_key is not None:
        endpoint_class = FileDownloadEndpoint
    elif any(parameter.kind == "file" for parameter in route.params):
        endpoint_class = FileUploadEndpoint
    return endpoint_class(route, operations, graph, base_url)


def _import_prepare() -> Prepare:
    from graph.operations.execution import prepare

    return prepare
