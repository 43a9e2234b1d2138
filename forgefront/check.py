"""Whether a data folder is whole: the folder, the database, the repositories; what is wrong, and what to do.

It changes nothing, but for `mend`, which makes the index equal to the repositories where the check found that it differs.
"""

import asyncio
import os
import shutil
import tempfile
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from forgefront.config import Config
from forgefront.demo_folder import is_unfinished
from forgefront.engine import Engine
from forgefront.file_permissions import exposed
from graph.errors import NotFound
from graph.rules import reconciling
from storage import indexed, migrations, soundness
from storage.database import Database, is_unavailable
from storage.git import program
from storage.git.repositories import Repositories
from storage.git.repository import NotARepository, Repository
from storage.secrets import KEY_FILE, BadKey, TokenCipher, Undecipherable, load_key
from storage.soundness import KeptProject
from storage.uploads import Uploads

LEAST_FREE = 64 * 1024 * 1024
"""Bytes; below it the next push or artifact may fail."""
FSCK_SECONDS = 3600.0
SECOND_LOOK_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong. `subject` is where: a path, a table, a project."""

    area: str
    subject: str
    problem: str
    remedy: str


@dataclass
class Report:
    """`looked_at` says in words what was checked, `notes` what is unusual and not wrong, `to_index` whose index can be repaired."""

    problems: list[Finding] = field(default_factory=list)
    repaired: list[Finding] = field(default_factory=list)
    to_index: list[KeptProject] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    looked_at: list[str] = field(default_factory=list)

    def add(self, area: str, subject: object, problem: str, remedy: str) -> None:
        self.problems.append(Finding(area, str(subject), problem, remedy))

    def as_json(self) -> dict[str, Any]:
        return {
            "ok": not self.problems,
            "problems": [asdict(finding) for finding in self.problems],
            "repaired": [asdict(finding) for finding in self.repaired],
            "notes": self.notes,
            "looked_at": self.looked_at,
        }


async def check(config: Config, *, full: bool = False) -> Report:
    """Looks at everything that can be looked at; `full` also has git follow every object of every repository."""
    report = Report()
    if not await asyncio.to_thread(_folder, config, report):
        return report
    cipher = await asyncio.to_thread(_key, config, report)
    if not await asyncio.to_thread(_revision, config, report):
        return report
    database = Database(config.database_url)
    repositories = Repositories(config.repositories)
    try:
        await _database(database, cipher, report)
        projects = await soundness.projects(database)
        await _uploads(config, database, report)
        whole = await asyncio.to_thread(_repositories, config, repositories, projects, full, report)
        for project in whole:
            await _index(database, repositories, project, report)
    except Exception as error:
        report.add("database", "rows", f"it cannot be read: {_first_line(error)}", "restore it from a backup, or see the text")
    finally:
        repositories.close()
        await database.close()
    return report


async def mend(engine: Engine, report: Report) -> None:
    """Repairs the indexes that the check found to differ, and moves what was said of them to `repaired`."""
    for project in report.to_index:
        said = [finding for finding in report.problems if finding.area == "index" and finding.subject == project.full_path]
        try:
            await reconciling.repair(engine.graph.services, project.id)
            left = await indexed.compare(engine.database, engine.repositories, project.id)
        except (NotARepository, program.GitFailed) as error:
            report.add("index", project.full_path, f"it cannot be repaired: {_first_line(error)}", "see whether the repository is whole")
            continue
        except NotFound:
            left = indexed.Difference()
        if not left:
            report.problems = [finding for finding in report.problems if finding not in said]
            report.repaired += said


def _folder(config: Config, report: Report) -> bool:
    """Whether there is a folder to go on with."""
    report.looked_at.append(f"data folder {config.data}")
    if not config.data.is_dir():
        problem = "it is no folder" if config.data.exists() else "it is not there"
        report.add("folder", config.data, problem, "name the right one with --data, or start the service once to make it")
        return False
    for folder in (config.data, config.repositories):
        if not folder.exists():
            report.add("folder", folder, "it is not there", "restore it from a backup; a service that starts makes an empty one")
            continue
        try:
            with tempfile.TemporaryFile(dir=folder) as file:
                file.write(b"x" * 4096)
        except OSError as error:
            report.add("folder", folder, f"it cannot be written: {error.strerror}", "give it to the user who runs the service")
    if config.data.stat().st_mode & 0o077:
        report.notes.append(f"{config.data} can be entered by other users of this machine; chmod 700 keeps them out")
    for path, mode in exposed(config):
        # The key is looked at by itself.
        if path.name != KEY_FILE:
            remedy = f"chmod {mode & 0o700:o} {path}, or start the service once, which does it"
            report.add("folder", path, f"others may use it (mode {mode:o})", remedy)
    free = shutil.disk_usage(config.data).free
    if free < LEAST_FREE:
        report.add("folder", config.data, f"only {free // 2**20} MB are free on its disk", "make room")
    if is_unfinished(config.data):
        report.add("folder", config.data, "it holds a demo that was never finished", "run `forgefront demo` again, which starts anew")
    return True


def _key(config: Config, report: Report) -> TokenCipher | None:
    """The cipher of the instance's key, or None where the key cannot be used."""
    report.looked_at.append("secret key")
    path = config.data / KEY_FILE
    if config.secret_key is None:
        if not path.is_file():
            report.add("key", path, "it is not there", "restore it from a backup; without it no stored token can be shown again")
            return None
        mode = path.stat().st_mode & 0o777
        if mode & 0o077:
            report.add("key", path, f"others may read it (mode {mode:o})", f"chmod 600 {path}")
        if not os.access(path, os.R_OK):
            report.add("key", path, "it cannot be read", "give it to the user who runs the service")
            return None
    try:
        return TokenCipher(load_key(config.data, config.secret_key.get_secret_value() if config.secret_key else None))
    except BadKey as error:
        report.add("key", path if config.secret_key is None else "FORGEFRONT_SECRET_KEY", str(error), "restore the key from a backup")
        return None


