"""The legacy runner protocol, `/ci/api/v1`, which GitLab runners of that version speak (docs/wire-facts.md 13.2).

Like `rest_v3`, whose parts it uses, it reshapes: it reads a request, runs operations of the graph and responds. It decides nothing and
never imports storage.
"""

from pathlib import Path

from ci_v1.app import BASE, RunnerApiApp
from ci_v1.artifacts import ArtifactProxyEndpoint, ArtifactStoreProtocol, RunnerArtifactUploadEndpoint
from ci_v1.endpoint import RunnerEndpoint, RunnerFileDownloadEndpoint
from ci_v1.routes import ROUTES
from ci_v1.traces import TraceEndpoint
from graph.operations.execution import prepare_document
from rest_v3.endpoints.endpoint import Endpoint, GraphExecutor
from rest_v3.operations import OperationRegistry
from rest_v3.route import Route

__all__ = ["BASE", "create_app"]

OPERATIONS_FOLDER = Path(__file__).parent / "routes"
ENDPOINT_CLASSES: dict[str, type[RunnerEndpoint]] = {"POST /builds/:id/artifacts/authorize": ArtifactProxyEndpoint}


def create_app(graph: GraphExecutor, artifacts: ArtifactStoreProtocol, *, external_url: str) -> RunnerApiApp:
    """The ASGI application for /ci/api/v1. Checks every row against its operation, so that a mistake fails the start."""
    operations = OperationRegistry.read(OPERATIONS_FOLDER, prepare_document)
    base_url = external_url.rstrip("/") + BASE

    def create_endpoint(route: Route) -> Endpoint:
        if route.call == "POST /builds/:id/artifacts":
            return RunnerArtifactUploadEndpoint(route, operations, graph, base_url, artifacts)
        if route.call == "PUT /builds/:id":
            return TraceEndpoint(route, operations, graph, base_url, artifacts)
        endpoint_class = ENDPOINT_CLASSES.get(route.call, RunnerFileDownloadEndpoint if route.file_key else RunnerEndpoint)
        return endpoint_class(route, operations, graph, base_url)

    return RunnerApiApp([create_endpoint(route) for route in ROUTES])
