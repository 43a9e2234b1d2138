"""Single rows of a project, by number or id: one statement with everything that is selected of them."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Integer, and_

from graph.fields.declarations import ByNumber
from graph.planner.errors import PlanBailout
from graph.planner.ir.row_view import RowView
from graph.planner.ir.steps import BatchNode
from graph.planner.run.row_views import execute_view
from graph.planner.run.state import PlanRun
from graph.planner.sql.parent_join import ProjectStatement, ProjectSubquery
from graph.planner.sql.select_builder import SelectBuilder
from graph.rules.policy import require, require_all
from storage.database.compiled_statements import CompiledStatement, named_parameter

PARAMETER_NAMES = frozenset(("project", "projects", "number"))


class RowByNumber(BatchNode):
    """One row for each object of a level, which are projects."""

    def __init__(self, key: str, declared: ByNumber, arguments: int | None, select_builder: SelectBuilder, view: RowView) -> None:
        self.key = key
        self.declared = declared
        self._select_builder = select_builder
        self.view = view
        self._project_id_index = select_builder.root.select_column("project_id")
        self._arguments = arguments
        self._statements: dict[tuple[str, bool], CompiledStatement] = {}
        self._project_statements: dict[tuple[str, bool], CompiledStatement] = {}

    def _lookup_column(self, run: PlanRun) -> tuple[str, int]:
        """The column that names the row, and its value. Raises PlanBailout without either."""
        arguments = run.arguments[self._arguments] if self._arguments is not None else {}
        name, value = ("id", arguments.get("database_id")) if arguments.get("database_id") is not None else ("iid", arguments.get("iid"))
        if value is None:
            raise PlanBailout
        return name, value

    def join_project(self, run: PlanRun, subquery: ProjectSubquery) -> ProjectStatement:
        """Raises PlanBailout for arguments that name no row."""
        name, value = self._lookup_column(run)
        statement = self._project_statements.get((name, subquery.by_path)) or self._compile_with_project(name, subquery)

        async def build_result(project: Any, rows: Sequence[Any]) -> Any:
            await require(run.context, self.declared.action, project)
            if rows[0][self._project_id_index] is None:
                raise PlanBailout
            (found,) = await execute_view(self.view, run, rows)
            return found

        return ProjectStatement(statement, {"number": value}, len(self._select_builder.expressions), build_result)

    def _compile_with_project(self, name: str, subquery: ProjectSubquery) -> CompiledStatement:
        root = self._select_builder.root
        within = and_(root.column("project_id") == subquery.id, root.column(name) == named_parameter("number", Integer))
        statement = self._select_builder.build_select(subquery.rows.outerjoin(root.table, within)).add_columns(*subquery.columns)
        compiled = self._project_statements[name, subquery.by_path] = CompiledStatement(
            statement, self._select_builder.sql_dialect.dialect, frozenset(("number", *subquery.parameter_names))
        )
        return compiled

    async def execute(self, run: PlanRun, objects: Sequence[Any], answers: list[dict[str, Any]]) -> None:
        """Raises what the policy raises, and PlanBailout where there is no such row."""
        await require_all(run.context, self.declared.action, objects)
        name, value = self._lookup_column(run)
        many = len(objects) > 1
        statement = self._get_statement(name, many)
        projects = [each.id for each in objects]
        parent_values = {"projects": self._select_builder.sql_dialect.bind_list(projects)} if many else {"project": projects[0]}
        rows = await run.context.session.fetch(statement.sql, statement.bind({"number": value, **parent_values}), statement.text_columns)
        found = dict(zip((row[self._project_id_index] for row in rows), await execute_view(self.view, run, rows), strict=True))
        for project, answer in zip(projects, answers, strict=True):
            if project not in found:
                raise PlanBailout
            answer[self.key] = found[project]

    def statement_for(self, run: PlanRun, *, is_list: bool) -> tuple[CompiledStatement, dict[str, Any]]:
        """The statement and the values of its parameters but the projects.

        Raises PlanBailout for arguments that name no row.
        """
        name, value = self._lookup_column(run)
        return self._get_statement(name, is_list), {"number": value}

    def _get_statement(self, name: str, many: bool) -> CompiledStatement:
        return self._statements.get((name, many)) or self._compile(name, many)

    def _compile(self, name: str, many: bool) -> CompiledStatement:
        sql_dialect, root = self._select_builder.sql_dialect, self._select_builder.root
        project = root.column("project_id")
        project_condition = sql_dialect.in_list(project, "projects") if many else project == named_parameter("project", Integer)
        statement = self._select_builder.build_select(root.table).where(
            project_condition, root.column(name) == named_parameter("number", Integer)
        )
        compiled = self._statements[name, many] = CompiledStatement(statement, sql_dialect.dialect, PARAMETER_NAMES)
        return compiled
