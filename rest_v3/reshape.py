"""The changes of form that GraphQL cannot spell.

Two kinds. Those that every answer needs follow from the schema and the selection: enums become v3's lower-case words, times get their
three digits, an inner connection becomes its list. The graph's plans make answers in this form at once (`form`); what graphql-core
answered is brought there (`plan`). The rest are functions that a row names as `reshape`; they take what the row gives and the
operation's whole data.
"""

from collections.abc import Callable, Mapping
from typing import Any

from graphql import get_named_type, is_enum_type

from graph.forms import Form
from rest_v3.operations import Selected

Change = Callable[[Any], Any]


def plan(selected: Selected) -> Change | None:
    """How to bring the value of a field into v3's form; None where it already has it. Values are copied, never altered."""
    change = _one(selected)
    if change is None or not selected.is_list:
        return change
    return _each(change)


def plan_of_entry(selected: Selected) -> Change | None:
    """The same for one entry of a connection's `nodes`."""
    return _one(selected.below["nodes"])


def form(way: tuple[str, ...]) -> Form:
    """The same as a form: of the answer from these response keys downward, the connection that stands there included."""
    return Form(way, str.lower, milliseconds, _all_milliseconds, _shown)


def _one(selected: Selected) -> Change | None:
    named = get_named_type(selected.type)
    if is_enum_type(named):
        words = {name: name.lower() for name in named.values}
        return words.__getitem__
    if named.name == "DateTime":
        return milliseconds
    if not selected.below:
        return None
    if selected.is_connection:
        return _connection(selected)
    changes = [(key, change) for key, part in selected.below.items() if (change := plan(part)) is not None]
    return _object(changes) if changes else None


def _connection(selected: Selected) -> Change | None:
    key = _shown({key: part.name for key, part in selected.below.items()})
    if key is None:
        return None
    change = plan(selected.below[key])
    if change is None:
        return lambda connection: connection[key]
    return lambda connection: change(connection[key])


def _shown(asked: Mapping[str, str]) -> str | None:
    """An inner connection is its nodes, or its length where nothing else is asked for."""
    if "nodes" in asked:
        return "nodes"
    key, name = next(iter(asked.items()))
    return key if len(asked) == 1 and name == "totalCount" else None


def _object(changes: list[tuple[str, Change]]) -> Change:
    def change(value: dict[str, Any]) -> dict[str, Any]:
        copy = value.copy()
        for key, part in changes:
            old = copy.get(key)
            if old is not None:
                copy[key] = part(old)
        return copy

    return change


def _each(change: Change) -> Change:
    return lambda values: [None if value is None else change(value) for value in values]


def milliseconds(time: str) -> str:
    """The graph's six digits of a second cut to the three of v3; the offset stays.

    >>> milliseconds("2016-01-19T08:40:25.934123Z")
    '2016-01-19T08:40:25.934Z'
    >>> milliseconds("2015-12-24T16:51:14.000000+01:00")
    '2015-12-24T16:51:14.000+01:00'
    """
    return time[:23] + time[26:]


def _all_milliseconds(times: list[str | None]) -> list[str | None]:
    return [None if time is None else time[:23] + time[26:] for time in times]


Schema = dict[str, Any]


class InAList:
    """One thing, where v3 answers a list of it (`POST /hooks`)."""

    def __call__(self, value: Any, data: Mapping[str, Any]) -> Any:
        return [value]

    def describe(self, schema: Schema) -> Schema:
        """What becomes of the JSON schema of the answer."""
        return {"type": "array", "items": schema}


in_a_list = InAList()


class Nothing:
    """No body but `null`."""

    def __call__(self, value: Any, data: Mapping[str, Any]) -> Any:
        return None

    def describe(self, schema: Schema) -> Schema:
        return {"type": "null"}


nothing = Nothing()


class Yes:
    """The body `true`, for what was done to a thing that is not answered."""

    def __call__(self, value: Any, data: Mapping[str, Any]) -> Any:
        return True

    def describe(self, schema: Schema) -> Schema:
        return {"type": "boolean", "const": True}


yes = Yes()


class ForAdministrators:
    """Drops keys from each object unless the operation's `viewer { isAdmin }` is true."""

    def __init__(self, *keys: str) -> None:
        self.keys = frozenset(keys)

    def __call__(self, value: Any, data: Mapping[str, Any]) -> Any:
        if data["viewer"]["isAdmin"]:
            return value
        return _each_object(value, lambda entry: {key: part for key, part in entry.items() if key not in self.keys})

    def describe(self, schema: Schema) -> Schema:
        def optional(entry: Schema) -> Schema:
            return {**entry, "required": [key for key in entry.get("required", ()) if key not in self.keys]}

        return {**schema, "items": optional(schema["items"])} if "items" in schema else optional(schema)


for_administrators = ForAdministrators


class WithKeys:
    """Adds keys whose value never changes to each object."""

    def __init__(self, **constant: Any) -> None:
        self.constant = constant

    def __call__(self, value: Any, data: Mapping[str, Any]) -> Any:
        return _each_object(value, lambda entry: {**entry, **self.constant})

    def describe(self, schema: Schema) -> Schema:
        def extended(entry: Schema) -> Schema:
            added = {key: {"const": value} for key, value in self.constant.items()}
            return {**entry, "properties": {**entry.get("properties", {}), **added}, "required": [*entry["required"], *added]}

        return {**schema, "items": extended(schema["items"])} if "items" in schema else extended(schema)


with_keys = WithKeys


class Merged:
    """Each object with the keys of the object under one of its keys, in its place."""

    def __init__(self, key: str) -> None:
        self.key = key

    def __call__(self, value: Any, data: Mapping[str, Any]) -> Any:
        return _each_object(value, lambda entry: {**entry[self.key], **{key: part for key, part in entry.items() if key != self.key}})

    def describe(self, schema: Schema) -> Schema:
        def merged(entry: Schema) -> Schema:
            inner = entry["properties"][self.key]
            own = {key: part for key, part in entry["properties"].items() if key != self.key}
            required = [*inner["required"], *(key for key in entry["required"] if key != self.key)]
            return {**entry, "properties": {**inner["properties"], **own}, "required": required}

        return {**schema, "items": merged(schema["items"])} if "items" in schema else merged(schema)


merged = Merged


def _each_object(value: Any, change: Callable[[Mapping[str, Any]], Any]) -> Any:
    return [change(entry) for entry in value] if isinstance(value, list) else change(value)
