"""`.gitlab-ci.yml` with `include`, `extends` and a version: what is merged, and the bounds of it."""

from time import thread_time

import pytest

from graph.rules.ci import config_expansion, config_parser
from graph.rules.ci.config_errors import PipelineConfigError
from graph.rules.ci.config_parser import parse_config
from graph.rules.ci.job_selection import PipelineConfig
from storage.tables import RunWhen
from tests.graph.builds.test_pipelines import PushScenario
from tests.make import DataFactory
from tests.support.api_clients import Ask

LINT = """query ($path: String!, $content: String!) { ciConfig(projectPath: $path, content: $content) {
    valid errors { message line file } jobs { name environment needs } } }"""


def parse(text: str, version: tuple[int, int] | None = None, **files: str) -> PipelineConfig:
    """Parse a file; the others are at `NAME.yml`."""

    def read(path: str) -> str:
        if (name := path.removesuffix(".yml")) not in files:
            raise PipelineConfigError.from_message("The commit has no such file.")
        return files[name]

    return parse_config(text, read, version)


def problem(text: str, version: tuple[int, int] | None = None, **files: str) -> str:
    with pytest.raises(PipelineConfigError) as caught:
        parse(text, version, **files)
    return str(caught.value)


class TestExtends:
    def test_merges_deeply_and_the_job_wins(self) -> None:
        config = parse("""
.base: {variables: {A: 1, B: 1}, tags: [x], script: base, only: [master]}
.more: {extends: .base, variables: {B: 2, C: 2}}
.other: {tags: [y], cache: {paths: [p], key: k}}
a: {extends: [.more, .other], script: own, variables: {C: 3}, cache: {key: l}}
b: {extends: a, stage: deploy}
""")
        a, b = config.jobs
        assert (a.commands, a.tags, [each.text for each in a.only or ()]) == ("own", ("y",), ["master"])
        assert a.options == {"variables": {"A": "1", "B": "2", "C": "3"}, "cache": {"paths": ["p"], "key": "l"}}
        assert (b.name, b.stage, b.commands, b.options) == ("b", "deploy", "own", a.options)

    def test_errors(self) -> None:
        assert problem("a: {script: x, extends: .b}") == "line 1: `a` job: extends: `.b` is not a job or template of the file."
        assert (
            problem(".a: {extends: .b}\n.b: {extends: .a}\nc:\n  script: x\n  extends: .a")
            == "line 2: `.b` job: extends: `.a` extends itself."
        )
        assert problem("a: {script: x, extends: a}") == "line 1: `a` job: extends: `a` extends itself."
        assert problem("a: {script: x, extends: {b: c}}") == (
            "line 1: `a` job: extends should be the name of a job or template, or a list of names."
        )
        chain = "".join(f".t{n}: {{extends: .t{n + 1}}}\n" for n in range(10))
        assert "extend each other more than 10 times" in problem(f"a: {{extends: .t0, script: x}}\n{chain}.t10: {{tags: [x]}}")

    def test_is_bounded(self) -> None:
        # Keys of `cache` that are ignored do not count among the bytes of the jobs.
        ignored = "".join(f"    k{n}: x\n" for n in range(2_000))
        jobs = "".join(f"j{n}: {{extends: .t, script: x, cache: {{k0: y}}}}\n" for n in range(400))
        begun = thread_time()
        assert "merge more than 50000 entries" in problem(f".t:\n  cache:\n{ignored}{jobs}")
        twice = "".join(f".t{n + 1}: {{extends: [{', '.join([f'.t{n}'] * 50)}]}}\n" for n in range(8))
        assert "merge more than 50000 entries" in problem(f".t0:\n  cache:\n{ignored}{twice}a: {{extends: .t8, script: x}}")
        assert thread_time() - begun < 5


