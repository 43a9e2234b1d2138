"""`forgefront runner exec`, `check` and `unit`: without a server."""

import json
import os
import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from forgefront.cli import main
from tests.forgefront.runner.test_runner import EXECUTORS, require_executor

FILE = """
include: /ci/bad.yml
variables: {GREETING: hello}
job:
  script: [cat file, 'echo "$GREETING $NAME $CI_BUILD_REF_NAME"', ls -A, echo made >out]
  after_script: [echo after]
  artifacts: {paths: [out]}
"""
INCLUDED = """
bad:
  script: exit 3
"""


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["runner", *map(str, arguments)])


@pytest.mark.usefixtures("isolated_environment")
class TestExec:
    @pytest.mark.parametrize("executor", EXECUTORS)
    def test_runs_a_job_of_a_checkout_with_its_changes(self, executor: str, tmp_path: Path) -> None:
        require_executor(executor)
        folder = tmp_path / "tool"
        folder.mkdir()
        (folder / ".gitlab-ci.yml").write_text(FILE)
        (folder / "ci").mkdir()
        (folder / "ci/bad.yml").write_text(INCLUDED)
        (folder / "file").write_text("committed\n")
        who = ["-c", "user.name=Ann", "-c", "user.email=ann@example.org"]
        for arguments in (["init", "-q", "-b", "main"], ["add", "."], [*who, "commit", "-q", "-m", "First"]):
            subprocess.run(["git", *arguments], cwd=folder, check=True)
        (folder / "file").write_text("changed\n")
        (folder / "untracked").touch()

        done = run("--executor", executor, "exec", "job", "--folder", folder, "--variable", "NAME=Ann", "--artifacts", tmp_path / "a/b")

        assert done.exit_code == 0, done.output
        assert f"({executor})" in done.output
        for expected in ("changed\n", "hello Ann main\n", "$ ls -A\n.git\n.gitlab-ci.yml\nci\nfile\n$", "$ echo after\nafter\n"):
            assert expected in done.output
        with zipfile.ZipFile(tmp_path / "a/b/artifacts.zip") as file:
            assert file.read("out") == b"made\n"
        status = subprocess.run(["git", "status", "--short"], cwd=folder, capture_output=True, text=True, check=True)
        assert status.stdout == " M file\n?? untracked\n"

        failed = run("--executor", executor, "exec", "bad", "--folder", folder, "--json")
        assert failed.exit_code == 1
        assert json.loads(failed.stdout) == {"name": "bad", "ended": "failed", "artifacts": []}
        assert "ERROR: Build failed: exit code 3" in failed.stderr

        for path, reason in ((folder / "file", "is a file"), (folder / "file/new", "Not a directory")):
            refused = run("exec", "job", "--folder", folder, "--artifacts", path)
            assert (refused.exit_code, refused.stdout) == (2, "")
            assert reason in " ".join(refused.stderr.split())

        unknown = run("exec", "none", "--folder", folder)
        assert (unknown.exit_code, unknown.stderr) == (2, "forgefront: There is no job 'none'. The jobs are bad, job.\n")
        (folder / ".gitlab-ci.yml").write_text("include: ../secret.yml\njob: {script: make}\n")
        assert "line 1: include: " in run("exec", "job", "--folder", folder).stderr
        (folder / ".gitlab-ci.yml").write_text("job: {script: [1, {}]}\n")
        assert "forgefront: line 1: `job` job: script" in run("exec", "job", "--folder", folder).stderr
        (folder / "loop.yml").symlink_to("loop.yml")
        (folder / "latin.yml").write_bytes(b"a: \xfc")
        for name, problem in (("loop.yml", "The checkout has no such file."), ("latin.yml", "The file cannot be read: 'utf-8' codec")):
            (folder / ".gitlab-ci.yml").write_text(f"include: {name}\njob: {{script: make}}\n")
            assert f"forgefront: line 1: include: `{name}`: {problem}" in run("exec", "job", "--folder", folder).stderr
        assert run("exec", "job", "--folder", tmp_path).exit_code == 2

    def test_file_with_other_times_is_no_change(self, tmp_path: Path) -> None:
        (tmp_path / ".gitlab-ci.yml").write_text("job: {script: echo ran}\n")
        who = ["-c", "user.name=Ann", "-c", "user.email=ann@example.org"]
        for arguments in (["init", "-q", "-b", "main"], ["add", "."], [*who, "commit", "-q", "-m", "First"]):
            subprocess.run(["git", *arguments], cwd=tmp_path, check=True)
        os.utime(tmp_path / ".gitlab-ci.yml", (1, 1))

        done = run("--executor", "shell", "exec", "job", "--folder", tmp_path)

        assert (done.exit_code, "\nran" in done.output) == (0, True), done.output

    def test_leaves_the_repository_alone_within_a_hook(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        main, folder = tmp_path / "main", tmp_path / "100%41 tree"
        main.mkdir()
        job = {"script": ["echo on $CI_BUILD_REF_SLUG to $CI_ENVIRONMENT_SLUG"], "environment": "review/$CI_BUILD_REF_NAME"}
        (main / ".gitlab-ci.yml").write_text(json.dumps({"job": job}))
        who = ["-c", "user.name=Ann", "-c", "user.email=ann@example.org"]
        commands = (["init", "-q", "-b", "main"], ["add", "."], [*who, "commit", "-q", "-m", "First"])
        for arguments in (*commands, ["worktree", "add", "-q", "-b", "a_b", folder]):
            subprocess.run(["git", *arguments], cwd=main, check=True)
        (folder / ".gitlab-ci.yml").write_text(json.dumps({"job": job, "other": job}))

        def state() -> list[str]:
            asked = (["symbolic-ref", "HEAD"], ["status", "--short"], ["config", "--list", "--local"])
            outputs = [subprocess.run(["git", *each], cwd=folder, capture_output=True, check=True).stdout for each in asked]
            return [output.decode() for output in outputs]

        before = state()
        git_folder = next((main / ".git" / "worktrees").iterdir())
        with monkeypatch.context() as hook:
            hook.chdir(folder)
            hook.setenv("GIT_DIR", str(git_folder))
            hook.setenv("GIT_INDEX_FILE", str(git_folder / "index"))
            done = run("--executor", "shell", "exec", "job")

        assert (done.exit_code, state()) == (0, before), done.output
        assert "\non a-b to review-a-b-" in done.output


@pytest.mark.usefixtures("isolated_environment")
class TestHelp:
    def test_executors_are_tried(self) -> None:
        done = run("check", "--json")
        found = json.loads(done.stdout)
        assert found["executor"] == ("shell" if "bubblewrap" in found["problems"] else "bubblewrap")
        assert "shell" not in found["problems"]

    def test_the_unit_allows_what_sandboxes_need(self, tmp_path: Path) -> None:
        done = run("--config", tmp_path / "runner.toml", "--grace", "90", "unit", "--user", "ci")
        for line in ("User=ci", "TimeoutStopSec=120", "Delegate=cpu memory pids", "RestrictNamespaces=false", "KillMode=mixed"):
            assert f"\n{line}\n" in done.stdout
        assert f"runner --config {tmp_path}/runner.toml --grace 90\n" in done.stdout

    def test_the_unit_gives_builds_the_time_of_the_file(self, tmp_path: Path) -> None:
        file = tmp_path / "runner.toml"
        file.write_text('grace = 300\n[[forge]]\nurl = "https://forge.example.com"\ntoken = "secret"\n')
        done = run("--config", file, "unit")
        assert "\nTimeoutStopSec=330\n" in done.stdout and f"runner --config {file}\n" in done.stdout
        file.write_text('grace = -1\n[[forge]]\nurl = "http://localhost"\ntoken = "none"\n')
        done = run("--config", file, "unit")
        assert done.exit_code == 2 and "grace" in done.stderr

    def test_the_unit_quotes_what_systemd_expands(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        folder = tmp_path / "my runner 50% $HOME"
        folder.mkdir()
        program = folder / "forgefront"
        program.write_text("#!/bin/sh\n")
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
        file = folder / 'a"b\\n.toml'
        done = run("--config", file, "--builds-dir", "my builds", "--concurrent", "3", "unit")
        quoted = str(folder).replace("%", "%%")
        escaped = quoted.replace("$", "$$")
        assert done.stdout.partition("ExecStart=")[2].splitlines()[0] == (
            f'"{quoted}/forgefront" runner --config "{escaped}/a\\"b\\\\n.toml" --concurrent 3 --builds-dir "{tmp_path}/my builds"'
        )
        if analyze := shutil.which("systemd-analyze"):
            (tmp_path / "runner-test.service").write_text(done.stdout)
            checked = subprocess.run([analyze, "verify", tmp_path / "runner-test.service"], capture_output=True, text=True, check=False)
            assert "runner-test.service" not in checked.stderr

    def test_without_a_forge_the_options_are_named(self) -> None:
        done = run()
        assert done.exit_code == 2 and "FORGEFRONT_RUNNER_TOKEN, or --config" in done.stderr
