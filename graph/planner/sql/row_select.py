"""The statements of rows that are selected one by one: by their ids, by number, and the project of an operation."""

from graph.planner.sql.select_builder import SelectBuilder
from storage.database.compiled_statements import CompiledStatement


def compile_rows_by_id(select_builder: SelectBuilder) -> CompiledStatement:
    """The rows whose ids are in the list `ids`."""
    sql_dialect, table = select_builder.sql_dialect, select_builder.root.table
    statement = select_builder.build_select(table).where(sql_dialect.in_list(table.c.id, "ids"))
    return CompiledStatement(statement, sql_dialect.dialect, frozenset({"ids"}))
