"""Conversions of results that GraphQL cannot express.

There are two kinds. General conversions follow from the schema and the selection: enums become v3's lower-case words, timestamps have three
decimal digits, an inner connection becomes its list. Compiled plans produce this format directly (`output_format`); results of graphql-core
are converted (`plan_transform`). The others are functions that a route names as `reshape`; they take the value at the result path and the
operation's whole data.
"""

from collections.abc import Callable, Mapping
from typing import Any

from graphql import get_named_type, is_enum_type

from graph.documents.output_format import OutputFormat
from rest_v3.operations import SelectedField

Transform = Callable[[Any], Any]


def plan_transform(selected: SelectedField) -> Transform | None:
    """The function that converts a field's value to v3's format; None where it already has it. Values are copied, not changed."""
    transform = _plan_value(selected)
    if transform is None or not selected.is_list:
        return transform
    return _transform_each(transform)


def plan_entry_transform(selected: SelectedField) -> Transform | None:
    """The same for one entry of a connection's `nodes`."""
    return _plan_value(selected.subfields["nodes"])


def output_format(path: tuple[str, ...]) -> OutputFormat:
    """The same as an output format: for the response from these keys downward, including the connection at that path."""
    return OutputFormat(path, str.lower, truncate_to_milliseconds, _truncate_all, _visible_connection_field)


def _plan_value(selected: SelectedField) -> Transform | None:
    named = get_named_type(selected.type)
    if is_enum_type(named):
        lower_case_names = {name: name.lower() for name in named.values}
        return lower_case_names.__getitem__
    if named.name == "DateTime":
        return truncate_to_milliseconds
    if not selected.subfields:
        return None
    if selected.is_connection:
        return _plan_connection(selected)
    transforms = [(key, transform) for key, part in selected.subfields.items() if (transform := plan_transform(part)) is not None]
    return _transform_object(transforms) if transforms else None


def _plan_connection(selected: SelectedField) -> Transform | None:
    key = _visible_connection_field({key: part.name for key, part in selected.subfields.items()})
    if key is None:
        return None
    transform = plan_transform(selected.subfields[key])
    if transform is None:
        return lambda connection: connection[key]
    return lambda connection: transform(connection[key])


def _visible_connection_field(requested: Mapping[str, str]) -> str | None:
    """An inner connection becomes its nodes, or its count where nothing else is selected."""
    if "nodes" in requested:
        return "nodes"
    key, name = next(iter(requested.items()))
    return key if len(requested) == 1 and name == "totalCount" else None


def _transform_object(transforms: list[tuple[str, Transform]]) -> Transform:
    def transform(value: dict[str, Any]) -> dict[str, Any]:
        copy = value.copy()
        for key, part in transforms:
            old = copy.get(key)
            if old is not None:
                copy[key] = part(old)
        return copy

    return transform


def _transform_each(transform: Transform) -> Transform:
    return lambda values: [None if value is None else transform(value) for value in values]


def truncate_to_milliseconds(time: str) -> str:
    """Truncates the graph's six decimal digits of a second to the three of v3; the offset stays.

    >>> truncate_to_milliseconds("2016-01-19T08:40:25.934123Z")
    '2016-01-19T08:40:25.934Z'
    >>> truncate_to_milliseconds("2015-12-24T16:51:14.000000+01:00")
    '2015-12-24T16:51:14.000+01:00'
    """
    return time[:23] + time[26:]


def _truncate_all(times: list[str | None]) -> list[str | None]:
    return [None if time is None else time[:23] + time[26:] for time in times]


Schema = dict[str, Any]


class ListWrapper:
    """One object in a list, where v3 returns a list (`POST /hooks`)."""

    def __call__(self, value: Any, data: Mapping[str, Any]) -> Any:
        return [value]

    def transform_schema(self, schema: Schema) -> Schema:
        """The corresponding change of the response's JSON schema."""
        return {"type": "array", "items": schema}


wrap_in_list = ListWrapper()


