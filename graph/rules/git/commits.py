"""Commits of a project's repository, their diffs, authors and comments.

When a repository is missing or damaged, the field that needs it raises Unavailable. No function starts a git process, except for diffs
of very large files.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, fields
from functools import partial
from operator import attrgetter
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

import structlog

from graph.context import Context
from graph.errors import BadRequest, LimitExceeded, NotFound, OperationError, Unavailable, UnreadableRepository
from graph.fields.connection_pages import MAX_OFFSET, ConnectionPage, Window
from graph.fields.cursors import decode_cursor, encode_cursor
from graph.operations.loaders import Loader
from graph.rules.builds.commit_checks import CommitKey
from graph.rules.git import cached_commits, indexed_commits
from graph.rules.git import refs as project_refs
from graph.rules.git.indexed_commits import IndexedCommit
from graph.rules.lookup import parse_id
from graph.rules.permissions import policy
from storage import tables
from storage.git.commit_cache import WalkedCommits
from storage.git.content_cache import is_lasting
from storage.git.diffs import diff
from storage.git.diffs.diff import FileDiff
from storage.git.history.log import HistoryTooDeep, list_history
from storage.git.refs.ref_names import FULL_ID
from storage.git.repository import DamagedRepository, GitCommit, NotARepository, RefTargets, Repository, UnknownCommit
from storage.tables.accounts import users
from storage.tables.git import commit_comments

T = TypeVar("T")

NO_REFS: RefTargets = MappingProxyType({})
_COMMIT_VALUES = attrgetter(*(field.name for field in fields(GitCommit)))
CURSOR_KIND = "commit"
"""Kind of the cursors of walks, which contain the start commit and a position."""

log = structlog.get_logger("graph")


@dataclass(frozen=True, slots=True)
class ProjectCommit(GitCommit):
    """A commit in the repository of one project; the same commit in a fork is another object."""

    project_id: int

    @classmethod
    def of(cls, project_id: int, commit: GitCommit) -> "ProjectCommit":
        return cls(*(*_COMMIT_VALUES(commit), project_id))

    @property
    def id(self) -> str:
        """Its key in global ids."""
        return f"{self.project_id}-{self.oid}"

    @property
    def key(self) -> CommitKey:
        return self.project_id, self.oid


async def run_in_repository(
    context: Context, project_id: int, work: Callable[[Repository], T], *, refs: RefTargets = NO_REFS, cancellable: bool = False
) -> T:
    """Run `work` on the project's repository in a thread; the repository knows `refs` (`graph/rules/git/refs.py`) and no others.

    Raises Unavailable when the repository cannot be read. `cancellable` work only reads, and ends with the operation.
    """
    try:
        return await context.services.repositories.read(project_id, work, refs=refs, cancellable=cancellable)
    except NotARepository as error:
        raise _unreadable_error(context, project_id, error) from error


@asynccontextmanager
async def use_repository(context: Context, project_id: int) -> AsyncIterator[Path]:
    """The path of a project's repository, as `Repositories.use`. Raises Unavailable."""
    try:
        async with context.services.repositories.use(project_id) as path:
            yield path
    except NotARepository as error:
        raise _unreadable_error(context, project_id, error) from error


async def get_commit(context: Context, project: tables.Project, rev: str) -> ProjectCommit:
    """The commit that an exact name resolves to. Raises NotFound, Unavailable.

    A name is a full id, a branch, a tag, or a unique prefix of an id.
    """

    def work(repository: Repository) -> GitCommit | None:
        oid = repository.resolve(rev)
        return repository.commit(oid) if oid is not None else None

    known = await project_refs.of_revisions(context, project.id, rev)
    name = ("commit", rev) if is_lasting(rev, known) else None
    commit: ProjectCommit | None = cached_commits.find(context, project.id, name)
    if commit is None:
        found = await run_in_repository(context, project.id, work, refs=known, cancellable=True)
        if found is None:
            raise NotFound("Commit")
        commit = ProjectCommit.of(project.id, found)
        cached_commits.put(context, project.id, name, commit)
    _git_loader(context).prime(commit.key, commit)
    return commit


