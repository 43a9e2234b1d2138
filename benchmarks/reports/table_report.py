"""The table that `scripts/bench table` prints, as Markdown that is readable on a terminal too."""

from collections.abc import Sequence
from typing import Any

from benchmarks.harness import runs
from benchmarks.harness.runs import NAMES
from benchmarks.suites import goals
from benchmarks.suites.questions import TITLES

Row = dict[str, Any]


def render_report(found: dict[str, Any]) -> str:
    """The report in Markdown; `found` is what `--json` writes."""
    results: list[Row] = found["results"]
    cases = [key for key in TITLES if any(key in row.get("cases", {}) for row in results)]
    run = found["run"]
    parts = [
        _render_summary(results, cases),
        _render_goals(results),
        _render_memory(results),
        *(_render_case(results, key) for key in cases),
        _render_ratios(results, cases),
        f"Scale {run['scale']:g}; medians of {run['rounds']} rounds of {run['seconds']:g} s in which the sides alternate,"
        f" {run['connections']} connections; {runs.describe_machine(found)} Node {found['machine']['node']}.\nSides marked"
        " * authenticate no caller and check no permission. v3 has no call for the join. Differences under 30 % are"
        " noise; CPU times are the more reliable figures.",
    ]
    return "\n\n".join(part for part in parts if part)


def format_title(row: Row) -> str:
    return f"{row['title']}{'' if row['signs_in'] else ' *'}"


def _format_side(row: Row) -> str:
    return f"{format_title(row)}, {NAMES[row['database']]}"


def _render_summary(results: Sequence[Row], cases: Sequence[str]) -> str:
    lines = [["req/s, CPU ms a request", *(TITLES[key] for key in cases), "memory, MiB"]]
    for row in results:
        if "not_run" in row:
            lines.append([_format_side(row), f"NOT RUN: {row['not_run']}", *[""] * len(cases)])
            continue
        figures = [
            f"{found['per_second']:.0f}, {found['cpu_ms']:.2f}" if (found := row["cases"].get(key)) is not None else "-" for key in cases
        ]
        lines.append([_format_side(row), *figures, f"{row['memory_mib']:.0f}"])
    return runs.render_table(lines)


def _render_goals(results: list[Row]) -> str:
    """A line for each question through each API on each database, with the bounds in brackets."""
    columns = {goal.key: goal.title for goal in goals.GOALS} | {"p99": "99 % / median"}
    found: dict[tuple[str, str, str], dict[str, goals.GoalResult]] = {}
    for each in goals.evaluate_goals(results):
        found.setdefault((each.database, each.side, each.case), {})[each.goal] = each
    titles = {row["side"]: row["title"] for row in results}
    lines = [["Forgefront's goals", *columns.values(), "goal met"]]
    for (database, side, case), by_goal in found.items():
        cells = [_format_goal(by_goal[key]) if key in by_goal else "-" for key in columns]
        lacking = [key for key in columns if key in by_goal and not by_goal[key].is_met]
        name = f"{TITLES[case]}; {titles[side].removeprefix('Forgefront, ')}, {NAMES[database]}"
        lines.append([name, *cells, f"no: {', '.join(lacking)}" if lacking else "yes"])
    return runs.render_table(lines) if len(lines) > 1 else ""


def _format_goal(one: goals.GoalResult) -> str:
    return f"{one.found:.2f} ({'at most' if one.at_most else 'at least'} {one.wanted:g})"


def _render_memory(results: list[Row]) -> str:
    figures = [
        f"{one.found:.0f} MiB on {NAMES[one.database]} (at most {one.wanted:g}: {'yes' if one.is_met else 'no'})"
        for one in goals.evaluate_memory(results)
    ]
    return f"Resident after all questions: {', '.join(figures)}." if figures else ""


def _render_case(results: Sequence[Row], key: str) -> str:
    lines = [[TITLES[key], "req/s", "spread", "CPU ms", "of PostgreSQL, CPU ms", "median ms", "99 % ms", "99 % / median"]]
    for row in results:
        found = row.get("cases", {}).get(key)
        if found is None:
            continue
        database = f"{found['database_cpu_ms']:.2f}" if found["database_cpu_ms"] is not None else "-"
        figures = [f"{found['per_second']:.0f}", f"{found['spread']:.0%}", f"{found['cpu_ms']:.2f}", database]
        waits = [f"{found['p50_ms']:.1f}", f"{found['p99_ms']:.1f}", f"{found['p99_ms'] / found['p50_ms']:.1f}"]
        lines.append([_format_side(row), *figures, *waits])
    return runs.render_table(lines)


def _render_ratios(results: Sequence[Row], cases: Sequence[str]) -> str:
    """The requests per second of `POST /graphql` as multiples of each peer's, and its CPU time as shares of theirs."""
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
        lines.append([_format_side(row), *figures])
    return runs.render_table(lines) if len(lines) > 1 else ""
