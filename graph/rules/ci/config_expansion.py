"""Expands a parsed file: `include` of other files of the commit, and `extends` of templates. Both merge mappings deeply.

Every step is bounded: included files share the bounds of one file (`yaml_documents.DocumentBudget`), and what merging copies is counted.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from graph.rules.ci.config_errors import PipelineConfigError, quote
from graph.rules.ci.yaml_documents import DocumentBudget, MappingEntry, MappingNode, Node, ScalarNode, SequenceNode, parse_document

MAX_INCLUDES = 20
"""Files that are included, directly or by others."""
MAX_EXTENDS_DEPTH = 10
MAX_MERGED_ENTRIES = 50_000
"""Entries of mappings that merging copies."""
MAX_PATH_LENGTH = 255

FileReader = Callable[[str], str]
"""Returns the text of a file of the commit by its path. Raises PipelineConfigError with the reason."""


@dataclass(slots=True)
class MergeBudget:
    """Counts the entries that merging copies."""

    entries: int = 0

    def add(self, number: int, line: int) -> None:
        self.entries += number
        if self.entries > MAX_MERGED_ENTRIES:
            raise PipelineConfigError.from_message(f"`include` and `extends` merge more than {MAX_MERGED_ENTRIES} entries.", line)


def expand_includes(root: MappingNode, read_file: FileReader | None, budget: DocumentBudget, merges: MergeBudget) -> MappingNode:
    """The file with everything that it includes; its own entries win. Raises PipelineConfigError."""
    if "include" not in root.entries:
        return root
    return _IncludeExpander(read_file, budget, merges).expand(root, ())


@dataclass(slots=True)
class _IncludeExpander:
    read_file: FileReader | None
    budget: DocumentBudget
    merges: MergeBudget
    number: int = 0

    def expand(self, root: MappingNode, chain: tuple[str, ...]) -> MappingNode:
        entry = root.entries.get("include")
        merged: MappingNode | None = None
        for path, line in _included_paths(entry) if entry is not None else ():
            included = self._load(path, line, chain)
            merged = included if merged is None else merge_nodes(merged, included, self.merges)
        own = MappingNode({key: each for key, each in root.entries.items() if key != "include"}, root.line)
        return own if merged is None else merge_nodes(merged, own, self.merges)

    def _load(self, path: str, line: int, chain: tuple[str, ...]) -> MappingNode:
        if path in chain:
            raise PipelineConfigError.from_message(f"include: {quote(path)} includes itself.", line)
        self.number += 1
        if self.number > MAX_INCLUDES:
            raise PipelineConfigError.from_message(f"include: more than {MAX_INCLUDES} files are included.", line)
        if self.read_file is None:
            raise PipelineConfigError.from_message(f"include: {quote(path)} cannot be read here, because there is no commit.", line)
        try:
            text = self.read_file(path)
        except PipelineConfigError as error:
            raise PipelineConfigError.from_message(f"include: {quote(path)}: {error.problems[0].message}", line) from error
        found = parse_document(text, file=path, budget=self.budget)
        if found is None:
            return MappingNode({}, line)
        if not isinstance(found, MappingNode):
            raise PipelineConfigError.from_message("The file must be a mapping of job names to jobs.", found.line)
        return self.expand(found, (*chain, path))


def _included_paths(entry: MappingEntry) -> list[tuple[str, int]]:
    items = entry.value.items if isinstance(entry.value, SequenceNode) else [entry.value]
    return [_included_path(item, entry.line if item is entry.value else item.line) for item in items]


def _included_path(item: Node, line: int) -> tuple[str, int]:
    if isinstance(item, MappingNode):
        for key, part in item.entries.items():
            if key != "local":
                raise PipelineConfigError.from_message(
                    f"include: {quote(key)} is not supported. Copy the file into this repository, and write `include: path/of/it.yml`.",
                    part.line,
                )
        item = item.entries["local"].value if "local" in item.entries else item
    if not isinstance(item, ScalarNode) or item.is_null:
        raise PipelineConfigError.from_message("include should be the path of a file of this repository, or a list of such paths.", line)
    path = item.value.strip().removeprefix("/")
    if "://" in path:
        raise PipelineConfigError.from_message(
            f"include: {quote(path)} is not in this repository. Copy the file into it, and write its path.", line
        )
    if not path.endswith((".yml", ".yaml")) or len(path) > MAX_PATH_LENGTH or any(part in ("", ".", "..") for part in path.split("/")):
        raise PipelineConfigError.from_message(f"include: {quote(path)} should be the path of a file that ends in .yml or .yaml.", line)
    return path, line


def merge_nodes(base: MappingNode, override: MappingNode, merges: MergeBudget) -> MappingNode:
    """Both mappings, deeply merged: of two other values the second wins, lists included."""
    merges.add(len(base.entries) + len(override.entries), override.line)
    entries = dict(base.entries)
    for key, entry in override.entries.items():
        inner = entries.get(key)
        if inner is not None and isinstance(inner.value, MappingNode) and isinstance(entry.value, MappingNode):
            entry = MappingEntry(merge_nodes(inner.value, entry.value, merges), entry.line)
        entries[key] = entry
    return MappingNode(entries, override.line)


@dataclass(slots=True)
class TemplateExpander:
    """Resolves `extends` of the jobs of a file."""

    root: MappingNode
    merges: MergeBudget
    resolved: dict[str, MappingNode] = field(default_factory=dict)

    def expand(self, name: str, entry: MappingEntry, chain: tuple[str, ...] = ()) -> MappingNode | None:
        """The job with everything that it extends; None if it is not a mapping. Raises PipelineConfigError."""
        if not isinstance(entry.value, MappingNode):
            return None
        extends = entry.value.entries.get("extends")
        if extends is None:
            return entry.value
        if name not in self.resolved:
            self.resolved[name] = self._merge(name, entry.value, extends, (*chain, name))
        return self.resolved[name]

    def _merge(self, name: str, node: MappingNode, extends: MappingEntry, chain: tuple[str, ...]) -> MappingNode:
        location = f"{quote(name)} job: extends"
        if len(chain) > MAX_EXTENDS_DEPTH:
            raise PipelineConfigError.from_message(
                f"{location}: templates extend each other more than {MAX_EXTENDS_DEPTH} times.", extends.line
            )
        merged = MappingNode({}, node.line)
        items = extends.value.items if isinstance(extends.value, SequenceNode) else [extends.value]
        for item in items:
            if not isinstance(item, ScalarNode) or item.is_null:
                raise PipelineConfigError.from_message(
                    f"{location} should be the name of a job or template, or a list of names.", extends.line
                )
            if item.value in chain:
                raise PipelineConfigError.from_message(f"{location}: {quote(item.value)} extends itself.", extends.line)
            parent = self.root.entries.get(item.value)
            found = self.expand(item.value, parent, chain) if parent is not None else None
            if found is None:
                raise PipelineConfigError.from_message(
                    f"{location}: {quote(item.value)} is not a job or template of the file.", extends.line
                )
            merged = merge_nodes(merged, found, self.merges)
        own = MappingNode({key: entry for key, entry in node.entries.items() if key != "extends"}, node.line)
        merged = merge_nodes(merged, own, self.merges)
        merged.entries.pop("extends", None)
        return merged
