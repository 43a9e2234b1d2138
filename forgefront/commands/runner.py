"""`forgefront runner`."""

import asyncio
import signal
import tempfile
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Annotated, Any, Literal

import orjson
import typer

from forgefront import logs
from forgefront.commands.command_context import EXIT_USAGE, fail
from forgefront.commands.command_context import JsonOption as PlainJsonOption
from forgefront.commands.output import print_result
from forgefront.runner.build_execution import BuildExecution, BuildOutcome
from forgefront.runner.build_runner import BuildRunner, Forge
from forgefront.runner.executors.executor import ExecutorUnavailable
from forgefront.runner.executors.selection import choose_executor, make_executor
from forgefront.runner.forge_client import ClaimedBuild, ForgeClient, RequestRejected
from forgefront.runner.metrics import RunnerMetrics
from forgefront.runner.settings import InvalidRunnerConfig, RunnerSettings, load_settings
from forgefront.runner.systemd_unit import render_unit

UrlOption = Annotated[
    str, typer.Option("--url", help="The address of the service, such as http://localhost:8080.", envvar="FORGEFRONT_RUNNER_URL")
]
TokenOption = Annotated[
    str,
    typer.Option(
        "--token",
        help="The runner's token. Other users of this machine can read command lines, so prefer the environment variable.",
        envvar="FORGEFRONT_RUNNER_TOKEN",
        show_envvar=True,
    ),
]
ConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--config", help="A TOML file with all settings, and with several forges.", envvar="FORGEFRONT_RUNNER_CONFIG", dir_okay=False
    ),
]
ExecutorOption = Annotated[
    Literal["auto", "bubblewrap", "container", "shell"] | None,
    typer.Option("--executor", help="What runs the scripts; auto is bubblewrap where it works, else shell.", show_default="auto"),
]
ConcurrentOption = Annotated[
    int | None, typer.Option("--concurrent", help="Number of builds that run concurrently.", min=1, max=64, show_default="1")
]
BuildsFolderOption = Annotated[
    Path | None, typer.Option("--builds-dir", help="The working folder.", file_okay=False, show_default="builds")
]
OnceOption = Annotated[bool, typer.Option("--once", help="Run one build, then exit: with 0 if it passed, else with 1.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print a line of JSON for each finished build; log in JSON too.")]
GraceOption = Annotated[
    float | None, typer.Option("--grace", help="Seconds that builds have to finish when the runner is stopped.", min=0, show_default="30")
]
MetricsOption = Annotated[
    str | None,
    typer.Option("--metrics", help="Address for Prometheus, such as 127.0.0.1:9253; /metrics has the figures.", show_default=False),
]
NameOption = Annotated[str, typer.Option("--name", help="The name of this runner.")]
AllowHttpOption = Annotated[
    bool, typer.Option("--allow-http", help="Allow http:// to another machine. Tokens and secret variables are then sent unencrypted.")
]

app = typer.Typer(add_completion=False)


@app.callback(invoke_without_command=True)
def runner(
    context: typer.Context,
    url: UrlOption = "",
    token: TokenOption = "",
    config: ConfigOption = None,
    executor: ExecutorOption = None,
    concurrent: ConcurrentOption = None,
    builds_dir: BuildsFolderOption = None,
    once: OnceOption = False,
    as_json: JsonOption = False,
    grace: GraceOption = None,
    metrics: MetricsOption = None,
    name: NameOption = "",
    allow_http: AllowHttpOption = False,
) -> None:
    """Take builds from services, and run their scripts on this machine.

    The scripts come from the repositories, so everybody who may push to one runs commands here: in a sandbox (bubblewrap), in
    containers, or, with the executor shell, as this user. Ctrl-C lets builds finish, or returns them to the queue; a second Ctrl-C
    does not wait.
    """
    options = {"executor": executor, "concurrent": concurrent, "builds_dir": builds_dir, "grace": grace, "metrics": metrics}
    set_options = {key: value for key, value in options.items() if value is not None}
    if context.invoked_subcommand is not None:
        context.obj = config, set_options, {"url": url, "token": token, "name": name, "allow_http": allow_http}
        return
    log_format: Literal["json", "text"] = "json" if as_json else "text"
    logs.configure(log_format, "info")
    try:
        settings = load_settings(config, set_options, {"url": url, "token": token, "name": name, "allow_http": allow_http})
    except InvalidRunnerConfig as error:
        fail(str(error), EXIT_USAGE)
    passed = _run(_serve(settings, once=once, as_json=as_json))
    if once and not passed:
        raise typer.Exit(1)


def _run(work: Coroutine[Any, Any, bool]) -> bool:
    try:
        return asyncio.run(work)
    except InvalidRunnerConfig as error:
        fail(str(error), EXIT_USAGE)
    except ExecutorUnavailable as error:
        fail(f"{error.reason}\n{error.remedy}")
    except (RequestRejected, OSError) as error:
        fail(str(error))


async def _serve(settings: RunnerSettings, *, once: bool, as_json: bool) -> bool:
    """Runs builds; returns whether none failed."""

    def report(forge: Forge, job: ClaimedBuild, outcome: BuildOutcome) -> None:
        if as_json:
            line = {"build": job.build_id, "name": job.name, "ended": outcome.value}
            typer.echo(orjson.dumps(line if len(settings.forge) == 1 else {"forge": forge.name, **line}).decode())
        else:
            typer.echo(f"Build {job.build_id} ({job.name}): {outcome.value}")

    async with AsyncExitStack() as stack:
        executor = await choose_executor(settings.executor_settings)
        forges = []
        for section in settings.forge:
            client = ForgeClient(section.url, token := section.read_token(), name=section.name)
            stack.push_async_callback(client.close)
            forges.append(Forge(client, token, section.name or section.url, section.concurrent or settings.concurrent))
        cache = settings.open_cache()
        if cache is not None:
            stack.push_async_callback(cache.close)
            await stack.enter_async_context(cache.remove_old_regularly())
        metrics = RunnerMetrics()
        if settings.metrics_address is not None:
            await stack.enter_async_context(metrics.serve(*settings.metrics_address))
        runner = BuildRunner(
            forges,
            settings.builds_dir,
            executor,
            max_concurrent=settings.concurrent,
            cache=cache,
            metrics=metrics,
            grace=settings.grace,
            on_build_end=report,
        )
        return await runner.run(only_one=once)


