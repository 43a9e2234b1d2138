"""Receives a small push without receive-pack, whose processes take longer than the rest of the push: `git index-pack` is the only one.

1. `git index-pack --strict` writes the pack into a quarantine. It checks every object, and that each object which they refer to is in the
   pack or in the repository. Those in the repository were checked in the same way when they were received, so nothing that a new object
   reaches is missing, and the connectivity check of receive-pack (git-rev-list) is not needed. If a collection of objects may have deleted
   some meanwhile, the ref does not move (`Repositories.may_lack`).
2. The files of the pack are moved into the repository, the index last, because git does not see a pack without it.
3. The refs are moved, and the client gets the report of receive-pack (gitprotocol-pack, Report Status).

A failure before the second step leaves nothing. A killed process leaves the quarantine, which the next start removes.
"""

import asyncio
import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pygit2

from storage.git.protocol.advertisement import SendBlock
from storage.git.protocol.packets import DATA_BAND, FLUSH_PACKET, PROGRESS_BAND, encode_packet, encode_packets
from storage.git.protocol.proc_receive import RefMover, format_result
from storage.git.protocol.process_supervision import PUSH_NICENESS, SHORT_PUSH_SECONDS, indexing_seconds, too_slow_reason
from storage.git.protocol.push import Push, RefCommand
from storage.git.protocol.push_report import explain_rejection
from storage.git.subprocesses import git_command
from storage.git.subprocesses.limits import ProcessLimits, explain_failure

MAX_BAND_BYTES = 65_515
"""Bytes in one packet of side-band-64k."""
QUARANTINE_PREFIX = "tmp_objdir-incoming-"
"""The prefix of git's own quarantines, which are removed at start."""


class _RejectedPack(Exception):
    """Git has rejected a pack; the message is for the client."""


def is_possible(path: Path) -> bool:
    """Whether the objects of the repository at `path` have all that they refer to, which those of a shallow copy do not."""
    return not (path / "shallow").exists()


async def receive(
    path: Path,
    push: Push,
    outgoing: SendBlock,
    move: RefMover,
    *,
    slot: Callable[[], AbstractAsyncContextManager[None]],
    limits: ProcessLimits,
) -> None:
    """Receives a push that `Push.is_small`, and has `move` move its refs. `slot` limits how many packs are indexed, `limits` each process.

    If git rejects the pack, no ref moves and the client gets the reason. Raises OSError and the errors of acquiring a slot.
    """
    commands = push.commands
    try:
        async with slot():
            missing = await asyncio.to_thread(_store_objects, path, push.pack, commands, limits)
    except _RejectedPack as error:
        await _send(outgoing, PROGRESS_BAND, f"{error}\n".encode())
        status, reasons = b"unpack index-pack failed", dict.fromkeys(commands, "unpacker error")
    else:
        if missing and push.is_atomic:
            missing = set(commands)
        existing = [command for command in commands if command not in missing]
        moved: Sequence[str | None] = await move(existing, push.is_atomic)
        status, reasons = b"unpack ok", dict.fromkeys(missing, "missing necessary objects")
        reasons |= {command: reason for command, reason in zip(existing, moved, strict=True) if reason is not None}
    report = [status, *(format_result(command, reasons.get(command)) for command in commands)]
    await _send(outgoing, DATA_BAND, encode_packets([line + b"\n" for line in report]))
    await outgoing(FLUSH_PACKET)


async def _send(outgoing: SendBlock, band: bytes, data: bytes) -> None:
    for start in range(0, len(data), MAX_BAND_BYTES):
        await outgoing(encode_packet(band + data[start : start + MAX_BAND_BYTES]))


def _store_objects(path: Path, pack: bytes, commands: Sequence[RefCommand], limits: ProcessLimits) -> set[RefCommand]:
    """Writes the objects of the pack. Returns the commands whose new object does not exist. Raises _RejectedPack, OSError."""
    objects = path.absolute() / "objects"
    if int.from_bytes(pack[8:12]):  # the number of objects
        with _quarantine(objects) as quarantine:
            _index_pack(path, pack, quarantine, objects, limits)
            for file in sorted((quarantine / "pack").iterdir(), key=lambda file: file.suffix == ".idx"):
                file.rename(objects / "pack" / file.name)
    database = pygit2.Odb(str(objects))
    return {command for command in commands if command.new is not None and command.new not in database}


def _index_pack(path: Path, pack: bytes, quarantine: Path, objects: Path, limits: ProcessLimits) -> None:
    """Checks the pack, completes it with the bases of its deltas and writes it, synced to disk. Raises _RejectedPack, OSError."""
    quoted = str(objects).replace("\\", "\\\\").replace('"', '\\"')
    folders = {"GIT_OBJECT_DIRECTORY": str(quarantine), "GIT_ALTERNATE_OBJECT_DIRECTORIES": f'"{quoted}"'}
    arguments = git_command.command(path, "index-pack", "--stdin", "--fix-thin", f"--strict={','.join(git_command.FSCK_LEVELS)}")
    environment, pipe, seconds = {**git_command.environment(), **folders}, subprocess.PIPE, indexing_seconds(len(pack))
    with git_command.start_process(
        arguments, environment, stdin=pipe, stdout=subprocess.DEVNULL, stderr=pipe, process_limits=limits
    ) as process:
        try:
            try:
                _, stderr = process.communicate(pack, timeout=min(SHORT_PUSH_SECONDS, seconds))
            except subprocess.TimeoutExpired:
                os.setpriority(os.PRIO_PROCESS, process.pid, PUSH_NICENESS)
                _, stderr = process.communicate(timeout=max(seconds - SHORT_PUSH_SECONDS, 0))
        except subprocess.TimeoutExpired as error:
            raise _RejectedPack(explain_rejection(too_slow_reason(seconds))) from error
        finally:
            process.kill()
    if process.returncode:
        failure = git_command.failure_of(stderr, process.returncode)
        if isinstance(failure, OSError):
            raise failure
        reason = explain_failure(str(failure).encode(), limits)
        raise _RejectedPack(f"{failure}\n{explain_rejection(reason)}" if reason is not None else str(failure))


@contextlib.contextmanager
def _quarantine(objects: Path) -> Iterator[Path]:
    """A folder of objects in the folder of a repository's, which is removed at the end."""
    folder = Path(tempfile.mkdtemp(prefix=QUARANTINE_PREFIX, dir=objects))
    try:
        (folder / "pack").mkdir()
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
