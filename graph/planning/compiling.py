"""Makes a plan of an operation: reads it against the schema once, so that a run looks nothing up.

The rules are those of the GraphQL specification, section 6: fields of the same name in the answer are merged, in the order in which they
come first; `@skip` and `@include` are decided here, so an operation whose directives take variables has a plan for each of their values.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from graphql import (
    BooleanValueNode,
    FieldNode,
    FragmentDefinitionNode,
    FragmentSpreadNode,
    GraphQLField,
    GraphQLInterfaceType,
    GraphQLLeafType,
    GraphQLList,
    GraphQLObjectType,
    GraphQLSchema,
    GraphQLUnionType,
    OperationDefinitionNode,
    SelectionSetNode,
    VariableNode,
    is_leaf_type,
)
from sqlalchemy import Dialect
from strawberry.schema.schema_converter import GraphQLCoreConverter

from graph.context import Context, Fixed
from graph.declare import Entrance, Same
from graph.forms import Form
from graph.installing import Loading, declared_of, filling_of, is_filled, metadata_of
from graph.installing import Reading as Column
from graph.planning.arguments import Arguments, Values
from graph.planning.building import Asked, Builder, is_relation, opened, place_step, row_of, sets_of
from graph.planning.completing import Abstract, Leaves, Lists, Objects, Part
from graph.planning.entering import Entered
from graph.planning.leaves import PLAIN, Computed, Leaf, formed_instants, is_plain, shell, spelling
from graph.planning.mutating import once
from graph.planning.running import Calling, Loaded, Reading, Run, Selection, Way
from storage.compiled import Spelling

Fields = dict[str, list[FieldNode]]


class Unplannable(Exception):
    """The operation has something that only graphql-core answers."""


@dataclass(frozen=True, slots=True)
class Plan:
    """An operation, ready to be run for any variables (of the same `switches`) and any viewer. `fields` counts what it was made of."""

    root: Selection
    arguments: list[Arguments]
    fragments: Mapping[str, FragmentDefinitionNode]
    fields: int

    async def run(self, context: Context, variables: Values) -> dict[str, Any]:
        """The data. Raises whatever goes wrong, also what graphql-core would have told beside the data."""
        given = [each.given(variables) for each in self.arguments]
        (data,) = await self.root.fill(Run(context, variables, self.fragments, given), (None,))
        return data


class Compiler:
    """Makes one plan. `switches` are the values of the variables that directives take, `form` is how the answer is to be spelled."""

    def __init__(
        self,
        schema: GraphQLSchema,
        converter: GraphQLCoreConverter,
        fragments: Mapping[str, FragmentDefinitionNode],
        switches: Mapping[str, bool],
        dialect: Dialect,
        fixed: Fixed,
        form: Form | None = None,
    ) -> None:
        self._schema = schema
        self._converter = converter
        self._fragments = fragments
        self._switches = switches
        self._fixed = fixed
        self._form = form
        self._keys: tuple[str, ...] = ()
        """The response keys on the way to the field that is looked at."""
        self._arguments: list[Arguments] = []
        self._is_mutation = False
        self._count = 0
        """Of the fields that were looked at."""
        self._spelling = Spelling(dialect)
        self._build = Builder(self, self._spelling)

    def plan(self, operation: OperationDefinitionNode) -> Plan:
        """Raises Unplannable."""
        if operation.directives:
            raise Unplannable("a directive on the operation")
        root = self._schema.get_root_type(operation.operation)
        self._is_mutation = root is self._schema.mutation_type
        if root is None:
            raise Unplannable("no such kind of operation")
        selection = self._selection(root, [operation.selection_set], None)
        return Plan(selection, self._arguments, self._fragments, self._count)

    def _selection(self, kind: GraphQLObjectType, sets: Sequence[SelectionSetNode], above: Way | None) -> Selection:
        parts: list[Leaf | Computed | tuple[str, Any]] = []
        steps: list[Any] = []
        fills: list[Any] = []
        related: list[Asked] = []
        way = Way(kind.name, above)
        for asked in self.fields(kind, sets):
            if asked.field is None:
                parts.append((asked.key, kind.name))
                continue
            part = self._leaf(kind, asked.key, asked.field) or self._computed(kind, asked, way)
            parts.append(part or (asked.key, None))
            if part is not None:
                continue
            if is_relation(asked.field):
                related.append(asked)
            elif (entered := self._entered(kind, sets, asked, way)) is not None:
                fills.append(entered)
            elif (below := self._build.below(asked, way)) is not None:
                fills.append(below)
            else:
                place_step(self.step(kind, asked, way), steps, fills)
        relations = self._build.relations(kind, related, way)
        if relations is not None:
            if self._is_mutation:
                relations.otherwise = [self.step(kind, asked, way) for asked in related if asked.key in relations.keys]
            fills.append(relations)
        steps += [self.step(kind, asked, way) for asked in related if relations is None or asked.key not in relations.keys]
        return Selection(shell(parts), steps, fills)

    def _entered(self, kind: GraphQLObjectType, sets: Sequence[SelectionSetNode], asked: Asked, way: Way) -> Entered | None:
        """The one project that is entered; None for several, which come together, and for any other field."""
        field = asked.field
        if not isinstance(declared_of(field), Entrance):
            return None
        others = [each for each in self.fields(kind, sets) if each.key != asked.key and each.field is not None]
        if any(isinstance(declared_of(each.field), Entrance) for each in others):
            return None
        self.enter(asked)
        inner, below = opened(field.type)[1], sets_of(asked.nodes)
        selection = self._selection(inner, below, way)
        arguments = self.argued(field, asked.nodes[0])
        assert arguments is not None  # noqa: S101 - the path is one
        (named,) = field.extensions[GraphQLCoreConverter.DEFINITION_BACKREF].arguments
        alone = len(list(self.fields(inner, below))) == 1
        return Entered(asked.key, selection, arguments, named.python_name, self._spelling, alone=alone)

    def fields(self, kind: GraphQLObjectType, sets: Iterable[SelectionSetNode]) -> Iterator[Asked]:
        """What selections ask of a type, in the order of the answer."""
        fields = self._gathered(kind, sets)
        outer = self._keys
        for key, nodes in fields.items():
            name = nodes[0].name.value
            field = kind.fields.get(name)
            if field is None and name != "__typename":
                raise Unplannable(name)
            asked = Asked(key, nodes, field, (*outer, key))
            self.enter(asked)
            self._count += 1
            yield asked
        self._keys = outer

    def enter(self, asked: Asked) -> None:
        """Looks at a field, which says in what form its values are."""
        self._keys = asked.keys

    def _gathered(self, kind: GraphQLObjectType, sets: Iterable[SelectionSetNode]) -> Fields:
        fields: Fields = {}
        visited: set[str] = set()
        for each in sets:
            for node in self._collected(kind, each, visited):
                fields.setdefault(node.alias.value if node.alias else node.name.value, []).append(node)
        return fields

    def _form_here(self) -> Form | None:
        """The form of the field that is looked at."""
        return self._form if self._form is not None and self._form.covers(self._keys) else None

    def _collected(self, kind: GraphQLObjectType, selections: SelectionSetNode, visited: set[str]) -> Iterator[FieldNode]:
        node: Any
        for node in selections.selections:
            if not self._included(node):
                continue
            if isinstance(node, FieldNode):
                yield node
                continue
            if isinstance(node, FragmentSpreadNode):
                if node.name.value in visited:
                    continue
                fragment = self._fragments[node.name.value]
                condition, inner = fragment.type_condition.name.value, fragment.selection_set
                if self._applies(condition, kind):
                    visited.add(node.name.value)
                    yield from self._collected(kind, inner, visited)
            elif node.type_condition is None or self._applies(node.type_condition.name.value, kind):
                yield from self._collected(kind, node.selection_set, visited)

    def _applies(self, condition: str, kind: GraphQLObjectType) -> bool:
        if condition == kind.name:
            return True
        wanted: Any = self._schema.get_type(condition)
        return isinstance(wanted, GraphQLInterfaceType | GraphQLUnionType) and self._schema.is_sub_type(wanted, kind)

    def _included(self, node: Any) -> bool:
        for directive in node.directives or ():
            name = directive.name.value
            if name not in ("skip", "include"):
                raise Unplannable(f"@{name}")
            value = directive.arguments[0].value
            if isinstance(value, BooleanValueNode):
                flag = value.value
            elif isinstance(value, VariableNode) and value.name.value in self._switches:
                flag = self._switches[value.name.value]
            else:
                raise Unplannable(f"@{name}")
            if flag is (name == "skip"):
                return False
        return True

    def _leaf(self, kind: GraphQLObjectType, key: str, field: GraphQLField) -> Leaf | None:
        """A column, which is read without further ado."""
        filling = filling_of(field)
        needed, inner = opened(field.type)
        if isinstance(filling, Column) and is_filled(kind) and is_leaf_type(inner):
            columns = getattr(getattr(row_of(kind), "__table__", None), "columns", {})
            plain = filling.key in columns and is_plain(columns[filling.key], inner)
            return Leaf(key, filling.key, inner, needed, plain, self._form_here())
        return None

    def _computed(self, kind: GraphQLObjectType, asked: Asked, way: Way) -> Computed | tuple[str, Any] | None:
        """A field that is made of columns."""
        make = self.made(asked, way) if row_of(kind) is not None else None
        if make is None:
            return None
        if isinstance(make, Same):
            return asked.key, make.value
        return Computed(asked.key, make, metadata_of(asked.field)["needs"], opened(asked.field.type)[0])

    def step(self, kind: GraphQLObjectType, asked: Asked, way: Way) -> Any:
        """A field that is more than read off its objects. Raises Unplannable."""
        self.enter(asked)
        field, nodes = asked.field, asked.nodes
        assert field is not None  # noqa: S101 - `__typename` is no step
        completer = self._completer(field.type, nodes, way)
        filling = filling_of(field)
        if isinstance(filling, Loading):
            return Loaded(asked.key, completer, filling)
        if isinstance(filling, Column):
            return Reading(asked.key, completer, filling.key)
        definition = field.extensions.get(GraphQLCoreConverter.DEFINITION_BACKREF)
        if definition is None or definition.extensions:
            raise Unplannable(asked.key)
        resolver = definition.base_resolver
        if resolver is None:
            return Reading(asked.key, completer, definition.python_name)
        root: str | None = ""
        if resolver.self_parameter:
            root = None
        elif found := resolver.root_parameter or resolver.parent_parameter:
            root = found.name
        info = resolver.info_parameter.name if resolver.info_parameter else None
        resolve = resolver.wrapped_func
        if kind is self._schema.mutation_type:
            if info is None:
                raise Unplannable(asked.key)
            resolve = once(resolve, info)
        arguments = self.argued(field, nodes[0])
        return Calling(asked.key, completer, resolve, definition, nodes, kind, way, root, info, arguments)

    def made(self, asked: Asked, way: Way) -> Callable[..., Any] | Same | None:
        """What makes a computed field's value of the columns that it needs; None where its resolver is to be asked."""
        factory = metadata_of(asked.field).get("made")
        if factory is None:
            return None
        assert opened(asked.field.type)[1].name in PLAIN  # noqa: S101 - what it makes is its own spelling
        return factory(self._fixed, way.prev.typename if way.prev is not None else None)  # type: ignore[no-any-return]

    def argued(self, field: GraphQLField, node: FieldNode) -> int | None:
        """Where the arguments of a field stand in `Run.arguments`; None for a field without any."""
        if not field.args:
            return None
        definition = field.extensions[GraphQLCoreConverter.DEFINITION_BACKREF]
        converter, remember = self._converter, not self._is_mutation
        arguments = Arguments(field, definition, node, converter.config, converter.scalar_registry, remember=remember)
        self._arguments.append(arguments)
        return len(self._arguments) - 1

    def spelling(self, leaf: GraphQLLeafType, needed: bool) -> Callable[[Any], Any]:
        """Spells a value of the type, in the form of the field that is looked at."""
        return spelling(leaf, needed, self._form_here())

    def instants(self, spell: Callable[[list[Any]], list[Any]]) -> Callable[[list[Any]], list[Any]]:
        """Spells instants in the form of the field that is looked at, by what spells them as the graph does."""
        form = self._form_here()
        if form is None:
            return spell
        return formed_instants(spell, form.instants)

    def formed(self, spell: Callable[..., str]) -> Callable[..., str]:
        """The same of a single instant."""
        form = self._form_here()
        if form is None:
            return spell
        change = form.instant
        return lambda *values: change(spell(*values))

    def shown(self, kind: GraphQLObjectType, nodes: list[FieldNode]) -> str | None:
        """What the form shows in the place of a connection."""
        form = self._form_here()
        if form is None or not {"nodes", "pageInfo"} <= kind.fields.keys():
            return None
        return form.connection({key: each[0].name.value for key, each in self._gathered(kind, sets_of(nodes)).items()})

    def _completer(self, kind: Any, nodes: list[FieldNode], way: Way) -> Any:
        needed, inner = opened(kind)
        if isinstance(inner, GraphQLList):
            items = self._completer(inner.of_type, nodes, Way(None, way))
            return Lists(items, needed)
        if isinstance(inner, GraphQLObjectType):
            selection = self._selection(inner, sets_of(nodes), way)
            objects = Objects(selection, needed, waits=selection.waits)
            shown = self.shown(inner, nodes)
            return objects if shown is None else Part(objects, shown, objects.waits)
        if isinstance(inner, GraphQLInterfaceType | GraphQLUnionType):
            possible = self._schema.get_possible_types(inner)
            selections = {each.name: self._selection(each, sets_of(nodes), way) for each in possible}
            resolve_type: Any = inner.resolve_type
            return Abstract(selections, lambda value: resolve_type(value, None, inner), needed)
        leaf: GraphQLLeafType = inner
        # What a resolver gives for an Int may be too large.
        return Leaves(self.spelling(leaf, needed), PLAIN.get(leaf.name) if leaf.name != "Int" else None)
