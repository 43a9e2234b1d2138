"""In which form a caller wants an answer, where it is another than the graph's own."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Form:
    """How a part of an answer is spelled. A plan honours it where it makes the answer; see `Outcome.formed`."""

    at: tuple[str, ...]
    """The response keys on the way to the part (items of lists have none); what stands beside it is spelled as ever."""
    enum: Callable[[str], str]
    """From the name of an enumeration's value."""
    instant: Callable[[str], str]
    """From a DateTime as the graph spells it."""
    instants: Callable[[list[str | None]], list[str | None]]
    """The same of many and of nulls, for less."""
    connection: Callable[[Mapping[str, str]], str | None]
    """From what is asked of a connection, the names of its fields by their response keys, to the key of the one that stands in its
    place; None: it stays as it is."""

    def covers(self, way: tuple[str, ...]) -> bool:
        """Whether a field belongs to the part, by the response keys down to it."""
        return way[: len(self.at)] == self.at
