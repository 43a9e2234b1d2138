"""What one operation has at hand: its session, its viewer, its loaders, and the services of the process."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, NamedTuple, TypeVar

import strawberry
from sqlalchemy import Select, select

from graph.errors import Unauthenticated
from graph.events.outbox import Outbox
from graph.jobs.index_drift import IndexDrift
from graph.jobs.runner_queue import RunnerQueue
from graph.jobs.wakeup import Wakeup
from graph.live.broadcaster import ChangeBroadcaster
from graph.operations.loaders import Loader
from graph.operations.rate_limits import RateLimiter, RateUsage
from graph.operations.time_slices import SliceScheduler
from graph.operations.token_cache import TokenCache
from graph.rules.accounts.failure_limiter import FailureLimiter
from storage import tables
from storage.database.engine import Database, DatabaseSession, now
from storage.database.text_budget import TextBudget
from storage.git.repositories import Repositories
from storage.objects.object_store import ObjectStore
from storage.objects.uploads import UploadStore
from storage.secrets import Passwords, TokenCipher
from storage.tables.base import Row, rows_of_ids

MAX_SIGN_UPS_PER_MINUTE = 60
"""How many strangers may ask for an account in a minute, in one process."""

MAX_WRONG_REGISTRATIONS_PER_MINUTE = 60
"""How many wrong registration tokens are looked up in a minute before their senders have to wait, in one process."""

MAX_CONCURRENT_FORKS = 2
"""How many repositories are copied at once for forks, in one process."""

R = TypeVar("R", bound=Row)
T = TypeVar("T")


class StaticSettings(NamedTuple):
    """What of the services is the same for every operation, as far as the values of fields are made of it."""

    external_url: str
    shows_avatars: bool


@dataclass(frozen=True)
class Services:
    """What outlives an operation. `avatar_url_template` may hold `{email_md5}`, `{username}` and `{id}`; None shows no avatars.

    `ssh_prefix` and the full path of a project make the address to clone it from over SSH; it is empty where that is not served.

    `max_artifact_bytes` and `max_trace_bytes` are in bytes. `build_lease` is how many seconds a runner may be silent before it loses a
    build, `build_timeout` how many a build may run whose job does not say.

    `progress` is told, from a thread, how far a long work is: its phase, how many of its steps are done, how many there are.
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
    build_lease: int = 60
    build_timeout: int = 3600
    clock: Callable[[], datetime] = now
    progress: Callable[[str, int, int], None] | None = None
    sign_in_failures: FailureLimiter = field(default_factory=FailureLimiter)
    sign_ups: FailureLimiter = field(default_factory=lambda: FailureLimiter(max_failures=MAX_SIGN_UPS_PER_MINUTE))
    registrations: FailureLimiter = field(default_factory=lambda: FailureLimiter(max_failures=MAX_WRONG_REGISTRATIONS_PER_MINUTE))
    outbox: Outbox = field(default_factory=Outbox)
    maintenance_wakeup: Wakeup = field(default_factory=Wakeup)
    import_wakeup: Wakeup = field(default_factory=Wakeup)
    runner_queue: RunnerQueue = field(default_factory=RunnerQueue)
    broadcaster: ChangeBroadcaster = field(default_factory=ChangeBroadcaster)
    index_drift: IndexDrift = field(default_factory=IndexDrift)
    rate_limiter: RateLimiter = field(default_factory=RateLimiter)
    token_cache: TokenCache = field(default_factory=TokenCache)
    fork_semaphore: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(MAX_CONCURRENT_FORKS))

    @property
    def static_settings(self) -> StaticSettings:
        return StaticSettings(self.external_url, bool(self.avatar_url_template))


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file that an operation named and the viewer may have; the door that ran it sends the bytes. `size` is in bytes."""

    objects: ObjectStore
    key: str
    name: str
    size: int

    def open(self, start: int, size: int) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """`size` bytes from `start` on, in pieces. Raises FileNotFoundError when entered and it is gone meanwhile, OSError."""
        return self.objects.open(self.key, start, size)


@dataclass(frozen=True)
class RunnerIdentity:
    """A runner that calls, by its own token or by that of a build that it was given. `digest` is that token's SHA-256."""

    runner: tables.Runner
    digest: str
    build: tables.Build | None = None

    def was_assigned(self, build: tables.Build) -> bool:
        """Whether the build is, or was at its end, this runner's; by a build's token of none but that one, as long as it is good."""
        is_own_token = self.build is None or (self.build.id == build.id and self.digest == build.token_digest)
        return is_own_token and build.runner_id == self.runner.id

    def is_assigned(self, build: tables.Build) -> bool:
        """Whether the runner has the build now."""
        return self.was_assigned(build) and build.status is tables.CheckStatus.RUNNING and build.lease_until is not None


