"""`.gitlab-ci.yml`: what is read, the errors of an invalid file, and the bounds of its cost (docs/wire-facts.md 13.1)."""

from dataclasses import replace
from time import thread_time
from typing import Any

import pytest
import yaml

from graph.rules.ci import config_parser, yaml_documents
from graph.rules.ci.config_errors import PipelineConfigError
from graph.rules.ci.config_parser import parse_config
from graph.rules.ci.coverage import parse_coverage
from graph.rules.ci.job_selection import JobConfig, RefPattern, select_jobs
from graph.rules.ci.yaml_documents import parse_document, to_json
from storage.tables import RunWhen
from tests.support.generated_examples import given, settings, st

SECONDS = 5.0
"""Far more than any of these files takes, and far less than a file without bounds would."""

COMPLETE_FILE = """
image: ruby:2.1
services: [postgres]
before_script:
  - bundle install
after_script: [rm -rf tmp]
stages: [build, test, deploy]
variables:
  RAILS_ENV: test
  NUMBER: 010
cache: {paths: [vendor], key: "$CI_BUILD_REF", untracked: true}

.template: &template
  tags: [ruby, postgres]
  allow_failure: yes

deploy:
  <<: *template
  type: deploy
  script: cap deploy
  when: always
  only: [master, /^release-/i, tags@group/project]
  except: [branches]
  before_script: []
  variables: {RAILS_ENV: production}
  artifacts: {paths: [log/], name: logs, untracked: no, when: on_failure, expire_in: 1 week}
  dependencies: [compile]

compile:
  stage: build
  script:
    - make
    - |
      make a
      make b
  coverage: /(\\d+)%/
"""


def job(text: str, name: str = "a") -> JobConfig:
    return next(job for job in parse_config(text).jobs if job.name == name)


def config_problems(text: str) -> list[str]:
    with pytest.raises(PipelineConfigError) as caught:
        parse_config(text)
    return [str(problem) for problem in caught.value.problems]


def run_for(text: str, ref: str, *, tag: bool = False, path: str = "group/project") -> list[str]:
    return [job.name for job in select_jobs(parse_config(text), ref, tag=tag, path=path)]


