"""The whole service as one ASGI app: which path goes to which door, what happens at start and stop."""

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
from forgefront import artifacts, documents, health, questions, uploads
from forgefront.config import Config
from forgefront.cors import Cors
from forgefront.engine import Engine
from forgefront.git_http import GitHttp
from forgefront.health import Readiness, database_answers, folder_is_writable
from forgefront.metrics import Metrics
from forgefront.middleware import Attend
from forgefront.pages import Pages
from forgefront.pages.graphiql import ROUTE as GRAPHIQL
from forgefront.pages.graphiql import GraphiqlDoor
from forgefront.pages.reference import ROUTE as REFERENCE
from forgefront.pages.reference import ReferenceDoor
from forgefront.worker import Worker, every
from graph import upkeep
from graph.artifact_access import ArtifactAccess
from graph.backlog import read_backlog
from graph.events.deliver import Deliverer
from graph.git_access import GitAccess
from graph.http import door
from graph.packing import pack_scattered
from graph.rules import merge_request_imports, objects
from graph.rules.uploads import sweep
from storage.database import is_unavailable, now
from storage.git import program
from storage.git.limits import MEGABYTE
from storage.git.transport import Transport

if TYPE_CHECKING:
    from forgefront.ssh import SshDoor

GRAPHQL = "/graphql"
REST = "/api/v3"
PREFLIGHT = "preflight"
SWEEP_SECONDS = 3600.0
PACKING_SECONDS = 600.0
CACHES_SECONDS = 15.0


