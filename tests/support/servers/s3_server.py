"""An S3 server for tests: moto's, in a process of its own."""

import subprocess
import sys
import time
from collections.abc import Iterator

import httpx
import pytest

from tests.support.database.databases import free_port

SETTINGS = {"access_key_id": "nobody", "secret_access_key": "secret", "region": "us-east-1"}
"""Any credentials are accepted."""


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of moto's S3 server, in a process of its own, with a bucket `forge`."""
    port = free_port()
    log = tmp_path_factory.mktemp("s3") / "log"
    with log.open("wb") as errors:
        command = [sys.executable, "-c", "from moto.server import main; main()", "-H", "127.0.0.1", "-p", str(port)]
        process = subprocess.Popen(command, stdout=errors, stderr=errors)
    try:
        url = f"http://127.0.0.1:{port}"
        for _ in range(1200):
            try:
                if httpx.put(f"{url}/forge").status_code == 200:
                    break
            except httpx.TransportError:
                time.sleep(0.05)
        else:
            pytest.fail(log.read_text())
        yield url
    finally:
        process.terminate()
        process.wait(10)
