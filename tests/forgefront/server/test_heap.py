"""What a server process gives back to the system."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from forgefront.server.heap import MAX_HEAPS

MEASURE_HEAP = """
import sys
from forgefront.server.heap import limit_heap

def resident_mib():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmRSS")) / 1024

is_fixed = sys.argv[1] == "fixed" and limit_heap()
block = bytearray(16 * 2**20)
del block
before, kept = resident_mib(), []
for _ in range(64):
    block = bytearray(2**20)
    kept.append((block, bytearray(2000)))
kept = [small for _, small in kept]
del block
print(is_fixed, round(resident_mib() - before))
"""

COUNT_HEAPS = """
import ctypes, sys, threading
from forgefront.server.heap import limit_heap

if sys.argv[1] == "limited":
    limit_heap()
barrier = threading.Barrier(12)

def allocate():
    # All threads live while they allocate, and until each has.
    barrier.wait()
    blocks = [bytearray(2000) for _ in range(100)]
    barrier.wait()

threads = [threading.Thread(target=allocate) for _ in range(12)]
for each in threads: each.start()
for each in threads: each.join()
libc = ctypes.CDLL(None)
libc.fopen.restype = ctypes.c_void_p
file = ctypes.c_void_p(libc.fopen(sys.argv[2].encode(), b"w"))
libc.malloc_info(0, file)
libc.fclose(file)
"""


class TestHeap:
    @pytest.mark.skipif(sys.platform != "linux", reason="glibc alone has the limit")
    def test_large_blocks_go_back_to_the_system(self) -> None:
        def measure(argument: str) -> tuple[bool, int]:
            found: Any = subprocess.run([sys.executable, "-c", MEASURE_HEAP, argument], capture_output=True, text=True, check=True)
            is_fixed, growth = found.stdout.split()
            return is_fixed == "True", int(growth)

        is_fixed, growth = measure("fixed")
        assert is_fixed
        assert growth < 10
        assert measure("as it is")[1] > 40

    @pytest.mark.skipif(sys.platform != "linux", reason="glibc alone has the limit")
    def test_threads_share_heaps(self, tmp_path: Path) -> None:
        def count_heaps(argument: str) -> int:
            file = tmp_path / argument
            subprocess.run([sys.executable, "-c", COUNT_HEAPS, argument, str(file)], check=True)
            return file.read_text().count("<heap nr=")

        assert count_heaps("limited") <= MAX_HEAPS
        assert count_heaps("as it is") > MAX_HEAPS
