"""Builds the nodes of objects' fields: what is read off the objects, and the steps for the rest.

Fields that rows answer are left to `RowNodeBuilder`.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

from graphql import GraphQLLeafType, GraphQLList, GraphQLObjectType
from strawberry.schema.schema_converter import GraphQLCoreConverter

from graph.documents.output_format import OutputFormat
from graph.fields.resolvers import AttributeSource, LoaderSource, field_source_of, is_row_type
from graph.planner.build.build_context import BuildContext, ObjectFieldStep
from graph.planner.build.project_roots import make_project_root
from graph.planner.build.row_nodes import RowNodeBuilder, add_step
from graph.planner.codegen.leaf_serializers import is_plain, leaf_serializer
from graph.planner.codegen.value_serializer import column_serializer
from graph.planner.collect import ABSTRACT_TYPES
from graph.planner.errors import Unplannable
from graph.planner.ir.completers import AbstractCompleter, LeafCompleter, ListCompleter, ObjectCompleter, SubfieldCompleter
from graph.planner.ir.project_root import ProjectRoot
from graph.planner.ir.selection import ConstantField, DeferredField, DerivedField, LeafField, ObjectPart, Selection
from graph.planner.ir.steps import AttributeStep, BatchNode, Completer, FieldStep, LoaderStep, ResolverStep
from graph.planner.mutation_replay import run_once
from graph.planner.resolve.classify import (
    ColumnKind,
    ConstantKind,
    DerivedKind,
    FromRowKind,
    PageKind,
    ProjectKind,
    RelatedKind,
    RelationKind,
    RowByNumberKind,
    StepKind,
    TypenameKind,
    table_of,
    unwrap_non_null,
)
from graph.planner.resolve.fields import ResolvedField


class ObjectNodeBuilder:
    """Builds the nodes of one plan."""

    def __init__(self, context: BuildContext) -> None:
        self._context = context
        self._rows = RowNodeBuilder(context, self)

    def build_selection(self, kind: GraphQLObjectType, fields: Sequence[ResolvedField]) -> Selection:
        """The selection of these fields on objects of a type. Raises Unplannable."""
        parts: list[ObjectPart] = []
        steps: list[FieldStep] = []
        batch_steps: list[BatchNode] = []
        relation_fields: list[ResolvedField] = []
        for resolved in fields:
            key = resolved.key
            part: ObjectPart | None = None
            node: BatchNode | None = None
            match resolved.kind:
                case StepKind():
                    pass
                case TypenameKind():
                    part = ConstantField(key, kind.name)
                case ColumnKind(attribute) if is_row_type(kind):
                    part = self._build_leaf(kind, resolved, attribute)
                case ConstantKind(value) if table_of(kind) is not None:
                    part = ConstantField(key, value)
                case DerivedKind(derive, attributes) if table_of(kind) is not None:
                    part = DerivedField(key, derive, attributes, unwrap_non_null(resolved.definition.type)[0])
                case RelationKind() | FromRowKind() | RelatedKind():
                    relation_fields.append(resolved)
                    parts.append(DeferredField(key))
                    continue
                case ProjectKind():
                    node = self._build_project_root(resolved)
                case PageKind() | RowByNumberKind():
                    node = self._rows.build_child_rows(resolved)
            parts.append(part or DeferredField(key))
            if node is not None:
                batch_steps.append(node)
            elif part is None:
                add_step(self.build_step(kind, resolved), steps, batch_steps)
        self._add_relations(kind, relation_fields, steps, batch_steps)
        is_value = table_of(kind) is None and "pageInfo" not in kind.fields
        # Tuples take less memory, and plans are kept.
        selection = Selection(tuple(parts), tuple(steps), tuple(batch_steps), is_value=is_value)
        self._context.nodes_to_generate.append(selection)
        return selection

    def _add_relations(
        self, kind: GraphQLObjectType, fields: list[ResolvedField], steps: list[FieldStep], batch_steps: list[BatchNode]
    ) -> None:
        """Adds one statement for those of the fields that it may select, and steps for the others. Raises Unplannable."""
        relations = self._rows.build_relations(kind, fields)
        selected = relations.keys if relations is not None else set()
        if relations is not None:
            if self._context.is_mutation:
                relations = replace(relations, fallback_steps=[self.build_step(kind, each) for each in fields if each.key in selected])
            batch_steps.append(relations)
        steps += [self.build_step(kind, each) for each in fields if each.key not in selected]

    def build_step(self, kind: GraphQLObjectType, resolved: ResolvedField) -> ObjectFieldStep:
        """A field whose values a loader, an attribute or a resolver gives. Raises Unplannable."""
        field, nodes, key, position = resolved.definition, resolved.nodes, resolved.key, resolved.error_position
        completer, is_nullable = self._build_completer(field.type, resolved), resolved.is_nullable
        field_source = field_source_of(field)
        if isinstance(field_source, LoaderSource):
            return LoaderStep(key, completer, position, is_nullable, field_source)
        if isinstance(field_source, AttributeSource):
            return AttributeStep(key, completer, position, is_nullable, field_source.key)
        definition = field.extensions.get(GraphQLCoreConverter.DEFINITION_BACKREF)
        if definition is None or definition.extensions:
            raise Unplannable(key)
        resolver = definition.base_resolver
        if resolver is None:
            return AttributeStep(key, completer, position, is_nullable, definition.python_name)
        root: str | None = ""
        if resolver.self_parameter:
            root = None
        elif found := resolver.root_parameter or resolver.parent_parameter:
            root = found.name
        info = resolver.info_parameter.name if resolver.info_parameter else None
        resolve = resolver.wrapped_func
        if kind is self._context.schema.mutation_type:
            if info is None:
                raise Unplannable(key)
            resolve = run_once(resolve, info)
        arguments = self._context.add_arguments(field, nodes[0])
        path = resolved.path
        return ResolverStep(key, completer, position, is_nullable, resolve, definition, nodes, kind, path, root, info, arguments)

    def _build_project_root(self, resolved: ResolvedField) -> ProjectRoot:
        """The one project that an operation looks up."""
        field = resolved.definition
        inner = unwrap_non_null(field.type)[1]
        children = resolved.children[inner.name]
        selection = self.build_selection(inner, children)
        arguments = self._context.add_arguments(field, resolved.nodes[0])
        assert arguments is not None  # noqa: S101 - the path is one
        (argument,) = field.extensions[GraphQLCoreConverter.DEFINITION_BACKREF].arguments
        sql_dialect, is_only_field = self._context.sql_dialect, len(children) == 1
        return make_project_root(resolved, selection, arguments, argument.python_name, sql_dialect, is_only_field=is_only_field)

    def _build_leaf(self, kind: GraphQLObjectType, resolved: ResolvedField, attribute: str) -> LeafField:
        is_non_null, leaf = unwrap_non_null(resolved.definition.type)
        columns = getattr(getattr(table_of(kind), "__table__", None), "columns", {})
        plain = attribute in columns and is_plain(columns[attribute], leaf)
        return LeafField(resolved.key, attribute, leaf, is_non_null, plain, self._context.format_at(resolved.response_path))

    def _build_completer(self, kind: Any, resolved: ResolvedField) -> Completer:
        is_non_null, inner = unwrap_non_null(kind)
        if isinstance(inner, GraphQLList):
            return ListCompleter(self._build_completer(inner.of_type, resolved), is_non_null)
        if isinstance(inner, GraphQLObjectType):
            objects = ObjectCompleter(self.build_selection(inner, resolved.children[inner.name]), is_non_null)
            subfield = self._context.connection_subfield(inner, resolved)
            return objects if subfield is None else SubfieldCompleter(objects, subfield)
        if isinstance(inner, ABSTRACT_TYPES):
            possible = self._context.schema.get_possible_types(inner)
            selections = {each.name: self.build_selection(each, resolved.children[each.name]) for each in possible}
            resolve_type: Any = inner.resolve_type
            return AbstractCompleter(selections, lambda value: resolve_type(value, None, inner), is_non_null)
        leaf: GraphQLLeafType = inner
        return _leaf_completer(leaf, is_non_null, self._context.format_at(resolved.response_path))


@lru_cache(maxsize=1024)
def _leaf_completer(leaf: GraphQLLeafType, is_non_null: bool, output_format: OutputFormat | None) -> LeafCompleter:
    return LeafCompleter(leaf_serializer(leaf, is_non_null, output_format), column_serializer(leaf, is_non_null, output_format))
