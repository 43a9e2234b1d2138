"""Searches in the text of files: what they find, and how much of it."""

from pathlib import Path

import pytest

from storage.git.file_search import MAX_LINE_LENGTH, MAX_MATCHES_PER_FILE, FoundLine, search_text
from storage.git.repository import Repository
from tests.support.git.git_history import commit_files


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository.create(tmp_path / "r.git")


class TestSearchText:
    def test_finds_lines_behind_one_of_many_megabytes(self, repository: Repository) -> None:
        script = b"x" * 1_000_000 + "é".encode() * 50_000 + b"Needle" + b"y" * 3_000_000
        commit = commit_files(repository.path, {"app.min.js": script, "src/app.js": b"needle\n"})

        (first, second), is_complete = search_text(repository, commit, "needle", 10)

        assert (first.path, first.line, len(first.text)) == ("app.min.js", 1, MAX_LINE_LENGTH)
        assert first.text == "é" * 100 + "Needle" + "y" * (MAX_LINE_LENGTH - 106)
        assert (second, is_complete) == (FoundLine("src/app.js", 1, "needle"), True)

    def test_ignores_the_case_of_all_letters(self, repository: Repository) -> None:
        lines = "Ärger\nÜBERGRÖSSE (1.5)\n".encode()
        commit = commit_files(repository.path, {"a": lines, "b": "Ärger".encode("latin-1")})
        assert search_text(repository, commit, "ärger", 10) == ([FoundLine("a", 1, "Ärger")], True)
        assert search_text(repository, commit, "übergrösse (1.5)", 10) == ([FoundLine("a", 2, "ÜBERGRÖSSE (1.5)")], True)
        # The string is no pattern.
        assert search_text(repository, commit, "übergrösse (1x5)", 10) == ([], True)

    def test_says_whether_there_are_further_lines(self, repository: Repository) -> None:
        commit = commit_files(
            repository.path,
            {"exact": b"needle\n" * MAX_MATCHES_PER_FILE, "more": b"needle\n" * (MAX_MATCHES_PER_FILE + 1), "no": b"needl\n"},
        )
        found, is_complete = search_text(repository, commit, "needle", 100)
        assert ([each.path for each in found], is_complete) == (["exact"] * MAX_MATCHES_PER_FILE + ["more"] * MAX_MATCHES_PER_FILE, False)
        assert search_text(repository, commit, "needle", 30) == (found[:30], False)
        assert search_text(repository, commit, "needl\x7f", 30) == ([], True)
        only = commit_files(repository.path, {"exact": b"needle\n" * MAX_MATCHES_PER_FILE})
        assert search_text(repository, only, "needle", MAX_MATCHES_PER_FILE) == (found[:MAX_MATCHES_PER_FILE], True)

    def test_finds_lines_of_files_whose_names_have_line_breaks(self, repository: Repository) -> None:
        commit = commit_files(repository.path, {"a\nb\tc": b"-\nneedle\r\n", "d": b"needle"})
        assert search_text(repository, commit, "needle", 10) == ([FoundLine("a\nb\tc", 2, "needle"), FoundLine("d", 1, "needle")], True)
