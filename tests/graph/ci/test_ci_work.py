"""The work that a CI file causes: it depends on the size of the file, not on the number of its jobs, and exceeding a limit is an error."""

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from graph.rules.ci import config_parser, expressions, job_rules, job_selection, pipeline_views, rules_parser
from graph.rules.ci.commit_files import CommitFiles
from graph.rules.ci.config_errors import PipelineConfigError
from graph.rules.ci.config_parser import parse_config
from graph.rules.ci.expressions import ExpressionSearches
from graph.rules.ci.job_rules import RuleContext
from graph.rules.ci.job_selection import JobConfig, RefPattern, select_jobs
from storage.git.cancellation import WorkCanceled
from storage.tables import Visibility
from tests.make import DataFactory
from tests.support.api_clients import Ask

LINT = "query ($path: String!, $content: String!) { ciConfig(projectPath: $path, content: $content) { valid } }"
COMMIT = 'query ($path: String!) { project(path: $path) { commit(rev: "master") { title } } }'
PATHS = "\n".join(f"docs/{number}.txt" for number in range(100))

Count = Callable[[Any, str], Counter[str]]


@pytest.fixture
def count(monkeypatch: pytest.MonkeyPatch) -> Count:
    """Counts the calls of functions, by their names."""
    found: Counter[str] = Counter()

    def start(owner: Any, name: str) -> Counter[str]:
        original = getattr(owner, name)

        def counted(*arguments: Any, **named: Any) -> Any:
            found[name] += 1
            return original(*arguments, **named)

        monkeypatch.setattr(owner, name, counted)
        return found

    return start


def file_with(template: str, jobs: int, more: str = "") -> str:
    """A file whose jobs all extend one template."""
    return f".t:\n  script: x\n{template}\n" + "".join(f"j{number}: {{extends: .t{more}}}\n" for number in range(jobs))


def rules_of_patterns(key: str, patterns: int = 90) -> str:
    """50 rules with 50 patterns each, which repeat."""
    rules = [", ".join(f"p{(50 * rule + number) % patterns}/**/*.c" for number in range(50)) for rule in range(50)]
    return "  rules:\n" + "\n".join(f"    - {key}: [{each}]" for each in rules)


def select(text: str, variables: dict[str, str] | None = None) -> list[JobConfig]:
    files = CommitFiles(None, "a" * 40, None)  # type: ignore[arg-type]
    vars(files).update(_paths=PATHS, _changed_paths=PATHS)
    return select_jobs(parse_config(text), "master", tag=False, path="a/b", rule_context=RuleContext(variables or {}, files))


def problem(text: str) -> str:
    with pytest.raises(PipelineConfigError) as caught:
        select(text)
    return str(caught.value)


