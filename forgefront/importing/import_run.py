"""A run of an import: accounts first, then all projects, then the contents of each project.

Everything that was written before is written again as far as it changed; the graph knows what is equal. Marks, stored in the target,
say what need not be read again.
"""

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, TypeVar

from forgefront.importing.entity_fields import InvalidEntity, Item, SourceEntity, format_time
from forgefront.importing.import_report import ImportReport
from forgefront.importing.import_target import ImportTarget
from forgefront.importing.repository_mirrors import RepositoryMirrors
from forgefront.importing.source_errors import SourceMissing, SourceSkipped
from forgefront.importing.source_instance import SourceInstance
from graph.build_file_imports import BuildFileImports
from graph.imports import InstanceImports
from graph.upload_imports import UploadImports
from storage.git.importing.repository_import import ProgressCallback

T = TypeVar("T")
MAX_VISIBILITY_DELAY = timedelta(minutes=1)
"""Maximum time in the source between the time that a change has and its commit, from which on it can be read."""
REPORT_SECONDS = 0.25
"""Minimum seconds between two reports of the progress of a kind."""


@dataclass(frozen=True, slots=True)
class ImportOptions:
    """`project` or `group` restrict the import to one of them. `reads_all` ignores the marks of earlier runs. `cancels_builds`: builds
    that have not ended are canceled in the target, as for a switch."""

    project: str | None = None
    group: str | None = None
    keeps_ids: bool = False
    reads_all: bool = False
    uses_ssh: bool = False
    enables_hooks: bool = False
    cancels_builds: bool = False

    @property
    def is_whole(self) -> bool:
        return self.project is None and self.group is None


@dataclass
class ImportProgress:
    """Progress by kind. Kinds that are read side by side are shown on a terminal only, where each has its bar."""

    report: ProgressCallback
    is_terminal: bool = field(default_factory=lambda: sys.stderr.isatty())
    _done: dict[str, int] = field(default_factory=dict)
    _totals: dict[str, int] = field(default_factory=dict)
    _reported_at: dict[str, float] = field(default_factory=dict)

    def expect(self, kind: str, number: int) -> None:
        self._totals[kind] = self._totals.get(kind, 0) + number

    def advance(self, kind: str, number: int = 1, *, is_phase: bool = False) -> None:
        done = self._done[kind] = self._done.get(kind, 0) + number
        total = max(done, self._totals.get(kind, 0))
        if not is_phase and not self.is_terminal:
            return
        now = time.monotonic()
        if done >= total or now - self._reported_at.get(kind, 0.0) >= REPORT_SECONDS:
            self._reported_at[kind] = now
            self.report(kind, done, total)


@dataclass
class CollectionReader:
    """Reads collections of the source, and records what cannot be read or mapped."""

    source: SourceInstance
    report: ImportReport
    progress: ImportProgress

    @property
    def parallel(self) -> int:
        return self.source.client.parallel

    async def read_mapped(
        self,
        kind: str,
        path: str,
        map_entity: Callable[[SourceEntity], Item | None],
        *,
        params: dict[str, Any] | None = None,
    ) -> AsyncIterator[tuple[str, Item]]:
        """The items of a collection, each with its path. Those that cannot be read or mapped are recorded; `map_entity` returns None to
        leave one out."""
        async for entity in self.read(kind, path, params=params, state=CollectionState()):
            where = f"{path}/{entity.id or entity.text('name', 'key', 'title') or '?'}"
            try:
                item = map_entity(entity)
            except InvalidEntity as error:
                self.report.skip(kind, where, str(error))
                continue
            if item is not None:
                yield where, item

    async def read(
        self, kind: str, path: str, *, params: dict[str, Any] | None = None, state: "CollectionState"
    ) -> AsyncIterator[SourceEntity]:
        """The entries of a collection. A collection that cannot be read to its end is recorded, and `state` says so."""
        count, ids, distinct = self.report.count(kind), set[int](), 0
        try:
            async for page in self.source.client.pages(path, params):
                if page.malformed:
                    self.report.skip(kind, path, f"{page.malformed} entries are no objects")
                if page.total is not None:
                    self.progress.expect(kind, page.total - (state.total or 0))
                    state.total = page.total
                for fields in page.entries:
                    entity = SourceEntity(fields)
                    if entity.id is not None:
                        if entity.id in ids:
                            continue
                        ids.add(entity.id)
                    count.read += 1
                    distinct += 1
                    yield entity
                self.progress.advance(kind, len(page.entries))
        except SourceMissing as error:
            self.report.record_omission(kind, path, error.reason)
        except SourceSkipped as error:
            self.report.skip(kind, path, error.reason)
            state.has_failed = True
        # Something was deleted while the pages were read, so that another entry moved to a page that was read before.
        state.is_short = state.total is not None and distinct < state.total

    def read_projects(self, options: ImportOptions) -> AsyncIterator[SourceEntity]:
        """The list of projects in the order of their ids: those of the group, or all that the token's user may import."""
        route = "group_projects" if options.group is not None else "projects" if self.source.is_admin else "own_projects"
        params = {"order_by": "id", "sort": "asc", **({"include_subgroups": "true"} if options.group is not None else {})}
        return self.read("projects", self.source.path(route, group=options.group), params=params, state=CollectionState())


@dataclass
class ImportRun(CollectionReader):
    """What the parts of a run share."""

    target: ImportTarget
    mirrors: RepositoryMirrors
    repositories: InstanceImports
    files: BuildFileImports
    uploads: UploadImports
    options: ImportOptions
    known_users: set[str] = field(default_factory=set)
    """Ids in the source of users that were written in this run, or skipped."""

    def mark_after(self, newest: str) -> str:
        """The mark of a list with this newest time: entries with this time or a later one are read again.

        An entry with the newest time may have changed since it was read. If that time was long over when the run began, by the clock of
        the source, it has not: a later change has a later time.
        """
        started_at = self.source.client.started_at
        if started_at is None or newest >= format_time(started_at - MAX_VISIBILITY_DELAY):
            return newest
        return format_time(datetime.fromisoformat(newest) + timedelta(microseconds=1))


@dataclass(slots=True)
class CollectionState:
    """Whether a collection was read to its end, so that its mark may be stored. `is_short`: it has fewer entries than were counted."""

    has_failed: bool = False
    is_short: bool = False
    total: int | None = None

    @property
    def is_complete(self) -> bool:
        return not self.has_failed and not self.is_short


async def for_each(items: Iterable[T], work: Callable[[T], Awaitable[None]], *, parallel: int) -> None:
    """Runs `work` for each item, a few at once. The first exception ends all."""
    iterator = iter(items)

    async def work_through() -> None:
        for item in iterator:
            await work(item)

    tasks = [asyncio.ensure_future(work_through()) for _ in range(parallel)]
    try:
        await asyncio.gather(*tasks)
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise
