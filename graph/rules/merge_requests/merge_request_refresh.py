"""Refreshes what merge requests store from git: commits, diff totals, and whether they can be merged.

1. When a branch moves, the open merge requests from it and into it are marked unchecked, in the transaction that records the move
   (`mark_unchecked`).
2. After the commit, the merge requests whose source moved, and those that the move merged, are refreshed in the name of the user who
   moved the branch (`refresh_moved`). A maintenance job refreshes the rest, including what a crash interrupted (`refresh_unchecked`).
3. Git runs before the transaction that stores its result. Under the row's lock the branches are read again: if one has moved since, the
   merge request stays unchecked, and a merge in progress is left alone (merging.py).

When its branch or its fork is deleted, a merge request retains its last known values; it cannot be merged until the branch exists
again.
"""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import structlog

from graph.context import Context, Services
from graph.errors import OperationError
from graph.events.object_payloads import MergeRequestChanged
from graph.events.publisher import publish
from graph.operations.transaction import commit_and_notify, session_for
from graph.rules.events import change_records
from graph.rules.issues import issue_closing
from graph.rules.merge_requests.branch_comparison import BranchComparison, compare_branches, load_changes
from graph.rules.snapshots import MergeRequestSnapshot
from graph.rules.validation import is_storable
from storage import tables
from storage.database.engine import DatabaseSession, is_unavailable
from storage.git import merge_preview
from storage.git.merge_preview import BRANCH_PREFIX
from storage.git.protocol.push import RefCommand
from storage.git.repositories import Repositories
from storage.git.repository import NotARepository, Repository, UnknownCommit
from storage.git.subprocesses.git_command import GitCommandError
from storage.tables import MergeRequestState, MergeStatus
from storage.tables.issues import notes
from storage.tables.merge_requests import merge_request_branches as branched
from storage.tables.merge_requests import merge_requests
from storage.tables.merge_requests.merge_requests import OPEN
from storage.tables.projects import projects

__all__ = [
    "BranchComparison",
    "apply_comparison",
    "compare_branches",
    "load_changes",
    "mark_unchecked",
    "pin_head",
    "refresh_moved",
    "refresh_unchecked",
]

MAX_REFRESHED_AFTER_PUSH = 20
"""Merge requests refreshed while the caller of a push waits; the maintenance job refreshes the others."""
MAX_REFRESHED_PER_RUN = 50
"""Merge requests refreshed per run of the maintenance job, so that other jobs can run."""
RETRY_AFTER = timedelta(minutes=5)
"""Back-off of a merge request whose repository cannot be read, per process."""
MAX_TITLE_LENGTH = 255

log = structlog.get_logger("graph")


async def apply_comparison(context: Context, merge_request: tables.MergeRequest, comparison: BranchComparison) -> None:
    """Store a comparison in the row, which is locked or new, and replace the list of its commits.

    If the head has changed, a note by the viewer lists the new commits, and an automatic merge is canceled. If a branch is missing,
    only the status changes. `landed_oid` is ignored.
    """
    row = merge_request
    row.merge_status = comparison.merge_status
    if comparison.is_complete:
        before = (row.head_oid, row.base_oid, row.commit_count)
        row.head_oid, row.base_oid, row.commit_count = comparison.head_oid, comparison.base_oid, comparison.commit_count
        stat = comparison.stat
        row.files, row.additions, row.deletions = (stat.files, stat.additions, stat.deletions) if stat else (None, None, None)
        pushed = before[0] is not None and before[0] != row.head_oid
        if pushed:
            _clear_auto_merge(row)
            row.updated_at = context.now()
            await _note_new_commits(context, row, comparison)
        if before != (row.head_oid, row.base_oid, row.commit_count):
            await _write_commits(context, row.id, comparison.oids)
            await issue_closing.record_closings(context, row, comparison.messages)
        assert row.head_oid is not None  # noqa: S101 - both branches exist
        context.after_commit.append(partial(pin_head, context.services, row.project_id, row.iid, row.head_oid))
        if pushed:
            await context.session.flush()
            await publish(context, MergeRequestChanged, row, "update")
    await context.session.flush()


def _clear_auto_merge(row: tables.MergeRequest) -> None:
    if row.merge_when_build_succeeds:
        row.merge_when_build_succeeds, row.merge_params, row.merge_user_id = False, None, None


async def _write_commits(context: Context, merge_request_id: int, oids: Sequence[str]) -> None:
    await context.session.execute(branched.delete_commits(merge_request_id))
    if oids:
        rows = [{"merge_request_id": merge_request_id, "position": position, "oid": oid} for position, oid in enumerate(oids)]
        await context.session.execute(branched.insert_commits(), rows)


async def _note_new_commits(context: Context, row: tables.MergeRequest, comparison: BranchComparison) -> None:
    """Write the note on commits that the merge request did not have before (docs/wire-facts.md 6), oldest first."""
    known = set(await context.all(branched.oids_of(row.id)))
    new_oids = [oid for oid in comparison.oids if oid not in known]
    if not new_oids:
        return
    shown = [f"* {commit.oid[:8]} - {commit.title[:MAX_TITLE_LENGTH]}" for commit in reversed(comparison.newest) if commit.oid not in known]
    if len(new_oids) > len(shown):
        shown.insert(0, f"* and {len(new_oids) - len(shown)} more")
    await _write_note(context, row, f"Added {len(new_oids)} commit{'s' if len(new_oids) > 1 else ''}:\n\n" + "\n".join(shown))


