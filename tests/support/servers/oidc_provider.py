"""npm's oidc-provider, for tests of signing in; skips them where node is not installed."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.database.databases import free_port
from tests.support.npm import install_packages

CLIENT_ID = "forgefront"
CLIENT_SECRET = "client & secret"


@contextmanager
def run_oidc_provider(redirect_uri: str) -> Iterator[str]:
    """Runs a provider with one client, and yields its issuer. Its pages accept any login."""
    folder = install_packages(Path(__file__).parent / "oidc_provider_server", "npm's oidc-provider")
    port = free_port()
    command = ["node", "provider.mjs", str(port), redirect_uri]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None and "ready" in process.stdout.readline()
        yield f"http://127.0.0.1:{port}"
        process.terminate()
