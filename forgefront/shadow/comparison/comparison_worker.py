"""Takes exchanges from the queue, has them answered by the shadow server, and counts what comes of it."""

import asyncio
import traceback
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import structlog

from forgefront.shadow.comparison.answer_comparison import AnswerComparison, IncomparableError
from forgefront.shadow.comparison.comparison_rules import ComparisonRules
from forgefront.shadow.comparison.content_codings import header_value
from forgefront.shadow.comparison.example_masking import ExampleMasker, mask_client
from forgefront.shadow.comparison.id_map import IdMap, UnknownIdError
from forgefront.shadow.comparison.json_comparison import AnswerDifference
from forgefront.shadow.comparison.json_paths import format_place
from forgefront.shadow.comparison.report_files import write_report
from forgefront.shadow.comparison.route_names import RouteNames
from forgefront.shadow.comparison.shadow_client import NoShadowAnswerError, ShadowAnswer, ShadowClient
from forgefront.shadow.comparison.traffic_report import TrafficCount, TrafficReport
from forgefront.shadow.exchanges import LENGTHS, Exchange
from forgefront.shadow.settings import ShadowSettings

THREAD_BYTES = 32 * 1024
"""Larger bodies are compared in a thread, so that the status page answers meanwhile."""
FINISH_SECONDS = 10.0
"""How long copies are still compared after the proxy has stopped."""
STOPPED = "the proxy stopped"
NO_CLIENT = "(no User-Agent)"


