"""The statements of rows that are selected one by one: by their ids, by number, and the project of an operation."""

from sqlalchemy import Integer, and_, select

from graph.planner.sql.parent_join import ProjectSubquery
from graph.planner.sql.select_builder import VIEWER_PARAMETERS, SelectBuilder
from storage.database.statements.compiled_statements import CompiledStatement, SqlDialect, named_parameter


def compile_rows_by_id(select_builder: SelectBuilder) -> CompiledStatement:
    """The rows whose ids are in the list `ids`."""
    sql_dialect, table = select_builder.sql_dialect, select_builder.root.table
    statement = select_builder.build_select(table).where(sql_dialect.in_list(table.c.id, "ids"))
    return CompiledStatement(statement, sql_dialect.dialect, VIEWER_PARAMETERS | {"ids"})


def compile_row_by_number(select_builder: SelectBuilder, name: str, *, many: bool) -> CompiledStatement:
    """The rows of a project, or of many, whose column `name` is `number`."""
    sql_dialect, root = select_builder.sql_dialect, select_builder.root
    project = root.column("project_id")
    of_project = sql_dialect.in_list(project, "projects") if many else project == named_parameter("project", Integer)
    statement = select_builder.build_select(root.table).where(of_project, root.column(name) == named_parameter("number", Integer))
    return CompiledStatement(statement, sql_dialect.dialect, VIEWER_PARAMETERS | {"project", "projects", "number"})


def compile_row_with_project(select_builder: SelectBuilder, name: str, subquery: ProjectSubquery) -> CompiledStatement:
    """The project of a path or an id, with its row whose column `name` is `number`, if there is one."""
    root = select_builder.root
    within = and_(root.column("project_id") == subquery.id, root.column(name) == named_parameter("number", Integer))
    statement = select_builder.build_select(subquery.rows.outerjoin(root.table, within)).add_columns(*subquery.columns)
    return CompiledStatement(statement, select_builder.sql_dialect.dialect, VIEWER_PARAMETERS | {"number", *subquery.parameter_names})


def compile_relations_with_project(select_builder: SelectBuilder, subquery: ProjectSubquery) -> CompiledStatement:
    """The project of a path or an id, with what is selected of its row."""
    root = select_builder.root
    statement = select_builder.build_select(subquery.rows.join(root.table, root.column("id") == subquery.id)).add_columns(*subquery.columns)
    return CompiledStatement(statement, select_builder.sql_dialect.dialect, VIEWER_PARAMETERS | subquery.parameter_names)


def compile_project(subquery: ProjectSubquery, sql_dialect: SqlDialect) -> CompiledStatement:
    """The project of a path or an id alone."""
    return CompiledStatement(select(*subquery.columns), sql_dialect.dialect, subquery.parameter_names)
