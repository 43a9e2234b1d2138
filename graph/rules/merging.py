"""Accepting merge requests: a real merge commit in the target's repository, and the row that says so, whatever happens between.

Before anything is kept, rights and state are looked at and the objects of the merge commit are written and synced: no writer waits for
git, and objects that no ref reaches harm nobody. Then the effects, in the order that survives a crash at any point:

1. A transaction holds the row, looks again whether it may be merged and whether it is still what was merged, and writes an intent.
2. The target's ref moves by compare-and-swap from the commit that was merged into to the merge commit. Who loses the swap takes the
   intent back and begins anew, at most `MOST_TRIES` times.
3. A transaction makes the row merged, with all that follows from it, and removes the intent. Then the caller is answered.

A crash before 2 leaves an intent whose commit the target does not hold: nothing was merged, and `repair` removes it. A crash after 2
leaves one whose commit the target holds: `repair`, or the next who wants to merge it, does 3. The other order of 2 and 3 would leave
rows that say merged while nothing was; without the intent nobody would know of a ref without its row.

The source branch is removed after 3, as by a push of its own: what a crash leaves there is a branch that somebody deletes by hand.
"""

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from time import monotonic
from typing import Any, TypeVar
from weakref import WeakValueDictionary

import structlog

from graph.context import Context, Services
from graph.errors import Conflict, NotFound, NotMergeable, OperationError, Unavailable
from graph.events.object_payloads import MergeRequestChanged
from graph.events.publish import publish
from graph.rules import changes, closing, indexing, pushing, refreshing, system_notes
from graph.rules.changes import Shown
from graph.rules.commits import in_repository
from graph.rules.indexing import News
from graph.rules.mergeable import CANNOT, head_of, join, require_acceptable
from graph.rules.proposing import Comparison
from graph.rules.pushing import BRANCHES, Move
from graph.rules.system_notes import Facts
from graph.transaction import Steps, session_for, steps
from storage import tables
from storage.database import is_unavailable
from storage.git import merge
from storage.git.program import GitFailed
from storage.git.pushes import Update
from storage.git.repository import NotARepository, RefMoved, Repository, UnknownCommit
from storage.tables import MergeRequestState, MergeStatus, merge_requests, projects

MOST_TRIES = 5
"""How often a merge is computed while others move the target."""
SWAP_SECONDS = 30.0
"""An intent older than this is not acted on by who wrote it, so that `repair` may remove it after REPAIR_SECONDS."""
REPAIR_SECONDS = 60.0
FINISH_SECONDS = 5.0
"""How long a caller who is given up stays for the end of what is under way."""
RECORDING_PAUSES = (0.2, 1.0, 2.0)
"""Seconds between the tries of step 3, while the database cannot take it."""

log = structlog.get_logger("graph")

T = TypeVar("T")

_turns: WeakValueDictionary[tuple[int, int, str], asyncio.Lock] = WeakValueDictionary()
_under_way: set[asyncio.Task[Any]] = set()


@dataclass(frozen=True, slots=True)
class Wish:
    """How a merge is asked for: the text of its commit, None for the default; `sha` is the head that was seen, where it is to be that."""

    message: str | None = None
    remove_source_branch: bool = False
    sha: str | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """A merge whose objects are written: `new` joins `old`, the target's head, and `source`.

    `row` is the merge request as it was then; `comparison` is what it brings, where the row does not say so.
    """

    row: tables.MergeRequest
    wish: Wish
    source: str
    old: str
    new: str
    comparison: Comparison | None


async def accept(context: Context, merge_request: tables.MergeRequest, wish: Wish = Wish()) -> tables.MergeRequest:
    """Merges now; gives the row as it is then. The operation has changed nothing yet, and its rows are not to be changed after this.

    Raises NotFound, Forbidden, NotAllowed, Conflict when the head is not `wish.sha` or the target keeps moving, NotMergeable, Unavailable.
    """
    step = await steps(context)
    async with _turn(context.services, merge_request.project_id, merge_request.target_branch):
        for _ in range(MOST_TRIES):
            plan = await _plan(context, step, merge_request.id, wish)
            merged = await _to_its_end(_effects(context, step, plan))
            if merged is not None:
                return merged
    raise Conflict(None, "The branches keep moving; try again.")


