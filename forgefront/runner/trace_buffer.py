"""What a build prints, on its way to the service: text in bounded memory, without its secrets."""

import asyncio
import base64
import codecs
from collections.abc import Iterable

MAX_BUFFERED_CHARACTERS = 2**20
"""Characters that wait to be sent; who prints more waits too."""
MAX_CHARACTERS_PER_CALL = 2**17
"""Characters of one call. In JSON they may take six times as many bytes, and a call has at most 1 MiB."""
MASK = "[MASKED]"
MIN_SECRET_LENGTH = 8
"""Characters; to take shorter ones out would spoil the text and say what they are."""


class TraceBuffer:
    """`offset` is the length of what was sent, in bytes; `limit` how many of them are worth sending."""

    def __init__(self, secrets: Iterable[str], *, offset: int = 0, limit: int) -> None:
        masked_values = {secret for secret in secrets if len(secret) >= MIN_SECRET_LENGTH}
        masked_values |= {base64.b64encode(f"gitlab-ci-token:{secret}".encode()).decode() for secret in masked_values}
        # The longer first, since one may hold another.
        self._secrets = sorted(masked_values, key=len, reverse=True)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._limit = limit
        self._raw = ""
        self._ready = ""
        self._has_room = asyncio.Event()
        self._has_room.set()
        self._is_at_line_start = True
        self.offset = offset
        self.has_data = asyncio.Event()

    async def write(self, data: bytes) -> None:
        """What a program printed, whatever bytes it is; waits while too much is held."""
        await self._has_room.wait()
        self._add(self._decoder.decode(data))

    def write_line(self, text: str) -> None:
        """A line of the runner's own."""
        self._add(("" if self._is_at_line_start else "\n") + text + "\n")

    def finish(self) -> None:
        """Nothing more comes."""
        self._add(self._decoder.decode(b"", final=True))
        self._ready += self._mask(self._raw)
        self._raw = ""

    def next_chunk(self) -> str:
        """What to send next, to be taken again until `mark_sent`; empty when there is nothing."""
        masked = self._mask(self._raw)
        held_back = self._partial_secret_length(masked)
        self._ready += masked[: len(masked) - held_back]
        self._raw = masked[len(masked) - held_back :]
        return self._ready[:MAX_CHARACTERS_PER_CALL]

    def mark_sent(self, text: str) -> None:
        """Forgets what `next_chunk` returned."""
        self.offset += len(text.encode())
        self._ready = self._ready[len(text) :]
        if len(self._raw) + len(self._ready) < MAX_BUFFERED_CHARACTERS:
            self._has_room.set()
        self.has_data.set() if self._ready else self.has_data.clear()

    @property
    def is_full(self) -> bool:
        """Whether a call's worth waits."""
        return len(self._raw) + len(self._ready) >= MAX_CHARACTERS_PER_CALL

    def _add(self, text: str) -> None:
        # The service keeps no more, and shows that it is cut.
        if not text or self.offset > self._limit:
            return
        self._raw += text.replace("\0", "\ufffd")
        self._is_at_line_start = text.endswith("\n")
        self.has_data.set()
        if len(self._raw) + len(self._ready) >= MAX_BUFFERED_CHARACTERS:
            self._has_room.clear()

    def _mask(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, MASK)
        return text

    def _partial_secret_length(self, text: str) -> int:
        """How many characters at the end may be the start of a secret."""
        for length in range(min(len(text), max(map(len, self._secrets), default=1) - 1), 0, -1):
            end = text[-length:]
            if any(secret.startswith(end) for secret in self._secrets):
                return length
        return 0
