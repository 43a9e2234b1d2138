"""The keys by which clients know this service again: made once in the data folder, or brought by the operator."""

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

import asyncssh

from forgefront.config import ConfigError

FILE_NAME = "ssh_host_ed25519_key"


def load(data: Path, own: Sequence[Path]) -> list[asyncssh.SSHKey]:
    """The private keys in the files of the configuration, or else the one of the data folder, which is made when it is not there.

    Raises ConfigError for a file that cannot be read, holds no key, or wants a passphrase, which nobody could type.
    """
    if own:
        return [_read(path) for path in own]
    path = data / FILE_NAME
    if not path.exists():
        try:
            _make(path)
        except OSError as error:
            raise ConfigError([f"the SSH host key {path} cannot be made: {error.strerror or error}"]) from error
    return [_read(path)]


def fingerprint(key: asyncssh.SSHKey) -> str:
    """As `ssh` shows it to who connects for the first time: `ssh-ed25519 SHA256:…`."""
    return f"{key.get_algorithm()} {key.get_fingerprint()}"


def _read(path: Path) -> asyncssh.SSHKey:
    try:
        return asyncssh.import_private_key(path.read_bytes())
    except OSError as error:
        raise ConfigError([f"the SSH host key {path} cannot be read: {error.strerror or error}"]) from error
    except (asyncssh.KeyImportError, asyncssh.KeyEncryptionError, ValueError) as error:
        raise ConfigError([f"the SSH host key {path} is no private key without a passphrase"]) from error


def _make(path: Path) -> None:
    """Writes a key whole under a temporary name and links it into place: of several makers the first wins."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # mkstemp gives mode 0600
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(asyncssh.generate_private_key("ssh-ed25519", comment="forgefront").export_private_key("openssh"))
            file.flush()
            os.fsync(file.fileno())
        try:
            path.hardlink_to(temporary)
        except FileExistsError:
            return
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    finally:
        temporary.unlink()
