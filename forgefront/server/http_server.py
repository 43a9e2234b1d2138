"""One server process: listens, starts an app, serves it, and shuts down gracefully.

It accepts connections before the app is loaded, which takes most of the start (`forgefront/server/deferred_app.py`).

At SIGTERM or SIGINT it accepts no new connections, lets running requests end (`stop_timeout`), then closes the app, and the process exits
with 0, within 15 seconds in any case. A second SIGINT does not wait for the requests.
"""

import asyncio
import contextlib
import gc
import os
import signal
import socket
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from types import FrameType

import structlog
import uvicorn
from starlette.types import ASGIApp
from uvicorn.lifespan.off import LifespanOff

from forgefront import logs
from forgefront.config import Config
from forgefront.server.deferred_app import DeferredApp
from forgefront.server.heap import limit_heap
from forgefront.server.http_connection import ConnectionTimeouts, HttpConnection, create_connection_class
from forgefront.server.huge_pages import use_huge_pages
from forgefront.server.listeners import create_listener, raise_file_limit
from forgefront.server.websocket_connection import WebSocketConnection, create_websocket_class

MAX_ACCEPTS_PER_ROUND = 16
"""Connections accepted in one iteration of the event loop, by all processes together. The loop accepts one for each listening socket, and
an iteration of a busy one takes as long as all requests that arrived meanwhile: the last of many concurrent clients would wait for many
iterations."""
SWEEP_SECONDS = 1.0
"""Seconds between two looks for slow connections."""
COLLECTION_SECONDS = 3600.0
"""Seconds between full garbage collections. Streams leave objects that are too old for the partial ones."""
HUGE_PAGES_AFTER = (20.0, 60.0, 180.0)
"""Seconds after the start when the heap is moved to huge pages, and again after each full collection. Not more often: memory that a large
question takes for a moment would be moved too, and other threads that allocate wait meanwhile."""
HUGE_PAGES_PAUSE = 0.02
"""Seconds between two pages, in which the event loop can allocate memory."""
CLOSING_SECONDS = 4.0
"""Seconds that closing the app may take beyond `stop_timeout` before the process is killed."""

AppFactory = Callable[[Config], ASGIApp]
ReadyCallback = Callable[[Config], None]


def run(config: Config, *, build: AppFactory | None = None, on_ready: ReadyCallback | None = None) -> None:
    """Serves until it is stopped; returns after a clean shutdown.

    `on_ready` is called, in a thread, once the app serves requests, with the configuration in which the port and the external address are
    final. Raises ConfigError when the address cannot be bound, SystemExit(1) when the app cannot start (the log says why), and what `build`
    raises.
    """
    logs.configure(config.log_format, config.log_level)
    for problem in config.describe_unknown_variables():
        structlog.get_logger().warning("unknown variable", problem=problem)
    listener = create_listener(config.host, config.port)
    others: tuple[socket.socket, ...] = ()
    if build is None:
        build = _build_service
        if config.ssh_port is not None:
            ssh_listener = create_listener(config.ssh_host or config.host, config.ssh_port)
            config = config.model_copy(update={"ssh_port": ssh_listener.getsockname()[1]})
            # A socket that is passed to worker processes, like the HTTP socket.
            build, others = partial(_build_service, ssh_listener=ssh_listener), (ssh_listener,)
    # model_copy, since reading the sources again would restore the old port.
    config = config.model_copy(update={"port": listener.getsockname()[1]})
    config = config.model_copy(update={"external_url": config.base_url})
    if config.workers > 1:
        from forgefront.server.worker_processes import run_workers

        run_workers(config, (listener, *others), build, on_ready)
    else:
        serve(config, listener, build, on_ready)


def _build_service(config: Config, ssh_listener: socket.socket | None = None) -> ASGIApp:
    # Imported when it is built, by which time connections are accepted; a program with its own app need not load the service at all.
    from forgefront.app import create_app

    return create_app(config, ssh_listener=ssh_listener)