def commit_loader(context: Context, *, from_index: bool, with_checks: bool) -> Loader[CommitKey, Any]:
    """The loader of commits by key; pass its results through `raise_if_error`.

    `from_index` is for operations that request only what the index has: one statement loads the commits, and git is used only for those
    that the index lacks. `with_checks` loads their checks in the same statement.
    """
    return _index_loader(context, with_checks=with_checks) if from_index else _git_loader(context)


def raise_if_error(value: T | OperationError | None) -> T | None:
    """The value, None when the repository has no such commit. Raises Unavailable."""
    if isinstance(value, OperationError):
        raise value
    return value


def prime_indexed_commit(context: Context, project_id: int, oid: str, *facts: Any) -> None:
    """Prime `commit_loader` with SUMMARY_COLUMNS of a commit that another statement returned."""
    commit = indexed_commits.build_indexed_commit(project_id, oid, *facts)
    if commit is not None:
        for with_checks in (False, True):
            _index_loader(context, with_checks=with_checks).prime_if_absent((project_id, oid), commit)


async def load_commits(context: Context, project_id: int, oids: Sequence[str], *, from_index: bool) -> list[ProjectCommit | IndexedCommit]:
    """Load these commits of a project at once; with `from_index`, only fields of the index are requested.

    Raises Unavailable, also when one is missing.
    """
    loader: Loader[CommitKey, Any] = _index_loader(context) if from_index else _git_loader(context)
    read: list[Any] = [raise_if_error(commit) for commit in await asyncio.gather(*(loader.get((project_id, oid)) for oid in oids))]
    if None in read:
        raise UnreadableRepository()
    return read


async def commit_nodes(context: Context, ids: list[str]) -> dict[str, Any]:
    """Commits by node key (`ProjectCommit.id`), where the viewer may read code.

    The value is an error if one is unreadable.
    """
    keys: dict[str, CommitKey] = {}
    for node_id in ids:
        number, _, oid = node_id.partition("-")
        project_id = parse_id(number)
        if project_id is not None and FULL_ID.fullmatch(oid):
            keys[node_id] = project_id, oid
    visible_ids = await policy.filter_visible_projects(context, [project_id for project_id, _ in keys.values()])
    projects = await context.rows_by_id(tables.Project).get_many(visible_ids)
    readable = {key for key, project in projects.items() if await policy.can(context, policy.Action.READ_CODE, project)}
    readable_keys = {node_id: key for node_id, key in keys.items() if key[0] in readable}
    found = await _git_loader(context).get_many(readable_keys.values())
    return {node_id: found[key] for node_id, key in readable_keys.items() if found[key] is not None}