async def _write_note(context: Context, row: tables.MergeRequest, body: str) -> None:
    moment = context.now()
    note = {"project_id": row.project_id, "merge_request_id": row.id, "author_id": context.viewer.id, "body": body}
    dates = {"created_at": moment, "updated_at": moment}
    await context.session.execute(notes.insert_system_notes(context.services.database.dialect, [{**note, **dates}]))


async def pin_head(services: Services, project_id: int, iid: int, oid: str) -> None:
    """Create the ref that retains the head commit in the target's repository.

    Failures are logged; the next refresh retries.
    """
    try:
        await services.repositories.read(project_id, lambda repository: merge_preview.write_head_ref(repository, iid, oid))
    except (NotARepository, UnknownCommit, GitCommandError, OSError) as error:
        log.error("head ref could not be written", project_id=project_id, iid=iid, head=oid, error=str(error))


async def mark_unchecked(context: Context, project: tables.Project, updates: Iterable[RefCommand]) -> None:
    """Mark the open merge requests from and into moved branches as unchecked.

    Call it in the transaction that records the moves. They are refreshed after the commit. Automatic merges of a source that moved are
    canceled. Takes at most five statements.
    """
    updates = [update for update in updates if update.ref.startswith(BRANCH_PREFIX) and is_storable(update.ref)]
    names = [update.ref.removeprefix(BRANCH_PREFIX) for update in updates]
    # Locked in a fixed order, so that pushes to two projects do not deadlock.
    if not names:
        return
    affected = await context.tuples(branched.open_for_update(project.id, names))
    if not affected:
        return
    for statement in branched.mark_unchecked(project.id, names):
        await context.session.execute(statement)
    # Changes of the others are recorded when they are refreshed.
    await change_records.record_merge_requests(
        context, [(key, into, name, state, state) for key, into, name, state, is_changed in affected if is_changed]
    )
    viewer_id = context.viewer_or_none.id if context.viewer_or_none else None
    context.after_commit.append(partial(refresh_moved, context.services, viewer_id, project.id, updates, context.request_id))


async def refresh_moved(services: Services, viewer_id: int | None, project_id: int, updates: Sequence[RefCommand], request_id: str) -> None:
    """Refresh the merge requests from moved branches, and mark those merged that the moves have merged.

    Acts in the name of the user who moved the branches. Runs after the transaction that recorded the moves, which calls
    `mark_unchecked`. Raises nothing: the maintenance job retries what failed here.
    """
    try:
        await _refresh_moved(services, viewer_id, project_id, updates, request_id)
    except Exception as error:
        if is_unavailable(error):
            log.warning("merge requests could not be refreshed", project_id=project_id, error=type(error).__name__, request_id=request_id)
        else:
            log.error("merge requests could not be refreshed", project_id=project_id, request_id=request_id, exc_info=error)
    services.maintenance_wakeup.notify()


async def _refresh_moved(
    services: Services, viewer_id: int | None, project_id: int, updates: Sequence[RefCommand], request_id: str
) -> None:
    refresher = _Refresher(services, viewer_id, request_id)
    moves = {update.ref.removeprefix(BRANCH_PREFIX): update for update in updates}
    existing_names = [name for name, update in moves.items() if update.new is not None]
    for row in await refresher.read_rows(branched.open_from(project_id, existing_names, MAX_REFRESHED_AFTER_PUSH)):
        target = moves.get(row.target_branch) if row.project_id == project_id else None
        # One push may add commits to the source and merge them; comparing with the previous target shows them.
        await refresher.refresh(row, previous_target=target.old if target else None)
    for row, landed in await refresher.find_landed(project_id, [update for update in updates if update.new is not None]):
        await refresher.mark_merged(row, landed)


async def refresh_unchecked(services: Services) -> None:
    """Maintenance job: refresh open merge requests of branches that moved, oldest first.

    A merge request is unchecked from the move of a branch to its refresh.
    """
    refresher = _Refresher(services, None, "maintenance")
    after = done = 0
    while rows := await refresher.read_rows(branched.unchecked(after, MAX_REFRESHED_PER_RUN)):
        for row in rows:
            after = row.id
            if done == MAX_REFRESHED_PER_RUN:
                services.maintenance_wakeup.notify()
                return
            if refresher.is_backing_off(row.id):
                continue
            done += 1
            try:
                await refresher.refresh(row)
            except OperationError:
                refresher.back_off(row.id)


_retry_times: WeakKeyDictionary[Repositories, dict[int, datetime]] = WeakKeyDictionary()
"""When merge requests whose refresh failed may be retried, by the repositories of the service."""


