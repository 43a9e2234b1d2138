"""Conversions that a profile adds to those of its routes (`rest_v3/reshape.py`).

Objects are converted wherever they occur in a body, by their keys, because the same entity is nested in many others.
"""

from collections.abc import Callable, Mapping
from typing import Any

from rest_v3.route import Reshape

Schema = dict[str, Any]
Object = dict[str, Any]


class EachObject:
    """Converts every object of a body, inner ones first."""

    def convert(self, entry: Object) -> Object:
        raise NotImplementedError

    def convert_schema(self, entry: Schema) -> Schema:
        raise NotImplementedError

    def __call__(self, value: Any, data: Mapping[str, Any]) -> Any:
        return _map_values(value, self.convert)

    def transform_schema(self, schema: Schema) -> Schema:
        return _map_schemas(schema, self.convert_schema)


class MappedValues(EachObject):
    """Replaces the values, or those of a list, under these keys. 0 stays. `name` is that of their schema."""

    def __init__(self, name: str, keys: tuple[str, ...], values: Mapping[Any, Any]) -> None:
        self.name = name
        self.keys = keys
        self.values = values

    def convert(self, entry: Object) -> Object:
        return {**entry, **{key: self._replace(entry[key]) for key in self.keys if key in entry}}

    def _replace(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self.values.get(each, each) for each in value]
        return self.values.get(value, value)

    def convert_schema(self, entry: Schema) -> Schema:
        properties = {key: self._describe(part) if key in self.keys else part for key, part in entry["properties"].items()}
        return {**entry, "properties": properties}

    def _describe(self, schema: Schema) -> Schema:
        if "items" in schema:
            return {**schema, "items": self._describe(schema["items"])}
        return {**schema, "title": self.name, "enum": [0, *self.values.values()]}


class OmittedNulls(EachObject):
    """Leaves out these keys where their value is null."""

    def __init__(self, *keys: str) -> None:
        self.keys = frozenset(keys)

    def convert(self, entry: Object) -> Object:
        return {key: value for key, value in entry.items() if value is not None or key not in self.keys}

    def convert_schema(self, entry: Schema) -> Schema:
        properties = {key: _without_null(part) if key in self.keys else part for key, part in entry["properties"].items()}
        return {**entry, "properties": properties, "required": [key for key in entry.get("required", ()) if key not in self.keys]}


class EmptyLists(EachObject):
    """Replaces null under these keys by an empty list."""

    def __init__(self, *keys: str) -> None:
        self.keys = keys

    def convert(self, entry: Object) -> Object:
        return {**entry, **{key: [] for key in self.keys if key in entry and entry[key] is None}}

    def convert_schema(self, entry: Schema) -> Schema:
        properties = entry["properties"]
        lists = {key: {**properties[key], "type": "array"} for key in self.keys if key in properties}
        return {**entry, "properties": {**properties, **lists}}


class Identities(EachObject):
    """Makes the list `identities` of `provider` and `extern_uid`."""

    def convert(self, entry: Object) -> Object:
        if "extern_uid" not in entry:
            return entry
        provider, extern_uid = entry["provider"], entry["extern_uid"]
        identities = [{"provider": provider, "extern_uid": extern_uid}] if provider is not None and extern_uid is not None else []
        return _replace_keys(entry, "provider", "identities", identities, removed="extern_uid")

    def convert_schema(self, entry: Schema) -> Schema:
        properties = entry["properties"]
        if "extern_uid" not in properties:
            return entry
        identity = {
            "type": "object",
            "title": "Identity",
            "required": ["provider", "extern_uid"],
            "properties": {"provider": {"type": "string"}, "extern_uid": {"type": "string"}},
            "additionalProperties": False,
        }
        described = _replace_keys(properties, "provider", "identities", {"type": "array", "items": identity}, removed="extern_uid")
        required = ["identities" if key == "provider" else key for key in entry["required"] if key != "extern_uid"]
        return {**entry, "properties": described, "required": required}


class InnerConstants(EachObject):
    """Adds constant keys to the object under one key of each object."""

    def __init__(self, key: str, **constants: Any) -> None:
        self.key = key
        self.constants = constants

    def convert(self, entry: Object) -> Object:
        inner = entry.get(self.key)
        return {**entry, self.key: {**inner, **self.constants}} if isinstance(inner, dict) else entry

    def convert_schema(self, entry: Schema) -> Schema:
        inner = entry["properties"].get(self.key, {})
        if "properties" not in inner:
            return entry
        added = {key: {"const": value} for key, value in self.constants.items()}
        extended = {**inner, "properties": {**inner["properties"], **added}, "required": [*inner["required"], *added]}
        return {**entry, "properties": {**entry["properties"], self.key: extended}}


class KeyOrder:
    """Puts keys of each object into this order; further ones follow."""

    def __init__(self, *keys: str) -> None:
        self.keys = keys

    def __call__(self, value: Any, data: Mapping[str, Any]) -> Any:
        return [self._sort(entry) for entry in value] if isinstance(value, list) else self._sort(value)

    def _sort(self, entry: Object) -> Object:
        return {**{key: entry[key] for key in self.keys}, **entry}

    def transform_schema(self, schema: Schema) -> Schema:
        return schema


class LastKeys:
    """Puts these keys of each object, where it has them, behind all others."""

    def __init__(self, *keys: str) -> None:
        self.keys = keys

    def __call__(self, value: Any, data: Mapping[str, Any]) -> Any:
        return [self._sort(entry) for entry in value] if isinstance(value, list) else self._sort(value)

    def _sort(self, entry: Object) -> Object:
        others = {key: part for key, part in entry.items() if key not in self.keys}
        return {**others, **{key: entry[key] for key in self.keys if key in entry}}

    def transform_schema(self, schema: Schema) -> Schema:
        return schema


class Chain:
    """Conversions one after the other."""

    def __init__(self, *steps: Reshape) -> None:
        self.steps = steps

    def __call__(self, value: Any, data: Mapping[str, Any]) -> Any:
        for step in self.steps:
            value = step(value, data)
        return value

    def transform_schema(self, schema: Schema) -> Schema:
        for step in self.steps:
            schema = getattr(step, "transform_schema", lambda _: {})(schema)
        return schema


def _replace_keys(entry: Mapping[str, Any], old: str, new: str, value: Any, *, removed: str) -> dict[str, Any]:
    """The object with one key in the place of another, and without a third."""
    return {new if key == old else key: value if key == old else part for key, part in entry.items() if key != removed}


def _without_null(schema: Schema) -> Schema:
    if "anyOf" in schema:
        (other,) = (each for each in schema["anyOf"] if each.get("type") != "null")
        return dict(other)
    kinds = schema.get("type")
    return {**schema, "type": kinds[0]} if isinstance(kinds, list) else schema


def _map_values(value: Any, convert: Callable[[Object], Object]) -> Any:
    if isinstance(value, list):
        return [_map_values(each, convert) for each in value]
    if isinstance(value, dict):
        return convert({key: _map_values(part, convert) for key, part in value.items()})
    return value


def _map_schemas(schema: Schema, convert: Callable[[Schema], Schema]) -> Schema:
    if "items" in schema:
        return {**schema, "items": _map_schemas(schema["items"], convert)}
    if "anyOf" in schema:
        return {**schema, "anyOf": [_map_schemas(each, convert) for each in schema["anyOf"]]}
    if "properties" in schema:
        properties = {key: _map_schemas(part, convert) for key, part in schema["properties"].items()}
        return convert({**schema, "properties": properties})
    return schema
