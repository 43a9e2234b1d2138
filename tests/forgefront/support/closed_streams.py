"""Runs a program whose standard streams a shell has closed: `python -m tests.forgefront.support.closed_streams 012 MODULE …`.

An interpreter that starts without a stream has None in its place; this one, which may be a fork of another, takes the streams away.
"""

import os
import runpy
import sys

if __name__ == "__main__":
    numbers, sys.argv = sys.argv[1], sys.argv[2:]
    for number in map(int, numbers):
        os.close(number)
        setattr(sys, ("stdin", "stdout", "stderr")[number], None)
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
