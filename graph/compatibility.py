"""What a change of the schema means for those who use it already."""

from dataclasses import dataclass
from enum import IntEnum

from graphql import build_schema
from graphql.utilities import BreakingChange, DangerousChange, find_schema_changes


class Harm(IntEnum):
    """SAFE: no operation notices. RISKY: a program may meet a value that it does not know. BREAKING: operations fail that ran before."""

    SAFE = 0
    RISKY = 1
    BREAKING = 2


@dataclass(frozen=True, slots=True)
class Change:
    harm: Harm
    text: str

    def __str__(self) -> str:
        return f"{self.harm.name.lower()}: {self.text}"


def changes(old: str, new: str) -> list[Change]:
    """What leads from one schema to another, both as text, the most harmful first. Raises GraphQLSyntaxError for what is no schema."""
    found = find_schema_changes(build_schema(old), build_schema(new))
    named = [Change(_harm(change), change.description) for change in found]
    return sorted(named, key=lambda change: (-change.harm, change.text))


def _harm(change: object) -> Harm:
    if isinstance(change, BreakingChange):
        return Harm.BREAKING
    return Harm.RISKY if isinstance(change, DangerousChange) else Harm.SAFE
