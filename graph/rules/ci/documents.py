"""YAML as a tree of texts, lists and mappings that know their lines, read within bounds.

Nothing is constructed: a scalar keeps the text that stands in the file (`yes`, `1.0` and `2015` are names as good as others), and only
says whether YAML takes it for null or a truth value. The parser hands out one event after the other, so that what is too deep or too
large is refused before it is built. An alias stands for what it names, and counts with all of it: ten lines can hold a billion nodes.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import yaml

from graph.rules.ci.problems import ConfigError, quoted

LARGEST = 256 * 1024
"""Bytes of the text."""
MOST_NODES = 20_000
MOST_CHARACTERS = 512 * 1024
"""Of all scalars, with each alias counted as what it stands for."""
DEEPEST = 20

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_TAG = "tag:yaml.org,2002:"
_PLAIN_TAGS = frozenset(_TAG + name for name in ("str", "int", "float", "bool", "null", "map", "seq"))
_TRUTH = {**dict.fromkeys(("yes", "true", "on", "y"), True), **dict.fromkeys(("no", "false", "off", "n"), False)}


@dataclass(slots=True)
class Scalar:
    """`kind` is YAML's word for what a plain scalar is: `str`, `null`, `bool`, `int`, …; `merge` for `<<`."""

    text: str
    kind: str
    line: int
    nodes: int = 1

    @property
    def characters(self) -> int:
        return len(self.text)

    @property
    def is_null(self) -> bool:
        return self.kind == "null"

    @property
    def truth(self) -> bool | None:
        """What it says as a truth value; None where it is none."""
        return _TRUTH.get(self.text.lower()) if self.kind == "bool" else None


@dataclass(slots=True)
class Sequence:
    items: list["Node"]
    line: int
    nodes: int = 1
    characters: int = 0


@dataclass(slots=True)
class Entry:
    """`line` is that of the key."""

    value: "Node"
    line: int


@dataclass(slots=True)
class Mapped:
    """A mapping, its merge keys (`<<`) resolved: what stands in it wins over what is merged, the earlier of several over the later."""

    entries: dict[str, Entry]
    line: int
    nodes: int = 1
    characters: int = 0
    merged: list["Mapped"] = field(default_factory=list)


Node: TypeAlias = Scalar | Sequence | Mapped


def document(text: str) -> Node | None:
    """The one document of the text; None where there is nothing in it. Raises ConfigError."""
    text = text.removeprefix("\ufeff")
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        raise ConfigError.of("The file is not UTF-8.", text.count("\n", 0, error.start) + 1) from error
    if size > LARGEST:
        raise ConfigError.of(f"The file has {size} bytes; it may have {LARGEST}.")
    try:
        return _Composer(text).document()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        if error.context_mark is not None and mark.line >= len(text.splitlines()):
            # What is never closed is found at the end; it is to be looked for where it begins.
            mark = error.context_mark
        what = ", ".join(filter(None, (error.context, error.problem))) or "it cannot be read"
        hint = " Indent with spaces, not with tabs." if mark and "\t" in _indentation(text, mark.line) else ""
        raise ConfigError.of(f"This is not YAML: {what}.{hint}", mark.line + 1 if mark else None) from error
    except yaml.reader.ReaderError as error:
        raise ConfigError.of("The file holds a character that YAML does not allow.", _line_of(text)) from error
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        raise ConfigError.of("This is not YAML.") from error


def plain(node: Node) -> Any:
    """As JSON has it: null and truth values as such, every other scalar as its text."""
    if isinstance(node, Scalar):
        return None if node.is_null else node.text if node.truth is None else node.truth
    if isinstance(node, Sequence):
        return [plain(item) for item in node.items]
    return {key: plain(entry.value) for key, entry in node.entries.items()}


