"""What a change of the schema means for those who use it already."""

from dataclasses import dataclass
from enum import IntEnum

from graphql import build_schema
from graphql.utilities import BreakingChange, DangerousChange, find_schema_changes


class Severity(IntEnum):
    """SAFE: no operation notices. RISKY: a program may meet a value that it does not know. BREAKING: operations fail that ran before."""

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
    """What leads from one schema to another, both as text, the most harmful first. Raises GraphQLSyntaxError for what is no schema."""
    found = find_schema_changes(build_schema(old), build_schema(new))
    schema_changes = [SchemaChange(_severity_of(change), change.description) for change in found]
    return sorted(schema_changes, key=lambda change: (-change.severity, change.description))


def _severity_of(change: object) -> Severity:
    if isinstance(change, BreakingChange):
        return Severity.BREAKING
    return Severity.RISKY if isinstance(change, DangerousChange) else Severity.SAFE
