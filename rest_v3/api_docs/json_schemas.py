"""JSON schemas of responses, parameters and bodies, derived from the routes and their operations, and the component registry.

A schema is first written inline, with its name as the `title`: the name of the fragment that selects an object, of the enum, or of the
route's shape. `ComponentRegistry` then replaces each with a reference, so that equal schemas become one component.
"""

from collections.abc import Mapping
from typing import Any

import orjson
from graphql import get_named_type, get_nullable_type, is_enum_type, is_list_type, is_non_null_type

from rest_v3.endpoints.endpoint import Endpoint
from rest_v3.operations import RouteOperationVariable, SelectedField
from rest_v3.requests.params import NOT_SENT, RouteParameter
from rest_v3.requests.values import MAX_INT
from rest_v3.route import PathNumber

Schema = dict[str, Any]

SCALAR_SCHEMAS: Mapping[str, Schema] = {
    "Int": {"type": "integer"},
    "BigInt": {"type": "integer"},
    "Float": {"type": "number"},
    "Boolean": {"type": "boolean"},
    "DateTime": {"type": "string", "format": "date-time"},
    "Date": {"type": "string", "format": "date"},
    "JSON": {"type": "object", "additionalProperties": True},
}
"""JSON schemas of the graph's scalars; any other scalar is a string."""

PARAMETER_SCHEMAS: Mapping[str, Schema] = {
    "pairs": {"type": "object", "additionalProperties": {"type": "string"}},
    "integer": {"type": "integer", "minimum": -MAX_INT - 1, "maximum": MAX_INT},
    "integers": {"type": "array", "items": {"type": "integer", "minimum": -MAX_INT - 1, "maximum": MAX_INT}},
    "boolean": {"type": "boolean"},
    "date": {"type": "string", "format": "date"},
    "names": {"type": "string", "description": "Names separated by commas."},
    "file": {"type": "string", "format": "binary"},
}
"""JSON schemas of the kinds of parameters; any other kind is a string."""

ID_SCHEMA: Schema = {"type": "integer", "minimum": 1, "maximum": MAX_INT}
NULL_SCHEMA: Schema = {"type": "null"}

FIELD_MESSAGES_SCHEMA: Schema = {"type": "object", "additionalProperties": {"type": "array", "items": {"type": "string"}}}


def error_schemas(*, by_value: bool) -> dict[str, Schema]:
    """The components of an error body. `by_value`: whether routes report each value of a list separately."""
    messages = FIELD_MESSAGES_SCHEMA
    schemas = {"FieldMessages": messages}
    if by_value:
        either = {"anyOf": [FIELD_MESSAGES_SCHEMA["additionalProperties"], {"$ref": "#/components/schemas/ValueMessages"}]}
        inner = {"type": "object", "additionalProperties": FIELD_MESSAGES_SCHEMA}
        schemas = {"FieldMessages": {"type": "object", "additionalProperties": either}, "ValueMessages": inner}
    schemas["FieldMessages"] = {"description": "The validation errors of each parameter.", **schemas["FieldMessages"]}
    message = {
        "anyOf": [
            {"type": "string"},
            {"type": "array", "items": {"type": "string"}},
            {"$ref": "#/components/schemas/FieldMessages"},
        ]
    }
    error = {
        "type": "object",
        "description": "Why the call was refused.",
        "required": ["message"],
        "properties": {"message": message},
        "additionalProperties": False,
    }
    return {"Error": error, **schemas}


