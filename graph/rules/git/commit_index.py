"""The index of commits in the database, which spares lists and joins walking git. It repeats facts about immutable objects.

1. Many commits are inserted in chunks before the move of a branch, each in a short transaction that does not change existing rows.
2. The transaction that moves the branch inserts the last ones, which are all of most pushes, and marks its ref as indexed
   (`GitRef.is_indexed`).

An imported repository is indexed after the project was created; a start completes what a crash interrupted (`index_unfinished`).
"""

import asyncio
import contextlib
import re
from collections.abc import AsyncGenerator, Collection, Sequence
from dataclasses import dataclass, replace
from time import monotonic
from typing import Any

import structlog

from graph.context import Context, Services
from graph.errors import NotFound
from graph.events.payloads import full_path
from graph.jobs.maintenance_wakeup import MaintenanceWork
from graph.operations.transaction import write_transaction
from graph.rules.branches import health_checks_due
from graph.rules.ci import pipeline_planner
from graph.rules.ci.pipeline_planner import PipelinePlan
from graph.rules.git import absent_commits, indexed_commits, refs
from graph.rules.git.row_batches import split_rows
from storage import tables
from storage.git.commits import GitCommit
from storage.git.history import commit_walk
from storage.git.protocol.push import RefCommand
from storage.git.refs.ref_names import BRANCHES, DEFAULT_HEAD, choose_default_branch
from storage.index_comparison import list_absent_commits
from storage.tables.git import branch_moves, commits
from storage.tables.git import refs as git_refs
from storage.tables.projects import projects

MAX_LISTED_COMMITS = 20
MAX_REPORTED_BRANCHES = 100
"""Branches per push whose updates list commits; for the others the commits are only indexed."""
MAX_MENTIONING_COMMITS = 10_000
MAX_MENTIONING_CHARACTERS = 16_000_000
MAX_DEFERRED_COMMITS = 100
"""Commits that are left to the transaction of the move, which they must not make long."""
PROGRESS_LOG_SECONDS = 2.0

_MENTION_PATTERN = re.compile(r"[#!]\d|https?://")

log = structlog.get_logger("graph")


@dataclass(frozen=True, slots=True)
class RefUpdate:
    """The result of indexing the update of one ref.

    - `total`: number of commits added to the branch: reachable from the new head, not from the old one. A new branch adds the commits
      that no other branch had; a new default branch adds all of its commits.
    - `commits`: the newest of them, newest first, at most MAX_LISTED_COMMITS.
    - `mentioning`: of the default branch only, those whose message may refer to an issue, newest first, at most MAX_MENTIONING_COMMITS.
    - `plan`: the pipeline to create, also for a tag.

    For tags, deleted refs, and branches beyond MAX_REPORTED_BRANCHES of one push, the counts and lists are empty.
    """

    update: RefCommand
    total: int = 0
    commits: tuple[GitCommit, ...] = ()
    mentioning: tuple[GitCommit, ...] = ()
    plan: PipelinePlan | None = None

    @property
    def is_new(self) -> bool:
        """Whether the ref did not exist before."""
        return self.update.old is None


async def index_updates(
    services: Services, project_id: int, updates: Sequence[RefCommand]
) -> tuple[list[RefUpdate], tuple[GitCommit, ...]]:
    """Index the commits of these ref updates, and plan their pipelines, before the refs move.

    Returns one `RefUpdate` each, in order, and the commits that the transaction of the move has to insert. Call it outside of any writing
    transaction. Raises NotFound when the project is deleted meanwhile, NotARepository, GitCommandError.
    """
    known, project = await _load_heads_and_project(services, project_id, updates)
    if not known and project.default_branch is not None:
        # An interrupted import. Otherwise commits of its other branches would count as new.
        await index_imported(services, project_id)
        known, project = await _load_heads_and_project(services, project_id)
    # Beside the walk, because both wait for threads most of the time.
    (found, deferred), plans = await asyncio.gather(
        _index(services, project_id, project, known, updates),
        pipeline_planner.plan_updates(
            services.repositories, project_id, updates, lambda: _load_path_if_built(services, project_id), services.ci_file_version
        ),
    )
    return [replace(found[update], plan=plans.get(update)) for update in updates], deferred


