"""The context of one operation: its session, its viewer, its loaders, and the services of the process."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from urllib.parse import urlsplit

import strawberry
from sqlalchemy import Select, delete, select
from sqlmodel import col

from graph.errors import NotFound, Unauthenticated
from graph.events.outbox import Outbox
from graph.jobs.build_analytics import BuildAnalytics
from graph.jobs.health_checks import HealthChecks
from graph.jobs.job_monitor import JobMonitor
from graph.jobs.job_position import JobPosition
from graph.jobs.lease_grace import LeaseGrace
from graph.jobs.maintenance_wakeup import MaintenanceWakeup, MaintenanceWork
from graph.jobs.runner_queue import RunnerQueue
from graph.jobs.wakeup import Wakeup
from graph.live.broadcaster import ChangeBroadcaster
from graph.live.trace_feeds import TraceFeeds
from graph.operations.answer_relations import AnswerRelations
from graph.operations.deadlines import Deadline
from graph.operations.git_answer_cache import GitAnswerCache
from graph.operations.loaders import Loader
from graph.operations.rate_limits import RateLimiter, RateUsage
from graph.operations.time_slices import SliceScheduler
from graph.operations.token_cache import TokenCache
from graph.operations.token_scopes import TokenIdentity
from graph.rules.accounts.failure_limiter import FailureLimiter
from graph.served_files import ServedFile
from storage import tables
from storage.database.clock import now
from storage.database.engine import Database, DatabaseSession
from storage.database.statements.bulk_inserts import BulkRows
from storage.database.statements.insert_cache import Numbering
from storage.database.text_budget import TextBudget
from storage.database.write_session import WriteSession
from storage.git.commit_cache import CommitCache
from storage.git.content_cache import ContentCache
from storage.git.protocol.process_slots import FairLimiter
from storage.git.refs.ref_cache import RefCache
from storage.git.repositories import Repositories
from storage.objects.object_store import ObjectStore
from storage.objects.uploads import UploadStore
from storage.secrets import Passwords, TokenCipher
from storage.tables.base import Row, rows_of_ids

if TYPE_CHECKING:
    # Imported only where one is configured: the libraries take 13 MB.
    from graph.identity_providers.ldap_directory import LdapDirectory
    from graph.identity_providers.openid_provider import OpenIdProvider

MAX_SIGN_UPS_PER_MINUTE = 60
"""Maximum of sign-ups per minute in one process."""

MAX_WRONG_REGISTRATIONS_PER_MINUTE = 60
"""Maximum of invalid registration tokens per minute in one process; further senders have to wait."""

MAX_CONCURRENT_INDEXING = 4
"""Maximum of histories that are read into the index concurrently, each by two git processes."""

MAX_CONCURRENT_FORKS = 2
"""Maximum of repositories that one process copies concurrently for forks."""

MAX_CONCURRENT_RENDERING = 1
"""Maximum of operations whose long texts one process renders concurrently: threads of Python share one processor."""

MAX_CONCURRENT_CHECKS = 1
"""Maximum of CI files that one process checks concurrently: reads of repositories keep the other threads."""

MAX_CONCURRENT_ARCHIVES = 4
"""Maximum of archives that one process makes concurrently."""
MAX_WAITING_ARCHIVES = 100
ARCHIVE_WAIT_SECONDS = 20.0

R = TypeVar("R", bound=Row)
T = TypeVar("T")


class StaticSettings(NamedTuple):
    """Settings of the services that fields' values depend on and that are the same for all operations."""

    external_url: str
    shows_avatars: bool
    ssh_prefix: str
    """It and the full path of a project are its SSH clone URL."""


