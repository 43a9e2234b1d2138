"""Pages of commits: the first one of a long history must cost what that of a short one costs."""

import shutil
from pathlib import Path

from benchmarks.data import Data
from benchmarks.load import Ask
from storage.git.repositories import Repositories
from tests.history import make_history

SHORT, LONG = 1_000, 100_000


def histories(data: Data, repositories: Path, scale: float) -> dict[int, Ask]:
    """Gives two of the projects their repositories: the number of commits → the question for the first page."""
    repositories.mkdir(parents=True, exist_ok=True)
    store = Repositories(repositories)
    asks = {}
    for project, commits in zip(data.projects, (SHORT, max(int(LONG * scale), 2 * SHORT)), strict=False):
        source = repositories / "source"
        make_history(source, commits=commits)
        store.adopt(project, source)
        shutil.rmtree(source)
        asks[commits] = Ask("GET", (f"/api/v3/projects/{project}/repository/commits?ref_name=master",), data.token)
    store.close()
    return asks
