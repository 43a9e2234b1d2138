"""What the passes over one operation share while its plan is compiled."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from graphql import (
    FieldNode,
    FragmentDefinitionNode,
    GraphQLError,
    GraphQLField,
    GraphQLLeafType,
    GraphQLObjectType,
    GraphQLSchema,
    SelectionSetNode,
)
from sqlalchemy import Dialect
from strawberry.schema.schema_converter import GraphQLCoreConverter

from graph.context import StaticSettings
from graph.fields.declarations import ConstantValue
from graph.fields.metadata import metadata_of
from graph.operations.output_format import OutputFormat
from graph.planner.codegen.object_serializer import PLAIN_TYPES, formatted_timestamps_serializer, leaf_serializer
from graph.planner.coerce.arguments import FieldArguments
from graph.planner.collect import CollectedField, FieldCollector, ResponsePath
from graph.planner.errors import Unplannable
from graph.planner.ir.steps import AttributeStep, FieldPath, LoaderStep, ResolverStep
from graph.planner.resolve.classify import unwrap_non_null
from storage.database.compiled_statements import SqlDialect

ObjectFieldStep = AttributeStep | LoaderStep | ResolverStep
"""A field that is evaluated for each object of a level."""


class StepBuilder(Protocol):
    """Builds the step of a field that neither a column nor a statement of the plan answers."""

    def build_step(self, kind: GraphQLObjectType, collected: CollectedField, path: FieldPath) -> ObjectFieldStep:
        """Raises Unplannable."""
        ...


class CompileContext:
    """What a plan is compiled for, and what was collected of its operation so far.

    `directive_values` are the values of the variables that directives use; `output_format` is None for the graph's own format.
    """

    def __init__(
        self,
        schema: GraphQLSchema,
        converter: GraphQLCoreConverter,
        fragments: Mapping[str, FragmentDefinitionNode],
        directive_values: Mapping[str, bool],
        dialect: Dialect,
        settings: StaticSettings,
        output_format: OutputFormat | None,
    ) -> None:
        self.schema = schema
        self.fragments = fragments
        self.sql_dialect = SqlDialect(dialect)
        self.is_mutation = False
        self.arguments: list[FieldArguments] = []
        self.field_count = 0
        """The collected fields, from which the size of the plan is estimated."""
        self._collector = FieldCollector(schema, fragments, directive_values)
        self._converter = converter
        self._settings = settings
        self._output_format = output_format

    def collect(self, kind: GraphQLObjectType, sets: Iterable[SelectionSetNode], response_path: ResponsePath) -> list[CollectedField]:
        """The fields selected of a type, in response order. Raises Unplannable."""
        collected = self._collector.collect(kind, sets, response_path)
        self.field_count += len(collected)
        return collected

    def add_arguments(self, field: GraphQLField, node: FieldNode) -> int | None:
        """The index of a field's arguments in `PlanRun.arguments`; None for a field without arguments.

        Raises Unplannable where graphql-core reports what is wrong with an argument.
        """
        if not field.args:
            return None
        definition = field.extensions[GraphQLCoreConverter.DEFINITION_BACKREF]
        config, scalars = self._converter.config, self._converter.scalar_registry
        try:
            self.arguments.append(FieldArguments(field, definition, node, config, scalars, use_cache=not self.is_mutation))
        except GraphQLError as error:
            raise Unplannable(error.message) from error
        return len(self.arguments) - 1

    def derivation(self, collected: CollectedField, path: FieldPath) -> Callable[..., Any] | ConstantValue | None:
        """The function of columns that computes a field; None where its resolver is called."""
        factory = metadata_of(collected.field).get("from_columns")
        if factory is None:
            return None
        assert unwrap_non_null(collected.field.type)[1].name in PLAIN_TYPES  # noqa: S101 - its result is not serialized
        return factory(self._settings, path.prev.typename if path.prev is not None else None)  # type: ignore[no-any-return]

    def format_at(self, response_path: ResponsePath) -> OutputFormat | None:
        """The output format of a field; None for the graph's own format."""
        output_format = self._output_format
        return output_format if output_format is not None and output_format.covers(response_path) else None

    def serializer(self, leaf: GraphQLLeafType, is_non_null: bool, response_path: ResponsePath) -> Callable[[Any], Any]:
        """Serializes a value of a type in the format of a field."""
        return leaf_serializer(leaf, is_non_null, self.format_at(response_path))

    def timestamps_serializer(
        self, serialize: Callable[[list[Any]], list[Any]], response_path: ResponsePath
    ) -> Callable[[list[Any]], list[Any]]:
        """Serializes timestamps in the format of a field. `serialize` does so in the graph's own format."""
        output_format = self.format_at(response_path)
        return serialize if output_format is None else formatted_timestamps_serializer(serialize, output_format.serialize_timestamps)

    def timestamp_serializer(self, serialize: Callable[..., str], response_path: ResponsePath) -> Callable[..., str]:
        """As `timestamps_serializer`, for a single timestamp."""
        output_format = self.format_at(response_path)
        if output_format is None:
            return serialize
        change_format = output_format.serialize_timestamp
        return lambda *values: change_format(serialize(*values))

    def connection_subfield(self, kind: GraphQLObjectType, collected: CollectedField) -> str | None:
        """The key of the part that replaces a connection in the field's format; None: no part does."""
        output_format = self.format_at(collected.response_path)
        if output_format is None or not {"nodes", "pageInfo"} <= kind.fields.keys():
            return None
        fields = self._collector.group_by_response_key(kind, collected.selection_sets)
        return output_format.connection_key({key: nodes[0].name.value for key, nodes in fields.items()})
