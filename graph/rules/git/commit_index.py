"""The index of commits and branch heads in the database, which spares lists and joins walking git.

The repository is authoritative. The order of steps survives a crash at any point:

1. Commits are inserted in chunks, each in a short transaction that does not change existing rows.
2. The head of a branch is written (`write_heads`) only after all commits reachable from it are indexed. A branch whose head is in the
   database is therefore completely indexed, and an interrupted run is repeated from the recorded head.

`index_reconciler` finds what was never written, because a process crashed or a ref was changed outside of the service.
"""

import contextlib
import re
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from time import monotonic
from typing import Any

import structlog

from graph.context import Context, Services
from graph.errors import NotFound
from graph.events.payloads import full_path
from graph.operations.transaction import write_transaction
from graph.rules.ci import pipeline_planner
from graph.rules.ci.pipeline_planner import PipelinePlan
from graph.rules.git import health_checks_due, indexed_commits
from storage import tables
from storage.git import commit_walk
from storage.git.commits import GitCommit
from storage.git.protocol.push import RefCommand
from storage.git.repository import NotARepository, Repository
from storage.git.subprocesses.git_command import GitCommandError
from storage.tables.git import branch_moves, branches
from storage.tables.projects import projects

BRANCHES = "refs/heads/"
MAX_LISTED_COMMITS = 20
MAX_REPORTED_BRANCHES = 100
"""Branches per push whose updates list commits; for the others the commits are only indexed."""
MAX_MENTIONING_COMMITS = 10_000
MAX_MENTIONING_CHARACTERS = 16_000_000
MAX_COMMITS_IN_OPERATION = 1_000
"""Commits that one operation may index in its own transaction."""
ROWS_PER_STATEMENT = 500
PROGRESS_LOG_SECONDS = 2.0

_MENTION_PATTERN = re.compile(r"[#!]\d|https?://")

log = structlog.get_logger("graph")

