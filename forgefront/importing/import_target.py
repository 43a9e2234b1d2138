"""Writes to the instance that imports: batches of items through the import mutations of the graph, and marks of what was read."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any, TextIO, TypeVar

import orjson

from forgefront.importing.entity_fields import Item
from forgefront.importing.import_report import ImportReport
from forgefront.local_client import LocalClient
from graph.errors import Code
from storage.database.errors import is_unavailable

T = TypeVar("T")

OPERATIONS_FILE = Path(__file__).with_name("import_operations.graphql")
BATCH_SIZE = 100
MAX_BATCH_BYTES = 700_000
"""Bytes of the items of a batch; the limit of the graph is 1 MiB."""
PARALLEL_WRITES = 2
"""Batches at once: one is written, the next one is prepared. The database lets batches of an import wait for each other."""
WRITE_ATTEMPTS = 8
MAX_RETRY_SECONDS = 10.0
RETRIED_CODES = (Code.CONFLICT, Code.UNAVAILABLE)
OLD_ID_KINDS = (
    "USER", "NAMESPACE", "EMAIL", "SSH_KEY", "PROJECT", "MILESTONE", "HOOK", "DEPLOY_KEY", "RUNNER", "SNIPPET", "ISSUE", "MERGE_REQUEST",
    "NOTE", "BUILD",
)  # fmt: skip
"""Kinds of items whose ids are in paths of v3."""
PERMANENT_CODES = frozenset({"INVALID", "REQUIRED", "TOO_LARGE", "NOT_ALLOWED"})
"""Errors of an item that a later run does not change unless the source does."""

OPERATIONS = {
    "users": "ImportUsers",
    "emails": "ImportEmails",
    "SSH keys": "ImportSshKeys",
    "groups": "ImportGroups",
    "group members": "ImportGroupMembers",
    "projects": "ImportProjects",
    "project members": "ImportProjectMembers",
    "labels": "ImportLabels",
    "milestones": "ImportMilestones",
    "hooks": "ImportHooks",
    "deploy keys": "ImportDeployKeys",
    "variables": "ImportVariables",
    "triggers": "ImportTriggers",
    "protected branches": "ImportProtectedBranches",
    "runners": "ImportRunners",
    "snippets": "ImportSnippets",
    "issues": "ImportIssues",
    "merge requests": "ImportMergeRequestBatch",
    "notes": "ImportNotes",
    "commit comments": "ImportCommitComments",
    "commit statuses": "ImportCommitStatuses",
    "builds": "ImportBuilds",
    "releases": "ImportReleases",
}
"""The operation that writes each kind of item, in the order of the report."""


@dataclass
class ImportTarget:
    """One running import. `marks` are those that earlier runs stored; use `set_mark` to change them."""

    client: LocalClient
    report: ImportReport
    import_id: int = 0
    marks: dict[str, str] = field(default_factory=dict)
    _new_marks: dict[str, str] = field(default_factory=dict)
    _slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(PARALLEL_WRITES))

    async def begin(self, source: str, *, keeps_ids: bool) -> None:
        """Begins or continues the import of this source. Raises OperationRejected."""
        begun = await self.client.run("BeginImport", input={"source": source, "keepIds": keeps_ids})
        self.import_id = begun["id"]
        after = ""
        while page := await self.client.run("ImportMarks", importId=self.import_id, after=after):
            self.marks |= {mark["name"]: mark["value"] for mark in page}
            after = page[-1]["name"]

    async def finish(self) -> None:
        await self.flush_marks()
        await self.call(lambda: self.client.run("FinishImport", importId=self.import_id))

    async def write_settings(self, item: Item) -> None:
        result = await self.call(lambda: self.client.run("ImportSettings", input={"importId": self.import_id, **item}))
        self.record("settings", "/application/settings", result)

    async def write(self, kind: str, items: list[tuple[str, Item]]) -> list[dict[str, Any]]:
        """Writes the items of a batch, each with where it is in the source, and records the results. Raises OperationRejected."""
        values = [item for _, item in items]
        results: list[dict[str, Any]] = await self.call(lambda: self.client.run(OPERATIONS[kind], importId=self.import_id, items=values))
        for (where, _), result in zip(items, results, strict=True):
            self.record(kind, where, result)
        return results

    async def call(self, work: Callable[[], Awaitable[T]], *, is_bounded: bool = True) -> T:
        """Runs what writes, a few at a time, and again while the database is busy.

        Raises what `work` raises at the last attempt.
        """
        for attempt in range(1, WRITE_ATTEMPTS + 1):
            try:
                async with self._slots if is_bounded else contextlib.nullcontext():
                    return await work()
            except Exception as error:
                is_busy = getattr(error, "code", None) in RETRIED_CODES or is_unavailable(error)
                if not is_busy or attempt == WRITE_ATTEMPTS:
                    raise
            await asyncio.sleep(min(MAX_RETRY_SECONDS, 0.1 * 2**attempt))
        raise AssertionError("the last attempt returns or raises")

    def record(self, kind: str, where: str, result: Mapping[str, Any]) -> None:
        count = self.report.count(kind)
        reasons = "; ".join(f"{error['field']} {error['message']}" if error["field"] else error["message"] for error in result["errors"])
        match result["outcome"]:
            case "SKIPPED":
                self.report.skip(kind, where, reasons or "refused")
                return
            case "CREATED":
                count.created += 1
            case "UPDATED":
                count.updated += 1
            case _:
                count.unchanged += 1
        if reasons:
            self.report.record_omission(kind, where, f"without {reasons}")

    def record_result(self, kind: str, where: str, result: Any) -> None:
        """As `record`, for a result that is not from an operation."""
        errors = [{"code": each.code, "field": each.field, "message": each.message} for each in result.errors]
        self.record(kind, where, {"outcome": str(result.outcome).upper(), "errors": errors})

    async def set_mark(self, name: str, value: str) -> None:
        """Stores what was read, with the next batch of marks."""
        if self.marks.get(name) != value:
            self.marks[name] = self._new_marks[name] = value
            if len(self._new_marks) >= BATCH_SIZE:
                await self.flush_marks()

    async def list_source_ids(self, kind: str) -> AsyncIterator[str]:
        """The ids in the source of all imported items of an ImportKind."""
        after = ""
        while page := await self.client.run("ImportIdentities", importId=self.import_id, kind=kind, after=after):
            for each in page:
                yield each["sourceId"]
            after = page[-1]["sourceId"]

    async def write_old_ids(self, file: TextIO) -> int:
        """Writes the table of old and new ids that v3 takes (`rest_v3/old_ids.py`). Returns the number of its lines."""
        lines = 0
        for kind in OLD_ID_KINDS:
            after = ""
            while page := await self.client.run("ImportIdentities", importId=self.import_id, kind=kind, after=after):
                file.writelines(f"{kind.lower()}\t{each['sourceId']}\t{each['databaseId']}\n" for each in page)
                after, lines = page[-1]["sourceId"], lines + len(page)
        return lines

    async def flush_marks(self) -> None:
        marks, self._new_marks = self._new_marks, {}
        if marks:
            items = [{"name": name, "value": value} for name, value in marks.items()]
            await self.call(lambda: self.client.run("SetImportMarks", importId=self.import_id, items=items))


def is_retriable(result: Mapping[str, Any]) -> bool:
    """Whether a later run may write the item that was skipped."""
    return result["outcome"] == "SKIPPED" and not all(error["code"] in PERMANENT_CODES for error in result["errors"])


@dataclass
class BatchWriter:
    """Collects items of one kind and writes them in batches. `retry` counts the items that a later run has to read again.

    With a `mark`, the digest of each batch that was written completely is stored under this name, and an equal batch is not written again.
    """

    target: ImportTarget
    kind: str
    mark: str | None = None
    retry: int = 0
    _batches: int = 0
    _items: list[tuple[str, Item]] = field(default_factory=list)
    _bytes: int = 0

    async def add(self, where: str, item: Item) -> list[dict[str, Any]]:
        """Adds an item. Returns the results of the batch that it completes, or nothing."""
        size = len(orjson.dumps(item))
        results: list[dict[str, Any]] = []
        if self._items and self._bytes + size > MAX_BATCH_BYTES:
            results = await self.flush()
        self._items.append((where, item))
        self._bytes += size
        if len(self._items) >= BATCH_SIZE:
            results += await self.flush()
        return results

    async def flush(self) -> list[dict[str, Any]]:
        items, self._items, self._bytes = self._items, [], 0
        if not items:
            return []
        name, digest = f"{self.mark}/{self._batches}", blake2b(orjson.dumps([item for _, item in items]), digest_size=16).hexdigest()
        self._batches += 1
        if self.mark is not None and self.target.marks.get(name) == digest:
            self.target.report.count(self.kind).unchanged += len(items)
            return []
        results = await self.target.write(self.kind, items)
        self.retry += sum(map(is_retriable, results))
        if self.mark is not None and not any(result["errors"] for result in results):
            await self.target.set_mark(name, digest)
        return results

    async def write_all(self, items: AsyncIterator[tuple[str, Item]]) -> None:
        async for where, item in items:
            await self.add(where, item)
        await self.flush()