class TestValidFiles:
    def test_every_key(self) -> None:
        config = parse_config(COMPLETE_FILE)
        assert config.stages == ("build", "test", "deploy")
        assert [job.name for job in config.jobs] == ["compile", "deploy"]
        assert job(COMPLETE_FILE, "deploy") == JobConfig(
            name="deploy",
            stage="deploy",
            stage_index=2,
            commands="cap deploy",
            tags=("postgres", "ruby"),
            allow_failure=True,
            run_when=RunWhen.ALWAYS,
            only=(
                RefPattern("master", "master"),
                RefPattern("/^release-/i", "^release-", None, True, True),
                RefPattern("tags@group/project", "tags", "group/project"),
            ),
            excepted=(RefPattern("branches", "branches"),),
            options={
                "image": "ruby:2.1",
                "services": ["postgres"],
                "after_script": ["rm -rf tmp"],
                "variables": {"RAILS_ENV": "production", "NUMBER": "010"},
                "cache": {"paths": ["vendor"], "key": "$CI_BUILD_REF", "untracked": True},
                "artifacts": {"paths": ["log/"], "name": "logs", "untracked": False, "when": "on_failure", "expire_in": "1 week"},
                "dependencies": ["compile"],
            },
            line=17,
        )

    def test_commands_are_the_lines_before_and_the_script(self) -> None:
        compiled = job(COMPLETE_FILE, "compile")
        assert compiled.commands == "bundle install\nmake\nmake a\nmake b\n"
        assert compiled.options["coverage"] == r"(\d+)%"

    @pytest.mark.parametrize(
        ("script", "commands"),
        [
            ("make", "make"),
            ("[make, make test]", "make\nmake test"),
            ("[true, 1, 2.50, 2016-01-01]", "true\n1\n2.50\n2016-01-01"),
            ("[[a, [b]], c]", "a\nb\nc"),
            ("'echo: \"ä\"'", 'echo: "ä"'),
        ],
    )
    def test_script(self, script: str, commands: str) -> None:
        assert job(f"a: {{script: {script}}}").commands == commands

    def test_defaults(self) -> None:
        found = job("a: {script: make}")
        assert (found.stage, found.stage_index, found.tags, found.allow_failure, found.run_when) == (
            "test",
            1,
            (),
            False,
            RunWhen.ON_SUCCESS,
        )
        assert (found.only, found.excepted, dict(found.options)) == (None, None, {})

    def test_jobs_stand_in_the_order_of_stages_and_then_of_the_file(self) -> None:
        text = "types: [one, two]\nb: {stage: two, script: x}\nc: {stage: one, script: x}\na: {stage: one, script: x}\n"
        assert [job.name for job in parse_config(text).jobs] == ["c", "a", "b"]

    @pytest.mark.parametrize("name", ["2015", "yes", "1.0", "with spaces", "ä:ö"])
    def test_names_are_as_they_stand(self, name: str) -> None:
        key = f"'{name}'" if ":" in name else name
        assert [job.name for job in parse_config(f"stages: [{key}]\n{key}: {{script: x, stage: {key}}}").jobs] == [name]

    def test_a_template_is_no_job_whatever_it_has(self) -> None:
        assert [job.name for job in parse_config(".hidden: {anything: [goes]}\n.text: x\na: {script: x}").jobs] == ["a"]

    def test_merge_keys_and_anchors(self) -> None:
        text = """
.one: &one {script: one, tags: [x]}
.two: &two {script: two, when: always}
.lines: &lines [c, d]
a:
  <<: [*one, *two]
  tags: [y]
b:
  script: [a, *lines]
"""
        found = job(text)
        assert (found.commands, found.tags, found.run_when) == ("one", ("y",), RunWhen.ALWAYS)
        assert job(text, "b").commands == "a\nc\nd"

    def test_keys_without_a_value_are_absent(self) -> None:
        """As on the server of that time; so are keys of `artifacts` and `cache` that it did not know."""
        keys = ("stage", "only", "except", "tags", "when", "allow_failure", "variables", "artifacts", "image", "services", "cache")
        empty = "".join(f"  {key}:\n" for key in (*keys, "type", "before_script", "after_script", "dependencies", "coverage"))
        text = f"stages:\nvariables:\ncache:\nimage:\nbefore_script:\na:\n  script: x\n{empty}"
        assert replace(job(text), line=0) == replace(job("a: {script: x}"), line=0)
        kept = job("a: {script: x, artifacts: {paths: [b], name: , public: no}, cache: {key: , paths: [c], policy: pull}}")
        assert kept.options == {"artifacts": {"paths": ["b"]}, "cache": {"paths": ["c"]}}

    def test_a_mark_of_byte_order_and_windows_lines(self) -> None:
        assert job("\ufeffa:\r\n  script: x\r\n").commands == "x"


