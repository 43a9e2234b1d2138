"""The selection of `scripts/test --quick`."""

from pathlib import Path

import pytest

from tests.support import affected_tests
from tests.support.affected_tests import CODEBASE_TESTS, ROOT, codebase_tests, select_tests

MILESTONES = {"tests/graph/issues/test_milestones.py", "tests/rest_v3/routes/test_milestones.py"}


class TestSelection:
    @pytest.mark.parametrize("path", ["rest_v3/routes/milestones.graphql", "storage/tables/issues/milestones.py"])
    def test_tests_with_the_name_in_all_layers(self, path: str) -> None:
        assert select_tests(path)[0] == MILESTONES

    def test_longer_names_only_in_the_mirror_folder(self) -> None:
        issues = {"tests/graph/issues/test_issues.py", "tests/rest_v3/routes/test_issues.py"}
        assert select_tests("rest_v3/routes/issues.py")[0] == issues
        assert select_tests("graph/types/issues/issues.py")[0] >= {*issues, "tests/graph/issues/test_issue_closing.py"}

    def test_fewer_words_of_a_longer_name(self) -> None:
        tests, _ = select_tests("graph/types/merge_requests/merge_request_mutations.py")
        assert "tests/graph/merge_requests/test_merge_requests.py" in tests
        assert "tests/graph/builds/test_builds.py" not in tests

    def test_importing_tests(self) -> None:
        assert "tests/graph/operations/test_planted_data.py" in select_tests("tests/support/queries/planted_data.py")[0]
        assert "tests/graph/hooks/test_delivery.py" in select_tests("graph/events/webhook_sender.py")[0]

    def test_modules_that_many_import_select_only_tests_with_their_name(self) -> None:
        tests, reason = select_tests("graph/context.py")
        assert tests == set()
        assert "not selected" in reason

    def test_otherwise_the_mirror_folder(self) -> None:
        tests, reason = select_tests("forgefront/client/layout.py")
        assert (reason, len(tests) > 1) == ("in tests/forgefront/client/", True)
        assert all(test.startswith("tests/forgefront/client/") for test in tests)

    def test_a_changed_test(self) -> None:
        assert select_tests("tests/test_locks.py") == ({"tests/test_locks.py"}, "changed")
        assert select_tests("tests/test_that_was_deleted.py")[0] == set()

    def test_of_the_codebase(self) -> None:
        assert {*codebase_tests("docs/operations.md")} == {"tests/test_docs.py", "tests/test_examples.py"}
        assert {"tests/test_names.py", "tests/storage/test_migrations.py"} <= {*codebase_tests("storage/tables/issues/milestones.py")}
        assert all((ROOT / test).is_file() for tests in CODEBASE_TESTS.values() for test in tests)


class TestChangedFiles:
    def test_committed_uncommitted_and_new(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(affected_tests, "ROOT", tmp_path)
        for name in ("GIT_AUTHOR_NAME", "GIT_COMMITTER_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_EMAIL"):
            monkeypatch.setenv(name, "a@example.org")
        git = affected_tests.git

        def commit(name: str) -> str:
            (tmp_path / name).write_text("1")
            git("add", "--all")
            git("commit", "-qm", "A change")
            return git("rev-parse", "HEAD")

        git("init", "-q", "-b", "main")
        start = commit("old.py")
        assert affected_tests.find_changes() == (start, [])
        git("checkout", "-qb", "topic")
        commit("committed.py")
        (tmp_path / "old.py").write_text("2")
        (tmp_path / "new.py").write_text("3")
        assert affected_tests.find_changes() == (start, ["committed.py", "new.py", "old.py"])
        # Without main, the last commit is compared with.
        git("branch", "-qD", "main")
        assert affected_tests.find_changes() == ("HEAD", ["new.py", "old.py"])
