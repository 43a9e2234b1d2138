"""The executor `bubblewrap`: scripts run in a sandbox of `bwrap`, which needs neither a daemon nor root.

A script sees the programs of this machine read-only, a few files of /etc, and its own folders. It has its own processes: all of them
end with it, those too that left its process group. It does not see the runner's home, its configuration, or other builds.
"""

import asyncio
import json
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

from forgefront.runner.executors.executor import UNLIMITED, BuildPaths, ExecutorUnavailable, Limits, Session, Workspace
from forgefront.runner.executors.host_executor import HostExecutor
from forgefront.runner.executors.processes import run_process, terminate_descendants
from forgefront.runner.executors.resource_limits import ControlGroup, ControlGroups, limit_arguments
from forgefront.runner.scripts import BASH, NAME_PATTERN, SHELL, export_lines
from forgefront.runner.trace_buffer import TraceBuffer

USER_ID = 1000
"""The user of scripts in their sandbox, which is the runner's user outside of it."""
SHARED_MEMORY_BYTES = 2**26
"""Size of /dev/shm, if memory is not limited; else it may be half of the memory."""
CHECK_SECONDS = 20.0
SCRIPT_PATH, MIRROR_PATH = "/run/forgefront/script", "/run/forgefront/mirror.git"
VARIABLES_PATH = "/run/forgefront/variables"
EXPORT_COMMAND = (*((BASH, "--posix") if BASH else ("/bin/sh",)), "-c", '. "$0"; exec "$@"', VARIABLES_PATH)
"""Reads variables from a file. Unlike other shells, bash passes on names that are not its own; with --posix it ignores BASH_ENV."""
MAX_OPTIONS = 8900
"""Number of options for bwrap, which rejects more than 9000 arguments. A variable takes three."""
SHELL_VARIABLES = frozenset(("BASHOPTS", "BASH_VERSINFO", "EUID", "PPID", "SHELLOPTS", "UID"))
"""Variables that a shell cannot set."""
SYSTEM_FOLDERS = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/nix/store", "/gnu/store")
SYSTEM_FILES = (
    *("alternatives", "ca-certificates", "ca-certificates.conf", "crypto-policies", "debian_version", "fonts", "gai.conf", "host.conf"),
    *("hosts", "java*", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "locale.conf", "localtime", "lsb-release", "magic", "mime.types"),
    *("networks", "nsswitch.conf", "os-release", "perl", "php", "pki/ca-trust", "pki/tls/certs", "profile", "protocols", "python*", "R"),
    *("resolv.conf", "services", "shells", "ssl/certs", "ssl/openssl.cnf", "terminfo", "texmf", "timezone"),
)
"""What of /etc a sandbox has; the rest may hold passwords and keys, for example the runner's configuration."""
INSTALL_REMEDY = "Install it (Debian: apt-get install bubblewrap), or choose another executor: --executor shell trusts every build."
NAMESPACE_REMEDY = (
    "Unprivileged user namespaces are probably forbidden. Permit them (sysctl kernel.unprivileged_userns_clone=1,"
    " user.max_user_namespaces above 0, kernel.apparmor_restrict_unprivileged_userns=0; in a container: its seccomp profile),"
    " or choose another executor: --executor shell trusts every build."
)


class BubblewrapExecutor(HostExecutor):
    """Runs scripts in a sandbox of `bwrap`. `binds` are further paths that scripts may read."""

    name = "bubblewrap"

    def __init__(
        self,
        limits: Limits = UNLIMITED,
        groups: ControlGroups | None = None,
        *,
        has_network: bool = True,
        binds: tuple[Path, ...] = (),
        program: str = "bwrap",
    ) -> None:
        super().__init__(limits, groups)
        self.has_network = has_network
        self.binds = binds
        self.program = shutil.which(program) or ""

    async def check(self) -> None:
        if not self.program:
            raise ExecutorUnavailable("The program bwrap is not installed.", INSTALL_REMEDY)
        await asyncio.to_thread(self._check_sandbox)

    def _check_sandbox(self) -> None:
        for path in self.binds:
            if not path.exists():
                raise ExecutorUnavailable(f"{path} does not exist.", "Correct read_only in the configuration.")
        command = [self.program, *self.sandbox_arguments(), *limit_arguments(self.limits, is_own_namespace=True), "/bin/sh", "-c", ":"]
        try:
            done = subprocess.run(command, capture_output=True, env={}, timeout=CHECK_SECONDS, check=False)  # noqa: S603
        except (OSError, subprocess.TimeoutExpired) as error:
            raise ExecutorUnavailable(f"bwrap does not run: {error}.", NAMESPACE_REMEDY) from None
        if done.returncode != 0:
            text = done.stderr.decode(errors="replace").strip().splitlines() or [f"exit code {done.returncode}"]
            raise ExecutorUnavailable(f"bwrap cannot make a sandbox: {text[-1]}.", NAMESPACE_REMEDY)

    def sandbox_arguments(self) -> Iterator[str]:
        """The options that every sandbox has."""
        yield from ("--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try", "--die-with-parent")
        yield from ("--uid", str(USER_ID), "--gid", str(USER_ID), "--hostname", "build")
        if not self.has_network:
            yield "--unshare-net"
        for folder in map(Path, SYSTEM_FOLDERS):
            if folder.is_symlink():
                yield from ("--symlink", str(folder.readlink()), str(folder))
            elif folder.is_dir():
                yield from ("--ro-bind", str(folder), str(folder))
        for pattern in SYSTEM_FILES:
            for file in sorted(Path("/etc").glob(pattern)):
                # A symbolic link may lead to a folder that the sandbox does not have, such as /run.
                yield from ("--ro-bind-try", str(file.resolve()), str(file))
        for path in self.binds:
            yield from ("--ro-bind", str(path), str(path))
        shared = self.limits.memory_bytes // 2 if self.limits.memory_bytes else SHARED_MEMORY_BYTES
        yield from ("--proc", "/proc", "--dev", "/dev", "--size", str(shared), "--tmpfs", "/dev/shm", "--remount-ro", "/dev")  # noqa: S108

    def create_session(self, workspace: Workspace, group: ControlGroup | None) -> Session:
        return BubblewrapSession(self, workspace, group)


