"""Metadata of fields: what a declaration records, for readers of the finished schema.

Facts about a root field, such as that it needs no viewer, and about what a field costs, stand where the field is declared:
`@mutation(anonymous=True, …)`, `@strawberry.field(metadata=facts(anonymous=True), …)`. No other module names fields for this.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from graphql import GraphQLField, GraphQLSchema
from strawberry.schema.schema_converter import GraphQLCoreConverter


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldFacts:
    """What is known about a field before it runs.

    `anonymous`: a root field that needs no viewer. `runner`: a root field that runners may select. Both count only if the operation has no
    other root field. `extra_wait_seconds`: how long the root field may wait for an event, beyond the time limit of an operation.
    `extra_rows`: its cost in addition to the rows that it selects, in rows. `max_page_size`: that of a connection; None for the usual one.
    `revision_argument`: the argument of a field of a project that names a commit, whose files alone determine the value; the viewer must be
    allowed to read code. `is_pure`: the value depends on nothing but the object, not on the viewer or the database.
    """

    anonymous: bool = False
    runner: bool = False
    extra_wait_seconds: float = 0.0
    extra_rows: int = 0
    max_page_size: int | None = None
    revision_argument: str | None = None
    is_pure: bool = False


NO_FACTS = FieldFacts()


def facts(**values: Any) -> dict[str, Any]:
    """Returns the facts of a field as its metadata: `strawberry.field(metadata=facts(extra_rows=500), …)`."""
    return {"facts": FieldFacts(**values)}


def metadata_of(field: GraphQLField) -> Mapping[str, Any]:
    """Returns the metadata of the declaration of a finished schema's field."""
    return getattr(field.extensions.get(GraphQLCoreConverter.DEFINITION_BACKREF), "metadata", {})


def facts_in(metadata: Mapping[str, Any]) -> FieldFacts:
    """Returns the facts in the metadata of a field."""
    found: FieldFacts = metadata.get("facts", NO_FACTS)
    return found


def facts_of(field: GraphQLField) -> FieldFacts:
    """Returns the facts of a finished schema's field."""
    return facts_in(metadata_of(field))


def facts_by_root_field(schema: GraphQLSchema) -> dict[str, FieldFacts]:
    """Returns the facts of the queries and mutations that have any, by name."""
    root_types = (schema.query_type, schema.mutation_type)
    found = {name: facts_of(field) for kind in root_types if kind is not None for name, field in kind.fields.items()}
    return {name: each for name, each in found.items() if each != NO_FACTS}
