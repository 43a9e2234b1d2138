"""The administration commands: their effects, output and exit codes."""

import asyncio
import contextlib
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from forgefront.backend import Backend
from forgefront.cli import LazyCommand, main
from forgefront.commands.command_context import run_work
from forgefront.config import Config
from graph.operations.execution import OperationResult
from storage import migrations
from tests.forgefront.support.cli_runner import PASSWORD, CommandRunner
from tests.support.git.git_history import git, make_history
from tests.support.servers.fork_server import start_program

pytestmark = pytest.mark.usefixtures("isolated_environment")

SIGN_IN = "mutation($login: String!, $password: String!) { signIn(input: {login: $login, password: $password}) { user { username } } }"


def ask(data: Path, query: str, credential: str | None = None, **variables: Any) -> OperationResult:
    """What a caller from outside is answered."""

    async def work() -> OperationResult:
        engine = Backend(Config.load(data=data))
        await engine.start()
        try:
            return await engine.graph.run_document(query, variables, None, credential, request_id="test")
        finally:
            await engine.stop()

    return asyncio.run(work())


LIGHT_MODULES = (
    "forgefront.commands.serve",
    "forgefront.server.http_server",
    "forgefront.commands.schema",
    "forgefront.commands.shadow",
    "forgefront.shadow.comparison.__main__",
)


OUTDATED_COMMANDS = (
    ("admin", "user", "list"),
    ("admin", "token", "show", "root"),
    ("admin", "user", "create", "new", "--email", "new@example.org", "--no-password"),
    ("admin", "secret-key", "rotate"),
    ("explain", "--analyze", "{ viewer { username } }"),
    ("dump", "forge.tar"),
)


