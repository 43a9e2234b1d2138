"""`forgefront check`: every kind of fault is found, named, and comes with what to do."""

import contextlib
import json
import os
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from storage.git.repository import Repository
from tests.forgefront.running import Cli
from tests.history import git, make_history

pytestmark = pytest.mark.usefixtures("apart")


@pytest.fixture(scope="session")
def whole_folder(folder_with_root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder with a project whose repository has a history, to be copied."""
    folder = tmp_path_factory.mktemp("whole")
    shutil.copytree(folder_with_root, folder / "data")
    source = make_history(folder / "source.git", commits=10).path
    Cli(folder / "data")("admin", "group", "create", "team")
    Cli(folder / "data")("admin", "project", "create", "team/tools", "--repository", source)
    return folder / "data"


@pytest.fixture
def whole(apart: None, whole_folder: Path, tmp_path: Path) -> Cli:
    shutil.copytree(whole_folder, tmp_path / "data")
    return Cli(tmp_path / "data")


@contextlib.contextmanager
def rows(data: Path) -> Iterator[sqlite3.Connection]:
    with contextlib.closing(sqlite3.connect(data / "forgefront.db")) as connection, connection:
        yield connection


def problem(cli: Cli, *options: str) -> dict[str, Any]:
    """The one problem that is found."""
    result = cli("check", "--json", *options, code=1)
    told = json.loads(result.stdout)
    assert told["ok"] is False
    assert len(told["problems"]) == 1, told
    found: dict[str, Any] = told["problems"][0]
    assert found["remedy"]
    return found


class TestWhole:
    @pytest.mark.parametrize("options", [(), ("--full",)])
    def test_nothing_is_wrong(self, whole: Cli, options: tuple[str, ...]) -> None:
        assert whole.json("check", *options)["problems"] == []
        assert whole("check", *options).stdout.endswith("all is well\n")

    def test_changes_nothing(self, whole: Cli) -> None:
        def state() -> dict[Path, bytes]:
            return {
                path: path.read_bytes() for path in whole.data.rglob("*") if path.is_file() and not path.name.endswith(("-wal", "-shm"))
            }

        before = state()
        whole("check", "--full")
        assert state() == before

    def test_files_are_for_their_owner_whatever_the_umask_and_the_folder(self, apart: None, tmp_path: Path) -> None:
        data = tmp_path / "data"
        data.mkdir(mode=0o755)
        before = os.umask(0)
        try:
            Cli(data)("admin", "user", "create", "root", "--admin", "--email", "root@example.org", "--no-password")
        finally:
            os.umask(before)

        found = {path.relative_to(data).as_posix(): path.stat().st_mode & 0o777 for path in data.rglob("*")}
        assert found["forgefront.db"] == found["secret.key"] == 0o600
        assert found["repositories"] == 0o700
        assert {name: mode for name, mode in found.items() if mode & 0o077} == {}

    def test_notes_are_not_problems(self, whole: Cli) -> None:
        with rows(whole.data) as connection:
            connection.execute("UPDATE users SET admin = 0")
        whole.data.chmod(0o755)
        notes = whole.json("check")["notes"]
        assert any("no active administrator" in note for note in notes)
        assert any("chmod 700" in note for note in notes)

    def test_beside_the_service(self, whole: Cli) -> None:
        with rows(whole.data) as connection:
            connection.execute("BEGIN IMMEDIATE")
            assert whole.json("check")["ok"]


class TestFolder:
    def test_absent(self, tmp_path: Path) -> None:
        assert problem(Cli(tmp_path / "absent"))["problem"] == "it is not there"
        assert not (tmp_path / "absent").exists()

    def test_repositories_are_gone(self, whole: Cli) -> None:
        shutil.rmtree(whole.data / "repositories")
        found = whole("check", code=1).stdout
        assert f"WRONG  folder: {whole.data / 'repositories'}: it is not there" in found
        assert "WRONG  repositories: team/tools" in found
        assert "2 problems" in found

    def test_full_disk(self, whole: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
        usage = shutil._ntuple_diskusage(100, 99, 1)  # type: ignore[attr-defined]
        monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
        assert problem(whole)["problem"] == "only 0 MB are free on its disk"


class TestKey:
    def test_others_may_read_it(self, whole: Cli) -> None:
        (whole.data / "secret.key").chmod(0o644)
        found = problem(whole)
        assert found["problem"] == "others may read it (mode 644)"
        assert found["remedy"] == f"chmod 600 {whole.data / 'secret.key'}"

    @pytest.mark.parametrize(("name", "mode"), [("forgefront.db", 0o644), ("repositories", 0o750), ("forgefront.lock", 0o666)])
    def test_what_others_may_use(self, whole: Cli, name: str, mode: int) -> None:
        path = whole.data / name
        path.chmod(mode)

        found = problem(whole)

        assert (found["area"], found["subject"], found["problem"]) == ("folder", str(path), f"others may use it (mode {mode:o})")
        assert found["remedy"].startswith(f"chmod {mode & 0o700:o} {path}")
        assert path.stat().st_mode & 0o777 == mode

    def test_what_others_may_use_is_corrected_by_a_start(self, whole: Cli) -> None:
        for name in ("forgefront.db", "secret.key", "repositories"):
            (whole.data / name).chmod(0o755)

        # Standard output stays JSON.
        assert whole.json("admin", "user", "list")

        assert {name: (whole.data / name).stat().st_mode & 0o777 for name in ("forgefront.db", "secret.key", "repositories")} == {
            "forgefront.db": 0o700,
            "secret.key": 0o700,
            "repositories": 0o700,
        }
        assert whole.json("check")["problems"] == []

    def test_absent_and_not_made_anew(self, whole: Cli) -> None:
        (whole.data / "secret.key").unlink()
        assert problem(whole)["area"] == "key"
        assert not (whole.data / "secret.key").exists()

    def test_damaged(self, whole: Cli) -> None:
        (whole.data / "secret.key").write_text("short")
        assert "is not 32 bytes in base64" in problem(whole)["problem"]

    def test_of_another_database(self, whole: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("FORGEFRONT_SECRET_KEY", "A" * 43 + "=")
        assert problem(whole)["problem"] == "the stored tokens were encrypted with another key"


class TestDatabase:
    def test_absent(self, whole: Cli) -> None:
        (whole.data / "forgefront.db").unlink()
        assert problem(whole)["problem"] == "it is empty or not there"
        assert not (whole.data / "forgefront.db").exists()

    def test_no_database_at_all(self, whole: Cli) -> None:
        (whole.data / "forgefront.db").write_bytes(b"x" * 8192)
        assert problem(whole)["problem"].startswith("it cannot be read: ")

    @pytest.mark.parametrize("revision", ["0000", "9999"])
    def test_another_revision(self, whole: Cli, revision: str) -> None:
        with rows(whole.data) as connection:
            connection.execute("UPDATE alembic_version SET version_num = ?", (revision,))
        assert problem(whole)["problem"].startswith(f"it is at {revision}, this program wants ")

    def test_broken_reference(self, whole: Cli) -> None:
        with rows(whole.data) as connection:
            connection.execute(
                "INSERT INTO project_members (project_id, user_id, access_level, created_at, updated_at)"
                " VALUES (1, 99, 10, '2016-01-01', '2016-01-01')"
            )
        assert problem(whole)["problem"] == "project_members.user_id: 1 rows name no row of users"

    def test_broken_pages(self, whole: Cli) -> None:
        with rows(whole.data) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            page = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'ix_tokens_user_id'").fetchone()[0]
            size = connection.execute("PRAGMA page_size").fetchone()[0]
        with (whole.data / "forgefront.db").open("r+b") as file:
            file.seek((page - 1) * size + 8)
            file.write(b"\xff" * 32)
        found = whole("check", code=1).stdout
        assert "WRONG  database: " in found

    def test_absent_server(self, whole: Cli, monkeypatch: pytest.MonkeyPatch, unused_tcp_port: int) -> None:
        monkeypatch.setenv("FORGEFRONT_DATABASE_URL", f"postgresql://u:hunter2@127.0.0.1:{unused_tcp_port}/d")
        found = problem(whole)
        assert found["problem"].startswith("it cannot be reached: ")
        assert "hunter2" not in str(found)


class TestRepositories:
    def test_absent(self, whole: Cli) -> None:
        shutil.rmtree(whole.data / "repositories" / "1.git")
        assert problem(whole)["problem"] == "it is not there"

    def test_no_repository(self, whole: Cli) -> None:
        (whole.data / "repositories" / "1.git" / "HEAD").unlink()
        assert problem(whole)["problem"].startswith("it cannot be read: ")

    def test_another_default_branch(self, whole: Cli) -> None:
        git(whole.data / "repositories" / "1.git", "symbolic-ref", "HEAD", "refs/heads/topic")
        found = problem(whole)
        assert found["problem"] == "its HEAD is topic, the project's default branch is master"
        # What it says to do helps.
        whole("admin", "project", "change", "team/tools", "--default-branch", "topic")
        assert whole.json("check")["ok"]

    def test_missing_object_is_found_by_full(self, whole: Cli) -> None:
        repository = whole.data / "repositories" / "1.git"
        oid = git(repository, "rev-parse", "master~3^{tree}")
        packs = [path.read_bytes() for path in (repository / "objects" / "pack").glob("*.pack")]
        shutil.rmtree(repository / "objects" / "pack")
        for pack in packs:
            git(repository, "unpack-objects", "-q", stdin=pack)
        (repository / "objects" / oid[:2] / oid[2:]).unlink()
        assert Repository.open(repository).branches()
        assert whole.json("check")["ok"]
        assert problem(whole, "--full")["problem"].startswith("git fsck: ")

    def test_stray_folder(self, whole: Cli) -> None:
        (whole.data / "repositories" / "77.git").mkdir()
        (whole.data / "repositories" / ".incoming-x").mkdir()
        found = problem(whole)
        assert (found["subject"], found["problem"]) == (str(whole.data / "repositories" / "77.git"), "no project has it")


class TestUploads:
    SECRET = "0123456789abcdef" * 2

    @pytest.fixture
    def file(self, whole: Cli) -> Path:
        """The file of an upload of the project."""
        with rows(whole.data) as connection:
            connection.execute(
                "INSERT INTO uploads (project_id, author_id, secret, name, size, created_at) VALUES (1, 1, ?, 'a.png', 3, '2016-01-01')",
                (self.SECRET,),
            )
        (folder := whole.data / "uploads" / "1").mkdir(parents=True)
        (file := folder / self.SECRET).write_bytes(b"abc")
        return file

    def test_nothing_is_wrong(self, whole: Cli, file: Path) -> None:
        told = whole.json("check")
        assert (told["problems"], "1 uploads" in told["looked_at"]) == ([], True)

    def test_absent(self, whole: Cli, file: Path) -> None:
        file.unlink()
        found = problem(whole)
        assert found["subject"] == f"team/tools/uploads/{self.SECRET}/a.png ({file})"
        assert found["problem"] == "it is not there"

    def test_cut_short(self, whole: Cli, file: Path) -> None:
        file.write_bytes(b"a")
        assert problem(whole)["problem"] == "it has 1 bytes instead of 3"

    def test_stray_files_are_told(self, whole: Cli, file: Path) -> None:
        (stray := file.with_name("f" * 32)).touch()
        file.with_name("e" * 32).touch()
        (whole.data / "uploads" / ".incoming-x").touch()
        told = whole.json("check")
        assert told["ok"]
        (note,) = (note for note in told["notes"] if "no upload has it" in note)
        assert note.startswith(f"{stray.with_name('e' * 32)} and 1 others: ")


class TestIndex:
    def test_what_differs_is_found_and_repaired(self, whole: Cli) -> None:
        repository = whole.data / "repositories" / "1.git"
        git(repository, "update-ref", "refs/heads/new", git(repository, "rev-parse", "master"))
        with rows(whole.data) as connection:
            connection.execute("DELETE FROM commits WHERE id = (SELECT MIN(id) FROM commits)")
            connection.execute("UPDATE branches SET oid = ? WHERE name = 'topic'", ("1" * 40,))
        told = json.loads(whole("check", "--json", code=1).stdout)
        assert [(each["area"], each["subject"], each["problem"]) for each in told["problems"]] == [
            ("index", "team/tools", "1 branch is not in the index: new"),
            ("index", "team/tools", "1 branch is somewhere else in the index: topic"),
            ("index", "team/tools", "1 commit is not in the index"),
        ]
        assert "--repair" in told["problems"][0]["remedy"]
        told = whole.json("check", "--repair")
        assert (told["ok"], told["problems"], len(told["repaired"])) == (True, [], 3)
        assert whole.json("check")["ok"]

    def test_repair_says_what_it_mended(self, whole: Cli) -> None:
        with rows(whole.data) as connection:
            connection.execute("DELETE FROM branches")
            connection.execute("UPDATE commits SET oid = ? WHERE id = (SELECT MIN(id) FROM commits)", ("1" * 40,))
        said = whole("check", "--repair").stdout
        assert "mended index: team/tools: 2 branches are not in the index: master, topic\n" in said
        assert "mended index: team/tools: 1 commit is in the index only\n" in said
        assert said.endswith("all is well\n")

    def test_repair_leaves_alone_what_is_whole(self, whole: Cli) -> None:
        assert whole.json("check", "--repair")["repaired"] == []
