"""Merge requests of branches that move, updated in the transaction of the move.

`prepare` runs git before the transaction: it compares the branches of the merge requests from moved branches, and finds those whose heads
the moves add to their targets. All of it depends on commits only. `apply` stores it under the locks of the transaction; what it finds
changed since is computed there again, which is rare. Whether the others into a moved branch can be merged is checked later, in the
background (`merge_request_refresh`).
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

from sqlalchemy import Select

from graph.context import Context, Services
from graph.jobs.maintenance_wakeup import MaintenanceWork
from graph.rules.events import change_records
from graph.rules.merge_requests import branch_comparison, merge_request_refresh
from graph.rules.merge_requests.branch_comparison import BranchComparison, BranchHeads, read_all_heads
from graph.rules.snapshots import MergeRequestSnapshot
from graph.rules.validation import is_storable
from storage import tables
from storage.database.engine import DatabaseSession
from storage.database.sessions import ReadSession
from storage.git import merge_preview
from storage.git.protocol.push import RefCommand
from storage.git.refs.ref_names import BRANCHES
from storage.git.repository import Repository
from storage.tables import MergeStatus
from storage.tables.git import refs as git_refs
from storage.tables.merge_requests import merge_request_branches

T = TypeVar("T")

Landed = tuple[tables.MergeRequest, str]
"""A merge request and the commit of its target that contains its head."""
Landings = Mapping[tuple[int, str], str | None]
"""By the id and the head of a merge request: the commit by which its target comes to contain the head, or None."""


@dataclass(frozen=True, slots=True)
class PreparedMergeRequests:
    """`comparisons` are those of merge requests from moved branches, by id; `project_ids` are their target projects.

    `is_empty`: there were none from or into the branches.
    """

    comparisons: Mapping[int, BranchComparison] = field(default_factory=dict)
    landings: Landings = field(default_factory=dict)
    project_ids: frozenset[int] = frozenset()
    is_empty: bool = False


async def prepare(
    services: Services, project_id: int, updates: Iterable[RefCommand], *, merging_id: int | None = None
) -> PreparedMergeRequests:
    """Compare the branches of the merge requests that these moves change, except of `merging_id`, which the moves merge.

    Raises Unavailable, GitCommandError.
    """
    moves = _branch_moves(updates)
    async with services.database.read_session() as session:
        reader = Context(services, session, None, "refs")
        outgoing, incoming = await _open_of_moved(reader, project_id, moves, merging_id)
        heads = await read_all_heads(reader, outgoing) if outgoing else {}
        targets = {row.project_id for row in outgoing} - {project_id}
        versions: dict[int, int] = dict(await reader.tuples(git_refs.versions(targets))) if targets else {}
    comparisons = {
        row.id: await _compare(services, project_id, row, moves, heads[row.id], since=versions.get(row.project_id)) for row in outgoing
    }
    landings: dict[tuple[int, str], str | None] = {}
    for name, rows in incoming.items():
        shown = [(row.id, comparisons[row.id].head_oid if row.id in comparisons else row.head_oid) for row in rows]
        landings |= await _find_landings(services, project_id, moves[name], shown)
    project_ids = frozenset(row.project_id for row in outgoing)
    return PreparedMergeRequests(comparisons, landings, project_ids, is_empty=not outgoing and not incoming)


async def apply(context: Context, project: tables.Project, updates: Iterable[RefCommand], prepared: PreparedMergeRequests) -> None:
    """Update the merge requests from and into moved branches. The caller has locked the project and moved its refs."""
    moves = _branch_moves(updates)
    if prepared.is_empty and context.locks_at_commit:
        for name in moves:
            context.require_later(merge_request_branches.NONE_OPEN, {"of_project": project.id, "branch": name})
        return
    if not moves or not await _mark_unchecked(context, project, list(moves)):
        return
    landed = await _store_outgoing(context, project, moves, prepared)
    landed += await _find_landed(context, project, moves, prepared, {row.id for row, _ in landed})
    for actor, merged in await _by_actor(context, landed):
        await merge_request_refresh.mark_merged(actor, merged, context.viewer_or_none)


async def _store_outgoing(
    context: Context, project: tables.Project, moves: Mapping[str, RefCommand], prepared: PreparedMergeRequests
) -> list[Landed]:
    """Store the comparisons of the merge requests from moved branches; returns those whose target contains them."""
    outgoing = await _open_from(context, project.id, moves)
    heads = await read_all_heads(context, outgoing)
    stored, landed = list[merge_request_refresh.Compared](), list[Landed]()
    outdated = await branch_comparison.find_outdated(context, prepared.comparisons.values())
    for row in outgoing:
        comparison = prepared.comparisons.get(row.id)
        is_usable = comparison is not None and comparison.matches(row) and comparison.head_oid == moves[row.source_branch].new
        if comparison is None or not is_usable or (comparison.target_project_id, comparison.since) in outdated:
            comparison = await _compare(context.services, project.id, row, moves, heads[row.id], context.session)
        if _is_target_moved(project.id, row, moves) or comparison.landed_oid is None:
            stored.append((row, comparison))
        else:
            landed.append((row, comparison.landed_oid))
    for actor, rows in await _by_actor(context, stored):
        await _store_comparisons(
            actor,
            rows,
            {row.id for row, each in rows if _is_target_moved(project.id, row, moves) or heads[row.id].target != each.target_oid},
        )
    return landed


async def _find_landed(
    context: Context, project: tables.Project, moves: Mapping[str, RefCommand], prepared: PreparedMergeRequests, done: Collection[int]
) -> list[Landed]:
    """The merge requests into moved branches, except for those with the ids `done`, whose heads the branches contain now."""
    landed = list[Landed]()
    for name, found in (await _open_into(context, project.id, moves)).items():
        others = [(row, row.head_oid) for row in found if row.head_oid is not None and row.id not in done]
        landings = dict(prepared.landings)
        if missing := [(row.id, head) for row, head in others if (row.id, head) not in landings]:
            landings |= await _find_landings(context.services, project.id, moves[name], missing)
        landed += [(row, oid) for row, head in others if (oid := landings.get((row.id, head))) is not None]
    return landed


async def store_imported(context: Context, project: tables.Project, updates: Iterable[RefCommand], prepared: PreparedMergeRequests) -> None:
    """Store the comparisons of the merge requests from branches that an import moves: the source says everything else about them.

    No notes are written, and those into the branches stay as they are until the import is finished.
    """
    outgoing = await _open_from(context, project.id, _branch_moves(updates))
    compared = [(row, prepared.comparisons[row.id]) for row in outgoing if row.id in prepared.comparisons]
    for row, comparison in compared:
        if comparison.is_complete:
            # Without an earlier head nobody is notified of new commits.
            row.head_oid = None
    await merge_request_refresh.apply_comparisons(context, compared)


async def _mark_unchecked(context: Context, project: tables.Project, names: list[str]) -> bool:
    """Mark the open merge requests from and into moved branches as unchecked; returns whether there are any.

    Automatic merges of a source that moved are canceled.
    """
    affected = await context.tuples(merge_request_branches.open_for_update(project.id, names))
    if not affected:
        return False
    for statement in merge_request_branches.mark_unchecked(project.id, names):
        await context.session.execute(statement)
    # Changes of the others are recorded when they are refreshed.
    await change_records.record_merge_requests(
        context, [(key, into, name, state, state) for key, into, name, state, is_changed in affected if is_changed]
    )
    context.wake_maintenance(MaintenanceWork.MERGE_REQUESTS)
    return True


async def _store_comparisons(context: Context, rows: Sequence[merge_request_refresh.Compared], outdated: Collection[int]) -> None:
    """Store comparisons; those of the merge requests with the ids `outdated` are not of the current target."""
    snapshots = [MergeRequestSnapshot.of(row) for row, _ in rows]
    await merge_request_refresh.apply_comparisons(context, rows)
    for row, _ in rows:
        if row.id in outdated:
            row.merge_status = MergeStatus.UNCHECKED
    changed = [(row, before) for (row, _), before in zip(rows, snapshots, strict=True) if MergeRequestSnapshot.of(row) != before]
    await change_records.record_merge_requests(
        context, [(row.id, row.project_id, row.target_branch, before.state, row.state) for row, before in changed]
    )


async def _open_of_moved(
    reader: Context, project_id: int, moves: Mapping[str, RefCommand], excluded_id: int | None
) -> tuple[list[tables.MergeRequest], dict[str, list[tables.MergeRequest]]]:
    """`_open_from` and `_open_into`, of which a single statement finds what most moves have."""
    names = _existing(moves)
    rows: list[Any] | None = None
    if len(names) <= merge_request_branches.MAX_NAMES:
        rows = await _read_open_of_moved(reader, project_id, sorted(names))
    if rows is None or len(rows) == merge_request_branches.MAX_MOVED:
        return await _open_from(reader, project_id, moves), await _open_into(reader, project_id, moves)
    found = [row for (row,) in rows if row.id != excluded_id]
    outgoing = [row for row in found if row.source_project_id == project_id and row.source_branch in names]
    incoming: dict[str, list[tables.MergeRequest]] = {}
    for row in found:
        if row.project_id == project_id and row.target_branch in names:
            incoming.setdefault(row.target_branch, []).append(row)
    return outgoing, incoming


async def _read_open_of_moved(reader: Context, project_id: int, names: Sequence[str]) -> list[Any]:
    match names:
        case []:
            return []
        case [name]:
            return await reader.tuples(merge_request_branches.OPEN_OF_ONE_MOVED, project_id=project_id, name=name)
    return await reader.tuples(merge_request_branches.OPEN_OF_MOVED, project_id=project_id, names=names)


async def _open_from(context: Context, project_id: int, moves: Mapping[str, RefCommand]) -> list[tables.MergeRequest]:
    """The open merge requests from branches that move and still exist."""
    if not (names := _existing(moves)):
        return []
    return [
        row for row in await context.all(_fresh(context, merge_request_branches.open_from(project_id, names))) if row.source_branch in names
    ]


async def _open_into(context: Context, project_id: int, moves: Mapping[str, RefCommand]) -> dict[str, list[tables.MergeRequest]]:
    """The open merge requests into branches that move and still exist, by branch."""
    found: dict[str, list[tables.MergeRequest]] = {}
    if names := _existing(moves):
        for row in await context.all(_fresh(context, merge_request_branches.open_into(project_id, names))):
            if row.target_branch in names:
                found.setdefault(row.target_branch, []).append(row)
    return found


async def _compare(
    services: Services,
    project_id: int,
    row: tables.MergeRequest,
    moves: Mapping[str, RefCommand],
    heads: BranchHeads,
    session: DatabaseSession | None = None,
    *,
    since: int | None = None,
) -> BranchComparison:
    """Compare the moved source with the target, or with the previous target if one push moves both.

    One push may add commits to the source and merge them; comparing with the previous target shows them.
    """
    is_target_moved = _is_target_moved(project_id, row, moves)
    target = moves[row.target_branch].old if is_target_moved else heads.target
    return await branch_comparison.compare_branches(
        services,
        target_project_id=row.project_id,
        source_project_id=row.source_project_id,
        source_branch=row.source_branch,
        target_branch=row.target_branch,
        known_head=row.head_oid if row.commit_count and not is_target_moved else None,
        heads=BranchHeads(moves[row.source_branch].new, target),
        since=since,
        session=session,
    )


def _is_target_moved(project_id: int, row: tables.MergeRequest, moves: Mapping[str, RefCommand]) -> bool:
    return row.project_id == project_id and row.target_branch in moves and moves[row.target_branch].old is not None


def _fresh(context: Context, statement: Select[tables.MergeRequest]) -> Select[tables.MergeRequest]:
    """The statement, which in a writing session replaces what the session has of the rows."""
    return statement if isinstance(context.session, ReadSession) else statement.execution_options(populate_existing=True)


async def _find_landings(
    services: Services, project_id: int, update: RefCommand, shown: Sequence[tuple[int, str | None]]
) -> dict[tuple[int, str], str | None]:
    heads = {head for _, head in shown if head is not None}
    if not heads:
        return {}
    found = await services.repositories.read(project_id, partial(_find_landing_commits, update, heads))
    return {(key, head): found.get(head) for key, head in shown if head is not None}


def _find_landing_commits(update: RefCommand, heads: set[str], repository: Repository) -> dict[str, str]:
    assert update.new is not None  # noqa: S101 - deletions are filtered out
    landed = merge_preview.newly_reachable(repository, update.old, update.new, heads)
    return {head: merge_preview.introducing_commit(repository, head, update.new) for head in sorted(landed)}


async def _by_actor(
    context: Context, rows: Sequence[tuple[tables.MergeRequest, T]]
) -> list[tuple[Context, list[tuple[tables.MergeRequest, T]]]]:
    """The rows with the context of the user who moves the branch; a move without a user is made in the name of each one's author."""
    if context.viewer_or_none is not None:
        return [(context, list(rows))] if rows else []
    by_author: dict[int, list[tuple[tables.MergeRequest, T]]] = {}
    for each in rows:
        by_author.setdefault(each[0].author_id, []).append(each)
    authors = await context.rows_by_id(tables.User).get_many(list(by_author))
    return [(replace(context, viewer_or_none=authors[key]), some) for key, some in by_author.items()]


def _branch_moves(updates: Iterable[RefCommand]) -> dict[str, RefCommand]:
    return {update.ref.removeprefix(BRANCHES): update for update in updates if update.ref.startswith(BRANCHES) and is_storable(update.ref)}


def _existing(moves: Mapping[str, RefCommand]) -> set[str]:
    return {name for name, update in moves.items() if update.new is not None}
