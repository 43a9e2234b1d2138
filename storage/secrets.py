"""Password hashing, token encryption and the instance's secret key.

A password is only ever compared, so an argon2id hash is stored. A token has 120 random bits, so a plain SHA-256 digest
suffices to look it up; because `GET /user` must return it again, its value is stored too, encrypted with a key that is
outside the database.
"""

import asyncio
import base64
import binascii
import contextlib
import hashlib
import hmac
import os
import secrets
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError, VerifyMismatchError

from storage.disk_sync import create_file

if TYPE_CHECKING:
    from cryptography.fernet import Fernet

KEY_FILE = "secret.key"
NEW_KEY_FILE = "secret.key.new"
"""The file of the new key while the key is rotated; afterwards it is renamed to `KEY_FILE`."""
KEY_BYTES = 32
MAC_BYTES = 32
"""The length of the HMAC-SHA256 at the end of a ciphertext."""
MAX_CONCURRENT_HASHES = 2

MAX_WAITING_PASSWORDS = 20
"""Passwords that may be verified or wait for it, which takes about a second. Anybody may send more than can be verified."""

T = TypeVar("T")


class UndecryptableToken(Exception):
    """A stored token was encrypted with another key, or its ciphertext is damaged."""


class InvalidKey(ValueError):
    """The instance's secret key is not 32 bytes in base64."""


class PasswordsBusy(Exception):
    """Too many passwords wait to be verified."""


class Passwords:
    """Hashes and verifies passwords with argon2id (RFC 9106, its low-memory parameters unless others are given).

    One hash takes about 90 ms and 64 MiB, so at most MAX_CONCURRENT_HASHES run at once, in their own threads; the others are
    queued without blocking the event loop. More than MAX_WAITING_PASSWORDS are not verified: all callers would wait until their
    time limits, and nobody could sign in while somebody tries passwords.
    """

    def __init__(self, hasher: PasswordHasher | None = None) -> None:
        self._hasher = hasher or PasswordHasher()
        self._threads = ThreadPoolExecutor(MAX_CONCURRENT_HASHES, thread_name_prefix="passwords")
        self._verifying = 0
        self._dummy = self._make_dummy_hash()

    async def hash(self, password: str) -> str:
        """Returns the hash to store: `$argon2id$v=19$m=65536,t=3,p=4$SALT$HASH`, 97 characters with the default parameters."""
        return await self._run_in_thread(lambda: self._hasher.hash(_encode(password)))

    async def verify(self, hash: str | None, password: str) -> bool:
        """Returns whether `password` is the one that was hashed.

        Without a hash (no such user, or a user without a password), and with one that is not argon2's, it returns False
        after the same work, so that the response time does not reveal whether an account exists. Raises PasswordsBusy.
        """
        if self._verifying >= MAX_WAITING_PASSWORDS:
            raise PasswordsBusy
        self._verifying += 1
        try:
            return await self._run_in_thread(lambda: self._matches(hash, password))
        finally:
            self._verifying -= 1

    def close(self) -> None:
        """Stops the threads when their current work is done; queued work is canceled."""
        self._threads.shutdown(cancel_futures=True)

    def _matches(self, hash: str | None, password: str) -> bool:
        try:
            return self._hasher.verify(self._dummy if hash is None else hash, _encode(password))
        except VerifyMismatchError:
            return False
        except (InvalidHashError, VerificationError):
            if hash is None:  # the dummy hash is valid, so argon2 itself could not run, for lack of memory
                raise
            return self._matches(None, password)

    def _make_dummy_hash(self) -> str:
        """Formats random bytes as a hash with our parameters: no hashing is needed, and no password matches it."""
        salt, digest = (base64.b64encode(os.urandom(size)).decode().rstrip("=") for size in (self._hasher.salt_len, self._hasher.hash_len))
        cost = f"m={self._hasher.memory_cost},t={self._hasher.time_cost},p={self._hasher.parallelism}"
        return f"$argon2id$v=19${cost}${salt}${digest}"

    async def _run_in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)


def new_token() -> str:
    """Generates a token: 20 URL-safe characters, 120 random bits."""
    return secrets.token_urlsafe(15)


def digest_token(token: str) -> str:
    """Returns the SHA-256 of a token as 64 hex digits. The digest is stored and looked up, so no query compares the token itself."""
    return hashlib.sha256(_encode(token)).hexdigest()