WRONG: list[tuple[str, str]] = [
    ("", "The file has no jobs. Define one with a `script`."),
    ("# nothing\n", "The file has no jobs. Define one with a `script`."),
    ("stages: [test]", "line 1: The file has no jobs. Define one with a `script`."),
    ("just text", "line 1: The file must be a mapping of job names to jobs."),
    ("[a]", "line 1: The file must be a mapping of job names to jobs."),
    ("a: x", "line 1: Unknown parameter `a`: a job is a mapping with a `script`."),
    ("x: 1\na: {script: x}", "line 1: Unknown parameter `x`: a job is a mapping with a `script`."),
    ("a: {}", "line 1: `a` job: `script` is missing. The name of a template without a script must begin with a dot."),
    ("a:\n  script: []", "line 2: `a` job: the script is empty."),
    ("a: {script: }", "line 1: `a` job: script should be a string or a list of strings, but it is empty."),
    (
        "a:\n  script:\n    - x\n    - echo a: b",
        "line 4: `a` job: script should be a string or a list of strings. Put quotes around a line that contains `: `.",
    ),
    (
        "a:\n  script: x\n  retries: 2",
        "line 3: `a` job: unknown parameter `retries`. Supported: script, before_script, after_script, stage, type, only, except, tags,"
        " allow_failure, when, variables, artifacts, image, services, cache, dependencies, coverage, retry, environment, rules, needs,"
        " extends.",
    ),
    ("a:\n  script: x\n  parallel: 2", "line 3: `a` job: `parallel` is not supported. Write one job for each part."),
    ("default: {image: x}", "line 1: `default` is not supported. Write its keys at the top level of the file."),
    ("a:\n  script: x\n  stage: prod", "line 3: `a` job: the stage `prod` is not one of `build`, `test`, `deploy`."),
    ("stages: [prod]\na: {script: x}", "line 2: `a` job: the stage `test` is not one of `prod`."),
    ("stages: []\na: {script: x}", "line 1: stages is empty. Add a stage, or remove stages to use build, test, deploy."),
    ("stages: {a: b}\na: {script: x}", "line 1: stages should be a list of strings."),
    ("stages: [[a]]\na: {script: x}", "line 1: stages should be a list of strings."),
    ("a: {script: x, when: later}", "line 1: `a` job: when: `later` should be on_success, on_failure, always or manual."),
    ("a: {script: x, allow_failure: maybe}", "line 1: `a` job: allow_failure should be true or false."),
    ("a: {script: x, tags: [[x]]}", "line 1: `a` job: tags should be a list of strings."),
    ("a: {script: x, tags: ['x,y']}", "line 1: `a` job: tags: `x,y` contains a comma. Put each tag on its own line."),
    (
        "a: {script: x, only: [/(/]}",
        "line 1: `a` job: only: `/(/` is not a valid RE2 expression: missing ): (.",
    ),
    (
        "a: {script: x, only: [/^a]}",
        "line 1: `a` job: only: `/^a` is not a valid RE2 expression: it must end in `/` or `/i`,"
        " optionally followed by `@namespace/project`.",
    ),
    (
        "a: {script: x, except: ['/(?=x)/']}",
        "line 1: `a` job: except: `/(?=x)/` is not a valid RE2 expression: look-around is not supported, so that matching takes linear"
        " time; list the refs, or combine `only` with `except`.",
    ),
    (
        "a: {script: x, coverage: '50'}",
        "line 1: `a` job: coverage must be a regular expression between slashes, such as /Coverage: (\\d+)%/.",
    ),
    ("a: {script: x, coverage: '/[/'}", "line 1: `a` job: coverage: not a valid RE2 expression: missing ]: [."),
    ("a: {script: x, artifacts: [log]}", "line 1: `a` job: artifacts must be a mapping with paths, name, untracked, when, expire_in."),
    (
        "a:\n  script: x\n  artifacts:\n    expire_in: soon",
        "line 4: `a` job: artifacts: expire_in: `soon` is not valid:"
        " it is not a duration, such as `30 minutes`, `1 week 2 days` or `never`.",
    ),
    ("a: {script: x, variables: [A]}", "line 1: `a` job: variables must be a mapping of names to strings."),
    ("a: {script: x, variables: {A: [1]}}", "line 1: `a` job: variables: A should be a string."),
    ("a: {script: x, variables: {'A=B': 1}}", "line 1: `a` job: variables: `A=B` is not a valid variable name."),
    ("a: {script: x, dependencies: [b]}", "line 1: `a` job: dependencies: job `b` does not exist."),
    ("a: {script: x, dependencies: [a]}", "line 1: `a` job: dependencies: `a` is not in an earlier stage."),
    ("a: {script: x}\na: {script: y}", "line 2: The key `a` is repeated; it was first defined in line 1."),
    ("a:\n\tscript: x", "line 2: The file is not valid YAML: while scanning for the next token,"
     " found character that cannot start any token."
     " Indent with spaces, not with tabs."),
    ("[a]: b", "line 1: A key must be a string, not a list or a mapping."),
    ("~: b", "line 1: A key is empty. Give it a name."),
    ("a: *b", "line 1: The anchor `b` is not defined above this line."),
    ("a: &a [*a]", "line 1: The anchor `a` refers to a value that contains itself."),
    ("<<: [x]", "line 1: The value of `<<` must be a mapping or a list of mappings."),
    ("a: {script: x}\n---\nb: {script: y}", "line 2: A second document begins here. The file must contain one document."),
    ("a: !!python/object/apply:os.system [x]", "line 1: The tag `tag:yaml.org,2002:python/object/apply:os.system` is not supported."
     " Remove it."),
    ("a: {script: !reference [x]}", "line 1: The tag `!reference` is not supported. Remove it."),
    ('a: {script: "\\0"}', "line 1: A string cannot contain the character NUL or a lone surrogate."),
    ("a: 1\nb: \x01", "line 2: The file contains a character that YAML does not allow."),
    ("a: \ud800", "line 1: The file is not UTF-8."),
]  # fmt: skip


