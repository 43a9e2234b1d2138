"""Plans against plain execution: made-up queries as five kinds of viewers, and what mutations give in two equal worlds."""

import gc
from pathlib import Path

from graphql import parse

from graph.declare import ENTITIES
from graph.execute import Graph
from graph.schema import graphql_schema
from tests.compared import Differs, Oracle, Watched, compare_pruned, prepared, same, valid
from tests.drawn import Drawn, draw
from tests.fuzz.findings import Part
from tests.fuzz.instance import folder_of, services_over
from tests.generated import Generator
from tests.graph.test_mutation_oracle import NEVER, NOT_TRIED, told
from tests.make import Make, token_of
from tests.story import NOW
from tests.town import settle
from tests.world import made, mutation_input

VIEWERS = ("owner", "member", "guest", "stranger", "admin")


async def fuzz_queries(part: Part, url: str, histories: Path) -> None:
    with folder_of("queries") as folder:
        async with services_over(url, folder, clock=lambda: NOW) as services:
            town = await settle(Make(services, histories), folder / "town.git")
            oracle = Oracle(services)
            generator = Generator(graphql_schema, await draw(town, oracle.plain))
            for seed in part.seeds():
                text, variables = generator.query(seed)
                viewer = town.viewers[VIEWERS[seed % len(VIEWERS)]]
                try:
                    await compare_pruned(oracle, valid(parse(text)), variables, viewer)
                except Differs as error:
                    part.report(f"a plan answers differently: {str(error).splitlines()[0][:150]}", str(error), seed)
                if part.iterations % 200 == 0:
                    gc.collect()


async def fuzz_mutations(part: Part, url: str, other_url: str, histories: Path) -> None:
    assert graphql_schema.mutation_type is not None
    names = [name for name in graphql_schema.mutation_type.fields if name not in NOT_TRIED]
    generator = Generator(graphql_schema, Drawn([], {}, {entity.name: [] for entity in ENTITIES.values()}), NEVER)
    with folder_of("one") as folder, folder_of("other") as other_folder:
        async with (
            services_over(url, folder, clock=lambda: NOW) as first,
            services_over(other_url, other_folder, clock=lambda: NOW) as second,
        ):
            worlds = [await made(Make(services, histories)) for services in (first, second)]
            graphs = Watched(first, planner=True), Graph(second, planner=False)
            for seed in part.seeds():
                name = names[seed % len(names)]
                answers = []
                for world, graph in zip(worlds, graphs, strict=True):
                    text, variables = generator.mutation(seed, name, await mutation_input(world, name, "AD"))
                    viewer = world.users["AD"]
                    assert viewer is not None
                    answers.append(await graph.run(prepared(valid(parse(text))), variables, token_of(viewer), request_id="fuzz"))
                one, other = map(told, answers)
                if not same(one, other):
                    part.report(f"{name} gives something else with a plan", f"{text}\n{variables}\n{one}\n{other}", seed)