class TokenCipher:
    """Encrypts the values of tokens for storage (Fernet: AES-128-CBC with HMAC-SHA256)."""

    def __init__(self, key: bytes) -> None:
        """`key` is what `load_key` returns. Raises InvalidKey for anything else."""
        self._key = _validate_key(key, "the key")
        self._derivation_key = base64.urlsafe_b64decode(self._key)

    @cached_property
    def _fernet(self) -> "Fernet":
        # Imported on first use: the library takes 6 MB, which a server that neither reads nor creates tokens does not need.
        from cryptography.fernet import Fernet

        return Fernet(self._key)

    def encrypt(self, token: str) -> str:
        """Returns the ciphertext of a token, an ASCII string that differs at every call."""
        return self._fernet.encrypt(_encode(token)).decode("ascii")

    def derive(self, name: str) -> str:
        """Derives a token from the key and a name: 20 URL-safe characters, the first 120 bits of an HMAC-SHA256."""
        mac = hmac.digest(self._derivation_key, b"derived token: " + _encode(name), "sha256")
        return base64.urlsafe_b64encode(mac[:15]).decode("ascii")

    def decrypt(self, ciphertext: str) -> str:
        """Decrypts a ciphertext of `encrypt`. Raises UndecryptableToken if it was not encrypted with this key."""
        from cryptography.fernet import InvalidToken

        try:
            return self._fernet.decrypt(ciphertext).decode("utf-8", "surrogatepass")
        except (InvalidToken, ValueError):  # ValueError: a string that is not ASCII
            raise UndecryptableToken("a stored token cannot be decrypted with this key; was the key file replaced?") from None

    def matches(self, ciphertext: str) -> bool:
        """Whether the ciphertext was encrypted with this key; without the library that decrypts, which takes 6 MB."""
        try:
            content = base64.urlsafe_b64decode(ciphertext)
        except ValueError:
            return False
        # The first half of a key of Fernet signs, the second one encrypts.
        mac = hmac.digest(self._derivation_key[: KEY_BYTES // 2], content[:-MAC_BYTES], "sha256")
        return hmac.compare_digest(mac, content[-MAC_BYTES:])

    def try_decrypt(self, ciphertext: str | None) -> str | None:
        """As `decrypt`; None without a ciphertext, and if it was not encrypted with this key."""
        try:
            return self.decrypt(ciphertext) if ciphertext else None
        except UndecryptableToken:
            return None


def load_key(data: Path, configured_key: str | None) -> bytes:
    """Returns the instance's secret key, as the 44 URL-safe base64 characters that `TokenCipher` takes.

    `configured_key` (from the configuration) takes precedence; both base64 alphabets are accepted, so
    `openssl rand -base64 32` generates one. Otherwise `data/secret.key` is read, and created (mode 0600) if it is absent:
    servers that start at the same time end up with the same key. An invalid key file raises InvalidKey and is never
    replaced, since every stored token depends on it.
    """
    if configured_key is not None:
        return _validate_key(configured_key.encode("utf-8", "surrogatepass"), "the configured secret key")
    path = data / KEY_FILE
    if not path.exists():
        write_once(path, base64.urlsafe_b64encode(os.urandom(KEY_BYTES)) + b"\n")
    return _validate_key(path.read_bytes(), str(path))


def fingerprint_key(key: bytes) -> str:
    """Identifies a key of `load_key` without revealing it: 32 hex digits of an HMAC-SHA256."""
    return hmac.digest(base64.urlsafe_b64decode(key), b"fingerprint", "sha256").hex()[:32]


def write_once(path: Path, content: bytes) -> None:
    """Creates a file (mode 0600) atomically. The first writer wins. Raises OSError."""
    with contextlib.suppress(FileExistsError), create_file(path) as file:
        file.write(content)


def _validate_key(key: bytes, source: str) -> bytes:
    """Returns `key` in URL-safe base64. Raises InvalidKey, without the key in its message, unless it decodes to exactly 32 bytes."""
    try:
        raw = base64.b64decode(key.strip().translate(bytes.maketrans(b"-_", b"+/")), validate=True)
    except binascii.Error:
        raw = b""
    if len(raw) != KEY_BYTES:
        raise InvalidKey(f"{source} is not 32 bytes in base64 (make one with: openssl rand -base64 32)")
    return base64.urlsafe_b64encode(raw)


def _encode(string: str) -> bytes:
    """Encodes a string as UTF-8; lone surrogates pass, so that malformed input is only a wrong password or an unknown token."""
    return string.encode("utf-8", "surrogatepass")
