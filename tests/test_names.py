"""The names of the product: unique class names, no words that the field does not use, short commit titles.

`python -m tests.test_names` prints every use of a discouraged word, and NOT_YET as it is now.
"""

import ast
import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest
from graphql import Node, Visitor, parse, visit

ROOT = Path(__file__).parents[1]
PACKAGES = ("storage", "graph", "rest_v3", "ci_v1", "forgefront")
SCHEMA = "schema.graphql"
DOCUMENTS = (
    "*.md",
    "docs/*.md",
    "graph/planner/README.md",
    "scripts/*",
    "forgefront/pages/graphiql/*.js*",
    "forgefront/pages/graphiql/*.css",
)
PAGE_FILES = ("*.js", "*.css", "*.html")
MAX_TITLE_LENGTH = 72
FIRST_CHECKED_COMMIT = "72975e984c7a3bd0c4eaedf483773357206757e0"
"""Titles of later commits are checked."""

REPLACEMENTS = {
    "anew": "again",
    "asked": "requested",
    "bell": "event",
    "cancelled": "canceled",
    "chore": "job",
    "dear": "expensive",
    "dearest": "most expensive",
    "door": "endpoint",
    "doors": "endpoints",
    "entrance": "lookup",
    "hangs": "blocks, or belongs to",
    "hanging": "parent join",
    "heard": "received",
    "hears": "receives",
    "instant": "timestamp",
    "judge": "authorize",
    "judged": "authorized",
    "judges": "authorizes",
    "manieth": "nth",
    "mend": "repair",
    "mended": "repaired",
    "noticed": "detected",
    "shelf": "cache segment",
    "spell": "serialize",
    "spelled": "serialized",
    "spelling": "serializer",
    "tell": "notify, record, or report",
    "telling": "notifying",
    "tells": "notifies, records, or reports",
    "told": "notified, recorded, or reported",
    "upkeep": "maintenance",
    "verdict": "decision",
    "whoever": "every caller who",
    "wish": "options",
    "wishes": "options",
    "woken": "notified",
}
"""Words that are never the term for something in this code base, and the terms; in names, schema descriptions and error messages."""

NAME_REPLACEMENTS = REPLACEMENTS | {
    "gone": "deleted, or disconnected",
    "clues": "hints",
    "given": "passed, stored, or set",
    "held": "locked, or stored",
    "kept": "stored, or committed",
    "largest": "max",
    "longest": "max",
    "wanted": "requested, or expected",
}
"""The same for names, which also avoid words that a sentence may use."""

PHRASE_REPLACEMENTS = {
    "anew": "again",
    "at hand": "available",
    "bell": "event",
    "but for": "except",
    "by itself": "automatically, alone, or separately",
    "chore": "job",
    "dearest": "most expensive",
    "door": "endpoint",
    "entrance": "lookup",
    "for ever": "without end",
    "hears of": "receives",
    "judges": "authorizes",
    "lawful": "valid",
    "mend": "repair",
    "mended": "repaired",
    "nor do": "and ... not",
    "nor is": "and ... not",
    "noticed": "detected",
    "shelf": "cache segment",
    "so manieth": "nth",
    "so many": "this number of",
    "spelled": "written, or serialized",
    "take back": "undo",
    "tell": "notify, report, or distinguish",
    "tells": "notifies, reports, or distinguishes",
    "told": "notified, reported, or distinguished",
    "upkeep": "maintenance",
    "verdict": "decision",
    "whoever": "every caller who",
    "woken": "notified",
}
"""Phrases that no comment, docstring or document uses, nor any script of the pages, with the terms to use."""

PHRASE_PATTERN = re.compile(rf"(?<![\w./-])(?:{'|'.join(PHRASE_REPLACEMENTS)})(?![\w/-])", re.IGNORECASE)
"""A phrase as words of prose: not as a method (`file.tell`) or as a part of an address."""

VAGUE_FUNCTION = re.compile(r"_*(?:handle|process|do|manage)_")
VAGUE_CLASS = re.compile(r".*(?:Handler|Helpers?|Manager|Utils?)$")
ALLOWED_VAGUE_NAMES = {
    "_do_get": "overrides a method of SQLAlchemy's pool",
    "_do_return_conn": "overrides a method of SQLAlchemy's pool",
    "_process_parameters_for_postcompile": "overrides a method of SQLAlchemy's compiler",
    "handle_cont": "overrides a method of uvicorn's WebSocket protocol",
    "handle_exit": "overrides a method of uvicorn's server",
    "handle_websocket_upgrade": "overrides a method of uvicorn's HTTP protocol",
    "process_bind_param": "overrides a method of SQLAlchemy's types",
}
"""Names of libraries that do not say what the function does."""

