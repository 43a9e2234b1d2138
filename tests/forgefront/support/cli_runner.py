"""Runs commands in this process, over a data folder."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from click.testing import Result
from typer.testing import CliRunner

from forgefront.cli import main

PASSWORD = "secret-enough"


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
