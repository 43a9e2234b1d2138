"""The executor `container`: against podman where it runs, and against a recorded program for what podman does not show."""

import asyncio
import io
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from forgefront.runner.executors.container import ContainerExecutor, ContainerSettings
from forgefront.runner.executors.executor import BuildImages, BuildNotStarted, ExecutorUnavailable, Limits, Workspace
from forgefront.runner.scripts import build_environment
from forgefront.runner.trace_buffer import TraceBuffer

IMAGE = "localhost/forgefront-test:1"
APPLETS = ("sh", "cat", "ls", "id", "echo", "sleep", "env", "nc", "touch", "stat")
OPTIONS = ("--ulimit", "nofile=512:512", "--ulimit", "nproc=512:512")
"""Limits below those of this process, since it may not raise them."""
RECORDER = """#!/bin/sh
printf '%s\\n' "$*" >>{log}
case "$1" in
  image) exit 1 ;;
  run) case "$*" in *--interactive*) cat >>{log} ;; esac ;;
  ps) echo forgefront-runner-dead-build-1-x ; echo other ;;
esac
"""


def call(*arguments: str, data: bytes | None = None) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(arguments, input=data, capture_output=True, check=False, timeout=60)


@pytest.fixture(scope="module")
def podman(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A program that calls podman, which has IMAGE: busybox. Skips where it cannot run a container."""
    busybox = shutil.which("busybox")
    if not shutil.which("podman") or not busybox:
        pytest.skip("NOT RUN: podman (apt-get install podman busybox-static)")
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as file:
        file.add(Path(busybox).resolve(), "bin/busybox")
        for name in APPLETS:
            link = tarfile.TarInfo(f"bin/{name}")
            link.type, link.linkname = tarfile.SYMTYPE, "busybox"
            file.addfile(link)
        for name in ("tmp", "etc", "run"):
            folder = tarfile.TarInfo(name)
            folder.type, folder.mode = tarfile.DIRTYPE, 0o777
            file.addfile(folder)
    program = tmp_path_factory.mktemp("podman") / "podman"
    for runtime in ("crun", "runc"):
        program.write_text(f'#!/bin/sh\nexec podman --runtime {runtime} "$@"\n')
        program.chmod(0o755)
        imported = call(str(program), "import", "-", IMAGE, data=archive.getvalue())
        done = call(str(program), "run", "--rm", *OPTIONS, IMAGE, "/bin/sh", "-c", "echo works")
        if done.stdout == b"works\n":
            break
    else:
        pytest.skip(f"NOT RUN: podman cannot run containers here: {(imported.stderr + done.stderr).decode().strip()[-200:]}")
    yield str(program)
    call(str(program), "rmi", "--force", IMAGE)


async def run_scripts(
    executor: ContainerExecutor, root: Path, images: BuildImages, *scripts: str, stop_when: str = ""
) -> tuple[list[int], str]:
    workspace, trace, stop = Workspace(root, "tool"), TraceBuffer((), limit=2**20), asyncio.Event()
    codes, output = [], ""
    for folder in workspace.folders:
        folder.mkdir(exist_ok=True)
    async with AsyncExitStack() as stack:
        session = await stack.enter_async_context(executor.open(workspace, images, trace, stop))
        variables = {"SECRET": "it's\nhidden $HOME", "bad-name": "x"}
        environment = build_environment(variables, session.paths.home, session.paths.temporary, session.paths.path)
        for script in scripts:
            file = workspace.scripts / "script"
            file.write_text(script)
            running = asyncio.create_task(session.run(file, environment, trace, stop))
            while stop_when and stop_when not in output and not running.done():
                await asyncio.sleep(0.05)
                output += (text := trace.next_chunk())
                trace.mark_sent(text)
            if stop_when:
                stop.set()
            codes.append(await running)
    trace.finish()
    return codes, output + trace.next_chunk()


class TestPodman:
    async def test_runs_scripts_with_their_image_services_and_secrets(self, podman: str, tmp_path: Path) -> None:
        settings = ContainerSettings(program=podman, image=IMAGE, pull="never", options=OPTIONS)
        executor = ContainerExecutor(Limits(), settings)
        await executor.check()

        codes, output = await run_scripts(
            executor,
            tmp_path,
            BuildImages(),
            'id -u; /bin/busybox pwd; echo "$SECRET"; echo ~; touch made "$TMPDIR/made"; ls -A /run/forgefront; [ ! -e /work ]',
            "ls; ls $TMPDIR; exit 7",
        )

        assert output.splitlines() == ["0", "/builds/tool", "it's", "hidden $HOME", "/builds/.home", "script", "made", "made"], output
        assert codes == [0, 7]
        with pytest.raises(BuildNotStarted, match="no-such-image is not on the runner"):
            await run_scripts(executor, tmp_path, BuildImages("no-such-image"), "true")

        codes, output = await run_scripts(executor, tmp_path, BuildImages(), "echo began; sleep 300", stop_when="began")
        assert codes != [0]
        listed = call(podman, "ps", "--all", "--format", "{{.Names}}").stdout.decode()
        assert f"forgefront-{tmp_path.parent.name}" not in listed


class TestCalls:
    def recorded(self, folder: Path, **settings: object) -> tuple[ContainerExecutor, Path]:
        """An executor of a program that writes down its arguments and its standard input, and has no image."""
        log, program = folder / "log", folder / "docker"
        program.write_text(RECORDER.format(log=log))
        program.chmod(0o755)
        limits = Limits(memory_bytes=2**30, cpus=1.5, processes=50)
        return ContainerExecutor(limits, ContainerSettings(program=str(program), **settings)), log  # type: ignore[arg-type]

    async def test_pull_start_services_and_pass_no_secrets(self, tmp_path: Path) -> None:
        (tmp_path / "run" / "build-1").mkdir(parents=True)
        executor, log = self.recorded(tmp_path, allowed_images=("registry.example.com/*", "postgres:*"))
        images = BuildImages("registry.example.com/a/b:1", ("postgres:16",), {"PUBLIC": "1", "LINES": "a\nb"})

        await run_scripts(executor, tmp_path / "run" / "build-1", images, "true")

        lines = log.read_text().splitlines()
        limits = "--security-opt no-new-privileges --memory 1073741824 --memory-swap 1073741824 --cpus 1.5 --pids-limit 50"
        assert [line for line in lines if line.startswith("pull")] == [
            "pull --quiet registry.example.com/a/b:1",
            "pull --quiet postgres:16",
        ]
        assert "network create forgefront-run-build-1" in lines and "network rm forgefront-run-build-1" in lines
        (service,) = (line for line in lines if line.startswith("run --detach"))
        assert "--network-alias postgres --env-file" in service and f"{limits} --pull never postgres:16" in service
        assert (tmp_path / "run" / "build-1" / "services").read_text() == "PUBLIC=1\n"
        (build,) = (line for line in lines if line.startswith("run --rm"))
        assert "hidden" not in build and "--network forgefront-run-build-1" in build and f"{limits} registry.example.com/a/b:1 -c" in build
        assert "export SECRET='it'\"'\"'s" in lines and not any("bad-name" in line for line in lines)
        assert "rm --force --volumes forgefront-run-build-1-service-0" in lines

        await executor.remove_leftovers(Path("/builds/runner-dead"))
        assert "rm -f -v forgefront-runner-dead-build-1-x" in log.read_text() and "rm -f -v other" not in log.read_text()
        for image, reason in (("other/image", "does not permit the image"), ("--privileged", "is not the name of an image")):
            with pytest.raises(BuildNotStarted, match=reason):
                await run_scripts(executor, tmp_path / "run" / "build-1", BuildImages(image), "true")

    async def test_without_an_engine_the_reason_is_named(self, tmp_path: Path) -> None:
        with pytest.raises(ExecutorUnavailable, match="no-such-engine is not installed"):
            await ContainerExecutor(settings=ContainerSettings(program="no-such-engine")).check()
        executor, _ = self.recorded(tmp_path)
        (tmp_path / "docker").write_text("#!/bin/sh\necho Cannot connect to the daemon.; exit 1\n")
        with pytest.raises(ExecutorUnavailable, match="does not work: Cannot connect to the daemon"):
            await executor.check()
