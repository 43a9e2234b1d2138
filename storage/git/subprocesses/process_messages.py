"""Messages between the service and its own processes, over pipes."""

import marshal
from typing import IO, Any

_LENGTH_BYTES = 8


def write_message(stream: IO[bytes], message: Any) -> None:
    """Writes what marshal can, after its length in bytes."""
    body = marshal.dumps(message)
    stream.write(len(body).to_bytes(_LENGTH_BYTES, "big") + body)
    stream.flush()


def read_message(stream: IO[bytes]) -> Any:
    """Reads what `write_message` wrote. Raises EOFError when the stream ends before."""
    head = stream.read(_LENGTH_BYTES)
    length = int.from_bytes(head, "big")
    body = stream.read(length)
    if len(head) < _LENGTH_BYTES or len(body) < length:
        raise EOFError
    return marshal.loads(body)  # noqa: S302 - written by our own process
