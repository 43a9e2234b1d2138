"""Options of a job in the CI file that are mappings. Each function raises PipelineConfigError, with the location and line."""

import re
from typing import Any

from graph.rules.builds.automatic_retries import ALWAYS, MAX_RETRIES, FailureReason
from graph.rules.builds.deployments import STOP
from graph.rules.ci import durations
from graph.rules.ci.config_errors import PipelineConfigError, quote
from graph.rules.ci.config_values import check_name, is_empty, parse_boolean, parse_choice, parse_string, parse_strings
from graph.rules.ci.config_versions import (
    ARTIFACTS_KEYS_SINCE,
    ENVIRONMENT_MAPPING_SINCE,
    ENVIRONMENT_STOP_SINCE,
    OLDEST,
    CiVersion,
    is_known,
)
from graph.rules.ci.job_selection import JobNeed
from graph.rules.ci.yaml_documents import MappingEntry, MappingNode, ScalarNode, SequenceNode
from storage.tables import RunWhen

MAX_NEEDS = 50
"""Jobs in `needs` of one job."""
MAX_URL_LENGTH = 255

ARTIFACTS_KEYS = ("paths", "name", "untracked", "when", "expire_in")
CACHE_KEYS = ("paths", "key", "untracked")
UPLOAD_CONDITIONS = (RunWhen.ON_SUCCESS, RunWhen.ON_FAILURE, RunWhen.ALWAYS)
"""Values of `artifacts: when`."""
ENVIRONMENT_KEYS = ("name", "url", "on_stop", "action")
NEEDS_KEYS = ("job", "artifacts", "optional")
RETRY_KEYS = ("max", "when")
RETRY_CONDITIONS = (ALWAYS, *FailureReason)
START = "start"
ENVIRONMENT_NAME_PATTERN = re.compile(r"[-A-Za-z0-9_/.${} ]+")
URL_PATTERN = re.compile(r"https?://|\$", re.IGNORECASE)


def parse_environment(location: str, entry: MappingEntry, version: CiVersion | None) -> dict[str, str]:
    """`environment`: a name, or a mapping with `name`, `url`, `on_stop` and `action`."""
    if not isinstance(entry.value, MappingNode) or not is_known(version, ENVIRONMENT_MAPPING_SINCE):
        return {"name": parse_environment_name(location, entry)}
    supported = ENVIRONMENT_KEYS if is_known(version, ENVIRONMENT_STOP_SINCE) else ENVIRONMENT_KEYS[:2]
    parts = {key: part for key, part in entry.value.entries.items() if not is_empty(part)}
    for key, part in parts.items():
        if key not in supported:
            raise PipelineConfigError.from_message(f"{location}: unknown key {quote(key)}. Supported: {', '.join(supported)}.", part.line)
    if "name" not in parts:
        raise PipelineConfigError.from_message(f"{location}: `name` is missing.", entry.line)
    found = {key: parse_string(f"{location}: {key}", part) for key, part in parts.items()}
    found["name"] = parse_environment_name(f"{location}: name", parts["name"])
    if found.get("action", START) not in (START, STOP):
        raise PipelineConfigError.from_message(
            f"{location}: action: {quote(found['action'])} should be {START} or {STOP}.", parts["action"].line
        )
    if "url" in found and (len(found["url"]) > MAX_URL_LENGTH or not URL_PATTERN.match(found["url"])):
        raise PipelineConfigError.from_message(
            f"{location}: url should begin with http://, https:// or a variable, and have at most {MAX_URL_LENGTH} characters.",
            parts["url"].line,
        )
    return found


def parse_environment_name(location: str, entry: MappingEntry) -> str:
    name = parse_string(location, entry).strip()
    check_name(location, name, entry.line)
    if not ENVIRONMENT_NAME_PATTERN.fullmatch(name):
        raise PipelineConfigError.from_message(
            f"{location}: {quote(name)} may have letters, digits, spaces and the characters - _ / . $ {{ }} only.", entry.line
        )
    return name


