"""The index of commits and branch heads: what the database repeats of the repositories, so that lists and joins need not walk them.

The repository stays the truth. The order that survives a crash at any point:
1. Commits are written in chunks, each a short transaction of its own that changes nothing which is there already.
2. The head of a branch is written (`write_heads`) only when all that it holds is indexed. A branch whose head the database has is
   therefore known whole, and what was cut short before is begun anew from there.

What is never written here, since a process died or a ref was changed behind the service's back, is found by `reconciling`.
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
from graph.rules import branch_looks, indexed_commits
from graph.rules.ci import planning
from graph.rules.ci.planning import Plan
from graph.transaction import kept
from storage import tables
from storage.git import indexing
from storage.git.commits import Commit
from storage.git.program import GitFailed
from storage.git.pushes import Update
from storage.git.repository import NotARepository, Repository
from storage.tables import branch_moves, branches, projects

BRANCHES = "refs/heads/"
LARGEST_SHOWN = 20
MOST_TOLD = 100
"""Branches of one push whose news are told; of the others only the commits are indexed."""
MOST_MENTIONING = 10_000
MENTIONING_CHARACTERS = 16_000_000
MOST_WITHIN = 1_000
"""Commits that one operation may index itself."""
ROWS_AT_ONCE = 500
TOLD_SECONDS = 2.0

_MENTION = re.compile(r"[#!]\d|https?://")

log = structlog.get_logger("graph")

Write = Callable[[list[Commit]], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class News:
    """What the move of one ref brought.

    `total` commits came to the branch: what it holds and did not before; a branch that is new brings what no other branch had, and
    the default branch all that it holds. `commits` are the newest of them, newest first, at most LARGEST_SHOWN. `mentioning` are those,
    newest first, whose message may name an issue; of the default branch only, at most MOST_MENTIONING. Of a tag, of what is gone, and
    of branches beyond the MOST_TOLD of one push nothing is told. `indexed` says that the index has all that the branch holds.
    `plan` is what is to be built for it, also for a tag.
    """

    update: Update
    total: int = 0
    commits: tuple[Commit, ...] = ()
    mentioning: tuple[Commit, ...] = ()
    indexed: bool = False
    plan: Plan | None = None

    @property
    def is_new(self) -> bool:
        """Whether the ref was not there before."""
        return self.update.old is None


async def index(services: Services, project_id: int, updates: Sequence[Update]) -> list[News]:
    """Indexes what these moves brought, in transactions of its own, and plans what to build; one `News` for each of them, in their order.

    To be called outside of any writing transaction. Raises NotFound when the project goes meanwhile. Of a repository that
    cannot be read nothing is told, and nothing is `indexed`.
    """
    told = await _told(services, project_id, updates)
    plans = await planning.plans(services.repositories, project_id, updates, lambda: _built_path(services, project_id))
    return [replace(told[update], plan=plans.get(update)) for update in updates]


async def _told(services: Services, project_id: int, updates: Sequence[Update]) -> dict[Update, News]:
    """The news of `index`, without plans."""
    if not any(_is_branch(update) for update in updates):
        return {update: News(update) for update in updates}
    try:
        if await _is_unindexed(services, project_id):
            # Else its other branches would look, once this one has a head, as if somebody had made them just now.
            await adopt(services, project_id)
        async with services.noticed.turns:
            known, default = await _begin(services, project_id)
            for update in updates:
                # What an earlier try, or the line above, has written of them already is no reason to tell nothing.
                if known.get(update.ref.removeprefix(BRANCHES)) == update.new:
                    known.pop(update.ref.removeprefix(BRANCHES), None)
            return await _Reading(services, project_id, known, default, _writing(services, project_id)).read(updates)
    except (NotARepository, GitFailed) as error:
        log.error("push not indexed", project_id=project_id, error=str(error))
        return {update: News(update) for update in updates}


async def index_within(context: Context, project: tables.Project, update: Update) -> News:
    """The same for the ref that an operation moves or is about to move, within its transaction.

    A branch that brings more than MOST_WITHIN commits to the index, and one of a repository that was never indexed, is left to
    `reconciling`: its `News` are not `indexed`.
    """
    if not _is_branch(update):
        return News(update)
    told = await _told_within(context, project, update)

    async def path() -> str | None:
        return await full_path(context, project) if project.builds_enabled else None

    plans = await planning.plans(context.services.repositories, project.id, [update], path)
    return replace(told, plan=plans.get(update))


async def _told_within(context: Context, project: tables.Project, update: Update) -> News:
    services, left = context.services, MOST_WITHIN
    known = await _known(context, project.id)
    if not known and project.default_branch is not None:
        return News(update)

    async def write(chunk: list[Commit]) -> None:
        nonlocal left
        fresh = await indexed_commits.fresh(context, project.id, chunk)
        left -= len(fresh)
        if left < 0:
            raise _TooMany
        await indexed_commits.insert(context.session, services, project.id, fresh)

    reading = _Reading(services, project.id, known, project.default_branch, write)
    try:
        return (await reading.read([update]))[update]
    except _TooMany:
        return News(update)
    except (NotARepository, GitFailed) as error:
        log.error("branch not indexed", project_id=project.id, error=str(error))
        return News(update)


async def write_heads(context: Context, project_id: int, news: Sequence[News]) -> None:
    """Writes where the branches are now, and forgets those that are gone, in the caller's transaction, which holds the project.

    A head is written only where the branch still is: records of two pushes may come in either order, and the later one has moved on.
    """
    moved = [each for each in news if each.update.ref.startswith(BRANCHES) and _storable(each.update.ref)]
    if not moved:
        return
    refs = [each.update.ref for each in moved]
    try:
        now = await context.services.repositories.read(project_id, lambda repository: {ref: repository.find(ref) for ref in refs})
    except NotARepository as error:
        log.error("branch heads not written", project_id=project_id, error=str(error))
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
        if each.indexed and each.update.new == now[each.update.ref]
    }
    gone = [ref.removeprefix(BRANCHES) for ref, oid in now.items() if oid is None]
    for part in _parts([*rows.values(), *({"project_id": project_id, "name": name, "oid": None} for name in gone)]):
        await _record_moves(context, project_id, {row["name"]: row["oid"] for row in part}, moment)
    for part in _parts(list(rows.values())):
        await context.session.execute(branches.move(context.services.database.dialect, part))
    for names in _parts(gone):
        await context.session.execute(branches.forget(project_id, names))
    if any(oid is not None and ref not in rows for ref, oid in now.items()):
        notice(context.services, project_id)


async def _record_moves(context: Context, project_id: int, heads: Mapping[str, str | None], moment: datetime) -> None:
    """Writes down which of these branches have come to another commit (None: to none), before their heads are written."""
    before = dict(await context.tuples(branches.among(project_id, heads)))
    moved = [(name, oid) for name, oid in heads.items() if before.get(name) != oid]
    if moved:
        rows = [{"project_id": project_id, "name": name, "oid": oid, "moved_at": moment} for name, oid in moved]
        await context.session.execute(branch_moves.record(), rows)
        await branch_looks.ask(context, project_id, [(name, None) for name, oid in moved if oid is not None])


async def adopt(services: Services, project_id: int) -> None:
    """Indexes a repository that came whole, as an import does: its commits and its heads, and nothing follows from them.

    Raises NotFound when the project goes meanwhile, NotARepository, GitFailed.
    """
    with services.noticed.recording(project_id):
        heads = await services.repositories.read(project_id, indexing.heads)
        updates = [Update(BRANCHES + name, None, oid) for name, oid in heads.items()]
        if not updates:
            return
        async with services.noticed.turns:
            known, _ = await _begin(services, project_id)
            await _Reading(services, project_id, known, None, _writing(services, project_id)).take(set(heads.values()))
        async with kept(services.database) as session:
            context = Context(services, session, None, "index")
            if await context.first(projects.held(project_id)) is not None:
                await write_heads(context, project_id, [News(update, indexed=True) for update in updates])
        services.upkeep.wake()


async def index_all(services: Services, project_id: int) -> None:
    """Indexes every commit of the branches that is not in the index, also below heads that it has. Raises as `adopt`."""
    heads = await services.repositories.read(project_id, indexing.heads)
    async with services.noticed.turns:
        await _Reading(services, project_id, {}, None, _writing(services, project_id)).take(set(heads.values()))


def adopted_later(context: Context, project_id: int) -> None:
    """Has a new project's repository indexed once the project is kept. What is cut short is left to `reconciling`."""
    services = context.services

    async def begin() -> None:
        try:
            await adopt(services, project_id)
        except Exception as error:
            log.error("repository not indexed", project_id=project_id, error=str(error) or type(error).__name__)
            notice(services, project_id)

    context.after_commit.append(begin)