@app.command("check")
def check(context: typer.Context, as_json: PlainJsonOption = False) -> None:
    """Try the executors on this machine, and say what is wrong and what to do. Exits with 1 if the chosen one does not work."""
    logs.configure("text", "error")
    file, options, forge = context.obj
    # The executors can be tried without a forge.
    forge = forge if forge["url"] or file else {"url": "http://localhost", "token": "none"}
    try:
        settings = load_settings(file, options, forge).executor_settings
    except InvalidRunnerConfig as error:
        fail(str(error), EXIT_USAGE)

    async def try_all() -> dict[str, dict[str, str] | None]:
        found: dict[str, dict[str, str] | None] = {}
        for name in ("bubblewrap", "container", "shell"):
            try:
                await make_executor(name, settings, None).check()
                found[name] = None
            except ExecutorUnavailable as error:
                found[name] = {"problem": error.reason, "remedy": error.remedy}
        return found

    found = asyncio.run(try_all())
    chosen = settings.name if settings.name != "auto" else "bubblewrap" if found["bubblewrap"] is None else "shell"
    if as_json:
        print_result({"executor": chosen, "problems": {name: problem for name, problem in found.items() if problem}}, True)
    else:
        for name, problem in found.items():
            typer.echo(f"{name}: works" if problem is None else f"{name}: {problem['problem']}\n  → {problem['remedy']}")
        typer.echo(f"Builds run in the executor {chosen}.")
    if found[chosen] is not None:
        raise typer.Exit(1)


@app.command("exec")
def execute(
    context: typer.Context,
    job: Annotated[str, typer.Argument(help="The name of a job of .gitlab-ci.yml.")],
    folder: Annotated[Path, typer.Option("--folder", help="A folder of the checkout.", file_okay=False)] = Path(),
    variables: Annotated[list[str] | None, typer.Option("--variable", metavar="NAME=VALUE", help="A variable; repeatable.")] = None,
    artifacts: Annotated[
        Path | None, typer.Option("--artifacts", help="Folder for the artifact; created if missing.", file_okay=False, writable=True)
    ] = None,
    timeout: Annotated[int, typer.Option("--timeout", help="Time limit in seconds.", min=1)] = 3600,
    as_json: PlainJsonOption = False,
) -> None:
    """Run a job of this checkout without a server: its tracked files, with changes that are not committed. Exits with 1 if it fails.

    With --json the output of the job is on standard error. Artifacts of other jobs and caches are not there.
    """
    # The parser of CI files imports the graph, which takes seconds.
    from forgefront.runner.local_build import LocalBuildRejected, LocalService, describe_build, find_checkout, read_job, run_local_build
    from graph.rules.ci.config_errors import PipelineConfigError

    logs.configure("text", "error")
    pairs = [text.partition("=") for text in variables or []]
    if any(not name or not sign for name, sign, _ in pairs):
        fail("--variable must be NAME=VALUE", EXIT_USAGE)
    file, options, _ = context.obj
    try:
        settings = load_settings(file, options, {"url": "http://localhost", "token": "none"}).executor_settings
        top = find_checkout(folder)
        build = describe_build(top, read_job(top, job), {name: value for name, _, value in pairs}, timeout)
    except (InvalidRunnerConfig, LocalBuildRejected, PipelineConfigError) as error:
        fail(str(error), EXIT_USAGE)
    if artifacts is not None:
        try:
            # Before the job runs, so that its work is not lost if this fails.
            artifacts.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            fail(f"--artifacts {artifacts}: {error.strerror}", EXIT_USAGE)
    service = LocalService(lambda text: typer.echo(text, nl=False, err=as_json), artifacts)

    async def work() -> bool:
        executor = await choose_executor(settings)
        with tempfile.TemporaryDirectory(prefix="forgefront-runner-", ignore_cleanup_errors=True) as name:

            def add_signal_handlers(execution: BuildExecution) -> None:
                for number in (signal.SIGINT, signal.SIGTERM):
                    asyncio.get_running_loop().add_signal_handler(number, execution.return_build)

            outcome = await run_local_build(build, top, service, executor, Path(name), add_signal_handlers)
        ended = "stopped" if outcome is BuildOutcome.RETURNED else outcome.value
        if as_json:
            print_result({"name": job, "ended": ended, "artifacts": [str(path) for path in service.artifacts]}, True)
        return outcome is BuildOutcome.PASSED

    if not _run(work()):
        raise typer.Exit(1)


@app.command("unit")
def unit(
    context: typer.Context,
    user: Annotated[str, typer.Option(help="The user of the runner.")] = "forgefront-runner",
) -> None:
    """Print a systemd unit for the file of `forgefront runner --config FILE unit`; by default that is /etc/forgefront/runner.toml."""
    file, options, _ = context.obj
    file = file or Path("/etc/forgefront/runner.toml")
    is_written = file.exists()
    try:
        settings = load_settings(file if is_written else None, options, {} if is_written else {"url": "http://localhost", "token": "none"})
    except InvalidRunnerConfig as error:
        fail(str(error), EXIT_USAGE)
    typer.echo(render_unit(file, user, settings.grace, options), nl=False)