class BubblewrapSession(Session):
    """A build in sandboxes: one for each of its scripts, with the same folders."""

    def __init__(self, executor: BubblewrapExecutor, workspace: Workspace, group: ControlGroup | None) -> None:
        name = re.sub(r"[^A-Za-z0-9._-]", "-", workspace.project_name).lstrip(".") or "code"
        self.paths = BuildPaths(f"/builds/{name}", "/home/build", "/tmp", MIRROR_PATH)  # noqa: S108 - in the sandbox
        self._executor = executor
        self._workspace = workspace
        self._group = group

    async def run(self, script: Path, environment: Mapping[str, str], trace: TraceBuffer, stop: asyncio.Event) -> int:
        accounts = {
            "/etc/passwd": f"root:x:0:0:root:/:/usr/sbin/nologin\nbuild:x:{USER_ID}:{USER_ID}::{self.paths.home}:{SHELL[0]}\n",
            "/etc/group": f"root:x:0:\nbuild:x:{USER_ID}:\n",
        }
        opened: list[int] = []
        try:
            info = _memory_file(opened, b"")
            options = [*self._executor.sandbox_arguments(), "--info-fd", str(info)]
            for path, text in accounts.items():
                options += ["--ro-bind-data", str(_memory_file(opened, text.encode())), path]
            for source, target in (
                (self._workspace.code, self.paths.code),
                (self._workspace.home, self.paths.home),
                (self._workspace.temporary, self.paths.temporary),
            ):
                options += ["--bind", str(source), target]
            options += ["--ro-bind", str(script), SCRIPT_PATH]
            if self._workspace.mirror:
                # There is none if the code was cloned after all.
                options += ["--ro-bind-try", str(self._workspace.mirror), MIRROR_PATH]
            end = ["--remount-ro", "/", "--chdir", self.paths.code, "--clearenv"]
            passed, exported = split_environment(environment, (MAX_OPTIONS - len(options) - len(end)) // 3)
            if exported:
                options += ["--ro-bind-data", str(_memory_file(opened, export_lines(exported).encode())), VARIABLES_PATH]
            options += end
            for name, value in passed.items():
                options += ["--setenv", name, value]
            # In memory, since the variables are secrets and command lines are not; and not in the environment of bwrap, which is outside
            # of the sandbox, because LD_PRELOAD would apply to it.
            arguments = _memory_file(opened, b"".join(option.encode() + b"\0" for option in options))
            controlled = self._executor.controllers_of(self._group)
            command = [
                *(self._executor.program, "--args", str(arguments), "--"),
                *limit_arguments(self._executor.limits, controlled, is_own_namespace=True),
                *(EXPORT_COMMAND if exported else ()),
                *(*SHELL, SCRIPT_PATH),
            ]

            def terminate(_group: int) -> None:
                # A signal to the group would end bwrap, which kills the rest at once.
                terminate_descendants(_read_child(info))

            code = await run_process(
                self._group.wrap(command) if self._group else command,
                self._workspace.root,
                {"PATH": os.environ.get("PATH", os.defpath)},
                trace,
                stop,
                pass_fds=opened,
                terminate=terminate,
            )
        finally:
            for handle in opened:
                os.close(handle)
            if self._group:
                await asyncio.to_thread(self._group.kill)
        # bwrap and the shell report the signal that ended a script as 128 and its number.
        return 128 - code if code - 128 in (signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV, signal.SIGABRT) else code


def split_environment(environment: Mapping[str, str], count: int) -> tuple[dict[str, str], dict[str, str]]:
    """At most `count` variables for bwrap, and the rest, which a shell sets. Names that no shell can set come first.

    >>> split_environment({"A": "1", "B": "2", "c-d": "3"}, 2)
    ({'c-d': '3', 'A': '1'}, {'B': '2'})
    """
    pairs = sorted(environment.items(), key=lambda pair: bool(NAME_PATTERN.fullmatch(pair[0])) and pair[0] not in SHELL_VARIABLES)
    return dict(pairs[:count]), dict(pairs[count:])


def _memory_file(opened: list[int], data: bytes) -> int:
    """Opens a file in memory with these contents, and adds it to `opened`."""
    handle = os.memfd_create("forgefront-runner")
    opened.append(handle)
    remaining = memoryview(data)
    while remaining:
        remaining = remaining[os.write(handle, remaining) :]
    os.lseek(handle, 0, os.SEEK_SET)
    return handle


def _read_child(info: int) -> int:
    """The process that is the first one in the sandbox; this process's own number, which has no such children, if there is none yet."""
    try:
        return int(json.loads(os.pread(info, 4096, 0))["child-pid"])
    except (ValueError, KeyError, TypeError):
        return -1