@dataclass
class _Refresher:
    """Refreshes merge requests in the name of one user; without a user, in the name of each one's author."""

    services: Services
    viewer_id: int | None
    request_id: str

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

    async def refresh(self, row: tables.MergeRequest, *, previous_target: str | None = None) -> bool:
        """Compare the branches and store the result; False if a branch or the row has changed meanwhile.

        Raises Unavailable.
        """
        comparison = await compare_branches(
            self.services,
            target_project_id=row.project_id,
            source_project_id=row.source_project_id,
            source_branch=row.source_branch,
            target_branch=row.target_branch,
            known_head=row.head_oid if row.commit_count else None,
            previous_target=previous_target,
        )
        if previous_target is None and comparison.landed_oid is not None:
            return await self.mark_merged(row, comparison.landed_oid)
        async with session_for(self.services.database, writing=True) as session:
            context, locked = await self._lock(session, row)
            if locked is None or not comparison.matches(locked) or not await self._is_current(comparison, previous_target):
                return False
            before = MergeRequestSnapshot.of(locked)
            await apply_comparison(context, locked, comparison)
            if previous_target is not None:
                locked.merge_status = MergeStatus.UNCHECKED
            await change_records.record_merge_request(context, locked, before)
            await commit_and_notify(context)
        return True

    async def find_landed(self, project_id: int, updates: Sequence[RefCommand]) -> list[tuple[tables.MergeRequest, str]]:
        """Open merge requests whose head these moves added to their target, with the landing commits.

        At most MAX_REFRESHED_AFTER_PUSH.
        """
        found: list[tuple[tables.MergeRequest, str]] = []
        for update in updates:
            rows = await self.read_rows(branched.open_into(project_id, update.ref.removeprefix(BRANCH_PREFIX)))
            heads = {row.head_oid for row in rows if row.head_oid is not None}
            if heads and len(found) < MAX_REFRESHED_AFTER_PUSH:
                landing_commits = await self.services.repositories.read(
                    project_id, partial(_find_landing_commits, update, heads, MAX_REFRESHED_AFTER_PUSH - len(found))
                )
                found += [(row, landing_commits[row.head_oid]) for row in rows if row.head_oid in landing_commits]
        return found

    async def mark_merged(self, row: tables.MergeRequest, landing_oid: str) -> bool:
        """Mark a merge request as merged when the target contains its head in `row`.

        False if it has changed meanwhile.
        """
        async with session_for(self.services.database, writing=True) as session:
            # Projects before their rows: a push locks in the same order, which prevents deadlocks.
            await session.read(projects.for_update(row.project_id))
            context, locked = await self._lock(session, row)
            if locked is None or (locked.head_oid, locked.target_branch) != (row.head_oid, row.target_branch):
                return False
            before, moment = MergeRequestSnapshot.of(locked), context.now()
            _clear_auto_merge(locked)
            locked.state, locked.merge_status = MergeRequestState.MERGED, MergeStatus.CAN_BE_MERGED
            locked.merge_commit_oid, locked.merged_at, locked.updated_at = landing_oid, moment, moment
            locked.merge_user_id = context.viewer.id if context.viewer.id == self.viewer_id else None
            await session.flush()
            await change_records.record_merge_request(context, locked, before)
            await _write_note(context, locked, "Status changed to merged")
            await publish(context, MergeRequestChanged, locked, "merge")
            await issue_closing.close_after_merge(context, locked)
            await commit_and_notify(context)
        return True

    async def _lock(self, session: DatabaseSession, row: tables.MergeRequest) -> tuple[Context, tables.MergeRequest | None]:
        """The current row, locked; None when it is no longer open or a merge of it is in progress."""
        found = await session.read(merge_requests.for_update(row.id))
        locked: tables.MergeRequest | None = found[0][0] if found else None
        if locked is not None and (locked.state not in OPEN or await session.read(merge_requests.intents(row.id))):
            locked = None
        viewer = await session.get(tables.User, self.viewer_id) if self.viewer_id is not None else None
        viewer = viewer or await session.get(tables.User, row.author_id)
        return Context(self.services, session, viewer, self.request_id), locked

    async def _is_current(self, comparison: BranchComparison, previous_target: str | None) -> bool:
        """Whether both branches are still where they were compared.

        It does not use the threads for long reads, because the row is locked.
        """
        path_of = self.services.repositories.path_of
        branches = ((comparison.source_project_id, comparison.source_branch), (comparison.target_project_id, comparison.target_branch))
        source, target = [await asyncio.to_thread(_read_head, path_of(project_id), branch) for project_id, branch in branches]
        return source == comparison.head_oid and (previous_target is not None or target == comparison.target_oid)


def _read_head(path: Path, branch: str) -> str | None:
    try:
        return merge_preview.branch_head(path, branch)
    except NotARepository:
        return None


def _find_landing_commits(update: RefCommand, heads: set[str], limit: int, repository: Repository) -> dict[str, str]:
    assert update.new is not None  # noqa: S101 - deletions are filtered out
    landed = merge_preview.newly_reachable(repository, update.old, update.new, heads)
    return {head: merge_preview.introducing_commit(repository, head, update.new) for head in sorted(landed)[:limit]}
