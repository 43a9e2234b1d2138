"""Trusted documents: operations that are known at startup, which clients request by id (the appendix on persisted documents of the GraphQL
over HTTP specification).

A document has one operation and the fragments it uses. Its id is `sha256:` and the SHA-256 of its text as UTF-8, in lower-case hex.
Documents are read from a folder of `.graphql` files or from a manifest, which is JSON: `{"sha256:…": "query …"}`. A file with one operation
is a document without changes, because that is what tools hash. In a file with several operations, each operation is a document with the
fragments that it uses, unchanged, with a blank line before each. Clients may also request such a file as a whole, by its text or the id of
its text, together with the name of the operation.

Documents are parsed, validated and measured once. Their depth and their numbers of tokens, aliases, directives and root fields are not
limited. Page sizes and rows, which may depend on variables, are limited as in all operations, and so is the rate. Permissions are checked
as always.
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
)

from graph.documents.document_parser import parse_without_tokens
from graph.documents.document_validator import validate_document
from graph.documents.documents import (
    NOT_STORABLE_MESSAGE,
    InvalidOperation,
    ParsedOperation,
    has_storable_literals,
    make_prepared_operation,
)
from graph.documents.fragments import fragments_used_by
from graph.operations import limits
from graph.operations.rate_limits import points
from graph.schema import graphql_schema as SCHEMA  # noqa: N812

DASHBOARDS = Path(__file__).parent / "dashboards"
"""The dashboard queries that are part of the product."""
ID_PREFIX = "sha256:"
ID_PATTERN = re.compile(r"sha256:[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class TrustedDocument:
    """A trusted document. `source` is its file, `source_text` the file's contents. Without a `name` it is found only by its id."""

    id: str
    name: str | None
    text: str
    source: Path
    source_text: str
    operation: ParsedOperation

    @property
    def kind(self) -> str:
        """`query`, `mutation` or `subscription`."""
        return self.operation.prepared.kind

    @property
    def rows(self) -> int:
        """Static cost in rows, without variables."""
        return self.operation.measured.rows({})

    @property
    def points(self) -> int:
        """Cost in points of the rate limit, without variables."""
        return points(self.rows)


@dataclass(frozen=True, slots=True)
class LoadedDocuments:
    """The documents of a folder or a manifest, and a line for each invalid one, with its file and the reason."""

    documents: tuple[TrustedDocument, ...] = ()
    problems: tuple[str, ...] = ()


class TrustedDocuments:
    """Documents by id, by exact text and by the name of their operation; the first of several with the same name is found.

    `operations_by_text` has the operations of each text by name; None is the key of a single operation. Documents in `unnamed` are not
    found by name.
    """

    def __init__(self, documents: Iterable[TrustedDocument] = (), unnamed: Iterable[TrustedDocument] = ()) -> None:
        self.operations_by_text: dict[str, dict[str | None, ParsedOperation]] = {}
        self._by_name: dict[str, TrustedDocument] = {}
        for document in documents:
            self._add(document)
            if document.name is not None:
                self._by_name.setdefault(document.name, document)
        for document in unnamed:
            self._add(document)
        self._texts_by_id = {compute_document_id(text): text for text in self.operations_by_text}

    def _add(self, document: TrustedDocument) -> None:
        self.operations_by_text.setdefault(document.text, {None: document.operation})[document.name] = document.operation
        self.operations_by_text.setdefault(document.source_text, {})[document.name] = document.operation

    def __bool__(self) -> bool:
        return bool(self.operations_by_text)

    def text_of(self, key: str) -> str | None:
        """Returns the text with this id; None if there is none."""
        return self._texts_by_id.get(key)

    def named(self, name: str) -> TrustedDocument | None:
        return self._by_name.get(name)

    def queries(self) -> list[TrustedDocument]:
        """Returns the queries that can be requested by name, ordered by name."""
        return [document for name, document in sorted(self._by_name.items()) if document.kind == "query"]


NO_DOCUMENTS = TrustedDocuments()


def compute_document_id(text: str) -> str:
    """Returns the id of a document: `sha256:…`."""
    return ID_PREFIX + sha256(text.encode()).hexdigest()


def read_documents(path: Path) -> LoadedDocuments:
    """Reads the documents of a folder, including subfolders, or of a manifest. Raises OSError."""
    return _reject_duplicate_names(_read_folder(path) if path.is_dir() else _read_manifest(path))


@cache
def read_built_in(folder: Path) -> LoadedDocuments:
    """Reads the documents of a folder that is part of the product, once per process. They are valid (see `prepare_document`).

    Each file is parsed once, since this is part of every start: operations of a file share its fragments, and errors of them have
    positions in the file.
    """
    return _read_folder(folder, is_valid=True)


def make_manifest(documents: Iterable[TrustedDocument]) -> dict[str, str]:
    """Returns the contents of a manifest for these documents."""
    return {document.id: document.text for document in documents}


