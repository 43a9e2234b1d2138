"""Parses the variables of an operation from a URL: strings, converted by the operation's types.

name=text                  String, ID, enumerations and timestamps; Int, Float, Boolean (true, false, 1, 0)
name=a&name=b              a list: the name once for each item
name={"since": "…"}        an input object, as JSON
name.since=…               the same, one parameter for each field
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

from graph.http.requests import GraphqlRequestError, parse_json
from rest_v3.operations import RouteOperationVariable

INTEGER_PATTERN = re.compile(r"-?[0-9]{1,19}")
NUMBER_PATTERN = re.compile(r"-?[0-9]{1,64}(\.[0-9]{1,64})?([eE][+-]?[0-9]{1,4})?")
BOOLEAN_VALUES = {"true": True, "1": True, "false": False, "0": False}
MAX_SHOWN_LENGTH = 80


def parse_variables(known: Mapping[str, RouteOperationVariable], pairs: Iterable[tuple[str, str]]) -> dict[str, Any]:
    """The variables of the parameters. Raises GraphqlRequestError, 400, which names every unknown, missing or invalid one."""
    values_by_name: dict[str, list[str]] = {}
    problems: list[str] = []
    for name, value in pairs:
        head, dot, _ = name.partition(".")
        if name not in known and not (dot and head in known):
            problems.append(f"{name[:MAX_SHOWN_LENGTH]} is unknown.")
        else:
            values_by_name.setdefault(name, []).append(value)
    variables: dict[str, Any] = {}
    for name, values in values_by_name.items():
        try:
            _set_variable(variables, known, name, values)
        except ValueError as error:
            problems.append(f"{name[:MAX_SHOWN_LENGTH]}: {error}.")
    sent = {name.partition(".")[0] for name in values_by_name}
    problems += [f"{name} is missing." for name, variable in known.items() if variable.is_required and name not in sent]
    if problems:
        signature = ", ".join(f"{name} ({variable.type})" for name, variable in known.items())
        raise GraphqlRequestError(
            400, " ".join([*problems[:10], f"It takes {signature}." if signature else "The query takes no variables."])
        )
    return variables


def _set_variable(variables: dict[str, Any], known: Mapping[str, RouteOperationVariable], name: str, values: list[str]) -> None:
    head, *path = name.split(".")
    kind: GraphQLInputType = known[head].type
    key, target = head, variables
    for part in path:
        named = get_nullable_type(kind)
        if not isinstance(named, GraphQLInputObjectType):
            raise ValueError(f"a {kind} has no fields")
        if part not in named.fields:
            raise ValueError(f"a {named} has no field {part[:MAX_SHOWN_LENGTH]}; it has {', '.join(named.fields)}")
        target = target.setdefault(key, {})
        if not isinstance(target, dict):
            raise ValueError("it is also set as a whole")
        key, kind = part, named.fields[part].type
    if key in target:
        raise ValueError("it is also set field by field")
    target[key] = _parse_value(kind, values)


def _parse_value(kind: GraphQLInputType, values: list[str]) -> Any:
    nullable = get_nullable_type(kind)
    if is_list_type(nullable):
        return [_parse_value(nullable.of_type, [text]) for text in values]
    if len(values) > 1:
        raise ValueError("it is set twice")
    named, value = get_named_type(kind), values[0]
    if isinstance(named, GraphQLInputObjectType):
        return _parse_object(value)
    if isinstance(named, GraphQLEnumType):
        if value not in named.values:
            raise ValueError(f"must be one of {', '.join(named.values)}")
        return value
    if named.name in ("Int", "BigInt"):
        if not INTEGER_PATTERN.fullmatch(value):
            raise ValueError("must be an integer")
        return int(value)
    if named.name == "Float":
        return _parse_number(value)
    if named.name == "Boolean":
        if value not in BOOLEAN_VALUES:
            raise ValueError("must be true or false")
        return BOOLEAN_VALUES[value]
    return value


def _parse_object(raw: str) -> Any:
    try:
        value = parse_json(raw.encode(), "it")
    except GraphqlRequestError as refused:
        raise ValueError(refused.message.rstrip(".")) from None
    if not isinstance(value, dict):
        raise ValueError("must be a JSON object, or be set field by field as name.field")
    return value


def _parse_number(raw: str) -> float:
    value = float(raw) if NUMBER_PATTERN.fullmatch(raw) else inf
    if not isfinite(value):
        raise ValueError("must be a number")
    return value
