"""What an SSH key must be (wire facts 8.4; texts as legacy clients know them)."""

import asyncio

from sqlalchemy.exc import IntegrityError

from graph.context import Context
from graph.errors import Invalid, Taken, UserErrors
from graph.events import payloads
from graph.events.publish import publish
from graph.rules import naming
from storage import tables
from storage.database import taken_column
from storage.tables import ssh_keys

KINDS = ("ssh-", "ecdsa-")
LONGEST_KEY = 5000


async def read(key: str) -> tuple[str, str]:
    """A public key as it is kept, and its fingerprint: the MD5 of the key's blob, as `a1:69:…`. Raises Required, Invalid."""
    text = naming.clean("key", key.strip(), longest=LONGEST_KEY)
    if len(text.splitlines()) > 1:
        raise Invalid("key", "should be a single line")
    # Parsing is quick, but the library itself takes its time when it is imported first.
    fingerprint = await asyncio.to_thread(_fingerprint, text) if text.startswith(KINDS) else None
    if fingerprint is None:
        raise UserErrors([Invalid("key", "is invalid"), Invalid("fingerprint", "cannot be generated")])
    return text, fingerprint


def _fingerprint(key: str) -> str | None:
    import asyncssh

    try:
        return asyncssh.import_public_key(key).get_fingerprint("md5").removeprefix("MD5:")
    except (asyncssh.KeyImportError, ValueError):
        return None


async def add(context: Context, row: tables.SshKey) -> tables.SshKey:
    """Writes a new key. Raises UserErrors where anybody has it already."""
    if await context.first(ssh_keys.of_fingerprint(row.fingerprint)) is not None:
        raise _taken()
    try:
        await context.add(row)
    except IntegrityError as error:
        if taken_column(error) != "ssh_keys.fingerprint":
            raise
        raise _taken() from error
    await publish(context, payloads.KeyCreated, row)
    return row


def _taken() -> UserErrors:
    return UserErrors([Taken("key"), Taken("fingerprint")])
