"""`forgefront restore`."""

import shlex
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from forgefront import logs
from forgefront.backend import Backend
from forgefront.checks.check_report import CheckReport
from forgefront.checks.data_folder_check import check_data_folder
from forgefront.commands.command_context import (
    EXIT_FAILED,
    EXIT_INCOMPLETE,
    DataOption,
    JsonOption,
    load_config,
    run_with_backend,
    run_work,
)
from forgefront.commands.dump import DUMP_METAVAR
from forgefront.commands.output import print_result, show_progress
from forgefront.config import Config
from forgefront.data_folder.data_folder_claim import UNFINISHED_RESTORE, FolderNotEmpty, claim_folder, is_fillable
from forgefront.data_folder.file_permissions import restrict_permissions
from forgefront.data_folder.stored_data import open_stored_data
from graph.rules.git import refs
from storage import integrity
from storage.dump import instance_restore
from storage.dump.dump_format import DumpError
from storage.dump.instance_dump import PROJECTS
from storage.dump.instance_restore import DumpFile, InstanceRestore
from storage.dump.stored_file_parts import FILE_COLUMNS
from storage.git.importing.repository_import import ProgressCallback
from storage.secrets import KEY_FILE, InvalidKey, fingerprint_key, load_key, write_once


def restore(
    files: Annotated[
        list[str], typer.Argument(metavar=DUMP_METAVAR, help="The dump. For an incremental dump, name all earlier ones too, in any order.")
    ],
    data: DataOption = None,
    database_url: Annotated[
        str | None,
        typer.Option(
            "--database-url",
            metavar="URL",
            help="The empty database, SQLite or PostgreSQL, whichever the dump comes from.",
            show_default="FORGEFRONT_DATABASE_URL, or SQLite in the data folder",
        ),
    ] = None,
    without_key: Annotated[
        bool, typer.Option("--without-key", help="Restore although the secret key is lost: stored tokens can be used, but not shown.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Restore a dump into an empty data folder and an empty database, and check the result.

    Verifies all of the dump before it writes anything. Exits with 1 if the check finds a problem, and else with 3 if files or objects were
    missing or damaged when the dump was made.
    """
    logs.configure("text", "error")
    config = load_config(data, database_url=database_url)
    started = time.monotonic()
    with show_progress() as progress:
        restored = run_work(_restore(config, files, without_key, progress))
        run_with_backend(config, lambda backend: _project_refs(backend, progress), progress=progress)
        progress("checking", 0, 1)
        report = run_work(check_data_folder(config))
        progress("checking", 1, 1)
    result = _summarize(config, restored, report, time.monotonic() - started)
    if as_json:
        print_result(result, True)
    else:
        _print(config, result, report, _describe_start(config, data, database_url))
    if report.problems:
        raise typer.Exit(EXIT_FAILED)
    if result["notes"]:
        raise typer.Exit(EXIT_INCOMPLETE)


async def _restore(config: Config, locations: list[str], without_key: bool, progress: ProgressCallback) -> InstanceRestore:
    if not is_fillable(config, UNFINISHED_RESTORE):
        raise DumpError(f"{config.data} is not empty. Name another folder with --data. Nothing was changed")
    files = await instance_restore.read_dumps(locations, config.s3_settings, progress)
    # An earlier dump of the chain may have the key.
    secret_files = {name: content for file in files for name, content in file.secret_files.items()}
    key = _find_key(config, files[-1], secret_files, without_key)
    try:
        with claim_folder(config, UNFINISHED_RESTORE):
            restrict_permissions(config)
            async with open_stored_data(config) as stored:
                restored = InstanceRestore(stored, files, config.s3_settings, progress)
                await restored.require_empty()
                await restored.run()
                await restored.finish()
                if key is None or fingerprint_key(key) != files[-1].manifest.key_fingerprint:
                    await integrity.forget_sealed_tokens(stored.database)
                # Last, since keys are never removed: after a failure, those of this instance would stay.
                _write_secret_files(config, key, secret_files)
        return restored
    except FolderNotEmpty as error:
        raise DumpError(str(error)) from None


def _find_key(config: Config, newest: DumpFile, secret_files: Mapping[str, bytes], without_key: bool) -> bytes | None:
    """The key of the dumped instance: that of the configuration, of the folder, or of the dump. None if it is lost. Raises DumpError."""
    path = config.data / KEY_FILE
    try:
        if config.secret_key is not None or path.is_file():
            source = "FORGEFRONT_SECRET_KEY" if config.secret_key is not None else str(path)
            key = config.load_secret_key()
        elif KEY_FILE in secret_files:
            source, key = newest.location, load_key(config.data, secret_files[KEY_FILE].decode("ascii", "replace"))
        elif without_key:
            return None
        else:
            raise DumpError(
                f"{newest.location} does not contain the secret key. Copy secret.key of the dumped instance to {path}, or set"
                " FORGEFRONT_SECRET_KEY. If it is lost, restore --without-key. Nothing was changed"
            )
    except InvalidKey as error:
        raise DumpError(str(error)) from None
    if fingerprint_key(key) != newest.manifest.key_fingerprint and not without_key:
        raise DumpError(
            f"the key in {source} is not that of the dumped instance. If the key was rotated, use the one of the time of the dump: its"
            f" fingerprint is {newest.manifest.key_fingerprint}, which is in the name of its file after a rotation. Nothing was changed"
        )
    return key


def _write_secret_files(config: Config, key: bytes | None, secret_files: Mapping[str, bytes]) -> None:
    """Writes the files with keys that the folder does not have."""
    files = {name: content for name, content in secret_files.items() if name != KEY_FILE}
    if config.secret_key is None and key is not None:
        files[KEY_FILE] = key + b"\n"
    for name, content in files.items():
        write_once(config.data / Path(name).name, content)


async def _project_refs(backend: Backend, progress: ProgressCallback) -> None:
    """Writes the files of git that show the refs of the database."""
    projects = await integrity.list_projects(backend.database)
    for number, project in enumerate(projects):
        await refs.project_refs(backend.graph.services, project.id)
        progress("refs", number + 1, len(projects))


def _summarize(config: Config, restored: InstanceRestore, report: CheckReport, seconds: float) -> dict[str, Any]:
    manifest = restored.manifest
    return {
        "data": str(config.data),
        "database": "sqlite" if config.uses_sqlite else "postgresql",
        "id": manifest.head.id,
        "taken_at": manifest.head.taken_at,
        "rows": manifest.rows,
        "repositories": manifest.tables[PROJECTS].rows,
        "files": manifest.count_files(*FILE_COLUMNS),
        "deleted": manifest.deleted,
        "notes": manifest.notes,
        "seconds": round(seconds, 3),
        "check": report.as_json(),
    }


def _describe_start(config: Config, data: Path | None, database_url: str | None) -> str:
    """How to serve what was restored. It does not repeat the URL, which may contain a password."""
    command = f"forgefront serve --data {shlex.quote(str(config.data))}" if data else "forgefront serve"
    if database_url:
        return f"Set FORGEFRONT_DATABASE_URL to the database of --database-url, and start it with: {command}"
    return f"Start it with: {command}"


def _print(config: Config, result: dict[str, Any], report: CheckReport, start: str) -> None:
    for note in result["notes"]:
        typer.echo(f"note   {note}")
    for problem in report.describe_problems():
        typer.echo(problem)
    what = f"{result['rows']:,} rows, {result['repositories']:,} repositories and {result['files']:,} files"
    typer.echo(f"Restored {what} into {config.data} and {result['database']} in {result['seconds']:.0f} s.")
    typer.echo(f"Checked: {report.count_problems()}.{'' if report.problems else f' {start}'}")
