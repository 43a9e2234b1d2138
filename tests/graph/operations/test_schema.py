"""The schema as a contract: recorded in a file, described throughout, and compared with the last release."""

import importlib
import inspect
import pkgutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from graphql import (
    GraphQLEnumType,
    GraphQLInputObjectType,
    GraphQLInterfaceType,
    GraphQLNamedType,
    GraphQLObjectType,
    get_named_type,
    is_introspection_type,
    is_specified_scalar_type,
)
from strawberry.types.base import has_object_definition
from strawberry.types.field import StrawberryField
from strawberry.utils.str_converters import to_camel_case

import graph.types
from graph.compatibility import Severity, compare_schemas
from graph.fields.enum_descriptions import DESCRIPTIONS
from graph.schema import graphql_schema, print_schema, schema

ROOT = Path(__file__).parents[3]
FILE = ROOT / "schema.graphql"


def test_schema_file_matches_the_code() -> None:
    assert FILE.is_file() and FILE.read_text(encoding="utf-8") == print_schema(), "run scripts/schema"


def described_elements() -> Iterator[tuple[str, str | None]]:
    """(name, description) of every type, field, argument, input field and enumeration value."""
    for name, kind in graphql_schema.type_map.items():
        if is_introspection_type(kind) or is_specified_scalar_type(kind):
            continue
        yield name, kind.description
        if isinstance(kind, GraphQLObjectType | GraphQLInterfaceType):
            for field_name, field in kind.fields.items():
                yield f"{name}.{field_name}", field.description
                for argument_name, argument in field.args.items():
                    yield f"{name}.{field_name}({argument_name}:)", argument.description
        elif isinstance(kind, GraphQLInputObjectType):
            for field_name, input_field in kind.fields.items():
                yield f"{name}.{field_name}", input_field.description
        elif isinstance(kind, GraphQLEnumType):
            for value_name, value in kind.values.items():
                yield f"{name}.{value_name}", value.description


def test_everything_has_a_description() -> None:
    assert [name for name, text in described_elements() if not (text or "").strip()] == [], "give it a description"


def declarations() -> Iterator[tuple[str, Any]]:
    """(`module.name`, value) of everything that the modules of `graph/types` declare."""
    for found in pkgutil.walk_packages(graph.types.__path__, "graph.types."):
        for name, value in vars(importlib.import_module(found.name)).items():
            if not inspect.isclass(value) or value.__module__ == found.name:
                yield f"{found.name}.{name}", value


def test_every_declared_type_is_in_the_schema() -> None:
    """A class of fields too: as a base of a type."""
    definitions = (getattr(each, "definition", None) for each in schema.schema_converter.type_map.values())
    origins = [origin for each in definitions if inspect.isclass(origin := getattr(each, "origin", None))]
    used = {base for origin in origins for base in origin.__mro__}
    own = [(name, value) for name, value in declarations() if inspect.isclass(value) and has_object_definition(value)]
    assert len(own) > 200
    lost = [name for name, value in own if value not in used]
    assert lost == [], "make it a base of the type whose fields it has, or of Query or Mutation in graph/schema.py"


def test_every_mutation_is_in_the_schema() -> None:
    declared = {name: value for name, value in declarations() if isinstance(value, StrawberryField)}
    assert len(declared) > 100 and graphql_schema.mutation_type is not None
    names = {to_camel_case(name.rpartition(".")[2]): name for name in declared}
    lost = [name for key, name in names.items() if key not in graphql_schema.mutation_type.fields]
    assert lost == [], "add a line to the class of mutations below it"


CONNECTION_ARGUMENTS = {"MergeRequest.commits", "Project.commits", "Branch.history", "BranchHealth.suspects", "Comparison.commits"}
"""Connections of commits that are walked from the newest on, so that no page begins at the end."""


def test_no_description_of_a_removed_enum_value() -> None:
    there = {name: set(kind.values) for name, kind in graphql_schema.type_map.items() if isinstance(kind, GraphQLEnumType)}
    assert {name: values for name, texts in DESCRIPTIONS.items() if (values := texts.keys() - there.get(name, set()))} == {}


