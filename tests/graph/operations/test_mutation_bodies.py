"""Mutations find, require, call a rule and return; rules read the values that inputs send by their names."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from graphql import GraphQLInputObjectType

from graph.schema import graphql_schema

ROOT = Path(__file__).parents[3]
TYPES, RULES = ROOT / "graph" / "types", ROOT / "graph" / "rules"
MAX_STATEMENTS = 5
READ_AS_A_WHOLE = {
    "UpdateSettingsInput": "every field is a column",
    "ImportSettingsInput": "as UpdateSettingsInput",
    "CreateNoteInput": "fields are named `{noun}_{key}` by the noteables",
    "UpdateNoteInput": "as CreateNoteInput",
}
"""Inputs whose fields are not read by constant names, with the reason."""


def modules(folder: Path) -> Iterator[tuple[Path, ast.Module]]:
    for path in sorted(folder.rglob("*.py")):
        yield path, ast.parse(path.read_text(encoding="utf-8"))


def mutation_functions() -> Iterator[Any]:
    for path, tree in modules(TYPES):
        for node in tree.body:
            if isinstance(node, ast.AsyncFunctionDef) and any(
                isinstance(each, ast.Call) and isinstance(each.func, ast.Name) and each.func.id == "mutation"
                for each in node.decorator_list
            ):
                yield pytest.param(path, node, id=node.name)


def input_fields() -> dict[str, set[str]]:
    """The fields of each input type of a mutation, by their Python names."""
    kinds = [kind for kind in graphql_schema.type_map.values() if isinstance(kind, GraphQLInputObjectType)]
    return {
        kind.name: {field.out_name or re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower() for name, field in kind.fields.items()}
        for kind in kinds
    }


def names_read_from_values(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Each constant in `values["name"]`, `values.get("name")` and `"name" in values`."""
    for node in ast.walk(tree):
        key: Any = None
        match node:
            case ast.Subscript(value=ast.Name(id="values"), slice=key):
                pass
            case ast.Call(func=ast.Attribute(value=ast.Name(id="values"), attr="get"), args=[key, *_]):
                pass
            case ast.Compare(left=key, ops=[ast.In() | ast.NotIn()], comparators=[ast.Name(id="values")]):
                pass
        if isinstance(key, ast.Constant) and isinstance(key.value, str):
            yield node.lineno, key.value


class TestMutations:
    @pytest.mark.parametrize(("path", "function"), list(mutation_functions()))
    def test_are_short(self, path: Path, function: ast.AsyncFunctionDef) -> None:
        count = sum(isinstance(node, ast.stmt) for node in ast.walk(function)) - 1
        assert count <= MAX_STATEMENTS, f"{function.name} has {count} statements: move what it does to a rule in graph/rules"

    def test_and_other_fields_neither_publish_nor_write(self) -> None:
        for path, tree in modules(TYPES):
            for node in ast.walk(tree):
                is_import = isinstance(node, ast.ImportFrom) and node.module == "graph.events.publisher"
                assert not is_import, f"{path.relative_to(ROOT)} publishes events: move it to a rule in graph/rules"
                match node:
                    case ast.Attribute(attr="add_deferred" | "after_commit" | "flush"):
                        is_write = True
                    case ast.Attribute(ast.Name("context" | "session") | ast.Attribute(attr="context" | "session"), attr):
                        is_write = attr in ("add", "add_follower", "add_numbered", "add_with_follower", "delete")
                    case _:
                        is_write = False
                assert not is_write, f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 0)} writes: move it to a rule in graph/rules"


class TestValues:
    def test_that_rules_read_are_fields_of_an_input(self) -> None:
        known = set().union(*input_fields().values())
        for path, tree in modules(RULES):
            for line, name in names_read_from_values(tree):
                assert name in known, f"{path.relative_to(ROOT)}:{line} reads {name!r}, which no input has"

    def test_of_every_input_are_read(self) -> None:
        read = {node.attr for _, tree in modules(TYPES) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
        for folder in (TYPES, RULES):
            for _, tree in modules(folder):
                for node in ast.walk(tree):
                    match node:
                        case ast.Constant(value=str(name)):
                            read.add(name)
                        case ast.AnnAssign(target=ast.Name(id=name)) if folder is RULES:
                            # A field of a dataclass that takes the values.
                            read.add(name)
        for kind, names in input_fields().items():
            if kind.endswith("Input") and kind not in READ_AS_A_WHOLE:
                assert not (unread := names - read), f"{kind}: no mutation and no rule reads {sorted(unread)}"