async def _index(
    services: Services, project_id: int, project: tables.Project, known: dict[str, str], updates: Sequence[RefCommand]
) -> tuple[dict[RefCommand, RefUpdate], tuple[GitCommit, ...]]:
    async with services.index_semaphore:
        names = {*known, *(update.ref.removeprefix(BRANCHES) for update in updates if _is_branch(update))}
        default = project.default_branch or choose_default_branch(project.unborn_branch or DEFAULT_HEAD, names)
        writer = _CommitWriter(services, project_id, MAX_DEFERRED_COMMITS)
        return await _CommitIndexer(services, project_id, known, default, writer).index_updates(updates), tuple(writer.deferred)


def record_moves(context: Context, project_id: int, updates: Sequence[RefCommand]) -> None:
    """Record the new heads of indexed branches, and schedule health checks, in the transaction that moves or marks the branches."""
    moment = context.now()
    moved = [update for update in updates if update.old != update.new and git_refs.can_be_indexed(update.ref)]
    heads = {update.ref.removeprefix(BRANCHES): update.new for update in moved}
    moves: list[dict[str, Any]] = [{"project_id": project_id, "name": name, "oid": oid, "moved_at": moment} for name, oid in heads.items()]
    for part in split_rows(moves):
        context.insert_later(branch_moves.insert_moves(), part)
        existing = [(row["name"], None) for row in part if row["oid"] is not None]
        health_checks_due.schedule_health_checks(context, project_id, existing)


async def index_imported(services: Services, project_id: int) -> None:
    """Index the commits of all branches that are not indexed, without the effects of a push.

    Raises NotFound when the project is deleted meanwhile, NotARepository, GitCommandError.
    """
    async with services.database.read_session() as session:
        found = set(map(tuple, await session.read(git_refs.unindexed_branches(project_id))))
    if not found:
        return
    async with services.index_semaphore:
        known, _ = await _load_heads_and_project(services, project_id)
        indexer = _CommitIndexer(services, project_id, known, None, _CommitWriter(services, project_id))
        await indexer.index_tips({oid for _, _, oid in found})
    async with write_transaction(services.database) as session:
        context = Context(services, session, None, "index")
        if await context.first(projects.for_update(project_id)) is not None:
            # A branch that has moved meanwhile was indexed by its move.
            current = found & set(map(tuple, await context.tuples(git_refs.unindexed_branches(project_id))))
            for names in split_rows([name for _, name, _ in current]):
                await context.session.execute(git_refs.mark_indexed(project_id, names))
            record_moves(context, project_id, [RefCommand(name, None, oid) for _, name, oid in current])
    services.maintenance_wakeup.notify(MaintenanceWork.BRANCH_HEALTH)


async def index_all(services: Services, project_id: int) -> None:
    """Index every commit of the branches that the index lacks, also below indexed heads.

    Raises as `index_imported` does.
    """
    async with services.database.read_session() as session:
        heads = await refs.in_folder(Context(services, session, None, "index"), project_id, BRANCHES)
    async with services.index_semaphore:
        await _CommitIndexer(services, project_id, {}, None, _CommitWriter(services, project_id)).index_tips(set(heads.values()))
    await index_imported(services, project_id)


async def rebuild_index(services: Services, project_id: int) -> None:
    """Rebuild the index of a project from its refs and its repository, without relying on existing rows.

    Raises as `index_imported` does.
    """
    async for absent in list_absent_commits(services.database, services.repositories, project_id):
        await absent_commits.delete_absent_commits(services, project_id, absent)
    await index_all(services, project_id)


async def index_unfinished(services: Services) -> None:
    """Index the branches that an interrupted import left unindexed. Failures are logged; the next start retries."""
    async with services.database.read_session() as session:
        found = await session.read(git_refs.unindexed_branches())
    for project_id in sorted({project_id for project_id, _, _ in found}):
        await _index_or_log(services, project_id)


