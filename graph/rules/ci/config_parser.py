"""Parses `.gitlab-ci.yml` into jobs, or into problems with their lines and remedies (docs/wire-facts.md 13.1).

All input is bounded, because anyone who may push can write it: see `yaml_documents` for YAML, `expressions` for regular expressions.
A value that jobs share, by `extends` or an alias, is parsed once, so that the work depends on the size of the file and not on the jobs.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

import orjson

from graph.rules.builds.deployments import STOP
from graph.rules.ci import job_options
from graph.rules.ci.config_errors import MAX_PROBLEMS, ConfigProblem, PipelineConfigError, quote
from graph.rules.ci.config_expansion import FileReader, MergeBudget, TemplateExpander, expand_includes
from graph.rules.ci.config_values import check_name, is_empty, parse_boolean, parse_choice, parse_lines, parse_string, parse_strings
from graph.rules.ci.config_versions import (
    HIDDEN_KEYS_SINCE,
    INCLUDE_SINCE,
    KEYS_SINCE,
    MANUAL_IS_ALLOWED_TO_FAIL_SINCE,
    MANUAL_SINCE,
    OLDEST,
    CiVersion,
    is_known,
    version_of_file,
)
from graph.rules.ci.expressions import ExpressionBudget, InvalidExpression, TooManyExpressions
from graph.rules.ci.job_rules import JobRule
from graph.rules.ci.job_selection import JobConfig, PipelineConfig, RefPattern
from graph.rules.ci.rules_parser import parse_rules
from graph.rules.ci.unsupported_keys import UNSUPPORTED_GLOBAL_KEYS, UNSUPPORTED_JOB_KEYS
from graph.rules.ci.yaml_documents import DocumentBudget, MappingEntry, MappingNode, Node, parse_document
from storage.git.cancellation import check_canceled
from storage.tables import RunWhen

T = TypeVar("T")

CONFIG_FILENAME = ".gitlab-ci.yml"
DEFAULT_STAGES = ("build", "test", "deploy")
DEFAULT_STAGE = "test"
MAX_JOBS = 500
MAX_STAGES = 100
MAX_TAGS = 20
MAX_JOBS_BYTES = 512 * 1024
"""Bytes of all jobs as JSON, each with the global options it inherits."""

GLOBAL_KEYS = frozenset(("before_script", "after_script", "stages", "types", "variables", "image", "services", "cache", "include"))
JOB_KEYS = (
    *("script", "before_script", "after_script", "stage", "type", "only", "except", "tags", "allow_failure", "when", "variables"),
    *("artifacts", "image", "services", "cache", "dependencies", "coverage", "retry", "environment", "rules", "needs", "extends"),
)


def parse_config(source: str, read_file: FileReader | None = None, version: CiVersion | None = None) -> PipelineConfig:
    """Parse the file. Raises PipelineConfigError.

    `read_file` returns files that it includes. The rules of `version` hold unless its first line names another; None is the newest.
    """
    try:
        version = version_of_file(source) or version
    except ValueError as error:
        raise PipelineConfigError.from_message(f"The version of the first line {error}.", 1) from error
    budget, merges = DocumentBudget(), MergeBudget()
    root = parse_document(source, budget=budget)
    if root is None:
        raise PipelineConfigError.from_message("The file has no jobs. Define one with a `script`.")
    if not isinstance(root, MappingNode):
        raise PipelineConfigError.from_message("The file must be a mapping of job names to jobs.", root.line)
    if is_known(version, INCLUDE_SINCE):
        root = expand_includes(root, read_file, budget, merges)
    return _ConfigParser(root, TemplateExpander(root, merges), version).parse()


@dataclass(slots=True)
class _ConfigParser:
    root: MappingNode
    templates: TemplateExpander
    version: CiVersion | None
    problems: list[ConfigProblem] = field(default_factory=list)
    expressions: ExpressionBudget = field(default_factory=ExpressionBudget)
    jobs_bytes: int = 0
    parsed: dict[tuple[str, int], tuple[Node, Any]] = field(default_factory=dict)
    """Results by key and identity of the node, with the node, so that the identity remains its own."""

    def parse(self) -> PipelineConfig:
        entries = {key: entry for key, entry in self.root.entries.items() if not self._is_global(key) or not is_empty(entry)}
        stages: tuple[str, ...] = DEFAULT_STAGES
        shared: dict[str, Any] = {}
        before: list[str] = []
        with self._collect_errors():
            stages = self._parse_stages(entries)
        if self.problems:
            # Without valid stages, every job would be reported for its stage.
            raise PipelineConfigError(self.problems)
        with self._collect_errors():
            before = parse_lines("before_script", entries.get("before_script"))
        with self._collect_errors():
            keys = ("after_script", "variables", "image", "services", "cache")
            shared = self._parse_options("", entries, tuple(key for key in keys if self._is_global(key)))
        jobs = []
        for name, entry in entries.items():
            if self._is_global(name) or (name.startswith(".") and is_known(self.version, HIDDEN_KEYS_SINCE)):
                continue
            with self._collect_errors():
                check_canceled()
                jobs.append(self._parse_job(name, entry, stages, before, shared))
                # Before the next job is built: global options of 256 KiB in 500 jobs would take 125 MiB.
                self.jobs_bytes += len(orjson.dumps(jobs[-1].serialize()))
                if len(jobs) > MAX_JOBS:
                    raise PipelineConfigError.from_message(f"The file has more than {MAX_JOBS} jobs.", entry.line)
                if self.jobs_bytes > MAX_JOBS_BYTES:
                    raise PipelineConfigError.from_message(
                        f"All jobs, each with the global options, exceed {MAX_JOBS_BYTES} bytes.", entry.line
                    )
            if len(self.problems) >= MAX_PROBLEMS or len(jobs) > MAX_JOBS or self.jobs_bytes > MAX_JOBS_BYTES:
                break
        if not self.problems:
            with self._collect_errors():
                self._check_jobs(jobs)
        if self.problems:
            raise PipelineConfigError(sorted(self.problems, key=lambda problem: problem.line or 0)[:MAX_PROBLEMS])
        return PipelineConfig(stages, tuple(sorted(jobs, key=lambda job: job.stage_index)))

    def _is_global(self, key: str) -> bool:
        """Whether a key of the file is not the name of a job; in older versions a later key is one."""
        return key in GLOBAL_KEYS and is_known(self.version, INCLUDE_SINCE if key == "include" else KEYS_SINCE.get(key, OLDEST))

    @contextmanager
    def _collect_errors(self) -> Iterator[None]:
        """Collect problems and continue, so that the author sees those of all jobs at once."""
        try:
            yield
        except PipelineConfigError as error:
            self.problems += error.problems

    def _parse_once(self, key: str, entry: MappingEntry, parse: Callable[[], T]) -> T:
        """The result of `parse` for this value; the one of the first job that has the same node under the key."""
        known = self.parsed.get((key, id(entry.value)))
        if known is None:
            known = self.parsed[key, id(entry.value)] = entry.value, parse()
        found: T = known[1]
        return found

    def _parse_stages(self, entries: dict[str, MappingEntry]) -> tuple[str, ...]:
        key = "stages" if "stages" in entries else "types"
        entry = entries.get(key)
        if entry is None:
            return DEFAULT_STAGES
        names = parse_strings(key, entry)
        if not names:
            raise PipelineConfigError.from_message(
                f"{key} is empty. Add a stage, or remove {key} to use {', '.join(DEFAULT_STAGES)}.", entry.line
            )
        if len(names) > MAX_STAGES:
            raise PipelineConfigError.from_message(f"{key} has {len(names)} stages; the limit is {MAX_STAGES}.", entry.line)
        for name in names:
            check_name(f"the stage {quote(name)}", name, entry.line)
        return tuple(dict.fromkeys(names))

    def _parse_job(self, name: str, entry: MappingEntry, stages: tuple[str, ...], before: list[str], shared: dict[str, Any]) -> JobConfig:
        location = f"{quote(name)} job"
        if name in UNSUPPORTED_GLOBAL_KEYS and not (isinstance(entry.value, MappingNode) and "script" in entry.value.entries):
            raise PipelineConfigError.from_message(f"{quote(name)} is not supported. {UNSUPPORTED_GLOBAL_KEYS[name]}", entry.line)
        node = self.templates.expand(name, entry) if is_known(self.version, KEYS_SINCE["extends"]) else entry.value
        if not isinstance(node, MappingNode):
            raise PipelineConfigError.from_message(f"Unknown parameter {quote(name)}: a job is a mapping with a `script`.", entry.line)
        check_name(location, name, entry.line)
        # As in GitLab 8.5, a key without a value is absent; a job needs its script.
        parts = {key: part for key, part in node.entries.items() if key == "script" or not is_empty(part)}
        for key, part in node.entries.items():
            self._check_key(location, key, part.line)
        if "script" not in parts:
            raise PipelineConfigError.from_message(
                f"{location}: `script` is missing. The name of a template without a script must begin with a dot.", entry.line
            )
        script = self._parse_once("script", parts["script"], lambda: parse_lines(f"{location}: script", parts["script"]))
        if not any(line.strip() for line in script):
            raise PipelineConfigError.from_message(f"{location}: the script is empty.", parts["script"].line)
        if "before_script" in parts:
            part = parts["before_script"]
            before = self._parse_once("before_script", part, partial(parse_lines, f"{location}: before_script", part))
        stage = self._parse_stage(location, parts, stages, entry.line)
        run_when = self._parse_when(f"{location}: when", parts.get("when"))
        options = self._parse_job_options(location, parts, shared)
        needs = None
        if "needs" in parts:
            part = parts["needs"]
            needs = self._parse_once("needs", part, partial(job_options.parse_needs, f"{location}: needs", part))
        return JobConfig(
            name=name,
            stage=stage,
            stage_index=stages.index(stage),
            commands="\n".join([*before, *script]),
            tags=self._parse_tags(f"{location}: tags", parts["tags"]) if "tags" in parts else (),
            allow_failure=(
                parse_boolean(f"{location}: allow_failure", parts["allow_failure"])
                if "allow_failure" in parts
                else run_when is RunWhen.MANUAL and is_known(self.version, MANUAL_IS_ALLOWED_TO_FAIL_SINCE)
            ),
            run_when=run_when,
            only=self._parse_refs(f"{location}: only", parts["only"]) if "only" in parts else None,
            excepted=self._parse_refs(f"{location}: except", parts["except"]) if "except" in parts else None,
            rules=self._parse_rules(location, parts, run_when),
            needs=needs,
            options=options,
            line=entry.line,
        )

    def _parse_stage(self, location: str, parts: dict[str, MappingEntry], stages: tuple[str, ...], line: int) -> str:
        stage = DEFAULT_STAGE
        for key in ("type", "stage"):
            if key in parts:
                stage, line = parse_string(f"{location}: {key}", parts[key]), parts[key].line
        if stage not in stages:
            raise PipelineConfigError.from_message(
                f"{location}: the stage {quote(stage)} is not one of {', '.join(map(quote, stages[:20]))}.", line
            )
        return stage

    def _parse_job_options(self, location: str, parts: dict[str, MappingEntry], shared: dict[str, Any]) -> dict[str, Any]:
        """The options of a job, with those of the file that it does not replace."""
        options = {
            **shared,
            **self._parse_options(f"{location}: ", parts, ("after_script", "image", "services", "cache", "artifacts", "dependencies")),
        }
        if "variables" in parts:
            part = parts["variables"]
            options["variables"] = self._parse_once("variables", part, partial(self._parse_variables, location, part, shared))
        if "coverage" in parts:
            options["coverage"] = self._parse_coverage(f"{location}: coverage", parts["coverage"])
        if "retry" in parts:
            part = parts["retry"]
            options["retry"] = self._parse_once("retry", part, partial(job_options.parse_retry, f"{location}: retry", part))
        if "environment" in parts:
            options["environment"] = job_options.parse_environment(f"{location}: environment", parts["environment"], self.version)
        return options

    def _check_key(self, location: str, key: str, line: int) -> None:
        """Raises PipelineConfigError for a key of a job that this service, or the version of the file, does not know."""
        since = KEYS_SINCE.get(key, OLDEST)
        if key in UNSUPPORTED_JOB_KEYS and self.version is None:
            raise PipelineConfigError.from_message(f"{location}: {quote(key)} is not supported. {UNSUPPORTED_JOB_KEYS[key]}", line)
        if key in JOB_KEYS and not is_known(self.version, since):
            raise PipelineConfigError.from_message(
                f"{location}: unknown parameter {quote(key)}: it came with {since[0]}.{since[1]}, and the file is one of an older version.",
                line,
            )
        if key not in JOB_KEYS:
            raise PipelineConfigError.from_message(f"{location}: unknown parameter {quote(key)}. Supported: {', '.join(JOB_KEYS)}.", line)

    def _parse_when(self, location: str, entry: MappingEntry | None) -> RunWhen:
        choices = [each for each in RunWhen if each is not RunWhen.MANUAL or is_known(self.version, MANUAL_SINCE)]
        return RunWhen(parse_choice(location, entry, choices)) if entry is not None else RunWhen.ON_SUCCESS

    def _parse_rules(self, location: str, parts: dict[str, MappingEntry], run_when: RunWhen) -> tuple[JobRule, ...] | None:
        if "rules" not in parts:
            return None
        for key in ("only", "except"):
            if key in parts:
                raise PipelineConfigError.from_message(
                    f'{location}: `rules` and `{key}` exclude each other. Write into `rules`: `if: $CI_COMMIT_BRANCH == "x"`.',
                    parts[key].line,
                )
        entry = parts["rules"]
        parse = partial(parse_rules, f"{location}: rules", entry, run_when, self.expressions)
        try:
            return self._parse_once(f"rules {run_when}", entry, parse)
        except TooManyExpressions as error:
            raise PipelineConfigError.from_message(str(error), entry.line) from error

    def _check_jobs(self, jobs: list[JobConfig]) -> None:
        """Validate what involves several jobs."""
        if not jobs:
            raise PipelineConfigError.from_message("The file has no jobs. Define one with a `script`.", self.root.line)
        stage_indexes = {job.name: job.stage_index for job in jobs}
        for job in jobs:
            for key, names in (("dependencies", job.options.get("dependencies", ())), ("needs", [need.job for need in job.needs or ()])):
                for name in names:
                    if name not in stage_indexes:
                        raise PipelineConfigError.from_message(f"{quote(job.name)} job: {key}: job {quote(name)} does not exist.", job.line)
                    if stage_indexes[name] >= job.stage_index:
                        raise PipelineConfigError.from_message(
                            f"{quote(job.name)} job: {key}: {quote(name)} is not in an earlier stage.", job.line
                        )
        self._check_environments({job.name: job for job in jobs})

    def _check_environments(self, jobs: dict[str, JobConfig]) -> None:
        """Validate that each `on_stop` names a job that stops the same environment."""
        for job in jobs.values():
            section = job.options.get("environment", {})
            if "on_stop" not in section:
                continue
            location, stop = f"{quote(job.name)} job: environment: on_stop: {quote(section['on_stop'])}", jobs.get(section["on_stop"])
            if stop is None:
                raise PipelineConfigError.from_message(f"{location} is not a job of the file.", job.line)
            other = stop.options.get("environment", {})
            if other.get("action") != STOP or other.get("name") != section["name"]:
                raise PipelineConfigError.from_message(
                    f"{location} must have `environment` with the same name and `action: stop`.", stop.line
                )

    def _parse_options(self, location: str, parts: dict[str, MappingEntry], keys: tuple[str, ...]) -> dict[str, Any]:
        parsers: dict[str, Callable[[str, MappingEntry], Any]] = {
            "after_script": parse_lines,
            "variables": job_options.parse_variables,
            "image": parse_string,
            "services": parse_strings,
            "cache": partial(job_options.parse_file_patterns, job_options.CACHE_KEYS, None),
            "artifacts": partial(job_options.parse_file_patterns, job_options.ARTIFACTS_KEYS, self.version),
            "dependencies": parse_strings,
        }
        return {
            key: self._parse_once(key, parts[key], partial(parsers[key], f"{location}{key}", parts[key])) for key in keys if key in parts
        }

    def _parse_variables(self, location: str, entry: MappingEntry, shared: dict[str, Any]) -> dict[str, str]:
        """The variables of a job, with those of the file."""
        return {**shared.get("variables", {}), **job_options.parse_variables(f"{location}: variables", entry)}

    def _parse_coverage(self, location: str, entry: MappingEntry) -> str:
        text = parse_string(location, entry)
        if len(text) < 3 or not (text.startswith("/") and text.endswith("/")):
            raise PipelineConfigError.from_message(
                f"{location} must be a regular expression between slashes, such as /Coverage: (\\d+)%/.", entry.line
            )
        self._check_expression(location, entry.line, text[1:-1])
        return text[1:-1]

    def _parse_refs(self, location: str, entry: MappingEntry) -> tuple[RefPattern, ...]:
        return self._parse_once("refs", entry, partial(self._parse_ref_patterns, location, entry))

    def _parse_ref_patterns(self, location: str, entry: MappingEntry) -> tuple[RefPattern, ...]:
        found = []
        for text in parse_strings(location, entry):
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
            self.expressions.compile(source, ignore_case=ignore_case)
        except InvalidExpression as error:
            raise PipelineConfigError.from_message(f"{location}: not a valid RE2 expression: {error}.", line) from error
        except TooManyExpressions as error:
            raise PipelineConfigError.from_message(str(error), line) from error

    def _parse_tags(self, location: str, entry: MappingEntry) -> tuple[str, ...]:
        return self._parse_once("tags", entry, partial(self._parse_tag_names, location, entry))

    def _parse_tag_names(self, location: str, entry: MappingEntry) -> tuple[str, ...]:
        found = sorted({text.strip() for text in parse_strings(location, entry)})
        if len(found) > MAX_TAGS:
            raise PipelineConfigError.from_message(f"{location}: has {len(found)} tags; the limit is {MAX_TAGS}.", entry.line)
        for text in found:
            check_name(location, text, entry.line)
            if "," in text:
                raise PipelineConfigError.from_message(
                    f"{location}: {quote(text)} contains a comma. Put each tag on its own line.", entry.line
                )
        return tuple(found)
