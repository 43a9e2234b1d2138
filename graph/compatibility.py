"""Classifies changes of the schema by their effect on existing clients."""

from dataclasses import dataclass
from enum import IntEnum

from graphql import build_schema
from graphql.utilities import BreakingChange, DangerousChange, find_schema_changes


class Severity(IntEnum):
    """SAFE: no client is affected. RISKY: a client may receive a value that it does not know. BREAKING: existing operations fail."""

    SAFE = 0
    RISKY = 1
    BREAKING = 2


@dataclass(frozen=True, slots=True)
class SchemaChange:
    severity: Severity
    description: str

    def __str__(self) -> str:
        return f"{self.severity.name.lower()}: {self.description}"


def compare_schemas(old: str, new: str) -> list[SchemaChange]:
    """Returns the changes from one schema to another, both as SDL, the most severe first. Raises GraphQLSyntaxError for invalid SDL."""
    found = find_schema_changes(build_schema(old), build_schema(new))
    schema_changes = [SchemaChange(_severity_of(change), change.description) for change in found]
    return sorted(schema_changes, key=lambda change: (-change.severity, change.description))


def _severity_of(change: object) -> Severity:
    if isinstance(change, BreakingChange):
        return Severity.BREAKING
    return Severity.RISKY if isinstance(change, DangerousChange) else Severity.SAFE
