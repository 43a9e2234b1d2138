"""Secrets of which output has only the beginning so far. The runner imports this too, so it imports nothing."""

from typing import AnyStr

MIN_SECRET_LENGTH = 8
"""Characters. Masking shorter values would garble the output, and the masks would reveal the values."""


def overlap_length(output: AnyStr, secret: AnyStr) -> int:
    """Length of the longest suffix of the output that is a proper prefix of the secret, in characters or bytes.

    >>> overlap_length(b"xabcabcd", b"abcdefgh"), overlap_length(b"xabcdefg", b"abcdefghi"), overlap_length("x", "abcdefgh")
    (4, 7, 0)
    """
    head = secret[:MIN_SECRET_LENGTH]
    start = output.find(head, max(0, len(output) - len(secret) + 1))
    while start >= 0:
        if secret.startswith(output[start:]):
            return len(output) - start
        start = output.find(head, start + 1)
    return next((length for length in range(len(head) - 1, 0, -1) if output.endswith(head[:length])), 0)