@dataclass(frozen=True)
class Services:
    """The services of a process, shared by all operations.

    `avatar_url_template` may contain `{email_md5}`, `{username}` and `{id}`; None shows no avatars.

    `ssh_prefix` followed by the full path of a project is its SSH clone URL; it is empty if SSH is not served.

    `max_artifact_bytes`, `max_trace_bytes` and `max_file_bytes` (of a file that is committed or shown as base64) are in bytes.

    `ci_file_version`: the version whose rules hold for CI files that name none; None is the newest.

    `build_lease`: a runner that is silent for this many seconds loses its build. `build_timeout`: default time limit of a build in seconds.

    `progress` is called in a thread during long work with its phase, the number of completed steps, and the total number of steps.
    """

    database: Database
    repositories: Repositories
    passwords: Passwords
    cipher: TokenCipher
    uploads: UploadStore
    objects: ObjectStore
    external_url: str = "http://localhost:8080"
    ssh_prefix: str = ""
    avatar_url_template: str | None = None
    max_artifact_bytes: int = 5 * 2**30
    max_trace_bytes: int = 64 * 2**20
    max_file_bytes: int = 10 * 2**20
    build_lease: int = 60
    ci_file_version: tuple[int, int] | None = None
    build_timeout: int = 3600
    clock: Callable[[], datetime] = now
    progress: Callable[[str, int, int], None] | None = None
    directory: "LdapDirectory | None" = None
    openid_provider: "OpenIdProvider | None" = None
    sign_in_failures: FailureLimiter = field(default_factory=FailureLimiter)
    sign_ups: FailureLimiter = field(default_factory=lambda: FailureLimiter(max_failures=MAX_SIGN_UPS_PER_MINUTE))
    registrations: FailureLimiter = field(default_factory=lambda: FailureLimiter(max_failures=MAX_WRONG_REGISTRATIONS_PER_MINUTE))
    outbox: Outbox = field(default_factory=Outbox)
    maintenance_wakeup: MaintenanceWakeup = field(default_factory=MaintenanceWakeup)
    import_wakeup: Wakeup = field(default_factory=Wakeup)
    project_import_wakeup: Wakeup = field(default_factory=Wakeup)
    runner_queue: RunnerQueue = field(default_factory=RunnerQueue)
    job_monitor: JobMonitor = field(default_factory=JobMonitor)
    health_checks: HealthChecks = field(default_factory=HealthChecks)
    lease_grace: LeaseGrace = field(default_factory=LeaseGrace)
    trace_join_position: JobPosition = field(default_factory=JobPosition)
    broadcaster: ChangeBroadcaster = field(default_factory=ChangeBroadcaster)
    trace_feeds: TraceFeeds = field(default_factory=TraceFeeds)
    index_semaphore: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(MAX_CONCURRENT_INDEXING))
    rate_limiter: RateLimiter = field(default_factory=RateLimiter)
    token_cache: TokenCache = field(default_factory=TokenCache)
    ref_cache: RefCache = field(default_factory=RefCache)
    commit_cache: CommitCache = field(default_factory=CommitCache)
    content_cache: ContentCache = field(default_factory=ContentCache)
    git_answers: GitAnswerCache = field(default_factory=GitAnswerCache)
    archive_limiter: FairLimiter = field(
        default_factory=lambda: FairLimiter(MAX_CONCURRENT_ARCHIVES, max_waiting=MAX_WAITING_ARCHIVES, seconds=ARCHIVE_WAIT_SECONDS)
    )
    rendering_semaphore: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(MAX_CONCURRENT_RENDERING))
    config_check_semaphore: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(MAX_CONCURRENT_CHECKS))
    build_analytics: BuildAnalytics | None = None
    fork_semaphore: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(MAX_CONCURRENT_FORKS))

    @cached_property
    def static_settings(self) -> StaticSettings:
        ssh_prefix = self.ssh_prefix or f"git@{urlsplit(self.external_url).hostname}:"
        return StaticSettings(self.external_url, bool(self.avatar_url_template), ssh_prefix)


@dataclass(frozen=True)
class RunnerIdentity:
    """An authenticated runner. `build` is set if it sent the token of a build, not its own. `digest` is the token's SHA-256."""

    runner: tables.Runner
    digest: str
    build: tables.Build | None = None

    def was_assigned(self, build: tables.Build) -> bool:
        """Whether the build is, or was when it finished, assigned to this runner. A build's token is valid for that build only."""
        is_own_token = self.build is None or (self.build.id == build.id and self.digest == build.token_digest)
        return is_own_token and build.runner_id == self.runner.id

    def is_assigned(self, build: tables.Build) -> bool:
        """Whether the runner is running the build now."""
        return self.was_assigned(build) and build.status is tables.CheckStatus.RUNNING and build.lease_until is not None


