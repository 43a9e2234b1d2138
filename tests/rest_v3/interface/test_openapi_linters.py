"""The OpenAPI document, checked by common linters with their recommended rules and by the standard's validator."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from openapi_spec_validator import OpenAPIV31SpecValidator

from rest_v3.app import StaticPage
from rest_v3.profiles import PROFILES
from tests.support.api_clients import app_of_profile
from tests.support.npm import install_packages

LINTERS = Path(__file__).parent / "linters"
NPM_SECONDS = 240
LINTER_SECONDS = 120
OFFLINE = {"REDOCLY_TELEMETRY": "off", "REDOCLY_SUPPRESS_UPDATE_NOTICE": "true", "NODE_NO_WARNINGS": "1", "NO_UPDATE_NOTIFIER": "1"}
"""The linters look for no newer versions and send no telemetry."""
COMMANDS = {
    "redocly": ["redocly", "lint", "--config=redocly.yaml", "--format=json"],
    "spectral": ["spectral", "lint", "--ruleset=spectral.yaml", "--format=json", "--fail-severity=hint", "--quiet"],
}


def openapi_document(profile: str) -> bytes:
    """The document as a server of this profile has it."""
    ((endpoint, _),) = [app_of_profile(profile)._router.find(["openapi.json"])]
    page = endpoint.methods["GET"]
    assert isinstance(page, StaticPage)
    return page.body


@pytest.fixture(params=PROFILES)
def profile(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_is_of_the_standard(profile: str) -> None:
    assert [error.message for error in OpenAPIV31SpecValidator(json.loads(openapi_document(profile))).iter_errors()] == []


@pytest.fixture(scope="module")
def linters() -> Path:
    """A folder with the linters and their rules."""
    return install_packages(LINTERS, "redocly and spectral on the OpenAPI document", NPM_SECONDS)


@pytest.mark.parametrize("linter", COMMANDS)
def test_is_clean(linters: Path, linter: str, tmp_path: Path) -> None:
    documents = [tmp_path / f"{profile}.json" for profile in PROFILES]
    for document in documents:
        document.write_bytes(openapi_document(document.stem))
    command, *arguments = COMMANDS[linter]

    done = subprocess.run(
        [linters / "node_modules" / ".bin" / command, *arguments, *documents],
        cwd=linters,
        env={**os.environ, **OFFLINE},
        capture_output=True,
        text=True,
        timeout=LINTER_SECONDS,
    )

    assert linter_problems(linter, done.stdout) == [], done.stderr
    assert done.returncode == 0, done.stderr


def linter_problems(linter: str, printed: str) -> list[Any]:
    """What a linter found in all documents, warnings included."""
    if linter == "redocly":
        # It prints a JSON object for each document, one after another.
        found, decoder = [], json.JSONDecoder()
        while printed := printed.lstrip():
            result, end = decoder.raw_decode(printed)
            found += [(each["ruleId"], each["message"]) for each in result["problems"]]
            printed = printed[end:]
        return found
    return [(each["code"], each["message"]) for each in json.loads(printed or "[]")]
