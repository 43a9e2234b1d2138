"""`forgefront explain`."""

import asyncio
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import orjson
import typer

from forgefront.commands.command_context import (
    EXIT_USAGE,
    DataOption,
    JsonOption,
    UsernameOption,
    fail,
    load_existing_config,
    run_with_backend,
)
from forgefront.commands.output import print_result
from forgefront.commands.translate import ProfileOption, create_translator, describe_unknown_call, parse_call

if TYPE_CHECKING:
    from forgefront.backend import Backend
    from graph.documents.documents import PreparedOperation
    from graph.planner.explain import ExplainedNode, ExplainedStatement, Explanation

DIALECTS = ("sqlite", "postgresql")

QueryArgument = Annotated[str | None, typer.Argument(metavar="[QUERY]", help="A GraphQL document, or @FILE with one.", show_default=False)]
V3Option = Annotated[
    str | None, typer.Option("--v3", metavar="CALL", help="Explain the operation of a v3 call, as 'GET /projects/3/issues'.")
]
VariablesOption = Annotated[
    str | None, typer.Option("--variables", metavar="JSON", help="The variables of QUERY, as a JSON object.", show_default=False)
]
OperationOption = Annotated[
    str | None, typer.Option("--operation", metavar="NAME", help="The operation of QUERY, where it has several.", show_default=False)
]
DialectOption = Annotated[str, typer.Option("--dialect", help="Whose SQL is printed without --analyze: sqlite or postgresql.")]
AnalyzeOption = Annotated[
    bool, typer.Option("--analyze", help="Run the query and add rows, milliseconds and the database's own plan of each statement.")
]


def explain(
    query: QueryArgument = None,
    v3: V3Option = None,
    variables: VariablesOption = None,
    operation: OperationOption = None,
    dialect: DialectOption = "sqlite",
    analyze: AnalyzeOption = False,
    data: DataOption = None,
    username: UsernameOption = None,
    profile: ProfileOption = "document",
    as_json: JsonOption = False,
) -> None:
    """Print the plan of an operation: its nodes, the SQL of each, and why resolvers compute fields.

        forgefront explain '{ project(path: "acme/web") { issues(first: 20) { nodes { title } } } }'

        forgefront explain --v3 'GET /projects/3/builds?scope=failed' --dialect postgresql

        forgefront explain @dashboard.graphql --variables '{"path": "acme/web"}' --analyze --as ann

    Without --analyze neither a server nor a database is needed; a parameter
    that only a run knows is printed as <name>. With --analyze the query runs
    once over the data folder, with the rights of --as, and PostgreSQL runs
    each statement once more for EXPLAIN ANALYZE; mutations are refused. The
    milliseconds of a node include the nodes below it.

    The exit code is 1 if the operation is invalid, if no route matches the
    call, and if the run with --analyze fails, after what was measured until
    then.
    """
    if (query is None) == (v3 is None):
        fail("give either a GraphQL document or --v3 'GET /projects/3/issues'", EXIT_USAGE)
    if v3 is not None and (variables is not None or operation is not None):
        fail("--variables and --operation belong to a GraphQL document; a v3 call has its parameters in its path", EXIT_USAGE)
    if username is not None and not analyze:
        fail("--as needs --analyze: without it nothing is run", EXIT_USAGE)
    if dialect not in DIALECTS:
        fail(f"--dialect is {' or '.join(DIALECTS)}, not {dialect!r}", EXIT_USAGE)
    # Here, since the other commands need not load the whole schema to be listed.
    from graph.planner.explain import ExplainError

    prepared, values = _prepare_call(v3, profile) if v3 is not None else _prepare_query(query or "", variables or "{}", operation)
    try:
        if analyze:
            config = load_existing_config(data)
            explanation = run_with_backend(config, lambda backend: _analyze(backend, prepared, values, username))
        else:
            explanation = _explain(prepared, values, dialect)
    except ExplainError as error:
        fail(str(error))
    if as_json:
        print_result(_without_nulls(asdict(explanation)), True)
    else:
        for line in _format_explanation(explanation):
            typer.echo(line)
    if explanation.stopped is not None:
        fail(explanation.stopped)


def _explain(prepared: "PreparedOperation", variables: dict[str, Any], dialect: str) -> "Explanation":
    from sqlalchemy.dialects import postgresql, sqlite

    from graph.context import StaticSettings
    from graph.planner.explain import explain

    chosen: Any = {"sqlite": sqlite.dialect, "postgresql": postgresql.asyncpg.dialect}[dialect]
    return explain(prepared, variables, chosen(), StaticSettings("http://127.0.0.1:8080", shows_avatars=False, ssh_prefix="git@127.0.0.1:"))


