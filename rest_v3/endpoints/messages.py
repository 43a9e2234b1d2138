"""Requests and responses of endpoints, without the interface of the server (ASGI)."""

from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rest_v3.requests.bodies import Receive


@dataclass(slots=True)
class RestRequest:
    """What an endpoint needs of a request. `path_values` are in the order of the route's path parameters."""

    method: str
    path_values: Sequence[str]
    segments: Sequence[str]
    """The whole path below /api/v3, decoded."""
    query: bytes
    headers: Mapping[bytes, bytes]
    receive: Receive
    request_id: str
    state: MutableMapping[str, Any]
    """State that the server reads for the access log: `user_id`."""

    @property
    def declared_length(self) -> int:
        """The length of the body that the header Content-Length declares; 0 without one."""
        length = self.headers.get(b"content-length", b"")
        return int(length[:18]) if length.isdigit() else 0


@dataclass(slots=True)
class RestResponse:
    status: int
    body: bytes
    headers: list[tuple[bytes, bytes]]
    content_type: bytes = field(default=b"application/json", kw_only=True)
