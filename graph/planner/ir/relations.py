"""The relations of objects that a resolver returned: one statement for all of them."""

from collections.abc import Sequence
from typing import Any

from graph.planner.errors import PlanBailout
from graph.planner.ir.row_view import RowView
from graph.planner.ir.steps import BatchNode, FieldStep
from graph.planner.run.awaiting import run_to_completion
from graph.planner.run.levels import begin_level
from graph.planner.run.row_views import execute_view
from graph.planner.run.state import PlanRun
from graph.planner.sql.select_builder import SelectBuilder
from storage.database.compiled_statements import CompiledStatement

ID_LIST_PARAMETERS = frozenset({"ids"})


class Relations(BatchNode):
    """Fills in the parts of `view` for each object of a level. `id_index` is the index of a row's own id.

    A mutation may have deleted the object that it returns; `fallback_steps` then load its relations.
    """

    fallback_steps: Sequence[FieldStep] = ()

    def __init__(self, select_builder: SelectBuilder, view: RowView, id_index: int) -> None:
        self.keys = {key for key, _ in view.parts}
        self._select_builder = select_builder
        self.view = view
        self._id_index = id_index
        self._compiled: CompiledStatement | None = None

    async def execute(self, run: PlanRun, objects: Sequence[Any], answers: list[dict[str, Any]]) -> None:
        """Raises PlanBailout where a row is missing and there are no fallback steps."""
        statement, sql_dialect = self.get_statement(), self._select_builder.sql_dialect
        ids = sql_dialect.bind_list(list({each.id for each in objects}))
        rows = await run.context.session.fetch(statement.sql, statement.bind({"ids": ids}), statement.text_columns)
        filled = await execute_view(self.view, run, rows)
        id_index = self._id_index
        by_id = {row[id_index]: each for row, each in zip(rows, filled, strict=True)}
        missing: list[tuple[Any, dict[str, Any]]] = []
        for each, answer in zip(objects, answers, strict=True):
            found = by_id.get(each.id)
            if found is None:
                missing.append((each, answer))
            else:
                answer.update(found)
        if missing:
            if not self.fallback_steps:
                raise PlanBailout
            missing_objects, missing_answers = [each for each, _ in missing], [answer for _, answer in missing]
            await run_to_completion(lambda work: begin_level(run, missing_objects, missing_answers, self.fallback_steps, (), work))

    def get_statement(self) -> CompiledStatement:
        """The statement, whose parameter is the list `ids`. It is compiled at its first use."""
        if self._compiled is None:
            select_builder = self._select_builder
            table = select_builder.root.table
            among = select_builder.sql_dialect.in_list(table.c.id, "ids")
            statement = select_builder.build_select(table).where(among)
            self._compiled = CompiledStatement(statement, select_builder.sql_dialect.dialect, ID_LIST_PARAMETERS)
        return self._compiled
