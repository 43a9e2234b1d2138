"""The table that `scripts/bench table` prints, as Markdown that is readable on a terminal too."""

from collections.abc import Sequence
from typing import Any

from benchmarks import goals, runs
from benchmarks.questions import TITLES
from benchmarks.runs import NAMES

Row = dict[str, Any]


def text(found: dict[str, Any]) -> str:
    """Of what `--json` writes."""
    results: list[Row] = found["results"]
    cases = [key for key in TITLES if any(key in row.get("cases", {}) for row in results)]
    run = found["run"]
    parts = [
        _summary(results, cases),
        _goals(results),
        _memory(results),
        *(_case(results, key) for key in cases),
        _ratios(results, cases),
        f"Scale {run['scale']:g}; medians of {run['rounds']} rounds of {run['seconds']:g} s in which the sides take turns,"
        f" {run['connections']} connections; {runs.about(found)} Node {found['machine']['node']}.\n"
        "Sides marked * look up no caller and check no right. v3 has no call for the join. Differences under 30 % are noise; believe the"
        " CPU first.",
    ]
    return "\n\n".join(part for part in parts if part)


def title_of(row: Row) -> str:
    return f"{row['title']}{'' if row['signs_in'] else ' *'}"


def _placed(row: Row) -> str:
    return f"{title_of(row)}, {NAMES[row['database']]}"


def _summary(results: Sequence[Row], cases: Sequence[str]) -> str:
    lines = [["req/s, CPU ms a request", *(TITLES[key] for key in cases), "memory, MiB"]]
    for row in results:
        if "not_run" in row:
            lines.append([_placed(row), f"NOT RUN: {row['not_run']}", *[""] * len(cases)])
            continue
        figures = [
            f"{found['per_second']:.0f}, {found['cpu_ms']:.2f}" if (found := row["cases"].get(key)) is not None else "-" for key in cases
        ]
        lines.append([_placed(row), *figures, f"{row['memory_mib']:.0f}"])
    return runs.grid(lines)


def _goals(results: list[Row]) -> str:
    """A line for each question through each door on each database; in brackets what is to be reached."""
    columns = {goal.key: goal.title for goal in goals.GOALS} | {"p99": "99 % / median"}
    found: dict[tuple[str, str, str], dict[str, goals.Judged]] = {}
    for each in goals.judged(results):
        found.setdefault((each.database, each.side, each.case), {})[each.goal] = each
    titles = {row["side"]: row["title"] for row in results}
    lines = [["Forgefront's goals", *columns.values(), "goal met"]]
    for (database, side, case), by_goal in found.items():
        cells = [_judged(by_goal[key]) if key in by_goal else "-" for key in columns]
        lacking = [key for key in columns if key in by_goal and not by_goal[key].met]
        name = f"{TITLES[case]}; {titles[side].removeprefix('Forgefront, ')}, {NAMES[database]}"
        lines.append([name, *cells, f"no: {', '.join(lacking)}" if lacking else "yes"])
    return runs.grid(lines) if len(lines) > 1 else ""


def _judged(one: goals.Judged) -> str:
    return f"{one.found:.2f} ({'at most' if one.at_most else 'at least'} {one.wanted:g})"


def _memory(results: list[Row]) -> str:
    said = [
        f"{one.found:.0f} MiB on {NAMES[one.database]} (at most {one.wanted:g}: {'yes' if one.met else 'no'})"
        for one in goals.memory(results)
    ]
    return f"Resident after all questions: {', '.join(said)}." if said else ""


def _case(results: Sequence[Row], key: str) -> str:
    lines = [[TITLES[key], "req/s", "spread", "CPU ms", "of PostgreSQL, CPU ms", "median ms", "99 % ms", "99 % / median"]]
    for row in results:
        found = row.get("cases", {}).get(key)
        if found is None:
            continue
        database = f"{found['database_cpu_ms']:.2f}" if found["database_cpu_ms"] is not None else "-"
        figures = [f"{found['per_second']:.0f}", f"{found['spread']:.0%}", f"{found['cpu_ms']:.2f}", database]
        waits = [f"{found['p50_ms']:.1f}", f"{found['p99_ms']:.1f}", f"{found['p99_ms'] / found['p50_ms']:.1f}"]
        lines.append([_placed(row), *figures, *waits])
    return runs.grid(lines)


def _ratios(results: Sequence[Row], cases: Sequence[str]) -> str:
    """How `POST /graphql` stands to each peer: above 1 it is the better one."""
    ours = {row["database"]: row for row in results if row["side"] == "forgefront" and "cases" in row}
    lines = [["POST /graphql against: times the req/s, part of the CPU", *(TITLES[key] for key in cases)]]
    for row in results:
        mine = ours.get(row["database"])
        if mine is None or row is mine or "cases" not in row:
            continue
        figures = []
        for key in cases:
            left, right = mine["cases"].get(key), row["cases"].get(key)
            both = left is not None and right is not None
            figures.append(f"{left['per_second'] / right['per_second']:.2f}, {left['cpu_ms'] / right['cpu_ms']:.2f}" if both else "-")
        lines.append([_placed(row), *figures])
    return runs.grid(lines) if len(lines) > 1 else ""
