"""The SSH host keys: generated once in the data folder, or configured."""

from collections.abc import Sequence
from pathlib import Path

import asyncssh

from forgefront.config import ConfigError
from forgefront.data_folder.file_permissions import SSH_HOST_KEY_FILE
from storage.secrets import write_once

FILE_NAME = SSH_HOST_KEY_FILE


def load_host_keys(data: Path, configured: Sequence[Path]) -> list[asyncssh.SSHKey]:
    """The private keys in the files of the configuration, or else the one of the data folder, which is generated if it does not exist.

    Raises ConfigError for a file that cannot be read, contains no key, or requires a passphrase.
    """
    if configured:
        return [_read_key(path) for path in configured]
    path = data / FILE_NAME
    if not path.exists():
        try:
            write_once(path, asyncssh.generate_private_key("ssh-ed25519", comment="forgefront").export_private_key("openssh"))
        except OSError as error:
            raise ConfigError([f"the SSH host key {path} cannot be created: {error.strerror or error}"]) from error
    return [_read_key(path)]


def fingerprint(key: asyncssh.SSHKey) -> str:
    """The fingerprint as `ssh` shows it on first connection: `ssh-ed25519 SHA256:…`."""
    return f"{key.get_algorithm()} {key.get_fingerprint()}"


def _read_key(path: Path) -> asyncssh.SSHKey:
    try:
        return asyncssh.import_private_key(path.read_bytes())
    except OSError as error:
        raise ConfigError([f"the SSH host key {path} cannot be read: {error.strerror or error}"]) from error
    except (asyncssh.KeyImportError, asyncssh.KeyEncryptionError, ValueError) as error:
        raise ConfigError([f"the SSH host key {path} is not a private key without a passphrase"]) from error