def _read_folder(folder: Path, *, is_valid: bool = False) -> LoadedDocuments:
    documents: list[TrustedDocument] = []
    problems: list[str] = []
    for path in sorted(folder.rglob("*.graphql")):
        try:
            text = path.read_bytes().decode()
            parts = _split_operations(text)
        except (GraphQLError, UnicodeDecodeError, InvalidOperation) as error:
            problems.append(f"{path}: {_describe_error(error)}")
            continue
        if is_valid:
            documents += [_make_document(part, node, path, text) for _, part, node in parts]
            continue
        for name, part, _ in parts:
            _add_document(documents, problems, part, path, text, f"{path}: {name}" if name else str(path))
    return LoadedDocuments(tuple(documents), tuple(problems))


def _read_manifest(path: Path) -> LoadedDocuments:
    try:
        content: Any = orjson.loads(path.read_bytes())
    except orjson.JSONDecodeError as error:
        return LoadedDocuments(problems=(f"{path}: invalid JSON: {error}",))
    if not isinstance(content, dict):
        return LoadedDocuments(problems=(f'{path}: a manifest must be an object such as {{"sha256:…": "query …"}}',))
    documents: list[TrustedDocument] = []
    problems: list[str] = []
    for key, text in content.items():
        label = f"{path}: {key[:80]}"
        if not isinstance(text, str):
            problems.append(f"{label}: the document is not a string")
        elif key != compute_document_id(text):
            problems.append(f"{label}: the id does not match the document, whose id is {compute_document_id(text)}")
        else:
            _add_document(documents, problems, text, path, text, label)
    return LoadedDocuments(tuple(documents), tuple(problems))


def _add_document(
    documents: list[TrustedDocument],
    problems: list[str],
    text: str,
    source: Path,
    source_text: str,
    label: str,
) -> None:
    try:
        documents.append(parse_document(text, source, source_text))
    except InvalidOperation as error:
        problems.append(f"{label}: {error}")


def _reject_duplicate_names(loaded: LoadedDocuments) -> LoadedDocuments:
    by_name: dict[str, TrustedDocument] = {}
    problems = list(loaded.problems)
    for document in loaded.documents:
        if document.name is not None and (first := by_name.setdefault(document.name, document)).id != document.id:
            problems.append(f"{document.source}: {first.source} has another operation with the name {document.name}")
    return LoadedDocuments(loaded.documents, tuple(problems))


def parse_document(text: str, source: Path, source_text: str | None = None) -> TrustedDocument:
    """Parses, validates and measures a document. Raises InvalidOperation with all reasons."""
    try:
        document = parse_without_tokens(text)
    except GraphQLError as error:
        raise InvalidOperation(_describe_error(error)) from None
    operations = _operation_nodes(document)
    if len(operations) != 1:
        raise InvalidOperation(f"a document must have exactly one operation, and this one has {len(operations)}")
    made = _make_document(text, document, source, source_text or text)
    errors = made.operation.measured.errors_without_variables() or validate_document(document)
    if errors:
        raise InvalidOperation("; ".join(map(_describe_error, errors)))
    if not has_storable_literals(document):
        raise InvalidOperation(NOT_STORABLE_MESSAGE)
    return made


def _make_document(text: str, document: DocumentNode, source: Path, source_text: str) -> TrustedDocument:
    """Measures a document of one operation, and prepares the operation."""
    measured = limits.measure(document, SCHEMA, trusted=True)
    (operation,) = _operation_nodes(document)
    prepared = make_prepared_operation(document, operation)
    return TrustedDocument(compute_document_id(text), prepared.name, text, source, source_text, ParsedOperation(prepared, measured))


def _split_operations(text: str) -> list[tuple[str | None, str, DocumentNode]]:
    """Splits a file into its documents: the names of their operations, their texts, and their nodes, which have positions in the file.

    Raises GraphQLError, InvalidOperation.
    """
    document = parse_without_tokens(text)
    operations = _operation_nodes(document)
    if len(operations) == 1:
        return [(operations[0].name.value if operations[0].name else None, text, document)]
    fragments = {node.name.value: node for node in document.definitions if isinstance(node, FragmentDefinitionNode)}
    parts: list[tuple[str | None, str, DocumentNode]] = []
    for operation in operations:
        if operation.name is None:
            raise InvalidOperation("if there are several operations, each must have a name")
        try:
            used_fragments = fragments_used_by(operation, fragments)
        except KeyError as error:
            raise InvalidOperation(f"there is no fragment {error.args[0]}") from None
        nodes = (operation, *(node for name, node in fragments.items() if name in used_fragments))
        part = "\n\n".join(_source_of(text, node) for node in nodes)
        parts.append((operation.name.value, part, DocumentNode(definitions=nodes)))
    if not parts:
        raise InvalidOperation("the file has no operation")
    return parts


def _operation_nodes(document: DocumentNode) -> list[OperationDefinitionNode]:
    return [node for node in document.definitions if isinstance(node, OperationDefinitionNode)]


def _source_of(text: str, node: Node) -> str:
    assert node.loc is not None, "the document was parsed with locations"  # noqa: S101
    return text[node.loc.start : node.loc.end]


def _describe_error(error: Exception) -> str:
    if isinstance(error, GraphQLError):
        locations = error.locations or ()
        return f"{error.message} (line {locations[0].line})" if locations else error.message
    return "the file is not UTF-8" if isinstance(error, UnicodeDecodeError) else str(error)
