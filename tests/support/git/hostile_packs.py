"""Malicious packs: small to send, and large, slow or endless to read.

Everything is generated from a seed: `random_pack` returns the same pack for the same seed, so that fuzzing can be repeated.
"""

import hashlib
import random
import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

MEGABYTE = 1024 * 1024
MAX_COPY_BYTES = 0xFFFFFF
"""Bytes that one instruction of a delta can copy."""

_TYPES = {"commit": 1, "tree": 2, "blob": 3, "tag": 4}
_OFS_DELTA = 6
_REF_DELTA = 7
_IDENTITY = b"A U Thor <author@example.org> 1700000000 +0000"


@dataclass(frozen=True, slots=True)
class HostilePack:
    """A pack, and the commit or tag in it that a push may name. `tip` None: the pack is unreadable, so nothing in it can be named."""

    name: str
    data: bytes
    tip: str | None


class PackWriter:
    """Writes a pack entry by entry, whole objects and deltas, without validation."""

    def __init__(self) -> None:
        self._body = bytearray()
        self._offsets: list[int] = []

    def add(self, kind: str, data: bytes, *, declared: int | None = None, level: int = 9) -> str:
        """Adds an object and returns its id. `declared` is the size in its entry."""
        self.add_type(_TYPES[kind], data, declared=declared, level=level)
        return object_id(kind, data)

    def add_type(self, kind: int, data: bytes, *, declared: int | None = None, level: int = 9) -> None:
        """Adds an object by the number of its type, which may be invalid."""
        self._begin(kind, len(data) if declared is None else declared)
        self._body += zlib.compress(data, level)

    def add_zeros(self, size: int) -> None:
        """Adds a blob of this number of zeros, which are never all in memory."""
        self._begin(_TYPES["blob"], size)
        packer = zlib.compressobj(9)
        for start in range(0, size, MEGABYTE):
            self._body += packer.compress(bytes(min(MEGABYTE, size - start)))
        self._body += packer.flush()

    def add_delta(self, base: int, delta: bytes) -> int:
        """Adds a delta of the entry number `base`, and returns its own number."""
        offset = 12 + len(self._body)
        self._begin(_OFS_DELTA, len(delta))
        self._body += _distance(offset - self._offsets[base]) + zlib.compress(delta, 9)
        return len(self._offsets) - 1

    def add_offset_delta(self, distance: int, delta: bytes) -> None:
        """Adds a delta whose base offset points `distance` bytes back."""
        self._begin(_OFS_DELTA, len(delta))
        self._body += _distance(distance) + zlib.compress(delta, 9)

    def add_ref_delta(self, base: str, delta: bytes) -> None:
        self._begin(_REF_DELTA, len(delta))
        self._body += bytes.fromhex(base) + zlib.compress(delta, 9)

    @property
    def last_index(self) -> int:
        """The number of the newest entry."""
        return len(self._offsets) - 1

    def pack(self, *, claimed: int | None = None, version: int = 2) -> bytes:
        """The whole pack; `claimed` is the number of objects in its header."""
        whole = b"PACK" + struct.pack(">II", version, len(self._offsets) if claimed is None else claimed) + bytes(self._body)
        return whole + hashlib.sha1(whole).digest()

    def _begin(self, kind: int, size: int) -> None:
        self._offsets.append(12 + len(self._body))
        first, size = kind << 4 | size & 15, size >> 4
        while size:
            self._body.append(first | 128)
            first, size = size & 127, size >> 7
        self._body.append(first)


def object_id(kind: str, data: bytes) -> str:
    return hashlib.sha1(f"{kind} {len(data)}\0".encode() + data).hexdigest()


