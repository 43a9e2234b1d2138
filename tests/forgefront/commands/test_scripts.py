"""The scripts, run with stubs of the tools that they call, so that nothing is installed."""

import os
import shutil
import stat
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pytest

from forgefront.commands.serve import READY_TEXT

ROOT = Path(__file__).parents[3]
NAMES = "bench check fastest-python graphiql lock migration profiles release schema screenshots serve setup test vendor"
SCRIPTS = tuple(NAMES.split())
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
        """In their order, except that types are checked beside the others."""
        calls = [line.rstrip() for line in self.calls.read_text().splitlines()]
        return [call for call in calls if call != TYPES] + [call for call in calls if call == TYPES]


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path / "a checkout")


@pytest.mark.parametrize("path", [*(f"scripts/{name}" for name in SCRIPTS), ".ci/run"])
def test_is_a_program(path: str) -> None:
    assert (ROOT / path).stat().st_mode & stat.S_IXUSR
    text = (ROOT / path).read_text()
    if path.endswith("python"):
        assert text.startswith("#!/usr/bin/env python3\n")
        compile(text, path, "exec")
    else:
        assert text.startswith("#!/usr/bin/env bash\n")
        subprocess.run(["bash", "-n", str(ROOT / path)], check=True)


@pytest.mark.parametrize("option", ["-h", "--help"])
@pytest.mark.parametrize("name", sorted({*SCRIPTS} - {"setup"}))
def test_help_describes_and_runs_nothing(name: str, option: str, checkout: Checkout) -> None:
    """Not of the one that the checkout has a stub of."""
    if name == "bench":
        (checkout.folder / "benchmarks").mkdir()
        for module in ("__init__.py", "__main__.py"):
            shutil.copy(ROOT / "benchmarks" / module, checkout.folder / "benchmarks")
    done = checkout.run(f"scripts/{name}", option)

    assert (done.returncode, done.stderr, checkout.calls.read_text()) == (0, "", "")
    assert done.stdout.strip()
    assert "#!" not in done.stdout


@pytest.mark.parametrize("arguments", [(), ("two", "words")])
def test_a_migration_without_its_sentence_runs_nothing(arguments: tuple[str, ...], checkout: Checkout) -> None:
    done = checkout.run("scripts/migration", *arguments)
    assert (done.returncode, checkout.calls.read_text()) == (2, "") and "--help" in done.stderr


def test_scripts_are_all_known() -> None:
    assert sorted(path.name for path in (ROOT / "scripts").iterdir()) == sorted(SCRIPTS)


SELECTION = "python -m tests.support.affected_tests"
PROCESSES = len(os.sched_getaffinity(0)) * 5 // 2
COLLECTION = "python -m pytest --collect-only -qq"
TYPES = "mypy"
SUITE = f"python -m pytest --numprocesses {PROCESSES} --dist loadfile --no-loadscope-reorder"


