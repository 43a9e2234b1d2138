"""Exchanges: a request and its answer, as the proxy hands them to the comparison."""

import struct
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Self

import orjson

LENGTHS = struct.Struct("!III")
"""Before each frame: the bytes of its description, of the request's body and of the answer's."""
READ_METHODS = frozenset(("GET", "HEAD"))


class SkipReason(StrEnum):
    """Why an exchange is counted, and not compared."""

    WRITE = "write"
    GIT = "git over HTTP"
    UPGRADE = "upgraded connection"
    TOO_LARGE = "body over the limit"
    EVENT_STREAM = "stream of events"
    CUT_OFF = "answer cut off"
    MALFORMED = "malformed answer"
    DISCONNECTED = "client disconnected"
    NO_ANSWER = "no answer"
    QUEUE_FULL = "queue full"
    NOT_MODIFIED = "not modified"
    OTHER_METHOD = "neither read nor write"


@dataclass(slots=True)
class Exchange:
    """Header names are as they were sent, values decoded from latin-1. Bodies have no transfer coding."""

    method: str
    target: str
    request_headers: list[tuple[str, str]]
    status: int = 0
    response_headers: list[tuple[str, str]] | None = None
    seconds: float = 0.0
    """Time from the first byte of the request to the last of the answer."""
    skip_reason: SkipReason | None = None
    request_body: bytes | bytearray = b""
    response_body: bytes | bytearray = b""
    lost: int = 0
    """How many exchanges before this one were dropped by the queue."""

    @property
    def is_read(self) -> bool:
        return self.method in READ_METHODS

    def encode(self) -> bytes:
        description = {
            "method": self.method,
            "target": self.target,
            "request_headers": self.request_headers,
            "status": self.status,
            "response_headers": self.response_headers,
            "seconds": self.seconds,
            "skip_reason": self.skip_reason,
            "lost": self.lost,
        }
        return encode_frame(description, self.request_body, self.response_body)

    @classmethod
    def decode(cls, description: dict[str, Any], request_body: bytes, response_body: bytes) -> Self:
        reason = description.pop("skip_reason")
        return cls(
            **description,
            skip_reason=None if reason is None else SkipReason(reason),
            request_body=request_body,
            response_body=response_body,
        )


def encode_frame(description: dict[str, Any], request_body: bytes | bytearray = b"", response_body: bytes | bytearray = b"") -> bytes:
    encoded = orjson.dumps(description)
    return b"".join((LENGTHS.pack(len(encoded), len(request_body), len(response_body)), encoded, request_body, response_body))