async def repair(services: Services) -> None:
    """Finishes merges whose ref has moved, and removes the intents of those whose ref has not, once they are old.

    A finished one is finished at any age: step 3 looks under the row's lock whether it is still to be done, so the writer of the intent
    may be alive. One whose ref has not moved may be on its way in any process, also at start, so only its age tells; nothing waits for it.
    """
    async with services.database.reading() as session:
        found = [tuple(row) for row in await session.read(merge_requests.intents())]
    for intent, project_id in found:
        try:
            await _repair_one(services, intent, project_id)
        except OperationError as error:
            log.warning("merge not repaired", merge_request_id=intent.merge_request_id, error=error.message)


async def acceptable(early: Context, merge_request_id: int) -> tables.MergeRequest:
    """The row as it is now, in a session that only reads. Raises NotFound, Forbidden, NotAllowed."""
    row = await early.first(merge_requests.numbered(merge_request_id))
    if row is None:
        raise NotFound("MergeRequest")
    await require_acceptable(early, row)
    return row


async def again(context: Context, merge_request_id: int) -> tables.MergeRequest:
    """The row as it is now, held until this step ends. Raises NotFound when it was removed meanwhile."""
    row = await context.first(merge_requests.held(merge_request_id))
    if row is None:
        raise NotFound("MergeRequest")
    return row


def _turn(services: Services, project_id: int, branch: str) -> asyncio.Lock:
    """The merges of one process into a branch go one after the other, so that none loses its swap to its neighbour."""
    return _turns.setdefault((id(services), project_id, branch), asyncio.Lock())


async def _plan(context: Context, step: Steps, merge_request_id: int, wish: Wish) -> Plan:
    """Before the effects: what may be merged, as its merge commit that no ref reaches yet."""
    async with context.aside() as early:
        row = await acceptable(early, merge_request_id)
        source = await head_of(early, row)
    if wish.sha is not None and wish.sha.lower() != source:
        raise Conflict("sha", "The source branch has moved meanwhile; look at it again.")
    if source is None:
        raise NotMergeable(None, CANNOT)
    comparison = None
    if (row.head_oid, row.merge_status) != (source, MergeStatus.CAN_BE_MERGED):
        # What was merged is kept as it was seen last, so it is looked at before.
        comparison = await refreshing.compare(
            context.services,
            target_project_id=row.project_id,
            source_project_id=row.source_project_id,
            source_branch=row.source_branch,
            target_branch=row.target_branch,
        )
    joined = await join(context, row, source, wish.message)
    if joined is None:
        raise NotMergeable(None, CANNOT)
    old, new = joined
    if new is None:
        await _explain_nothing_to_merge(context, step, row)
        raise NotMergeable(None, CANNOT)
    return Plan(row, wish, source, old, new, comparison)


async def _explain_nothing_to_merge(context: Context, step: Steps, row: tables.MergeRequest) -> None:
    """The target holds the source already: does step 3 of a merge that was cut short. Raises NotAllowed for one that is merged then."""
    async with context.aside() as early:
        left = [tuple(found) for found in await early.session.read(merge_requests.intents(row.id))]
    for intent, project_id in left:
        await _repair_one(context.services, intent, project_id)
    async with context.aside() as early:
        await acceptable(early, row.id)


