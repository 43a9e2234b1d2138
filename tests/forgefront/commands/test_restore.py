"""What `forgefront restore` refuses before it writes anything, keys, chains of incremental dumps, and interrupted restorations."""

import asyncio
import json
import re
import secrets
import shutil
import signal
import sqlite3
import subprocess
from pathlib import Path
from typing import Any

import httpx
import pytest

from forgefront.backend import Backend
from forgefront.config import Config, ConfigError
from forgefront.data_folder.data_folder_claim import UNFINISHED_RESTORE
from storage import migrations
from storage.dump import repository_parts
from storage.dump.dump_format import DumpHead
from storage.dump.instance_dump import InstanceDump
from storage.dump.instance_restore import InstanceRestore, read_dumps
from storage.dump.stored_file_parts import MAX_GROUPED_BYTES
from storage.git.packing import packs
from storage.objects.folder_store import FolderStore
from storage.objects.object_store import new_key
from tests.forgefront.commands.test_serve import start_serve
from tests.forgefront.support.cli_runner import CommandRunner
from tests.forgefront.support.stored_artifacts import put_artifacts
from tests.support.database import migrated_databases
from tests.support.git.git_history import git, make_history
from tests.support.imports.dumps import contents_of, read_dump
from tests.support.servers.fork_server import start_program
from tests.support.servers.s3_server import SETTINGS

pytestmark = pytest.mark.usefixtures("isolated_environment")


