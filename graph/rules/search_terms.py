"""Search terms: strings that are looked for inside columns."""

from graph.errors import BadRequest

MAX_SEARCH_LENGTH = 1_000
"""Characters. SQLite refuses patterns of 50,000 bytes, and matching one takes time in line with its length for every row."""


def validate_search(string: str) -> str:
    """The string to look for. Raises BadRequest for one that is too long."""
    if len(string) > MAX_SEARCH_LENGTH:
        raise BadRequest(f"`search` has {len(string):,} characters, and {MAX_SEARCH_LENGTH:,} are allowed. Search for a shorter part.")
    return string
