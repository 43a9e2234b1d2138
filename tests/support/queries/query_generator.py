"""Generates random queries: any fields of the schema with any arguments, most of them such that rows are found. The same seed generates the
same query.

Values of arguments usually exist (tests/support/queries/arguments.py), and belong to the queried project; every
fourth query names missing objects.
"""

import random
import re
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
    get_named_type,
)

from tests.support.queries.arguments import ArgumentPool, ProjectArguments, ordering_key, orderings_of

MAX_DEPTH = 9
MAX_FIELDS = 35
"""Approximate maximum of fields in one query."""
EXCLUDED_FIELDS = {"rateLimit", "serverInfo", "instanceStatus", "job", "jobArtifact"}
"""Root fields whose result differs from call to call, or that only runners may query."""
ROOT_WEIGHTS = {
    "project": 30,
    "projects": 8,
    "node": 8,
    "nodes": 8,
    "group": 8,
    "issues": 6,
    "mergeRequests": 6,
    "groups": 3,
    "viewer": 3,
    "user": 3,
    "users": 2,
}
"""The weight of a root field; 1 if it is not named."""
RARE_FIELDS = {
    "commits", "compare", "tree", "blob", "diff", "changes", "trace", "history", "timeline", "health", "buildStats", "mergeRequestStats",
    "flakyBuilds",
    "sshKeys", "sshKey", "emails", "hook", "hooks", "deployKeys", "deployKey",
    "ciConfig", "artifact", "runners", "leadTime", "viewerCan", "upload",
}  # fmt: skip
"""Fields that cost much beside the rows they return, or are seldom allowed."""
SINGLE_ARGUMENT_FIELDS = {"Project.issue", "Project.mergeRequest", "Project.label", "Project.milestone", "Query.user"}
"""Fields that require one of their arguments."""
ARGUMENT_SOURCES = {
    "Query.project.path": "paths", "Query.group.path": "groups", "Query.user.databaseId": "user ids", "Query.user.username": "usernames",
    "Query.sshKeys.userId": "user ids", "Query.emails.userId": "user ids", "Query.hook.databaseId": "hook ids",
    "Query.runner.databaseId": "runner ids",
    "Query.ciConfig.projectPath": "paths",
    "Query.node.id": "nodes", "Query.nodes.ids": "nodes", "Group.member.userId": "user ids", "User.sshKey.databaseId": "key ids",
    "User.secondaryEmail.databaseId": "email ids", "UserFilter.username": "usernames",
    "Project.issue.iid": "issue iids", "Project.issue.databaseId": "issue ids", "Project.mergeRequest.iid": "merge request iids",
    "Project.mergeRequest.databaseId": "merge request ids", "Project.milestone.iid": "milestone iids",
    "Project.milestone.title": "milestones",
    "Project.milestone.databaseId": "milestone ids", "Project.label.name": "labels", "Project.label.databaseId": "label ids",
    "Project.hook.databaseId": "project hook ids", "Project.deployKey.databaseId": "deploy key ids", "Project.member.userId": "member ids",
    "Query.sshKey.databaseId": "key ids", "ProjectMemberFilter.username": "usernames",
    "Project.variable.key": "variable keys", "Project.trigger.token": "trigger tokens",
    "Project.snippet.databaseId": "snippet ids", "Project.build.databaseId": "build ids", "Project.artifact.buildId": "artifact builds",
    "Project.upload.secret": "upload secrets", "Project.upload.name": "upload names", "Project.commit.rev": "revs",
    "Project.commits.ref": "branches",
    "Project.branch.name": "branches", "Project.tree.ref": "revs", "Project.tree.path": "folders", "Project.blob.path": "files",
    "Project.blob.ref": "branches",
    "Project.contributors.ref": "revs", "Project.archive.ref": "revs",
    "Project.searchText.ref": "branches", "Project.searchPaths.ref": "branches",
    "Project.compare.from": "branches", "Project.compare.to": "branches", "Branch.history.path": "files", "Branch.health.name": "jobs",
    "Commit.rollup.ref": "branches", "Issue.note.databaseId": "note ids", "MergeRequest.note.databaseId": "note ids",
    "Snippet.note.databaseId": "note ids",
    "IssueFilter.labels": "labels", "IssueFilter.milestone": "milestones", "IssueFilter.iid": "issue iids",
    "IssueFilter.authorUsername": "usernames",
    "IssueFilter.assigneeUsername": "usernames", "MergeRequestFilter.labels": "labels", "MergeRequestFilter.milestone": "milestones",
    "MergeRequestFilter.iid": "merge request iids", "MergeRequestFilter.authorUsername": "usernames",
    "MergeRequestFilter.assigneeUsername": "usernames",
    "MergeRequestFilter.sourceBranch": "source branches", "MergeRequestFilter.targetBranch": "branches", "BuildFilter.name": "jobs",
    "BuildFilter.stage": "stages",
    "BuildFilter.ref": "branches", "BuildFilter.authorUsername": "usernames", "CommitStatusFilter.ref": "branches",
    "CommitStatusFilter.stage": "stages",
    "CommitStatusFilter.name": "jobs", "LabelFilter.name": "labels", "MilestoneFilter.iid": "milestone iids",
    "PipelineFilter.ref": "branches",
    "PipelineFilter.sha": "shas",
}  # fmt: skip
"""The pool from which an argument is drawn (`Drawn.everywhere`, or `Place.things` of the current project)."""
FIXED_VALUES: dict[str, Sequence[Any]] = {
    "search": ("e", "o", "ü", "%", "words", "a_"), "timezone": ("UTC", "Europe/Helsinki"), "content": ("a:\n  script: b", ":"),
    "first": (1, 2, 2, 3, 5, 20, 100),
    "last": (1, 2, 2, 3, 5, 20), "offset": (0, 1, 2, 3, 10), "since": ("2016-03-20T00:00:00Z", "2016-03-24T14:00:00+02:00"),
    "until": ("2016-03-25T00:00:00Z", "2016-03-28T12:00:00Z"),
}  # fmt: skip
SPREAD_PATTERN = re.compile(r"\.\.\.(F\d+)")
VARIABLE_PATTERN = re.compile(r"\$(v\d+)")
MISSING_NUMBER = 999_999
MISSING_VALUES: dict[str, Sequence[Any]] = {
    "paths": ("acme/none", "none", "0"), "groups": ("none", "999999"), "usernames": ("nobody",), "nodes": ("SXNzdWU6OTk5OTk5", "x"),
}  # fmt: skip
"""Values that name nothing, by the pool; for other pools `missing_values` has those of the argument's type."""
MISSING_SHARE = 0.3
"""The share of missing objects among those that a query with `names_missing` names."""
PAGE_ARGUMENT_NAMES = ("first", "after", "last", "before", "offset")
PAGE_ARGUMENTS = (
    (), (), (), ("first",), ("first",), ("first",), ("last",), ("first", "offset"), ("offset",), ("first", "after"), ("first", "after"),
    ("after",),
    ("last", "before"), ("last", "before"), ("before",), ("first", "before"), ("after", "before"), ("last", "after"), ("first", "after",
    "before"),
)  # fmt: skip
INVALID_PAGE_ARGUMENTS = (("first", "last"), ("offset", "after"), ("last", "offset"))


