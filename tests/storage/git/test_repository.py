"""Names are resolved exactly, refs move by compare-and-swap, invalid folders raise an error of their own."""

from hashlib import sha1
from pathlib import Path

import pytest
from pygit2.enums import ObjectType

from storage.git.repository import (
    DamagedRepository,
    NotARepository,
    Ref,
    Repository,
    UnknownCommit,
)
from tests.support.git.git_history import commit_files, git, make_history, write_commit

HOSTILE = [
    "", "-", "--output=x", "-h", "../x", "..", "/", "a/../b", "@", "@{-1}", "@{u}", "master@{0}", "master~1", "master^", "HEAD~1",
    "^{/x}", "master^{/x}", ":/text", ":/", ":0:README", "master:README", "HEAD", "FETCH_HEAD", "refs/heads/master", "heads/master",
    "a b", "a\0b", "master\0", "\0master", "\nmaster", "master.lock", "*", "?", "[a]", "~", "\\", "x" * 255, "x" * 256, "y/" * 200,
    "z" * 5000, "\udc80", "🐙", "0" * 40, "f" * 40, "0" * 7, "ab", "g" * 40, "9" * 41, "abcdef\uff11", "..master", "master..topic",
]  # fmt: skip


@pytest.fixture
def made(tmp_path: Path) -> Repository:
    return Repository.open(make_history(tmp_path / "made.git", commits=40).path)


class TestOpen:
    def test_rejects_a_folder_that_is_not_a_repository(self, tmp_path: Path):
        (tmp_path / "file").write_text("x")
        (tmp_path / "empty").mkdir()
        (tmp_path / "half").mkdir()
        (tmp_path / "half" / "HEAD").write_text("ref: refs/heads/master\n")
        for name in ("missing", "file", "empty", "half", "n\0ul"):
            with pytest.raises(NotARepository):
                Repository.open(tmp_path / name)

    def test_does_not_search_upwards(self, tmp_path: Path):
        git(tmp_path, "init", "-q")
        (tmp_path / "inside").mkdir()

        with pytest.raises(NotARepository):
            Repository.open(tmp_path / "inside")

    def test_reads_a_work_tree(self, tmp_path: Path):
        git(tmp_path, "init", "-q", "-b", "main")
        git(tmp_path, "commit", "-q", "--allow-empty", "-m", "First")

        assert Repository.open(tmp_path).default_branch() == "main"


class TestCreate:
    def test_is_bare_and_empty(self, tmp_path: Path):
        created = Repository.create(tmp_path / "deep" / "new.git", "trunk")

        assert (created.is_empty(), created.default_branch(), created.branches(), created.tags()) == (True, None, [], [])
        assert git(created.path, "symbolic-ref", "HEAD") == "refs/heads/trunk"
        assert git(created.path, "rev-parse", "--is-bare-repository") == "true"
        assert git(created.path, "config", "core.fsync") == "all"
        assert created.resolve("trunk") is None

    def test_does_not_overwrite(self, tmp_path: Path):
        (tmp_path / "new.git").mkdir()

        with pytest.raises(FileExistsError):
            Repository.create(tmp_path / "new.git")
        assert [entry.name for entry in tmp_path.iterdir()] == ["new.git"]


class TestRefs:
    def test_lists_branches_and_tags_by_name_and_peels_tags(self, made: Repository):
        master, topic = git(made.path, "rev-parse", "master", "topic").split()
        v1, v2 = git(made.path, "rev-parse", "v1^{commit}", "v2^{commit}").split()
        git(made.path, "tag", "-a", "-m", "twice", "twice", "v2")
        git(made.path, "tag", "tree", "master^{tree}")
        git(made.path, "pack-refs", "--all")

        assert made.branches() == [Ref("master", master), Ref("topic", topic)]
        assert made.tags() == [Ref("twice", v2), Ref("v1", v1), Ref("v2", v2)]

    def test_shows_names_that_are_no_utf_8(self, made: Repository):
        oid = made.resolve("master")
        with (made.path / "packed-refs").open("ab") as packed:
            packed.write(f"{oid} refs/heads/".encode() + b"caf\xe9\n")

        assert Ref("caf�", str(oid)) in made.branches()

    def test_excludes_dangling_symbolic_refs(self, made: Repository):
        git(made.path, "symbolic-ref", "refs/heads/dangling", "refs/heads/nowhere")

        assert [branch.name for branch in made.branches()] == ["master", "topic"]

    def test_default_branch_is_heads_or_a_usual_one(self, made: Repository):
        git(made.path, "symbolic-ref", "HEAD", "refs/heads/topic")
        assert made.default_branch() == "topic"
        git(made.path, "symbolic-ref", "HEAD", "refs/heads/nowhere")
        assert made.default_branch() == "master"
        git(made.path, "branch", "-m", "master", "aaa")
        assert made.default_branch() == "aaa"


