"""Entity tags of responses, and the conditional requests that name them (RFC 9110, sections 8.8.3 and 13.1.2)."""

from hashlib import sha256


def make_etag(body: bytes) -> str:
    """The strong tag of a body, in quotes."""
    return f'"{sha256(body).hexdigest()[:32]}"'


def make_weak_etag(content: bytes) -> str:
    """The weak tag of a response that means the same as others with this content."""
    return f"W/{make_etag(content)}"


def matches_etag(if_none_match: str | None, etag: str) -> bool:
    """Whether the client has the response already: its If-None-Match names the tag, by weak comparison, or is `*`."""
    if if_none_match is None:
        return False
    named = (each.strip().removeprefix("W/") for each in if_none_match.split(","))
    return if_none_match.strip() == "*" or etag.removeprefix("W/") in named
