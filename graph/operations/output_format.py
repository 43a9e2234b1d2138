"""In which form a caller wants an answer, where it is another than the graph's own."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class OutputFormat:
    """How a part of an answer is spelled. A plan honours it where it makes the answer; see `OperationResult.formed`."""

    path: tuple[str, ...]
    """The response keys on the way to the part (items of lists have none); what stands beside it is spelled as ever."""
    serialize_enum: Callable[[str], str]
    """From the name of an enumeration's value."""
    serialize_timestamp: Callable[[str], str]
    """From a DateTime as the graph spells it."""
    serialize_timestamps: Callable[[list[str | None]], list[str | None]]
    """The same of many and of nulls, for less."""
    connection_key: Callable[[Mapping[str, str]], str | None]
    """From what is asked of a connection, the names of its fields by their response keys, to the key of the one that stands in its
    place; None: it stays as it is."""

    def covers(self, path: tuple[str, ...]) -> bool:
        """Whether a field belongs to the part, by the response keys down to it."""
        return path[: len(self.path)] == self.path
