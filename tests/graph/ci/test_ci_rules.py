"""`rules` and `needs` in `.gitlab-ci.yml`: which jobs run, and when they start."""

import re
from time import thread_time

import pytest

from graph.operations.execution import Graph
from graph.rules.ci import rule_conditions
from graph.rules.ci.commit_files import glob_expression
from graph.rules.ci.config_errors import PipelineConfigError
from graph.rules.ci.config_parser import parse_config
from graph.rules.ci.expressions import ExpressionSearches, compile_expression
from graph.rules.ci.job_rules import RuleContext, push_variables
from graph.rules.ci.job_selection import select_jobs
from graph.rules.ci.rule_conditions import parse_condition
from storage.git.diffs import changed_paths
from storage.tables import CheckStatus, RunWhen
from tests.graph.builds.test_pipelines import PushScenario
from tests.graph.runners.test_build_claims import RunnerCalls
from tests.make import DataFactory

VALUES = {"A": "x", "B": "release/1.2", "EMPTY": ""}


def problem(text: str) -> str:
    with pytest.raises(PipelineConfigError) as caught:
        select_jobs(parse_config(text), "master", tag=False, path="a/b")
    return str(caught.value)


class TestConditions:
    def test_hold(self) -> None:
        for text, holds in {
            "$A": True,
            "$EMPTY": False,
            "$MISSING": False,
            '$A == "x"': True,
            "$A == 'y'": False,
            '"x" == ${A}': True,
            "$A != 'y'": True,
            "$MISSING == null": True,
            "$EMPTY == null": False,
            "$EMPTY != null && $A": True,
            "$A == $B": False,
            "$B =~ /^release\\//": True,
            "$B =~ /^RELEASE/i": True,
            "$B =~ /^RELEASE/": False,
            "$B !~ /2$/": False,
            "$MISSING =~ /.*/": False,
            "$MISSING !~ /x/": True,
            '$A == "y" || $A == "x" && $B': True,
            '($A == "y" || $A == "x") && $MISSING': False,
            '$A == "y" || ($A == "x" && ($B))': True,
        }.items():
            assert parse_condition(text).holds(VALUES, ExpressionSearches()) is holds, text

    def test_errors(self) -> None:
        for text, reason in {
            "A": "it contains something other than",
            "$A ==": 'a $VARIABLE, a "string" or null is missing',
            "$A == x": "it contains something other than",
            "$A &&": "is missing",
            "($A": "a closing parenthesis is missing",
            "$A $B": "$B is not expected there",
            "$A =~ $B": "an expression such as /^release-/ must follow =~",
            "$A =~ /(?=x)/": "is not a valid RE2 expression: look-around is not supported",
            "(" * 21 + "$A" + ")" * 21: "more than 20 nested parentheses",
            "$A" * 600: "more than 1000 characters",
            "": "is missing",
        }.items():
            with pytest.raises(ValueError, match=re.escape(reason)):
                parse_condition(text)

    def test_are_bounded(self) -> None:
        begun = thread_time()
        for text in ("$A =~ /" + "\\/" * 490, "(" * 1_000, "$A||" * 249 + "$A", "/" + "a" * 990, "$" * 1_000):
            try:
                parse_condition(text).holds(VALUES, ExpressionSearches())
            except ValueError:
                continue
        assert thread_time() - begun < 2
        assert rule_conditions.MAX_CONDITION_LENGTH == 1_000

    def test_patterns(self) -> None:
        paths = "README.md\nsrc/a.c\nsrc/lib/b.h\ndocs/x.md\na+b"
        for pattern, found in {
            "README.md": True,
            "readme.md": False,
            "*.md": True,
            "*.c": False,
            "**/*.c": True,
            "src/**/*.h": True,
            "src/*.h": False,
            "src/**": True,
            "doc?/x.{md,txt}": True,
            "src/?": False,
            "a+b": True,
            "aab": False,
        }.items():
            expression = glob_expression(pattern)
            assert (compile_expression(expression, max_length=len(expression)).search(paths) is not None) is found, pattern