class ComponentRegistry:
    """Named schemas. Equal schemas become one component, whatever their names; a name already in use is qualified by its context."""

    def __init__(self) -> None:
        self.schemas: dict[str, Schema] = {}
        self._reserved: dict[str, bytes] = {}
        self._names: dict[bytes, str] = {}

    def reserve(self, schema: Schema) -> None:
        """Registers a schema under its title. Names that are reserved first are kept."""
        if (name := schema.get("title")) is not None and name not in self._reserved:
            self._reserved[name] = _digest(schema)
            self._names.setdefault(_digest(schema), name)

    def replace_with_references(self, schema: Schema, context_name: str = "") -> Schema:
        """Replaces every titled schema by a reference to a component; `context_name` names the surrounding schema."""
        digest = _digest(schema)
        name = schema.get("title")
        if name is not None:
            name = self._assign_name(digest, name, context_name)
        inner = {key: self._replace_member(key, part, name or context_name) for key, part in schema.items() if key != "title"}
        if name is None:
            return inner
        self.schemas.setdefault(name, inner)
        return {"$ref": f"#/components/schemas/{name}"}

    def _replace_member(self, key: str, part: Any, context_name: str) -> Any:
        if key == "properties":
            return {name: self.replace_with_references(each, f"{context_name}{_pascal_case(name)}") for name, each in part.items()}
        if key in ("items", "additionalProperties") and isinstance(part, dict):
            return self.replace_with_references(part, context_name)
        if key == "anyOf":
            return [self.replace_with_references(each, context_name) for each in part]
        return part

    def _assign_name(self, digest: bytes, name: str, context_name: str) -> str:
        if digest not in self._names:
            used_names = {*self._reserved, *self._names.values()}
            if name in used_names:
                candidates = (context_name, *(f"{name}{number}" for number in range(2, 1000)))
                name = next(each for each in candidates if each and each not in used_names)
            self._names[digest] = name
        return self._names[digest]


def _digest(schema: Schema) -> bytes:
    """A schema without its names and descriptions, for comparison."""
    return orjson.dumps(_strip_annotations(schema), option=orjson.OPT_SORT_KEYS)


def _strip_annotations(part: Any, *, named: bool = False) -> Any:
    if isinstance(part, dict):
        return {
            key: _strip_annotations(each, named=key == "properties")
            for key, each in part.items()
            if named or key not in ("title", "description")
        }
    return [_strip_annotations(each) for each in part] if isinstance(part, list) else part


def response_schema(endpoint: Endpoint) -> Schema:
    """The JSON schema of a successful response, inline."""
    route, target = endpoint.route, endpoint.target
    if target is None:
        return NULL_SCHEMA
    if endpoint.is_paginated:
        schema = _field_schema(target.subfields["nodes"])
    else:
        # A null there is a 404, except where the value is not an object.
        schema = _field_schema(target, is_nullable=not target.subfields and not is_non_null_type(target.type))
    if route.reshape is not None:
        transform_schema = getattr(route.reshape, "transform_schema", None)
        schema = transform_schema(schema) if transform_schema is not None else {}
    entry = schema.get("items", schema)
    if entry.get("type") == "object" and route.shape is not None:
        entry["title"] = route.shape
        entry["description"] = named_description(target)
    return schema


def named_description(selected: SelectedField) -> str:
    """The description of a field's type, of a connection that of its rows' type; its name where it has none."""
    if selected.is_connection and "nodes" in selected.subfields:
        selected = selected.subfields["nodes"]
    return get_named_type(selected.type).description or selected.type_name


def add_constant_bodies(schema: Schema, endpoint: Endpoint) -> Schema:
    """The schema of success, with the constant bodies that the route may return instead, such as `null` for something already deleted."""
    bodies = [answer[1] if isinstance(answer, tuple) else None for answer in endpoint.route.errors.values() if _status_of(answer) < 400]
    if False in bodies and schema.get("const") is True:
        return {"type": "boolean", "description": "Whether anything was changed."}
    if objects := [body for body in bodies if isinstance(body, dict)]:
        return {"anyOf": [schema, _constant_object_schema(f"{endpoint.route.shape}Absence", objects[0])]}
    return make_nullable(schema) if None in bodies else schema


def _constant_object_schema(title: str, body: Mapping[str, Any]) -> Schema:
    properties = {key: {"type": "integer"} if isinstance(value, PathNumber) else {"const": value} for key, value in body.items()}
    description = "Nothing was there to delete."
    return {"type": "object", "title": title, "description": description, "required": [*body], "properties": properties}


def _status_of(answer: Any) -> int:
    return int(answer[0] if isinstance(answer, tuple) else answer)


def make_nullable(schema: Schema) -> Schema:
    """The schema, or null."""
    if schema == NULL_SCHEMA or NULL_SCHEMA in schema.get("anyOf", ()):
        return schema
    if "title" in schema or "$ref" in schema or "const" in schema or "enum" in schema or not isinstance(schema.get("type"), str):
        return {"anyOf": [schema, NULL_SCHEMA]} if schema else schema
    return {**schema, "type": [schema["type"], "null"]}


def _field_schema(selected: SelectedField, *, is_nullable: bool | None = None) -> Schema:
    if is_nullable is None:
        is_nullable = not is_non_null_type(selected.type)
    kind = get_nullable_type(selected.type)
    if is_list_type(kind):
        schema: Schema = {"type": "array", "items": _entry_schema(selected, is_nullable=not is_non_null_type(kind.of_type))}
    else:
        schema = _entry_schema(selected, is_nullable=False)
    return make_nullable(schema) if is_nullable else schema


