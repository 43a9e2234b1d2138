"""Content codings of responses (RFC 9110, section 12.5.3)."""

import re

_ZERO_WEIGHT = re.compile(r"\s*q\s*=\s*0(\.0*)?\s*")


def accepts_gzip(header: str) -> bool:
    """Whether Accept-Encoding names gzip without the weight 0."""
    for each in header.lower().split(","):
        coding, _, weight = each.partition(";")
        if coding.strip() == "gzip":
            return _ZERO_WEIGHT.fullmatch(weight) is None
    return False
