"""Lines of diffs to which threads belong: where a thread begins, and where its line is now."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from graph.context import Context
from graph.errors import Conflict, Invalid, Required
from graph.rules.git.commits import run_in_repository
from graph.rules.merge_requests import branch_comparison
from graph.rules.merge_requests.merge_requests import FindMergeRequest
from graph.rules.permissions.policy import Action, require
from storage import tables
from storage.git.diffs.diff_lines import LineFollower, find_line
from storage.git.repository import Repository


class CurrentLine(NamedTuple):
    """The numbers of a line in the current diff of its merge request; None on the side that lacks it."""

    old_path: str
    new_path: str
    old_line: int | None
    new_line: int | None


class _LineKey(NamedTuple):
    """The line of a thread, with the commits that its diff compared and those that the current diff compares."""

    project_id: int
    base_oid: str | None
    head_oid: str
    current_base_oid: str | None
    current_head_oid: str
    line: CurrentLine


async def locate(context: Context, find: FindMergeRequest, values: Mapping[str, Any]) -> dict[str, Any]:
    """The columns of a thread on a line, with the values of `DiffPositionInput`. Reads git, so no transaction must have begun.

    Raises NotFound, Forbidden; Conflict if the head is not `head_oid`, Invalid for a line that the diff does not show, Unavailable.
    """
    async with context.read_only() as reader:
        _, row = await find(reader)
        await require(reader, Action.CREATE_NOTE, row)
        target_oid = (await branch_comparison.read_heads(reader, row)).target
    old_line, new_line = values.get("old_line"), values.get("new_line")
    if old_line is None and new_line is None:
        raise Required("position.newLine")
    if row.head_oid is None or row.head_oid != values["head_oid"].lower():
        raise Conflict("position.headOid", "The merge request has new commits. Reload it and retry.")
    entries = await branch_comparison.load_changes(context, row)
    found = find_line(entries, values.get("old_path"), values["path"], old_line, new_line)
    if found is None:
        raise Invalid("position", "The diff of the merge request does not show this line. Comment on a changed line, or on one near it.")
    return {
        "base_oid": row.base_oid,
        "start_oid": target_oid,
        "head_oid": row.head_oid,
        "old_path": found.old_path,
        "new_path": found.new_path,
        "old_line": old_line,
        "new_line": new_line,
        "excerpt": found.excerpt,
    }


async def load_current_line(context: Context, thread: tables.ReviewThread) -> CurrentLine | None:
    """Where the thread's line is in the current diff; None if it was changed or removed, or if the thread has no line.

    All threads of a level are read at once. Raises Unavailable.
    """
    merge_request = await context.rows_by_id(tables.MergeRequest).get(thread.merge_request_id)
    if thread.head_oid is None or merge_request is None or merge_request.head_oid is None:
        return None
    line = CurrentLine(thread.old_path or "", thread.new_path or "", thread.old_line, thread.new_line)
    if (thread.base_oid, thread.head_oid) == (merge_request.base_oid, merge_request.head_oid):
        return line
    current = merge_request.base_oid, merge_request.head_oid
    key = _LineKey(thread.project_id, thread.base_oid, thread.head_oid, *current, line)

    async def fetch(keys: list[_LineKey]) -> dict[_LineKey, CurrentLine]:
        found: dict[_LineKey, CurrentLine] = {}
        for project_id in {key.project_id for key in keys}:
            own = [key for key in keys if key.project_id == project_id]

            def work(repository: Repository, own: list[_LineKey] = own) -> dict[_LineKey, CurrentLine]:
                follower = LineFollower(repository)
                return {key: line for key in own if (line := _follow(follower, key)) is not None}

            found |= await run_in_repository(context, project_id, work, cancellable=True)
        return found

    return await context.loader("current lines of threads", fetch).get(key)


def _follow(follower: LineFollower, key: _LineKey) -> CurrentLine | None:
    line = key.line
    old_line = new_line = None
    if line.new_line is not None:
        new_line = follower.follow(line.new_path, line.new_line, key.head_oid, key.current_head_oid)
        if new_line is None:
            return None
    if line.old_line is not None and key.base_oid is not None and key.current_base_oid is not None:
        old_line = follower.follow(line.old_path, line.old_line, key.base_oid, key.current_base_oid)
    if new_line is None:
        # A removed line that the file has again is no change any more.
        if old_line is None or key.current_base_oid is None:
            return None
        if follower.follow(line.old_path, old_line, key.current_base_oid, key.current_head_oid) is not None:
            return None
    return line._replace(old_line=old_line, new_line=new_line)
