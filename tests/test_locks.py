"""The lock files: complete, exact, with hashes, and free of addresses."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
ENTRY = re.compile(r"([\w.-]+)==(\S+)(?: ; [^\\]+)? \\")


def requirements(groups: list[Any]) -> list[Requirement]:
    """The requirements of dependency groups (PEP 735), those of the project included."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    found = [*project["project"]["dependencies"]]
    waiting = list(groups)
    while waiting:
        entry = waiting.pop()
        if isinstance(entry, dict):
            waiting.extend(project["dependency-groups"][entry["include-group"]])
        else:
            found.append(entry)
    return [Requirement(text) for text in found]


def locked(name: str) -> dict[str, str]:
    entries = (ENTRY.match(line) for line in (ROOT / name).read_text().splitlines())
    return {canonicalize_name(entry[1]): entry[2] for entry in entries if entry}


@pytest.mark.parametrize(("name", "group"), [("requirements.lock", "build"), ("requirements-dev.lock", "dev")])
class TestLock:
    def test_satisfies_every_requirement(self, name: str, group: str) -> None:
        versions = locked(name)
        for requirement in requirements([{"include-group": group}]):
            version = versions.get(canonicalize_name(requirement.name))
            assert version is not None, f"{requirement.name} is not in {name}: run scripts/lock"
            assert requirement.specifier.contains(version, prereleases=True), f"{name} has {requirement.name} {version}: run scripts/lock"

    def test_every_line_is_a_version_or_a_hash(self, name: str, group: str) -> None:
        for number, line in enumerate((ROOT / name).read_text().splitlines(), 1):
            assert ENTRY.fullmatch(line) or re.fullmatch(r"    --hash=sha256:[0-9a-f]{64}( \\)?", line), f"{name}:{number}: {line}"


def test_tests_run_with_the_versions_that_are_served() -> None:
    served, tested = locked("requirements.lock"), locked("requirements-dev.lock")
    assert {name: tested.get(name) for name in served} == served, "run scripts/lock"
