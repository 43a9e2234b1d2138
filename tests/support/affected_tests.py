"""Selects the tests of the files that changed since main, for `scripts/test --quick`. The paths go to stdout, the reasons to stderr.

Changed files are those of the commits since the merge base with main (or origin/main), uncommitted ones and new ones. A changed test
file is selected. For any other file these are:

1. The tests with its name, in all layers: `rest_v3/routes/milestones.graphql` has `test_milestones.py` in `tests/rest_v3/routes` and in
   `tests/graph/issues`. In the folder that mirrors its own, longer names too: `issues.py` has `test_issue_closing.py` there.
2. The tests that import it, also through `tests/support`, unless there are more than `MAX_IMPORTERS`.
3. Without either, all tests of the folder that mirrors its own.
4. The tests of `CODEBASE_TESTS`, which compare a layer with its schema, revisions or documents.
"""

import ast
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any

from tests.conftest import pytest_plugins

ROOT = Path(__file__).parents[2]
RELIABILITY_FOLDER = "tests/reliability/"
MAX_IMPORTERS = 8
"""A module that more test files import has too many tests for a quick run."""
DOMAIN_FOLDERS = ("graph/types", "graph/rules", "storage/tables")
"""Their folders are domains, which `tests/graph` mirrors."""
CODEBASE_TESTS = {
    "graph/": ("tests/graph/operations/test_schema.py",),
    "graph/types/": tuple(
        f"tests/graph/operations/test_{name}.py" for name in ("field_facts", "filters", "inputs", "mutation_bodies", "read_permissions")
    ),
    "storage/tables/": (
        "tests/storage/test_tables.py",
        "tests/storage/test_migrations.py",
        "tests/graph/operations/test_snapshots.py",
    ),
    "storage/migrations/": ("tests/storage/test_migrations.py",),
    "rest_v3/": ("tests/rest_v3/interface/test_routes.py", "tests/rest_v3/interface/test_openapi.py"),
    "schema.graphql": ("tests/graph/operations/test_schema.py",),
    "scripts/": ("tests/forgefront/commands/test_scripts.py",),
    "forgefront/pages/static/": ("tests/forgefront/pages/test_static_files.py",),
    "pyproject.toml": ("tests/test_locks.py",),
    "requirements": ("tests/test_locks.py",),
    "docs/": ("tests/test_docs.py", "tests/test_examples.py"),
    "README.md": ("tests/test_docs.py", "tests/test_examples.py"),
    "CONTRIBUTING.md": ("tests/test_docs.py",),
    "CHANGELOG.md": ("tests/test_docs.py",),
}
"""Test files by the prefix of a changed path."""
NAMES_TEST = "tests/test_names.py"
"""Reads all modules."""
NOT_FOUND = "no test has its name or imports it"


def git(*arguments: str, check: bool = True) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=check)
    return done.stdout.strip()


def find_changes() -> tuple[str, list[str]]:
    """The commit to compare with, and the paths that differ from it."""
    mains = (git("merge-base", name, "HEAD", check=False) for name in ("main", "origin/main"))
    start = next(filter(None, mains), "HEAD")
    changed = git("diff", "--name-only", "--no-renames", start).splitlines()
    return start, sorted({*changed, *git("ls-files", "--others", "--exclude-standard").splitlines()})


def singular(name: str) -> str:
    """`issue` for `issues`, `policy` for `policies`."""
    return f"{name[:-3]}y" if name.endswith("ies") else name.removesuffix("s")


def noun_of(path: str) -> str:
    """The file name of a module, a GraphQL document or a test, in the singular."""
    return singular(PurePosixPath(path).stem.removeprefix("test_"))


@cache
def test_files() -> tuple[str, ...]:
    """All test files of `scripts/test`."""
    paths = (path.relative_to(ROOT).as_posix() for path in ROOT.glob("tests/**/test_*.py"))
    return tuple(sorted(path for path in paths if not path.startswith(RELIABILITY_FOLDER)))


