"""`forgefront analytics rebuild` writes the columnar copy that the service opens."""

import fcntl
import json
import shutil
from pathlib import Path

import pytest

from forgefront.commands import analytics
from storage.analytics.build_copy import read_pointer
from storage.analytics.build_copy_writer import LOCK_NAME
from tests.forgefront.support.cli_runner import CommandRunner

pytestmark = pytest.mark.usefixtures("isolated_environment")


class TestRebuild:
    def test_publishes_a_copy_unless_another_process_writes_one(self, folder_with_root: Path, tmp_path: Path) -> None:
        shutil.copytree(folder_with_root, tmp_path / "data")
        cli = CommandRunner(tmp_path / "data")
        folder = cli.data / "analytics"

        result = cli("analytics", "rebuild", "--json")

        pointer = read_pointer(folder)
        assert pointer is not None
        found = json.loads(result.stdout)
        assert (found["builds"], found["bytes"]) == (0, (folder / pointer.file).stat().st_size)
        with (folder / LOCK_NAME).open("ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            assert "another process writes the copy now" in cli("analytics", "rebuild", code=1).stderr
        assert read_pointer(folder) == pointer

    def test_a_full_disk_is_named(self, folder_with_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        # Not above: what is imported while tests are collected is never freed, and the library says so at the end.
        import duckdb

        async def fail(*_: object) -> None:
            raise duckdb.IOException('IO Error: Could not write file "builds": No space left on device\nmore')

        shutil.copytree(folder_with_root, tmp_path / "data")
        monkeypatch.setattr(analytics, "write_copy", fail)
        result = CommandRunner(tmp_path / "data")("analytics", "rebuild", code=1)
        assert result.stderr == (
            'forgefront: the copy cannot be written: IO Error: Could not write file "builds": No space left on device\n'
        )
