"""A server whose claims expire after a second, so that a test can kill it; run with `python -m`. Prints its port when it is ready."""

from datetime import timedelta

from forgefront.app import App
from forgefront.config import Config
from forgefront.server import http_server
from graph.events import delivery_worker

if __name__ == "__main__":
    delivery_worker.LEASE = timedelta(seconds=1)
    http_server.run(Config.load(), build=App, on_ready=lambda config: print(config.port, flush=True))
