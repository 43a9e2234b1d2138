"""Parses the segments of a path: ids, and paths of projects and groups."""

from urllib.parse import quote

from rest_v3.requests.values import MAX_INT

UNMATCHABLE = "\ufffd"
"""Replaces a path segment that is not UTF-8 or contains NUL: no project, branch or commit has this name."""


def is_id(raw: str) -> bool:
    """Whether a path segment is ASCII digits in the range of ids."""
    return len(raw) <= 10 and raw.isascii() and raw.isdigit() and int(raw) <= MAX_INT


def read_id(raw: str) -> int:
    """The id in a path segment; 0, which no resource has, for anything but ASCII digits in 1..2147483647.

    The graph then returns 404 in the usual order, after 401 and the project's own 404.
    """
    return int(raw) if is_id(raw) else 0


def quote_segment(segment: str) -> str:
    """The segment as it stands in an address: what is not a letter or a digit is percent-encoded."""
    return segment if segment.isascii() and segment.isalnum() else quote(segment, safe="")


def read_project_or_group(raw: str) -> str:
    """A v3 id in digits, or a full path. Digits out of range become "0", which no resource has."""
    if raw.isdigit() and (not raw.isascii() or len(raw) > 10 or int(raw) > MAX_INT):
        return "0"
    return read_path_string(raw)


def read_path_string(raw: str) -> str:
    """The segment; UNMATCHABLE if it contains NUL."""
    return UNMATCHABLE if "\0" in raw else raw
