"""Writing to the importing instance: retries while it is busy, bounded batches, and what is read again by a later run."""

import asyncio
from typing import Any

import pytest

from forgefront.importing import import_target
from forgefront.importing.import_report import ImportReport
from forgefront.importing.import_target import BatchWriter, ImportTarget
from forgefront.local_client import OperationRejected
from graph.errors import Code


class RecordingClient:
    """Answers like the graph, after it was busy for `busy` calls."""

    def __init__(self, busy: int = 0, code: Code = Code.UNAVAILABLE) -> None:
        self.busy, self.code = busy, code
        self.batches: list[list[dict[str, Any]]] = []
        self.running = self.most = 0

    async def run(self, name: str, **variables: Any) -> Any:
        self.running += 1
        self.most = max(self.most, self.running)
        await asyncio.sleep(0)
        self.running -= 1
        if self.busy:
            self.busy -= 1
            raise OperationRejected("busy", code=self.code)
        items = variables["items"]
        self.batches.append(items)
        codes = [item.get("code") for item in items]
        return [
            {"sourceId": "1", "databaseId": 1, "outcome": "SKIPPED" if code else "CREATED", "errors": [_error(code)] if code else []}
            for code in codes
        ]


def _error(code: str) -> dict[str, str]:
    return {"code": code, "field": "name", "message": "is wrong"}


async def test_a_busy_instance_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(import_target, "MAX_RETRY_SECONDS", 0.0)
    for code in (Code.UNAVAILABLE, Code.CONFLICT):
        client = RecordingClient(import_target.WRITE_ATTEMPTS - 1, code)
        report = ImportReport("x")
        await ImportTarget(client, report).write("labels", [("/a", {})])  # type: ignore[arg-type]
        assert report.count("labels").created == 1
    for busy, code in ((import_target.WRITE_ATTEMPTS, Code.UNAVAILABLE), (1, Code.FORBIDDEN)):
        with pytest.raises(OperationRejected):
            await ImportTarget(RecordingClient(busy, code), ImportReport("x")).write("labels", [("/a", {})])  # type: ignore[arg-type]


async def test_batches_are_bounded_in_size_and_number() -> None:
    client, report = RecordingClient(), ImportReport("x")
    target = ImportTarget(client, report)  # type: ignore[arg-type]
    writer = BatchWriter(target, "notes")
    for _ in range(101):
        await writer.add("/a", {"body": "x" * 10_000})
    await writer.flush()
    assert [len(batch) for batch in client.batches] == [69, 32]
    await asyncio.gather(*(target.write("notes", [("/a", {})]) for _ in range(5)))
    assert client.most == import_target.PARALLEL_WRITES

    for code in ("INVALID", "NOT_FOUND", "TAKEN"):
        await writer.add("/b", {"code": code})
    await writer.flush()
    # What the source has to change is not read again until it did.
    assert writer.retry == 2
    assert [(each.where, each.reason) for each in report.omissions] == [("/b", "name is wrong")] * 3


async def test_a_batch_that_did_not_change_is_not_written_again() -> None:
    async def write(target: ImportTarget, *codes: str) -> int:
        before = len(client.batches)
        writer = BatchWriter(target, "labels", "project/1/labels")
        for number in range(import_target.BATCH_SIZE):
            await writer.add("/a", {"number": number})
        for code in codes:
            await writer.add("/b", {"code": code})
        await writer.flush()
        return len(client.batches) - before

    client, report = RecordingClient(), ImportReport("x")
    target = ImportTarget(client, report)  # type: ignore[arg-type]
    assert [await write(target, ""), await write(target, ""), await write(target, "TAKEN"), await write(target, "TAKEN")] == [2, 0, 1, 1]
    # What was skipped is reported by every run.
    assert (report.count("labels").skipped, report.count("labels").unchanged) == (2, 101 + 2 * 100)
    target.marks.clear()
    assert await write(target, "") == 2