def index_after_commit(context: Context, project_id: int) -> None:
    """Index a new project's repository after the commit. A start completes what failed."""
    context.after_commit.append(lambda: _index_or_log(context.services, project_id))


async def _index_or_log(services: Services, project_id: int) -> None:
    try:
        await index_imported(services, project_id)
    except Exception as error:
        log.error("repository could not be indexed", project_id=project_id, error=str(error) or type(error).__name__)


class _CommitWriter:
    """Inserts commits in chunks; the last ones, at most `max_deferred`, remain in `deferred`."""

    def __init__(self, services: Services, project_id: int, max_deferred: int = 0) -> None:
        self._services = services
        self._project_id = project_id
        self._max_deferred = max_deferred
        self.deferred: list[GitCommit] = []

    async def write(self, chunk: list[GitCommit]) -> None:
        """Raises NotFound when the project is deleted."""
        self.deferred += chunk
        if len(self.deferred) > self._max_deferred:
            await indexed_commits.write_missing_commits(self._services, self._project_id, self.deferred)
            self.deferred = []

    async def first_indexed(self, oids: Sequence[str]) -> int | None:
        """The position of the first of these commits that the index has, or will have."""
        async with self._services.database.read_session() as session:
            found = set(await session.read(commits.existing_oids(self._project_id, oids)))
        indexed = {oid for (oid,) in found} | {commit.oid for commit in self.deferred}
        return next((position for position, oid in enumerate(oids) if oid in indexed), None)


class _CommitIndexer:
    """Indexes the new commits of one push; the set of known heads grows with each branch."""

    def __init__(self, services: Services, project_id: int, known: dict[str, str], default: str | None, writer: _CommitWriter) -> None:
        self._services = services
        self._project_id = project_id
        self._known = set(known.values())
        self._default = default
        self._default_head = known.get(default) if default is not None else None
        self._writer = writer
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
        return ref_updates

    async def index_tips(self, tips: Collection[str]) -> None:
        """Index all commits reachable from these."""
        if tips := set(tips) - self._known:
            await self._walk(tips, self._known, self._writer)
            self._known |= tips

    async def _index_update(self, update: RefCommand) -> RefUpdate:
        assert update.new is not None  # noqa: S101 - _is_branch
        is_default = self._is_default(update)
        if update.old is not None:
            before = {update.old}
        else:
            before = set() if is_default else set(self._known)
        if before <= self._known:
            ref_update = await self._walk({update.new}, before, self._writer, mentioning=is_default)
        else:
            await self.index_tips({update.new})
            ref_update = await self._walk({update.new}, before, None, mentioning=is_default)
        self._known.add(update.new)
        return replace(ref_update, update=update)

    def _is_default(self, update: RefCommand) -> bool:
        return update.ref == f"{BRANCHES}{self._default}"

    async def _walk(
        self, tips: Collection[str], known: Collection[str], writer: _CommitWriter | None, *, mentioning: bool = False
    ) -> RefUpdate:
        if set(tips) <= set(known):
            return RefUpdate(_NO_UPDATE)
        # The walk reads the repository again for each chunk.
        async with self._services.repositories.use(self._project_id):
            return await self._walk_chunks(tips, known, writer, mentioning=mentioning)

    async def _walk_chunks(
        self, tips: Collection[str], known: Collection[str], writer: _CommitWriter | None, *, mentioning: bool
    ) -> RefUpdate:
        total, newest, mentions, characters = 0, list[GitCommit](), list[GitCommit](), 0
        repositories = self._services.repositories
        expected: int | None = None
        async with contextlib.aclosing(self._read_chunks(tips, known)) as chunks:
            async for chunk in chunks:
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
                if writer is not None:
                    await writer.write(chunk)
                    if len(chunk) == commit_walk.MAX_CHUNK_COMMITS and expected is None:
                        expected = (
                            await repositories.read(
                                self._project_id, lambda repository: commit_walk.count_new_commits(repository, tips, known)
                            )
                            or 0
                        )
                    if expected is not None:
                        self._report_progress(total, expected)
        if expected is not None:
            log.info("commits indexed", project_id=self._project_id, done=total)
        return RefUpdate(_NO_UPDATE, total, tuple(newest), tuple(mentions))

    async def _read_chunks(self, tips: Collection[str], known: Collection[str]) -> AsyncGenerator[list[GitCommit]]:
        repositories = self._services.repositories
        if known:
            few = await self._read_chain(tips, known)
        else:
            few = await repositories.read(self._project_id, lambda repository: commit_walk.read_short_history(repository, tips))
        if few is not None:
            yield few
            return
        chunks = await repositories.read(self._project_id, lambda repository: commit_walk.walk_new_commits(repository, tips, known))
        try:
            while chunk := await repositories.read(self._project_id, lambda _: next(chunks, None)):
                yield chunk
        finally:
            with contextlib.suppress(ValueError):  # a canceled thread still runs it and closes it at its end
                chunks.close()

    async def _read_chain(self, tips: Collection[str], known: Collection[str]) -> list[GitCommit] | None:
        """The new commits if they are few above one commit, or a short chain without merges; otherwise None."""
        if len(tips) != 1:
            return None
        (tip,) = tips
        repositories = self._services.repositories
        if len(known) == 1:
            (old,) = known
            found = await repositories.read(self._project_id, lambda repository: commit_walk.read_range(repository, tip, old))
            if found is not None:
                return found
        chain = await repositories.read(self._project_id, lambda repository: commit_walk.raw_chain(repository, tip, known))
        if chain is None:
            return None
        if len(known) > 1 or chain[-1][0] not in known:
            # A commit that the index lacks is no ancestor of an indexed head. Most branches begin below the head of another.
            position = await self._writer.first_indexed([oid for oid, _ in chain])
            if position is None:
                return None
            chain = chain[: position + 1]
        return await repositories.read(
            self._project_id, lambda repository: commit_walk.parse_chain(repository, chain, known, self._default_head)
        )

    def _report_progress(self, done: int, total: int) -> None:
        if self._services.progress is not None:
            self._services.progress("indexing commits", done, max(done, total))
        if monotonic() - self._reported_at >= PROGRESS_LOG_SECONDS:
            self._reported_at = monotonic()
            log.info("indexing commits", project_id=self._project_id, done=done, total=max(done, total))


