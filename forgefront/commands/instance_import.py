"""`forgefront import`."""

import asyncio
import logging
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Annotated

import httpx
import typer

from forgefront import logs
from forgefront.backend import Backend
from forgefront.commands.command_context import EXIT_INCOMPLETE, EXIT_USAGE, DataOption, JsonOption, fail, load_config, run_work
from forgefront.commands.output import print_result, show_progress
from forgefront.config import Config
from forgefront.importing.import_rehearsal import ImportRehearsal
from forgefront.importing.import_report import ImportReport
from forgefront.importing.import_run import ImportOptions, ImportProgress, ImportRun
from forgefront.importing.import_runner import ImportRunner
from forgefront.importing.import_target import OPERATIONS_FILE, ImportTarget
from forgefront.importing.ref_listing import RefLister
from forgefront.importing.repository_mirrors import RepositoryMirrors
from forgefront.importing.source_client import SourceClient
from forgefront.importing.source_errors import SourceError
from forgefront.importing.source_instance import InvalidSource, SourceInstance, open_source
from forgefront.local_client import LocalClient, OperationRejected
from graph.build_file_imports import BuildFileImports
from graph.errors import ForgeError
from graph.imports import InstanceImports
from graph.upload_imports import UploadImports

MIRRORS_FOLDER = "import-mirrors"

TokenOption = Annotated[
    str,
    typer.Option(
        help="A token of the old server, preferably an administrator's.",
        envvar="FORGEFRONT_IMPORT_TOKEN",
        show_default=False,
    ),
]


def import_instance(
    url: Annotated[str, typer.Argument(metavar="URL", help="The address of the old server, without /api.")],
    token: TokenOption,
    project: Annotated[str | None, typer.Option(metavar="PATH", help="Import only this project.", show_default=False)] = None,
    group: Annotated[str | None, typer.Option(metavar="PATH", help="Import only the projects of this group.", show_default=False)] = None,
    keep_ids: Annotated[
        bool, typer.Option("--keep-ids", help="Keep all ids, numbers and tokens; needs an instance without users and projects.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Count what there is, say what cannot be taken, and write nothing.")] = False,
    read_all: Annotated[bool, typer.Option("--all", help="Read everything again, not only what changed since the last run.")] = False,
    enable_hooks: Annotated[
        bool, typer.Option("--enable-hooks", help="Let imported webhooks send. Without it they are disabled, as a rehearsal needs.")
    ] = False,
    cancel_builds: Annotated[
        bool,
        typer.Option(
            "--cancel-builds",
            help="Cancel imported builds that have not finished. Use it in the last import: no runner finishes them here.",
        ),
    ] = False,
    ssh: Annotated[bool, typer.Option("--ssh", help="Clone over SSH, with your own keys, instead of HTTP.")] = False,
    continued_url: Annotated[
        str | None,
        typer.Option(
            "--continue", metavar="URL", help="The address under which the import was begun, if it is another.", show_default=False
        ),
    ] = None,
    old_ids: Annotated[
        Path | None,
        typer.Option(
            "--old-ids",
            metavar="FILE",
            help="Write the table of old and new ids, for FORGEFRONT_V3_OLD_IDS.",
            show_default=False,
            dir_okay=False,
        ),
    ] = None,
    report: Annotated[
        Path | None, typer.Option("--report", metavar="FILE.html", help="Write the report as a page.", show_default=False, dir_okay=False)
    ] = None,
    requests_per_second: Annotated[float, typer.Option(min=0.1, max=10_000, help="Maximum of requests per second.")] = 20.0,
    parallel: Annotated[int, typer.Option(min=1, max=64, help="Maximum of requests at once.")] = 4,
    clones: Annotated[int, typer.Option(min=1, max=16, help="Maximum of repositories that are cloned at once.")] = 2,
    data: DataOption = None,
    as_json: JsonOption = False,
) -> None:
    """Import an instance through its REST interface, v3 or v4, and its repositories through git.

    Run it again at any time: it goes on where it was, brings what changed, and doubles nothing. Exit codes: 0 everything was taken, 3 the
    report lists items that were left behind, 1 failed, 130 interrupted, 143 terminated.
    """
    logs.configure("text", "error")
    # When the first error or Ctrl-C ends what runs side by side, the pool reports each statement that was cut off.
    logging.getLogger("sqlalchemy.pool").setLevel(logging.CRITICAL)
    _check_arguments(url, project, group)
    for option, file in (("--report", report), ("--old-ids", old_ids)):
        # The files are written at the end, which may be hours later.
        if file is not None and not file.absolute().parent.is_dir():
            fail(f"{option}: there is no folder {file.absolute().parent}", EXIT_USAGE)
    options = ImportOptions(project, group, keep_ids, read_all, ssh, enable_hooks, cancel_builds)
    found = ImportReport((continued_url or url).rstrip("/"), is_dry_run=dry_run, keeps_ids=keep_ids)
    client = SourceClient(url, token, requests_per_second, parallel)
    started = time.monotonic()
    try:
        with show_progress() as report_progress:
            progress = ImportProgress(report_progress)
            if dry_run:
                run_work(_rehearse(client, options, found, progress))
            else:
                run_work(_import(load_config(data), client, options, found, progress, clones, old_ids))
    finally:
        found.requests, found.seconds = client.requests, time.monotonic() - started
        if report is not None:
            report.write_text(found.as_html(), encoding="utf-8")
        if found.counts:
            _print_report(found, as_json)
    if found.omissions:
        raise typer.Exit(EXIT_INCOMPLETE)


