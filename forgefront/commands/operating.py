"""What commands share: options, the way to the graph, and errors as people read them.

Exit codes: 0 done, 1 refused or failed, 2 wrong usage or configuration.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, NoReturn, TypeVar

import typer

from forgefront import logs
from forgefront.config import Config, ConfigError
from forgefront.engine import Engine
from forgefront.operator import Forge, Refused
from storage.database import is_unavailable, now
from storage.git.importing import Progress
from storage.migrations import TooNew

T = TypeVar("T")

FAILED = 1
WRONG = 2

Data = Annotated[
    Path | None,
    typer.Option("--data", help="The data folder.  [default: FORGEFRONT_DATA, or ./data]", show_default=False, file_okay=False),
]
As = Annotated[
    str | None,
    typer.Option(
        "--as", metavar="USERNAME", help="Act as this user, with their rights.  [default: the first administrator]", show_default=False
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")]


def fail(text: str, code: int = FAILED) -> NoReturn:
    """Ends the command with a text on standard error."""
    for line in text.splitlines():
        typer.echo(f"forgefront: {line}", err=True)
    raise typer.Exit(code)


def config_of(data: Path | None, **given: Any) -> Config:
    """The configuration of this run; a wrong one ends the command."""
    try:
        return Config.load(data=data, **given)
    except ConfigError as error:
        fail("\n".join(error.problems), WRONG)


def existing(data: Path | None) -> Config:
    """As `config_of`, of a data folder that is there; the command ends without one."""
    config = config_of(data)
    if not config.data.is_dir():
        fail(f"there is no data folder {config.data}; name one with --data, or begin one with `forgefront serve` or `forgefront demo`")
    return config


def operate(
    data: Path | None,
    document: Path,
    work: Callable[[Forge], Awaitable[T]],
    *,
    username: str | None = None,
    creates: bool = False,
    progress: Progress | None = None,
) -> T:
    """Runs `work` over the data folder; ends the command where it is refused. Only what `creates` may begin a new folder."""
    config = config_of(data) if creates else existing(data)
    return run(config, lambda engine: work(Forge(engine.graph, document, username)), progress=progress)


def run(
    config: Config,
    work: Callable[[Engine], Awaitable[T]],
    *,
    progress: Progress | None = None,
    clock: Callable[[], datetime] = now,
) -> T:
    """Runs `work` over a started engine, and ends the command with a text where something is refused or cannot be reached."""
    logs.configure("text", "error")

    async def all_of_it() -> T:
        async with AsyncExitStack() as stack:
            engine = Engine(config, progress=progress, clock=clock)
            stack.push_async_callback(engine.stop)
            await engine.start()
            return await work(engine)

    try:
        return asyncio.run(all_of_it())
    except Refused as error:
        fail(str(error))
    except ConfigError as error:
        fail("\n".join(error.problems), WRONG)
    except TooNew as error:
        fail(str(error))
    except KeyboardInterrupt:
        fail("interrupted", 130)
    except Exception as error:
        if is_unavailable(error):
            fail(f"the database cannot be reached ({type(error).__name__}): is it running, and is FORGEFRONT_DATABASE_URL right?")
        if isinstance(error, OSError):
            fail(str(error))
        raise
