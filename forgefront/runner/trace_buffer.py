"""The output of a build on its way to the service, in bounded memory, with secrets masked."""

import asyncio
import base64
import codecs
from collections.abc import Iterable

from graph.rules.builds.partial_secrets import MIN_SECRET_LENGTH, overlap_length

MAX_BUFFERED_CHARACTERS = 2**20
"""Characters that wait to be sent; a program that prints more is blocked."""
MAX_CHARACTERS_PER_CALL = 2**17
"""Characters in one call. In JSON they may take six times as many bytes, and a call has at most 1 MiB."""
MASK = "[MASKED]"


class TraceBuffer:
    """`offset` is the length of what was sent, in bytes; `limit` the maximum number of bytes to send."""

    def __init__(self, secrets: Iterable[str], *, offset: int = 0, limit: int) -> None:
        masked_values = {secret for secret in secrets if len(secret) >= MIN_SECRET_LENGTH}
        # Programs print the lines of a value with other line ends, or one of them alone.
        lines = {line.strip() for secret in masked_values for line in secret.splitlines()}
        masked_values |= {base64.b64encode(f"gitlab-ci-token:{secret}".encode()).decode() for secret in masked_values}
        masked_values |= {line for line in lines if len(line) >= MIN_SECRET_LENGTH}
        self._secrets = sorted(masked_values)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._limit = limit
        self._raw = ""
        self._masked_length = 0
        """The characters at the beginning of `_raw` that belong to a secret whose mask is in `_ready` already."""
        self._ready = ""
        self._has_room = asyncio.Event()
        self._has_room.set()
        self._is_at_line_start = True
        self.offset = offset
        self.has_data = asyncio.Event()

    async def write(self, data: bytes) -> None:
        """Adds output of a program, in any bytes; waits while the buffer is full."""
        await self._has_room.wait()
        self._add(self._decoder.decode(data))

    def write_line(self, text: str) -> None:
        """Adds a line of the runner, which may contain names of files that are not UTF-8."""
        readable = text.encode(errors="backslashreplace").decode()
        self._add(("" if self._is_at_line_start else "\n") + readable + "\n")

    def finish(self) -> None:
        """Ends the output."""
        self._add(self._decoder.decode(b"", final=True))
        self._mask(len(self._raw))

    def next_chunk(self) -> str:
        """The next chunk to send, the same until `mark_sent`; empty if there is none."""
        self._mask(len(self._raw) - self._partial_secret_length(self._raw))
        return self._ready[:MAX_CHARACTERS_PER_CALL]

    def mark_sent(self, text: str) -> None:
        """Discards what `next_chunk` returned."""
        self.offset += len(text.encode())
        self._ready = self._ready[len(text) :]
        if len(self._raw) + len(self._ready) < MAX_BUFFERED_CHARACTERS:
            self._has_room.set()
        # Output may have arrived during the call.
        self.has_data.set() if self._ready or self._raw else self.has_data.clear()

    @property
    def is_full(self) -> bool:
        """Whether a full chunk waits."""
        return len(self._raw) + len(self._ready) >= MAX_CHARACTERS_PER_CALL

    def _add(self, text: str) -> None:
        # The service stores no more, and shows that the trace is truncated.
        if not text or self.offset > self._limit:
            return
        self._raw += text.replace("\0", "\ufffd")
        self._is_at_line_start = text.endswith("\n")
        self.has_data.set()
        if len(self._raw) + len(self._ready) >= MAX_BUFFERED_CHARACTERS:
            self._has_room.clear()

    def _mask(self, end: int) -> None:
        """Moves the characters before `end` to those that are ready, with a mask for each secret that begins there.

        A secret that goes on after `end` stays, since it may be the beginning of a longer one.
        """
        position = self._masked_length
        for start, stop in self._find_secrets():
            if start >= end:
                break
            # One that overlaps with another before it has the same mask.
            if start >= position:
                self._ready += self._raw[position:start] + MASK
            position = max(position, stop)
        if position < end:
            self._ready += self._raw[position:end]
        self._raw, self._masked_length = self._raw[end:], max(0, position - end)

    def _find_secrets(self) -> list[tuple[int, int]]:
        """Where secrets begin and end, in order; overlapping occurrences of one are a single entry."""
        found = []
        for secret in self._secrets:
            start = self._raw.find(secret)
            while start >= 0:
                stop, following = start + len(secret), self._raw.find(secret, start + 1)
                while start < following < stop:
                    stop, following = following + len(secret), self._raw.find(secret, following + 1)
                found.append((start, stop))
                start = following
        return sorted(found)

    def _partial_secret_length(self, text: str) -> int:
        """The number of characters at the end that may be the start of a secret."""
        return max((overlap_length(text, secret) for secret in self._secrets), default=0)
