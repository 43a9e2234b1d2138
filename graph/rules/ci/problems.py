"""What is wrong with a file of builds, in words for whoever wrote it."""

from collections.abc import Sequence
from dataclasses import dataclass

MOST_TOLD = 20
"""Problems that are told of one file."""
LONGEST = 500
"""Characters of one of them; what a file calls its jobs may be long."""


@dataclass(frozen=True, slots=True)
class Problem:
    """`line` is counted from 1; None where no one line is to blame."""

    message: str
    line: int | None = None

    def __str__(self) -> str:
        return self.message if self.line is None else f"line {self.line}: {self.message}"


class ConfigError(Exception):
    """The file cannot be used. `problems` has at least one, in the order of the file."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = tuple(problems)

    @classmethod
    def of(cls, message: str, line: int | None = None) -> "ConfigError":
        return cls([Problem(message if len(message) <= LONGEST else f"{message[: LONGEST - 1]}…", line)])


def quoted(text: str) -> str:
    """A name from the file as a message shows it."""
    shown = "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text[:61])
    return f"`{shown[:60]}…`" if len(text) > 60 else f"`{shown}`"
