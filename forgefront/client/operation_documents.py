"""Reads a folder of `.graphql` files: named operations, and fragments that any of them may use."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from graphql import (
    DefinitionNode,
    DocumentNode,
    FieldNode,
    FragmentDefinitionNode,
    GraphQLError,
    GraphQLSchema,
    NameNode,
    NoUnusedFragmentsRule,
    OperationDefinitionNode,
    SelectionSetNode,
    Source,
    TypeInfo,
    TypeInfoVisitor,
    Visitor,
    get_named_type,
    is_abstract_type,
    parse,
    specified_rules,
    validate,
    visit,
)

VALIDATION_RULES = [rule for rule in specified_rules if rule is not NoUnusedFragmentsRule]
"""A fragment may precede the operation that uses it."""


@dataclass(frozen=True, slots=True)
class OperationProblem:
    """A problem and its position: a line from 1 on, or None where no line is to blame."""

    file: str
    line: int | None
    reason: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.reason}" if self.line else f"{self.file}: {self.reason}"


class InvalidOperationsError(Exception):
    """The operations cannot be turned into a client."""

    def __init__(self, problems: Iterable[OperationProblem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(map(str, self.problems)))


@dataclass(frozen=True, slots=True)
class OperationDocument:
    """Operations and fragments by name, sorted. Every selection of an interface or a union includes `__typename`."""

    files: tuple[str, ...]
    operations: dict[str, OperationDefinitionNode]
    fragments: dict[str, FragmentDefinitionNode]


def read(folder: Path, schema: GraphQLSchema) -> OperationDocument:
    """The operations of a folder, without its subfolders. Raises InvalidOperationsError."""
    paths = sorted(folder.glob("*.graphql"))
    if not paths:
        raise InvalidOperationsError([OperationProblem(str(folder), None, "there is no .graphql file in the folder")])
    definitions = list(_parse_files(paths))
    document = DocumentNode(definitions=tuple(definitions))
    if errors := validate(schema, document, VALIDATION_RULES):
        raise InvalidOperationsError(map(_problem_of, errors))
    document = visit(document, _TypenameAdder(schema))
    operations = [each for each in document.definitions if isinstance(each, OperationDefinitionNode)]
    fragments = [each for each in document.definitions if isinstance(each, FragmentDefinitionNode)]
    if not operations:
        raise InvalidOperationsError([OperationProblem(str(folder), None, "there are fragments but no operation")])
    return OperationDocument(
        tuple(path.name for path in paths),
        {definition_name(each): each for each in sorted(operations, key=definition_name)},
        {definition_name(each): each for each in sorted(fragments, key=definition_name)},
    )


def definition_name(definition: OperationDefinitionNode | FragmentDefinitionNode) -> str:
    assert definition.name is not None  # noqa: S101 - `read` refuses the others
    return definition.name.value


def problem_at(node: Any, reason: str) -> OperationProblem:
    """A problem of a node of a document."""
    return OperationProblem(node.loc.source.name, node.loc.start_token.line, reason)


def _parse_files(paths: list[Path]) -> Iterable[DefinitionNode]:
    problems: list[OperationProblem] = []
    found: list[DefinitionNode] = []
    for path in paths:
        try:
            parsed = parse(Source(path.read_text(encoding="utf-8"), str(path)))
        except (OSError, UnicodeDecodeError) as error:
            problems.append(OperationProblem(str(path), None, f"the file cannot be read: {error}"))
            continue
        except GraphQLError as error:
            problems.append(_problem_of(error))
            continue
        for definition in parsed.definitions:
            if isinstance(definition, FragmentDefinitionNode) or (isinstance(definition, OperationDefinitionNode) and definition.name):
                found.append(definition)
            else:
                problems.append(problem_at(definition, "only fragments and named operations are allowed"))
    if problems:
        raise InvalidOperationsError(problems)
    return found


def _problem_of(error: GraphQLError) -> OperationProblem:
    source = error.source or (error.nodes[0].loc.source if error.nodes and error.nodes[0].loc else None)
    line = error.locations[0].line if error.locations else None
    return OperationProblem(source.name if source else "operations", line, error.message)


class _TypenameAdder(TypeInfoVisitor):
    """Adds `__typename` wherever it is needed to know the type of an object."""

    def __init__(self, schema: GraphQLSchema) -> None:
        self._info = TypeInfo(schema)
        super().__init__(self._info, _TypenameVisitor(self._info))


class _TypenameVisitor(Visitor):
    def __init__(self, info: TypeInfo) -> None:
        super().__init__()
        self._info = info

    def enter_field(self, node: FieldNode, *_: Any) -> Any:
        return self._add_typename(node)

    def enter_fragment_definition(self, node: FragmentDefinitionNode, *_: Any) -> Any:
        return self._add_typename(node)

    def _add_typename(self, node: Any) -> Any:
        kind = self._info.get_type()
        if node.selection_set is None or kind is None or not is_abstract_type(get_named_type(kind)):
            return None
        selections = node.selection_set.selections
        if any(isinstance(each, FieldNode) and each.name.value == "__typename" and not each.alias for each in selections):
            return None
        typename = FieldNode(name=NameNode(value="__typename"))
        return _copy_node(node, selection_set=SelectionSetNode(selections=(typename, *selections)))


def _copy_node(node: Any, **changes: Any) -> Any:
    return type(node)(**{**{key: getattr(node, key) for key in ("loc", *node.keys) if hasattr(node, key)}, **changes})