class _Composer:
    def __init__(self, text: str) -> None:
        self._events: Iterator[Any] = iter(yaml.parse(text, Loader=_Loader))
        self._resolver = yaml.resolver.Resolver()
        self._anchors: dict[str, Node] = {}
        self._open: set[str] = set()
        self._nodes = 0
        self._characters = 0

    def document(self) -> Node | None:
        next(self._events)  # the start of the stream
        if isinstance(next(self._events), yaml.StreamEndEvent):
            return None
        root = self._node(next(self._events), 0)
        next(self._events)  # the end of the document
        more = next(self._events)
        if not isinstance(more, yaml.StreamEndEvent):
            raise ConfigError.of("A second document begins here; the file must be one.", _line(more))
        return None if isinstance(root, Scalar) and root.is_null else root

    def _node(self, event: Any, depth: int) -> Node:
        if isinstance(event, yaml.AliasEvent):
            return self._alias(event)
        if depth > DEEPEST:
            raise ConfigError.of(f"This lies more than {DEEPEST} levels deep.", _line(event))
        anchor = event.anchor
        if anchor is not None:
            self._open.add(anchor)
        self._count(1, 0, event)
        node: Node
        if isinstance(event, yaml.ScalarEvent):
            node = self._scalar(event)
        elif isinstance(event, yaml.SequenceStartEvent):
            node = self._sequence(event, depth)
        else:
            node = self._mapping(event, depth)
        if anchor is not None:
            self._open.discard(anchor)
            self._anchors[anchor] = node
        return node

    def _alias(self, event: Any) -> Node:
        if event.anchor in self._open:
            raise ConfigError.of(f"The anchor {quoted(event.anchor)} stands for something that holds itself.", _line(event))
        node = self._anchors.get(event.anchor)
        if node is None:
            raise ConfigError.of(f"There is no anchor {quoted(event.anchor)} above this line.", _line(event))
        self._count(node.nodes, node.characters, event)
        return node

    def _count(self, nodes: int, characters: int, event: Any) -> None:
        self._nodes += nodes
        self._characters += characters
        if self._nodes > MOST_NODES:
            raise ConfigError.of(f"The file comes to more than {MOST_NODES} values, with those that its aliases repeat.", _line(event))
        if self._characters > MOST_CHARACTERS:
            raise ConfigError.of(
                f"The file comes to more than {MOST_CHARACTERS} characters, with those that its aliases repeat.", _line(event)
            )

    def _scalar(self, event: Any) -> Scalar:
        text = event.value
        if "\0" in text or any("\ud800" <= letter <= "\udfff" for letter in text):
            raise ConfigError.of("A text cannot hold the character NUL, or half of a character.", _line(event))
        self._count(0, len(text), event)
        tag = self._tag(event)
        if tag is None:
            tag = self._resolver.resolve(yaml.ScalarNode, text, event.implicit)
        return Scalar(text, tag.removeprefix(_TAG), _line(event))

    def _sequence(self, event: Any, depth: int) -> Sequence:
        self._tag(event)
        found = Sequence([], _line(event))
        while not isinstance(inner := next(self._events), yaml.SequenceEndEvent):
            item = self._node(inner, depth + 1)
            found.items.append(item)
            found.nodes += item.nodes
            found.characters += item.characters
        return found

    def _mapping(self, event: Any, depth: int) -> Mapped:
        self._tag(event)
        found = Mapped({}, _line(event))
        while not isinstance(inner := next(self._events), yaml.MappingEndEvent):
            key = self._node(inner, depth + 1)
            line = _line(inner)
            value = self._node(next(self._events), depth + 1)
            found.nodes += key.nodes + value.nodes
            found.characters += key.characters + value.characters
            if not isinstance(key, Scalar):
                raise ConfigError.of("A key must be a name, not a list or a mapping.", line)
            if key.kind == "merge":
                found.merged += self._merged(value, line)
                continue
            if key.is_null or not key.text.strip():
                raise ConfigError.of("A key is empty; give it a name.", line)
            if key.text in found.entries:
                first = found.entries[key.text].line
                raise ConfigError.of(f"The key {quoted(key.text)} stands here a second time; the first is in line {first}.", line)
            found.entries[key.text] = Entry(value, line)
        for other in found.merged:
            for name, entry in other.entries.items():
                found.entries.setdefault(name, entry)
        return found

    def _merged(self, value: Node, line: int) -> list[Mapped]:
        values = value.items if isinstance(value, Sequence) else [value]
        if not all(isinstance(each, Mapped) for each in values):
            raise ConfigError.of("`<<` takes a mapping, or a list of mappings.", line)
        return [each for each in values if isinstance(each, Mapped)]

    def _tag(self, event: Any) -> str | None:
        """The tag that is written; None where there is none."""
        if event.tag is None or event.tag == "!":
            return None
        if event.tag not in _PLAIN_TAGS:
            raise ConfigError.of(f"The tag {quoted(event.tag)} means nothing here; take it away.", _line(event))
        return str(event.tag)


def _line(event: Any) -> int:
    return int(event.start_mark.line) + 1


def _line_of(text: str) -> int:
    """Of the first character that YAML does not allow."""
    found = yaml.reader.Reader.NON_PRINTABLE.search(text)
    return text.count("\n", 0, found.start()) + 1 if found else 1


def _indentation(text: str, line: int) -> str:
    lines = text.split("\n")
    return lines[line][: len(lines[line]) - len(lines[line].lstrip())] if line < len(lines) else ""
