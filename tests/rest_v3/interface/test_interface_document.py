"""The project's copy of the interface document, and the shared document if it is available."""

import csv
import re
from pathlib import Path

import pytest

from rest_v3 import profiles
from tests.rest_v3.support.further_calls import FURTHER_CALLS
from tests.rest_v3.support.interface_document import DOCUMENTED_CALLS

SHARED = Path(__file__).parents[4] / "shared" / "spec"
TABLES = re.compile(r"^\| (GET|POST|PUT|DELETE) \| (\S+|\{base path\}\S*) \|", re.MULTILINE)
BASES = {
    "{base path}": [
        f"/projects/:id/{parent}" for parent in ("issues/:issue_id", "snippets/:snippet_id", "merge_requests/:merge_request_id")
    ],
    "...": ["/projects/:id/merge_requests"],
}
"""How the document shortens paths."""


def test_a_call_is_documented_once() -> None:
    calls = [documented.call for documented in (*DOCUMENTED_CALLS, *FURTHER_CALLS)]
    assert len(calls) == len(set(calls))


def test_profiles_change_documented_calls_only() -> None:
    calls = {documented.call for documented in DOCUMENTED_CALLS}
    for profile in profiles.PROFILES.values():
        assert profile.routes.keys() <= calls


@pytest.mark.skipif(not SHARED.exists(), reason="the shared document is not beside this checkout")
def test_agrees_with_the_shared_document() -> None:
    with (SHARED / "routes.tsv").open(encoding="utf-8") as lines:
        shared = {
            (row["area"], f"{row['method']} {row['path']}", None if row["status"] == "-" else int(row["status"]))
            for row in csv.DictReader(lines, delimiter="\t")
        }
    assert {(documented.area, documented.call, documented.status) for documented in DOCUMENTED_CALLS} == shared
    text = (SHARED / "api-v3.md").read_text(encoding="utf-8").partition("## Endpoints")[2]
    calls = set()
    for method, path in TABLES.findall(text):
        if path.startswith("{base path}"):
            calls |= {f"{method} {base}/notes{path.removeprefix('{base path}')}" for base in BASES["{base path}"]}
        else:
            calls.add(f"{method} {path.replace('...', BASES['...'][0])}")
    assert {documented.call for documented in DOCUMENTED_CALLS} == calls
