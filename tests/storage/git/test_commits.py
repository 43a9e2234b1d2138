"""Commits with any bytes, any encoding and any date."""

from datetime import datetime, timedelta, timezone

import pytest

from storage.git.commits import MAX_MESSAGE_CHARACTERS, GitCommit, parse_commit, parse_time_and_parents

TREE = b"tree 4b825dc642cb6eb9a060e54bf8d69288fbee4904\n"
OID = "c" * 40


def commit(author: bytes = b"A <a@x.example> 0 +0000", message: bytes = b"m", more: bytes = b"") -> GitCommit:
    raw = TREE + b"author " + author + b"\ncommitter C <c@x.example> 1700000000 -0730\n" + more + b"\n" + message
    return parse_commit(OID, raw, ())


class TestParseCommit:
    def test_reads_names_times_and_their_offsets(self):
        read = commit(b"Zo\xc3\xab B <zoe@x.example> 1600000000 +0530", b"Title\n\nBody\n")

        assert (read.author_name, read.author_email) == ("Zoë B", "zoe@x.example")
        assert (read.committer_name, read.committer_email) == ("C", "c@x.example")
        assert read.authored_at.isoformat() == "2020-09-13T17:56:40+05:30"
        assert read.committed_at == datetime.fromtimestamp(1_700_000_000, timezone(timedelta(hours=-7, minutes=-30)))
        assert read.committed_at.utcoffset() == timedelta(hours=-7, minutes=-30)
        assert read.message == "Title\n\nBody\n"
        assert (read.title, read.short_oid) == ("Title", "cccccccc")

    def test_honours_the_encoding_of_the_commit(self):
        read = commit(b"Ren\xe9 <r@x.example> 0 +0000", b"caf\xe9", b"encoding ISO-8859-1\n")

        assert (read.author_name, read.message) == ("René", "café")

    @pytest.mark.parametrize("label", [b"no-such", b"hex", b"idna", b"unicode_escape", b"undefined", b"utf-7", b"\xff", b""])
    def test_reads_other_encodings_as_utf_8(self, label: bytes):
        assert commit(message=b"ok \\x41 \xe9", more=b"encoding " + label + b"\n").message == "ok \\x41 �"

    def test_replaces_invalid_utf_8(self):
        assert commit(b"\xff\xfe <\xff> 0 +0000", b"\xed\xa0\x80").author_name == "��"

    def test_ends_a_message_at_a_nul_and_shows_one_in_a_name(self):
        read = commit(b"A\0B <a> 0 +0000", b"before\0after")

        assert (read.author_name, read.message) == ("A�B", "before")

    @pytest.mark.parametrize(
        "line", [b"", b"A", b"A <a>", b"A <a> soon", b"A <a> 99999999999999999999999 +0000", b"A <a> -5 +0000", b"<<>> 9e9"]
    )
    def test_dates_that_cannot_be_read_are_1970(self, line: bytes):
        assert commit(line).authored_at.isoformat() == "1970-01-01T00:00:00+00:00"

    @pytest.mark.parametrize("zone", [b"+9999", b"+2400", b"later", b""])
    def test_impossible_offsets_are_utc(self, zone: bytes):
        assert commit(b"A <a> 1000000000 " + zone).authored_at.isoformat() == "2001-09-09T01:46:40+00:00"

    def test_truncates_long_messages(self):
        assert len(commit(message=b"x" * (MAX_MESSAGE_CHARACTERS + 5)).message) == MAX_MESSAGE_CHARACTERS

    def test_ignores_headers_in_a_signature(self):
        read = commit(more=b"gpgsig -----BEGIN\n author E <e@x.example> 1 +0000\n -----END\nauthor F <f@x.example> 2 +0000\n")

        assert read.author_name == "A"


class TestTitle:
    @pytest.mark.parametrize(
        ("message", "title"),
        [
            (b"", "--no commit message"),
            (b" \n\n", "--no commit message"),
            (b"\n\nFirst\nSecond", "First"),
            (b"First\r\nSecond", "First"),
            (b"x" * 100, "x" * 100),
            (b"x" * 101, "x" * 80 + "…"),
        ],
    )
    def test_is_the_first_line_cut_when_long(self, message: bytes, title: str):
        assert commit(message=message).title == title


class TestParseLinks:
    def test_reads_parents_after_the_tree_only(self):
        one, two = b"1" * 40, b"2" * 40
        raw = TREE + b"parent " + one + b"\nauthor A <a> 5 +0000\ncommitter C <c> 7 +0000\nparent " + two + b"\n\nm"

        assert parse_time_and_parents(raw) == (7, (one.decode(),))

    @pytest.mark.parametrize("raw", [b"", TREE, TREE + b"author A <a> 5 +0000", TREE + b"committer C <c> 7 +0000\n\n"])
    def test_time_is_0_where_git_finds_none(self, raw: bytes):
        assert parse_time_and_parents(raw) == (0, ())