class TestResolve:
    @pytest.mark.parametrize("name", HOSTILE)
    def test_invalid_names_resolve_to_nothing(self, made: Repository, name: str):
        assert made.resolve(name) is None

    def test_resolves_ids_branches_tags_and_unique_prefixes(self, made: Repository):
        oid = git(made.path, "rev-parse", "master")
        v2 = git(made.path, "rev-parse", "v2^{commit}")

        assert {made.resolve(name) for name in (oid, oid.upper(), "master", oid[:7], oid[:8], oid[:39])} == {oid}
        assert made.resolve("v2") == v2
        assert made.resolve(oid[:6]) is None

    def test_finds_only_commits(self, made: Repository):
        tree = git(made.path, "rev-parse", "master^{tree}")
        tag = git(made.path, "rev-parse", "v2")
        git(made.path, "tag", "tree", tree)

        assert [made.resolve(name) for name in (tree, tree[:10], tag, "tree")] == [None] * 4

    def test_ambiguous_prefixes_resolve_to_nothing(self, made: Repository):
        tree = git(made.path, "rev-parse", "master^{tree}")
        seen: dict[str, str] = {}
        # Two commits whose ids share seven digits: a birthday in 2^28, found by writing objects without a process each.
        for number in range(200_000):
            raw = f"tree {tree}\nauthor A <a> {number} +0000\ncommitter C <c> 1 +0000\n\nm".encode()
            oid = _object_id(raw)
            if other := seen.get(oid[:7]):
                first = f"tree {tree}\nauthor A <a> {other} +0000\ncommitter C <c> 1 +0000\n\nm".encode()
                made.handle.odb.write(ObjectType.COMMIT, raw)
                assert made.resolve(oid[:7]) == oid
                made.handle.odb.write(ObjectType.COMMIT, first)
                assert made.resolve(oid[:7]) is None
                return
            seen[oid[:7]] = str(number)
        raise AssertionError("no two ids with the same beginning")

    def test_names_like_ids_and_options_are_names(self, made: Repository):
        first, second = git(made.path, "rev-list", "-2", "master").split()
        odd = ["deadbeef", "-rf", "--output=x", "a@b", "ünï", "a" * 240, "f" * 40]
        for name in odd:
            git(made.path, "update-ref", f"refs/heads/{name}", second)
        git(made.path, "update-ref", f"refs/heads/{first}", second)

        assert [made.resolve(name) for name in odd] == [second] * len(odd)
        assert made.resolve(first) == first

    def test_a_branch_comes_before_a_tag(self, made: Repository):
        git(made.path, "tag", "topic", "master")

        assert made.resolve("topic") == git(made.path, "rev-parse", "refs/heads/topic")


