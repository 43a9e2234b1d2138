"""Builds views of selected rows: columns, joined tables, and the fields left to resolvers."""

from collections.abc import Sequence
from typing import Any

from graphql import GraphQLList, GraphQLObjectType
from sqlalchemy import Boolean, Date
from sqlalchemy import Enum as EnumType
from sqlalchemy.inspection import inspect

from graph.fields.declarations import ConstantValue, IndexedBy, NamesOf, ToOne, global_id
from graph.fields.resolvers import declaration_of
from graph.planner.codegen.object_serializer import is_plain, timestamps_serializer
from graph.planner.codegen.row_serializer import RowObjectFactory, compile_row_serializer
from graph.planner.collect import CollectedField
from graph.planner.ir.connection_step import (
    ConnectionSelection,
    ConnectionStep,
    CursorField,
    EdgePart,
    EdgesSelection,
    PageInfoFields,
    TotalCount,
)
from graph.planner.ir.relations import Relations
from graph.planner.ir.row_by_number import RowByNumber
from graph.planner.ir.row_view import ColumnValue, ConstantPart, Deferred, Derived, RelatedRow, RowView, ViewPart
from graph.planner.ir.steps import AttributeStep, BatchNode, BatchStep, FieldPath, FieldStep, LoaderStep, ResolverStep
from graph.planner.resolve.classify import (
    ColumnKind,
    ComputedKind,
    GlobalIdKind,
    IndexedKind,
    PageKind,
    RelationKind,
    RowByNumberKind,
    TypenameKind,
    classify,
    table_of,
    unwrap_named,
    unwrap_non_null,
)
from graph.planner.resolve.compile_context import CompileContext, ObjectFieldStep, StepBuilder
from graph.planner.sql.parent_join import ParentJoin
from graph.planner.sql.select_builder import SelectBuilder, SelectSource


