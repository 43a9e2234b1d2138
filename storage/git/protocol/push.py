"""One push: the list of updates that it begins with, what is judged of it, and which refs moved in the end.

The list stands before the objects, so it is judged before any of them is taken. What was said is written into the folder of the push,
where the hooks of `hooks/` read it: they let pass what was judged and nothing else.
"""

import re
import shutil
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from time import monotonic

from storage.git.repository import is_ref_name

ClientStream = AsyncIterator[bytes]
"""What the client sends. An error that it raises is that the client is gone."""

MAX_COMMAND_LIST_BYTES = 16 * 1024 * 1024
"""Bytes of the list of updates of one push: about 150,000 refs."""
RECHECK_SECONDS = 10.0
"""So old may be what was judged of a push when its last block is handed to git; a push that took longer to come is judged once more."""

_ZERO_OID = "0" * 40
_PACKET_LENGTH = re.compile(rb"[0-9a-fA-F]{4}")
_COMMAND = re.compile(rb"([0-9a-f]{40}) ([0-9a-f]{40}) ([^\x00-\x20\x7f]+)\n?")
_CONTROL_CHARACTERS = re.compile(r"[\x00-\x1f\x7f]+")


class InvalidPush(Exception):
    """What the client sent is no list of updates; the text says why."""


@dataclass(frozen=True, slots=True)
class RefCommand:
    """A ref that is to move, or has moved, from the object `old` to `new`: None where it was not there, or is not any more.

    `ref` is its whole name, in which bytes that are no UTF-8 are lone surrogates (PEP 383).
    """

    ref: str
    old: str | None
    new: str | None


class PushRule(StrEnum):
    ALLOW = "allow"
    FAST_FORWARD = "forward"
    """Only when the new commit holds the old one."""
    REJECT = "refuse"


@dataclass(frozen=True, slots=True)
class PushDecision:
    """`reason` is shown to whoever pushes when the update is refused: a line."""

    rule: PushRule
    reason: str = ""


PushAuthorizer = Callable[[list[RefCommand]], Awaitable[list[PushDecision]]]
"""A verdict for each of the updates, in their order. What it raises refuses the push."""


class Push:
    """One push on its way to receive-pack: its list of updates, what was judged of it, and which refs moved."""

    def __init__(self, incoming: ClientStream, authorize: PushAuthorizer, *, holds_last_block: bool) -> None:
        self._incoming = incoming
        self._authorize = authorize
        self._holds_last_block = holds_last_block
        self._is_list_read = False
        self._commands: list[RefCommand] = []
        self._command_list = b""
        self._remainder = b""
        self.folder = Path(tempfile.mkdtemp(prefix="forgefront-push-"))

    async def read_commands(self) -> None:
        """Reads up to the end of the list, which is a flush packet (gitprotocol-pack, Reference Update Request). Raises InvalidPush."""
        self._is_list_read = True
        buffer = bytearray()
        offset = 0
        async for block in self._incoming:
            buffer += block
            while len(buffer) >= offset + 4:
                size = int(buffer[offset : offset + 4], 16) if _PACKET_LENGTH.fullmatch(buffer, offset, offset + 4) else 1
                if size == 0:
                    self._command_list, self._remainder = bytes(buffer[: offset + 4]), bytes(buffer[offset + 4 :])
                    return
                if size < 4:
                    raise InvalidPush("this is not what git sends")
                if len(buffer) < offset + size:
                    break
                self._read_line(bytes(buffer[offset + 4 : offset + size]))
                offset += size
            if offset > MAX_COMMAND_LIST_BYTES:
                raise InvalidPush("too many refs at once")
        raise InvalidPush("the list of refs has no end")

    def _read_line(self, line: bytes) -> None:
        if line.startswith(b"shallow "):
            return
        # The first line tells, after a NUL, what the client is able to.
        match = _COMMAND.fullmatch(line.partition(b"\0")[0])
        if match is None:
            raise InvalidPush("only SHA-1 ids and unsigned pushes are understood here")
        old, new, ref = (part.decode("utf-8", "surrogateescape") for part in match.groups())
        self._commands.append(RefCommand(ref, None if old == _ZERO_OID else old, None if new == _ZERO_OID else new))

    async def authorized_blocks(self) -> ClientStream:
        """What receive-pack is given. With `holds_last_block` the last block waits for a second judgement when the push took its time to
        come.

        Over a stream no block can wait, since a client that waits for the report does not end it: there any may be the last, and is
        judged as such.
        """
        if not self._is_list_read:
            await self.read_commands()
        await self._authorize_all()
        authorized_at = monotonic()
        yield self._command_list
        last_block = self._remainder
        async for block in self._incoming:
            if last_block:
                yield last_block
            last_block = block
            if not self._holds_last_block:
                if monotonic() - authorized_at > RECHECK_SECONDS:
                    await self._authorize_all()
                    authorized_at = monotonic()
                yield last_block
                last_block = b""
        if last_block:
            if monotonic() - authorized_at > RECHECK_SECONDS:
                await self._authorize_all()
            yield last_block

    async def _authorize_all(self) -> None:
        """Asks the judge, and writes down for the hooks what it says."""
        decisions = await self._authorize(self._commands) if self._commands else []
        self._write_rules(list(zip(self._commands, decisions, strict=True)))

    def moved_refs(self) -> list[RefCommand]:
        try:
            lines = (self.folder / "moved").read_bytes().splitlines()
        except FileNotFoundError:
            return []
        commands = []
        for line in lines:
            old, new, ref = line.decode("utf-8", "surrogateescape").split(" ", 2)
            commands.append(RefCommand(ref, None if old == _ZERO_OID else old, None if new == _ZERO_OID else new))
        return commands

    def remove_folder(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def _write_rules(self, decisions: list[tuple[RefCommand, PushDecision]]) -> None:
        expected, rules = [], []
        for command, decision in decisions:
            old, new = command.old or _ZERO_OID, command.new or _ZERO_OID
            expected.append(f"{old} {new} {command.ref}\n")
            rule, reason = decision.rule, decision.reason
            if not is_ref_name(command.ref):
                rule, reason = PushRule.REJECT, "This is not a name that a ref can have."
            if rule is PushRule.FAST_FORWARD and (command.old is None or command.new is None):
                rule = PushRule.ALLOW
            if rule is not PushRule.ALLOW:
                rules.append(
                    "\t".join((rule, old, new, command.ref, _CONTROL_CHARACTERS.sub(" ", reason) or "This may not be pushed.")) + "\n"
                )
        for name, lines in (("rules", rules), ("expected", expected)):
            # Renamed into place, so that a hook reads the list of one judgement.
            temporary = self.folder / f"{name}.new"
            temporary.write_bytes("".join(lines).encode("utf-8", "surrogateescape"))
            temporary.rename(self.folder / name)
