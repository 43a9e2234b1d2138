"""A compiled operation and its runs."""

from collections.abc import Mapping
from dataclasses import dataclass

from graphql import FragmentDefinitionNode

from graph.context import Context
from graph.planner.coerce.arguments import FieldArguments, VariableValues
from graph.planner.errors import PlanBailout, PlanResult, locate_row_errors, null_error_positions
from graph.planner.ir.selection import Selection
from graph.planner.run.levels import execute_selection
from graph.planner.run.relations import PlannedRelations
from graph.planner.run.state import PlanRun
from graph.planner.sql.statements import PlanStatements


@dataclass(frozen=True, slots=True)
class OperationPlan:
    """A compiled operation: runs for any viewer, and any variables that keep the values of its directives.

    `answer_relations` are those of a mutation's object.
    """

    root: Selection
    arguments: list[FieldArguments]
    fragments: Mapping[str, FragmentDefinitionNode]
    field_count: int
    answer_relations: PlannedRelations | None
    statements: PlanStatements

    async def run(self, context: Context, variables: VariableValues) -> PlanResult:
        """Executes the operation, and returns its data with the errors that the plan reports itself.

        Raises PlanBailout, GraphQLError and any other error of a resolver; graphql-core then executes the operation.
        """
        run = self.start_run(context, variables)
        context.answer_relations = self.answer_relations
        (data,) = await execute_selection(self.root, run, (None,))
        if run.row_errors:
            if run.errors:
                # One of the others may have nulled the objects of these.
                raise PlanBailout
            return PlanResult(data, locate_row_errors(data, run.row_errors))
        return null_error_positions(data, run.errors) if run.errors else PlanResult(data, ())

    def start_run(self, context: Context, variables: VariableValues) -> PlanRun:
        """A run whose arguments are evaluated. Raises GraphQLError, and what input types raise."""
        arguments = [each.evaluate(variables) for each in self.arguments]
        return PlanRun(context, variables, self.fragments, arguments, self.statements)
