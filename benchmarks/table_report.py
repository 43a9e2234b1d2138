"""The table that `scripts/bench table` prints, as Markdown that is readable on a terminal too."""

from collections.abc import Sequence
from typing import Any

from benchmarks.questions import TITLES

NAMES = {"postgresql": "PostgreSQL", "sqlite": "SQLite"}
Row = dict[str, Any]


def text(found: dict[str, Any]) -> str:
    """Of what `--json` writes."""
    results: list[Row] = found["results"]
    cases = [key for key in TITLES if any(key in row.get("cases", {}) for row in results)]
    parts = [_summary(results, cases)]
    parts += [_case(results, key) for key in cases]
    parts.append(_ratios(results, cases))
    run, machine = found["run"], found["machine"]
    parts.append(
        f"Scale {run['scale']:g}; medians of {run['rounds']} rounds of {run['seconds']:g} s in which the sides take turns,"
        f" {run['connections']} connections; {machine['cores']} cores, Python {machine['python']}, Node {machine['node']};"
        f" load average {machine['load_average']['before']} before and {machine['load_average']['after']} after."
        + ("" if machine["pinned"] else " The servers had no core of their own, so the noise is larger.")
        + "\nSides marked * look up no caller and check no right. Differences under 30 % are noise; believe the CPU first."
    )
    return "\n\n".join(part for part in parts if part)


def title_of(row: Row) -> str:
    return f"{row['title']}{'' if row['signs_in'] else ' *'}, {NAMES[row['database']]}"


def _summary(results: Sequence[Row], cases: Sequence[str]) -> str:
    lines = [["req/s, CPU ms a request", *(TITLES[key] for key in cases), "memory, MiB"]]
    for row in results:
        if "not_run" in row:
            lines.append([title_of(row), f"NOT RUN: {row['not_run']}", *[""] * len(cases)])
            continue
        figures = [
            f"{found['per_second']:.0f}, {found['cpu_ms']:.2f}" if (found := row["cases"].get(key)) is not None else "-" for key in cases
        ]
        lines.append([title_of(row), *figures, f"{row['memory_mib']:.0f}"])
    return _grid(lines)


def _case(results: Sequence[Row], key: str) -> str:
    lines = [[TITLES[key], "req/s", "spread", "CPU ms", "of PostgreSQL, CPU ms", "median ms", "99 % ms"]]
    for row in results:
        found = row.get("cases", {}).get(key)
        if found is None:
            continue
        database = f"{found['database_cpu_ms']:.2f}" if found["database_cpu_ms"] is not None else "-"
        figures = [f"{found['per_second']:.0f}", f"{found['spread']:.0%}", f"{found['cpu_ms']:.2f}", database]
        lines.append([title_of(row), *figures, f"{found['p50_ms']:.1f}", f"{found['p99_ms']:.1f}"])
    return _grid(lines)


def _ratios(results: Sequence[Row], cases: Sequence[str]) -> str:
    """How Forgefront stands to each peer: above 1 it is the better one."""
    ours = {row["database"]: row for row in results if row["side"] == "forgefront" and "cases" in row}
    lines = [["Forgefront against: times the req/s, part of the CPU", *(TITLES[key] for key in cases)]]
    for row in results:
        mine = ours.get(row["database"])
        if mine is None or row is mine or "cases" not in row:
            continue
        figures = []
        for key in cases:
            left, right = mine["cases"].get(key), row["cases"].get(key)
            both = left is not None and right is not None
            figures.append(f"{left['per_second'] / right['per_second']:.2f}, {left['cpu_ms'] / right['cpu_ms']:.2f}" if both else "-")
        lines.append([title_of(row), *figures])
    return _grid(lines) if len(lines) > 1 else ""


def _grid(lines: Sequence[Sequence[str]]) -> str:
    widths = [max(len(cell) for cell in column) for column in zip(*(line for line in lines if "NOT RUN" not in str(line)), strict=True)]
    widths[0] = max(len(line[0]) for line in lines)

    def row(cells: Sequence[str]) -> str:
        return (
            "| "
            + " | ".join([cells[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(cells[1:], widths[1:], strict=True))])
            + " |"
        )

    rule = "|" + "|".join(["-" * (widths[0] + 2), *("-" * (width + 1) + ":" for width in widths[1:])]) + "|"
    return "\n".join([row(lines[0]), rule, *map(row, lines[1:])])