def _revision(config: Config, report: Report) -> bool:
    """Whether the database is there and as this program knows it."""
    report.looked_at.append("SQLite database" if config.on_sqlite else "PostgreSQL database")
    try:
        found = migrations.current(config.database_url)
    except Exception as error:
        text = "it cannot be reached" if is_unavailable(error) or isinstance(error, OSError) else "it cannot be read"
        remedy = "restore it from a backup" if config.on_sqlite else "start it, and see whether FORGEFRONT_DATABASE_URL is right"
        report.add("database", "connection", f"{text}: {_first_line(error)}", remedy)
        return False
    if found == (wanted := migrations.head()):
        return True
    if found is None:
        report.add(
            "database", "revision", "it is empty or not there", "start the service once, which makes it, or restore it from a backup"
        )
    else:
        remedy = f"start the service once, which brings it to {wanted}; if it is newer than this program, upgrade the program"
        report.add("database", "revision", f"it is at {found}, this program wants {wanted}", remedy)
    return False


async def _database(database: Database, cipher: TokenCipher | None, report: Report) -> None:
    for line in await soundness.broken_pages(database):
        report.add("database", "integrity", line, "stop the service and restore the database from a backup")
    for line in await soundness.broken_references(database):
        report.add("database", "references", line, "restore the database from a backup, or delete those rows")
    sealed = await soundness.some_sealed_token(database)
    if cipher is not None and sealed is not None:
        try:
            cipher.decrypt(sealed)
        except Undecipherable:
            report.add(
                "key", KEY_FILE, "the stored tokens were encrypted with another key", "restore the key that belongs to this database"
            )
    if not await soundness.has_administrator(database):
        report.notes.append("there is no active administrator; `forgefront admin user create NAME --admin` makes one")


