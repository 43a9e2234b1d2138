"""Requests that were answered before: dashboards and pages send the same ones again and again."""

from graph.caches import CacheBounds, LruCache
from graph.http.requests import GraphqlRequest

KNOWN_REQUESTS = CacheBounds("requests", max_entries=1_000, max_bytes=4 * 2**20, max_entry_bytes=16 * 2**10)


def request_size(body: bytes, request: GraphqlRequest) -> int:
    """Estimates the memory of an entry in bytes."""
    return 1_200 + 3 * len(body)


class KnownRequests:
    """Parsed requests of queries by their bodies, with what the graph found out about them (`QueryChecks`)."""

    def __init__(self) -> None:
        self._requests: LruCache[bytes, GraphqlRequest] = LruCache(KNOWN_REQUESTS, request_size)

    def find(self, body: bytes) -> GraphqlRequest | None:
        return self._requests.get(body)

    def keep(self, body: bytes, request: GraphqlRequest) -> None:
        self._requests.put(body, request)
