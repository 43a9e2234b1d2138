"""What a merge request may be, what follows from changing it, and what stands in the way of merging it."""

from dataclasses import dataclass
from enum import StrEnum

import orjson

from graph.connections import Listing, Order, Page, Window, paged
from graph.context import Context
from graph.cursors import cursor_of, place_of
from graph.errors import BadRequest, Conflict, Forbidden, Invalid, NotAllowed, NotFound, Required
from graph.events import object_payloads
from graph.events.publish import publish
from graph.rules import automatic_merging, building, closing, commits, finding, issues, naming, refreshing, system_notes
from graph.rules.building import ChecksState
from graph.rules.commits import FULL_ID, ProjectCommit
from graph.rules.mergeable import may_accept
from graph.rules.policy import Action, may, projects_where, require
from graph.rules.proposing import Comparison
from graph.rules.states import MERGE_REQUEST, MergeRequestEvent, in_progress
from storage import tables
from storage.tables import MergeRequestState, MergeStatus, labels, merge_requests
from storage.tables.merge_requests import OPEN

SAME = "You can not use same project/branch for source and target"
UNRELATED = "Source project is not a fork of target project"
EXISTS = "Cannot Create: This merge request already exists"

_MARK = "brought"

UNDECIDED = (ChecksState.PENDING, ChecksState.RUNNING)
FAILED = (ChecksState.FAILED, ChecksState.CANCELED)


class Blocker(StrEnum):
    """What keeps the viewer from merging, or should."""

    CONFLICT = "conflict"
    BUILD_RUNNING = "build_running"
    BUILD_FAILED = "build_failed"
    WORK_IN_PROGRESS = "work_in_progress"
    CLOSED = "closed"
    MERGED = "merged"
    NO_COMMITS = "no_commits"
    NO_PERMISSION = "no_permission"


@dataclass(frozen=True, slots=True)
class Ends:
    """Where a merge request comes from and where it goes."""

    source: tables.Project
    source_branch: str
    target: tables.Project
    target_branch: str


async def ends(context: Context, path: str, target_project_id: int | None, source_branch: str, target_branch: str) -> Ends:
    """What the viewer may open a merge request between: a branch of the project of this path, and one of the same project or of that
    which it was forked from. Whether the branches are there is for `compare`.

    Raises NotFound, Forbidden, Required, Invalid, and NotAllowed for ends that can never meet.
    """
    source = await finding.project(context, path)
    await require(context, Action.CREATE_MERGE_REQUEST, source)
    target = source
    if target_project_id is not None and target_project_id != source.id:
        target = await finding.project(context, str(target_project_id))
        await require(context, Action.READ_MERGE_REQUEST, target)
        if target.archived:
            raise Forbidden("The target project is archived.")
    found = Ends(source, _branch("sourceBranch", source_branch), target, _branch("targetBranch", target_branch))
    _require_different(source.id, found.source_branch, target.id, found.target_branch)
    if target is not source and source.forked_from_id != target.id:
        raise NotAllowed(None, UNRELATED)
    return found


def _branch(field: str, name: str) -> str:
    """A name that a branch could have. Raises Required, Invalid."""
    if not name.strip():
        raise Required(field)
    return naming.clean(field, name, longest=naming.LONGEST_NAME)


def _require_different(source_project_id: int, source_branch: str, project_id: int, target_branch: str) -> None:
    if (source_project_id, source_branch) == (project_id, target_branch):
        raise NotAllowed(None, SAME)


async def compare(context: Context, wanted: Ends) -> Comparison:
    """What lies between two branches; asked before any transaction. Raises Invalid where one is missing, Unavailable."""
    found = await refreshing.compare(
        context.services,
        target_project_id=wanted.target.id,
        source_project_id=wanted.source.id,
        source_branch=wanted.source_branch,
        target_branch=wanted.target_branch,
    )
    if found.head_oid is None:
        raise Invalid("sourceBranch", "is not a branch of the source project")
    _require_target(found)
    return found


async def compare_anew(context: Context, merge_request: tables.MergeRequest, target_branch: str, *, may_be_missing: bool) -> Comparison:
    """The same for one that is there, and a target branch that it may get.

    Raises Invalid where that is missing and may not be, Unavailable.
    """
    row = merge_request
    _branch("targetBranch", target_branch)
    _require_different(row.source_project_id, row.source_branch, row.project_id, target_branch)
    found = await refreshing.compare(
        context.services,
        target_project_id=row.project_id,
        source_project_id=row.source_project_id,
        source_branch=row.source_branch,
        target_branch=target_branch,
    )
    if target_branch != row.target_branch and not may_be_missing:
        _require_target(found)
    return found


