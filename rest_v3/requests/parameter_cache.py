"""The cache of the variables of requests that read: clients repeat their addresses, and the same address always has the same variables."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from graph.caches import CacheBounds, LruCache
from graph.operations.query_checks import QueryChecks

PARAMETER_CACHE_BOUNDS = CacheBounds("v3 parameters", max_entries=2_000, max_bytes=4 * 2**20)
MAX_QUERY_BYTES = 512
"""A longer query string is parsed each time."""

_ENTRY_BYTES, _CHARACTER_BYTES = 1_300, 6
"""The estimated size of an entry with short strings, and of each further character of its key, which its values repeat."""

_Key = tuple[object, tuple[str, ...], bytes]
"""The endpoint, the values in the path, and the query string."""


class RequestParameters(NamedTuple):
    """The values that a request sent, by name, and the variables of the operation. Nobody changes them.

    `checks` are those of the operation with these variables, and with those of the page for a list.
    """

    sent: Mapping[str, Any]
    variables: dict[str, Any]
    checks: QueryChecks


class ParameterCache:
    """The valid parameters of one endpoint. Requests with a credential among their parameters are left to the caller not to store."""

    def __init__(self) -> None:
        self._key = object()

    def get(self, path_values: Sequence[str], query: bytes) -> RequestParameters | None:
        return _PARAMETERS.get((self._key, tuple(path_values), query))

    def put(self, path_values: Sequence[str], query: bytes, parameters: RequestParameters) -> None:
        if len(query) <= MAX_QUERY_BYTES:
            _PARAMETERS.put((self._key, tuple(path_values), query), parameters)


def _estimate(key: _Key, _: RequestParameters) -> int:
    return _ENTRY_BYTES + _CHARACTER_BYTES * (len(key[2]) + sum(len(value) for value in key[1]))


_PARAMETERS: LruCache[_Key, RequestParameters] = LruCache(PARAMETER_CACHE_BOUNDS, _estimate)
