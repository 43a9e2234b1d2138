"""The index of commits and branch heads: what the database repeats of the repositories, so that lists and joins need not walk them.

The repository stays the truth. The order that survives a crash at any point:
1. Commits are written in chunks, each a short transaction of its own that changes nothing which is there already.
2. The head of a branch is written (`pushing.pushed`) only when all that it holds is indexed. A branch whose head the database has is
   therefore known whole, and what was cut short before is begun anew from there.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from graph.context import Services
from storage.git.commits import Commit
from storage.git.pushes import Update


@dataclass(frozen=True, slots=True)
class News:
    """What the move of one ref brought.

    `total` commits came to the branch: what it holds and did not before; a branch that is new brings what no other branch had, and
    the default branch all that it holds. `commits` are the newest of them, newest first, at most LARGEST_SHOWN. `mentioning` are those,
    newest first, whose message may name an issue; of the default branch only. Of a tag, and of what is gone, nothing is told.
    `indexed` says that the index has all that the branch holds.
    """

    update: Update
    total: int = 0
    commits: tuple[Commit, ...] = ()
    mentioning: tuple[Commit, ...] = ()
    indexed: bool = False

    @property
    def is_new(self) -> bool:
        """Whether the ref was not there before."""
        return self.update.old is None


async def index(services: Services, project_id: int, updates: Sequence[Update]) -> list[News]:
    """Indexes what these moves brought, in transactions of its own; one `News` for each of them, in their order."""
    return [News(update) for update in updates]
