"""Annotated tags: objects that name another object, with a message."""

from functools import partial

from pygit2.enums import ObjectType

from storage.git.commit_writer import CommitSignature
from storage.git.object_writes import write_object
from storage.git.repository import Repository

MAX_MESSAGE_BYTES = 1_000_000
"""Bytes of a message that are read; the rest is dropped."""


def read_message(repository: Repository, oid: str) -> str | None:
    """Returns the message of an annotated tag, without the last line break; None if the object is none. Raises DamagedRepository."""
    raw = repository.raw_tag(oid)
    if raw is None:
        return None
    message = raw.partition(b"\n\n")[2].partition(b"\0")[0]
    return message[:MAX_MESSAGE_BYTES].decode("utf-8", "replace").removesuffix("\n")


def write_tag(repository: Repository, commit: str, name: str, message: str, tagger: CommitSignature) -> str:
    """Writes the object of an annotated tag of a commit, synced to disk, and returns its id. No ref moves."""
    body = message.strip("\n") + "\n"
    lines = (f"object {commit}", "type commit", f"tag {name}", f"tagger {tagger.format()}", "", body)
    data = "\n".join(lines).encode("utf-8", "replace")
    return str(write_object(partial(repository.handle.odb.write, ObjectType.TAG, data)))
