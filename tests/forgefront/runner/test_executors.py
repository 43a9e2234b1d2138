"""The executors of the runner: what scripts see, what they cannot do, and that nothing of them remains."""

import asyncio
import os
import signal
import socket
import subprocess
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from forgefront.runner.executors.bubblewrap import BubblewrapExecutor
from forgefront.runner.executors.executor import BuildImages, Executor, ExecutorUnavailable, Limits, Workspace
from forgefront.runner.executors.processes import list_children, terminate_descendants
from forgefront.runner.executors.resource_limits import ControlGroups, find_control_groups, limit_arguments
from forgefront.runner.executors.selection import ExecutorSettings, choose_executor
from forgefront.runner.executors.shell import ShellExecutor
from forgefront.runner.scripts import build_environment
from forgefront.runner.trace_buffer import TraceBuffer
from tests.forgefront.runner.test_runner import is_running, require_executor
from tests.support.waiting import wait_until


async def run_script(executor: Executor, root: Path, script: str, **variables: str) -> tuple[int, str]:
    """The exit code and the output of a script in a new session of the executor."""
    workspace, trace, stop = Workspace(root, "tool"), TraceBuffer((), limit=2**20), asyncio.Event()
    for folder in workspace.folders:
        folder.mkdir(exist_ok=True)
    file = workspace.scripts / "script"
    file.write_text(script)
    async with AsyncExitStack() as stack:
        session = await stack.enter_async_context(executor.open(workspace, BuildImages(), trace, stop))
        paths = session.paths
        environment = build_environment(variables, paths.home, paths.temporary, paths.path)
        code = await session.run(file, environment, trace, stop)
    trace.finish()
    return code, trace.next_chunk()


