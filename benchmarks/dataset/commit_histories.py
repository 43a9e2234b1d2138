"""Pages of commits: the first one of a long history must cost what that of a short one costs."""

import shutil
from pathlib import Path

from benchmarks.dataset.seed import Dataset
from benchmarks.harness.load import LoadRequest
from storage.git.repositories import Repositories
from storage.git.repository_import import import_repository
from tests.support.git_history import make_history

SHORT_HISTORY_COMMITS, LONG_HISTORY_COMMITS = 1_000, 100_000


def create_histories(data: Dataset, repositories: Path, scale: float) -> dict[int, LoadRequest]:
    """Gives two of the projects their repositories: the number of commits → the question for the first page."""
    repositories.mkdir(parents=True, exist_ok=True)
    store = Repositories(repositories)
    asks = {}
    for project, commits in zip(
        data.projects, (SHORT_HISTORY_COMMITS, max(int(LONG_HISTORY_COMMITS * scale), 2 * SHORT_HISTORY_COMMITS)), strict=False
    ):
        source = repositories / "source"
        make_history(source, commits=commits)
        import_repository(source, store.path_of(project))
        shutil.rmtree(source)
        asks[commits] = LoadRequest("GET", (f"/api/v3/projects/{project}/repository/commits?ref_name=master",), data.token)
    store.close()
    return asks
