"""`python -m tests.fuzz --minutes 10` fuzzes the service; divides the time among its parts; exits with 1 if it found something.

The seed is printed at the start and with each finding, beside the command that repeats it: a part that is run with the seed of a finding
begins with what found it.
"""

import argparse
import asyncio
import random
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from time import monotonic

from tests.fuzz.differential_parts import fuzz_mutations, fuzz_queries
from tests.fuzz.findings import Finding, FuzzPart, log, print_summary
from tests.fuzz.hostile_parts import HOSTILE_PARTS
from tests.fuzz.instance import database_factory, run_fuzz_server, temporary_folder
from tests.fuzz.schemathesis_parts import fuzz_graph, fuzz_v3

SERVER_PARTS = {"v3": fuzz_v3, "graph": fuzz_graph, **HOSTILE_PARTS}
"""Parts that send requests to a server."""
WEIGHTS = {"v3": 4, "graph": 3, "queries": 3, "mutations": 2, "packs": 2, "cursors": 1, "uploads": 1, "ci": 1}
"""The parts, and how the minutes are shared among them."""
DATABASES = ("sqlite", "postgresql")


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    seed = random.SystemRandom().randrange(1_000_000) if options.seed is None else options.seed
    names = list(WEIGHTS) if options.only is None else options.only.split(",")
    if unknown := [name for name in names if name not in WEIGHTS]:
        log(f"there is no part {', '.join(unknown)}; the parts are {', '.join(WEIGHTS)}")
        return 2
    kinds = DATABASES if options.database is None else (options.database,)
    log(f"--seed {seed}, {options.minutes:g} minutes for {', '.join(names)} on {' and '.join(kinds)}")
    warnings.filterwarnings("ignore", "coroutine .* was never awaited", RuntimeWarning)
    seconds = options.minutes * 60 / len(kinds)
    findings: list[Finding] = []
    # Histories are made once a process, so their folder serves both databases.
    with temporary_folder("histories") as histories:
        for kind in kinds:
            findings += asyncio.run(_fuzz(kind, names, seed, seconds, histories))
    print_summary(findings)
    return 1 if findings else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description="Fuzzes the service.")
    parser.add_argument("--minutes", type=float, default=10, help="how long, in all; making ready is not counted (default: 10)")
    parser.add_argument("--seed", type=int, help="where to begin; drawn by lot without it")
    parser.add_argument("--only", metavar="PARTS", help=f"some of {','.join(WEIGHTS)}, with commas")
    parser.add_argument("--database", choices=DATABASES, help="one of the two; both without it")
    return parser


async def _fuzz(kind: str, names: Sequence[str], seed: int, seconds: float, histories: Path) -> list[Finding]:
    findings: list[Finding] = []
    whole = sum(WEIGHTS[name] for name in names)
    with database_factory(kind) as create:
        for name in names:
            # Each part has a world of its own, so that it finds the same when it is run alone.
            if name in SERVER_PARTS:
                async with run_fuzz_server(await create(), histories) as running:
                    part = _begin_part(name, kind, seed, seconds * WEIGHTS[name] / whole)
                    await SERVER_PARTS[name](part, running)
            else:
                urls = [await create() for _ in range(2 if name == "mutations" else 1)]
                part = _begin_part(name, kind, seed, seconds * WEIGHTS[name] / whole)
                await (fuzz_mutations(part, *urls, histories) if name == "mutations" else fuzz_queries(part, *urls, histories))
            if part.iterations:
                log(f"{name} on {kind}: {part.iterations} iterations, {len(part.findings)} findings")
            else:
                log(f"NOT RUN: {name} on {kind}: {seconds * WEIGHTS[name] / whole:.0f} s were too few")
            findings += part.findings.values()
    return findings


def _begin_part(name: str, kind: str, seed: int, seconds: float) -> FuzzPart:
    log(f"{name} on {kind}: {seconds:.0f} s")
    # What schemathesis makes up follows from its seed and from how long it has.
    minutes = round(seconds / 60, 2) if name in ("v3", "graph") else 1
    return FuzzPart(name, kind, seed, monotonic() + seconds, minutes)


if __name__ == "__main__":
    sys.exit(main())
