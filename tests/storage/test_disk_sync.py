"""Files appear complete or not at all."""

import errno
import os
from pathlib import Path

import pytest

from storage.disk_sync import create_file, replace_file


class TestReplaceFile:
    def test_keeps_a_file_with_these_contents(self, tmp_path: Path) -> None:
        path = tmp_path / "file"
        replace_file(path, b"old")
        replace_file(path, b"new")
        inode = path.stat().st_ino
        replace_file(path, b"new")
        assert (path.read_bytes(), path.stat().st_ino) == (b"new", inode)
        assert path.stat().st_mode & 0o777 == 0o600
        assert list(tmp_path.iterdir()) == [path]

    def test_leaves_no_temporary_file_if_it_fails(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        path = tmp_path / "file"
        replace_file(path, b"old")

        def fail(*_: object) -> None:
            raise OSError("disk")

        with monkeypatch.context() as patched, pytest.raises(OSError, match="disk"):
            patched.setattr(Path, "rename", fail)
            replace_file(path, b"new")
        assert path.read_bytes() == b"old"
        assert list(tmp_path.iterdir()) == [path]


class TestCreateFile:
    def test_does_not_replace_another_file(self, tmp_path: Path) -> None:
        path = tmp_path / "file"
        with create_file(path) as file:
            file.write(b"first")
            assert not path.exists()
        with pytest.raises(FileExistsError), create_file(path) as file:
            file.write(b"second")
        assert path.read_bytes() == b"first"
        assert list(tmp_path.iterdir()) == [path]

    def test_leaves_nothing_if_the_block_raises(self, tmp_path: Path) -> None:
        with pytest.raises(ZeroDivisionError), create_file(tmp_path / "file"):
            _ = 1 / 0
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize("number", [errno.EPERM, errno.ENOTSUP, errno.ENOSYS])
    def test_needs_no_hard_links(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
        def fail(*_: object) -> None:
            raise OSError(number, os.strerror(number))

        monkeypatch.setattr(Path, "hardlink_to", fail)
        self.test_does_not_replace_another_file(tmp_path)
        assert (tmp_path / "file").stat().st_mode & 0o777 == 0o600
        with monkeypatch.context() as patched, pytest.raises(OSError, match=os.strerror(number)), create_file(tmp_path / "other"):
            patched.setattr(Path, "rename", fail)
        assert list(tmp_path.iterdir()) == [tmp_path / "file"]