def notice(services: Services, project_id: int) -> None:
    """Has `reconciling` look at a project whose index differs from its repository."""
    if services.noticed.note(project_id):
        services.upkeep.wake()


async def compare(context: Context, project_id: int, seen: Sequence[tuple[str, str]], total: int | None = None) -> None:
    """Notices where the index differs from (name, id) of branches that were read; `total` says how many there are, if they were counted.

    One statement for all that is read side by side, and none for a single branch that was where it is a moment ago.
    """
    noticed, single = context.services.noticed, (project_id, seen[0]) if len(seen) == 1 and total is None else None
    if single is not None and noticed.has_agreed(single):
        return

    async def fetch(keys: list[tuple[int, tuple[str, ...]]]) -> dict[tuple[int, tuple[str, ...]], dict[str | None, str]]:
        found: dict[int, dict[str | None, str]] = {project_id: {} for project_id, _ in keys}
        names = {name for _, some in keys for name in some}
        for owner, name, oid in await context.tuples(branches.SOME_AND_COUNT, project_ids=sorted(found), names=sorted(names)):
            found[owner][name] = oid
        return {key: found[key[0]] for key in keys}

    wanted = {name: oid for name, oid in seen if _storable(name)}
    found = await context.loader("branch heads", fetch).get((project_id, tuple(wanted))) or {}
    counted = total is not None and len(wanted) == len(seen)
    if any(found.get(name) != oid for name, oid in wanted.items()) or (counted and found.get(None, "0") != str(total)):
        notice(context.services, project_id)
    elif single is not None:
        noticed.agree(single)