class TestRules:
    def test_the_first_that_applies_decides(self) -> None:
        config = parse_config("""
variables: {DEPLOY: "yes"}
a:
  script: x
  when: manual
  rules:
    - {if: '$CI_COMMIT_TAG', when: never}
    - {if: '$CI_COMMIT_BRANCH =~ /^release-/ && $DEPLOY == "yes"', when: on_success, allow_failure: true}
    - {if: '$CI_BUILD_REF_NAME == "master"'}
b: {script: x, rules: [{when: always}]}
c: {script: x, rules: []}
""")

        def run(ref: str, *, tag: bool = False) -> dict[str, tuple[RunWhen, bool]]:
            variables = push_variables(1, ref, tag=tag, sha="a" * 40, before=None, source="push")
            jobs = select_jobs(config, ref, tag=tag, path="a/b", rule_context=RuleContext(variables))
            return {job.name: (job.run_when, job.allow_failure) for job in jobs}

        always = {"b": (RunWhen.ALWAYS, False)}
        assert run("master") == {"a": (RunWhen.MANUAL, True), **always}
        assert run("release-1") == {"a": (RunWhen.ON_SUCCESS, True), **always}
        assert run("release-1", tag=True) == run("topic") == always

    def test_errors_have_lines(self) -> None:
        start = "a:\n  script: x\n  rules:\n    - "
        for text, message in {
            f"{start}when: later": "line 4: `a` job: rules: when: `later` should be on_success, on_failure, always, manual or never.",
            f"{start}if: x": "line 4: `a` job: rules: if: `x` is not a valid condition: it contains something other than",
            f"{start}variables: {{}}": "line 4: `a` job: rules: `variables` is not supported. Supported: if, changes, exists, when,",
            f"{start}changes: ['{{a']": "line 4: `a` job: rules: changes: `{a` is not a valid pattern",
            f"{start}x": "line 4: `a` job: rules should be a list of mappings with if, changes, exists, when, allow_failure.",
            "a: {script: x, rules: x}": "line 1: `a` job: rules should be a list of mappings",
            "a: {script: x, rules: [{when: always}], only: [master]}": "line 1: `a` job: `rules` and `only` exclude each other.",
            f"a: {{script: x, rules: [{', '.join(['{when: never}'] * 51)}]}}": "line 1: `a` job: rules: has 51 rules; the limit is 50.",
            "a: {script: x, needs: [b]}": "line 1: `a` job: needs: job `b` does not exist.",
            "a: {script: x, needs: [b]}\nb: {script: x}": "line 1: `a` job: needs: `b` is not in an earlier stage.",
            "a: {script: x, needs: [{pipeline: b}]}": "line 1: `a` job: needs should be a list of names of jobs",
            "a: {script: x, needs: [{job: b, project: c}]}": "line 1: `a` job: needs: `project` is not supported;",
            "b: {stage: build, script: x, only: [tags]}\na: {script: x, needs: [b]}": "line 2: `a` job: needs: `b` does not run here.",
        }.items():
            assert problem(text).startswith(message), text
        patterns = ", ".join(f"p{n}" for n in range(101))
        assert "more than 100 different regular expressions" in problem(
            "\n".join(f"j{n}: {{script: x, rules: [{{changes: [p{n}]}}]}}" for n in range(101))
        )
        assert "the limit is 50" in problem(f"a: {{script: x, rules: [{{exists: [{patterns}]}}]}}")

    async def test_of_files_of_the_push(self, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user()), history={"commits": 2})
        pushes = PushScenario(make, await make.indexed(project), owner)
        text = """
changed: {script: x, rules: [{changes: [src/**]}]}
there: {script: x, rules: [{exists: ['*.lock']}]}
named: {script: x, rules: [{if: '$CI_PIPELINE_SOURCE == "push" && $CI_COMMIT_BEFORE_SHA', changes: [other.txt]}]}
"""

        async def jobs(pipeline: int) -> list[str]:
            return [job["name"] for job in (await pushes.pipelines())[pipeline].jobs or []]

        await pushes(text, message="One")
        await pushes(text, message="Two", **{"src/a/b.c": "1"})
        await pushes(text, message="Three", **{"x.lock": "1"})
        await pushes(text, "topic", message="Four")
        assert [await jobs(number) for number in range(4)] == [
            ["named"],
            ["changed", "named"],
            ["there", "named"],
            # The changes of a new branch are not known.
            ["changed", "there", "named"],
        ]

    async def test_of_changes_in_more_folders_than_are_compared_apply(self, make: DataFactory, monkeypatch: pytest.MonkeyPatch) -> None:
        project = await make.project(owner=(owner := await make.user()), history={"commits": 2})
        pushes = PushScenario(make, await make.indexed(project), owner)
        text = "changed: {script: x, rules: [{changes: [first/**]}]}"
        await pushes(text, message="One")
        monkeypatch.setattr(changed_paths, "MAX_LISTED_TREES", 2)
        await pushes(text, message="Two", **{"first/file": "1", "last/file": "1"})

        assert [[job["name"] for job in pipeline.jobs or []] for pipeline in await pushes.pipelines()] == [["changed"]]