class RowViewBuilder:
    """Builds the views of one plan. `steps` builds what the rows' objects are needed for."""

    def __init__(self, context: CompileContext, steps: StepBuilder) -> None:
        self._context = context
        self._steps = steps
        self._sql_dialect = context.sql_dialect

    # Of one table's rows

    def build_view(
        self,
        kind: GraphQLObjectType,
        parent: CollectedField,
        parent_path: FieldPath | None,
        source: SelectSource,
        select_builder: SelectBuilder,
    ) -> RowView:
        """What the selection of the field `parent` makes of the rows of `source`."""
        found: dict[str, ViewPart] = {}
        steps: list[FieldStep] = []
        batch_steps: list[BatchNode] = []
        columns: list[tuple[CollectedField, str]] = []
        path = FieldPath(kind.name, parent_path)
        for collected in self._context.collect(kind, parent.selection_sets, parent.response_path):
            part: ViewPart | ConnectionStep | RowByNumber | None = None
            match classify(collected):
                case TypenameKind():
                    part = ConstantPart(kind.name)
                case ColumnKind(attribute) if attribute in source.mapper.columns:
                    columns.append((collected, attribute))
                    part = Deferred()
                case GlobalIdKind() if "id" in source.attributes:
                    part = ColumnValue(source.select_column("id"), lambda value: global_id(kind.name, value), True, False)
                case ComputedKind(attributes):
                    part = self._build_computed(collected, attributes, path, source)
                case RelationKind(declared):
                    part = self._build_relation(collected, declared, path, source, select_builder)
                case IndexedKind(index, attributes):
                    part = self._build_indexed(kind, collected, index, attributes, path, source, select_builder)
                case (PageKind() | RowByNumberKind()) as rows:
                    part = self.build_child_rows(collected, rows, path)
            if part is None:
                add_step(self._steps.build_step(kind, collected, path), steps, batch_steps)
            elif isinstance(part, ConnectionStep | RowByNumber):
                batch_steps.append(part)
                part = None
            found[collected.key] = part or Deferred()
        needed_attributes = _collect_needed_attributes([*steps, *batch_steps], source)
        for collected, attribute in columns:
            found[collected.key] = self._build_value(source, attribute, collected, output_only=attribute not in needed_attributes)
        make_object = (
            RowObjectFactory(source.row, {each: source.select_attribute(each) for each in sorted(needed_attributes)})
            if needed_attributes
            else None
        )
        full_row_class = source.row if source.is_full_row and len(needed_attributes) == len(source.attributes) else None
        parts = list(found.items())
        return RowView(parts, compile_row_serializer(parts), steps, batch_steps, make_object, full_row_class)

    def _build_relation(
        self,
        collected: CollectedField,
        declared: ToOne | NamesOf,
        path: FieldPath,
        source: SelectSource,
        select_builder: SelectBuilder,
    ) -> RelatedRow | ColumnValue | None:
        """A joined row, or an aggregated list of names; None where the statement has no room for it."""
        is_non_null, inner = unwrap_non_null(collected.field.type)
        if isinstance(declared, NamesOf):
            if not self._is_string_list(declared, inner):
                return None
            decode = self._sql_dialect.list_decoder(declared.statement([]))
            return ColumnValue(source.select_names(declared.statement), None, True, False, decode)
        target = table_of(inner)
        joined = source.join(declared.key, target) if target is not None else None
        if joined is None:
            return None
        view = self.build_view(inner, collected, path, joined, select_builder)
        return RelatedRow(view, joined.select_column("id"), is_non_null)

    def _build_indexed(
        self,
        kind: GraphQLObjectType,
        collected: CollectedField,
        index: IndexedBy,
        attributes: Sequence[str],
        path: FieldPath,
        source: SelectSource,
        select_builder: SelectBuilder,
    ) -> RelatedRow | None:
        """The index row of an object that has no row of its own; None where the index lacks a selected field."""
        inner = unwrap_non_null(collected.field.type)[1]
        if not {each.name for each in self._context.collect(inner, collected.selection_sets, collected.response_path)} <= index.fields:
            return None
        joined = source.join_index(index, attributes)
        if joined is None:
            return None
        make_object = RowObjectFactory(source.row, {each: source.select_attribute(each) for each in attributes})
        resolver_step = self._steps.build_step(kind, collected, path)
        assert isinstance(resolver_step, ResolverStep)  # noqa: S101 - `from_index=` is declared beside `batch=`
        view = self.build_view(inner, collected, path, joined, select_builder)
        return RelatedRow(view, joined.select_column("id"), False, BatchStep(resolver_step), make_object)

    def _build_computed(
        self, collected: CollectedField, attributes: Sequence[str], path: FieldPath, source: SelectSource
    ) -> Derived | ConstantPart | None:
        """A function of columns; None where its resolver is called."""
        derive = self._context.derivation(collected, path)
        if derive is None:
            return None
        if isinstance(derive, ConstantValue):
            return ConstantPart(derive.value)
        assert set(attributes) <= set(source.attributes)  # noqa: S101 - they are columns of its row
        return Derived(derive, [source.select_attribute(each) for each in attributes], unwrap_non_null(collected.field.type)[0])

    def _is_string_list(self, declared: NamesOf, kind: Any) -> bool:
        if not isinstance(kind, GraphQLList) or unwrap_non_null(kind.of_type)[1].name != "String":
            return False
        return not hasattr(inspect(declared.statement([]).column_descriptions[1]["expr"], raiseerr=False), "mapper_registry")

    def _build_value(self, source: SelectSource, attribute: str, collected: CollectedField, *, output_only: bool) -> ColumnValue:
        is_non_null, leaf = unwrap_non_null(collected.field.type)
        column = source.mapper.columns[attribute]
        is_nullable = bool(column.nullable)
        kind = column.type
        if source.is_timestamp(attribute) and leaf.name == "DateTime":
            index = source.select_timestamp(attribute) if output_only else source.select_column(attribute)
            is_string = output_only or self._sql_dialect.is_sqlite
            serialize_batch = self._context.timestamps_serializer(timestamps_serializer(is_string), collected.response_path)
            utc_offset = source.select_utc_offset(attribute, is_string=is_string)
            if utc_offset is not None:
                utc_offset = utc_offset[0], self._context.timestamp_serializer(utc_offset[1], collected.response_path)
            return ColumnValue(index, None, is_non_null, is_nullable, serialize_batch, utc_offset)
        serialize = self._context.serializer(leaf, True, collected.response_path)
        process = source.processor(attribute)
        index = source.select_column(attribute)
        if isinstance(kind, EnumType) and kind.enum_class is not None:
            serialized_members = {str(member.value): serialize(member) for member in kind.enum_class}
            return ColumnValue(index, serialized_members, is_non_null, is_nullable)
        if isinstance(kind, Date) and leaf.name == "Date" and self._sql_dialect.is_sqlite:
            # SQLite stores a date as the string that GraphQL serializes.
            return ColumnValue(index, None, is_non_null, is_nullable)
        if is_plain(column, leaf):
            return ColumnValue(index, bool if process is not None and isinstance(kind, Boolean) else process, is_non_null, is_nullable)
        return ColumnValue(index, serialize if process is None else lambda value: serialize(process(value)), is_non_null, is_nullable)

    # Of objects that a resolver gave

    def build_relations(self, kind: GraphQLObjectType, relation_fields: list[CollectedField], path: FieldPath) -> Relations | None:
        """One statement for all relations of a level's objects; None where loaders need no more."""
        row = table_of(kind)
        if row is None or _count_statements(relation_fields) < 2:
            return None
        select_builder = SelectBuilder(row, self._sql_dialect)
        parts: list[tuple[str, ViewPart]] = []
        for collected in relation_fields:
            relation = classify(collected)
            if not isinstance(relation, RelationKind):
                continue
            part = self._build_relation(collected, relation.declared, path, select_builder.root, select_builder)
            if part is not None:
                parts.append((collected.key, part))
        if not parts:
            return None
        return Relations(select_builder, RowView(parts, compile_row_serializer(parts)), select_builder.root.select_column("id"))

    # Of lists

    def build_child_rows(
        self, collected: CollectedField, rows: PageKind | RowByNumberKind, path: FieldPath
    ) -> ConnectionStep | RowByNumber | None:
        """The statement of a level's child rows; None for a connection with fields of its own."""
        inner = unwrap_non_null(collected.field.type)[1]
        if isinstance(rows, RowByNumberKind):
            select_builder = SelectBuilder(rows.declared.table, self._sql_dialect)
            view = self.build_view(inner, collected, path, select_builder.root, select_builder)
            arguments = self._context.add_arguments(collected.field, collected.nodes[0])
            project_id_index = select_builder.root.select_column("project_id")
            return RowByNumber(collected.key, rows.declared, arguments, select_builder, view, project_id_index)
        select_builder = SelectBuilder(rows.declared.listing.table, self._sql_dialect)
        subfield = self._context.connection_subfield(inner, collected)
        connection = self._build_connection(inner, collected, path, select_builder)
        if connection is None:
            return None
        arguments = self._context.add_arguments(collected.field, collected.nodes[0])
        parent_join = ParentJoin(rows.declared.listing.parent, self._sql_dialect)
        return ConnectionStep(collected.key, rows.declared, arguments, select_builder, parent_join, connection, subfield)

    def _build_connection(
        self, kind: GraphQLObjectType, parent: CollectedField, path: FieldPath, select_builder: SelectBuilder
    ) -> ConnectionSelection | None:
        parts = ConnectionSelection()
        item_path = FieldPath(None, FieldPath(kind.name, path))
        for collected in self._context.collect(kind, parent.selection_sets, parent.response_path):
            if collected.field is None:
                parts.add(collected.key, ConstantPart(kind.name))
                continue
            inner = unwrap_named(collected.field.type)
            if collected.name == "nodes":
                parts.add(collected.key, self.build_view(inner, collected, item_path, select_builder.root, select_builder))
            elif collected.name == "edges":
                parts.add(collected.key, self._build_edges(inner, collected, item_path, select_builder))
            elif collected.name == "pageInfo":
                fields = self._context.collect(inner, collected.selection_sets, collected.response_path)
                parts.add(collected.key, PageInfoFields([(each.key, each.name) for each in fields]))
            elif collected.name == "totalCount":
                parts.add(collected.key, TotalCount())
            else:
                return None
        return parts

    def _build_edges(
        self, kind: GraphQLObjectType, parent: CollectedField, path: FieldPath, select_builder: SelectBuilder
    ) -> EdgesSelection:
        parts: list[tuple[str, EdgePart]] = []
        node_path = FieldPath(kind.name, path)
        for collected in self._context.collect(kind, parent.selection_sets, parent.response_path):
            if collected.field is None:
                parts.append((collected.key, ConstantPart(kind.name)))
            elif collected.name == "cursor":
                parts.append((collected.key, CursorField()))
            else:
                node = unwrap_named(collected.field.type)
                parts.append((collected.key, self.build_view(node, collected, node_path, select_builder.root, select_builder)))
        return EdgesSelection(parts)