class TestInvalidFiles:
    @pytest.mark.parametrize(("text", "message"), WRONG, ids=[text[:40].encode("ascii", "replace").decode() for text, _ in WRONG])
    def test_errors_have_line_and_reason(self, text: str, message: str) -> None:
        assert config_problems(text) == [message]

    def test_a_bounded_number_of_jobs_is_reported(self) -> None:
        assert config_problems("a: {}\nb: {script: x}\nc: {script: x, stage: y}\n") == [
            "line 1: `a` job: `script` is missing. The name of a template without a script must begin with a dot.",
            "line 3: `c` job: the stage `y` is not one of `build`, `test`, `deploy`.",
        ]
        assert len(config_problems("\n".join(f"job{number}: {{}}" for number in range(100)))) == 20

    def test_a_long_name_makes_no_long_message(self) -> None:
        (output,) = config_problems(f"{'n' * 100}: x")
        assert len(output) < 150


def billion_laughs() -> str:
    lines = [".a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f".a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12)]
    return "\n".join(lines)


HOSTILE: dict[str, tuple[str, str]] = {
    "too large": ("a" * (yaml_documents.MAX_BYTES + 1), "The file has 262145 bytes; the limit is 262144."),
    "a billion nodes": (billion_laughs(), "values, with aliases expanded"),
    "a text repeated": (f".a: &a {'x' * 200_000}\n.b: [*a, *a, *a]\n", "characters, with aliases expanded"),
    "lists in lists": ("[" * 200_000, "levels deep"),
    "mappings in mappings": ("a: " + "{a: " * 50_000, "levels deep"),
    "dashes": ("- " * 100_000, "levels deep"),
    "many nodes": ("a: [" + "x," * 30_000 + "]", "more than 20000 values"),
    "many jobs": ("\n".join(f"job{n}: {{script: x}}" for n in range(501)), "more than 500 jobs"),
    "many stages": (f"stages: [{', '.join(f's{n}' for n in range(101))}]", "the limit is 100"),
    "many tags": (f"a: {{script: x, tags: [{', '.join(f't{n}' for n in range(21))}]}}", "the limit is 20"),
    "many expressions": (
        "\n".join(f"job{n}: {{script: x, only: [/a{n}/]}}" for n in range(101)),
        "more than 100 different regular expressions",
    ),
    "a long expression": (f"a: {{script: x, only: [/{'a' * 300}/]}}", "more than 255 characters"),
    "a large expression": ("a: {script: x, only: ['/" + "\\pL{1000}" + "/']}", "is not a valid RE2 expression"),
    "a long name": (f"{'n' * 256}: {{script: x}}", "too long (maximum is 255 characters)"),
    "a long stage": (f"stages: [{'n' * 256}]", "too long (maximum is 255 characters)"),
    "global parts in many jobs": (
        f"before_script: [{'x' * 10_000}]\n" + "\n".join(f"job{n}: {{script: x}}" for n in range(100)),
        "exceed 524288 bytes",
    ),
    "a long number": (f"a: {'9' * 100_000}", "Unknown parameter"),
    "sexagesimal": (f"a: {'1:' * 50_000}1", "Unknown parameter"),
    "question marks": ("? " * 100_000, "levels deep"),
    "colons": (": " * 100_000, "The file is not valid YAML"),
    "quotes": ('a: "' + "\\x41" * 60_000, "The file is not valid YAML"),
    "a long anchor": (f"a: &{'b' * 200_000} x", "Unknown parameter"),
    "directives": ("%TAG !e! x\n" * 20_000, "The file is not valid YAML"),
}


