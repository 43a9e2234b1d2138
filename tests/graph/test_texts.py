"""Texts that anybody sends are kept while they are in use, and leave nothing behind."""

import gc

import pytest
from graphql import DocumentNode

from graph import remembering
from graph.operations import Texts
from graph.remembering import LEAST, Remembered


class TestTextsThatAreLetGo:
    async def test_leave_the_memory_though_the_collector_would_not_look_for_long(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(remembering, "LET_GO", 3 * LEAST)
        texts = Texts()
        texts._read = Remembered(new=2 * LEAST)
        gc.disable()
        try:
            for number in range(10):
                await texts.read(f"query Gone{number} {{ viewer {{ username }} }}", None)
        finally:
            gc.enable()

        documents = [each for each in gc.get_objects() if isinstance(each, DocumentNode) and each.loc]
        bodies = [each.loc.source.body for each in documents if each.loc is not None and each.loc.source.body.startswith("query Gone")]
        assert len(bodies) == 2


class TestTextsThatAreAskedForAgain:
    def test_are_not_pushed_out_by_those_that_nobody_asks_for_again(self) -> None:
        kept: Remembered[int] = Remembered(in_use=3 * LEAST, new=2 * LEAST)
        kept.put(("{ often }", None), 1)
        assert kept.find(("{ often }", None)) == 1

        for number in range(100):
            kept.put((f"{{ once{number} }}", None), number)

        assert kept.find(("{ often }", None)) == 1
        assert [number for number in range(100) if kept.find((f"{{ once{number} }}", None)) is not None] == [98, 99]

    def test_push_each_other_out_by_their_length(self) -> None:
        kept: Remembered[str] = Remembered(in_use=10 * LEAST)
        for name, length in (("a", 4), ("b", 4), ("c", 5)):
            kept.put((name * length * LEAST, None), name)
            kept.find((name * length * LEAST, None))

        assert kept.find(("a" * 4 * LEAST, None)) is None
        assert kept.find(("b" * 4 * LEAST, None)) == "b"
