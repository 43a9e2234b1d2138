"""Ids of the same objects on the two servers, for replayed writes."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import parse_qsl, urlencode

import orjson

from forgefront.shadow.comparison.comparison_rules import ComparisonRules
from rest_v3.old_ids import OldId, parse_old_ids

MAX_IDS = 2_000_000

PROJECT, SSH_KEY, DEPLOY_KEY = "project", "ssh_key", "deploy_key"
"""Kinds with rules of their own: /projects/3/keys/8 is a deploy key, and its kind is "deploy_key/3"."""


class UnknownIdError(LookupError):
    """An id that belongs to something else on the other server, or to nothing."""


class IdMap:
    """Maps the ids of the server that answers to those of the shadow server. An id that is not listed is the same on both.

    `is_switched`: the new server answers. A kind that a file lists is complete: an id of it that is missing there is unknown.
    """

    def __init__(self, rules: ComparisonRules, *, is_switched: bool = False) -> None:
        self._rules = rules
        self._is_switched = is_switched
        self._ids: dict[str, dict[int, int]] = {}
        self._taken: dict[str, set[int]] = {}
        self._complete: set[str] = set()
        self._kinds = {*rules.id_segments.values(), *rules.id_fields.values()}

    def read(self, lines: Iterable[str]) -> None:
        """Reads lines as `forgefront import --old-ids` writes them (`rest_v3/old_ids.py`). Raises InvalidOldIds."""
        found = parse_old_ids(lines, "line ", self._kinds)
        for old, new in found.items():
            kind = old.kind
            self._complete.add(kind)
            if old.project is not None:
                kind = f"{kind}/{found.get(OldId(PROJECT, None, old.project), old.project) if self._is_switched else old.project}"
            self.add(kind, *((new, old.id) if self._is_switched else (old.id, new)))

    def add(self, kind: str, primary: int, secondary: int) -> None:
        ids = self._ids.setdefault(kind, {})
        if len(ids) < MAX_IDS and primary not in ids:
            ids[primary] = secondary
            self._taken.setdefault(kind, set()).add(secondary)

    def find(self, kind: str, primary: int) -> int | None:
        """The id on the shadow server; None if it is unknown."""
        found = self._ids.get(kind, {}).get(primary)
        if found is not None:
            return found
        is_complete = kind.partition("/")[0] in self._complete
        return None if is_complete or primary in self._taken.get(kind, ()) else primary

    def record_created(self, path: str, primary: Any, secondary: Any) -> None:
        """Adds the ids in the two answers to a creation."""
        kind = self.kind_of_path(path)
        if kind is None or not isinstance(primary, dict) or not isinstance(secondary, dict):
            return
        ids = primary.get("id"), secondary.get("id")
        if type(ids[0]) is int and type(ids[1]) is int:
            self.add(kind, ids[0], ids[1])

    # What names the kinds.

    def kind_of_path(self, path: str) -> str | None:
        """The kind of the object that a path answers: "issue" for /api/v3/projects/3/issues/41."""
        segments = path.split("/")
        kinds = (self._kind_of_segment(segments, index) for index in reversed(range(len(segments))))
        return next((kind for kind in kinds if kind is not None), None)

    def _kind_of_segment(self, segments: Sequence[str], index: int) -> str | None:
        """The kind of the ids that follow a segment."""
        kind = self._rules.id_segments.get(segments[index])
        if kind in (SSH_KEY, DEPLOY_KEY) and index >= 2 and self._rules.id_segments.get(segments[index - 2]) == PROJECT:
            return f"{DEPLOY_KEY}/{segments[index - 1]}"
        return kind

    def kind_of_field(self, name: str, owner: Mapping[str, Any], owner_kind: str | None) -> str | None:
        """The kind of the id in a field of an object."""
        if name == "id":
            return owner_kind
        type_field = self._rules.id_types.get(name)
        if type_field is not None:
            type_name = str(owner.get(type_field, ""))
            return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in type_name).strip("_") or None
        return self._rules.id_fields.get(name)

    def kind_below(self, name: str) -> str | None:
        """The kind of the object in a field of an object."""
        return self._rules.id_segments.get(name)

    # Requests.

    def map_target(self, target: str) -> str:
        """The path and query for the shadow server. Raises UnknownIdError."""
        path, mark, query = target.partition("?")
        segments = path.split("/")
        mapped = list(segments)
        for index in range(1, len(segments)):
            kind = self._kind_of_segment(segments, index - 1)
            if kind is not None and segments[index].isascii() and segments[index].isdigit():
                mapped[index] = str(self._require(kind, int(segments[index])))
        return "/".join(mapped) + mark + (self._map_form(query) if mark else "")

    def map_body(self, content_type: str, body: bytes) -> bytes:
        """The body for the shadow server: ids in fields of JSON and forms. Raises UnknownIdError."""
        if content_type.startswith("application/json"):
            try:
                value = orjson.loads(body)
            except orjson.JSONDecodeError:
                return body
            mapped = self._map_fields(value)
            return body if mapped == value else orjson.dumps(mapped)
        if content_type.startswith("application/x-www-form-urlencoded"):
            return self._map_form(body.decode("latin-1")).encode("latin-1")
        return body

    def _map_form(self, encoded: str) -> str:
        pairs = parse_qsl(encoded, keep_blank_values=True, encoding="latin-1")
        mapped = [(name, self._map_value(name, value)) for name, value in pairs]
        return encoded if mapped == pairs else urlencode(mapped, encoding="latin-1")

    def _map_value(self, name: str, value: str) -> str:
        kind = self._rules.id_fields.get(name)
        return str(self._require(kind, int(value))) if kind is not None and value.isascii() and value.isdigit() else value

    def _map_fields(self, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        found = dict(value)
        for name, item in value.items():
            kind = self._rules.id_fields.get(name)
            if kind is not None and type(item) is int:
                found[name] = self._require(kind, item)
            elif kind is not None and isinstance(item, str):
                found[name] = self._map_value(name, item)
        return found

    def _require(self, kind: str, primary: int) -> int:
        found = self.find(kind, primary)
        if found is None:
            raise UnknownIdError(f"{kind} {primary}")
        return found