class ComparisonWorker:
    """Reads are compared some at a time; a replayed write waits for all before it, and all after it wait for the write."""

    def __init__(self, settings: ShadowSettings, *, restarts: int = 0) -> None:
        self._settings = settings
        self._rules = ComparisonRules.read(settings.rules, settings.ignored, replays_writes=settings.replays_writes)
        self._ids: IdMap | None = None
        if settings.replays_writes or settings.ids:
            self._ids = IdMap(self._rules, is_switched=settings.is_switched)
            self._ids.read(settings.ids.splitlines())
        self._comparison = AnswerComparison(settings, self._rules, self._ids)
        self._client = ShadowClient(settings)
        self._routes = RouteNames()
        self._slots = asyncio.Semaphore(settings.copies_at_once)
        self._tasks: set[asyncio.Task[None]] = set()
        self._has_ended = False
        self.report = TrafficReport(settings, restarts)

    async def run(self, reader: asyncio.StreamReader) -> None:
        """Works until the queue ends."""
        reports = asyncio.create_task(self._write_reports())
        try:
            while (frame := await read_frame(reader)) is not None:
                description, request_body, response_body = frame
                command = description.get("command")
                if command == "report":
                    await self.write_report()
                elif command == "end":
                    self.report.count_lost(description["lost"])
                else:
                    await self._take_safely(Exchange.decode(description, request_body, response_body))
            await asyncio.gather(*self._tasks, return_exceptions=True)
        finally:
            reports.cancel()
            await self._client.close()
            await self.write_report()

    def end_comparing(self) -> None:
        """From now on, exchanges are only counted, also those that are being compared."""
        self._has_ended = True
        for task in self._tasks:
            task.cancel()

    async def take(self, exchange: Exchange) -> None:
        """Counts an exchange, and begins its comparison."""
        self.report.count_lost(exchange.lost)
        route = self._routes.find(exchange.method, exchange.target)
        client = mask_client(header_value(exchange.request_headers, "user-agent"), exchange, self._rules) or NO_CLIENT
        count = self.report.count(route, client)
        count.seen += 1
        reason = exchange.skip_reason
        if reason is None and (rule := self._rules.find_skipped(exchange.target.partition("?")[0], exchange.request_body)) is not None:
            count.not_compared[rule.reason] += 1
        elif reason is not None:
            count.not_compared[reason.value] += 1
        elif exchange.is_read:
            await self._slots.acquire()
            self._begin(exchange, route, client)
        else:
            if self._tasks:
                await asyncio.wait(self._tasks)
            await self._slots.acquire()
            await asyncio.wait({self._begin(exchange, route, client)})

    async def _take_safely(self, exchange: Exchange) -> None:
        try:
            await self.take(exchange)
        except Exception as error:
            log_error(error)

    async def write_report(self) -> None:
        """Writes the report file; a failure is logged."""
        if self._settings.report_file is None:
            return
        try:
            await asyncio.to_thread(write_report, Path(self._settings.report_file), self.report.as_json())
        except OSError as error:
            structlog.get_logger().error("the report was not written", error=str(error))

    async def _write_reports(self) -> None:
        while True:
            await asyncio.sleep(self._settings.report_seconds)
            await self.write_report()

    def _begin(self, exchange: Exchange, route: str, client: str) -> asyncio.Task[None]:
        task = asyncio.create_task(self._compare(exchange, route, client))
        self._tasks.add(task)
        task.add_done_callback(partial(self._end_task, self.report.count(route, client)))
        return task

    def _end_task(self, count: TrafficCount, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._slots.release()
        if task.cancelled():
            count.not_compared[STOPPED] += 1

    async def _compare(self, exchange: Exchange, route: str, client: str) -> None:
        count = self.report.count(route, client)
        if self._has_ended:
            count.not_compared[STOPPED] += 1
            return
        try:
            answer = await self._send(exchange)
            differences = await self._find_differences(exchange, answer, route)
        except (NoShadowAnswerError, IncomparableError) as error:
            count.not_compared[str(error)] += 1
            return
        except Exception as error:
            # An error of one comparison does not end the worker.
            log_error(error)
            count.not_compared[f"comparison failed: {type(error).__name__}"] += 1
            return
        seconds = (answer.seconds, exchange.seconds) if self._settings.is_switched else (exchange.seconds, answer.seconds)
        count.old_seconds += seconds[0]
        count.new_seconds += seconds[1]
        if self._count_differences(exchange, route, client, differences):
            count.different += 1
        else:
            count.equal += 1

    async def _send(self, exchange: Exchange) -> ShadowAnswer:
        target, body = exchange.target, bytes(exchange.request_body)
        if self._ids is not None:
            if not exchange.is_read and exchange.status >= 500:
                raise IncomparableError("write that the server did not complete")
            try:
                target = self._ids.map_target(target)
                body = self._ids.map_body(header_value(exchange.request_headers, "content-type").lower(), body)
            except UnknownIdError as error:
                raise IncomparableError(f"unknown id of a {str(error).partition(' ')[0]}") from None
        answer = await self._client.send(exchange, target, body)
        if self._ids is not None and exchange.method == "POST" and exchange.status < 300 and answer.status < 300:
            self._ids.record_created(target.partition("?")[0], _read_object(exchange.response_body), _read_object(answer.body))
        return answer

    async def _find_differences(self, exchange: Exchange, answer: ShadowAnswer, route: str) -> list[AnswerDifference]:
        content_type = header_value(exchange.response_headers or [], "content-type").lower()
        rule = self._rules.find_skipped_answer(content_type)
        if rule is not None:
            raise IncomparableError(rule.reason)
        if len(exchange.response_body) + len(answer.body) > THREAD_BYTES:
            return await asyncio.to_thread(self._comparison.compare, exchange, answer, route)
        return self._comparison.compare(exchange, answer, route)

    def _count_differences(self, exchange: Exchange, route: str, client: str, differences: list[AnswerDifference]) -> bool:
        """Counts them; whether there is one that no rule ignores."""
        masker: ExampleMasker | None = None
        counted: set[tuple[str, str]] = set()
        for difference in differences:
            ignored = self._rules.find_ignored(route, difference.kind, difference.place)
            if ignored is not None:
                self.report.count_ignored(ignored.title, ignored.reason)
                continue
            place = f"header {difference.place}" if isinstance(difference.place, str) else format_place(difference.place)
            if (difference.kind, place) in counted:
                continue
            counted.add((difference.kind, place))
            row = self.report.count_difference(route, difference.kind, place, client)
            if row.example is None:
                masker = masker or ExampleMasker(self._rules, exchange, masks_values=self._settings.masks_values)
                name = (
                    difference.place
                    if isinstance(difference.place, str)
                    else next((step for step in reversed(difference.place) if isinstance(step, str)), "")
                )
                row.example = {
                    "request": f"{exchange.method} {masker.mask_target(exchange.target, route)}",
                    "old": masker.mask_value(difference.old, name),
                    "new": masker.mask_value(difference.new, name),
                }
        return bool(counted)


async def read_frame(reader: asyncio.StreamReader) -> tuple[dict[str, Any], bytes, bytes] | None:
    """The next frame of the queue; None at its end."""
    try:
        lengths = LENGTHS.unpack(await reader.readexactly(LENGTHS.size))
        description, request_body, response_body = [await reader.readexactly(length) for length in lengths]
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
    return orjson.loads(description), request_body, response_body


def log_error(error: Exception) -> None:
    """Logs where an unexpected error happened. Its message could contain a part of a request, so it is left out."""
    lines = traceback.format_tb(error.__traceback__)
    structlog.get_logger().error("comparison failed", error=type(error).__name__, traceback="".join(lines))


def _read_object(body: bytes | bytearray) -> Any:
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        return None
