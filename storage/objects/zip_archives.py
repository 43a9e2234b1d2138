"""Zip archives in the object store: their directory, and one of their files, each read by ranges of the object.

 directory = await read_directory(store, key, size)
 directory.list_folder("reports")           [ZipListingEntry("index.html", "reports/index.html", …), …]
 entry = directory.find("reports/index.html")
 async with open_entry(store, key, entry) as chunks: …

The format is that of APPNOTE.TXT, sections 4.3 and 4.5.3 (zip64). The central directory at the end names everything, so an archive of
gigabytes is listed from some kilobytes. An archive is data of a user: what it declares is verified or bounded, and nothing
is ever written to the paths that it names. Parsing and decompression run in threads.
"""

import asyncio
import stat
import struct
import zlib
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass, field
from enum import StrEnum

from storage.objects.object_store import ObjectStore

MAX_DIRECTORY_BYTES = 4 * 2**20
MAX_ENTRIES = 20_000
MAX_PATH_BYTES = 1024
MAX_DEPTH = 64
"""Nested folders. With the limits of entries and paths it bounds the memory of folders that only paths name."""
MAX_FILE_BYTES = 256 * 2**20
"""Bytes of a file, decompressed: a larger one is not read, however small it is in the archive."""
PIECE_BYTES = 2**18
STORED, DEFLATED = 0, 8

_END = struct.Struct("<4s4H2LH")
_END_64 = struct.Struct("<4sQ2H2L4Q")
_LOCATOR_64 = struct.Struct("<4sLQL")
_ENTRY = struct.Struct("<4s4B4HL2L5H2L")
_LOCAL_HEADER = struct.Struct("<4s2B4HL2L2H")
_ZIP64_EXTRA = 1
_UNKNOWN_32 = 0xFFFFFFFF
"""Stands in fields whose value is in the zip64 field."""
_TAIL_BYTES = _END.size + 0xFFFF + _LOCATOR_64.size + _END_64.size
"""The end of central directory record is among the last bytes: a comment of at most 64 KiB may follow it."""
_IS_ENCRYPTED, _IS_UTF8 = 0x1, 0x800
_IS_UNIX = 3


class UnreadableZip(Exception):
    """The object is no zip archive, or one that is not read. The message says why, to users."""


class EntryKind(StrEnum):
    """The kind of an entry; LINK is a symbolic link, whose contents are its target."""

    FOLDER = "folder"
    FILE = "file"
    LINK = "link"


@dataclass(frozen=True, slots=True)
class ZipEntry:
    """An entry as the central directory declares it. Sizes are in bytes; `offset` is that of its local header."""

    path: str
    kind: EntryKind
    size: int
    packed_size: int
    method: int
    checksum: int
    is_encrypted: bool
    offset: int


@dataclass(frozen=True, slots=True)
class ZipListingEntry:
    """An entry of a folder. `size` is that of the decompressed file in bytes; None for a folder."""

    name: str
    path: str
    kind: EntryKind
    size: int | None


@dataclass(frozen=True, slots=True)
class ZipDirectory:
    """The files of an archive by path, and its folders: those with an entry, and those that only paths of files name."""

    files: dict[str, ZipEntry] = field(default_factory=dict)
    folders: set[str] = field(default_factory=lambda: {""})

    def find(self, path: str) -> ZipEntry | None:
        """The file or link at this path."""
        return self.files.get(path)

    def list_folder(self, path: str) -> list[ZipListingEntry] | None:
        """The entries of a folder ("" is the root): folders first, each kind by name; None if there is no such folder."""
        if path not in self.folders:
            return None
        start = len(path) + 1 if path else 0
        folders = sorted(name for name in self.folders if name and _parent_of(name) == path)
        files = sorted(name for name in self.files if _parent_of(name) == path)
        return [
            *(ZipListingEntry(name[start:], name, EntryKind.FOLDER, None) for name in folders),
            *(ZipListingEntry(name[start:], name, self.files[name].kind, self.files[name].size) for name in files),
        ]


async def read_directory(store: ObjectStore, key: str, size: int) -> ZipDirectory:
    """Reads the directory of an archive of `size` bytes. Raises UnreadableZip, ObjectNotFound, OSError."""
    tail_start = max(0, size - _TAIL_BYTES)
    tail = await store.read(key, tail_start, size - tail_start)
    found = _locate_directory(tail, tail_start)
    if found.start >= tail_start:
        data = tail[found.start - tail_start :][: found.length]
    else:
        data = await store.read(key, found.start, found.length)
    return await asyncio.to_thread(_parse_directory, data, found)


