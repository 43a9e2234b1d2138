"""Diff entries as docs/wire-facts.md 7 defines them, within their bounds, and the line of a comment."""

import asyncio
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from storage.git.diffs import diff as module
from storage.git.diffs.diff import (
    CUT_MARK,
    DIFF_TOO_LARGE,
    DIFF_TOO_SLOW,
    FILE_TOO_LARGE,
    MAX_DIFF_BYTES,
    FileDiff,
    diff_of_commit,
    has_line,
)
from storage.git.diffs.diff_lines import LineFollower
from storage.git.diffs.diff_workers import DiffWorkers
from storage.git.repository import DamagedRepository, Repository, UnknownCommit
from tests.support.git.git_history import commit_files, commit_rows, git, make_history, tree_row, write_commit
from tests.support.measuring.core_waits import measure_core_waits

Files = dict[str | bytes, bytes | tuple[int, bytes]]


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository.create(tmp_path / "r.git")


def changes(repository: Repository, before: Files | None, after: Files) -> dict[str, FileDiff]:
    """The entries of a commit from `before` (None: no parent) to `after`, by new path."""
    parents = [] if before is None else [commit_files(repository.path, before)]
    entries = diff_of_commit(repository, commit_files(repository.path, after, *parents))
    return {entry.new_path: entry for entry in entries}


def fast_import(repository: Repository, files: Files) -> str:
    """A commit as `commit_files` makes it of files with plain names, without a process a file."""
    parts = [b"commit refs/heads/quick\ncommitter C <c@example.org> 1500000000 +0000\ndata 0\ndeleteall\n"]
    for name, content in files.items():
        mode, data = content if isinstance(content, tuple) else (0o100644, content)
        entry = f"M {mode:o} {data.decode() if mode == 0o160000 else 'inline'} {os.fsdecode(name)}\n".encode()
        parts.append(entry if mode == 0o160000 else entry + b"data %d\n%s\n" % (len(data), data))
    git(repository.path, "-c", "fastimport.unpackLimit=0", "fast-import", "--quiet", "--force", stdin=b"".join(parts))
    return git(repository.path, "rev-parse", "refs/heads/quick")


