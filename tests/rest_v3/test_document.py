"""The project's copy of the interface document, and the shared document where it is at hand."""

import csv
from pathlib import Path

import pytest

from rest_v3 import profiles
from tests.rest_v3.document import DOCUMENTED

SHARED = Path(__file__).parents[3] / "shared" / "spec" / "routes.tsv"


def test_a_call_is_documented_once() -> None:
    calls = [documented.call for documented in DOCUMENTED]
    assert len(calls) == len(set(calls))


def test_profiles_change_documented_calls_only() -> None:
    calls = {documented.call for documented in DOCUMENTED}
    for changes in profiles.PROFILES.values():
        assert changes.keys() <= calls


@pytest.mark.skipif(not SHARED.exists(), reason="the shared document is not beside this checkout")
def test_agrees_with_the_shared_document() -> None:
    with SHARED.open(encoding="utf-8") as lines:
        shared = {
            (row["area"], f"{row['method']} {row['path']}", None if row["status"] == "-" else int(row["status"]))
            for row in csv.DictReader(lines, delimiter="\t")
        }
    assert {(documented.area, documented.call, documented.status) for documented in DOCUMENTED} == shared
