"""Unzipping artifacts and caches into the working folder of a build, which may contain symbolic links of its repository."""

import stat
import zipfile
from pathlib import Path

import pytest

from forgefront.runner import archive


class TestExtraction:
    def test_leads_neither_out_of_the_folder_nor_to_git(self, tmp_path: Path) -> None:
        root, outside = tmp_path / "root", tmp_path / "outside"
        (root / ".git").mkdir(parents=True)
        (root / "folder").mkdir()
        outside.mkdir()
        (outside / "victim").write_text("as before")
        (root / "link").symlink_to(outside)
        (root / "file").symlink_to(outside / "victim")
        (root / "tool").write_text("old")

        def link(name: str, target: str) -> None:
            info = zipfile.ZipInfo(name)
            info.external_attr = (stat.S_IFLNK | 0o777) << 16
            file.writestr(info, target)

        with zipfile.ZipFile(tmp_path / "zip", "w") as file:
            for name in ("../a", "/a", "a/../../b", ".git/hooks/post-checkout", "link/made", "link/../c", "folder", "d//e", "./f", "pipe/"):
                file.writestr(name, "bad")
            for name in ("file", "tool", "new/deep/file"):
                file.writestr(name, "good")
            mode = zipfile.ZipInfo("run")
            mode.external_attr = (stat.S_IFREG | 0o6751) << 16
            file.writestr(mode, "good")
            device = zipfile.ZipInfo("device")
            device.external_attr = (stat.S_IFIFO | 0o644) << 16
            file.writestr(device, "bad")
            for name, target in (
                ("inner", "new/deep"),
                ("up", "../x"),
                ("abs", "/etc"),
                ("git", ".git/config"),
                ("link2", "link"),
                ("link/in", "x"),
            ):
                link(name, target)

        count = archive.extract_archive(tmp_path / "zip", root, max_bytes=1000)

        found = {path.relative_to(root).as_posix() for path in root.rglob("*")}
        assert found == {".git", "folder", "link", "file", "tool", "new", "new/deep", "new/deep/file", "run", "inner", "link2"}
        assert count == 6
        assert not (root / "file").is_symlink() and (root / "file").read_text() == (root / "tool").read_text() == "good"
        assert stat.S_IMODE((root / "run").stat().st_mode) == 0o751
        assert list(outside.iterdir()) == [outside / "victim"] and (outside / "victim").read_text() == "as before"
        assert {path.name for path in tmp_path.iterdir()} == {"root", "outside", "zip"}

    def test_is_bounded_whatever_the_archive_declares(self, tmp_path: Path) -> None:
        with zipfile.ZipFile(tmp_path / "zip", "w", zipfile.ZIP_DEFLATED) as file:
            file.writestr("zeros", bytes(100_000))
        (tmp_path / "root").mkdir()
        with pytest.raises(archive.ArchiveRejected, match="more bytes"):
            archive.extract_archive(tmp_path / "zip", tmp_path / "root", max_bytes=99_999)
        assert archive.extract_archive(tmp_path / "zip", tmp_path / "root", max_bytes=100_000) == 1
        damaged = bytearray((tmp_path / "zip").read_bytes())
        damaged[40:60] = bytes(byte ^ 0x5A for byte in damaged[40:60])
        (tmp_path / "zip").write_bytes(damaged)
        with pytest.raises(archive.ArchiveRejected, match="damaged"):
            archive.extract_archive(tmp_path / "zip", tmp_path / "root", max_bytes=10**6)
        (tmp_path / "zip").write_bytes(b"<html>")
        with pytest.raises(archive.ArchiveRejected, match="damaged"):
            archive.extract_archive(tmp_path / "zip", tmp_path / "root", max_bytes=10**6)