class _TooMany(Exception):
    """More commits than one operation may index."""


class _Reading:
    """One reading of new commits: what is known grows with each branch that was read."""

    def __init__(self, services: Services, project_id: int, known: dict[str, str], default: str | None, write: Write) -> None:
        self._services = services
        self._project_id = project_id
        self._heads = known
        self._known = set(known.values())
        self._default = default
        self._write = write
        self._done = 0
        self._told_at = monotonic()

    async def read(self, updates: Sequence[Update]) -> dict[Update, News]:
        """News of all of them, by update."""
        news = {update: News(update) for update in updates}
        moved = [update for update in news if _is_branch(update)]
        # What came to the default branch is told first, since it is new to it wherever else it is.
        moved.sort(key=self._is_default, reverse=True)
        for update in moved[:MOST_TOLD]:
            news[update] = await self._one(update)
        if rest := moved[MOST_TOLD:]:
            await self.take({update.new for update in rest if update.new})
            news |= {update: News(update, indexed=True) for update in rest}
        return news

    async def take(self, tips: Collection[str]) -> None:
        """Indexes all that these hold."""
        if tips := set(tips) - self._known:
            await self._walk(tips, self._known, self._write)
            self._known |= tips

    async def _one(self, update: Update) -> News:
        assert update.new is not None  # noqa: S101 - _is_branch
        is_default = self._is_default(update)
        if update.old is not None:
            before = {update.old}
        else:
            before = set() if is_default else set(self._known)
        if before <= self._known:
            news = await self._walk({update.new}, before, self._write, mentioning=is_default)
        else:
            await self.take({update.new})
            news = await self._walk({update.new}, before, None, mentioning=is_default)
        self._known.add(update.new)
        return replace(news, update=update, indexed=True)

    def _is_default(self, update: Update) -> bool:
        return update.ref == f"{BRANCHES}{self._default}"

    async def _walk(self, tips: Collection[str], known: Collection[str], write: Write | None, *, mentioning: bool = False) -> News:
        total, newest, mentions, characters = 0, list[Commit](), list[Commit](), 0
        if set(tips) <= set(known):
            return News(_NOBODY)
        repositories = self._services.repositories
        chunks = await repositories.read(self._project_id, lambda repository: indexing.new_commits(repository, tips, known))
        expected: int | None = None
        try:
            while chunk := await repositories.read(self._project_id, lambda _: next(chunks, None)):
                total += len(chunk)
                newest += chunk[: LARGEST_SHOWN - len(newest)]
                for commit in chunk if mentioning else ():
                    if _MENTION.search(commit.message) and len(mentions) < MOST_MENTIONING and characters < MENTIONING_CHARACTERS:
                        mentions.append(commit)
                        characters += len(commit.message)
                if write is not None:
                    await write(chunk)
                    if len(chunk) == indexing.CHUNK and expected is None:
                        expected = (
                            await repositories.read(self._project_id, lambda repository: indexing.count(repository, tips, known)) or 0
                        )
                    if expected is not None:
                        self._tell(total, expected)
        finally:
            with contextlib.suppress(ValueError):  # a thread is still at it, whom nobody waits for: its end closes it
                chunks.close()
        if expected is not None:
            log.info("commits indexed", project_id=self._project_id, done=total)
        return News(_NOBODY, total, tuple(newest), tuple(mentions))

    def _tell(self, done: int, total: int) -> None:
        if self._services.progress is not None:
            self._services.progress("indexing commits", done, max(done, total))
        if monotonic() - self._told_at >= TOLD_SECONDS:
            self._told_at = monotonic()
            log.info("indexing commits", project_id=self._project_id, done=done, total=max(done, total))


