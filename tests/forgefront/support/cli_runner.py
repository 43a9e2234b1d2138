"""Runs commands in this process, over a data folder."""

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import typer.testing
from click.testing import Result
from typer.testing import CliRunner

from forgefront.cli import LazyCommand, main

PASSWORD = "secret-enough"

# Building the commands from their functions takes longer than most of them run.
vars(typer.testing)["_get_command"] = cache(typer.testing._get_command)
LazyCommand.load = cache(LazyCommand.load)  # type: ignore[method-assign]


@dataclass
class CommandRunner:
    """`cli("admin", "user", "list")` runs a command over `data`; `cli.json(…)` gives what it printed with --json."""

    data: Path

    def __call__(self, *arguments: object, input: str = "", code: int | None = 0) -> Result:
        result = CliRunner().invoke(main, [*map(str, arguments), "--data", str(self.data)], input=input)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert code is None or result.exit_code == code, result.output
        return result

    def json(self, *arguments: object, input: str = "") -> Any:
        return json.loads(self(*arguments, "--json", input=input).stdout)
