"""JSON schemas of answers, parameters and bodies, made from the rows and their operations, and the names that they have together.

A schema is first written out whole, with the name that it should have as its `title`: that of the fragment which selects an object, of the
enum, of the row's shape. `Components` then puts a reference in the place of each, so that what is equal is one component.
"""

from collections.abc import Mapping
from typing import Any

import orjson
from graphql import get_named_type, get_nullable_type, is_enum_type, is_list_type, is_non_null_type

from rest_v3.endpoint import Endpoint
from rest_v3.operations import Selected, Variable
from rest_v3.params import NOT_SENT, Parameter
from rest_v3.values import LARGEST

Schema = dict[str, Any]

SCALARS: Mapping[str, Schema] = {
    "Int": {"type": "integer"},
    "BigInt": {"type": "integer"},
    "Float": {"type": "number"},
    "Boolean": {"type": "boolean"},
    "DateTime": {"type": "string", "format": "date-time"},
    "Date": {"type": "string", "format": "date"},
    "JSON": {"type": "object", "additionalProperties": True},
}
"""JSON schemas of the graph's scalars; one that is not here is text."""

KINDS: Mapping[str, Schema] = {
    "integer": {"type": "integer", "minimum": -LARGEST - 1, "maximum": LARGEST},
    "integers": {"type": "array", "items": {"type": "integer", "minimum": -LARGEST - 1, "maximum": LARGEST}},
    "boolean": {"type": "boolean"},
    "date": {"type": "string", "format": "date"},
    "names": {"type": "string", "description": "Names separated by commas."},
    "file": {"type": "string", "format": "binary"},
}
"""JSON schemas of the kinds of parameters; one that is not here is text."""

ID: Schema = {"type": "integer", "minimum": 1, "maximum": LARGEST}
NULL: Schema = {"type": "null"}

FIELD_MESSAGES: Schema = {"type": "object", "additionalProperties": {"type": "array", "items": {"type": "string"}}}
VALUE_MESSAGES: Schema = {"type": "object", "additionalProperties": {"$ref": "#/components/schemas/FieldMessages"}}


def error_schemas(*, by_value: bool) -> dict[str, Schema]:
    """The components of what every error is; `by_value`: whether rows report values of a list each by itself."""
    messages = FIELD_MESSAGES
    schemas = {"FieldMessages": messages}
    if by_value:
        either = {"anyOf": [FIELD_MESSAGES["additionalProperties"], {"$ref": "#/components/schemas/ValueMessages"}]}
        inner = {"type": "object", "additionalProperties": FIELD_MESSAGES}
        schemas = {"FieldMessages": {"type": "object", "additionalProperties": either}, "ValueMessages": inner}
    schemas["FieldMessages"] = {"description": "What is wrong with each parameter.", **schemas["FieldMessages"]}
    message = {
        "anyOf": [
            {"type": "string"},
            {"type": "array", "items": {"type": "string"}},
            {"$ref": "#/components/schemas/FieldMessages"},
        ]
    }
    error = {
        "type": "object",
        "description": "Why a call was refused.",
        "required": ["message"],
        "properties": {"message": message},
        "additionalProperties": False,
    }
    return {"Error": error, **schemas}


class Components:
    """Named schemas. Equal ones are one, whatever their names; what another one is called already is called after its place."""

    def __init__(self) -> None:
        self.schemas: dict[str, Schema] = {}
        self._reserved: dict[str, bytes] = {}
        self._names: dict[bytes, str] = {}

    def reserve(self, schema: Schema) -> None:
        """Gives a schema, and nothing else, the name that is its title. What is reserved first keeps a name."""
        if (name := schema.get("title")) is not None and name not in self._reserved:
            self._reserved[name] = _digest(schema)
            self._names.setdefault(_digest(schema), name)

    def refer(self, schema: Schema, place: str = "") -> Schema:
        """The schema with references to components in the place of all that has a title; `place` names what it stands in."""
        digest = _digest(schema)
        name = schema.get("title")
        if name is not None:
            name = self._name(digest, name, place)
        inner = {key: self._within(key, part, name or place) for key, part in schema.items() if key != "title"}
        if name is None:
            return inner
        self.schemas.setdefault(name, inner)
        return {"$ref": f"#/components/schemas/{name}"}

    def _within(self, key: str, part: Any, place: str) -> Any:
        if key == "properties":
            return {name: self.refer(each, f"{place}{_pascal(name)}") for name, each in part.items()}
        if key in ("items", "additionalProperties") and isinstance(part, dict):
            return self.refer(part, place)
        if key == "anyOf":
            return [self.refer(each, place) for each in part]
        return part

    def _name(self, digest: bytes, name: str, place: str) -> str:
        if digest not in self._names:
            taken = {*self._reserved, *self._names.values()}
            if name in taken:
                others = (place, *(f"{name}{number}" for number in range(2, 1000)))
                name = next(each for each in others if each and each not in taken)
            self._names[digest] = name
        return self._names[digest]


def _digest(schema: Schema) -> bytes:
    """What a schema comes to without its names and descriptions."""
    return orjson.dumps(_bare(schema), option=orjson.OPT_SORT_KEYS)


def _bare(part: Any, *, named: bool = False) -> Any:
    if isinstance(part, dict):
        return {key: _bare(each, named=key == "properties") for key, each in part.items() if named or key not in ("title", "description")}
    return [_bare(each) for each in part] if isinstance(part, list) else part


