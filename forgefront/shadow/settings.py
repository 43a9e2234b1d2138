"""What `forgefront shadow` was started with, for both of its processes."""

from dataclasses import asdict, dataclass
from typing import Any, Self
from urllib.parse import urlsplit

import orjson

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """Where one of the two servers listens."""

    is_tls: bool
    host: str
    port: int

    @classmethod
    def parse(cls, url: str) -> Self:
        """Reads "http://localhost:8080". Raises ValueError, with a message, for a URL that is not the address of a server."""
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError as error:
            raise ValueError(f"{url!r} is not a URL: {error}") from None
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"{url!r} must be an address such as http://localhost:8080")
        if parts.path.strip("/") or parts.query or parts.fragment or parts.username:
            raise ValueError(f"{url!r} must have neither a path nor a user: requests keep the path that the client sent")
        is_tls = parts.scheme == "https"
        return cls(is_tls, parts.hostname, port or (443 if is_tls else 80))

    @property
    def host_header(self) -> str:
        """As in the header Host: without the port if it is that of the scheme."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.is_tls else 80) else f"{host}:{self.port}"

    def __str__(self) -> str:
        return f"{'https' if self.is_tls else 'http'}://{self.host_header}"


@dataclass(frozen=True, slots=True)
class ShadowSettings:
    """Sizes are bytes, times seconds."""

    old: str
    new: str
    rules: str = ""
    """The content of the rules file."""
    ignored: tuple[str, ...] = ()
    """JSONPaths whose differences do not count."""
    ids: str = ""
    """Old and new ids, in lines of kind, old id and new id, separated by tabs."""
    replays_writes: bool = False
    is_switched: bool = False
    """Whether the new server answers, and the old one is the shadow."""
    rewrites_host: bool = False
    """Whether the header Host is that of the server's URL instead of the client's."""
    masks_values: bool = False
    report_file: str | None = None
    report_seconds: float = 60.0
    prints_json: bool = False
    max_body: int = 2 * MIB
    """A longer body is passed on, but not compared."""
    max_queue: int = 64 * MIB
    """Copies that wait for the comparison."""
    copy_seconds: float = 30.0
    """How long the shadow server has for an answer."""
    copies_at_once: int = 8

    @property
    def primary(self) -> ServerAddress:
        """The server that answers."""
        return ServerAddress.parse(self.new if self.is_switched else self.old)

    @property
    def secondary(self) -> ServerAddress:
        """The server that receives copies."""
        return ServerAddress.parse(self.old if self.is_switched else self.new)

    def encode(self) -> bytes:
        return orjson.dumps(asdict(self))

    @classmethod
    def decode(cls, encoded: bytes) -> Self:
        values: dict[str, Any] = orjson.loads(encoded)
        return cls(**{**values, "ignored": tuple(values["ignored"])})
