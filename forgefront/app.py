"""The whole service as one ASGI app: dispatches paths to endpoints, starts and stops the background tasks."""

import contextlib
import socket
from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING

from starlette.types import Receive, Scope, Send

import ci_v1
import rest_v3
from forgefront import served_documents
from forgefront.backend import Backend
from forgefront.buckets.bucket_move import move_to_buckets
from forgefront.buckets.bucket_owner import ForeignBucket
from forgefront.config import Config, ConfigError
from forgefront.endpoints import artifact_files, artifact_uploads, named_queries, upload_downloads
from forgefront.endpoints.index import IndexEndpoint
from forgefront.git_http import endpoint as git_http
from forgefront.old_ids import read_old_ids
from forgefront.pages import FAVICON_PATH, FILES_PATH, MISSING_PAGE_PATTERN, PAGE_PATTERN, PagesApp
from forgefront.pages.graphiql import ROUTE as GRAPHIQL
from forgefront.pages.graphiql import GraphiqlApp
from forgefront.pages.reference import ROUTE as REFERENCE
from forgefront.pages.reference import ReferenceApp
from forgefront.server.app_router import AppRoute, AppRouter, send_not_found
from forgefront.server.cors import CorsMiddleware
from forgefront.server.health import ReadinessEndpoint, create_database_check, create_folder_check, create_store_check
from forgefront.server.host_registry import HostRefused, HostRegistry
from forgefront.server.liveness import HEALTH, READINESS, answer_liveness
from forgefront.server.metrics import Metrics
from forgefront.server.middleware import PREFLIGHT, RequestMiddleware
from forgefront.server.task_runner import TaskRunner, repeat_every
from graph.artifact_access import ArtifactAccess
from graph.events.delivery_worker import DeliveryWorker
from graph.git_access import GitAccess
from graph.http.endpoint import make_graphql_app
from graph.jobs import change_pruning, maintenance, pack_jobs, token_uses
from graph.jobs.backlog import read_backlog
from graph.jobs.limit_sharing import LimitSharing
from graph.jobs.object_collections import collect_objects
from graph.jobs.repack import repack_repositories
from graph.live import stream_access
from graph.operations.warm_up import warm_up
from graph.rules.builds import stored_objects
from graph.rules.external_accounts import directory_sync
from graph.rules.git import commit_index
from graph.rules.merge_requests import merge_request_imports
from graph.rules.projects import project_imports
from graph.rules.projects.uploads import remove_orphans
from storage.database.clock import now
from storage.database.errors import is_unavailable
from storage.database.pg_notify import Notifications
from storage.git.protocol.transport import Transport
from storage.git.subprocesses import git_command
from storage.migrations import DatabaseTooNew, HostsRunning
from storage.objects.object_store import ObjectStoreUnavailable

if TYPE_CHECKING:
    from forgefront.ssh.ssh_server import GitSshServer

GRAPHQL = "/graphql"
REST_V3 = "/api/v3"
METRICS = "/-/metrics"
ARTIFACT_FILE = "/:namespace/:project/builds/:id/artifacts/file/:path"
SWEEP_SECONDS = 3600.0
REPACK_SECONDS = 600.0
CACHE_METRICS_SECONDS = 15.0
INDEX_PATHS = {
    "graphql": GRAPHQL,
    "graphiql": GRAPHIQL,
    "reference": REFERENCE,
    "rest_v3": REST_V3,
    "openapi": f"{REST_V3}/openapi.json",
    "health": HEALTH,
    "readiness": READINESS,
}
"""What the response of "/" lists."""


