"""Suggestions in notes on lines of merge requests."""

from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import strawberry

from graph.context import Info
from graph.errors import Conflict
from graph.fields.declarations import column
from graph.fields.mutations import mutation
from graph.rules.merge_requests import suggestions
from graph.rules.permissions.policy import Action
from graph.types.inputs import find_by_global_id, get_or, optional
from storage import tables

if TYPE_CHECKING:
    from graph.types.notes import Note


@strawberry.type(description="A suggestion in a note on a line: a fenced block `suggestion`, whose text replaces the line.")
class Suggestion:
    index: int = column(description="Number of the suggestion in its note, from 0; for `applySuggestion`.")
    path: str = column(description="Path of the file.")
    old_text: str | None = column(description="Lines that it replaces, as they were when the thread began; null if they cannot be read.")
    new_text: str = column(description="Text that replaces them; empty to remove them.")
    applied_oid: str | None = column(description="ID of the commit that applied it; null if none did.")

    @strawberry.field(description="Number of the first line that it replaces, in the file at the head; null if one of them has changed.")
    def first_line(self) -> int | None:
        current = _as_suggestion(self).current
        return current.first if current is not None else None

    @strawberry.field(description="Number of the last line that it replaces; null like `firstLine`.")
    def last_line(self) -> int | None:
        current = _as_suggestion(self).current
        return current.last if current is not None else None

    @strawberry.field(description="Whether the viewer may apply it, the merge request is open, and the lines have not changed.")
    async def viewer_can_apply(self, info: Info) -> bool:
        return await suggestions.can_apply(info.context, _as_suggestion(self))


def _as_suggestion(suggestion: Any) -> suggestions.SuggestedChange:
    return suggestion  # type: ignore[no-any-return]


@strawberry.type
class NoteSuggestionFields:
    """Fields of a note about its suggestions."""

    @strawberry.field(
        description="Changes that the note suggests for the lines on which its thread began, at most 20. Null, with an error, if the"
        " repository cannot be read."
    )
    async def suggestions(self, info: Info) -> list[Suggestion] | None:
        note: Any = self
        return await suggestions.load_suggestions(info.context, note)  # type: ignore[return-value]


@strawberry.input(description="Input of `applySuggestion`.")
class ApplySuggestionInput:
    id: strawberry.ID = strawberry.field(description="ID of the note.")
    index: int = strawberry.field(description="Number of the suggestion in the note, from 0.")
    message: str | None = optional("Commit message; default `Apply suggestion to PATH`.")


@mutation(
    entity="note",
    returns=Annotated["Note", strawberry.lazy("graph.types.notes")],
    entity_description="The note of the suggestion.",
    description="Commits a suggestion to the source branch of the merge request, with all effects of a push. Requires permission to push to"
    " the branch. If one of the lines has changed since, the result is CONFLICT.",
    conflict=Conflict("index", "The suggestion was applied already."),
)
async def apply_suggestion(info: Info, input: ApplySuggestionInput) -> tables.Note:
    find = partial(find_by_global_id, table=tables.Note, input=input, action=Action.READ_MERGE_REQUEST)
    return await suggestions.apply_suggestion(info.context, find, input.index, get_or(input.message, None))


@strawberry.type
class SuggestionMutations:
    apply_suggestion = apply_suggestion
