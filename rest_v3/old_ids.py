"""Old ids: the numbers that the objects of an imported instance had there, which scripts still send in paths (docs/decisions.md 57).

A file has a line for each object: its kind, the old id and the new one, separated by tabs. A heading (`kind`, `old`, `new`), empty lines
and those that begin with `#` are skipped, and so are blanks around a cell. The kinds are those of the query `importIdentities`, in lower
case:

    project	12	4711
    deploy_key	12/8	93

A deploy key is known by its project, because old instances share one key between projects. Only numbers in path segments are replaced;
answers have the new ids.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from rest_v3.requests.path_segments import is_id

KINDS_BY_SEGMENT: Mapping[str, str] = {
    "projects": "project",
    "fork": "project",
    "groups": "namespace",
    "users": "user",
    "user": "user",
    "members": "user",
    "issues": "issue",
    "merge_requests": "merge_request",
    "milestones": "milestone",
    "notes": "note",
    "snippets": "snippet",
    "hooks": "hook",
    "builds": "build",
    "emails": "email",
    "keys": "ssh_key",
    "runners": "runner",
}
"""The kind of an object whose id follows a literal segment of a path."""
DEPLOY_KEY = "deploy_key"
DEPLOY_KEYS_PATH = "/projects/:id/keys/:key_id"
MAX_SHOWN_LENGTH = 80
KINDS = frozenset((*KINDS_BY_SEGMENT.values(), DEPLOY_KEY))

PathKinds = tuple[str | None, ...]
"""The kinds of the objects in the parameters of a path; None for one that is no id."""


class InvalidOldIds(ValueError):
    """A file of old ids cannot be used; the message names the line."""


class OldId(NamedTuple):
    """An object of the old instance. `project` is the old id of the project of a deploy key; None for all other kinds."""

    kind: str
    project: int | None
    id: int


def parse_old_ids(lines: Iterable[str], prefix: str, known_kinds: Collection[str] | None = None) -> dict[OldId, int]:
    """The new ids by the old ones, in the order of the lines. `prefix` precedes the number of a line in messages.

    Raises InvalidOldIds: for a malformed line, for two new ids of an object, and for a kind that is not among `known_kinds`, if given.
    """
    found: dict[OldId, int] = {}
    for number, line in enumerate(lines, 1):
        cells = [cell.strip() for cell in line.removeprefix("\ufeff").split("\t")]
        if not any(cells) or cells[0].startswith("#") or (number == 1 and cells[0] == "kind"):
            continue
        ids = [*cells[1].split("/", 1), cells[2]] if len(cells) == 3 else []
        is_key = cells[0] == DEPLOY_KEY
        if len(ids) != (3 if is_key else 2) or not all(map(is_id, ids)):
            form = "a kind, PROJECT/OLD ID" if is_key else "a kind, an old ID"
            raise InvalidOldIds(
                f"{prefix}{number}: must be {form} and a new ID, separated by tabs, not {line.strip()[:MAX_SHOWN_LENGTH]!r}"
            )
        if known_kinds is not None and cells[0] not in known_kinds:
            raise InvalidOldIds(f"{prefix}{number}: no rule names ids of the kind {cells[0]!r}")
        old = OldId(cells[0], int(ids[0]) if is_key else None, int(ids[-2]))
        if found.setdefault(old, int(ids[-1])) != int(ids[-1]):
            raise InvalidOldIds(f"{prefix}{number}: {cells[0]} {cells[1]} has two new IDs")
    return found


class OldIds:
    """The new ids by kind and old id."""

    def __init__(self, ids: Mapping[str, Mapping[str, str]]) -> None:
        self._ids = ids
        self._kinds: dict[str, PathKinds] = {}

    @classmethod
    def read(cls, path: Path) -> "OldIds":
        """Reads a file. Lines of kinds that are in no path are ignored. Raises InvalidOldIds, OSError."""
        ids: dict[str, dict[str, str]] = {}
        with path.open(encoding="utf-8", errors="replace") as file:
            for old, new in parse_old_ids(file, f"{path}:").items():
                if old.kind in KINDS:
                    key = str(old.id) if old.project is None else f"{old.project}/{old.id}"
                    ids.setdefault(old.kind, {})[key] = str(new)
        return cls(ids)

    def translate(self, path: str, values: Sequence[str]) -> list[str]:
        """The values of a path's parameters with new ids for old ones; a value that is no old id stays."""
        kinds = self._kinds.get(path)
        if kinds is None:
            kinds = self._kinds[path] = kinds_of(path)
        return [self._translate(kind, value, values) for kind, value in zip(kinds, values, strict=True)]

    def _translate(self, kind: str | None, value: str, values: Sequence[str]) -> str:
        if kind is None:
            return value
        key = f"{values[0]}/{value}" if kind == DEPLOY_KEY else value
        return self._ids.get(kind, {}).get(key, value)


def kinds_of(path: str) -> PathKinds:
    """The kinds of the parameters of a route's path.

    >>> kinds_of("/projects/:id/issues/:issue_id/notes/:note_id")
    ('project', 'issue', 'note')
    >>> kinds_of("/projects/:id/repository/branches/:branch")
    ('project', None)
    """
    if path == DEPLOY_KEYS_PATH:
        return "project", DEPLOY_KEY
    segments = path.split("/")
    return tuple(KINDS_BY_SEGMENT.get(before) for before, segment in pairwise(segments) if segment.startswith(":"))
