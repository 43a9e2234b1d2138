"""The legacy runner protocol, `/ci/api/v1`, as runners of the time speak it (wire facts 13.2). Like `rest_v3`, of whose parts it is made,
it reshapes: reads a request, runs operations of the graph, answers. It decides nothing and never imports storage.
"""

from pathlib import Path

from ci_v1.artifacts import Artifacts, ArtifactsReceiver, ProxyEndpoint
from ci_v1.door import BASE, RunnerDoor
from ci_v1.endpoint import RunnerEndpoint, RunnerSender
from ci_v1.routes import ROUTES
from ci_v1.traces import TraceEndpoint
from graph.execute import prepare
from rest_v3.endpoint import Endpoint, Graph
from rest_v3.operations import Operations
from rest_v3.route import Route

__all__ = ["BASE", "application"]

OPERATIONS = Path(__file__).parent / "routes"
KINDS: dict[str, type[RunnerEndpoint]] = {"POST /builds/:id/artifacts/authorize": ProxyEndpoint}


def application(graph: Graph, artifacts: Artifacts, *, external_url: str) -> RunnerDoor:
    """The ASGI application for /ci/api/v1. Every row is held against its operation here, so that a mistake ends the start."""
    operations = Operations.read(OPERATIONS, prepare)
    base_url = external_url.rstrip("/") + BASE

    def endpoint(route: Route) -> Endpoint:
        if route.call == "POST /builds/:id/artifacts":
            return ArtifactsReceiver(route, operations, graph, base_url, artifacts)
        if route.call == "PUT /builds/:id":
            return TraceEndpoint(route, operations, graph, base_url, artifacts)
        kind = KINDS.get(route.call, RunnerSender if route.stream else RunnerEndpoint)
        return kind(route, operations, graph, base_url)

    return RunnerDoor([endpoint(route) for route in ROUTES])
