"""Values of the CI file: strings, lists, booleans and choices. Each function raises PipelineConfigError, with the location and line."""

from collections.abc import Iterator, Sequence

from graph.rules.ci.config_errors import PipelineConfigError, quote
from graph.rules.ci.yaml_documents import MappingEntry, MappingNode, Node, ScalarNode, SequenceNode, to_json

MAX_NAME_LENGTH = 255


def parse_lines(location: str, entry: MappingEntry | None) -> list[str]:
    """The lines of a script: a string, or a list of strings and nested lists, which aliases produce."""
    return [] if entry is None else list(flatten_lines(location, entry.value, entry.line))


def parse_strings(location: str, entry: MappingEntry) -> list[str]:
    value = entry.value
    items = value.items if isinstance(value, SequenceNode) else [value]
    if isinstance(value, MappingNode) or not all(
        isinstance(item, ScalarNode) and not item.is_null and item.value.strip() for item in items
    ):
        raise PipelineConfigError.from_message(f"{location} should be a list of strings.", entry.line)
    return [item.value for item in items if isinstance(item, ScalarNode)]


def parse_string(location: str, entry: MappingEntry, *, allow_empty: bool = False) -> str:
    value = entry.value
    if not isinstance(value, ScalarNode) or ((value.is_null or not value.value.strip()) and not allow_empty):
        raise PipelineConfigError.from_message(f"{location} should be a string.", entry.line)
    return value.value


def parse_boolean(location: str, entry: MappingEntry) -> bool:
    found = to_json(entry.value)
    if not isinstance(found, bool):
        raise PipelineConfigError.from_message(f"{location} should be true or false.", entry.line)
    return found


def parse_choice(location: str, entry: MappingEntry, choices: Sequence[str]) -> str:
    text = parse_string(location, entry)
    if text not in choices:
        raise PipelineConfigError.from_message(
            f"{location}: {quote(text)} should be {', '.join(choices[:-1])} or {choices[-1]}.", entry.line
        )
    return text


def check_name(location: str, name: str, line: int) -> None:
    if len(name) > MAX_NAME_LENGTH:
        raise PipelineConfigError.from_message(f"{location}: the name is too long (maximum is {MAX_NAME_LENGTH} characters).", line)


def is_empty(entry: MappingEntry) -> bool:
    """Whether nothing is written behind the key."""
    return isinstance(entry.value, ScalarNode) and entry.value.is_null


def flatten_lines(location: str, node: Node, line: int) -> Iterator[str]:
    if isinstance(node, SequenceNode):
        for item in node.items:
            yield from flatten_lines(location, item, item.line)
    elif isinstance(node, MappingNode):
        raise PipelineConfigError.from_message(
            f"{location} should be a string or a list of strings. Put quotes around a line that contains `: `.", line
        )
    elif node.is_null:
        raise PipelineConfigError.from_message(f"{location} should be a string or a list of strings, but it is empty.", line)
    else:
        yield node.value