class TestBubblewrap:
    @pytest.fixture(autouse=True)
    def works(self) -> None:
        require_executor("bubblewrap")

    async def test_shows_a_read_only_system_and_the_folders_of_the_build(self, tmp_path: Path) -> None:
        home = Path.home()
        secret, ssh_folder = home / ".forgefront-runner-test", home / ".ssh"
        secret.write_text("secret")
        try:
            code, output = await run_script(
                BubblewrapExecutor(),
                tmp_path,
                f"""
                pwd; echo ~; id -u; id -un
                touch made ~/made /tmp/made && echo written
                for each in /usr/x /etc/x /dev/x /x /run/forgefront/script; do touch $each 2>/dev/null && echo "$each can be written"; done
                for each in {secret} {tmp_path} /etc/shadow /etc/ssh {ssh_folder} /var /sys; do [ -e $each ] && echo "$each is seen"; done
                grep CapEff /proc/self/status; grep NoNewPrivs /proc/self/status
                ls /proc | grep -c '^[0-9]'
                printf '%s\\n' "$SECRET" "${{OUTSIDE-unset}}" "${{LD_PRELOAD}}"
                tr '\\0' '\\n' </proc/1/cmdline | grep -c hidden-value || true
                umask
                """,
                SECRET="hidden-value",
                LD_PRELOAD="./evil.so",
            )
        finally:
            secret.unlink()

        lines = [line for line in output.splitlines() if "evil.so' from LD_PRELOAD" not in line]
        assert lines[:5] == ["/builds/tool", "/home/build", "1000", "build", "written"], output
        assert lines[5:7] == ["CapEff:\t0000000000000000", "NoNewPrivs:\t1"], output
        assert int(lines[7]) < 10
        assert lines[8:] == ["hidden-value", "unset", "./evil.so", "0", "0022"], output
        assert code == 0
        assert {path.name for path in (tmp_path / "code").iterdir()} == {"made"}

    async def test_limits_processes_memory_and_files(self, tmp_path: Path) -> None:
        limits = Limits(memory_bytes=2**28, cpus=1, processes=100, disk_bytes=2**20)
        code, output = await run_script(
            BubblewrapExecutor(limits),
            tmp_path,
            "ulimit -v; ulimit -u; nproc; head -c 2000000 /dev/zero >large || echo truncated; stat -c %s large\n"
            "df --output=size -k /dev/shm | tail -1",
        )

        assert [line.strip() for line in output.splitlines() if "limit exceeded" not in line] == [
            *("262144", "100", "1", "truncated", "1048576", "131072")
        ], output
        assert code == 0
        assert (await run_script(BubblewrapExecutor(limits), tmp_path, "head -c 1G /dev/zero | tail -n 1 >/dev/null"))[0] != 0

    async def test_has_more_variables_than_bwrap_takes_arguments(self, tmp_path: Path) -> None:
        variables = {f"NUMBER_{number}": f"it's\n{number}" for number in range(5000)} | {"not-a-name": "odd", "UID": "7"}
        script = 'env | grep -c ^NUMBER_; echo "$NUMBER_0 $NUMBER_4999"; printenv not-a-name UID'

        assert await run_script(BubblewrapExecutor(), tmp_path, script, **variables) == (0, "5000\nit's\n0 it's\n4999\nodd\n7\n")

    async def test_has_no_network_where_it_is_switched_off(self, tmp_path: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            script = f"exec 3<>/dev/tcp/127.0.0.1/{listener.getsockname()[1]} && echo connected"
            assert (await run_script(BubblewrapExecutor(), tmp_path, script))[1] == "connected\n"
            assert "Connection refused" in (await run_script(BubblewrapExecutor(has_network=False), tmp_path, script))[1]

    async def test_without_it_the_reason_is_named(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        with pytest.raises(ExecutorUnavailable, match=r"not installed.*apt-get install bubblewrap"):
            await BubblewrapExecutor(program="no-such-bwrap").check()
        (tmp_path / "bwrap").write_text("#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2; exit 1\n")
        (tmp_path / "bwrap").chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
        with pytest.raises(ExecutorUnavailable, match=r"No permissions to create new namespace.*unprivileged_userns_clone"):
            await choose_executor(ExecutorSettings("bubblewrap"))
        assert isinstance(await choose_executor(ExecutorSettings("auto")), ShellExecutor)


class TestProcesses:
    @pytest.mark.parametrize("kind", ["bubblewrap", "shell", "shell with cgroups"])
    async def test_that_left_their_group_end_with_the_build(self, kind: str, tmp_path: Path) -> None:
        groups = await asyncio.to_thread(find_control_groups) if kind.endswith("cgroups") else None
        if kind.endswith("cgroups") and groups is None:
            pytest.skip("cgroups v2 are not delegated to this process")
        if kind == "bubblewrap":
            await BubblewrapExecutor().check()
        executor = BubblewrapExecutor() if kind == "bubblewrap" else ShellExecutor(groups=groups)
        # With cgroups also those that have no environment to be found by.
        clear = "" if kind == "shell" else "env -i "

        code, output = await run_script(executor, tmp_path, f"{clear}setsid sleep 53197 >/dev/null 2>&1 & sleep 0.2; echo ended")

        assert (code, output) == (0, "ended\n")
        for _ in range(100):
            if not is_running("sleep 53197"):
                break
            await asyncio.sleep(0.02)
        assert not is_running("sleep 53197")
        assert groups is None or not (groups.folder / tmp_path.name).exists()

    async def test_signals_of_scripts_are_reported_as_such(self, tmp_path: Path) -> None:
        assert (await run_script(ShellExecutor(), tmp_path, "kill -9 $$"))[0] == -9


class TestControlGroups:
    def test_have_the_limits_of_the_build(self, tmp_path: Path) -> None:
        groups = ControlGroups(tmp_path, frozenset(("memory", "pids")))
        group = groups.create("build-1", Limits(memory_bytes=1000, cpus=1.5, processes=20))

        written = {file.name: file.read_text() for file in group.folder.iterdir()}
        assert written == {"memory.max": "1000", "memory.swap.max": "0", "pids.max": "20"}
        # What a cgroup limits, `prlimit` does not, and the other way round.
        options = limit_arguments(Limits(memory_bytes=1000, cpus=1, processes=20), groups.controllers, is_own_namespace=True)
        assert not [option for option in options if option.startswith(("--as", "--nproc"))] and "--cpu-list" in options

    def test_are_used_only_where_they_are_delegated(self, tmp_path: Path) -> None:
        mounts, own = tmp_path / "mountinfo", tmp_path / "cgroup"
        mounts.write_text(f"1 2 0:1 / {tmp_path}/sys rw shared:1 - cgroup2 none rw\n")
        own.write_text("3:cpu:/x\n0::/service\n")
        service = tmp_path / "sys" / "service"
        service.mkdir(parents=True)
        (service / "cgroup.controllers").write_text("cpu io memory")
        assert find_control_groups(mounts, own) is None
        for name in ("cgroup.kill", "cgroup.procs", "cgroup.subtree_control"):
            (service / name).touch()

        assert find_control_groups(mounts, own) == ControlGroups(service, frozenset(("cpu", "memory")))
        assert (service / "runner" / "cgroup.procs").read_text() == "0"
        assert (service / "cgroup.subtree_control").read_text() == "+cpu +memory"


class TestKilledRunner:
    async def test_takes_the_scripts_of_the_shell_with_it(self, tmp_path: Path) -> None:
        runner = os.fork()
        if runner == 0:
            try:
                # A new loop in a new process, as that of a runner.
                asyncio.Runner().run(run_script(ShellExecutor(), tmp_path, "sleep 86431 & wait"))
            finally:
                os._exit(1)
        try:
            await wait_until(lambda: bool(is_running("sleep 86431")))
            # The script may begin before the process that watches.
            await wait_until(lambda: bool(list_children(runner)[1:]))
        finally:
            os.kill(runner, signal.SIGKILL)
            await asyncio.to_thread(os.waitpid, runner, 0)

        await wait_until(lambda: not is_running("sleep 86431"))


def test_a_process_that_has_ended_has_no_children(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one that ends while they are listed: its folder is found, and gone when it is read."""
    process = subprocess.Popen(["true"])
    process.wait()
    monkeypatch.setattr(Path, "is_dir", lambda self: True)
    assert list_children(process.pid) == []
    terminate_descendants(process.pid)