def has_same_values(read: Any, expected: Any) -> bool:
    """Whether a document is the one that PyYAML has read, which leaves all scalars strings."""
    if isinstance(expected, dict):
        return isinstance(read, dict) and read.keys() == expected.keys() and all(has_same_values(read[key], expected[key]) for key in read)
    if isinstance(expected, list):
        return isinstance(read, list) and len(read) == len(expected) and all(map(has_same_values, read, expected))
    return bool(read == expected) or (read is None and expected in (None, "", "~"))


class TestHostileFiles:
    @pytest.mark.parametrize("name", HOSTILE)
    def test_is_rejected_in_time(self, name: str) -> None:
        text, output = HOSTILE[name]
        begun = thread_time()
        assert output in config_problems(text)[0]
        assert thread_time() - begun < SECONDS

    def test_an_expression_that_backtracks_elsewhere_takes_no_time(self) -> None:
        text = "a: {script: x, only: [/^(a+)+$/, '/^(a|a)*b$/', /(.*)(.*)(.*)(.*)x$/]}"
        begun = thread_time()
        assert run_for(text, "a" * 254 + "!") == []
        assert thread_time() - begun < SECONDS

    def test_the_largest_valid_file_is_read_in_time(self) -> None:
        patterns = ", ".join(f"'/{'(a?){30}' * 20}{n}$/'" for n in range(100))
        text = f".refs: &refs [{patterns}]\n" + "\n".join(f"job{n}: {{script: x, only: *refs}}" for n in range(25))
        begun = thread_time()
        assert run_for(text, "a" * 255) == []
        assert thread_time() - begun < SECONDS

    @settings(deadline=None, max_examples=200)
    @given(st.text(alphabet="ab:-[]{}&*<>|!%@`'\"#?,~ \n\t0.é\x00\ud800", max_size=60))
    def test_random_text_is_read_or_rejected(self, text: str) -> None:
        try:
            found = parse_document(text)
        except PipelineConfigError as error:
            assert error.problems
        else:
            read = None if found is None else to_json(found)
            # PyYAML does not merge the mappings of `<<`.
            assert "<<" in text or has_same_values(read, yaml.load(text, Loader=getattr(yaml, "CBaseLoader", yaml.BaseLoader)))

    @settings(deadline=None, max_examples=40)
    @given(
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.text(max_size=5),
            lambda inner: (
                st.lists(inner, max_size=3)
                | st.dictionaries(st.sampled_from([*config_parser.JOB_KEYS, *config_parser.GLOBAL_KEYS, "a"]), inner)
            ),
            max_leaves=12,
        )
    )
    def test_random_values_are_read_or_rejected(self, value: Any) -> None:
        import json

        for text in (json.dumps(value), json.dumps({"a": value}), json.dumps({"a": {"script": "x"}, "stages": value})):
            try:
                parse_config(text)
            except PipelineConfigError as error:
                assert all(problem.message for problem in error.problems)