class TestSharedValues:
    @pytest.mark.parametrize("key", ["changes", "exists"])
    def test_patterns_are_parsed_once(self, key: str, count: Count) -> None:
        calls = count(rules_parser, "glob_expression")
        parse_config(file_with(rules_of_patterns(key), 2))
        few = calls.total()
        parse_config(file_with(rules_of_patterns(key), 200))
        assert calls.total() == 2 * few == 2 * 50 * 50

    @pytest.mark.parametrize("key", ["only", "except"])
    def test_refs_are_parsed_and_matched_once(self, key: str, monkeypatch: pytest.MonkeyPatch, count: Count) -> None:
        calls = count(RefPattern, "parse")
        text = file_with(f"  {key}: [{', '.join(f'/^p{number % 90}-/' for number in range(500))}]", 200)
        matched: list[str] = []
        matches = RefPattern.matches
        monkeypatch.setattr(RefPattern, "matches", lambda self, *a, **named: matched.append(self.text) or matches(self, *a, **named))
        assert len(select(text)) == (0 if key == "only" else 200)
        assert calls.total() == 500
        assert len(matched) == 90

    def test_a_ref_of_many_slashes_takes_linear_time(self) -> None:
        started_at = time.thread_time()
        with pytest.raises(PipelineConfigError, match="is not a valid RE2 expression"):
            parse_config(f"a: {{script: x, only: ['/{'/@a/b' * 20_000} !']}}")
        assert time.thread_time() - started_at < 2

    @pytest.mark.parametrize(
        ("text", "source", "path", "ignore_case"),
        [
            ("/a b/@g/p", "a b", "g/p", False),
            ("/a/i@g/p/q", "a", "g/p/q", True),
            ("/x@g/p/", "x@g/p", None, False),
            ("/a@b/@g/@h/p", "a@b/@g", "h/p", False),
            ("//", "", None, False),
            ("//i", "", None, True),
        ],
    )
    def test_an_expression_may_have_a_path(self, text: str, source: str, path: str | None, ignore_case: bool) -> None:
        assert RefPattern.parse(text) == RefPattern(text, source, path, True, ignore_case)

    def test_an_alias_is_parsed_once(self, count: Count) -> None:
        calls = count(rules_parser, "parse_condition")
        rules = ", ".join(f"{{if: '$A == \"{number}\"'}}" for number in range(5))
        jobs = "".join(f"j{number}: {{script: x, rules: *rules}}\n" for number in range(100))
        assert len(parse_config(f".r: &rules [{rules}]\n{jobs}").jobs) == 100
        assert calls.total() == 5

    def test_values_of_a_template_are_parsed_once(self, count: Count) -> None:
        for name in ("parse_lines", "parse_strings", "parse_string"):
            calls = count(config_parser, name)
        template = "  script: [[], [], x]\n  tags: [a, a, a]\n  services: [b]\n  after_script: [c]\n  image: d"
        parse_config(f".t:\n{template}\n" + "".join(f"j{number}: {{extends: .t}}\n" for number in range(200)))
        # One more for the `before_script` that the file does not have.
        assert calls == {"parse_lines": 3, "parse_strings": 2, "parse_string": 1}

    def test_rules_are_evaluated_by_the_variables_of_each_job(self) -> None:
        text = (
            file_with("  rules: [{if: '$A == \"1\"'}]", 3)
            + "own: {extends: .t, variables: {A: '1'}}\nother: {extends: .t, variables: {A: '2'}}\n"
        )
        assert [job.name for job in select(text)] == ["own"]
        assert [job.name for job in select(f"variables: {{A: '1'}}\n{text}")] == ["j0", "j1", "j2", "own"]

    def test_the_when_of_each_job_holds_for_shared_rules(self) -> None:
        text = file_with("  rules: [{if: '$A == null'}]", 1) + "manual: {extends: .t, when: manual}\n"
        assert {job.name: str(job.run_when) for job in select(text)} == {"j0": "on_success", "manual": "manual"}


class TestSearches:
    @pytest.mark.parametrize("key", ["changes", "exists"])
    def test_each_pattern_is_searched_and_compiled_once(self, key: str, count: Count) -> None:
        calls = count(ExpressionSearches, "_search")
        expressions._compile_cached.cache_clear()
        assert select(file_with(rules_of_patterns(key), 100, ", variables: {A: b}")) == []
        assert calls.total() == 90
        assert expressions._compile_cached.cache_info().misses == 90

    def test_each_expression_is_searched_once_in_a_value(self, count: Count) -> None:
        calls = count(ExpressionSearches, "_search")
        rules = "  rules:\n" + "\n".join(f"    - if: $CI_COMMIT_BRANCH =~ /^p{rule % 5}-/ || $A =~ /x/" for rule in range(50))
        assert select(file_with(rules, 100, ", variables: {B: c}"), {"CI_COMMIT_BRANCH": "master", "A": "b"}) == []
        assert calls.total() == 6

    def test_long_lists_of_paths_are_searched_in_pieces_of_whole_lines(self, monkeypatch: pytest.MonkeyPatch, count: Count) -> None:
        calls = count(ExpressionSearches, "_search")
        monkeypatch.setattr(expressions, "MAX_PIECE_CHARACTERS", 100)
        for number in (0, 50, 99):
            assert len(select(f"a: {{script: x, rules: [{{exists: [docs/{number}.txt]}}]}}")) == 1
        assert select("a: {script: x, rules: [{exists: [docs/1]}]}") == []
        assert calls.total() > 20

    def test_no_more_expressions_are_compiled_than_a_file_may_have(self) -> None:
        for rules in (
            rules_of_patterns("changes", 2500),
            "  rules:\n" + "\n".join(f"    - if: '{' || '.join(f'$A =~ /e{rule}-{n}/' for n in range(40))}'" for rule in range(50)),
        ):
            expressions._compile_cached.cache_clear()
            assert "The file has more than 100 different regular expressions." in problem(file_with(rules, 30))
            assert expressions._compile_cached.cache_info().misses == expressions.MAX_EXPRESSIONS


