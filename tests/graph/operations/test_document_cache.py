"""The document cache: texts stay while they are in use, and leave no memory behind."""

import gc

import pytest
from graphql import DocumentNode

from graph.documents import document_cache
from graph.documents.document_cache import MIN_WEIGHT_CHARACTERS, DocumentCache
from graph.documents.documents import DocumentStore


class TestEviction:
    async def test_evicted_documents_are_freed_without_the_collector(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(document_cache, "EVICTED_BEFORE_GC", 3 * MIN_WEIGHT_CHARACTERS)
        texts = DocumentStore()
        texts._cache = DocumentCache(new=2 * MIN_WEIGHT_CHARACTERS)
        gc.disable()
        try:
            for number in range(10):
                await texts.parse(f"query Gone{number} {{ viewer {{ username }} }}", None)
        finally:
            gc.enable()

        documents = [each for each in gc.get_objects() if isinstance(each, DocumentNode) and each.loc]
        bodies = [each.loc.source.body for each in documents if each.loc is not None and each.loc.source.body.startswith("query Gone")]
        assert len(bodies) == 2


class TestRecentlyUsedDocuments:
    def test_are_not_evicted_by_documents_used_once(self) -> None:
        cache: DocumentCache[int] = DocumentCache(in_use=3 * MIN_WEIGHT_CHARACTERS, new=2 * MIN_WEIGHT_CHARACTERS)
        cache.put(("{ often }", None), 1)
        assert cache.find(("{ often }", None)) == 1

        for number in range(100):
            cache.put((f"{{ once{number} }}", None), number)

        assert cache.find(("{ often }", None)) == 1
        assert [number for number in range(100) if cache.find((f"{{ once{number} }}", None)) is not None] == [98, 99]

    def test_are_evicted_by_size(self) -> None:
        cache: DocumentCache[str] = DocumentCache(in_use=10 * MIN_WEIGHT_CHARACTERS)
        for name, length in (("a", 4), ("b", 4), ("c", 5)):
            cache.put((name * length * MIN_WEIGHT_CHARACTERS, None), name)
            cache.find((name * length * MIN_WEIGHT_CHARACTERS, None))

        assert cache.find(("a" * 4 * MIN_WEIGHT_CHARACTERS, None)) is None
        assert cache.find(("b" * 4 * MIN_WEIGHT_CHARACTERS, None)) == "b"
