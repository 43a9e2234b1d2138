"""Parses `.gitlab-ci.yml` into jobs, or into problems with their lines and remedies (docs/wire-facts.md 13.1).

All input is bounded, because anyone who may push can write it: see `yaml_documents` for YAML, `expressions` for regular expressions.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import orjson

from graph.rules.ci.config_errors import MAX_PROBLEMS, ConfigProblem, PipelineConfigError, quote
from graph.rules.ci.expressions import InvalidExpression, compile_expression
from graph.rules.ci.job_selection import JobConfig, PipelineConfig, RefPattern
from graph.rules.ci.yaml_documents import MappingEntry, MappingNode, Node, ScalarNode, SequenceNode, parse_document, to_json
from storage.tables import RunWhen

CONFIG_FILENAME = ".gitlab-ci.yml"
DEFAULT_STAGES = ("build", "test", "deploy")
DEFAULT_STAGE = "test"
MAX_JOBS = 500
MAX_STAGES = 100
MAX_TAGS = 20
MAX_EXPRESSIONS = 100
"""Distinct regular expressions per file."""
MAX_NAME_LENGTH = 255
MAX_JOBS_BYTES = 512 * 1024
"""Bytes of all jobs as JSON, each with the global options it inherits."""

GLOBAL_KEYS = frozenset(("before_script", "after_script", "stages", "types", "variables", "image", "services", "cache"))
JOB_KEYS = (
    *("script", "before_script", "after_script", "stage", "type", "only", "except", "tags", "allow_failure", "when", "variables"),
    *("artifacts", "image", "services", "cache", "dependencies", "coverage"),
)
ARTIFACTS_KEYS = ("paths", "name", "untracked", "when")
CACHE_KEYS = ("paths", "key", "untracked")


def parse_config(source: str) -> PipelineConfig:
    """Parse the file. Raises PipelineConfigError."""
    root = parse_document(source)
    if root is None:
        raise PipelineConfigError.from_message("The file has no jobs. Define one with a `script`.")
    if not isinstance(root, MappingNode):
        raise PipelineConfigError.from_message("The file must be a mapping of job names to jobs.", root.line)
    return _ConfigParser(root).parse()


@dataclass(slots=True)
class _ConfigParser:
    root: MappingNode
    problems: list[ConfigProblem] = field(default_factory=list)
    expressions: set[tuple[str, bool]] = field(default_factory=set)

    def parse(self) -> PipelineConfig:
        entries = {key: entry for key, entry in self.root.entries.items() if key not in GLOBAL_KEYS or not _is_empty(entry)}
        stages: tuple[str, ...] = DEFAULT_STAGES
        shared: dict[str, Any] = {}
        before: list[str] = []
        with self._collect_errors():
            stages = self._parse_stages(entries)
        if self.problems:
            # Without valid stages, every job would be reported for its stage.
            raise PipelineConfigError(self.problems)
        with self._collect_errors():
            before = self._parse_lines("before_script", entries.get("before_script"))
        with self._collect_errors():
            shared = self._parse_options("", entries, ("after_script", "variables", "image", "services", "cache"))
        jobs = []
        for name, entry in entries.items():
            if name in GLOBAL_KEYS or name.startswith("."):
                continue
            with self._collect_errors():
                jobs.append(self._parse_job(name, entry, stages, before, shared))
                if len(jobs) > MAX_JOBS:
                    raise PipelineConfigError.from_message(f"The file has more than {MAX_JOBS} jobs.", entry.line)
            if len(self.problems) >= MAX_PROBLEMS or len(jobs) > MAX_JOBS:
                break
        if not self.problems:
            with self._collect_errors():
                self._check_jobs(jobs)
        if self.problems:
            raise PipelineConfigError(sorted(self.problems, key=lambda problem: problem.line or 0)[:MAX_PROBLEMS])
        return PipelineConfig(stages, tuple(sorted(jobs, key=lambda job: job.stage_index)))

    @contextmanager
    def _collect_errors(self) -> Iterator[None]:
        """Collect problems and continue, so that the author sees those of all jobs at once."""
        try:
            yield
        except PipelineConfigError as error:
            self.problems += error.problems

    def _parse_stages(self, entries: dict[str, MappingEntry]) -> tuple[str, ...]:
        key = "stages" if "stages" in entries else "types"
        entry = entries.get(key)
        if entry is None:
            return DEFAULT_STAGES
        names = self._parse_strings(key, entry)
        if not names:
            raise PipelineConfigError.from_message(
                f"{key} is empty. Add a stage, or remove {key} to use {', '.join(DEFAULT_STAGES)}.", entry.line
            )
        if len(names) > MAX_STAGES:
            raise PipelineConfigError.from_message(f"{key} has {len(names)} stages; the limit is {MAX_STAGES}.", entry.line)
        for name in names:
            self._check_name(f"the stage {quote(name)}", name, entry.line)
        return tuple(dict.fromkeys(names))

    def _parse_job(self, name: str, entry: MappingEntry, stages: tuple[str, ...], before: list[str], shared: dict[str, Any]) -> JobConfig:
        location = f"{quote(name)} job"
        if not isinstance(entry.value, MappingNode):
            raise PipelineConfigError.from_message(f"Unknown parameter {quote(name)}: a job is a mapping with a `script`.", entry.line)
        self._check_name(location, name, entry.line)
        # As on the server of that time, a key without a value is absent; a job needs its script.
        parts = {key: part for key, part in entry.value.entries.items() if key == "script" or not _is_empty(part)}
        for key, part in entry.value.entries.items():
            if key not in JOB_KEYS:
                raise PipelineConfigError.from_message(
                    f"{location}: unknown parameter {quote(key)}. Supported: {', '.join(JOB_KEYS)}.", part.line
                )
        if "script" not in parts:
            raise PipelineConfigError.from_message(
                f"{location}: `script` is missing. The name of a template without a script must begin with a dot.", entry.line
            )
        script = self._parse_lines(f"{location}: script", parts["script"])
        if not any(line.strip() for line in script):
            raise PipelineConfigError.from_message(f"{location}: the script is empty.", parts["script"].line)
        if "before_script" in parts:
            before = self._parse_lines(f"{location}: before_script", parts["before_script"])
        stage, stage_line = DEFAULT_STAGE, entry.line
        for key in ("type", "stage"):
            if key in parts:
                stage, stage_line = self._parse_string(f"{location}: {key}", parts[key]), parts[key].line
        if stage not in stages:
            raise PipelineConfigError.from_message(
                f"{location}: the stage {quote(stage)} is not one of {', '.join(map(quote, stages[:20]))}.", stage_line
            )
        options = {
            **shared,
            **self._parse_options(f"{location}: ", parts, ("after_script", "image", "services", "cache", "artifacts", "dependencies")),
        }
        if "variables" in parts:
            options["variables"] = {**shared.get("variables", {}), **self._parse_variables(f"{location}: variables", parts["variables"])}
        if "coverage" in parts:
            options["coverage"] = self._parse_coverage(f"{location}: coverage", parts["coverage"])
        return JobConfig(
            name=name,
            stage=stage,
            stage_index=stages.index(stage),
            commands="\n".join([*before, *script]),
            tags=self._parse_tags(f"{location}: tags", parts.get("tags")),
            allow_failure=self._parse_boolean(f"{location}: allow_failure", parts["allow_failure"]) if "allow_failure" in parts else False,
            run_when=RunWhen(self._parse_choice(f"{location}: when", parts["when"], [*RunWhen])) if "when" in parts else RunWhen.ON_SUCCESS,
            only=self._parse_refs(f"{location}: only", parts.get("only")),
            excepted=self._parse_refs(f"{location}: except", parts.get("except")),
            options=options,
            line=entry.line,
        )

    def _check_jobs(self, jobs: list[JobConfig]) -> None:
        """Validate what involves several jobs."""
        if not jobs:
            raise PipelineConfigError.from_message("The file has no jobs. Define one with a `script`.", self.root.line)
        stage_indexes = {job.name: job.stage_index for job in jobs}
        for job in jobs:
            for name in job.options.get("dependencies", ()):
                if name not in stage_indexes:
                    raise PipelineConfigError.from_message(
                        f"{quote(job.name)} job: dependencies: job {quote(name)} does not exist.", job.line
                    )
                if stage_indexes[name] >= job.stage_index:
                    raise PipelineConfigError.from_message(
                        f"{quote(job.name)} job: dependencies: {quote(name)} is not in an earlier stage.", job.line
                    )
        size = 0
        for job in jobs:
            size += len(orjson.dumps(job.serialize()))
            if size > MAX_JOBS_BYTES:
                raise PipelineConfigError.from_message(f"All jobs, each with the global options, exceed {MAX_JOBS_BYTES} bytes.", job.line)

    def _parse_options(self, location: str, parts: dict[str, MappingEntry], keys: tuple[str, ...]) -> dict[str, Any]:
        parsers: dict[str, Callable[[str, MappingEntry], Any]] = {
            "after_script": self._parse_lines,
            "variables": self._parse_variables,
            "image": self._parse_string,
            "services": self._parse_strings,
            "cache": partial(self._parse_file_patterns, CACHE_KEYS),
            "artifacts": partial(self._parse_file_patterns, ARTIFACTS_KEYS),
            "dependencies": self._parse_strings,
        }
        return {key: parsers[key](f"{location}{key}", parts[key]) for key in keys if key in parts}

    def _parse_file_patterns(self, allowed: tuple[str, ...], location: str, entry: MappingEntry) -> dict[str, Any]:
        """Parse the `allowed` keys of `artifacts` or `cache`; others are ignored, as on the server of that time."""
        value = entry.value
        if not isinstance(value, MappingNode):
            raise PipelineConfigError.from_message(f"{location} must be a mapping with {', '.join(allowed)}.", entry.line)
        found: dict[str, Any] = {}
        for key, part in value.entries.items():
            if key not in allowed or _is_empty(part):
                continue
            key_path = f"{location}: {key}"
            if key == "paths":
                found[key] = self._parse_strings(key_path, part)
            elif key == "untracked":
                found[key] = self._parse_boolean(key_path, part)
            elif key == "when":
                found[key] = self._parse_choice(key_path, part, [*RunWhen])
            else:
                found[key] = self._parse_string(key_path, part)
        return found

    def _parse_variables(self, location: str, entry: MappingEntry) -> dict[str, str]:
        value = entry.value
        if not isinstance(value, MappingNode):
            raise PipelineConfigError.from_message(f"{location} must be a mapping of names to strings.", entry.line)
        found = {}
        for name, part in value.entries.items():
            if "=" in name or any(letter.isspace() for letter in name):
                raise PipelineConfigError.from_message(f"{location}: {quote(name)} is not a valid variable name.", part.line)
            inner = part.value
            found[name] = (
                "" if isinstance(inner, ScalarNode) and inner.is_null else self._parse_string(f"{location}: {name}", part, allow_empty=True)
            )
        return found

    def _parse_coverage(self, location: str, entry: MappingEntry) -> str:
        text = self._parse_string(location, entry)
        if len(text) < 3 or not (text.startswith("/") and text.endswith("/")):
            raise PipelineConfigError.from_message(
                f"{location} must be a regular expression between slashes, such as /Coverage: (\\d+)%/.", entry.line
            )
        self._check_expression(location, entry.line, text[1:-1])
        return text[1:-1]

    def _parse_refs(self, location: str, entry: MappingEntry | None) -> tuple[RefPattern, ...] | None:
        if entry is None:
            return None
        found = []
        for text in self._parse_strings(location, entry):
            try:
                pattern = RefPattern.parse(text)
            except InvalidExpression as error:
                raise PipelineConfigError.from_message(
                    f"{location}: {quote(text)} is not a valid RE2 expression: {error}.", entry.line
                ) from error
            if pattern.is_expression:
                self._check_expression(location, entry.line, pattern.name, ignore_case=pattern.ignore_case)
            found.append(pattern)
        return tuple(found)

    def _check_expression(self, location: str, line: int, source: str, *, ignore_case: bool = False) -> None:
        try:
            compile_expression(source, ignore_case=ignore_case)
        except InvalidExpression as error:
            raise PipelineConfigError.from_message(f"{location}: not a valid RE2 expression: {error}.", line) from error
        self.expressions.add((source, ignore_case))
        if len(self.expressions) > MAX_EXPRESSIONS:
            raise PipelineConfigError.from_message(f"The file has more than {MAX_EXPRESSIONS} different regular expressions.", line)

    def _parse_tags(self, location: str, entry: MappingEntry | None) -> tuple[str, ...]:
        if entry is None:
            return ()
        found = sorted({text.strip() for text in self._parse_strings(location, entry)})
        if len(found) > MAX_TAGS:
            raise PipelineConfigError.from_message(f"{location}: has {len(found)} tags; the limit is {MAX_TAGS}.", entry.line)
        for text in found:
            self._check_name(location, text, entry.line)
            if "," in text:
                raise PipelineConfigError.from_message(
                    f"{location}: {quote(text)} contains a comma. Put each tag on its own line.", entry.line
                )
        return tuple(found)

    def _parse_lines(self, location: str, entry: MappingEntry | None) -> list[str]:
        """The lines of a script: a string, or a list of strings and nested lists, which aliases produce."""
        return [] if entry is None else list(_flatten_lines(location, entry.value, entry.line))

    def _parse_strings(self, location: str, entry: MappingEntry) -> list[str]:
        value = entry.value
        items = value.items if isinstance(value, SequenceNode) else [value]
        if isinstance(value, MappingNode) or not all(
            isinstance(item, ScalarNode) and not item.is_null and item.value.strip() for item in items
        ):
            raise PipelineConfigError.from_message(f"{location} should be a list of strings.", entry.line)
        return [item.value for item in items if isinstance(item, ScalarNode)]

    def _parse_string(self, location: str, entry: MappingEntry, *, allow_empty: bool = False) -> str:
        value = entry.value
        if not isinstance(value, ScalarNode) or ((value.is_null or not value.value.strip()) and not allow_empty):
            raise PipelineConfigError.from_message(f"{location} should be a string.", entry.line)
        return value.value

    def _parse_boolean(self, location: str, entry: MappingEntry) -> bool:
        found = to_json(entry.value)
        if not isinstance(found, bool):
            raise PipelineConfigError.from_message(f"{location} should be true or false.", entry.line)
        return found

    def _parse_choice(self, location: str, entry: MappingEntry, choices: list[RunWhen]) -> str:
        text = self._parse_string(location, entry)
        if text not in choices:
            raise PipelineConfigError.from_message(
                f"{location}: {quote(text)} should be {', '.join(choices[:-1])} or {choices[-1]}.", entry.line
            )
        return text

    def _check_name(self, location: str, name: str, line: int) -> None:
        if len(name) > MAX_NAME_LENGTH:
            raise PipelineConfigError.from_message(f"{location}: the name is too long (maximum is {MAX_NAME_LENGTH} characters).", line)


def _is_empty(entry: MappingEntry) -> bool:
    """Whether nothing is written behind the key."""
    return isinstance(entry.value, ScalarNode) and entry.value.is_null


def _flatten_lines(location: str, node: Node, line: int) -> Iterator[str]:
    if isinstance(node, SequenceNode):
        for item in node.items:
            yield from _flatten_lines(location, item, item.line)
    elif isinstance(node, MappingNode):
        raise PipelineConfigError.from_message(
            f"{location} should be a string or a list of strings. Put quotes around a line that contains `: `.", line
        )
    elif node.is_null:
        raise PipelineConfigError.from_message(f"{location} should be a string or a list of strings, but it is empty.", line)
    else:
        yield node.value
