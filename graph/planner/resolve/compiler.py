"""Compiles the plan of an operation: reads it against the schema once, so that a run looks nothing up.

`PlanCompiler` resolves the fields of objects that resolvers return; `RowViewBuilder` resolves those of rows that statements select.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from graphql import (
    FragmentDefinitionNode,
    GraphQLInterfaceType,
    GraphQLLeafType,
    GraphQLList,
    GraphQLObjectType,
    GraphQLSchema,
    GraphQLUnionType,
    OperationDefinitionNode,
    SelectionSetNode,
)
from sqlalchemy import Dialect
from strawberry.schema.schema_converter import GraphQLCoreConverter

from graph.context import StaticSettings
from graph.fields.declarations import ConstantValue
from graph.fields.resolvers import AttributeSource, LoaderSource, field_source_of, is_row_type
from graph.operations.output_format import OutputFormat
from graph.planner.codegen.object_serializer import PLAIN_TYPES, DerivedField, LeafField, compile_serializer, is_plain
from graph.planner.collect import CollectedField, ResponsePath
from graph.planner.errors import Unplannable
from graph.planner.ir.completers import AbstractCompleter, LeafCompleter, ListCompleter, ObjectCompleter, SubfieldCompleter
from graph.planner.ir.project_root import ProjectRoot
from graph.planner.ir.selection import Selection
from graph.planner.ir.steps import AttributeStep, BatchNode, Completer, FieldPath, FieldStep, LoaderStep, ResolverStep
from graph.planner.mutation_replay import run_once
from graph.planner.plan import OperationPlan
from graph.planner.resolve.classify import (
    ColumnKind,
    ComputedKind,
    PageKind,
    ProjectKind,
    RelationKind,
    RowByNumberKind,
    TypenameKind,
    classify,
    table_of,
    unwrap_non_null,
)
from graph.planner.resolve.compile_context import CompileContext, ObjectFieldStep
from graph.planner.resolve.project_roots import make_project_root
from graph.planner.resolve.row_views import RowViewBuilder, add_step

ObjectPart = LeafField | DerivedField | tuple[str, Any]
"""What is read off an object; a pair is a response key and a value that all objects have, or that a step fills in."""


class PlanCompiler:
    """Compiles one plan. `directive_values` are the values of the variables that directives use."""

    def __init__(
        self,
        schema: GraphQLSchema,
        converter: GraphQLCoreConverter,
        fragments: Mapping[str, FragmentDefinitionNode],
        directive_values: Mapping[str, bool],
        dialect: Dialect,
        settings: StaticSettings,
        output_format: OutputFormat | None = None,
    ) -> None:
        self._context = CompileContext(schema, converter, fragments, directive_values, dialect, settings, output_format)
        self._row_view_builder = RowViewBuilder(self._context, self)

    def plan(self, operation: OperationDefinitionNode) -> OperationPlan:
        """Raises Unplannable."""
        context = self._context
        if operation.directives:
            raise Unplannable("a directive on the operation")
        root = context.schema.get_root_type(operation.operation)
        context.is_mutation = root is context.schema.mutation_type
        if root is None:
            raise Unplannable("no such kind of operation")
        selection = self._build_selection(root, [operation.selection_set], None, ())
        return OperationPlan(selection, context.arguments, context.fragments, context.field_count)

    def _build_selection(
        self, kind: GraphQLObjectType, sets: Sequence[SelectionSetNode], parent_path: FieldPath | None, response_path: ResponsePath
    ) -> Selection:
        return self._build_selection_of(kind, self._context.collect(kind, sets, response_path), parent_path)

    def _build_selection_of(self, kind: GraphQLObjectType, fields: Sequence[CollectedField], parent_path: FieldPath | None) -> Selection:
        parts: list[ObjectPart] = []
        steps: list[FieldStep] = []
        batch_steps: list[BatchNode] = []
        relation_fields: list[CollectedField] = []
        column_keys: list[str] = []
        path = FieldPath(kind.name, parent_path)
        for collected in fields:
            part: ObjectPart | None = None
            step: BatchNode | None = None
            match classify(collected):
                case TypenameKind():
                    part = (collected.key, kind.name)
                case ColumnKind(attribute) if is_row_type(kind):
                    part = self._resolve_column(kind, collected, attribute)
                case ComputedKind(attributes) if table_of(kind) is not None:
                    part = self._resolve_computed(collected, attributes, path)
                case RelationKind():
                    relation_fields.append(collected)
                    parts.append((collected.key, None))
                    continue
                case ProjectKind():
                    step = self._build_project_root(fields, collected, path)
                case (PageKind() | RowByNumberKind()) as rows:
                    step = self._row_view_builder.build_child_rows(collected, rows, path)
            parts.append(part or (collected.key, None))
            if part is not None:
                column_keys.append(collected.key)
            elif step is not None:
                batch_steps.append(step)
            else:
                add_step(self.build_step(kind, collected, path), steps, batch_steps)
        relations = self._row_view_builder.build_relations(kind, relation_fields, path)
        if relations is not None:
            if self._context.is_mutation:
                fallback_steps = [self.build_step(kind, each, path) for each in relation_fields if each.key in relations.keys]
                relations = replace(relations, fallback_steps=fallback_steps)
            batch_steps.append(relations)
        steps += [self.build_step(kind, each, path) for each in relation_fields if relations is None or each.key not in relations.keys]
        return Selection(compile_serializer(parts), steps, batch_steps, tuple(column_keys))

    def _build_project_root(self, fields: Sequence[CollectedField], collected: CollectedField, path: FieldPath) -> ProjectRoot | None:
        """The one project that an operation looks up; None for several, which loaders find together."""
        if sum(isinstance(classify(each), ProjectKind) for each in fields) > 1:
            return None
        field = collected.field
        inner = unwrap_non_null(field.type)[1]
        children = self._context.collect(inner, collected.selection_sets, collected.response_path)
        selection = self._build_selection_of(inner, children, path)
        arguments = self._context.add_arguments(field, collected.nodes[0])
        assert arguments is not None  # noqa: S101 - the path is one
        (argument,) = field.extensions[GraphQLCoreConverter.DEFINITION_BACKREF].arguments
        sql_dialect, is_only_field = self._context.sql_dialect, len(children) == 1
        return make_project_root(collected.key, selection, arguments, argument.python_name, sql_dialect, is_only_field=is_only_field)

    def _resolve_column(self, kind: GraphQLObjectType, collected: CollectedField, attribute: str) -> LeafField:
        is_non_null, leaf = unwrap_non_null(collected.field.type)
        columns = getattr(getattr(table_of(kind), "__table__", None), "columns", {})
        plain = attribute in columns and is_plain(columns[attribute], leaf)
        return LeafField(collected.key, attribute, leaf, is_non_null, plain, self._context.format_at(collected.response_path))

    def _resolve_computed(self, collected: CollectedField, attributes: Sequence[str], path: FieldPath) -> ObjectPart | None:
        """A function of columns; None where its resolver is called."""
        derive = self._context.derivation(collected, path)
        if derive is None:
            return None
        if isinstance(derive, ConstantValue):
            return collected.key, derive.value
        return DerivedField(collected.key, derive, attributes, unwrap_non_null(collected.field.type)[0])

    def build_step(self, kind: GraphQLObjectType, collected: CollectedField, path: FieldPath) -> ObjectFieldStep:
        """A field whose values a loader, an attribute or a resolver gives. Raises Unplannable."""
        field, nodes = collected.field, collected.nodes
        assert field is not None  # noqa: S101 - `__typename` is no step
        completer = self._build_completer(field.type, collected, path)
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
        if kind is self._context.schema.mutation_type:
            if info is None:
                raise Unplannable(collected.key)
            resolve = run_once(resolve, info)
        arguments = self._context.add_arguments(field, nodes[0])
        return ResolverStep(collected.key, completer, resolve, definition, nodes, kind, path, root, info, arguments)

    def _build_completer(self, kind: Any, collected: CollectedField, path: FieldPath) -> Completer:
        is_non_null, inner = unwrap_non_null(kind)
        sets, response_path = collected.selection_sets, collected.response_path
        if isinstance(inner, GraphQLList):
            items = self._build_completer(inner.of_type, collected, FieldPath(None, path))
            return ListCompleter(items, is_non_null)
        if isinstance(inner, GraphQLObjectType):
            selection = self._build_selection(inner, sets, path, response_path)
            objects = ObjectCompleter(selection, is_non_null)
            subfield = self._context.connection_subfield(inner, collected)
            return objects if subfield is None else SubfieldCompleter(objects, subfield)
        if isinstance(inner, GraphQLInterfaceType | GraphQLUnionType):
            possible = self._context.schema.get_possible_types(inner)
            selections = {each.name: self._build_selection(each, sets, path, response_path) for each in possible}
            resolve_type: Any = inner.resolve_type
            return AbstractCompleter(selections, lambda value: resolve_type(value, None, inner), is_non_null)
        leaf: GraphQLLeafType = inner
        # A resolver may return an Int of more than 32 bits.
        plain_type = PLAIN_TYPES.get(leaf.name) if leaf.name != "Int" else None
        return LeafCompleter(self._context.serializer(leaf, is_non_null, response_path), plain_type)
