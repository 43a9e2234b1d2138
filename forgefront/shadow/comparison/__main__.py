"""`python -m forgefront.shadow.comparison QUEUE [STATUS]`: numbers of open sockets, the second for the status page."""

import asyncio
import contextlib
import logging
import signal
import socket
import sys

from forgefront import logs
from forgefront.shadow.comparison.comparison_worker import FINISH_SECONDS, ComparisonWorker, read_frame
from forgefront.shadow.comparison.report_files import format_json, format_text
from forgefront.shadow.comparison.status_page import StatusServer, create_status_app
from forgefront.shadow.settings import ShadowSettings


async def run_comparison(queue: socket.socket, status: socket.socket | None) -> None:
    """Compares until the queue ends, then prints the report."""
    reader, writer = await asyncio.open_unix_connection(sock=queue)
    first = await read_frame(reader)
    if first is None:
        return
    settings = ShadowSettings.decode(first[1])
    worker = ComparisonWorker(settings, restarts=first[0]["restarts"])
    server = StatusServer(create_status_app(worker.report.as_json))
    ending = asyncio.create_task(_end_after_proxy(worker))
    serving = asyncio.create_task(server.serve(sockets=[status])) if status is not None else None
    try:
        await worker.run(reader)
    finally:
        server.should_exit = server.force_exit = True
        ending.cancel()
        if serving is not None:
            await serving
        writer.close()
    with contextlib.suppress(BrokenPipeError):
        report = worker.report.as_json()
        sys.stdout.write(format_json(report).decode() if settings.prints_json else format_text(report))
        sys.stdout.flush()


async def _end_after_proxy(worker: ComparisonWorker) -> None:
    """The proxy closes standard input when it stops; the queue may then still hold more than can be compared in time."""
    stopped = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(stopped), sys.stdin)
    await stopped.read()
    await asyncio.sleep(FINISH_SECONDS)
    worker.end_comparing()


def main() -> None:
    # The proxy ends this process by closing the queue, after it has stopped itself.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    logs.configure("text", "info")
    # It would log a line for each copy.
    logging.getLogger("httpx").setLevel(logging.WARNING)
    queue, *status = (socket.socket(fileno=int(number)) for number in sys.argv[1:])
    for each in (queue, *status):
        each.setblocking(False)
    asyncio.run(run_comparison(queue, status[0] if status else None))


if __name__ == "__main__":
    main()