def serve(
    config: Config, listener: socket.socket, build: AppFactory, on_ready: ReadyCallback | None = None, *, accepts_early: bool = True
) -> None:
    """Serves in this process, until SIGTERM or SIGINT. `accepts_early`: from the beginning, instead of when the app has started.

    Raises as `run`.
    """
    # Objects of imported modules are never freed, so the collections of the start need not traverse it.
    gc.freeze()
    raise_file_limit()
    limit_heap()
    times = ConnectionTimeouts(header=config.header_timeout, idle=config.body_timeout, keep_alive=config.keep_alive_timeout)
    app = DeferredApp(partial(build, config))
    settings = uvicorn.Config(
        app,
        http=create_connection_class(times),
        ws=create_websocket_class(times),
        lifespan="on",
        interface="asgi3",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=bool(config.trusted_proxies),
        forwarded_allow_ips=list(config.trusted_proxies),
        ws_max_size=1024 * 1024,
        ws_per_message_deflate=False,
        timeout_graceful_shutdown=config.stop_timeout,
    )
    server = ForgefrontServer(
        settings,
        app,
        config.base_url,
        config.stop_timeout,
        accepts_early=accepts_early,
        on_ready=lambda: on_ready(config) if on_ready else None,
    )
    # Not by `listener.dup()`, which would make the socket blocking, also for the other processes that share it.
    others = [socket.socket(fileno=os.dup(listener.fileno())) for _ in range(MAX_ACCEPTS_PER_ROUND // config.workers - 1)]
    server.run(sockets=[listener, *others])
    if server.failure is not None:
        raise server.failure


class ForgefrontServer(uvicorn.Server):
    """uvicorn's server, which also starts its app while it serves, closes slow connections, tunes the garbage collector, and exits with 0.

    `failure` is why the app could not be built or started; the server has stopped then.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        app: DeferredApp,
        address: str,
        stop_timeout: float,
        *,
        accepts_early: bool,
        on_ready: Callable[[], None],
    ) -> None:
        super().__init__(config)
        self._app = app
        self._address = address
        self._stop_timeout = stop_timeout
        self._accepts_early = accepts_early
        self._on_ready = on_ready
        self._starting: asyncio.Task[None] | None = None
        self._sweeper: asyncio.Task[None] | None = None
        self.failure: BaseException | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        if self._accepts_early:
            await self._listen(sockets)
            self._starting = asyncio.create_task(self._start(None))
        else:
            await self._start(partial(self._listen, sockets))

    async def _start(self, listen: Callable[[], Awaitable[None]] | None) -> None:
        """Builds and starts the app, and then calls `listen`. An error becomes `failure`, and stops the server."""
        try:
            await self._app.build_app()
            if not self.should_exit:
                await self.lifespan.startup()
                if self.lifespan.should_exit:
                    # Not uvicorn's STARTUP_FAILURE, which is 3: that is the exit code of an import that left something behind.
                    raise SystemExit(1)
            if listen is not None:
                await listen()
            if not self.should_exit:
                await self._announce()
        except (Exception, SystemExit) as error:
            self.failure, self.should_exit = error, True
            self._app.refuse_requests()

    async def _listen(self, sockets: list[socket.socket] | None) -> None:
        lifespan = self.lifespan
        self._disable_lifespan()
        await super().startup(sockets)
        self.lifespan = lifespan
        self._sweeper = asyncio.create_task(self._maintain())

    def _disable_lifespan(self) -> None:
        """Makes uvicorn's next call of the lifespan do nothing. Connections share its state."""
        disabled = LifespanOff(self.config)
        disabled.state = self.lifespan.state
        self.lifespan = disabled

    async def _announce(self) -> None:
        # Objects created by now (the schema, the prepared operations, the routes) live to the end and need no collection.
        gc.collect()
        gc.freeze()
        # The young generations hold 30,000 objects at most, since the event loop waits while they are collected: some 20 ms. The old one is
        # collected where it grows (graph/documents/document_cache.py).
        gc.set_threshold(10_000, 2, 3_000)
        structlog.get_logger().info("ready", process=os.getpid(), address=self._address)
        # The greeting reads the database, while requests are served.
        await asyncio.to_thread(self._on_ready)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        log = structlog.get_logger()
        if self.failure is None:
            log.info("stopping", process=os.getpid(), running=len(self.server_state.tasks))
        if not self._app.has_started:
            self._app.refuse_requests()
        if self._starting is not None and self._app.is_built:
            # A start that has begun is completed, since what is half-started cannot be stopped.
            await self._starting
        self._app.begin_shutdown(self._stop_timeout)
        if not self._app.has_started:
            self._disable_lifespan()
        await super().shutdown(sockets)
        if self._sweeper is not None:
            self._sweeper.cancel()
        if self.failure is None:
            log.info("stopped", process=os.getpid())
            if not self._app.is_built:
                # The thread that builds it cannot be interrupted. A start can be killed at any time, and this is early in one.
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(0)

    async def _maintain(self) -> None:
        """Closes slow connections every second, collects garbage every COLLECTION_SECONDS, and moves the heap to huge pages.

        Errors are logged and do not end this task: without it slow clients would stay connected.
        """
        loop = asyncio.get_running_loop()
        collected_at = loop.time()
        moves = [collected_at + seconds for seconds in HUGE_PAGES_AFTER]
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            try:
                self._close_slow_connections(loop.time())
                if loop.time() - collected_at >= COLLECTION_SECONDS:
                    gc.collect()
                    collected_at = loop.time()
                    moves = [collected_at]
                if moves and loop.time() >= moves[0]:
                    del moves[0]
                    await asyncio.to_thread(use_huge_pages, HUGE_PAGES_PAUSE)
            except Exception as error:
                structlog.get_logger().error("maintenance of the process failed", exc_info=error)

    def _close_slow_connections(self, now: float) -> None:
        for connection in list(self.server_state.connections):
            if isinstance(connection, HttpConnection | WebSocketConnection):
                connection.enforce_timeouts(now)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """As uvicorn's, but does not raise the signal again at the end: a process that stopped as requested exits with 0."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self.handle_exit) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if not self.should_exit:
            exit_by_force_after(self._stop_timeout + CLOSING_SECONDS)
        super().handle_exit(sig, frame)


def exit_by_force_after(seconds: float) -> None:
    """Kills the process, with exit code 1, if it still runs then: a thread blocked in a file system would keep it alive."""

    def end() -> None:
        structlog.get_logger().error("shutdown timed out; process killed", seconds=seconds)
        os._exit(1)

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()
