"""Suggestions in notes on lines: the change that each makes, and its commit on the source branch."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from graph.context import Context
from graph.errors import Conflict, Forbidden, Invalid, NotAllowed, NotFound
from graph.rules import lookup, validation
from graph.rules.events import change_records
from graph.rules.git import file_commits, ref_updates, refs
from graph.rules.git.commits import run_in_repository
from graph.rules.git.file_commits import FileAction, FileActionKind
from graph.rules.git.ref_updates import BranchOperation
from graph.rules.markdown import texts
from graph.rules.markdown.rendering import SuggestedText
from storage import tables
from storage.git import trees
from storage.git.diffs.diff_lines import MAX_FOLLOWED_BYTES, LineFollower, LineSpan, replace_lines
from storage.git.refs.ref_names import BRANCHES
from storage.git.repository import Repository
from storage.tables.merge_requests import applied_suggestions
from storage.tables.merge_requests.merge_requests import OPEN

MAX_OLD_TEXT_CHARACTERS = 50_000
"""Characters of the lines that a suggestion replaces; with more it has no `old_text`."""

FindNote = Callable[[Context], Awaitable[tuple[tables.Project, tables.Note]]]
"""Finds a note and its project for a context's viewer. Raises NotFound, Forbidden."""


@dataclass(frozen=True, slots=True)
class SuggestedChange:
    """A suggestion of a note.

    `lines` are the numbers of the lines that it replaces, and `old_text` their content, as they were when the thread began; `old_text` is
    None if they cannot be read. `current` are the numbers that these lines have at the head now; None if one of them was changed.
    `applied_oid` is the commit that applied it.
    """

    merge_request: tables.MergeRequest
    index: int
    path: str
    lines: LineSpan
    new_text: str
    old_text: str | None
    current: LineSpan | None
    applied_oid: str | None


class _LinesKey(NamedTuple):
    """The lines of a suggestion in the commit on which its thread began, and the commit in which they are looked for."""

    project_id: int
    path: str
    lines: LineSpan
    oid: str
    current_oid: str


class _FoundLines(NamedTuple):
    old_text: str | None
    current: LineSpan | None


async def load_suggestions(context: Context, note: tables.Note) -> list[SuggestedChange]:
    """The suggestions of a note on a line; all notes of a level are read at once. Raises Unavailable."""
    thread = await context.rows_by_id(tables.ReviewThread).get(note.thread_id) if note.thread_id is not None else None
    if thread is None or thread.new_line is None or thread.head_oid is None:
        return []
    found = await texts.load_suggestions(context, note.body)
    if not found:
        return []
    merge_request = await context.rows_by_id(tables.MergeRequest).get(thread.merge_request_id)
    if merge_request is None or merge_request.head_oid is None:
        return []

    async def fetch_applied(ids: list[int]) -> dict[int, dict[int, str]]:
        applied: dict[int, dict[int, str]] = {}
        for note_id, position, oid in await context.tuples(applied_suggestions.of_notes(ids)):
            applied.setdefault(note_id, {})[position] = oid
        return applied

    path = thread.new_path or ""
    keys = [_LinesKey(note.project_id, path, _lines_of(thread.new_line, each), thread.head_oid, merge_request.head_oid) for each in found]
    lines = await context.loader("lines of suggestions", partial(_read_lines, context)).get_many(keys)
    applied = await context.loader("applied suggestions", fetch_applied).get(note.id) or {}
    suggestions = []
    for index, (each, key) in enumerate(zip(found, keys, strict=True)):
        old_text, current = lines[key] or _FoundLines(None, None)
        suggestions.append(SuggestedChange(merge_request, index, path, key.lines, each.text, old_text, current, applied.get(index)))
    return suggestions


def _lines_of(line: int, suggested: SuggestedText) -> LineSpan:
    return LineSpan(max(line - suggested.above, 1), line + suggested.below)


