"""The order of the files of the suite (tests/support/file_order.py)."""

from itertools import pairwise
from pathlib import Path

import pytest

from tests.support.file_order import COMPUTING_FILES, LISTED_FILES, MIXED_FILES, WAITING_FILES, order_files

ROOT = Path(__file__).parents[1]


class TestLists:
    def test_name_files_that_exist(self) -> None:
        assert [file for file in LISTED_FILES if not (ROOT / file).is_file()] == []

    def test_name_each_file_once(self) -> None:
        assert len(LISTED_FILES) == len(WAITING_FILES) + len(MIXED_FILES) + len(COMPUTING_FILES)


class TestOrder:
    def test_has_each_file_once(self) -> None:
        counts = {**dict.fromkeys(LISTED_FILES, 1), "tests/short.py": 1, "tests/longer.py": 9}
        assert sorted(order_files(counts)) == sorted(counts)

    @pytest.mark.parametrize("files", [WAITING_FILES, MIXED_FILES, COMPUTING_FILES])
    def test_the_slowest_of_a_kind_come_first(self, files: dict[str, int]) -> None:
        ordered = [file for file in order_files(dict.fromkeys(LISTED_FILES, 1)) if file in files]
        assert all(files[first] >= files[second] for first, second in pairwise(ordered))

    def test_files_that_wait_are_spread_and_do_not_come_last(self) -> None:
        ordered = order_files({**dict.fromkeys(LISTED_FILES, 1), **{f"tests/other_{number}.py": 10 for number in range(400)}})
        waiting = [index for index, file in enumerate(ordered) if file in WAITING_FILES]
        assert len(ordered) / 4 < waiting[-1] < len(ordered) * 0.95
        assert all(second - first <= 40 for first, second in pairwise(waiting))
