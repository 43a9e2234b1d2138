"""Masks secrets in traces, before any part of a trace is stored.

A build's secrets are replaced by asterisks: its token, that of the caller, and the values of the secret variables that it was given; of a
value with several lines each line too. A mask is as long as the secret, so offsets match what the runner sent. A trace arrives in
pieces, and a secret may be split among any number of them: the end of a piece that may be the beginning of a secret is stored encrypted
with the build until the next piece arrives or the build finishes.
"""

import asyncio
import base64
from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import quote

import structlog

from graph.context import Context
from graph.rules.builds.partial_secrets import MIN_SECRET_LENGTH, overlap_length
from graph.rules.builds.stored_objects import erase_on_rollback
from graph.rules.builds.variables import load_build_variables
from storage import tables
from storage.objects.object_store import new_key
from storage.secrets import UndecryptableToken

MASK = b"*"
MAX_INLINE_WORK = 2**24
"""Bytes to search, times the strings to search for, above which a thread does it."""
MIN_PARTIAL_LENGTH = 4
"""Bytes. The beginning of a secret at the end of a trace is masked from this length on."""

PERCENT_ENCODED = [chr(byte) if byte < 128 and chr(byte).isalnum() else f"%{byte:02X}" for byte in range(256)]

log = structlog.get_logger("graph")


@dataclass(frozen=True, slots=True)
class PendingTrace:
    """The end of a trace that is not stored yet, because it may be the beginning of a secret.

    The first `masked` bytes belong to a secret that began before it.
    """

    data: bytes = b""
    masked: int = 0


class SecretMasker:
    """Finds secrets in plain form, percent-encoded, and inside base64, as in `Authorization: Basic`."""

    def __init__(self, secrets: Iterable[str]) -> None:
        needles = {needle for secret in secrets for needle in (*_encodings(secret), *_lines(secret))}
        self._needles = sorted(needles, key=len, reverse=True)

    def mask(self, text: str) -> str:
        """The string with all secrets masked.

        >>> SecretMasker(["fb-1-0123456789"]).mask("http://ci:fb-1-0123456789@forge/x.git")
        'http://ci:***************@forge/x.git'
        """
        return self.feed(PendingTrace(), text.encode(), final=True, partial=False)[0].decode()

    def feed(self, pending: PendingTrace, data: bytes, *, final: bool = False, partial: bool = True) -> tuple[bytes, PendingTrace]:
        """Process the next piece.

        Returns the bytes to store now and what is pending, which is nothing after the final piece. With `partial`, the beginning of a
        secret at the end of the final piece is masked too.
        """
        buffer = pending.data + data
        masked = bytearray(buffer)
        spans = [(0, pending.masked), *self._spans(buffer)]
        for start, end in spans:
            masked[start:end] = MASK * (end - start)
        partial_length = self._partial_match_length(buffer)
        if final:
            if partial and partial_length >= MIN_PARTIAL_LENGTH:
                masked[len(buffer) - partial_length :] = MASK * partial_length
            return bytes(masked), PendingTrace()
        cut = len(buffer) - partial_length
        covered = max(end for start, end in spans if start <= cut)
        return bytes(masked[:cut]), PendingTrace(buffer[cut:], max(0, covered - cut))

    async def feed_piece(self, pending: PendingTrace, data: bytes, *, final: bool = False) -> tuple[bytes, PendingTrace]:
        """As `feed`, in a thread if it takes long."""
        if (len(pending.data) + len(data)) * len(self._needles) <= MAX_INLINE_WORK:
            return self.feed(pending, data, final=final)
        return await asyncio.to_thread(self.feed, pending, data, final=final)

    def _spans(self, buffer: bytes) -> Iterable[tuple[int, int]]:
        """The bytes to mask; overlapping occurrences of a secret are one span."""
        for needle in self._needles:
            start = buffer.find(needle)
            while start >= 0:
                end = start + len(needle)
                following = buffer.find(needle, start + 1)
                while start < following <= end:
                    end = following + len(needle)
                    following = buffer.find(needle, following + 1)
                yield start, end
                start = following

    def _partial_match_length(self, buffer: bytes) -> int:
        """Length of the longest suffix of the bytes that is the beginning of a secret."""
        return max((overlap_length(buffer, needle) for needle in self._needles), default=0)