class TestLimits:
    def test_of_comparisons(self, monkeypatch: pytest.MonkeyPatch) -> None:
        rules = "  rules:\n" + "\n".join(f"    - if: {'||'.join(['$X == $A'] * 50)}" for _ in range(10))
        text = file_with(rules, 100, ", variables: {A: b}")
        monkeypatch.setattr(job_rules, "MAX_COMPARISONS", 50_000)
        assert select(text) == []
        monkeypatch.setattr(job_rules, "MAX_COMPARISONS", 49_999)
        expected = "`j99` job: rules: the rules of the file have more than 49,999 comparisons and patterns to evaluate."
        assert expected in problem(text)

    def test_of_patterns(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(job_rules, "MAX_COMPARISONS", 10_000)
        assert "more than 10,000 comparisons and patterns" in problem(file_with(rules_of_patterns("changes"), 10, ", variables: {A: b}"))
        assert select(file_with(rules_of_patterns("changes"), 10)) == []

    @pytest.mark.parametrize("rule", ["{exists: ['**']}", "{changes: ['**']}", "{if: '$CI_COMMIT_BRANCH =~ /a/ || $A =~ /b/'}"])
    def test_of_searching(self, rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(expressions, "MAX_SEARCH_SECONDS", -1)
        text = f"a: {{script: x, variables: {{A: c}}, rules: [{rule}]}}"
        assert "line 1: `a` job: rules: searching for expressions and patterns takes more than -1 s of processor time." in problem(text)

    @pytest.mark.parametrize(
        "start", [f"before_script: [{'x' * 200_000}]\n", "variables:\n" + "".join(f"  v{number}: abc\n" for number in range(7000))]
    )
    def test_of_bytes_holds_before_all_jobs_are_built(self, start: str, count: Count) -> None:
        calls = count(config_parser._ConfigParser, "_parse_job")
        text = start + "".join(f"j{number}: {{script: x, variables: {{A: b}}}}\n" for number in range(490))
        assert "All jobs, each with the global options, exceed 524288 bytes." in problem(text)
        assert calls.total() < 10


class TestConcurrentChecks:
    async def test_leave_threads_to_what_reads_repositories(self, ask: Ask, make: DataFactory, monkeypatch: pytest.MonkeyPatch) -> None:
        reader = await make.user()
        project = await make.indexed(await make.project(history={"commits": 3}, visibility=Visibility.PUBLIC))
        begun, finish, calls = threading.Event(), threading.Event(), []

        def parse(*arguments: Any) -> Any:
            calls.append(arguments)
            begun.set()
            finish.wait(30)
            return parse_config(*arguments)

        monkeypatch.setattr(pipeline_views.config_parser, "parse_config", parse)
        checks = [asyncio.create_task(ask.data(LINT, reader, path=str(project.id), content="a: {script: x}")) for _ in range(6)]
        await asyncio.to_thread(begun.wait, 30)
        assert (await ask.data(COMMIT, reader, path=str(project.id)))["project"]["commit"]["title"]
        assert len(calls) == 1
        finish.set()
        assert [each["ciConfig"]["valid"] for each in await asyncio.gather(*checks)] == [True] * 6

    @pytest.mark.parametrize("commits", [0, 2])
    async def test_end_when_nobody_waits_for_them(self, commits: int, ask: Ask, make: DataFactory, monkeypatch: pytest.MonkeyPatch) -> None:
        reader = await make.user()
        project = await make.project(history={"commits": commits} if commits else None, visibility=Visibility.PUBLIC)
        project = await make.indexed(project) if commits else project
        begun, finish, ended = threading.Event(), threading.Event(), threading.Event()

        def parse(*arguments: Any) -> Any:
            begun.set()
            finish.wait(30)
            try:
                return parse_config(*arguments)
            except WorkCanceled:
                ended.set()
                raise

        monkeypatch.setattr(pipeline_views.config_parser, "parse_config", parse)
        check = asyncio.create_task(ask(LINT, reader, path=str(project.id), content="a: {script: x}"))
        await asyncio.to_thread(begun.wait, 30)
        check.cancel()
        with pytest.raises(asyncio.CancelledError):
            await check
        finish.set()
        assert await asyncio.to_thread(ended.wait, 30)

    def test_selection_ends_too(self, monkeypatch: pytest.MonkeyPatch) -> None:
        config = parse_config("a: {script: x, rules: [{when: always}]}")

        def check() -> None:
            raise WorkCanceled

        monkeypatch.setattr(job_selection, "check_canceled", check)
        with pytest.raises(WorkCanceled):
            select_jobs(config, "master", tag=False, path="a/b")