class TestConnections:
    """Relay's cursor connections: https://relay.dev/graphql/connections.htm."""

    CONNECTIONS = [kind for name, kind in graphql_schema.type_map.items() if name.endswith("Connection")]

    @pytest.mark.parametrize("kind", CONNECTIONS, ids=str)
    def test_each_has_the_shape(self, kind: GraphQLNamedType) -> None:
        assert isinstance(kind, GraphQLObjectType)
        item = kind.name.removesuffix("Connection")
        types = {name: str(field.type) for name, field in kind.fields.items()}
        count = types.pop("totalCount")
        assert types == {"nodes": f"[{item}!]!", "edges": f"[{item}Edge!]!", "pageInfo": "PageInfo!"}
        assert count.removesuffix("!") == "Int"
        edge = graphql_schema.type_map[f"{item}Edge"]
        assert isinstance(edge, GraphQLObjectType)
        assert {name: str(field.type) for name, field in edge.fields.items()} == {"cursor": "String!", "node": f"{item}!"}

    def test_each_field_of_one_has_the_arguments(self) -> None:
        missing = {}
        for kind in graphql_schema.type_map.values():
            for name, field in kind.fields.items() if isinstance(kind, GraphQLObjectType) else ():
                field_path = f"{kind.name}.{name}"
                if get_named_type(field.type).name.endswith("Connection"):
                    needed = {"first", "after"} if field_path in CONNECTION_ARGUMENTS else {"first", "after", "last", "before", "offset"}
                    if lacking := needed - field.args.keys():
                        missing[field_path] = lacking
        assert missing == {}

    def test_no_other_type_looks_like_a_connection(self) -> None:
        """A type with edges or nodes is a connection, except `Query`, and a field with `after` returns one."""
        odd = set()
        for kind in graphql_schema.type_map.values():
            if not isinstance(kind, GraphQLObjectType) or is_introspection_type(kind):
                continue
            if kind.fields.keys() & {"nodes", "edges", "pageInfo"} and not kind.name.endswith("Connection"):
                odd.add(kind.name)
            for name, field in kind.fields.items():
                if "after" in field.args and not get_named_type(field.type).name.endswith("Connection"):
                    odd.add(f"{kind.name}.{name}")
        assert odd == {"Query"}


class TestSchemaChanges:
    OLD = 'type Query { issue(iid: Int): String "Old." label: String } enum State { OPENED }'

    @pytest.mark.parametrize(
        ("new", "harm"),
        [
            ("type Query { issue(iid: Int): String label: String } enum State { OPENED }", None),
            ("type Query { issue(iid: Int): String label: String more: Int } enum State { OPENED }", Severity.SAFE),
            ("type Query { issue(iid: Int, id: ID): String label: String } enum State { OPENED }", Severity.RISKY),
            ("type Query { issue(iid: Int): String label: String } enum State { OPENED CLOSED }", Severity.RISKY),
            ("type Query { issue(iid: Int): String } enum State { OPENED }", Severity.BREAKING),
            ("type Query { issue(iid: Int!): String label: String } enum State { OPENED }", Severity.BREAKING),
            ("type Query { issue(iid: Int): Int label: String } enum State { OPENED }", Severity.BREAKING),
            ("type Query { issue(iid: Int): String label: String } enum State { CLOSED }", Severity.BREAKING),
        ],
    )
    def test_severity_of_a_change(self, new: str, harm: Severity | None) -> None:
        found = [change for change in compare_schemas(self.OLD, new) if "escription" not in change.description]
        assert max((change.severity for change in found), default=None) == harm

    def test_changes_are_sorted_by_severity(self) -> None:
        found = compare_schemas("type Query { a: Int b: Int }", "type Query { a: Int c: Int }")
        assert [change.severity for change in found] == [Severity.BREAKING, Severity.SAFE]
        assert str(found[0]) == "breaking: Field Query.b was removed."

    def test_breaking_changes_are_in_the_changelog(self) -> None:
        """Since the last release; before the first release a change is only classified."""
        tag = (git("describe", "--tags", "--abbrev=0", "--match", "v[0-9]*") or "").strip()
        old = git("show", f"{tag or 'HEAD'}:schema.graphql")
        if old is None:
            pytest.skip("there is no schema.graphql of an earlier commit to compare with")
        broken = [change.description for change in compare_schemas(old, print_schema()) if change.severity is Severity.BREAKING]
        log = ROOT / "CHANGELOG.md"
        announced = log.read_text(encoding="utf-8") if log.is_file() else ""
        assert [text for text in broken if tag and text not in announced] == [], (
            "operations that ran before would fail; where that is meant, put these sentences into CHANGELOG.md"
        )


def git(*arguments: str) -> str | None:
    """What git prints, or None where it fails, as outside a repository."""
    try:
        done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, check=False, timeout=30)
    except OSError:
        return None
    return done.stdout.decode() if done.returncode == 0 else None
