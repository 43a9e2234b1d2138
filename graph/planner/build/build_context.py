"""The context that the builders of one plan share."""

from collections.abc import Callable
from typing import Any, Protocol

from graphql import FieldNode, GraphQLError, GraphQLField, GraphQLLeafType, GraphQLObjectType, GraphQLSchema
from sqlalchemy import Dialect
from strawberry.schema.schema_converter import GraphQLCoreConverter

from graph.documents.output_format import OutputFormat
from graph.planner.codegen.functions import GeneratedNode
from graph.planner.codegen.leaf_serializers import formatted_timestamps_serializer, leaf_serializer
from graph.planner.coerce.arguments import FieldArguments
from graph.planner.errors import ResponsePath, WrongArguments
from graph.planner.ir.steps import AttributeStep, LoaderStep, ResolverStep
from graph.planner.resolve.fields import ResolvedField
from storage.database.statements.compiled_statements import SqlDialect

ObjectFieldStep = AttributeStep | LoaderStep | ResolverStep
"""A field that is evaluated for each object of a level."""


class StepBuilder(Protocol):
    """Builds the step of a field that neither a column nor a statement of the plan answers."""

    def build_step(self, kind: GraphQLObjectType, resolved: ResolvedField) -> ObjectFieldStep:
        """Raises Unplannable."""
        ...


class BuildContext:
    """The schema, database and output format that nodes are built for, and the arguments that the plan collects."""

    def __init__(
        self,
        schema: GraphQLSchema,
        converter: GraphQLCoreConverter,
        dialect: Dialect,
        output_format: OutputFormat | None,
        *,
        is_mutation: bool,
    ) -> None:
        self.schema = schema
        self.sql_dialect = SqlDialect(dialect)
        self.is_mutation = is_mutation
        self.arguments: list[FieldArguments] = []
        self.nodes_to_generate: list[GeneratedNode] = []
        """The nodes that get generated functions when all are built."""
        self._converter = converter
        self._output_format = output_format

    def add_arguments(self, field: GraphQLField, node: FieldNode) -> int | None:
        """The index of a field's arguments in `PlanRun.arguments`; None for a field without arguments.

        Raises WrongArguments.
        """
        if not field.args:
            return None
        definition = field.extensions[GraphQLCoreConverter.DEFINITION_BACKREF]
        config, scalars = self._converter.config, self._converter.scalar_registry
        try:
            self.arguments.append(FieldArguments(field, definition, node, config, scalars, use_cache=not self.is_mutation))
        except GraphQLError as error:
            raise WrongArguments(error.message) from error
        return len(self.arguments) - 1

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

    def connection_subfield(self, kind: GraphQLObjectType, resolved: ResolvedField) -> str | None:
        """The key of the part that replaces a connection in the field's format; None: no part does."""
        output_format = self.format_at(resolved.response_path)
        if output_format is None or not {"nodes", "pageInfo"} <= kind.fields.keys():
            return None
        return output_format.connection_key({each.key: each.name for each in resolved.children[kind.name]})