_NOBODY = Update("", None, None)


async def _known(context: Context, project_id: int) -> dict[str, str]:
    return dict(await context.tuples(branches.heads(project_id)))


async def _default_branch(context: Context, project_id: int) -> str | None:
    """The default branch, or what will be it."""
    project = await context.first(projects.by_id(project_id))
    if project is None:
        raise NotFound("Project")
    return project.default_branch or await context.services.repositories.read(project_id, Repository.default_branch)


async def _built_path(services: Services, project_id: int) -> str | None:
    """The full path of a project that has builds."""
    async with services.database.reading() as session:
        context = Context(services, session, None, "index")
        project = await context.first(projects.by_id(project_id))
        return await full_path(context, project) if project is not None and project.builds_enabled else None


async def _is_unindexed(services: Services, project_id: int) -> bool:
    """Whether the repository has been there, with branches, from before it was indexed."""
    async with services.database.reading() as session:
        context = Context(services, session, None, "index")
        if await context.tuples(branches.heads(project_id).limit(1)):
            return False
        project = await context.first(projects.by_id(project_id))
        return project is not None and project.default_branch is not None


async def _begin(services: Services, project_id: int) -> tuple[dict[str, str], str | None]:
    """The heads that the index has, and the default branch."""
    async with services.database.reading() as session:
        context = Context(services, session, None, "index")
        return await _known(context, project_id), await _default_branch(context, project_id)


def _writing(services: Services, project_id: int) -> Write:
    async def write(chunk: list[Commit]) -> None:
        await indexed_commits.write(services, project_id, chunk)

    return write


def _is_branch(update: Update) -> bool:
    return update.new is not None and update.ref.startswith(BRANCHES)


def _storable(ref: str) -> bool:
    """Whether the database takes the name; see `storage.git.indexing.heads`."""
    name = ref.removeprefix(BRANCHES)
    return len(name) <= indexing.LONGEST_NAME and not any(letter == "\ufffd" or "\ud800" <= letter <= "\udfff" for letter in name)


def _parts(rows: list[Any]) -> Iterator[list[Any]]:
    for start in range(0, len(rows), ROWS_AT_ONCE):
        yield rows[start : start + ROWS_AT_ONCE]