@asynccontextmanager
async def open_entry(store: ObjectStore, key: str, entry: ZipEntry) -> AsyncIterator[AsyncIterator[bytes]]:
    """Yields the chunks of a file, decompressed while they are read. Raises as `read_directory` when entered.

    The chunks raise UnreadableZip if the file is not of the declared size and checksum. Decompression ends
    where it exceeds that size.
    """
    if reason := unreadable_reason(entry):
        raise UnreadableZip(reason)
    header = await store.read(key, entry.offset, _LOCAL_HEADER.size)
    if len(header) < _LOCAL_HEADER.size or header[:4] != b"PK\3\4":
        raise UnreadableZip("the header of the file is damaged")
    name_size, extra_size = _LOCAL_HEADER.unpack(header)[-2:]
    start = entry.offset + _LOCAL_HEADER.size + name_size + extra_size
    async with AsyncExitStack() as stack:
        packed = await stack.enter_async_context(store.open(key, start, entry.packed_size))
        yield await stack.enter_async_context(aclosing(_unpack(packed, entry)))


def unreadable_reason(entry: ZipEntry) -> str | None:
    """Why the contents of an entry are not read, as far as its declaration says; None if they are."""
    if entry.is_encrypted:
        return "the file is encrypted"
    if entry.method not in (STORED, DEFLATED):
        return f"the file is compressed by method {entry.method}; only stored and deflated files are read"
    if entry.size > MAX_FILE_BYTES or entry.packed_size > MAX_FILE_BYTES:
        return f"the file has {entry.size:,} bytes; files of at most {MAX_FILE_BYTES:,} bytes are read"
    return None


async def _unpack(packed: AsyncIterator[bytes], entry: ZipEntry) -> AsyncGenerator[bytes, None]:
    unpacker = zlib.decompressobj(-zlib.MAX_WBITS) if entry.method == DEFLATED else None
    size, checksum = 0, 0
    async for chunk in packed:
        rest, has_more = chunk, True
        while has_more:
            piece, rest, has_more = (rest, b"", False) if unpacker is None else await asyncio.to_thread(_inflate, unpacker, rest)
            size, checksum = size + len(piece), zlib.crc32(piece, checksum)
            if size > entry.size:
                raise UnreadableZip("the file is larger than it declares")
            if piece:
                yield piece
    if size != entry.size or checksum != entry.checksum:
        raise UnreadableZip("the file is damaged: its size or checksum is not the declared one")


def _inflate(unpacker: "zlib._Decompress", data: bytes) -> tuple[bytes, bytes, bool]:
    """The next piece, the data that is left for further ones, and whether there may be further ones."""
    try:
        piece = unpacker.decompress(data, PIECE_BYTES)
    except zlib.error:
        raise UnreadableZip("the file is damaged: its data cannot be decompressed") from None
    rest = b"" if unpacker.eof else unpacker.unconsumed_tail
    # zlib may have taken all of the data, and still have bytes of a repetition to write.
    return piece, rest, bool(rest) or (len(piece) == PIECE_BYTES and not unpacker.eof)


@dataclass(frozen=True, slots=True)
class _DirectoryLocation:
    """Where the central directory is, in bytes, with the number of entries that the archive declares.

    `shift` is the number of bytes before the archive, as in one that extracts itself; offsets in it do not count them.
    """

    start: int
    length: int
    count: int
    shift: int


def _locate_directory(tail: bytes, tail_start: int) -> _DirectoryLocation:
    at = _find_end_record(tail)
    _, disk, directory_disk, on_disk, count, length, offset, _ = _END.unpack_from(tail, at)
    end, locator = at, at - _LOCATOR_64.size
    if locator >= _END_64.size and tail[locator : locator + 4] == b"PK\6\7":
        end = locator - _END_64.size
        if tail[end : end + 4] != b"PK\6\6":
            raise UnreadableZip("its zip64 record is damaged, or of an unknown form")
        _, _, _, _, disk, directory_disk, on_disk, count, length, offset = _END_64.unpack_from(tail, end)
    if disk or directory_disk or on_disk != count:
        raise UnreadableZip("it is a part of an archive of several files")
    if count > MAX_ENTRIES or length > MAX_DIRECTORY_BYTES:
        raise UnreadableZip(f"it declares {count:,} entries in {length:,} bytes; at most {MAX_ENTRIES:,} entries in 4 MiB are read")
    start = tail_start + end - length
    if start < offset:
        raise UnreadableZip("its directory is damaged")
    return _DirectoryLocation(start, length, count, start - offset)


