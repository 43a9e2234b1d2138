"""Reads a dump from a stream and verifies every byte of it."""

import hashlib
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import orjson

from storage.dump.dump_format import (
    BLOCK_BYTES,
    END_BYTES,
    END_NAME,
    FORMAT_VERSION,
    HEAD_NAME,
    MANIFEST_NAME,
    DamagedDump,
    DumpEnd,
    DumpError,
    DumpHead,
    Manifest,
    PartDigest,
    padding_of,
    render_header,
)

READ_BYTES = 2**20
MAX_HEAD_BYTES = 2**16


class DumpInput(Protocol):
    """What a dump is read from: a file, or an object of a bucket."""

    def read(self, size: int, /) -> Any: ...

    def seek(self, offset: int, whence: int = ..., /) -> int: ...


@dataclass
class DumpMember:
    """A file of a part. Its chunks are read once, in order, before the next member."""

    part: str
    name: str
    size: int
    chunks: Iterator[bytes]

    def read(self) -> bytes:
        """Reads all of it; for small members."""
        return b"".join(self.chunks)


class DumpReader:
    """A dump that is read from its beginning. `label` names it in messages. Raises DumpError, at once for an unknown format.

    `members` reads all members once; after it, `manifest` is the verified manifest.
    """

    def __init__(self, label: str, stream: DumpInput) -> None:
        self.label = label
        self.offset = 0
        self.manifest: Manifest | None = None
        self._stream = stream
        self._taken_at: int | None = None
        path, size = self._read_header()
        if path != HEAD_NAME or size > MAX_HEAD_BYTES:
            raise DumpError(f"{label} is not a dump of Forgefront")
        self.head = self._parse_head(b"".join(self._read_contents(size)))

    def members(self) -> Iterator[DumpMember]:
        """Yields the files of all parts, and verifies them. Raises DamagedDump; what was yielded before is not trustworthy then."""
        checksums: dict[str, str] = {}
        part, digest = "", PartDigest()
        while True:
            at = self.offset
            path, size = self._read_header()
            if path == MANIFEST_NAME:
                break
            folder, _, name = path.rpartition("/")
            if folder != part:
                checksums[part] = digest.hexdigest()
                part, digest = folder, PartDigest()
                if part in checksums:
                    raise DamagedDump(f"{self.label} has two parts {part}. Use another copy of it")
            digest.begin_file(name, size)
            chunks = self._read_contents(size, digest)
            yield DumpMember(part, name, size, chunks)
            for _ in chunks:
                pass
        checksums[part] = digest.hexdigest()
        del checksums[""]
        self.manifest = self._read_manifest(at, size)
        self._compare(self.manifest, checksums)

    def verify(self) -> Iterator[int]:
        """Reads all of the dump, and yields the number of bytes that were read so far. Raises DamagedDump."""
        for member in self.members():
            for _ in member.chunks:
                yield self.offset

    def _compare(self, manifest: Manifest, checksums: dict[str, str]) -> None:
        expected = {name: entry.sha256 for name, entry in manifest.parts.items() if entry.dump == self.head.id}
        for name in sorted(expected.keys() | checksums.keys()):
            if expected.get(name) != checksums.get(name):
                raise DamagedDump(f"{self.label} is damaged: the contents of {name} do not match their checksum. Use another copy of it")

    def _read_header(self) -> tuple[str, int]:
        block = self._read(BLOCK_BYTES)
        try:
            info = tarfile.TarInfo.frombuf(block, "ascii", "strict")
            if self._taken_at is None:
                self._taken_at = int(info.mtime)
            is_expected = render_header(info.name, info.size, self._taken_at) == block
        except (tarfile.HeaderError, ValueError):
            is_expected = False
        if not is_expected:
            if self.offset == BLOCK_BYTES:
                raise DumpError(f"{self.label} is not a dump of Forgefront")
            raise DamagedDump(f"{self.label} is damaged at byte {self.offset - BLOCK_BYTES}. Use another copy of it")
        return info.name, info.size

    def _read_contents(self, size: int, digest: PartDigest | None = None) -> Iterator[bytes]:
        remaining = size
        while remaining:
            data = self._read(min(READ_BYTES, remaining))
            remaining -= len(data)
            if digest is not None:
                digest.update(data)
            yield data
        if any(self._read(padding_of(size))):
            raise DamagedDump(f"{self.label} is damaged before byte {self.offset}. Use another copy of it")

    def _read_manifest(self, at: int, size: int) -> Manifest:
        data = b"".join(self._read_contents(size))
        path, end_size = self._read_header()
        expected_end = DumpEnd(at, hashlib.sha256(data).hexdigest()).render()
        if path != END_NAME or end_size != len(expected_end) or b"".join(self._read_contents(end_size)) != expected_end:
            raise DamagedDump(f"{self.label} is damaged: its manifest does not match its checksum. Use another copy of it")
        if any(self._read(2 * BLOCK_BYTES)) or bytes(self._stream.read(1)):
            raise DamagedDump(f"{self.label} is damaged at its end. Use another copy of it")
        manifest = parse_manifest(self.label, data)
        if manifest.head != self.head:
            raise DamagedDump(f"{self.label} is damaged: its head differs from its manifest. Use another copy of it")
        return manifest

    def _parse_head(self, data: bytes) -> DumpHead:
        try:
            values = orjson.loads(data)
            version, product = values["format"], values["product"]
        except (ValueError, TypeError, KeyError):
            raise DumpError(f"{self.label} is not a dump of Forgefront") from None
        if version != FORMAT_VERSION:
            raise DumpError(
                f"{self.label} has format {version} of Forgefront {product}; this program reads format {FORMAT_VERSION}. Upgrade it first"
            )
        try:
            return DumpHead(**values)
        except TypeError:
            raise DamagedDump(f"{self.label} is damaged: its head cannot be read. Use another copy of it") from None

    def _read(self, size: int) -> bytes:
        """Reads exactly this number of bytes."""
        data = b""
        while len(data) < size:
            piece = bytes(self._stream.read(size - len(data)))
            if not piece:
                raise DamagedDump(f"{self.label} was cut short after {self.offset + len(data)} bytes. Use a complete copy of it")
            data = data + piece if data else piece
        self.offset += size
        return data


def read_manifest(label: str, stream: DumpInput) -> Manifest:
    """Reads the manifest alone, from the end of a dump. Raises DumpError."""
    damaged = DamagedDump(f"{label} is not a complete dump of Forgefront")
    try:
        size = stream.seek(-END_BYTES, 2) + END_BYTES
        block = bytes(stream.read(END_BYTES))[BLOCK_BYTES : 2 * BLOCK_BYTES]
        end = DumpEnd(**orjson.loads(block))
        stream.seek(end.manifest_at)
        data = bytes(stream.read(size - END_BYTES - end.manifest_at))[BLOCK_BYTES:]
    except (OSError, ValueError, TypeError):
        raise damaged from None
    if hashlib.sha256(data[: len(data.rstrip(b"\0"))]).hexdigest() != end.manifest_sha256:
        raise damaged
    return parse_manifest(label, data.rstrip(b"\0"))


def parse_manifest(label: str, data: bytes) -> Manifest:
    """Raises DamagedDump."""
    try:
        return Manifest.parse(data)
    except (ValueError, TypeError, KeyError):
        raise DamagedDump(f"{label} is damaged: its manifest cannot be read. Use another copy of it") from None
