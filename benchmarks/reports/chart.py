"""The chart of a run in SVG: a panel for each question, a row for each side, a column of bars for each database.

Colours follow the reader's light or dark scheme. It has its own background, so that it is readable on any page.
"""

from html import escape
from typing import Any

from benchmarks.harness.runs import NAMES
from benchmarks.reports.table_report import format_title
from benchmarks.suites import goals
from benchmarks.suites.questions import TITLES

LEFT, COLUMN, FIGURES, MARGIN = 276, 330, 122, 16
"""Widths: of the names, of a column, of the figures in it, and at both sides."""
BAR, STEP, HEAD, FOOT = 14, 20, 44, 48
KINDS = ("ours", "floor", "peer")
STYLE = """
text{font:12px system-ui,sans-serif;fill:#24292f}.title{font-size:15px;font-weight:600}.name{text-anchor:end}.note,.column{fill:#57606a}
.note,.column{font-size:11px}.own{font-weight:600}.ground{fill:#fff;stroke:#d0d7de}.ours{fill:#0b6e4f}.floor{fill:#bf8700}.peer{fill:#8c959f}
@media (prefers-color-scheme:dark){text{fill:#e6edf3}.note,.column{fill:#9198a1}.ground{fill:#0d1117;stroke:#3d444d}
.ours{fill:#2ea77b}.floor{fill:#d29922}.peer{fill:#656c76}}
"""
Row = dict[str, Any]


def render_svg(found: dict[str, Any]) -> str:
    """The chart of what `--json` writes: requests per second as bars, with the CPU time per request beside them."""
    results: list[Row] = [row for row in found["results"] if "cases" in row]
    databases = [name for name in NAMES if any(row["database"] == name for row in results)]
    width = LEFT + COLUMN * len(databases) + MARGIN
    parts: list[str] = []
    y = 8
    for key, title in TITLES.items():
        rows = [row for row in results if key in row["cases"]]
        if rows:
            y = _render_panel(parts, y, key, title, rows, databases)
    run = found["run"]
    rounds = f"medians of {run['rounds']} rounds of {run['seconds']:g} s, {run['connections']} connections, scale {run['scale']:g}"
    notes = (
        f"Bars are requests per second of one server process; beside them milliseconds of its CPU per request; {rounds}.",
        "* looks up no caller and checks no permission.",
    )
    for number, note in enumerate(notes):
        parts.append(f'<text x="{MARGIN}" y="{y + 14 + 16 * number}" class="note">{escape(note)}</text>')
    height = y + FOOT
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img"'
        f' aria-label="Requests per second of each side">\n<style>{STYLE}</style>\n'
        f'<rect class="ground" x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" rx="6"/>\n' + "\n".join(parts) + "\n</svg>\n"
    )


def _render_panel(parts: list[str], y: int, key: str, title: str, rows: list[Row], databases: list[str]) -> int:
    """Adds the panel that begins at `y`; returns where the next one begins. All bars of a panel have the same scale."""
    maximum = max(row["cases"][key]["per_second"] for row in rows)
    parts.append(f'<text x="{MARGIN}" y="{y + 20}" class="title">{escape(title)}</text>')
    for number, name in enumerate(databases):
        parts.append(f'<text x="{LEFT + COLUMN * number}" y="{y + 36}" class="column">{NAMES[name]}</text>')
    y += HEAD
    for side in dict.fromkeys(row["side"] for row in rows):
        of_side = [row for row in rows if row["side"] == side]
        kind = "ours" if side in goals.OURS else "floor" if side in goals.FLOORS.values() else "peer"
        own = " own" if kind == "ours" else ""
        parts.append(f'<text x="{LEFT - 10}" y="{y + BAR - 3}" class="name{own}">{escape(format_title(of_side[0]))}</text>')
        for row in of_side:
            case, x = row["cases"][key], LEFT + COLUMN * databases.index(row["database"])
            length = max(case["per_second"] / maximum * (COLUMN - FIGURES), 1)
            parts.append(f'<rect x="{x}" y="{y}" width="{length:.1f}" height="{BAR}" rx="2" class="{kind}"/>')
            figures = f"{case['per_second']:.0f}/s, {case['cpu_ms']:.2f} ms"
            parts.append(f'<text x="{x + length + 6:.1f}" y="{y + BAR - 3}" class="figures{own}">{figures}</text>')
        y += STEP
    return y + 10