class NullBody:
    """The body `null`."""

    def __call__(self, value: Any, data: Mapping[str, Any]) -> Any:
        return None

    def transform_schema(self, schema: Schema) -> Schema:
        return {"type": "null"}


return_null = NullBody()


class TrueBody:
    """The body `true`, for routes that return no object."""

    def __call__(self, value: Any, data: Mapping[str, Any]) -> Any:
        return True

    def transform_schema(self, schema: Schema) -> Schema:
        return {"type": "boolean", "const": True}


return_true = TrueBody()


class AdminOnlyKeys:
    """Removes keys from each object unless the operation's `viewer { isAdmin }` is true."""

    def __init__(self, *keys: str) -> None:
        self.keys = frozenset(keys)

    def __call__(self, value: Any, data: Mapping[str, Any]) -> Any:
        if data["viewer"]["isAdmin"]:
            return value
        return _map_objects(value, lambda entry: {key: part for key, part in entry.items() if key not in self.keys})

    def transform_schema(self, schema: Schema) -> Schema:
        def optional(entry: Schema) -> Schema:
            return {**entry, "required": [key for key in entry.get("required", ()) if key not in self.keys]}

        return _map_schemas(schema, optional)


show_keys_to_admins = AdminOnlyKeys


class ConstantKeys:
    """Adds constant keys to each object."""

    def __init__(self, **constant: Any) -> None:
        self.constant = constant

    def __call__(self, value: Any, data: Mapping[str, Any]) -> Any:
        return _map_objects(value, lambda entry: {**entry, **self.constant})

    def transform_schema(self, schema: Schema) -> Schema:
        def extended(entry: Schema) -> Schema:
            added = {key: {"const": value} for key, value in self.constant.items()}
            return {**entry, "properties": {**entry.get("properties", {}), **added}, "required": [*entry["required"], *added]}

        return _map_schemas(schema, extended)


add_keys = ConstantKeys


class PairsAsObject:
    """Makes an object of a list of `{key, value}` under one key."""

    def __init__(self, key: str) -> None:
        self.key = key

    def __call__(self, value: Any, data: Mapping[str, Any]) -> Any:
        pairs = value[self.key]
        return {**value, self.key: {pair["key"]: pair["value"] for pair in pairs} if pairs is not None else None}

    def transform_schema(self, schema: Schema) -> Schema:
        described = {"type": ["object", "null"], "additionalProperties": {"type": "string"}}
        return {**schema, "properties": {**schema["properties"], self.key: described}}


pairs_as_object = PairsAsObject


class MergedChild:
    """Merges the object under one key into its parent."""

    def __init__(self, key: str) -> None:
        self.key = key

    def __call__(self, value: Any, data: Mapping[str, Any]) -> Any:
        return _map_objects(value, lambda entry: {**entry[self.key], **{key: part for key, part in entry.items() if key != self.key}})

    def transform_schema(self, schema: Schema) -> Schema:
        def merged(entry: Schema) -> Schema:
            inner = entry["properties"][self.key]
            own = {key: part for key, part in entry["properties"].items() if key != self.key}
            required = [*inner["required"], *(key for key in entry["required"] if key != self.key)]
            return {**entry, "properties": {**inner["properties"], **own}, "required": required}

        return _map_schemas(schema, merged)


merge_child = MergedChild


class SortedBy:
    """Sorts a list by a key whose values are in this order; entries with equal values stay as they were."""

    def __init__(self, key: str, *order: str) -> None:
        self.key = key
        self.order = {value: position for position, value in enumerate(order)}

    def __call__(self, value: Any, data: Mapping[str, Any]) -> Any:
        return sorted(value, key=lambda entry: self.order[entry[self.key]])

    def transform_schema(self, schema: Schema) -> Schema:
        return schema


sort_by = SortedBy