class TestOlderDatabase:
    def test_is_migrated_by_no_command(self, cli: CommandRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Hosts of the older version may be serving it."""
        revisions, before = tmp_path / "versions", migrations.newest_revision()
        shutil.copytree(migrations.VERSIONS, revisions, ignore=shutil.ignore_patterns("__pycache__"))
        (revisions / "9999_next.py").write_text(f"revision = '9999'\ndown_revision = '{before}'\ndef upgrade():\n    pass\n")
        monkeypatch.setattr(migrations, "VERSIONS", revisions)
        monkeypatch.chdir(tmp_path)
        database_url = Config.load(data=cli.data).database_url

        for command in OUTDATED_COMMANDS:
            message = " ".join(cli(*command, code=1).stderr.split())
            assert re.search(rf"the database is at revision {before}, .*\bmigrates it", message), (command, message)
        assert not (tmp_path / "forge.tar").exists()
        assert "start the service once, which migrates it to 9999" in cli("check", "--repair", code=1).stdout
        assert migrations.current_revision(database_url) == before

        ask(cli.data, "{ instance { version } }")
        assert migrations.current_revision(database_url) == "9999"
        assert cli.json("admin", "user", "list")[0]["username"] == "root"


class TestFirstAdministrator:
    def test_is_made_in_a_folder_that_is_missing(self, tmp_path: Path) -> None:
        new = CommandRunner(tmp_path / "new")
        made = new.json("admin", "user", "create", "root", "--email", "root@example.org", "--admin", input=f"{PASSWORD}\n")
        assert (made["id"], made["admin"], made["confirmed"]) == (1, True, True)
        signed_in = ask(new.data, SIGN_IN, login="root", password=PASSWORD)
        assert signed_in.data == {"signIn": {"user": {"username": "root"}}}
        assert new.data.stat().st_mode & 0o777 == 0o700

    def test_nothing_else_makes_a_folder(self, tmp_path: Path) -> None:
        result = CommandRunner(tmp_path / "absent")("admin", "user", "list", code=1)
        assert "there is no data folder" in result.stderr
        assert not (tmp_path / "absent").exists()

    @pytest.mark.parametrize("arguments", [["admin", "user", "list"], ["analytics", "rebuild"], ["dump", "forge.tar"]])
    def test_nothing_else_makes_a_database(self, tmp_path: Path, arguments: list[str]) -> None:
        """A command without the setting that names the database would work on a new one."""
        (tmp_path / "secret.key").write_bytes(b"k" * 32)
        result = CommandRunner(tmp_path)(*arguments, code=1)
        assert "there is no database" in result.stderr and "set FORGEFRONT_DATABASE_URL" in result.stderr
        assert [path.name for path in tmp_path.iterdir()] == ["secret.key"]


class TestPassword:
    def test_from_a_file(self, cli: CommandRunner, tmp_path: Path) -> None:
        (tmp_path / "password").write_text(f"{PASSWORD}\nnot this line\n")
        cli("admin", "user", "create", "ann", "--email", "ann@example.org", "--password-file", tmp_path / "password")
        assert ask(cli.data, SIGN_IN, login="ann", password=PASSWORD).errors == []

    def test_is_changed(self, cli: CommandRunner) -> None:
        cli("admin", "user", "change", "root", "--password", input=f"{PASSWORD}\n")
        assert ask(cli.data, SIGN_IN, login="root", password=PASSWORD).errors == []

    def test_none_is_wrong_usage(self, cli: CommandRunner) -> None:
        result = cli("admin", "user", "create", "ann", "--email", "ann@example.org", code=2)
        assert "--no-password" in result.stderr
        assert "ann" not in cli("admin", "user", "list").stdout

    def test_too_short_is_rejected(self, cli: CommandRunner) -> None:
        result = cli("admin", "user", "create", "ann", "--email", "ann@example.org", input="short\n", code=1)
        assert result.stderr == "forgefront: --password: is too short (minimum is 8 characters)\n"

    def test_absent_file(self, cli: CommandRunner, tmp_path: Path) -> None:
        result = cli("admin", "user", "change", "root", "--password-file", tmp_path / "absent", code=1)
        assert "the password cannot be read" in result.stderr

    def test_is_never_an_argument(self) -> None:
        result = CliRunner().invoke(main, ["admin", "user", "create", "a", "--email", "a@b.c", "--password", PASSWORD])
        assert result.exit_code == 2


class TestUsers:
    def test_administrator_only_fields(self, cli: CommandRunner) -> None:
        options = {
            "--two-factor-enabled": None,
            "--theme-id": 5,
            "--color-scheme-id": 3,
            "--extern-uid": "uid=root",
            "--provider": "ldapmain",
            "--current-sign-in-at": "2016-01-19T08:40:25Z",
            "--no-confirmed": None,
            "--no-can-create-group": None,
            "--projects-limit": 3,
            "--bio": "Everything.",
            "--skype": "s",
            "--linkedin": "l",
            "--twitter": "t",
            "--website-url": "https://example.org",
            "--name": "The Root",
            "--email": "new@example.org",
            "--add-email": "second@example.org",
            "--new-username": "boss",
        }
        arguments = [word for name, value in options.items() for word in ((name,) if value is None else (name, value))]
        changed = cli.json("admin", "user", "change", "root", *arguments)
        expected = {
            "username": "boss",
            "name": "The Root",
            "email": "new@example.org",
            "two_factor_enabled": True,
            "theme_id": 5,
            "color_scheme_id": 3,
            "extern_uid": "uid=root",
            "provider": "ldapmain",
            "current_sign_in_at": "2016-01-19T08:40:25.000000Z",
            "confirmed": False,
            "can_create_group": False,
            "projects_limit": 3,
            "bio": "Everything.",
            "skype": "s",
            "linkedin": "l",
            "twitter": "t",
            "website_url": "https://example.org",
            "secondary_emails": ["second@example.org"],
        }
        assert {key: changed[key] for key in expected} == expected

    def test_empty_text_clears(self, cli: CommandRunner) -> None:
        cli("admin", "user", "change", "root", "--bio", "Something.")
        assert cli.json("admin", "user", "change", "root", "--bio", "")["bio"] is None

    def test_blocked_by_directory(self, cli: CommandRunner) -> None:
        cli("admin", "user", "create", "ann", "--email", "ann@example.org", "--no-password")
        changed = cli.json("admin", "user", "change", "ann", "--blocked-by-directory")
        assert (changed["state"], changed["blocked_by_directory"]) == ("BLOCKED", True)
        assert cli("admin", "user", "unblock", "ann", code=1).stderr.startswith("forgefront: LDAP blocked users")
        assert cli.json("admin", "user", "change", "ann", "--no-blocked-by-directory")["state"] == "ACTIVE"

    def test_block_and_unblock(self, cli: CommandRunner) -> None:
        cli("admin", "user", "create", "ann", "--email", "ann@example.org", "--no-password")
        assert cli.json("admin", "user", "block", "ann")["state"] == "BLOCKED"
        assert [user["username"] for user in cli.json("admin", "user", "list", "--active")] == ["root"]
        assert cli("admin", "token", "show", "ann", code=1).stderr == "forgefront: ann is blocked.\n"
        assert cli("admin", "user", "list", "--as", "ann", code=1).stderr == "forgefront: ann is blocked.\n"
        assert cli.json("admin", "user", "unblock", "ann")["state"] == "ACTIVE"

    def test_delete_asks_for_confirmation(self, cli: CommandRunner) -> None:
        cli("admin", "user", "create", "ann", "--email", "ann@example.org", "--no-password")
        cli("admin", "user", "delete", "ann", input="n\n", code=1)
        cli("admin", "user", "show", "ann")
        cli("admin", "user", "delete", "ann", "--yes")
        assert cli("admin", "user", "show", "ann", code=1).stderr == "forgefront: User not found: ann\n"

    def test_list_is_a_table(self, cli: CommandRunner) -> None:
        lines = cli("admin", "user", "list", "--search", "roo").stdout.splitlines()
        assert [re.split(r"\s{2,}", line) for line in lines] == [
            ["id", "username", "name", "email", "state", "admin"],
            ["1", "root", "root", "root@example.org", "ACTIVE", "yes"],
        ]

    def test_list_goes_over_pages(self, cli: CommandRunner) -> None:
        # Rows beside the graph's way, since a hundred commands would take a while.
        with contextlib.closing(sqlite3.connect(cli.data / "forgefront.db")) as connection, connection:
            names = [row[1] for row in connection.execute("PRAGMA table_info(users)") if row[1] not in ("id", "username", "email")]
            copied = ", ".join(names)
            for number in range(120):
                connection.execute(
                    f"INSERT INTO users (username, email, {copied}) SELECT ?, ?, {copied} FROM users WHERE id = 1",
                    (f"user{number}", f"user{number}@example.org"),
                )
        assert len(cli.json("admin", "user", "list")) == 121

    def test_taken_names_the_option(self, cli: CommandRunner) -> None:
        result = cli("admin", "user", "create", "ann", "--email", "root@example.org", "--no-password", code=1)
        assert result.stderr == "forgefront: --email: has already been taken\n"
        result = cli("admin", "user", "create", "root", "--email", "ann@example.org", "--no-password", code=1)
        assert result.stderr == "forgefront: username: has already been taken\n"

    @pytest.mark.parametrize(
        ("noun", "options"),
        [
            ("user", "--new-username, --email, --add-email"),
            ("group", "--name, --new-path, --description"),
            ("project", "--name, --new-path, --group"),
        ],
    )
    def test_nothing_to_change_names_what_can_be_changed(self, cli: CommandRunner, noun: str, options: str) -> None:
        message = cli("admin", noun, "change", "absent", code=2).stderr
        assert message.startswith(f"forgefront: nothing to change: give at least one of {options}")
        assert not {"--as", "--data", "--json"} & set(re.findall("--[a-z-]+", message))

    def test_acting_as_a_user_has_only_their_rights(self, cli: CommandRunner) -> None:
        cli("admin", "user", "create", "ann", "--email", "ann@example.org", "--no-password")
        result = cli("admin", "user", "block", "root", "--as", "ann", code=1)
        assert result.stderr == "forgefront: You are not allowed to do this.\n"
        assert cli("admin", "user", "list", "--as", "nobody", code=1).stderr == "forgefront: User not found: nobody\n"


class TestTokens:
    VIEWER = "{ viewer { username } }"

    def test_show_prints_one_that_works(self, cli: CommandRunner) -> None:
        token = cli("admin", "token", "show", "root").stdout.strip()
        assert ask(cli.data, self.VIEWER, token).data == {"viewer": {"username": "root"}}
        assert cli.json("admin", "token", "show", "root") == {"username": "root", "token": token}

    def test_create_revokes_the_old_token(self, cli: CommandRunner) -> None:
        old = cli("admin", "token", "show", "root").stdout.strip()
        new = cli("admin", "token", "create", "root").stdout.strip()
        assert ask(cli.data, self.VIEWER, old).data is None
        assert ask(cli.data, self.VIEWER, new).data == {"viewer": {"username": "root"}}

    def test_access_tokens_are_created_listed_and_revoked(self, cli: CommandRunner) -> None:
        private = cli("admin", "token", "show", "root").stdout.strip()
        options = ("--name", "CI", "--scope", "git", "--scope", "read", "--expires-at", "2999-01-01")
        token = cli("admin", "token", "create", "root", *options).stdout.strip()
        assert ask(cli.data, self.VIEWER, token).data == ask(cli.data, self.VIEWER, private).data == {"viewer": {"username": "root"}}
        (listed,) = cli.json("admin", "token", "list", "root")
        assert (listed["name"], listed["scopes"], listed["expires_at"]) == ("CI", ["read", "git"], "2999-01-01T00:00:00.000000Z")
        assert "read, git" in cli("admin", "token", "list", "root").stdout
        assert cli.json("admin", "token", "revoke", "root", str(listed["id"])) == {"id": listed["id"], "name": "CI"}
        assert ask(cli.data, self.VIEWER, token).data is None
        assert cli("admin", "token", "revoke", "root", str(listed["id"]), code=1).stderr == "forgefront: Token not found.\n"
        assert "need a --name" in cli("admin", "token", "create", "root", "--scope", "read", code=2).stderr
        assert cli("admin", "token", "create", "root", "--name", "x", code=1).stderr.startswith("forgefront: --scope: must include")

    def test_no_other_command_prints_a_token(self, cli: CommandRunner) -> None:
        token = cli("admin", "token", "show", "root").stdout.strip()
        for command in (("user", "list"), ("user", "show", "root"), ("user", "change", "root", "--bio", "x")):
            assert token not in cli("admin", *command, "--json").output


class TestGroups:
    def test_lifecycle(self, cli: CommandRunner) -> None:
        cli("admin", "user", "create", "ann", "--email", "ann@example.org", "--no-password")
        made = cli.json("admin", "group", "create", "team", "--name", "The Team", "--owner", "ann")
        assert (made["path"], made["name"]) == ("team", "The Team")
        assert [member["username"] for member in cli.json("admin", "member", "list", "team")] == ["ann"]
        changed = cli.json("admin", "group", "change", "team", "--new-path", "crew", "--description", "All hands.")
        assert (changed["path"], changed["name"], changed["description"]) == ("crew", "The Team", "All hands.")
        assert [group["path"] for group in cli.json("admin", "group", "list")] == ["crew"]
        cli("admin", "group", "delete", "crew", "--yes")
        assert cli("admin", "group", "show", "crew", code=1).stderr == "forgefront: Group not found: crew\n"

    def test_refused(self, cli: CommandRunner) -> None:
        assert cli("admin", "group", "create", "12", code=1).stderr.startswith("forgefront: path: ")
        cli("admin", "group", "create", "team")
        assert cli("admin", "group", "change", "team", "--new-path", "12", code=1).stderr.startswith("forgefront: --new-path: ")
        for arguments in (("delete", "team", "root"), ("change", "team", "root", "--level", "guest")):
            assert cli("admin", "member", *arguments, code=1).stderr == "forgefront: username: is the last owner of the group\n"
        cli("admin", "project", "create", "team/tools")
        assert cli("admin", "project", "change", "team/tools", "--tag", "x" * 256, code=1).stderr.startswith("forgefront: --tag: ")


class TestProjects:
    @pytest.fixture
    def source(self, tmp_path: Path) -> Path:
        return make_history(tmp_path / "source.git", commits=10).path

    def test_from_a_repository(self, cli: CommandRunner, source: Path) -> None:
        cli("admin", "group", "create", "team")
        result = cli("admin", "project", "create", "team/tools", "--repository", source, "--tag", "a", "--tag", "b", "--json")
        assert '"default_branch": "master"' in result.stdout
        assert '"tags": [' in result.stdout
        # No terminal here: a line for each phase, and nothing of it where scripts read.
        assert re.search(r"^receiving objects: \d+ of \d+$", result.stderr, re.MULTILINE)
        assert "receiving" not in result.stdout

    def test_imports_merge_requests(self, cli: CommandRunner, tmp_path: Path) -> None:
        path = make_history(tmp_path / "merged.git", commits=40, merges_every=4).path
        cli("admin", "group", "create", "team")
        cli("admin", "project", "create", "team/merged", "--repository", path)
        done = cli.json("admin", "project", "import-merge-requests", "team/merged")
        assert (done["state"], done["error"]) == ("FINISHED", None)
        assert done["processed"] == done["total"] == done["imported"] + done["skipped"] > 0
        again = cli("admin", "project", "import-merge-requests", "team/merged")
        assert again.exit_code == 0
        assert f"known        {done['imported']}" in again.stdout
        assert "Project not found: team/absent" in cli("admin", "project", "import-merge-requests", "team/absent", code=1).stderr

    def test_empty_in_a_personal_space(self, cli: CommandRunner) -> None:
        made = cli.json("admin", "project", "create", "notes", "--owner", "root", "--visibility", "public")
        assert (made["path"], made["visibility"], made["default_branch"]) == ("root/notes", "PUBLIC", None)

    def test_change_and_delete(self, cli: CommandRunner, source: Path) -> None:
        cli("admin", "group", "create", "team")
        cli("admin", "project", "create", "team/tools", "--repository", source)
        options = ("--new-path", "kit", "--default-branch", "topic", "--no-issues", "--visibility", "internal", "--archived")
        changed = cli.json("admin", "project", "change", "team/tools", *options)
        expected = {"path": "team/kit", "default_branch": "topic", "issues_enabled": False, "visibility": "INTERNAL", "archived": True}
        assert {key: changed[key] for key in expected} == expected
        assert [project["path"] for project in cli.json("admin", "project", "list")] == ["team/kit"]
        cli("admin", "project", "delete", "team/kit", "--yes")
        assert cli.json("admin", "project", "list") == []
        assert list((cli.data / "repositories").iterdir()) == []

    def test_moved_to_a_group(self, cli: CommandRunner) -> None:
        cli("admin", "group", "create", "team")
        cli("admin", "project", "create", "notes")
        assert cli.json("admin", "project", "change", "root/notes", "--group", "team")["path"] == "team/notes"
        assert cli("admin", "project", "change", "team/notes", "--group", "team", "--name", "x", code=2)

    def test_taken_names_the_argument_or_the_option(self, cli: CommandRunner) -> None:
        for path in ("tools", "notes"):
            cli("admin", "project", "create", path)
        taken = "has already been taken\n"
        assert cli("admin", "project", "create", "notes", "--name", "New", code=1).stderr == f"forgefront: path: {taken}"
        result = cli("admin", "project", "change", "root/tools", "--new-path", "notes", code=1)
        assert result.stderr == f"forgefront: --new-path: {taken}"

    def test_rejects_a_path_that_is_not_a_repository(self, cli: CommandRunner, tmp_path: Path) -> None:
        (tmp_path / "plain").mkdir()
        result = cli("admin", "project", "create", "notes", "--repository", tmp_path / "plain", code=1)
        assert "forgefront: --repository: is not a git repository" in result.stderr
        cli("admin", "project", "create", "notes", "--repository", tmp_path / "absent", code=2)
        git(tmp_path, "init", "-q", "--object-format=sha256", "other")
        result = cli("admin", "project", "create", "notes", "--repository", tmp_path / "other", code=1)
        assert "is a git repository of a format that is not supported: unknown object format 'sha256'" in result.stderr
        assert cli.json("admin", "project", "list") == []


class TestMembers:
    @pytest.mark.parametrize("group_path", ["team", "team/tools"])
    def test_lifecycle(self, cli: CommandRunner, group_path: str) -> None:
        cli("admin", "user", "create", "ann", "--email", "ann@example.org", "--no-password")
        cli("admin", "group", "create", "team")
        cli("admin", "project", "create", "team/tools")
        assert cli.json("admin", "member", "create", group_path, "ann")["access_level"] == "DEVELOPER"
        assert cli("admin", "member", "create", group_path, "ann", code=1).stderr.startswith("forgefront: username: Already exists")
        assert cli.json("admin", "member", "change", group_path, "ann", "--level", "master")["access_level"] == "MASTER"
        assert "ann" in [member["username"] for member in cli.json("admin", "member", "list", group_path)]
        cli("admin", "member", "delete", group_path, "ann")
        assert "ann" not in [member["username"] for member in cli.json("admin", "member", "list", group_path)]

    def test_unknown_level_is_wrong_usage(self, cli: CommandRunner) -> None:
        cli("admin", "member", "create", "team", "ann", "--level", "king", code=2)


class TestProgram:
    def test_help_of_every_command(self) -> None:
        def walk(command: Any, path: list[str]) -> None:
            result = CliRunner().invoke(main, [*path, "--help"])
            assert result.exit_code == 0, path
            if isinstance(command, LazyCommand):
                summary, command = command.help, command.load()
                assert " ".join(command.help.partition("\n\n")[0].split()) == summary, f"COMMANDS of forgefront/cli.py, {path}"
            text = command.help or command.callback.__doc__
            assert text, f"{path} has no help"
            # Help is markup, which leaves out what stands in brackets.
            assert "[" not in text, path
            for option in command.params:
                assert getattr(option, "help", None), f"{path} {option.name} has no help"
                assert "[" not in option.help, f"{path} {option.name}"
            for name, below in getattr(command, "commands", {}).items():
                walk(below, [*path, name])

        walk(typer.main.get_command(main), [])

    def test_version(self) -> None:
        assert re.fullmatch(r"forgefront \d+\.\d+\.\d+\n", CliRunner().invoke(main, ["--version"]).stdout)

    def test_full_disk_has_no_traceback(self) -> None:
        with Path("/dev/full").open("w") as full:
            done = subprocess.run([sys.executable, "-m", "forgefront.cli", "--version"], stdout=full, stderr=subprocess.PIPE, text=True)
        assert (done.returncode, done.stderr) == (1, "forgefront: the output cannot be written: No space left on device\n")

    def test_closed_standard_streams(self, cli: CommandRunner) -> None:
        command = f"exec {sys.executable} -m forgefront.cli admin group create team --data {cli.data} <&- >&- 2>&-"
        done = subprocess.run(["sh", "-c", command], capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, "")
        assert [group["path"] for group in cli.json("admin", "group", "list")] == ["team"]

    def test_closed_standard_error(self, cli: CommandRunner) -> None:
        command = ("forgefront.cli", "admin", "group", "create", "team", "--data", cli.data)
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        with start_program("tests.forgefront.support.closed_streams", 2, *command, **pipes) as process:
            assert process.communicate()[1] == ""
        assert process.returncode == 0
        assert [group["path"] for group in cli.json("admin", "group", "list")] == ["team"]

    def test_loads_only_what_a_command_needs(self) -> None:
        """In a new interpreter, because this one has loaded everything."""
        code = f"""
import sys
from importlib import import_module
from typer.testing import CliRunner
from forgefront.cli import main

def check(what, *names):
    assert sys.modules.keys().isdisjoint(names), (what, sys.modules.keys() & set(names))

for arguments in (["--version"], ["--help"], ["--oops"]):
    assert CliRunner().invoke(main, arguments).exit_code in (0, 2)
    check(arguments, "forgefront.commands", "httpx", "structlog", "graphql", "pydantic", "yaml", "uvicorn", "alembic")
for arguments in (["runner", "--help"], ["client", "--help"], ["translate", "--help"], ["documents", "--help"], ["explain", "--help"]):
    assert CliRunner().invoke(main, arguments).exit_code == 0
    check(arguments, "graphql", "sqlalchemy", "uvicorn", "alembic")
for module in {LIGHT_MODULES!r}:
    import_module(module)
    check(module, "graph.schema", "sqlalchemy", "pygit2", "alembic")
"""
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr

    def test_wrong_configuration(self, cli: CommandRunner, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("FORGEFRONT_PORT", "many")
        assert cli("admin", "user", "list", code=2).stderr.startswith("forgefront: FORGEFRONT_PORT: ")

    def test_another_key(self, cli: CommandRunner) -> None:
        (cli.data / "secret.key").write_text("not a key")
        assert "is not 32 bytes in base64" in cli("admin", "user", "list", code=2).stderr

    def test_absent_database(self, cli: CommandRunner, monkeypatch: pytest.MonkeyPatch, unused_tcp_port: int) -> None:
        monkeypatch.setenv("FORGEFRONT_DATABASE_URL", f"postgresql://u:hunter2@127.0.0.1:{unused_tcp_port}/d")
        result = cli("admin", "user", "list", code=1)
        assert "the database cannot be reached" in result.stderr
        assert "hunter2" not in result.output

    @pytest.mark.parametrize("arguments", [["admin", "user", "list"], ["analytics", "rebuild"], ["dump", "forge.tar"]])
    def test_damaged_database(self, cli: CommandRunner, arguments: list[str]) -> None:
        (cli.data / "forgefront.db").write_bytes(b"no database" * 1_000)
        result = cli(*arguments, code=1)
        assert result.stderr == (
            "forgefront: the database cannot be used: DatabaseError: file is not a database; `forgefront check` says more\n"
        )

    def test_errors_of_the_program_have_a_traceback(self) -> None:
        async def work() -> None:
            with contextlib.closing(sqlite3.connect(":memory:")) as connection:
                connection.execute("SELECT * FROM absent")

        with pytest.raises(sqlite3.OperationalError, match="no such table"):
            run_work(work())

    def test_sigterm_cancels_the_work(self, capsys: pytest.CaptureFixture[str]) -> None:
        cleaned = []

        async def work() -> None:
            os.kill(os.getpid(), signal.SIGTERM)
            try:
                await asyncio.sleep(30)
            finally:
                cleaned.append(True)

        with pytest.raises(typer.Exit) as ended:
            run_work(work())
        assert (ended.value.exit_code, cleaned, capsys.readouterr().err) == (143, [True], "forgefront: terminated\n")

    def test_schema(self, tmp_path: Path) -> None:
        printed = CliRunner().invoke(main, ["schema"]).stdout
        assert "type Query" in printed
        (tmp_path / "old.graphql").write_text(printed)
        assert CliRunner().invoke(main, ["schema", "--against", str(tmp_path / "old.graphql")]).stdout == "no changes\n"
        (tmp_path / "old.graphql").write_text(printed + "\ntype Gone { a: Int }\n")
        result = CliRunner().invoke(main, ["schema", "--against", str(tmp_path / "old.graphql")])
        assert (result.exit_code, result.stdout) == (1, "breaking: Gone was removed.\n1 changes, 1 of them breaking\n")
        (tmp_path / "old.graphql").write_text("type {")
        assert CliRunner().invoke(main, ["schema", "--against", str(tmp_path / "old.graphql")]).exit_code == 2
