"""What a server process gives back to the system."""

import subprocess
import sys
from typing import Any

import pytest

MEASURE_HEAP = """
import sys
from forgefront.server.heap import fix_block_limit

def resident_mib():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmRSS")) / 1024

is_fixed = sys.argv[1] == "fixed" and fix_block_limit()
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
