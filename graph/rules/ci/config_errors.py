"""Errors in `.gitlab-ci.yml`, as messages for its author."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

MAX_PROBLEMS = 20
"""Problems that are reported per file."""
MAX_MESSAGE_LENGTH = 500
"""Characters of one message; names of jobs in the file may be long."""


class SourceLine(int):
    """A line number that knows the included file that it counts in; `file` is None for the main file."""

    file: str | None

    def __new__(cls, number: int, file: str | None = None) -> Self:
        line = super().__new__(cls, number)
        line.file = file
        return line


@dataclass(frozen=True, slots=True)
class ConfigProblem:
    """One problem; `line` counts from 1 and is None for a problem of the whole file."""

    message: str
    line: int | None = None

    @property
    def file(self) -> str | None:
        """The path of the included file that has the problem; None for the main file."""
        return self.line.file if isinstance(self.line, SourceLine) else None

    def __str__(self) -> str:
        if self.line is None:
            return self.message
        return f"{f'{self.file}, ' if self.file is not None else ''}line {self.line}: {self.message}"


class PipelineConfigError(Exception):
    """The file cannot be used. `problems` has at least one entry, in the order of the file."""

    def __init__(self, problems: Sequence[ConfigProblem]) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = tuple(problems)

    @classmethod
    def from_message(cls, message: str, line: int | None = None) -> "PipelineConfigError":
        return cls([ConfigProblem(message if len(message) <= MAX_MESSAGE_LENGTH else f"{message[: MAX_MESSAGE_LENGTH - 1]}…", line)])


def quote(string: str) -> str:
    """Quote a name from the file for a message: shortened, without unprintable characters."""
    shown = "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in string[:61])
    return f"`{shown[:60]}…`" if len(string) > 60 else f"`{shown}`"
