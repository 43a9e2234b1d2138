"""Trusted documents: operations that are known at start, asked for by their ids rather than sent (the appendix on persisted documents of
the GraphQL over HTTP specification).

A document has one operation and the fragments it uses. Its id is `sha256:` and the SHA-256 of its text as UTF-8, in lower-case hex. They
come from a folder of `.graphql` files or from a manifest, JSON of `{"sha256:…": "query …"}`. A file with one operation is a document just
as it stands, which is what tools hash that write such files; of a file with several, each operation is a document with the fragments that
it uses, as they stand in the file, with a blank line before each. Such a file may be asked for as a whole too, by its text or the id of
that, with the name of the operation.

They are parsed, validated and measured once. How deep they are, how many tokens, aliases, directives and root fields they have is their
author's affair; page sizes and rows, which may hang on variables, are limited as everybody's, and so is the rate. Rights are as ever.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import orjson
from graphql import (
    DocumentNode,
    FragmentDefinitionNode,
    GraphQLError,
    Node,
    OperationDefinitionNode,
    parse,
    specified_rules,
    validate,
)

from graph import limits
from graph.operations import NOT_STORABLE, InvalidOperation, Text, literals_storable, prepared_of, used_by
from graph.rates import points
from graph.schema import graphql_schema as SCHEMA  # noqa: N812

DASHBOARDS = Path(__file__).parent / "documents"
"""The dashboard questions, which come with the service."""
PREFIX = "sha256:"
ID = re.compile(r"sha256:[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Document:
    """A trusted document. `source` is the file that it came from, and `whole` the text of that; without a `name` it is known by its id
    alone.
    """

    id: str
    name: str | None
    text: str
    source: Path
    whole: str
    read: Text

    @property
    def kind(self) -> str:
        """`query`, `mutation` or `subscription`."""
        return self.read.prepared.kind

    @property
    def rows(self) -> int:
        """Its static cost in rows, with no variables given."""
        return self.read.measured.rows({})

    @property
    def points(self) -> int:
        """What it costs of a viewer's rate, with no variables given."""
        return points(self.rows)


@dataclass(frozen=True, slots=True)
class Found:
    """What a folder or a manifest holds: documents, and a line for each thing that is none, with its file and the reason."""

    documents: tuple[Document, ...] = ()
    problems: tuple[str, ...] = ()


class Trusted:
    """Documents by id, by exact text and by the name of their operation; of two with one name the first counts. `texts` has the
    operations of each text, by name, and for None where there is one alone.

    `nameless` are further ones that are not found by their names.
    """

    def __init__(self, documents: Iterable[Document] = (), nameless: Iterable[Document] = ()) -> None:
        self.texts: dict[str, dict[str | None, Text]] = {}
        self._names: dict[str, Document] = {}
        for document in documents:
            self._add(document)
            if document.name is not None:
                self._names.setdefault(document.name, document)
        for document in nameless:
            self._add(document)
        self._ids = {id_of(text): text for text in self.texts}

    def _add(self, document: Document) -> None:
        self.texts.setdefault(document.text, {None: document.read})[document.name] = document.read
        self.texts.setdefault(document.whole, {})[document.name] = document.read

    def __bool__(self) -> bool:
        return bool(self.texts)

    def text_of(self, key: str) -> str | None:
        """The text of this id."""
        return self._ids.get(key)

    def named(self, name: str) -> Document | None:
        return self._names.get(name)

    def queries(self) -> list[Document]:
        """Those that can be asked for by name, in the order of their names."""
        return [document for name, document in sorted(self._names.items()) if document.kind == "query"]


NOTHING = Trusted()


def id_of(text: str) -> str:
    """The id of a document, as `sha256:…`."""
    return PREFIX + sha256(text.encode()).hexdigest()


def read(path: Path) -> Found:
    """The documents of a folder, its own folders included, or of a manifest. Raises OSError."""
    return _named_once(_folder(path) if path.is_dir() else _manifest(path))


@cache
def built_in(folder: Path) -> Found:
    """The documents of a folder that comes with the service, read once in a process."""
    return _folder(folder)


def manifest_of(documents: Iterable[Document]) -> dict[str, str]:
    """What a manifest file holds for these documents."""
    return {document.id: document.text for document in documents}