@pytest.fixture(scope="session")
def dumped_folder(folder_with_root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder with a project whose repository has a history, and its dump beside it, without the key."""
    folder = tmp_path_factory.mktemp("dumped")
    shutil.copytree(folder_with_root, folder / "data")
    cli = CommandRunner(folder / "data")
    cli("admin", "group", "create", "team")
    cli("admin", "project", "create", "team/tools", "--repository", make_history(folder / "source.git", commits=10).path)
    cli("dump", folder / "forge.tar")
    return folder


@pytest.fixture
def source(dumped_folder: Path, tmp_path: Path) -> CommandRunner:
    """A copy of the data folder."""
    shutil.copytree(dumped_folder / "data", tmp_path / "source")
    return CommandRunner(tmp_path / "source")


@pytest.fixture
def dump(dumped_folder: Path) -> Path:
    return dumped_folder / "forge.tar"


@pytest.fixture
def target(dumped_folder: Path, tmp_path: Path) -> CommandRunner:
    """An empty data folder with the key of the instance."""
    (tmp_path / "target").mkdir(mode=0o700)
    shutil.copy(dumped_folder / "data" / "secret.key", tmp_path / "target")
    return CommandRunner(tmp_path / "target")


def contents_below(folder: Path) -> dict[str, bytes]:
    """The files of a folder, without those that a reader of SQLite writes."""
    files = [path for path in folder.rglob("*") if path.is_file() and not path.name.endswith(("-wal", "-shm"))]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


async def fail(*_: object) -> None:
    raise OSError("no space left on device")


def refuses(cli: CommandRunner, message: str, *arguments: object, code: int = 1) -> None:
    """The command ends with the message, and changes nothing."""
    before = contents_below(cli.data)
    result = cli(*arguments, code=code)
    assert message in " ".join(result.stderr.split()), result.stderr
    assert contents_below(cli.data) == before


class TestRestoredFolder:
    def test_is_checked_and_described(self, source: CommandRunner, target: CommandRunner, dump: Path) -> None:
        result = target.json("restore", dump)
        assert result["check"]["ok"] and result["repositories"] == 1 and result["notes"] == []
        assert target.json("check", "--full")["problems"] == []
        assert not (target.data / UNFINISHED_RESTORE).exists()
        project = target.json("admin", "project", "list")[0]
        repositories = [runner.data / "repositories" / f"{project['id']}.git" for runner in (source, target)]
        assert git(repositories[0], "log", "--all", "--graph") == git(repositories[1], "log", "--all", "--graph") != ""

    def test_repositories_of_a_folder_are_not_reported_as_uploaded(self, target: CommandRunner, dump: Path) -> None:
        progress = target("restore", dump).stderr
        assert "checking: " in progress and "uploading" not in progress

    def test_text_says_what_to_do(self, target: CommandRunner, dump: Path) -> None:
        output = target("restore", dump).stdout
        assert output.startswith("Restored ")
        assert output.endswith(f"Checked: no problems. Start it with: forgefront serve --data {target.data}\n")

    def test_text_names_the_setting_of_another_database(self, target: CommandRunner, dump: Path, tmp_path: Path) -> None:
        output = target("restore", dump, "--database-url", f"sqlite:///{tmp_path}/elsewhere.db").stdout
        assert "Set FORGEFRONT_DATABASE_URL to the database of --database-url, and start it with: " in output

    def test_files_are_for_their_owner(self, target: CommandRunner, dump: Path) -> None:
        target("restore", dump)
        modes = {path.relative_to(target.data).as_posix(): path.stat().st_mode & 0o077 for path in target.data.rglob("*")}
        assert {name: mode for name, mode in modes.items() if mode} == {}

    def test_ids_of_deleted_rows_are_not_reused(self, source: CommandRunner, target: CommandRunner, tmp_path: Path) -> None:
        created = source.json("admin", "group", "create", "deleted")
        with sqlite3.connect(source.data / "forgefront.db") as connection:
            connection.execute("PRAGMA foreign_keys = ON")
            connection.execute("DELETE FROM namespaces WHERE id = ?", (created["id"],))
        source("dump", tmp_path / "forge.tar")
        target("restore", tmp_path / "forge.tar")
        assert target.json("admin", "group", "create", "next")["id"] == created["id"] + 1

    def test_older_revision_is_migrated(self, target: CommandRunner, dump: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """A later version of the program has a revision that changes the rows of the dump."""
        revisions = tmp_path / "versions"
        shutil.copytree(migrations.VERSIONS, revisions, ignore=shutil.ignore_patterns("__pycache__"))
        newest = migrations.newest_revision()
        (revisions / "9999_bios.py").write_text(
            f"from alembic import op\nrevision = '9999'\ndown_revision = '{newest}'\n"
            "def upgrade():\n    op.execute(\"UPDATE users SET bio = 'migrated'\")\n"
        )
        monkeypatch.setattr(migrations, "VERSIONS", revisions)
        target("restore", dump)
        assert migrations.current_revision(f"sqlite:///{target.data}/forgefront.db") == "9999"
        with sqlite3.connect(target.data / "forgefront.db") as connection:
            assert connection.execute("SELECT DISTINCT bio FROM users").fetchall() == [("migrated",)]


class TestDump:
    def test_describes_itself(self, source: CommandRunner, tmp_path: Path) -> None:
        result = source.json("dump", tmp_path / "forge.tar")
        manifest = read_dump(tmp_path / "forge.tar")
        assert (result["id"], result["bytes"]) == (manifest.head.id, (tmp_path / "forge.tar").stat().st_size)
        assert result["rows"] == sum(table.rows for table in manifest.tables.values())
        assert (tmp_path / "forge.tar").stat().st_mode & 0o777 == 0o600

    def test_says_that_the_key_is_not_in_it(self, source: CommandRunner, tmp_path: Path) -> None:
        output = source("dump", tmp_path / "forge.tar").stdout
        assert f"Keep a copy of {source.data / 'secret.key'} in another place" in output
        key = (source.data / "secret.key").read_bytes().strip()
        assert key not in (tmp_path / "forge.tar").read_bytes()

    def test_existing_file_is_not_overwritten(self, source: CommandRunner, tmp_path: Path) -> None:
        (tmp_path / "forge.tar").write_text("precious")
        refuses(source, "exists already; name a new file", "dump", tmp_path / "forge.tar")
        assert (tmp_path / "forge.tar").read_text() == "precious"

    def test_folder_that_does_not_exist(self, source: CommandRunner, tmp_path: Path) -> None:
        file = tmp_path / "absent" / "forge.tar"
        refuses(source, f"{file} cannot be written: No such file or directory", "dump", file)

    def test_failure_leaves_no_file(self, source: CommandRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(InstanceDump, "_add_repositories", fail)
        (tmp_path / "dumps").mkdir()
        refuses(source, "no space left on device", "dump", tmp_path / "dumps" / "forge.tar")
        assert list((tmp_path / "dumps").iterdir()) == []

    def test_lost_objects_of_refs_are_noted(self, source: CommandRunner, tmp_path: Path) -> None:
        """No row names the packs of a folder, so their loss shows in the refs only."""
        (repository,) = (source.data / "repositories").glob("*.git")
        for file in (repository / "objects").rglob("*"):
            if file.is_file():
                file.unlink()
        project_id = repository.name.removesuffix(".git")
        names = git(repository, "for-each-ref", "--format=%(refname)").split()
        output = source("dump", tmp_path / "forge.tar", code=3).stdout
        (note,) = read_dump(tmp_path / "forge.tar").notes
        subject, _, refs = note.partition(" are missing: ")
        assert subject == f"projects {project_id}: the objects of these refs" and f"note   {note}" in output
        assert {name.rstrip(",") for name in refs.split()} & set(names)

    def test_missing_folders_and_keys_are_named(self, source: CommandRunner, tmp_path: Path) -> None:
        refuses(CommandRunner(tmp_path / "absent"), "there is no data folder", "dump", tmp_path / "forge.tar")
        refuses(source, "No such file", "dump", tmp_path / "absent" / "forge.tar")
        (source.data / "secret.key").unlink()
        refuses(source, "there is no key", "dump", tmp_path / "forge.tar")

    def test_database_of_another_version_is_not_dumped(self, source: CommandRunner, tmp_path: Path) -> None:
        with sqlite3.connect(source.data / "forgefront.db") as connection:
            connection.execute("UPDATE alembic_version SET version_num = '0001'")
        refuses(source, "Start the service once, which migrates it", "dump", tmp_path / "forge.tar")

    def test_usage(self, source: CommandRunner) -> None:
        source("dump", code=2)
        source("restore", code=2)
        refuses(source, "must be an address such as s3://bucket/forge.tar", "dump", "s3://bucket")


class TestDamagedDump:
    @pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.9, 0.999999])
    def test_cut_short_is_refused(self, target: CommandRunner, dump: Path, share: float, tmp_path: Path) -> None:
        data = dump.read_bytes()
        (tmp_path / "cut.tar").write_bytes(data[: int(len(data) * share)])
        refuses(target, "cut.tar was cut short after", "restore", tmp_path / "cut.tar")

    @pytest.mark.parametrize("share", [0.02, 0.4, 0.7, 0.9, 0.999])
    def test_changed_byte_is_refused(self, target: CommandRunner, dump: Path, share: float, tmp_path: Path) -> None:
        data = bytearray(dump.read_bytes())
        data[int(len(data) * share)] ^= 0x40
        (tmp_path / "flipped.tar").write_bytes(data)
        refuses(target, "flipped.tar is damaged", "restore", tmp_path / "flipped.tar")

    def test_missing_file_is_named(self, target: CommandRunner, tmp_path: Path) -> None:
        refuses(target, f"there is no dump {tmp_path / 'absent.tar'}", "restore", tmp_path / "absent.tar")

    def test_dump_of_a_later_version_is_refused(self, source: CommandRunner, target: CommandRunner, tmp_path: Path) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(
                "storage.dump.instance_dump.DumpHead", lambda **values: DumpHead(**{**values, "revision": "9999", "product": "7.0"})
            )
            source("dump", tmp_path / "later.tar")
        refuses(target, "was made by Forgefront 7.0 at revision 9999", "restore", tmp_path / "later.tar")

    def test_dump_of_a_later_format_is_refused(self, source: CommandRunner, target: CommandRunner, tmp_path: Path) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("storage.dump.instance_dump.FORMAT_VERSION", 2)
            source("dump", tmp_path / "later.tar")
        refuses(target, "this program reads format 1. Upgrade it first", "restore", tmp_path / "later.tar")

    def test_rows_without_their_parents_are_refused(self, source: CommandRunner, target: CommandRunner, tmp_path: Path) -> None:
        with sqlite3.connect(source.data / "forgefront.db") as connection:
            connection.execute("PRAGMA foreign_keys = OFF")
            connection.execute("DELETE FROM namespaces")
        source("dump", tmp_path / "broken.tar")
        refuses(target, "refers to a row of namespaces that the dump does not have", "restore", tmp_path / "broken.tar")


class TestTarget:
    def test_other_files_are_refused(self, target: CommandRunner, dump: Path) -> None:
        (target.data / "notes.txt").touch()
        refuses(target, "is not empty", "restore", dump)

    def test_an_instance_is_refused(self, source: CommandRunner, dump: Path) -> None:
        refuses(source, "is not empty", "restore", dump)

    def test_database_with_rows_is_refused(self, source: CommandRunner, target: CommandRunner, dump: Path) -> None:
        url = f"sqlite:///{source.data}/forgefront.db"
        refuses(target, "the database is not empty", "restore", dump, "--database-url", url)

    def test_database_of_another_program_is_refused(self, target: CommandRunner, dump: Path, tmp_path: Path) -> None:
        with sqlite3.connect(tmp_path / "other.db") as connection:
            connection.execute("CREATE TABLE recipes (id INTEGER)")
        refuses(target, "tables of another program or version", "restore", dump, "--database-url", f"sqlite:///{tmp_path}/other.db")

    def test_database_url_must_be_one(self, target: CommandRunner, dump: Path) -> None:
        refuses(target, "must be sqlite:///FILE or postgresql://", "restore", dump, "--database-url", "mysql://localhost/forge", code=2)

    def test_configuration_and_keys_may_be_there(self, target: CommandRunner, dump: Path) -> None:
        (target.data / "forgefront.toml").write_text("port = 9090\n")
        target("restore", dump)
        assert Config.load(data=target.data).port == 9090

    def test_migrated_database_without_rows_is_empty(self, target: CommandRunner, dump: Path, tmp_path: Path) -> None:
        url = f"sqlite:///{tmp_path}/empty.db"
        migrated_databases.upgrade(url)
        target("restore", dump, "--database-url", url)
        with sqlite3.connect(tmp_path / "empty.db") as connection:
            assert connection.execute("SELECT count(*) FROM users").fetchone() > (0,)


class TestKey:
    def test_missing_one_is_refused(self, dump: Path, tmp_path: Path) -> None:
        refuses(CommandRunner(tmp_path / "new"), "Copy secret.key of the dumped instance to", "restore", dump)

    def test_of_another_instance_is_refused(self, target: CommandRunner, dump: Path) -> None:
        (target.data / "secret.key").write_text("A" * 43 + "=\n")
        refuses(target, "is not that of the dumped instance", "restore", dump)

    def test_damaged_one_is_refused(self, target: CommandRunner, dump: Path) -> None:
        (target.data / "secret.key").write_text("damaged")
        refuses(target, "is not 32 bytes in base64", "restore", dump)

    def test_of_the_configuration(self, dumped_folder: Path, dump: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("FORGEFRONT_SECRET_KEY", (dumped_folder / "data" / "secret.key").read_text().strip())
        assert CommandRunner(tmp_path / "new").json("restore", dump)["check"]["ok"]
        assert not (tmp_path / "new" / "secret.key").exists()

    def test_in_the_dump(self, source: CommandRunner, tmp_path: Path) -> None:
        (source.data / "ssh_host_ed25519_key").write_text("the host's key")
        source("dump", tmp_path / "forge.tar", "--with-key")
        CommandRunner(tmp_path / "new")("restore", tmp_path / "forge.tar")
        for name in ("secret.key", "ssh_host_ed25519_key"):
            assert (tmp_path / "new" / name).read_bytes() == (source.data / name).read_bytes()
            assert (tmp_path / "new" / name).stat().st_mode & 0o777 == 0o600

    def test_lost(self, source: CommandRunner, tmp_path: Path) -> None:
        """Tokens sign in, but are not shown; new ones are, with the new key."""
        token = source.json("admin", "token", "create", "root")["token"]
        source("dump", tmp_path / "forge.tar")
        new = CommandRunner(tmp_path / "new")
        assert new.json("restore", tmp_path / "forge.tar", "--without-key")["check"]["ok"]

        assert "create a new one" in new("admin", "token", "show", "root", code=1).stderr
        assert viewer_of(new.data, token) == ("root", None)
        created = new.json("admin", "token", "create", "root")["token"]
        assert new.json("admin", "token", "show", "root")["token"] == created
        assert viewer_of(new.data, created) == ("root", created)


def viewer_of(data: Path, token: str) -> tuple[str, str | None]:
    """What a server with this data folder answers to `GET /user`: the username, and the private token."""
    with start_serve(data) as (_, output):
        url = re.search(r"http://\S+", output)
        assert url is not None, output
        found = httpx.get(f"{url[0]}/api/v3/user", headers={"PRIVATE-TOKEN": token}).json()
    return found["username"], found["private_token"]


class TestChain:
    @pytest.fixture
    def chain(self, source: CommandRunner, tmp_path: Path) -> list[Path]:
        """A full dump, and two incremental ones after changes of rows and of the repository."""
        repository = source.data / "repositories" / "1.git"
        files = [tmp_path / f"{name}.tar" for name in ("full", "second", "third")]
        source("dump", files[0])
        source("admin", "group", "create", "later")
        source("dump", files[1], "--since", files[0])
        tip = git(repository, "commit-tree", "-p", "master", "-m", "later", "master^{tree}").strip()
        git(repository, "update-ref", "refs/heads/later", tip)
        source("admin", "project", "adopt-refs", "team/tools")
        source("dump", files[2], "--since", files[1])
        return files

    def test_is_restored_in_any_order(self, chain: list[Path], target: CommandRunner, tmp_path: Path) -> None:
        target("restore", chain[2], chain[0], chain[1])
        assert "later" in git(target.data / "repositories" / "1.git", "branch", "--list")
        target("dump", tmp_path / "again.tar")
        again, third = read_dump(tmp_path / "again.tar"), read_dump(chain[2])
        assert contents_of(again) == contents_of(third)
        assert again.tables == third.tables

    def test_earlier_state_is_restored(self, chain: list[Path], target: CommandRunner) -> None:
        target("restore", *chain[:2])
        assert {group["path"] for group in target.json("admin", "group", "list")} == {"team", "later"}
        assert "later" not in git(target.data / "repositories" / "1.git", "branch", "--list")

    def test_incremental_dumps_have_what_changed(self, chain: list[Path]) -> None:
        first, second = map(read_dump, chain[:2])
        new = {name.split("/")[1] for name, part in second.parts.items() if part.dump == second.head.id}
        assert "namespaces" in new and "users" not in new and not any(name.startswith("repositories") for name in new)
        assert second.parts["tables/users/000000000000.0"] == first.parts["tables/users/000000000000.0"]

    def test_missing_dump_is_named(self, chain: list[Path], target: CommandRunner) -> None:
        refuses(target, f"needs the dump {read_dump(chain[1]).head.id}, taken at", "restore", chain[0], chain[2])
        refuses(target, f"needs the dump {read_dump(chain[0]).head.id}, taken at", "restore", chain[2])

    def test_unrelated_dump_is_refused(self, chain: list[Path], target: CommandRunner, dump: Path) -> None:
        refuses(target, f"{dump} does not belong to the chain", "restore", *chain, dump)

    def test_dump_named_twice_is_refused(self, target: CommandRunner, dump: Path) -> None:
        refuses(target, "a dump is named twice", "restore", dump, dump)

    def test_since_must_be_a_dump(self, source: CommandRunner, tmp_path: Path) -> None:
        (tmp_path / "other.tar").write_bytes(bytes(10_000))
        refuses(source, "is not a complete dump", "dump", tmp_path / "new.tar", "--since", tmp_path / "other.tar")
        refuses(source, "there is no dump", "dump", tmp_path / "new.tar", "--since", tmp_path / "absent.tar")
        assert not (tmp_path / "new.tar").exists()


class TestDeletedMeanwhile:
    """A project that is deleted between the snapshot and the reading of its files is left out."""

    @pytest.mark.parametrize("moment", ["before its repository is read", "while its repository is read"])
    def test_project_is_left_out(
        self, source: CommandRunner, target: CommandRunner, tmp_path: Path, moment: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        read, add = packs.list_packs, repository_parts.add_repository

        def delete_project() -> None:
            with sqlite3.connect(source.data / "forgefront.db") as connection:
                connection.execute("PRAGMA foreign_keys = ON")
                connection.execute("DELETE FROM projects")
            shutil.rmtree(source.data / "repositories" / "1.git")

        def read_and_delete(repository: Path) -> set[str]:
            found = read(repository)
            if found:
                delete_project()
            return found

        def delete_and_add(*arguments: Any) -> None:
            delete_project()
            add(*arguments)

        if moment.startswith("while"):
            monkeypatch.setattr(packs, "list_packs", read_and_delete)
        else:
            monkeypatch.setattr(repository_parts, "add_repository", delete_and_add)
        assert source.json("dump", tmp_path / "forge.tar")["deleted_meanwhile"] == {"projects": [1]}
        monkeypatch.undo()
        assert target.json("restore", tmp_path / "forge.tar")["check"]["ok"]
        assert target.json("admin", "project", "list") == []
        assert list((target.data / "repositories").iterdir()) == []

    def test_missing_repository_of_an_existing_project_is_noted(self, source: CommandRunner, target: CommandRunner, tmp_path: Path) -> None:
        shutil.rmtree(source.data / "repositories" / "1.git")
        result = json.loads(source("dump", tmp_path / "forge.tar", "--json", code=3).stdout)
        assert result["deleted_meanwhile"] == {} and "projects 1: it has no repository" in result["notes"][0]
        assert not json.loads(target("restore", tmp_path / "forge.tar", "--json", code=1).stdout)["check"]["ok"]

    def test_damaged_object_is_noted(self, source: CommandRunner, target: CommandRunner, tmp_path: Path) -> None:
        """It is copied as it is, and the check at the end of the restoration does not read it."""
        index = next((source.data / "repositories" / "1.git" / "objects" / "pack").glob("*.idx"))
        index.chmod(0o600)
        index.write_bytes(index.read_bytes()[:-1] + b"?")
        for command in (source("dump", tmp_path / "forge.tar", code=3), target("restore", tmp_path / "forge.tar", code=3)):
            assert f"note   projects 1: {index.name} is damaged" in command.stdout


class TestInterruptedRestore:
    def test_starts_over(self, target: CommandRunner, dump: Path) -> None:
        (target.data / UNFINISHED_RESTORE).touch()
        (target.data / "repositories" / "1.git").mkdir(parents=True)
        (target.data / "forgefront.db").write_bytes(b"half a database")
        assert target.json("restore", dump)["check"]["ok"]

    def test_is_not_served(self, target: CommandRunner) -> None:
        (target.data / UNFINISHED_RESTORE).touch()
        with pytest.raises(ConfigError, match="was interrupted; run `forgefront restore` again"):
            Backend(Config.load(data=target.data))
        assert "a restoration that was interrupted" in target("check", code=1).stdout

    def test_failure_leaves_the_folder_as_it_was(self, target: CommandRunner, dump: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(InstanceRestore, "_delete_rows", fail)
        refuses(target, "no space left on device", "restore", dump)

    def test_failure_leaves_no_key(self, source: CommandRunner, tmp_path: Path) -> None:
        source("dump", tmp_path / "forge.tar", "--with-key")
        absent = CommandRunner(tmp_path / "absent")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(InstanceRestore, "_delete_rows", fail)
            refuses(absent, "no space left on device", "restore", tmp_path / "forge.tar")
        assert not absent.data.exists()
        absent("restore", tmp_path / "forge.tar")
        assert (absent.data / "secret.key").read_bytes() == (source.data / "secret.key").read_bytes()

    def test_is_possible_while_a_dump_is_verified(self, dump: Path) -> None:
        async def work() -> None:
            reading = asyncio.create_task(read_dumps([str(dump)] * 100, {}, lambda phase, done, total: offsets.append(done)))
            await asyncio.sleep(0)
            reading.cancel()
            await asyncio.wait([reading])
            assert reading.cancelled()

        offsets: list[int] = []
        asyncio.run(work())
        assert len(offsets) == 1

    @pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
    def test_signals_leave_nothing(self, source: CommandRunner, tmp_path: Path, number: int, code: int) -> None:
        folder = tmp_path / "dumps"
        folder.mkdir()
        arguments = ("dump", folder / "forge.tar", "--data", source.data)
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        with start_program("forgefront.cli", *arguments, **pipes) as process:
            assert process.stdout is not None
            assert process.stdout.readline().startswith("rows: ")
            process.send_signal(number)
            output = process.stdout.read()
        # It may have been quicker than the signal.
        assert process.returncode in (code, 0), output
        assert {path.name for path in folder.iterdir()} <= {"forge.tar"}


class TestBucket:
    @pytest.fixture
    def bucket(self, s3: str, monkeypatch: pytest.MonkeyPatch) -> str:
        """The address of an empty prefix, for which the environment is set up."""
        monkeypatch.setenv("FORGEFRONT_S3_ENDPOINT", s3)
        for name, value in SETTINGS.items():
            monkeypatch.setenv(f"FORGEFRONT_S3_{name.upper()}", value)
        return f"s3://forge/{secrets.token_hex(4)}"

    def test_holds_dumps(self, source: CommandRunner, target: CommandRunner, bucket: str) -> None:
        source("dump", f"{bucket}/full.tar")
        refuses(source, "exists already; name a new object", "dump", f"{bucket}/full.tar")
        source("admin", "group", "create", "later")
        source("dump", f"{bucket}/later.tar", "--since", f"{bucket}/full.tar")
        refuses(target, f"there is no dump {bucket}/absent.tar", "restore", f"{bucket}/absent.tar")
        target("restore", f"{bucket}/full.tar", f"{bucket}/later.tar")
        assert {group["path"] for group in target.json("admin", "group", "list")} == {"team", "later"}

    def test_failure_leaves_no_object(self, source: CommandRunner, target: CommandRunner, bucket: str) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(InstanceDump, "_add_repositories", fail)
            refuses(source, "no space left on device", "dump", f"{bucket}/full.tar")
        refuses(target, "there is no dump", "restore", f"{bucket}/full.tar")

    def test_unreachable_one_is_named(self, source: CommandRunner, bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("FORGEFRONT_S3_ENDPOINT", "http://127.0.0.1:9")
        refuses(source, "the object store is unavailable", "dump", f"{bucket}/full.tar")

    def test_folder_moves_into_a_bucket_and_back(
        self, source: CommandRunner, target: CommandRunner, bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        artifacts = {new_key(): b"small", new_key(): bytes(MAX_GROUPED_BYTES + 1)}
        asyncio.run(put_artifacts(source.data, artifacts))
        source("dump", tmp_path / "folder.tar")
        monkeypatch.setenv("FORGEFRONT_ARTIFACTS_URL", f"{bucket}/artifacts")
        target("restore", tmp_path / "folder.tar")
        assert not (target.data / "artifacts").exists()
        target("dump", tmp_path / "bucket.tar", "--with-key")
        again = CommandRunner(tmp_path / "again")
        refuses(again, "the bucket has artifacts", "restore", tmp_path / "bucket.tar")
        monkeypatch.delenv("FORGEFRONT_ARTIFACTS_URL")
        again("restore", tmp_path / "bucket.tar")
        for key, content in artifacts.items():
            assert FolderStore(again.data / "artifacts").path_of(key).read_bytes() == content
