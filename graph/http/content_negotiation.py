"""Media types of requests and responses: what the GraphQL endpoint accepts, and what it sends (RFC 9110 section 12)."""

from collections.abc import Mapping
from functools import lru_cache

from graph.http.sse import EVENT_STREAM

RESPONSE_JSON = "application/graphql-response+json"
PLAIN_JSON = "application/json"
MAX_CACHED_ACCEPT_LENGTH = 200
"""Longer Accept headers are parsed without the cache."""


def negotiate(accept: str | None) -> tuple[str | None, bool]:
    """Returns the media type of the response, by RFC 9110 section 12.5.1, and whether a stream of events is named as acceptable.

    The type is None if no supported one is acceptable. At equal quality it is application/json, unless another type is named: legacy
    clients accept anything, and know only that.
    """
    if not accept or accept == "*/*":
        return PLAIN_JSON, False
    return _parse_accept(accept) if len(accept) <= MAX_CACHED_ACCEPT_LENGTH else _parse_accept.__wrapped__(accept)


@lru_cache(maxsize=256)
def _parse_accept(accept: str) -> tuple[str | None, bool]:
    quality: dict[str, float] = {}
    for item in accept.split(","):
        kind, *parameters = (part.strip().lower() for part in item.split(";"))
        value = next((parameter[2:].strip() for parameter in parameters if parameter.startswith("q=")), "1")
        try:
            quality[kind] = float(value)
        except ValueError:
            quality[kind] = 0.0
    return _choose_type(quality), quality.get(EVENT_STREAM, 0.0) > 0


def _choose_type(quality: Mapping[str, float]) -> str | None:
    """Returns the supported media type of the highest quality."""

    def quality_of(kind: str) -> float:
        return next((quality[name] for name in (kind, "application/*", "*/*") if name in quality), 0.0)

    response_quality, plain_quality = quality_of(RESPONSE_JSON), quality_of(PLAIN_JSON)
    if quality.get(EVENT_STREAM, 0.0) > max(response_quality, plain_quality):
        return EVENT_STREAM
    if quality.get(EVENT_STREAM, 0.0) > 0 and not {RESPONSE_JSON, PLAIN_JSON, "application/*"} & quality.keys():
        # The stream is named explicitly, all other types only by `*/*`.
        return EVENT_STREAM
    if response_quality > 0 and (response_quality > plain_quality or (response_quality == plain_quality and RESPONSE_JSON in quality)):
        return RESPONSE_JSON
    return PLAIN_JSON if plain_quality > 0 else None


def is_json(content_type: str) -> bool:
    """Whether a content type is JSON in UTF-8."""
    kind, *parameters = (part.strip().lower() for part in content_type.split(";"))
    charsets = [parameter[8:].strip('"') for parameter in parameters if parameter.startswith("charset=")]
    return kind == PLAIN_JSON and all(charset in ("utf-8", "utf8") for charset in charsets)
