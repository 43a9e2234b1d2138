"""Plans compared with plain execution: generated queries of five kinds of viewers, and mutations on two equal databases."""

import gc
from pathlib import Path

from graphql import parse

from graph.errors import Code
from graph.fields.entities import ENTITIES
from graph.operations.execution import Graph
from graph.schema import graphql_schema
from tests.fuzz.findings import FuzzPart
from tests.fuzz.instance import temporary_folder
from tests.graph.planner.test_mutation_oracle import EXCLUDED_FIELDS, EXCLUDED_MUTATIONS, normalized_result
from tests.make import DataFactory, open_services, token_of
from tests.support.queries.arguments import ArgumentPool, collect_arguments
from tests.support.queries.edge_case_data import create_edge_cases
from tests.support.queries.oracle import (
    AnswersDiffer,
    FallbackCountingGraph,
    PlanOracle,
    answers_equal,
    compare_pruned,
    prepare_document,
    require_valid,
)
from tests.support.queries.query_generator import QueryGenerator
from tests.support.scenario import create_scenario, valid_mutation_input
from tests.support.week_fixture import NOW

VIEWERS = ("owner", "member", "guest", "stranger", "admin")


async def fuzz_queries(part: FuzzPart, url: str, histories: Path) -> None:
    with temporary_folder("queries") as folder:
        async with open_services(url, folder, clock=lambda: NOW) as services:
            data = await create_edge_cases(DataFactory(services, histories), folder / "edge_cases.git")
            oracle = PlanOracle(services)
            generator = QueryGenerator(graphql_schema, await collect_arguments(data, oracle.reference_graph))
            for seed in part.seeds():
                text, variables = generator.query(seed)
                viewer = data.viewers[VIEWERS[seed % len(VIEWERS)]]
                try:
                    await compare_pruned(oracle, require_valid(parse(text)), variables, viewer)
                except AnswersDiffer as error:
                    part.report(f"a plan answers differently: {str(error).splitlines()[0][:150]}", str(error), seed)
                if part.iterations % 200 == 0:
                    gc.collect()


async def fuzz_mutations(part: FuzzPart, url: str, other_url: str, histories: Path) -> None:
    assert graphql_schema.mutation_type is not None
    names = [name for name in graphql_schema.mutation_type.fields if name not in EXCLUDED_MUTATIONS]
    generator = QueryGenerator(graphql_schema, ArgumentPool([], {}, {entity.name: [] for entity in ENTITIES.values()}), EXCLUDED_FIELDS)
    with temporary_folder("one") as folder, temporary_folder("other") as other_folder:
        async with (
            open_services(url, folder, clock=lambda: NOW) as first,
            open_services(other_url, other_folder, clock=lambda: NOW) as second,
        ):
            worlds = [await create_scenario(DataFactory(services, histories)) for services in (first, second)]
            graphs = FallbackCountingGraph(first, planner=True), Graph(second, planner=False)
            for seed in part.seeds():
                name = names[seed % len(names)]
                answers = []
                for world, graph in zip(worlds, graphs, strict=True):
                    text, variables = generator.mutation(seed, name, await valid_mutation_input(world, name, "AD"))
                    viewer = world.users["AD"]
                    assert viewer is not None
                    answers.append(
                        await graph.run(prepare_document(require_valid(parse(text))), variables, token_of(viewer), request_id="fuzz")
                    )
                # Without a path it says that the result is over a limit.
                if any(error.code == Code.INTERNAL and error.path for answer in answers for error in answer.errors):
                    part.report(f"{name} ends with an internal error", f"{text}\n{variables}\n{answers}", seed)
                one, other = map(normalized_result, answers)
                if not answers_equal(one, other):
                    part.report(f"{name} gives something else with a plan", f"{text}\n{variables}\n{one}\n{other}", seed)
