"""Directories and files of a commit, as git has them."""

from pathlib import Path

import pytest

from storage.git import trees
from storage.git.repository import DamagedRepository, Repository
from storage.git.trees import ListingPage, ListingTimeout, TreeListing, decode_text, find_blob, read_blob
from tests.support.git.git_history import commit_files, commit_rows, git, tree_row, write_tree

ALL = ListingPage(1000)
OTHERS_COMMIT = "5" * 40


@pytest.fixture
def path(tmp_path: Path) -> Path:
    folder = tmp_path / "bare.git"
    git(tmp_path, "init", "-q", "--bare", str(folder))
    return folder


@pytest.fixture
def commit(path: Path) -> str:
    return commit_files(
        path,
        {
            "README.md": b"# Read me\n",
            "a-file": b"-",
            "a/one.txt": b"one\n",
            "a/b/two.txt": b"two\n",
            "a.txt": b".",
            "run.sh": (0o100755, b"#!/bin/sh\n"),
            "link": (0o120000, b"a/one.txt"),
            "sub": (0o160000, OTHERS_COMMIT.encode()),
            "Übung/é.txt": "é".encode(),
        },
    )


def paths(repository: Repository, commit: str, path: str = "", span: ListingPage = ALL, *, recursive: bool = False) -> list[str]:
    return [entry.path for entry in TreeListing(repository, commit, path, recursive=recursive).page(span)]


