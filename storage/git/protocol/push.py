"""One push: its ref update commands and their authorization.

The commands precede the pack, so a push that may move no ref is known before any object is received. Its reasons are written to the folder
of the push, where `hooks/pre-receive` finds them. The others are authorized again when they are made (proc_receive.py).

A small pack is read and examined here, before git has it, so that the push needs neither receive-pack nor its hooks (small_push.py).
"""

import asyncio
import re
import shutil
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from pathlib import Path

from storage.git.packing.pack_checksum import PackChecksum
from storage.git.protocol.pack_sizes import MAX_READ_BYTES, has_only_small_objects
from storage.git.refs.ref_names import NULL_ID

ClientStream = AsyncIterator[bytes]
"""The bytes that the client sends. It raises an error if the client disconnects."""

MAX_COMMAND_LIST_BYTES = 16 * 1024 * 1024
"""Maximum size of the command list of one push: about 150,000 refs."""

_REPORT_CAPABILITIES = frozenset((b"report-status", b"report-status-v2"))
_OTHER_CAPABILITIES = frozenset((b"push-options", b"object-format=sha256"))
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

    @property
    def printable_ref(self) -> str:
        return self.ref.encode("utf-8", "replace").decode()

    def describe(self) -> dict[str, str]:
        """The update as hooks and activities report it."""
        return {"before": self.old or NULL_ID, "after": self.new or NULL_ID, "ref": self.printable_ref}


def parse_command(line: bytes) -> RefCommand:
    """Parses `OLD NEW REF`. Raises InvalidPush."""
    match = _COMMAND.fullmatch(line)
    if match is None:
        raise InvalidPush("only SHA-1 object ids and unsigned pushes are supported")
    old, new, ref = (part.decode("utf-8", "surrogateescape") for part in match.groups())
    return RefCommand(ref, None if old == NULL_ID else old, None if new == NULL_ID else new)


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
    """One push to receive-pack: reads and authorizes its commands."""

    def __init__(self, incoming: ClientStream, authorize: PushAuthorizer, *, is_stream: bool = False) -> None:
        """`is_stream`: the client does not close the input after the pack."""
        self._incoming = incoming
        self._is_stream = is_stream
        self._authorize = authorize
        self._is_list_read = False
        self.commands: list[RefCommand] = []
        self._capabilities = frozenset[bytes]()
        self._is_shallow = False
        self._command_list = b""
        self._remainder = b""
        self._decisions: list[PushDecision] | None = None
        self.is_small = False

    @cached_property
    def folder(self) -> Path:
        """A folder for the hooks, until `remove_folder`."""
        return Path(tempfile.mkdtemp(prefix="forgefront-push-"))

    @property
    def pack(self) -> bytes:
        """The whole pack of a small push; empty if all commands delete."""
        return self._remainder

    @property
    def is_atomic(self) -> bool:
        """Whether all or none of the refs may move."""
        return b"atomic" in self._capabilities

    @property
    def allowed_commands(self) -> list[RefCommand]:
        """Those that were not rejected, after they were authorized."""
        return [command for command, each in zip(self.commands, self._decisions or (), strict=False) if each.rule is not PushRule.REJECT]

    async def check_small_pack(self, max_object_bytes: int) -> None:
        """Reads and authorizes the commands, and the pack if it is small. `is_small` then says whether `small_push.receive` can receive it.

        Raises InvalidPush, and the errors of the input and of the authorization.
        """
        await self.read_commands()
        authorization = asyncio.create_task(self._authorize_commands())
        try:
            is_small = await self._read_small_pack() and (
                not self._remainder or await asyncio.to_thread(has_only_small_objects, self._remainder, max_object_bytes)
            )
            self._decisions = await authorization
        finally:
            authorization.cancel()
        self.is_small = is_small and self._is_plain and not _is_refused(self._decisions)

    @property
    def _is_plain(self) -> bool:
        """Whether the push is as those of current clients, and has a pack unless all commands delete."""
        return (
            bool(self.commands)
            and (bool(self._remainder) or self._only_deletes)
            and b"side-band-64k" in self._capabilities
            and not self._capabilities.isdisjoint(_REPORT_CAPABILITIES)
            and self._capabilities.isdisjoint(_OTHER_CAPABILITIES)
            and not self._is_shallow
        )

    @property
    def _only_deletes(self) -> bool:
        """Whether no pack follows the commands."""
        return all(command.new is None for command in self.commands)

    async def _read_small_pack(self) -> bool:
        """Reads the pack up to MAX_READ_BYTES; returns whether that is all of it."""
        if self._is_stream and self._only_deletes:
            return True
        pack, block = bytearray(self._remainder), self._remainder
        checksum = PackChecksum() if self._is_stream else None
        try:
            while len(pack) <= MAX_READ_BYTES:
                if checksum is not None and checksum.is_complete_with(block):
                    return True
                block = await anext(self._incoming)
                pack += block
        except StopAsyncIteration:
            return True
        finally:
            self._remainder = bytes(pack)
        return False

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
            self._is_shallow = True
            return
        # In the first line the client's capabilities follow after a NUL.
        command, _, capabilities = line.partition(b"\0")
        self._capabilities |= frozenset(capabilities.split())
        self.commands.append(parse_command(command))

    async def authorized_blocks(self) -> ClientStream:
        """Yields the input of receive-pack."""
        if not self._is_list_read:
            await self.read_commands()
        decisions = await self._authorize_commands() if self._decisions is None else self._decisions
        if _is_refused(decisions):
            (self.folder / "refused").write_text("".join(f"{_CONTROL_CHARACTERS.sub(' ', each.reason)}\n" for each in decisions))
        yield self._command_list
        if self._remainder:
            yield self._remainder
        async for block in self._incoming:
            yield block

    async def _authorize_commands(self) -> list[PushDecision]:
        return await self._authorize(self.commands) if self.commands else []

    def remove_folder(self) -> None:
        if "folder" in self.__dict__:
            shutil.rmtree(self.folder, ignore_errors=True)


def _is_refused(decisions: list[PushDecision]) -> bool:
    """Whether no ref may move."""
    return bool(decisions) and all(decision.rule is PushRule.REJECT for decision in decisions)
