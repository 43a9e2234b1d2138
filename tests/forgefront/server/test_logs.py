"""Every log line has the same form, the id of its request, and no secret."""

import asyncio
import io
import json
import logging
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Literal

import pytest
import structlog

from forgefront import logs

SECRET = "hunter2-AbCdEf_0123456789"


@pytest.fixture
def lines() -> Iterator[Callable[[], list[dict[str, object]]]]:
    stream = io.StringIO()
    root, level = logging.getLogger().handlers, logging.getLogger().level
    logs.configure("json", "info", stream)
    yield lambda: [json.loads(line) for line in stream.getvalue().splitlines()]
    logging.captureWarnings(False)
    logging.getLogger().handlers = root
    logging.getLogger().setLevel(level)
    structlog.reset_defaults()


class TestFormat:
    def test_structlog_and_the_standard_library_agree(self, lines: Callable[[], list[dict[str, object]]]) -> None:
        structlog.get_logger().info("one", count=1)
        logging.getLogger("anything").info("two %d", 2)
        first, second = lines()
        assert (first["event"], first["level"], first["count"]) == ("one", "info", 1)
        assert (second["event"], second["level"], second["logger"]) == ("two 2", "info", "anything")
        assert str(first["time"]).endswith("Z") and str(second["time"]).endswith("Z")

    @pytest.mark.parametrize("log_format", ["json", "text"])
    def test_lines_have_the_name_of_their_logger(self, log_format: Literal["json", "text"]) -> None:
        stream = io.StringIO()
        logs.configure(log_format, "info", stream)
        structlog.get_logger("hosts").info("one", seconds=1)
        structlog.get_logger("hosts").bind(logger="access").info("two")
        structlog.get_logger().info("three")
        structlog.reset_defaults()
        first, second, third = stream.getvalue().splitlines()
        names = ('"logger":"hosts"', '"logger":"access"', '"logger"') if log_format == "json" else ("[hosts]", "[access]", "[hosts]")
        assert (names[0] in first, names[1] in second, names[2] in third) == (True, True, False)

    def test_level(self, lines: Callable[[], list[dict[str, object]]]) -> None:
        structlog.get_logger().debug("no")
        logging.getLogger("anything").debug("no")
        logging.getLogger("sqlalchemy.engine").info("no")
        assert lines() == []

    def test_exception_has_the_request_id(self, lines: Callable[[], list[dict[str, object]]]) -> None:
        token = logs.REQUEST_ID.set("abc")
        try:
            raise ValueError(f"password={SECRET}")
        except ValueError:
            structlog.get_logger().exception("failed")
            logging.getLogger("other").exception("failed too")
        finally:
            logs.REQUEST_ID.reset(token)
        for line in lines():
            assert line["request_id"] == "abc"
            assert "ValueError" in str(line["exception"]) and "Traceback" in str(line["exception"])
            assert SECRET not in str(line)

    def test_uvicorn_access_lines_are_off(self, lines: Callable[[], list[dict[str, object]]]) -> None:
        logging.getLogger("uvicorn.access").info("GET /?private_token=%s", SECRET)
        assert lines() == []

    def test_a_line_that_is_not_unicode_is_still_written(self, lines: Callable[[], list[dict[str, object]]]) -> None:
        structlog.get_logger().info("x", path="\ud800")
        assert lines()[0]["path"] == r"'\ud800'"

    def test_line_breaks_are_escaped(self) -> None:
        stream = io.StringIO()
        logs.configure("text", "info", stream)
        structlog.get_logger().info("request", path="/a\n2026 [info] forged")
        assert stream.getvalue().count("\n") == 1
        structlog.reset_defaults()


TEXTS = [
    f"GET /api/v3/user?private_token={SECRET}&page=2",
    f"PRIVATE-TOKEN: {SECRET}",
    f"private-token: {SECRET}\r\naccept: */*",
    f"Authorization: Bearer {SECRET}",
    f"Authorization: Basic {SECRET}",
    f"authorization={SECRET}",
    f"got bearer {SECRET} there",
    f'{{"private_token": "{SECRET}", "a": 1}}',
    f"{{'password': '{SECRET} with spaces {SECRET}'}}",
    f"[(b'private-token', b'{SECRET}'), (b'host', b'x')]",
    f"login=a&password={SECRET}",
    f"postgresql+asyncpg://forge:{SECRET}@host/db",
    f"postgresql://forge:p@{SECRET}@host/db",
    f"IntegrityError\n[SQL: INSERT INTO tokens]\n[parameters: ('{SECRET}', 1)]\n(Background on this error)",
    f"UniqueViolationError: duplicate key\nDETAIL:  Key (email)=(a\n{SECRET}) already exists.\n[SQL: INSERT INTO emails]",
    f"duplicate key\nDETAIL:  Key (email)=({SECRET}) already exists.",
    f"access_token={SECRET};secret_key = {SECRET}",
    f"Cookie: {SECRET}",
    f"GET /api/v3/user%3Fprivate_token%3D{SECRET}",
]