def answer_schema(endpoint: Endpoint) -> Schema:
    """The JSON schema of the body of success, written out."""
    route, target = endpoint.route, endpoint.target
    if target is None:
        return NULL
    if endpoint.paginated:
        schema = _field_schema(target.below["nodes"])
    else:
        # A null there is a 404, but for values that are no objects.
        schema = _field_schema(target, nullable=not target.below and not is_non_null_type(target.type))
    if route.reshape is not None:
        describe = getattr(route.reshape, "describe", None)
        schema = describe(schema) if describe is not None else {}
    entry = schema.get("items", schema)
    if entry.get("type") == "object" and route.shape is not None:
        entry["title"] = route.shape
        entry["description"] = named_description(target)
    return schema


def named_description(selected: Selected) -> str:
    """What the schema says of the type of a field."""
    if selected.is_connection and "nodes" in selected.below:
        selected = selected.below["nodes"]
    return get_named_type(selected.type).description or selected.type_name


def with_other_bodies(schema: Schema, endpoint: Endpoint) -> Schema:
    """The schema of success with the constant bodies that the row answers instead, as `null` for what was gone already."""
    bodies = [answer[1] if isinstance(answer, tuple) else None for answer in endpoint.route.errors.values() if _status(answer) < 400]
    if False in bodies and schema.get("const") is True:
        return {"type": "boolean", "description": "Whether anything was changed."}
    return nullable(schema) if None in bodies else schema


def _status(answer: Any) -> int:
    return int(answer[0] if isinstance(answer, tuple) else answer)


def nullable(schema: Schema) -> Schema:
    """The schema of the same or null."""
    if schema == NULL or NULL in schema.get("anyOf", ()):
        return schema
    if "title" in schema or "$ref" in schema or "const" in schema or "enum" in schema or not isinstance(schema.get("type"), str):
        return {"anyOf": [schema, NULL]} if schema else schema
    return {**schema, "type": [schema["type"], "null"]}


def _field_schema(selected: Selected, *, nullable: bool | None = None) -> Schema:
    if nullable is None:
        nullable = not is_non_null_type(selected.type)
    kind = get_nullable_type(selected.type)
    if is_list_type(kind):
        schema: Schema = {"type": "array", "items": _entry_schema(selected, nullable=not is_non_null_type(kind.of_type))}
    else:
        schema = _entry_schema(selected, nullable=False)
    return _or_null(schema) if nullable else schema


_or_null = nullable


def _entry_schema(selected: Selected, *, nullable: bool) -> Schema:
    named: Any = get_named_type(selected.type)
    if selected.is_connection and "nodes" in selected.below:
        schema = _field_schema(selected.below["nodes"])
    elif selected.is_connection:
        schema = dict(SCALARS["Int"])
    elif selected.below:
        schema = {
            "title": _pascal(selected.fragment or named.name),
            "type": "object",
            "description": named.description or named.name,
            "properties": {key: _described(_field_schema(part), part.description) for key, part in selected.below.items()},
            "required": [key for key, part in selected.below.items() if part.always],
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
        schema = dict(SCALARS.get(named.name, {"type": "string"}))
    return _or_null(schema) if nullable else schema


def _described(schema: Schema, description: str | None) -> Schema:
    """The schema with a description, where it is no component and has none of its own."""
    if description is None or "description" in schema or "anyOf" in schema or "title" in schema.get("items", {}):
        return schema
    return {**schema, "description": description}


def parameter_schema(parameter: Parameter, variable: Variable | None) -> Schema:
    """What may be sent for a parameter, written out."""
    schema = dict(KINDS.get(parameter.kind, {"type": "string"}))
    if parameter.words:
        schema = _words_schema(parameter, variable)
    elif parameter.numbers:
        enum = variable.enum if variable is not None else None
        name = f"{enum.name}Number" if enum is not None else _pascal(parameter.name)
        schema = {"title": name, "type": "integer", "enum": list(parameter.numbers)}
        if parameter.kind == "integers":
            schema = {"type": "array", "items": schema}
    elif parameter.required and parameter.kind == "text":
        # A blank counts as not sent.
        schema |= {"minLength": 1, "pattern": r"\S"}
    if parameter.default is not NOT_SENT and parameter.default is not None:
        schema["default"] = parameter.default
    if parameter.null is not NOT_SENT:
        schema = nullable(schema)
    return schema


def _words_schema(parameter: Parameter, variable: Variable | None) -> Schema:
    enum = variable.enum if variable is not None else None
    schema: Schema = {"type": "string", "enum": sorted(parameter.words)}
    if enum is not None:
        own = {name.lower() for name in enum.values}
        if own == set(parameter.words):
            schema = {"title": enum.name, "type": "string", "enum": [name.lower() for name in enum.values]}
        else:
            schema["title"] = f"{enum.name}{'Filter' if parameter.lenient else 'Word'}"
        schema["description"] = enum.description or enum.name
    else:
        schema["title"] = _pascal(parameter.name)
    return {"type": "array", "items": schema} if parameter.kind == "choices" else schema


def body_schema(name: str, parameters: list[Parameter], variables: Mapping[str, Variable], one_of: tuple[str, ...]) -> Schema:
    """The fields of a body, as JSON, in a form or in a multipart form."""
    properties = {}
    for parameter in parameters:
        schema = parameter_schema(parameter, variables.get(parameter.name))
        if parameter.about and "title" not in schema and "title" not in schema.get("items", {}):
            schema = {**schema, "description": parameter.about}
        properties[parameter.name] = schema
    schema = {"title": name, "type": "object", "properties": properties}
    required = [parameter.name for parameter in parameters if parameter.required]
    if required:
        schema["required"] = required
    if one_of:
        schema["description"] = f"At least one of {' and '.join(one_of)} has to be sent."
    return schema


def _pascal(name: str) -> str:
    """>>> _pascal("userLinked"), _pascal("merge_requests_events")
    ('UserLinked', 'MergeRequestsEvents')
    """
    return "".join(part[:1].upper() + part[1:] for part in name.split("_"))
