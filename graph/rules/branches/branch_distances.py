"""How many commits branches are ahead of the default branch, and behind it."""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic

from graph.context import Context
from graph.rules.branches.branches import ProjectRef
from graph.rules.git import refs
from graph.rules.git.commit_comparison import run_git
from storage import tables
from storage.git import merge
from storage.git.refs.ref_names import BRANCHES
from storage.git.repository import Repository

MAX_OPERATION_SECONDS = 3.0
"""Time that one operation spends on counting; branches that were not counted in it have no distance."""

BranchKey = tuple[int, str]
"""A project id and the commit of a branch."""


@dataclass(frozen=True, slots=True)
class BranchDistance:
    """Numbers of commits: those that only the branch has, and those that only the default branch has."""

    ahead: int
    behind: int


async def find_distance(context: Context, branch: ProjectRef) -> BranchDistance | None:
    """The distance of a branch from the default branch; None if there is no default branch or no time. Raises Unavailable."""
    return await context.loader("branch distances", _DistanceReader(context, MAX_OPERATION_SECONDS)).get((branch.project_id, branch.oid))


@dataclass
class _DistanceReader:
    """Counts commits for one operation sequentially, until its time is over."""

    context: Context
    remaining: float

    async def __call__(self, keys: list[BranchKey]) -> dict[BranchKey, BranchDistance]:
        branches = defaultdict[int, list[str]](list)
        for project_id, oid in keys:
            branches[project_id].append(oid)
        projects = await self.context.rows_by_id(tables.Project).get_many(branches)
        defaults = {
            project.id: BRANCHES + project.default_branch for project in projects.values() if project and project.default_branch is not None
        }
        heads = await refs.of_projects(self.context, defaults)
        found: dict[BranchKey, BranchDistance] = {}
        for project_id, oids in branches.items():
            if (head := heads.get(project_id)) is not None and self.remaining > 0:
                started = monotonic()
                found.update(await run_git(self.context, project_id, _counter(project_id, head, oids, self.remaining)))
                self.remaining -= monotonic() - started
        return found


def _counter(project_id: int, head: str, oids: list[str], seconds: float) -> Callable[[Repository], dict[BranchKey, BranchDistance]]:
    def work(repository: Repository) -> dict[BranchKey, BranchDistance]:
        deadline = monotonic() + seconds
        found = {}
        for oid in oids:
            if monotonic() > deadline:
                break
            found[project_id, oid] = BranchDistance(*(merge.ahead_behind(repository, head, oid) if oid != head else (0, 0)))
        return found

    return work
