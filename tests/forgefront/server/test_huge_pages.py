"""Huge pages of a process's memory, as the system counts them."""

import json
import mmap
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from forgefront.server import huge_pages

MEASURE = """
import json, mmap, sys
from forgefront.server.huge_pages import use_huge_pages

def read_mib():
    with open("/proc/self/smaps_rollup") as file:
        found = {line.split()[0]: line.split()[1] for line in file}
    return {name: int(found[f"{name}:"]) / 1024 for name in ("AnonHugePages", "Rss")}

before_objects = read_mib()
objects = [[number] for number in range(800_000)]
sparse = mmap.mmap(-1, 64 * 2**20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
for start in range(0, len(sparse), 2**20):
    sparse[start] = 1
before, moved, after = read_mib(), use_huge_pages(), read_mib()
print(json.dumps({"before": before, "after": after, "moved": moved / 2**20, "objects": before["Rss"] - before_objects["Rss"]}))
"""


def test_a_mapped_file_whose_name_is_not_utf_8_is_no_obstacle(tmp_path: Path) -> None:
    """As SQLite's file of shared memory in such a folder."""
    path = os.fsencode(tmp_path) + b"/\xff"
    with open(path, "wb+") as file:  # noqa: PTH123 - a name in bytes
        file.write(b"x")
        file.flush()
        with mmap.mmap(file.fileno(), 1):
            assert list(huge_pages._list_ranges())


@pytest.fixture(scope="module")
def found() -> Any:
    return json.loads(subprocess.run([sys.executable, "-c", MEASURE], capture_output=True, text=True, check=True).stdout)


@pytest.mark.skipif(not Path("/sys/kernel/mm/transparent_hugepage").is_dir(), reason="the system has no transparent huge pages")
class TestHugePages:
    def test_hold_most_of_the_objects(self, found: Any) -> None:
        assert found["before"]["AnonHugePages"] < 2
        assert found["after"]["AnonHugePages"] == found["moved"] > 0.5 * found["objects"] > 20

    def test_are_not_made_of_memory_that_is_not_used(self, found: Any) -> None:
        assert found["after"]["Rss"] - found["before"]["Rss"] < 8