ChunkWriter = Callable[[list[GitCommit]], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class RefUpdate:
    """The result of indexing the update of one ref.

    - `total`: number of commits added to the branch: reachable from the new head, not from the old one. A new branch adds the commits
      that no other branch had; a new default branch adds all of its commits.
    - `commits`: the newest of them, newest first, at most MAX_LISTED_COMMITS.
    - `mentioning`: of the default branch only, those whose message may refer to an issue, newest first, at most MAX_MENTIONING_COMMITS.
    - `is_indexed`: the index has all commits of the branch.
    - `plan`: the pipeline to create, also for a tag.

    For tags, deleted refs, and branches beyond MAX_REPORTED_BRANCHES of one push, the counts and lists are empty.
    """

    update: RefCommand
    total: int = 0
    commits: tuple[GitCommit, ...] = ()
    mentioning: tuple[GitCommit, ...] = ()
    is_indexed: bool = False
    plan: PipelinePlan | None = None

    @property
    def is_new(self) -> bool:
        """Whether the ref did not exist before."""
        return self.update.old is None


async def index_updates(services: Services, project_id: int, updates: Sequence[RefCommand]) -> list[RefUpdate]:
    """Index the commits of these ref updates in separate transactions, and plan their pipelines.

    One `RefUpdate` each, in order. Call it outside of any writing transaction. Raises NotFound when the project is deleted meanwhile.
    For an unreadable repository the results are empty and not `is_indexed`.
    """
    ref_updates = await _index_commits(services, project_id, updates)
    plans = await pipeline_planner.plan_updates(
        services.repositories, project_id, updates, lambda: _load_path_if_built(services, project_id)
    )
    return [replace(ref_updates[update], plan=plans.get(update)) for update in updates]


async def _index_commits(services: Services, project_id: int, updates: Sequence[RefCommand]) -> dict[RefCommand, RefUpdate]:
    """The results of `index_updates` without plans."""
    if not any(_is_branch(update) for update in updates):
        return {update: RefUpdate(update) for update in updates}
    try:
        if await _is_unindexed(services, project_id):
            # Otherwise its other branches would appear newly created as soon as this one has a head.
            await index_imported(services, project_id)
        async with services.index_drift.semaphore:
            known, default = await _load_heads_and_default(services, project_id)
            for update in updates:
                # Heads written by an earlier attempt, or by the call above, must still be reported.
                if known.get(update.ref.removeprefix(BRANCHES)) == update.new:
                    known.pop(update.ref.removeprefix(BRANCHES), None)
            return await _CommitIndexer(services, project_id, known, default, _chunk_writer(services, project_id)).index_updates(updates)
    except (NotARepository, GitCommandError) as error:
        log.error("push could not be indexed", project_id=project_id, error=str(error))
        return {update: RefUpdate(update) for update in updates}


async def index_in_transaction(context: Context, project: tables.Project, update: RefCommand) -> RefUpdate:
    """Like `index_updates` for one ref that the operation updates, within its transaction.

    If the branch adds more than MAX_COMMITS_IN_OPERATION commits to the index, or the repository was never indexed, the result is not
    `is_indexed` and `index_reconciler` indexes the branch later.
    """
    if not _is_branch(update):
        return RefUpdate(update)
    ref_update = await _index_commits_in_transaction(context, project, update)

    async def path() -> str | None:
        return await full_path(context, project) if project.builds_enabled else None

    plans = await pipeline_planner.plan_updates(context.services.repositories, project.id, [update], path)
    return replace(ref_update, plan=plans.get(update))


async def _index_commits_in_transaction(context: Context, project: tables.Project, update: RefCommand) -> RefUpdate:
    services, remaining = context.services, MAX_COMMITS_IN_OPERATION
    known = await _load_heads(context, project.id)
    if not known and project.default_branch is not None:
        return RefUpdate(update)

    async def write(chunk: list[GitCommit]) -> None:
        nonlocal remaining
        missing = await indexed_commits.filter_missing(context, project.id, chunk)
        remaining -= len(missing)
        if remaining < 0:
            raise _TooManyCommits
        await indexed_commits.insert_commits(context.session, services, project.id, missing)

    indexer = _CommitIndexer(services, project.id, known, project.default_branch, write)
    try:
        return (await indexer.index_updates([update]))[update]
    except _TooManyCommits:
        return RefUpdate(update)
    except (NotARepository, GitCommandError) as error:
        log.error("branch could not be indexed", project_id=project.id, error=str(error))
        return RefUpdate(update)


async def write_heads(context: Context, project_id: int, ref_updates: Sequence[RefUpdate]) -> None:
    """Write the current branch heads and delete those of deleted branches, in the caller's transaction.

    The caller has locked the project. A head is written only if the branch is still there: pushes may be recorded in either order, and
    the later one has moved the branch on.
    """
    moved = [each for each in ref_updates if each.update.ref.startswith(BRANCHES) and _is_storable(each.update.ref)]
    if not moved:
        return
    refs = [each.update.ref for each in moved]
    try:
        current_heads = await context.services.repositories.read(
            project_id, lambda repository: {ref: repository.find_ref(ref) for ref in refs}
        )
    except NotARepository as error:
        log.error("branch heads could not be written", project_id=project_id, error=str(error))
        return
    moment = context.now()
    rows = {
        each.update.ref: {
            "project_id": project_id,
            "name": each.update.ref.removeprefix(BRANCHES),
            "oid": each.update.new,
            "updated_at": moment,
        }
        for each in moved
        if each.is_indexed and each.update.new == current_heads[each.update.ref]
    }
    deleted = [ref.removeprefix(BRANCHES) for ref, oid in current_heads.items() if oid is None]
    for part in _split_batches([*rows.values(), *({"project_id": project_id, "name": name, "oid": None} for name in deleted)]):
        await _record_moves(context, project_id, {row["name"]: row["oid"] for row in part}, moment)
    for part in _split_batches(list(rows.values())):
        await context.session.execute(branches.upsert_heads(context.services.database.dialect, part))
    for names in _split_batches(deleted):
        await context.session.execute(branches.delete_branches(project_id, names))
    if any(oid is not None and ref not in rows for ref, oid in current_heads.items()):
        flag_drift(context.services, project_id)


async def _record_moves(context: Context, project_id: int, heads: Mapping[str, str | None], moment: datetime) -> None:
    """Record which of these branches have a new head (None: were deleted), before the heads are written."""
    before = dict(await context.tuples(branches.heads_named(project_id, heads)))
    moved = [(name, oid) for name, oid in heads.items() if before.get(name) != oid]
    if moved:
        rows = [{"project_id": project_id, "name": name, "oid": oid, "moved_at": moment} for name, oid in moved]
        await context.session.execute(branch_moves.insert_moves(), rows)
        await health_checks_due.schedule_health_checks(context, project_id, [(name, None) for name, oid in moved if oid is not None])


async def index_imported(services: Services, project_id: int) -> None:
    """Index the commits and heads of an imported repository, without the effects of a push.

    Raises NotFound when the project is deleted meanwhile, NotARepository, GitCommandError.
    """
    with services.index_drift.recording(project_id):
        heads = await services.repositories.read(project_id, commit_walk.branch_heads)
        updates = [RefCommand(BRANCHES + name, None, oid) for name, oid in heads.items()]
        if not updates:
            return
        async with services.index_drift.semaphore:
            known, _ = await _load_heads_and_default(services, project_id)
            await _CommitIndexer(services, project_id, known, None, _chunk_writer(services, project_id)).index_tips(set(heads.values()))
        async with write_transaction(services.database) as session:
            context = Context(services, session, None, "index")
            if await context.first(projects.for_update(project_id)) is not None:
                await write_heads(context, project_id, [RefUpdate(update, is_indexed=True) for update in updates])
        services.maintenance_wakeup.notify()


async def index_all(services: Services, project_id: int) -> None:
    """Index every commit of the branches that the index lacks, also below recorded heads.

    Raises as `index_imported` does.
    """
    heads = await services.repositories.read(project_id, commit_walk.branch_heads)
    async with services.index_drift.semaphore:
        await _CommitIndexer(services, project_id, {}, None, _chunk_writer(services, project_id)).index_tips(set(heads.values()))


def index_after_commit(context: Context, project_id: int) -> None:
    """Index a new project's repository after the commit. If it fails, `index_reconciler` completes it."""
    services = context.services

    async def run() -> None:
        try:
            await index_imported(services, project_id)
        except Exception as error:
            log.error("repository could not be indexed", project_id=project_id, error=str(error) or type(error).__name__)
            flag_drift(services, project_id)

    context.after_commit.append(run)


def flag_drift(services: Services, project_id: int) -> None:
    """Have `index_reconciler` examine a project whose index differs from its repository."""
    if services.index_drift.mark_drifted(project_id):
        services.maintenance_wakeup.notify()


async def flag_drift_of_heads(context: Context, project_id: int, heads: Sequence[tuple[str, str]], total: int | None = None) -> None:
    """Flag drift where the index differs from these (name, id) of branches.

    `total` is their number, if they were counted. Takes one statement per level, and none for a single branch that was recently found
    consistent.
    """
    drift, single = context.services.index_drift, (project_id, heads[0]) if len(heads) == 1 and total is None else None
    if single is not None and drift.is_consistent(single):
        return

    async def fetch(keys: list[tuple[int, tuple[str, ...]]]) -> dict[tuple[int, tuple[str, ...]], dict[str | None, str]]:
        found: dict[int, dict[str | None, str]] = {project_id: {} for project_id, _ in keys}
        names = {name for _, some in keys for name in some}
        for owner, name, oid in await context.tuples(branches.NAMED_HEADS_AND_COUNTS, project_ids=sorted(found), names=sorted(names)):
            found[owner][name] = oid
        return {key: found[key[0]] for key in keys}

    storable_heads = {name: oid for name, oid in heads if _is_storable(name)}
    found = await context.loader("branch heads", fetch).get((project_id, tuple(storable_heads))) or {}
    counted = total is not None and len(storable_heads) == len(heads)
    if any(found.get(name) != oid for name, oid in storable_heads.items()) or (counted and found.get(None, "0") != str(total)):
        flag_drift(context.services, project_id)
    elif single is not None:
        drift.mark_consistent(single)


class _TooManyCommits(Exception):
    """The update has more commits than one operation may index."""


class _CommitIndexer:
    """Indexes the new commits of one push; the set of known heads grows with each branch."""

    def __init__(self, services: Services, project_id: int, known: dict[str, str], default: str | None, write: ChunkWriter) -> None:
        self._services = services
        self._project_id = project_id
        self._known = set(known.values())
        self._default = default
        self._write = write
        self._done = 0
        self._reported_at = monotonic()

    async def index_updates(self, updates: Sequence[RefCommand]) -> dict[RefCommand, RefUpdate]:
        """The results by update."""
        ref_updates = {update: RefUpdate(update) for update in updates}
        moved = [update for update in ref_updates if _is_branch(update)]
        # The default branch comes first, because its new commits count even if other branches have them too.
        moved.sort(key=self._is_default, reverse=True)
        for update in moved[:MAX_REPORTED_BRANCHES]:
            ref_updates[update] = await self._index_update(update)
        if others := moved[MAX_REPORTED_BRANCHES:]:
            await self.index_tips({update.new for update in others if update.new})
            ref_updates |= {update: RefUpdate(update, is_indexed=True) for update in others}
        return ref_updates

    async def index_tips(self, tips: Collection[str]) -> None:
        """Index all commits reachable from these."""
        if tips := set(tips) - self._known:
            await self._walk(tips, self._known, self._write)
            self._known |= tips

    async def _index_update(self, update: RefCommand) -> RefUpdate:
        assert update.new is not None  # noqa: S101 - _is_branch
        is_default = self._is_default(update)
        if update.old is not None:
            before = {update.old}
        else:
            before = set() if is_default else set(self._known)
        if before <= self._known:
            ref_update = await self._walk({update.new}, before, self._write, mentioning=is_default)
        else:
            await self.index_tips({update.new})
            ref_update = await self._walk({update.new}, before, None, mentioning=is_default)
        self._known.add(update.new)
        return replace(ref_update, update=update, is_indexed=True)

    def _is_default(self, update: RefCommand) -> bool:
        return update.ref == f"{BRANCHES}{self._default}"

    async def _walk(
        self, tips: Collection[str], known: Collection[str], write: ChunkWriter | None, *, mentioning: bool = False
    ) -> RefUpdate:
        total, newest, mentions, characters = 0, list[GitCommit](), list[GitCommit](), 0
        if set(tips) <= set(known):
            return RefUpdate(_NO_UPDATE)
        repositories = self._services.repositories
        chunks = await repositories.read(self._project_id, lambda repository: commit_walk.walk_new_commits(repository, tips, known))
        expected: int | None = None
        try:
            while chunk := await repositories.read(self._project_id, lambda _: next(chunks, None)):
                total += len(chunk)
                newest += chunk[: MAX_LISTED_COMMITS - len(newest)]
                for commit in chunk if mentioning else ():
                    if (
                        _MENTION_PATTERN.search(commit.message)
                        and len(mentions) < MAX_MENTIONING_COMMITS
                        and characters < MAX_MENTIONING_CHARACTERS
                    ):
                        mentions.append(commit)
                        characters += len(commit.message)
                if write is not None:
                    await write(chunk)
                    if len(chunk) == commit_walk.MAX_CHUNK_COMMITS and expected is None:
                        expected = (
                            await repositories.read(
                                self._project_id, lambda repository: commit_walk.count_new_commits(repository, tips, known)
                            )
                            or 0
                        )
                    if expected is not None:
                        self._report_progress(total, expected)
        finally:
            with contextlib.suppress(ValueError):  # a canceled thread still runs it and closes it at its end
                chunks.close()
        if expected is not None:
            log.info("commits indexed", project_id=self._project_id, done=total)
        return RefUpdate(_NO_UPDATE, total, tuple(newest), tuple(mentions))

    def _report_progress(self, done: int, total: int) -> None:
        if self._services.progress is not None:
            self._services.progress("indexing commits", done, max(done, total))
        if monotonic() - self._reported_at >= PROGRESS_LOG_SECONDS:
            self._reported_at = monotonic()
            log.info("indexing commits", project_id=self._project_id, done=done, total=max(done, total))


_NO_UPDATE = RefCommand("", None, None)


async def _load_heads(context: Context, project_id: int) -> dict[str, str]:
    return dict(await context.tuples(branches.heads(project_id)))


async def _load_default_branch(context: Context, project_id: int) -> str | None:
    """The default branch of the project, or else of the repository. Raises NotFound."""
    project = await context.first(projects.by_id(project_id))
    if project is None:
        raise NotFound("Project")
    return project.default_branch or await context.services.repositories.read(project_id, Repository.default_branch)


async def _load_path_if_built(services: Services, project_id: int) -> str | None:
    """The full path of a project with builds enabled, else None."""
    async with services.database.read_session() as session:
        context = Context(services, session, None, "index")
        project = await context.first(projects.by_id(project_id))
        return await full_path(context, project) if project is not None and project.builds_enabled else None


async def _is_unindexed(services: Services, project_id: int) -> bool:
    """Whether the repository had branches before it was first indexed."""
    async with services.database.read_session() as session:
        context = Context(services, session, None, "index")
        if await context.tuples(branches.heads(project_id).limit(1)):
            return False
        project = await context.first(projects.by_id(project_id))
        return project is not None and project.default_branch is not None


async def _load_heads_and_default(services: Services, project_id: int) -> tuple[dict[str, str], str | None]:
    """The heads in the index, and the default branch."""
    async with services.database.read_session() as session:
        context = Context(services, session, None, "index")
        return await _load_heads(context, project_id), await _load_default_branch(context, project_id)


def _chunk_writer(services: Services, project_id: int) -> ChunkWriter:
    async def write(chunk: list[GitCommit]) -> None:
        await indexed_commits.write_missing_commits(services, project_id, chunk)

    return write


def _is_branch(update: RefCommand) -> bool:
    return update.new is not None and update.ref.startswith(BRANCHES)


def _is_storable(ref: str) -> bool:
    """Whether the database can store the name; see `storage.git.commit_walk.branch_heads`."""
    name = ref.removeprefix(BRANCHES)
    return len(name) <= commit_walk.MAX_BRANCH_NAME_LENGTH and not any(
        letter == "\ufffd" or "\ud800" <= letter <= "\udfff" for letter in name
    )


def _split_batches(rows: list[Any]) -> Iterator[list[Any]]:
    for start in range(0, len(rows), ROWS_PER_STATEMENT):
        yield rows[start : start + ROWS_PER_STATEMENT]
