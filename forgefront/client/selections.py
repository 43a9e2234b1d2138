"""What operations answer, as classes: one for each selection, one for each fragment, one for each type behind an interface or a union.

A field whose selection is one fragment on its own type has the fragment's class; any other selection is a class of its own, with the
fields of the fragments in it, called after the way to it: `ProjectBuildsProjectBuildsNodes`.
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
from forgefront.client.documents import Document, Problem, WrongOperationsError, name_of, place_of
from forgefront.client.model import Given, Maybe, Member, Method, Model, Named, Plain, Record, Type, Variants
from forgefront.client.names import Taken, pascal, snake
from forgefront.client.printing import RESERVED

KEPT = frozenset(("read",))
"""Names that a class of an answer has already."""
METHODS = frozenset(("close", "aclose"))
OTHER = "Other"


@dataclass(slots=True)
class Asked:
    """A response key of one type: every place that asks for it."""

    nodes: list[FieldNode] = field(default_factory=list)
    always: bool = False
    """False behind @include or @skip alone: the key may then be missing."""


def model_of(document: Document, schema: GraphQLSchema) -> Model:
    """The client of a document that is valid. Raises WrongOperationsError where two names of GraphQL would be one of Python."""
    return _Reading(document, schema).model()


class _Reading:
    def __init__(self, document: Document, schema: GraphQLSchema) -> None:
        self._document = document
        self._schema = schema
        self._model = Model(document.files)
        self._taken = Taken(RESERVED)
        self._enums: dict[str, GraphQLEnumType] = {}
        self._fragments: dict[str, Named] = {}
        self._problems: list[Problem] = []

    def model(self) -> Model:
        given = {name: inputs.variables(each, self._schema) for name, each in self._document.operations.items()}
        kinds = inputs.inputs_of(kind for variables in given.values() for _, kind in variables)
        self._model.inputs = [inputs.input_of(each) for each in kinds]
        for _, sent in (pair for variables in given.values() for pair in variables):
            self._note(get_named_type(sent))
        for field_ in (each for kind in kinds for each in kind.fields.values()):
            self._note(get_named_type(field_.type))
        # The schema's own names come before those that are made up.
        for known in self._schema.type_map.values():
            if isinstance(known, GraphQLEnumType) or known in kinds:
                self._taken.name(known.name, "Type")
        for name, operation in self._document.operations.items():
            self._method(name, operation, [each for each, _ in given[name]])
        if self._problems:
            raise WrongOperationsError(self._problems)
        self._model.words = [inputs.words_of(self._enums[name]) for name in sorted(self._enums)]
        return self._model

    def _note(self, kind: Any) -> None:
        if isinstance(kind, GraphQLEnumType):
            self._enums[kind.name] = kind

    def _method(self, name: str, operation: OperationDefinitionNode, variables: list[Given]) -> None:
        root = self._schema.get_root_type(operation.operation)
        method = snake(name)
        method = f"{method}_" if method in METHODS else method
        if any(each.name == method for each in self._model.methods):
            self._problems.append(place_of(operation, f"another operation's method is called {method} too"))
        self._differ(operation, [each.name for each in variables], "variables")
        result = self._type(root, [operation.selection_set], self._taken.name(pascal(name), "Result"), f"What {name} answers.")
        assert isinstance(result, Named)  # noqa: S101 - a root is no interface
        self._model.methods.append(
            Method(
                name=method,
                operation=name,
                constant=f"_{snake(name).strip('_').upper()}",
                source=self._source(operation),
                about=_comment(operation),
                variables=tuple(variables),
                result=result,
                follows=operation.operation is OperationType.SUBSCRIPTION,
            )
        )

    def _source(self, operation: OperationDefinitionNode) -> str:
        """The operation with the fragments it uses, in the order of their names."""
        used: set[str] = set()
        waiting: list[Any] = [operation]
        while waiting:
            for name in _spreads(waiting.pop().selection_set):
                if name not in used:
                    used.add(name)
                    waiting.append(self._document.fragments[name])
        return "\n\n".join(print_ast(each) for each in (operation, *(self._document.fragments[name] for name in sorted(used))))

    def _type(self, kind: Any, sets: list[SelectionSetNode], name: str, about: str) -> Named:
        """The class of some selections of one object, or the alias of its classes."""
        narrowing = self._narrowing(kind, sets) if is_abstract_type(kind) else []
        if not narrowing:
            self._record(kind, None, sets, name, about)
            return Named(name, f"{name}.read")
        records: dict[str, str] = {}
        for each in narrowing:
            records[each] = self._taken.name(name + each, "Type")
            self._record(self._schema.type_map[each], each, sets, records[each], f"{about[:-1]}, where it is a {each}.")
        rest = None
        if len(narrowing) < len(self._possible(kind)):
            rest = self._taken.name(name + OTHER, "Type")
            self._record(kind, None, sets, rest, f"{about[:-1]}, where it is something else.")
        reader = f"_read_{snake(name)}"
        self._model.answers.append(Variants(name, reader, records, rest))
        return Named(name, reader)

    def _record(self, kind: Any, typename: str | None, sets: list[SelectionSetNode], name: str, about: str) -> None:
        members = []
        places: dict[str, str] = {}
        for key, asked in self._fields(kind, sets).items():
            attribute = snake(key)
            attribute = f"{attribute}_" if attribute in KEPT else attribute
            if attribute in places:
                self._problems.append(place_of(asked.nodes[0], f"{key} and {places[attribute]} would both be called {attribute}"))
            places[attribute] = key
            found = self._member_type(kind, typename, asked, name + pascal(key), f"{key} of {name}.")
            if not asked.always and not isinstance(found, Maybe):
                found = Maybe(found)
            members.append(Member(attribute, key, found, not asked.always))
        self._model.answers.append(Record(name, about, tuple(members)))

    def _member_type(self, parent: Any, typename: str | None, asked: Asked, name: str, about: str) -> Type:
        first = asked.nodes[0]
        if first.name.value == "__typename":
            known = typename or (None if is_abstract_type(parent) else parent.name)
            return Plain(f'Literal["{known}"]' if known else "str")
        definition = self._schema.get_field(parent, first.name.value)
        assert definition is not None  # noqa: S101 - the document is valid
        named = get_named_type(definition.type)
        if not is_composite_type(named):
            self._note(named)
            return inputs.type_of(definition.type, inputs.leaf(named))
        sets = [node.selection_set for node in asked.nodes if node.selection_set is not None]
        fragment = self._lone_fragment(named, sets)
        inner = self._fragment(fragment) if fragment else self._type(named, sets, self._taken.name(name, "Type"), about)
        return inputs.type_of(definition.type, inner)

    def _lone_fragment(self, kind: Any, sets: list[SelectionSetNode]) -> str | None:
        """The fragment on this type that is all that is asked for, if it is so; beside it only `__typename`, which it has itself."""
        names: set[str] = set()
        for selection in (each for one in sets for each in one.selections):
            if isinstance(selection, FragmentSpreadNode) and not selection.directives:
                names.add(selection.name.value)
            elif not (is_abstract_type(kind) and isinstance(selection, FieldNode) and _key(selection) == "__typename"):
                return None
        if len(names) != 1:
            return None
        (name,) = names
        return name if self._document.fragments[name].type_condition.name.value == kind.name else None

    def _fragment(self, name: str) -> Named:
        if name not in self._fragments:
            node = self._document.fragments[name]
            kind = self._schema.type_map[node.type_condition.name.value]
            chosen = self._taken.name(pascal(name), "Fields")
            self._fragments[name] = self._type(kind, [node.selection_set], chosen, f"The fragment {name_of(node)}.")
        return self._fragments[name]

    def _fields(self, kind: Any, sets: list[SelectionSetNode]) -> dict[str, Asked]:
        """What is asked of one type, by response key, in the order of asking."""
        found: dict[str, Asked] = {}

        def collect(selections: SelectionSetNode, always: bool) -> None:
            for node in selections.selections:
                surely = always and not node.directives
                if isinstance(node, FieldNode):
                    asked = found.setdefault(_key(node), Asked())
                    asked.nodes.append(node)
                    asked.always = asked.always or surely
                elif (inside := self._inside(node)) and self._is(kind, inside[0]):
                    collect(inside[1], surely)

        for selections in sets:
            collect(selections, True)
        return found

    def _narrowing(self, kind: Any, sets: list[SelectionSetNode]) -> list[str]:
        """The types behind an interface or a union that a condition is about."""
        found: set[str] = set()

        def look(selections: SelectionSetNode) -> None:
            for node in selections.selections:
                if inside := self._inside(node):
                    if not self._is(kind, inside[0]):
                        found.add(inside[0] or "")
                    look(inside[1])

        for selections in sets:
            look(selections)
        return [each.name for each in self._possible(kind) if any(self._is(each, condition) for condition in found)]

    def _possible(self, kind: Any) -> list[GraphQLObjectType]:
        return sorted(self._schema.get_possible_types(kind), key=lambda each: each.name)

    def _inside(self, node: Any) -> tuple[str | None, SelectionSetNode] | None:
        """The type condition and the selections of a fragment."""
        if isinstance(node, InlineFragmentNode):
            return node.type_condition.name.value if node.type_condition else None, node.selection_set
        if isinstance(node, FragmentSpreadNode):
            fragment = self._document.fragments[node.name.value]
            return fragment.type_condition.name.value, fragment.selection_set
        return None

    def _is(self, kind: Any, condition: str | None) -> bool:
        """Whether whatever is of a type fulfils a condition."""
        if condition is None or condition == kind.name:
            return True
        wanted: Any = self._schema.type_map[condition]
        return is_abstract_type(wanted) and self._schema.is_sub_type(wanted, kind)

    def _differ(self, node: Any, names: list[str], what: str) -> None:
        if double := sorted({name for name in names if names.count(name) > 1}):
            self._problems.append(place_of(node, f"two {what} would both be called {double[0]}"))


def _key(node: FieldNode) -> str:
    return node.alias.value if node.alias else node.name.value


def _spreads(selections: SelectionSetNode | None) -> Iterator[str]:
    for node in selections.selections if selections else ():
        if isinstance(node, FragmentSpreadNode):
            yield node.name.value
        elif isinstance(node, FieldNode | InlineFragmentNode):
            yield from _spreads(node.selection_set)


def _comment(operation: OperationDefinitionNode) -> str:
    """What the comment right above an operation says."""
    lines: list[str] = []
    token = operation.loc.start_token if operation.loc else None
    while token and token.prev and token.prev.kind.value == "Comment" and token.prev.line == token.line - 1:
        token = token.prev
        lines.insert(0, (token.value or "").strip())
    return " ".join(line for line in lines if line)
