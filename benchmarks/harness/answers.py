"""Requests outside the load, which check what a server answers."""

import json
import urllib.error
import urllib.request
from typing import Any

from benchmarks.harness.load import LoadRequest
from benchmarks.harness.servers import MeasuredServer


class UnfairError(Exception):
    """Two sides answer different content, so a comparison would mean nothing."""


def fetch(server: MeasuredServer, load_request: LoadRequest) -> Any:
    """The JSON of the first of the requests. Raises UnfairError for an unexpected status."""
    request = urllib.request.Request(
        f"http://127.0.0.1:{server.port}{load_request.paths[0]}",
        method=load_request.method,
        headers=load_request.headers,
        data=load_request.body.encode() if load_request.body is not None else None,
    )
    try:
        with urllib.request.urlopen(request, timeout=30) as response:
            status, body = response.status, response.read()
    except urllib.error.HTTPError as error:
        status, body = error.code, error.read()
    if status != load_request.status:
        raise UnfairError(f"{server.name} answered {status} to {load_request.method} {load_request.paths[0]}: {body[:500]!r}")
    return json.loads(body)