async def _effects(context: Context, step: Steps, plan: Plan) -> tables.MergeRequest | None:
    """Steps 1 to 3; the merged row, or None when the branches or the merge request changed meanwhile."""
    intent = await step(partial(_intend, plan))
    if intent is None:
        return None
    with context.services.noticed.recording(plan.row.project_id):
        try:
            swapped = await _swap(context, plan)
        except OSError as error:
            await step(partial(_forget, intent.id))
            log.error("branch not moved", merge_request_id=plan.row.id, request_id=context.request_id, error=str(error))
            raise Unavailable("The disk is full or cannot be written; nothing was merged.") from error
        except OperationError:
            await step(partial(_forget, intent.id))
            raise
        if not swapped:
            await step(partial(_forget, intent.id))
            return None
        return await _finish(context, step, intent, plan.row.project_id)


async def _intend(plan: Plan, own: Context) -> tables.MergeIntent | None:
    """Step 1. Raises NotFound, Forbidden, NotAllowed."""
    row = await again(own, plan.row.id)
    await require_acceptable(own, row)
    then = plan.row
    if (row.source_project_id, row.source_branch, row.target_branch) != (then.source_project_id, then.source_branch, then.target_branch):
        return None
    if plan.comparison is not None and plan.comparison.head_oid == plan.source and row.head_oid in (then.head_oid, plan.source):
        shown = Shown.of(row)
        await refreshing.apply(own, row, plan.comparison)
        await changes.of_merge_request(own, row, shown)
    if row.head_oid != plan.source:
        # The source was pushed to since.
        return None
    intent = tables.MergeIntent(
        merge_request_id=row.id,
        user_id=own.viewer.id,
        target_branch=row.target_branch,
        old_oid=plan.old,
        new_oid=plan.new,
        params={"source": plan.source, "remove_source_branch": plan.wish.remove_source_branch},
    )
    return await own.add(intent)


async def _swap(context: Context, plan: Plan) -> bool:
    """Step 2: whether the target has moved from `old` to `new`. Raises Unavailable, OSError (ENOSPC)."""
    ref, latest = BRANCHES + plan.row.target_branch, monotonic() + SWAP_SECONDS

    def work(repository: Repository) -> bool:
        if monotonic() > latest:
            # All threads were taken for that long; the intent may be removed soon.
            return False
        try:
            repository.move_ref(ref, plan.new, plan.old)
        except (RefMoved, GitFailed, OSError) as error:
            # Whatever git said: what the ref names is what has happened.
            if repository.find(ref) == plan.new:
                return True
            if isinstance(error, OSError):
                raise
            return False
        return True

    return await in_repository(context, plan.row.project_id, work)


async def _forget(intent_id: int, own: Context) -> None:
    await own.session.execute(merge_requests.forget_intent(intent_id))


async def _finish(context: Context, step: Steps, intent: tables.MergeIntent, project_id: int) -> tables.MergeRequest:
    """Step 3 and what comes after it. May be done twice, by whoever is alive: the second finds the row merged. Raises NotFound."""
    update = Update(BRANCHES + intent.target_branch, intent.old_oid, intent.new_oid)
    for pause in (*RECORDING_PAUSES, None):
        try:
            news = await indexing.index(context.services, project_id, [update])
            row = await step(partial(_record, intent, project_id, news))
            break
        except Exception as error:
            if pause is None or not is_unavailable(error):
                raise
            await asyncio.sleep(pause)
    if intent.params.get("remove_source_branch"):
        try:
            await _remove_source(context, step, row, intent.params["source"])
        except Exception as error:
            log.error("source branch not removed", merge_request_id=row.id, error=str(error), request_id=context.request_id)
    return row


