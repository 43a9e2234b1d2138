"""Checks the integrity of a data folder: files, database, repositories. Reports problems and how to repair them.

It changes nothing, except `repair`, which makes counters and the index equal to what they are made from.
"""

import asyncio
import errno
import os
import shutil
import sqlite3
import tempfile
from pathlib import Path

from forgefront.backend import Backend, open_repositories
from forgefront.checks import artifact_check, bucket_check
from forgefront.checks.check_report import COUNTERS, CheckReport
from forgefront.config import Config
from forgefront.data_folder.data_folder_claim import UNFINISHED_RESTORE, is_unfinished
from forgefront.data_folder.file_permissions import find_exposed
from graph.errors import NotFound
from graph.rules.git import commit_index
from storage import index_comparison, integrity, migrations
from storage.database.engine import Database
from storage.database.errors import is_unavailable, sqlite_result_code
from storage.disk_full import is_disk_full
from storage.git.packing import object_check
from storage.git.refs import projection
from storage.git.repositories import Repositories
from storage.git.repository import NotARepository, Repository
from storage.git.repository_cache import RepositoryCache
from storage.git.subprocesses import git_command
from storage.integrity import StoredProject
from storage.objects.uploads import UploadStore
from storage.secrets import KEY_FILE, NEW_KEY_FILE, InvalidKey, TokenCipher
from storage.tables.git import refs
from storage.tables.projects import projects

MIN_FREE_BYTES = 64 * 1024 * 1024
"""Bytes of free disk space; below it the next push or artifact may fail."""
FSCK_SECONDS = 3600.0
MAX_FSCK_HEADS = 20_000
"""Refs that git fsck starts from; more do not fit into a command line."""
MAX_DAMAGED = 10
"""Damaged packs and objects of a repository that are named."""
RECHECK_SECONDS = 0.5


async def check_data_folder(config: Config, *, full: bool = False) -> CheckReport:
    """Runs all checks; `full` also runs git fsck on every repository."""
    report = CheckReport()
    if not await asyncio.to_thread(_check_folder, config, report):
        return report
    cipher = await asyncio.to_thread(_check_key, config, report)
    if not await asyncio.to_thread(_check_revision, config, report):
        return report
    # Its statements read all rows.
    database = Database(config.database_url, statement_seconds=None)
    repositories = open_repositories(config, database)
    try:
        await _check_database(database, cipher, report)
        await bucket_check.check_owners(config, database, report)
        stored = await integrity.list_projects(database)
        if config.uploads_url:
            await bucket_check.check_uploads(config, database, report)
        else:
            await _check_uploads(config, database, report)
        await artifact_check.check_artifacts(config, database, report)
        if isinstance(repositories, RepositoryCache):
            await bucket_check.check_packs(database, repositories, stored, full, report)
            readable = bucket_check.list_readable(repositories, stored, full, report)
        else:
            readable = await asyncio.to_thread(_check_repositories, config, repositories, stored, report)
        for project in readable:
            await _check_refs(database, repositories, project, full, report)
            await _check_index(database, repositories, project, report)
    except Exception as error:
        remedy = (
            "see whether the database is available, and check again" if is_unavailable(error) else "see the message, or restore a backup"
        )
        report.add("database", "rows", f"it cannot be read: {_first_line_of(error)}", remedy)
    finally:
        repositories.close()
        if isinstance(repositories, RepositoryCache):
            await repositories.store.close()
        await database.close()
    return report


async def repair(backend: Backend, report: CheckReport) -> None:
    """Corrects counters, repairs the indexes that differ, and moves their problems to `repaired`."""
    if wrong_counts := [finding for finding in report.problems if finding.subject == COUNTERS]:
        database = Database(backend.config.database_url, statement_seconds=None)
        try:
            await integrity.correct_counts(database)
        finally:
            await database.close()
        report.problems = [finding for finding in report.problems if finding not in wrong_counts]
        report.repaired += wrong_counts
    for project in report.unindexed_projects:
        findings = [finding for finding in report.problems if finding.area == "index" and finding.subject == project.full_path]
        try:
            await commit_index.rebuild_index(backend.graph.services, project.id)
            remaining = await index_comparison.compare_index(backend.database, backend.repositories, project.id)
        except (NotARepository, git_command.GitCommandError) as error:
            report.add(
                "index", project.full_path, f"it cannot be repaired: {_first_line_of(error)}", "check whether the repository is intact"
            )
            continue
        except NotFound:
            remaining = index_comparison.IndexDifference()
        if not remaining:
            report.problems = [finding for finding in report.problems if finding not in findings]
            report.repaired += findings


