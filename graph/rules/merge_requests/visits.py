"""What is new in a merge request since the viewer last visited it.

Marks that are less than VISIT_PAUSE apart belong to one visit, in which the viewer is shown what was new when it began, however often the
page is loaded. A new head is compared with the head that the viewer saw before it, even within a visit.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from graph.context import Context
from graph.errors import Conflict, Invalid, LimitExceeded, Required
from graph.rules.git.commit_comparison import run_git
from graph.rules.git.commits import load_diff_between
from storage import tables
from storage.git import merge
from storage.git.diffs.changed_paths import find_changed_paths
from storage.git.diffs.diff import CUT_MARK, FileDiff
from storage.git.merge_preview import has_commit, ids_beyond
from storage.git.repository import Repository
from storage.tables.merge_requests import merge_request_visits

VISIT_PAUSE = timedelta(minutes=30)
MAX_COMMITS = 100


class LastVisit(NamedTuple):
    """What the viewer had seen of a merge request when the last visit ended. `note_number` is the id of the newest note, 0 for none."""

    merge_request_id: int
    project_id: int
    base_oid: str | None
    current_head_oid: str | None
    head_oid: str | None
    note_number: int
    visited_at: datetime


class NewChanges(NamedTuple):
    """The ids of commits that the head of a visit does not reach, newest first, and the changed paths to show; None for all.

    `old_base_oid` is where the head of the visit begins if that is not where the current one begins; None otherwise.
    """

    oids: tuple[str, ...]
    paths: frozenset[str] | None
    old_base_oid: str | None = None


async def mark_visited(context: Context, row: tables.MergeRequest, values: Mapping[str, Any]) -> None:
    """Record what the viewer has seen, by the values of `MarkMergeRequestVisitedInput`.

    Raises Required if nothing was seen, Conflict if the head is not `head_oid`, Invalid for a note of something else.
    """
    head_oid, note_number = values.get("head_oid"), values.get("note_database_id")
    if head_oid is None and note_number is None:
        raise Required("headOid")
    if head_oid is not None and (row.head_oid is None or row.head_oid != head_oid.lower()):
        raise Conflict("headOid", "The merge request has new commits. Reload it and retry.")
    if note_number is not None:
        note = await context.rows_by_id(tables.Note).get(note_number)
        if note is None or note.merge_request_id != row.id:
            raise Invalid("noteDatabaseId", "The merge request has no such note")
    statement = merge_request_visits.upsert(
        context.services.database.dialect,
        context.viewer.id,
        row.id,
        head_oid=row.head_oid if head_oid is not None else None,
        note_number=note_number or 0,
        time=context.now(),
        ended_before=_ended_before(context),
    )
    await context.session.execute(statement)


async def load_last_visit(context: Context, row: tables.MergeRequest) -> LastVisit | None:
    """The last visit of the viewer; None if there was none. All merge requests of a level share the statement."""
    if context.viewer_or_none is None:
        return None
    user_id = context.viewer_or_none.id

    async def fetch(ids: list[int]) -> dict[int, tables.MergeRequestVisit]:
        return {visit.merge_request_id: visit for (visit,) in await context.tuples(merge_request_visits.of_user(user_id, ids))}

    visit = await context.loader("visits of merge requests", fetch).get(row.id)
    if visit is None:
        return None
    if visit.visited_at < _ended_before(context):
        seen = visit.head_oid, visit.note_number, visit.visited_at
    else:
        head_oid = visit.head_oid if visit.head_oid != row.head_oid else visit.previous_head_oid
        seen = head_oid, visit.previous_note_number, visit.previous_visited_at
    return LastVisit(row.id, row.project_id, row.base_oid, row.head_oid, *seen)


async def count_new_notes(context: Context, visit: LastVisit) -> int:
    """The number of notes that others wrote since the visit."""
    user_id = context.viewer.id

    async def fetch(ids: list[int]) -> dict[int, int]:
        return dict(map(tuple, await context.tuples(merge_request_visits.new_note_counts(user_id, ids, _ended_before(context)))))

    return await context.loader("new notes of merge requests", fetch).get(visit.merge_request_id) or 0


async def count_new_commits(context: Context, visit: LastVisit) -> int | None:
    """The number of commits that are new since the visit, at most 10,000; None if its head does not exist any more. Raises Unavailable."""
    found = await _load_new_changes(context, visit)
    return len(found.oids) if found is not None else None


async def list_new_commits(context: Context, visit: LastVisit) -> tuple[str, ...] | None:
    """The ids of the newest MAX_COMMITS of these commits; None if the head of the visit does not exist any more. Raises Unavailable."""
    found = await _load_new_changes(context, visit)
    return found.oids[:MAX_COMMITS] if found is not None else None


async def load_changes_since(context: Context, visit: LastVisit) -> list[FileDiff] | None:
    """The diff between the head of the visit and the current one; None if the former does not exist any more.

    If they do not begin at the same commit, files are left out that only the target branch changed: those that the merge request does not
    change, or changes as it did before. Raises Unavailable, LimitExceeded.
    """
    found = await _load_new_changes(context, visit)
    if found is None or visit.current_head_oid is None:
        return None
    entries = await load_diff_between(context, visit.project_id, visit.head_oid, visit.current_head_oid)
    if entries is None or found.paths is None:
        return entries
    entries = [entry for entry in entries if {entry.old_path, entry.new_path} & found.paths or entry.diff.startswith(CUT_MARK)]
    if not entries or found.old_base_oid is None or visit.base_oid is None:
        return entries
    before = await _load_patches(context, visit.project_id, found.old_base_oid, visit.head_oid)
    now = await _load_patches(context, visit.project_id, visit.base_oid, visit.current_head_oid)
    unchanged = {path for path, patch in now.items() if patch == before.get(path)}
    return [entry for entry in entries if entry.new_path not in unchanged or entry.renamed_file]


async def _load_patches(context: Context, project_id: int, base_oid: str, head_oid: str | None) -> dict[str, list[str]]:
    """The hunks of a merge request's changes by path, without line numbers, of the files that can be compared by them.

    Files that are binary, renamed or too large are not among them; there are none if the diff exceeds the limit of the operation.
    """
    try:
        entries = await load_diff_between(context, project_id, base_oid, head_oid) if head_oid is not None else None
    except LimitExceeded:
        return {}
    return {
        entry.new_path: ["@@" if line.startswith("@@ ") else line for line in entry.diff[start:].split("\n")]
        for entry in entries or ()
        if (start := entry.diff.find("\n@@ ")) >= 0 and not entry.too_large and not entry.renamed_file and entry.a_mode == entry.b_mode
    }


async def _load_new_changes(context: Context, visit: LastVisit) -> NewChanges | None:
    async def fetch(visits: list[LastVisit]) -> dict[LastVisit, NewChanges]:
        found = {}
        for each in visits:
            changes = await run_git(context, each.project_id, lambda repository, each=each: _find_new_changes(repository, each))  # type: ignore[misc]
            if changes is not None:
                found[each] = changes
        return found

    return await context.loader("changes since visits", fetch).get(visit)


def _find_new_changes(repository: Repository, visit: LastVisit) -> NewChanges | None:
    seen, base, head = visit.head_oid, visit.base_oid, visit.current_head_oid
    if seen is None or head is None or not has_commit(repository, seen) or not has_commit(repository, head):
        return None
    if seen == head:
        return NewChanges((), None)
    old_base = merge.merge_base(repository, seen, base) if base is not None else None
    # A rebased branch, or one that has merged its target, has commits of the target that are no part of the merge request.
    oids = ids_beyond(repository, [seen, base] if base is not None else [seen], head)
    if old_base == base:
        return NewChanges(oids, None)
    sides = find_changed_paths(repository, old_base, seen), find_changed_paths(repository, base, head)
    return NewChanges(oids, None if None in sides else frozenset().union(*filter(None, sides)), old_base)


def _ended_before(context: Context) -> datetime:
    return context.now() - VISIT_PAUSE
