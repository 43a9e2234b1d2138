"""A server whose claims run out after a second, so that a test can kill it: run with `python -m`. Prints its port when it is ready."""

from datetime import timedelta

from forgefront import server
from forgefront.app import App
from forgefront.config import Config
from graph.events import deliver

if __name__ == "__main__":
    deliver.LEASE = timedelta(seconds=1)
    server.run(Config.load(), build=App, on_ready=lambda config: print(config.port, flush=True))