class TestListing:
    @pytest.mark.parametrize(("at", "recursive"), [("", False), ("", True), ("a", False), ("a", True), ("a/b", True), ("Übung", False)])
    def test_matches_git_ls_tree(self, path: Path, commit: str, at: str, recursive: bool) -> None:
        listing = TreeListing(Repository.open(path), commit, at, recursive=recursive)
        listed = [f"{entry.mode} {entry.kind} {entry.oid} {entry.size if entry.size is not None else '-':>7}\t{entry.path}"
                  for entry in listing.page(ALL)]  # fmt: skip
        options = ("-r", "-t") if recursive else ()
        output = git(path, "-c", "core.quotePath=false", "ls-tree", "--long", *options, commit, *([f"{at}/"] if at else []))
        # With -t git shows the directories on the way as well.
        expected = [line for line in output.splitlines() if not at or line.split("\t")[1].startswith(f"{at}/")]
        assert listed == expected
        assert listing.count() == len(expected)

    def test_modes_of_old_tools_are_those_of_git(self, path: Path) -> None:
        blob = git(path, "hash-object", "-w", "--stdin", stdin=b"1")
        rows = (("0100644", "a"), ("100664", "b"), ("100775", "c"), ("0120000", "d"))
        folder = write_tree(path, b"".join(tree_row(mode, name, blob) for mode, name in rows))
        commit = commit_rows(path, tree_row("040000", "folder", folder))
        repository = Repository.open(path)
        listing = TreeListing(repository, commit, recursive=True)

        listed = [f"{entry.mode} {entry.kind} {entry.oid}\t{entry.path}" for entry in listing.page(ALL)]

        assert listed == git(path, "ls-tree", "-r", "-t", commit).splitlines()
        assert find_blob(repository, commit, "folder/c") == (blob, "100755")
        assert read_blob(repository, blob, "100644", "folder/a").text == "1"

    @pytest.mark.parametrize("recursive", [False, True])
    def test_every_page_joins_on(self, path: Path, commit: str, recursive: bool) -> None:
        repository = Repository.open(path)
        listing = TreeListing(repository, commit, "", recursive=recursive)
        whole = listing.page(ALL)
        for index, entry in enumerate(whole):
            assert listing.page(ListingPage(2, after=entry.key)) == whole[index + 1 : index + 4]
            assert listing.page(ListingPage(2, before=entry.key)) == whole[:index][:3]
            assert listing.page(ListingPage(2, before=entry.key, backward=True)) == whole[:index][::-1][:3]
            assert listing.page(ListingPage(2, after=entry.key, backward=True)) == whole[index + 1 :][::-1][:3]
            assert listing.page(ListingPage(2, skip=index)) == whole[index : index + 3]
        assert listing.page(ListingPage(5, after=b"a/0")) == [each for each in whole if each.key > b"a/0"][:6]

    @pytest.mark.parametrize(
        "at",
        [
            "nowhere",
            "README.md",
            "link",
            "sub",
            "/",
            "/a",
            "a/",
            "a//b",
            "a/./b",
            "a/../a",
            "..",
            ".",
            "a\0",
            "\0",
            "--all",
            "a/b/" * 10_000,
            "x" * 100_000,
            "\udc80",
            "HEAD:a",
            "A",
        ],
    )
    def test_a_missing_directory_is_not_found(self, path: Path, commit: str, at: str) -> None:
        repository = Repository.open(path)
        with pytest.raises(LookupError):
            TreeListing(repository, commit, at)
        assert find_blob(repository, commit, f"{at}/x") is None

    def test_of_a_commit_without_files(self, path: Path) -> None:
        listing = TreeListing(Repository.open(path), commit_files(path, {}), recursive=True)
        assert (listing.page(ALL), listing.count()) == ([], 0)

    def test_of_names_that_are_no_utf_8(self, path: Path) -> None:
        commit = commit_files(path, {b"b\xff/x\xfe.txt": b"1", b"b\xfd/y.txt": b"2", "b\ufffd/z.txt": b"3", b"\xfa": b"4", b"\xfb": b"5"})
        repository = Repository.open(path)
        shown = TreeListing(repository, commit).page(ALL)
        assert [entry.name for entry in shown] == ["b\ufffd", "b\ufffd", "b\ufffd", "\ufffd", "\ufffd"]
        # Exactly this name first, else the first that looks like it.
        assert paths(repository, commit, "b\ufffd") == ["b\ufffd/z.txt"]
        found = find_blob(repository, commit, "\ufffd")
        assert found is not None and read_blob(repository, *found, "\ufffd").text == "4"
        assert len({entry.key for entry in shown}) == 5

    def test_of_an_exponentially_nested_tree(self, path: Path) -> None:
        blob = git(path, "hash-object", "-w", "--stdin", stdin=b"x")
        tree = git(path, "mktree", stdin=f"100644 blob {blob}\tf\n".encode())
        for _ in range(9):
            tree = git(path, "mktree", stdin="".join(f"040000 tree {tree}\td{number}\n" for number in range(10)).encode())
        commit = git(path, "commit-tree", tree, "-m", "bomb")
        listing = TreeListing(Repository.open(path), commit, recursive=True)
        assert listing.count() == sum(10**level for level in range(1, 10)) + 10**9
        page = listing.page(ListingPage(3, after=b"d5/d5/d5/"))
        assert [entry.path for entry in page][:2] == ["d5/d5/d5/d0", "d5/d5/d5/d0/d0"]

    def test_a_timeout_is_reported(self, path: Path, commit: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(trees, "MAX_LISTING_SECONDS", -1.0)
        listing = TreeListing(Repository.open(path), commit, recursive=True)
        with pytest.raises(ListingTimeout):
            listing.page(ALL)
        with pytest.raises(ListingTimeout):
            listing.count()

    def test_does_not_go_deeper_than_it_may(self, path: Path) -> None:
        deep = "/".join(["d"] * (trees.MAX_DEPTH + 10)) + "/f"
        repository, commit = Repository.open(path), commit_files(path, {deep: b"x", "d" * 300 + "/f": b"y"})
        listing = TreeListing(repository, commit, recursive=True)
        assert len(listing.page(ALL)) == listing.count() == trees.MAX_DEPTH + 1
        assert find_blob(repository, commit, deep) is None
        below = "/".join(["d"] * (trees.MAX_DEPTH - 1))
        assert paths(repository, commit, below, recursive=True) == [f"{below}/d"]
        assert TreeListing(repository, commit, below, recursive=True).count() == 1
        with pytest.raises(LookupError):
            TreeListing(repository, commit, f"{below}/d")

    def test_of_a_damaged_repository(self, path: Path, commit: str) -> None:
        tree = git(path, "rev-parse", f"{commit}:a")
        folder = path / "objects" / tree[:2]
        folder.joinpath(tree[2:]).unlink()
        repository = Repository.open(path)
        with pytest.raises(DamagedRepository):
            paths(repository, commit, recursive=True)
        blob = git(path, "rev-parse", f"{commit}:README.md")
        (path / "objects" / blob[:2] / blob[2:]).unlink()
        assert [entry.size for entry in TreeListing(repository, commit).page(ALL) if entry.name == "README.md"] == [None]
        with pytest.raises(DamagedRepository):
            read_blob(repository, blob, "100644", "README.md")


class TestBlob:
    @pytest.mark.parametrize(
        ("at", "text", "mode"),
        [("README.md", "# Read me\n", "100644"), ("a/b/two.txt", "two\n", "100644"), ("run.sh", "#!/bin/sh\n", "100755"),
         ("link", "a/one.txt", "120000"), ("Übung/é.txt", "é", "100644")],
    )  # fmt: skip
    def test_is_read(self, path: Path, commit: str, at: str, text: str, mode: str) -> None:
        repository = Repository.open(path)
        found = find_blob(repository, commit, at)
        assert found is not None
        blob = read_blob(repository, *found, at)
        assert (blob.name, blob.path, blob.mode, blob.text, blob.size) == (at.rpartition("/")[2], at, mode, text, len(text.encode()))
        assert (blob.is_binary, blob.truncated, blob.oid) == (False, False, git(path, "rev-parse", f"{commit}:{at}"))

    @pytest.mark.parametrize("at", ["", "a", "sub", "nope", "/README.md", "README.md/", "./README.md", "README.md/x", "readme.md"])
    def test_is_none_elsewhere(self, path: Path, commit: str, at: str) -> None:
        assert find_blob(Repository.open(path), commit, at) is None

    def test_of_another_kind_of_contents(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(trees, "MAX_TEXT_BYTES", 10)
        monkeypatch.setattr(trees, "MAX_READ_BYTES", 30)
        files: dict[str | bytes, bytes | tuple[int, bytes]] = {
            "empty": b"", "binary": b"a\0b", "latin": "für".encode("latin-1"), "long": b"123456789\xc3\xa9tail", "huge": b"x" * 31
        }  # fmt: skip
        repository, commit = Repository.open(path), commit_files(path, files)
        blobs = {}
        for name in files:
            found = find_blob(repository, commit, str(name))
            assert found is not None
            blobs[name] = read_blob(repository, *found, str(name))
        assert {name: (blob.text, blob.is_binary, blob.truncated) for name, blob in blobs.items()} == {
            "empty": ("", False, False),
            "binary": (None, True, False),
            "latin": ("für", False, False),
            "long": ("123456789", False, True),
            "huge": (None, True, True),
        }


class TestDamagedBlobs:
    """Files of loose objects that are empty, as a host that lost power may leave them."""

    @pytest.fixture
    def damaged(self, path: Path, commit: str) -> str:
        oid = git(path, "rev-parse", f"{commit}:run.sh")
        file = path / "objects" / oid[:2] / oid[2:]
        file.chmod(0o600)
        file.write_bytes(b"")
        return oid

    def test_do_not_hide_the_other_files_of_a_directory(self, path: Path, commit: str, damaged: str) -> None:
        sizes = {entry.path: entry.size for entry in TreeListing(Repository.open(path), commit).page(ALL)}
        assert (sizes["run.sh"], sizes["a.txt"]) == (None, 1)

    def test_are_reported(self, path: Path, damaged: str) -> None:
        repository = Repository.open(path)
        for read in (
            lambda: read_blob(repository, damaged, "100755", "run.sh"),
            lambda: trees.blob_size(repository, damaged),
            lambda: trees.read_bytes(repository, damaged),
        ):
            with pytest.raises(DamagedRepository, match=damaged):
                read()
        assert trees.blob_size(repository, "1" * 40) is None


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"plain", "plain"),
        ("\ufeffmark".encode(), "mark"),
        ("naïve € Œ".encode(), "naïve € Œ"),
        ("naïve € Œ".encode("cp1252"), "naïve € Œ"),
        ("ééé".encode() + b"\xff", "ééé\ufffd"),
        (b"\x81", "\ufffd"),
    ],
)
def test_text_in_other_alphabets(data: bytes, text: str) -> None:
    assert decode_text(data) == text