async def _analyze(backend: "Backend", prepared: "PreparedOperation", variables: dict[str, Any], username: str | None) -> "Explanation":
    from forgefront.local_client import OperationRejected
    from graph.errors import OperationError
    from graph.operations.callers import LocalAdmin, user_of_admin
    from graph.operations.transaction import session_for
    from graph.planner.analysis import analyze

    async with session_for(backend.database, writing=False) as session:
        try:
            viewer = await user_of_admin(session, LocalAdmin(username))
        except OperationError as error:
            raise OperationRejected(str(error)) from error
        return await analyze(backend.graph.services, session, viewer, prepared, variables)


def _prepare_query(query: str, variables: str, operation_name: str | None) -> tuple["PreparedOperation", dict[str, Any]]:
    from graphql import GraphQLError, OperationDefinitionNode, parse, validate

    from graph.documents.documents import make_prepared_operation
    from graph.schema import graphql_schema

    if query.startswith("@"):
        try:
            query = Path(query[1:]).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            fail(f"{query[1:]} cannot be read: {error}")
    try:
        values = orjson.loads(variables)
    except orjson.JSONDecodeError as error:
        fail(f"--variables is not valid JSON: {error}", EXIT_USAGE)
    if not isinstance(values, dict):
        fail("--variables is not a JSON object", EXIT_USAGE)
    try:
        document = parse(query)
    except GraphQLError as error:
        fail(str(error))
    if errors := validate(graphql_schema, document):
        fail("\n".join(str(error) for error in errors))
    operations = [node for node in document.definitions if isinstance(node, OperationDefinitionNode)]
    if operation_name is not None:
        operations = [node for node in operations if node.name is not None and node.name.value == operation_name]
    if len(operations) != 1:
        fail("the document must have one operation; name one of several with --operation", EXIT_USAGE)
    return make_prepared_operation(document, operations[0]), values


def _prepare_call(call: str, profile: str) -> tuple["PreparedOperation", dict[str, Any]]:
    from rest_v3.profiles import UnknownProfileError
    from rest_v3.translation import RejectedCallError, UnknownCallError

    method, path = parse_call(call)
    try:
        translation = asyncio.run(create_translator(profile).translate(method, path))
    except UnknownProfileError as error:
        fail(str(error), EXIT_USAGE)
    except UnknownCallError as error:
        fail(describe_unknown_call(error))
    except RejectedCallError as error:
        fail(f"v3 responds with {error}")
    return translation.prepared, dict(translation.variables)


def _without_nulls(value: Any) -> Any:
    """JSON values without the keys of what is unknown; parameters as strings where JSON has no such type."""
    if isinstance(value, dict):
        return {key: _without_nulls(each) for key, each in value.items() if each is not None}
    if isinstance(value, list):
        return [_without_nulls(each) if isinstance(each, dict | list) or _is_json(each) else str(each) for each in value]
    return value


def _is_json(value: Any) -> bool:
    """Whether JSON has the type of a parameter."""
    return value is None or isinstance(value, str | int | float | bool)


def _format_explanation(explanation: "Explanation") -> Iterator[str]:
    if explanation.unplanned is not None:
        yield f"no plan: {explanation.unplanned}"
    for node in explanation.nodes:
        yield from _format_node(node, "")
    if explanation.milliseconds is not None:
        yield f"{explanation.milliseconds:.1f} ms"


def _format_node(node: "ExplainedNode", indent: str) -> Iterator[str]:
    measured = "" if node.milliseconds is None else f"  [{node.values} objects, {node.milliseconds:.1f} ms]"
    name = " ".join(part for part in (node.key, f"({node.field_name})" if node.field_name else "") if part)
    yield f"{indent}{name + ': ' if name else ''}{node.kind}{measured}"
    inner = f"{indent}    "
    if node.columns:
        yield f"{inner}columns: {', '.join(node.columns)}"
    if node.reason is not None:
        yield f"{inner}why: {node.reason}"
    for statement in node.statements:
        yield from _format_statement(statement, inner)
    for child in node.children:
        yield from _format_node(child, inner)


def _format_statement(statement: "ExplainedStatement", indent: str) -> Iterator[str]:
    for line in statement.sql.splitlines():
        yield f"{indent}| {line.strip()}"
    if statement.parameters:
        yield f"{indent}parameters: {', '.join(map(repr, statement.parameters))}"
    if statement.milliseconds is not None:
        yield f"{indent}{statement.rows} rows, {statement.milliseconds:.1f} ms"
    for line in statement.database_plan or ():
        yield f"{indent}> {line}"
