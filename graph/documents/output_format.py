"""The output format of a result, for callers that need another format than the schema's."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class OutputFormat:
    """How a part of a result is serialized. Plans serialize in this format directly; see `OperationResult.is_formatted`."""

    path: tuple[str, ...]
    """The response path of the part, without list indices; everything else keeps the schema's format."""
    serialize_enum: Callable[[str], str]
    """Converts the name of an enum value."""
    serialize_timestamp: Callable[[str], str]
    """Converts a DateTime in the schema's format."""
    serialize_timestamps: Callable[[list[str | None]], list[str | None]]
    """Converts many timestamps and nulls at once, which is cheaper."""
    connection_key: Callable[[Mapping[str, str]], str | None]
    """Receives the selected fields of a connection (names by response keys), and returns the key whose value replaces the connection;
    None keeps the connection."""

    def covers(self, path: tuple[str, ...]) -> bool:
        """Whether the field with this response path belongs to the part."""
        return path[: len(self.path)] == self.path
