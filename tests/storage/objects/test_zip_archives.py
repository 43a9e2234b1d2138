"""Zip archives read by ranges: the same in a folder and in a bucket; hostile ones are refused with the reason."""

import io
import struct
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from storage.objects import zip_archives
from storage.objects.object_store import ObjectNotFound, ObjectStore, new_key, open_store
from storage.objects.zip_archives import EntryKind, UnreadableZip, ZipDirectory
from tests.support.servers.s3_server import SETTINGS


@pytest.fixture(params=["folder", "bucket"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    if request.param == "folder":
        return open_store("", tmp_path / "artifacts")
    return open_store("s3://forge/zips", tmp_path, {**SETTINGS, "endpoint": request.getfixturevalue("s3")})


@pytest.fixture
def folder_store(tmp_path: Path) -> ObjectStore:
    return open_store("", tmp_path / "artifacts")


def pack(*entries: tuple[str | zipfile.ZipInfo, bytes], method: int = zipfile.ZIP_DEFLATED, comment: bytes = b"") -> bytes:
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with zipfile.ZipFile(buffer, "w", method) as archive:
            for name, content in entries:
                archive.writestr(name, content)
            archive.comment = comment
    return buffer.getvalue()


async def read_directory(store: ObjectStore, data: bytes) -> tuple[str, ZipDirectory]:
    key = new_key()
    await store.put_bytes(key, data)
    return key, await zip_archives.read_directory(store, key, len(data))


async def read_file(store: ObjectStore, data: bytes, path: str) -> bytes:
    key, directory = await read_directory(store, data)
    entry = directory.find(path)
    assert entry is not None
    async with zip_archives.open_entry(store, key, entry) as chunks:
        return b"".join([chunk async for chunk in chunks])


def listed(directory: ZipDirectory, path: str = "") -> list[tuple[str, str, int | None]]:
    found = directory.list_folder(path)
    assert found is not None
    return [(entry.name, entry.kind, entry.size) for entry in found]


async def test_folders_are_listed_and_files_are_read(store: ObjectStore) -> None:
    link = zipfile.ZipInfo("latest")
    link.create_system, link.external_attr = 3, 0o120777 << 16
    large = bytes(range(256)) * 4096
    data = pack(
        ("reports/é.txt", b"text"), ("reports/a/b.bin", large), ("empty/", b""), (link, b"reports/a"), comment=b"PK\5\6" + b"x" * 400
    )

    _, directory = await read_directory(store, data)

    assert listed(directory) == [("empty", EntryKind.FOLDER, None), ("reports", EntryKind.FOLDER, None), ("latest", EntryKind.LINK, 9)]
    assert listed(directory, "reports") == [("a", EntryKind.FOLDER, None), ("é.txt", EntryKind.FILE, 4)]
    assert listed(directory, "empty") == []
    assert directory.list_folder("latest") is directory.list_folder("none") is None
    assert await read_file(store, data, "reports/a/b.bin") == large
    # Bytes before the archive, as of one that extracts itself; files that are not compressed; an archive that is empty.
    assert await read_file(store, b"#!/bin/sh\n" * 9 + data, "reports/é.txt") == b"text"
    assert await read_file(store, pack(("a", large), method=zipfile.ZIP_STORED), "a") == large
    assert listed((await read_directory(store, pack()))[1]) == []


async def test_a_repetition_that_goes_on_after_the_last_packed_byte_is_read(folder_store: ObjectStore) -> None:
    for size in (zip_archives.PIECE_BYTES, zip_archives.PIECE_BYTES + 100, 2 * zip_archives.PIECE_BYTES + 1):
        assert await read_file(folder_store, pack(("zeros", bytes(size))), "zeros") == bytes(size)


async def test_a_directory_that_is_larger_than_the_end_is_read_by_its_range(store: ObjectStore) -> None:
    _, directory = await read_directory(store, pack(*((f"{number % 7}/{number}-{'x' * 60}", b"") for number in range(2_000))))

    assert len(listed(directory)) == 7
    assert len(directory.files) == 2_000


async def test_zip64_is_read(folder_store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zipfile, "ZIP64_LIMIT", 3)
    monkeypatch.setattr(zipfile, "ZIP_FILECOUNT_LIMIT", 1)
    data = pack(("first.txt", b"a" * 100), ("second.txt", b"b" * 100))
    assert b"PK\6\7" in data

    assert await read_file(folder_store, data, "second.txt") == b"b" * 100


def declared(data: bytes, *changes: tuple[int, str, int], signature: bytes = b"PK\1\2") -> bytes:
    """The archive with other values in its last record of this kind: the offset in the record, the format and the value of each."""
    changed = bytearray(data)
    for offset, form, value in changes:
        struct.pack_into(form, changed, data.rindex(signature) + offset, value)
    return bytes(changed)


ONE = pack(("a.txt", b"text" * 100))
UNREADABLE: dict[str, tuple[bytes, str]] = {
    "nothing": (b"", "it is not a zip archive"),
    "another format": (b"\x1f\x8b" + b"x" * 70_000, "it is not a zip archive"),
    "without its end": (ONE[:-5], "it is not a zip archive"),
    "a part of several": (declared(ONE, (4, "<H", 1), signature=b"PK\5\6"), "a part of an archive of several files"),
    "millions of entries": (declared(ONE, (8, "<H", 65_000), (10, "<H", 65_000), signature=b"PK\5\6"), "it declares 65,000 entries"),
    "a directory of gigabytes": (declared(ONE, (12, "<L", 2**31), signature=b"PK\5\6"), "it declares 1 entries in 2,147,483,648 bytes"),
    "a directory outside": (declared(ONE, (12, "<L", 2**20), signature=b"PK\5\6"), "its directory is damaged"),
    "a directory elsewhere": (declared(ONE, (16, "<L", 2**31), signature=b"PK\5\6"), "its directory is damaged"),
    "more entries than declared": (
        declared(pack(("a", b""), ("b", b"")), (8, "<H", 1), (10, "<H", 1), signature=b"PK\5\6"),
        "other entries",
    ),
    "fewer entries than declared": (declared(ONE, (8, "<H", 2), (10, "<H", 2), signature=b"PK\5\6"), "its directory is damaged"),
    "a file outside": (declared(ONE, (42, "<L", 2**31)), "its directory is damaged"),
    "an absolute path": (pack(("/etc/passwd", b"")), "unsafe path: '/etc/passwd'"),
    "a path that goes up": (pack(("a/../../b", b"")), "unsafe path: 'a/../../b'"),
    "an empty name": (pack(("a//b", b"")), "unsafe path"),
    "a NUL": (pack(("a.txt", b"")).replace(b"a.txt", b"a\0txt"), "unsafe path"),
    "a repeated path": (pack(("a", b"1"), ("a", b"2")), "two files with the path 'a'"),
    "a file that is a folder": (pack(("a", b"1"), ("a/b", b"2")), "'a' is both a file and a folder"),
    "a folder that is a file": (pack(("a/b", b"1"), ("a", b"2")), "'a' is both a file and a folder"),
    "a long path": (pack(("a" * 2_000, b"")), "more than 1,024 bytes"),
    "a deep path": (pack(("a/" * 200 + "b", b"")), "more than 64 folders"),
}


@pytest.mark.parametrize("case", UNREADABLE)
async def test_what_is_not_read_has_a_reason(folder_store: ObjectStore, case: str) -> None:
    data, reason = UNREADABLE[case]
    with pytest.raises(UnreadableZip) as raised:
        await read_directory(folder_store, data)
    assert reason in str(raised.value)


async def test_many_folders_are_refused(folder_store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zip_archives, "MAX_ENTRIES", 20)
    with pytest.raises(UnreadableZip, match="more than 20 folders"):
        await read_directory(folder_store, pack(("/".join("abcdefghijklmnopqrstuvwxyz"), b"")))


FILES: dict[str, tuple[Callable[[], bytes], str]] = {
    "encrypted": (lambda: declared(ONE, (8, "<H", 1)), "is encrypted"),
    "another method": (lambda: pack(("a.txt", b"text"), method=zipfile.ZIP_LZMA), "compressed by method 14"),
    "a bomb that declares its size": (lambda: declared(ONE, (24, "<L", 2**31)), "the file has 2,147,483,648 bytes"),
    "a bomb that declares less": (lambda: declared(pack(("a.txt", bytes(2**24))), (24, "<L", 100)), "larger than it declares"),
    "a wrong checksum": (lambda: declared(ONE, (16, "<L", 1)), "checksum"),
    "a wrong size": (lambda: declared(ONE, (24, "<L", 401)), "size or checksum"),
    "data that is not deflated": (lambda: ONE.replace(ONE[35:39], b"\xff" * 4, 1), "cannot be decompressed"),
    "no header": (lambda: b"XX" + ONE[2:], "the header of the file is damaged"),
}


@pytest.mark.parametrize("case", FILES)
async def test_files_that_are_not_read_have_a_reason(folder_store: ObjectStore, case: str) -> None:
    make, reason = FILES[case]
    with pytest.raises(UnreadableZip) as raised:
        await read_file(folder_store, make(), "a.txt")
    assert reason in str(raised.value)


@pytest.mark.parametrize("name_size", [200, 40_000])
async def test_a_file_whose_local_header_leads_behind_the_archive_is_damaged(store: ObjectStore, name_size: int) -> None:
    data = bytearray(pack(("a.txt", b"hello" * 100)))
    struct.pack_into("<H", data, data.index(b"PK\3\4") + 26, name_size)
    with pytest.raises(UnreadableZip, match="is damaged"):
        await read_file(store, bytes(data), "a.txt")


async def test_ranges_end_with_the_object(store: ObjectStore) -> None:
    key, empty = new_key(), new_key()
    await store.put_bytes(key, b"0123456789")
    await store.put_bytes(empty, b"")
    ranges = [(5, 100), (9, 1), (9, None), (10, 5), (10, None), (20, 5), (20, None)]
    assert [await store.read(key, *each) for each in ranges] == [b"56789", b"9", b"9", b"", b"", b"", b""]
    assert [await store.read(empty, *each) for each in ((0, 5), (0, None), (1, None))] == [b"", b"", b""]
    with pytest.raises(ObjectNotFound):
        await store.read(new_key(), 10, 5)