@dataclass
class Context:
    """The context of one operation.

    `runner_identity_or_none` is the calling runner, if the caller is not a user.

    `access_token` is the caller's access token; None for callers with every right of the viewer, such as those with a private token.

    `credential` is the token that the caller sent; it is masked in everything that the operation stores.

    `on_commit` are callbacks that the commit itself runs, and not a rollback: they wake clients that wait for the change, and do not wait.

    `after_commit` are callbacks that run after the commit, and not after a rollback; after a push they run when it is answered.

    `undo` are callbacks that undo effects outside the database; they run after a rollback.

    `files` are the files that the result refers to, by their handles in the result.

    `rate_usage` is the operation's charge to its viewer; None if it is not charged.

    `arguments` are the converted arguments of connections (`graph/fields/resolvers.py`).

    `policy_projects` are projects, by id, of which only the columns that the policy needs were read, and of some the version of the refs.

    `scheduler` has the parts of the operation that are paused until their time slice.

    `answer_relations` are the relations of a mutation's object in the answer of its plan; None without a plan, or if there are none.

    `deadline` is the time limit of a mutation, which its commits suspend; None without one.

    `mutation_result` is the result of the mutation, if a plan ran it (`graph/planner/mutation_replay.py`).
    """

    services: Services
    session: DatabaseSession
    viewer_or_none: tables.User | None
    request_id: str
    loaders: dict[Hashable, Loader[Any, Any]] = field(default_factory=dict)
    on_commit: list[Callable[[], None]] = field(default_factory=list)
    after_commit: list[Callable[[], Any]] = field(default_factory=list)
    undo: list[Callable[[], Awaitable[None]]] = field(default_factory=list)
    files: dict[str, ServedFile] = field(default_factory=dict)
    arguments: dict[Any, dict[str, Any]] = field(default_factory=dict)
    runner_identity_or_none: RunnerIdentity | None = None
    access_token: TokenIdentity | None = None
    credential: str | None = field(default=None, repr=False)
    rate_usage: RateUsage | None = None
    policy_projects: dict[int, tables.Project] = field(default_factory=dict)
    mutation_result: Any = None
    answer_relations: AnswerRelations | None = None
    deadline: Deadline | None = None
    scheduler: SliceScheduler = field(default_factory=SliceScheduler)

    @property
    def viewer(self) -> tables.User:
        if self.viewer_or_none is None:
            raise Unauthenticated
        return self.viewer_or_none

    def sign_in(self, user: tables.User) -> None:
        """Makes a user who has signed in by this operation the viewer, with every right of the user."""
        self.viewer_or_none, self.access_token = user, None

    @property
    def budget(self) -> TextBudget | None:
        """The limit of the text that the operation may read; None if it is not limited."""
        return self.session.budget

    def count_text(self, *strings: str | None) -> None:
        """Subtracts strings that are not read from the database from the budget. May be called in a thread. Raises TextLimitExceeded."""
        if self.budget is not None:
            lengths = [len(string) for string in strings if string]
            self.budget.consume(sum(lengths), max(lengths, default=0))

    @property
    def policy_context(self) -> "Context":
        """The context that the policy uses: this one, except for a tracking context (`graph/live/answer_sharing.py`)."""
        return self

    def record_decision(self, action: str, subject: Any, allowed: bool) -> None:
        """Called with each decision of the policy about the viewer; overridden by a tracking context."""

    def now(self) -> datetime:
        return self.services.clock()

    @asynccontextmanager
    async def read_only(self) -> AsyncIterator["Context"]:
        """Yields a context with the same viewer and a read session, for checks before long work, so that no writer has to wait."""
        async with self.services.database.read_session(self.budget) as session:
            with self.in_session(session) as context:
                yield context

    @contextmanager
    def in_session(self, session: DatabaseSession, **changes: Any) -> Iterator["Context"]:
        """Yields a context with the same viewer, for another session, with loaders of its own and these changes."""
        context = replace(self, session=session, loaders={}, **changes)
        try:
            yield context
        finally:
            # Loaders refer to the context: kept in it, they would leave both to the garbage collector.
            context.loaders.clear()

    def loader(self, name: Hashable, fetch: Callable[[list[Any]], Any]) -> Loader[Any, Any]:
        """Returns the loader with this name, created at its first use."""
        found = self.loaders.get(name)
        if found is None:
            found = self.loaders[name] = Loader(fetch, self.scheduler)
        return found

    def rows_by_id(self, table: type[R]) -> Loader[int, R]:
        found = self.loaders.get(table)
        if found is not None:
            return found

        async def fetch(ids: list[int]) -> Mapping[int, R]:
            return {row.id: row for (row,) in await self.session.read(*rows_of_ids(table, ids))}

        return self.loader(table, fetch)

    def names_by_id(self, statement: Callable[[list[int]], Any]) -> Loader[int, list[Any]]:
        """Returns the loader of a list of names by the id of a row; `statement(ids)` selects (id of the row, name)."""
        found = self.loaders.get(statement)
        if found is not None:
            return found

        async def fetch(ids: list[int]) -> Mapping[int, list[Any]]:
            names: dict[int, list[Any]] = {key: [] for key in ids}
            for key, name in await self.tuples(statement(ids)):
                names[key].append(name)
            return names

        return self.loader(statement, fetch)

    async def all(self, statement: Select[T]) -> list[T]:
        """Returns the rows of a statement that selects one table or column. In a query they are plain rows, which cannot be changed."""
        return [row[0] for row in await self.session.read(statement)]

    async def first(self, statement: Select[T]) -> T | None:
        rows = await self.session.read(statement.limit(1))
        return rows[0][0] if rows else None

    async def tuples(self, statement: Any, parameters: Mapping[str, Any] | None = None, /, **values: Any) -> list[Any]:
        """Returns the rows of a statement; `parameters` or `values` are the values of its named parameters."""
        return list(await self.session.read(statement, parameters or values or None))

    async def value(self, statement: Select[T]) -> T | None:
        rows = await self.session.read(statement)
        return rows[0][0] if rows else None

    async def exists(self, condition: Any) -> bool:
        return bool(await self.value(select(condition)))

    async def add(self, row: R) -> R:
        """Inserts a row immediately, so that its id is known. Raises IntegrityError if a constraint is violated."""
        self.session.add(row)
        await self.session.flush()
        return row

    async def delete(self, row: Row) -> None:
        """Deletes a row immediately, and forgets what was loaded before, since rows loaded with it may refer to it.

        Raises NotFound if another operation has deleted it: its effects, such as the events of hooks, happen once.
        """
        await self.session.flush()
        statement = delete(type(row)).where(col(type(row).id) == row.id).returning(col(type(row).id))
        if await self.session.scalar(statement, execution_options={"synchronize_session": False}) is None:
            raise NotFound(type(row).__name__)
        self.session.expunge(row)
        self.loaders.clear()

    def add_deferred(self, row: R) -> R:
        """Inserts a row by the end of the operation, when its id is known; a single row is inserted by the commit itself.

        The mutation handles a constraint violation at the commit.
        """
        self.session.add_deferred(row)
        return row

    def add_with_follower(self, row: R, follower: Row, key: str) -> R:
        """As `add_deferred`, with a second row whose column `key` is the id of the first one; the commit inserts both at once."""
        assert isinstance(self.session, WriteSession)  # noqa: S101 - only mutations add rows
        self.session.add_with_follower(row, follower, key)
        return row

    def add_follower(self, row: Row, follower: Row, key: str = "") -> None:
        """Inserts one more row together with a row of `add_with_follower` or `add_numbered`; its column `key`, if any, is that row's id."""
        assert isinstance(self.session, WriteSession)  # noqa: S101 - only mutations add rows
        self.session.add_follower(row, follower, key)

    def add_numbered(self, row: R, numbering: Numbering, follower: Row, key: str) -> R:
        """As `add_with_follower`, for a row that gets its number from a counter when it is inserted; both are unknown until then."""
        assert isinstance(self.session, WriteSession)  # noqa: S101 - only mutations add rows
        self.session.add_numbered(row, numbering, follower, key)
        return row

    def lock_later(self, row: Row, *, reads_before_changes: bool = False) -> bool:
        """Whether the row need not be locked, because the commit finds out if others have changed it since it was read.

        The mutation is then repeated (`graph/fields/mutations.py`), so its effects so far must be undone by a rollback.
        `reads_before_changes`: the statements that follow need not see what the transaction changes.
        """
        return isinstance(self.session, WriteSession) and self.session.lock_later(row, reads_before_changes=reads_before_changes)

    @property
    def locks_at_commit(self) -> bool:
        """Whether nothing is locked, because the commit finds out what has changed (`lock_later`)."""
        return isinstance(self.session, WriteSession) and self.session.locks_at_commit

    def require_later(self, statement: Any, values: Mapping[str, Any]) -> bool:
        """Whether the commit runs a statement that has to return a row, and otherwise finds out as for `lock_later`.

        `statement` is constant, with a named parameter for each value. False if the caller has to run it, because rows are locked.
        """
        return isinstance(self.session, WriteSession) and self.session.require_later(statement, values)

    def insert_later(self, statement: Any, rows: BulkRows) -> None:
        """Inserts rows by the end of the transaction, and before its next statement that may depend on them (`WriteSession`)."""
        assert isinstance(self.session, WriteSession)  # noqa: S101 - only mutations add rows
        self.session.insert_later(statement, rows)

    def wake_maintenance(self, work: MaintenanceWork) -> None:
        """Wakes the maintenance jobs that do this work, after the commit."""
        self.after_commit.append(partial(self.services.maintenance_wakeup.notify, work))


Info = strawberry.Info[Context, None]