async def _read_lines(context: Context, keys: list[_LinesKey]) -> dict[_LinesKey, _FoundLines]:
    found: dict[_LinesKey, _FoundLines] = {}
    for project_id in {key.project_id for key in keys}:
        own = [key for key in keys if key.project_id == project_id]

        def work(repository: Repository, own: list[_LinesKey] = own) -> dict[_LinesKey, _FoundLines]:
            follower = LineFollower(repository)
            read = {}
            for key in own:
                text = follower.read(key.path, key.lines, key.oid)
                shown = text if text is not None and len(text) <= MAX_OLD_TEXT_CHARACTERS else None
                context.count_text(shown)
                current = follower.follow_range(key.path, key.lines, key.oid, key.current_oid) if text is not None else None
                read[key] = _FoundLines(shown, current)
            return read

        found |= await run_in_repository(context, project_id, work, cancellable=True)
    return found


async def can_apply(context: Context, suggestion: SuggestedChange) -> bool:
    """Whether the viewer may apply the suggestion, and its lines are still there."""
    row = suggestion.merge_request
    if row.state not in OPEN or suggestion.current is None or suggestion.applied_oid is not None:
        return False
    source = await context.rows_by_id(tables.Project).get(row.source_project_id)
    return source is not None and BranchOperation.PUSH in await ref_updates.allowed_operations(context, source, row.source_branch)


async def apply_suggestion(context: Context, find: FindNote, index: int, message: str | None) -> tables.Note:
    """Commit a suggestion to the source branch, with all effects of a push.

    Raises NotFound, Forbidden, Invalid, NotAllowed if the merge request is not open, Conflict if the lines have changed, Unavailable.
    """
    async with context.read_only() as reader:
        _, note = await find(reader)
        suggestion = next((each for each in await load_suggestions(reader, note) if each.index == index), None)
        thread = await reader.rows_by_id(tables.ReviewThread).get(note.thread_id or 0)
        if suggestion is None or thread is None or thread.head_oid is None:
            raise NotFound("Suggestion")
        row = suggestion.merge_request
        source = await lookup.get_project(reader, str(row.source_project_id))
        if BranchOperation.PUSH not in await ref_updates.allowed_operations(reader, source, row.source_branch):
            raise Forbidden("You are not allowed to push to the source branch.")
        if row.state not in OPEN:
            raise NotAllowed(None, f"The merge request is already {row.state}.")
        if suggestion.applied_oid is not None:
            raise Conflict("index", "The suggestion was applied already.")
        head = await refs.find(reader, source.id, BRANCHES + row.source_branch)
    if head is None:
        raise Conflict("index", "The source branch does not exist any more.")
    begun = thread.head_oid

    def work(repository: Repository) -> FileAction | None:
        current = LineFollower(repository).follow_range(suggestion.path, suggestion.lines, begun, head)
        entry = trees.find_blob(repository, head, suggestion.path)
        if current is None or entry is None or (trees.blob_size(repository, entry[0]) or 0) > MAX_FOLLOWED_BYTES:
            return None
        data = trees.read_bytes(repository, entry[0])
        replaced = replace_lines(data, current, suggestion.new_text)
        if replaced == data:
            raise Invalid("index", "The suggestion changes nothing")
        return None if replaced is None else FileAction(FileActionKind.UPDATE, suggestion.path, replaced, expected_oid=entry[0])

    action = await run_in_repository(context, source.id, work)
    if action is None:
        raise Conflict("index", "The lines have changed since the suggestion was made.")
    text = validation.validate_string("message", message or f"Apply suggestion to {suggestion.path}")
    record = partial(_record_application, note.id, row.id, index)
    await file_commits.create_commit(context, source, row.source_branch, text, [action], record=record)
    return note


async def _record_application(note_id: int, merge_request_id: int, index: int, context: Context, oid: str) -> None:
    row = tables.AppliedSuggestion(note_id=note_id, position=index, author_id=context.viewer.id, commit_oid=oid, created_at=context.now())
    await context.add(row)
    merge_request = await context.rows_by_id(tables.MergeRequest).get(merge_request_id)
    if merge_request is not None:
        await change_records.record_discussion(context, merge_request)
