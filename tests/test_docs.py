"""README and docs: linked files, named symbols and cited numbers exist."""

import ast
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
GUIDES = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "benchmarks/README.md")
PAGES = sorted(
    path.relative_to(ROOT).as_posix()
    for path in (*(ROOT / guide for guide in GUIDES), *(ROOT / "docs").glob("*.md"), *ROOT.glob("graph/**/README.md"))
    if path.is_file()
)
TOP_FOLDERS = sorted(
    path.name for path in ROOT.iterdir() if (path.is_dir() and (path / "__init__.py").is_file()) or path.name in ("docs", "scripts")
)
LINK = re.compile(r"\]\(([^)\s]+)\)")
NAMED_PATH = re.compile(rf"(?<![\w/.~-])((?:{'|'.join(TOP_FOLDERS)})/[\w./-]*\w/?)(?![\w*{{])")
SYMBOL = re.compile(r"`([\w/]+\.py):([A-Za-z_][\w.]*)`")
CITATION = re.compile(r"docs/(decisions|wire-facts|promises)\.md,? ((?:section )?(?:R?\d[\d.]*|\([a-d]\))(?:(?:, | and |-)R?\d[\d.]*)*)")
PRODUCT_FOLDERS = ("storage", "graph", "rest_v3", "ci_v1", "forgefront")
CHECKOUT_FILE = re.compile(r"\b(?:docs/[\w-]+\.md|scripts/\w|(?:CONTRIBUTING|CHANGELOG)\.md)")
CHECKOUT_WORDS = ("docs/", "scripts/", "CONTRIBUTING", "CHANGELOG")
"""A source without any of these is not parsed: no string of it matches `CHECKOUT_FILE`."""
CHECKOUT_PROGRAMS = ("rest_v3/api_docs/profile_differences.py", "storage/migrations/__main__.py", "forgefront/demo/demo_content.py")
"""Programs of developers, and the files of a made-up repository."""
PLACEHOLDERS = ("milestone_stars",)
"""The examples of CONTRIBUTING.md."""


def read(path: str) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


def tracked_sources() -> list[str]:
    listed = subprocess.run(["git", "ls-files", "*.py", "scripts"], cwd=ROOT, capture_output=True, text=True, check=True)
    return [path for path in listed.stdout.split() if path != "tests/test_docs.py" and (ROOT / path).is_file()]


def anchors_of(text: str) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def numbers_of(document: str) -> set[str]:
    text = read(f"docs/{document}.md")
    if document == "decisions":
        return set(re.findall(r"^(\d+)\. ", text, re.MULTILINE))
    if document == "promises":
        return set(re.findall(r"^\| (R\d+) \|", text, re.MULTILINE)) | set(re.findall(r"^## (\([a-d]\))", text, re.MULTILINE))
    return {number.rstrip(".") for number in re.findall(r"^##+ ([\d.]+)", text, re.MULTILINE)}


@pytest.mark.parametrize("page", PAGES)
def test_relative_links_lead_somewhere(page: str) -> None:
    wrong = []
    for target in LINK.findall(re.sub(r"`[^`\n]*`", "", read(page))):
        if target.startswith(("http://", "https://", "mailto:")):
            continue
        name, _, anchor = target.partition("#")
        file = (ROOT / page).parent / name if name else ROOT / page
        if not file.exists() or (anchor and anchor not in anchors_of(file.read_text(encoding="utf-8"))):
            wrong.append(target)
    assert not wrong, f"{page} links what does not exist: {', '.join(wrong)}"


@pytest.mark.parametrize("page", [page for page in PAGES if page != "CHANGELOG.md"])
def test_named_files_exist(page: str) -> None:
    named = {path.rstrip(".") for path in NAMED_PATH.findall(read(page)) if not any(word in path for word in PLACEHOLDERS)}
    wrong = sorted(path for path in named if not (ROOT / path).exists() and not list(ROOT.glob(f"{path}.*")))
    assert not wrong, f"{page} names files that do not exist: {', '.join(wrong)}"


@pytest.mark.parametrize("page", PAGES)
def test_named_symbols_exist(page: str) -> None:
    """`graph/context.py:Context.loader`: each part of the name is defined in the file."""
    wrong = []
    for path, symbol in SYMBOL.findall(read(page)):
        text = read(path) if (ROOT / path).is_file() else ""
        if not all(re.search(rf"(?:def|class) {part}\b|^\s*{part}\b\s*[:=]", text, re.MULTILINE) for part in symbol.split(".")):
            wrong.append(f"{path}:{symbol}")
    assert not wrong, f"{page} names symbols that do not exist: {', '.join(wrong)}"