def parse_retry(location: str, entry: MappingEntry) -> dict[str, Any]:
    """`retry`: a number, or a mapping with `max` and `when`."""
    if not isinstance(entry.value, MappingNode):
        return {"max": parse_retries(location, entry)}
    parts = entry.value.entries
    for key, part in parts.items():
        if key not in RETRY_KEYS:
            raise PipelineConfigError.from_message(f"{location}: unknown key {quote(key)}. Supported: {', '.join(RETRY_KEYS)}.", part.line)
    if "max" not in parts:
        raise PipelineConfigError.from_message(f"{location}: `max` is missing.", entry.line)
    found: dict[str, Any] = {"max": parse_retries(f"{location}: max", parts["max"])}
    if "when" in parts:
        found["when"] = parse_strings(f"{location}: when", parts["when"])
        for text in found["when"]:
            if text not in RETRY_CONDITIONS:
                raise PipelineConfigError.from_message(
                    f"{location}: when: {quote(text)} is not one of {', '.join(RETRY_CONDITIONS)}.", parts["when"].line
                )
    return found


def parse_retries(location: str, entry: MappingEntry) -> int:
    text = parse_string(location, entry)
    if text not in map(str, range(MAX_RETRIES + 1)):
        raise PipelineConfigError.from_message(f"{location} should be a number from 0 to {MAX_RETRIES}.", entry.line)
    return int(text)


def parse_file_patterns(allowed: tuple[str, ...], version: CiVersion | None, location: str, entry: MappingEntry) -> dict[str, Any]:
    """Parse the `allowed` keys of `artifacts` or `cache`; others are ignored, as in GitLab 8.5."""
    value = entry.value
    if not isinstance(value, MappingNode):
        raise PipelineConfigError.from_message(f"{location} must be a mapping with {', '.join(allowed)}.", entry.line)
    found: dict[str, Any] = {}
    for key, part in value.entries.items():
        if key not in allowed or is_empty(part) or not is_known(version, ARTIFACTS_KEYS_SINCE.get(key, OLDEST)):
            continue
        key_path = f"{location}: {key}"
        if key == "paths":
            found[key] = parse_strings(key_path, part)
        elif key == "untracked":
            found[key] = parse_boolean(key_path, part)
        elif key == "when":
            found[key] = parse_choice(key_path, part, UPLOAD_CONDITIONS)
        elif key == "expire_in":
            found[key] = parse_duration(key_path, part)
        else:
            found[key] = parse_string(key_path, part)
    return found


def parse_duration(location: str, entry: MappingEntry) -> str:
    text = parse_string(location, entry)
    try:
        durations.parse_duration(text)
    except ValueError as error:
        raise PipelineConfigError.from_message(f"{location}: {quote(text)} is not valid: {error}.", entry.line) from error
    return text


def parse_variables(location: str, entry: MappingEntry) -> dict[str, str]:
    value = entry.value
    if not isinstance(value, MappingNode):
        raise PipelineConfigError.from_message(f"{location} must be a mapping of names to strings.", entry.line)
    found = {}
    for name, part in value.entries.items():
        if "=" in name or any(letter.isspace() for letter in name):
            raise PipelineConfigError.from_message(f"{location}: {quote(name)} is not a valid variable name.", part.line)
        inner = part.value
        found[name] = "" if isinstance(inner, ScalarNode) and inner.is_null else parse_string(f"{location}: {name}", part, allow_empty=True)
    return found


def parse_needs(location: str, entry: MappingEntry) -> tuple[JobNeed, ...]:
    """`needs`: a list of names, or of mappings with `job`, `artifacts` and `optional`."""
    items = entry.value.items if isinstance(entry.value, SequenceNode) else [entry.value]
    if len(items) > MAX_NEEDS:
        raise PipelineConfigError.from_message(f"{location}: has {len(items)} jobs; the limit is {MAX_NEEDS}.", entry.line)
    found = []
    for item in items:
        if isinstance(item, ScalarNode) and not item.is_null:
            found.append(JobNeed(item.value))
            continue
        if not isinstance(item, MappingNode) or "job" not in item.entries:
            raise PipelineConfigError.from_message(f"{location} should be a list of names of jobs, or of mappings with `job`.", item.line)
        for key, part in item.entries.items():
            if key not in NEEDS_KEYS:
                raise PipelineConfigError.from_message(
                    f"{location}: {quote(key)} is not supported; only jobs of the same pipeline can be needed. Supported:"
                    f" {', '.join(NEEDS_KEYS)}.",
                    part.line,
                )
        booleans = {key: parse_boolean(f"{location}: {key}", item.entries[key]) for key in NEEDS_KEYS[1:] if key in item.entries}
        found.append(JobNeed(parse_string(f"{location}: job", item.entries["job"]), **booleans))
    return tuple(found)
