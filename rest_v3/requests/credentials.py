"""Credentials of v3 (docs/decisions.md 3): the parameter `private_token`, PRIVATE-TOKEN, or `Authorization: Bearer`."""

from collections.abc import Mapping
from typing import Any

from rest_v3.requests.values import is_blank


def read_credential(headers: Mapping[bytes, bytes], parameter: Any) -> str | None:
    """The caller's credential, or None.

    The parameter wins over the headers, even when it is invalid (docs/wire-facts.md 1.1). A malformed token is "", which no user has.
    """
    if parameter is not None:
        return parameter if isinstance(parameter, str) and _is_printable(parameter) else ""
    token = headers.get(b"private-token")
    if token is None:
        scheme, _, token = headers.get(b"authorization", b"").partition(b" ")
        if scheme.lower() != b"bearer":
            return None
    credential = token.strip().decode("latin-1")
    return credential if _is_printable(credential) else ""


def _is_printable(token: str) -> bool:
    return not is_blank(token) and token.isascii() and token.isprintable() and len(token) <= 512
