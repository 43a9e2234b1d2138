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

from graph.context import Context, StaticSettings
from graph.fields.declarations import ConstantValue, ProjectLookup
from graph.fields.resolvers import AttributeSource, LoaderSource, declaration_of, field_source_of, is_row_type, metadata_of
from graph.operations.output_format import OutputFormat
from graph.planner.codegen.object_serializer import (
    PLAIN_TYPES,
    DerivedField,
    LeafField,
    compile_serializer,
    formatted_timestamps_serializer,
    is_plain,
    leaf_serializer,
)
from graph.planner.coerce.arguments import FieldArguments, VariableValues
from graph.planner.ir.completers import AbstractCompleter, LeafCompleter, ListCompleter, ObjectCompleter, SubfieldCompleter
from graph.planner.ir.project_root import ProjectRoot
from graph.planner.mutation_replay import run_once
from graph.planner.resolve.row_views import CollectedField, RowViewBuilder, add_step, is_relation, selection_sets, table_of, unwrap_non_null
from graph.planner.run import AttributeStep, FieldPath, LoaderStep, PlanRun, ResolverStep, Selection
from storage.database.compiled_statements import SqlDialect

FieldNodesByKey = dict[str, list[FieldNode]]


class Unplannable(Exception):
    """The operation has something that only graphql-core answers."""


@dataclass(frozen=True, slots=True)
class OperationPlan:
    """An operation, ready to be run for any variables (of the same `directive_values`) and any viewer. `field_count` counts what it was
    made of."""

    root: Selection
    arguments: list[FieldArguments]
    fragments: Mapping[str, FragmentDefinitionNode]
    field_count: int

    async def run(self, context: Context, variables: VariableValues) -> dict[str, Any]:
        """The data. Raises whatever goes wrong, also what graphql-core would have told beside the data."""
        arguments = [each.evaluate(variables) for each in self.arguments]
        (data,) = await self.root.execute(PlanRun(context, variables, self.fragments, arguments), (None,))
        return data