def _check_folder(config: Config, report: CheckReport) -> bool:
    """Whether the folder exists, so that other checks can run."""
    report.checked.append(f"data folder {config.data}")
    if not config.data.is_dir():
        problem = "it is not a folder" if config.data.exists() else "it does not exist"
        report.add("folder", config.data, problem, "name the right one with --data, or start the service once to create it")
        return False
    _check_writable(config, report)
    report.notes += config.describe_unknown_variables()
    if config.data.stat().st_mode & 0o077:
        report.notes.append(f"other users of this machine can enter {config.data}; chmod 700 prevents this")
    for path, mode in find_exposed(config):
        # The key is checked separately.
        if path.name != KEY_FILE:
            remedy = f"chmod {mode & 0o700:o} {path}, or start the service once, which corrects it"
            report.add("folder", path, f"other users have access (mode {mode:o})", remedy)
    free = shutil.disk_usage(config.data).free
    if free < MIN_FREE_BYTES:
        report.add("folder", config.data, f"only {free // 2**20} MB are free on its disk", "free disk space")
    if is_unfinished(config.data, UNFINISHED_RESTORE):
        remedy = "run `forgefront restore` again, which starts over"
        report.add("folder", config.data, "it contains a restoration that was interrupted", remedy)
    if is_unfinished(config.data):
        report.add(
            "folder", config.data, "it contains a demo whose creation was interrupted", "run `forgefront demo` again, which starts over"
        )
    return True


def _check_writable(config: Config, report: CheckReport) -> None:
    for folder in (config.data, config.repositories):
        if not folder.exists():
            if config.repositories_url:
                # A cache that is still empty.
                continue
            report.add("folder", folder, "it does not exist", "restore it from a backup; the service creates an empty one at start")
            continue
        try:
            with tempfile.TemporaryFile(dir=folder) as file:
                file.write(b"x" * 4096)
        except OSError as error:
            report.add("folder", folder, f"it is not writable: {error.strerror}", _remedy_of_folder(error))


def _remedy_of_folder(error: OSError) -> str:
    """What to do about a folder in which no file can be created."""
    if is_disk_full(error):
        return "free disk space"
    if error.errno == errno.EROFS:
        return "mount its file system for writing, and see whether the kernel reports errors of the disk"
    return "make the user who runs the service its owner"


def _check_key(config: Config, report: CheckReport) -> TokenCipher | None:
    """The cipher with the instance's key, or None if the key is unusable."""
    report.checked.append("secret key")
    path = config.data / KEY_FILE
    if config.secret_key is None:
        if not path.is_file():
            report.add("key", path, "it does not exist", "restore it from a backup; without it no stored token can be decrypted")
            return None
        mode = path.stat().st_mode & 0o777
        if mode & 0o077:
            report.add("key", path, f"other users can read it (mode {mode:o})", f"chmod 600 {path}")
        if not os.access(path, os.R_OK):
            report.add("key", path, "it cannot be read", "make the user who runs the service its owner")
            return None
        if (config.data / NEW_KEY_FILE).exists():
            remedy = "run `forgefront admin secret-key rotate` again, which completes it"
            report.add("key", config.data / NEW_KEY_FILE, "a rotation of the key was interrupted", remedy)
            return None
    try:
        return TokenCipher(config.load_secret_key())
    except InvalidKey as error:
        report.add("key", path if config.secret_key is None else "FORGEFRONT_SECRET_KEY", str(error), "restore the key from a backup")
        return None


