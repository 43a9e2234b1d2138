"""The variables of an operation as a URL has them: text, of which the operation's types say what it means.

name=text                  String, ID, enumerations and times as they are; Int, Float, Boolean (true, false, 1, 0) as spelled
name=a&name=b              a list: the name once for each item
name={"since": "…"}        an input object, as JSON
name.since=…               the same, a field at a time
"""

import re
from collections.abc import Iterable, Mapping
from math import inf, isfinite
from typing import Any

from graphql import (
    GraphQLEnumType,
    GraphQLInputObjectType,
    GraphQLInputType,
    get_named_type,
    get_nullable_type,
    is_list_type,
)

from graph.requests import Refused, json_of
from rest_v3.operations import Variable

WHOLE = re.compile(r"-?[0-9]{1,19}")
NUMBER = re.compile(r"-?[0-9]{1,64}(\.[0-9]{1,64})?([eE][+-]?[0-9]{1,4})?")
BOOLEANS = {"true": True, "1": True, "false": False, "0": False}
SHOWN = 80


def variables_of(known: Mapping[str, Variable], pairs: Iterable[tuple[str, str]]) -> dict[str, Any]:
    """What the parameters say. Raises Refused, 400, which names everything that is unknown, missing or cannot be read."""
    texts: dict[str, list[str]] = {}
    problems: list[str] = []
    for name, text in pairs:
        head, dot, _ = name.partition(".")
        if name not in known and not (dot and head in known):
            problems.append(f"{name[:SHOWN]} is unknown.")
        else:
            texts.setdefault(name, []).append(text)
    found: dict[str, Any] = {}
    for name, values in texts.items():
        try:
            _put(found, known, name, values)
        except ValueError as error:
            problems.append(f"{name[:SHOWN]}: {error}.")
    problems += [f"{name} is missing." for name, variable in known.items() if variable.required and name not in found]
    if problems:
        takes = ", ".join(f"{name} ({variable.type})" for name, variable in known.items())
        raise Refused(400, " ".join([*problems[:10], f"It takes {takes}." if takes else "It takes no variables."]))
    return found


def _put(found: dict[str, Any], known: Mapping[str, Variable], name: str, texts: list[str]) -> None:
    head, *way = name.split(".")
    kind: GraphQLInputType = known[head].type
    key, place = head, found
    for part in way:
        named = get_nullable_type(kind)
        if not isinstance(named, GraphQLInputObjectType):
            raise ValueError(f"a {kind} has no fields")
        if part not in named.fields:
            raise ValueError(f"a {named} has no field {part[:SHOWN]}, but {', '.join(named.fields)}")
        place = place.setdefault(key, {})
        if not isinstance(place, dict):
            raise ValueError("it is given as a whole too")
        key, kind = part, named.fields[part].type
    if key in place:
        raise ValueError("it is given field by field too")
    place[key] = _value(kind, texts)


def _value(kind: GraphQLInputType, texts: list[str]) -> Any:
    nullable = get_nullable_type(kind)
    if is_list_type(nullable):
        return [_value(nullable.of_type, [text]) for text in texts]
    if len(texts) > 1:
        raise ValueError("it is given twice")
    named, text = get_named_type(kind), texts[0]
    if isinstance(named, GraphQLInputObjectType):
        return _object(text)
    if isinstance(named, GraphQLEnumType):
        if text not in named.values:
            raise ValueError(f"it is one of {', '.join(named.values)}")
        return text
    if named.name in ("Int", "BigInt"):
        if not WHOLE.fullmatch(text):
            raise ValueError("it is a whole number")
        return int(text)
    if named.name == "Float":
        return _number(text)
    if named.name == "Boolean":
        if text not in BOOLEANS:
            raise ValueError("it is true or false")
        return BOOLEANS[text]
    return text


def _object(text: str) -> Any:
    try:
        value = json_of(text.encode(), "it")
    except Refused as refused:
        raise ValueError(refused.message.rstrip(".")) from None
    if not isinstance(value, dict):
        raise ValueError("it is a JSON object, or is given field by field as name.field")
    return value


def _number(text: str) -> float:
    value = float(text) if NUMBER.fullmatch(text) else inf
    if not isfinite(value):
        raise ValueError("it is a number")
    return value