class TestCommit:
    def test_fields_match_git_show(self, made: Repository):
        for oid in git(made.path, "rev-list", "--all").split():
            read = made.commit(oid)
            output = git(made.path, "show", "-s", "--format=%P%x00%an%x00%ae%x00%aI%x00%cn%x00%ce%x00%cI%x00%B", oid).split("\0")
            assert read.parents == tuple(output[0].split())
            assert [read.author_name, read.author_email, read.committer_name, read.committer_email] == [
                output[1], output[2], output[4], output[5],
            ]  # fmt: skip
            assert [read.authored_at.isoformat(), read.committed_at.isoformat()] == [
                text.replace("Z", "+00:00") for text in (output[3], output[6])
            ]
            assert read.message.strip() == output[7].strip()

    def test_reads_a_commit_that_libgit2_rejects(self, made: Repository):
        tree = git(made.path, "rev-parse", "master^{tree}")
        oid = write_commit(made.path, f"tree {tree}\nauthor nobody\ncommitter\n\nodd".encode())

        assert made.commit(oid).message == "odd"

    def test_rejects_an_enormous_commit(self, made: Repository):
        tree = git(made.path, "rev-parse", "master^{tree}")
        raw = f"tree {tree}\nauthor A <a> 1 +0000\ncommitter C <c> 1 +0000\n\n".encode() + b"x" * (17 * 1024 * 1024)
        oid = write_commit(made.path, raw)

        with pytest.raises(DamagedRepository):
            made.commit(oid)

    @pytest.mark.parametrize("oid", ["f" * 40, "master", "", "\0", "0" * 39])
    def test_unknown_commits_are_reported_and_excluded_from_lists(self, made: Repository, oid: str):
        known = str(made.resolve("master"))

        with pytest.raises(UnknownCommit):
            made.commit(oid)
        assert [commit.oid for commit in made.commits([known, oid, known])] == [known, known]


class TestDamagedPacks:
    def test_a_corrupt_pack_is_named(self, made: Repository):
        oid = str(made.resolve("master"))
        for pack in (made.path / "objects" / "pack").glob("*.pack"):
            pack.chmod(0o644)
            content = pack.read_bytes()
            pack.write_bytes(content[:12] + bytes(len(content) - 32) + content[-20:])
        broken = Repository.open(made.path)

        with pytest.raises(DamagedRepository):
            broken.commit(oid)

    def test_a_lost_pack_is_named(self, made: Repository):
        for pack in (made.path / "objects" / "pack").iterdir():
            pack.unlink()
        broken = Repository.open(made.path)

        for reading in (broken.branches, broken.tags, lambda: broken.resolve("master")):
            with pytest.raises(DamagedRepository):
                reading()


class TestRefsOfTheDatabase:
    def test_are_the_only_ones_that_it_knows(self, made: Repository):
        new, old = git(made.path, "rev-list", "-2", "master").split()
        given = Repository.open(made.path, {"refs/heads/given": old, "refs/tags/v9": new})
        assert (given.resolve("given"), given.resolve("v9"), given.resolve("master")) == (old, new, None)
        assert (given.branches(), given.tags()) == ([Ref("given", old)], [Ref("v9", new)])
        assert given.resolve(new) == new

    def test_stored_refs_are_those_of_the_files_with_tags_peeled(self, made: Repository):
        master, oid = str(made.resolve("master")), str(made.resolve("v2"))
        git(made.path, "update-ref", "refs/merge-requests/1/head", master)
        git(made.path, "tag", "-a", "-m", "Of a tag", "outer", "v2")
        git(made.path, "symbolic-ref", "refs/heads/alias", "refs/heads/master")
        with (made.path / "packed-refs").open("ab") as file:
            file.write(f"{master} refs/heads/".encode() + b"bad\xff\n")
        found = {name: (oid, peeled) for name, oid, peeled in made.stored_refs()}
        assert found["refs/heads/master"] == found["refs/merge-requests/1/head"] == found["refs/heads/alias"] == (master, None)
        assert found["refs/tags/outer"] == (git(made.path, "rev-parse", "refs/tags/outer"), oid)
        assert not any("bad" in name for name in found)


def test_a_tag_of_a_tag_of_a_blob_is_no_commit(made: Repository):
    blob = git(made.path, "hash-object", "-w", "--stdin", stdin=b"x")
    git(made.path, "tag", "-a", "-m", "m", "inner", blob)
    git(made.path, "tag", "-a", "-m", "m", "outer", "inner")

    assert made.resolve("outer") is None
    assert "outer" not in [tag.name for tag in made.tags()]


def test_commit_files_creates_the_given_tree(tmp_path: Path):
    Repository.create(tmp_path / "r.git")
    oid = commit_files(tmp_path / "r.git", {"a/b": b"x", "s": (0o120000, b"a")})

    assert git(tmp_path / "r.git", "ls-tree", "-r", "--format=%(objectmode) %(path)", oid) == "100644 a/b\n120000 s"


def _object_id(raw: bytes) -> str:
    return sha1(b"commit %d\0" % len(raw) + raw).hexdigest()
