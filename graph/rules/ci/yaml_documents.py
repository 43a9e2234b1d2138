"""Parses YAML into a bounded tree of scalars, lists and mappings with line numbers.

Nothing is constructed: a scalar retains its source string (`yes`, `1.0` and `2015` are valid names) and only reports whether YAML reads
it as null or a boolean. The parser yields events one at a time, so that input that is too deep or too large is rejected before it is
built. An alias counts with everything it refers to, because ten lines can expand to a billion nodes.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import yaml

from graph.rules.ci.config_errors import PipelineConfigError, SourceLine, quote

MAX_BYTES = 256 * 1024
"""Bytes of the source."""
MAX_NODES = 20_000
MAX_CHARACTERS = 512 * 1024
"""Characters of all scalars, with aliases expanded."""
MAX_DEPTH = 20

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_TAG = "tag:yaml.org,2002:"
_PLAIN_TAGS = frozenset(_TAG + name for name in ("str", "int", "float", "bool", "null", "map", "seq"))
_BOOLEANS = {**dict.fromkeys(("yes", "true", "on", "y"), True), **dict.fromkeys(("no", "false", "off", "n"), False)}


@dataclass(slots=True)
class ScalarNode:
    """A scalar.

    `kind` is YAML's type of a plain scalar: `str`, `null`, `bool`, `int`, …; `merge` for `<<`.
    """

    value: str
    kind: str
    line: int
    nodes: int = 1

    @property
    def characters(self) -> int:
        return len(self.value)

    @property
    def is_null(self) -> bool:
        return self.kind == "null"

    @property
    def boolean(self) -> bool | None:
        """Its boolean value; None when it is not a boolean."""
        return _BOOLEANS.get(self.value.lower()) if self.kind == "bool" else None


@dataclass(slots=True)
class SequenceNode:
    items: list["Node"]
    line: int
    nodes: int = 1
    characters: int = 0


@dataclass(slots=True)
class MappingEntry:
    """A value; `line` is the line of its key."""

    value: "Node"
    line: int


@dataclass(slots=True)
class MappingNode:
    """A mapping with merge keys (`<<`) resolved.

    Its own entries win over merged ones, and earlier merges over later ones.
    """

    entries: dict[str, MappingEntry]
    line: int
    nodes: int = 1
    characters: int = 0
    merged: list["MappingNode"] = field(default_factory=list)


Node: TypeAlias = ScalarNode | SequenceNode | MappingNode


@dataclass(slots=True)
class DocumentBudget:
    """What a file and those that it includes have used of their common bounds."""

    size: int = 0
    nodes: int = 0
    characters: int = 0


def parse_document(source: str, *, file: str | None = None, budget: DocumentBudget | None = None) -> Node | None:
    """Parse the only document of the source; None when it is empty. Raises PipelineConfigError.

    `file` is the path of an included file, which shares the `budget` of the main one.
    """
    source = source.removeprefix("\ufeff")
    budget = budget if budget is not None else DocumentBudget()
    try:
        size = len(source.encode())
    except UnicodeEncodeError as error:
        raise PipelineConfigError.from_message(
            "The file is not UTF-8.", SourceLine(source.count("\n", 0, error.start) + 1, file)
        ) from error
    budget.size += size
    if budget.size > MAX_BYTES:
        included = ", with those that it includes" if file is not None else ""
        raise PipelineConfigError.from_message(f"The file{included} has {budget.size} bytes; the limit is {MAX_BYTES}.")
    try:
        return _Composer(source, file, budget).compose()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        if error.context_mark is not None and mark.line >= len(source.splitlines()):
            # An unclosed construct is detected at the end of the file; report the line where it begins.
            mark = error.context_mark
        reason = ", ".join(filter(None, (error.context, error.problem))) or "cannot be parsed"
        hint = " Indent with spaces, not with tabs." if mark and "\t" in _indentation(source, mark.line) else ""
        raise PipelineConfigError.from_message(
            f"The file is not valid YAML: {reason}.{hint}", SourceLine(mark.line + 1, file) if mark else None
        ) from error
    except yaml.reader.ReaderError as error:
        raise PipelineConfigError.from_message(
            "The file contains a character that YAML does not allow.", SourceLine(_line_of_invalid_character(source), file)
        ) from error
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        raise PipelineConfigError.from_message("The file is not valid YAML.") from error


def to_json(node: Node) -> Any:
    """Convert to JSON: null and booleans as such, every other scalar as its source string."""
    if isinstance(node, ScalarNode):
        return None if node.is_null else node.value if node.boolean is None else node.boolean
    if isinstance(node, SequenceNode):
        return [to_json(item) for item in node.items]
    return {key: to_json(entry.value) for key, entry in node.entries.items()}


class _Composer:
    def __init__(self, text: str, file: str | None, budget: DocumentBudget) -> None:
        self._file = file
        self._budget = budget
        self._events: Iterator[Any] = iter(yaml.parse(text, Loader=_Loader))
        self._resolver = yaml.resolver.Resolver()
        self._anchors: dict[str, Node] = {}
        self._open: set[str] = set()

    def compose(self) -> Node | None:
        next(self._events)  # the start of the stream
        if isinstance(next(self._events), yaml.StreamEndEvent):
            return None
        root = self._compose_node(next(self._events), 0)
        next(self._events)  # the end of the document
        more = next(self._events)
        if not isinstance(more, yaml.StreamEndEvent):
            raise PipelineConfigError.from_message(
                "A second document begins here. The file must contain one document.", self._line_number(more)
            )
        return None if isinstance(root, ScalarNode) and root.is_null else root

    def _compose_node(self, event: Any, depth: int) -> Node:
        if isinstance(event, yaml.AliasEvent):
            return self._resolve_alias(event)
        if depth > MAX_DEPTH:
            raise PipelineConfigError.from_message(f"The value is nested more than {MAX_DEPTH} levels deep.", self._line_number(event))
        anchor = event.anchor
        if anchor is not None:
            self._open.add(anchor)
        self._count(1, 0, event)
        node: Node
        if isinstance(event, yaml.ScalarEvent):
            node = self._compose_scalar(event)
        elif isinstance(event, yaml.SequenceStartEvent):
            node = self._compose_sequence(event, depth)
        else:
            node = self._compose_mapping(event, depth)
        if anchor is not None:
            self._open.discard(anchor)
            self._anchors[anchor] = node
        return node

    def _resolve_alias(self, event: Any) -> Node:
        if event.anchor in self._open:
            raise PipelineConfigError.from_message(
                f"The anchor {quote(event.anchor)} refers to a value that contains itself.", self._line_number(event)
            )
        node = self._anchors.get(event.anchor)
        if node is None:
            raise PipelineConfigError.from_message(
                f"The anchor {quote(event.anchor)} is not defined above this line.", self._line_number(event)
            )
        self._count(node.nodes, node.characters, event)
        return node

    def _count(self, nodes: int, characters: int, event: Any) -> None:
        self._budget.nodes += nodes
        self._budget.characters += characters
        if self._budget.nodes > MAX_NODES:
            raise PipelineConfigError.from_message(
                f"The file has more than {MAX_NODES} values, with aliases expanded.", self._line_number(event)
            )
        if self._budget.characters > MAX_CHARACTERS:
            raise PipelineConfigError.from_message(
                f"The file has more than {MAX_CHARACTERS} characters, with aliases expanded.", self._line_number(event)
            )

    def _compose_scalar(self, event: Any) -> ScalarNode:
        value = event.value
        if "\0" in value or any("\ud800" <= letter <= "\udfff" for letter in value):
            raise PipelineConfigError.from_message(
                "A string cannot contain the character NUL or a lone surrogate.", self._line_number(event)
            )
        self._count(0, len(value), event)
        tag = self._explicit_tag(event)
        if tag is None:
            tag = self._resolver.resolve(yaml.ScalarNode, value, event.implicit)
        return ScalarNode(value, tag.removeprefix(_TAG), self._line_number(event))

    def _compose_sequence(self, event: Any, depth: int) -> SequenceNode:
        self._explicit_tag(event)
        found = SequenceNode([], self._line_number(event))
        while not isinstance(inner := next(self._events), yaml.SequenceEndEvent):
            item = self._compose_node(inner, depth + 1)
            found.items.append(item)
            found.nodes += item.nodes
            found.characters += item.characters
        return found

    def _compose_mapping(self, event: Any, depth: int) -> MappingNode:
        self._explicit_tag(event)
        found = MappingNode({}, self._line_number(event))
        while not isinstance(inner := next(self._events), yaml.MappingEndEvent):
            key = self._compose_node(inner, depth + 1)
            line = self._line_number(inner)
            value = self._compose_node(next(self._events), depth + 1)
            found.nodes += key.nodes + value.nodes
            found.characters += key.characters + value.characters
            if not isinstance(key, ScalarNode):
                raise PipelineConfigError.from_message("A key must be a string, not a list or a mapping.", line)
            if key.kind == "merge":
                found.merged += self._merged_mappings(value, line)
                continue
            if key.is_null or not key.value.strip():
                raise PipelineConfigError.from_message("A key is empty. Give it a name.", line)
            if key.value in found.entries:
                first = found.entries[key.value].line
                raise PipelineConfigError.from_message(
                    f"The key {quote(key.value)} is repeated; it was first defined in line {first}.", line
                )
            found.entries[key.value] = MappingEntry(value, line)
        for other in found.merged:
            for name, entry in other.entries.items():
                found.entries.setdefault(name, entry)
        return found

    def _merged_mappings(self, value: Node, line: int) -> list[MappingNode]:
        values = value.items if isinstance(value, SequenceNode) else [value]
        if not all(isinstance(each, MappingNode) for each in values):
            raise PipelineConfigError.from_message("The value of `<<` must be a mapping or a list of mappings.", line)
        return [each for each in values if isinstance(each, MappingNode)]

    def _line_number(self, event: Any) -> SourceLine:
        return SourceLine(int(event.start_mark.line) + 1, self._file)

    def _explicit_tag(self, event: Any) -> str | None:
        """The explicit tag of a node; None when it has none."""
        if event.tag is None or event.tag == "!":
            return None
        if event.tag not in _PLAIN_TAGS:
            raise PipelineConfigError.from_message(f"The tag {quote(event.tag)} is not supported. Remove it.", self._line_number(event))
        return str(event.tag)


def _line_of_invalid_character(text: str) -> int:
    """The line of the first character that YAML does not allow."""
    found = yaml.reader.Reader.NON_PRINTABLE.search(text)
    return text.count("\n", 0, found.start()) + 1 if found else 1


def _indentation(text: str, line: int) -> str:
    lines = text.split("\n")
    return lines[line][: len(lines[line]) - len(lines[line].lstrip())] if line < len(lines) else ""
