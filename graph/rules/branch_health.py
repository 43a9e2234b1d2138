"""The health of a branch: whether its newest commit that tells is good, since when, and which commits may have broken it.

Commits are taken in the order of ancestry along first parents, whatever the order of builds or of dates, so what was merged in counts as
its merge. A commit is good when its checks come to SUCCESS (graph/rules/rollups.py) and bad when they come to FAILED; without checks, or
while they wait or run, or when all were canceled, it decides nothing and is walked past.

The walk is the index's, and one statement: nothing is asked of git. It ends where it tells what was asked, or after MOST commits.
"""

from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import datetime

from graph.connections import Listing, Order, Page, Window
from graph.context import Context
from graph.cursors import cursor_of, place_of
from graph.errors import LimitExceeded
from graph.rules import building, commits
from graph.rules.building import Key
from graph.rules.policy import Action, may
from graph.rules.rollups import RollupState, roll_up
from storage import tables
from storage.tables import branches, first_parents

MOST = 1_000
"""How many commits are looked at."""
MOST_NAMES = 100
DECIDED = (RollupState.SUCCESS, RollupState.FAILED)

_MARK = "suspect"

Names = tuple[str, ...] | None
"""Only checks of these names count; None: all."""


@dataclass(frozen=True, slots=True)
class Place:
    """A commit on the walk; when the last of its checks ended, if one has."""

    oid: str
    state: RollupState
    ended_at: datetime | None


@dataclass(slots=True)
class Health:
    """What the walk from a head tells. `walked` are its commits, newest first; `dated`: it went so far that `since` is known. Without
    `builds` only commit statuses count."""

    project_id: int
    head: str
    names: Names
    dated: bool
    builds: bool = True
    walked: list[Place] = field(default_factory=list)

    @property
    def newest(self) -> Place | None:
        """The newest commit that is good or bad."""
        return next((place for place in self.walked if place.state in DECIDED), None)

    @property
    def state(self) -> RollupState:
        """What the newest commit that decides comes to; where none does, what the head comes to."""
        decided = self.newest or (self.walked[0] if self.walked else None)
        return decided.state if decided is not None else RollupState.NONE

    @property
    def last_good(self) -> str | None:
        place = self._place_of_good
        return self.walked[place].oid if place is not None else None

    @property
    def first_bad(self) -> Place | None:
        """The oldest bad commit after the newest good one."""
        return self._oldest(RollupState.FAILED, self.walked[: self._place_of_good]) if self.state is RollupState.FAILED else None

    @property
    def suspects(self) -> list[str]:
        """The commits after the newest good one, up to and with the first bad one, newest first."""
        first = self.first_bad
        return [place.oid for place in self.walked[self.walked.index(first) : self._place_of_good]] if first is not None else []

    @property
    def since(self) -> datetime | None:
        """When the first bad commit turned out to be bad; of good ones, the oldest since the newest bad one, as far as was walked."""
        if self.state is RollupState.FAILED:
            first = self.first_bad
        else:
            states = [place.state for place in self.walked]
            end = states.index(RollupState.FAILED) if RollupState.FAILED in states else None
            first = self._oldest(RollupState.SUCCESS, self.walked[:end])
        return first.ended_at if first is not None else None

    @property
    def _place_of_good(self) -> int | None:
        return next((number for number, place in enumerate(self.walked) if place.state is RollupState.SUCCESS), None)

    @staticmethod
    def _oldest(state: RollupState, places: list[Place]) -> Place | None:
        return next((place for place in reversed(places) if place.state is state), None)


async def healths(
    context: Context, heads: Collection[Key], names: Collection[str] | None = None, *, dated: bool = False, builds: bool = True
) -> dict[Key, Health]:
    """The health that branches with these heads have, given as (project id, full id): one statement for all of them.

    It needs nothing of the context but its session, so a chore calls it with `Context(services, session, None, "upkeep")`; nobody's
    rights are looked at. A head that the index does not have comes to NONE. `since` is known where it was to be `dated`.
    """
    wanted = None if names is None else tuple(sorted(set(names)))
    found = {(project_id, oid): Health(project_id, oid, wanted, dated, builds) for project_id, oid in heads}
    if not found:
        return found
    walks: dict[int, Health] = {}
    statement, values = first_parents.rolled(found, MOST, wanted, dated=dated, builds=builds)
    rows = await context.tuples(statement, **values)
    for start, project_id, oid, state, ended_at, *facts in rows:
        # The first row of a walk is its head.
        health = walks.get(start) or walks.setdefault(start, found[project_id, oid])
        health.walked.append(Place(oid, RollupState(state), ended_at))
        if facts[0] is not None:
            commits.tell(context, project_id, oid, *facts)
    return found


async def healths_of_branches(
    context: Context, branches_wanted: Collection[tuple[int, str]], names: Collection[str] | None = None
) -> dict[tuple[int, str], Health]:
    """The same of branches given as (project id, name), at the heads that the index has: one statement more. Those that are gone are
    left out."""
    if not branches_wanted:
        return {}
    heads = {(key, name): (key, oid) for key, name, oid in await context.tuples(branches.of_names(branches_wanted))}
    found = await healths(context, set(heads.values()), names)
    return {branch: found[head] for branch, head in heads.items()}


async def of_head(context: Context, head: Key, names: Collection[str] | None, *, dated: bool, builds: bool) -> Health:
    """The health of a head among others of its level. Without `builds` only commit statuses count, as for a viewer who asks for names
    and may not see the names of builds. Raises LimitExceeded for more than MOST_NAMES names."""
    if names is not None and len(names) > MOST_NAMES:
        raise LimitExceeded(f"At most {MOST_NAMES} names of checks can be asked for at once, and {len(names):,} are.")
    names = None if names is None else tuple(sorted(set(names)))

    async def fetch(heads: list[Key]) -> dict[Key, Health]:
        return await healths(context, heads, names, dated=dated, builds=builds)

    found = await context.loader(("health of branches", names, dated, builds), fetch).get(head)
    assert found is not None, "every head has one"  # noqa: S101
    return found  # type: ignore[no-any-return]


async def since(context: Context, health: Health) -> datetime | None:
    """Since when a branch is as `of_head` told, among others of its level."""
    if not health.dated:
        health = await of_head(context, (health.project_id, health.head), health.names, dated=True, builds=health.builds)
    return health.since


async def suspect_page(context: Context, health: Health, window: Window, *, told: bool) -> Page:
    """A page of the suspects; `told` as in `commits.all_by_oid`. Raises BadRequest for a foreign cursor, Unavailable."""
    oids = health.suspects
    skip = place_of(window.after, _MARK, lambda oid: oids.index(oid) + 1) if window.after is not None else 0
    shown = oids[skip : skip + window.size]
    return Page(
        nodes=await commits.all_by_oid(context, health.project_id, shown, told=told),
        has_next=len(oids) > skip + window.size,
        has_previous=skip > 0,
        cursor=lambda commit: cursor_of(_MARK, commit.oid),
        count=lambda: len(oids),
    )


async def failing_page(context: Context, health: Health, window: Window) -> Page:
    """A page of the builds by which the newest commit that decides is bad, of those that the viewer may see."""
    found: list[tables.Build] = []
    if health.newest is not None and health.newest.state is RollupState.FAILED:
        checks = await building.checks_of(context, (health.project_id, health.newest.oid))
        counted = roll_up(check for check in checks if health.names is None or check.name in health.names)
        found = [each for each in counted.failing if isinstance(each, tables.Build) and await may(context, Action.READ_BUILD, each)]
    return Listing(tables.Build, Order(tables.Build.id)).page_of(found, window)
