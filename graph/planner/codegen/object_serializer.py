"""Generated code: a function that serializes the objects of a level, in the order of the selection."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from graph.planner.codegen.leaf_serializers import leaf_serializer, require_non_null
from graph.planner.errors import PlanBailout
from graph.planner.ir.selection import ConstantField, DerivedField, LeafField, ObjectPart, ObjectSerializer
from storage.database.statements.code_scope import Scope


def compile_serializer(parts: Sequence[ObjectPart]) -> ObjectSerializer:
    """The function that makes the answers of objects, in the order of `parts`.

    Rows keep their columns in their `__dict__`, where the quick function reads them; what is not found there the slow one reads as an
    attribute.
    """
    if not any(isinstance(part, LeafField | DerivedField) for part in parts):
        answer = {part.key: part.value if isinstance(part, ConstantField) else None for part in parts}
        return lambda objects: [answer.copy() for _ in objects]
    scope = Scope()
    items = ", ".join(_make_items(parts, scope, _quick_leaf, "d[{!r}]"))
    compiled: list[ObjectSerializer] = []

    def serialize_slowly(objects: Sequence[Any]) -> list[dict[str, Any]]:
        # Compiled when it is needed: compiling takes a good part of planning.
        if not compiled:
            compiled.append(_compile_slow_serializer(parts))
        return compiled[0](objects)

    errors, fallback = scope.bind((AttributeError, KeyError, PlanBailout)), scope.bind(serialize_slowly)
    body = [
        "try:",
        f"    return [{{{items}}} for o in objects for d in (o.__dict__,)]",
        f"except {errors}:",
        f"    return {fallback}(objects)",
    ]
    return scope.define("serialize", ["objects"], body)  # type: ignore[no-any-return]


def _compile_slow_serializer(parts: Sequence[ObjectPart]) -> ObjectSerializer:
    # In a scope of its own, so that both functions go without the garbage collector.
    scope = Scope()
    items = ", ".join(_make_items(parts, scope, _slow_leaf, "o.{}"))
    return scope.define("slow", ["objects"], [f"return [{{{items}}} for o in objects]"])  # type: ignore[no-any-return]


def _make_items(parts: Sequence[ObjectPart], scope: Scope, leaf: Callable[[LeafField, str], str], attribute: str) -> Iterator[str]:
    """The items of an answer.

    `leaf` makes the expression of a leaf and the name of its serializer; `attribute` is the format of one that reads an attribute.
    """
    for part in parts:
        key = scope.bind(part.key)
        if isinstance(part, LeafField):
            yield f"{key}: {leaf(part, scope.bind(leaf_serializer(part.kind, part.is_non_null, part.output_format)))}"
        elif isinstance(part, DerivedField):
            derived = f"{scope.bind(part.derive)}({', '.join(map(attribute.format, part.attributes))})"
            yield f"{key}: {f'{scope.bind(require_non_null)}({derived})' if part.is_non_null else derived}"
        else:
            yield f"{key}: {scope.bind(part.value) if isinstance(part, ConstantField) else 'None'}"


def _slow_leaf(leaf: LeafField, serialize: str) -> str:
    return f"{serialize}(o.{leaf.attribute})"


def _quick_leaf(leaf: LeafField, serialize: str) -> str:
    value = f"d[{leaf.attribute!r}]"
    if not leaf.is_plain:
        return f"{serialize}({value})"
    # The column's value is that of the answer, or null.
    return f"{serialize}(None) if (v := {value}) is None else v" if leaf.is_non_null else value
