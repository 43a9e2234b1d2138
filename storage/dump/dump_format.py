"""The format of a dump: a tar file whose members are grouped into parts, and a manifest at its end.

The path of a member is `PART/FILE`. A part is the unit of incremental dumps: a chunk of a table, a pack, some stored files. The first
member is the head, the last two are the manifest and the end, which has a fixed size, so that the manifest is found from the end of the
file. Every byte is verified: contents by the checksums of the manifest, the manifest by the end, headers and padding by their only form.
"""

import hashlib
import tarfile
from dataclasses import asdict, dataclass, field, fields
from typing import Self

import orjson

FORMAT_VERSION = 1
HEAD_NAME = "forgefront-dump.json"
MANIFEST_NAME = "manifest.json"
END_NAME = "end.json"
BLOCK_BYTES = tarfile.BLOCKSIZE
END_BYTES = 4 * BLOCK_BYTES
"""The end of the file: a header, a block of JSON, and the two zero blocks that end a tar file."""
MAX_PATH_LENGTH = 100
"""Longer paths would need a second header."""


class DumpError(Exception):
    """A dump cannot be written or restored; the message says why and what to do."""


class DamagedDump(DumpError):
    """A dump was cut short or changed."""


@dataclass(frozen=True, slots=True)
class DumpHead:
    """What is known of a dump before its rows are read. `taken_at` is a time in seconds; `since` is the id of the earlier dump."""

    format: int
    id: str
    since: str | None
    taken_at: int
    product: str
    revision: str


@dataclass(frozen=True, slots=True)
class PartEntry:
    """A part: its checksum (`PartDigest`), its size in bytes, the number of its files, and the dump that contains it."""

    sha256: str
    size: int
    files: int
    dump: str


@dataclass(frozen=True, slots=True)
class TableEntry:
    """A table: (name, kind) of its columns in the order of its rows, the number of rows, and the last id that was assigned."""

    columns: list[tuple[str, str]]
    rows: int
    sequence: int | None


@dataclass
class Manifest:
    """All that a dump and the earlier dumps of its chain contain together.

    `chain` has the heads of the earlier dumps, the oldest first. `deleted` has the ids of rows, by table, that were deleted during the dump
    before their files were read. `notes` says which files of existing rows were missing or damaged; `damaged` has the parts that lack them,
    which a later dump of the chain reads again.
    """

    head: DumpHead
    chain: list[DumpHead]
    database: str
    key_fingerprint: str
    tables: dict[str, TableEntry] = field(default_factory=dict)
    parts: dict[str, PartEntry] = field(default_factory=dict)
    deleted: dict[str, list[int]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    damaged: list[str] = field(default_factory=list)

    def note_damage(self, part: str | None, problem: str) -> None:
        """Records that a file is missing or damaged; `part` is the one that it belongs to, if that is known."""
        self.notes.append(problem)
        if part is not None and part not in self.damaged[-1:]:
            self.damaged.append(part)

    def render(self) -> bytes:
        # Short: an instance may have 100,000 parts.
        parts = {name: [part.sha256, part.size, part.files, part.dump] for name, part in self.parts.items()}
        values = {each.name: getattr(self, each.name) for each in fields(self)} | {"parts": parts}
        return orjson.dumps(values, option=orjson.OPT_APPEND_NEWLINE)

    @classmethod
    def parse(cls, data: bytes) -> Self:
        """Raises ValueError, TypeError, KeyError for anything else than what `render` returns."""
        values = orjson.loads(data)
        return cls(
            head=DumpHead(**values["head"]),
            chain=[DumpHead(**head) for head in values["chain"]],
            database=values["database"],
            key_fingerprint=values["key_fingerprint"],
            tables={
                name: TableEntry([(column, kind) for column, kind in table["columns"]], table["rows"], table["sequence"])
                for name, table in values["tables"].items()
            },
            parts={name: PartEntry(*part) for name, part in values["parts"].items()},
            deleted=values["deleted"],
            notes=values["notes"],
            # Earlier versions wrote none.
            damaged=values.get("damaged", []),
        )

    @property
    def rows(self) -> int:
        """The number of rows of all tables."""
        return sum(table.rows for table in self.tables.values())

    def count_files(self, *kinds: str) -> int:
        """The number of files of the parts of these kinds, such as `artifacts`."""
        return sum(part.files for name, part in self.parts.items() if name.startswith(tuple(f"{kind}/" for kind in kinds)))


@dataclass(frozen=True, slots=True)
class DumpEnd:
    """Where the manifest's header begins in the file, in bytes, and the checksum of the manifest."""

    manifest_at: int
    manifest_sha256: str

    def render(self) -> bytes:
        """Returns one block."""
        return orjson.dumps(asdict(self)).ljust(BLOCK_BYTES - 1) + b"\n"


class PartDigest:
    """The checksum of a part: SHA-256 over the name, the size and the contents of each of its files."""

    def __init__(self) -> None:
        self.size = 0
        self.files = 0
        self._hash = hashlib.sha256()

    def begin_file(self, name: str, size: int) -> None:
        self.size += size
        self.files += 1
        self._hash.update(f"{name}\0{size}\0".encode())

    def update(self, data: bytes) -> None:
        self._hash.update(data)

    def hexdigest(self) -> str:
        return self._hash.hexdigest()


def render_header(path: str, size: int, taken_at: int) -> bytes:
    """The header block of a member. Raises ValueError for a path that needs more."""
    if len(path) > MAX_PATH_LENGTH or not path.isascii():
        raise ValueError(f"{path} is not a path of a dump")
    info = tarfile.TarInfo(path)
    info.size, info.mtime, info.mode = size, taken_at, 0o600
    return info.tobuf(tarfile.GNU_FORMAT)


def padding_of(size: int) -> int:
    """The number of zero bytes after contents of this size."""
    return -size % BLOCK_BYTES