async def history_page(context: Context, project: tables.Project, ref: str | None, window: Window) -> ConnectionPage:
    """A page of the history of a branch or tag (or any exact name), by default the default branch.

    Empty for an unknown name. A cursor contains the start commit of the walk and a position, so further pages stay exact while the
    branch moves. A page costs the commits from the end of an earlier page that was read lately, else all up to its own end. Raises
    Unavailable, BadRequest for an invalid cursor, LimitExceeded for a page that is too deep.
    """
    position = decode_cursor(window.after, CURSOR_KIND, parse_walk_cursor) if window.after is not None else None
    start_name = project.default_branch if ref is None else ref
    known = await project_refs.of_revisions(context, project.id, start_name) if position is None else NO_REFS

    def work(repository: Repository) -> WalkedCommits[ProjectCommit] | None:
        if position is not None:
            start, skip = position
        else:
            tip = repository.resolve(start_name) if start_name else None
            if tip is None:
                return None
            start, skip = tip, window.offset
        read = list_history(repository, start, skip=skip, limit=window.size + 1, on_read=partial(count_commit_text, context))
        return WalkedCommits(start, skip, [ProjectCommit.of(project.id, commit) for commit in read])

    is_cached = position is not None or is_lasting(start_name, known)
    name = ("history", position or (start_name, window.offset), window.size) if is_cached else None
    found: WalkedCommits[ProjectCommit] | None = cached_commits.find(context, project.id, name)
    if found is None:
        try:
            found = await run_in_repository(context, project.id, work, refs=known, cancellable=True)
        except UnknownCommit as error:
            raise BadRequest("The cursor does not belong to this list.") from error
        except HistoryTooDeep as error:
            raise LimitExceeded("The page is too deep in the history. Start from a nearby commit with `ref`.") from error
        if found is None:
            found = WalkedCommits("", 0, [])
        else:
            cached_commits.put(context, project.id, name, found)
    else:
        count_commit_text(context, *found.commits)
    commits = found.commits[: window.size]
    positions = {commit.oid: position for position, commit in enumerate(commits, found.skip)}
    for commit in commits:
        _git_loader(context).prime(commit.key, commit)
    return ConnectionPage(
        nodes=commits,
        has_next=len(found.commits) > window.size,
        has_previous=found.skip > 0,
        cursor=lambda commit: encode_cursor(CURSOR_KIND, found.start, positions[commit.oid]),
    )


async def load_diff(context: Context, commit: ProjectCommit) -> list[FileDiff] | None:
    """The diff of the commit.

    Raises Unavailable, and LimitExceeded when the operation has read too many diffs.
    """
    return raise_if_error(await _diff_loader(context).get(commit.key))


async def load_diff_between(context: Context, project_id: int, old: str | None, oid: str) -> list[FileDiff] | None:
    """The diff between two commits; `old` None means an empty tree.

    Raises as `load_diff` does and shares its limit.
    """
    return raise_if_error(await _diff_loader(context).get((project_id, oid, old)))


async def load_author(context: Context, commit: ProjectCommit) -> tables.User | None:
    """The account that owns the author's email address."""

    async def fetch(emails: list[str]) -> Mapping[str, tables.User]:
        return dict(map(tuple, await context.tuples(users.by_emails(emails))))

    email = commit.author_email.lower()
    return await context.loader("users by e-mail", fetch).get(email) if email else None


async def load_comment_count(context: Context, commit: ProjectCommit) -> int:
    async def fetch(keys: list[CommitKey]) -> Mapping[CommitKey, int]:
        rows = await context.tuples(commit_comments.counts(_group_by_project(keys)))
        return {(project_id, sha): count for project_id, sha, count in rows}

    return await context.loader("commit comment counts", fetch).get(commit.key) or 0


DiffKey = tuple[int, str, str | None]
"""A project id, a commit, and the older commit to compare it with; None is the empty tree."""


def _diff_loader(context: Context) -> Loader[CommitKey | DiffKey, list[FileDiff] | OperationError]:
    return context.loader("diffs", _CommitDiffReader(context))


@dataclass
class _CommitDiffReader:
    """Reads the diffs of one operation sequentially, until their total exceeds the limit of one diff."""

    context: Context
    remaining: int = diff.MAX_DIFF_BYTES

    async def __call__(self, keys: list[CommitKey | DiffKey]) -> Mapping[CommitKey | DiffKey, Any]:
        found: dict[CommitKey | DiffKey, Any] = {}
        for key in keys:
            found[key] = await self._read(key)
        return found

    async def _read(self, key: CommitKey | DiffKey) -> list[FileDiff] | OperationError | None:
        if self.remaining <= 0:
            return LimitExceeded("The diffs of one operation exceed 5 MB. Request those of fewer commits.")

        def work(repository: Repository) -> list[FileDiff]:
            return diff.diff_of_commit(repository, key[1]) if len(key) == 2 else diff.diff_between(repository, key[2], key[1])

        try:
            entries = await run_in_repository(self.context, key[0], work, cancellable=True)
        except UnknownCommit:
            return None
        except OperationError as error:
            return error
        self.context.count_text(*(entry.diff for entry in entries))
        self.remaining -= sum(len(entry.diff) + len(entry.old_path) + len(entry.new_path) for entry in entries) + 1
        return entries


