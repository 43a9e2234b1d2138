"""The whole service as one ASGI app: dispatches paths to endpoints, starts and stops the background tasks."""

import contextlib
import socket
from collections.abc import Callable
from datetime import datetime
from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

import ci_v1
import rest_v3
from forgefront import served_documents
from forgefront.backend import Backend
from forgefront.config import Config
from forgefront.endpoints import artifact_uploads, named_queries, upload_downloads
from forgefront.git_http.endpoint import GitHttpEndpoint
from forgefront.pages import PagesApp
from forgefront.pages.graphiql import ROUTE as GRAPHIQL
from forgefront.pages.graphiql import GraphiqlApp
from forgefront.pages.reference import ROUTE as REFERENCE
from forgefront.pages.reference import ReferenceApp
from forgefront.server import health
from forgefront.server.cors import CorsMiddleware
from forgefront.server.health import ReadinessEndpoint, create_database_check, create_folder_check
from forgefront.server.metrics import Metrics
from forgefront.server.middleware import RequestMiddleware
from forgefront.server.task_runner import TaskRunner, repeat_every
from graph.artifact_access import ArtifactAccess
from graph.events.delivery_worker import DeliveryWorker
from graph.git_access import GitAccess
from graph.http.endpoint import make_graphql_app
from graph.jobs import maintenance
from graph.jobs.backlog import read_backlog
from graph.jobs.repack import repack_repositories
from graph.rules.builds import stored_objects
from graph.rules.git import commit_index
from graph.rules.merge_requests import merge_request_imports
from graph.rules.projects.uploads import remove_orphans
from storage.database.engine import is_unavailable, now
from storage.git.protocol.transport import Transport
from storage.git.subprocesses import git_command

if TYPE_CHECKING:
    from forgefront.ssh.ssh_server import GitSshServer

GRAPHQL = "/graphql"
REST_V3 = "/api/v3"
PREFLIGHT = "preflight"
SWEEP_SECONDS = 3600.0
REPACK_SECONDS = 600.0
CACHE_METRICS_SECONDS = 15.0


