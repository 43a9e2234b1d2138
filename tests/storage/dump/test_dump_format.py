"""The tar file of a dump: every byte of it is verified, and parts of earlier dumps are left out."""

import io
import tarfile
from dataclasses import replace

import pytest

from storage.dump.dump_format import FORMAT_VERSION, DamagedDump, DumpError, DumpHead, Manifest
from storage.dump.dump_reader import DumpReader, read_manifest
from storage.dump.dump_writer import DumpWriter
from tests.support.database.database_selection import share_of_values

HEAD = DumpHead(format=FORMAT_VERSION, id="a" * 16, since=None, taken_at=1_460_000_000, product="1.0", revision="0001")
LATER_HEAD = replace(HEAD, id="b" * 16, since=HEAD.id)


def write_dump(head: DumpHead = HEAD, earlier: Manifest | None = None, **chunks: bytes) -> bytes:
    """A dump with a chunk for each argument, and a part of two files unless the earlier dump has it."""
    output = io.BytesIO()
    writer = DumpWriter(output, head, earlier)
    for name, data in chunks.items():
        writer.add_chunk(f"tables/{name}/0", "rows", data)
    if not writer.reuse("artifacts/0"):
        with writer.add_part("artifacts/0") as part:
            for name in ("first", "second"):
                part.begin_file(name, 700)
                part.write(name.encode() * 50)
                part.write(b"." * 1000)
                assert part.end_file()
    chain = [*earlier.chain, earlier.head] if earlier else []
    writer.finish(Manifest(head, chain, "sqlite", "f" * 32, parts=writer.parts))
    return output.getvalue()


def read_all(dump: bytes) -> Manifest:
    reader = DumpReader("forge.tar", io.BytesIO(dump))
    for _ in reader.members():
        pass
    assert reader.manifest is not None
    return reader.manifest


def members_of(dump: bytes) -> dict[str, bytes]:
    return {f"{member.part}/{member.name}": member.read() for member in DumpReader("forge.tar", io.BytesIO(dump)).members()}


@pytest.fixture(scope="module")
def dump() -> bytes:
    return write_dump(issues=b"one\n", empty=b"", notes=bytes(1500))


class TestWholeDump:
    def test_is_a_tar_file(self, dump: bytes) -> None:
        with tarfile.open(fileobj=io.BytesIO(dump)) as tar:
            contents = {info.name: tar.extractfile(info).read() for info in tar}  # type: ignore[union-attr]
        assert contents["tables/issues/0/rows"] == b"one\n"
        assert contents["artifacts/0/second"] == (b"second" * 50 + b"." * 1000)[:700]
        assert {name: contents[name] for name in members_of(dump)} == members_of(dump)

    def test_manifest_is_found_from_the_end(self, dump: bytes) -> None:
        assert read_manifest("forge.tar", io.BytesIO(dump)) == read_all(dump)

    def test_short_file_is_filled(self) -> None:
        writer = DumpWriter(io.BytesIO(), HEAD)
        with writer.add_part("artifacts/0") as part:
            part.begin_file("first", 100)
            part.write(b"x")
            assert not part.end_file()
        assert writer.written_bytes % 512 == 0


class TestDamage:
    def test_every_shorter_file_is_refused(self, dump: bytes) -> None:
        for size in (*range(0, len(dump), 64), len(dump) - 1):
            with pytest.raises(DumpError, match="cut short" if size >= 1536 else "forge.tar"):
                read_all(dump[:size])

    def test_every_changed_byte_is_refused(self, dump: bytes) -> None:
        accepted = []
        # In the suite every seventh, which is another one of each block of 512 bytes.
        for at in range(0, len(dump), share_of_values(7)):
            changed = bytearray(dump)
            changed[at] ^= 0x01
            try:
                read_all(bytes(changed))
                accepted.append(at)
            except DumpError:
                pass
        assert accepted == []

    def test_longer_file_is_refused(self, dump: bytes) -> None:
        with pytest.raises(DamagedDump, match="at its end"):
            read_all(dump + b"\0")

    def test_members_in_another_order_are_refused(self) -> None:
        writer = DumpWriter(output := io.BytesIO(), HEAD)
        for part in ("artifacts/0", "artifacts/1", "artifacts/0"):
            writer.begin_member(f"{part}/{writer.written_bytes}", 0)
        writer.finish(Manifest(HEAD, [], "sqlite", "", parts=writer.parts))
        with pytest.raises(DamagedDump, match="two parts artifacts/0"):
            read_all(output.getvalue())

    def test_part_that_the_manifest_lacks_is_refused(self) -> None:
        writer = DumpWriter(output := io.BytesIO(), HEAD)
        writer.add_chunk("tables/issues/0", "rows", b"one\n")
        writer.finish(Manifest(HEAD, [], "sqlite", ""))
        with pytest.raises(DamagedDump, match="tables/issues/0"):
            read_all(output.getvalue())

    @pytest.mark.parametrize("contents", [b"", b"PK\3\4" + bytes(2000), bytes(4096)])
    def test_other_files_are_refused(self, contents: bytes) -> None:
        with pytest.raises(DumpError):
            read_all(contents)
        with pytest.raises(DumpError, match="not a complete dump"):
            read_manifest("forge.tar", io.BytesIO(contents))

    def test_other_tar_files_are_refused(self) -> None:
        output = io.BytesIO()
        with tarfile.open(fileobj=output, mode="w") as tar:
            tar.addfile(tarfile.TarInfo("notes.txt"))
        with pytest.raises(DumpError, match="not a dump of Forgefront"):
            read_all(output.getvalue())

    def test_later_format_is_refused(self) -> None:
        with pytest.raises(DumpError, match=r"has format 2 of Forgefront 7\.0; this program reads format 1\. Upgrade it first"):
            read_all(write_dump(replace(HEAD, format=2, product="7.0")))


class TestIncrementalDump:
    @pytest.fixture
    def later(self, dump: bytes) -> bytes:
        return write_dump(LATER_HEAD, read_all(dump), issues=b"two\n", empty=b"", notes=bytes(1500))

    def test_has_only_what_changed(self, dump: bytes, later: bytes) -> None:
        assert members_of(later) == {"tables/issues/0/rows": b"two\n"}
        assert len(later) < len(dump)

    def test_manifest_has_everything(self, dump: bytes, later: bytes) -> None:
        parts = read_all(later).parts
        assert {name: part.dump[0] for name, part in parts.items()} == {
            "tables/issues/0": "b",
            "tables/empty/0": "a",
            "tables/notes/0": "a",
            "artifacts/0": "a",
        }
        assert [head.id for head in read_all(later).chain] == [HEAD.id]
        assert parts["artifacts/0"] == read_all(dump).parts["artifacts/0"]


def test_names_that_do_not_fit_into_a_header_raise() -> None:
    writer = DumpWriter(io.BytesIO(), HEAD)
    for name in ("x" * 101, "é"):
        with pytest.raises(ValueError, match="is not a path of a dump"):
            writer.begin_member(name, 1)
