"""Writes the columnar copy of builds in a process of its own: `python -m storage.analytics.copy_process`, which its caller starts.

The library and what sorting takes are some 100 MB, which a server process would keep, also if nobody asks it for statistics.

The caller writes one line to its standard input, the database's URL and the folder, and keeps the pipe open: the process ends when it is
closed, as by the end of the caller. The process writes lines to its standard output: its progress, and at last the pointer or the error.
All lines are JSON.
"""

import asyncio
import os
import sys
import threading
from asyncio.subprocess import PIPE
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import orjson

from storage.analytics.build_copy import CopyOutdated, CopyPointer
from storage.analytics.build_copy_writer import ProgressReport, RebuildRunning, write_copy
from storage.database.engine import Database
from storage.database.errors import describe_error

NICENESS = 10
MAX_REPORTED = 500
"""Characters at the end of the standard error of a process that ends without a result."""

_ERRORS: Mapping[str, type[Exception]] = {each.__name__: each for each in (CopyOutdated, RebuildRunning)}
"""Errors that the caller raises as they are."""


class CopyProcessFailed(Exception):
    """The copy was not written; the message says why."""


async def write_copy_in_process(database: Database, folder: Path, report: ProgressReport) -> CopyPointer:
    """As `write_copy`, which it runs in a process of low priority. Canceling the caller ends the process.

    Raises RebuildRunning, CopyOutdated, and CopyProcessFailed for any other error; OSError if the process cannot be started.
    """
    search_path = [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", __spec__.name),
        stdin=PIPE,
        stdout=PIPE,
        stderr=PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, search_path))},
        # An interrupt from the keyboard is for the caller.
        start_new_session=True,
    )
    assert process.stdin is not None and process.stdout is not None and process.stderr is not None  # noqa: S101 - pipes above
    reading_errors = asyncio.create_task(process.stderr.read())
    result: dict[str, Any] = {}
    try:
        job = {"url": database.url.render_as_string(hide_password=False), "folder": str(folder)}
        process.stdin.write(orjson.dumps(job) + b"\n")
        async for line in process.stdout:
            message = orjson.loads(line)
            if "done" in message:
                report(message["done"], message["total"])
            else:
                result = message
        await process.wait()
        if "pointer" in result:
            return CopyPointer(**result["pointer"])
        if "error" in result:
            raise _ERRORS.get(result["error"], CopyProcessFailed)(result["message"])
        reason = (await reading_errors).decode(errors="replace").strip()[-MAX_REPORTED:].rpartition("\n")[2]
        raise CopyProcessFailed(f"the process has ended with {process.returncode}: {reason or 'no message'}")
    finally:
        if process.returncode is None:
            process.kill()
        # The pipes end with the process.
        await asyncio.shield(asyncio.wait([reading_errors, asyncio.create_task(process.wait())]))


def main() -> None:
    """Writes the copy that standard input names."""
    os.nice(NICENESS)
    job = orjson.loads(sys.stdin.buffer.readline())
    threading.Thread(target=_end_with_caller, daemon=True).start()
    try:
        result: dict[str, Any] = {"pointer": asdict(asyncio.run(_write(job["url"], Path(job["folder"]))))}
    except tuple(_ERRORS.values()) as error:
        result = {"error": type(error).__name__, "message": str(error)}
    except Exception as error:
        result = {"error": "", "message": describe_error(error)}
    _send(result)


async def _write(url: str, folder: Path) -> CopyPointer:
    database = Database(url)
    try:
        return await write_copy(database, folder, lambda done, total: _send({"done": done, "total": total}))
    finally:
        await database.close()


def _send(message: Mapping[str, Any]) -> None:
    sys.stdout.buffer.write(orjson.dumps(message) + b"\n")
    sys.stdout.buffer.flush()


def _end_with_caller() -> None:
    # Not the buffered file: a thread that waits in it would hold its lock at the end of the process.
    while os.read(sys.stdin.fileno(), 4096):
        pass
    os._exit(1)


if __name__ == "__main__":
    main()
