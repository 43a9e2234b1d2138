"""The fuzzer: its input follows from a seed, and a finding has the command that reproduces it."""

import random
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
import yaml

from tests.fuzz import __main__ as program
from tests.fuzz.findings import FuzzPart
from tests.fuzz.hostile_parts import forge_cursor, multipart_body, yaml_text
from tests.support.git.hostile_packs import MEGABYTE, random_pack


def part(**changed: Any) -> FuzzPart:
    return FuzzPart(**{"name": "packs", "database": "sqlite", "seed": 7, "deadline": monotonic(), **changed})


class TestSeeds:
    @pytest.mark.parametrize(
        "make",
        [
            lambda seed: random_pack(seed, max_bytes=MEGABYTE),
            lambda seed: yaml_text(random.Random(seed)),
            lambda seed: multipart_body(random.Random(seed)),
        ],
    )
    def test_the_same_seed_makes_the_same(self, make: Any) -> None:
        made = [make(seed) for seed in range(30)]
        assert made == [make(seed) for seed in range(30)]
        assert len({repr(each) for each in made}) > 20

    def test_cursors_are_spoiled_in_many_ways(self) -> None:
        real = ["WyItY3JlYXRlZF9hdCIsICIyMDE2LTAzLTI0VDEyOjAwOjAwWiIsIDVd"]
        assert len({forge_cursor(random.Random(seed), real) for seed in range(100)} - set(real)) > 50

    def test_an_iteration_begins_at_each_seed_until_the_time_is_over(self) -> None:
        assert list(part().seeds()) == [7], "one at least, so that a finding can be repeated"
        going = part(deadline=monotonic() + 60)
        assert [seed for seed, _ in zip(going.seeds(), range(3), strict=False)] == [7, 8, 9]


class TestFindings:
    def test_report_the_reproducing_command_once(self, capsys: pytest.CaptureFixture[str]) -> None:
        found = part()
        found.report("a push answers 500", "Internal Server Error", 12)
        found.report("a push answers 500", "again", 13)

        (only,) = found.findings.values()
        assert only.command == ".venv/bin/python -m tests.fuzz --minutes 1 --seed 12 --only packs --database sqlite"
        assert capsys.readouterr().err.count(only.command) == 1

    def test_end_a_run_with_1(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        folders: list[Path] = []

        async def fuzz(kind: str, names: Any, seed: int, seconds: float, histories: Path) -> Any:
            assert (names, seed, seconds) == (["ci"], 3, 60)
            folders.append(histories)
            found = part(name="ci", database=kind)
            if kind == "postgresql":
                found.report("a time-out", "")
            return list(found.findings.values())

        monkeypatch.setattr(program, "_fuzz", fuzz)
        assert program.main(["--minutes", "2", "--seed", "3", "--only", "ci"]) == 1
        # Repositories that the first database made are copied for the second one.
        assert len(folders) == 2 and folders[0] == folders[1]
        assert program.main(["--minutes", "1", "--seed", "3", "--only", "ci", "--database", "sqlite"]) == 0
        output = capsys.readouterr().err
        assert "--seed 3, 2 minutes for ci on sqlite and postgresql" in output
        assert "1 findings" in output and "nothing was found" in output

    def test_an_unknown_part_is_no_run(self) -> None:
        assert program.main(["--only", "nonsense"]) == 2


def test_files_of_jobs_are_yaml_more_often_than_not() -> None:
    texts = [yaml_text(random.Random(seed)) for seed in range(100)]
    assert sum(_is_yaml(text) for text in texts if len(text) < 2_000) > 20


def _is_yaml(text: str) -> bool:
    try:
        yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, TypeError, RecursionError):
        return False
    return True
