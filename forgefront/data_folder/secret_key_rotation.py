"""Replaces the secret key of an instance: in the database, and in the data folder if its file is there.

The new key is in a file of its own before the database has it, and the old key is in the file of the present one until then. A kill between
leaves both; the folder is not used until the rotation was repeated, which takes over the new key from that file.
"""

import asyncio
import base64
import contextlib
import os
from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from forgefront.config import Config
from forgefront.data_folder.data_folder_lock import DataFolderLock
from forgefront.data_folder.file_permissions import restrict_permissions
from forgefront.server.host_registry import read_identity
from storage import migrations
from storage.database.engine import Database
from storage.disk_sync import sync_path
from storage.git.importing.repository_import import ProgressCallback
from storage.key_rotation import RotationRefused, RotationResult, forget_lost_key, rotate_key
from storage.secrets import KEY_BYTES, KEY_FILE, NEW_KEY_FILE, InvalidKey, TokenCipher, fingerprint_key, load_key, write_once


@dataclass(frozen=True, slots=True)
class RotatedKey:
    """A finished rotation. The files are None if the key is in the configuration; `fingerprint` identifies the new key, as in dumps."""

    result: RotationResult
    fingerprint: str
    key_file: Path | None
    old_key_file: Path | None


async def rotate_secret_key(config: Config, new_key_file: Path | None, progress: ProgressCallback) -> RotatedKey:
    """Encrypts what the database has with the key in `new_key_file`, or with a random one, and replaces the file of the key.

    No other process may use the data folder. Raises RotationRefused, and what `rotate_key` raises.
    """
    is_configured = config.secret_key is not None
    if is_configured and new_key_file is None:
        raise RotationRefused(
            "the key is in the configuration, so the new one must be given: make a file with `openssl rand -base64 32`, name it with"
            " --new-key, and set FORGEFRONT_SECRET_KEY to its contents afterwards. Nothing was changed"
        )
    async with _open_database(config) as database:
        old_key, new_key = _read_keys(config, new_key_file)
        result = await rotate_key(
            database,
            TokenCipher(old_key),
            TokenCipher(new_key),
            host=read_identity(config),
            before_commit=(lambda: None) if is_configured else partial(write_once, config.data / NEW_KEY_FILE, new_key + b"\n"),
            progress=partial(progress, "encrypting"),
        )
        if is_configured:
            return RotatedKey(result, fingerprint_key(new_key), None, None)
        return RotatedKey(result, fingerprint_key(new_key), config.data / KEY_FILE, _replace_key_file(config.data, old_key))


async def forget_lost_secrets(config: Config) -> None:
    """Deletes what only a lost key decrypts. Makes a new key if there is no file. Raises RotationRefused, and as `forget_lost_key`."""
    async with _open_database(config) as database:
        try:
            key = config.load_secret_key()
        except InvalidKey as error:
            raise RotationRefused(f"{error}. Nothing was changed") from None
        await forget_lost_key(database, TokenCipher(key), host=read_identity(config))


@contextlib.asynccontextmanager
async def _open_database(config: Config) -> AsyncIterator[Database]:
    """Opens the database of a data folder that no other process uses until the end of the block. Raises RotationRefused."""
    lock = DataFolderLock(config.data)
    if not lock.acquire_exclusively():
        raise RotationRefused(f"another process uses {config.data}; stop the service and all commands first. Nothing was changed")
    try:
        # A newer version may have more encrypted columns.
        await asyncio.to_thread(migrations.require_newest_revision, config.database_url)
        restrict_permissions(config)
        # Statements may take longer than those of a request.
        database = Database(config.database_url, pool_size=1, statement_seconds=None)
        try:
            yield database
        finally:
            await database.close()
    finally:
        lock.release()


def _read_keys(config: Config, new_key_file: Path | None) -> tuple[bytes, bytes]:
    """The present key and the new one, which may be that of an interrupted rotation. Raises RotationRefused."""
    if config.secret_key is None and not (config.data / KEY_FILE).is_file():
        raise RotationRefused(f"there is no key {config.data / KEY_FILE}; is this the data folder? Nothing was changed")
    configured = config.secret_key.get_secret_value() if config.secret_key is not None else None
    unfinished = config.data / NEW_KEY_FILE
    try:
        old_key = load_key(config.data, configured)
        named_key = _load_file(new_key_file) if new_key_file is not None else None
        started = _load_file(unfinished) if configured is None and unfinished.is_file() else None
    except InvalidKey as error:
        raise RotationRefused(f"{error}. Nothing was changed") from None
    if started is not None and named_key not in (None, started):
        raise RotationRefused(f"a rotation to the key in {unfinished} was interrupted; complete it first, without --new-key")
    new_key = started or named_key or base64.urlsafe_b64encode(os.urandom(KEY_BYTES))
    if new_key == old_key:
        raise RotationRefused("the new key is the present one. Nothing was changed")
    return old_key, new_key


def _load_file(path: Path) -> bytes:
    """The key in a file. Raises InvalidKey, OSError."""
    try:
        return load_key(path.parent, path.read_text("ascii"))
    except (InvalidKey, UnicodeDecodeError):
        raise InvalidKey(f"{path} is not 32 bytes in base64 (make one with: openssl rand -base64 32)") from None


def _replace_key_file(data: Path, old_key: bytes) -> Path:
    """Keeps the old key in a file that its fingerprint names, and makes the new one the key of the folder. Returns the first file."""
    retained = data / f"{KEY_FILE}.{fingerprint_key(old_key)}"
    write_once(retained, old_key + b"\n")
    (data / NEW_KEY_FILE).replace(data / KEY_FILE)
    sync_path(data)
    return retained