def _require_target(found: Comparison) -> None:
    if found.target_oid is None:
        raise Invalid("targetBranch", "is not a branch of the target project")


async def require_no_equal(context: Context, source_project_id: int, source_branch: str, project_id: int, target_branch: str) -> None:
    """Raises Conflict, with the title of the open merge request between these branches."""
    equal = await context.first(merge_requests.open_equal(source_project_id, source_branch, project_id, target_branch))
    if equal is not None:
        raise Conflict(None, f"{EXISTS}: {orjson.dumps([equal.title]).decode()}")


async def hold(context: Context, merge_request: tables.MergeRequest) -> tables.MergeRequest:
    """The merge request as it is now, for a change that no other may cross. Raises NotFound when it was removed meanwhile."""
    held = await context.first(merge_requests.held(merge_request.id))
    if held is None:
        raise NotFound("MergeRequest")
    return held


async def change_state(context: Context, merge_request: tables.MergeRequest, event: MergeRequestEvent) -> bool:
    """Applies the event where the state lists it; otherwise it stays as it is. Says whether anything changed.

    One that is closed does not wait for builds any more. Raises Conflict where an equal one was opened meanwhile.
    """
    row = merge_request
    following = MERGE_REQUEST.get((row.state, event))
    if following is None:
        return False
    if following is MergeRequestState.CLOSED:
        row.closed_at = context.now()
        row.merge_when_build_succeeds, row.merge_params, row.merge_user_id = False, None, None
    else:
        await require_no_equal(context, row.source_project_id, row.source_branch, row.project_id, row.target_branch)
        row.closed_at = None
    row.state = following
    return True


async def change_target(context: Context, merge_request: tables.MergeRequest, target_branch: str) -> None:
    """Turns it to another branch; whoever wished it merged into the one before is not taken to wish it into this one.

    Raises Invalid once it is merged, Conflict where an equal one is open.
    """
    row = merge_request
    if row.state is MergeRequestState.MERGED:
        raise Invalid("targetBranch", "cannot be changed any more: it is merged")
    if row.state in OPEN:
        await require_no_equal(context, row.source_project_id, row.source_branch, row.project_id, target_branch)
    row.target_branch = target_branch
    if row.merge_when_build_succeeds:
        await automatic_merging.stop_waiting(context, row, automatic_merging.CANCELED)


async def look_anew(context: Context, merge_request: tables.MergeRequest, comparison: Comparison | None) -> None:
    """Writes what was compared before the transaction; where that was of other branches, the upkeep compares them."""
    merge_request.merge_status = MergeStatus.UNCHECKED
    if merge_request.state not in OPEN:
        return
    if comparison is not None and comparison.is_of(merge_request):
        await refreshing.apply(context, merge_request, comparison)
    else:
        context.after_commit.append(context.services.upkeep.wake)


async def set_labels(context: Context, project: tables.Project, merge_request: tables.MergeRequest, names: list[str]) -> bool:
    """As `issues.set_labels`; who may not make labels in the project sets those that it has. Raises Invalid."""
    if not await may(context, Action.ADMIN_LABEL, project):
        titles = naming.labels(names)
        there = {label.title for label in await context.all(labels.named(project.id, titles))} if titles else set()
        names = [title for title in titles if title in there]
    return await issues.set_labels(context, merge_request, names)


async def tell(context: Context, merge_request: tables.MergeRequest, before: system_notes.Facts, *, labeled: bool = False) -> None:
    """Tells notes and hooks what a change made of it, if it made anything. `labeled`: whether its labels are others."""
    if system_notes.Facts.of(merge_request) == before and not labeled:
        return
    await system_notes.write_changes(context, merge_request, before)
    if merge_request.description != before.description:
        await closing.record_description(context, merge_request)
    if merge_request.state == before.state:
        action = "update"
    else:
        action = "close" if merge_request.state is MergeRequestState.CLOSED else "reopen"
    await publish(context, object_payloads.MergeRequestChanged, merge_request, action)


