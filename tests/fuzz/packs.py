"""Hostile packs, which `git push` would never send, generated from a seed."""

import hashlib
import random
import struct
import zlib
from collections.abc import Callable

COMMIT, TREE, BLOB, TAG, OFS_DELTA, REF_DELTA = 1, 2, 3, 4, 6, 7
IDENTITY = b"A <a@example.org> 1458550000 +0000"
ZERO = "0" * 40


def entry(kind: int, content: bytes, *, size: int | None = None, extra: bytes = b"") -> bytes:
    """An object in a pack; `size` is what it says of its length."""
    left = len(content) if size is None else size
    first, left = (kind << 4) | (left & 15), left >> 4
    header = bytearray()
    while left:
        header.append(first | 128)
        first, left = left & 127, left >> 7
    header.append(first)
    return bytes(header) + extra + zlib.compress(content)


def pack(entries: list[bytes], *, count: int | None = None, version: int = 2) -> bytes:
    body = b"PACK" + struct.pack(">II", version, len(entries) if count is None else count) + b"".join(entries)
    return body + hashlib.sha1(body).digest()


def encode_length(value: int) -> bytes:
    """A length as deltas have it."""
    found = bytearray()
    while value > 127:
        found.append((value & 127) | 128)
        value >>= 7
    return bytes(found) + bytes([value])


def copy_delta(base: int, times: int, most: int = 0xFFFFFF) -> bytes:
    """A delta that copies its whole base again and again."""
    size = min(base, most)
    one = bytes([0b11110000 & 0xF0 | 0x80]) + struct.pack("<I", size)[:3]
    return encode_length(base) + encode_length(size * times) + one * times


def object_id(kind: bytes, content: bytes) -> bytes:
    return hashlib.sha1(kind + b" " + str(len(content)).encode() + b"\0" + content).digest()


def valid_entries() -> tuple[list[bytes], str]:
    """The entries of a commit of one file, and its id."""
    blob = b"hello\n"
    tree = b"100644 a.txt\0" + object_id(b"blob", blob)
    commit = b"tree " + object_id(b"tree", tree).hex().encode() + b"\nauthor " + IDENTITY + b"\ncommitter " + IDENTITY + b"\n\nA commit\n"
    return [entry(BLOB, blob), entry(TREE, tree), entry(COMMIT, commit)], object_id(b"commit", commit).hex()


def delta_bomb(chance: random.Random) -> tuple[bytes, str]:
    """Some kilobytes of deltas that become hundreds of megabytes, and more."""
    entries, oid = valid_entries()
    size = chance.choice((2**16, 2**20, 2**23))
    base = b"\0" * size
    times = chance.choice((16, 64, 256))
    bomb = entry(REF_DELTA, copy_delta(size, times), extra=object_id(b"blob", base))
    return pack([*entries, entry(BLOB, base), *[bomb] * chance.choice((1, 2, 8))]), oid


def delta_chain(chance: random.Random) -> tuple[bytes, str]:
    entries, oid = valid_entries()
    before = entry(BLOB, b"x" * 100)
    chain = [before]
    for _ in range(chance.choice((60, 500, 3_000))):
        offset = len(chain[-1])
        extra = bytes([offset]) if offset < 128 else bytes([((offset >> 7) - 1) | 128, offset & 127])
        chain.append(entry(OFS_DELTA, encode_length(100) + encode_length(100) + b"\x90\x64", extra=extra))
    return pack([*entries, *chain]), oid


def truncated(chance: random.Random) -> tuple[bytes, str]:
    entries, oid = valid_entries()
    whole = pack(entries)
    return whole[: chance.randrange(len(whole))], oid


def wrong_checksum(chance: random.Random) -> tuple[bytes, str]:
    entries, oid = valid_entries()
    whole = bytearray(pack(entries))
    whole[-chance.randint(1, 20)] ^= 1 << chance.randrange(8)
    return bytes(whole), oid


def flipped_bits(chance: random.Random) -> tuple[bytes, str]:
    """Some bits of a lawful pack turned over; the checksum is that of what is sent."""
    entries, oid = valid_entries()
    body = bytearray(pack(entries)[:-20])
    for _ in range(chance.choice((1, 2, 8))):
        body[chance.randrange(len(body))] ^= 1 << chance.randrange(8)
    return bytes(body) + hashlib.sha1(body).digest(), oid


def wrong_count(chance: random.Random) -> tuple[bytes, str]:
    entries, oid = valid_entries()
    return pack(entries, count=chance.choice((0, 1, 2, 4, 2**31, 2**32 - 1)), version=chance.choice((2, 2, 3, 4, 0))), oid


def wrong_size(chance: random.Random) -> tuple[bytes, str]:
    entries, oid = valid_entries()
    return pack([*entries, entry(BLOB, b"abc", size=chance.choice((0, 2, 4, 2**31, 2**40, 2**62)))]), oid


def bad_object(chance: random.Random) -> tuple[bytes, str]:
    """A commit or a tree that git's own checks refuse, or should."""
    blob = b"x"
    names = (b".git", b"..", b"a/b", b"", b".GIT", b"git~1", b"a\xff", b".gitmodules", b"\xe2\x80\x8c.git")
    mode = chance.choice((b"100644", b"120000", b"160000", b"040000", b"777777", b"", b"99999999999"))
    tree = mode + b" " + chance.choice(names) + b"\0" + object_id(b"blob", blob)
    if chance.random() < 0.2:
        tree = tree * 2
    lines = [
        b"tree " + object_id(b"tree", tree).hex().encode(),
        *([b"parent " + b"0" * 40] if chance.random() < 0.3 else []),
        b"author " + chance.choice((IDENTITY, b"<> -1 +9999", b"\xff <\n> 99999999999999999999 +0000", b"A <a@b> 1 +0000\0")),
        b"committer " + IDENTITY,
    ]
    commit = b"\n".join(lines) + b"\n\n" + chance.choice((b"x", b"", b"\xff\xfe\0", b"a" * 100_000))
    oid = object_id(b"commit", commit).hex()
    return pack([entry(BLOB, blob), entry(TREE, tree), entry(COMMIT, commit)]), oid


def missing_object(chance: random.Random) -> tuple[bytes, str]:
    entries, oid = valid_entries()
    del entries[chance.randrange(len(entries))]
    return pack(entries), oid


def unknown_type(chance: random.Random) -> tuple[bytes, str]:
    entries, oid = valid_entries()
    return pack([*entries, entry(chance.choice((0, 5)), b"x")]), oid


def random_bytes(chance: random.Random) -> tuple[bytes, str]:
    return chance.choice((b"", b"PACK", chance.randbytes(chance.randrange(2_000)))), valid_entries()[1]


PACK_KINDS: tuple[Callable[[random.Random], tuple[bytes, str]], ...] = (
    *(
        delta_bomb,
        delta_chain,
        truncated,
        wrong_checksum,
        flipped_bits,
        wrong_count,
        wrong_size,
        bad_object,
        missing_object,
        unknown_type,
        random_bytes,
    ),
)


def hostile_pack(seed: int) -> tuple[str, bytes, str]:
    """The name of what is wrong with it, the pack, and the commit that a ref would be moved to."""
    kind = PACK_KINDS[seed % len(PACK_KINDS)]
    data, oid = kind(random.Random(seed))
    return kind.__name__, data, oid


def receive_pack_body(data: bytes, oid: str, ref: str) -> bytes:
    """The body of a receive-pack request."""
    command = f"{ZERO} {oid} {ref}\0report-status".encode()
    return f"{len(command) + 4:04x}".encode() + command + b"0000" + data