def _check_arguments(url: str, project: str | None, group: str | None) -> None:
    parsed = httpx.URL(url)
    if parsed.scheme not in ("http", "https") or not parsed.host or parsed.userinfo or parsed.query:
        fail(f"{url} is not an address such as https://forge.example, without a user and a query", EXIT_USAGE)
    if project is not None and group is not None:
        fail("name --project or --group, not both", EXIT_USAGE)


async def _open(client: SourceClient, options: ImportOptions, report: ImportReport) -> SourceInstance:
    """The source; ends the command, before anything is copied, if the token lacks what the import needs."""
    try:
        source = await open_source(client)
    except (InvalidSource, SourceError) as error:
        fail(str(error))
    report.api, report.version = str(source.api), source.version
    if not source.gaps:
        return source
    gaps = "\n".join(f"  {gap}" for gap in source.gaps)
    if not source.is_admin and options.is_whole:
        fail(f"the token is not that of an administrator, so it cannot read\n{gaps}\nuse an administrator's, or name --project or --group")
    typer.echo(f"The token cannot read\n{gaps}", err=True)
    for gap in source.gaps:
        report.note(f"the token cannot read {gap}")
    return source


async def _rehearse(client: SourceClient, options: ImportOptions, report: ImportReport, progress: ImportProgress) -> None:
    try:
        source = await _open(client, options, report)
        await ImportRehearsal(source, report, progress, options).count_all()
    except SourceError as error:
        fail(str(error))
    finally:
        await client.aclose()


async def _import(
    config: Config,
    client: SourceClient,
    options: ImportOptions,
    report: ImportReport,
    progress: ImportProgress,
    clones: int,
    old_ids: Path | None,
) -> None:
    async with AsyncExitStack() as stack:
        stack.push_async_callback(client.aclose)
        source = await _open(client, options, report)
        backend = Backend(config)
        stack.push_async_callback(backend.stop)
        await backend.start(may_migrate=False)
        try:
            target = await run_import(backend, source, options, report, progress, clones)
            if old_ids is not None:
                with old_ids.open("w", encoding="utf-8") as file:
                    await target.write_old_ids(file)
        except (SourceError, OperationRejected, ForgeError) as error:
            # A run that fails before it has read anything would fail again.
            fail(f"{error}\nrun the same command again: it goes on where it was" if report.counts else str(error))
        except asyncio.CancelledError:
            typer.echo("forgefront: run the same command again: it goes on where it was", err=True)
            raise


async def run_import(
    backend: Backend, source: SourceInstance, options: ImportOptions, report: ImportReport, progress: ImportProgress, clones: int
) -> ImportTarget:
    """Imports into a started backend; returns the import. Raises SourceError, OperationRejected."""
    username = await _find_administrator(backend, source)
    client = LocalClient(backend.graph, OPERATIONS_FILE, username)
    target = ImportTarget(client, report)
    await target.begin(report.source, keeps_ids=options.keeps_ids)
    if options.reads_all:
        target.marks.clear()
    run = ImportRun(
        source=source,
        target=target,
        report=report,
        mirrors=RepositoryMirrors(
            backend.config.data / MIRRORS_FOLDER / str(target.import_id), clones, list_refs=RefLister(source.client).list_refs
        ),
        repositories=InstanceImports(backend.graph.services),
        files=BuildFileImports(backend.graph.services),
        uploads=UploadImports(backend.graph.services),
        progress=progress,
        options=options,
    )
    try:
        await ImportRunner(run).import_all()
    except SourceError:
        await target.flush_marks()
        raise
    return target


async def _find_administrator(backend: Backend, source: SourceInstance) -> str:
    """The administrator that the import runs as; in an instance without users, one is created, with the name of the token's user."""
    client = LocalClient(backend.graph, OPERATIONS_FILE)
    username = str(source.user["username"])
    if (await client.run("Users"))["totalCount"]:
        found = (await client.run("Administrators", username=username))["nodes"]
        return username if found and found[0]["isAdmin"] else (await client.run("FirstAdministrator"))["username"]
    values = {"username": username, "name": source.user.get("name") or username, "email": source.user.get("email"), "admin": True}
    await client.run("CreateAdministrator", input={name: value for name, value in values.items() if value is not None})
    return username


def _print_report(report: ImportReport, as_json: bool) -> None:
    if as_json:
        print_result(report.as_json(), True)
    else:
        typer.echo(report.as_text())
