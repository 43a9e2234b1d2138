"""Runs a command of the program, then prints the peak of its resident memory, in KiB, as the last line of its errors.

The peak is VmHWM of Linux: that of getrusage(2) may be that of the process that started it.
"""

import sys
from pathlib import Path

from forgefront.cli import main

if __name__ == "__main__":
    try:
        main()
    finally:
        lines = Path("/proc/self/status").read_text().splitlines()
        print(next(line.split()[1] for line in lines if line.startswith("VmHWM")), file=sys.stderr)
