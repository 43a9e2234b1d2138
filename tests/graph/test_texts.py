"""Texts that anybody sends are kept while they are in use, and leave nothing behind."""

import gc

import pytest
from graphql import DocumentNode

from graph import operations
from graph.operations import Texts


class TestTextsThatAreLetGo:
    def test_leave_the_memory_though_the_collector_would_not_look_for_long(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(operations, "CACHED_DOCUMENTS", 2)
        monkeypatch.setattr(operations, "LET_GO", 4)
        texts = Texts()
        gc.disable()
        try:
            for number in range(10):
                texts.find(f"query Gone{number} {{ viewer {{ username }} }}", None)
        finally:
            gc.enable()

        documents = [each for each in gc.get_objects() if isinstance(each, DocumentNode) and each.loc]
        bodies = [each.loc.source.body for each in documents if each.loc is not None and each.loc.source.body.startswith("query Gone")]
        assert len(bodies) == 2
