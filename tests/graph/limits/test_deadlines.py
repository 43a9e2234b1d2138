"""Work that takes too long is canceled, and nothing else."""

import asyncio

import pytest

from graph.operations.deadlines import Deadlines


class TestDeadlines:
    async def test_work_is_canceled_at_its_deadline(self) -> None:
        deadlines = Deadlines()
        limit = deadlines.within(0.01)
        with pytest.raises(TimeoutError), limit:
            await asyncio.Event().wait()
        assert limit.expired

    async def test_the_earlier_deadline_fires_first(self) -> None:
        deadlines = Deadlines()
        ended = []

        async def work(name: str, seconds: float) -> None:
            with pytest.raises(TimeoutError), deadlines.within(seconds):
                await asyncio.Event().wait()
            ended.append(name)

        await asyncio.gather(work("long", 0.05), work("short", 0.01), work("middle", 0.03))
        assert ended == ["short", "middle", "long"]

    async def test_work_that_ends_in_time_is_not_canceled(self) -> None:
        deadlines = Deadlines()
        with deadlines.within(0.01) as limit, deadlines.within(None):
            pass
        await asyncio.sleep(0.02)
        assert not limit.expired

    async def test_a_cancellation_by_others_is_not_a_timeout(self) -> None:
        async def work() -> None:
            with Deadlines().within(10):
                await asyncio.Event().wait()

        task = asyncio.create_task(work())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    def test_serve_one_loop_after_another(self) -> None:
        deadlines = Deadlines()

        async def work() -> None:
            with pytest.raises(TimeoutError), deadlines.within(0.01):
                await asyncio.Event().wait()

        async def forgotten() -> None:
            with deadlines.within(0.005):
                pass

        asyncio.run(forgotten())
        asyncio.run(work())
