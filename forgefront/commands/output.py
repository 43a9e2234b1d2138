"""Output of commands: JSON for scripts, aligned columns for people, and progress of long commands."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import orjson
import typer

if TYPE_CHECKING:
    from storage.git.importing.repository_import import ProgressCallback

PROGRESS_SECONDS = 5.0
"""Minimum seconds between two lines of progress where there is no terminal."""


def print_result(value: Any, as_json: bool, columns: tuple[str, ...] = ()) -> None:
    """Prints the result of an operation: a list as a table of `columns`, an object as one line for each field."""
    if as_json:
        typer.echo(orjson.dumps(value, option=orjson.OPT_INDENT_2).decode())
    elif isinstance(value, list):
        _print_table(value, columns)
    elif isinstance(value, dict):
        width = max(map(len, value), default=0)
        for key, item in value.items():
            typer.echo(f"{key:{width}}  {_format_value(item)}".rstrip())
    else:
        typer.echo(_format_value(value))


def _print_table(rows: list[dict[str, Any]], columns: tuple[str, ...]) -> None:
    lines = [list(columns), *([_format_value(row.get(column)) for column in columns] for row in rows)]
    widths = [max(len(line[position]) for line in lines) for position in range(len(columns))]
    for line in lines:
        typer.echo("  ".join(f"{cell:{width}}" for cell, width in zip(line, widths, strict=True)).rstrip())


def _format_value(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(map(_format_value, value)) or "-"
    if isinstance(value, dict):
        return ", ".join(f"{key} {_format_value(item)}" for key, item in value.items())
    # A name may contain any characters; control characters of the terminal are replaced.
    return "".join(character if character.isprintable() else "�" for character in str(value))


@contextmanager
def show_progress() -> "Iterator[ProgressCallback]":
    """Shows the progress of a command on standard error: a bar on a terminal, else a line for each phase and every few seconds."""
    if sys.stderr.isatty():
        with _progress_bar() as report:
            yield report
    else:
        yield _ProgressLines()


@contextmanager
def _progress_bar() -> "Iterator[ProgressCallback]":
    # Imported here, since most commands do not need it.
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description:<24}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        tasks: dict[str, Any] = {}

        def report(phase: str, done: int, total: int) -> None:
            if phase not in tasks:
                tasks[phase] = bars.add_task(phase, total=total)
            bars.update(tasks[phase], completed=done, total=total)

        yield report


class _ProgressLines:
    def __init__(self) -> None:
        self._phase = ""
        self._reported_at = 0.0

    def __call__(self, phase: str, done: int, total: int) -> None:
        now = time.monotonic()
        if phase != self._phase or now - self._reported_at >= PROGRESS_SECONDS:
            self._phase, self._reported_at = phase, now
            typer.echo(f"{phase}: {done} of {total}", err=True)