class TestRedaction:
    @pytest.mark.parametrize("text", TEXTS)
    def test_text(self, text: str) -> None:
        cleaned = logs.redact_text(text)
        assert SECRET not in cleaned
        assert logs.REDACTED in cleaned

    @pytest.mark.parametrize("text", TEXTS)
    def test_wherever_it_stands_in_a_line(self, text: str, lines: Callable[[], list[dict[str, object]]]) -> None:
        structlog.get_logger().warning(text, detail={"deep": [text, {"er": text}]}, raw=text.encode(), error=ValueError(text))
        logging.getLogger("library").warning("%s", text)
        assert SECRET not in str(lines())

    @pytest.mark.parametrize(
        "name",
        ["token", "private_token", "PRIVATE-TOKEN", "Authorization", "password", "new_password", "access-token", "secret", "secret_key"],
    )
    def test_by_name(self, name: str, lines: Callable[[], list[dict[str, object]]]) -> None:
        structlog.get_logger().info("x", **{name: SECRET}, form={name: [SECRET]}, headers=[(name.lower().encode(), SECRET.encode())])
        assert SECRET not in str(lines())

    def test_surrounding_text_is_preserved(self) -> None:
        assert logs.redact_text("GET /x?private_token=abc&page=2") == f"GET /x?private_token={logs.REDACTED}&page=2"

    @pytest.mark.parametrize("text", ["plain", "https://example.com/a?b=c", "2,000 tokens at most", "wrong password", "a secretary: b"])
    def test_other_text_is_not_redacted(self, text: str) -> None:
        assert logs.redact_text(text) == text

    @pytest.mark.parametrize(
        "part", ["token", "token=", "://", "://@", "://a", "a-", "bearer ", "password  ", "[parameters: ", "\nDETAIL: ", "'token' , "]
    )
    def test_long_hostile_text_is_quick(self, part: str) -> None:
        started = time.thread_time()
        logs.redact_text(part * 20_000 + " token")
        assert time.thread_time() - started < 0.5


class FlushCountingStream(io.StringIO):
    """Records what was written between two flushes."""

    def __init__(self) -> None:
        super().__init__()
        self.rounds: list[str] = []

    def flush(self) -> None:
        if self.getvalue():
            self.rounds.append(self.getvalue())
        self.seek(0)
        self.truncate()


async def run_loop_once(write: logs.WriteLine) -> None:
    """Writes a line in the last moment of a loop."""
    write({"path": "/6", "event": "request"})


class TestDirectLines:
    def test_have_the_standard_format(self, lines: Callable[[], list[dict[str, object]]]) -> None:
        logs.create_unredacted_writer("access")({"request_id": "abc", "status": 200, "event": "request"})
        structlog.get_logger().bind(logger="access").info("request", request_id="abc", status=200)

        quick, usual = lines()
        assert {**quick, "time": ""} == {**usual, "time": ""}
        assert str(quick["time"]).endswith("Z")

    def test_lines_of_one_loop_iteration_are_flushed_together(self) -> None:
        stream = FlushCountingStream()
        logs.configure("json", "info", stream)
        write = logs.create_unredacted_writer("access")

        async def round_of(*paths: str) -> None:
            for path in paths:
                write({"path": path, "event": "request"})
            await asyncio.sleep(0)

        async def work() -> None:
            await round_of("/1", "/2", "/3")
            write({"path": "/4", "event": "request"})
            structlog.get_logger().warning("beside")
            await round_of("/5")

        asyncio.run(work())
        # A loop that ended too early to let them go does not keep those of the next one.
        asyncio.run(run_loop_once(write))
        asyncio.run(round_of("/7"))
        structlog.reset_defaults()
        paths_ = [[json.loads(line).get("path", "beside") for line in lines.splitlines()] for lines in stream.rounds]
        assert paths_[0] == ["/1", "/2", "/3"]
        assert [path for some in paths_ for path in some] == ["/1", "/2", "/3", "/4", "beside", "/5", "/6", "/7"]

    @pytest.mark.parametrize("unbuffered", ["", "1"])
    def test_they_are_one_write_whatever_the_buffering_of_the_process(self, unbuffered: str) -> None:
        program = """
import asyncio
from forgefront import logs

async def write_lines():
    write = logs.create_unredacted_writer("access")
    for path in ("/1", "/2", "/3"):
        write({"path": path, "event": "request"})

logs.configure("json", "info")
asyncio.run(write_lines())
"""
        # Each write to it is a datagram.
        collector, stderr = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        with collector, stderr:
            environment = os.environ | {"PYTHONUNBUFFERED": unbuffered}
            subprocess.run([sys.executable, "-c", program], env=environment, stderr=stderr, check=True, timeout=60)
            datagram = collector.recv(65536)
        assert [json.loads(line)["path"] for line in datagram.splitlines()] == ["/1", "/2", "/3"]

    def test_are_not_written_below_the_level(self) -> None:
        stream = io.StringIO()
        logs.configure("json", "warning", stream)
        logs.create_unredacted_writer("access")({"event": "request"})
        assert stream.getvalue() == ""
        structlog.reset_defaults()

    def test_are_written_as_text_too(self) -> None:
        stream = io.StringIO()
        logs.configure("text", "info", stream)
        logs.create_unredacted_writer("access")({"path": "/x", "event": "request"})
        assert "request" in stream.getvalue() and "path=/x" in stream.getvalue()
        structlog.reset_defaults()
