"""Imports builds with traces and artifacts, and what belongs to commits: statuses and comments."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import urlsplit

from forgefront.importing import content_mapping
from forgefront.importing.account_import import AccountImporter
from forgefront.importing.content_mapping import FINISHED_STATUSES
from forgefront.importing.entity_fields import MAX_ID, InvalidEntity, Item, SourceEntity
from forgefront.importing.import_run import CollectionState, ImportRun, for_each
from forgefront.importing.import_target import BatchWriter
from forgefront.importing.project_import import ProjectWork
from forgefront.importing.repository_mirrors import CloneFailed
from forgefront.importing.source_client import MAX_FILE_BYTES
from forgefront.importing.source_errors import SourceMissing, SourceSkipped, SourceTooLarge
from graph.errors import UserError
from graph.rules.imports.batches import ItemResult

MAX_COMMITS = 1_000
"""The newest commits of a project whose statuses and comments are read; those of branches, tags, builds and merge requests are always."""
RECENT_COMMITS = 3
"""Commits whose statuses and comments a later run reads again."""
MAX_SHORT_TRACE_BYTES = 256 * 1024
"""Longer traces are copied as streams."""
MAX_TRACES_BYTES = 4 * 2**20
"""Bytes of short traces that are written together."""


CANCELED_TRACE = b"\nThis build had not ended when it was imported, and its runner could not report it here: it was canceled.\n"
"""The end of the trace of a build that the import canceled."""
MAX_LISTED_BUILDS = 20
"""Unfinished builds of a project that the report names."""


@dataclass
class BuildFileBatch:
    """Copies the files of some builds: short traces together, long ones and artifacts as streams."""

    run: ImportRun
    work: ProjectWork
    is_complete: bool = True
    _traces: list[tuple[str, bytes]] = field(default_factory=list)
    _bytes: int = 0

    def _path(self, route: str, build: SourceEntity) -> str:
        return self.run.source.path(route, project=self.work.id, build=build.id)

    async def read_trace(self, build: SourceEntity, end: bytes = b"") -> None:
        """Reads the trace, to which `end` is added."""
        path, import_id = self._path("trace", build), self.run.target.import_id
        try:
            content = await self.run.source.client.get_text(path, max_bytes=MAX_SHORT_TRACE_BYTES)
        except SourceTooLarge:
            await self._copy("traces", path, lambda stream: self.run.files.write_trace(import_id, str(build.id), _extend(stream, end)))
            return
        except SourceSkipped as error:
            self._record(error, "traces", path)
            return
        await self.add_trace(build, content + end)

    async def add_trace(self, build: SourceEntity, content: bytes) -> None:
        if content:
            self.run.report.count("traces").read += 1
            self._traces.append((str(build.id), content))
            self._bytes += len(content)
            if self._bytes > MAX_TRACES_BYTES:
                await self.flush()

    async def flush(self) -> None:
        """Writes the traces that were read."""
        traces, self._traces, self._bytes = self._traces, [], 0
        if traces:
            import_id = self.run.target.import_id
            results = await self.run.target.call(lambda: self.run.files.write_traces(import_id, traces))
            for (build_id, _), result in zip(traces, results, strict=True):
                path = self.run.source.path("trace", project=self.work.id, build=build_id)
                self.run.target.record_result("traces", path, result)

    async def copy_artifact(self, build: SourceEntity) -> None:
        filename = PurePosixPath(build.entity("artifacts_file").text("filename") or "").name or "artifacts.zip"
        import_id = self.run.target.import_id
        await self._copy(
            "artifacts",
            self._path("artifacts", build),
            lambda stream: self.run.files.write_artifact(import_id, str(build.id), filename, stream),
        )

    async def _copy(self, kind: str, path: str, write: Callable[[AsyncIterator[bytes]], Awaitable[ItemResult]]) -> None:
        self.run.report.count(kind).read += 1
        try:
            result = await write(self.run.source.client.stream(path, max_bytes=MAX_FILE_BYTES))
        except SourceSkipped as error:
            self._record(error, kind, path)
        except UserError as error:
            self.run.report.skip(kind, path, error.message)
        else:
            self.run.target.record_result(kind, path, result)

    def _record(self, error: SourceSkipped, kind: str, path: str) -> None:
        if isinstance(error, SourceMissing):
            self.run.report.record_omission(kind, path, error.reason)
        else:
            self.run.report.skip(kind, path, error.reason)
            self.is_complete = False


@dataclass
class BuildImporter:
    run: ImportRun
    accounts: AccountImporter

    async def import_builds(self, work: ProjectWork) -> None:
        """The builds that are newer than the oldest unfinished one of the last run, oldest first, with their traces and artifacts.

        A server that repeats a build under its id does not list it as a new one. Repeated builds are found on the page that is read anyway.
        """
        path = self.run.source.path("builds", project=work.id)
        marks = self.run.target.marks
        mark, newest, oldest_unfinished, is_complete = int(marks.get(work.mark_name("builds"), 0)), 0, 0, True
        last_end = newest_end = marks.get(work.mark_name("ends of builds"), "")
        writer, batch, unfinished = BatchWriter(self.run.target, "builds"), list[SourceEntity](), list[int]()
        is_known = (lambda fields: (SourceEntity(fields).id or MAX_ID) <= mark) if mark else None

        def has_changed(fields: dict[str, Any]) -> bool:
            build = SourceEntity(fields)
            is_unfinished = content_mapping.find_status(build) not in (None, *FINISHED_STATUSES)
            return build.id is not None and (is_unfinished or (build.time("finished_at") or "") > last_end)

        try:
            async for fields in self.run.source.client.entries_oldest_first(path, is_known, has_changed):
                self.run.report.count("builds").read += 1
                build = SourceEntity(fields)
                if build.id is None:
                    self.run.report.skip("builds", f"{path}/?", "it has no valid id")
                    continue
                newest = max(newest, build.id)
                if (pipeline_id := build.entity("pipeline").id) is not None:
                    work.pipelines.add(pipeline_id)
                newest_end = max(newest_end, build.time("finished_at") or "")
                status = content_mapping.find_status(build)
                if status not in FINISHED_STATUSES:
                    oldest_unfinished = oldest_unfinished or build.id
                    unfinished += [build.id] if status is not None else []
                batch.append(build)
                if len(batch) == 100:
                    is_complete &= await self._write_builds(work, path, batch, writer)
                    batch = []
        except SourceMissing as error:
            self.run.report.record_omission("builds", path, error.reason)
        except SourceSkipped as error:
            self.run.report.skip("builds", path, error.reason)
            is_complete = False
        is_complete &= await self._write_builds(work, path, batch, writer)
        if unfinished:
            self._note_unfinished(work, unfinished)
        if is_complete and not writer.retry and newest:
            finished = oldest_unfinished - 1 if oldest_unfinished else newest
            await self.run.target.set_mark(work.mark_name("builds"), str(max(finished, mark)))
            await self.run.target.set_mark(work.mark_name("ends of builds"), newest_end)

    def _note_unfinished(self, work: ProjectWork, build_ids: list[int]) -> None:
        ids = ", ".join(map(str, build_ids[:MAX_LISTED_BUILDS])) + (" and others" if len(build_ids) > MAX_LISTED_BUILDS else "")
        listed = f"{len(build_ids):,} (ids {ids})"
        if self.run.options.cancels_builds:
            self.run.report.note(f"{work.path}: unfinished builds, canceled here: {listed}")
        else:
            advice = "runners here do not continue them: import again when they have ended, or with --cancel-builds"
            self.run.report.note(f"{work.path}: unfinished builds: {listed}; {advice}")

    async def _write_builds(self, work: ProjectWork, path: str, builds: list[SourceEntity], writer: BatchWriter) -> bool:
        """Writes builds, and then their files. Returns whether all files could be read."""
        written, ends = list[SourceEntity](), dict[int | None, bytes]()
        for build in builds:
            await self.accounts.ensure_users([build.entity("user")])
            try:
                item = content_mapping.map_build(work.id, build)
                if self.run.options.cancels_builds and item["status"] not in FINISHED_STATUSES:
                    item["status"], ends[build.id] = "CANCELED", CANCELED_TRACE
                await writer.add(f"{path}/{build.id}", item)
                written.append(build)
                work.commit_oids.append(build.entity("commit").text("id") or "")
            except InvalidEntity as error:
                self.run.report.skip("builds", f"{path}/{build.id}", str(error))
        await writer.flush()
        self.run.progress.advance("builds", len(builds))
        files = BuildFileBatch(self.run, work)

        async def read_files(build: SourceEntity) -> None:
            if build.text("status") not in ("pending", "created", "manual", "skipped"):
                await files.read_trace(build, ends.get(build.id, b""))
            elif build.id in ends:
                await files.add_trace(build, ends[build.id])
            if build.entity("artifacts_file").text("filename"):
                await files.copy_artifact(build)

        await for_each(written, read_files, parallel=self.run.parallel)
        await files.flush()
        return files.is_complete

    async def import_commit_facts(self, work: ProjectWork) -> None:
        """Statuses and comments of commits: the interface lists them by commit alone.

        The mark names the set of commits that were read. A time would not do: who commits chooses it, and commits are pushed later.
        """
        if not work.has_repository:
            return
        try:
            commits = await asyncio.to_thread(self.run.mirrors.list_commits, int(work.id), MAX_COMMITS + 1)
        except CloneFailed as error:
            self.run.report.skip("commit statuses", work.path, str(error))
            return
        if len(commits) > MAX_COMMITS:
            self.run.report.record_omission(
                "commit comments", work.path, f"comments and statuses of all but the newest {MAX_COMMITS:,} commits"
            )
        mirrors, listed = self.run.mirrors, commits[:MAX_COMMITS]
        mark = self.run.target.marks.get(work.mark_name("commits"), "")
        read_before = await asyncio.to_thread(mirrors.load_read_commits, int(work.id), mark)
        times = {commit.oid: commit.committed_at for commit in commits}
        unread_oids = dict.fromkeys(oid for oid in work.commit_oids if oid)
        unread_oids |= dict.fromkeys(commit.oid for commit in listed[:RECENT_COMMITS])
        unread_oids |= dict.fromkeys(commit.oid for commit in listed if commit.oid not in read_before)
        statuses, comments = BatchWriter(self.run.target, "commit statuses"), BatchWriter(self.run.target, "commit comments")
        state = CollectionState()

        async def read_commit(oid: str) -> None:
            committed_at = _format_commit_time(times.get(oid, 0))
            await self._read_statuses(work, oid, statuses, state)
            await self._read_comments(work, oid, committed_at, comments, state)

        await for_each(unread_oids, read_commit, parallel=self.run.parallel)
        await statuses.flush()
        await comments.flush()
        if state.is_complete and not statuses.retry and not comments.retry and commits:
            digest = await asyncio.to_thread(mirrors.store_read_commits, int(work.id), [commit.oid for commit in listed])
            await self.run.target.set_mark(work.mark_name("commits"), digest)

    async def _read_statuses(self, work: ProjectWork, oid: str, writer: BatchWriter, state: CollectionState) -> None:
        path, own = self.run.source.path("commit_statuses", project=work.id, sha=oid), CollectionState()
        async for status in self.run.read("commit statuses", path, params={"all": "true"}, state=own):
            if _is_build(work, status):
                self.run.report.count("commit statuses").read -= 1
                continue
            where = f"{path}/{status.id or '?'}"
            await self.accounts.ensure_users([status.entity("author")])
            try:
                await writer.add(where, content_mapping.map_commit_status(work.id, status))
            except InvalidEntity as error:
                self.run.report.skip("commit statuses", where, str(error))
        state.has_failed |= own.has_failed

    async def _read_comments(self, work: ProjectWork, oid: str, committed_at: str, writer: BatchWriter, state: CollectionState) -> None:
        path, own = self.run.source.path("commit_comments", project=work.id, sha=oid), CollectionState()
        position = 0
        async for comment in self.run.read("commit comments", path, state=own):
            position += 1
            if not comment.has("created_at"):
                self.run.report.note("the source does not show the times and lines of commit comments: they have the time of their commit")
            await self.accounts.ensure_users([comment.entity("author")])
            try:
                item: Item = content_mapping.map_commit_comment(work.id, oid, comment, committed_at)
                await writer.add(f"{path}#{position}", item)
            except InvalidEntity as error:
                self.run.report.skip("commit comments", f"{path}#{position}", str(error))
        state.has_failed |= own.has_failed


async def _extend(stream: AsyncIterator[bytes], end: bytes) -> AsyncIterator[bytes]:
    async for part in stream:
        yield part
    if end:
        yield end


def _format_commit_time(seconds: int) -> str:
    """The timestamp of a commit; a date out of range is 1970, as for git."""
    try:
        time = datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, ValueError, OSError):
        time = datetime.fromtimestamp(0, UTC)
    return time.isoformat().replace("+00:00", "Z")


def _is_build(work: ProjectWork, status: SourceEntity) -> bool:
    """Whether a status is one of the builds of the project, which servers of that time list among the statuses."""
    target = status.text("target_url") or ""
    if not work.web_url or not target.startswith(f"{work.web_url}/"):
        return False
    parts: Any = PurePosixPath(urlsplit(target).path).parts
    return len(parts) > 1 and parts[-2] in ("builds", "jobs") and parts[-1] == str(status.id)