def _entry_schema(selected: SelectedField, *, is_nullable: bool) -> Schema:
    named: Any = get_named_type(selected.type)
    if selected.is_connection and "nodes" in selected.subfields:
        schema = _field_schema(selected.subfields["nodes"])
    elif selected.is_connection:
        schema = dict(SCALAR_SCHEMAS["Int"])
    elif selected.subfields:
        schema = {
            "title": _pascal_case(selected.fragment or named.name),
            "type": "object",
            "description": named.description or named.name,
            "properties": {key: _add_description(_field_schema(part), part.description) for key, part in selected.subfields.items()},
            "required": [key for key, part in selected.subfields.items() if part.is_always_present],
            "additionalProperties": False,
        }
    elif is_enum_type(named):
        schema = {
            "title": named.name,
            "type": "string",
            "description": named.description or named.name,
            "enum": [name.lower() for name in named.values],
        }
    else:
        schema = dict(SCALAR_SCHEMAS.get(named.name, {"type": "string"}))
    return make_nullable(schema) if is_nullable else schema


def _add_description(schema: Schema, description: str | None) -> Schema:
    """Adds a description to a schema that is not a component and has none."""
    if description is None or "description" in schema or "anyOf" in schema or "title" in schema.get("items", {}):
        return schema
    return {**schema, "description": description}


def parameter_schema(parameter: RouteParameter, variable: RouteOperationVariable | None) -> Schema:
    """The JSON schema of a parameter's values, inline."""
    schema = dict(PARAMETER_SCHEMAS.get(parameter.kind, {"type": "string"}))
    if parameter.allowed_words:
        schema = _choice_schema(parameter, variable)
    elif parameter.allowed_numbers:
        enum = variable.enum if variable is not None else None
        name = f"{enum.name}Number" if enum is not None else _pascal_case(parameter.name)
        schema = {"title": name, "type": "integer", "enum": list(parameter.allowed_numbers)}
        if parameter.kind == "integers":
            schema = {"type": "array", "items": schema}
    elif parameter.is_required and parameter.kind == "text":
        # A blank counts as not sent.
        schema |= {"minLength": 1, "pattern": r"\S"}
    if parameter.default is not NOT_SENT and parameter.default is not None:
        schema["default"] = parameter.default
    if parameter.null_value is not NOT_SENT:
        schema = make_nullable(schema)
    return schema


def _choice_schema(parameter: RouteParameter, variable: RouteOperationVariable | None) -> Schema:
    enum = variable.enum if variable is not None else None
    schema: Schema = {"type": "string", "enum": sorted(parameter.allowed_words)}
    if enum is not None:
        own = {name.lower() for name in enum.values}
        if own == set(parameter.allowed_words):
            schema = {"title": enum.name, "type": "string", "enum": [name.lower() for name in enum.values]}
        else:
            schema["title"] = f"{enum.name}{'Filter' if parameter.is_lenient else 'Word'}"
        schema["description"] = enum.description or enum.name
    else:
        schema["title"] = _pascal_case(parameter.name)
    return {"type": "array", "items": schema} if parameter.kind == "choices" else schema


def body_schema(
    name: str, parameters: list[RouteParameter], variables: Mapping[str, RouteOperationVariable], one_of: tuple[str, ...]
) -> Schema:
    """The fields of a body, as JSON, a form or a multipart form."""
    properties = {}
    for parameter in parameters:
        schema = parameter_schema(parameter, variables.get(parameter.name))
        if parameter.description and "title" not in schema and "title" not in schema.get("items", {}):
            schema = {**schema, "description": parameter.description}
        properties[parameter.name] = schema
    schema = {"title": name, "type": "object", "properties": properties}
    required = [parameter.name for parameter in parameters if parameter.is_required]
    if required:
        schema["required"] = required
    if one_of:
        schema["description"] = f"At least one of {' and '.join(one_of)} is required."
    return schema


def _pascal_case(name: str) -> str:
    """>>> _pascal_case("userLinked"), _pascal_case("merge_requests_events")
    ('UserLinked', 'MergeRequestsEvents')
    """
    return "".join(part[:1].upper() + part[1:] for part in name.split("_"))