class TestJobSelection:
    @pytest.mark.parametrize(
        ("refs", "ref", "tag", "runs"),
        [
            ("only: [master]", "master", False, True),
            ("only: [master]", "master2", False, False),
            ("only: master", "master", False, True),
            ("only: [branches]", "any", False, True),
            ("only: [branches]", "v1", True, False),
            ("only: [tags]", "v1", True, True),
            ("only: [tags]", "any", False, False),
            ("only: [/^v\\d+$/]", "v12", True, True),
            ("only: [/^v\\d+$/]", "xv12", True, False),
            ("only: [/release/]", "a-release-b", False, True),
            ("only: [/RELEASE/]", "release", False, False),
            ("only: [/RELEASE/i]", "release", False, True),
            ("only: [/a@b/]", "xa@bx", False, True),
            ("only: [feature@a/b]", "feature@a/b", False, True),
            ("only: [master@group/project]", "master", False, True),
            ("only: [master@Group/Project]", "master", False, True),
            ("only: [master@group/other]", "master", False, False),
            ("only: [/^m/@group/project]", "master", False, True),
            ("only: [/^m/i@group/other]", "master", False, False),
            ("only: [branches@group/project]", "master", False, True),
            ("except: [master]", "master", False, False),
            ("except: [master]", "other", False, True),
            ("except: [tags]", "v1", True, False),
            ("except: [master@group/other]", "master", False, True),
            ("only: [branches], except: [/^wip/]", "wip-1", False, False),
            ("only: [branches], except: [/^wip/]", "x", False, True),
            ("only: []", "x", False, True),
            ("only: [triggers]", "x", False, False),
            ("only: [2015]", "2015", False, True),
        ],
    )
    def test_refs(self, refs: str, ref: str, tag: bool, runs: bool) -> None:
        assert run_for(f"a: {{script: x, {refs}}}", ref, tag=tag) == (["a"] if runs else [])

    def test_without_any_a_job_runs_for_every_branch_and_tag(self) -> None:
        assert run_for("a: {script: x}", "b") == run_for("a: {script: x}", "v", tag=True) == ["a"]

    def test_a_too_long_ref_name_is_not_built(self) -> None:
        assert run_for("a: {script: x}", "b" * 256) == []


class TestCoverage:
    @pytest.mark.parametrize(
        ("expression", "trace", "found"),
        [
            (r"\d+%", "TOTAL 80%\n", 80.0),
            (r"(\d+\.\d+)%", "10.5%\nall 99.25% covered\n", 99.25),
            (r"a (\d+) b (\d+)", "a 1 b 2", 2.0),
            (r"\d+%", "1% 2%\nend", 2.0),
            (r"TOTAL.*", "TOTAL 12 of 13", 12.0),
            (r"(\d+)%", "\x1b[32m42%\x1b[0m", 42.0),
            (r"(x)|\d", "7", None),
            (r"\d+", "101", None),
            (r"covered", "covered", None),
            (r"\d+", "nothing", None),
            (r"(", "1", None),
            (r"\d+", "\ud800 5", 5.0),
            (r"", "5", None),
        ],
    )
    def test_is_the_last_that_the_expression_finds(self, expression: str, trace: str, found: float | None) -> None:
        assert parse_coverage({"coverage": expression}, trace) == found

    @pytest.mark.parametrize("options", [{}, {"coverage": None}, {"coverage": 5}])
    def test_without_an_expression_there_is_none(self, options: dict[str, Any]) -> None:
        assert parse_coverage(options, "5%") is None

    @pytest.mark.parametrize("expression", ["a(.*b)?", "(a?){900}b", "(.*)(.*)(.*)c", "a|(a.*)+b"])
    def test_is_limited_to_a_second(self, expression: str) -> None:
        begun = thread_time()
        parse_coverage({"coverage": expression}, ("a" * 1_999 + "\n") * 40)
        assert thread_time() - begun < SECONDS