class TestEntries:
    def test_a_changed_file(self, repository: Repository):
        old = b"one\ntwo\nthree\n"
        (entry,) = changes(repository, {"a": old}, {"a": b"one\n2\nthree\nfour"}).values()

        assert entry == FileDiff(
            diff="--- a/a\n+++ b/a\n@@ -1,3 +1,4 @@\n one\n-two\n+2\n three\n+four\n\\ No newline at end of file\n",
            old_path="a",
            new_path="a",
            a_mode="100644",
            b_mode="100644",
            new_file=False,
            renamed_file=False,
            deleted_file=False,
            additions=2,
            deletions=1,
            too_large=False,
        )

    def test_an_added_and_a_deleted_file(self, repository: Repository):
        found = changes(repository, {"gone": b"x\n"}, {"new": b"completely different\n"})

        assert found["new"].diff == "--- /dev/null\n+++ b/new\n@@ -0,0 +1 @@\n+completely different\n"
        assert (found["new"].a_mode, found["new"].b_mode, found["new"].new_file) == ("0", "100644", True)
        assert (found["new"].old_path, found["gone"].old_path) == ("new", "gone")
        assert found["gone"].diff == "--- a/gone\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n"
        assert (found["gone"].a_mode, found["gone"].b_mode, found["gone"].deleted_file) == ("100644", "0", True)

    def test_a_root_commit_is_against_the_empty_tree(self, repository: Repository):
        found = changes(repository, None, {"a": b"x\n", "d/b": b"y\n"})

        assert [(entry.new_path, entry.new_file, entry.additions) for entry in found.values()] == [("a", True, 1), ("d/b", True, 1)]

    def test_a_merge_is_against_its_first_parent(self, repository: Repository):
        left = commit_files(repository.path, {"left": b"l\n"})
        right = commit_files(repository.path, {"right": b"r\n"})
        merge = commit_files(repository.path, {"left": b"l\n", "right": b"r\n"}, left, right)

        assert [entry.new_path for entry in diff_of_commit(repository, merge)] == ["right"]

    def test_a_commit_without_changes(self, repository: Repository):
        assert changes(repository, {"a": b"x"}, {"a": b"x"}) == {}

    def test_binary_files(self, repository: Repository):
        found = changes(repository, {"b": b"\0\1", "gone": b"\0" * 50}, {"b": b"\0\2", "new": b"no\0text"})

        assert {path: entry.diff for path, entry in found.items()} == {
            "b": "Binary files a/b and b/b differ\n",
            "gone": "Binary files a/gone and /dev/null differ\n",
            "new": "Binary files /dev/null and b/new differ\n",
        }

    def test_renamed_links_and_submodules_are_those_of_git(self, repository: Repository):
        link, other, submodule = (0o120000, b"target"), (0o120000, b"elsewhere"), (0o160000, b"5" * 40)
        before: Files = {"a/link": link, "b/also": link, "same": other, "sub": submodule, "gone": other, "file": b"target"}
        after: Files = {"c/also": link, "moved": link, "same": other, "lib/sub": submodule, "new": (0o120000, b"new"), "file": link}
        first = commit_files(repository.path, before)
        second = commit_files(repository.path, after, first)
        raw = git(repository.path, "diff-tree", "-r", "-M", "--name-status", first, second)
        assert [row for row in raw.splitlines() if row.startswith("R")] == [
            "R100\tb/also\tc/also",
            "R100\tsub\tlib/sub",
            "R100\ta/link\tmoved",
        ]

        found = [
            (entry.old_path, entry.new_path, entry.a_mode, entry.b_mode, entry.diff)
            for entry in diff_of_commit(repository, second)
            if entry.renamed_file
        ]

        assert found == [
            ("b/also", "c/also", "120000", "120000", ""),
            ("sub", "lib/sub", "160000", "160000", ""),
            ("a/link", "moved", "120000", "120000", ""),
        ]
        others = [
            (entry.new_path, entry.new_file, entry.deleted_file) for entry in diff_of_commit(repository, second) if not entry.renamed_file
        ]
        assert others == [("file", False, True), ("file", True, False), ("gone", False, True), ("new", True, False)]

    def test_modes_of_old_tools_are_those_of_git(self, repository: Repository):
        one, two = (git(repository.path, "hash-object", "-w", "--stdin", stdin=content) for content in (b"1\n", b"2\n"))
        first = commit_rows(repository.path, tree_row("100664", "a", one) + tree_row("100664", "b", one))
        second = commit_rows(repository.path, tree_row("100644", "a", one) + tree_row("100775", "b", two), first)
        (entry,) = diff_of_commit(repository, second)
        assert (entry.new_path, entry.a_mode, entry.b_mode, entry.additions) == ("b", "100644", "100755", 1)
        assert git(repository.path, "diff-tree", first, second).split()[:2] == [":100644", "100755"]

    def test_pure_renames_modes_and_empty_files_have_no_text(self, repository: Repository):
        found = changes(
            repository, {"old": b"same\n" * 5, "mode": b"x\n"}, {"new": b"same\n" * 5, "mode": (0o100755, b"x\n"), "empty": b""}
        )

        assert {entry.diff for entry in found.values()} == {""}
        assert (found["new"].renamed_file, found["new"].old_path) == (True, "old")
        assert (found["mode"].a_mode, found["mode"].b_mode, found["mode"].renamed_file) == ("100644", "100755", False)
        assert (found["empty"].a_mode, found["empty"].new_file) == ("0", True)

    def test_a_rename_with_changes(self, repository: Repository):
        text = b"".join(b"line %d\n" % number for number in range(50))
        (entry,) = changes(repository, {"old": text}, {"d/new": text + b"more\n"}).values()

        assert (entry.renamed_file, entry.old_path, entry.new_path, entry.additions) == (True, "old", "d/new", 1)
        assert entry.diff.startswith("--- a/old\n+++ b/d/new\n@@ -48,3 +48,4 @@")

    def test_links_submodules_and_changes_of_type(self, repository: Repository):
        before: Files = {"t": b"file\n", "m": (0o160000, b"1" * 40)}
        after: Files = {"t": (0o120000, b"target"), "m": (0o160000, b"2" * 40), "new": (0o160000, b"3" * 40)}
        oid = commit_files(repository.path, after, commit_files(repository.path, before))
        entries = [(entry.new_path, entry.a_mode, entry.b_mode) for entry in diff_of_commit(repository, oid)]
        module_change = next(entry for entry in diff_of_commit(repository, oid) if entry.new_path == "m")

        assert entries == [
            ("m", "160000", "160000"), ("new", "0", "160000"), ("t", "100644", "0"), ("t", "0", "120000"),
        ]  # fmt: skip
        assert module_change.diff.splitlines()[-2:] == [f"-Subproject commit {'1' * 40}", f"+Subproject commit {'2' * 40}"]

    def test_contents_and_names_that_are_no_utf_8(self, repository: Repository):
        found = changes(repository, None, {b"caf\xe9": b"\xff\xfe ok\n", "ü": b"\xc3\xbc\n", "tab\t": b"\x0b\x0c\x1c\xc2\x85\n"})

        assert found["caf�"].diff.endswith("@@ -0,0 +1 @@\n+�� ok\n")
        assert found["ü"].diff.endswith("+ü\n")
        assert found["tab\t"].diff.endswith("+\x0b\x0c\x1c\x85\n")
        json.dumps([entry._asdict() for entry in found.values()]).encode()

    def test_lines_that_look_like_headers(self, repository: Repository):
        (entry,) = changes(repository, {"a": b"-- x\n"}, {"a": b"++ y\n"}).values()

        assert entry.diff == "--- a/a\n+++ b/a\n@@ -1 +1 @@\n--- x\n+++ y\n"

    def test_ignores_system_and_repository_config(self, repository: Repository, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setenv("GIT_EXTERNAL_DIFF", "false")
        monkeypatch.setenv("GIT_DIR", "/nonexistent")
        text = b"".join(b"%d\n" % number for number in range(40_000))
        found = changes(repository, {"a": b"1\n", "big": text}, {"a": b"2\n", "big": text + b"x\n"})

        assert found["a"].diff == "--- a/a\n+++ b/a\n@@ -1 +1 @@\n-1\n+2\n"
        assert found["big"].additions == 1

    def test_applies_with_git(self, tmp_path: Path):
        made = make_history(tmp_path / "made.git", commits=40, merges_every=4)
        repository = Repository.open(made.path)
        for oid in git(made.path, "rev-list", "--min-parents=1", "master").split():
            tree = {"GIT_INDEX_FILE": str(tmp_path / "index")}
            git(made.path, "read-tree", f"{oid}^1", environment=tree)
            patch = "".join(entry.diff for entry in diff_of_commit(repository, oid))
            git(made.path, "apply", "--cached", "-", stdin=patch.encode(), environment=tree)
            assert git(made.path, "write-tree", environment=tree) == git(made.path, "rev-parse", f"{oid}^{{tree}}")


class TestDiffProcess:
    """What is not small is compared in a process of its own."""

    def test_matches_the_in_process_diff(self, repository: Repository):
        before: Files = {f"d{number % 7}/f{number}": b"one\n" * 9 + b"%d\n" % number for number in range(150)}
        after: Files = {"e/" + path[3:]: bytes(content) + b"two\n" for path, content in before.items() if isinstance(content, bytes)}
        after |= {"na\xff\u00efve".encode("latin-1"): b"\xff\n", "binary": b"\0", "link": (0o120000, b"to"), "empty": b""}
        old = commit_files(repository.path, before)
        new = commit_files(repository.path, after, old)

        assert not module.is_small(repository, old, new)
        for start in (old, None):
            assert module.diff_between(repository, start, new) == module.read_diff(repository, start, new) != []

    def test_unreadable_objects_are_reported(self, repository: Repository, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr(module, "is_small", lambda *_: False)
        with pytest.raises(DamagedRepository, match="cannot be read"):
            module.diff_between(repository, None, "1" * 40)

    def test_ends_in_time(self, repository: Repository, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr(module, "is_small", lambda *_: False)
        monkeypatch.setattr(module, "_PROCESS_SECONDS", 0.0)
        monkeypatch.setattr(module, "WORKERS", DiffWorkers())
        with pytest.raises(DamagedRepository, match="took more than"):
            module.diff_between(repository, None, commit_files(repository.path, {"a": b"x\n"}))

    def test_is_kept_for_the_next_diff(self, repository: Repository, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr(module, "is_small", lambda *_: False)
        monkeypatch.setattr(module, "WORKERS", workers := DiffWorkers())
        pids = set()
        for number in range(3):
            oid = commit_files(repository.path, {f"a{number}": b"x\n"})
            assert [each.new_path for each in module.diff_between(repository, None, oid)] == [f"a{number}"]
            pids |= {each.process.pid for each in workers._idle}
        assert len(pids) == 1

        # A request that fails leaves it as it was; one that has ended while it waited is replaced.
        with pytest.raises(DamagedRepository, match="cannot be read"):
            module.diff_between(repository, None, "1" * 40)
        (idle,) = workers._idle
        assert idle.process.pid in pids
        with Path(os.devnull).open("wb") as null:
            os.dup2(null.fileno(), idle.process.stdin.fileno())
        assert idle.process.wait() == 0
        assert module.diff_between(repository, None, oid)
        assert not {each.process.pid for each in workers._idle} & pids
        workers.close()
        assert workers._idle == []

    @pytest.mark.parametrize(
        ("before", "after", "small"),
        [
            ({"a": b"x"}, {"a": b"y"}, True),
            ({"a": b"x" * 600_000}, {"a": b"y" * 600_000}, False),
            ({f"d/{n}": b"x" for n in range(3000)}, {f"d/{n}": b"x" for n in range(2990)}, True),
            ({f"d/{n}": b"x" for n in range(3000)}, {f"d/{n}": b"x" for n in range(2890)}, False),
            ({f"d{n}/a": b"x" for n in range(101)}, {f"d{n}/a": b"y" for n in range(101)}, False),
            ({"a": b"x"}, {"a/b": b"x"}, True),
            ({"m": (0o160000, b"1" * 40)}, {"m": (0o160000, b"2" * 40)}, True),
            ({"a": b"x"}, {"a": (0o100755, b"x")}, True),
        ],
    )
    def test_small_diffs_run_in_process(self, repository: Repository, before: Files, after: Files, small: bool):
        assert module.is_small(repository, fast_import(repository, before), fast_import(repository, after)) is small

    async def test_the_event_loop_is_not_blocked(self, repository: Repository, tmp_path: Path):
        text = b"".join(b"a line with the number %d\n" % number for number in range(60))
        old = fast_import(repository, {f"d{n % 9}/f{n}": text + b"%d" % n for n in range(800)})
        new = fast_import(repository, {f"e{n % 9}/f{n}": b"and " + text + b"%d" % n for n in range(800)})
        path = repository.path

        async def share_of_small_gaps(seconds_without_core: Callable[[], float]) -> float:
            """How much of the time of a diff the loop has in parts of less than a hundredth, not counting its waits for a core."""
            gaps: list[tuple[float, float]] = []

            async def tick() -> None:
                while True:
                    start, waited = time.perf_counter(), seconds_without_core()
                    await asyncio.sleep(0)
                    gaps.append((time.perf_counter() - start, seconds_without_core() - waited))

            task = asyncio.create_task(tick())
            start = time.perf_counter()
            entries = await asyncio.to_thread(lambda: module.diff_between(Repository.open(path), old, new))
            took = time.perf_counter() - start
            task.cancel()
            assert len(entries) >= 800
            return sum(gap for gap, waited in gaps if gap - waited < took / 100) / took

        # A diff in a thread of this process leaves it a quarter. Other processes may delay it too, so thrice.
        with measure_core_waits() as seconds_without_core:
            for _ in range(3):
                if (share := await share_of_small_gaps(seconds_without_core)) > 0.5:
                    break
        assert share > 0.5


class TestLimits:
    @pytest.fixture(autouse=True)
    def in_process(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The process of its own has the bounds of the module, not those of a test."""
        monkeypatch.setattr(module, "is_small", lambda *_: True)

    def test_a_file_over_the_limit_is_not_read(self, repository: Repository, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr(module, "MAX_FILE_BYTES", 1000)
        found = changes(repository, {"big": b"x\n" * 600, "grows": b"g\n"}, {"big": b"y\n", "grows": b"g\n" * 600, "ok": b"new\n"})

        assert [found["big"].diff, found["grows"].diff] == [FILE_TOO_LARGE, FILE_TOO_LARGE]
        assert (found["big"].too_large, found["big"].additions) == (True, 0)
        assert (found["ok"].too_large, found["ok"].additions) == (False, 1)

    def test_a_huge_file_costs_no_memory(self, repository: Repository):
        big = b"0123456789abcde\n" * (64 * 65536)  # 64 MiB
        path = repository.path
        oid = commit_files(path, {"moved": big, "small": b"x\n"}, commit_files(path, {"big": big + b"more\n"}))
        # In a process of its own, because this one has held the contents already.
        program = """
import resource, sys, pathlib
from storage.git.diffs import diff
from storage.git.repository import Repository
diff.is_small = lambda *_: True
repository = Repository.open(pathlib.Path(sys.argv[1]))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print([(entry.new_path, entry.diff) for entry in diff.diff_of_commit(repository, sys.argv[2])])
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""
        done = subprocess.run([sys.executable, "-c", program, str(path), oid], check=True, capture_output=True, text=True)
        entries, kibibytes = done.stdout.splitlines()

        small = "--- /dev/null\n+++ b/small\n@@ -0,0 +1 @@\n+x\n"
        assert entries == repr([("big", FILE_TOO_LARGE), ("moved", FILE_TOO_LARGE), ("small", small)])
        assert int(kibibytes) < 16 * 1024

    def test_the_whole_diff_is_truncated_with_a_notice(self, repository: Repository):
        line = b"abcdefghijklmnopqrstuvwxyz 0123456789\n"
        files: Files = {f"f{number}": line * 40_000 for number in range(6)}
        entries = list(changes(repository, None, files).values())
        cut = [entry for entry in entries if entry.too_large]

        assert len(json.dumps([entry._asdict() for entry in entries]).replace("\\n", "n")) <= MAX_DIFF_BYTES
        assert [entry.too_large for entry in entries] == [False] * 3 + [True] * 3
        assert cut[0].diff.endswith("\n+" + line.decode() + DIFF_TOO_LARGE)
        assert [entry.diff for entry in cut[1:]] == [DIFF_TOO_LARGE] * 2
        assert (cut[0].additions, cut[1].additions) == (40_000, 0)

    def test_text_is_measured_as_it_is_sent(self, repository: Repository):
        found = changes(repository, None, {"a": b"\xff" * 4_000_000 + b"\n"})

        assert found["a"].too_large
        assert len(found["a"].diff.encode()) <= MAX_DIFF_BYTES

    def test_bytes_read_are_bounded_for_small_changes(self, repository: Repository, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr(module, "MAX_READ_BYTES", 100_000)
        before: Files = {f"f{number}": b"x\n" * 10_000 + b"%d\n" % number for number in range(5)}
        after: Files = {path: bytes(content) + b"y\n" for path, content in before.items() if isinstance(content, bytes)}
        found = changes(repository, before, after)

        assert [entry.diff == DIFF_TOO_LARGE for entry in found.values()] == [False, False, True, True, True]

    def test_very_many_files_are_counted(self, repository: Repository, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr(module, "MAX_DIFF_BYTES", 10_000)
        blob = git(repository.path, "hash-object", "-w", "--stdin", stdin=b"x\n")
        tree = git(repository.path, "mktree", stdin=b"".join(f"100644 blob {blob}\tf{n:05d}\n".encode() for n in range(500)))
        entries = diff_of_commit(repository, git(repository.path, "commit-tree", tree, "-m", "many"))

        assert entries[-1].diff == f"{CUT_MARK}{500 - len(entries)} more files have changed\n"
        assert entries[-1].too_large
        assert 10 < len(entries) < 50

    def test_mass_renames_end(self, repository: Repository):
        path = repository.path
        blobs = git(path, "hash-object", "-w", "--stdin", stdin=b"x\n"), git(path, "hash-object", "-w", "--stdin", stdin=b"y\n")
        trees = [
            git(path, "mktree", stdin=b"".join(f"100644 blob {blob}\t{side}{n:05d}\n".encode() for n in range(5000)))
            for side, blob in zip("ab", blobs, strict=True)
        ]
        first = git(path, "commit-tree", trees[0], "-m", "a")
        second = git(path, "commit-tree", trees[1], "-p", first, "-m", "b")
        start = time.monotonic()

        assert len(diff_of_commit(repository, second)) == 10_000
        assert time.monotonic() - start < 10

    def test_large_pairs_are_compared_outside_and_read_the_same(self, repository: Repository, monkeypatch: pytest.MonkeyPatch):
        rng = random.Random(1)
        lines = [b"%d some line of the file\n" % rng.randrange(10**6) for _ in range(8000)]
        other = [line for line in lines if rng.randrange(50)] + [b"end"]
        names: list[str | bytes] = ["plain", 'quo"te\\', "ünï", b"\xff\n\t\x01", "with space"]
        before: Files = {name: b"".join(lines) for name in names} | {"bin": b"\0" + b"x" * 200_000}
        after: Files = {name: b"".join(other) for name in names} | {"bin": b"\0" + b"y" * 200_000}
        outside = changes(repository, before, after)
        monkeypatch.setattr(module, "_MAX_INLINE_PAIR_BYTES", 10**9)
        monkeypatch.setattr(module.git_command, "read_output", None)

        assert changes(repository, before, after) == outside
        assert outside["bin"].diff == "Binary files a/bin and b/bin differ\n"
        assert outside["plain"].deletions > 50

    def test_hostile_contents_run_out_of_time(self, repository: Repository, monkeypatch: pytest.MonkeyPatch):
        rng = random.Random(1)
        monkeypatch.setattr(module, "MAX_DIFF_SECONDS", 0.2)
        sides = [b"".join(b"%d\n" % rng.randrange(300) for _ in range(600_000)) for _ in range(2)]
        start = time.monotonic()
        found = changes(repository, {"a": sides[0], "b": b"1\n"}, {"a": sides[1], "b": b"2\n"})

        assert [entry.diff for entry in found.values()] == [DIFF_TOO_SLOW, DIFF_TOO_SLOW]
        assert time.monotonic() - start < 8


class TestErrors:
    def test_an_unknown_commit(self, repository: Repository):
        with pytest.raises(UnknownCommit):
            diff_of_commit(repository, "f" * 40)

    def test_missing_trees_parents_and_contents(self, repository: Repository):
        good = commit_files(repository.path, {"a": b"x\n"})
        tree = git(repository.path, "rev-parse", f"{good}^{{tree}}")
        rest = "author A <a> 1 +0000\ncommitter C <c> 1 +0000\n\nm"
        lost = git(repository.path, "mktree", "--missing", stdin=b"100644 blob " + b"3" * 40 + b"\tlost\n")
        blob = git(repository.path, "rev-parse", f"{good}:a")
        for head in (f"tree {'1' * 40}", f"tree {blob}", "tree", f"tree {tree}\nparent {'2' * 40}", f"tree {lost}"):
            oid = write_commit(repository.path, f"{head}\n{rest}".encode())
            with pytest.raises(DamagedRepository):
                diff_of_commit(repository, oid)


class TestFindLine:
    """The file goes from one, two, three … nine to: one, 2a, 2b, three … eight (nine removed)."""

    @pytest.fixture
    def entries(self, repository: Repository) -> list[FileDiff]:
        words = b"one two three four five six seven eight nine".split()
        new = [words[0], b"2a", b"2b", *words[2:8]]
        found = changes(
            repository,
            {"f": b"\n".join(words) + b"\n", "g": b"g\n", "gone": b"-- a\n"},
            {"f": b"\n".join(new) + b"\n", "g": b"g\n", "new": b"++ n\n++ m\n"},
        )
        return list(found.values())

    @pytest.mark.parametrize("line", [2, 3])
    def test_added_lines_by_their_place_in_the_new_file(self, entries: list[FileDiff], line: int):
        assert has_line(entries, "f", line, "new")

    @pytest.mark.parametrize("line", [0, 1, 4, 9, 10, -2, 10**12])
    def test_context_and_other_lines_never_match(self, entries: list[FileDiff], line: int):
        assert not has_line(entries, "f", line, "new")

    def test_removed_lines_by_the_place_in_the_new_file(self, entries: list[FileDiff]):
        assert [line for line in range(12) if has_line(entries, "f", line, "old")] == [2, 10]

    def test_headers_are_no_lines_but_lines_like_headers_are(self, entries: list[FileDiff]):
        assert [line for line in range(5) if has_line(entries, "new", line, "new")] == [1, 2]
        assert [line for line in range(5) if has_line(entries, "gone", line, "old")] == [0]
        assert not any(has_line(entries, "new", line, "old") for line in range(5))

    @pytest.mark.parametrize("path", ["g", "nowhere", "", "../f", "a/f", "F"])
    def test_other_paths_never_match(self, entries: list[FileDiff], path: str):
        assert not any(has_line(entries, path, line, kind) for line in range(12) for kind in ("new", "old"))

    @pytest.mark.parametrize("kind", ["", "NEW", "+", "context", "match"])
    def test_other_types_never_match(self, entries: list[FileDiff], kind: str):
        assert not any(has_line(entries, "f", line, kind) for line in range(12))

    def test_a_mark_is_no_line(self):
        entry = FileDiff(f"--- a/f\n+++ b/f\n@@ -1 +1,2 @@\n+x\n{DIFF_TOO_LARGE}", "f", "f", "100644", "100644", False, False, False)

        assert [line for line in range(5) if has_line([entry], "f", line, "new")] == [1]

    def test_several_hunks(self, repository: Repository):
        before = b"".join(b"%d\n" % number for number in range(1, 101))
        (entry,) = changes(repository, {"f": before}, {"f": before.replace(b"\n10\n", b"\n10\nx\n").replace(b"\n90\n", b"\n")}).values()

        assert [line for line in range(110) if has_line([entry], "f", line, "new")] == [11]
        assert [line for line in range(110) if has_line([entry], "f", line, "old")] == [91]


@pytest.mark.parametrize("lines", [10, 100_000])
def test_lines_are_not_followed_into_a_binary_file(repository: Repository, lines: int):
    first = commit_files(repository.path, {"a": b"line\n" * lines})
    second = commit_files(repository.path, {"a": b"\0line\n" * lines})
    third = commit_files(repository.path, {"a": b"new\n" + b"line\n" * lines})
    follower = LineFollower(repository)
    assert [follower.follow("a", 5, first, other) for other in (first, second, third)] == [5, None, 6]
