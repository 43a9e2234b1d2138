"""Data loaders: one statement per batch, each key once, and failures that do not affect others."""

import asyncio
from collections.abc import Awaitable
from typing import cast

import pytest

from graph.operations.loaders import Loader


class NumberLoader:
    """Returns the double of each number except 0; `held` makes it wait."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.held = asyncio.Event()
        self.held.set()
        self.loader: Loader[int, int] = Loader(self.fetch)

    async def fetch(self, keys: list[int]) -> dict[int, int]:
        self.batches.append(sorted(keys))
        await self.held.wait()
        if 13 in keys:
            raise KeyError(13)
        return {key: 2 * key for key in keys if key}


async def test_batches_keys_of_one_loop_iteration() -> None:
    numbers = NumberLoader()
    loaded = [cast(Awaitable[int | None], numbers.loader.load(key)) for key in (1, 2, 1)]
    assert await asyncio.gather(*loaded) == [2, 4, 2]
    assert await asyncio.gather(*map(numbers.loader.get, (2, 3, 0, 3))) == [4, 6, None, 6]
    assert numbers.batches == [[1, 2], [0, 3]]


async def test_deferred_keys_join_the_next_batch() -> None:
    numbers = NumberLoader()

    async def leave() -> int | None:
        return await cast(Awaitable[int | None], numbers.loader.load(2))

    assert await asyncio.gather(numbers.loader.get(1), leave()) == [2, 4]
    assert numbers.batches == [[1, 2]]


async def test_a_key_being_loaded_is_not_loaded_again() -> None:
    numbers = NumberLoader()
    numbers.held.clear()
    first = asyncio.create_task(numbers.loader.get(1))
    await asyncio.sleep(0.01)
    later = [asyncio.create_task(numbers.loader.get(1)) for _ in range(2)]
    await asyncio.sleep(0)
    numbers.held.set()
    assert await asyncio.gather(first, *later) == [2, 2, 2]
    assert (await numbers.loader.get(0), await numbers.loader.get(0)) == (None, None)
    assert numbers.batches == [[1], [0]]


@pytest.mark.parametrize("moment", [0.0, 0.01], ids=["before it is fetched", "while it is fetched"])
async def test_canceling_one_waiter_does_not_cancel_the_others(moment: float) -> None:
    numbers = NumberLoader()
    numbers.held.clear()
    first = asyncio.create_task(numbers.loader.get(1))
    await asyncio.sleep(moment)
    others = [asyncio.create_task(numbers.loader.get(1)), asyncio.create_task(numbers.loader.get(2))]
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.sleep(0.01)
    numbers.held.set()
    assert await asyncio.gather(*others) == [2, 4]
    assert first.cancelled()


async def test_an_error_reaches_all_waiters_and_is_not_cached() -> None:
    numbers = NumberLoader()
    for count in (1, 2):
        found = await asyncio.gather(*(numbers.loader.get(13) for _ in range(count)), return_exceptions=True)
        assert [type(each) for each in found] == [KeyError] * count
    assert numbers.batches == [[13], [13]]
