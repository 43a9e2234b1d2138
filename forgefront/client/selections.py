"""Turns the results of operations into classes: one for each selection, each fragment, and each type behind an interface or a union.

A field whose selection is one fragment on its own type has the fragment's class. Any other selection has its own class, with the fields of
its fragments, named by its path: `ProjectBuildsProjectBuildsNodes`.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from graphql import (
    FieldNode,
    FragmentSpreadNode,
    GraphQLEnumType,
    GraphQLObjectType,
    GraphQLSchema,
    InlineFragmentNode,
    OperationDefinitionNode,
    OperationType,
    SelectionSetNode,
    get_named_type,
    is_abstract_type,
    is_composite_type,
    print_ast,
)

from forgefront.client import inputs
from forgefront.client.client_model import (
    ClientModel,
    InputField,
    NamedType,
    NullableType,
    OperationMethod,
    PlainType,
    RecordClass,
    RecordMember,
    Type,
    VariantUnion,
)
from forgefront.client.names import UniqueNames, pascal_case, snake_case
from forgefront.client.operation_documents import InvalidOperationsError, OperationDocument, OperationProblem, definition_name, problem_at
from forgefront.client.renderer import RESERVED_NAMES
from forgefront.operation_comments import comment_above

RESERVED_MEMBERS = frozenset(("read",))
"""Names that a class of a response defines itself."""
RESERVED_METHODS = frozenset(("close", "aclose"))
OTHER_SUFFIX = "Other"


Conditions = frozenset[str]
"""The @include and @skip that must all hold for a selection to be in the response of its object, as source."""


@dataclass(frozen=True, slots=True)
class ConditionalSelections:
    """One of the selection sets that are merged into the response of an object."""

    selection_set: SelectionSetNode
    conditions: Conditions = frozenset()


@dataclass(slots=True)
class RequestedField:
    """A response key of one type, with all its field nodes and the conditions of each."""

    nodes: list[FieldNode] = field(default_factory=list)
    conditions: list[Conditions] = field(default_factory=list)

    @property
    def is_always_present(self) -> bool:
        """False if every selection has @include or @skip: the key may then be missing."""
        return not all(self.conditions)

    @property
    def selection_sets(self) -> list[ConditionalSelections]:
        """The selections of the nodes. A condition of every node is not one of its selections: without it the whole object is missing."""
        return [
            ConditionalSelections(node.selection_set, frozenset() if all(own <= each for each in self.conditions) else own)
            for node, own in zip(self.nodes, self.conditions, strict=True)
            if node.selection_set is not None
        ]


def build_model(document: OperationDocument, schema: GraphQLSchema) -> ClientModel:
    """The client of a valid document. Raises InvalidOperationsError when two GraphQL names map to one Python name."""
    return _ModelBuilder(document, schema).build()


class _ModelBuilder:
    def __init__(self, document: OperationDocument, schema: GraphQLSchema) -> None:
        self._document = document
        self._schema = schema
        self._model = ClientModel(document.files)
        self._unique_names = UniqueNames(RESERVED_NAMES)
        self._enums: dict[str, GraphQLEnumType] = {}
        self._fragments: dict[str, NamedType] = {}
        self._problems: list[OperationProblem] = []

    def build(self) -> ClientModel:
        variables_by_operation = {name: inputs.read_variables(each, self._schema) for name, each in self._document.operations.items()}
        kinds = inputs.collect_input_types(kind for variables in variables_by_operation.values() for _, kind in variables)
        self._model.inputs = [inputs.read_input(each) for each in kinds]
        for _, input_type in (pair for variables in variables_by_operation.values() for pair in variables):
            self._note_enum(get_named_type(input_type))
        for field_ in (each for kind in kinds for each in kind.fields.values()):
            self._note_enum(get_named_type(field_.type))
        # Names of the schema take precedence over generated ones.
        for known in self._schema.type_map.values():
            if isinstance(known, GraphQLEnumType) or known in kinds:
                self._unique_names.reserve(known.name, "Type")
        for name, operation in self._document.operations.items():
            self._add_method(name, operation, [each for each, _ in variables_by_operation[name]])
        if self._problems:
            raise InvalidOperationsError(self._problems)
        self._model.enums = [inputs.read_enum(self._enums[name]) for name in sorted(self._enums)]
        return self._model

    def _note_enum(self, kind: Any) -> None:
        if isinstance(kind, GraphQLEnumType):
            self._enums[kind.name] = kind

    def _add_method(self, name: str, operation: OperationDefinitionNode, variables: list[InputField]) -> None:
        root = self._schema.get_root_type(operation.operation)
        method = snake_case(name)
        method = f"{method}_" if method in RESERVED_METHODS else method
        if any(each.name == method for each in self._model.methods):
            self._problems.append(problem_at(operation, f"the method of another operation is named {method} too"))
        self._check_unique(operation, [each.name for each in variables], "variables")
        result = self._add_type(
            root,
            [ConditionalSelections(operation.selection_set)],
            self._unique_names.reserve(pascal_case(name), "Result"),
            f"What {name} answers.",
        )
        assert isinstance(result, NamedType)  # noqa: S101 - a root is no interface
        self._model.methods.append(
            OperationMethod(
                name=method,
                operation=name,
                constant=f"_{snake_case(name).strip('_').upper()}",
                source=self._operation_source(operation),
                description=comment_above(operation),
                variables=tuple(variables),
                result=result,
                is_subscription=operation.operation is OperationType.SUBSCRIPTION,
            )
        )

    def _operation_source(self, operation: OperationDefinitionNode) -> str:
        """The operation with the fragments it uses, sorted by name."""
        used: set[str] = set()
        pending: list[Any] = [operation]
        while pending:
            for name in _collect_spreads(pending.pop().selection_set):
                if name not in used:
                    used.add(name)
                    pending.append(self._document.fragments[name])
        return "\n\n".join(print_ast(each) for each in (operation, *(self._document.fragments[name] for name in sorted(used))))

    def _add_type(self, kind: Any, sets: list[ConditionalSelections], name: str, about: str) -> NamedType:
        """The class for the selections of an object, or the alias of its classes."""
        narrowing = self._narrowed_types(kind, sets) if is_abstract_type(kind) else []
        if not narrowing:
            self._add_record(kind, None, sets, name, about)
            return NamedType(name, f"{name}.read")
        records: dict[str, str] = {}
        for each in narrowing:
            records[each] = self._unique_names.reserve(name + each, "Type")
            self._add_record(self._schema.type_map[each], each, sets, records[each], f"{about[:-1]}, where it is a {each}.")
        rest = None
        if len(narrowing) < len(self._possible_types(kind)):
            rest = self._unique_names.reserve(name + OTHER_SUFFIX, "Type")
            self._add_record(kind, None, sets, rest, f"{about[:-1]}, where it is something else.")
        reader = f"_read_{snake_case(name)}"
        self._model.response_types.append(VariantUnion(name, reader, records, rest))
        return NamedType(name, reader)

    def _add_record(self, kind: Any, typename: str | None, sets: list[ConditionalSelections], name: str, about: str) -> None:
        members = []
        keys_by_attribute: dict[str, str] = {}
        for key, requested in self._collect_fields(kind, sets).items():
            attribute = snake_case(key)
            attribute = f"{attribute}_" if attribute in RESERVED_MEMBERS else attribute
            if attribute in keys_by_attribute:
                self._problems.append(
                    problem_at(requested.nodes[0], f"{key} and {keys_by_attribute[attribute]} would both be named {attribute}")
                )
            keys_by_attribute[attribute] = key
            found = self._member_type(kind, typename, requested, name + pascal_case(key), f"{key} of {name}.")
            if not requested.is_always_present and not isinstance(found, NullableType):
                found = NullableType(found)
            members.append(RecordMember(attribute, key, found, not requested.is_always_present))
        self._model.response_types.append(RecordClass(name, about, tuple(members)))

    def _member_type(self, parent: Any, typename: str | None, requested: RequestedField, name: str, about: str) -> Type:
        first = requested.nodes[0]
        if first.name.value == "__typename":
            known = typename or (None if is_abstract_type(parent) else parent.name)
            return PlainType(f'Literal["{known}"]' if known else "str")
        definition = self._schema.get_field(parent, first.name.value)
        assert definition is not None  # noqa: S101 - the document is valid
        named = get_named_type(definition.type)
        if not is_composite_type(named):
            self._note_enum(named)
            return inputs.wrap_type(definition.type, inputs.leaf_type(named))
        sets = requested.selection_sets
        fragment = self._sole_fragment(named, sets)
        inner = self._fragment_type(fragment) if fragment else self._add_type(named, sets, self._unique_names.reserve(name, "Type"), about)
        return inputs.wrap_type(definition.type, inner)

    def _sole_fragment(self, kind: Any, sets: list[ConditionalSelections]) -> str | None:
        """The fragment on this type that is the whole selection, if there is one. `__typename` beside it is ignored."""
        names: set[str] = set()
        is_always_present = False
        for part in sets:
            for selection in part.selection_set.selections:
                if isinstance(selection, FragmentSpreadNode) and not selection.directives:
                    names.add(selection.name.value)
                    is_always_present = is_always_present or not part.conditions
                elif not (is_abstract_type(kind) and isinstance(selection, FieldNode) and _response_key(selection) == "__typename"):
                    return None
        if len(names) != 1 or not is_always_present:
            return None
        (name,) = names
        return name if self._document.fragments[name].type_condition.name.value == kind.name else None

    def _fragment_type(self, name: str) -> NamedType:
        if name not in self._fragments:
            node = self._document.fragments[name]
            kind = self._schema.type_map[node.type_condition.name.value]
            chosen = self._unique_names.reserve(pascal_case(name), "Fields")
            self._fragments[name] = self._add_type(
                kind, [ConditionalSelections(node.selection_set)], chosen, f"The fragment {definition_name(node)}."
            )
        return self._fragments[name]

    def _collect_fields(self, kind: Any, sets: list[ConditionalSelections]) -> dict[str, RequestedField]:
        """The requested fields of a type, by response key, in the order of the request."""
        found: dict[str, RequestedField] = {}

        def collect(selections: SelectionSetNode, conditions: Conditions) -> None:
            for node in selections.selections:
                own = conditions | {print_ast(each) for each in node.directives or ()}
                if isinstance(node, FieldNode):
                    requested = found.setdefault(_response_key(node), RequestedField())
                    requested.nodes.append(node)
                    requested.conditions.append(own)
                elif (inside := self._fragment_parts(node)) and self._matches(kind, inside[0]):
                    collect(inside[1], own)

        for part in sets:
            collect(part.selection_set, part.conditions)
        return found

    def _narrowed_types(self, kind: Any, sets: list[ConditionalSelections]) -> list[str]:
        """The types behind an interface or a union that a type condition applies to."""
        found: set[str] = set()

        def visit(selections: SelectionSetNode) -> None:
            for node in selections.selections:
                if inside := self._fragment_parts(node):
                    if not self._matches(kind, inside[0]):
                        found.add(inside[0] or "")
                    visit(inside[1])

        for part in sets:
            visit(part.selection_set)
        return [each.name for each in self._possible_types(kind) if any(self._matches(each, condition) for condition in found)]

    def _possible_types(self, kind: Any) -> list[GraphQLObjectType]:
        return sorted(self._schema.get_possible_types(kind), key=lambda each: each.name)

    def _fragment_parts(self, node: Any) -> tuple[str | None, SelectionSetNode] | None:
        """The type condition and the selections of a fragment."""
        if isinstance(node, InlineFragmentNode):
            return node.type_condition.name.value if node.type_condition else None, node.selection_set
        if isinstance(node, FragmentSpreadNode):
            fragment = self._document.fragments[node.name.value]
            return fragment.type_condition.name.value, fragment.selection_set
        return None

    def _matches(self, kind: Any, condition: str | None) -> bool:
        """Whether every object of a type satisfies a condition."""
        if condition is None or condition == kind.name:
            return True
        condition_type: Any = self._schema.type_map[condition]
        return is_abstract_type(condition_type) and self._schema.is_sub_type(condition_type, kind)

    def _check_unique(self, node: Any, names: list[str], what: str) -> None:
        if double := sorted({name for name in names if names.count(name) > 1}):
            self._problems.append(problem_at(node, f"two {what} would both be named {double[0]}"))


def _response_key(node: FieldNode) -> str:
    return node.alias.value if node.alias else node.name.value


def _collect_spreads(selections: SelectionSetNode | None) -> Iterator[str]:
    for node in selections.selections if selections else ():
        if isinstance(node, FragmentSpreadNode):
            yield node.name.value
        elif isinstance(node, FieldNode | InlineFragmentNode):
            yield from _collect_spreads(node.selection_set)