def test_names_without_a_path_exist() -> None:
    """`PlanCache.find`: a file of the product has the class and this name. `page_select.py`, `MAX_IDLE`: the product has them."""
    sources = tracked_sources()
    files = {Path(path).name for path in sources}
    texts = {path: read(path) for path in sources if path.startswith(PRODUCT_FOLDERS) and path.endswith(".py")}
    words = set[str]().union(*(re.findall(r"[A-Z]\w+", text) for text in (*texts.values(), read("schema.graphql"))))
    wrong = []
    for page in ("docs/architecture.md", "graph/planner/README.md"):
        for named in re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", read(page), flags=re.DOTALL)):
            wrong += [name for name in re.findall(r"(?<![\w/.-])[a-z]\w*\.py\b", named) if name not in files]
            for name, member in re.findall(r"(?<![\w/.$-])([A-Z]\w*[a-z]\w*|(?!FORGEFRONT)[A-Z]+_[A-Z_]+)(?:\.(\w+))?", named):
                definers = [text for text in texts.values() if f"\nclass {name}" in text] if member else []
                if name not in words or (member and not any(re.search(rf"\b{member}\b", text) for text in definers)):
                    wrong.append(f"{page}: {named}")
    assert not wrong, f"these names do not exist: {', '.join(wrong)}"


def test_citations_have_a_number_in_docs() -> None:
    known = {document: numbers_of(document) for document in ("decisions", "wire-facts", "promises")}
    assert known["decisions"] == {str(number) for number in range(1, len(known["decisions"]) + 1)}
    wrong = []
    for path in tracked_sources():
        for document, cited in CITATION.findall(read(path)):
            for number in re.findall(r"R?\d+(?:\.\d+)*|\([a-d]\)", cited):
                if number not in known[document]:
                    wrong.append(f"{path}: docs/{document}.md {number}")
    assert not wrong, "\n".join(wrong)


def test_code_cites_nothing_outside_the_repository() -> None:
    outside = re.compile(r"\bDECISIONS \d|\bRELIABILITY (?:R\d|\()|[Ww]ire[ -]facts \d|\bclients\.md\b|\b(?:GRAPH|HOUSE|GIT|NAMES)\.md\b")
    wrong = [path for path in tracked_sources() if outside.search(read(path))]
    assert not wrong, f"cite docs/ instead: {', '.join(wrong)}"


def test_messages_name_no_file_of_the_checkout() -> None:
    """The wheel has neither documents nor scripts, so its users could not read them."""
    found = []
    for folder in PRODUCT_FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            text = path.read_text(encoding="utf-8")
            if not any(word in text for word in CHECKOUT_WORDS):
                continue
            nodes = list(ast.walk(ast.parse(text)))
            # A docstring, of a constant too, is a statement of its own.
            prose = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
            strings = [node for node in nodes if isinstance(node, ast.Constant) and id(node) not in prose]
            lines = [node.lineno for node in strings if isinstance(node.value, str) and CHECKOUT_FILE.search(node.value)]
            found += [f"{path.relative_to(ROOT)}:{line}" for line in lines if path.relative_to(ROOT).as_posix() not in CHECKOUT_PROGRAMS]
    assert not found, "say in the message what the file says"


def test_measured_promises_are_documented() -> None:
    from tests.support.reliability_promises import PROMISES

    assert PROMISES.keys() <= numbers_of("promises"), "docs/promises.md has no row for a promise that scripts/check measures"


def test_configuration_is_documented() -> None:
    """Every setting is in the manual."""
    from forgefront.config import Config

    manual = read("docs/operations.md")
    missing = [name for name in Config.model_fields if f"FORGEFRONT_{name.upper()}`" not in manual]
    assert not missing, f"docs/operations.md lacks {', '.join(missing)}"


def test_contributing_names_tests_that_exist() -> None:
    """`test_routes.py::TestCalls::test_stand_once`: the file is unique, and has the class and the test."""
    wrong = []
    for file, *names in re.findall(r"`(test_\w+\.py)((?:::[\w*]+)*)`", read("CONTRIBUTING.md")):
        parts = [name for name in "".join(names).split("::") if name not in ("", "*")]
        found = list((ROOT / "tests").rglob(file))
        if len(found) != 1 or not all(re.search(rf"(?:def|class) {part}\b", found[0].read_text(encoding="utf-8")) for part in parts):
            wrong.append("::".join([file, *parts]))
    assert not wrong, f"CONTRIBUTING.md names tests that do not exist: {', '.join(wrong)}"


def test_walks_visit_a_file_again_only_with_a_reason() -> None:
    """In each walk of architecture.md, a step that names a file of an earlier step says why (visit, same file, earlier walk)."""
    text = read("docs/architecture.md").partition("## The five walks")[2].partition("## The planner")[0]
    walks = re.split(r"^### ", text, flags=re.MULTILINE)[1:]
    assert len(walks) == 5
    unexplained = []
    for walk in walks:
        seen: set[str] = set()
        for step in re.split(r"^\d+\. ", walk, flags=re.MULTILINE)[1:]:
            named = set(re.findall(r"`([\w/]+\.(?:py|graphql))", step))
            if named & seen and not re.search(r"visit|same file|as in walk|Steps \d", step):
                unexplained += [f"{walk.splitlines()[0]}: {path}" for path in sorted(named & seen)]
            seen |= named
    assert not unexplained, f"say why: {', '.join(unexplained)}"


def test_no_file_of_the_repository_is_one_that_it_ignores() -> None:
    """As what the commands of README write into the checkout."""
    command = ["git", "ls-files", "--cached", "--ignored", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert not listed.stdout
