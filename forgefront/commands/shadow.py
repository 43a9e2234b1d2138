"""`forgefront shadow`."""

import contextlib
import socket
from pathlib import Path
from typing import Annotated

import typer
import uvloop

from forgefront import logs
from forgefront.commands.command_context import EXIT_USAGE, fail
from forgefront.server.listeners import create_listener, raise_file_limit
from forgefront.settings.config_error import ConfigError
from forgefront.shadow.comparison.comparison_rules import ComparisonRules
from forgefront.shadow.comparison.id_map import IdMap
from forgefront.shadow.proxy.proxy_server import run_proxy
from forgefront.shadow.settings import MIB, ServerAddress, ShadowSettings

STATUS_HOST = "127.0.0.1"
"""The status page shows what clients read, so it is for this machine only."""

OldOption = Annotated[str, typer.Option("--old", metavar="URL", help="The old server, such as http://localhost:8181.")]
NewOption = Annotated[str, typer.Option("--new", metavar="URL", help="The new server.")]
PortOption = Annotated[int, typer.Option("--port", help="The port that clients use; 0 selects a free one.", min=0, max=65535)]
HostOption = Annotated[str, typer.Option("--host", help="The address to listen on.")]
StatusPortOption = Annotated[
    int | None,
    typer.Option("--status-port", help="The port of the status page, on 127.0.0.1.", show_default="a free one", min=0, max=65535),
]
IgnoreOption = Annotated[
    list[str] | None, typer.Option("--ignore", metavar="JSONPATH", help="A place whose differences do not count, such as $..avatar_url.")
]
RulesOption = Annotated[
    Path | None, typer.Option("--rules", help="A TOML file of further rules of the comparison.", exists=True, dir_okay=False)
]
ReplayOption = Annotated[bool, typer.Option("--replay-writes", help="Send writes to the shadow server too, after they were answered.")]
IdsOption = Annotated[
    Path | None,
    typer.Option("--ids", help="A file of old and new ids: kind, old, new, separated by tabs.", exists=True, dir_okay=False),
]
SwitchOption = Annotated[bool, typer.Option("--switch", help="The new server answers, and the old one is the shadow.")]
RewriteHostOption = Annotated[
    bool, typer.Option("--rewrite-host", help="Send each server the host name of its URL instead of the one that the client sent.")
]
ReportOption = Annotated[
    Path | None,
    typer.Option("--report", help="Write the report here every minute, on SIGHUP and at the end; as JSON if it ends with .json."),
]
JsonReportOption = Annotated[bool, typer.Option("--json", help="Print the report as JSON at the end.")]
MaskOption = Annotated[bool, typer.Option("--mask", help="Show no values in the report. Tokens are never shown.")]
MaxBodyOption = Annotated[
    int,
    typer.Option(
        "--max-body", help="Maximum size in MiB of a body that is compared; larger ones are counted as not compared.", min=1, max=64
    ),
]


def shadow(
    old: OldOption,
    new: NewOption,
    port: PortOption,
    host: HostOption = "127.0.0.1",
    status_port: StatusPortOption = None,
    ignore: IgnoreOption = None,
    rules: RulesOption = None,
    replay_writes: ReplayOption = False,
    ids: IdsOption = None,
    switch: SwitchOption = False,
    rewrite_host: RewriteHostOption = False,
    report: ReportOption = None,
    as_json: JsonReportOption = False,
    mask: MaskOption = False,
    max_body: MaxBodyOption = 2,
) -> None:
    """Answer from one server, and compare its answers with those of another.

    Clients are answered by the old server, as if there were no proxy. The new one receives a copy of each read, and the report says what
    it would have answered differently. Ctrl-C or SIGTERM stops gracefully and prints the report.
    """
    logs.configure("text", "info")
    settings = ShadowSettings(
        old=old.rstrip("/"),
        new=new.rstrip("/"),
        rules=_read(rules),
        ignored=tuple(ignore or ()),
        ids=_read(ids),
        replays_writes=replay_writes,
        is_switched=switch,
        rewrites_host=rewrite_host,
        masks_values=mask,
        report_file=str(report.absolute()) if report else None,
        prints_json=as_json,
        max_body=max_body * MIB,
    )
    _check(settings)
    if report is not None and not report.absolute().parent.is_dir():
        fail(f"--report: there is no folder {report.absolute().parent}", EXIT_USAGE)
    with contextlib.ExitStack() as stack:
        try:
            listener = stack.enter_context(create_listener(host, port))
            status_listener = stack.enter_context(create_listener(STATUS_HOST, status_port or 0))
        except ConfigError as error:
            fail("\n".join(error.problems), EXIT_USAGE)
        # A copy that came back would be copied again, without end.
        for server in (settings.primary, settings.secondary):
            _refuse_loop(server, listener)
        raise_file_limit()
        listener.setblocking(False)

        def announce() -> None:
            # On standard error: standard output has the report.
            typer.echo(f"Shadow proxy: http://{_address_of(listener)} answers from {settings.primary}", err=True)
            typer.echo(f"Status page: http://{_address_of(status_listener)}/", err=True)

        with contextlib.suppress(KeyboardInterrupt):
            uvloop.run(run_proxy(settings, listener, status_listener, announce))


def _read(path: Path | None) -> str:
    try:
        return "" if path is None else path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        fail(f"{path}: {error}", EXIT_USAGE)


def _check(settings: ShadowSettings) -> None:
    """Ends the command if something is wrong that would otherwise only be seen by the second process."""
    try:
        for option, url in (("--old", settings.old), ("--new", settings.new)):
            option_name = option
            ServerAddress.parse(url)
        option_name = "--rules or --ignore"
        rules = ComparisonRules.read(settings.rules, settings.ignored, replays_writes=settings.replays_writes)
        option_name = "--ids"
        IdMap(rules).read(settings.ids.splitlines())
    except ValueError as error:
        fail(f"{option_name}: {error}", EXIT_USAGE)


def _refuse_loop(server: ServerAddress, listener: socket.socket) -> None:
    """Ends the command if the server is this proxy, under whichever name."""
    host, port = listener.getsockname()[:2]
    if server.port != port:
        return
    try:
        found = socket.getaddrinfo(server.host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        # The proxy warns of a server that it cannot reach.
        return
    for family, _, _, _, address in found:
        listens_on_all = host == "::" or (host == "0.0.0.0" and family == socket.AF_INET)  # noqa: S104 - a comparison
        if address[0] == host or (listens_on_all and _is_own_address(family, str(address[0]))):
            fail(f"{server} is the address of this proxy itself", EXIT_USAGE)


def _is_own_address(family: int, address: str) -> bool:
    """Whether an address is one of this machine: only these can be bound."""
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((address, 0))
    except OSError:
        return False
    return True


def _address_of(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
