"""What commands print: JSON for scripts, aligned columns for people, and how far a long work is."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import orjson
import typer

from storage.git.importing import Progress

LINE_SECONDS = 5.0
"""Between two lines of progress where there is no terminal."""


def show(value: Any, as_json: bool, columns: tuple[str, ...] = ()) -> None:
    """Prints what an operation gave: a list as a table of `columns`, a thing as a line a field."""
    if as_json:
        typer.echo(orjson.dumps(value, option=orjson.OPT_INDENT_2).decode())
    elif isinstance(value, list):
        _table(value, columns)
    elif isinstance(value, dict):
        width = max(map(len, value), default=0)
        for key, item in value.items():
            typer.echo(f"{key:{width}}  {_text(item)}".rstrip())
    else:
        typer.echo(_text(value))


def _table(rows: list[dict[str, Any]], columns: tuple[str, ...]) -> None:
    lines = [list(columns), *([_text(row.get(column)) for column in columns] for row in rows)]
    widths = [max(len(line[place]) for line in lines) for place in range(len(columns))]
    for line in lines:
        typer.echo("  ".join(f"{cell:{width}}" for cell, width in zip(line, widths, strict=True)).rstrip())


def _text(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(map(_text, value)) or "-"
    if isinstance(value, dict):
        return ", ".join(f"{key} {_text(item)}" for key, item in value.items())
    # A name may hold anything; what would move the cursor or colour the terminal is shown as a mark.
    return "".join(character if character.isprintable() else "�" for character in str(value))


@contextmanager
def progress() -> Iterator[Progress]:
    """Shows how far a work is on standard error: a bar on a terminal, else a line for each phase and every few seconds."""
    if sys.stderr.isatty():
        with _bar() as tell:
            yield tell
    else:
        yield _Lines()


@contextmanager
def _bar() -> Iterator[Progress]:
    # Here, since most commands need none of it.
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description:<24}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        tasks: dict[str, Any] = {}

        def tell(phase: str, done: int, total: int) -> None:
            if phase not in tasks:
                tasks[phase] = shown.add_task(phase, total=total)
            shown.update(tasks[phase], completed=done, total=total)

        yield tell


class _Lines:
    def __init__(self) -> None:
        self._phase = ""
        self._told = 0.0

    def __call__(self, phase: str, done: int, total: int) -> None:
        moment = time.monotonic()
        if phase != self._phase or moment - self._told >= LINE_SECONDS:
            self._phase, self._told = phase, moment
            typer.echo(f"{phase}: {done} of {total}", err=True)
