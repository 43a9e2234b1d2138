"""Validation of search terms: strings that are matched against columns."""

from graph.errors import BadRequest

MAX_SEARCH_LENGTH = 1_000
"""Characters.

SQLite rejects patterns of 50,000 bytes, and the time to match a row grows with the length of the pattern.
"""


def validate_search(string: str) -> str:
    """Return the search string. Raises BadRequest when it is too long."""
    if len(string) > MAX_SEARCH_LENGTH:
        raise BadRequest(f"`search` has {len(string):,} characters; the limit is {MAX_SEARCH_LENGTH:,}. Use a shorter search term.")
    return string
