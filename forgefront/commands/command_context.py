"""What commands share: options, access to the graph, and error messages.

Exit codes: 0 success, 1 refused or failed, 2 wrong usage or configuration, 3 done, but not all of it (`EXIT_INCOMPLETE`), 130
interrupted, 143 terminated.
"""

import asyncio
import contextlib
import signal
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, TypeVar

import typer

from forgefront import logs
from forgefront.settings.config_error import ConfigError

if TYPE_CHECKING:
    # Commands without a data folder run without the graph and the storage, whose imports take a second.
    from forgefront.backend import Backend
    from forgefront.config import Config
    from forgefront.local_client import LocalClient
    from storage.git.importing.repository_import import ProgressCallback

T = TypeVar("T")

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_INCOMPLETE = 3
"""An import left something behind, or a dump, or the dump that was restored, lacks files that were missing or damaged."""

DataOption = Annotated[
    Path | None,
    typer.Option("--data", help="The data folder.", show_default="FORGEFRONT_DATA, or ./data", file_okay=False),
]
UsernameOption = Annotated[
    str | None,
    typer.Option("--as", metavar="USERNAME", help="Act as this user, with their permissions.", show_default="the first administrator"),
]
RepositoryOption = Annotated[
    Path | None,
    typer.Option("--repository", help="The repository whose history the demo shows.", file_okay=False, show_default="this checkout"),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")]


def fail(message: str, code: int = EXIT_FAILED) -> NoReturn:
    """Ends the command with a message on standard error."""
    for line in message.splitlines():
        typer.echo(f"forgefront: {line}", err=True)
    raise typer.Exit(code)


def fail_unchanged(context: typer.Context) -> NoReturn:
    """Ends a command that was called without any option of what to change; the message names these options."""
    options = [
        parameter.opts[0]
        for parameter in context.command.params
        if parameter.param_type_name == "option" and parameter.opts[0] not in ("--data", "--as", "--json", "--help")
    ]
    fail(f"nothing to change: give at least one of {', '.join(options)}; see --help", EXIT_USAGE)


def load_config(data: Path | None, **overrides: Any) -> "Config":
    """The configuration of this run; an invalid one ends the command."""
    from forgefront.config import Config

    try:
        return Config.load(data=data, **overrides)
    except ConfigError as error:
        fail("\n".join(error.problems), EXIT_USAGE)


def load_existing_config(data: Path | None) -> "Config":
    """As `load_config`, for an existing data folder with its database; the command ends if there is none.

    Without this check a command that lacks the setting of the service would work on a new, empty database in the data folder.
    """
    from storage.database.engine import driver_url
    from storage.migrations import current_revision

    config = load_config(data)
    if not config.data.is_dir():
        fail(f"there is no data folder {config.data}; name one with --data, or create one with `forgefront serve` or `forgefront demo`")
    if run_work(asyncio.to_thread(current_revision, config.database_url)) is None:
        url = driver_url(config.database_url)
        found = f"there is no database {url.database}" if config.uses_sqlite else f"the database {url.database} on {url.host} is empty"
        fail(f"{found}; set FORGEFRONT_DATABASE_URL as the service has it, or start the service once")
    return config


def run_with_client(
    data: Path | None,
    document: Path,
    work: "Callable[[LocalClient], Awaitable[T]]",
    *,
    username: str | None = None,
    may_create: bool = False,
    progress: "ProgressCallback | None" = None,
) -> T:
    """Runs `work` over the data folder; ends the command if an operation is refused. Creates a new folder only with `may_create`."""
    from forgefront.local_client import LocalClient

    config = load_config(data) if may_create else load_existing_config(data)
    return run_with_backend(config, lambda backend: work(LocalClient(backend.graph, document, username)), progress=progress)


def run_with_backend(
    config: "Config",
    work: "Callable[[Backend], Awaitable[T]]",
    *,
    progress: "ProgressCallback | None" = None,
    clock: Callable[[], datetime] | None = None,
    may_migrate: bool = False,
) -> T:
    """Runs `work` over a started backend; ends the command with a message if something is refused or unreachable.

    Without `may_migrate` a database of an older version is refused: hosts of that version may be serving it.
    """
    from forgefront.backend import Backend
    from storage.database.clock import now

    logs.configure("text", "error")

    async def work_with_backend() -> T:
        async with AsyncExitStack() as stack:
            backend = Backend(config, progress=progress, clock=clock or now)
            stack.push_async_callback(backend.stop)
            await backend.start(may_migrate=may_migrate)
            return await work(backend)

    return run_work(work_with_backend())


class _TerminatedError(Exception):
    """The process received SIGTERM."""


async def _cancel_at_sigterm(work: Coroutine[Any, Any, T]) -> T:
    """Runs a coroutine, and cancels it at SIGTERM, so that it removes what is half done, as after Ctrl-C. Raises _TerminatedError then."""
    task = asyncio.ensure_future(work)
    is_terminated = False

    def terminate() -> None:
        nonlocal is_terminated
        is_terminated = True
        task.cancel()

    # Only the main thread receives signals.
    with contextlib.suppress(RuntimeError, ValueError):
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, terminate)
    try:
        return await task
    except asyncio.CancelledError:
        if is_terminated:
            raise _TerminatedError from None
        raise


def run_work(work: Coroutine[Any, Any, T]) -> T:
    """Runs a coroutine; ends the command with a message if something is refused or unreachable."""
    from forgefront.buckets.bucket_owner import ForeignBucket
    from forgefront.local_client import OperationRejected
    from storage.database.errors import describe_error, is_unavailable, is_unusable
    from storage.dump.dump_format import DumpError
    from storage.key_rotation import RotationRefused
    from storage.migrations import DatabaseOutdated, DatabaseTooNew, HostsRunning
    from storage.objects.object_store import ObjectStoreUnavailable

    try:
        return asyncio.run(_cancel_at_sigterm(work))
    except (DumpError, ForeignBucket, ObjectStoreUnavailable, OperationRejected, RotationRefused) as error:
        fail(str(error))
    except ConfigError as error:
        fail("\n".join(error.problems), EXIT_USAGE)
    except (DatabaseOutdated, DatabaseTooNew, HostsRunning) as error:
        fail(str(error))
    except KeyboardInterrupt:
        fail("interrupted", 130)
    except _TerminatedError:
        fail("terminated", 143)
    except Exception as error:
        if is_unusable(error):
            # Not the traceback, which is long and names the values of statements.
            fail(f"the database cannot be used: {describe_error(error)}; `forgefront check` says more")
        if is_unavailable(error):
            fail(f"the database cannot be reached ({type(error).__name__}): is it running, and is FORGEFRONT_DATABASE_URL right?")
        if isinstance(error, OSError):
            fail(str(error))
        raise