class App(Backend):
    """The service: the backend and its endpoints."""

    def __init__(self, config: Config, *, clock: Callable[[], datetime] = now, ssh_listener: socket.socket | None = None) -> None:
        super().__init__(config, clock=clock)
        served_documents.serve_documents(self.graph, config)
        metrics = Metrics(partial(read_backlog, self.database, clock))
        self._graphql = make_graphql_app(self.graph)
        self._exact_paths: dict[str, ASGIApp] = {
            "/": self._index,
            "/-/health": health.answer_liveness,
            "/-/readiness": ReadinessEndpoint(
                {"database": create_database_check(self.database), "repositories": create_folder_check(config.repositories)}
            ),
        }
        if config.metrics:
            self._exact_paths["/-/metrics"] = metrics
        self._graphiql = GraphiqlApp(config.base_url)
        self._reference = ReferenceApp(config.base_url)
        self._pages = PagesApp(config.base_url)
        self._named_queries = named_queries.NamedQueriesEndpoint(self.graph)
        self._uploads_endpoint = upload_downloads.UploadDownloadEndpoint(self.graph, self.uploads)
        artifact_access = ArtifactAccess(self.graph.services)
        self._artifacts_endpoint = artifact_uploads.ArtifactUploadEndpoint(artifact_access)
        self._mounts: dict[str, ASGIApp] = {
            REST_V3: rest_v3.create_app(self.graph, external_url=config.base_url, profile=config.v3_profile),
            ci_v1.BASE: ci_v1.create_app(self.graph, artifact_access, external_url=config.base_url),
        }
        git_command.set_limits(config.git_limits)
        transport = config.create_transport()
        access = GitAccess(self.graph.services)
        self._git_endpoint = GitHttpEndpoint(access, transport)
        self._ssh_server = _create_ssh_server(config, access, transport, ssh_listener, metrics) if ssh_listener else None
        self.graph.services.broadcaster.on_count_change = metrics.set_streams
        with_middleware = RequestMiddleware(self._dispatch, metrics, is_unavailable)
        self._cors = CorsMiddleware(with_middleware, config.cors_origins, config.base_url, self._is_api_path)
        self._deliverer = DeliveryWorker(self.graph.services, on_attempt=metrics.count_delivery)
        self._task_runner = TaskRunner(
            {
                "deliveries": self._deliverer.run,
                "upkeep": partial(maintenance.run, self.graph.services),
                "live": partial(self.graph.services.broadcaster.run, self.database),
                "old events": repeat_every(SWEEP_SECONDS, self._deliverer.sweep),
                "objects of no build": repeat_every(SWEEP_SECONDS, partial(stored_objects.erase_orphans, self.graph.services)),
                "files of no upload": repeat_every(SWEEP_SECONDS, partial(remove_orphans, self.graph.services)),
                "imports": partial(merge_request_imports.run_forever, self.graph.services),
                # An import that a crash interrupted, above all of the last process.
                "unfinished indexes": repeat_every(SWEEP_SECONDS, partial(commit_index.index_unfinished, self.graph.services)),
                # The process that serves a request for metrics reports those of all processes.
                "caches": repeat_every(CACHE_METRICS_SECONDS, metrics.update_cache_gauges),
                "packing": repeat_every(REPACK_SECONDS, partial(repack_repositories, self.graph.services)),
            }
        )

    async def start(self) -> None:
        await super().start()
        self._task_runner.start()
        if self._ssh_server is not None:
            await self._ssh_server.start()

    def begin_shutdown(self, seconds: float) -> None:
        """Called when a shutdown begins, before running requests end. SSH accepts no new connections, and running ones have `seconds` left.

        Runners that wait for builds get a response, and streams end, so that their clients reconnect elsewhere.
        """
        self.graph.services.runner_queue.close()
        self.graph.services.broadcaster.close()
        if self._ssh_server is not None:
            self._ssh_server.begin_shutdown(seconds)

    async def stop(self) -> None:
        if self._ssh_server is not None:
            await self._ssh_server.close()
        await self._close_in_time("pushes", self._git_endpoint.close())
        await self._close_in_time("worker", self._task_runner.stop())
        await self._close_in_time("deliveries", self._deliverer.close())
        await super().stop()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        else:
            await self._cors(scope, receive, send)

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        try:
            await self.start()
        except Exception as error:
            self._log.error("startup failed", exc_info=None if is_unavailable(error) else error)
            with contextlib.suppress(Exception):
                await self.stop()
            await send({"type": "lifespan.startup.failed", "message": _startup_error_message(error)})
            return
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self.stop()
        await send({"type": "lifespan.shutdown.complete"})

    async def _dispatch(self, scope: Scope, receive: Receive, send: Send) -> None:
        path: str = scope["path"]
        if scope.get("method") == "OPTIONS" and self._cors.is_preflight(scope) and self._is_api_path(path):
            # The URL of an artifact grants access to it, so the log does not contain it.
            scope["state"] |= {"route": PREFLIGHT, "secret_path": self._artifacts_endpoint.matches(path)}
            await self._cors.answer_preflight(scope, receive, send)
            return
        if path == GRAPHQL:
            # The most frequent path is compared first.
            scope["state"]["route"] = path
            await self._graphql(scope, receive, send)
            return
        for base, mounted in self._mounts.items():
            if path.startswith(base) and path[len(base) :][:1] in ("", "/"):
                # As Starlette mounts: the path stays complete, and root_path is the prefix of the mounted application.
                scope["root_path"] = scope.get("root_path", "") + base
                await mounted(scope, receive, send)
                return
        if scope["type"] == "http" and self._named_queries.matches(path):
            await self._named_queries(scope, receive, send)
            return
        if scope["type"] == "http" and self._uploads_endpoint.matches(path):
            scope["state"]["route"] = upload_downloads.ROUTE
            await self._uploads_endpoint(scope, receive, send)
            return
        if scope["type"] == "http" and self._artifacts_endpoint.matches(path):
            scope["state"] |= {"route": artifact_uploads.ROUTE, "secret_path": True}
            await self._artifacts_endpoint(scope, receive, send)
            return
        if self._graphiql.matches(scope):
            await self._graphiql(scope, receive, send)
            return
        if self._reference.matches(scope):
            await self._reference(scope, receive, send)
            return
        handler = self._exact_paths.get(path)
        if handler is None and self._git_endpoint.matches(scope):
            await self._git_endpoint(scope, receive, send)
            return
        if self._pages.matches(scope):
            await self._pages(scope, receive, send)
            return
        if handler is None:
            await _not_found(scope, receive, send)
            return
        scope["state"]["route"] = path
        await handler(scope, receive, send)

    def _is_api_path(self, path: str) -> bool:
        """Whether the path belongs to an API that pages of other origins may call."""
        return (
            path == GRAPHQL
            or any(path.startswith(base) and path[len(base) :][:1] in ("", "/") for base in self._mounts)
            or self._named_queries.matches(path)
            or self._uploads_endpoint.matches(path)
            or self._artifacts_endpoint.matches(path)
        )

    async def _index(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] not in ("GET", "HEAD"):
            await _refuse(scope, receive, send, 405, "405 Method Not Allowed", {"Allow": "GET, HEAD"})
            return
        base = self.config.base_url
        urls: dict[str, Any] = {
            "name": "Forgefront",
            "version": version("forgefront"),
            "graphql": f"{base}{GRAPHQL}",
            "graphiql": f"{base}{GRAPHIQL}",
            "reference": f"{base}{REFERENCE}",
            "rest_v3": f"{base}{REST_V3}",
            "openapi": f"{base}{REST_V3}/openapi.json",
            "health": f"{base}/-/health",
            "readiness": f"{base}/-/readiness",
        }
        if self.config.metrics:
            urls["metrics"] = f"{base}/-/metrics"
        await JSONResponse(urls, headers={"Vary": "Accept"})(scope, receive, send)


def create_app(config: Config, *, ssh_listener: socket.socket | None = None) -> App:
    """The service for this configuration. It touches the data folder, but not the database before it starts."""
    return App(config, ssh_listener=ssh_listener)


def _create_ssh_server(
    config: Config, access: GitAccess, transport: Transport, listener: socket.socket, metrics: Metrics
) -> "GitSshServer":
    # Imported only if SSH is enabled: the library takes 20 MB.
    from forgefront.ssh import host_keys
    from forgefront.ssh.ssh_server import GitSshServer

    keys = host_keys.load_host_keys(config.data, config.ssh_host_keys)
    return GitSshServer(access, transport, listener, keys, count_command=metrics.count_command, set_connections=metrics.set_ssh_connections)


async def _not_found(scope: Scope, receive: Receive, send: Send) -> None:
    await _refuse(scope, receive, send, 404, "404 Not Found")


async def _refuse(scope: Scope, receive: Receive, send: Send, status: int, message: str, headers: dict[str, str] | None = None) -> None:
    if scope["type"] == "websocket":
        # Closing before accepting rejects the handshake with 403.
        await receive()
        await send({"type": "websocket.close", "code": 1000})
    else:
        await JSONResponse({"message": message}, status, headers)(scope, receive, send)


def _startup_error_message(error: Exception) -> str:
    if is_unavailable(error):
        return f"the database cannot be reached ({type(error).__name__}): is it running, and is FORGEFRONT_DATABASE_URL right?"
    return f"the service cannot start: {error}"
