"""What a later run reads again."""

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from forgefront.importing.import_run import ImportRun
from tests.forgefront.importing.test_source_client import open_client

STARTED_AT = datetime(2016, 1, 20, 12, tzinfo=UTC)


class TestMark:
    @pytest.mark.parametrize(
        ("newest", "mark"),
        [
            ("2016-01-20T11:58:00.000000Z", "2016-01-20T11:58:00.000001Z"),
            ("2016-01-20T11:59:00.000000Z", "2016-01-20T11:59:00.000000Z"),
            ("2016-01-20T12:00:01.000000Z", "2016-01-20T12:00:01.000000Z"),
        ],
    )
    def test_follows_a_time_that_was_over_when_the_run_began(self, newest: str, mark: str) -> None:
        run: Any = SimpleNamespace(source=SimpleNamespace(client=SimpleNamespace(started_at=STARTED_AT)))
        assert ImportRun.mark_after(run, newest) == mark
        run.source.client.started_at = None
        assert ImportRun.mark_after(run, newest) == newest

    async def test_the_clock_is_that_of_the_source_at_its_first_answer(self) -> None:
        dates = iter(["Wed, 20 Jan 2016 12:00:00 GMT", "Wed, 20 Jan 2016 12:00:09 GMT"])
        async with open_client(lambda _: httpx.Response(200, json={}, headers={"Date": next(dates)})) as (client, _):
            for _ in range(2):
                await client.get("/api/v3/user")
                assert client.started_at == STARTED_AT
        async with open_client(lambda _: httpx.Response(200, json={}, headers={"Date": "noon"})) as (client, _):
            await client.get("/api/v3/user")
            assert client.started_at is None
