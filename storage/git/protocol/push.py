"""One push: its ref update commands, their authorization, and the refs that have moved in the end.

The commands precede the pack, so they are authorized before any object is received. The decisions are written to the folder of the push,
where the hooks in `hooks/` read them: they accept only authorized updates.
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
"""The bytes that the client sends. It raises an error if the client disconnects."""

MAX_COMMAND_LIST_BYTES = 16 * 1024 * 1024
"""Maximum size of the command list of one push: about 150,000 refs."""
RECHECK_SECONDS = 10.0
"""Maximum age of a decision when git receives the last block of a push; a push that takes longer is authorized again."""

_ZERO_OID = "0" * 40
_PACKET_LENGTH = re.compile(rb"[0-9a-fA-F]{4}")
_COMMAND = re.compile(rb"([0-9a-f]{40}) ([0-9a-f]{40}) ([^\x00-\x20\x7f]+)\n?")
_CONTROL_CHARACTERS = re.compile(r"[\x00-\x1f\x7f]+")


class InvalidPush(Exception):
    """The client's data is not a valid command list; the message gives the reason."""


@dataclass(frozen=True, slots=True)
class RefCommand:
    """Moves a ref from the object `old` (None: it is created) to `new` (None: it is deleted).

    `ref` is its full name, in which bytes that are not UTF-8 are lone surrogates (PEP 383).
    """

    ref: str
    old: str | None
    new: str | None


class PushRule(StrEnum):
    ALLOW = "allow"
    FAST_FORWARD = "forward"
    """Allow only if the old commit is reachable from the new one."""
    REJECT = "refuse"


@dataclass(frozen=True, slots=True)
class PushDecision:
    """The decision about one command. `reason` is one line that the client shows if the update is rejected."""

    rule: PushRule
    reason: str = ""


PushAuthorizer = Callable[[list[RefCommand]], Awaitable[list[PushDecision]]]
"""Returns a decision for each command, in their order. An exception rejects the whole push."""


class Push:
    """One push to receive-pack: reads and authorizes its commands, and reports which refs moved."""

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
        """Reads the commands up to the flush packet (gitprotocol-pack, Reference Update Request). Raises InvalidPush."""
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
                    raise InvalidPush("the data is not in git's packet format")
                if len(buffer) < offset + size:
                    break
                self._read_line(bytes(buffer[offset + 4 : offset + size]))
                offset += size
            if offset > MAX_COMMAND_LIST_BYTES:
                raise InvalidPush("the push updates too many refs; push fewer at once")
        raise InvalidPush("the list of refs is incomplete")

    def _read_line(self, line: bytes) -> None:
        if line.startswith(b"shallow "):
            return
        # In the first line the client's capabilities follow after a NUL.
        match = _COMMAND.fullmatch(line.partition(b"\0")[0])
        if match is None:
            raise InvalidPush("only SHA-1 object ids and unsigned pushes are supported")
        old, new, ref = (part.decode("utf-8", "surrogateescape") for part in match.groups())
        self._commands.append(RefCommand(ref, None if old == _ZERO_OID else old, None if new == _ZERO_OID else new))

    async def authorized_blocks(self) -> ClientStream:
        """Yields the input of receive-pack. With `holds_last_block` the last block of a slow push is held until it is authorized again.

        Over a stream the last block is not known, because the client waits for the report without closing the stream: there each block
        may be the last, and is checked as such.
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
        """Authorizes all commands, and writes the decisions for the hooks."""
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
                rule, reason = PushRule.REJECT, "This is not a valid ref name."
            if rule is PushRule.FAST_FORWARD and (command.old is None or command.new is None):
                rule = PushRule.ALLOW
            if rule is not PushRule.ALLOW:
                rules.append(
                    "\t".join((rule, old, new, command.ref, _CONTROL_CHARACTERS.sub(" ", reason) or "This update is rejected.")) + "\n"
                )
        for name, lines in (("rules", rules), ("expected", expected)):
            # Renamed into place, so that a hook never reads a partial list.
            temporary = self.folder / f"{name}.new"
            temporary.write_bytes("".join(lines).encode("utf-8", "surrogateescape"))
            temporary.rename(self.folder / name)
