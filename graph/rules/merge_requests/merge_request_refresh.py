"""Stores what merge requests know from git: commits, diff totals, and whether they can be merged.

The transaction that moves a branch also updates the merge requests from it and those that the move merged (`moved_branches`). It marks the
others into the branch as unchecked; a maintenance job compares them again (`refresh_unchecked`). Git runs before the transaction that
stores its result. Under the row's lock the branches are read again: if one has moved since, the merge request stays unchecked.

When its branch or its fork is deleted, a merge request retains its last known values; it cannot be merged until the branch exists
again.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from weakref import WeakKeyDictionary

import structlog

from graph.context import Context, Services
from graph.errors import OperationError
from graph.events.object_payloads import MergeRequestChanged
from graph.events.publisher import publish_all
from graph.jobs.maintenance_wakeup import MaintenanceWork
from graph.operations.transaction import commit_and_notify, session_for
from graph.rules.events import activities, change_records
from graph.rules.git import refs
from graph.rules.issues import issue_closing
from graph.rules.merge_requests import branch_comparison
from graph.rules.merge_requests.branch_comparison import BranchComparison, is_current
from graph.rules.notes import system_notes
from graph.rules.snapshots import MergeRequestSnapshot
from storage import tables
from storage.database.errors import is_unavailable
from storage.disk_full import is_disk_full
from storage.git.repositories import Repositories
from storage.tables import ActivitySubject, MergeRequestState, MergeStatus
from storage.tables.merge_requests import merge_request_branches, merge_requests
from storage.tables.merge_requests.merge_requests import OPEN
from storage.tables.projects import projects

MAX_REFRESHED_PER_RUN = 50
"""Merge requests refreshed per run of the maintenance job, so that other jobs can run."""
RETRY_AFTER = timedelta(minutes=5)
"""Back-off of a merge request whose repository cannot be read, per process."""
MAX_TITLE_LENGTH = 255

Compared = tuple[tables.MergeRequest, BranchComparison]

log = structlog.get_logger("graph")


async def apply_comparison(context: Context, merge_request: tables.MergeRequest, comparison: BranchComparison) -> None:
    """Store a comparison in the row, which is locked or new, and replace the list of its commits.

    If the head has changed, a note by the viewer lists the new commits, and an automatic merge is canceled. If a branch is missing,
    only the status changes. `landed_oid` is ignored.
    """
    await apply_comparisons(context, [(merge_request, comparison)])


async def apply_comparisons(context: Context, comparisons: Sequence[Compared]) -> None:
    """As `apply_comparison`, for any number of merge requests; the number of statements does not depend on it."""
    pushed, changed, heads = list[Compared](), list[Compared](), dict[tuple[int, int], str]()
    for row, comparison in comparisons:
        row.merge_status = comparison.merge_status
        if not comparison.is_complete:
            continue
        before = (row.head_oid, row.base_oid, row.commit_count)
        row.head_oid, row.base_oid, row.commit_count = comparison.head_oid, comparison.base_oid, comparison.commit_count
        stat = comparison.stat
        row.files, row.additions, row.deletions = (stat.files, stat.additions, stat.deletions) if stat else (None, None, None)
        if before[0] is not None and before[0] != row.head_oid:
            _clear_auto_merge(row)
            row.updated_at = context.now()
            pushed.append((row, comparison))
        if before != (row.head_oid, row.base_oid, row.commit_count):
            changed.append((row, comparison))
        assert row.head_oid is not None  # noqa: S101 - both branches exist
        heads[row.project_id, row.iid] = row.head_oid
    await _note_new_commits(context, pushed)
    if changed:
        await _write_commits(context, changed)
        await issue_closing.record_closings(context, [(row, comparison.messages) for row, comparison in changed])
    await refs.upsert_merge_request_heads(context, heads)
    await context.session.flush()
    await publish_all(context, MergeRequestChanged, [(context, row, "update") for row, _ in pushed])


def _clear_auto_merge(row: tables.MergeRequest) -> None:
    if row.merge_when_build_succeeds:
        row.merge_when_build_succeeds, row.merge_params, row.merge_user_id = False, None, None


async def _write_commits(context: Context, changed: Sequence[Compared]) -> None:
    await context.session.execute(merge_request_branches.delete_commits([row.id for row, _ in changed]))
    rows = [
        {"merge_request_id": row.id, "position": position, "oid": oid}
        for row, comparison in changed
        for position, oid in enumerate(comparison.oids)
    ]
    if rows:
        await context.session.execute(merge_request_branches.insert_commits(), rows)


async def _note_new_commits(context: Context, pushed: Sequence[Compared]) -> None:
    """Write the notes on commits that the merge requests did not have before (docs/wire-facts.md 6), oldest first."""
    known: dict[int, set[str]] = {row.id: set() for row, _ in pushed}
    if known:
        for key, oid in await context.tuples(merge_request_branches.oids_of(list(known))):
            known[key].add(oid)
    bodies = []
    for row, comparison in pushed:
        new_oids = [oid for oid in comparison.oids if oid not in known[row.id]]
        if new_oids:
            new = [commit for commit in reversed(comparison.newest) if commit.oid not in known[row.id]]
            shown = [f"* {commit.oid[:8]} - {commit.title[:MAX_TITLE_LENGTH]}" for commit in new]
            if len(new_oids) > len(shown):
                shown.insert(0, f"* and {len(new_oids) - len(shown)} more")
            bodies.append((row, f"Added {len(new_oids)} commit{'s' if len(new_oids) > 1 else ''}:\n\n" + "\n".join(shown)))
    _write_notes(context, bodies)


def _write_notes(context: Context, bodies: Sequence[tuple[tables.MergeRequest, str]]) -> None:
    moment = context.now()
    common = {"author_id": context.viewer.id, "created_at": moment, "updated_at": moment} if bodies else {}
    rows = [{**common, "project_id": row.project_id, "merge_request_id": row.id, "body": body} for row, body in bodies]
    system_notes.write_notes(context, rows)


async def refresh_unchecked(services: Services) -> None:
    """Maintenance job: refresh open merge requests of branches that moved, oldest first.

    A merge request is unchecked from the move of a branch to its refresh.
    """
    refresher = _Refresher(services)
    after = done = 0
    while rows := await refresher.read_rows(merge_request_branches.unchecked(after, MAX_REFRESHED_PER_RUN)):
        for row in rows:
            after = row.id
            if done == MAX_REFRESHED_PER_RUN:
                services.maintenance_wakeup.notify(MaintenanceWork.MERGE_REQUESTS)
                return
            if refresher.is_backing_off(row.id):
                continue
            done += 1
            try:
                await refresher.refresh(row)
            except OperationError:
                refresher.back_off(row.id)
            except Exception as error:
                if is_unavailable(error) or is_disk_full(error):
                    raise
                # The others are refreshed nevertheless.
                log.error("merge request could not be refreshed", merge_request_id=row.id, exc_info=error)
                refresher.back_off(row.id)


_retry_times: WeakKeyDictionary[Repositories, dict[int, datetime]] = WeakKeyDictionary()
"""When merge requests whose refresh failed may be retried, by the repositories of the service."""


async def mark_merged(context: Context, landed: Sequence[tuple[tables.MergeRequest, str]], merger: tables.User | None) -> None:
    """Mark locked merge requests as merged, because these commits of their targets contain their heads.

    `merger` is the user who moved the branch, if known; the notes are the viewer's. Statements depend on the number of projects only.
    """
    if not landed:
        return
    changes, moment = list[tuple[int, int, str, MergeRequestState | None, MergeRequestState]](), context.now()
    for row, landed_oid in landed:
        changes.append((row.id, row.project_id, row.target_branch, row.state, MergeRequestState.MERGED))
        _clear_auto_merge(row)
        row.state, row.merge_status = MergeRequestState.MERGED, MergeStatus.CAN_BE_MERGED
        row.merge_commit_oid, row.merged_at, row.updated_at = landed_oid, moment, moment
        row.merge_user_id = merger.id if merger else None
    rows = [row for row, _ in landed]
    await context.session.flush()
    await change_records.record_merge_requests(context, changes)
    _write_notes(context, [(row, "Status changed to merged") for row in rows])
    for row in rows:
        activities.record_change(context, ActivitySubject.MERGE_REQUEST, row, "merge")
    await publish_all(context, MergeRequestChanged, [(context, row, "merge") for row in rows])
    await issue_closing.close_after_merges(context, rows)


@dataclass
class _Refresher:
    """Refreshes merge requests in the name of each one's author."""

    services: Services

    async def read_rows(self, statement: Any) -> list[tables.MergeRequest]:
        async with self.services.database.read_session() as session:
            return [row[0] for row in await session.read(statement)]

    def is_backing_off(self, merge_request_id: int) -> bool:
        until = _retry_times.get(self.services.repositories, {}).get(merge_request_id)
        return until is not None and self.services.clock() < until

    def back_off(self, merge_request_id: int) -> None:
        now = self.services.clock()
        retry_times = {key: until for key, until in _retry_times.get(self.services.repositories, {}).items() if until > now}
        _retry_times[self.services.repositories] = {**retry_times, merge_request_id: now + RETRY_AFTER}

    async def refresh(self, row: tables.MergeRequest) -> bool:
        """Compare the branches and store the result; False if a branch or the row has changed meanwhile.

        Raises Unavailable.
        """
        comparison = await branch_comparison.compare_branches(
            self.services,
            target_project_id=row.project_id,
            source_project_id=row.source_project_id,
            source_branch=row.source_branch,
            target_branch=row.target_branch,
            known_head=row.head_oid if row.commit_count else None,
        )
        async with session_for(self.services.database, writing=True) as session:
            # Projects before their rows: a push locks in the same order, which prevents deadlocks.
            await session.read(projects.for_update(row.project_id))
            found = await session.read(merge_requests.for_update(row.id))
            locked: tables.MergeRequest | None = found[0][0] if found else None
            context = Context(self.services, session, await session.get(tables.User, row.author_id), "maintenance")
            if locked is None or locked.state not in OPEN or not await is_current(context, locked, comparison):
                return False
            if comparison.landed_oid is not None and locked.head_oid == row.head_oid:
                await mark_merged(context, [(locked, comparison.landed_oid)], None)
            else:
                before = MergeRequestSnapshot.of(locked)
                await apply_comparison(context, locked, comparison)
                await change_records.record_merge_request(context, locked, before)
            await commit_and_notify(context)
        return True