ALLOWED_NAMES = {
    "is_gone": "status 410 Gone of HTTP",
    "largest_artifact": "public: FORGEFRONT_LARGEST_ARTIFACT",
    "largest_file": "public: FORGEFRONT_LARGEST_FILE",
    "largest_object": "public: FORGEFRONT_LARGEST_OBJECT",
    "largest_push": "public: FORGEFRONT_LARGEST_PUSH",
    "largest_trace": "public: FORGEFRONT_LARGEST_TRACE",
}
"""Names that keep a word of the list, with the reason."""

ALLOWED_SENTENCES: dict[str, str] = {}
"""Beginnings of messages and descriptions that keep a word of the list, with the reason."""

NOT_YET: dict[str, int] = {}
"""Uses that are still to be replaced, by package. A count must be lowered with each use that goes, and never grows."""


class Use(NamedTuple):
    area: str
    location: str
    text: str
    word: str

    def __str__(self) -> str:
        return f"{self.location}: {self.text!r} has {self.word!r}: write {NAME_REPLACEMENTS[self.word]!r}"


def product_files() -> Iterator[tuple[str, Path]]:
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            if "versions" not in path.parts:
                yield package, path


@cache
def parse_module(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def nodes_of(tree: ast.AST) -> list[ast.AST]:
    """All nodes of a module, which several tests look through."""
    return list(ast.walk(tree))


def words_of(name: str) -> list[str]:
    """`HTTPRequest_id` has the words http, request and id."""
    return [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)]


@cache
def identifiers_of(tree: ast.AST) -> list[tuple[int, str]]:
    """The names that a module defines, with their lines."""
    found = []
    for node in nodes_of(tree):
        match node:
            case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
                found.append((node.lineno, node.name))
            case ast.arg():
                found.append((node.lineno, node.arg))
            case ast.Name(ctx=ast.Store()):
                found.append((node.lineno, node.id))
            case ast.Attribute(ctx=ast.Store()):
                found.append((node.lineno, node.attr))
            case ast.alias(asname=str(name)):
                found.append((node.lineno, name))
    return found