async def blockers(context: Context, merge_request: tables.MergeRequest) -> list[Blocker]:
    """What stands in the way, by what is known: nothing is asked of git. Checks count for a viewer who may see them where they stand."""
    row = merge_request
    if row.state is MergeRequestState.MERGED:
        return [Blocker.MERGED]
    if row.state is MergeRequestState.CLOSED:
        return [Blocker.CLOSED]
    found = []
    if row.commit_count == 0 or row.head_oid is None:
        found.append(Blocker.NO_COMMITS)
    elif row.merge_status is MergeStatus.CANNOT_BE_MERGED:
        found.append(Blocker.CONFLICT)
    if row.head_oid is not None and await _may_read_head_checks(context, row):
        state = building.state_of(await building.checks_of(context, (row.source_project_id, row.head_oid)))
        if state in UNDECIDED:
            found.append(Blocker.BUILD_RUNNING)
        elif state in FAILED:
            found.append(Blocker.BUILD_FAILED)
    if in_progress(row.title):
        found.append(Blocker.WORK_IN_PROGRESS)
    if not await may_accept(context, row):
        found.append(Blocker.NO_PERMISSION)
    return found


async def _may_read_head_checks(context: Context, merge_request: tables.MergeRequest) -> bool:
    """Whether the viewer may see the checks of the newest commit: they stand in the project that it was pushed to, as a private fork."""
    row = merge_request
    if row.source_project_id == row.project_id:
        return await may(context, Action.READ_CHECKS, row)
    source = await context.rows_by_id(tables.Project).get(row.source_project_id)
    return source is not None and await may(context, Action.READ_CHECKS, source)


async def may_merge(context: Context, merge_request: tables.MergeRequest) -> bool:
    """Whether the viewer may try: who may move the target branch, while it is open and no work in progress."""
    return merge_request.state in OPEN and not in_progress(merge_request.title) and await may_accept(context, merge_request)


async def may_cancel(context: Context, merge_request: tables.MergeRequest) -> bool:
    """Whether there is an automatic merge that the viewer may take back."""
    row = merge_request
    return row.state in OPEN and row.merge_when_build_succeeds and await automatic_merging.may_cancel(context, row)


async def commit_page(context: Context, merge_request: tables.MergeRequest, window: Window, *, told: bool) -> Page:
    """A page of its commits, newest first, for all merge requests of a level together; `told` as in `commits.all_by_oid`.

    Raises BadRequest, Unavailable.
    """
    row = merge_request
    # No further than its end, so that no sum leaves the range of a number of the database.
    skip = min(window.offset, row.commit_count or 0)
    if window.after is not None:
        place = await context.value(merge_requests.place_of(row.id, place_of(window.after, _MARK, _full_id)))
        if place is None:
            raise BadRequest("This cursor is not one of this list, or its commit is not there any more.")
        skip = place + 1

    async def fetch(ids: list[int]) -> dict[int, list[str]]:
        found: dict[int, list[str]] = {}
        for key, _, oid in await context.tuples(merge_requests.commits_of(ids, skip, window.size + 1)):
            found.setdefault(key, []).append(oid)
        return found

    oids = await context.loader(("commits of merge requests", skip, window.size), fetch).get(row.id) or []
    return Page(
        nodes=await commits.all_by_oid(context, row.project_id, oids[: window.size], told=told),
        has_next=len(oids) > window.size,
        has_previous=skip > 0,
        cursor=lambda commit: cursor_of(_MARK, commit.oid),
        count=lambda: row.commit_count or 0,
    )


async def holding(context: Context, commit: ProjectCommit, window: Window) -> Page:
    """A page of the merge requests that bring a commit, or that it merged, of all projects whose merge requests the viewer sees."""
    listing = Listing(tables.MergeRequest, Order(tables.MergeRequest.id, descending=True))
    bounds, order = listing.bounds(window), listing.ordering(window)

    async def fetch(oids: list[str]) -> dict[str, list[tables.MergeRequest]]:
        found: dict[str, list[tables.MergeRequest]] = {}
        seen = projects_where(context, Action.READ_MERGE_REQUEST)
        for oid, row in await context.tuples(merge_requests.holding(oids, order, window.offset, window.size + 1, *seen, *bounds)):
            found.setdefault(oid, []).append(row)
        return found

    async def fetch_counts(oids: list[str]) -> dict[str, int]:
        seen = projects_where(context, Action.READ_MERGE_REQUEST)
        return dict(map(tuple, await context.tuples(merge_requests.count_holding(oids, *seen))))

    async def count() -> int:
        return await context.loader("merge requests counted by commit", fetch_counts).get(commit.oid) or 0

    return paged(await context.loader(("merge requests by commit", window), fetch).get(commit.oid) or [], window, listing.cursor, count)


def _full_id(oid: str) -> str:
    if not FULL_ID.fullmatch(oid):
        raise ValueError("no id of a commit")
    return oid