def mirror_folder(path: str) -> str | None:
    """The deepest folder of `tests` that mirrors the file's folder; None if that is the folder of a whole package."""
    folder = str(PurePosixPath(path).parent)
    for domains in DOMAIN_FOLDERS:
        if folder.startswith(domains):
            folder = "graph" + folder.removeprefix(domains)
    while "/" in folder:
        if (ROOT / "tests" / folder).is_dir():
            return f"tests/{folder}/"
        folder = str(PurePosixPath(folder).parent)
    return None


def tests_of_the_name(path: str) -> list[str]:
    folder, words = mirror_folder(path), noun_of(path).split("_")
    # No test has the name of `merge_request_mutations`: fewer of its words name the noun.
    for length in range(len(words), 0, -1):
        noun = singular("_".join(words[:length]))
        found = [
            test
            for test in test_files()
            if (noun_of(test) == noun and (length == len(words) or test.startswith(folder or "tests/")))
            or (folder is not None and test.startswith(folder) and PurePosixPath(test).stem.startswith(f"test_{noun}_"))
        ]
        if found:
            return found
    return []


def module_of(path: str) -> str:
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def imported_modules(path: Path) -> Iterator[str]:
    """The modules that a file imports, among names that it imports from modules."""
    # Only statements, wherever they stand: most nodes of a module are those of expressions.
    to_visit: list[Any] = [ast.parse(path.read_bytes())]
    while to_visit:
        node = to_visit.pop()
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
            yield node.module
        for name in ("body", "orelse", "finalbody", "handlers", "cases"):
            to_visit += getattr(node, name, ())


@cache
def importers() -> dict[str, set[str]]:
    """The files of `tests` that import a module, by its name; without fixtures of the whole suite, which import most modules."""
    found = defaultdict(set)
    plugins = {f"{plugin.replace('.', '/')}.py" for plugin in pytest_plugins}
    for path in ROOT.glob("tests/**/*.py"):
        if path.relative_to(ROOT).as_posix() in plugins:
            continue
        for module in imported_modules(path):
            found[module].add(path.relative_to(ROOT).as_posix())
    return dict(found)


def tests_that_import(path: str) -> list[str]:
    """The test files that import the module, also through modules of tests/support."""
    found: set[str] = set()
    to_visit = [path]
    while to_visit:
        importing = importers().get(module_of(to_visit.pop()), set()) - found
        found |= importing
        to_visit += [each for each in importing if each not in test_files() and not each.endswith("conftest.py")]
    return sorted(found & set(test_files()))


def select_tests(path: str) -> tuple[set[str], str]:
    """The test files of a changed file, and the reason for them."""
    if path in test_files():
        return {path}, "changed"
    if not path.endswith((".py", ".graphql")):
        return set(), ""
    if path == "tests/conftest.py":
        return set(), "of its own; not selected: all tests, which use it"
    if path.endswith("conftest.py"):
        folder = path.removesuffix("conftest.py")
        return {test for test in test_files() if test.startswith(folder)}, f"in {folder}"
    named = set() if path.startswith("tests/") else set(tests_of_the_name(path))
    importing = set(tests_that_import(path))
    if len(importing) > MAX_IMPORTERS:
        return named, f"with its name; not selected: {len(importing)} that import it"
    if named or importing:
        return named | importing, "with its name or importing it"
    mirror = mirror_folder(path)
    return ({test for test in test_files() if test.startswith(mirror)}, f"in {mirror}") if mirror else (set(), NOT_FOUND)


def codebase_tests(path: str) -> Iterator[str]:
    for prefix, tests in CODEBASE_TESTS.items():
        if path.startswith(prefix):
            yield from tests
    if path.endswith(".py"):
        yield NAMES_TEST


def main() -> None:
    start, changed = find_changes()
    print(f"quick: {len(changed) or 'no'} files changed since {start[:10]}", file=sys.stderr)
    selected: set[str] = set()
    for path in changed:
        tests, reason = select_tests(path)
        also = {*codebase_tests(path)}
        counts = [f"{len(tests)} test files {reason}"] * bool(reason) + [f"{len(also)} of the codebase"] * bool(also)
        print(f"quick: {path}: {', '.join(counts) or 'has no tests'}", file=sys.stderr)
        selected |= tests | also
    for test in sorted(selected & set(test_files())):
        print(f"quick: selected {test}", file=sys.stderr)
        print(test)


if __name__ == "__main__":
    main()
