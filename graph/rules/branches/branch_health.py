"""The health of a branch: whether its newest decided commit is good, since when, what broke it.

Commits are ordered by ancestry along first parents, not by the order of builds or by dates, so a merged branch counts as its merge
commit. A commit is good when its rollup is SUCCESS (graph/rules/builds/rollups.py) and bad when it is FAILED; without checks, with
pending or running ones, or with only canceled ones it is undecided and is skipped.

The walk is one statement over the commit index and does not use git. It ends as soon as it can answer, or after MAX_COMMITS commits.
"""

from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import datetime

from graph.context import Context
from graph.errors import LimitExceeded
from graph.fields.connection_pages import ConnectionPage, Window
from graph.fields.cursors import decode_cursor, encode_cursor
from graph.fields.keyset_listing import KeysetListing, Order
from graph.rules.builds import commit_checks
from graph.rules.builds.commit_checks import CommitKey
from graph.rules.builds.rollups import RollupState, roll_up
from graph.rules.git import commits
from graph.rules.permissions.policy import Action, can
from storage import tables
from storage.tables.git import first_parents

MAX_COMMITS = 1_000
"""Maximum commits of a walk."""
MAX_NAMES = 100
DECIDING_STATES = (RollupState.SUCCESS, RollupState.FAILED)

_CURSOR_KIND = "suspect"

CheckNames = tuple[str, ...] | None
"""Names of the checks that count; None for all."""


@dataclass(frozen=True, slots=True)
class WalkedCommit:
    """A commit of the walk, its rollup state, and when its last check finished, if any has."""

    oid: str
    state: RollupState
    ended_at: datetime | None


@dataclass(slots=True)
class BranchHealthReport:
    """The result of the walk from a head.

    `walked` are its commits, newest first. `dated` says that the walk went far enough for `since`. Without `builds` only commit
    statuses count.
    """

    project_id: int
    head: str
    names: CheckNames
    dated: bool
    builds: bool = True
    walked: list[WalkedCommit] = field(default_factory=list)

    @property
    def newest_decided(self) -> WalkedCommit | None:
        """The newest commit that is good or bad."""
        return next((commit for commit in self.walked if commit.state in DECIDING_STATES), None)

    @property
    def state(self) -> RollupState:
        """The state of the newest decided commit; if there is none, the state of the head."""
        decided = self.newest_decided or (self.walked[0] if self.walked else None)
        return decided.state if decided is not None else RollupState.NONE

    @property
    def last_good(self) -> str | None:
        index = self._good_index
        return self.walked[index].oid if index is not None else None

    @property
    def first_bad(self) -> WalkedCommit | None:
        """The oldest bad commit after the newest good one."""
        return self._oldest(RollupState.FAILED, self.walked[: self._good_index]) if self.state is RollupState.FAILED else None

    @property
    def suspects(self) -> list[str]:
        """The commits after the newest good one, up to and including the first bad one, newest first."""
        first = self.first_bad
        return [commit.oid for commit in self.walked[self.walked.index(first) : self._good_index]] if first is not None else []

    @property
    def since(self) -> datetime | None:
        """When the branch reached its state, considering only commits of the walk.

        This is when the first bad commit finished, or the first good one after the newest bad one.
        """
        if self.state is RollupState.FAILED:
            first = self.first_bad
        else:
            states = [commit.state for commit in self.walked]
            end = states.index(RollupState.FAILED) if RollupState.FAILED in states else None
            first = self._oldest(RollupState.SUCCESS, self.walked[:end])
        return first.ended_at if first is not None else None

    @property
    def _good_index(self) -> int | None:
        return next((number for number, commit in enumerate(self.walked) if commit.state is RollupState.SUCCESS), None)

    @staticmethod
    def _oldest(state: RollupState, walked: list[WalkedCommit]) -> WalkedCommit | None:
        return next((commit for commit in reversed(walked) if commit.state is state), None)


