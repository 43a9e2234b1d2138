"""Which tests run on both databases. The others run on one of them in turn, by a digest of their names, so that the suite is half as long;
the cases of a parametrized test are spread over both. FORGEFRONT_TEST_EVERYWHERE=1 runs every test on both, with all hostile values.

On both run the tests in which the databases can differ: of what makes SQL, locks, notifies or moves data, and each test that asks for
the `dialect` itself.
"""

import inspect
import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, TypeVar
from zlib import crc32

import pytest

from tests.support.reliability_promises import COUNT_SHARE

ALL_DATABASES_VARIABLE = "FORGEFRONT_TEST_EVERYWHERE"
BOTH_DATABASES = (
    *(("tests/reliability/",) if COUNT_SHARE else ("tests/reliability/test_dumps.py::test_a_dump_under_load_is_one_moment",)),
    "tests/storage/database/",
    "tests/storage/dump/",
    "tests/storage/test_migrations.py",
    "tests/storage/test_row_counts.py",
    "tests/storage/test_tables.py",
    "tests/test_databases.py",
    "tests/test_locks.py",
    "tests/test_merge_races.py",
    "tests/test_races.py",
    "tests/graph/statistics/test_branch_timeline.py",
    "tests/graph/runners/test_build_claims.py",
    "tests/graph/statistics/test_build_stats.py",
    # The others are tests of the file with the copy, and of its threads.
    *(
        f"tests/graph/statistics/test_copied_build_stats.py::{name}"
        for name in ("TestAnswers", "TestChanges", "TestPrunedLog", "TestUnusableCopy::test_is_replaced_", "TestState::test_has_")
    ),
    "tests/graph/statistics/test_copied_flaky_builds.py",
    "tests/graph/statistics/test_flaky_builds.py",
    "tests/graph/imports/",
    "tests/graph/issues/test_search.py",
    "tests/graph/live/",
    "tests/graph/merge_requests/test_lead_times.py",
    "tests/graph/merge_requests/test_merge_request_stats.py",
    "tests/graph/merge_requests/test_refresh.py::TestCost",
    "tests/graph/operations/test_connections.py",
    "tests/graph/jobs/test_exclusive_job.py",
    "tests/graph/operations/test_filters.py",
    "tests/graph/operations/test_known_reads.py",
    "tests/graph/limits/test_limit_sharing.py",
    "tests/graph/operations/test_token_cache.py",
    "tests/graph/planner/test_dashboards.py",
    "tests/graph/planner/test_oracle.py",
    "tests/graph/planner/test_plan_statements.py",
    "tests/graph/planner/test_plans.py",
    "tests/graph/projects/test_group_lists.py",
)
"""Folders and files."""

T = TypeVar("T")


def share_of_values(parts: int) -> int:
    """In how many parts hostile values are divided, of which one field gets one, its neighbour the next; 1 if every test runs on both."""
    return 1 if os.environ.get(ALL_DATABASES_VARIABLE) else parts


def share_of_draws(count: int, parts: int) -> int:
    """How many of `count` values drawn at random a test takes: one part of `parts`; all if every test runs on both databases."""
    return max(1, count // share_of_values(parts))


def spread_values(values: Sequence[T], turn: int, places: int, parts: int) -> Sequence[T]:
    """The values that the place number `turn` of its kind gets, one part of `parts`; all if every test runs on both databases.

    The places of a kind are read by the same code. Where there are fewer of them than parts, each gets more, so that every kind gets
    every value.
    """
    parts = share_of_values(max(1, min(parts, places)))
    return values[turn % parts :: parts]


def half_for_dialect(values: Iterable[T], dialect: str, turn: int) -> Iterator[T]:
    """Every other value, so that each is tried on one of the databases, in the next turn on the other; all if every test runs on both."""
    return _part_for_dialect(values, dialect, turn, 2)


def quarter_for_dialect(values: Iterable[T], dialect: str, turn: int) -> Iterator[T]:
    """As `half_for_dialect`, every fourth: for values of which the places of a kind, read by the same code, get others in turn."""
    return _part_for_dialect(values, dialect, turn, 4)


def _part_for_dialect(values: Iterable[T], dialect: str, turn: int, parts: int) -> Iterator[T]:
    step = share_of_values(parts)
    return islice(values, (turn + step // 2 * (dialect == "sqlite")) % step, None, step)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_generate_tests(metafunc: Any) -> Any:
    """Leaves out the cases of the other database before items are made of them, which takes longer than importing all tests."""
    result = yield
    if not os.environ.get(ALL_DATABASES_VARIABLE) and "dialect" in metafunc.fixturenames and not _runs_on_both(metafunc.definition):
        calls = [call for call in metafunc._calls if not _is_left_out(metafunc.definition.nodeid, call)]
        # Without calls pytest would make an item without parameters.
        metafunc._calls[:] = calls or metafunc._calls
    return result


def _runs_on_both(function: Any) -> bool:
    if function.nodeid.startswith(BOTH_DATABASES) or "dialect" in inspect.signature(function.function).parameters:
        return True
    # If it names its databases, one in turn would never run.
    return any("dialect" in _names_of(mark) for mark in function.iter_markers("parametrize"))


def _names_of(mark: pytest.Mark) -> list[str]:
    """The parameters of a test's `parametrize`."""
    names = mark.args[0]
    return names.replace(",", " ").split() if isinstance(names, str) else list(names)


def _is_left_out(name: str, call: Any) -> bool:
    dialect = call.params.get("dialect")
    return bool(dialect) and bool(crc32(f"{name}[{call.id}]".replace(dialect, "").encode()) % 2) is (dialect == "sqlite")
