"""The choice of the interpreter of `.venv`, with programs that say how long they have taken."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

NAME = f"python{sys.version_info.major}.{sys.version_info.minor}"
SCRIPT = Path(__file__).parents[1] / "scripts" / "fastest-python"


@pytest.fixture
def choose(tmp_path: Path):
    """Runs the script with other interpreters on PATH, which are shell scripts of these lines, and returns what it prints."""

    def run(*programs: str) -> str:
        folders = []
        for number, program in enumerate(programs):
            path = tmp_path / str(number) / NAME
            path.parent.mkdir()
            path.write_text(f"#!/bin/sh\n{program}\n")
            path.chmod(0o755)
            folders.append(str(path.parent))
        done = subprocess.run([sys.executable, SCRIPT], env={**os.environ, "PATH": ":".join(folders)}, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    return run


class TestFastestPython:
    def test_is_the_one_that_takes_the_least_cpu(self, choose, tmp_path: Path) -> None:
        assert choose("echo 0.000002", "echo 0.000001") == str(tmp_path / "1" / NAME)

    def test_is_this_one_if_no_other_is_much_faster(self, choose) -> None:
        assert choose("echo 1000") == sys.executable

    def test_is_this_one_if_no_other_works(self, choose) -> None:
        assert choose("echo 0.000001; exit 1", "echo none") == sys.executable
