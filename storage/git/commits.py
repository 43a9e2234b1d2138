"""Parses raw commit objects, as tolerantly as git does.

Names, messages and dates are untrusted: invalid UTF-8, unknown encodings, absurd dates and missing fields are valid
input, never errors.
"""

import codecs
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone

MAX_MESSAGE_CHARACTERS = 1_000_000
"""Characters of a message that are read; the rest is dropped, so that a page of commits stays small."""

_TREE_LINE = len("tree ") + 40 + 1
_PARENT_LINE = len("parent ") + 40 + 1
_ZONE = re.compile(rb"[+-]\d{1,5}")
_LEGACY_CHARSET = re.compile(r"iso8859-\d+|cp\d+|koi8-[rut]|mac-\w+|euc_\w+|shift_jis\w*|big5\w*|gb\w+|hz|iso2022_\w+|ascii")


@dataclass(frozen=True, slots=True)
class GitCommit:
    """One commit. `oid` and `parents` are 40 lower-case hex digits; both times have the UTC offset that the commit records."""

    oid: str
    parents: tuple[str, ...]
    message: str
    author_name: str
    author_email: str
    authored_at: datetime
    committer_name: str
    committer_email: str
    committed_at: datetime

    @property
    def title(self) -> str:
        """The first line, cut to 80 characters and `…` when it is longer than 100 (docs/wire-facts.md 4.3)."""
        line = self.message.lstrip("\n").partition("\n")[0].rstrip("\r")
        if not self.message.strip():
            return "--no commit message"
        return line[:80] + "…" if len(line) > 100 else line

    @property
    def short_oid(self) -> str:
        """The first eight digits (docs/wire-facts.md 4.3)."""
        return self.oid[:8]


def parse_time_and_parents(raw: bytes) -> tuple[int, tuple[str, ...]]:
    """Returns the commit date (seconds since 1970; 0 if invalid, as in git) and the recorded parents of a raw commit.

    Only `parent` lines immediately after the `tree` line count, as in git.
    """
    offset = _TREE_LINE
    parents = []
    while raw.startswith(b"parent ", offset):
        parents.append(raw[offset + 7 : offset + 47].decode("ascii", "replace"))
        offset += _PARENT_LINE
    line_start = raw.find(b"\n", offset) + 1
    if not (raw.startswith(b"author", offset) and line_start and raw.startswith(b"committer", line_start)):
        return 0, tuple(parents)
    line_end = raw.find(b"\n", line_start)
    return _parse_seconds(raw[line_start : line_end if line_end >= 0 else len(raw)]), tuple(parents)


def parse_commit(oid: str, raw: bytes, parents: tuple[str, ...]) -> GitCommit:
    """Parses a raw commit; the caller passes the parents, because a shallow repository has not all recorded ones."""
    head, _, body = raw.partition(b"\n\n")
    fields: dict[bytes, bytes] = {}
    for line in head.split(b"\n"):
        key, _, value = line.partition(b" ")
        fields.setdefault(key, value)
    charset = _find_codec(fields.get(b"encoding", b""))
    author_name, author_email, authored_at = _parse_signature(fields.get(b"author", b""), charset)
    committer_name, committer_email, committed_at = _parse_signature(fields.get(b"committer", b""), charset)
    # git ends a message at the first NUL, and PostgreSQL cannot store NULs.
    message = body.partition(b"\0")[0].lstrip(b"\n")
    return GitCommit(
        oid=oid,
        parents=parents,
        message=message.decode(charset, "replace")[:MAX_MESSAGE_CHARACTERS],
        author_name=author_name,
        author_email=author_email,
        authored_at=authored_at,
        committer_name=committer_name,
        committer_email=committer_email,
        committed_at=committed_at,
    )


def _find_codec(label: bytes) -> str:
    """Returns the codec for the commit's `encoding` header: UTF-8 unless it names a legacy charset.

    An allow-list, because Python's registry also has codecs that are not charsets (`idna`, `unicode_escape`).
    """
    try:
        name = codecs.lookup(label.strip().decode("ascii")).name
    except (LookupError, ValueError):
        return "utf-8"
    return name if _LEGACY_CHARSET.fullmatch(name) else "utf-8"


def _parse_signature(line: bytes, charset: str) -> tuple[str, str, datetime]:
    """Parses `b"A U Thor <a@example.org> 1700000000 +0130"` to name, e-mail and time; missing parts are empty or 1970."""
    name, _, rest = line.partition(b"<")
    email = rest.partition(b">")[0]
    return _decode(name, charset), _decode(email, charset), _parse_time(line)


def _decode(raw: bytes, charset: str) -> str:
    return raw.strip().decode(charset, "replace").replace("\0", "�")


def _parse_seconds(line: bytes) -> int:
    date = line.rpartition(b">")[2].split()
    return int(date[0][:20]) if date and date[0].isdigit() else 0


def _parse_time(line: bytes) -> datetime:
    date = line.rpartition(b">")[2].split()
    zone = UTC
    if len(date) > 1 and _ZONE.fullmatch(date[1]):
        sign = -1 if date[1].startswith(b"-") else 1
        hours, minutes = divmod(int(date[1][1:]), 100)
        if hours * 60 + minutes < 24 * 60:
            zone = timezone(sign * timedelta(hours=hours, minutes=minutes))
    try:
        return datetime.fromtimestamp(_parse_seconds(line), zone)
    except (OverflowError, ValueError, OSError):
        return datetime.fromtimestamp(0, UTC)  # git, too, shows a date out of its range as 1970