class PlanCompiler:
    """Makes one plan. `directive_values` are the values of the variables that directives take, `form` is how the answer is to be
    spelled."""

    def __init__(
        self,
        schema: GraphQLSchema,
        converter: GraphQLCoreConverter,
        fragments: Mapping[str, FragmentDefinitionNode],
        directive_values: Mapping[str, bool],
        dialect: Dialect,
        fixed: StaticSettings,
        form: OutputFormat | None = None,
    ) -> None:
        self._schema = schema
        self._converter = converter
        self._fragments = fragments
        self._directive_values = directive_values
        self._fixed = fixed
        self._form = form
        self._response_path: tuple[str, ...] = ()
        """The response keys on the way to the field that is looked at."""
        self._arguments: list[FieldArguments] = []
        self._is_mutation = False
        self._field_count = 0
        """Of the fields that were looked at."""
        self._sql_dialect = SqlDialect(dialect)
        self._row_view_builder = RowViewBuilder(self, self._sql_dialect)

    def plan(self, operation: OperationDefinitionNode) -> OperationPlan:
        """Raises Unplannable."""
        if operation.directives:
            raise Unplannable("a directive on the operation")
        root = self._schema.get_root_type(operation.operation)
        self._is_mutation = root is self._schema.mutation_type
        if root is None:
            raise Unplannable("no such kind of operation")
        selection = self._build_selection(root, [operation.selection_set], None)
        return OperationPlan(selection, self._arguments, self._fragments, self._field_count)

    def _build_selection(self, kind: GraphQLObjectType, sets: Sequence[SelectionSetNode], parent_path: FieldPath | None) -> Selection:
        parts: list[LeafField | DerivedField | tuple[str, Any]] = []
        steps: list[Any] = []
        batch_steps: list[Any] = []
        relation_fields: list[CollectedField] = []
        path = FieldPath(kind.name, parent_path)
        for collected in self.collect_fields(kind, sets):
            if collected.field is None:
                parts.append((collected.key, kind.name))
                continue
            part = self._resolve_leaf(kind, collected.key, collected.field) or self._resolve_derived(kind, collected, path)
            parts.append(part or (collected.key, None))
            if part is not None:
                continue
            if is_relation(collected.field):
                relation_fields.append(collected)
            elif (project_root := self._build_project_root(kind, sets, collected, path)) is not None:
                batch_steps.append(project_root)
            elif (child_rows := self._row_view_builder.build_child_rows(collected, path)) is not None:
                batch_steps.append(child_rows)
            else:
                add_step(self.build_step(kind, collected, path), steps, batch_steps)
        relations = self._row_view_builder.build_relations(kind, relation_fields, path)
        if relations is not None:
            if self._is_mutation:
                relations.fallback_steps = [self.build_step(kind, asked, path) for asked in relation_fields if asked.key in relations.keys]
            batch_steps.append(relations)
        steps += [self.build_step(kind, asked, path) for asked in relation_fields if relations is None or asked.key not in relations.keys]
        return Selection(compile_serializer(parts), steps, batch_steps)

    def _build_project_root(
        self, kind: GraphQLObjectType, sets: Sequence[SelectionSetNode], collected: CollectedField, path: FieldPath
    ) -> ProjectRoot | None:
        """The one project that is entered; None for several, which come together, and for any other field."""
        field = collected.field
        if not isinstance(declaration_of(field), ProjectLookup):
            return None
        others = [each for each in self.collect_fields(kind, sets) if each.key != collected.key and each.field is not None]
        if any(isinstance(declaration_of(each.field), ProjectLookup) for each in others):
            return None
        self.set_response_path(collected)
        inner, child_sets = unwrap_non_null(field.type)[1], selection_sets(collected.nodes)
        selection = self._build_selection(inner, child_sets, path)
        arguments = self.add_arguments(field, collected.nodes[0])
        assert arguments is not None  # noqa: S101 - the path is one
        (argument,) = field.extensions[GraphQLCoreConverter.DEFINITION_BACKREF].arguments
        is_only_field = len(list(self.collect_fields(inner, child_sets))) == 1
        return ProjectRoot(collected.key, selection, arguments, argument.python_name, self._sql_dialect, is_only_field=is_only_field)

    def collect_fields(self, kind: GraphQLObjectType, sets: Iterable[SelectionSetNode]) -> Iterator[CollectedField]:
        """What selections ask of a type, in the order of the answer."""
        fields = self._group_by_response_key(kind, sets)
        outer = self._response_path
        for key, nodes in fields.items():
            name = nodes[0].name.value
            field = kind.fields.get(name)
            if field is None and name != "__typename":
                raise Unplannable(name)
            collected = CollectedField(key, nodes, field, (*outer, key))
            self.set_response_path(collected)
            self._field_count += 1
            yield collected
        self._response_path = outer

    def set_response_path(self, collected: CollectedField) -> None:
        """Looks at a field, which says in what form its values are."""
        self._response_path = collected.response_path

    def _group_by_response_key(self, kind: GraphQLObjectType, sets: Iterable[SelectionSetNode]) -> FieldNodesByKey:
        fields: FieldNodesByKey = {}
        visited: set[str] = set()
        for each in sets:
            for node in self._collect(kind, each, visited):
                fields.setdefault(node.alias.value if node.alias else node.name.value, []).append(node)
        return fields

    def _current_form(self) -> OutputFormat | None:
        """The form of the field that is looked at."""
        return self._form if self._form is not None and self._form.covers(self._response_path) else None

    def _collect(self, kind: GraphQLObjectType, selections: SelectionSetNode, visited: set[str]) -> Iterator[FieldNode]:
        node: Any
        for node in selections.selections:
            if not self._is_included(node):
                continue
            if isinstance(node, FieldNode):
                yield node
                continue
            if isinstance(node, FragmentSpreadNode):
                if node.name.value in visited:
                    continue
                fragment = self._fragments[node.name.value]
                condition, inner = fragment.type_condition.name.value, fragment.selection_set
                if self._type_condition_applies(condition, kind):
                    visited.add(node.name.value)
                    yield from self._collect(kind, inner, visited)
            elif node.type_condition is None or self._type_condition_applies(node.type_condition.name.value, kind):
                yield from self._collect(kind, node.selection_set, visited)

    def _type_condition_applies(self, condition: str, kind: GraphQLObjectType) -> bool:
        if condition == kind.name:
            return True
        condition_type: Any = self._schema.get_type(condition)
        return isinstance(condition_type, GraphQLInterfaceType | GraphQLUnionType) and self._schema.is_sub_type(condition_type, kind)

    def _is_included(self, node: Any) -> bool:
        for directive in node.directives or ():
            name = directive.name.value
            if name not in ("skip", "include"):
                raise Unplannable(f"@{name}")
            value = directive.arguments[0].value
            if isinstance(value, BooleanValueNode):
                flag = value.value
            elif isinstance(value, VariableNode) and value.name.value in self._directive_values:
                flag = self._directive_values[value.name.value]
            else:
                raise Unplannable(f"@{name}")
            if flag is (name == "skip"):
                return False
        return True

    def _resolve_leaf(self, kind: GraphQLObjectType, key: str, field: GraphQLField) -> LeafField | None:
        """A column, which is read without further ado."""
        field_source = field_source_of(field)
        is_non_null, inner = unwrap_non_null(field.type)
        if isinstance(field_source, AttributeSource) and is_row_type(kind) and is_leaf_type(inner):
            columns = getattr(getattr(table_of(kind), "__table__", None), "columns", {})
            plain = field_source.key in columns and is_plain(columns[field_source.key], inner)
            return LeafField(key, field_source.key, inner, is_non_null, plain, self._current_form())
        return None

    def _resolve_derived(
        self, kind: GraphQLObjectType, collected: CollectedField, path: FieldPath
    ) -> DerivedField | tuple[str, Any] | None:
        """A field that is made of columns."""
        derive = self.get_derivation(collected, path) if table_of(kind) is not None else None
        if derive is None:
            return None
        if isinstance(derive, ConstantValue):
            return collected.key, derive.value
        return DerivedField(collected.key, derive, metadata_of(collected.field)["needs"], unwrap_non_null(collected.field.type)[0])

    def build_step(self, kind: GraphQLObjectType, collected: CollectedField, path: FieldPath) -> Any:
        """A field that is more than read off its objects. Raises Unplannable."""
        self.set_response_path(collected)
        field, nodes = collected.field, collected.nodes
        assert field is not None  # noqa: S101 - `__typename` is no step
        completer = self._build_completer(field.type, nodes, path)
        field_source = field_source_of(field)
        if isinstance(field_source, LoaderSource):
            return LoaderStep(collected.key, completer, field_source)
        if isinstance(field_source, AttributeSource):
            return AttributeStep(collected.key, completer, field_source.key)
        definition = field.extensions.get(GraphQLCoreConverter.DEFINITION_BACKREF)
        if definition is None or definition.extensions:
            raise Unplannable(collected.key)
        resolver = definition.base_resolver
        if resolver is None:
            return AttributeStep(collected.key, completer, definition.python_name)
        root: str | None = ""
        if resolver.self_parameter:
            root = None
        elif found := resolver.root_parameter or resolver.parent_parameter:
            root = found.name
        info = resolver.info_parameter.name if resolver.info_parameter else None
        resolve = resolver.wrapped_func
        if kind is self._schema.mutation_type:
            if info is None:
                raise Unplannable(collected.key)
            resolve = run_once(resolve, info)
        arguments = self.add_arguments(field, nodes[0])
        return ResolverStep(collected.key, completer, resolve, definition, nodes, kind, path, root, info, arguments)

    def get_derivation(self, collected: CollectedField, path: FieldPath) -> Callable[..., Any] | ConstantValue | None:
        """What makes a computed field's value of the columns that it needs; None where its resolver is to be asked."""
        factory = metadata_of(collected.field).get("from_columns")
        if factory is None:
            return None
        assert unwrap_non_null(collected.field.type)[1].name in PLAIN_TYPES  # noqa: S101 - what it makes is its own spelling
        return factory(self._fixed, path.prev.typename if path.prev is not None else None)  # type: ignore[no-any-return]

    def add_arguments(self, field: GraphQLField, node: FieldNode) -> int | None:
        """Where the arguments of a field stand in `PlanRun.arguments`; None for a field without any."""
        if not field.args:
            return None
        definition = field.extensions[GraphQLCoreConverter.DEFINITION_BACKREF]
        converter, use_cache = self._converter, not self._is_mutation
        arguments = FieldArguments(field, definition, node, converter.config, converter.scalar_registry, use_cache=use_cache)
        self._arguments.append(arguments)
        return len(self._arguments) - 1

    def get_serializer(self, leaf: GraphQLLeafType, is_non_null: bool) -> Callable[[Any], Any]:
        """Spells a value of the type, in the form of the field that is looked at."""
        return leaf_serializer(leaf, is_non_null, self._current_form())

    def wrap_timestamps_serializer(self, serialize: Callable[[list[Any]], list[Any]]) -> Callable[[list[Any]], list[Any]]:
        """Spells instants in the form of the field that is looked at, by what spells them as the graph does."""
        form = self._current_form()
        if form is None:
            return serialize
        return formatted_timestamps_serializer(serialize, form.serialize_timestamps)

    def wrap_timestamp_serializer(self, serialize: Callable[..., str]) -> Callable[..., str]:
        """The same of a single instant."""
        form = self._current_form()
        if form is None:
            return serialize
        change = form.serialize_timestamp
        return lambda *values: change(serialize(*values))

    def find_connection_subfield(self, kind: GraphQLObjectType, nodes: list[FieldNode]) -> str | None:
        """What the form shows in the place of a connection."""
        form = self._current_form()
        if form is None or not {"nodes", "pageInfo"} <= kind.fields.keys():
            return None
        return form.connection_key(
            {key: each[0].name.value for key, each in self._group_by_response_key(kind, selection_sets(nodes)).items()}
        )

    def _build_completer(self, kind: Any, nodes: list[FieldNode], path: FieldPath) -> Any:
        is_non_null, inner = unwrap_non_null(kind)
        if isinstance(inner, GraphQLList):
            items = self._build_completer(inner.of_type, nodes, FieldPath(None, path))
            return ListCompleter(items, is_non_null)
        if isinstance(inner, GraphQLObjectType):
            selection = self._build_selection(inner, selection_sets(nodes), path)
            objects = ObjectCompleter(selection, is_non_null, is_async=selection.is_async)
            subfield = self.find_connection_subfield(inner, nodes)
            return objects if subfield is None else SubfieldCompleter(objects, subfield, objects.is_async)
        if isinstance(inner, GraphQLInterfaceType | GraphQLUnionType):
            possible = self._schema.get_possible_types(inner)
            selections = {each.name: self._build_selection(each, selection_sets(nodes), path) for each in possible}
            resolve_type: Any = inner.resolve_type
            return AbstractCompleter(selections, lambda value: resolve_type(value, None, inner), is_non_null)
        leaf: GraphQLLeafType = inner
        # What a resolver gives for an Int may be too large.
        return LeafCompleter(self.get_serializer(leaf, is_non_null), PLAIN_TYPES.get(leaf.name) if leaf.name != "Int" else None)