def _check_revision(config: Config, report: CheckReport) -> bool:
    """Whether the database exists and has the schema of this program."""
    report.checked.append("SQLite database" if config.uses_sqlite else "PostgreSQL database")
    try:
        current = migrations.current_revision(config.database_url)
    except Exception as error:
        problem = "it cannot be reached" if is_unavailable(error) or isinstance(error, OSError) else "it cannot be read"
        remedy = _remedy_of_sqlite(error) if config.uses_sqlite else "start the database, and check FORGEFRONT_DATABASE_URL"
        report.add("database", "connection", f"{problem}: {_first_line_of(error)}", remedy)
        return False
    if current == (expected := migrations.head_revision()):
        return True
    if current is None:
        report.add(
            "database", "revision", "it is empty or does not exist", "start the service once, which creates it, or restore it from a backup"
        )
    else:
        remedy = f"start the service once, which migrates it to {expected}; if it is newer than this program, upgrade the program"
        report.add("database", "revision", f"it is at revision {current}, this program requires {expected}", remedy)
    return False


def _remedy_of_sqlite(error: Exception) -> str:
    """What to do about a database file that cannot be read."""
    code = sqlite_result_code(error)
    if code in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM):
        return "make the user who runs the service the owner of the file and its folder"
    if code in (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL):
        return "free disk space, and see whether the kernel reports errors of the disk"
    return "restore it from a backup"


async def _check_database(database: Database, cipher: TokenCipher | None, report: CheckReport) -> None:
    for line in await integrity.find_broken_pages(database):
        report.add("database", "integrity", line, "stop the service and restore the database from a backup")
    for line in await integrity.find_broken_references(database):
        report.add("database", "references", line, "restore the database from a backup, or delete those rows")
    for line in await integrity.find_wrong_counts(database):
        report.add("database", COUNTERS, line, "`forgefront check --repair` corrects it")
    async with database.read_session() as session:
        if cipher is not None and not await integrity.matches_sealed_tokens(session, cipher):
            report.add(
                "key", KEY_FILE, "the stored tokens were encrypted with another key", "restore the key that belongs to this database"
            )
    if not await integrity.has_administrator(database):
        report.notes.append("there is no active administrator; `forgefront admin user create NAME --admin` creates one")


def _check_repositories(
    config: Config, repositories: Repositories, projects: list[StoredProject], report: CheckReport
) -> list[StoredProject]:
    """The projects whose repositories can be read."""
    report.checked.append(f"{len(projects)} repositories, their refs and their index")
    readable = [project for project in projects if _check_repository(repositories.path_of(project.id), project, report)]
    expected = {repositories.path_of(project.id).name for project in projects}
    if not config.repositories.is_dir():
        return readable
    for folder in sorted(config.repositories.iterdir()):
        # Names that begin with a dot are temporary; a start of the service removes those that a killed process left.
        if folder.name not in expected and not folder.name.startswith("."):
            report.add("repositories", folder, "it belongs to no project", "inspect its contents, then move it away")
    return readable


async def _check_index(database: Database, repositories: Repositories, project: StoredProject, report: CheckReport) -> None:
    try:
        found = await index_comparison.compare_index(database, repositories, project.id)
        if found:
            # A push that the service is recording differs for a moment.
            await asyncio.sleep(RECHECK_SECONDS)
            found = await index_comparison.compare_index(database, repositories, project.id)
    except (NotARepository, git_command.GitCommandError) as error:
        report.add("index", project.full_path, f"it cannot be compared: {_first_line_of(error)}", "check whether the repository is intact")
        return
    remedy = "`forgefront check --repair` rebuilds it from the repository"
    for line in found.describe():
        report.add("index", project.full_path, line, remedy)
    if found:
        report.unindexed_projects.append(project)


async def _check_uploads(config: Config, database: Database, report: CheckReport) -> None:
    uploads = await integrity.list_uploads(database)
    report.checked.append(f"{len(uploads)} uploads")
    try:
        sizes = await asyncio.to_thread(UploadStore(config.uploads).sizes)
    except OSError as error:
        report.add("uploads", config.uploads, f"it cannot be read: {error.strerror}", "make the user who runs the service its owner")
        return
    wrong_sizes = {
        upload.secret: size for upload in uploads if (size := sizes.pop((upload.project_id, upload.secret), None)) != upload.size
    }
    if wrong_sizes:
        # An upload that the service has deleted meanwhile is no problem; its row is deleted before its file.
        uploads = await integrity.list_uploads(database)
    for upload in uploads:
        if upload.secret in wrong_sizes:
            size = wrong_sizes[upload.secret]
            problem = "it does not exist" if size is None else f"its size is {size} bytes instead of {upload.size}"
            path = config.uploads / str(upload.project_id) / upload.secret
            report.add("uploads", f"{upload.address} ({path})", problem, "restore it from a backup; until then its links return 404")
    if sizes:
        (project_id, secret), *more = sorted(sizes)
        others = f" and {len(more)} others" if more else ""
        report.notes.append(
            f"{config.uploads / str(project_id) / secret}{others}: it belongs to no upload; this is normal while a file is"
            " being uploaded, and the service removes it after an hour"
        )


