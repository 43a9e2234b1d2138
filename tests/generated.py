"""Makes queries up: any fields of the schema with any arguments, within the limits. The same seed makes the same query."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import graphql
from graphql import (
    GraphQLEnumType,
    GraphQLInputObjectType,
    GraphQLInterfaceType,
    GraphQLList,
    GraphQLNonNull,
    GraphQLObjectType,
    GraphQLSchema,
    GraphQLUnionType,
    Undefined,
    get_named_type,
)

DEEPEST = 7
FIELDS = 60
"""At most so many in one query."""
PAGES = ("first", "last", "offset")
NEVER = {"rateLimit", "serverInfo", "job", "jobArtifact"}
"""Root fields whose answer differs from call to call, or that runners alone may ask for."""


@dataclass
class Generator:
    """`known` are values to take for arguments and input fields of a name; others are made up."""

    schema: GraphQLSchema
    known: dict[str, Sequence[Any]]
    never: frozenset[str] = frozenset()
    _left: int = 0
    _count: int = 0
    _variables: dict[str, tuple[str, Any]] = field(default_factory=dict)
    _fragments: dict[str, str] = field(default_factory=dict)

    def query(self, seed: int) -> tuple[str, dict[str, Any]]:
        """A query and its variables."""
        self._random = random.Random(seed)
        self._left, self._variables, self._fragments, self._count = FIELDS, {}, {}, 0
        root: Any = self.schema.query_type
        names = [name for name in root.fields if name not in NEVER | self.never]
        parts = []
        for _ in range(self._random.choice((1, 1, 1, 2))):
            parts.append(self._field(root, self._random.choice(names), 1))
        body = " ".join(part for part in parts if part) or "__typename"
        declared = ", ".join(f"${name}: {kind}" for name, (kind, _) in self._variables.items())
        text = f"query {f'({declared}) ' if declared else ''}{{ {body} }} {' '.join(self._fragments.values())}"
        return text, {name: value for name, (_, value) in self._variables.items() if value is not Undefined}

    def _field(self, parent: Any, name: str, depth: int) -> str:
        found = parent.fields[name]
        kind = get_named_type(found.type)
        self._left -= 1
        arguments = self._arguments(found.args)
        head = f"{self._alias(name)}{arguments}{self._directive()}"
        if graphql.is_leaf_type(kind):
            return head
        inner = self._selection(kind, depth + 1)
        return f"{head} {{ {inner} }}" if inner else ""

    def _alias(self, name: str) -> str:
        # One alias for a name and no other, so that two fields of one name in the answer are never different ones.
        self._count += 1
        return (
            f"a{self._count}: {name}" if self._random.random() < 0.9 else name if self._random.random() < 0.2 else f"b{self._count}: {name}"
        )

    def _directive(self) -> str:
        if self._random.random() > 0.04:
            return ""
        flag = self._random.choice(("true", "false", "$"))
        if flag == "$":
            flag = "$" + self._variable("Boolean!", self._random.random() < 0.5)
        return f" @{self._random.choice(('skip', 'include'))}(if: {flag})"

    def _variable(self, kind: str, value: Any) -> str:
        name = f"v{len(self._variables)}"
        self._variables[name] = (kind, value)
        return name

    def _selection(self, kind: Any, depth: int) -> str:
        if isinstance(kind, GraphQLUnionType):
            parts = [self._on(each, depth) for each in kind.types if self._random.random() < 0.7]
            return " ".join(["__typename", *(part for part in parts if part)])
        names = [name for name in kind.fields if name not in self.never]
        leaves = [name for name in names if graphql.is_leaf_type(get_named_type(kind.fields[name].type))]
        others = [name for name in names if name not in leaves]
        chosen = self._random.sample(leaves, min(len(leaves), self._random.randint(1, 6)))
        if depth < DEEPEST and self._left > 0 and others:
            chosen += self._random.sample(others, min(len(others), self._random.choice((0, 1, 1, 2, 3))))
        if kind.name.endswith("Connection") and "nodes" in names and "nodes" not in chosen and depth < DEEPEST:
            chosen.append("nodes")
        self._random.shuffle(chosen)
        parts = [self._field(kind, name, depth) for name in chosen]
        if self._random.random() < 0.1:
            parts.append("__typename")
        if isinstance(kind, GraphQLInterfaceType):
            possible = self.schema.get_possible_types(kind)
            parts += [self._on(each, depth) for each in self._random.sample(list(possible), min(2, len(possible)))]
        elif parts and self._random.random() < 0.1:
            name = f"F{len(self._fragments)}"
            self._fragments[name] = f"fragment {name} on {kind.name} {{ {' '.join(part for part in parts if part) or '__typename'} }}"
            return f"...{name}"
        return " ".join(part for part in parts if part)

    def _on(self, kind: GraphQLObjectType, depth: int) -> str:
        inner = self._selection(kind, depth)
        return f"... on {kind.name} {{ {inner} }}" if inner else ""

    def _arguments(self, arguments: dict[str, Any]) -> str:
        given = []
        for name, argument in arguments.items():
            needed = isinstance(argument.type, GraphQLNonNull) and argument.default is None
            if not needed and self._random.random() > (
                0.5 if name == "first" else 0.12 if name in PAGES or name in ("after", "before") else 0.3
            ):
                continue
            value = self._value(name, argument.type, 0)
            if self._random.random() < 0.3:
                given.append(f"{name}: ${self._variable(str(argument.type), _plain(value))}")
            else:
                given.append(f"{name}: {_literal(value)}")
        return f"({', '.join(given)})" if given else ""

    def _value(self, name: str, kind: Any, depth: int) -> Any:
        if isinstance(kind, GraphQLNonNull):
            kind = kind.of_type
        elif self._random.random() < 0.04:
            return None
        if isinstance(kind, GraphQLList):
            return [self._value(name, kind.of_type, depth) for _ in range(self._random.choice((0, 1, 1, 2)))]
        if isinstance(kind, GraphQLEnumType):
            return _Enum(self._random.choice(list(kind.values)))
        if isinstance(kind, GraphQLInputObjectType):
            fields = {}
            for key, each in kind.fields.items():
                needed = isinstance(each.type, GraphQLNonNull)
                if needed or (depth < 2 and self._random.random() < 0.25):
                    fields[key] = self._value(key, each.type, depth + 1)
            return fields
        if name in self.known and self._random.random() < 0.9:
            return self._random.choice(self.known[name])
        match kind.name:
            case "Int":
                return self._random.choice((0, 1, 2, 3, 5, 7))
            case "Boolean":
                return self._random.random() < 0.5
            case "Float":
                return 0.5
            case "DateTime":
                return self._random.choice(("2016-03-21T00:00:00Z", "2016-03-25T12:00:00+02:00", "2016-03-28T12:00:00Z"))
            case "Date":
                return "2016-04-01"
            case _:
                return self._random.choice(("", "a", "master", "unit", "1"))


class _Enum(str):
    """A word that is written without quotes."""


def _literal(value: Any) -> str:
    if isinstance(value, _Enum):
        return str.__str__(value)
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_literal(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_literal(each) for each in value) + "]"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return f'"{value}"' if isinstance(value, str) else str(value)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return str.__str__(value) if isinstance(value, _Enum) else value