def copy_delta(source: int, pieces: list[tuple[int, int]], *, target: int | None = None) -> bytes:
    """A delta of a base of `source` bytes that copies these pieces: offset and size of each. `target` is the size in its header."""
    delta = _varint(source) + _varint(sum(size for _, size in pieces) if target is None else target)
    for offset, size in pieces:
        flags, numbers = 128, b""
        for bit in range(4):
            if byte := offset >> 8 * bit & 255:
                flags, numbers = flags | 1 << bit, numbers + bytes([byte])
        for bit in range(3):
            if byte := size >> 8 * bit & 255:
                flags, numbers = flags | 16 << bit, numbers + bytes([byte])
        delta += bytes([flags]) + numbers
    return delta


def _varint(number: int) -> bytes:
    found = b""
    while number > 127:
        found, number = found + bytes([number & 127 | 128]), number >> 7
    return found + bytes([number])


def _distance(number: int) -> bytes:
    found = bytes([number & 127])
    while number := number >> 7:
        number -= 1
        found = bytes([number & 127 | 128]) + found
    return found


def _add_commit(pack: PackWriter, tree: str | None = None, *, parents: list[str] | None = None, message: str = "Hostile") -> str:
    tree = tree or pack.add("tree", b"")
    links = "".join(f"parent {oid}\n" for oid in parents or [])
    text = f"tree {tree}\n{links}author {_IDENTITY.decode()}\ncommitter {_IDENTITY.decode()}\n\n{message}\n"
    return pack.add("commit", text.encode())


