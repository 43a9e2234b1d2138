"""Caches stay within their bounds, and docs/caches.md lists each of them."""

import ast
import gc
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import forgefront.app
from storage.caches import BOUNDS_BY_NAME, CacheBounds, CacheUsage, LruCache, current_usage, register_usage

ROOT = Path(forgefront.app.__file__).parents[1]
DOCUMENT = (ROOT / "docs" / "caches.md").read_text()
PACKAGES = ("storage", "graph", "rest_v3", "ci_v1", "forgefront")


@pytest.fixture
def bounds() -> Iterator[CacheBounds]:
    yield CacheBounds("of a test", max_entries=3, max_bytes=100, max_entry_bytes=60)
    del BOUNDS_BY_NAME["of a test"]


def make_cache(bounds: CacheBounds, dropped: list[str] | None = None) -> LruCache[str, int]:
    return LruCache(bounds, lambda _, size: size, None if dropped is None else lambda key, _: dropped.append(key))


class TestLruCache:
    def test_evicts_the_least_recently_used(self, bounds: CacheBounds) -> None:
        dropped: list[str] = []
        cache = make_cache(bounds, dropped)
        for key in "abc":
            cache.put(key, 10)
        assert cache.get("a") == 10
        cache.put("d", 10)
        assert (dropped, len(cache), cache.bytes, cache.get("b")) == (["b"], 3, 30, None)

    def test_stores_a_new_entry_when_all_others_are_in_use(self, bounds: CacheBounds) -> None:
        dropped: list[str] = []
        cache = make_cache(bounds, dropped)
        for key in "abc":
            cache.put(key, 10)
            cache.get(key)
        cache.put("d", 10)
        assert (dropped, cache.get("d")) == (["a"], 10)

    def test_is_limited_in_bytes(self, bounds: CacheBounds) -> None:
        dropped: list[str] = []
        cache = make_cache(bounds, dropped)
        cache.put("a", 60)
        cache.put("b", 40)
        assert cache.bytes == 100
        cache.grow("b", 1)
        assert (dropped, cache.bytes) == (["a"], 41)
        cache.put("b", 7)
        assert cache.bytes == 7
        assert cache.pop("b") == 7
        assert (cache.bytes, cache.pop("b")) == (0, None)

    def test_does_not_store_an_entry_over_the_limit(self, bounds: CacheBounds) -> None:
        dropped: list[str] = []
        cache = make_cache(bounds, dropped)
        cache.put("a", 5)
        cache.put("b", 61)
        assert (dropped, cache.bytes, "a" in cache, "b" in cache) == (["b"], 5, True, False)
        cache.put("a", 60)
        assert (dropped, cache.bytes) == (["b"], 60)
        cache.put("a", 61)
        assert (dropped, cache.bytes, "a" in cache) == (["b", "a"], 0, False)

    def test_counts_as_long_as_it_lives(self, bounds: CacheBounds) -> None:
        first, second = make_cache(bounds), make_cache(bounds)
        first.put("a", 5)
        second.put("a", 6)
        register_usage(bounds, (owner := CacheOwner()), lambda _: CacheUsage(1, 1))
        assert current_usage()["of a test"] == (3, 12)
        del second, owner
        gc.collect()
        assert current_usage()["of a test"] == (1, 5)

    def test_owners_that_are_collected_meanwhile_do_no_harm(self, bounds: CacheBounds) -> None:
        thresholds = gc.get_threshold()
        gc.collect()
        gc.disable()
        try:
            for _ in range(40):
                cycle: list[object] = [make_cache(bounds)]
                cycle.append(cycle)
            del cycle
            # A collection begins when so many objects are new: while the usages are read.
            gc.set_threshold(gc.get_count()[0] + 20)
            gc.enable()
            current_usage()
        finally:
            gc.set_threshold(*thresholds)
            gc.enable()
        gc.collect()
        assert current_usage()["of a test"] == (0, 0)

    def test_names_are_unique(self, bounds: CacheBounds) -> None:
        with pytest.raises(ValueError, match="two caches"):
            CacheBounds("of a test", 1, 1)


class CacheOwner:
    pass


class TestDocument:
    def test_lists_every_cache_with_its_bounds(self) -> None:
        rows = [tuple(cell.strip() for cell in line.strip("|").split("|")) for line in DOCUMENT.splitlines() if line.startswith("| `")]
        listed = {(name.strip("`"), entries, size, per) for name, _, entries, size, per in (row for row in rows if len(row) == 5)}
        assert listed == {
            (each.name, f"{each.max_entries:,}", f"{each.max_bytes / 2**20:.1f} MiB".replace(".0 MiB", " MiB"), each.per)
            for each in BOUNDS_BY_NAME.values()
        }

    def test_lists_every_function_with_a_cache(self) -> None:
        listed = set()
        for line in DOCUMENT.splitlines():
            if found := re.fullmatch(r"\| (`[^|]+`) \| `([^|`]+\.py)` \| `([^|`]+)` \| [^|]+ \|", line):
                listed |= {(found[2], name, found[3]) for name in re.findall(r"`(\w+)`", found[1])}
        assert listed == set(functions())


def functions() -> Iterator[tuple[str, str, str]]:
    """(file, name, decorator) of each function whose results are cached."""
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                for decorator in getattr(node, "decorator_list", ()):
                    if re.match(r"(functools\.)?(lru_)?cache\b", text := ast.unparse(decorator)):
                        yield str(path.relative_to(ROOT)), node.name, text  # type: ignore[attr-defined]
