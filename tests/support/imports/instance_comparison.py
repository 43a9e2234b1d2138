"""The comparison of the answers of two instances."""

import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace

from graphql import parse

from forgefront.backend import Backend
from forgefront.config import Config
from graph.context import Services
from graph.http.responses import serialize_result
from graph.operations.execution import Graph
from graph.schema import graphql_schema
from tests.graph.planner.test_oracle import v3, v3_calls
from tests.make import EXTERNAL_URL, token_of
from tests.support.queries.arguments import collect_arguments
from tests.support.queries.edge_case_data import EdgeCaseData
from tests.support.queries.oracle import answers_equal, prepare_document
from tests.support.queries.query_generator import QueryGenerator
from tests.support.week_fixture import NOW


@contextlib.asynccontextmanager
async def open_instance(config: Config) -> AsyncIterator[Backend]:
    backend = Backend(config, clock=lambda: NOW)
    await backend.start()
    try:
        yield backend
    finally:
        await backend.stop()


async def compare_answers(original: Services, restored: Services, edge_cases: EdgeCaseData, *, queries: int = 0, below: str = "") -> int:
    """Compares the answers of two instances to generated queries and all calls of v3 that read, byte for byte; returns their number.

    `below` is a part of the paths of the calls. Other pages of the same lists would say nothing more about the data.
    """
    graphs = [Graph(replace(services, clock=lambda: NOW, external_url=EXTERNAL_URL)) for services in (original, restored)]
    generator = QueryGenerator(graphql_schema, await collect_arguments(edge_cases, graphs[0], cursors=queries > 0))
    compared = 0
    viewers = list(edge_cases.viewers.values())
    for seed in range(queries):
        text, variables = generator.query(seed)
        prepared = prepare_document(parse(text))
        for viewer in (edge_cases.viewers["admin"], viewers[seed % len(viewers)]):
            answers = [
                serialize_result(await graph.run(prepared, variables, token_of(viewer), request_id="test", seconds=60), "test")
                for graph in graphs
            ]
            assert answers_equal(*answers), (seed, viewer.username, text, answers)
            compared += 1
    one, other = map(v3, graphs)
    async with one, other:
        for _, path, parameters in v3_calls(await collect_arguments(edge_cases, graphs[0], cursors=False)):
            if below not in path:
                continue
            headers = {"PRIVATE-TOKEN": token_of(edge_cases.viewers["admin"])}
            first, second = [await app.get(path, params=parameters, headers=headers) for app in (one, other)]
            assert (first.status_code, first.content) == (second.status_code, second.content), (path, parameters)
            compared += 1
    return compared
