"""Basic credentials (RFC 7617), of which only the password counts: it is a private token, with any user name."""

import base64
import binascii


def read_basic_password(authorization: str) -> str | None:
    """The password of an Authorization header; None without one, or with another scheme."""
    scheme, _, value = authorization.partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        decoded = base64.b64decode(value.strip(), validate=True)
    except (binascii.Error, ValueError):
        return None
    return decoded.decode("utf-8", "replace").partition(":")[2] or None