def delta_bomb(size: int = 2048 * MEGABYTE, count: int = 2) -> HostilePack:
    """`count` deltas, each of which copies the same 16 MB until there are `size` bytes; the pack has some 17 kB."""
    pack = PackWriter()
    tip = _add_commit(pack)
    base = MAX_COPY_BYTES
    pack.add_zeros(base)
    number = pack.last_index
    for extra in range(count):
        pieces = [(0, base)] * (size // base) + [(0, size % base + extra)]
        pack.add_delta(number, copy_delta(base, [piece for piece in pieces if piece[1]]))
    return HostilePack(f"{count} deltas of {size} bytes", pack.pack(), tip)


def doubling_chain(times: int = 31) -> HostilePack:
    """Each delta doubles its base."""
    pack = PackWriter()
    tip = _add_commit(pack)
    pack.add("blob", b"x")
    number, size = pack.last_index, 1
    for _ in range(times):
        half = [(start, min(MAX_COPY_BYTES, size - start)) for start in range(0, size, MAX_COPY_BYTES)]
        number = pack.add_delta(number, copy_delta(size, half + half))
        size *= 2
    return HostilePack(f"a chain that doubles {times} times", pack.pack(), tip)


def shrunk_giant(size: int = 600 * MEGABYTE) -> HostilePack:
    """A file of ten bytes in the commit's tree that is a delta of a huge one: reading it unpacks both."""
    pack = PackWriter()
    small = bytes(10)
    tip = _add_commit(pack, pack.add("tree", b"100644 small\0" + bytes.fromhex(object_id("blob", small))))
    pack.add_zeros(size)
    pack.add_delta(pack.last_index, copy_delta(size, [(0, 10)]))
    return HostilePack(f"a small file that is a delta of {size} bytes", pack.pack(), tip)


def deep_chain(depth: int = 20_000) -> HostilePack:
    """A chain of deltas."""
    pack = PackWriter()
    tip = _add_commit(pack)
    pack.add("blob", bytes(100))
    number = pack.last_index
    for step in range(depth):
        # Each object must differ.
        number = pack.add_delta(number, copy_delta(100 + step, [(0, 100 + step)], target=101 + step) + b"\1" + bytes([step % 250 + 1]))
    return HostilePack(f"a chain of {depth} deltas", pack.pack(), tip)


def zlib_bomb(size: int = 4096 * MEGABYTE) -> HostilePack:
    """A blob of zeros, a thousandth of its size in the pack."""
    pack = PackWriter()
    tip = _add_commit(pack)
    pack.add_zeros(size)
    return HostilePack(f"a blob of {size} zeros", pack.pack(), tip)


def many_objects(claimed: int = 2_000_000_000) -> HostilePack:
    """One object, and a header with a count of billions."""
    pack = PackWriter()
    _add_commit(pack)
    return HostilePack(f"{claimed} objects claimed", pack.pack(claimed=claimed), None)


def wide_tree(entries: int = 1_000_000) -> HostilePack:
    """A directory of many files with the same content."""
    pack = PackWriter()
    blob = bytes.fromhex(pack.add("blob", b"x\n"))
    rows = b"".join(b"100644 %08d\0" % number + blob for number in range(entries))
    tip = _add_commit(pack, pack.add("tree", rows, level=1))
    return HostilePack(f"a tree of {entries} entries", pack.pack(), tip)


def deep_trees(levels: int = 20_000) -> HostilePack:
    """Nested directories."""
    pack = PackWriter()
    tree = pack.add("tree", b"100644 x\0" + bytes.fromhex(pack.add("blob", b"x\n")))
    for _ in range(levels):
        tree = pack.add("tree", b"40000 d\0" + bytes.fromhex(tree), level=1)
    tip = _add_commit(pack, tree)
    return HostilePack(f"{levels} directories inside each other", pack.pack(), tip)


def tree_bomb(levels: int = 12, width: int = 10) -> HostilePack:
    """Directories that contain the same directory `width` times, so `width ** levels` files."""
    pack = PackWriter()
    tree = pack.add("tree", b"100644 x\0" + bytes.fromhex(pack.add("blob", b"x\n")))
    for _ in range(levels):
        tree = pack.add("tree", b"".join(b"40000 d%03d\0" % number + bytes.fromhex(tree) for number in range(width)))
    tip = _add_commit(pack, tree)
    return HostilePack(f"a tree of {width}^{levels} files", pack.pack(), tip)


def tag_chain(length: int = 20_000) -> HostilePack:
    """Tags of tags."""
    pack = PackWriter()
    oid, kind = _add_commit(pack), "commit"
    for number in range(length):
        oid = pack.add("tag", f"object {oid}\ntype {kind}\ntag t{number}\ntagger {_IDENTITY.decode()}\n\nx\n".encode(), level=1)
        kind = "tag"
    return HostilePack(f"a tag of {length} tags", pack.pack(), oid)


def many_parents(count: int = 20_000) -> HostilePack:
    """A commit with this number of parents."""
    pack = PackWriter()
    tree = pack.add("tree", b"")
    parents = [_add_commit(pack, tree, message=f"Parent {number}") for number in range(count)]
    tip = _add_commit(pack, tree, parents=parents)
    return HostilePack(f"a commit of {count} parents", pack.pack(), tip)


def false_sizes() -> HostilePack:
    """An entry that claims to be larger than any address space, and contains a byte."""
    pack = PackWriter()
    pack.add("blob", b"x", declared=2**62)
    return HostilePack("an entry that claims 2^62 bytes", pack.pack(), None)


def false_delta() -> HostilePack:
    """Deltas whose result does not have the size in their header, and whose bases are before the pack, themselves or missing."""
    pack = PackWriter()
    pack.add("blob", bytes(100))
    pack.add_delta(pack.last_index, copy_delta(100, [(50, 100)], target=2**40))
    pack.add_offset_delta(2**50, copy_delta(100, [(0, 100)]))
    pack.add_offset_delta(0, copy_delta(100, [(0, 100)]))
    pack.add_ref_delta("1" * 40, copy_delta(100, [(0, 100)]))
    return HostilePack("deltas without a base", pack.pack(), None)


def malformed_objects(chance: random.Random) -> HostilePack:
    """A commit and a tree that git's own checks reject, or should."""
    pack = PackWriter()
    names = (b".git", b"..", b"a/b", b"", b".GIT", b"git~1", b"a\xff", b".gitmodules", b"\xe2\x80\x8c.git")
    mode = chance.choice((b"100644", b"120000", b"160000", b"040000", b"777777", b"", b"99999999999"))
    row = mode + b" " + chance.choice(names) + b"\0" + bytes.fromhex(pack.add("blob", b"x"))
    lines = [
        b"tree " + pack.add("tree", row * chance.choice((1, 1, 1, 2))).encode(),
        *([b"parent " + b"0" * 40] if chance.random() < 0.3 else []),
        b"author " + chance.choice((_IDENTITY, b"<> -1 +9999", b"\xff <\n> 99999999999999999999 +0000", b"A <a@b> 1 +0000\0")),
        b"committer " + _IDENTITY,
    ]
    tip = pack.add("commit", b"\n".join(lines) + b"\n\n" + chance.choice((b"x", b"", b"\xff\xfe\0", b"a" * 100_000)))
    return HostilePack("malformed objects", pack.pack(), tip)


def missing_object() -> HostilePack:
    """A commit whose tree is not in the pack."""
    pack = PackWriter()
    tip = _add_commit(pack, "7" * 40)
    return HostilePack("a missing tree", pack.pack(), tip)


def unknown_type(kind: int = 5, version: int = 2) -> HostilePack:
    """An entry of a type that does not exist."""
    pack = PackWriter()
    tip = _add_commit(pack)
    pack.add_type(kind, b"x")
    return HostilePack(f"an object of type {kind}", pack.pack(version=version), tip)


def mutate_pack(source: HostilePack, chance: random.Random) -> HostilePack:
    """The pack with some bytes changed, cut or repeated; half of them with a valid checksum."""
    data = bytearray(source.data[:-20])
    for _ in range(chance.randint(1, 8)):
        at = chance.randrange(len(data))
        match chance.randrange(4):
            case 0:
                data[at] = chance.randrange(256)
            case 1:
                del data[at : at + chance.randint(1, 40)]
            case 2:
                del data[at:]
            case _:
                data[at:at] = data[at : at + chance.randint(1, 40)]
        data = data or bytearray(b"P")
    check = hashlib.sha1(data).digest() if chance.random() < 0.5 else source.data[-20:]
    return HostilePack(f"{source.name}, mutated", bytes(data) + check, None)


def random_pack(seed: int, *, max_bytes: int = 2048 * MEGABYTE) -> HostilePack:
    """One hostile pack, the same for the same seed; no object claims to unpack to much more than `max_bytes`."""
    chance = random.Random(seed)
    size = chance.randint(1, max_bytes)
    kinds: tuple[Callable[[], HostilePack], ...] = (
        partial(delta_bomb, size, chance.randint(1, 8)),
        partial(doubling_chain, chance.randint(1, max(1, max_bytes.bit_length() - 1))),
        partial(shrunk_giant, min(size, 256 * MEGABYTE)),
        partial(zlib_bomb, min(size, 256 * MEGABYTE)),
        partial(deep_chain, chance.randint(1, 5_000)),
        partial(many_objects, chance.choice((0, 1, 3, 2**16, 2**31 - 1, 2**31, 2**32 - 1))),
        partial(wide_tree, chance.randint(1, 100_000)),
        partial(deep_trees, chance.randint(1, 5_000)),
        partial(tree_bomb, chance.randint(1, 30), chance.randint(1, 30)),
        partial(tag_chain, chance.randint(1, 5_000)),
        partial(many_parents, chance.randint(1, 5_000)),
        false_sizes,
        false_delta,
        partial(malformed_objects, chance),
        missing_object,
        partial(unknown_type, chance.choice((0, 5)), chance.choice((2, 2, 3, 4, 0))),
    )
    made = chance.choice(kinds)()
    return mutate_pack(made, chance) if chance.random() < 0.5 else made


def push_command(pack: HostilePack, ref: str) -> bytes:
    """What a client sends before the pack: the command that creates `ref`."""
    command = f"{'0' * 40} {pack.tip or 'f' * 40} {ref}\0 report-status side-band-64k".encode()
    return f"{len(command) + 4:04x}".encode() + command + b"0000"