async def load_health(
    context: Context, heads: Collection[CommitKey], names: Collection[str] | None = None, *, dated: bool = False, builds: bool = True
) -> dict[CommitKey, BranchHealthReport]:
    """The health of branches with these heads, given as (project id, full id), in one statement.

    It uses only the context's session and checks no permissions, so a maintenance job calls it with a context without a viewer. A head
    that is not in the index has the state NONE. `since` is known only with `dated`.
    """
    check_names = None if names is None else tuple(sorted(set(names)))
    found = {(project_id, oid): BranchHealthReport(project_id, oid, check_names, dated, builds) for project_id, oid in heads}
    if not found:
        return found
    walks: dict[int, BranchHealthReport] = {}
    statement, values = first_parents.rollup_walks(found, MAX_COMMITS, check_names, with_end_times=dated, builds=builds)
    rows = await context.tuples(statement, **values)
    for start, project_id, oid, state, ended_at, *facts in rows:
        # The first row of a walk is its head.
        health = walks.get(start) or walks.setdefault(start, found[project_id, oid])
        health.walked.append(WalkedCommit(oid, RollupState(state), ended_at))
        if facts[0] is not None:
            commits.prime_indexed_commit(context, project_id, oid, *facts)
    return found


async def load_states(context: Context, heads: Collection[CommitKey]) -> dict[CommitKey, RollupState]:
    """`BranchHealthReport.state` of branches with these heads, in one statement that returns at most two rows for each."""
    found = dict.fromkeys(heads, RollupState.NONE)
    if not found:
        return found
    starts: dict[int, CommitKey] = {}
    statement, values = first_parents.head_states(found, MAX_COMMITS)
    for start, project_id, oid, state in await context.tuples(statement, **values):
        found[starts.setdefault(start, (project_id, oid))] = RollupState(state)
    return found


async def get_head_health(
    context: Context, head: CommitKey, names: Collection[str] | None, *, dated: bool, builds: bool
) -> BranchHealthReport:
    """The health of a head, batched with other heads of the same level.

    Without `builds` only commit statuses count, as for a viewer who filters by names and may not see the names of builds. Raises
    LimitExceeded for more than MAX_NAMES names.
    """
    if names is not None and len(names) > MAX_NAMES:
        raise LimitExceeded(f"At most {MAX_NAMES} check names can be given; there are {len(names):,}.")
    names = None if names is None else tuple(sorted(set(names)))

    async def fetch(heads: list[CommitKey]) -> dict[CommitKey, BranchHealthReport]:
        return await load_health(context, heads, names, dated=dated, builds=builds)

    found = await context.loader(("health of branches", names, dated, builds), fetch).get(head)
    assert found is not None, "the loader returns a report for every head"  # noqa: S101
    return found  # type: ignore[no-any-return]


async def get_since(context: Context, health: BranchHealthReport) -> datetime | None:
    """When the branch reached the state of this report, batched with others of the same level."""
    if not health.dated:
        health = await get_head_health(context, (health.project_id, health.head), health.names, dated=True, builds=health.builds)
    return health.since


async def suspect_page(context: Context, health: BranchHealthReport, window: Window, *, from_index: bool) -> ConnectionPage:
    """A page of the suspects; `from_index` as in `commits.load_commits`.

    Raises BadRequest for an invalid cursor, Unavailable.
    """
    oids = health.suspects
    skip = decode_cursor(window.after, _CURSOR_KIND, lambda oid: oids.index(oid) + 1) if window.after is not None else 0
    page_oids = oids[skip : skip + window.size]
    return ConnectionPage(
        nodes=await commits.load_commits(context, health.project_id, page_oids, from_index=from_index),
        has_next=len(oids) > skip + window.size,
        has_previous=skip > 0,
        cursor=lambda commit: encode_cursor(_CURSOR_KIND, commit.oid),
        count=lambda: len(oids),
    )


async def failing_page(context: Context, health: BranchHealthReport, window: Window) -> ConnectionPage:
    """A page of the failed builds of the newest decided commit, among those that the viewer may see."""
    found: list[tables.Build] = []
    if health.newest_decided is not None and health.newest_decided.state is RollupState.FAILED:
        checks = await commit_checks.load_checks(context, (health.project_id, health.newest_decided.oid))
        rollup = roll_up(check for check in checks if health.names is None or check.name in health.names)
        visible = [each for each in rollup.failing if each.is_build and await can(context, Action.READ_BUILD, each)]
        rows = await context.rows_by_id(tables.Build).get_many(each.id for each in visible)
        found = [row for row in rows.values() if row is not None]
    return KeysetListing(tables.Build, Order(tables.Build.id)).page_of_rows(found, window)
