"""The scripts: tried over stand-ins for the tools that they call, so that nothing is installed or run twice."""

import os
import shutil
import stat
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SCRIPTS = ("bench", "check", "graphiql", "lock", "migration", "schema", "screenshots", "serve", "setup", "test")
TOOLS = ("forgefront", "lint-imports", "mypy", "python", "ruff")
STUB_SCRIPT = """#!/usr/bin/env bash
name="$(basename "$0")"
echo "$name $*" >> "$CALLS"
[ "$name ${1:-} ${2:-}" != "${FAILING:-nothing}" ]
"""


class Checkout:
    """A checkout whose tools only write down how they were called."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.calls = folder / "calls"
        shutil.copytree(ROOT / "scripts", folder / "scripts")
        shutil.copytree(ROOT / ".ci", folder / ".ci")
        (folder / ".venv" / "bin").mkdir(parents=True)
        for path in (*(folder / ".venv" / "bin" / tool for tool in TOOLS), folder / "scripts" / "setup"):
            path.write_text(STUB_SCRIPT)
            path.chmod(0o755)

    def run(self, script: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        self.calls.write_text("")
        return subprocess.run(
            [str(self.folder / script), *arguments],
            capture_output=True,
            text=True,
            check=False,
            cwd=self.folder.parent,
            env={"PATH": os.environ["PATH"], "CALLS": str(self.calls), **environment},
        )

    def logged_calls(self) -> list[str]:
        return [line.rstrip() for line in self.calls.read_text().splitlines()]


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path / "a checkout")


@pytest.mark.parametrize("path", [*(f"scripts/{name}" for name in SCRIPTS), ".ci/run"])
def test_is_a_program(path: str) -> None:
    assert (ROOT / path).stat().st_mode & stat.S_IXUSR
    assert (ROOT / path).read_text().startswith("#!/usr/bin/env bash\n")
    subprocess.run(["bash", "-n", str(ROOT / path)], check=True)


def test_scripts_are_all_known() -> None:
    assert sorted(path.name for path in (ROOT / "scripts").iterdir()) == sorted(SCRIPTS)


SUITE = "python -m pytest --numprocesses auto --dist loadfile --no-loadscope-reorder"


class TestTestScript:
    STEPS = ["setup dev", "ruff check", "ruff format --check", "mypy", "lint-imports --no-cache", SUITE]

    def test_runs_every_step(self, checkout: Checkout) -> None:
        assert checkout.run("scripts/test").returncode == 0
        assert checkout.logged_calls() == self.STEPS

    def test_arguments_go_to_pytest(self, checkout: Checkout) -> None:
        checkout.run("scripts/test", "-k", "two words")
        assert checkout.logged_calls()[-1] == f"{SUITE} -k two words"

    @pytest.mark.parametrize(("failing", "step"), [("ruff format --check", 3), ("mypy  ", 4), ("python -m pytest", 6)])
    def test_stops_at_the_first_that_fails(self, checkout: Checkout, failing: str, step: int) -> None:
        result = checkout.run("scripts/test", FAILING=failing)
        assert result.returncode == 1
        assert f"test: FAILED: .venv/bin/{failing.strip()}" in result.stderr
        assert checkout.logged_calls() == self.STEPS[:step]

    @pytest.mark.parametrize("there", [("chromium", "ssh", "npm"), ("ssh",)])
    def test_matches_continuous_integration(self, checkout: Checkout, there: tuple[str, ...], tmp_path: Path) -> None:
        machine = tmp_path / "bin"
        machine.mkdir()
        for name in ("bash", "basename", "dirname", "env"):
            (machine / name).symlink_to(str(shutil.which(name)))
        for name in (*there, "apt-get", "id"):
            (machine / name).write_text(STUB_SCRIPT + ("echo 0\n" if name == "id" else ""))
            (machine / name).chmod(0o755)

        result = checkout.run(".ci/run", PATH=str(machine), FAILING="apt-get -qq install")

        assert result.returncode == 0
        assert [call for call in checkout.logged_calls() if call in self.STEPS] == self.STEPS
        requested = [call for call in checkout.logged_calls() if call.startswith("apt-get")]
        if len(there) == 3:
            assert requested == []
        else:
            assert requested == ["apt-get -qq update", "apt-get -qq install --yes --no-install-recommends chromium npm"]
            assert "could not install chromium npm" in result.stderr


class TestServeScript:
    def test_serves_the_data_of_the_checkout(self, checkout: Checkout) -> None:
        assert checkout.run("scripts/serve").returncode == 0
        assert checkout.logged_calls() == ["setup", f"forgefront serve --demo --data {checkout.folder}/data"]

    def test_options_come_last_and_win(self, checkout: Checkout) -> None:
        checkout.run("scripts/serve", "--port", "8090", "--data", "here", FORGEFRONT_DATA="/there")
        assert checkout.logged_calls()[-1] == "forgefront serve --demo --data /there --port 8090 --data here"

    def test_stops_where_nothing_can_be_installed(self, checkout: Checkout) -> None:
        assert checkout.run("scripts/serve", FAILING="setup  ").returncode == 1
        assert checkout.logged_calls() == ["setup"]


class TestSchemaScript:
    def test_writes_the_file_whole_or_not_at_all(self, checkout: Checkout) -> None:
        file = checkout.folder / "schema.graphql"
        file.write_text("old")
        assert checkout.run("scripts/schema", FAILING="forgefront schema ").returncode == 1
        assert file.read_text() == "old"
        assert checkout.run("scripts/schema").returncode == 0
        assert file.read_text() == ""
        assert [path.name for path in checkout.folder.glob("schema*")] == ["schema.graphql"]


class TestScreenshotsScript:
    def test_are_written_to_the_given_folder(self, checkout: Checkout) -> None:
        assert checkout.run("scripts/screenshots", "there").returncode == 0
        assert checkout.logged_calls() == ["setup", "python -m tests.forgefront.pages.screenshots there"]


class TestCheckScript:
    def test_checks_schema_and_locks(self, checkout: Checkout) -> None:
        result = checkout.run("scripts/check")
        assert result.returncode == 0
        assert "NOT RUN: the schema since HEAD" in result.stderr
        assert [call.split()[0] for call in checkout.logged_calls()] == ["setup", "python"]

    def test_reliability_measures_all_promises(self, checkout: Checkout) -> None:
        (checkout.folder / "tests").mkdir()
        (checkout.folder / "tests" / "test_kills.py").write_text('@promise("R1")')
        assert checkout.run("scripts/check", "--reliability").returncode == 0
        assert checkout.logged_calls()[-1] == "python -m pytest -m promise tests/test_kills.py"

    def test_reliability_measures_only_named_promises(self, checkout: Checkout) -> None:
        (checkout.folder / "tests").mkdir()
        (checkout.folder / "tests" / "test_kills.py").write_text('@promise("R1")')
        assert checkout.run("scripts/check", "--reliability", "R4,R12").returncode == 0
        assert checkout.logged_calls()[-1] == "python -m pytest -m promise(name='R4') or promise(name='R12') tests/test_kills.py"

    def test_reports_what_failed(self, checkout: Checkout) -> None:
        result = checkout.run("scripts/check", FAILING="python -m pytest")
        assert result.returncode == 1
        assert result.stderr.endswith("check: FAILED\n")

    def test_wrong_usage(self, checkout: Checkout) -> None:
        assert checkout.run("scripts/check", "--nonsense").returncode == 2
        assert "--reliability" in checkout.run("scripts/check", "--help").stdout
