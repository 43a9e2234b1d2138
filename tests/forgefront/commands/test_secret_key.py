"""`forgefront admin secret-key rotate`: what it refuses, what an interruption leaves, and dumps of both keys."""

import shutil
from pathlib import Path

import pytest

from forgefront.data_folder import secret_key_rotation
from forgefront.data_folder.data_folder_lock import DataFolderLock
from storage.secrets import fingerprint_key
from tests.forgefront.support.cli_runner import CommandRunner

ROTATE = ("admin", "secret-key", "rotate")
OTHER_KEY = "A" * 43 + "="


@pytest.fixture
def token(cli: CommandRunner) -> str:
    return show_token(cli)


@pytest.fixture
def key(cli: CommandRunner) -> str:
    """The key before the rotation."""
    return read_key(cli)


def show_token(cli: CommandRunner) -> str:
    return str(cli.json("admin", "token", "show", "root")["token"])


def read_key(cli: CommandRunner) -> str:
    return (cli.data / "secret.key").read_text().strip()


def key_files(cli: CommandRunner) -> dict[str, str]:
    return {path.name: path.read_text().strip() for path in cli.data.glob("secret.key*")}


def refuses(cli: CommandRunner, message: str, *arguments: object) -> None:
    """The command ends with the message, and leaves the keys as they are."""
    before = key_files(cli)
    assert message in " ".join(cli(*arguments, code=None).stderr.split())
    assert key_files(cli) == before


def fail(*_: object) -> None:
    raise OSError("no space left on device")


