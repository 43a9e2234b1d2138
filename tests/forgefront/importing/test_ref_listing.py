"""Refs that are listed over HTTP without git, compared with what git itself prints."""

import subprocess
from pathlib import Path

import pytest

from forgefront.importing import ref_listing
from storage.git.protocol.packets import FLUSH_PACKET, encode_packet

SERVICE = encode_packet(b"# service=git-upload-pack\n") + FLUSH_PACKET
OID = b"1" * 40


def git(folder: Path, *arguments: str) -> bytes:
    identity = ["-c", "user.name=Ada", "-c", "user.email=ada@forge.example"]
    return subprocess.run(["git", "-C", str(folder), *identity, *arguments], check=True, capture_output=True).stdout


def advertise(folder: Path) -> bytes:
    """What a server answers at `info/refs`."""
    return SERVICE + git(folder, "upload-pack", "--stateless-rpc", "--advertise-refs", ".")


class TestParseAdvertisement:
    def test_prints_refs_as_git_does(self, tmp_path: Path) -> None:
        git(tmp_path, "init", "--quiet", "--bare", "--initial-branch=main")
        assert ref_listing.parse_advertisement(advertise(tmp_path)) == git(tmp_path, "ls-remote", "--symref", ".").decode() == ""
        tree = git(tmp_path, "hash-object", "-t", "tree", "-w", "/dev/null").decode().strip()
        commit = git(tmp_path, "commit-tree", "-m", "First", tree).decode().strip()
        git(tmp_path, "update-ref", "refs/heads/other", commit)
        without_head = git(tmp_path, "ls-remote", "--symref", ".").decode()
        assert ref_listing.parse_advertisement(advertise(tmp_path)) == without_head
        git(tmp_path, "update-ref", "refs/heads/main", commit)
        git(tmp_path, "tag", "-a", "-m", "Release", "v1", commit)
        git(tmp_path, "update-ref", "refs/merge-requests/1/head", commit)
        printed = git(tmp_path, "ls-remote", "--symref", ".").decode()
        assert ref_listing.parse_advertisement(advertise(tmp_path)) == printed
        assert printed.startswith("ref: refs/heads/main\tHEAD\n") and "refs/tags/v1^{}" in printed

    @pytest.mark.parametrize(
        "body",
        [
            b"",
            b"<html>",
            b"0006a\n",
            SERVICE,
            SERVICE + encode_packet(b"version 2\n") + encode_packet(b"ls-refs\n") + FLUSH_PACKET,
            SERVICE + encode_packet(b"version 1\n") + encode_packet(OID + b" HEAD\0\n") + FLUSH_PACKET,
            SERVICE + encode_packet(OID + b" HEAD\0symref=HEAD:refs/heads/main\n"),
            SERVICE + encode_packet(OID + b" HEAD\0\n") + encode_packet(b"shallow " + OID) + FLUSH_PACKET,
            SERVICE + encode_packet(OID + b" HEAD\0\n") + FLUSH_PACKET + encode_packet(OID + b" refs/heads/main\n") + FLUSH_PACKET,
            SERVICE + encode_packet(OID + b" HEAD\0\n") + b"0002" + FLUSH_PACKET,
            SERVICE + encode_packet(OID + b" HEAD\0\n") + b"00ffshort",
        ],
    )
    def test_leaves_other_answers_to_git(self, body: bytes) -> None:
        assert ref_listing.parse_advertisement(body) is None
