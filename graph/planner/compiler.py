"""Compiles an operation: collect → resolve → nodes → generate."""

from collections.abc import Mapping
from dataclasses import dataclass

from graphql import FragmentDefinitionNode, GraphQLSchema, OperationDefinitionNode
from sqlalchemy import Dialect
from strawberry.schema.schema_converter import GraphQLCoreConverter

from graph.context import StaticSettings
from graph.documents.output_format import OutputFormat
from graph.planner.build.build_context import BuildContext
from graph.planner.build.object_nodes import ObjectNodeBuilder
from graph.planner.codegen.functions import generate_functions
from graph.planner.collect import FieldCollector
from graph.planner.errors import Unplannable
from graph.planner.ir.completers import ObjectCompleter
from graph.planner.ir.relations import Relations
from graph.planner.ir.selection import Selection
from graph.planner.plan import OperationPlan
from graph.planner.resolve.fields import FieldResolver
from graph.planner.run.relations import PlannedRelations
from graph.planner.sql.statements import PlanStatements


@dataclass(frozen=True, slots=True)
class CompileTarget:
    """The target of a compilation: a schema and its converter, a database, and the settings of the service.

    `output_format` is None for the graph's own format.
    """

    schema: GraphQLSchema
    converter: GraphQLCoreConverter
    dialect: Dialect
    settings: StaticSettings
    output_format: OutputFormat | None = None


def compile_operation(
    operation: OperationDefinitionNode,
    fragments: Mapping[str, FragmentDefinitionNode],
    directive_values: Mapping[str, bool | None],
    target: CompileTarget,
) -> OperationPlan:
    """The plan of an operation. `directive_values` are the values of the variables that directives use.

    Raises Unplannable.
    """
    schema = target.schema
    root = schema.get_root_type(operation.operation)
    if root is None or operation.directives:
        raise Unplannable("a directive on the operation, or no such kind of operation")

    # Collect: the fields that are selected of each type, merged, without those that @skip and @include leave out.
    collector = FieldCollector(schema, fragments, directive_values)
    collected = collector.collect(root, [operation.selection_set], ())

    # Resolve: what answers each field, by its declaration and its selection.
    resolved = FieldResolver(target.settings).resolve(root.name, collected, None)

    # Nodes: one for each statement, loader and resolver; statements get their columns and joins meanwhile.
    context = BuildContext(schema, target.converter, target.dialect, target.output_format, is_mutation=root is schema.mutation_type)
    selection = ObjectNodeBuilder(context).build_selection(root, resolved)

    # Generate: the functions that serialize rows and objects.
    generate_functions(context.nodes_to_generate)
    statements = PlanStatements()
    relations = _find_answer_relations(selection) if root is schema.mutation_type else None
    answer_relations = PlannedRelations(relations, statements) if relations is not None else None
    return OperationPlan(selection, context.arguments, fragments, collector.field_count, answer_relations, statements)


def _find_answer_relations(root: Selection) -> Relations | None:
    """The relations of the object of a payload that can be read together with it."""
    level = [root]
    for _ in ("payloads", "objects"):
        completers = [step.completer for selection in level for step in selection.steps]
        level = [completer.selection for completer in completers if isinstance(completer, ObjectCompleter)]
    steps = (step for selection in level for step in selection.batch_steps)
    return next((step for step in steps if isinstance(step, Relations) and step.key_attributes is not None), None)
