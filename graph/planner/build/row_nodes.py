"""Builds the nodes of rows that statements select: columns, joined tables, and the fields left to resolvers."""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

from graphql import GraphQLEnumType, GraphQLList, GraphQLObjectType
from sqlalchemy import Boolean, Date
from sqlalchemy import Enum as EnumType
from sqlalchemy.inspection import inspect

from graph.fields.declarations import IndexedBy, NamesOf, ToOne
from graph.fields.row_sources import FromJoins, FromSql
from graph.planner.build.build_context import BuildContext, ObjectFieldStep, StepBuilder
from graph.planner.build.relation_fields import count_statements, key_attributes_of
from graph.planner.codegen.leaf_serializers import (
    PLAIN_TYPES,
    global_id_serializer,
    is_plain,
    serialize_string_with_offset,
    serialize_with_offset,
    string_lists_serializer,
    timestamps_serializer,
)
from graph.planner.ir.connection_step import (
    ConnectionPart,
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
from graph.planner.ir.row_view import (
    ColumnValue,
    ConstantPart,
    Deferred,
    Derived,
    EmbeddedObject,
    RelatedRow,
    RowObjects,
    RowView,
    ViewPart,
)
from graph.planner.ir.steps import AttributeStep, BatchNode, BatchStep, FieldStep, LoaderStep, ResolverStep
from graph.planner.resolve.classify import (
    ColumnKind,
    ConstantKind,
    DerivedKind,
    FromRowKind,
    GlobalIdKind,
    IndexedKind,
    PageKind,
    RelatedKind,
    RelationKind,
    RowByNumberKind,
    StringListKind,
    TypenameKind,
    table_of,
    unwrap_named,
    unwrap_non_null,
)
from graph.planner.resolve.fields import ResolvedField
from graph.planner.sql.parent_join import ParentJoin
from graph.planner.sql.select_builder import SelectBuilder, SelectSource


class RowNodeBuilder:
    """Builds the nodes of rows in one plan. `steps` builds the steps of fields that need objects of the rows."""

    def __init__(self, context: BuildContext, steps: StepBuilder) -> None:
        self._context = context
        self._steps = steps
        self._sql_dialect = context.sql_dialect

    # Of one table's rows

    def build_view(
        self,
        kind: GraphQLObjectType,
        fields: Sequence[ResolvedField],
        source: SelectSource,
        select_builder: SelectBuilder,
    ) -> RowView:
        """The view of the rows of `source` with these fields, whose columns and joins are added to the statement. Raises Unplannable."""
        found: dict[str, ViewPart] = {}
        steps: list[FieldStep] = []
        batch_steps: list[BatchNode] = []
        columns: list[tuple[ResolvedField, str]] = []
        for resolved in fields:
            part: ViewPart | None = None
            node: ConnectionStep | RowByNumber | None = None
            match resolved.kind:
                case ColumnKind(attribute) if attribute in source.mapper.columns:
                    columns.append((resolved, attribute))
                    found[resolved.key] = Deferred()
                    continue
                case PageKind() | RowByNumberKind():
                    node = self.build_child_rows(resolved)
                case _:
                    part = self._build_part(kind, resolved, source, select_builder)
            if node is not None:
                batch_steps.append(node)
            elif part is None:
                add_step(self._steps.build_step(kind, resolved), steps, batch_steps)
            found[resolved.key] = part or Deferred()
        needed_attributes = _collect_needed_attributes([*steps, *batch_steps], source)
        for resolved, attribute in columns:
            found[resolved.key] = self._build_value(source, attribute, resolved, output_only=attribute not in needed_attributes)
        objects = _row_objects(source, sorted(needed_attributes)) if needed_attributes else None
        has_full_rows = source.is_full_row and len(needed_attributes) == len(source.attributes)
        return RowView(list(found.items()), steps, batch_steps, objects, has_full_rows)

    def _build_part(
        self, kind: GraphQLObjectType, resolved: ResolvedField, source: SelectSource, select_builder: SelectBuilder
    ) -> ViewPart | None:
        """The part of a field that is neither a column nor a list; None if a step has to give its values. Raises Unplannable."""
        match resolved.kind:
            case TypenameKind():
                return ConstantPart(kind.name)
            case ConstantKind(value):
                return ConstantPart(value)
            case GlobalIdKind() if "id" in source.attributes:
                return ColumnValue(source.select_column("id"), global_id_serializer(kind.name), True, False)
            case DerivedKind(derive, attributes):
                assert set(attributes) <= set(source.attributes)  # noqa: S101 - they are columns of its row
                origins = [source.select_attribute(each) for each in attributes]
                return Derived(derive, origins, unwrap_non_null(resolved.definition.type)[0])
            case StringListKind(attribute) if attribute in source.mapper.columns:
                return self._build_string_list(source, attribute, resolved)
            case RelationKind() | RelatedKind() | FromRowKind():
                return self._build_joined(resolved, source, select_builder)
            case IndexedKind(index, attributes):
                return self._build_indexed(kind, resolved, index, attributes, source, select_builder)
        return None

    def _build_joined(
        self, resolved: ResolvedField, source: SelectSource, select_builder: SelectBuilder
    ) -> RelatedRow | EmbeddedObject | ColumnValue | Derived | None:
        """The part of a field that the statement selects beside the columns of its row; None if the statement cannot select it."""
        inner = unwrap_non_null(resolved.definition.type)[1]
        match resolved.kind:
            case RelationKind(NamesOf() as names):
                if not self._is_string_list(names, inner):
                    return None
                decode = self._sql_dialect.list_decoder(names.statement([]))
                return ColumnValue(source.select_names(names.statement), None, True, False, decode)
            case RelationKind(ToOne(key=key)):
                target = table_of(inner)
                return self._build_row(resolved, source.join(key, target) if target is not None else None, select_builder)
            case FromRowKind(FromJoins(keys, is_visible)):
                last: SelectSource | None = source
                for key, following in pairwise(keys):
                    last = last.join(key.key, following.class_) if last is not None else None
                return self._build_row(resolved, last.join(keys[-1].key, table_of(inner), is_visible) if last else None, select_builder)
            case RelatedKind(declared, derive):
                related = source.join(declared.key.key, declared.related_columns[0].class_)
                if related is None:
                    return None
                origins = [source.select_attribute(each.key) for each in declared.columns]
                # Neither row is missing, so the function is never given null.
                return Derived(derive, [*origins, *(related.select_attribute(each.key) for each in declared.related_columns)], False)
            case FromRowKind(FromSql() as declared) if source is select_builder.root:
                # For a joined row, which may be that of many rows, the resolver is called once.
                return self._build_sql(resolved, declared, source)
        return None

    def _build_row(self, resolved: ResolvedField, joined: SelectSource | None, select_builder: SelectBuilder) -> RelatedRow | None:
        if joined is None:
            return None
        is_non_null, inner = unwrap_non_null(resolved.definition.type)
        view = self.build_view(inner, resolved.children[inner.name], joined, select_builder)
        return RelatedRow(view, joined.select_column("id"), is_non_null)

    def _build_sql(self, resolved: ResolvedField, declared: FromSql, source: SelectSource) -> EmbeddedObject | ColumnValue | Derived:
        is_non_null, inner = unwrap_non_null(resolved.definition.type)
        indexes = source.select_for_viewers(declared.select)
        if declared.fields:
            by_name = dict(zip(declared.fields, indexes, strict=True))
            return EmbeddedObject(
                [
                    (child.key, ConstantPart(inner.name) if child.field is None else self._selected_value(child, by_name[child.name]))
                    for child in resolved.children[inner.name]
                ]
            )
        if declared.derive is None:
            (index,) = indexes
            return self._selected_value(resolved, index)
        derive, serialize = declared.derive, self._selected_serializer(resolved)
        serialized = derive if serialize is None else lambda *values: serialize.get(derive(*values))
        return Derived(serialized, [([index], None) for index in indexes], is_non_null)

    def _selected_value(self, resolved: ResolvedField, index: int) -> ColumnValue:
        """A value that an expression of the statement gives."""
        return ColumnValue(index, self._selected_serializer(resolved), unwrap_non_null(resolved.definition.type)[0], True)

    def _selected_serializer(self, resolved: ResolvedField) -> dict[Any, Any] | None:
        """The answer of each value of an enum; None for values that need no serialization."""
        leaf = unwrap_non_null(resolved.definition.type)[1]
        if isinstance(leaf, GraphQLEnumType):
            serialize = self._context.serializer(leaf, True, resolved.response_path)
            return {member.value: serialize(member) for member in leaf.wrapped_cls}  # type: ignore[attr-defined]
        assert leaf.name in PLAIN_TYPES  # noqa: S101 - of the declarations
        return None

    def _build_string_list(self, source: SelectSource, attribute: str, resolved: ResolvedField) -> ColumnValue:
        column, is_non_null = source.mapper.columns[attribute], unwrap_non_null(resolved.definition.type)[0]
        return ColumnValue(
            source.select_column(attribute), None, is_non_null, bool(column.nullable), string_lists_serializer(self._sql_dialect.is_sqlite)
        )

    def _build_indexed(
        self,
        kind: GraphQLObjectType,
        resolved: ResolvedField,
        index: IndexedBy,
        attributes: Sequence[str],
        source: SelectSource,
        select_builder: SelectBuilder,
    ) -> RelatedRow | None:
        """The index row of an object that has no row of its own; None where the statement has no room for it."""
        inner = unwrap_non_null(resolved.definition.type)[1]
        joined = source.join_index(index, attributes)
        if joined is None:
            return None
        fallback_objects = _row_objects(source, attributes)
        resolver_step = self._steps.build_step(kind, resolved)
        assert isinstance(resolver_step, ResolverStep)  # noqa: S101 - `from_index=` is declared beside `batch=`
        view = self.build_view(inner, resolved.children[inner.name], joined, select_builder)
        return RelatedRow(view, joined.select_column("id"), False, BatchStep(resolver_step), fallback_objects)

    def _is_string_list(self, declared: NamesOf, kind: Any) -> bool:
        if not isinstance(kind, GraphQLList) or unwrap_non_null(kind.of_type)[1].name != "String":
            return False
        return not hasattr(inspect(declared.statement([]).column_descriptions[1]["expr"], raiseerr=False), "mapper_registry")

    def _build_value(self, source: SelectSource, attribute: str, resolved: ResolvedField, *, output_only: bool) -> ColumnValue:
        is_non_null, leaf = unwrap_non_null(resolved.definition.type)
        column = source.mapper.columns[attribute]
        is_nullable = bool(column.nullable)
        kind = column.type
        if source.is_timestamp(attribute) and leaf.name == "DateTime":
            index = source.select_timestamp(attribute) if output_only else source.select_column(attribute)
            is_string = output_only or self._sql_dialect.is_sqlite
            serialize_batch = self._context.timestamps_serializer(timestamps_serializer(is_string), resolved.response_path)
            utc_offset = None
            if (offset_index := source.select_utc_offset(attribute)) is not None:
                serialize_one = serialize_string_with_offset if is_string else serialize_with_offset
                utc_offset = offset_index, self._context.timestamp_serializer(serialize_one, resolved.response_path)
            return ColumnValue(index, None, is_non_null, is_nullable, serialize_batch, utc_offset)
        serialize = self._context.serializer(leaf, True, resolved.response_path)
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

    def build_relations(self, kind: GraphQLObjectType, relation_fields: list[ResolvedField]) -> Relations | None:
        """One statement for all relations of a level's objects; None where loaders need no more, and none can be read before a mutation."""
        row = table_of(kind)
        if row is None or count_statements(relation_fields) < (1 if self._context.is_mutation else 2):
            return None
        select_builder = SelectBuilder(row, self._sql_dialect)
        parts: list[tuple[str, ViewPart]] = []
        for resolved in relation_fields:
            part = self._build_joined(resolved, select_builder.root, select_builder)
            if part is not None:
                parts.append((resolved.key, part))
        if not parts:
            return None
        id_index = select_builder.root.select_column("id")
        key_attributes = None if select_builder.needs_viewer else key_attributes_of(relation_fields)
        return Relations(select_builder, self._generated(RowView(parts)), id_index, key_attributes=key_attributes)

    # Of lists

    def build_child_rows(self, resolved: ResolvedField) -> ConnectionStep | RowByNumber:
        """The statement of a level's child rows."""
        inner = unwrap_non_null(resolved.definition.type)[1]
        key, position, kind, children = resolved.key, resolved.error_position, resolved.kind, resolved.children[inner.name]
        if isinstance(kind, RowByNumberKind):
            select_builder = SelectBuilder(kind.declared.table, self._sql_dialect)
            view = self._build_root_view(inner, children, select_builder)
            arguments = self._context.add_arguments(resolved.definition, resolved.nodes[0])
            return RowByNumber(
                key, position, kind.declared, arguments, select_builder, view, select_builder.root.select_column("project_id")
            )
        assert isinstance(kind, PageKind)  # noqa: S101 - there are no others
        listing = kind.declared.listing
        select_builder = SelectBuilder(listing.table, self._sql_dialect)
        select_builder.needs_viewer = kind.declared.viewer_conditions is not None
        subfield = self._context.connection_subfield(inner, resolved)
        connection = self._build_connection(inner, children, select_builder)
        arguments = self._context.add_arguments(resolved.definition, resolved.nodes[0])
        parent_join = ParentJoin(listing.parent, self._sql_dialect)
        return ConnectionStep(
            key, position, resolved.is_nullable, kind.declared, arguments, select_builder, parent_join, connection, subfield
        )

    def _build_connection(
        self, kind: GraphQLObjectType, fields: Sequence[ResolvedField], select_builder: SelectBuilder
    ) -> ConnectionSelection:
        parts: list[tuple[str, ConnectionPart]] = []
        for resolved in fields:
            if resolved.field is None:
                parts.append((resolved.key, ConstantPart(kind.name)))
                continue
            inner = unwrap_named(resolved.definition.type)
            children = resolved.children.get(inner.name, ())
            part: ConnectionPart = TotalCount()
            if resolved.name == "nodes":
                part = self._build_root_view(inner, children, select_builder)
            elif resolved.name == "edges":
                part = self._build_edges(inner, children, select_builder)
            elif resolved.name == "pageInfo":
                part = PageInfoFields([(each.key, each.name) for each in children])
            parts.append((resolved.key, part))
        return ConnectionSelection(parts)

    def _build_edges(self, kind: GraphQLObjectType, fields: Sequence[ResolvedField], select_builder: SelectBuilder) -> EdgesSelection:
        parts: list[tuple[str, EdgePart]] = []
        for resolved in fields:
            part: EdgePart = CursorField()
            if resolved.field is None:
                part = ConstantPart(kind.name)
            elif resolved.name != "cursor":
                node = unwrap_named(resolved.definition.type)
                part = self._build_root_view(node, resolved.children[node.name], select_builder)
            parts.append((resolved.key, part))
        return EdgesSelection(parts)

    def _build_root_view(self, kind: GraphQLObjectType, fields: Sequence[ResolvedField], select_builder: SelectBuilder) -> RowView:
        """The view of the rows that a statement is about."""
        return self._generated(self.build_view(kind, fields, select_builder.root, select_builder))

    def _generated(self, view: RowView) -> RowView:
        self._context.nodes_to_generate.append(view)
        return view


def _row_objects(source: SelectSource, attributes: Iterable[str]) -> RowObjects:
    return RowObjects(source.row, {each: source.select_attribute(each) for each in attributes})


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


def add_step(step: ObjectFieldStep, steps: list[FieldStep], batch_steps: list[BatchNode]) -> None:
    """Adds a step to those that are evaluated for each object, or for all of them."""
    if isinstance(step, ResolverStep) and step.batch_resolver is not None:
        batch_steps.append(BatchStep(step))
    else:
        steps.append(step)
