"""Search terms: strings that are looked for inside columns."""

from graph.errors import BadRequest

MAX_SEARCH = 1_000
"""Characters. SQLite refuses patterns of 50,000 bytes, and matching one takes time in line with its length for every row."""


def search_term(text: str) -> str:
    """The string to look for. Raises BadRequest for one that is too long."""
    if len(text) > MAX_SEARCH:
        raise BadRequest(f"`search` has {len(text):,} characters, and {MAX_SEARCH:,} are allowed. Search for a shorter part.")
    return text