_NO_UPDATE = RefCommand("", None, None)


async def _load_heads(context: Context, project_id: int) -> dict[str, str]:
    return {name.removeprefix(BRANCHES): oid for name, oid in await context.tuples(git_refs.indexed_heads(project_id))}


async def _load_path_if_built(services: Services, project_id: int) -> str | None:
    """The full path of a project with builds enabled, else None."""
    async with services.database.read_session() as session:
        context = Context(services, session, None, "index")
        project = await context.first(projects.by_id(project_id))
        return await full_path(context, project) if project is not None and project.builds_enabled else None


async def _load_heads_and_project(
    services: Services, project_id: int, updates: Sequence[RefCommand] = ()
) -> tuple[dict[str, str], tables.Project]:
    """The heads in the index, and the project; of updates that only move indexed branches, the heads of these. Raises NotFound."""
    async with services.database.read_session() as session:
        context = Context(services, session, None, "index")
        moved = {update.ref: update.old for update in updates if _is_branch(update)}
        if 0 < len(moved) <= MAX_REPORTED_BRANCHES and None not in moved.values():
            rows = await context.tuples(git_refs.INDEXED_HEADS_AND_PROJECT, project_id=project_id, names=list(moved))
            heads = {name.removeprefix(BRANCHES): oid for _, name, oid in rows if name is not None}
            if rows and rows[0][0].default_branch is not None and set(moved.values()) <= set(heads.values()):
                return heads, rows[0][0]
        project = await context.first(projects.by_id(project_id))
        if project is None:
            raise NotFound("Project")
        return await _load_heads(context, project_id), project


def _is_branch(update: RefCommand) -> bool:
    return update.new is not None and update.ref.startswith(BRANCHES)
