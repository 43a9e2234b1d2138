"""The chart of a run: a panel of bars for each question, drawn as SVG by hand."""

from html import escape
from typing import Any

from benchmarks.questions import TITLES
from benchmarks.table_report import title_of

WIDTH, LEFT, RIGHT = 860, 330, 150
BAR, GAP, HEAD, FOOT = 16, 6, 40, 34
OURS, PEER, FLOOR = "#0b6e4f", "#8d99ae", "#d9a441"


def svg(found: dict[str, Any]) -> str:
    """Of what `--json` writes: requests per second as bars, CPU beside them."""
    results = [row for row in found["results"] if "cases" in row]
    panels = [
        (title, rows) for key, title in TITLES.items() if (rows := [(row, row["cases"][key]) for row in results if key in row["cases"]])
    ]
    parts, y = [], 10
    for title, rows in panels:
        parts.append(f'<text x="16" y="{y + 22}" class="title">{escape(title)}</text>')
        y += HEAD
        most = max(case["per_second"] for _, case in rows)
        for row, case in rows:
            length = max(case["per_second"] / most * (WIDTH - LEFT - RIGHT), 1)
            colour = {"forgefront": OURS, "floor": FLOOR}.get(row["side"], PEER)
            middle = y + BAR - 4
            parts.append(f'<text x="{LEFT - 8}" y="{middle}" class="name">{escape(title_of(row))}</text>')
            parts.append(f'<rect x="{LEFT}" y="{y}" width="{length:.1f}" height="{BAR}" rx="2" fill="{colour}"/>')
            figures = f"{case['per_second']:.0f} req/s, {case['cpu_ms']:.2f} ms"
            parts.append(f'<text x="{LEFT + length + 6:.1f}" y="{middle}">{figures}</text>')
            y += BAR + GAP
        y += 10
    run = found["run"]
    rounds = f"medians of {run['rounds']} rounds of {run['seconds']:g} s at scale {run['scale']:g}"
    note = f"Requests per second, and CPU of the server a request; {rounds}. * looks up no caller."
    parts.append(f'<text x="16" y="{y + 16}" class="note">{escape(note)}</text>')
    height = y + FOOT
    style = (
        "text{font:12px system-ui,sans-serif;fill:#24292f}.title{font-size:15px;font-weight:600}"
        ".name{text-anchor:end}.note{fill:#57606a;font-size:11px}"
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" role="img"'
        f' aria-label="Requests per second of each side">\n'
        f'<style>{style}</style>\n<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>\n' + "\n".join(parts) + "\n</svg>\n"
    )