def _collect_needed_attributes(steps: Sequence[FieldStep | BatchNode], source: SelectSource) -> set[str]:
    """The attributes of the objects that these take."""
    found: set[str] = set()
    for step in steps:
        found |= source.required_attributes(_attributes_of_step(step.resolver_step if isinstance(step, BatchStep) else step, source))
    return found


def _attributes_of_step(step: FieldStep | BatchNode, source: SelectSource) -> tuple[str, ...] | None:
    """The attributes of the objects that a step reads; None: all."""
    if isinstance(step, ResolverStep):
        return () if step.root == "" else step.definition.metadata.get("needs")
    if isinstance(step, ConnectionStep):
        policy_columns = source.policy_columns if step.checks_policy else ()
        return None if policy_columns is None else (step.key_attribute, *policy_columns)
    if isinstance(step, LoaderStep):
        return (step.field_source.key,)
    return (step.attribute,) if isinstance(step, AttributeStep) else None


def _count_statements(relation_fields: list[CollectedField]) -> int:
    """How many statements loaders take for these fields."""
    targets: set[Any] = set()
    for collected in relation_fields:
        declared = declaration_of(collected.field)
        targets.add(declared.target if isinstance(declared, ToOne) else declared)
    return len(targets)


def add_step(step: ObjectFieldStep, steps: list[FieldStep], batch_steps: list[BatchNode]) -> None:
    """Adds a step to those that are evaluated for each object, or for all of them."""
    if isinstance(step, ResolverStep) and step.batch_resolver is not None:
        batch_steps.append(BatchStep(step))
    else:
        steps.append(step)