def messages_of(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """The strings in `raise` statements, with their lines; expressions in f-strings become `{}`."""
    for statement in nodes_of(tree):
        if not isinstance(statement, ast.Raise) or not isinstance(statement.exc, ast.Call):
            continue
        formatted: set[int] = set()
        for node in ast.walk(statement.exc):
            if isinstance(node, ast.JoinedStr):
                formatted.update(id(part) for value in node.values for part in ast.walk(value))
                yield node.lineno, "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in formatted:
                yield node.lineno, node.value


def uses_in_code() -> Iterator[Use]:
    for package, path in product_files():
        module = path.relative_to(ROOT)
        tree = parse_module(path)
        modules = ((1, part) for part in module.with_suffix("").parts[1:])
        for line, name in {*modules, *identifiers_of(tree)}:
            yield from uses_in_name(package, f"{module}:{line}", name)
        for line, message in messages_of(tree):
            yield from uses_in_prose(package, f"{module}:{line}", message)


def uses_in_name(area: str, location: str, name: str) -> Iterator[Use]:
    for word in words_of(name):
        if word in NAME_REPLACEMENTS and name not in ALLOWED_NAMES:
            yield Use(area, location, name, word)


def uses_in_prose(area: str, location: str, text: str) -> Iterator[Use]:
    if text.startswith(tuple(ALLOWED_SENTENCES)):
        return
    for word in re.findall(r"[a-z]+", text.lower()):
        if word in REPLACEMENTS:
            yield Use(area, location, text, word)


class DescriptionVisitor(Visitor):
    def __init__(self) -> None:
        super().__init__()
        self.uses: list[Use] = []

    def enter(self, node: Node, *_: object) -> None:
        description, name = getattr(node, "description", None), getattr(node, "name", None)
        if description is None or name is None:
            return
        location = f"{SCHEMA}:{name.loc.start_token.line}"
        self.uses += uses_in_prose(SCHEMA, location, description.value)
        self.uses += uses_in_name(SCHEMA, location, name.value)


def uses_in_schema() -> list[Use]:
    visitor = DescriptionVisitor()
    visit(parse((ROOT / SCHEMA).read_text(encoding="utf-8")), visitor)
    return visitor.uses


def text_files() -> Iterator[Path]:
    """The files with prose: product code, the documents, and the pages without the libraries that they bundle."""
    yield from (path for _, path in product_files())
    yield from (path for pattern in DOCUMENTS for path in sorted(ROOT.glob(pattern)) if path.is_file())
    static = ROOT / "forgefront/pages/static"
    yield from (path for pattern in PAGE_FILES for path in sorted(static.rglob(pattern)) if "vendor" not in path.parts)


def phrases_in(text: str) -> Iterator[tuple[int, str]]:
    """The discouraged phrases of a text, with their lines.

    >>> list(phrases_in("Jobs are told what to do."))
    [(1, 'told')]
    """
    for found in PHRASE_PATTERN.finditer(text):
        yield text.count("\n", 0, found.start()) + 1, found[0]


def all_uses() -> list[Use]:
    return [*uses_in_code(), *uses_in_schema()]


def test_every_word_is_the_term_of_the_field() -> None:
    uses = all_uses()
    counts = Counter(use.area for use in uses)
    for area in (*PACKAGES, SCHEMA):
        found = "\n".join(str(use) for use in uses if use.area == area)
        assert counts[area] <= NOT_YET.get(area, 0), f"use the term of the field, or give a reason in ALLOWED_NAMES:\n{found}"
        assert counts[area] == NOT_YET.get(area, 0), f"{area} has only {counts[area]} uses left: lower NOT_YET, which may only shrink"


def test_prose_is_plain() -> None:
    uses = [
        f"{path.relative_to(ROOT)}:{line}: {phrase!r}: write {PHRASE_REPLACEMENTS[phrase.lower()]!r}"
        for path in text_files()
        for line, phrase in phrases_in(path.read_text(encoding="utf-8"))
    ]
    assert uses == [], "\n".join(uses)


@pytest.mark.parametrize(
    ("text", "phrases"),
    [
        ("Clients are told\nso many times.", [(1, "told"), (2, "so many")]),
        ("Whoever asks", [(1, "Whoever")]),
        ("file.tell(), /bell and untold doors", []),
    ],
)
def test_phrases_are_found_as_words(text: str, phrases: list[tuple[int, str]]) -> None:
    assert list(phrases_in(text)) == phrases


def test_functions_and_classes_say_what_they_do() -> None:
    """`handle_status_change` and `StatusManager` name no effect."""
    vague = {
        node.name: path.relative_to(ROOT).as_posix()
        for _, path in product_files()
        for node in nodes_of(parse_module(path))
        if (isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and VAGUE_FUNCTION.match(node.name))
        or (isinstance(node, ast.ClassDef) and VAGUE_CLASS.match(node.name))
    }
    assert {name: path for name, path in vague.items() if name not in ALLOWED_VAGUE_NAMES} == {}
    assert ALLOWED_VAGUE_NAMES.keys() <= vague.keys(), "the list allows names that nothing has"


def test_every_class_name_is_unique() -> None:
    """A table and the GraphQL type of the same noun share its name; every other class has a name of its own."""
    classes: dict[str, list[str]] = {}
    for _, path in product_files():
        for node in nodes_of(parse_module(path)):
            if isinstance(node, ast.ClassDef):
                classes.setdefault(node.name, []).append(path.relative_to(ROOT).as_posix())
    shared = {name: paths for name, paths in classes.items() if len(paths) > 1 and not is_table_and_type(paths)}
    assert shared == {}


def is_table_and_type(paths: list[str]) -> bool:
    table, graph_type, *others = sorted(paths, reverse=True)
    return not others and table.startswith("storage/tables/") and graph_type.startswith("graph/types/")


def test_every_allowed_word_is_in_use() -> None:
    """An allow list that outlives its names hides new ones."""
    names = {name for _, path in product_files() for _, name in identifiers_of(parse_module(path))}
    assert set(ALLOWED_NAMES) <= names


def test_commit_titles_are_short() -> None:
    known = git("cat-file", "-e", f"{FIRST_CHECKED_COMMIT}^{{commit}}")
    titles = git("log", "--no-merges", "--format=%s", f"{FIRST_CHECKED_COMMIT}..HEAD") if known is not None else None
    if titles is None:
        pytest.skip("there is no git history with the first checked commit")
    assert [title for title in titles.splitlines() if len(title) > MAX_TITLE_LENGTH] == []


def git(*arguments: str) -> str | None:
    """The output of git; None if it fails, as outside a repository."""
    try:
        done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, check=False, timeout=30)
    except OSError:
        return None
    return done.stdout.decode() if done.returncode == 0 else None


if __name__ == "__main__":
    for each in all_uses():
        print(each)
    print(f"NOT_YET = {dict(Counter(each.area for each in all_uses()))}")
