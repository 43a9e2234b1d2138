"""Reads `.gitlab-ci.yml`: from text to jobs, or to what is wrong with it, where, and what to do about it (wire facts 13.1).

Everything is bounded, since anybody who may push writes it: see `documents` for the text, `expressions` for regular expressions.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import orjson

from graph.rules.ci.documents import Entry, Mapped, Node, Scalar, Sequence, document, plain
from graph.rules.ci.expressions import BadExpression, compiled
from graph.rules.ci.problems import MOST_TOLD, ConfigError, Problem, quoted
from graph.rules.ci.selecting import Config, Job, RefPattern
from storage.tables import RunWhen

FILE = ".gitlab-ci.yml"
STAGES = ("build", "test", "deploy")
DEFAULT_STAGE = "test"
MOST_JOBS = 500
MOST_STAGES = 100
MOST_TAGS = 20
MOST_EXPRESSIONS = 100
"""Different regular expressions of one file."""
LONGEST_NAME = 255
LARGEST_KEPT = 512 * 1024
"""Bytes of all jobs, each with the global parts that it takes over."""

GLOBAL = frozenset(("before_script", "after_script", "stages", "types", "variables", "image", "services", "cache"))
JOB = (
    *("script", "before_script", "after_script", "stage", "type", "only", "except", "tags", "allow_failure", "when", "variables"),
    *("artifacts", "image", "services", "cache", "dependencies", "coverage"),
)
ARTIFACTS = ("paths", "name", "untracked", "when")
CACHE = ("paths", "key", "untracked")


def read(text: str) -> Config:
    """The jobs of the file. Raises ConfigError."""
    root = document(text)
    if root is None:
        raise ConfigError.of("There is no job in the file; define one with a `script`.")
    if not isinstance(root, Mapped):
        raise ConfigError.of("The file must be a mapping: names of jobs, and what they are.", root.line)
    return _Reader(root).config()


@dataclass(slots=True)
class _Reader:
    root: Mapped
    problems: list[Problem] = field(default_factory=list)
    expressions: set[tuple[str, bool]] = field(default_factory=set)

    def config(self) -> Config:
        entries = self.root.entries
        stages: tuple[str, ...] = STAGES
        shared: dict[str, Any] = {}
        before: list[str] = []
        with self._told():
            stages = self._stages(entries)
        if self.problems:
            # Without them every job would be blamed for its stage.
            raise ConfigError(self.problems)
        with self._told():
            before = self._lines("before_script", entries.get("before_script"))
        with self._told():
            shared = self._options("", entries, ("after_script", "variables", "image", "services", "cache"))
        jobs = []
        for name, entry in entries.items():
            if name in GLOBAL or name.startswith("."):
                continue
            with self._told():
                jobs.append(self._job(name, entry, stages, before, shared))
                if len(jobs) > MOST_JOBS:
                    raise ConfigError.of(f"The file has more than {MOST_JOBS} jobs.", entry.line)
            if len(self.problems) >= MOST_TOLD or len(jobs) > MOST_JOBS:
                break
        if not self.problems:
            with self._told():
                self._finish(jobs)
        if self.problems:
            raise ConfigError(sorted(self.problems, key=lambda problem: problem.line or 0)[:MOST_TOLD])
        return Config(stages, tuple(sorted(jobs, key=lambda job: job.stage_index)))

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Goes on after a problem, so that whoever wrote the file sees those of every job at once."""
        try:
            yield
        except ConfigError as error:
            self.problems += error.problems

    def _stages(self, entries: dict[str, Entry]) -> tuple[str, ...]:
        key = "stages" if "stages" in entries else "types"
        entry = entries.get(key)
        if entry is None:
            return STAGES
        names = self._texts(key, entry)
        if not names:
            raise ConfigError.of(f"{key} is empty; name a stage, or leave it out for {', '.join(STAGES)}.", entry.line)
        if len(names) > MOST_STAGES:
            raise ConfigError.of(f"{key} has {len(names)} stages; there may be {MOST_STAGES}.", entry.line)
        for name in names:
            self._named(f"the stage {quoted(name)}", name, entry.line)
        return tuple(dict.fromkeys(names))

    def _job(self, name: str, entry: Entry, stages: tuple[str, ...], before: list[str], shared: dict[str, Any]) -> Job:
        where = f"{quoted(name)} job"
        if not isinstance(entry.value, Mapped):
            raise ConfigError.of(f"Unknown parameter {quoted(name)}: a job is a mapping with a `script`.", entry.line)
        self._named(where, name, entry.line)
        parts = entry.value.entries
        for key, part in parts.items():
            if key not in JOB:
                raise ConfigError.of(f"{where}: unknown parameter {quoted(key)}; a job may have {', '.join(JOB)}.", part.line)
        if "script" not in parts:
            raise ConfigError.of(f"{where}: there is no `script`. A job without one begins with a dot, as a template.", entry.line)
        script = self._lines(f"{where}: script", parts["script"])
        if not any(line.strip() for line in script):
            raise ConfigError.of(f"{where}: the script is empty.", parts["script"].line)
        if "before_script" in parts:
            before = self._lines(f"{where}: before_script", parts["before_script"])
        stage, stage_line = DEFAULT_STAGE, entry.line
        for key in ("type", "stage"):
            if key in parts:
                stage, stage_line = self._text(f"{where}: {key}", parts[key]), parts[key].line
        if stage not in stages:
            raise ConfigError.of(f"{where}: the stage {quoted(stage)} is none of {', '.join(map(quoted, stages[:20]))}.", stage_line)
        options = {
            **shared,
            **self._options(f"{where}: ", parts, ("after_script", "image", "services", "cache", "artifacts", "dependencies")),
        }
        if "variables" in parts:
            options["variables"] = {**shared.get("variables", {}), **self._variables(f"{where}: variables", parts["variables"])}
        if "coverage" in parts:
            options["coverage"] = self._coverage(f"{where}: coverage", parts["coverage"])
        return Job(
            name=name,
            stage=stage,
            stage_index=stages.index(stage),
            commands="\n".join([*before, *script]),
            tags=self._tags(f"{where}: tags", parts.get("tags")),
            allow_failure=self._truth(f"{where}: allow_failure", parts["allow_failure"]) if "allow_failure" in parts else False,
            run_when=RunWhen(self._choice(f"{where}: when", parts["when"], [*RunWhen])) if "when" in parts else RunWhen.ON_SUCCESS,
            only=self._refs(f"{where}: only", parts.get("only")),
            excepted=self._refs(f"{where}: except", parts.get("except")),
            options=options,
            line=entry.line,
        )

    def _finish(self, jobs: list[Job]) -> None:
        """What can be said only once all jobs are known."""
        if not jobs:
            raise ConfigError.of("There is no job in the file; define one with a `script`.", self.root.line)
        places = {job.name: job.stage_index for job in jobs}
        for job in jobs:
            for name in job.options.get("dependencies", ()):
                if name not in places:
                    raise ConfigError.of(f"{quoted(job.name)} job: dependencies: there is no job {quoted(name)}.", job.line)
                if places[name] >= job.stage_index:
                    raise ConfigError.of(f"{quoted(job.name)} job: dependencies: {quoted(name)} is not of an earlier stage.", job.line)
        size = 0
        for job in jobs:
            size += len(orjson.dumps(job.kept()))
            if size > LARGEST_KEPT:
                raise ConfigError.of(f"All jobs, each with the global parts, come to more than {LARGEST_KEPT} bytes.", job.line)

    def _options(self, where: str, parts: dict[str, Entry], keys: tuple[str, ...]) -> dict[str, Any]:
        readers: dict[str, Callable[[str, Entry], Any]] = {
            "after_script": self._lines,
            "variables": self._variables,
            "image": self._text,
            "services": self._texts,
            "cache": partial(self._kept, CACHE),
            "artifacts": partial(self._kept, ARTIFACTS),
            "dependencies": self._texts,
        }
        return {key: readers[key](f"{where}{key}", parts[key]) for key in keys if key in parts}

    def _kept(self, allowed: tuple[str, ...], where: str, entry: Entry) -> dict[str, Any]:
        """`artifacts` or `cache`, which may have these keys."""
        value = entry.value
        if not isinstance(value, Mapped):
            raise ConfigError.of(f"{where} must be a mapping with {', '.join(allowed)}.", entry.line)
        found: dict[str, Any] = {}
        for key, part in value.entries.items():
            if key not in allowed:
                raise ConfigError.of(f"{where}: unknown parameter {quoted(key)}; there may be {', '.join(allowed)}.", part.line)
            told = f"{where}: {key}"
            if key == "paths":
                found[key] = self._texts(told, part)
            elif key == "untracked":
                found[key] = self._truth(told, part)
            elif key == "when":
                found[key] = self._choice(told, part, [*RunWhen])
            else:
                found[key] = self._text(told, part)
        return found

    def _variables(self, where: str, entry: Entry) -> dict[str, str]:
        value = entry.value
        if not isinstance(value, Mapped):
            raise ConfigError.of(f"{where} must be a mapping of names and texts.", entry.line)
        found = {}
        for name, part in value.entries.items():
            if "=" in name or any(letter.isspace() for letter in name):
                raise ConfigError.of(f"{where}: {quoted(name)} cannot be the name of a variable.", part.line)
            inner = part.value
            found[name] = "" if isinstance(inner, Scalar) and inner.is_null else self._text(f"{where}: {name}", part, empty=True)
        return found

    def _coverage(self, where: str, entry: Entry) -> str:
        text = self._text(where, entry)
        if len(text) < 3 or not (text.startswith("/") and text.endswith("/")):
            raise ConfigError.of(f"{where} must be a regular expression between slashes, as /Coverage: (\\d+)%/.", entry.line)
        self._expression(where, entry.line, text[1:-1])
        return text[1:-1]

    def _refs(self, where: str, entry: Entry | None) -> tuple[RefPattern, ...] | None:
        if entry is None:
            return None
        found = []
        for text in self._texts(where, entry):
            try:
                pattern = RefPattern.of(text)
            except BadExpression as error:
                raise ConfigError.of(f"{where}: {quoted(text)} is no regular expression of RE2: {error}.", entry.line) from error
            if pattern.is_expression:
                self._expression(where, entry.line, pattern.name, ignore_case=pattern.ignore_case)
            found.append(pattern)
        return tuple(found)

    def _expression(self, where: str, line: int, source: str, *, ignore_case: bool = False) -> None:
        try:
            compiled(source, ignore_case=ignore_case)
        except BadExpression as error:
            raise ConfigError.of(f"{where}: this is no regular expression of RE2: {error}.", line) from error
        self.expressions.add((source, ignore_case))
        if len(self.expressions) > MOST_EXPRESSIONS:
            raise ConfigError.of(f"The file has more than {MOST_EXPRESSIONS} different regular expressions.", line)

    def _tags(self, where: str, entry: Entry | None) -> tuple[str, ...]:
        if entry is None:
            return ()
        found = sorted({text.strip() for text in self._texts(where, entry)})
        if len(found) > MOST_TAGS:
            raise ConfigError.of(f"{where}: there may be {MOST_TAGS}.", entry.line)
        for text in found:
            self._named(where, text, entry.line)
            if "," in text:
                raise ConfigError.of(f"{where}: {quoted(text)} has a comma; give each tag a line of its own.", entry.line)
        return tuple(found)

    def _lines(self, where: str, entry: Entry | None) -> list[str]:
        """The lines of a script: a text, or a list of texts and of such lists, as aliases make them."""
        return [] if entry is None else list(_flat(where, entry.value, entry.line))

    def _texts(self, where: str, entry: Entry) -> list[str]:
        value = entry.value
        items = value.items if isinstance(value, Sequence) else [value]
        if isinstance(value, Mapped) or not all(isinstance(item, Scalar) and not item.is_null and item.text.strip() for item in items):
            raise ConfigError.of(f"{where} should be a list of texts.", entry.line)
        return [item.text for item in items if isinstance(item, Scalar)]

    def _text(self, where: str, entry: Entry, *, empty: bool = False) -> str:
        value = entry.value
        if not isinstance(value, Scalar) or ((value.is_null or not value.text.strip()) and not empty):
            raise ConfigError.of(f"{where} should be a text.", entry.line)
        return value.text

    def _truth(self, where: str, entry: Entry) -> bool:
        found = plain(entry.value)
        if not isinstance(found, bool):
            raise ConfigError.of(f"{where} should be true or false.", entry.line)
        return found

    def _choice(self, where: str, entry: Entry, words: list[RunWhen]) -> str:
        text = self._text(where, entry)
        if text not in words:
            raise ConfigError.of(f"{where}: {quoted(text)} should be {', '.join(words[:-1])} or {words[-1]}.", entry.line)
        return text

    def _named(self, where: str, name: str, line: int) -> None:
        if len(name) > LONGEST_NAME:
            raise ConfigError.of(f"{where}: the name is too long (maximum is {LONGEST_NAME} characters).", line)


def _flat(where: str, node: Node, line: int) -> Iterator[str]:
    if isinstance(node, Sequence):
        for item in node.items:
            yield from _flat(where, item, item.line)
    elif isinstance(node, Mapped):
        raise ConfigError.of(f"{where} should be a text or a list of texts; a line that holds `: ` needs quotes around it.", line)
    elif node.is_null:
        raise ConfigError.of(f"{where} should be a text or a list of texts; this is empty.", line)
    else:
        yield node.text