class App(Backend):
    """The service: the backend and its endpoints."""

    def __init__(self, config: Config, *, clock: Callable[[], datetime] = now, ssh_listener: socket.socket | None = None) -> None:
        super().__init__(config, clock=clock)
        served_documents.serve_documents(self.graph, config)
        documents = served_documents.list_operations(self.graph)
        metrics = Metrics(partial(read_backlog, self.database, clock, self.graph.services.build_analytics))
        git_command.set_limits(config.git_limits)
        transport = config.create_transport()
        access = GitAccess(self.graph.services)
        artifact_access = ArtifactAccess(self.graph.services)
        self._git_endpoint = git_http.GitHttpEndpoint(access, transport)
        self._ssh_server = _create_ssh_server(config, access, transport, ssh_listener, metrics) if ssh_listener else None
        ssh_keys = self._ssh_server.public_keys if self._ssh_server is not None else None
        self._host_registry = HostRegistry(config, self.database, self.key, ssh_keys)
        required = {
            "database": create_database_check(self.database),
            **({"hosts": self._host_registry.check} if self._host_registry.is_needed else {}),
        }
        readiness = ReadinessEndpoint(
            {
                **required,
                "repositories": create_folder_check(config.repositories),
                **{f"{name} bucket": create_store_check(store) for name, store in self.stores.items() if store.is_remote},
            },
            needed_for_reads=required,
        )
        self.graph.services.health_checks.register(readiness.find_problems)
        old_ids = read_old_ids(config)
        rest = self._rest = rest_v3.create_app(self.graph, external_url=config.base_url, profile=config.v3_profile, old_ids=old_ids)
        runner_api = ci_v1.create_app(self.graph, artifact_access, external_url=config.base_url)
        queries = named_queries.NamedQueriesEndpoint(self.graph)
        uploads = upload_downloads.UploadDownloadEndpoint(self.graph, self.uploads)
        artifacts = artifact_uploads.ArtifactUploadEndpoint(artifact_access)
        files_of_artifacts = artifact_files.ArtifactFileEndpoint(self.graph)
        pages = PagesApp(config.base_url)
        paths = INDEX_PATHS | ({"metrics": METRICS} if config.metrics else {})
        self._router = AppRouter(
            (
                AppRoute(GRAPHQL, make_graphql_app(self.graph), GRAPHQL, is_api=True, takes_websockets=True),
                AppRoute(f"{REST_V3}/*", rest, is_api=True),
                AppRoute(f"{ci_v1.BASE}/*", runner_api, is_api=True),
                AppRoute("/q", queries, is_api=True),
                AppRoute("/q/", queries, is_api=True),
                AppRoute(named_queries.PATH_PATTERN, queries, is_api=True),
                AppRoute(upload_downloads.PATH_PATTERN, uploads, "/:namespace/:project/uploads/:secret/:name", is_api=True, is_secret=True),
                AppRoute(artifact_uploads.PATH_PATTERN, artifacts, "/-/artifacts/:ticket", is_api=True, is_secret=True),
                AppRoute(artifact_files.PATH_PATTERN, files_of_artifacts, ARTIFACT_FILE, is_api=True),
                AppRoute(git_http.PATH_PATTERN, self._git_endpoint),
                AppRoute(f"{GRAPHIQL}/*", GraphiqlApp(config.base_url), GRAPHIQL),
                AppRoute(f"{REFERENCE}/*", ReferenceApp(config.base_url), REFERENCE),
                AppRoute(HEALTH, answer_liveness, HEALTH),
                AppRoute(READINESS, readiness, READINESS),
                *([AppRoute(METRICS, metrics, METRICS)] if config.metrics else []),
                AppRoute("/", IndexEndpoint(config.base_url, paths, pages), "/"),
                AppRoute(FAVICON_PATH, pages),
                AppRoute(f"{FILES_PATH}*", pages),
                AppRoute(PAGE_PATTERN, pages),
                AppRoute(MISSING_PAGE_PATTERN, pages),
            )
        )
        self.graph.services.broadcaster.on_count_change = metrics.set_streams
        with_middleware = RequestMiddleware(self._dispatch, metrics, is_unavailable)
        self._cors = CorsMiddleware(with_middleware, config.cors_origins, config.base_url, self._router.is_api_path)
        self._deliverer = DeliveryWorker(self.graph.services, on_attempt=metrics.count_delivery)
        services, accounts = self.graph.services, self.database.account_tables
        limit_sharing = LimitSharing(services)
        notifications = Notifications(
            self.database,
            {
                services.broadcaster.channel: services.broadcaster.wake,
                accounts.channel: accounts.invalidate,
                limit_sharing.channel: limit_sharing.receive,
                services.runner_queue.channel: services.runner_queue.receive,
                services.trace_feeds.channel: services.trace_feeds.receive,
            },
        )
        self._task_runner = TaskRunner(
            {
                "deliveries": self._deliverer.run,
                "maintenance": partial(maintenance.run, self.graph.services),
                "notifications": notifications.run,
                "live": partial(services.broadcaster.run, self.database, notifications),
                "access of streams": repeat_every(stream_access.CHECK_SECONDS, partial(stream_access.end_hidden_streams, services)),
                "limits": partial(limit_sharing.run, notifications),
                "traces": partial(services.trace_feeds.run, notifications),
                "waiting runners": partial(services.runner_queue.run, notifications),
                "token uses": repeat_every(token_uses.WRITE_SECONDS, partial(token_uses.write_uses, self.graph.services)),
                "old events": repeat_every(SWEEP_SECONDS, self._deliverer.sweep),
                "objects of no build": repeat_every(SWEEP_SECONDS, partial(stored_objects.erase_orphans, self.graph.services)),
                "files of no upload": repeat_every(SWEEP_SECONDS, partial(remove_orphans, self.graph.services)),
                "imports": partial(merge_request_imports.run_forever, self.graph.services),
                "project imports": partial(project_imports.run_forever, self.graph.services),
                # An import that a crash interrupted, above all of the last process.
                "unfinished indexes": repeat_every(SWEEP_SECONDS, partial(commit_index.index_unfinished, self.graph.services)),
                # The process that serves a request for metrics reports those of all processes.
                "caches": repeat_every(CACHE_METRICS_SECONDS, metrics.update_cache_gauges),
                **{name: repeat_every(seconds, job) for name, (seconds, job) in pack_jobs.list_jobs(self.graph.services).items()},
                "heartbeat": self._host_registry.run,
                **({"warm up": partial(warm_up, self.graph, documents, rest.list_queries())} if config.warm_up else {}),
                **({"directory": partial(directory_sync.run_forever, services)} if services.directory is not None else {}),
                **({"analytics": services.build_analytics.run_forever} if services.build_analytics is not None else {}),
                "old changes": repeat_every(SWEEP_SECONDS, partial(change_pruning.prune, services, config.change_retention)),
                "packing": repeat_every(REPACK_SECONDS, partial(repack_repositories, self.graph.services)),
                "collection of objects": repeat_every(REPACK_SECONDS, partial(collect_objects, self.graph.services)),
            },
            services.job_monitor,
        )

    async def start(self, *, may_migrate: bool = True) -> None:
        await super().start(may_migrate=may_migrate)
        await self._host_registry.join()
        await move_to_buckets(self)
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
        await self._close_in_time("token uses", token_uses.write_uses(self.graph.services))
        await self._close_in_time("deliveries", self._deliverer.close())
        await self._close_in_time("heartbeat", self._host_registry.leave())
        await super().stop()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        else:
            if scope["path"].startswith("//"):
                self._router.drop_leading_slashes(scope)
            await self._cors(scope, receive, send)

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        try:
            await self.start()
        except Exception as error:
            is_expected = is_unavailable(error) or isinstance(
                error, (ConfigError, ForeignBucket, HostRefused, DatabaseTooNew, HostsRunning)
            )
            self._log.error("startup failed", exc_info=None if is_expected else error)
            with contextlib.suppress(Exception):
                await self.stop()
            await send({"type": "lifespan.startup.failed", "message": _startup_error_message(error)})
            return
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self.stop()
        await send({"type": "lifespan.shutdown.complete"})

    async def _dispatch(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"]
        route = self._router.find(path)
        if route is not None and route.is_secret:
            # Also for a request that is refused here.
            scope["state"] |= {"secret_path": True, "route": route.name}
        if route is None or (not route.takes_websockets and scope["type"] == "websocket"):
            await send_not_found(scope, receive, send)
            return
        if scope.get("method") == "OPTIONS" and route.is_api and self._cors.is_preflight(scope):
            scope["state"]["route"] = PREFLIGHT
            if route.endpoint is self._rest and self._rest.has_secret_path(scope):
                scope["state"]["secret_path"] = True
            await self._cors.answer_preflight(scope, receive, send)
            return
        if route.name:
            scope["state"]["route"] = route.name
        if route.mount_path:
            scope["root_path"] = scope.get("root_path", "") + route.mount_path
        await route.endpoint(scope, receive, send)


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


def _startup_error_message(error: Exception) -> str:
    if is_unavailable(error) and not isinstance(error, ObjectStoreUnavailable):
        return f"the database cannot be reached ({type(error).__name__}): is it running, and is FORGEFRONT_DATABASE_URL right?"
    return f"the service cannot start: {error}"