def count_commit_text(context: Context, *commits: GitCommit) -> None:
    """Subtract the strings of commits from the operation's budget. Raises TextLimitExceeded."""
    for commit in commits:
        context.count_text(commit.message, commit.author_name, commit.author_email, commit.committer_name, commit.committer_email)


def share_loaders(context: Context) -> None:
    """Create the loaders of commits, so that contexts that share them read each commit once.

    Commits are the same for every viewer.
    """
    _git_loader(context)
    for with_checks in (False, True):
        _index_loader(context, with_checks=with_checks)


def _git_loader(context: Context) -> Loader[CommitKey, ProjectCommit | OperationError]:
    """The loader of commits from git, one thread call per project.

    The value is an error if a commit is unreadable.
    """

    async def fetch(keys: list[CommitKey]) -> Mapping[CommitKey, ProjectCommit | OperationError]:
        found: dict[CommitKey, ProjectCommit | OperationError] = {}
        for project_id, oids in _group_by_project(keys).items():
            missing = []
            for oid in oids:
                cached = cached_commits.find(context, project_id, oid)
                if cached is None:
                    missing.append(oid)
                else:
                    count_commit_text(context, cached)
                    found[project_id, oid] = cached
            if not missing:
                continue
            try:
                commits = await run_in_repository(context, project_id, _commit_reader(context, missing), cancellable=True)
            except Unavailable as error:
                found.update(dict.fromkeys(((project_id, oid) for oid in missing), error))
                continue
            for oid, commit in commits.items():
                if isinstance(commit, GitCommit):
                    found[project_id, oid] = read = ProjectCommit.of(project_id, commit)
                    cached_commits.put(context, project_id, oid, read)
                else:
                    found[project_id, oid] = _unreadable_error(context, project_id, commit)
        return found

    return context.loader("commits", fetch)


def _index_loader(context: Context, *, with_checks: bool = False) -> Loader[CommitKey, ProjectCommit | IndexedCommit | OperationError]:
    """Like `_git_loader`, from the index where it has the commit."""

    async def fetch(keys: list[CommitKey]) -> Mapping[CommitKey, ProjectCommit | IndexedCommit | OperationError]:
        found: dict[CommitKey, Any] = dict(await indexed_commits.load_indexed_commits(context, keys, with_checks=with_checks))
        if missing := [key for key in keys if key not in found]:
            found |= {key: commit for key, commit in (await _git_loader(context).get_many(missing)).items() if commit is not None}
        return found

    return context.loader("indexed commits and checks" if with_checks else "indexed commits", fetch)


def _commit_reader(context: Context, oids: list[str]) -> Callable[[Repository], dict[str, GitCommit | DamagedRepository]]:
    def work(repository: Repository) -> dict[str, GitCommit | DamagedRepository]:
        found: dict[str, GitCommit | DamagedRepository] = {}
        for oid in oids:
            try:
                found[oid] = commit = repository.commit(oid)
                count_commit_text(context, commit)
            except UnknownCommit:
                continue
            except DamagedRepository as error:
                found[oid] = error
        return found

    return work


def _group_by_project(keys: list[CommitKey]) -> dict[int, list[str]]:
    found: dict[int, list[str]] = {}
    for project_id, oid in keys:
        found.setdefault(project_id, []).append(oid)
    return found


def _unreadable_error(context: Context, project_id: int, error: Exception) -> Unavailable:
    log.warning("repository cannot be read", project_id=project_id, error=str(error), request_id=context.request_id)
    return UnreadableRepository()


def parse_walk_cursor(start: str, position: int) -> tuple[str, int]:
    """The start of the walk, and how many commits to skip for the page after this cursor."""
    if not FULL_ID.fullmatch(start) or type(position) is not int or not 0 <= position < MAX_OFFSET:
        raise ValueError("not a position in a walk")
    return start, position + 1
