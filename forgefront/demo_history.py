"""What a history says of the demo that is made of it: when it takes place, and what its project is called."""

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

from forgefront import demo_content as content
from graph.errors import UserError
from graph.rules import naming
from storage.database import now
from storage.git.repository import NotARepository, Repository


class Clock:
    """What the graph takes for the present while the demo's past is written; it never shows the future."""

    def __init__(self, moment: datetime) -> None:
        self._moment = moment

    def __call__(self) -> datetime:
        return min(self._moment, now())

    def go_on(self, by: timedelta) -> None:
        self._moment += by


def clock_of(repository: Path | None) -> Clock:
    """A clock that stands some weeks before the last commit of the default branch. Raises NotARepository."""
    last = now()
    if repository is not None:
        opened = Repository.open(repository)
        oid = opened.resolve(opened.default_branch() or "") or _detached(opened)
        if oid is not None:
            last = min(last, opened.commit(oid).committed_at.astimezone(UTC))
    return Clock(max(last, datetime(1971, 1, 1, tzinfo=UTC)) - content.WEEKS)


def _detached(repository: Repository) -> str | None:
    return str(repository.handle.head.target) if repository.handle.head_is_detached else None


def has_history(repository: Path) -> bool:
    """Whether there is a repository with at least one commit."""
    try:
        opened = Repository.open(repository)
        return not opened.is_empty() or _detached(opened) is not None
    except NotARepository:
        return False


def name_of(repository: Path) -> str:
    """The name that a project gets from the folder of its repository: `/src/Linux.git` gives `Linux`."""
    name = re.sub(r"[^\w.-]+", "-", repository.resolve().name.removesuffix(".git")).strip("-.")
    try:
        naming.project_name("name", name)
        return naming.project_path("path", name)
    except UserError:
        return "project"