class App(Engine):
    """The service: the engine and its doors."""

    def __init__(self, config: Config, *, clock: Callable[[], datetime] = now, ssh_listener: socket.socket | None = None) -> None:
        super().__init__(config, clock=clock)
        documents.serve(self.graph, config)
        metrics = Metrics(partial(read_backlog, self.database, clock))
        self._graphql = door(self.graph)
        self._exact: dict[str, ASGIApp] = {
            "/": self._index,
            "/-/health": health.live,
            "/-/readiness": Readiness(
                {"database": database_answers(self.database), "repositories": folder_is_writable(config.repositories)}
            ),
        }
        if config.metrics:
            self._exact["/-/metrics"] = metrics
        self._graphiql = GraphiqlDoor(config.base_url)
        self._reference = ReferenceDoor(config.base_url)
        self._pages = Pages(config.base_url)
        self._questions = questions.Questions(self.graph)
        self._uploaded = uploads.UploadDoor(self.graph, self.uploads)
        artifact_access = ArtifactAccess(self.graph.services)
        self._artifacts = artifacts.ArtifactDoor(artifact_access)
        self._mounted: dict[str, ASGIApp] = {
            REST: rest_v3.application(self.graph, external_url=config.base_url, profile=config.v3_profile),
            ci_v1.BASE: ci_v1.application(self.graph, artifact_access, external_url=config.base_url),
        }
        program.set_limits(config.git_limits)
        transport = Transport(
            processes=config.git_processes,
            largest_push=config.largest_push * MEGABYTE,
            largest_object=config.largest_object * MEGABYTE,
            indexing=config.git_indexing,
            fetch_limits=config.git_limits,
            push_limits=config.push_limits,
        )
        access = GitAccess(self.graph.services)
        self._git = GitHttp(access, transport)
        self._ssh = _ssh_door(config, access, transport, ssh_listener, metrics) if ssh_listener else None
        self.graph.services.live.counted = metrics.tell_streams
        attended = Attend(self._dispatch, metrics, is_unavailable)
        self._cors = Cors(attended, config.cors_origins, config.base_url, self._is_for_programs)
        self._deliverer = Deliverer(self.graph.services, on_attempt=metrics.count_delivery)
        self._worker = Worker(
            {
                "deliveries": self._deliverer.run,
                "upkeep": partial(upkeep.run, self.graph.services),
                "live": partial(self.graph.services.live.run, self.database),
                "old events": every(SWEEP_SECONDS, self._deliverer.sweep),
                "objects of no build": every(SWEEP_SECONDS, partial(objects.sweep, self.graph.services)),
                "files of no upload": every(SWEEP_SECONDS, partial(sweep, self.graph.services)),
                "imports": partial(merge_request_imports.run, self.graph.services),
                # Of several processes one is asked for the metrics of all.
                "caches": every(CACHES_SECONDS, metrics.measure_caches),
                "packing": every(PACKING_SECONDS, partial(pack_scattered, self.graph.services)),
            }
        )

    async def start(self) -> None:
        await super().start()
        self._worker.start()
        if self._ssh is not None:
            await self._ssh.start()

    def leave_off(self, seconds: float) -> None:
        """Called when a stop begins, before requests that run have ended: over SSH nothing new is taken, and what runs has this long.

        Runners that wait for builds are answered, and streams end: whoever reads one goes on elsewhere.
        """
        self.graph.services.line.close()
        self.graph.services.live.close()
        if self._ssh is not None:
            self._ssh.leave_off(seconds)

    async def stop(self) -> None:
        if self._ssh is not None:
            await self._ssh.close()
        await self._in_time("pushes", self._git.close())
        await self._in_time("worker", self._worker.stop())
        await self._in_time("deliveries", self._deliverer.close())
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
            self._log.error("cannot start", exc_info=None if is_unavailable(error) else error)
            with contextlib.suppress(Exception):
                await self.stop()
            await send({"type": "lifespan.startup.failed", "message": _why(error)})
            return
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self.stop()
        await send({"type": "lifespan.shutdown.complete"})

    async def _dispatch(self, scope: Scope, receive: Receive, send: Send) -> None:
        path: str = scope["path"]
        if scope.get("method") == "OPTIONS" and self._cors.is_preflight(scope) and self._is_for_programs(path):
            # Whoever has the address of an artifact may use it, so the log does not have it.
            scope["state"] |= {"route": PREFLIGHT, "secret_path": self._artifacts.matches(path)}
            await self._cors.preflight(scope, receive, send)
            return
        if path == GRAPHQL:
            # The most used one, before all others are asked.
            scope["state"]["route"] = path
            await self._graphql(scope, receive, send)
            return
        for base, mounted in self._mounted.items():
            if path.startswith(base) and path[len(base) :][:1] in ("", "/"):
                # As Starlette mounts: the path stays whole, root_path says how much of it is ours.
                scope["root_path"] = scope.get("root_path", "") + base
                await mounted(scope, receive, send)
                return
        if scope["type"] == "http" and self._questions.matches(path):
            await self._questions(scope, receive, send)
            return
        if scope["type"] == "http" and self._uploaded.matches(path):
            scope["state"]["route"] = uploads.ROUTE
            await self._uploaded(scope, receive, send)
            return
        if scope["type"] == "http" and self._artifacts.matches(path):
            scope["state"] |= {"route": artifacts.ROUTE, "secret_path": True}
            await self._artifacts(scope, receive, send)
            return
        if self._graphiql.serves(scope):
            await self._graphiql(scope, receive, send)
            return
        if self._reference.serves(scope):
            await self._reference(scope, receive, send)
            return
        found = self._exact.get(path)
        if found is None and self._git.serves(scope):
            await self._git(scope, receive, send)
            return
        if self._pages.serves(scope):
            await self._pages(scope, receive, send)
            return
        if found is None:
            await _not_found(scope, receive, send)
            return
        scope["state"]["route"] = path
        await found(scope, receive, send)

    def _is_for_programs(self, path: str) -> bool:
        """Whether the path belongs to an interface that pages of other origins may call."""
        return (
            path == GRAPHQL
            or any(path.startswith(base) and path[len(base) :][:1] in ("", "/") for base in self._mounted)
            or self._questions.matches(path)
            or self._uploaded.matches(path)
            or self._artifacts.matches(path)
        )

    async def _index(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] not in ("GET", "HEAD"):
            await _refuse(scope, receive, send, 405, "405 Method Not Allowed", {"Allow": "GET, HEAD"})
            return
        base = self.config.base_url
        addresses: dict[str, Any] = {
            "name": "Forgefront",
            "version": version("forgefront"),
            "graphql": f"{base}{GRAPHQL}",
            "graphiql": f"{base}{GRAPHIQL}",
            "reference": f"{base}{REFERENCE}",
            "rest_v3": f"{base}{REST}",
            "openapi": f"{base}{REST}/openapi.json",
            "health": f"{base}/-/health",
            "readiness": f"{base}/-/readiness",
        }
        if self.config.metrics:
            addresses["metrics"] = f"{base}/-/metrics"
        await JSONResponse(addresses, headers={"Vary": "Accept"})(scope, receive, send)


def build(config: Config, *, ssh_listener: socket.socket | None = None) -> App:
    """The service for this configuration. It touches the data folder, but not the database before it is started."""
    return App(config, ssh_listener=ssh_listener)


def _ssh_door(config: Config, access: GitAccess, transport: Transport, listener: socket.socket, metrics: Metrics) -> "SshDoor":
    # Only where it is wanted: the library takes 20 MB.
    from forgefront import ssh_host_keys
    from forgefront.ssh import SshDoor

    keys = ssh_host_keys.load(config.data, config.ssh_host_keys)
    return SshDoor(access, transport, listener, keys, count=metrics.count_command, running=metrics.tell_connections)


async def _not_found(scope: Scope, receive: Receive, send: Send) -> None:
    await _refuse(scope, receive, send, 404, "404 Not Found")


async def _refuse(scope: Scope, receive: Receive, send: Send, status: int, message: str, headers: dict[str, str] | None = None) -> None:
    if scope["type"] == "websocket":
        # Closing before accepting is a refusal with 403.
        await receive()
        await send({"type": "websocket.close", "code": 1000})
    else:
        await JSONResponse({"message": message}, status, headers)(scope, receive, send)


def _why(error: Exception) -> str:
    if is_unavailable(error):
        return f"the database cannot be reached ({type(error).__name__}): is it running, and is FORGEFRONT_DATABASE_URL right?"
    return f"the service cannot start: {error}"