@dataclass
class Context:
    """`runner_identity_or_none` is the runner that calls, where no user does.

    `credential` is the token that the caller sent, to be masked in what it stores.

    `after_commit` holds what must happen once the change is kept, and never when it was rolled back.

    `undo` holds what takes back effects outside the database when the change was not kept; it runs after the rollback.

    `files` are those that the operation named, by the handles that its answer has.

    `charge` is what the operation cost its viewer; None where nothing is counted.

    `arguments` are those of the connections that were asked for so far (`graph/fields/resolvers.py`).

    `judged` are projects by their ids of which no more was read than the policy looks at; they are for it alone.

    `pieces` are the pieces of its work that wait for their time slice.

    `made` is what the operation's mutation gave, if a plan ran it (`graph/planner/mutation_replay.py`).
    """

    services: Services
    session: DatabaseSession
    viewer_or_none: tables.User | None
    request_id: str
    loaders: dict[Hashable, Loader[Any, Any]] = field(default_factory=dict)
    after_commit: list[Callable[[], Any]] = field(default_factory=list)
    undo: list[Callable[[], Awaitable[None]]] = field(default_factory=list)
    files: dict[str, StoredFile] = field(default_factory=dict)
    arguments: dict[Any, dict[str, Any]] = field(default_factory=dict)
    runner_identity_or_none: RunnerIdentity | None = None
    credential: str | None = field(default=None, repr=False)
    rate_usage: RateUsage | None = None
    policy_projects: dict[int, tables.Project] = field(default_factory=dict)
    mutation_result: Any = None
    scheduler: SliceScheduler = field(default_factory=SliceScheduler)

    @property
    def runner_or_none(self) -> tables.Runner | None:
        return self.runner_identity_or_none.runner if self.runner_identity_or_none is not None else None

    @property
    def viewer(self) -> tables.User:
        if self.viewer_or_none is None:
            raise Unauthenticated
        return self.viewer_or_none

    @property
    def budget(self) -> TextBudget | None:
        """How much text the operation may still read; None if it is not limited."""
        return self.session.budget

    def count_text(self, *strings: str | None) -> None:
        """Subtracts strings that are not read from the database from the budget. May be called in a thread. Raises TextLimitExceeded."""
        if self.budget is not None:
            lengths = [len(string) for string in strings if string]
            self.budget.consume(sum(lengths), max(lengths, default=0))

    @property
    def policy_context(self) -> "Context":
        """The context by which the policy decides: this one, unless it is watched (`graph/live/answer_sharing.py`)."""
        return self

    def record_decision(self, action: str, subject: Any, allowed: bool) -> None:
        """Hears what the policy has decided of the viewer."""

    def now(self) -> datetime:
        return self.services.clock()

    @asynccontextmanager
    async def read_only(self) -> AsyncIterator["Context"]:
        """The same viewer with a session that only reads, for checks before long work: no writer waits for it."""
        async with self.services.database.read_session(self.budget) as session:
            yield replace(self, session=session, loaders={})

    def loader(self, name: Hashable, fetch: Callable[[list[Any]], Any]) -> Loader[Any, Any]:
        """The loader of this name, made at its first use."""
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

    async def all(self, statement: Select[T]) -> list[T]:
        """The rows of a statement that selects one table or column. In a query they are plain rows, which nobody can change."""
        return [row[0] for row in await self.session.read(statement)]

    async def first(self, statement: Select[T]) -> T | None:
        rows = await self.session.read(statement.limit(1))
        return rows[0][0] if rows else None

    async def tuples(self, statement: Any, parameters: Mapping[str, Any] | None = None, /, **values: Any) -> list[Any]:
        """The rows of a statement; `given` and `values` are those of its named parameters."""
        return list(await self.session.read(statement, parameters or values or None))

    async def value(self, statement: Select[T]) -> T | None:
        rows = await self.session.read(statement)
        return rows[0][0] if rows else None

    async def exists(self, condition: Any) -> bool:
        return bool(await self.value(select(condition)))

    async def add(self, row: R) -> R:
        """Writes a new row now, so that its id is known. Raises IntegrityError where a constraint is hit."""
        self.session.add(row)
        await self.session.flush()
        return row

    def add_deferred(self, row: R) -> R:
        """Writes a new row by the end of the operation, where that is soon enough: a row alone is written by the commit itself.

        Its id is known then. A constraint that is hit is what the mutation makes of it.
        """
        self.session.add_deferred(row)
        return row


Info = strawberry.Info[Context, None]
