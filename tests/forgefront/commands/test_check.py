"""`forgefront check` finds and names every kind of fault, and says what to do."""

import asyncio
import contextlib
import errno
import json
import os
import shutil
import sqlite3
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest

from forgefront.backend import Backend
from forgefront.buckets.bucket_move import move_to_buckets
from forgefront.checks import artifact_check, data_folder_check
from forgefront.checks.check_report import CheckReport
from forgefront.config import Config
from storage import integrity
from storage.database.engine import Database
from storage.git.repository import Repository
from tests.forgefront.support.cli_runner import CommandRunner
from tests.forgefront.support.stored_artifacts import put_artifacts
from tests.support.git.git_history import git, make_history
from tests.support.servers.bucket import Bucket

pytestmark = pytest.mark.usefixtures("isolated_environment")


@pytest.fixture(scope="session")
def healthy_folder(folder_with_root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder with a project whose repository has a history, to be copied."""
    folder = tmp_path_factory.mktemp("whole")
    shutil.copytree(folder_with_root, folder / "data")
    source = make_history(folder / "source.git", commits=10).path
    CommandRunner(folder / "data")("admin", "group", "create", "team")
    CommandRunner(folder / "data")("admin", "project", "create", "team/tools", "--repository", source)
    return folder / "data"


@pytest.fixture
def healthy(isolated_environment: None, healthy_folder: Path, tmp_path: Path) -> CommandRunner:
    shutil.copytree(healthy_folder, tmp_path / "data")
    return CommandRunner(tmp_path / "data")


@contextlib.contextmanager
def rows(data: Path) -> Iterator[sqlite3.Connection]:
    with contextlib.closing(sqlite3.connect(data / "forgefront.db")) as connection, connection:
        yield connection


def overwrite(path: Path, offset: int, data: bytes) -> None:
    path.chmod(0o600)
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(data)


def only_problem(cli: CommandRunner, *options: str) -> dict[str, Any]:
    """The one problem that is found."""
    result = cli("check", "--json", *options, code=1)
    report = json.loads(result.stdout)
    assert report["ok"] is False
    assert len(report["problems"]) == 1, report
    found: dict[str, Any] = report["problems"][0]
    assert found["remedy"]
    return found


class TestHealthyFolder:
    @pytest.mark.parametrize("options", [(), ("--full",)])
    def test_nothing_is_wrong(self, healthy: CommandRunner, options: tuple[str, ...]) -> None:
        assert healthy.json("check", *options)["problems"] == []
        assert healthy("check", *options).stdout.endswith("no problems\n")

    def test_changes_nothing(self, healthy: CommandRunner) -> None:
        def state() -> dict[Path, bytes]:
            return {
                path: path.read_bytes() for path in healthy.data.rglob("*") if path.is_file() and not path.name.endswith(("-wal", "-shm"))
            }

        before = state()
        healthy("check", "--full")
        assert state() == before

    def test_files_are_for_their_owner_whatever_the_umask_and_the_folder(self, isolated_environment: None, tmp_path: Path) -> None:
        data = tmp_path / "data"
        data.mkdir(mode=0o755)
        before = os.umask(0)
        try:
            CommandRunner(data)("admin", "user", "create", "root", "--admin", "--email", "root@example.org", "--no-password")
        finally:
            os.umask(before)

        found = {path.relative_to(data).as_posix(): path.stat().st_mode & 0o777 for path in data.rglob("*")}
        assert found["forgefront.db"] == found["secret.key"] == 0o600
        assert found["repositories"] == 0o700
        assert {name: mode for name, mode in found.items() if mode & 0o077} == {}

    def test_notes_are_not_problems(self, healthy: CommandRunner) -> None:
        with rows(healthy.data) as connection:
            connection.execute("UPDATE users SET admin = 0")
        healthy.data.chmod(0o755)
        notes = healthy.json("check")["notes"]
        assert any("no active administrator" in note for note in notes)
        assert any("chmod 700" in note for note in notes)

    def test_beside_the_service(self, healthy: CommandRunner) -> None:
        with rows(healthy.data) as connection:
            connection.execute("BEGIN IMMEDIATE")
            assert healthy.json("check")["ok"]


class TestFolder:
    def test_absent(self, tmp_path: Path) -> None:
        assert only_problem(CommandRunner(tmp_path / "absent"))["problem"] == "it does not exist"
        assert not (tmp_path / "absent").exists()

    def test_missing_repositories_folder(self, healthy: CommandRunner) -> None:
        shutil.rmtree(healthy.data / "repositories")
        found = healthy("check", code=1).stdout
        assert f"WRONG  folder: {healthy.data / 'repositories'}: it does not exist" in found
        assert "WRONG  repositories: team/tools" in found
        assert "2 problems" in found

    def test_full_disk(self, healthy: CommandRunner, monkeypatch: pytest.MonkeyPatch) -> None:
        usage = shutil._ntuple_diskusage(100, 99, 1)  # type: ignore[attr-defined]
        monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
        assert only_problem(healthy)["problem"] == "only 0 MB are free on its disk"

    @pytest.mark.parametrize(
        ("number", "remedy"),
        [
            (errno.ENOSPC, "free disk space"),
            (errno.EROFS, "mount its file system for writing, and see whether the kernel reports errors of the disk"),
            (errno.EACCES, "make the user who runs the service its owner"),
        ],
    )
    def test_that_cannot_be_written(self, healthy: CommandRunner, monkeypatch: pytest.MonkeyPatch, number: int, remedy: str) -> None:
        def fail(dir: Path) -> NoReturn:
            raise OSError(number, os.strerror(number))

        monkeypatch.setattr(tempfile, "TemporaryFile", fail)
        report = CheckReport()
        assert data_folder_check._check_folder(Config.load(data=healthy.data), report)
        problems = {(problem.problem, problem.remedy) for problem in report.problems if "not writable" in problem.problem}
        assert problems == {(f"it is not writable: {os.strerror(number)}", remedy)}


class TestKey:
    def test_others_may_read_it(self, healthy: CommandRunner) -> None:
        (healthy.data / "secret.key").chmod(0o644)
        found = only_problem(healthy)
        assert found["problem"] == "other users can read it (mode 644)"
        assert found["remedy"] == f"chmod 600 {healthy.data / 'secret.key'}"

    @pytest.mark.parametrize(("name", "mode"), [("forgefront.db", 0o644), ("repositories", 0o750), ("forgefront.lock", 0o666)])
    def test_group_and_world_access(self, healthy: CommandRunner, name: str, mode: int) -> None:
        path = healthy.data / name
        path.chmod(mode)

        found = only_problem(healthy)

        assert (found["area"], found["subject"], found["problem"]) == ("folder", str(path), f"other users have access (mode {mode:o})")
        assert found["remedy"].startswith(f"chmod {mode & 0o700:o} {path}")
        assert path.stat().st_mode & 0o777 == mode

    def test_start_corrects_permissions(self, healthy: CommandRunner) -> None:
        for name in ("forgefront.db", "secret.key", "repositories"):
            (healthy.data / name).chmod(0o755)

        # Standard output stays JSON.
        assert healthy.json("admin", "user", "list")

        assert {name: (healthy.data / name).stat().st_mode & 0o777 for name in ("forgefront.db", "secret.key", "repositories")} == {
            "forgefront.db": 0o700,
            "secret.key": 0o700,
            "repositories": 0o700,
        }
        assert healthy.json("check")["problems"] == []

    def test_a_missing_key_is_not_recreated(self, healthy: CommandRunner) -> None:
        (healthy.data / "secret.key").unlink()
        assert only_problem(healthy)["area"] == "key"
        assert not (healthy.data / "secret.key").exists()

    def test_damaged(self, healthy: CommandRunner) -> None:
        (healthy.data / "secret.key").write_text("short")
        assert "is not 32 bytes in base64" in only_problem(healthy)["problem"]

    def test_of_another_database(self, healthy: CommandRunner, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("FORGEFRONT_SECRET_KEY", "A" * 43 + "=")
        assert only_problem(healthy)["problem"] == "the stored tokens were encrypted with another key"


class TestDatabase:
    def test_absent(self, healthy: CommandRunner) -> None:
        (healthy.data / "forgefront.db").unlink()
        assert only_problem(healthy)["problem"] == "it is empty or does not exist"
        assert not (healthy.data / "forgefront.db").exists()

    def test_no_database_at_all(self, healthy: CommandRunner) -> None:
        (healthy.data / "forgefront.db").write_bytes(b"x" * 8192)
        found = only_problem(healthy)
        assert found["problem"].startswith("it cannot be read: ")
        assert found["remedy"] == "restore it from a backup"

    def test_statements_over_all_rows_have_no_time_limit(self, healthy: CommandRunner, monkeypatch: pytest.MonkeyPatch) -> None:
        def open_database(url: str, **settings: Any) -> Database:
            opened.append(settings)
            return Database(url, **settings)

        opened: list[dict[str, Any]] = []
        monkeypatch.setattr(data_folder_check, "Database", open_database)
        with rows(healthy.data) as connection:
            connection.execute("INSERT INTO row_counts (project_id, kind, state, number) VALUES (1, 'issues', 'opened', 2)")
        assert [finding["subject"] for finding in healthy.json("check", "--repair")["repaired"]] == ["counters"]
        assert opened == [{"statement_seconds": None}] * 2

    def test_that_is_away_needs_no_backup(self, healthy: CommandRunner, monkeypatch: pytest.MonkeyPatch) -> None:
        async def fail(database: Database) -> list[str]:
            raise TimeoutError("no connection")

        monkeypatch.setattr(integrity, "find_broken_references", fail)
        found = only_problem(healthy)
        assert (found["problem"], found["remedy"]) == (
            "it cannot be read: no connection",
            "see whether the database is available, and check again",
        )

    def test_of_which_a_file_cannot_be_opened(self, healthy: CommandRunner) -> None:
        (healthy.data / "forgefront.db-wal").mkdir(0o700)
        found = only_problem(healthy)
        assert found["problem"] == "it cannot be read: (sqlite3.OperationalError) unable to open database file"
        assert found["remedy"] == "make the user who runs the service the owner of the file and its folder"

    @pytest.mark.parametrize("revision", ["0000", "9999"])
    def test_another_revision(self, healthy: CommandRunner, revision: str) -> None:
        with rows(healthy.data) as connection:
            connection.execute("UPDATE alembic_version SET version_num = ?", (revision,))
        assert only_problem(healthy)["problem"].startswith(f"it is at revision {revision}, this program requires ")

    def test_broken_reference(self, healthy: CommandRunner) -> None:
        with rows(healthy.data) as connection:
            connection.execute(
                "INSERT INTO project_members (project_id, user_id, access_level, created_at, updated_at)"
                " VALUES (1, 99, 10, '2016-01-01', '2016-01-01')"
            )
        assert only_problem(healthy)["problem"] == "project_members.user_id: 1 rows name no row of users"

    def test_broken_pages(self, healthy: CommandRunner) -> None:
        with rows(healthy.data) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            page = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'ix_tokens_user_id'").fetchone()[0]
            size = connection.execute("PRAGMA page_size").fetchone()[0]
        with (healthy.data / "forgefront.db").open("r+b") as file:
            file.seek((page - 1) * size + 8)
            file.write(b"\xff" * 32)
        found = healthy("check", code=1).stdout
        assert "WRONG  database: " in found

    def test_absent_server(self, healthy: CommandRunner, monkeypatch: pytest.MonkeyPatch, unused_tcp_port: int) -> None:
        monkeypatch.setenv("FORGEFRONT_DATABASE_URL", f"postgresql://u:hunter2@127.0.0.1:{unused_tcp_port}/d")
        found = only_problem(healthy)
        assert found["problem"].startswith("it cannot be reached: ")
        assert "hunter2" not in str(found)


class TestRepositories:
    def test_absent(self, healthy: CommandRunner) -> None:
        shutil.rmtree(healthy.data / "repositories" / "1.git")
        assert only_problem(healthy)["problem"] == "it does not exist"

    def test_no_repository(self, healthy: CommandRunner) -> None:
        (healthy.data / "repositories" / "1.git" / "HEAD").unlink()
        assert only_problem(healthy)["problem"].startswith("it cannot be read: ")

    def test_refs_pushed_past_the_service_are_taken_over(self, healthy: CommandRunner) -> None:
        repository = healthy.data / "repositories" / "1.git"
        oid = git(repository, "rev-parse", "master")
        git(repository, "update-ref", "refs/heads/past", oid)
        git(repository, "symbolic-ref", "HEAD", "refs/heads/topic")
        found = only_problem(healthy)
        assert (found["area"], found["problem"]) == (
            "refs",
            "the files of git have 1 ref (refs/heads/past) that the database does not have",
        )
        # What it says to do helps.
        moved = healthy.json("admin", "project", "adopt-refs", "team/tools")
        assert moved == [{"ref": "refs/heads/past", "old": None, "new": oid}]
        assert healthy.json("check")["ok"]
        assert git(repository, "symbolic-ref", "HEAD") == "refs/heads/master"

    def test_missing_object_of_a_ref(self, healthy: CommandRunner) -> None:
        with rows(healthy.data) as connection:
            connection.execute("UPDATE refs SET oid = ? WHERE name = 'refs/heads/topic'", ("1" * 40,))
        assert any(
            (each["area"], each["problem"]) == ("refs", "the objects of 1 ref (refs/heads/topic) are missing")
            for each in json.loads(healthy("check", "--json", code=1).stdout)["problems"]
        )

    def test_missing_object_is_found_by_full(self, healthy: CommandRunner) -> None:
        repository = healthy.data / "repositories" / "1.git"
        oid = git(repository, "rev-parse", "master~3^{tree}")
        packs = [path.read_bytes() for path in (repository / "objects" / "pack").glob("*.pack")]
        shutil.rmtree(repository / "objects" / "pack")
        for pack in packs:
            git(repository, "unpack-objects", "-q", stdin=pack)
        (repository / "objects" / oid[:2] / oid[2:]).unlink()
        assert Repository.open(repository).branches()
        assert healthy.json("check")["ok"]
        assert only_problem(healthy, "--full")["problem"].startswith("git fsck: ")

    def test_damaged_contents_are_found_by_full(self, healthy: CommandRunner) -> None:
        repository = healthy.data / "repositories" / "1.git"
        file_oid = git(repository, "rev-parse", f"master:{git(repository, 'ls-tree', '-r', '--name-only', 'master').splitlines()[0]}")
        pack = next((repository / "objects" / "pack").glob("*.pack"))
        lines = [line.split() for line in git(repository, "verify-pack", "-v", str(pack.with_suffix(".idx"))).splitlines()]
        size, offset = next((int(line[3]), int(line[4])) for line in lines if line[0] == file_oid)
        overwrite(pack, offset + size - 5, b"\xff\xff\xff")
        assert git(repository, "fsck", "--connectivity-only", "--no-dangling") == ""
        assert healthy.json("check")["ok"]
        found = only_problem(healthy, "--full")
        assert found["area"] == "repositories"
        assert found["problem"].startswith(f"an object is damaged: {pack.stem}: ")

    def test_damaged_loose_object_is_found_by_full(self, healthy: CommandRunner) -> None:
        repository = healthy.data / "repositories" / "1.git"
        # Zeros compress to a stream whose last output needs no further input.
        oids = [git(repository, "hash-object", "-w", "--stdin", stdin=content) for content in (b"one", bytes(3 * 2**20), b"three")]
        assert healthy.json("check", "--full")["ok"]
        path = repository / "objects" / oids[2][:2] / oids[2][2:]
        overwrite(path, 0, zlib.compress(b"blob 5\x00other"))
        assert only_problem(healthy, "--full")["problem"] == f"an object is damaged: {oids[2]}: its contents do not match its id"

    def test_stray_folder(self, healthy: CommandRunner) -> None:
        (healthy.data / "repositories" / "77.git").mkdir()
        (healthy.data / "repositories" / ".incoming-x").mkdir()
        found = only_problem(healthy)
        assert (found["subject"], found["problem"]) == (str(healthy.data / "repositories" / "77.git"), "it belongs to no project")


class TestUploads:
    SECRET = "0123456789abcdef" * 2

    @pytest.fixture
    def file(self, healthy: CommandRunner) -> Path:
        """The file of an upload of the project."""
        with rows(healthy.data) as connection:
            connection.execute(
                "INSERT INTO uploads (project_id, author_id, secret, name, size, created_at) VALUES (1, 1, ?, 'a.png', 3, '2016-01-01')",
                (self.SECRET,),
            )
        (folder := healthy.data / "uploads" / "1").mkdir(parents=True)
        (file := folder / self.SECRET).write_bytes(b"abc")
        return file

    def test_nothing_is_wrong(self, healthy: CommandRunner, file: Path) -> None:
        report = healthy.json("check")
        assert (report["problems"], "1 uploads" in report["checked"]) == ([], True)

    def test_absent(self, healthy: CommandRunner, file: Path) -> None:
        file.unlink()
        found = only_problem(healthy)
        assert found["subject"] == f"team/tools/uploads/{self.SECRET}/a.png ({file})"
        assert found["problem"] == "it does not exist"

    def test_cut_short(self, healthy: CommandRunner, file: Path) -> None:
        file.write_bytes(b"a")
        assert only_problem(healthy)["problem"] == "its size is 1 bytes instead of 3"

    def test_stray_files_are_reported(self, healthy: CommandRunner, file: Path) -> None:
        (stray := file.with_name("f" * 32)).touch()
        file.with_name("e" * 32).touch()
        (healthy.data / "uploads" / ".incoming-x").touch()
        report = healthy.json("check")
        assert report["ok"]
        (note,) = (note for note in report["notes"] if "it belongs to no upload" in note)
        assert note.startswith(f"{stray.with_name('e' * 32)} and 1 others: ")


class TestArtifacts:
    KEYS = ("a" * 32, "b" * 32, "c" * 32, "d" * 32, "e" * 32)

    @pytest.fixture
    def files(self, healthy: CommandRunner) -> list[Path]:
        """The files of five artifacts, of the builds 1 to 5."""
        asyncio.run(put_artifacts(healthy.data, dict.fromkeys(self.KEYS, b"content")))
        with rows(healthy.data) as connection:
            connection.execute("INSERT INTO trace_parts (build_id, start, size, key) VALUES (5, 0, 7, ?)", ("f" * 32,))
        files = [healthy.data / "artifacts" / key[:2] / key for key in (*self.KEYS, "f" * 32)]
        files[-1].parent.mkdir()
        files[-1].write_bytes(b"running")
        return files

    def test_nothing_is_wrong(self, healthy: CommandRunner, files: list[Path]) -> None:
        report = healthy.json("check")
        assert (report["problems"], "6 artifacts and parts of traces" in report["checked"]) == ([], True)

    def test_absent(self, healthy: CommandRunner, files: list[Path]) -> None:
        for file in files[1:5]:
            file.unlink()
        found = only_problem(healthy)
        assert found["subject"] == f"artifacts of builds 2, 3, 4 and 1 more ({healthy.data / 'artifacts'})"
        assert found["problem"] == "their files do not exist"

    def test_absent_trace(self, healthy: CommandRunner, files: list[Path]) -> None:
        files[-1].unlink()
        assert only_problem(healthy)["subject"] == f"traces of build 5 ({healthy.data / 'artifacts'})"

    def test_cut_short(self, healthy: CommandRunner, files: list[Path]) -> None:
        files[0].write_bytes(b"cont")
        found = only_problem(healthy)
        assert found["subject"].startswith("artifacts of build 1 (")
        assert found["problem"] == "their files have another size than their rows name"

    def test_deleted_meanwhile(self, healthy: CommandRunner, files: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
        read_sizes = artifact_check._read_sizes

        def delete_and_read(*arguments: Any) -> Any:
            with rows(healthy.data) as connection:
                connection.execute("DELETE FROM artifacts WHERE build_id = 1")
            files[0].unlink(missing_ok=True)
            return read_sizes(*arguments)

        monkeypatch.setattr(artifact_check, "_read_sizes", delete_and_read)
        assert healthy.json("check")["ok"]

    def test_pages(self, healthy: CommandRunner, files: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(artifact_check, "PAGE_ROWS", 2)
        for file in files[:5]:
            file.unlink()
        assert only_problem(healthy)["subject"].startswith("artifacts of builds 1, 2, 3 and 2 more (")


class TestIndex:
    def test_index_differences_are_found_and_repaired(self, healthy: CommandRunner) -> None:
        with rows(healthy.data) as connection:
            connection.execute(
                "INSERT INTO refs (project_id, name, oid, is_indexed)"
                " SELECT 1, 'refs/heads/new', oid, 0 FROM refs WHERE name = 'refs/heads/master'"
            )
            connection.execute("DELETE FROM commits WHERE id = (SELECT MIN(id) FROM commits)")
            connection.execute("UPDATE refs SET is_indexed = 0 WHERE name = 'refs/heads/topic'")
        report = json.loads(healthy("check", "--json", code=1).stdout)
        assert [(each["area"], each["subject"], each["problem"]) for each in report["problems"]] == [
            ("index", "team/tools", "2 branches are not in the index: new, topic"),
            ("index", "team/tools", "1 commit is not in the index"),
        ]
        assert "--repair" in report["problems"][0]["remedy"]
        report = healthy.json("check", "--repair")
        assert (report["ok"], report["problems"], len(report["repaired"])) == (True, [], 2)
        assert healthy.json("check")["ok"]

    def test_repair_reports_what_it_repaired(self, healthy: CommandRunner) -> None:
        with rows(healthy.data) as connection:
            connection.execute("UPDATE refs SET is_indexed = 0 WHERE name LIKE 'refs/heads/%'")
            connection.execute("UPDATE commits SET oid = ? WHERE id = (SELECT MIN(id) FROM commits)", ("1" * 40,))
        output = healthy("check", "--repair").stdout
        assert "fixed  index: team/tools: 2 branches are not in the index: master, topic\n" in output
        assert "fixed  index: team/tools: 1 commit is in the index only\n" in output
        assert output.endswith("no problems\n")

    def test_counters_are_corrected(self, healthy: CommandRunner) -> None:
        with rows(healthy.data) as connection:
            connection.execute("INSERT INTO row_counts (project_id, kind, state, number) VALUES (1, 'issues', 'opened', 2)")
        found = only_problem(healthy)
        assert (found["area"], found["subject"]) == ("database", "counters")
        assert found["problem"] == "project 1: 2 fewer issues in the state opened than counted"
        report = healthy.json("check", "--repair")
        assert (report["ok"], len(report["repaired"])) == (True, 1)
        assert healthy.json("check")["ok"]

    def test_repair_does_not_change_a_healthy_index(self, healthy: CommandRunner) -> None:
        assert healthy.json("check", "--repair")["repaired"] == []


class TestBucket:
    @pytest.fixture
    def moved(self, healthy: CommandRunner, bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> CommandRunner:
        """The folder, after its repository, an upload and an artifact were moved to buckets."""
        for part in ("repositories", "uploads", "artifacts"):
            monkeypatch.setenv(f"FORGEFRONT_{part.upper()}_URL", f"s3://forge/{part}")
        for name, value in bucket.variables.items():
            monkeypatch.setenv(f"FORGEFRONT_{name.upper()}", value)
        for path in (healthy.data / "uploads" / "1" / ("a" * 32), healthy.data / "artifacts" / "bb" / ("b" * 32)):
            path.parent.mkdir(parents=True)
            path.write_bytes(b"bytes")
        bucket.stop()
        with pytest.raises(ConnectionError, match="unavailable"):
            self.move(healthy.data)
        bucket.start()
        self.move(healthy.data)
        return healthy

    def move(self, data: Path) -> None:
        async def work() -> None:
            backend = Backend(Config.load(data=data))
            try:
                await backend.start()
                await move_to_buckets(backend)
            finally:
                await backend.stop()

        asyncio.run(work())

    def test_a_moved_folder_needs_no_files(self, moved: CommandRunner, bucket: Bucket) -> None:
        assert bucket.objects("uploads/") == {f"uploads/{'a' * 32}": b"bytes"}
        assert bucket.objects("artifacts/") == {f"artifacts/{'b' * 32}": b"bytes"}
        assert not [path for part in ("uploads", "artifacts") for path in (moved.data / part).rglob("*") if path.is_file()]
        self.move(moved.data)
        objects = bucket.objects("repositories/")
        shutil.rmtree(moved.data / "repositories")

        quick, full = moved.json("check"), moved.json("check", "--full")

        assert quick["problems"] == full["problems"] == []
        assert f"{len(objects)} packs" in full["checked"]
        assert "1 repositories have no copy on this host; --full downloads and checks them too" in quick["notes"]

    def test_a_missing_object(self, moved: CommandRunner, bucket: Bucket) -> None:
        key = next(iter(bucket.objects("repositories/")))
        bucket.delete(key)
        problem = only_problem(moved)
        assert (problem["area"], problem["problem"]) == ("packs", "it is missing in the bucket")
        assert problem["subject"].startswith("team/tools: pack-")
        assert key.removeprefix("repositories/") in problem["subject"]

    def test_a_damaged_object(self, moved: CommandRunner, bucket: Bucket) -> None:
        key, content = next(iter(bucket.objects("repositories/").items()))
        bucket.write(key, content[:-1] + b"?")
        assert moved.json("check")["problems"] == []
        problem = only_problem(moved, "--full")
        assert problem["area"] == "packs"
        assert problem["problem"].startswith("it is damaged: its SHA-256 is ")

    def test_a_missing_artifact(self, moved: CommandRunner, bucket: Bucket) -> None:
        asyncio.run(put_artifacts(moved.data, {"b" * 32: b"bytes", "c" * 32: b"bytes"}))
        problem = only_problem(moved)
        assert (problem["subject"], problem["problem"]) == ("artifacts of build 2 (the bucket)", "their files do not exist")

    def test_a_bucket_that_is_away(self, moved: CommandRunner, bucket: Bucket) -> None:
        bucket.stop()
        problems = json.loads(moved("check", "--json", code=1).stdout)["problems"]
        bucket.start()
        assert {(problem["area"], problem["subject"]) for problem in problems} == {
            ("artifacts", "bucket"),
            ("packs", "bucket"),
            ("uploads", "bucket"),
            *(("buckets", name) for name in ("artifacts", "repositories", "uploads")),
        }
