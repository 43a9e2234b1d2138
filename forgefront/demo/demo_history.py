"""Derives the demo's time range and project name from a history."""

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

from forgefront.demo import demo_content as content
from graph.errors import UserError
from graph.rules import validation
from storage.database.clock import now
from storage.git.repository import NotARepository, Repository


class DemoClock:
    """The graph's clock while the demo's past is written; it never returns a future time."""

    def __init__(self, start: datetime) -> None:
        self._current = start

    def __call__(self) -> datetime:
        return min(self._current, now())

    def advance(self, duration: timedelta) -> None:
        self._current += duration


def create_clock(repository: Path | None) -> DemoClock:
    """A clock that starts some weeks before the last commit of the default branch. Raises NotARepository."""
    last = now()
    if repository is not None:
        opened = Repository.open(repository)
        oid = opened.resolve(opened.default_branch() or "") or _detached_head(opened)
        if oid is not None:
            last = min(last, opened.commit(oid).committed_at.astimezone(UTC))
    return DemoClock(max(last, datetime(1971, 1, 1, tzinfo=UTC)) - content.HISTORY_SPAN)


def _detached_head(repository: Repository) -> str | None:
    return str(repository.handle.head.target) if repository.handle.head_is_detached else None


def has_history(repository: Path) -> bool:
    """Whether there is a repository with at least one commit."""
    try:
        opened = Repository.open(repository)
        return not opened.is_empty() or _detached_head(opened) is not None
    except NotARepository:
        return False


def project_name_of(repository: Path) -> str:
    """The project name for a repository's folder: `/src/Linux.git` becomes `Linux`."""
    name = re.sub(r"[^\w.-]+", "-", repository.resolve().name.removesuffix(".git")).strip("-.")
    try:
        validation.validate_project_name("name", name)
        return validation.validate_project_path("path", name)
    except UserError:
        return "project"