class TestRotation:
    def test_replaces_the_key(self, cli: CommandRunner, key: str, token: str) -> None:
        result = cli.json(*ROTATE)
        retained = cli.data / f"secret.key.{fingerprint_key(key.encode())}"
        assert (result["encrypted"], result["unchanged"], result["unreadable"]) == (1, 0, 0)
        assert (result["key_file"], result["old_key_file"]) == (str(cli.data / "secret.key"), str(retained))
        assert result["fingerprint"] == fingerprint_key(read_key(cli).encode())
        assert retained.read_text().strip() == key != read_key(cli)
        assert {path.stat().st_mode & 0o777 for path in cli.data.glob("secret.key*")} == {0o600}
        assert show_token(cli) == token and cli.json("check")["ok"]

    def test_text_says_where_the_keys_are(self, cli: CommandRunner) -> None:
        output = cli(*ROTATE).stdout
        assert output.startswith("Encrypted 1 values with the new key in 0 s.\n")
        assert f"The new key is in {cli.data}/secret.key: copy it to all hosts" in output
        assert f"The old key is in {cli.data}/secret.key." in output

    def test_takes_a_given_key(self, cli: CommandRunner, token: str, tmp_path: Path) -> None:
        (tmp_path / "new.key").write_text(OTHER_KEY)
        cli(*ROTATE, "--new-key", tmp_path / "new.key")
        assert read_key(cli) == OTHER_KEY and show_token(cli) == token
        refuses(cli, "the new key is the present one", *ROTATE, "--new-key", tmp_path / "new.key")
        (tmp_path / "new.key").write_text("short")
        refuses(cli, f"{tmp_path}/new.key is not 32 bytes in base64", *ROTATE, "--new-key", tmp_path / "new.key")

    def test_needs_a_folder_that_nobody_uses(self, cli: CommandRunner) -> None:
        lock = DataFolderLock(cli.data)
        lock.acquire()
        refuses(cli, f"another process uses {cli.data}; stop the service and all commands first", *ROTATE)
        lock.release()

    def test_failure_changes_nothing(self, cli: CommandRunner, token: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(secret_key_rotation, "write_once", fail)
        refuses(cli, "no space left on device", *ROTATE)
        assert show_token(cli) == token


class TestConfiguredKey:
    def test_is_replaced_by_the_operator(
        self, cli: CommandRunner, key: str, token: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (cli.data / "secret.key").unlink()
        (tmp_path / "new.key").write_text(OTHER_KEY)
        monkeypatch.setenv("FORGEFRONT_SECRET_KEY", key)
        refuses(cli, "the new one must be given", *ROTATE)
        assert "Set FORGEFRONT_SECRET_KEY to the new key on all hosts" in cli(*ROTATE, "--new-key", tmp_path / "new.key").stdout
        assert key_files(cli) == {}

        for command in (("admin", "token", "show", "root"), ("dump", tmp_path / "forge.tar")):
            refuses(cli, "the secrets in the database were encrypted with another key", *command)
        # As after a kill that left it unknown whether the rotation was committed.
        assert cli.json(*ROTATE, "--new-key", tmp_path / "new.key")["unchanged"] == 1
        monkeypatch.setenv("FORGEFRONT_SECRET_KEY", OTHER_KEY)
        assert show_token(cli) == token


class TestInterruption:
    @pytest.mark.parametrize("is_committed", [True, False])
    def test_is_completed_by_the_next_run(
        self, cli: CommandRunner, key: str, token: str, is_committed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        if is_committed:
            with monkeypatch.context() as patch:
                patch.setattr(secret_key_rotation, "_replace_key_file", fail)
                assert "no space left on device" in cli(*ROTATE, code=1).stderr
        else:
            (cli.data / "secret.key.new").write_text(OTHER_KEY)
        new_key = key_files(cli)["secret.key.new"]

        for command in (("admin", "token", "show", "root"), ("dump", tmp_path / "forge.tar")):
            refuses(cli, "a rotation of the secret key that was interrupted; run `forgefront admin secret-key rotate` again", *command)
        assert "a rotation of the key was interrupted" in cli("check", code=1).stdout
        (tmp_path / "third.key").write_text("B" * 43 + "=")
        refuses(cli, "was interrupted; complete it first, without --new-key", *ROTATE, "--new-key", tmp_path / "third.key")

        result = cli.json(*ROTATE)
        assert (result["encrypted"], result["unchanged"]) == ((0, 1) if is_committed else (1, 0))
        assert key_files(cli) == {"secret.key": new_key, f"secret.key.{fingerprint_key(key.encode())}": key}
        assert show_token(cli) == token and cli.json("check")["ok"]


class TestLostKey:
    def test_is_forgotten(self, cli: CommandRunner, key: str, token: str) -> None:
        forget = ("admin", "secret-key", "forget")
        refuses(cli, "the secrets in the database have the present key", *forget, "--yes")
        (cli.data / "secret.key").write_text(OTHER_KEY)
        refuses(cli, "If it is lost: `forgefront admin secret-key forget`", "admin", "token", "show", "root")
        assert cli(*forget, input="n\n", code=1).stdout.startswith(f"Delete all stored secrets of {cli.data}?")

        assert cli(*forget, "--yes").stdout.startswith("Tokens can be used, but not shown any more.")
        assert "create a new one" in cli("admin", "token", "show", "root", code=1).stderr
        assert cli.json("admin", "token", "create", "root")["token"] == show_token(cli) != token


def test_dumps_need_the_key_of_their_time(cli: CommandRunner, key: str, token: str, tmp_path: Path) -> None:
    cli("dump", tmp_path / "old.tar")
    retained = cli.json(*ROTATE)["old_key_file"]
    cli("dump", tmp_path / "new.tar", "--since", tmp_path / "old.tar")

    target = CommandRunner(tmp_path / "target")
    target.data.mkdir()
    shutil.copy(cli.data / "secret.key", target.data)
    fingerprint = Path(retained).suffix.removeprefix(".")
    refuses(target, f"use the one of the time of the dump: its fingerprint is {fingerprint},", "restore", tmp_path / "old.tar")
    assert target.json("restore", tmp_path / "old.tar", tmp_path / "new.tar")["check"]["ok"]
    assert show_token(target) == token

    old = CommandRunner(tmp_path / "older")
    old.data.mkdir()
    shutil.copy(retained, old.data / "secret.key")
    assert old.json("restore", tmp_path / "old.tar")["check"]["ok"]
    assert show_token(old) == token
