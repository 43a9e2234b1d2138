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

RULES = [rule for rule in specified_rules if rule is not NoUnusedFragmentsRule]
"""A fragment may wait for its operation."""


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong, and where: a line from 1 on, None where no line is to blame."""

    file: str
    line: int | None
    reason: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.reason}" if self.line else f"{self.file}: {self.reason}"


class WrongOperationsError(Exception):
    """Operations that no client can be made of."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(map(str, self.problems)))


@dataclass(frozen=True, slots=True)
class Document:
    """Operations and fragments by name, in the order of names; what stands behind an interface or a union asks for `__typename`."""

    files: tuple[str, ...]
    operations: dict[str, OperationDefinitionNode]
    fragments: dict[str, FragmentDefinitionNode]


def read(folder: Path, schema: GraphQLSchema) -> Document:
    """The operations of a folder, without what lies in folders below. Raises WrongOperationsError."""
    paths = sorted(folder.glob("*.graphql"))
    if not paths:
        raise WrongOperationsError([Problem(str(folder), None, "there is no .graphql file")])
    definitions = list(_parsed(paths))
    document = DocumentNode(definitions=tuple(definitions))
    if errors := validate(schema, document, RULES):
        raise WrongOperationsError(map(_problem, errors))
    document = visit(document, _Named(schema))
    operations = [each for each in document.definitions if isinstance(each, OperationDefinitionNode)]
    fragments = [each for each in document.definitions if isinstance(each, FragmentDefinitionNode)]
    if not operations:
        raise WrongOperationsError([Problem(str(folder), None, "there is no operation, only fragments")])
    return Document(
        tuple(path.name for path in paths),
        {name_of(each): each for each in sorted(operations, key=name_of)},
        {name_of(each): each for each in sorted(fragments, key=name_of)},
    )


def name_of(definition: OperationDefinitionNode | FragmentDefinitionNode) -> str:
    assert definition.name is not None  # noqa: S101 - `read` refuses the others
    return definition.name.value


def place_of(node: Any, reason: str) -> Problem:
    """A problem of a node of a document."""
    return Problem(node.loc.source.name, node.loc.start_token.line, reason)


def _parsed(paths: list[Path]) -> Iterable[DefinitionNode]:
    problems: list[Problem] = []
    found: list[DefinitionNode] = []
    for path in paths:
        try:
            parsed = parse(Source(path.read_text(encoding="utf-8"), str(path)))
        except (OSError, UnicodeDecodeError) as error:
            problems.append(Problem(str(path), None, f"it cannot be read: {error}"))
            continue
        except GraphQLError as error:
            problems.append(_problem(error))
            continue
        for definition in parsed.definitions:
            if isinstance(definition, FragmentDefinitionNode) or (isinstance(definition, OperationDefinitionNode) and definition.name):
                found.append(definition)
            else:
                problems.append(place_of(definition, "only fragments and operations with a name may stand here"))
    if problems:
        raise WrongOperationsError(problems)
    return found


def _problem(error: GraphQLError) -> Problem:
    source = error.source or (error.nodes[0].loc.source if error.nodes and error.nodes[0].loc else None)
    line = error.locations[0].line if error.locations else None
    return Problem(source.name if source else "operations", line, error.message)


class _Named(TypeInfoVisitor):
    """Asks for `__typename` wherever it is needed to know what came."""

    def __init__(self, schema: GraphQLSchema) -> None:
        self._info = TypeInfo(schema)
        super().__init__(self._info, _Asking(self._info))


class _Asking(Visitor):
    def __init__(self, info: TypeInfo) -> None:
        super().__init__()
        self._info = info

    def enter_field(self, node: FieldNode, *_: Any) -> Any:
        return self._asked(node)

    def enter_fragment_definition(self, node: FragmentDefinitionNode, *_: Any) -> Any:
        return self._asked(node)

    def _asked(self, node: Any) -> Any:
        kind = self._info.get_type()
        if node.selection_set is None or kind is None or not is_abstract_type(get_named_type(kind)):
            return None
        selections = node.selection_set.selections
        if any(isinstance(each, FieldNode) and each.name.value == "__typename" and not each.alias for each in selections):
            return None
        typename = FieldNode(name=NameNode(value="__typename"))
        return _with(node, selection_set=SelectionSetNode(selections=(typename, *selections)))


def _with(node: Any, **changes: Any) -> Any:
    return type(node)(**{**{key: getattr(node, key) for key in ("loc", *node.keys) if hasattr(node, key)}, **changes})
