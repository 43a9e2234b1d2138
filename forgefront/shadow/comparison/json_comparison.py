"""Compares two JSON documents."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from forgefront.shadow.comparison.comparison_rules import ComparisonRules
from forgefront.shadow.comparison.id_map import IdMap
from forgefront.shadow.comparison.json_paths import JsonPlace
from forgefront.shadow.comparison.value_forms import AddressNormalizer, read_timestamp

MAX_DIFFERENCES = 200
"""Maximum number of differences that are found in one exchange."""
MAX_DEPTH = 200


@dataclass(frozen=True, slots=True)
class AnswerDifference:
    """One difference. `place` is a place in the JSON, or the name of a header; `old` and `new` are what the servers have there."""

    kind: str
    place: JsonPlace | str
    old: Any
    new: Any


class TooDeepError(ValueError):
    """A document with too many levels."""


class JsonComparison:
    """Compares the documents of one exchange. `ids` maps ids if writes are replayed; `old_is_primary` says in which direction."""

    def __init__(
        self, rules: ComparisonRules, route: str, addresses: AddressNormalizer, ids: IdMap | None, *, old_is_primary: bool = True
    ) -> None:
        self._rules = rules
        self._route = route
        self._addresses = addresses
        self._ids = ids
        self._old_is_primary = old_is_primary

    def compare(self, old: Any, new: Any, kind: str | None = None) -> list[AnswerDifference]:
        """The differences, from the top. `kind` is that of the ids of the top object. Raises TooDeepError."""
        found: list[AnswerDifference] = []
        for difference in self._walk(old, new, (), kind):
            found.append(difference)
            if len(found) >= MAX_DIFFERENCES:
                break
        return found

    def _walk(self, old: Any, new: Any, place: JsonPlace, kind: str | None) -> Iterator[AnswerDifference]:
        if len(place) > MAX_DEPTH:
            raise TooDeepError(f"the JSON has more than {MAX_DEPTH} levels")
        if isinstance(old, dict) and isinstance(new, dict):
            yield from self._walk_objects(old, new, place, kind)
        elif isinstance(old, list) and isinstance(new, list):
            yield from self._walk_lists(old, new, place, kind)
        elif type_name(old) != type_name(new):
            yield AnswerDifference("type", place, old, new)
        elif old != new:
            yield from self._compare_values(old, new, place)

    def _walk_objects(self, old: dict[str, Any], new: dict[str, Any], place: JsonPlace, kind: str | None) -> Iterator[AnswerDifference]:
        for name, value in old.items():
            below = (*place, name)
            if name not in new:
                yield AnswerDifference("missing", below, value, None)
            elif type(value) is int and type(new[name]) is int and self._ids is not None:
                id_kind = self._ids.kind_of_field(name, old, kind)
                if not self._is_same_id(id_kind, value, new[name]):
                    yield AnswerDifference("value", below, value, new[name])
            else:
                below_kind = self._ids.kind_below(name) if self._ids is not None else None
                yield from self._walk(value, new[name], below, below_kind)
        for name, value in new.items():
            if name not in old:
                yield AnswerDifference("added", (*place, name), None, value)

    def _walk_lists(self, old: list[Any], new: list[Any], place: JsonPlace, kind: str | None) -> Iterator[AnswerDifference]:
        keys = self._keys_of(old, new, kind)
        if keys is None:
            yield from self._walk_positions(old, new, place, kind)
            return
        old_keys, new_keys = keys
        places = {key: index for index, key in enumerate(new_keys)}
        common = [key for key in old_keys if key in places]
        known = set(old_keys)
        if common != [key for key in new_keys if key in known]:
            shown = [[key[-1] if isinstance(key, tuple) else key for key in keys] for keys in (old_keys, new_keys)]
            yield AnswerDifference("order", place, *shown)
        for index, key in enumerate(old_keys):
            if key in places:
                yield from self._walk(old[index], new[places[key]], (*place, index), kind)
            else:
                yield AnswerDifference("missing", (*place, index), old[index], None)
        for index, key in enumerate(new_keys):
            if key not in known:
                yield AnswerDifference("added", (*place, index), None, new[index])

    def _walk_positions(self, old: list[Any], new: list[Any], place: JsonPlace, kind: str | None) -> Iterator[AnswerDifference]:
        for index, (left, right) in enumerate(zip(old, new, strict=False)):
            yield from self._walk(left, right, (*place, index), kind)
        for index in range(len(new), len(old)):
            yield AnswerDifference("missing", (*place, index), old[index], None)
        for index in range(len(old), len(new)):
            yield AnswerDifference("added", (*place, index), None, new[index])

    def _keys_of(self, old: list[Any], new: list[Any], kind: str | None) -> tuple[list[Any], list[Any]] | None:
        """What identifies the elements of both lists, if something does: the values of scalars, or a key of objects."""
        if all(isinstance(each, str | int | float) for each in (*old, *new)):
            keys = [(type_name(each), self._normalized(each)) for each in old], [(type_name(each), self._normalized(each)) for each in new]
            return keys if all(len(set(each)) == len(each) for each in keys) else None
        if not all(isinstance(each, dict) for each in (*old, *new)):
            return None
        for name in self._rules.identity:
            old_keys, new_keys = ([each.get(name) for each in elements] for elements in (old, new))
            if not all(isinstance(key, str | int) for key in (*old_keys, *new_keys)):
                continue
            if name == "id" and self._ids is not None and kind is not None:
                old_keys, new_keys = self._map_keys(self._ids, kind, old_keys, new_keys)
            if len(set(old_keys)) == len(old_keys) and len(set(new_keys)) == len(new_keys):
                return old_keys, new_keys
        return None

    def _map_keys(self, ids: IdMap, kind: str, old: list[Any], new: list[Any]) -> tuple[list[Any], list[Any]]:
        """Both lists with the ids of the shadow server."""
        primary = old if self._old_is_primary else new
        mapped = [ids.find(kind, key) if type(key) is int else key for key in primary]
        mapped = [("unknown", key) if found is None else found for key, found in zip(primary, mapped, strict=True)]
        return (mapped, new) if self._old_is_primary else (old, mapped)

    def _is_same_id(self, kind: str | None, old: int, new: int) -> bool:
        if kind is None or self._ids is None:
            return old == new
        primary, secondary = (old, new) if self._old_is_primary else (new, old)
        return self._ids.find(kind, primary) == secondary

    def _normalized(self, value: Any) -> Any:
        return self._addresses.normalize(value) if isinstance(value, str) else value

    def _compare_values(self, old: Any, new: Any, place: JsonPlace) -> Iterator[AnswerDifference]:
        if isinstance(old, str):
            if self._addresses.normalize(old) == self._addresses.normalize(new):
                return
            times = read_timestamp(old), read_timestamp(new)
            if times[0] is not None and times[1] is not None:
                if times[0] == times[1]:
                    yield AnswerDifference("format", place, old, new)
                    return
                if abs((times[0] - times[1]).total_seconds()) <= self._rules.tolerance(self._route, place):
                    return
        yield AnswerDifference("value", place, old, new)


def type_name(value: Any) -> str:
    """The type of a JSON value."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "number"
    if isinstance(value, str):
        return "string"
    return "list" if isinstance(value, list) else "object"