def _check_repository(path: Path, project: StoredProject, report: CheckReport) -> bool:
    """Whether the repository can be read."""
    try:
        Repository.open(path)
    except NotARepository as error:
        problem = "it does not exist" if not path.exists() else f"it cannot be read: {error}"
        report.add("repositories", f"{project.full_path} ({path})", problem, "restore it from a backup")
        return False
    return True


async def _check_refs(database: Database, repositories: Repositories, project: StoredProject, full: bool, report: CheckReport) -> None:
    """Compares the refs of the database with the objects and the files of the repository; `full` with every reachable object."""
    async with database.read_session() as session:
        version = (await session.read(projects.by_id(project.id)))[0][0].refs_version
        known = {name: oid for name, oid, _ in await session.read(refs.of_project(project.id))}
    subject = f"{project.full_path} ({repositories.path_of(project.id)})"
    if version == 0:
        report.add("refs", subject, "its refs were not read into the database", "start the service once, and check its log")
        return
    try:
        damage, unknown = await repositories.read(project.id, lambda repository: _compare_refs(repository, version, known))
    except NotARepository as error:
        report.add("refs", subject, f"they cannot be compared: {_first_line_of(error)}", "check whether the repository is intact")
        return
    if damage:
        report.add("refs", subject, f"the objects of {_count_refs(damage)} are missing", "restore the repository from a backup")
    if unknown:
        remedy = f"`forgefront admin project adopt-refs {project.full_path}` takes them over"
        report.add("refs", subject, f"the files of git have {_count_refs(unknown)} that the database does not have", remedy)
    if full and known and not damage:
        async with repositories.use(project.id) as path:
            await _check_objects(path, subject, sorted(set(known.values())), report)


def _compare_refs(repository: Repository, version: int, known: dict[str, str]) -> tuple[list[str], list[str]]:
    """The refs whose object is missing, and those of the files that differ from the database.

    Packed refs are a projection, which may be older than the database; git writes other refs as files of their own.
    """
    damage = [name for name, oid in known.items() if oid not in repository.handle]
    is_projected = projection.read_version(repository.path) not in (None, version)
    stored = {name: oid for name, oid, _ in repository.stored_refs() if not is_projected or (repository.path / name).is_file()}
    return sorted(damage), sorted(name for name, oid in stored.items() if known.get(name) != oid)


async def _check_objects(path: Path, subject: str, oids: list[str], report: CheckReport) -> None:
    """Verifies the contents of all objects, and that the refs of the database reach no missing one, with git fsck."""
    damaged = await asyncio.to_thread(lambda: list(object_check.find_damaged_objects(path)))
    for line in damaged[:MAX_DAMAGED]:
        report.add("repositories", subject, f"an object is damaged: {line}", "restore it from a backup")
    if damaged[MAX_DAMAGED:]:
        report.add("repositories", subject, f"{len(damaged) - MAX_DAMAGED} more objects are damaged", "restore it from a backup")
    arguments = ("fsck", "--connectivity-only", "--dangling", "--no-progress", *oids[:MAX_FSCK_HEADS])
    try:
        output = await asyncio.to_thread(git_command.run, path, *arguments, seconds=FSCK_SECONDS)
    except git_command.GitCommandError as error:
        report.add("repositories", subject, f"git fsck: {_first_line_of(error)}", "restore it from a backup")
        return
    if count := output.count(b"dangling commit"):
        report.notes.append(f"{subject}: no ref reaches {count} commits, as after refused pushes and deleted branches")


def _count_refs(names: list[str]) -> str:
    shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    return f"{len(names)} ref{'s' if len(names) > 1 else ''} ({shown})"


def _first_line_of(error: BaseException) -> str:
    """The message of an error without the driver's statement and parameters."""
    return (str(error).splitlines() or [type(error).__name__])[0]