class TestNeeds:
    async def test_a_job_starts_when_what_it_needs_has_ended(self, graph: Graph, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user()), history={"commits": 2})
        pushes = PushScenario(make, await make.indexed(project), owner)
        await pushes("""
stages: [build, test, deploy, after]
one: {stage: build, script: x}
two: {stage: build, script: x}
unit: {stage: test, script: x}
quick: {stage: deploy, script: x, needs: [one, {job: missing, optional: true}]}
plain: {stage: deploy, script: x, needs: [{job: unit, artifacts: false}, one]}
free: {stage: after, script: x, needs: []}
missing: {stage: build, script: x, only: [tags]}
last: {stage: after, script: x}
alarm: {stage: after, script: x, when: on_failure, needs: [quick]}
""")
        assert set(await pushes.builds()) == {"one", "two", "free"}
        await pushes.finish("one")
        assert set(await pushes.builds(CheckStatus.PENDING)) == {"two", "free", "quick"}
        for name in ("one", "two", "quick"):
            await make.artifact((await pushes.builds())[name])
        runner, found = RunnerCalls(graph, make.runner_token(await make.runner())), {}
        while job := await runner.claim():
            found[job["name"]] = job
        assert found.keys() == {"two", "free", "quick"}
        quick = (await pushes.builds())["quick"]
        assert quick.options == {"dependencies": ["one"], "needs": ["one"]}
        await pushes.finish("two")
        assert set(await pushes.builds(CheckStatus.PENDING)) == {"unit"}
        await pushes.finish("unit")
        plain = (await pushes.builds(CheckStatus.PENDING))["plain"]
        assert plain.options == {"dependencies": ["one"], "needs": ["unit", "one"]}
        # The stage after waits for all that have started before it.
        await pushes.finish("plain")
        assert await pushes.builds(CheckStatus.PENDING) == {}
        assert set(await pushes.finish("quick", to=CheckStatus.FAILED)) == {"alarm"}
        assert set(await pushes.finish("free")) == {"alarm"}
        assert "last" not in await pushes.builds()

    async def test_a_later_stage_waits_for_jobs_that_start_by_their_needs(self, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user()), history={"commits": 2})
        pushes = PushScenario(make, await make.indexed(project), owner)
        await pushes("a: {stage: build, script: x}\nb: {script: x, needs: [a]}\nc: {stage: deploy, script: x}")
        assert await pushes.finish("a") == ["b"]
        assert await pushes.finish("b") == ["c"]
        await pushes("a: {stage: build, script: x}\nb: {script: x, needs: [a], when: manual}\nd: {stage: deploy, script: x}", message="Two")
        await pushes.finish("a")
        assert {name: str(build.status) for name, build in (await pushes.builds()).items()}["d"] == "pending"
