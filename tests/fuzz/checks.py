"""Hooks for schemathesis (SCHEMATHESIS_HOOKS): a check of each answer, and ids of existing objects.

Made-up ids and paths are nobody's, so that nearly every answer would be 404. Three of four are replaced by what the server has, which
follows from the value that was made up, so that the same seed asks the same.
"""

import json
import os
from typing import Any
from zlib import crc32

import schemathesis
from graphql import ArgumentNode, IntValueNode, ObjectFieldNode, StringValueNode, Visitor, visit

CODES = {
    *("UNAUTHENTICATED", "FORBIDDEN", "NOT_FOUND", "LIMIT_EXCEEDED", "UNAVAILABLE", "BAD_REQUEST", "INTERNAL"),
    *("INVALID", "REQUIRED", "TAKEN", "CONFLICT", "NOT_ALLOWED", "NOT_MERGEABLE", "NOT_SET", "TOO_LARGE"),
}
WORDS = ("Traceback", 'File "/', "sqlalchemy", "asyncpg", "sqlite3")


VALUES = json.loads(os.environ.get("FORGEFRONT_FUZZ_VALUES", '{"words": {}, "numbers": [1]}'))


def replace_with_real(name: str, made_up: Any) -> Any:
    """Something that is there in the place of a value that was made up, or that value."""
    number = crc32(repr((name, made_up)).encode("utf-8", "surrogatepass"))
    if number % 4 == 0:
        return made_up
    if isinstance(made_up, int) and not isinstance(made_up, bool):
        return VALUES["numbers"][number // 4 % len(VALUES["numbers"])]
    if isinstance(made_up, str) and name in VALUES["words"]:
        return VALUES["words"][name][number // 4 % len(VALUES["words"][name])]
    return made_up


@schemathesis.hook
def map_path_parameters(context: Any, path_parameters: dict[str, Any] | None) -> dict[str, Any] | None:
    return path_parameters and {name: replace_with_real(name, value) for name, value in path_parameters.items()}


class LiteralReplacer(Visitor):
    """Puts what is there in the place of literals, by the names of arguments and of input fields."""

    def enter_argument(self, node: ArgumentNode, *_: Any) -> Any:
        return _replace_literal(node)

    def enter_object_field(self, node: ObjectFieldNode, *_: Any) -> Any:
        return _replace_literal(node)


def _replace_literal(node: Any) -> Any:
    name = node.name.value
    if isinstance(node.value, StringValueNode):
        value: Any = StringValueNode(value=replace_with_real(name, node.value.value))
    elif isinstance(node.value, IntValueNode) and (name.endswith("Id") or name == "iid"):
        value = IntValueNode(value=str(replace_with_real(name, int(node.value.value))))
    else:
        return None
    return type(node)(name=node.name, value=value)


@schemathesis.hook
def map_body(context: Any, body: Any) -> Any:
    return visit(body, LiteralReplacer()) if hasattr(body, "definitions") else body


@schemathesis.check
def closed_shape(context: Any, response: Any, case: Any) -> None:
    """An answer of the graph has `data` and `errors` alone, and each error a code of the closed list that is not INTERNAL."""
    text = response.text
    assert response.status_code < 500, f"{response.status_code}: {text[:300]}"
    leaked = [word for word in WORDS if word in text]
    assert not leaked, f"the answer reveals {leaked}"
    if "graphql" not in response.request.url:
        return
    body = json.loads(text)
    assert isinstance(body, dict) and body.keys() <= {"data", "errors", "extensions"}, f"not a GraphQL answer: {text[:200]}"
    for error in body.get("errors", ()):
        code = error.get("extensions", {}).get("code")
        assert code in CODES, f"an error without a code of the closed list: {error}"
        assert code != "INTERNAL", f"a fault of the service: {error}"
