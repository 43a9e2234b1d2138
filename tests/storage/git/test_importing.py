"""Imports preserve all branches, tags and HEAD of every kind of source, report progress, and leave nothing half-done."""

import os
from pathlib import Path

import pytest

from storage.git.diffs.diff import diff_of_commit
from storage.git.history.log import list_history
from storage.git.importing.repository_import import import_repository
from storage.git.repository import DamagedRepository, NotARepository, Repository, UnsupportedRepository
from storage.git.subprocesses.git_command import GitCommandError
from tests.support.git.git_history import commit_files, git, make_history

PROJECT_ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return make_history(tmp_path / "source.git", commits=60, merges_every=5, tags=4).path


@pytest.fixture
def work_tree(tmp_path: Path, source: Path) -> Path:
    git(tmp_path, "clone", "-q", str(source), "work")
    return tmp_path / "work"


def import_checked(source: Path, target: Path) -> Repository:
    import_repository(source, target)
    assert [entry.name for entry in target.parent.iterdir() if entry.name.startswith(".")] == []
    return Repository.open(target)


def refs(path: Path) -> list[str]:
    return git(path, "for-each-ref", "--format=%(objectname) %(refname)").splitlines()


class TestSources:
    def test_a_bare_repository(self, source: Path, tmp_path: Path):
        got = import_checked(source, tmp_path / "got.git")

        assert refs(got.path) == refs(source)
        assert got.default_branch() == "master"
        assert git(got.path, "rev-parse", "--is-bare-repository") == "true"
        assert git(got.path, "fsck", "--full") == ""
        assert git(got.path, "config", "core.fsync") == "all"

    def test_nothing_is_shared_with_the_source(self, source: Path, tmp_path: Path):
        got = import_checked(source, tmp_path / "got.git")

        assert not (got.path / "objects" / "info" / "alternates").exists()
        assert {file.stat().st_nlink for file in got.path.rglob("*") if file.is_file()} == {1}

    def test_a_source_with_grafts_has_its_recorded_history(self, source: Path, tmp_path: Path):
        (source / "info").mkdir(exist_ok=True)
        (source / "info" / "grafts").write_text(git(source, "rev-parse", "master~3") + "\n")
        got = import_checked(source, tmp_path / "got.git")

        assert len(list_history(got, git(source, "rev-parse", "master"), skip=0, limit=1000)) > 4
        assert git(got.path, "fsck", "--full") == ""

    @pytest.mark.parametrize(
        ("options", "reason"),
        [
            (("--object-format=sha256",), "unknown object format 'sha256'"),
            (("extensions.partialClone=origin",), "unsupported extension name extensions.partialclone"),
        ],
    )
    def test_one_of_another_format_is_named(self, tmp_path: Path, options: tuple[str, ...], reason: str):
        odd, settings = tmp_path / "odd.git", [option for option in options if not option.startswith("--")]
        git(tmp_path, "init", "-q", "--bare", *(option for option in options if option not in settings), str(odd))
        for name, _, value in (setting.partition("=") for setting in settings):
            git(odd, "config", "core.repositoryFormatVersion", "1")
            git(odd, "config", name, value)
        with pytest.raises(UnsupportedRepository, match=f"^{reason}$"):
            import_repository(odd, tmp_path / "got.git")

    def test_a_source_with_alternates(self, source: Path, tmp_path: Path):
        git(tmp_path, "clone", "-q", "--bare", "--shared", str(source), "borrower.git")
        got = import_checked(tmp_path / "borrower.git", tmp_path / "got.git")

        assert git(got.path, "fsck", "--full") == ""
        assert not (got.path / "objects" / "info" / "alternates").exists()

    def test_a_work_tree_on_a_branch(self, work_tree: Path, tmp_path: Path):
        git(work_tree, "switch", "-q", "-c", "feature/x")
        got = import_checked(work_tree, tmp_path / "got.git")

        assert [branch.name for branch in got.branches()] == ["feature/x", "master"]
        assert got.default_branch() == "feature/x"
        assert [tag.name for tag in got.tags()] == ["v1", "v2", "v3", "v4"]

    def test_a_linked_work_tree(self, work_tree: Path, tmp_path: Path):
        git(work_tree, "worktree", "add", "-q", "-b", "linked", str(tmp_path / "linked"), "v1")

        assert import_checked(tmp_path / "linked", tmp_path / "got.git").default_branch() == "linked"

    def test_a_detached_head_at_a_branch(self, work_tree: Path, tmp_path: Path):
        git(work_tree, "branch", "aaa")
        git(work_tree, "switch", "-q", "--detach")
        got = import_checked(work_tree, tmp_path / "got.git")

        assert got.default_branch() == "master"
        assert [branch.name for branch in got.branches()] == ["aaa", "master"]

    def test_a_detached_head_elsewhere_becomes_a_branch(self, work_tree: Path, tmp_path: Path):
        git(work_tree, "switch", "-q", "--detach", "v1")
        git(work_tree, "branch", "main/sub")
        git(work_tree, "branch", "-f", "detached", "v2")
        git(work_tree, "branch", "-D", "main/sub")
        git(work_tree, "branch", "main/sub", "v2")
        got = import_checked(work_tree, tmp_path / "got.git")

        assert got.default_branch() == "detached-2"
        assert got.resolve("detached-2") == got.resolve("v1")

    def test_a_detached_head_at_a_remote_branch_takes_its_name(self, work_tree: Path, tmp_path: Path):
        git(work_tree, "switch", "-q", "--detach", "origin/topic")
        got = import_checked(work_tree, tmp_path / "got.git")

        assert got.default_branch() == "topic"
        assert [branch.name for branch in got.branches()] == ["master", "topic"]

    def test_a_shallow_detached_checkout(self, source: Path, tmp_path: Path):
        git(tmp_path, "init", "-q", "ci")
        git(tmp_path / "ci", "fetch", "-q", "--depth=3", f"file://{source}", "master")
        git(tmp_path / "ci", "checkout", "-q", "--detach", "FETCH_HEAD")
        got = import_checked(tmp_path / "ci", tmp_path / "got.git")
        start = str(got.resolve("master"))
        commits = list_history(got, start, skip=0, limit=100)

        assert start == git(source, "rev-parse", "master")
        assert [commit.oid for commit in commits] == git(tmp_path / "ci", "log", "--format=%H").split()
        assert commits[-1].parents == ()
        assert all(entry.new_file for entry in diff_of_commit(got, commits[-1].oid))
        git(got.path, "fsck", "--full")
        git(tmp_path, "clone", "-q", f"file://{got.path}", "again")

    def test_an_empty_repository(self, tmp_path: Path):
        git(tmp_path, "init", "-q", "-b", "trunk", "empty")
        got = import_checked(tmp_path / "empty", tmp_path / "got.git")

        assert got.is_empty()
        assert git(got.path, "symbolic-ref", "HEAD") == "refs/heads/trunk"

    def test_an_unborn_head_beside_branches(self, source: Path, tmp_path: Path):
        git(source, "symbolic-ref", "HEAD", "refs/heads/nowhere")

        assert import_checked(source, tmp_path / "got.git").default_branch() == "master"

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
    def test_another_users_repository(self, source: Path, tmp_path: Path):
        before = refs(source)
        for path in (source, *source.rglob("*")):
            os.chown(path, 65534, 65534)

        assert refs(import_checked(source, tmp_path / "got.git").path) == before

    def test_odd_paths(self, source: Path, tmp_path: Path):
        for name in ("--upload-pack=false", "a b", "x:y", "ext::sh -c false", "q'\"$(x)`", "ü\n"):
            odd = source.rename(tmp_path / name)
            target = tmp_path / f"got {name}.git"
            import_repository(odd, target)
            assert len(Repository.open(target).branches()) == 2
            odd.rename(source)

    def test_relative_paths(self, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.chdir(tmp_path)
        import_repository(Path("source.git"), Path("got.git"))

        assert refs(tmp_path / "got.git") == refs(source)

    @pytest.mark.skipif(not (PROJECT_ROOT / ".git").exists(), reason="not a checkout")
    def test_the_projects_own_checkout(self, tmp_path: Path):
        before = git(PROJECT_ROOT, "rev-parse", "HEAD")
        got = import_checked(PROJECT_ROOT, tmp_path / "got.git")

        assert got.resolve(before)
        assert list_history(got, str(got.resolve(str(got.default_branch()))), skip=0, limit=5)


class TestProgress:
    def test_counts_up_to_the_whole_in_each_phase(self, source: Path, tmp_path: Path):
        steps: list[tuple[str, int, int]] = []
        import_repository(source, tmp_path / "got.git", lambda *step: steps.append(step))
        phases = list(dict.fromkeys(phase for phase, _, _ in steps))

        assert "receiving objects" in phases
        assert all(0 <= done <= total for _, done, total in steps)
        for phase in phases:
            counts = [(done, total) for name, done, total in steps if name == phase]
            assert [done for done, _ in counts] == sorted(done for done, _ in counts)
            assert counts[-1][0] == counts[-1][1]

    def test_an_exception_ends_the_import(self, source: Path, tmp_path: Path):
        class Enough(Exception):
            pass

        def stop(phase: str, done: int, total: int) -> None:
            raise Enough

        with pytest.raises(Enough):
            import_repository(source, tmp_path / "got.git", stop)
        assert [entry.name for entry in tmp_path.iterdir()] == ["source.git"]


class TestErrors:
    def test_a_source_that_is_none(self, tmp_path: Path):
        (tmp_path / "folder").mkdir()
        for name in ("folder", "missing"):
            with pytest.raises(NotARepository):
                import_repository(tmp_path / name, tmp_path / "got.git")
        assert not (tmp_path / "got.git").exists()

    def test_a_target_that_is_there(self, source: Path, tmp_path: Path):
        (tmp_path / "got.git").mkdir()

        with pytest.raises(FileExistsError):
            import_repository(source, tmp_path / "got.git")

    def test_a_damaged_source(self, source: Path, tmp_path: Path):
        for pack in (source / "objects" / "pack").glob("*.pack"):
            pack.chmod(0o644)
            pack.write_bytes(pack.read_bytes()[:500])

        with pytest.raises((DamagedRepository, GitCommandError)):
            import_repository(source, tmp_path / "got.git")
        assert [entry.name for entry in tmp_path.iterdir()] == ["source.git"]

    def test_a_source_with_a_lost_object(self, tmp_path: Path):
        source = Repository.create(tmp_path / "source.git")
        oid = commit_files(source.path, {"a": b"x\n"})
        git(source.path, "update-ref", "refs/heads/master", oid)
        blob = git(source.path, "rev-parse", f"{oid}:a")
        (source.path / "objects" / blob[:2] / blob[2:]).unlink()

        with pytest.raises(GitCommandError, match=blob):
            import_repository(source.path, tmp_path / "got.git")
        assert [entry.name for entry in tmp_path.iterdir()] == ["source.git"]