class TestInclude:
    def test_merges_files_and_the_file_wins(self) -> None:
        config = parse(
            "include: [one.yml, {local: /two.yml}]\nvariables: {B: 3}\nb: {tags: [z]}\nc: {extends: .t, stage: deploy}",
            one="variables: {A: 1, B: 1}\nb: {script: one, tags: [x]}\n.t: {script: t}",
            two="include: three.yml\nb: {script: two}",
            three="stages: [test, deploy]\nvariables: {C: 4}",
        )
        assert config.stages == ("test", "deploy")
        b, c = config.jobs
        assert (b.commands, b.tags, b.options["variables"]) == ("two", ("z",), {"A": "1", "B": "3", "C": "4"})
        assert (c.commands, c.stage) == ("t", "deploy")

    def test_errors_name_the_file(self) -> None:
        assert problem("\ninclude: a.yml", a="x:\n  script: y\n  stage: z") == (
            "a.yml, line 3: `x` job: the stage `z` is not one of `build`, `test`, `deploy`."
        )
        assert problem("include: a.yml", a="x: y: z").startswith("a.yml, line 1: The file is not valid YAML")
        assert problem("include: a.yml") == "line 1: include: `a.yml`: The commit has no such file."
        assert problem("include: a.yml", a="[x]") == "a.yml, line 1: The file must be a mapping of job names to jobs."
        assert problem("include: a.yml", a="include: b.yml", b="\ninclude: a.yml") == "b.yml, line 2: include: `a.yml` includes itself."
        assert problem("include: {remote: 'https://x/y.yml'}") == (
            "line 1: include: `remote` is not supported. Copy the file into this repository, and write `include: path/of/it.yml`."
        )
        assert problem("include: 'https://x/y.yml'").endswith("is not in this repository. Copy the file into it, and write its path.")
        for path in ("../a.yml", "a/../b.yml", "a.txt", "a//b.yml", "/", "x" * 260 + ".yml"):
            assert "should be the path of a file that ends in .yml or .yaml" in problem(f"include: {path}")
        assert problem("include: [[a.yml]]").startswith("line 1: include should be the path")
        with pytest.raises(PipelineConfigError, match="because there is no commit"):
            parse_config("include: a.yml")

    def test_is_bounded(self) -> None:
        many = {f"f{n}": f"include: [{', '.join(f'f{m}.yml' for m in range(n + 1, 25))}]" for n in range(24)}
        assert "more than 20 files are included" in problem("include: f0.yml", **many, f24="")
        half = "#" * 150_000
        assert problem("include: [a.yml, b.yml]", a=half, b=half) == (
            "The file, with those that it includes has 300023 bytes; the limit is 262144."
        )
        nodes = f".x: [{'x,' * 15_000}]"
        assert "more than 20000 values" in problem("include: [a.yml, b.yml]", a=nodes, b=nodes)
        assert config_expansion.MAX_INCLUDES == 20

    async def test_files_are_those_of_the_commit(self, ask: Ask, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user()), history={"commits": 2})
        pushes = PushScenario(make, await make.indexed(project), owner)
        await pushes("include: /ci/jobs.yml", **{"ci/jobs.yml": "a: {script: one}"})
        await pushes("include: /ci/jobs.yml", **{"ci/jobs.yml": "b: {script: two, environment: live}"})
        await pushes("include: /ci/jobs.yml", **{"ci/jobs.yml": "b: {}"})
        assert {name: build.commands for name, build in (await pushes.builds()).items()} == {"a": "one", "b": "two"}
        assert [pipeline.error for pipeline in await pushes.pipelines()][2] == (
            "ci/jobs.yml, line 1: `b` job: `script` is missing. The name of a template without a script must begin with a dot."
        )
        path = str(project.id)
        found = (await ask.data(LINT, owner, path=path, content="include: ci/jobs.yml"))["ciConfig"]
        assert [(each["line"], each["file"]) for each in found["errors"]] == [(1, "ci/jobs.yml")]
        await pushes(
            "include: /ci/jobs.yml", **{"ci/jobs.yml": "b: {script: two, environment: live}\nc: {stage: deploy, script: x, needs: [b]}"}
        )
        found = (await ask.data(LINT, owner, path=path, content="include: ci/jobs.yml"))["ciConfig"]
        assert found == {
            "valid": True,
            "errors": [],
            "jobs": [{"name": "b", "environment": "live", "needs": None}, {"name": "c", "environment": None, "needs": ["b"]}],
        }


class TestVersion:
    def test_newer_keys_are_judged_as_the_version_did(self) -> None:
        late = "it came with {}, and the file is one of an older version."
        for version, text, message in (
            ("8.5", "a: {script: x, after_script: [y]}", f"unknown parameter `after_script`: {late.format('8.7')}"),
            ("9.4", "a: {script: x, retry: 1}", f"unknown parameter `retry`: {late.format('9.5')}"),
            ("8.9", "a: {script: x, when: manual}", "when: `manual` should be on_success, on_failure or always."),
            ("8.10", "a: {script: x, environment: {name: y}}", "environment should be a string."),
            ("8.12", "a: {script: x, environment: {name: y, on_stop: a}}", "environment: unknown key `on_stop`. Supported: name, url."),
            ("8.17", "a: {script: x, parallel: 2}", "unknown parameter `parallel`. Supported:"),
        ):
            assert problem(f"# gitlab-ci {version}\n{text}").startswith(f"line 2: `a` job: {message}"), text
            parts = tuple(map(int, version.split(".")))
            assert problem(text, (parts[0], parts[1])).startswith(f"line 1: `a` job: {message}"), text
        assert problem("# gitlab-ci 8.5\n.a: {tags: [x]}").startswith("line 2: `.a` job: `script` is missing.")
        assert problem("# gitlab-ci 8.17\ninclude: a.yml").startswith("line 2: Unknown parameter `include`")
        (job,) = parse("# gitlab-ci 8.8\na: {script: x, artifacts: {paths: [a], expire_in: soon}}").jobs
        assert job.options == {"artifacts": {"paths": ["a"]}}

    def test_manual_jobs_may_fail_since_nine(self) -> None:
        text = "a: {script: x, when: manual}"
        for version, allowed in ((None, True), ((9, 0), True), ((8, 17), False)):
            (job,) = parse(text, version).jobs
            assert (job.run_when, job.allow_failure) == (RunWhen.MANUAL, allowed)
        (job,) = parse(f"# gitlab-ci 8.17\n{text}", (9, 0)).jobs
        assert job.allow_failure is False

    def test_of_the_first_line(self) -> None:
        assert problem("# gitlab-ci 7.14\na: {script: x}") == (
            "line 1: The version of the first line must be a version from 8.5 on, such as 8.17."
        )
        for line in ("# gitlab-ci is fun", "#gitlab-ci", "# gitlab-ci 8.5.1", "\n# gitlab-ci 8.5"):
            assert parse(f"{line}\na: {{script: x, retry: 1}}").jobs
        assert config_parser.CONFIG_FILENAME == ".gitlab-ci.yml"
