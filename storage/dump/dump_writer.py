"""Writes a dump to a stream, part by part, in constant memory."""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Protocol

import orjson

from storage.dump.dump_format import (
    BLOCK_BYTES,
    END_NAME,
    HEAD_NAME,
    MANIFEST_NAME,
    DumpEnd,
    DumpError,
    DumpHead,
    Manifest,
    PartDigest,
    PartEntry,
    padding_of,
    render_header,
)

ZEROS = bytes(2**16)


class DumpOutput(Protocol):
    """What a dump is written to: a file, or an object of a bucket."""

    def write(self, data: bytes, /) -> object: ...


class DumpWriter:
    """Writes the members of a dump. Parts that the earlier dump contains are only recorded.

    `parts` has all parts of the dump, those of the earlier dumps included; `written_bytes` is the size of the file so far.
    """

    def __init__(self, output: DumpOutput, head: DumpHead, earlier: Manifest | None = None) -> None:
        self.head = head
        self.parts: dict[str, PartEntry] = {}
        self.written_bytes = 0
        self._output = output
        damaged = frozenset(earlier.damaged) if earlier else frozenset()
        self._earlier = {name: part for name, part in earlier.parts.items() if name not in damaged} if earlier else {}
        self._add_member(HEAD_NAME, orjson.dumps(asdict(head), option=orjson.OPT_APPEND_NEWLINE))

    def reuse(self, name: str) -> bool:
        """Records an immutable part that the earlier dump has undamaged; returns whether it has it."""
        found = self._earlier.get(name)
        if found is not None:
            self.parts[name] = found
        return found is not None

    def add_chunk(self, name: str, file_name: str, data: bytes) -> None:
        """Adds a part of one file, unless the earlier dump has the same contents under this name."""
        digest = PartDigest()
        digest.begin_file(file_name, len(data))
        digest.update(data)
        found = self._earlier.get(name)
        if found is not None and found.sha256 == digest.hexdigest():
            self.parts[name] = found
        else:
            self._add_member(f"{name}/{file_name}", data)
            self._record(name, digest)

    @contextmanager
    def add_part(self, name: str) -> Iterator["PartWriter"]:
        """Adds a part of several files. Parts must not be nested.

        Raises FileNotFoundError of the block if nothing is written yet, else DumpError.
        """
        part = PartWriter(self, name)
        try:
            yield part
        except FileNotFoundError as error:
            if part.digest.files:
                raise DumpError(f"a file of {name} was removed while it was read") from error
            raise
        if part.digest.files:
            self._record(name, part.digest)

    def finish(self, manifest: Manifest) -> None:
        """Writes the manifest and the end. The caller closes the output."""
        data = manifest.render()
        end = DumpEnd(self.written_bytes, hashlib.sha256(data).hexdigest())
        self._add_member(MANIFEST_NAME, data)
        self._add_member(END_NAME, end.render())
        self.write(ZEROS[: 2 * BLOCK_BYTES])

    def begin_member(self, path: str, size: int) -> None:
        self.write(render_header(path, size, self.head.taken_at))

    def write(self, data: bytes) -> None:
        self._output.write(data)
        self.written_bytes += len(data)

    def _add_member(self, path: str, data: bytes) -> None:
        self.begin_member(path, len(data))
        self.write(data)
        self.write(ZEROS[: padding_of(len(data))])

    def _record(self, name: str, digest: PartDigest) -> None:
        if name in self.parts:
            raise ValueError(f"the dump has two parts {name}")
        self.parts[name] = PartEntry(digest.hexdigest(), digest.size, digest.files, self.head.id)


class PartWriter:
    """Writes the files of one part."""

    def __init__(self, writer: DumpWriter, name: str) -> None:
        self.digest = PartDigest()
        self._writer = writer
        self._name = name
        self._size = 0
        self._missing_bytes = 0

    def begin_file(self, name: str, size: int) -> None:
        """Begins a file of exactly this size."""
        self._writer.begin_member(f"{self._name}/{name}", size)
        self.digest.begin_file(name, size)
        self._size = self._missing_bytes = size

    def write(self, data: bytes) -> None:
        """Writes the next bytes of the file; those beyond its size are left out."""
        data = data[: self._missing_bytes]
        self._missing_bytes -= len(data)
        self.digest.update(data)
        self._writer.write(data)

    def end_file(self) -> bool:
        """Ends the file. Returns False if it was shorter than its size and was filled with zeros."""
        is_whole = not self._missing_bytes
        while self._missing_bytes:
            self.write(ZEROS)
        self._writer.write(ZEROS[: padding_of(self._size)])
        return is_whole
