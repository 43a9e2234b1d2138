"""`forgefront analytics`: the columnar copy that answers statistics."""

import time
from functools import partial
from typing import Any

import typer

from forgefront import logs
from forgefront.commands.command_context import DataOption, JsonOption, fail, load_existing_config, run_work
from forgefront.commands.output import print_result, show_progress
from forgefront.config import Config
from forgefront.data_folder.file_permissions import restrict_permissions
from storage.analytics.build_copy import CopyOutdated, CopyPointer
from storage.analytics.build_copy_writer import RebuildRunning, write_copy
from storage.database.engine import Database
from storage.git.importing.repository_import import ProgressCallback

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Administer the columnar copy that answers statistics.")


@app.callback()
def describe() -> None:
    """Administer the columnar copy that answers statistics."""


@app.command()
def rebuild(data: DataOption = None, as_json: JsonOption = False) -> None:
    """Write the columnar copy of builds again, for this host. The service does this automatically when it needs one.

    May run beside the service, which opens the new copy within a second.
    """
    logs.configure("text", "error")
    # Not before it is needed, because it takes a tenth of a second.
    import duckdb

    config = load_existing_config(data)
    started = time.monotonic()
    try:
        with show_progress() as report_progress:
            pointer = run_work(_write(config, report_progress))
    except RebuildRunning:
        fail("another process writes the copy now; wait until it has finished.")
    except CopyOutdated as error:
        fail(f"{error}; start the service once to upgrade the database.")
    except duckdb.Error as error:
        fail(f"the copy cannot be written: {str(error).partition(chr(10))[0]}")
    size = (config.analytics_folder / pointer.file).stat().st_size
    result: dict[str, Any] = {"builds": pointer.rows, "bytes": size, "seconds": round(time.monotonic() - started, 3)}
    if as_json:
        print_result(result, True)
        return
    typer.echo(f"Copied {pointer.rows:,} builds: {size / 1e6:.1f} MB in {result['seconds']:.1f} s.")


async def _write(config: Config, report_progress: ProgressCallback) -> CopyPointer:
    restrict_permissions(config)
    database = Database(config.database_url)
    try:
        return await write_copy(database, config.analytics_folder, partial(report_progress, "builds"))
    finally:
        await database.close()