def _folder(folder: Path) -> Found:
    documents: list[Document] = []
    problems: list[str] = []
    for path in sorted(folder.rglob("*.graphql")):
        try:
            text = path.read_bytes().decode()
            parts = _operations_of(text)
        except (GraphQLError, UnicodeDecodeError, InvalidOperation) as error:
            problems.append(f"{path}: {_why(error)}")
            continue
        for name, part in parts:
            _add(documents, problems, part, path, text, f"{path}: {name}" if name else str(path))
    return Found(tuple(documents), tuple(problems))


def _manifest(path: Path) -> Found:
    try:
        content: Any = orjson.loads(path.read_bytes())
    except orjson.JSONDecodeError as error:
        return Found(problems=(f"{path}: this is no JSON: {error}",))
    if not isinstance(content, dict):
        return Found(problems=(f'{path}: a manifest is an object, as {{"sha256:…": "query …"}}',))
    documents: list[Document] = []
    problems: list[str] = []
    for key, text in content.items():
        shown = f"{path}: {key[:80]}"
        if not isinstance(text, str):
            problems.append(f"{shown}: the document is not a text")
        elif key != id_of(text):
            problems.append(f"{shown}: the id of this text is {id_of(text)}")
        else:
            _add(documents, problems, text, path, text, shown)
    return Found(tuple(documents), tuple(problems))


def _add(documents: list[Document], problems: list[str], text: str, source: Path, whole: str, shown: str) -> None:
    try:
        documents.append(document_of(text, source, whole))
    except InvalidOperation as error:
        problems.append(f"{shown}: {error}")


def _named_once(found: Found) -> Found:
    known: dict[str, Document] = {}
    problems = list(found.problems)
    for document in found.documents:
        if document.name is not None and (first := known.setdefault(document.name, document)).id != document.id:
            problems.append(f"{document.source}: {document.name} is the name of another operation too, in {first.source}")
    return Found(found.documents, tuple(problems))


def document_of(text: str, source: Path, whole: str | None = None) -> Document:
    """Parses, validates and measures a document. Raises InvalidOperation with every reason."""
    try:
        document = parse(text)
    except GraphQLError as error:
        raise InvalidOperation(_why(error)) from None
    operations = _operations(document)
    if len(operations) != 1:
        raise InvalidOperation(f"a document has one operation, and this has {len(operations)}")
    measured = limits.measure(document, SCHEMA, trusted=True)
    errors = measured.always() or validate(SCHEMA, document, specified_rules, hide_suggestions=True)
    if errors:
        raise InvalidOperation("; ".join(map(_why, errors)))
    if not literals_storable(document):
        raise InvalidOperation(NOT_STORABLE)
    prepared = prepared_of(document, operations[0])
    return Document(id_of(text), prepared.name, text, source, whole or text, Text(prepared, measured))


def _operations_of(text: str) -> list[tuple[str | None, str]]:
    """The documents of a file, by the names of their operations. Raises GraphQLError, InvalidOperation."""
    document = parse(text)
    operations = _operations(document)
    if len(operations) == 1:
        return [(operations[0].name.value if operations[0].name else None, text)]
    fragments = {node.name.value: node for node in document.definitions if isinstance(node, FragmentDefinitionNode)}
    parts: list[tuple[str | None, str]] = []
    for operation in operations:
        if operation.name is None:
            raise InvalidOperation("each of several operations needs a name")
        used = used_by(operation, fragments)
        nodes = (operation, *(node for name, node in fragments.items() if name in used))
        parts.append((operation.name.value, "\n\n".join(_written(text, node) for node in nodes)))
    if not parts:
        raise InvalidOperation("there is no operation in it")
    return parts


def _operations(document: DocumentNode) -> list[OperationDefinitionNode]:
    return [node for node in document.definitions if isinstance(node, OperationDefinitionNode)]


def _written(text: str, node: Node) -> str:
    assert node.loc is not None, "the parser keeps places"  # noqa: S101
    return text[node.loc.start : node.loc.end]


def _why(error: Exception) -> str:
    if isinstance(error, GraphQLError):
        places = error.locations or ()
        return f"{error.message} (line {places[0].line})" if places else error.message
    return "it is not UTF-8" if isinstance(error, UnicodeDecodeError) else str(error)