class TestTestScript:
    STATIC = ["setup dev", "ruff check", "ruff format --check", "lint-imports --no-cache"]
    STEPS = [*STATIC, COLLECTION, SUITE, TYPES]

    def test_runs_every_step(self, checkout: Checkout) -> None:
        assert checkout.run("scripts/test").returncode == 0
        assert checkout.logged_calls() == self.STEPS

    def test_arguments_go_to_pytest(self, checkout: Checkout) -> None:
        checkout.run("scripts/test", "-k", "two words")
        assert checkout.logged_calls()[-2] == f"{SUITE} -k two words"

    def test_quick_runs_the_selected_tests(self, checkout: Checkout) -> None:
        result = checkout.run("scripts/test", "--quick")
        assert (result.returncode, checkout.logged_calls()) == (0, [*self.STATIC, SELECTION, TYPES])
        assert "nothing changed" in result.stderr
        python = checkout.folder / ".venv" / "bin" / "python"
        python.write_text(f"{STUB_SCRIPT}[ $2 = pytest ] || printf 'tests/test_a.py\\ntests/test_b.py\\n'\n")
        assert checkout.run("scripts/test", "--quick", "-x").returncode == 0
        selected = "python -m pytest --numprocesses 2 --dist loadfile tests/test_a.py tests/test_b.py -x"
        assert checkout.logged_calls() == [*self.STATIC, SELECTION, selected, TYPES]

    def test_quick_fails_without_a_selection(self, checkout: Checkout) -> None:
        assert checkout.run("scripts/test", "--quick", FAILING=SELECTION).returncode == 1

    def test_help_runs_nothing(self, checkout: Checkout) -> None:
        result = checkout.run("scripts/test", "--help")
        assert (result.returncode, checkout.logged_calls()) == (0, [])
        assert "--quick" in result.stdout
        assert "set -euo" not in result.stdout

    @pytest.mark.parametrize(("failing", "steps"), [("ruff format --check", 3), ("mypy  ", 5), ("python -m pytest", 6)])
    def test_stops_at_the_first_that_fails(self, checkout: Checkout, failing: str, steps: int) -> None:
        result = checkout.run("scripts/test", FAILING=failing)
        assert result.returncode == 1
        assert f"test: FAILED: .venv/bin/{failing.strip()}" in result.stderr
        assert [call for call in checkout.logged_calls() if call != TYPES] == self.STEPS[:steps]

    @pytest.mark.parametrize("there", [("chromium-headless-shell", "ssh", "npm", "haproxy", "nginx", "bwrap", "slapd"), ("ssh",)])
    def test_matches_continuous_integration(self, checkout: Checkout, there: tuple[str, ...], tmp_path: Path) -> None:
        machine = tmp_path / "bin"
        machine.mkdir()
        for name in ("bash", "basename", "dirname", "env", "nproc"):
            (machine / name).symlink_to(str(shutil.which(name)))
        for name in (*there, "apt-get", "id"):
            (machine / name).write_text(STUB_SCRIPT + ("echo 0\n" if name == "id" else ""))
            (machine / name).chmod(0o755)

        result = checkout.run(".ci/run", PATH=str(machine), FAILING="apt-get -qq install")

        assert result.returncode == 0
        assert {*self.STEPS} <= {*checkout.logged_calls()}
        requested = [call for call in checkout.logged_calls() if call.startswith("apt-get")]
        if "npm" in there:
            assert requested == []
        else:
            packages = ["chromium-headless-shell", "npm", "haproxy", "nginx-light", "bubblewrap", "slapd"]
            tried = [packages[0], "chromium", *packages[1:]]
            assert requested == ["apt-get -qq update", *(f"apt-get -qq install --yes --no-install-recommends {each}" for each in tried)]
            assert [line for line in result.stderr.splitlines() if line.startswith("ci:")] == [
                f"ci: could not install {each}: the tests that need it do not run" for each in packages
            ]


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

    def test_complete_runs_all_tests(self, checkout: Checkout) -> None:
        assert checkout.run("scripts/check", "--complete").returncode == 0
        assert checkout.logged_calls()[-1].endswith("--dist loadfile --no-loadscope-reorder")

    def test_restore_runs_the_drill(self, checkout: Checkout) -> None:
        assert checkout.run("scripts/check", "--restore").returncode == 0
        assert checkout.logged_calls()[-1].endswith(
            "commands/test_dump.py tests/forgefront/commands/test_dump_buckets.py tests/reliability/test_dumps.py"
        )

    def test_reports_what_failed(self, checkout: Checkout) -> None:
        result = checkout.run("scripts/check", FAILING="python -m pytest")
        assert result.returncode == 1
        assert result.stderr.endswith("check: FAILED\n")

    def test_wrong_usage(self, checkout: Checkout) -> None:
        assert checkout.run("scripts/check", "--nonsense").returncode == 2
        assert "--reliability" in checkout.run("scripts/check", "--help").stdout