def _lines(secret: str) -> set[bytes]:
    """The lines of a secret with several, since programs print them with other line ends, or one alone."""
    return {line.strip().encode() for line in secret.splitlines() if len(line.strip()) >= MIN_SECRET_LENGTH}


def _encodings(secret: str) -> set[bytes]:
    """The forms in which a secret may appear in a trace."""
    if len(secret) < MIN_SECRET_LENGTH:
        return set()
    data = secret.encode()
    # Encoders differ in which characters they escape, and in the case of hexadecimal digits.
    quoted = [quote(secret, safe=""), "".join(map(PERCENT_ENCODED.__getitem__, data))]
    found = {data, *(form.encode() for form in quoted), *(_lower_escapes(form).encode() for form in quoted)}
    for alphabet in (None, b"-_"):
        found |= {_inside_of_base64(data, before, alphabet) for before in range(3)}
    return found


def _lower_escapes(quoted: str) -> str:
    first, *others = quoted.split("%")
    return "%".join([first, *(other[:2].lower() + other[2:] for other in others)])


def _inside_of_base64(data: bytes, before: int, alphabet: bytes | None) -> bytes:
    """The base64 digits that depend on the data alone, with other bytes before and after it.

    `before` is the number of bytes before the data, modulo 3.

    >>> _inside_of_base64(b"secret", 1, None) in base64.b64encode(b"a:b-secret-c")
    True
    """
    digits = base64.b64encode(b"\0" * before + data, alphabet)
    return digits[-(-before * 8 // 6) : (before + len(data)) * 8 // 6]


async def create_masker(context: Context, build: tables.Build) -> SecretMasker:
    """The masker for a build's trace. It masks the build's token, its secret variables, and the credential of the caller.

    The caller is usually the runner.
    """
    secrets = {context.credential} if context.credential else set()
    if build.sealed_token is not None:
        try:
            secrets.add(context.services.cipher.decrypt(build.sealed_token))
        except UndecryptableToken:
            log.error("build token cannot be decrypted", build_id=build.id)
    variables = load_build_variables(context, build)
    if not variables:
        return SecretMasker(secrets)
    return await asyncio.to_thread(SecretMasker, secrets.union(value for _, value in variables))


def decrypt_pending(context: Context, build: tables.Build) -> PendingTrace:
    """The end of the build's trace that is not stored yet."""
    if build.sealed_trace_end is None:
        return PendingTrace()
    masked, size, ciphertext = build.sealed_trace_end.split(":", 2)
    try:
        return PendingTrace(context.services.cipher.decrypt(ciphertext).encode(), int(masked))
    except UndecryptableToken:
        # Asterisks of the same length keep the offsets correct.
        log.error("pending trace cannot be decrypted", build_id=build.id)
        return PendingTrace(MASK * int(size), int(size))


def pending_bytes(build: tables.Build) -> int:
    """The length of the end of the build's trace that is not stored yet."""
    return int(build.sealed_trace_end.split(":", 2)[1]) if build.sealed_trace_end is not None else 0


def encrypt_pending(context: Context, pending: PendingTrace) -> str | None:
    """Format pending bytes for `Build.sealed_trace_end`.

    The format is the number of masked bytes, the length in bytes and the ciphertext, joined by colons.
    """
    if not pending.data:
        return None
    return f"{pending.masked}:{len(pending.data)}:{context.services.cipher.encrypt(pending.data.decode())}"


async def flush_pending(context: Context, build: tables.Build) -> None:
    """Store the pending end of a locked build's trace, after the build has finished."""
    if build.sealed_trace_end is None:
        return
    pending = decrypt_pending(context, build)
    data, _ = await (await create_masker(context, build)).feed_piece(pending, b"", final=True)
    key = new_key()
    erase_on_rollback(context, key)
    await context.services.objects.put_bytes(key, data)
    build.sealed_trace_end = None
    await context.add(tables.TracePart(build_id=build.id, start=build.trace_size - len(data), size=len(data), key=key))