@dataclass
class QueryGenerator:
    schema: GraphQLSchema
    pool: ArgumentPool
    excluded: frozenset[str] = frozenset()
    _names_missing: bool = False
    _fields_left: int = 0
    _count: int = 0
    _project: ProjectArguments | None = None
    _declared: list[str] = field(default_factory=list)
    _values: dict[str, Any] = field(default_factory=dict)
    _fragments: dict[str, str] = field(default_factory=dict)
    _reusable_fragments: dict[str, list[str]] = field(default_factory=dict)
    """Fragments that may be spread again, by their type."""
    _unaliased: dict[str, tuple[str, str]] = field(default_factory=dict)
    """The definitions of fields without an alias, so that one name always has one meaning."""

    def query(self, seed: int) -> tuple[str, dict[str, Any]]:
        """A query and its variables."""
        self._begin(seed)
        root: Any = self.schema.query_type
        names = [each for each in root.fields if each not in EXCLUDED_FIELDS | self.excluded]
        chosen = self._pick(names, [ROOT_WEIGHTS.get(each, 1) for each in names], self._random.choice((1, 1, 1, 2, 3)))
        return self._operation("query", [self._field(root, each, 1) for each in chosen]), self._values

    def mutation(self, seed: int, name: str, input_value: Any) -> tuple[str, dict[str, Any]]:
        """A mutation that takes this as its input, with a selection of its payload; and its variables."""
        self._begin(seed)
        root: Any = self.schema.mutation_type
        found = root.fields[name]
        taken = self._variable(str(found.args["input"].type), input_value)
        inner = self._selection(get_named_type(found.type), 2) or "__typename"
        return self._operation("mutation", [f"{name}(input: {taken}) {{ {inner} }}"]), self._values

    def _begin(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._names_missing = seed % 4 == 3
        self._fields_left, self._count, self._project = MAX_FIELDS, 0, None
        self._declared, self._values, self._fragments, self._reusable_fragments, self._unaliased = [], {}, {}, {}, {}

    def _operation(self, kind: str, parts: list[str]) -> str:
        body = f"{{ {' '.join(part for part in parts if part) or '__typename'} }}"
        used: dict[str, str] = {}
        waiting = SPREAD_PATTERN.findall(body)
        while waiting:
            if (name := waiting.pop()) not in used:
                used[name] = self._fragments[name]
                waiting += SPREAD_PATTERN.findall(used[name])
        text = " ".join([body, *used.values()])
        taken = set(VARIABLE_PATTERN.findall(text))
        self._values = {name: value for name, value in self._values.items() if name in taken}
        declared = [each for each in self._declared if each[1:].partition(":")[0] in taken]
        return f"{kind} Q({', '.join(declared)}) {text}" if declared else f"{kind} {self._random.choice(('', 'Q '))}{text}"

    def _draw(self, share: float) -> bool:
        return self._random.random() < share

    def _pick(self, names: list[str], weights: list[float], number: int) -> list[str]:
        """A sample of this size, without duplicates."""
        chosen: list[str] = []
        while names and len(chosen) < number:
            (name,) = self._random.choices(names, weights)
            if name in chosen and sum(weights) - sum(weight for each, weight in zip(names, weights, strict=True) if each in chosen) <= 0:
                break
            if name not in chosen:
                chosen.append(name)
        return chosen

    # Fields

    def _field(self, parent: Any, name: str, depth: int) -> str:
        found = parent.fields[name]
        kind = get_named_type(found.type)
        self._fields_left -= 1
        before = self._project
        if f"{parent.name}.{name}" == "Query.project":
            self._project = self._random.choice(self.pool.projects)
        elif name in ("projects", "groups", "forks", "node", "nodes", "issues", "mergeRequests") and parent.name in (
            "Query",
            "Group",
            "Project",
        ):
            self._project = self._project if name in ("issues", "mergeRequests") and parent.name == "Project" else None
        arguments = self._arguments(parent, name, found.args)
        key = self._response_key(name, arguments, found.type)
        try:
            if graphql.is_leaf_type(kind):
                head = f"{key}{arguments}{self._directive()}"
                return f"{head} {head}" if self._draw(0.02) else head
            inner = self._selection(kind, depth + 1)
            if not inner:
                return ""
            whole = f"{key}{arguments}{self._directive()} {{ {inner} }}"
            if self._draw(0.06) and (more := self._selection(kind, depth + 1)):
                # The same field twice, which merges both selections.
                whole += f" {key}{arguments}{self._directive()} {{ {more} }}"
            return whole
        finally:
            self._project = before

    def _response_key(self, name: str, arguments: str, kind: Any) -> str:
        """The name, after an alias unless the name always refers to the same field."""
        self._count += 1
        if self._draw(0.6) and self._unaliased.setdefault(name, (arguments, str(kind))) == (arguments, str(kind)):
            return name
        return f"a{self._count}: {name}"

    def _directive(self) -> str:
        if not self._draw(0.06):
            return ""
        directive, value = self._random.choice((("skip", False), ("include", True)))
        flag = value if self._draw(0.7) else not value
        written = str(flag).lower() if self._draw(0.5) else self._variable("Boolean!", flag)
        return f" @{directive}(if: {written})"

    def _selection(self, kind: Any, depth: int) -> str:
        if isinstance(kind, GraphQLUnionType):
            parts = [self._inline_fragment(each, depth) for each in kind.types if self._draw(0.8)]
            return " ".join(["__typename", *(part for part in parts if part)])
        if (whole := self._reusable_fragments.get(kind.name)) and self._draw(0.15):
            return f"...{self._random.choice(whole)}"
        parts = [self._field(kind, name, depth) for name in self._choose_fields(kind, depth)]
        if self._draw(0.08):
            parts.append(self._random.choice(("__typename", f"t{self._count}: __typename")))
        if isinstance(kind, GraphQLInterfaceType):
            possible = [each for each in self.schema.get_possible_types(kind) if each.name in self.pool.ids]
            parts += [self._inline_fragment(each, depth) for each in self._random.sample(possible, min(4, len(possible)))]
        parts = [part for part in parts if part]
        if not parts:
            return ""
        self._random.shuffle(parts)
        return self._wrap_in_fragments(kind, parts)

    def _choose_fields(self, kind: Any, depth: int) -> list[str]:
        names = [name for name in kind.fields if name not in self.excluded]
        if kind.name.endswith("Connection"):
            if self._draw(0.07):
                return ["totalCount"]
            shares = {"nodes": 0.8, "edges": 0.25, "pageInfo": 0.3, "totalCount": 0.4}
            deep = depth >= MAX_DEPTH or self._fields_left <= 0
            chosen = [name for name in names if self._draw(shares.get(name, 0.5)) and not (deep and name in ("nodes", "edges"))]
            return chosen or ["nodes" if "nodes" in names and not deep else "totalCount"]
        leaves = [name for name in names if graphql.is_leaf_type(get_named_type(kind.fields[name].type))]
        others = [name for name in names if name not in leaves]
        chosen = self._random.sample(leaves, min(len(leaves), self._random.randint(1, 6)))
        if depth < MAX_DEPTH and self._fields_left > 0 and others:
            number = self._random.choice((0, 1, 1, 2, 2, 3) if depth > 2 else (1, 2, 3))
            chosen += self._pick(others, [self._weight(kind, name) for name in others], number)
        return chosen

    def _weight(self, kind: Any, name: str) -> float:
        found = kind.fields[name]
        if name in RARE_FIELDS:
            return 0.25
        if f"{kind.name}.{name}" in SINGLE_ARGUMENT_FIELDS or any(
            str(each.type).endswith("!") and not each.default for each in found.args.values()
        ):
            return 1.0 if self._project is not None and kind.name == "Project" else 0.1
        return 2.0 if "first" in found.args else 1.5

    def _wrap_in_fragments(self, kind: Any, parts: list[str]) -> str:
        """The parts unchanged, or with some of them in fragments."""
        if not self._draw(0.22):
            return " ".join(parts)
        cut = self._random.randint(0, len(parts) - 1)
        outside, inside = parts[:cut], " ".join(parts[cut:])
        directive = self._directive()
        match self._random.choice(("named", "named", "inline", "bare", "interface")):
            case "named":
                name = f"F{len(self._fragments)}"
                self._fragments[name] = f"fragment {name} on {kind.name} {{ {inside} }}"
                self._reusable_fragments.setdefault(kind.name, []).append(name)
                spread = f"...{name}{directive}"
                return " ".join([*outside, spread, f"...{name}"] if self._draw(0.1) else [*outside, spread])
            case "inline":
                return " ".join([*outside, f"... on {kind.name}{directive} {{ {inside} }}"])
            case "interface" if isinstance(kind, GraphQLObjectType) and any(each.name == "Node" for each in kind.interfaces):
                again = f"...{directive} {{ {inside} }}" if self._draw(0.3) else inside
                return " ".join([*outside, f"... on Node {{ ... on {kind.name} {{ {again} }} nodeId: id }}"])
        return " ".join([*outside, f"...{directive} {{ {inside} }}"])

    def _inline_fragment(self, kind: GraphQLObjectType, depth: int) -> str:
        inner = self._selection(kind, depth)
        return f"... on {kind.name}{self._directive()} {{ {inner} }}" if inner else ""

    # Arguments

    def _arguments(self, parent: Any, name: str, arguments: dict[str, Any]) -> str:
        field_path = f"{parent.name}.{name}"
        chosen = [key for key, each in arguments.items() if key not in PAGE_ARGUMENT_NAMES and self._is_argument_sent(key, each)]
        if field_path in SINGLE_ARGUMENT_FIELDS and not self._draw(0.03):
            chosen = [self._random.choice(list(arguments))]
        page = [key for key in self._page() if key in arguments]
        values: dict[str, Any] = {}
        order: dict[str, Any] | None = None
        if "orderBy" in chosen:
            chosen.remove("orderBy")
            order = self._random.choice(orderings_of(parent.fields[name])[1:])
            if order is not None and order.get("direction") == "DESC" and self._draw(0.3):
                order = {key: value for key, value in order.items() if key != "direction"}
            values["orderBy"] = order and {key: _EnumValue(value) if isinstance(value, str) else value for key, value in order.items()}
        for key in chosen:
            values[key] = self._value(f"{field_path}.{key}", key, arguments[key].type, 0)
        for key in page:
            values[key] = self._page_argument(parent, name, key, order, arguments[key].type)
        parts = [f"{key}: {self._write_argument(arguments[key], value)}" for key, value in values.items()]
        parts += [
            f"{key}: {self._omitted_argument(each)}" for key, each in arguments.items() if key not in values and self._is_omittable(each)
        ]
        self._random.shuffle(parts)
        return f"({', '.join(parts)})" if parts else ""

    def _is_argument_sent(self, key: str, argument: Any) -> bool:
        needed = isinstance(argument.type, GraphQLNonNull) and argument.default is None
        return needed or self._draw(0.4 if key in ("filter", "orderBy") else 0.3)

    def _is_omittable(self, argument: Any) -> bool:
        return not isinstance(argument.type, GraphQLNonNull) and self._draw(0.015)

    def _omitted_argument(self, argument: Any) -> str:
        """A null, or a variable that is not set."""
        return "null" if self._draw(0.4) else self._variable(str(argument.type), _MISSING)

    def _page(self) -> Sequence[str]:
        return self._random.choice(INVALID_PAGE_ARGUMENTS) if self._draw(0.01) else self._random.choice(PAGE_ARGUMENTS)

    def _page_argument(self, parent: Any, name: str, key: str, order: dict[str, Any] | None, kind: Any) -> Any:
        if key not in ("after", "before"):
            return self._random.choice((0, 0, -1, 101)) if self._draw(0.03) else self._random.choice(FIXED_VALUES[key])
        expected = ordering_key(order)
        kinds = get_named_type(parent.fields[name].type).name
        own, others = self.pool.cursors.get((f"{parent.name}.{name}", expected)), self.pool.cursors.get((kinds, expected))
        if self._draw(0.02) or not (own or others):
            return self._random.choice(("", "x", *(self.pool.cursors.get((kinds, ""), ())[:3]))) if self._draw(0.1) else None
        return self._random.choice(own if own and (not others or self._draw(0.8)) else others or [])

    def _value(self, argument_path: str, name: str, kind: Any, depth: int) -> Any:
        if isinstance(kind, GraphQLNonNull):
            kind = kind.of_type
        elif self._draw(0.02):
            return None
        if isinstance(kind, GraphQLList):
            if self._draw(0.04):
                # One value is coerced to a list.
                return self._value(argument_path, name, kind.of_type, depth)
            number = self._random.choice((0, 1, 1, 1, 2, 2, 3) if name != "ids" else (1, 2, 4, 8))
            return [self._value(argument_path, name, kind.of_type, depth) for _ in range(number)]
        if isinstance(kind, GraphQLInputObjectType):
            needed = [key for key, each in kind.fields.items() if isinstance(each.type, GraphQLNonNull) and each.default is None]
            chosen = self._random.sample(list(kind.fields), min(len(kind.fields), self._random.choice((0, 1, 1, 1, 2))))
            keys = dict.fromkeys([*needed, *chosen])
            return {key: self._value(f"{kind.name}.{key}", key, kind.fields[key].type, depth + 1) for key in keys}
        if isinstance(kind, GraphQLEnumType):
            return _EnumValue(self._random.choice(list(kind.values)))
        return self._draw_value(argument_path, name, kind)

    def _draw_value(self, argument_path: str, name: str, kind: Any) -> Any:
        what = ARGUMENT_SOURCES.get(argument_path)
        if what is not None and self._names_missing and "Filter." not in argument_path and self._draw(MISSING_SHARE):
            return self._random.choice(missing_values(what, kind))
        if argument_path == "Query.project.path" and self._project is not None and self._draw(0.97):
            return self._project.path
        if what is not None and not self._draw(0.03):
            if what in self.pool.shared_values:
                return self._random.choice(self.pool.shared_values[what])
            if self._project is not None and (own := self._project.values.get(what)):
                return self._random.choice(own)
            if found := self.pool.values_of_all_projects(what):
                return self._random.choice(found)
        if name in FIXED_VALUES:
            return self._random.choice(FIXED_VALUES[name])
        match kind.name:
            case "Int":
                return self._random.choice((0, 1, 2, 3, 5, 7))
            case "Boolean":
                return self._draw(0.5)
            case "Float":
                return 0.5
            case "DateTime":
                return self._random.choice(FIXED_VALUES["since"])
            case "Date":
                return "2016-04-01"
            case _:
                return self._random.choice(("", "a", "master", "unit", "1"))

    # How a value is written

    def _write_argument(self, argument: Any, value: Any) -> str:
        return self._write_value(value, argument.type, argument.default is not None)

    def _write_value(self, value: Any, kind: Any, has_default: bool) -> str:
        """The value, or part of it, as a literal or as a variable."""
        if self._draw(0.2) and not (value is None and isinstance(kind, GraphQLNonNull)):
            return self._by_variable(value, kind, has_default)
        inner = kind.of_type if isinstance(kind, GraphQLNonNull) else kind
        if isinstance(value, dict) and isinstance(inner, GraphQLInputObjectType):
            parts = (
                f"{key}: {self._write_value(each, inner.fields[key].type, inner.fields[key].default is not None)}"
                for key, each in value.items()
            )
            return "{" + ", ".join(parts) + "}"
        if isinstance(value, list) and isinstance(inner, GraphQLList):
            return "[" + ", ".join(self._write_value(each, inner.of_type, False) for each in value) + "]"
        return graphql_literal(value)

    def _by_variable(self, value: Any, kind: Any, has_default: bool) -> str:
        loose = str(kind).removesuffix("!")
        match self._random.choice(("given", "given", "given", "default", "other", "loose")):
            case "default" if value is not None:
                return self._variable(f"{loose} = {graphql_literal(value)}", _MISSING)
            case "other" if value is not None:
                return self._variable(f"{self._random.choice((loose, str(kind)))} = {graphql_literal(value)}", value)
            case "loose" if has_default:
                return self._variable(loose, value if self._draw(0.7) else _MISSING)
        return self._variable(str(kind), value)

    def _variable(self, kind: str, value: Any) -> str:
        name = f"v{len(self._declared)}"
        self._declared.append(f"${name}: {kind}")
        if value is not _MISSING:
            self._values[name] = _plain_value(value)
        return f"${name}"


_MISSING: Any = object()


class _EnumValue(str):
    """An enum value, written without quotes."""


def missing_values(source: str, kind: Any) -> Sequence[Any]:
    """Values of a scalar type that nothing in this pool of `ARGUMENT_SOURCES` has."""
    return MISSING_VALUES.get(source) or ((MISSING_NUMBER,) if kind.name == "Int" else ("none",))


def graphql_literal(value: Any) -> str:
    """The value in GraphQL syntax."""
    if isinstance(value, _EnumValue):
        return str.__str__(value)
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {graphql_literal(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(graphql_literal(each) for each in value) + "]"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        return f'"{escaped}"'
    return str(value)


def _plain_value(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain_value(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_plain_value(each) for each in value]
    return str.__str__(value) if isinstance(value, _EnumValue) else value
