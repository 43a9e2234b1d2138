"""One push: the list of updates that it begins with, what is judged of it, and which refs moved in the end.

The list stands before the objects, so it is judged before any of them is taken. What was said is written into the folder of the push,
where the hooks of `receiving/` read it: they let pass what was judged and nothing else.
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

Incoming = AsyncIterator[bytes]
"""What the client sends. An error that it raises is that the client is gone."""

LONGEST_LIST = 16 * 1024 * 1024
"""Bytes of the list of updates of one push: about 150,000 refs."""
RECHECK_SECONDS = 10.0
"""So old may be what was judged of a push when its last block is handed to git; a push that took longer to come is judged once more."""

_NONE = "0" * 40
_SIZE = re.compile(rb"[0-9a-fA-F]{4}")
_COMMAND = re.compile(rb"([0-9a-f]{40}) ([0-9a-f]{40}) ([^\x00-\x20\x7f]+)\n?")
_UNSEEN = re.compile(r"[\x00-\x1f\x7f]+")


class BadPush(Exception):
    """What the client sent is no list of updates; the text says why."""


@dataclass(frozen=True, slots=True)
class Update:
    """A ref that is to move, or has moved, from the object `old` to `new`: None where it was not there, or is not any more.

    `ref` is its whole name, in which bytes that are no UTF-8 are lone surrogates (PEP 383).
    """

    ref: str
    old: str | None
    new: str | None


class Rule(StrEnum):
    ALLOW = "allow"
    FORWARD = "forward"
    """Only when the new commit holds the old one."""
    REFUSE = "refuse"


@dataclass(frozen=True, slots=True)
class Verdict:
    """`reason` is shown to whoever pushes when the update is refused: a line."""

    rule: Rule
    reason: str = ""


Judge = Callable[[list[Update]], Awaitable[list[Verdict]]]
"""A verdict for each of the updates, in their order. What it raises refuses the push."""


class Push:
    """One push on its way to receive-pack: its list of updates, what was judged of it, and which refs moved."""

    def __init__(self, incoming: Incoming, judge: Judge, *, hold: bool) -> None:
        self._incoming = incoming
        self._judge = judge
        self._hold = hold
        self._read = False
        self._updates: list[Update] = []
        self._list = b""
        self._rest = b""
        self.folder = Path(tempfile.mkdtemp(prefix="forgefront-push-"))

    async def read_list(self) -> None:
        """Reads up to the end of the list, which is a flush packet (gitprotocol-pack, Reference Update Request). Raises BadPush."""
        self._read = True
        taken = bytearray()
        at = 0
        async for block in self._incoming:
            taken += block
            while len(taken) >= at + 4:
                size = int(taken[at : at + 4], 16) if _SIZE.fullmatch(taken, at, at + 4) else 1
                if size == 0:
                    self._list, self._rest = bytes(taken[: at + 4]), bytes(taken[at + 4 :])
                    return
                if size < 4:
                    raise BadPush("this is not what git sends")
                if len(taken) < at + size:
                    break
                self._read_line(bytes(taken[at + 4 : at + size]))
                at += size
            if at > LONGEST_LIST:
                raise BadPush("too many refs at once")
        raise BadPush("the list of refs has no end")

    def _read_line(self, line: bytes) -> None:
        if line.startswith(b"shallow "):
            return
        # The first line tells, after a NUL, what the client is able to.
        found = _COMMAND.fullmatch(line.partition(b"\0")[0])
        if found is None:
            raise BadPush("only SHA-1 ids and unsigned pushes are understood here")
        old, new, ref = (part.decode("utf-8", "surrogateescape") for part in found.groups())
        self._updates.append(Update(ref, None if old == _NONE else old, None if new == _NONE else new))

    async def guarded(self) -> Incoming:
        """What receive-pack is given. With `hold` the last block waits for a second judgement when the push took its time to come.

        Over a stream no block can wait, since a client that waits for the report does not end it: there any may be the last, and is
        judged as such.
        """
        if not self._read:
            await self.read_list()
        await self._judge_all()
        judged_at = monotonic()
        yield self._list
        held = self._rest
        async for block in self._incoming:
            if held:
                yield held
            held = block
            if not self._hold:
                if monotonic() - judged_at > RECHECK_SECONDS:
                    await self._judge_all()
                    judged_at = monotonic()
                yield held
                held = b""
        if held:
            if monotonic() - judged_at > RECHECK_SECONDS:
                await self._judge_all()
            yield held

    async def _judge_all(self) -> None:
        """Asks the judge, and writes down for the hooks what it says."""
        verdicts = await self._judge(self._updates) if self._updates else []
        self._write(list(zip(self._updates, verdicts, strict=True)))

    def moved(self) -> list[Update]:
        try:
            lines = (self.folder / "moved").read_bytes().splitlines()
        except FileNotFoundError:
            return []
        found = []
        for line in lines:
            old, new, ref = line.decode("utf-8", "surrogateescape").split(" ", 2)
            found.append(Update(ref, None if old == _NONE else old, None if new == _NONE else new))
        return found

    def forget(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def _write(self, judged: list[tuple[Update, Verdict]]) -> None:
        asked, rules = [], []
        for update, verdict in judged:
            old, new = update.old or _NONE, update.new or _NONE
            asked.append(f"{old} {new} {update.ref}\n")
            rule, reason = verdict.rule, verdict.reason
            if not is_ref_name(update.ref):
                rule, reason = Rule.REFUSE, "This is not a name that a ref can have."
            if rule is Rule.FORWARD and (update.old is None or update.new is None):
                rule = Rule.ALLOW
            if rule is not Rule.ALLOW:
                rules.append("\t".join((rule, old, new, update.ref, _UNSEEN.sub(" ", reason) or "This may not be pushed.")) + "\n")
        for name, lines in (("rules", rules), ("asked", asked)):
            # Renamed into place, so that a hook reads the list of one judgement.
            fresh = self.folder / f"{name}.new"
            fresh.write_bytes("".join(lines).encode("utf-8", "surrogateescape"))
            fresh.rename(self.folder / name)
