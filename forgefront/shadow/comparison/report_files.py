"""The report as a text, and as a file that is always whole."""

import os
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import orjson


def write_report(path: Path, report: dict[str, Any]) -> None:
    """Replaces the file: JSON if its name ends with .json, else text. Only its owner may read it. Raises OSError."""
    content = format_json(report) if path.suffix == ".json" else format_text(report).encode()
    # mkstemp creates a file that only its owner may read.
    number, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(number, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def format_json(report: dict[str, Any]) -> bytes:
    return orjson.dumps(report, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)


def format_text(report: dict[str, Any]) -> str:
    total = report["total"]
    lines = [
        f"{report['answers'].capitalize()} server answers; {report['old']} (old) against {report['new']} (new)",
        f"from {report['began']} to {report['written']}",
        "",
        f"{total['seen']} requests: {total['equal']} equal, {total['different']} different, "
        f"{sum(total['not_compared'].values())} not compared, {total['lost']} lost by the queue",
        *(f"  not compared, {reason}: {count}" for reason, count in total["not_compared"].items()),
    ]
    if total["comparison_restarts"]:
        lines.append(f"Restarts of the comparison: {total['comparison_restarts']}; the counts are those since the last one.")
    for title, key, rows in (("Route", "route", report["routes"]), ("Client", "client", report["clients"])):
        lines += ["", *_table([title, "seen", "equal", "different", "not compared", "old ms", "new ms"], key, rows)]
    for route in report["routes"]:
        if route["differences"]:
            lines += ["", route["route"]]
        for row in route["differences"]:
            lines.append(f"  {row['kind']} {row['place']}: {row['count']} times, by {', '.join(map(_printable, row['clients']))}")
            if row["example"]:
                lines.append(f"    {_printable(row['example']['request'])}")
                lines += [f"    {side}: {_printable(orjson.dumps(row['example'][side]).decode())}" for side in ("old", "new")]
    if report["ignored"]:
        lines += ["", "Ignored differences"]
        lines += [f"  {row['rule']}: {row['count']} ({row['reason']})" for row in report["ignored"]]
    return "\n".join(lines) + "\n"


def _table(heading: list[str], key: str, rows: Iterable[dict[str, Any]]) -> list[str]:
    cells = [heading]
    for row in rows:
        times = [_printable("-" if row[name] is None else f"{row[name]:.1f}") for name in ("old_milliseconds", "new_milliseconds")]
        counts = [str(row[name]) for name in ("seen", "equal", "different")]
        cells.append([_printable(row[key]), *counts, str(sum(row["not_compared"].values())), *times])
    widths = [max(len(line[index]) for line in cells) for index in range(len(heading))]
    return ["  ".join([line[0].ljust(widths[0]), *map(str.rjust, line[1:], widths[1:])]) for line in cells]


def _printable(text: str) -> str:
    """Control characters of a terminal are replaced: a client chooses its name."""
    return "".join(character if character.isprintable() else "�" for character in text)