def _repositories(config: Config, repositories: Repositories, projects: list[KeptProject], full: bool, report: Report) -> list[KeptProject]:
    """Those projects whose repositories can be read."""
    report.looked_at.append(f"{len(projects)} repositories and their index" + (", with every object" if full else ""))
    whole = [project for project in projects if _repository(repositories.path_of(project.id), project, full, report)]
    expected = {repositories.path_of(project.id).name for project in projects}
    if not config.repositories.is_dir():
        return whole
    for folder in sorted(config.repositories.iterdir()):
        # What begins with a dot is on its way in or out; a start of the service sweeps what a kill left of it.
        if folder.name not in expected and not folder.name.startswith("."):
            report.add("repositories", folder, "no project has it", "move it away, after a look at what it holds")
    return whole


async def _index(database: Database, repositories: Repositories, project: KeptProject, report: Report) -> None:
    try:
        found = await indexed.compare(database, repositories, project.id)
        if found:
            # A push that the service is recording differs for a moment.
            await asyncio.sleep(SECOND_LOOK_SECONDS)
            found = await indexed.compare(database, repositories, project.id)
    except (NotARepository, program.GitFailed) as error:
        report.add("index", project.full_path, f"it cannot be compared: {_first_line(error)}", "see whether the repository is whole")
        return
    remedy = "`forgefront check --repair` makes it equal to the repository; so does the service, in time"
    for line in found.lines():
        report.add("index", project.full_path, line, remedy)
    if found:
        report.to_index.append(project)


async def _uploads(config: Config, database: Database, report: Report) -> None:
    kept = await soundness.uploads(database)
    report.looked_at.append(f"{len(kept)} uploads")
    try:
        sizes = await asyncio.to_thread(Uploads(config.uploads).sizes)
    except OSError as error:
        report.add("uploads", config.uploads, f"it cannot be read: {error.strerror}", "give it to the user who runs the service")
        return
    wrong = {upload.secret: size for upload in kept if (size := sizes.pop((upload.project_id, upload.secret), None)) != upload.size}
    if wrong:
        # What the service has deleted since then is not wrong; its rows go before its files.
        kept = await soundness.uploads(database)
    for upload in kept:
        if upload.secret in wrong:
            size = wrong[upload.secret]
            problem = "it is not there" if size is None else f"it has {size} bytes instead of {upload.size}"
            path = config.uploads / str(upload.project_id) / upload.secret
            report.add("uploads", f"{upload.address} ({path})", problem, "restore it from a backup; until then its links answer 404")
    if sizes:
        (project_id, secret), *more = sorted(sizes)
        others = f" and {len(more)} others" if more else ""
        report.notes.append(
            f"{config.uploads / str(project_id) / secret}{others}: no upload has it; "
            "a file is so while it is sent, and the service removes one that stays so for an hour"
        )


def _repository(path: Path, project: KeptProject, full: bool, report: Report) -> bool:
    """Whether it can be read."""
    subject = f"{project.full_path} ({path})"
    try:
        repository = Repository.open(path)
        repository.branches()
        repository.tags()
        head = repository.default_branch()
    except NotARepository as error:
        problem = "it is not there" if not path.exists() else f"it cannot be read: {error}"
        report.add("repositories", subject, problem, "restore it from a backup")
        return False
    if head != project.default_branch:
        problem = f"its HEAD is {head or 'no branch'}, the project's default branch is {project.default_branch or 'none'}"
        remedy = f"`forgefront admin project change {project.full_path} --default-branch NAME` sets both"
        report.add("repositories", subject, problem, remedy)
    if full:
        try:
            program.run(path, "fsck", "--connectivity-only", "--no-dangling", "--no-progress", seconds=FSCK_SECONDS)
        except program.GitFailed as error:
            report.add("repositories", subject, f"git fsck: {_first_line(error)}", "restore it from a backup")
    return True


def _first_line(error: BaseException) -> str:
    """The text of an error without the driver's statement and parameters."""
    return (str(error).splitlines() or [type(error).__name__])[0]
