"""`forgefront dump`."""

import time
from importlib.metadata import version
from typing import Annotated, Any

import typer

from forgefront import logs
from forgefront.commands.command_context import EXIT_INCOMPLETE, DataOption, JsonOption, fail, load_existing_config, run_work
from forgefront.commands.output import print_result, show_progress
from forgefront.config import Config
from forgefront.data_folder.data_folder_lock import DataFolderLock
from forgefront.data_folder.file_permissions import SSH_HOST_KEY_FILE, restrict_permissions
from forgefront.data_folder.stored_data import open_stored_data
from storage import integrity
from storage.dump import dump_locations
from storage.dump.dump_format import Manifest
from storage.dump.dump_reader import read_manifest
from storage.dump.instance_dump import PROJECTS, InstanceDump
from storage.dump.stored_file_parts import FILE_COLUMNS
from storage.git.importing.repository_import import ProgressCallback
from storage.secrets import KEY_FILE, InvalidKey, TokenCipher, fingerprint_key

DUMP_METAVAR = "FILE|s3://BUCKET/KEY"


def dump(
    file: Annotated[str, typer.Argument(metavar=DUMP_METAVAR, help="The dump to write; it must not exist.")],
    data: DataOption = None,
    since: Annotated[
        str | None,
        typer.Option("--since", metavar=DUMP_METAVAR, help="Leave out what this earlier dump has; restore needs both.", show_default=False),
    ] = None,
    with_key: Annotated[bool, typer.Option("--with-key", help="Also dump the secret key and the SSH host key.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Dump the whole instance into one tar file: the database, repositories, artifacts, traces and uploads.

    May run beside the service: the rows are those of one moment, and the files those that these rows name. Exits with 3 if files or
    objects are missing or damaged; the dump has everything else.
    """
    logs.configure("text", "error")
    config = load_existing_config(data)
    started = time.monotonic()
    with show_progress() as report_progress:
        manifest, size = run_work(_write(config, file, since, with_key, report_progress))
    result = _summarize(file, manifest, size, with_key, time.monotonic() - started)
    if as_json:
        print_result(result, True)
    else:
        _print(config, result, since)
    if manifest.notes:
        raise typer.Exit(EXIT_INCOMPLETE)


def _print(config: Config, result: dict[str, Any], since: str | None) -> None:
    what = f"{result['rows']:,} rows, {result['repositories']:,} repositories and {result['files']:,} files"
    typer.echo(f"Dumped {what} into {result['file']}: {_format_size(result['bytes'])} in {result['seconds']:.0f} s.")
    for note in result["notes"]:
        typer.echo(f"note   {note}")
    if since is not None:
        typer.echo(f"To restore it, name the earlier dumps too: forgefront restore … {since} {result['file']}")
    if not result["with_key"]:
        where = "FORGEFRONT_SECRET_KEY" if config.secret_key else str(config.data / KEY_FILE)
        typer.echo(f"The secret key is not in it. Keep a copy of {where} in another place, or dump --with-key.")


async def _write(config: Config, file: str, since: str | None, with_key: bool, progress: ProgressCallback) -> tuple[Manifest, int]:
    restrict_permissions(config)
    earlier = _read_earlier(since, config) if since is not None else None
    lock = DataFolderLock(config.data)
    # Nobody removes what looks like a leftover of a killed process meanwhile.
    lock.acquire()
    try:
        # After the lock, since a rotation of the key holds it.
        key = _read_key(config)
        async with open_stored_data(config) as stored:
            async with stored.database.read_session() as session:
                if not await integrity.matches_sealed_tokens(session, TokenCipher(key)):
                    fail("the secrets in the database were encrypted with another key than the present one. Nothing was written")
            instance_dump = InstanceDump(
                stored,
                product=version("forgefront"),
                key_fingerprint=fingerprint_key(key),
                secret_files=_read_secret_files(config, key) if with_key else {},
                earlier=earlier,
                progress=progress,
            )
            with dump_locations.create_dump(file, config.s3_settings) as output:
                return await instance_dump.write(output)
    finally:
        lock.release()


def _read_earlier(since: str, config: Config) -> Manifest:
    with dump_locations.open_dump(since, config.s3_settings) as stream:
        return read_manifest(since, stream)


def _read_key(config: Config) -> bytes:
    if config.secret_key is None and not (config.data / KEY_FILE).is_file():
        fail(f"there is no key {config.data / KEY_FILE}; is this the data folder, and is FORGEFRONT_SECRET_KEY set?")
    try:
        return config.load_secret_key()
    except InvalidKey as error:
        fail(str(error))


def _read_secret_files(config: Config, key: bytes) -> dict[str, bytes]:
    files = {KEY_FILE: key + b"\n"}
    for name in (SSH_HOST_KEY_FILE, f"{SSH_HOST_KEY_FILE}.pub"):
        if (config.data / name).is_file():
            files[name] = (config.data / name).read_bytes()
    return files


def _summarize(file: str, manifest: Manifest, size: int, with_key: bool, seconds: float) -> dict[str, Any]:
    return {
        "file": file,
        "bytes": size,
        "id": manifest.head.id,
        "since": manifest.head.since,
        "taken_at": manifest.head.taken_at,
        "revision": manifest.head.revision,
        "rows": manifest.rows,
        "repositories": manifest.tables[PROJECTS].rows,
        "files": manifest.count_files(*FILE_COLUMNS),
        "parts": len(manifest.parts),
        "new_parts": sum(part.dump == manifest.head.id for part in manifest.parts.values()),
        "with_key": with_key,
        "deleted_meanwhile": manifest.deleted,
        "notes": manifest.notes,
        "seconds": round(seconds, 3),
    }


def _format_size(size: int) -> str:
    for unit, bytes_per_unit in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if size >= bytes_per_unit:
            return f"{size / bytes_per_unit:.1f} {unit}"
    return f"{size} bytes"