class OldestFirst:
    """Reverses the list under one key, and adds its last entry (null if there is none) under another."""

    def __init__(self, key: str, *, last: str) -> None:
        self.key = key
        self.last = last

    def __call__(self, value: Any, data: Mapping[str, Any]) -> Any:
        entries = value[self.key][::-1]
        return {self.last: entries[-1] if entries else None, **value, self.key: entries}

    def transform_schema(self, schema: Schema) -> Schema:
        entry = {**schema["properties"][self.key]["items"]}
        last = {"anyOf": [entry, {"type": "null"}]}
        return {**schema, "properties": {self.last: last, **schema["properties"]}, "required": [self.last, *schema["required"]]}


oldest_first = OldestFirst


class FirstItem:
    """Replaces the list under one key of each object by its first item."""

    def __init__(self, key: str) -> None:
        self.key = key

    def __call__(self, value: Any, data: Mapping[str, Any]) -> Any:
        return _map_objects(value, lambda entry: {**entry, self.key: entry[self.key][0]})

    def transform_schema(self, schema: Schema) -> Schema:
        properties = schema["properties"]
        return {**schema, "properties": {**properties, self.key: properties[self.key]["items"]}}


take_first = FirstItem


class OnlyKey:
    """The value under one key, which may be null where the object is required."""

    def __init__(self, key: str) -> None:
        self.key = key

    def __call__(self, value: Any, data: Mapping[str, Any]) -> Any:
        return value[self.key]

    def transform_schema(self, schema: Schema) -> Schema:
        inner: Schema = schema["properties"][self.key]
        return inner


only_key = OnlyKey


class ActivityKeys:
    """Adds the keys of v3 that repeat a part of the activity, `author_username`, or that are always null, `title`."""

    def __call__(self, value: Any, data: Mapping[str, Any]) -> Any:
        return _map_objects(value, lambda entry: {**entry, "title": None, "author_username": entry["author"]["username"]})

    def transform_schema(self, schema: Schema) -> Schema:
        def extended(entry: Schema) -> Schema:
            added = {"title": {"type": "null"}, "author_username": {"type": "string"}}
            return {**entry, "properties": {**entry["properties"], **added}, "required": [*entry["required"], *added]}

        return _map_schemas(schema, extended)


activity_keys = ActivityKeys()


NOTIFICATION_LEVEL = 3
"""The level of that server for members who have chosen none: the one of their account."""


class AccessObjects:
    """Turns the levels below `permissions` into v3's objects of an access level and a notification level."""

    def __call__(self, value: Any, data: Mapping[str, Any]) -> Any:
        return _map_objects(value, lambda entry: {**entry, "permissions": {key: _access(entry["permissions"][key]) for key in ACCESS_KEYS}})

    def transform_schema(self, schema: Schema) -> Schema:
        properties = {"access_level": {"type": "integer"}, "notification_level": {"const": NOTIFICATION_LEVEL}}
        access = {"type": ["object", "null"], "properties": properties, "required": [*properties], "additionalProperties": False}
        permissions = {
            "type": "object",
            "properties": dict.fromkeys(ACCESS_KEYS, access),
            "required": [*ACCESS_KEYS],
            "additionalProperties": False,
        }

        def with_objects(entry: Schema) -> Schema:
            return {**entry, "properties": {**entry["properties"], "permissions": permissions}}

        return _map_schemas(schema, with_objects)


ACCESS_KEYS = ("project_access", "group_access")


def _access(level: int | None) -> dict[str, int] | None:
    return None if level is None else {"access_level": level, "notification_level": NOTIFICATION_LEVEL}


access_objects = AccessObjects()


def _map_objects(value: Any, transform: Callable[[Mapping[str, Any]], Any]) -> Any:
    return [transform(entry) for entry in value] if isinstance(value, list) else transform(value)


def _map_schemas(schema: Schema, transform: Callable[[Schema], Schema]) -> Schema:
    """The same change of the schema of an object, or of the objects of a list."""
    return {**schema, "items": transform(schema["items"])} if "items" in schema else transform(schema)