def _find_end_record(tail: bytes) -> int:
    """The position of the end of central directory record. A comment may contain its signature: the right one's comment ends the file."""
    at = len(tail) - _END.size
    while at >= 0 and (at := tail.rfind(b"PK\5\6", 0, at + 4)) >= 0:
        if at + _END.size + _END.unpack_from(tail, at)[-1] == len(tail):
            return at
        at -= 1
    raise UnreadableZip("it is not a zip archive, or its end is missing")


def _parse_directory(data: bytes, location: _DirectoryLocation) -> ZipDirectory:
    directory, at = ZipDirectory(), 0
    for _ in range(location.count):
        if at + _ENTRY.size > len(data) or data[at : at + 4] != b"PK\1\2":
            raise UnreadableZip("its directory is damaged")
        header = _ENTRY.unpack_from(data, at)
        system, flags, method, (checksum, packed_size, size), mode, offset = header[2], header[5], header[6], header[9:12], *header[17:]
        name_end = at + _ENTRY.size + header[12]
        extra_end = name_end + header[13]
        path = _decode_path(data[at + _ENTRY.size : name_end], is_utf8=bool(flags & _IS_UTF8))
        size, packed_size, offset = _read_zip64(data[name_end:extra_end], size, packed_size, offset)
        at = extra_end + header[14]
        if offset + location.shift + _LOCAL_HEADER.size + packed_size > location.start:
            raise UnreadableZip("its directory is damaged")
        is_link = system == _IS_UNIX and stat.S_ISLNK(mode >> 16)
        kind = EntryKind.FOLDER if path.endswith("/") else EntryKind.LINK if is_link else EntryKind.FILE
        _add_entry(
            directory,
            ZipEntry(
                path.removesuffix("/"), kind, size, packed_size, method, checksum, bool(flags & _IS_ENCRYPTED), offset + location.shift
            ),
        )
    if at != len(data):
        raise UnreadableZip("its directory is damaged: it has other entries than it declares")
    if both := directory.folders & directory.files.keys():
        raise UnreadableZip(f"{_shorten(min(both))} is both a file and a folder")
    return directory


def _add_entry(directory: ZipDirectory, entry: ZipEntry) -> None:
    if entry.kind is not EntryKind.FOLDER:
        if entry.path in directory.files:
            raise UnreadableZip(f"it has two files with the path {_shorten(entry.path)}")
        directory.files[entry.path] = entry
    folder = entry.path if entry.kind is EntryKind.FOLDER else _parent_of(entry.path)
    while folder not in directory.folders:
        directory.folders.add(folder)
        folder = _parent_of(folder)
    if len(directory.folders) > MAX_ENTRIES:
        raise UnreadableZip(f"it has more than {MAX_ENTRIES:,} folders")


def _decode_path(name: bytes, *, is_utf8: bool) -> str:
    """The path of an entry, with a slash at the end for a folder. Without the flag of UTF-8 it may be code page 437 (appendix D)."""
    if len(name) > MAX_PATH_BYTES:
        raise UnreadableZip(f"a path in it has more than {MAX_PATH_BYTES:,} bytes")
    try:
        path = name.decode()
    except UnicodeDecodeError:
        path = name.decode("utf-8", "replace") if is_utf8 else name.decode("cp437")
    parts = path.removesuffix("/").split("/")
    if "\0" in path or any(part in ("", ".", "..") for part in parts):
        raise UnreadableZip(f"it has an unsafe path: {_shorten(path)}")
    if len(parts) > MAX_DEPTH:
        raise UnreadableZip(f"a path in it has more than {MAX_DEPTH} folders")
    return path


def _read_zip64(extra: bytes, size: int, packed_size: int, offset: int) -> tuple[int, int, int]:
    """The sizes and the offset, from the zip64 field for those that do not fit into 32 bits."""
    values = [size, packed_size, offset]
    if _UNKNOWN_32 not in values:
        return size, packed_size, offset
    at = 0
    while at + 4 <= len(extra):
        tag, length = struct.unpack_from("<2H", extra, at)
        if tag == _ZIP64_EXTRA:
            wide_values = list(struct.unpack_from(f"<{min(length, len(extra) - at - 4) // 8}Q", extra, at + 4))
            values = [wide_values.pop(0) if value == _UNKNOWN_32 and wide_values else value for value in values]
            break
        at += 4 + length
    return values[0], values[1], values[2]


def _parent_of(path: str) -> str:
    return path.rpartition("/")[0]


def _shorten(path: str) -> str:
    """The path in an error message."""
    return ascii(path[:100])