async def _record(intent: tables.MergeIntent, project_id: int, news: list[News], own: Context) -> tables.MergeRequest:
    """Step 3. The project is held first, as by a push, so that neither waits for the other for ever."""
    project = await own.first(projects.held(project_id))
    if project is None:
        raise NotFound("Project")
    row = await again(own, intent.merge_request_id)
    if row.state is not MergeRequestState.MERGED:
        before, shown, moment = Facts.of(row), Shown.of(row), own.now()
        row.state, row.merge_status = MergeRequestState.MERGED, MergeStatus.CAN_BE_MERGED
        row.target_branch, row.head_oid, row.merge_commit_oid = intent.target_branch, intent.params["source"], intent.new_oid
        row.merge_user_id, row.merge_params = intent.user_id, None
        row.merged_at = row.updated_at = moment
        row.closed_at = None
        await own.session.flush()
        await changes.of_merge_request(own, row, shown)
        await system_notes.write_changes(own, row, before)
        await publish(own, MergeRequestChanged, row, "merge")
        await closing.after_merge(own, row)
        await pushing.pushed(own, project, [each.update for each in news], news)
    await _forget(intent.id, own)
    return row


async def _remove_source(context: Context, step: Steps, row: tables.MergeRequest, source: str) -> None:
    """Removes the source branch, if it is still what was merged and the viewer may: never a default or a protected one."""
    async with context.aside() as early:
        project = await early.rows_by_id(tables.Project).get(row.source_project_id)
        if project is None or row.source_branch == project.default_branch:
            return
        if (project.id, row.source_branch) == (row.project_id, row.target_branch):
            return
        if row.source_branch in await pushing.protections_of(early, project.id):
            return
        if Move.DELETE not in await pushing.moves_of(early, project, row.source_branch):
            return
    update = Update(BRANCHES + row.source_branch, source, None)
    try:
        await context.services.repositories.read(project.id, lambda repository: repository.move_ref(update.ref, None, source))
    except (RefMoved, NotARepository):
        return
    news = await indexing.index(context.services, project.id, [update])

    async def record(own: Context) -> None:
        now = await own.rows_by_id(tables.Project).get(project.id)
        if now is not None:
            await pushing.pushed(own, now, [update], news)

    await step(record)


async def _repair_one(services: Services, intent: tables.MergeIntent, project_id: int) -> None:
    ref = BRANCHES + intent.target_branch

    def moved(repository: Repository) -> bool:
        tip = repository.find(ref)
        try:
            return tip is not None and merge.is_ancestor(repository, intent.new_oid, tip)
        except UnknownCommit:
            return False

    try:
        done = await services.repositories.read(project_id, moved)
    except (NotARepository, GitFailed) as error:
        log.error("merge not repaired", merge_request_id=intent.merge_request_id, error=str(error))
        return
    old = services.clock() - intent.created_at > timedelta(seconds=REPAIR_SECONDS)
    if not done and not old:
        return
    async with session_for(services.database, writing=True) as session:
        viewer = await _merger(services, intent)
        if viewer is None:
            return
        context = Context(services, session, viewer, "upkeep")
        step = await steps(context)
        if done:
            await _to_its_end(_finish(context, step, intent, project_id))
            log.info("merge finished", merge_request_id=intent.merge_request_id, target=intent.target_branch)
        else:
            await step(partial(_forget, intent.id))
            log.info("merge taken back", merge_request_id=intent.merge_request_id, target=intent.target_branch)


async def _merger(services: Services, intent: tables.MergeIntent) -> tables.User | None:
    """Who merges; where that user was deleted meanwhile, the author stands in. None when the merge request is gone as well."""
    async with services.database.reading() as session:
        found = await session.read(merge_requests.merger(intent.id))
        return found[0][0] if found else None


async def _to_its_end(work: Coroutine[Any, Any, T]) -> T:
    """Goes on with the work also when its caller is given up, who stays for a while to see it end; what is left then is repaired."""
    task = asyncio.ensure_future(work)
    _under_way.add(task)
    task.add_done_callback(_ended)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task], timeout=FINISH_SECONDS)
        raise


def _ended(task: asyncio.Task[Any]) -> None:
    _under_way.discard(task)
    if not task.cancelled() and (error := task.exception()) is not None:
        # Whoever waited was told as well.
        log.debug("merge not finished", error=type(error).__name__)