class TestReleaseScript:
    """Over a repository with a stand-in for Python, whose environments and servers are stand-ins too."""

    PYTHON = """#!/usr/bin/env bash
echo "python $*" >> "$CALLS"
case "$*" in
    *"hatchling build"*) mkdir -p "${@: -1}"; touch "${@: -1}/forgefront-0.2.0-py3-none-any.whl" ;;
    "-m venv "*) mkdir -p "$3/bin"; cp "$0" "$3/bin/python"; cp "$(dirname "$0")/forgefront" "$3/bin/forgefront" ;;
    "- "*) [ "${FAILING:-}" != request ] ;;
esac
"""
    FORGEFRONT = """#!/usr/bin/env bash
echo "forgefront $*" >> "$CALLS"
[ "$1" = --version ] && { echo "forgefront ${WHEEL_VERSION:-0.2.0}"; exit; }
[ "${FAILING:-}" != start ] || { echo "cannot start"; exit 1; }
echo "READY_TEXT http://127.0.0.1:1"
trap 'exit 0' TERM
while :; do sleep 0.05; done
"""

    @pytest.fixture
    def release(self, checkout: Checkout) -> Checkout:
        folder = checkout.folder
        for name, text in (("python", self.PYTHON), ("forgefront", self.FORGEFRONT.replace("READY_TEXT", READY_TEXT))):
            (folder / ".venv" / "bin" / name).write_text(text)
        (folder / "pyproject.toml").write_text('[project]\nversion = "0.2.0"\n')
        (folder / "requirements.lock").touch()
        (folder / "CHANGELOG.md").write_text("# Changes\n\n## 0.2.0 (not released)\n\n- A line.\n\n## 0.1.0 (2026-01-02)\n")
        (folder / ".gitignore").write_text(".venv/\n/dist/\ncalls\n")
        self.git(folder, "init", "--quiet", "--initial-branch=main")
        self.git(folder, "config", "user.name", "Releaser")
        self.git(folder, "config", "user.email", "releaser@example.com")
        self.git(folder, "add", ".")
        self.git(folder, "commit", "--quiet", "--message=Start")
        return checkout

    def git(self, folder: Path, *arguments: str) -> str:
        return subprocess.run(["git", *arguments], cwd=folder, check=True, capture_output=True, text=True).stdout

    def test_builds_serves_dates_and_tags(self, release: Checkout) -> None:
        result = release.run("scripts/release", "0.2.0", FORGEFRONT_DATA="/elsewhere")

        assert result.returncode == 0, result.stderr
        calls = " | ".join(release.logged_calls())
        steps = [
            "setup dev",
            "-m hatchling build",
            "-m venv",
            "--require-hashes",
            "--no-deps",
            "forgefront --version",
            "forgefront serve",
            "- http",
        ]
        assert [step for step in steps if step in calls] == steps
        assert sorted(steps, key=calls.index) == steps
        assert (release.folder / "dist" / "forgefront-0.2.0-py3-none-any.whl").is_file()
        assert self.git(release.folder, "tag") == "v0.2.0\n"
        assert self.git(release.folder, "log", "--format=%s", "v0.2.0") == "Release 0.2.0\nStart\n"
        today = datetime.now(UTC).date()
        headings = [line for line in (release.folder / "CHANGELOG.md").read_text().splitlines() if line.startswith("##")]
        assert headings == [f"## 0.2.0 ({today})", "## 0.1.0 (2026-01-02)"]
        assert self.git(release.folder, "status", "--porcelain") == ""

    def test_dry_run_changes_nothing(self, release: Checkout) -> None:
        assert release.run("scripts/release", "--dry-run", "0.2.0").returncode == 0
        assert self.git(release.folder, "tag") == ""
        assert self.git(release.folder, "status", "--porcelain") == ""

    @pytest.mark.parametrize(
        ("arguments", "code", "message"),
        [
            ([], 2, "VERSION is missing"),
            (["soon"], 2, "soon is not a version"),
            (["--publish"], 2, "unknown argument --publish"),
            (["0.3.0"], 1, "pyproject.toml has version 0.2.0, not 0.3.0"),
        ],
    )
    def test_refuses_a_wrong_version(self, release: Checkout, arguments: list[str], code: int, message: str) -> None:
        result = release.run("scripts/release", *arguments)
        assert result.returncode == code
        assert message in result.stderr
        assert release.logged_calls() == []

    def test_refuses_a_dirty_tree(self, release: Checkout) -> None:
        (release.folder / "new").touch()
        result = release.run("scripts/release", "0.2.0")
        assert result.returncode == 1
        assert "not committed" in result.stderr

    def test_refuses_an_existing_tag(self, release: Checkout) -> None:
        self.git(release.folder, "tag", "v0.2.0")
        result = release.run("scripts/release", "0.2.0")
        assert result.returncode == 1
        assert "the tag v0.2.0 exists" in result.stderr

    def test_refuses_a_changelog_without_the_version(self, release: Checkout) -> None:
        self.git(release.folder, "rm", "--quiet", "CHANGELOG.md")
        (release.folder / "CHANGELOG.md").write_text("# Changes\n")
        self.git(release.folder, "add", ".")
        self.git(release.folder, "commit", "--quiet", "--message=Forget")
        assert "needs one heading" in release.run("scripts/release", "0.2.0").stderr

    @pytest.mark.parametrize(
        ("environment", "message"),
        [
            ({"FAILING": "start"}, "the server did not start"),
            ({"FAILING": "request"}, "the server does not answer as it should"),
            ({"WHEEL_VERSION": "0.1.0"}, "the wheel has another version"),
        ],
    )
    def test_tags_nothing_that_does_not_serve(self, release: Checkout, environment: dict[str, str], message: str) -> None:
        result = release.run("scripts/release", "0.2.0", **environment)
        assert result.returncode == 1
        assert message in result.stderr
        assert self.git(release.folder, "tag") == ""
        assert self.git(release.folder, "status", "--porcelain") == ""

    def test_help_describes_the_script(self, release: Checkout) -> None:
        result = release.run("scripts/release", "--help")
        assert result.returncode == 0
        assert "scripts/release VERSION" in result.stdout
